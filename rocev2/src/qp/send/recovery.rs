//! Loss recovery of the requester: it decides which packets are resent, and learns what the peer does with
//! packets behind a gap.
//!
//! A sequence NAK names the first missing packet and no other. Some responders keep the packets behind a
//! gap (ours does), others drop them (rxe, and most hardware), and only the reaction to a resend tells them
//! apart. So at the first loss only the missing packet is resent, and nothing else until the peer responds:
//! a response about a later packet shows a peer that keeps. Towards such a peer only the packets that it
//! names are resent, twice as many each time that it names the very next packet. A peer that drops gets
//! everything from the gap on, once per gap, in a window that shrinks to the distance between losses, so
//! that each loss costs few packets. A READ tells nothing about the peer, as its responses come before
//! anything later is acknowledged: before a peer is known to keep, everything from a missing READ on is
//! resent, unless the peer's make shows that it keeps.
//!
//! A READ is requested again only on evidence: a gap in its responses that outlasts the reorder window, or
//! a NAK that names it and still holds after a round trip, as many peers send a NAK for mere reordering.
//! Silence is no evidence: the requester sends a [probe](super::probe) until it is too late for a response.
//! A responder works in order, so the ACK of a probe comes behind the responses to all requests that
//! reached the peer before the probe. Where that ACK acknowledges nothing new, the oldest packet in flight
//! is lost, or its response is: that is evidence, too. The ACKs of probes come in their order, so those of probes that
//! left before the packet was the oldest one, or was sent again, are counted off first: for long where nothing was lost of late, as
//! only a host that stood still can be why they have not come. A peer that is merely slow is slow with the probe as well. The acknowledgement of a packet that was resent without evidence tells nothing about the packets
//! behind it.

use super::probe::Awaited;
use super::queue::{Cause, SendQueue};
use crate::env::{Duration, Instant};
use crate::psn::Psn;
use crate::qp::reorder_window::{REORDER_PACKETS, ReorderWindow};
use crate::wire::mad::Make;

mod gaps;
mod probes;

/// Losses after which a peer that drops is tested again.
const LOSSES_BEFORE_TEST: u8 = 32;
/// Resends in a row, each followed by a NAK for the very next packet, that show a peer that drops: as long
/// as the peer is unknown, and once it is known to keep.
const MISSES_UNKNOWN: u8 = 2;
const MISSES_KEEPS: u8 = 3;
/// The wait for the rest of a READ response, before the packet behind it counts as lost.
const RESPONSE: Duration = Duration::from_millis(16);
/// The smallest window towards a peer that drops, in packets.
const LIMIT_MIN: u32 = 2;

/// The peer's treatment of packets behind a gap.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Peer {
    Unknown { misses: u8 },
    Keeps { misses: u8 },
    Drops { losses: u8 },
}

/// A resend that is not acknowledged yet.
#[derive(Clone, Copy, Debug)]
struct Resend {
    at: Psn,
    end: Psn,
    why: Why,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    /// A sequence NAK for `at`: the peer has seen a packet after it.
    Nak,
    /// The retransmission timer expired, or an RNR pause ended.
    Timeout,
    /// Everything from `at` on is resent, or only a READ request: the response tells nothing about the
    /// peer.
    NotATest,
}

/// A packet that the peer reports as missing, and that may only be late.
#[derive(Clone, Copy, Debug)]
struct Late {
    at: Psn,
    /// The packet counts as lost at this instant.
    due: Instant,
    /// The ACK of a probe reported it.
    probed: bool,
}

/// The reaction to a timeout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Remedy {
    /// A probe is sent, or nothing can be done yet.
    Probe,
    /// A packet is resent.
    Resend,
}

/// Loss recovery of one QP's requester. The fields that each acknowledgement needs stand last,
/// next to the others of the completer.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Recovery {
    make: Make,
    peer: Peer,
    resend: Option<Resend>,
    late: Option<Late>,
    /// The oldest READ response that is missing before others, and since when. From a peer of our make one past the newest of
    /// those that came behind a gap before then, whose reorder window is open.
    gap: Option<(Psn, Instant)>,
    /// Up to there responses of a peer of our make were requested again, if they were missing.
    asked: Psn,
    /// One past the READ responses that were requested again and have not all come; and the range of the
    /// last request that a gap caused.
    requested_end: Option<Psn>,
    requested: Option<(Psn, Psn)>,
    /// Responses to request again. One response that overtakes many makes a long gap, so a gap is requested
    /// in growing pieces.
    request_packets: u32,
    reorder_window: ReorderWindow,
    /// The requester has a probe to send.
    probe: bool,
    /// The oldest packet in flight, and when the first and the last probe behind its last copy left.
    probed: Option<(Psn, [Instant; 2])>,
    awaited: Awaited,
    /// The oldest packet in flight at the last evidence of a loss.
    lost_at: Option<Psn>,
    /// Packets acknowledged since the last loss, and since the limit grew.
    since_loss: u32,
    since_growth: u32,
}

