//! What the requester sends again after a loss, and how it learns what its peer keeps.
//!
//! The standard has a responder name the first missing packet and no other. Some responders keep
//! what comes behind it (ours does), others drop it (rxe, and most hardware), and nothing on the wire
//! tells them apart but what follows a resend. So the first time only the missing packet is resent,
//! and the peer's answer is waited for: one that names a later packet than was resent shows a peer
//! that keeps. From such a peer's gaps only what it names is resent, twice as much each time it names
//! the very next packet. A peer that drops gets everything from the gap on, once per gap, in a window
//! that shrinks to the distance between losses, so that little is dropped with each.
//!
//! A READ is asked for again on evidence only: a gap in its answers that lasted, or a NAK that names it
//! and stayed true for a round trip, as many peers complain of what is merely out of order. Silence is
//! no evidence: the peer is asked what it has by a [probe](super::probe), until it is too late for an
//! answer. A responder works in order, so a probe's ACK comes behind the answers to all that reached
//! the peer before the probe. Where it acknowledges nothing new, the oldest packet in flight is not
//! there, or its answer was lost: that is evidence, too. A peer that is merely slow is slow with the
//! probe. What was sent again without evidence tells nothing about what is behind it.

use super::reorder::{Patience, REORDER_PACKETS};
use super::work::{Cause, SendQueue};
use crate::env::{Duration, Instant};
use crate::psn::Psn;

/// Losses after which a peer that drops is tested again.
const LOSSES_BEFORE_TEST: u8 = 32;
/// Resends in a row, after which the peer named the very next packet, that show a peer that drops:
/// until it is known to keep, and after.
const MISSES_UNKNOWN: u8 = 2;
const MISSES_KEEPS: u8 = 3;
/// How long the rest of an answer is waited for before what is behind it is looked after.
const ANSWER: Duration = Duration::from_millis(16);
/// The least window towards a peer that drops.
const LIMIT_MIN: u32 = 2;

/// What the peer does with packets behind a gap.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Peer {
    Unknown { misses: u8 },
    Keeps { misses: u8 },
    Drops { losses: u8 },
}

/// A resend that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Resend {
    at: Psn,
    end: Psn,
    why: Why,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    /// The peer named `at` as missing, so it has seen something after it.
    Named,
    /// Nothing came.
    Silence,
    /// Everything from `at` on is resent, or only a READ request: its answer tells nothing.
    NotATest,
}

/// A packet that the peer named, and that may only be late.
#[derive(Clone, Copy, Debug)]
struct Late {
    at: Psn,
    /// It counts as lost then.
    due: Instant,
    /// A probe's answer told.
    probed: bool,
}

/// What is done about silence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// The peer is asked, or nothing can be done yet.
    Ask,
    /// Something is sent again.
    Resend,
}

/// Loss recovery of one QP's requester.
#[derive(Debug)]
pub struct Recovery {
    peer: Peer,
    resend: Option<Resend>,
    late: Option<Late>,
    /// Packets acknowledged since the last loss, and since the limit grew.
    since_loss: u32,
    since_growth: u32,
    /// The oldest answer that is missing though later ones came, and since when.
    gap: Option<(Psn, Instant)>,
    /// Answers asked for again and not all there yet; and those asked for last because of a gap.
    asked_end: Option<Psn>,
    asked: Option<(Psn, Psn)>,
    /// How many to ask for. One answer that overtakes many makes a long gap, so a gap is asked for in
    /// growing pieces.
    ask_packets: u32,
    patience: Patience,
    /// A probe is to be sent.
    probe: bool,
    /// The oldest packet in flight, and when the first and the last probe left behind its last copy.
    probed: Option<(Psn, [Instant; 2])>,
}

impl Recovery {
    /// Nothing is lost, nothing is known.
    pub const fn new() -> Self {
        Self {
            peer: Peer::Unknown { misses: 0 },
            resend: None,
            late: None,
            since_loss: 0,
            since_growth: 0,
            gap: None,
            asked_end: None,
            asked: None,
            ask_packets: 1,
            patience: Patience::new(),
            probe: false,
            probed: None,
        }
    }

