//! The probe: asks the peer's queue pair whether it is still there, without disturbing what it does.
//!
//! It is a zero-length WRITE that asks for an ACK, under the PSN before the oldest unacknowledged one.
//! The peer has executed that PSN, or counts from behind it, so the probe is a duplicate: the peer
//! acknowledges again and executes nothing (C9-105). No key is looked at for zero bytes (C9-88). So a
//! probe takes no PSN, no MSN, no place in the window and no work request, and may be sent at any time:
//! with requests in flight, in the pause after RNR NAK, and where nothing was ever sent.
//!
//! The ACK names the last PSN that the peer has executed; rxe's the last one of a SEND or WRITE. A queue
//! pair that is gone says nothing.
//!
//! The requester asks by it, too, where answers are late (a tail loss probe, RFC 8985): see
//! [`super::recovery`]. A WRITE of nothing under a new PSN would not do: rxe remembers its length, and
//! refuses the READ that is sent again next.

use super::work::SendQueue;
use crate::ids::{Qpn, Rkey};
use crate::psn::Psn;
use crate::wire::{Bth, Ext, Opcode, Reth};

/// How far one probe is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Stage {
    /// Nobody asks.
    #[default]
    Idle,
    /// To be sent.
    Owed,
    /// Sent, and not answered.
    Sent,
    /// Answered; the owner has not heard of it.
    Answered,
}

/// The one probe of a queue pair. Asked again, it is sent again; one answer is enough for all.
#[derive(Debug, Default)]
pub struct Probe(Stage);

impl Probe {
    /// Nobody asks.
    pub const fn new() -> Self {
        Self(Stage::Idle)
    }

    /// Sends a probe as soon as a packet can leave.
    pub const fn ask(&mut self) {
        self.0 = Stage::Owed;
    }

    /// Whether it is to be sent.
    pub fn owed(&self) -> bool {
        self.0 == Stage::Owed
    }

    /// The packet; `una` is the oldest unacknowledged PSN.
    pub const fn packet(dest_qpn: Qpn, una: Psn) -> (Bth, Ext) {
        let mut bth = Bth::new(Opcode::WriteOnly, dest_qpn, una.prev());
        bth.ack_req = true;
        (bth, Ext::Reth(Reth { va: 0, rkey: Rkey::new(0), len: 0 }))
    }

    /// The packet has left.
    pub fn sent(&mut self) {
        if self.0 == Stage::Owed {
            self.0 = Stage::Sent;
        }
    }

    /// Whether it may be the answer to a probe, by a peer that has executed nothing unacknowledged.
    pub fn answers(bth: &Bth, sq: &SendQueue) -> bool {
        let last = bth.psn == sq.una().prev() || sq.last_data() == Some(bth.psn);
        bth.opcode == Opcode::Acknowledge && last
    }

    /// Follows a packet of the peer, while an answer is waited for: one about a packet in flight, or about
    /// the last one before, shows that the peer is there, as nobody else knows these PSNs. True: it is an
    /// ACK of that last one, which means nothing else.
    pub fn heeds(&mut self, bth: &Bth, sq: &SendQueue) -> bool {
        if self.0 != Stage::Sent {
            return false;
        }
        let again = Self::answers(bth, sq);
        if again || bth.opcode.is_response() && sq.expects(bth.psn) {
            self.0 = Stage::Answered;
        }
        again
    }

    /// Whether the peer has answered; told once.
    pub fn take_answer(&mut self) -> bool {
        let answered = self.0 == Stage::Answered;
        if answered {
            self.0 = Stage::Idle;
        }
        answered
    }
}
