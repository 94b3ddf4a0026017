//! The scoreboard of a send queue: what the peer is known to have executed, which READ responses came out
//! of order, and the range that is resent before new packets leave.

use super::gaps::Gaps;
use super::{Again, Place, SendQueue};
use crate::env::Instant;
use crate::psn::Psn;
use crate::qp::psn_set::PsnSet;
use crate::qp::send::entry::Wqe;
use crate::wire;

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Scoreboard {
    /// The peer has executed every request before this PSN. It is `una`, or after `una` where data of a
    /// READ is missing.
    pub(super) acked: Psn,
    /// Packets in flight, at most, towards a peer that drops packets behind a gap.
    limit: u32,
    /// No new packet leaves until the peer has acknowledged the resent ones.
    stalled: bool,
    /// READ responses were lost to congestion: the READs that ask for them again say so.
    congested: bool,
    /// The cause of the last resend.
    cause: Cause,
    /// The range that is being resent.
    pub(super) resend: Option<ResendRange>,
    /// READ responses beyond `una` that have come.
    early: PsnSet,
    /// One past the newest of them, where there are any.
    early_end: Psn,
    /// The last packet of a SEND or WRITE that was resent, and when.
    again: Option<(Psn, Instant)>,
    /// The packets that a peer of our make misses.
    pub(super) gaps: Gaps,
}

/// The cause of a resend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// The retransmission timer expired.
    Timer,
    /// The peer sent a sequence NAK.
    Nak,
    /// A READ response is missing before others (an implied NAK).
    ImpliedNak,
    /// The peer sent an RNR NAK.
    Rnr,
}

/// A range of PSNs that is resent, once, before anything else. `una` and `next` of the queue stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResendRange {
    /// Its next packet.
    pub psn: Psn,
    pub(super) place: Place,
    end: Psn,
}

impl Scoreboard {
    pub(super) const fn new() -> Self {
        Self {
            acked: Psn::new(0),
            resend: None,
            early: PsnSet::new(),
            early_end: Psn::new(0),
            limit: u32::MAX,
            stalled: false,
            cause: Cause::Timer,
            again: None,
            congested: false,
            gaps: Gaps::new(),
        }
    }

    /// Whether nothing is resent, and nothing has come or was acknowledged behind the oldest packet `una`.
    pub(super) fn is_plain(&self, una: Psn) -> bool {
        let resent = self.resend.is_some() || self.again.is_some();
        self.acked == una && self.early.is_empty() && !resent && !self.stalled
    }

    /// Starts anew at `next`: nothing is to be resent.
    pub(super) fn clear(&mut self, next: Psn) {
        (self.acked, self.resend, self.stalled) = (next, None, false);
        self.again = None;
        self.early.clear();
        self.gaps.clear();
    }
}

impl SendQueue {
    /// Reserves memory for READ responses that come out of order by up to `psns`.
    pub(super) fn reserve_early(&mut self, psns: u32) {
        self.scoreboard.early.reserve(psns);
    }

    /// The oldest PSN whose request the peer is not known to have executed.
    pub(crate) const fn acked(&self) -> Psn {
        self.scoreboard.acked
    }

    /// Packets in flight, at most; the window is another limit.
    pub(crate) const fn limit(&self) -> u32 {
        self.scoreboard.limit
    }

    /// Sets [`Self::limit`].
    pub(crate) fn set_limit(&mut self, packets: u32) {
        self.scoreboard.limit = packets;
    }

    /// Whether new packets wait until resent ones are acknowledged.
    pub(crate) const fn stalled(&self) -> bool {
        self.scoreboard.stalled && self.scoreboard.resend.is_none()
    }

    /// Whether the packets that leave next are new, and wait for nothing but the window.
    pub(crate) fn sends_new(&self) -> bool {
        let Scoreboard { resend, stalled, acked, .. } = &self.scoreboard;
        let behind = self.next == self.highest && acked.since(self.next) <= 0;
        resend.is_none() && !stalled && behind
    }

    /// Whether nothing is resent or was sent twice, and nothing came out of order.
    pub(crate) fn is_calm(&self) -> bool {
        let once = self.scoreboard.again.is_none() && self.copies.is_empty() && !self.parks();
        let whole = self.scoreboard.early.is_empty() && self.scoreboard.gaps.is_empty();
        once && whole && self.sends_new()
    }

