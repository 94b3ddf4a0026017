//! The schedule of a message's resends.

use super::CmConfig;
use crate::env::{Duration, Instant};

/// The timer of the one message for whose response a connection waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Retry {
    /// The wait after the next resend.
    interval: Duration,
    /// The longest wait: the negotiated one.
    longest: Duration,
    resends_left: u8,
    /// The message is given up at this time.
    give_up: Instant,
    /// The time for a peer that is alive.
    limit: Duration,
    /// An MRA came since the last resend.
    extended: bool,
    /// The latest time to give up, whatever the peer asks for.
    latest: Instant,
    /// REJ 10 came, and is final after this time.
    stale_until: Option<Instant>,
}

impl Retry {
    /// Starts the timer of a message that was just sent. Also returns its first deadline.
    pub(super) fn start(
        now: Instant,
        config: &CmConfig,
        longest: Duration,
        limit: Duration,
    ) -> (Self, Instant) {
        // A peer can make us send neither faster than our own setting nor without a pause.
        let first = config.first_resend.max(SHORTEST);
        let mut retry = Self {
            interval: first,
            longest: longest.max(first),
            resends_left: config.max_retries,
            give_up: now + limit,
            limit,
            extended: false,
            latest: now + config.peer_limits.response_limit.max(limit),
            stale_until: None,
        };
        let deadline = retry.schedule(now);
        (retry, deadline)
    }

    /// Acts on the deadline. Returns the next one after a resend, or `None` to give up.
    pub(super) fn resend(&mut self, now: Instant) -> Option<Instant> {
        if now >= self.give_up {
            return None;
        }
        self.resends_left = self.resends_left.checked_sub(1)?;
        self.extended = false;
        Some(self.schedule(now))
    }

    /// Acts on an MRA: the peer is alive and needs `service_time`. Returns the new deadline; `None` for a
    /// second MRA about the same sending, which is a duplicate (as in Linux).
    pub(super) fn extend(&mut self, now: Instant, service_time: Duration) -> Option<Instant> {
        if self.extended {
            return None;
        }
        self.extended = true;
        // The peer has the message. Only its response can get lost, and the peer resends that by itself.
        self.interval = self.longest;
        let deadline = (now + service_time).min(self.latest);
        self.give_up = self.give_up.max(deadline + self.limit).min(self.latest);
        Some(deadline)
    }

    /// Acts on REJ 10 (stale connection): the peer thinks that our queue pair is still in another
    /// connection, and checks whether that one is alive. Returns when to resend; `None` if the peer has had
    /// long enough.
    pub(super) fn put_off(&mut self, now: Instant) -> Option<Instant> {
        let until = *self.stale_until.get_or_insert(now + STALE_LIMIT);
        let again = now + STALE_PAUSE;
        if again > until || again >= self.give_up {
            return None;
        }
        // The peer did respond.
        self.resends_left = self.resends_left.saturating_add(1);
        Some(again)
    }

    fn schedule(&mut self, now: Instant) -> Instant {
        let deadline = (now + self.interval).min(self.give_up);
        self.interval = (self.interval * 2).min(self.longest);
        // Without resends, the next deadline is the one to give up.
        if self.resends_left == 0 { self.give_up } else { deadline }
    }
}

const SHORTEST: Duration = Duration::from_millis(1);
/// The time for which REJ 10 is not final. A peer that runs this crate needs 1.5 s for its check; Linux
/// ends the old connection at once.
const STALE_LIMIT: Duration = Duration::from_secs(3);
/// From REJ 10 to the next REQ.
const STALE_PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn start(config: &CmConfig) -> (Retry, Instant) {
        let now = Instant::default();
        Retry::start(now, config, config.request_timeout(), config.connect_limit)
    }

    fn run(mut retry: Retry, mut deadline: Instant) -> Vec<u128> {
        let mut fired = Vec::new();
        loop {
            fired.push(deadline.saturating_since(Instant::default()).as_millis());
            match retry.resend(deadline) {
                Some(next) => deadline = next,
                None => return fired,
            }
        }
    }

    #[test]
    fn waits_double_up_to_the_negotiated_one() {
        let (retry, deadline) = start(&CmConfig::default());
        assert_eq!(run(retry, deadline), [500, 1500, 3500, 7500, 12331, 17163, 20000]);
    }

    #[test]
    fn resends_are_counted() {
        let (retry, deadline) = start(&CmConfig { max_retries: 1, ..CmConfig::default() });
        assert_eq!(run(retry, deadline), [500, 20000]);
    }

    #[test]
    fn a_wait_of_nothing_still_ends() {
        let config = CmConfig { first_resend: Duration::ZERO, ..CmConfig::default() };
        let (retry, deadline) = start(&config);
        assert_eq!(run(retry, deadline).len(), 16);
        let now = Instant::default();
        let (retry, deadline) = Retry::start(now, &config, Duration::ZERO, Duration::ZERO);
        assert_eq!(run(retry, deadline), [0]);
    }

    /// REJ 10 is the last word where the next REQ would come when all is given up.
    #[test]
    fn the_last_retry_is_not_put_off() {
        let config = CmConfig { connect_limit: Duration::from_secs(1), ..CmConfig::default() };
        let at = |millis| Instant::default() + Duration::from_millis(millis);
        for (now, again) in [(749, Some(999)), (750, None), (751, None)] {
            let (mut retry, _) = start(&config);
            assert_eq!(retry.put_off(at(now)), again.map(at));
        }
    }

    #[test]
    fn each_sending_is_extended_once() {
        let (mut retry, deadline) = start(&CmConfig::default());
        let extended = retry.extend(deadline, Duration::from_secs(17)).unwrap();
        assert_eq!(extended.as_nanos(), 17_500_000_000);
        assert_eq!(retry.extend(deadline, Duration::from_secs(17)), None);
        let resent = retry.resend(extended).unwrap();
        assert_eq!(resent.saturating_since(extended), CmConfig::default().request_timeout());
        assert!(retry.extend(extended, Duration::from_secs(17)).is_some());
    }
}