    /// No probe is sent any more.
    pub fn stop(&mut self) {
        self.probe = false;
    }

    /// Whether a probe is to be sent.
    pub const fn probes(&self) -> bool {
        self.probe
    }

    /// A probe has left; whether it was to be.
    pub fn probe_sent(&mut self, now: Instant, sq: &SendQueue) -> bool {
        let una = sq.una();
        // Before a packet leaves, a probe tells nothing about it.
        if sq.next().since(una) > 0 && sq.run().is_none_or(|run| run.psn != una) {
            let first = self.probed_at(sq).unwrap_or(now);
            self.probed = Some((una, [first, now]));
        }
        core::mem::take(&mut self.probe)
    }

    /// When the first probe left behind the oldest packet in flight, if it is not answered.
    pub fn probed_at(&self, sq: &SendQueue) -> Option<Instant> {
        self.probed.filter(|(una, _)| *una == sq.una()).map(|(_, [first, _])| first)
    }

    /// When the last probe left.
    pub fn last_probe(&self) -> Option<Instant> {
        self.probed.map(|(_, [_, last])| last)
    }

    /// A probe's answer shows that the peer had nothing new. Whether the oldest packet is sent again for
    /// that now: a READ, which the probe may have overtaken, is given time.
    pub fn lacks(&mut self, now: Instant, sq: &mut SendQueue) -> bool {
        self.probed = None;
        let at = sq.acked();
        if sq.una() != at || sq.next().since(at) <= 0 {
            return false;
        }
        if sq.is_read_at(at) {
            if self.late.is_none_or(|late| late.at != at) {
                self.late = Some(Late { at, due: self.patience.end(now), probed: true });
                sq.stall(true);
            }
            return false;
        }
        self.resend_named(sq);
        true
    }

    /// Something is sent again: what was asked before tells nothing about that copy.
    fn again(&mut self, cause: Cause, sq: &mut SendQueue) {
        self.probed = None;
        sq.resend_for(cause);
    }

    /// When [`Self::handle_timeout`] has work.
    pub fn deadline(&self) -> Option<Instant> {
        [self.gap_deadline(), self.late.map(|late| late.due)].into_iter().flatten().min()
    }

    fn gap_deadline(&self) -> Option<Instant> {
        self.gap.map(|(_, since)| self.patience.end(since))
    }

    /// Acts on what lasted too long to be mere lateness: a gap in the answers, a packet that the peer
    /// named. The latter if it is now sent again.
    pub fn handle_timeout(&mut self, now: Instant, sq: &mut SendQueue) -> Option<Psn> {
        if self.gap_deadline().is_some_and(|deadline| now >= deadline) {
            self.ask(sq);
        }
        let Late { at, probed, .. } = self.late.filter(|late| now >= late.due)?;
        self.late = None;
        sq.stall(false);
        if sq.acked() != at || sq.next().since(at) <= 0 || (sq.inside_read() && !probed) {
            return None;
        }
        self.resend_named(sq);
        Some(at)
    }

    /// Whether the peer is known to miss something, or an answer of its is.
    pub const fn has_evidence(&self) -> bool {
        let answers = self.gap.is_some() || self.asked_end.is_some();
        self.resend.is_some() || self.late.is_some() || answers
    }

