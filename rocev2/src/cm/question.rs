//! A connection in question: something says that its peer has started anew, and may be forged.
//!
//! A REQ or REP that names the queue pair of a connection that we have is stale (IBTA ch. 12, Stale
//! Connection), but addresses, GUID and QPN are known to many. So it is refused, which costs one datagram
//! for one, and ends nothing. It makes us ask: the old queue pair is probed
//! ([`crate::qp::probe`]), and the connection ends if it is silent for [`LIMIT`]. The answer to
//! a probe carries our QPN and a PSN of ours, which the sender of a forged REQ does not know.
//!
//! Where we have sent DREQ, that is what asks: a peer that has started anew answers it by DREP, as one
//! for IDs that it does not know.

use super::Cm;
use super::api::ConnId;
use super::state::State;
use crate::env::{Duration, Instant};

/// From the first probe to the second; doubled for each further one.
const FIRST: Duration = Duration::from_millis(100);
/// Probes without an answer.
const PROBES: u32 = 4;
/// From the first probe to the end. A round trip takes less, and a peer that was killed and comes back
/// is not kept waiting.
#[cfg(test)]
pub(super) const LIMIT: Duration = Duration::from_millis(1500);
/// From one question to the next, at least: however many REQs come, eight probes a second leave at most.
const INTERVAL: Duration = Duration::from_millis(250);

/// What is asked about one connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Question {
    asked_at: Option<Instant>,
    /// Probes sent for the question that is open; 0: none is.
    probes: u32,
    /// A probe waits for the queue pair to send it.
    owed: bool,
}

impl Question {
    /// Whether to ask now: not while a question is open, nor right after the last one.
    fn ask(&mut self, now: Instant) -> bool {
        let soon = |asked: Instant| now.saturating_since(asked) < INTERVAL;
        if self.probes > 0 || self.asked_at.is_some_and(soon) {
            return false;
        }
        self.asked_at = Some(now);
        true
    }

    /// One more probe, and when to come back; `None` after the last one.
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
    /// A stranger claims the queue pair of a connection, or its ID.
    pub(super) fn question(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.question.ask(now) {
            return;
        }
        match conn.state {
            State::Established => self.probe_or_lose(now, id),
            State::DreqSent => self.send(id),
            _ => {}
        }
    }

    /// The timer of an established connection: it is in question, and has not answered.
    pub(super) fn probe_or_lose(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(deadline) = conn.question.probe(now) else { return self.lose_peer(now, id) };
        if !core::mem::replace(&mut conn.question.owed, true) {
            self.probes.push_back(id);
        }
        self.conns.set_deadline(id, Some(deadline));
    }

    /// The next connection whose queue pair is to be probed; [`Self::peer_answered`] or
    /// [`Self::peer_gone`] is what came of it.
    pub fn poll_probe(&mut self) -> Option<ConnId> {
        loop {
            let id = self.probes.pop_front()?;
            if let Some(conn) = self.conns.get_mut(id)
                && core::mem::take(&mut conn.question.owed)
                && conn.state == State::Established
            {
                return Some(id);
            }
        }
    }

    /// The peer's queue pair has answered: the connection is no longer in question.
    pub fn peer_answered(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.state == State::Established) {
            conn.question.probes = 0;
            self.conns.set_deadline(id, None);
        }
    }

    /// Our own queue pair can no longer ask: nothing speaks for a connection in question any more.
    pub fn peer_gone(&mut self, now: Instant, id: ConnId) {
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
        let (mut question, mut now) = (Question::default(), start);
        assert!(question.ask(now) && !question.ask(now) | (question.probes > 0));
        while let Some(next) = question.probe(now) {
            now = next;
        }
        assert_eq!(now.saturating_since(start), LIMIT);
    }

    /// However many ask, and however quickly the peer answers.
    #[test]
    fn questions_are_bounded() {
        let mut question = Question::default();
        let mut probes = 0;
        for ms in 0..10_000 {
            let now = Instant::from_nanos(ms * 1_000_000);
            if question.ask(now) {
                question.probe(now).unwrap();
                (question.probes, probes) = (0, probes + 1);
            }
        }
        assert_eq!(probes, 40);
    }
}
