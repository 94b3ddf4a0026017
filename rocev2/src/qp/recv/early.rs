//! The way of the responder for packets that come before an earlier one: they wait in the reorder buffer, and the peer is told what
//! is missing before them.

use super::reorder_buffer::Insertion;
use super::reorder_pool::ReorderPool;
use super::responder::{Context, NakState, Responder, Verdict};
use crate::counters::Counter;
use crate::env::{Instant, Memory};
use crate::psn::Psn;
use crate::qp::PeerQp;
use crate::qp::reorder_window::REORDER_PACKETS;
use crate::wire::mad::Make;
use crate::wire::{DropReason, NakCode, Packet, Syndrome};

impl Responder {
    /// Executes the expected packet, and the buffered packets whose gap it closes. These are checked and
    /// executed as if they came now.
    pub(super) fn in_order<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        pool: &mut ReorderPool,
        cx: &mut Context<'_, M>,
    ) -> Verdict {
        let (nak_state, first) = (self.nak_state, self.epsn);
        let mut verdict = self.expected(packet, cx);
        if verdict == Verdict::Disbelieved {
            return verdict;
        }
        self.unsolicited_ack.cancel();
        // The buffered packets were known when they came.
        cx.known = true;
        if self.reorder_buffer.is_empty() {
            self.no_gap();
            return verdict;
        }
        let (mut from, mut released) = (first, false);
        while verdict == Verdict::Done && self.epsn != from {
            from = self.epsn;
            // The PSNs of a READ's responses belong to no other request of the peer.
            self.reorder_buffer.forget_before(from, pool);
            if let Some(slot) = self.reorder_buffer.take(from, pool) {
                released = true;
                verdict = self.expected(&pool.packet(slot, cx.peer.encap), cx);
                pool.give_back(slot);
            }
        }
        if self.epsn != first {
            self.held_since = now;
        }
        if self.epsn != first && verdict == Verdict::Done && self.nak_state != NakState::Rnr {
            if released && !self.trailing_reads.any() {
                self.reply = Some(Syndrome::ACK);
                self.unsolicited_ack.arm(now);
            }
            if self.reorder_buffer.is_empty() {
                self.no_gap();
            } else if cx.peer.make == Make::Other {
                self.next_gap(now, nak_state, released);
            }
        }
        verdict
    }

    /// Nothing is missing.
    fn no_gap(&mut self) {
        self.gap_since = None;
        self.gaps.no_gap();
    }

    /// Acts on progress while buffered packets remain behind another gap, towards a peer that is told of one at a time.
    fn next_gap(&mut self, now: Instant, nak_state: NakState, released: bool) {
        self.gap_since = Some(now);
        // The buffered packets came about a round trip ago: the packets missing before them are lost, not
        // late.
        if released && nak_state == NakState::Sequence && self.goes_back == [false; 2] {
            self.nak_sequence();
        }
    }

    /// Buffers a packet ahead of the expected one. The peer gets one NAK for the gap if that outlasts the
    /// reorder window: most often the missing packets are only late.
    pub(super) fn early<M>(
        &mut self,
        now: Instant,
        ahead: u32,
        packet: &Packet<'_>,
        pool: &mut ReorderPool,
        cx: &Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        self.unsolicited_ack.cancel();
        cx.tally.count(Counter::OutOfSeqRequest);
        if self.reorder_buffer.is_empty() {
            self.held_since = now;
        }
        let insertion = self.reorder_buffer.insert(ahead, (packet, cx.peer.encap.dst), pool);
        if insertion == Insertion::Conflict {
            return Err(DropReason::HeldConflict);
        }
        let held = self.reorder_buffer.len(pool);
        match cx.peer.make {
            Make::Keeper if held > 0 => self.gaps_after(now, packet.bth.psn, (insertion, held)),
            Make::Keeper | Make::Other => self.gap_after(now, (insertion, held)),
        }
        match insertion {
            Insertion::Inserted => {
                cx.tally.count(Counter::OutOfOrderHeld);
                Ok(Verdict::Done)
            }
            Insertion::Duplicate => Err(DropReason::Duplicate),
            Insertion::NoRoom => Err(DropReason::Gap),
            Insertion::Conflict => Err(DropReason::HeldConflict),
        }
    }

    /// Watches the gaps of a peer of our make, after the packet `psn` behind one has come, of so many that are `held` now.
    fn gaps_after(&mut self, now: Instant, psn: Psn, (insertion, held): (Insertion, usize)) {
        match insertion {
            // The packet that is missing was refused, and will come again. Others may be missing behind it, for which
            // a probe asks then.
            Insertion::Inserted if self.nak_state == NakState::Rnr => {
                self.gaps.note(self.epsn, psn.add(1), held);
            }
            _ if self.nak_state == NakState::Rnr => {}
            Insertion::Inserted => {
                // Packets that come together wait together.
                let opens = self.gap_since.is_none_or(|since| since == now);
                let (opens, lost) = self.gaps.came(self.epsn, psn.add(1), held, opens);
                if opens {
                    self.gap_since = Some(now);
                }
                if lost || self.gap_deadline().is_some_and(|deadline| now >= deadline) {
                    self.tell_gaps(now, lost);
                }
            }
            // The packet was late and not lost.
            Insertion::Duplicate if self.gaps.told(psn) => self.reorder_window.widen(),
            Insertion::Duplicate | Insertion::NoRoom | Insertion::Conflict => {}
        }
    }

    /// Whether packets are missing that a peer of our make is told of.
    pub(super) fn tells_gaps(&self, make: Make) -> bool {
        make == Make::Keeper && !self.reorder_buffer.is_empty() && self.nak_state != NakState::Rnr
    }

    /// Owes a peer of our make a report of the gaps that have outlasted the reorder window; of all that there are where so many
    /// packets have come that these are lost.
    pub(super) fn tell_gaps(&mut self, now: Instant, all: bool) {
        let more = self.gaps.tell(all);
        self.gap_since = more.then_some(now);
        self.nak_psn = Some(self.epsn);
        self.reorder_window.count_resend();
    }

    /// Watches the one gap that another peer is told of, after a packet behind it has come, of so many that are `held` now.
    fn gap_after(&mut self, now: Instant, (insertion, held): (Insertion, usize)) {
        if insertion == Insertion::Duplicate {
            self.goes_back[0] = true;
        }
        if self.nak_state == NakState::None {
            if insertion == Insertion::Duplicate || self.gap_since.is_none() {
                self.gap_since = Some(now);
            }
            let lost = insertion == Insertion::NoRoom || held > REORDER_PACKETS;
            if lost || self.gap_deadline().is_some_and(|deadline| now >= deadline) {
                self.nak_sequence();
            }
        }
    }

    /// Owes the peer a sequence NAK: one per gap, as a second would make the requester go back twice.
    pub(super) fn nak_sequence(&mut self) {
        (self.nak_state, self.gap_since) = (NakState::Sequence, None);
        self.nak_psn = Some(self.epsn);
        self.reply = Some(Syndrome::Nak(NakCode::PsnSequence));
        self.reorder_window.count_resend();
        self.goes_back = [false, self.goes_back[0]];
    }

    /// When the gap counts as a loss.
    pub(super) fn gap_deadline(&self) -> Option<Instant> {
        self.gap_since.map(|since| self.reorder_window.end(since))
    }

    /// When what is behind the gap is given up: after as long as a peer that is there tries to close it.
    pub(super) fn hold_deadline(&self, peer: &PeerQp) -> Option<Instant> {
        (!self.reorder_buffer.is_empty()).then(|| self.held_since + peer.silence_limit())
    }

    /// Acts on a gap that has lasted for its time: the peer is told of it, and in the end its packets are given up. They come
    /// again if the peer is still there, as nothing but an acknowledgement lets it forget them.
    pub(super) fn gap_timed_out(&mut self, now: Instant, peer: &PeerQp, pool: &mut ReorderPool) {
        self.reorder_buffer.update(pool);
        if self.gap_deadline().is_some_and(|deadline| now >= deadline) {
            match peer.make {
                Make::Keeper => self.tell_gaps(now, false),
                Make::Other => self.nak_sequence(),
            }
        }
        if self.hold_deadline(peer).is_some_and(|deadline| now >= deadline) {
            self.reorder_buffer.forget(pool);
        }
    }
}