    /// The peer has acknowledged `packets` more.
    pub fn acknowledged(&mut self, now: Instant, packets: u32, sq: &mut SendQueue) {
        self.grow(packets, sq);
        let acked = sq.acked();
        if let Some(late) = self.late.filter(|late| acked.since(late.at) > 0) {
            // It was late. A peer that drops has nothing of what came before it; but a probe that overtook it
            // shows nothing.
            let more = sq.next().since(acked) > 0 && !late.probed;
            let soon = self.patience.end(now);
            let due = if sq.inside_read() { now + ANSWER } else { soon };
            self.late = more.then_some(Late { at: acked, due, probed: false });
            sq.stall(more);
        }
        let Some(resend) = self.resend.filter(|resend| acked.since(resend.end) >= 0) else {
            return;
        };
        self.resend = None;
        sq.stall(false);
        if sq.known_end().since(resend.end) > 0 {
            if resend.why == Why::Named {
                self.peer = Peer::Keeps { misses: 0 };
                sq.set_limit(u32::MAX);
            }
        } else if sq.next().since(acked) > 0 && resend.why == Why::Silence {
            self.probe = true;
        } else if sq.next().since(acked) > 0 && resend.why == Why::Named {
            self.missed();
            if matches!(self.peer, Peer::Drops { .. }) {
                self.go_back(sq);
            } else {
                let packets = resend.end.since(resend.at).cast_unsigned();
                self.resend(packets.saturating_mul(2), resend.why, sq);
            }
        }
    }

    /// The peer named the packet after the last one acknowledged as missing. Whether it is resent for that
    /// now: not if it was before, will be anyway, or is a READ, which is given `wait` to arrive after all.
    /// A peer that keeps has waited for it already.
    pub fn named(&mut self, now: Instant, wait: Duration, sq: &mut SendQueue) -> bool {
        let at = sq.acked();
        if sq.next().since(at) <= 0 || self.resend.is_some_and(|resend| resend.at == at) {
            return false;
        }
        if !matches!(self.peer, Peer::Keeps { .. }) && sq.is_read_at(at) {
            if self.late.is_none_or(|late| late.at != at) {
                self.late = Some(Late { at, due: now + wait, probed: false });
                sq.stall(true);
            }
            return false;
        }
        self.resend_named(sq);
        true
    }

    fn resend_named(&mut self, sq: &mut SendQueue) {
        self.late = None;
        self.again(Cause::Nak, sq);
        if matches!(self.peer, Peer::Drops { .. }) {
            self.go_back(sq);
        } else {
            self.resend(1, Why::Named, sq);
        }
    }

    /// The peer will take the packet after the last one acknowledged later.
    pub fn refused(&mut self, sq: &mut SendQueue) {
        self.again(Cause::Rnr, sq);
        (self.resend, self.late) = (None, None);
        if matches!(self.peer, Peer::Keeps { .. }) {
            self.resend(1, Why::Silence, sq);
        } else {
            sq.rewind_to(sq.restart_at());
        }
    }

    /// Nothing came for a retransmission timeout, `tries` times in a row; `blind`: it is too late for an
    /// answer.
    pub fn silence(&mut self, (tries, blind): (u32, bool), sq: &mut SendQueue) -> Remedy {
        if sq.answers_missing() {
            self.again(Cause::Timer, sq);
            sq.stall(false);
            // Some responders answer only a request for all the rest.
            let end = if tries > 2 { sq.resend_read() } else { sq.resend_answers(u32::MAX) };
            // What comes twice now tells nothing about lateness.
            (self.asked_end, self.asked, self.gap) = (end, None, None);
            return Remedy::Resend;
        }
        let read = sq.is_read_at(sq.una());
        // What the peer missed, and got again, was lost once more: it names that only once.
        let known = !read && self.resend.is_some_and(|resend| resend.why != Why::Silence);
        if !blind && !known {
            self.probe = true;
            return Remedy::Ask;
        }
        self.again(Cause::Timer, sq);
        (self.resend, self.late) = (None, None);
        sq.stall(false);
        if read {
            // Of what is behind it nothing is known.
            sq.resend_read();
        } else {
            self.resend(1, Why::Silence, sq);
        }
        Remedy::Resend
    }