    /// Whether all that is in flight are new packets of SENDs and WRITEs, and nothing waits for copies.
    #[inline]
    pub(crate) fn has_plain_data(&self) -> bool {
        let reads = self.reads > 0 || self.parks() || !self.copies.is_empty();
        !reads && self.scoreboard.is_plain(self.una)
    }

    /// Sets [`Self::stalled`].
    pub(crate) fn stall(&mut self, stalled: bool) {
        self.scoreboard.stalled = stalled;
    }

    /// Sets the cause of the resends that follow.
    pub(crate) fn resend_for(&mut self, cause: Cause) {
        self.scoreboard.cause = cause;
    }

    /// The cause for which the next packet is resent; `None` where it is new.
    pub(crate) fn resent_for(&self) -> Option<Cause> {
        self.resending().then_some(self.scoreboard.cause)
    }

    /// Sets whether READ responses that are requested again were lost to congestion.
    pub(crate) fn set_congested(&mut self, congested: bool) {
        self.scoreboard.congested = congested;
    }

    /// Whether the next packet, if it is a READ, says that responses were lost to congestion.
    pub(crate) fn reports_congestion(&self) -> bool {
        self.scoreboard.congested && self.resending()
    }

    /// The range that leaves before any new packet.
    pub(crate) const fn resend(&self) -> Option<ResendRange> {
        self.scoreboard.resend
    }

    /// The PSN of the packet that leaves next, of those that are sent again or new.
    pub(crate) fn next_to_send(&self) -> Psn {
        self.scoreboard.resend.map_or(self.next, |range| range.psn)
    }

    /// PSNs left of `range`.
    pub(crate) fn resend_len(&self, range: ResendRange) -> u32 {
        range.end.since(range.psn).max(0).cast_unsigned()
    }

    /// Goes back to the next packet of the resend, which cannot be sent.
    pub(crate) fn give_up_resend(&mut self) {
        if let Some(range) = self.scoreboard.resend {
            self.rewind_to(range.psn);
        }
    }

    /// Notes that packets were resent, if these were.
    pub(super) fn sent_again(&mut self, packets: u32, read: bool, now: Instant, until: Instant) {
        let from = self.scoreboard.resend.map_or(self.next, |range| range.psn);
        if from.since(self.highest) >= 0 {
            return;
        }
        if !read {
            self.scoreboard.again = Some((from, now));
            return;
        }
        let end = from.add(packets);
        let executed = self.known_end().since(from) > 0;
        let begins = self.locate(from).is_some_and(|(_, packet)| packet > 0) && !self.opens(from);
        let ends = self.scoreboard.resend.is_some() && !self.opens(end);
        let behind = self.highest;
        self.copies.sent(Again { from, end, executed, begins, ends, behind, sent_at: now, until });
    }

    /// When the resent packet left that is acknowledged now.
    pub(crate) fn take_again(&mut self) -> Option<Instant> {
        let (_, at) =
            self.scoreboard.again.filter(|(psn, _)| self.scoreboard.acked.since(*psn) > 0)?;
        self.scoreboard.again = None;
        Some(at)
    }

    /// Notes a READ response, a duplicate or not. Returns whether it shows that resending the READ was
    /// needless.
    pub(crate) fn read_response_came(&mut self, psn: Psn, place: wire::Place) -> bool {
        self.copies.response_came(psn, place)
    }

    /// Moves the resend over `packets` PSNs just sent. Returns whether there was one.
    pub(super) fn resend_sent(&mut self, packets: u32) -> bool {
        let Some(range) = self.scoreboard.resend else { return false };
        self.scoreboard.resend = self.resend_range(range.psn.add(packets), range.end);
        if self.scoreboard.resend.is_none() {
            self.begin_gap();
        }
        true
    }

    /// Sends the packets from `psn` to `end` again, which are of SENDs and WRITEs or of one READ. Returns false where there are
    /// none.
    pub(super) fn resend_within(&mut self, psn: Psn, end: Psn) -> bool {
        self.scoreboard.resend = self.resend_range(psn, end);
        self.scoreboard.resend.is_some()
    }

    /// Drops the part of the resend that the peer has acknowledged since; a READ by its data.
    pub(super) fn trim_resend(&mut self) {
        if self.has_gaps() {
            self.close_gaps();
        }
        let Some(range) = self.scoreboard.resend else { return };
        let data = range.psn.since(self.una) >= 0 && !self.is_read_at(range.psn);
        let from = if data { self.scoreboard.acked } else { self.una };
        if from.since(range.psn) > 0 {
            self.scoreboard.resend = self.resend_range(from, range.end);
            if self.scoreboard.resend.is_none() {
                self.begin_gap();
            }
        }
    }