impl Recovery {
    /// A recovery that knows neither a loss nor the peer.
    pub(crate) const fn new() -> Self {
        Self {
            since_loss: 0,
            since_growth: 0,
            make: Make::Other,
            peer: Peer::Unknown { misses: 0 },
            resend: None,
            late: None,
            gap: None,
            asked: Psn::new(0),
            requested_end: None,
            requested: None,
            request_packets: 1,
            reorder_window: ReorderWindow::new(),
            probe: false,
            probed: None,
            awaited: Awaited::new(),
            lost_at: None,
        }
    }

    /// Takes the peer's make.
    pub(crate) const fn connect(&mut self, make: Make) {
        self.make = make;
        if matches!(make, Make::Keeper) {
            self.peer = Peer::Keeps { misses: 0 };
        }
    }

    /// Sends no probe any more.
    pub(crate) fn stop(&mut self) {
        self.probe = false;
    }

    /// Whether the requester has a probe to send.
    pub(crate) const fn probes(&self) -> bool {
        self.probe
    }

    /// Begins a resend: an earlier probe tells nothing about the new copy.
    fn again(&mut self, cause: Cause, sq: &mut SendQueue) {
        self.probed = None;
        if matches!(cause, Cause::Nak | Cause::ImpliedNak) {
            self.lost_at = Some(sq.acked());
        }
        sq.resend_for(cause);
    }

