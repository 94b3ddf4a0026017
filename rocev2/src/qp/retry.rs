//! When to send again, and when to give up.

use crate::env::{Duration, Instant, code_duration};

/// The shortest retransmission timeout: below it, a busy host's own scheduling looks like loss.
const RTO_MIN: Duration = Duration::from_millis(1);
/// The measured timeout doubles this often at once. A resend that is lost leaves nothing but the timer
/// (the peer says only one NAK per gap), so that a path that loses much needs many, soon.
const BACKOFF_SOON: u32 = 2;
/// After this many resends without an answer it is not loss: the timeout doubles each time, up to the
/// negotiated one, as that decides when to give up.
const SILENT_AFTER: u32 = 8;
/// The timeout before the first round trip is measured, at most.
const RTO_INITIAL: Duration = Duration::from_millis(100);
/// That timeout over the time in which the connection was made, which took a round trip at least: as
/// long as the first one measured would make it.
const HANDSHAKES: u32 = 3;

/// Duration of a 5-bit timeout code: 4.096 us * 2^code; `None` for 0, which means never
/// (IBTA ch. 9, Transport Timer).
pub fn timeout(code: u8) -> Option<Duration> {
    (code != 0).then(|| code_duration(code.min(31)))
}

/// The retransmission timer of one QP.
///
/// Resending runs on a measured round trip (as RFC 6298 does for TCP), because the negotiated
/// timeout, half a second on Linux, is far too long for it. The negotiated timeout and retry count
/// decide only when to give up: after `timeout * (retries + 1)` without progress, and not before
/// that many retries were made.
#[derive(Debug)]
pub struct RetryTimer {
    negotiated: Option<Duration>,
    retries: u32,
    /// When the connection was asked for or granted, until the first packet leaves.
    handshake_at: Option<Instant>,
    initial: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
    /// Resends without progress.
    resends: u32,
    progress_at: Instant,
    deadline: Option<Instant>,
}

/// What an expired timer asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// Not yet.
    None,
    /// Send something again: the oldest unacknowledged packet at least.
    Resend,
    /// The retries are used up.
    GiveUp,
}

impl RetryTimer {
    /// A stopped timer.
    pub const fn new() -> Self {
        Self {
            negotiated: None,
            retries: 0,
            handshake_at: None,
            initial: RTO_INITIAL,
            smoothed: None,
            variation: Duration::ZERO,
            resends: 0,
            progress_at: Instant::from_nanos(0),
            deadline: None,
        }
    }

    /// Sets what the connection agreed on: a timeout code and a retry count of 0..=7.
    pub fn connect(&mut self, timeout_code: u8, retries: u8) {
        self.negotiated = timeout(timeout_code);
        self.retries = u32::from(retries.min(7));
    }

    /// The peer was asked for the connection, or granted it, and nothing is sent before its answer.
    pub fn handshake(&mut self, now: Instant) {
        self.handshake_at = Some(now);
    }

    /// When [`Self::expired`] is worth asking.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// A packet left; starts the timer if it does not run.
    pub fn sent(&mut self, now: Instant) {
        if let Some(began) = self.handshake_at.take() {
            let took = now.saturating_since(began);
            self.initial = took.saturating_mul(HANDSHAKES).min(RTO_INITIAL);
        }
        if self.deadline.is_none() {
            self.progress_at = now;
            self.rearm(now);
        }
    }

    /// Resends without progress so far.
    pub const fn resends(&self) -> u32 {
        self.resends
    }

    /// Something was sent again that the peer asked for: its answer takes a round trip from now.
    pub fn restart(&mut self, now: Instant) {
        self.rearm(now);
    }

    /// The peer acknowledged something; `outstanding` tells whether more is in flight.
    pub fn progress(&mut self, now: Instant, outstanding: bool) {
        self.resends = 0;
        self.progress_at = now;
        if outstanding { self.rearm(now) } else { self.deadline = None }
    }

    /// A round trip was measured on a packet that was sent once (Karn's rule).
    pub fn sample(&mut self, rtt: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    /// Pushes the whole schedule to `until`: the peer asked for a pause, which is not a failure.
    pub fn pause(&mut self, until: Instant) {
        self.progress_at = until;
        self.deadline = None;
    }

    /// Stops the timer.
    pub fn stop(&mut self) {
        self.deadline = None;
    }

    /// Whether the timer ran out, and what follows.
    pub fn expired(&mut self, now: Instant) -> Expiry {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Expiry::None;
        }
        if self.gives_up_at().is_some_and(|at| now >= at) {
            self.deadline = None;
            return Expiry::GiveUp;
        }
        self.resends = self.resends.saturating_add(1);
        self.rearm(now);
        Expiry::Resend
    }

