//! The limit on connection management: a flood of CM messages leaves the work of the device to the
//! connections that exist.

use crate::cm::CmConfig;
use crate::env::Instant;

/// Units of queue pairs that leave between two CM messages, while both wait.
const UNITS_BETWEEN: u32 = 8;

/// A token bucket for received CM messages, and turns for sent ones: one after so many units of queue
/// pairs.
#[derive(Debug)]
pub(super) struct MadLimiter {
    /// One token, in nanoseconds.
    cost_ns: u64,
    burst_ns: u64,
    /// The tokens in the bucket at `since`, in nanoseconds.
    credit_ns: u64,
    since: Instant,
    /// Units of queue pairs since the last message was sent.
    units: u32,
    /// No received message is allowed.
    closed: bool,
}

impl MadLimiter {
    pub(super) fn new(config: &CmConfig) -> Self {
        let cost_ns = 1_000_000_000 / u64::from(config.max_rate.max(1));
        let burst_ns = cost_ns * u64::from(config.max_burst.max(1));
        Self {
            cost_ns,
            burst_ns,
            credit_ns: burst_ns,
            since: Instant::default(),
            units: UNITS_BETWEEN,
            closed: false,
        }
    }

    /// Whether there is a token for one more received message.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let passed = now.as_nanos().saturating_sub(self.since.as_nanos());
        self.since = self.since.max(now);
        self.credit_ns = self.credit_ns.saturating_add(passed).min(self.burst_ns);
        self.credit_ns >= self.cost_ns && !self.closed
    }

    /// Allows no received message from now on, or again as many as the rate allows.
    pub(super) const fn set_closed(&mut self, closed: bool) {
        self.closed = closed;
    }

    /// Takes a token for a message that was received and allowed.
    pub(super) const fn received(&mut self) {
        self.credit_ns = self.credit_ns.saturating_sub(self.cost_ns);
    }

    /// Whether a CM message leaves before packets of queue pairs.
    pub(super) const fn sends_first(&self) -> bool {
        self.units >= UNITS_BETWEEN
    }

    /// Notes that a CM message was sent.
    pub(super) const fn sent(&mut self) {
        self.units = 0;
    }

    /// Units of queue pairs that may leave before it.
    pub(super) const fn units_before(&self) -> usize {
        UNITS_BETWEEN.saturating_sub(self.units) as usize
    }

    /// Notes that units of a queue pair were sent.
    pub(super) const fn qp_sent(&mut self, units: usize) {
        self.units = self.units.saturating_add(units as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Duration;

    /// The messages that are allowed, of `count` that come at once.
    fn allowed(limiter: &mut MadLimiter, now: Instant, count: u32) -> u32 {
        let mut allowed = 0;
        for _ in 0..count {
            if limiter.allows(now) {
                limiter.received();
                allowed += 1;
            }
        }
        allowed
    }

    #[test]
    fn a_burst_then_the_rate() {
        let config = CmConfig { max_rate: 1000, max_burst: 10, ..CmConfig::default() };
        let mut limiter = MadLimiter::new(&config);
        let mut now = Instant::from_nanos(5);
        assert_eq!(allowed(&mut limiter, now, 100), 10);
        for _ in 0..20 {
            now = now + Duration::from_micros(2_500);
            // Two, and every other time the half that was left makes a third.
            assert!((2..=3).contains(&allowed(&mut limiter, now, 100)));
        }
        // Silence saves up no more than a burst, and a clock that goes back nothing.
        assert_eq!(allowed(&mut limiter, now + Duration::from_secs(100), 100), 10);
        assert_eq!(allowed(&mut limiter, now, 100), 0);
    }

    #[test]
    fn one_message_between_units() {
        let mut limiter = MadLimiter::new(&CmConfig::default());
        let mut sent = std::vec::Vec::new();
        for _ in 0..20 {
            sent.push(limiter.sends_first());
            if limiter.sends_first() { limiter.sent() } else { limiter.qp_sent(1) }
        }
        let messages = [0, 9, 18];
        assert!(
            sent.iter().enumerate().all(|(i, first)| *first == messages.contains(&i)),
            "{sent:?}"
        );
    }
}