    fn resend_range(&self, psn: Psn, end: Psn) -> Option<ResendRange> {
        let place = self.place_of(psn).filter(|_| end.since(psn) > 0)?;
        Some(ResendRange { psn, place, end })
    }

    /// Resends `packets` from `psn` on, which was sent before: adjacent packets of SENDs and WRITEs, or
    /// one READ request. Returns one past the last of them; `None` if none of them is in flight.
    pub(crate) fn resend_requests(&mut self, psn: Psn, packets: u32) -> Option<Psn> {
        let end = match self.read_end(psn) {
            Some(end) => end,
            None => psn.add(packets.min(self.data_len(psn))),
        };
        let end = if end.since(self.next) > 0 { self.next } else { end };
        self.scoreboard.resend = self.resend_range(psn, end);
        self.scoreboard.resend.map(|range| range.end)
    }

    /// Resends the rest of the oldest READ request in flight, with the responses that have come.
    pub(crate) fn resend_read(&mut self) -> Option<Psn> {
        self.resend_requests(self.una, 1)
    }

    /// Requests the oldest missing READ responses again, at most `packets`, and up to the first that has
    /// come. Returns one past the last of them.
    ///
    /// Only the oldest gap: rxe answers no duplicate READ request for a PSN below the one of the last
    /// duplicate, within one READ.
    pub(crate) fn resend_responses(&mut self, packets: u32) -> Option<Psn> {
        let end = self.resend_read()?;
        let len = end.since(self.una).cast_unsigned().min(packets);
        let len =
            (0..len).find(|n| self.scoreboard.early.contains(self.una.add(*n))).unwrap_or(len);
        let end = self.una.add(len);
        self.scoreboard.resend = self.resend_range(self.una, end);
        Some(end)
    }

    /// Whether the peer is known to have sent READ responses that are missing.
    pub(crate) fn responses_missing(&self) -> bool {
        self.known_end().since(self.una) > 0
    }

    /// Whether `packets` READ responses in a row are missing from the oldest one on.
    pub(crate) fn misses_in_a_row(&self, packets: u32) -> bool {
        let missing = self.known_end().since(self.una).max(0).cast_unsigned();
        missing >= packets && (0..packets).all(|n| !self.is_early(self.una.add(n)))
    }

    /// READ responses beyond the oldest missing one.
    pub(crate) fn early(&self) -> usize {
        self.scoreboard.early.len()
    }

    /// Whether the READ response `psn`, beyond the oldest missing one, has come.
    pub(crate) fn is_early(&self, psn: Psn) -> bool {
        self.scoreboard.early.contains(psn)
    }

    /// Notes that the READ response `psn`, beyond the oldest missing one, has come. Returns false where
    /// there is no room for it, or it had come before.
    pub(crate) fn mark_early(&mut self, psn: Psn) -> bool {
        let ahead = psn.since(self.una).cast_unsigned() as usize;
        if ahead >= self.scoreboard.early.capacity() || !self.scoreboard.early.insert(psn) {
            return false;
        }
        if self.scoreboard.early.len() == 1 || psn.since(self.scoreboard.early_end) >= 0 {
            self.scoreboard.early_end = psn.add(1);
        }
        true
    }

    /// Takes the READ response at the oldest unacknowledged PSN, if it has come.
    pub(super) fn take_early(&mut self) -> bool {
        self.scoreboard.early.remove(self.una)
    }

    /// The request that `psn` belongs to, and its packet.
    pub(crate) fn locate(&self, psn: Psn) -> Option<(Wqe<'_>, u32)> {
        let place = self.place_of(psn)?;
        self.wqe(place.wqe).map(|wqe| (wqe, place.packet))
    }

    /// Whether `psn` belongs to a READ.
    pub(crate) fn is_read_at(&self, psn: Psn) -> bool {
        self.locate(psn).is_some_and(|(wqe, _)| wqe.is_read())
    }

    /// The PSN to go back to, for a peer that has executed all acknowledged requests. It is never inside a
    /// READ request of which older responses are missing: see [`Self::resend_responses`].
    pub(crate) fn restart_at(&self) -> Psn {
        if self.inside_read() { self.una } else { self.scoreboard.acked }
    }