    /// When nothing is sent again any more, if the retries that were agreed on are made.
    fn gives_up_at(&self) -> Option<Instant> {
        let patience = self.negotiated.filter(|_| self.resends >= self.retries)?;
        Some(self.progress_at + patience * (self.retries + 1))
    }

    fn rearm(&mut self, now: Instant) {
        let base = self.smoothed.map_or(self.initial, |smoothed| smoothed + self.variation * 4);
        let ceiling = self.negotiated.unwrap_or(Duration::from_secs(1)).max(RTO_MIN);
        let doublings =
            self.resends.min(BACKOFF_SOON) + self.resends.saturating_sub(SILENT_AFTER).min(16);
        let base = base.max(RTO_MIN).min(ceiling);
        let next = now + base.saturating_mul(1 << doublings).min(ceiling);
        // Giving up is not put off, but by the round trip of what was just sent.
        self.deadline = Some(self.gives_up_at().map_or(next, |at| next.min(at.max(now + base))));
    }
}

impl Default for RetryTimer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn codes_mean_what_the_table_says() {
        assert_eq!(timeout(0), None);
        assert_eq!(timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(timeout(14).unwrap().as_millis(), 67);
        assert_eq!(timeout(31).unwrap().as_secs(), 8796);
    }

    #[test]
    fn gives_up_after_the_negotiated_time_and_not_before() {
        let mut timer = RetryTimer::new();
        timer.connect(14, 2);
        timer.sent(at(0));
        let mut now = at(0);
        let resends = loop {
            now = timer.deadline().unwrap_or(now);
            match timer.expired(now) {
                Expiry::GiveUp => break now,
                Expiry::Resend => assert!(now < at(300)),
                Expiry::None => unreachable!(),
            }
        };
        assert!(resends >= at(201) && resends < at(300), "{resends:?}");
    }

    #[test]
    fn a_short_negotiated_timeout_still_gets_its_retries() {
        let mut timer = RetryTimer::new();
        timer.connect(1, 3);
        timer.sent(at(0));
        for _ in 0..3 {
            assert_eq!(timer.expired(timer.deadline().unwrap()), Expiry::Resend);
        }
        assert_eq!(timer.expired(timer.deadline().unwrap()), Expiry::GiveUp);
    }

    #[test]
    fn backoff_is_bounded() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(Duration::from_micros(50));
        timer.sent(at(0));
        let mut waits = std::vec::Vec::new();
        let mut now = at(0);
        while timer.expired(now) != Expiry::GiveUp {
            let next = timer.deadline().unwrap();
            waits.push(next.saturating_since(now).as_millis());
            now = next;
        }
        // A few soon, as what was sent again may be lost too; few in all, as nobody may be there.
        assert_eq!(waits[..12], [1, 2, 4, 4, 4, 4, 4, 4, 4, 8, 16, 32], "{waits:?}");
        assert!(waits.len() < 30, "{waits:?}");
        let patience = timeout(17).unwrap() * 8;
        assert!((patience..=patience + RTO_MIN).contains(&now.saturating_since(at(0))), "{now:?}");
    }

    #[test]
    fn progress_restores_the_retries() {
        let mut timer = RetryTimer::new();
        timer.connect(14, 1);
        timer.sent(at(0));
        for step in 1..100 {
            timer.progress(at(step * 100), true);
        }
        assert_eq!(timer.expired(at(9_901)), Expiry::None);
        timer.progress(at(10_000), false);
        assert_eq!(timer.deadline(), None);
    }

    #[test]
    fn the_handshake_says_how_long_a_round_trip_may_be() {
        for (took_ms, expected_ms) in [(0, 1), (1, 3), (20, 60), (50, 100), (90_000, 100)] {
            let mut timer = RetryTimer::new();
            timer.connect(17, 7);
            timer.handshake(at(5));
            timer.sent(at(5 + took_ms));
            timer.sent(at(9_000_000));
            assert_eq!(timer.deadline(), Some(at(5 + took_ms + expected_ms)));
            timer.sample(Duration::from_millis(7));
            timer.restart(at(100));
            assert_eq!(timer.deadline(), Some(at(121)), "a measure is better");
        }
    }

    #[test]
    fn a_measured_round_trip_shortens_the_timer() {
        let mut timer = RetryTimer::new();
        timer.connect(17, 7);
        timer.sample(Duration::from_micros(50));
        timer.sent(at(0));
        assert_eq!(timer.deadline(), Some(at(1)));
    }
}
