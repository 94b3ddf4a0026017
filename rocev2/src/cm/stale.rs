//! A connection that may be stale: a message says that its peer has started anew, and may be forged.
//!
//! A REQ or REP that names the queue pair of a connection that we have shows a stale connection (IBTA
//! ch. 12, Stale Connection), but addresses, GUID and QPN are known to many. So the message is refused,
//! which costs one datagram for one, and ends nothing. It starts a check: we probe the old queue pair
//! (`qp::send::probe`), and the connection ends if the peer is silent for `LIMIT`. The response to a probe
//! carries our QPN and a PSN of ours, which the sender of a forged REQ does not know.
//!
//! Where we have sent DREQ, another DREQ is the check: a peer that has started anew responds by DREP, as to
//! any DREQ for IDs that it does not know.

use super::Cm;
use super::api::ConnId;
use super::state::State;
use crate::env::{Duration, Instant};

/// From the first probe to the second; doubled for each further one.
const FIRST: Duration = Duration::from_millis(100);
/// Probes without a response that end the connection.
const PROBES: u32 = 4;
/// From the first probe to the end. A round trip takes less, and a peer that was killed and comes back
/// need not wait for long.
#[cfg(test)]
pub(super) const LIMIT: Duration = Duration::from_millis(1500);
/// From one check to the next, at least: however many REQs come, at most eight probes a second leave.
const INTERVAL: Duration = Duration::from_millis(250);

/// The check of one connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StaleCheck {
    started_at: Option<Instant>,
    /// Probes sent for the running check; 0 where none runs.
    probes: u32,
    /// The queue pair has a probe to send.
    owed: bool,
}

impl StaleCheck {
    /// Starts a check, unless one is running or the last one has just begun. Returns whether it did.
    fn start(&mut self, now: Instant) -> bool {
        let soon = |started: Instant| now.saturating_since(started) < INTERVAL;
        if self.probes > 0 || self.started_at.is_some_and(soon) {
            return false;
        }
        self.started_at = Some(now);
        true
    }

    /// Counts one more probe. Returns when the next is due; `None` after the last one.
    fn probe(&mut self, now: Instant) -> Option<Instant> {
        if self.probes == PROBES {
            return None;
        }
        let wait = FIRST * (1 << self.probes);
        self.probes += 1;
        Some(now + wait)
    }
}

impl Cm {
    /// Checks a connection whose queue pair or ID an unknown sender claims.
    pub(super) fn check_stale(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.stale_check.start(now) {
            return;
        }
        match conn.state {
            State::Established => self.probe_or_lose(now, id),
            State::DreqSent => self.send_again(id),
            _ => {}
        }
    }

    /// Probes the peer of an established connection once more, or ends the connection: its timer has
    /// expired.
    pub(super) fn probe_or_lose(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(deadline) = conn.stale_check.probe(now) else { return self.lose_peer(now, id) };
        if !core::mem::replace(&mut conn.stale_check.owed, true) {
            self.conns.probes.push_back(id);
        }
        self.conns.set_deadline(id, Some(deadline));
    }

    /// The next connection whose queue pair is to be probed. The caller reports the outcome by
    /// [`Self::peer_answered`] or [`Self::peer_gone`].
    pub(crate) fn poll_probe(&mut self) -> Option<ConnId> {
        loop {
            let id = self.conns.probes.pop_front()?;
            if let Some(conn) = self.conns.get_mut(id)
                && core::mem::take(&mut conn.stale_check.owed)
                && conn.state == State::Established
            {
                return Some(id);
            }
        }
    }

    /// The peer's queue pair has responded: the connection is not stale.
    pub(crate) fn peer_answered(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.state == State::Established) {
            conn.stale_check.probes = 0;
            self.conns.set_deadline(id, None);
        }
    }

    /// Our own queue pair can no longer probe: a connection that may be stale ends.
    pub(crate) fn peer_gone(&mut self, now: Instant, id: ConnId) {
        if self.conns.get(id).is_some_and(|conn| conn.state == State::Established) {
            self.lose_peer(now, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_take_as_long_as_the_limit() {
        let start = Instant::from_nanos(5);
        let (mut check, mut now) = (StaleCheck::default(), start);
        assert!(check.start(now) && !check.start(now) | (check.probes > 0));
        while let Some(next) = check.probe(now) {
            now = next;
        }
        assert_eq!(now.saturating_since(start), LIMIT);
    }

    /// However many REQs come, and however quickly the peer responds.
    #[test]
    fn checks_are_bounded() {
        let mut check = StaleCheck::default();
        let mut probes = 0;
        for ms in 0..10_000 {
            let now = Instant::from_nanos(ms * 1_000_000);
            if check.start(now) {
                check.probe(now).unwrap();
                (check.probes, probes) = (0, probes + 1);
            }
        }
        assert_eq!(probes, 40);
    }
}