    /// Whether the oldest request that is not acknowledged is a READ of which responses have come, so that
    /// the peer has executed it.
    pub(crate) fn inside_read(&self) -> bool {
        let acked = self.scoreboard.acked;
        self.locate(acked).is_some_and(|(wqe, packet)| wqe.is_read() && packet > 0)
            && !self.opens(acked)
    }

    /// Whether a READ request begins at `psn`, which is one of a READ.
    pub(super) fn begins_read(&self, psn: Psn) -> bool {
        self.locate(psn).is_some_and(|(_, packet)| packet == 0) || self.opens(psn)
    }

    /// Whether a READ request ends before `psn`: a READ may take several requests.
    fn opens(&self, psn: Psn) -> bool {
        psn == self.read_floor || self.read_ends.iter().any(|end| *end == psn)
    }

    /// Goes back to `psn` (go-back-N). It never goes forward: in between may be a READ that no longer counts
    /// as in flight and has to be requested again, which a fence waits for.
    pub(crate) fn rewind_to(&mut self, psn: Psn) {
        let Some(place) = self.place_of(psn) else { return };
        // At `next` itself the cursor may stand before requests without packets that have not taken effect.
        if psn.since(self.next) < 0 {
            (self.next, self.cursor) = (psn, place);
        }
        (self.scoreboard.resend, self.scoreboard.stalled) = (None, false);
        self.scoreboard.gaps.clear();
        while self.read_ends.back().is_some_and(|end| end.since(self.next) > 0) {
            self.read_ends.pop_back();
            self.reads -= 1;
        }
    }

    /// Whether packets leave that have left before, and all behind them.
    pub(crate) fn has_gone_back(&self) -> bool {
        self.next != self.highest
    }

    /// After going back, skips the packets that the peer turns out to have, but requests READs again.
    pub(super) fn skip_acked(&mut self) {
        while self.scoreboard.acked.since(self.next) > 0 {
            let Some(wqe) = self.wqe(self.cursor.wqe).filter(|wqe| !wqe.is_read()) else {
                return;
            };
            let of_wqe = self.packets(wqe);
            let ahead = self.scoreboard.acked.since(self.next).cast_unsigned();
            let packets = ahead.min(of_wqe - self.cursor.packet);
            self.next = self.next.add(packets);
            self.cursor.packet += packets;
            if self.cursor.packet >= of_wqe {
                self.cursor = Place { wqe: self.cursor.wqe + 1, packet: 0 };
            }
        }
    }

    /// One past the newest packet that the peer is known to have executed.
    pub(crate) fn known_end(&self) -> Psn {
        let Scoreboard { acked, early_end, .. } = self.scoreboard;
        if self.scoreboard.early.is_empty() || acked.since(early_end) > 0 {
            acked
        } else {
            early_end
        }
    }

    /// One past the packets of all requests that the peer is known to have executed.
    pub(crate) fn executed_end(&self) -> Psn {
        let end = self.known_end();
        self.read_end(end.prev()).unwrap_or(end)
    }

    /// One past the responses to the READ request in flight that `psn` belongs to.
    pub(super) fn read_end(&self, psn: Psn) -> Option<Psn> {
        let (wqe, packet) = self.locate(psn).filter(|(wqe, _)| wqe.is_read())?;
        let end = self.read_ends.iter().find(|end| end.since(psn) > 0);
        Some(end.copied().unwrap_or_else(|| psn.add(self.packets(wqe) - packet)))
    }

    /// Packets from `psn` to the next READ.
    pub(super) fn data_len(&self, psn: Psn) -> u32 {
        let Some(place) = self.place_of(psn) else { return 0 };
        let wqes = (place.wqe..).map_while(|index| self.wqe(index));
        let packets = wqes.take_while(|wqe| !wqe.is_read()).map(|wqe| self.packets(wqe));
        packets.fold(0, u32::saturating_add).saturating_sub(place.packet)
    }

    fn place_of(&self, psn: Psn) -> Option<Place> {
        let ahead = u32::try_from(psn.since(self.una)).ok()?;
        let mut packet = ahead + self.una_packet;
        for index in 0.. {
            let packets = self.packets(self.wqe(index)?);
            if packet < packets {
                return Some(Place { wqe: index, packet });
            }
            packet -= packets;
        }
        None
    }
}