    /// When [`Self::handle_timeout`] has work.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Instant::earlier(self.gap_deadline(), self.late.map(|late| late.due))
    }

    fn gap_deadline(&self) -> Option<Instant> {
        self.gap.map(|(_, since)| self.reorder_window.end(since))
    }

    /// Acts on a gap in the READ responses, or a packet reported as missing, that has outlasted mere
    /// reordering. Returns the packet if it is resent now.
    pub(crate) fn handle_timeout(&mut self, now: Instant, sq: &mut SendQueue) -> Option<Psn> {
        if self.gap_deadline().is_some_and(|deadline| now >= deadline) {
            match self.make {
                Make::Keeper => self.request_gaps(now, self.gap, sq),
                Make::Other => self.request_again(sq),
            }
        }
        let Late { at, probed, .. } = self.late.filter(|late| now >= late.due)?;
        self.late = None;
        sq.stall(false);
        if sq.acked() != at || sq.next().since(at) <= 0 || (sq.inside_read() && !probed) {
            return None;
        }
        self.resend_missing(sq);
        Some(at)
    }

    /// Whether the peer is known to keep packets behind a gap: it has shown that, or its make does.
    pub(crate) const fn peer_keeps(&self) -> bool {
        matches!(self.peer, Peer::Keeps { .. })
    }

    /// Whether the peer is known to miss a packet, or a response of the peer is missing.
    pub(crate) const fn has_evidence(&self) -> bool {
        let responses = self.gap.is_some() || self.requested_end.is_some();
        self.resend.is_some() || self.late.is_some() || responses
    }

    /// Packets acknowledged since the last loss, which is now.
    pub(crate) fn take_since_loss(&mut self) -> u32 {
        core::mem::take(&mut self.since_loss)
    }

    /// Acts on an acknowledgement of `packets` more packets.
    pub(crate) fn acknowledged(&mut self, now: Instant, packets: u32, sq: &mut SendQueue) {
        self.grow(packets, sq);
        let acked = sq.acked();
        if let Some(late) = self.late.filter(|late| acked.since(late.at) > 0) {
            // The packet was late. A peer that drops has nothing of the packets that came before it; but a
            // probe that overtook the packet shows nothing.
            let more = sq.next().since(acked) > 0 && !late.probed;
            let soon = self.reorder_window.end(now);
            let due = if sq.inside_read() { now + RESPONSE } else { soon };
            self.late = more.then_some(Late { at: acked, due, probed: false });
            sq.stall(more);
        }
        let Some(resend) = self.resend.filter(|resend| acked.since(resend.end) >= 0) else {
            return;
        };
        self.resend = None;
        sq.stall(false);
        if sq.known_end().since(resend.end) > 0 {
            if resend.why == Why::Nak {
                self.peer = Peer::Keeps { misses: 0 };
                sq.set_limit(u32::MAX);
            }
        } else if sq.next().since(acked) > 0 && resend.why == Why::Timeout {
            self.probe = true;
        } else if sq.next().since(acked) > 0 && resend.why == Why::Nak {
            if self.make == Make::Other {
                self.missed();
            }
            if matches!(self.peer, Peer::Drops { .. }) {
                self.go_back(sq);
            } else {
                let packets = resend.end.since(resend.at).cast_unsigned();
                self.resend(packets.saturating_mul(2), resend.why, sq);
            }
        }
    }

    /// Acts on a sequence NAK for the packet after the last one acknowledged. Returns whether that packet
    /// is resent now: not if it was resent before, will be anyway, or is a READ, which first gets `wait`. A
    /// peer that keeps has made its own wait already.
    pub(crate) fn handle_sequence_nak(
        &mut self,
        now: Instant,
        wait: Duration,
        sq: &mut SendQueue,
    ) -> bool {
        let at = sq.acked();
        if sq.next().since(at) <= 0 || self.resend.is_some_and(|resend| resend.at == at) {
            return false;
        }
        if !self.peer_keeps() && sq.is_read_at(at) {
            if self.late.is_none_or(|late| late.at != at) {
                self.late = Some(Late { at, due: now + wait, probed: false });
                sq.stall(true);
            }
            return false;
        }
        self.resend_missing(sq);
        true
    }

    fn resend_missing(&mut self, sq: &mut SendQueue) {
        self.late = None;
        self.again(Cause::Nak, sq);
        let keeps = self.peer_keeps();
        if matches!(self.peer, Peer::Drops { .. }) && !keeps {
            self.go_back(sq);
        } else {
            self.resend(1, Why::Nak, sq);
        }
    }

    /// Acts on an RNR NAK: the peer will take the packet after the last one acknowledged later.
    pub(crate) fn refused(&mut self, sq: &mut SendQueue) {
        self.again(Cause::Rnr, sq);
        (self.resend, self.late) = (None, None);
        if self.peer_keeps() {
            self.resend(1, Why::Timeout, sq);
        } else {
            sq.rewind_to(sq.restart_at());
        }
    }

    /// Acts on the expiry of the timer, the `tries`th in a row. `rto` tells that it is too late for a
    /// response, so that a packet may be resent without evidence.
    pub(crate) fn timeout(&mut self, (tries, rto): (u32, bool), sq: &mut SendQueue) -> Remedy {
        if sq.responses_missing() {
            self.again(Cause::Timer, sq);
            sq.stall(false);
            if self.make == Make::Keeper {
                self.all_are_lost(sq);
                return Remedy::Resend;
            }
            // Some responders respond only to a request for the whole rest.
            let end = if tries > 2 { sq.resend_read() } else { sq.resend_responses(u32::MAX) };
            // From here on a duplicate response tells nothing about reordering.
            (self.requested_end, self.requested, self.gap) = (end, None, None);
            return Remedy::Resend;
        }
        let read = sq.is_read_at(sq.una());
        // A packet that the peer reported and that was resent is lost once more: the peer reports it only
        // once.
        let known = !read && self.resend.is_some_and(|resend| resend.why != Why::Timeout);
        if !rto && !known {
            self.probe = true;
            return Remedy::Probe;
        }
        self.again(Cause::Timer, sq);
        (self.resend, self.late) = (None, None);
        sq.stall(false);
        if read {
            // Nothing is known of the packets behind it.
            sq.resend_read();
        } else {
            self.resend(1, Why::Timeout, sq);
        }
        Remedy::Resend
    }

    /// Opens and closes the gap in the READ responses after each response. Returns whether it opened one.
    pub(crate) fn watch(&mut self, now: Instant, sq: &mut SendQueue) -> bool {
        match self.make {
            Make::Keeper => self.watch_gaps(now, sq),
            Make::Other => self.watch_gap(now, sq),
        }
    }

    fn watch_gap(&mut self, now: Instant, sq: &mut SendQueue) -> bool {
        let una = sq.una();
        let filled = self.requested_end.filter(|end| end.since(una) <= 0);
        if filled.is_some() {
            self.requested_end = None;
        }
        if !sq.responses_missing() || self.requested_end.is_some() {
            self.gap = None;
            return false;
        }
        let opened = self.gap.is_none_or(|(at, _)| at != una);
        if opened {
            self.gap = Some((una, now));
            let again = filled == Some(una);
            self.request_packets = if again { self.request_packets.saturating_mul(2) } else { 1 };
        }
        // Where responses were requested since, those that came out of order came about a round trip ago:
        // the responses missing before them are lost, not late.
        if filled.is_some_and(|end| end != una) || sq.early() > REORDER_PACKETS {
            self.request_again(sq);
        }
        opened
    }

    /// Acts on a duplicate READ response.
    pub(crate) fn repeated(&mut self, psn: Psn) {
        if self.requested.is_some_and(|(from, end)| psn.since(from) >= 0 && end.since(psn) > 0) {
            self.reorder_window.widen();
            self.requested = None;
        }
    }

    fn request_again(&mut self, sq: &mut SendQueue) {
        self.again(Cause::ImpliedNak, sq);
        let end = sq.resend_responses(self.request_packets);
        self.requested = end.map(|end| (sq.una(), end));
        (self.requested_end, self.gap) = (end, None);
        self.reorder_window.count_resend();
    }

    fn resend(&mut self, packets: u32, why: Why, sq: &mut SendQueue) {
        let at = sq.acked();
        let keeps = self.peer_keeps();
        let read = sq.is_read_at(at);
        if read && !keeps {
            // READ requests are small, and their responses cannot come before the lost one's.
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

    /// Counts a NAK for the packet right behind a resend: the peer dropped that one, too.
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

    /// Resends everything that the peer has not acknowledged, and narrows the window.
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

    /// Widens the window by one packet for each window acknowledged.
    #[inline]
    pub(super) fn grow(&mut self, packets: u32, sq: &mut SendQueue) {
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
