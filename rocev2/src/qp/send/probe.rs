//! The probe: a packet that shows whether the peer's queue pair is still there, without an effect on it.
//!
//! It is a zero-length WRITE that requests an ACK, under the PSN before the oldest unacknowledged one. The
//! peer has executed that PSN, or starts behind it, so the probe is a duplicate: the peer acknowledges
//! again and executes nothing (C9-105). Zero bytes need no key (C9-88). So a probe takes no PSN, no MSN, no
//! place in the window and no work request, and may leave at any time: with requests in flight, in the
//! pause after RNR NAK, and where nothing was ever sent.
//!
//! The ACK carries the last PSN of a SEND or WRITE that the peer has executed; from rxe, 0xffffff before the
//! first, and from others that of a READ behind it. A queue pair that is gone sends nothing.
//!
//! The requester probes, too, where responses are late (a tail loss probe, RFC 8985): see
//! [`super::recovery`]. A zero-length WRITE under a new PSN would not do: rxe remembers its length, and
//! refuses a READ that is resent next.

use super::queue::SendQueue;
use crate::env::{Duration, Instant};
use crate::ids::{Qpn, Rkey};
use crate::psn::Psn;
use crate::wire::{Bth, Ext, Opcode, Reth};

/// The progress of one probe.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Stage {
    /// No probe was requested.
    #[default]
    Idle,
    /// The probe waits to be sent.
    Owed,
    /// The probe was sent, and has no response.
    Sent,
    /// The peer has responded, and the owner does not know yet.
    Answered,
}

/// The one probe of a queue pair. A second request sends it again; one response is enough for all.
#[derive(Debug, Default)]
pub(crate) struct Probe(Stage);

impl Probe {
    /// A probe that nobody requested.
    pub(crate) const fn new() -> Self {
        Self(Stage::Idle)
    }

    /// Requests a probe, which leaves as soon as a packet can.
    pub(crate) const fn ask(&mut self) {
        self.0 = Stage::Owed;
    }

    /// Whether no probe was requested, and no response is to be told.
    pub(crate) fn is_idle(&self) -> bool {
        self.0 == Stage::Idle
    }

    /// Whether the probe waits to be sent.
    pub(crate) fn owed(&self) -> bool {
        self.0 == Stage::Owed
    }

    /// Whether the probe waits for its response.
    pub(crate) fn waits(&self) -> bool {
        self.0 == Stage::Sent
    }

    /// The probe's headers; `una` is the oldest unacknowledged PSN.
    pub(crate) const fn packet(dest_qpn: Qpn, una: Psn) -> (Bth, Ext) {
        let mut bth = Bth::new(Opcode::WriteOnly, dest_qpn, una.prev());
        bth.ack_req = true;
        (bth, Ext::Reth(Reth { va: 0, rkey: Rkey::new(0), len: 0 }))
    }

    /// Notes that the probe has left.
    pub(crate) fn sent(&mut self) {
        if self.0 == Stage::Owed {
            self.0 = Stage::Sent;
        }
    }

    /// Whether a response may be the ACK of a probe, from a peer that has executed nothing unacknowledged.
    pub(crate) fn answers(bth: &Bth, sq: &SendQueue) -> bool {
        bth.opcode == Opcode::Acknowledge && sq.acks_nothing(bth.psn)
    }

    /// Examines a packet of the peer while a probe waits for its response. A response about a packet in
    /// flight, or about the last one before, shows that the peer is there, as nobody else knows these PSNs.
    /// Returns true for an ACK of that last one, which has no other meaning.
    pub(crate) fn heeds(&mut self, bth: &Bth, sq: &SendQueue) -> bool {
        if self.0 != Stage::Sent {
            return false;
        }
        let again = Self::answers(bth, sq);
        if again || bth.opcode.is_response() && sq.expects(bth.psn) {
            self.0 = Stage::Answered;
        }
        again
    }

    /// Whether the peer has responded; true once for each probe.
    pub(crate) fn take_answer(&mut self) -> bool {
        let answered = self.0 == Stage::Answered;
        if answered {
            self.0 = Stage::Idle;
        }
        answered
    }
}

/// How long the ACK of a probe may be on its way where nothing was lost: a peer that stands still sends it as late as that.
pub(crate) const LATE: Duration = Duration::from_secs(4);

/// ACKs of probes that may be on their way. A peer works in order, so they come in the order of the probes.
#[derive(Debug)]
pub(crate) struct Awaited {
    all: u8,
    /// Those of probes before the first one behind the oldest packet in flight, which come first and tell nothing about
    /// it.
    earlier: u8,
    /// The packet that was next when the last probe left, and the time by which its ACK has come or was lost.
    next: Psn,
    until: Instant,
}

impl Awaited {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { all: 0, earlier: 0, next: Psn::new(0), until: Instant::from_nanos(0) }
    }

    /// Notes that a probe has left, whose ACK comes by `until`; `first` behind the oldest packet.
    pub(crate) fn sent(&mut self, now: Instant, until: Instant, first: bool, sq: &SendQueue) {
        if first {
            // The responses to packets behind the last probe have come, or it was too long ago.
            let over = sq.acked().since(self.next) > 0 || now >= self.until;
            self.all = if over { 0 } else { self.all };
            self.earlier = self.all;
        }
        self.all = self.all.saturating_add(1);
        (self.next, self.until) = (sq.next(), until);
    }

    /// Whether the next ACK is that of the last probe.
    pub(crate) const fn is_one(&self) -> bool {
        self.all == 1
    }

    /// Notes that an ACK has come. Returns whether it is that of a probe behind the oldest packet, whichever were lost.
    pub(crate) const fn came(&mut self) -> bool {
        let tells = self.earlier == 0;
        self.all = self.all.saturating_sub(1);
        self.earlier = self.earlier.saturating_sub(1);
        tells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_is_that_of_the_last_probe_where_no_other_is_out() {
        let (_, sq) = SendQueue::new(0, 4, 1);
        let [now, until] = [1, 2].map(Instant::from_nanos);
        let mut awaited = Awaited::new();
        assert!(!awaited.is_one(), "none is out");
        awaited.sent(now, until, true, &sq);
        assert!(awaited.is_one());
        awaited.sent(now, until, false, &sq);
        assert!(!awaited.is_one(), "it may be the first one's");
        awaited.came();
        assert!(awaited.is_one());
    }
}
