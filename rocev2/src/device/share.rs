//! How much of a device's work connection management may take, so that a flood of requests leaves the
//! rest to the connections there are.

use crate::cm::CmConfig;
use crate::env::Instant;

/// Units of queue pairs that leave between two messages of connection management, while there are both.
const UNITS_BETWEEN: u32 = 8;

/// The share in what is received: a rate, with a burst; and in what is sent: one unit of some.
#[derive(Debug)]
pub(super) struct CmShare {
    /// Nanoseconds that one message stands for.
    cost_ns: u64,
    burst_ns: u64,
    /// What is left of the burst, at `since`.
    credit_ns: u64,
    since: Instant,
    /// Units of queue pairs since the last message was sent.
    units: u32,
    /// Nothing that is received is worked on.
    shut: bool,
}

impl CmShare {
    pub(super) fn new(config: &CmConfig) -> Self {
        let cost_ns = 1_000_000_000 / u64::from(config.max_rate.max(1));
        let burst_ns = cost_ns * u64::from(config.max_burst.max(1));
        Self {
            cost_ns,
            burst_ns,
            credit_ns: burst_ns,
            since: Instant::default(),
            units: UNITS_BETWEEN,
            shut: false,
        }
    }

    /// Whether one more message is worked on now.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        let passed = now.as_nanos().saturating_sub(self.since.as_nanos());
        self.since = self.since.max(now);
        self.credit_ns = self.credit_ns.saturating_add(passed).min(self.burst_ns);
        self.credit_ns >= self.cost_ns && !self.shut
    }

    /// From now on no message is worked on, or as many as the rate allows.
    pub(super) const fn shut(&mut self, shut: bool) {
        self.shut = shut;
    }

    /// A message that was admitted is worked on.
    pub(super) const fn received(&mut self) {
        self.credit_ns = self.credit_ns.saturating_sub(self.cost_ns);
    }

    /// Whether a message goes before what queue pairs send.
    pub(super) const fn sends_first(&self) -> bool {
        self.units >= UNITS_BETWEEN
    }

    /// A message was sent.
    pub(super) const fn sent(&mut self) {
        self.units = 0;
    }

    /// A unit of a queue pair was sent.
    pub(super) const fn passed(&mut self) {
        self.units = self.units.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Duration;

    /// Messages that are worked on, of `count` that come at once.
    fn worked_on(share: &mut CmShare, now: Instant, count: u32) -> u32 {
        let mut worked_on = 0;
        for _ in 0..count {
            if share.admits(now) {
                share.received();
                worked_on += 1;
            }
        }
        worked_on
    }

    #[test]
    fn a_burst_then_the_rate() {
        let config = CmConfig { max_rate: 1000, max_burst: 10, ..CmConfig::default() };
        let mut share = CmShare::new(&config);
        let mut now = Instant::from_nanos(5);
        assert_eq!(worked_on(&mut share, now, 100), 10);
        for _ in 0..20 {
            now = now + Duration::from_micros(2_500);
            // Two, and every other time the half that was left makes a third.
            assert!((2..=3).contains(&worked_on(&mut share, now, 100)));
        }
        // Silence saves up no more than a burst, and a clock that goes back nothing.
        assert_eq!(worked_on(&mut share, now + Duration::from_secs(100), 100), 10);
        assert_eq!(worked_on(&mut share, now, 100), 0);
    }

    #[test]
    fn one_message_between_units() {
        let mut share = CmShare::new(&CmConfig::default());
        let mut sent = std::vec::Vec::new();
        for _ in 0..20 {
            sent.push(share.sends_first());
            if share.sends_first() { share.sent() } else { share.passed() }
        }
        let messages = [0, 9, 18];
        assert!(
            sent.iter().enumerate().all(|(i, first)| *first == messages.contains(&i)),
            "{sent:?}"
        );
    }
}