    /// Follows each answer: opens and closes the gap in the answers to READs. Whether it opened one.
    pub fn watch(&mut self, now: Instant, sq: &mut SendQueue) -> bool {
        let una = sq.una();
        let filled = self.asked_end.filter(|end| end.since(una) <= 0);
        if filled.is_some() {
            self.asked_end = None;
        }
        if !sq.answers_missing() || self.asked_end.is_some() {
            self.gap = None;
            return false;
        }
        let opened = self.gap.is_none_or(|(at, _)| at != una);
        if opened {
            self.gap = Some((una, now));
            let again = filled == Some(una);
            self.ask_packets = if again { self.ask_packets.saturating_mul(2) } else { 1 };
        }
        // What came early came about a round trip ago, if answers were asked for since: what is missing
        // before it is lost, not late.
        if filled.is_some_and(|end| end != una) || sq.early() > REORDER_PACKETS {
            self.ask(sq);
        }
        opened
    }

    /// An answer came that had come before.
    pub fn repeated(&mut self, psn: Psn) {
        if self.asked.is_some_and(|(from, end)| psn.since(from) >= 0 && end.since(psn) > 0) {
            self.patience.was_short();
            self.asked = None;
        }
    }

    fn ask(&mut self, sq: &mut SendQueue) {
        self.again(Cause::ImpliedNak, sq);
        let end = sq.resend_answers(self.ask_packets);
        self.asked = end.map(|end| (sq.una(), end));
        (self.asked_end, self.gap) = (end, None);
        self.patience.asked();
    }

    fn resend(&mut self, packets: u32, why: Why, sq: &mut SendQueue) {
        let at = sq.acked();
        let keeps = matches!(self.peer, Peer::Keeps { .. });
        let read = sq.is_read_at(at);
        if read && !keeps {
            // Requests are small, and their answers come in no case before the lost one's.
            sq.rewind_to(sq.restart_at());
            self.resend = Some(Resend { at, end: at.add(1), why: Why::NotATest });
            return;
        }
        self.resend = sq.resend_requests(sq.restart_at(), packets).map(|end| {
            let why = if read { Why::NotATest } else { why };
            Resend { at, end, why }
        });
        sq.stall(!keeps && self.resend.is_some());
    }

    /// The peer has nothing behind what was resent.
    fn missed(&mut self) {
        let (next, drops) = match self.peer {
            Peer::Unknown { misses } => {
                (Peer::Unknown { misses: misses + 1 }, misses + 1 >= MISSES_UNKNOWN)
            }
            Peer::Keeps { misses } => {
                (Peer::Keeps { misses: misses + 1 }, misses + 1 >= MISSES_KEEPS)
            }
            Peer::Drops { .. } => (self.peer, true),
        };
        self.peer = if drops { Peer::Drops { losses: 0 } } else { next };
    }

    /// Sends everything again that the peer has not acknowledged, and less at a time from here on.
    fn go_back(&mut self, sq: &mut SendQueue) {
        let at = sq.acked();
        let in_flight = sq.next().since(at).max(0).cast_unsigned();
        let limit = (sq.limit().min(in_flight) / 2).min(self.since_loss).max(LIMIT_MIN);
        sq.set_limit(limit);
        (self.since_loss, self.since_growth) = (0, 0);
        sq.rewind_to(sq.restart_at());
        self.resend = Some(Resend { at, end: at.add(1), why: Why::NotATest });
        if let Peer::Drops { losses } = &mut self.peer {
            *losses += 1;
            if *losses == LOSSES_BEFORE_TEST {
                self.peer = Peer::Unknown { misses: 0 };
            }
        }
    }

    /// One packet more per window acknowledged.
    fn grow(&mut self, packets: u32, sq: &mut SendQueue) {
        self.since_loss = self.since_loss.saturating_add(packets);
        if sq.limit() == u32::MAX {
            return;
        }
        self.since_growth += packets;
        if self.since_growth >= sq.limit() {
            self.since_growth = 0;
            sq.set_limit(sq.limit() + 1);
        }
    }
}

impl Default for Recovery {
    fn default() -> Self {
        Self::new()
    }
}
