//! Unsolicited ACKs: the last ACK is repeated while the peer is silent.
//!
//! A requester that is acknowledged while it goes back N may count the packets that it sends next as
//! acknowledged without completing them, and then wait without a timer: Linux's rxe does. One more ACK
//! frees it, but the ACK that its last packet brings can get lost. So a responder that has seen packets
//! twice, or has acknowledged more than the packet that came last, repeats its ACK a few times unless a
//! new packet comes. A responder may send an unsolicited ACK at any time (IBTA ch. 9, unsolicited
//! acknowledge).

use crate::env::{Duration, Instant};

/// The silence before the first unsolicited ACK; it doubles for each further one.
const FIRST: Duration = Duration::from_millis(25);
/// Unsolicited ACKs in a row, at most.
const REPEATS: u8 = 5;

/// The schedule of unsolicited ACKs.
#[derive(Debug, Default)]
pub(crate) struct UnsolicitedAck {
    due: Option<Instant>,
    /// Unsolicited ACKs sent since [`Self::arm`].
    sent: u8,
}

impl UnsolicitedAck {
    /// A schedule with no ACK due.
    pub(crate) const fn new() -> Self {
        Self { due: None, sent: 0 }
    }

    /// Starts the schedule: the peer may not have received the last ACK.
    pub(crate) fn arm(&mut self, now: Instant) {
        *self = Self { due: Some(now + FIRST), sent: 0 };
    }

    /// Stops the schedule: a new packet came, or the QP is at its end.
    pub(crate) const fn cancel(&mut self) {
        self.due = None;
    }

    /// When [`Self::take`] has work.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Whether an unsolicited ACK is to be sent now; it counts as sent.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.sent += 1;
        self.due = (self.sent < REPEATS).then(|| now + FIRST * (1 << self.sent));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn it_is_sent_a_few_times_and_ever_more_rarely() {
        let mut ack = UnsolicitedAck::new();
        assert_eq!(ack.deadline(), None);
        ack.arm(Instant::from_nanos(7));
        let mut waits = Vec::new();
        let mut now = Instant::from_nanos(7);
        while let Some(due) = ack.deadline() {
            assert!(!ack.take(now), "early");
            waits.push(due.saturating_since(now).as_millis());
            now = due;
            assert!(ack.take(now));
        }
        assert_eq!(waits, [25, 50, 100, 200, 400]);
        assert!(!ack.take(now + FIRST * 100));
    }

    #[test]
    fn a_new_request_ends_it_and_a_duplicate_begins_it_anew() {
        let mut ack = UnsolicitedAck::new();
        let now = Instant::from_nanos(0);
        ack.arm(now);
        assert!(ack.take(now + FIRST));
        ack.arm(now + FIRST);
        assert_eq!(ack.deadline(), Some(now + FIRST * 2));
        ack.cancel();
        assert_eq!(ack.deadline(), None);
        assert!(!ack.take(now + FIRST * 2));
    }
}
