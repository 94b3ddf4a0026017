//! The marks of a send queue that decide what is sent again: what the peer has executed, what data
//! of READs came early, and a stretch to resend before new packets.

use super::{Again, Place, SendQueue, SendWqe};
use crate::env::Instant;
use crate::psn::Psn;
use crate::qp::reorder::PsnSet;
use crate::wire;

/// See the module.
#[derive(Debug)]
pub(super) struct Marks {
    /// The peer has executed every request before this. Not before `una`; after it where data of a
    /// READ is missing.
    pub(super) acked: Psn,
    /// The packet sent last, other than those of `run`.
    pub(super) newest: Psn,
    pub(super) run: Option<Run>,
    /// Answers to READs that came before `una` did.
    early: PsnSet,
    /// One past the newest of them, where there are any.
    early_end: Psn,
    /// Packets in flight, at most, towards a peer that drops what comes early.
    limit: u32,
    /// Nothing new leaves until the peer has answered what was resent.
    stalled: bool,
    /// Why something was sent again last.
    cause: Cause,
    /// The last packet of a SEND or WRITE that was sent again, and when.
    again: Option<(Psn, Instant)>,
}

/// What makes a requester send something again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// Nothing came for a retransmission timeout.
    Timer,
    /// The peer named a packet as missing.
    Nak,
    /// An answer to a READ is missing before others.
    ImpliedNak,
    /// The peer asked for a pause.
    Rnr,
}

/// A stretch that is sent again, once, before anything else. The marks in PSN space stay.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its next packet.
    pub psn: Psn,
    pub(super) place: Place,
    end: Psn,
}

impl Marks {
    pub(super) const fn new() -> Self {
        Self {
            acked: Psn::new(0),
            newest: Psn::new(0),
            run: None,
            early: PsnSet::new(),
            early_end: Psn::new(0),
            limit: u32::MAX,
            stalled: false,
            cause: Cause::Timer,
            again: None,
        }
    }

    /// Forgets what was to be sent again.
    pub(super) fn clear(&mut self, next: Psn) {
        (self.acked, self.run, self.stalled, self.again) = (next, None, false, None);
        self.early.clear();
    }
}

impl SendQueue {
    /// Prepares for answers that come early within `psns` of each other.
    pub fn reserve_early(&mut self, psns: u32) {
        self.marks.early.reserve(psns);
    }

    /// The oldest PSN whose request the peer is not known to have executed.
    pub const fn acked(&self) -> Psn {
        self.marks.acked
    }

    /// The packet sent last, other than those of a run; of a READ the request.
    pub const fn newest(&self) -> Psn {
        self.marks.newest
    }

    /// Packets in flight, at most, beside the window.
    pub const fn limit(&self) -> u32 {
        self.marks.limit
    }

    /// Sets [`Self::limit`].
    pub fn set_limit(&mut self, packets: u32) {
        self.marks.limit = packets;
    }

    /// Whether new packets have to wait for an answer to resent ones.
    pub const fn stalled(&self) -> bool {
        self.marks.stalled && self.marks.run.is_none()
    }

    /// Sets [`Self::stalled`].
    pub fn stall(&mut self, stalled: bool) {
        self.marks.stalled = stalled;
    }

    /// Why what was sent before leaves again from here on.
    pub fn resend_for(&mut self, cause: Cause) {
        self.marks.cause = cause;
    }

    /// Why the next packet leaves again; `None` where it is new.
    pub fn resent_for(&self) -> Option<Cause> {
        self.resending().then_some(self.marks.cause)
    }

    /// What leaves before anything new.
    pub const fn run(&self) -> Option<Run> {
        self.marks.run
    }

    /// PSNs left of `run`.
    pub fn run_len(&self, run: Run) -> u32 {
        run.end.since(run.psn).max(0).cast_unsigned()
    }

    /// Goes back to the run's next packet, which cannot be sent.
    pub fn give_up_run(&mut self) {
        if let Some(run) = self.marks.run {
            self.rewind_to(run.psn);
        }
    }

    /// Notes what leaves again.
    pub(super) fn sent_again(&mut self, packets: u32, read: bool, now: Instant, until: Instant) {
        let from = self.marks.run.map_or(self.next, |run| run.psn);
        if from.since(self.highest) >= 0 {
            return;
        }
        if !read {
            self.marks.again = Some((from, now));
            return;
        }
        let end = from.add(packets);
        let executed = self.known_end().since(from) > 0;
        let opened = |psn| psn == self.read_floor || self.read_ends.iter().any(|end| *end == psn);
        let begins = self.locate(from).is_some_and(|(_, packet)| packet > 0) && !opened(from);
        let ends = self.marks.run.is_some() && !opened(end);
        let behind = self.highest;
        self.copies.sent(Again { from, end, executed, begins, ends, behind, sent_at: now, until });
    }

    /// When the packet was sent again that is acknowledged now.
    pub fn take_again(&mut self) -> Option<Instant> {
        let (_, at) = self.marks.again.filter(|(psn, _)| self.marks.acked.since(*psn) > 0)?;
        self.marks.again = None;
        Some(at)
    }

    /// An answer to a READ came, the first time or not. Whether it shows that the READ was sent again in
    /// vain.
    pub fn read_answered(&mut self, psn: Psn, place: wire::Place) -> bool {
        self.copies.answered(psn, place)
    }

    /// Moves the run over `packets` PSNs just sent; whether there was one.
    pub(super) fn run_sent(&mut self, packets: u32) -> bool {
        let Some(run) = self.marks.run else { return false };
        self.marks.run = self.run_of(run.psn.add(packets), run.end);
        true
    }

    /// Drops the part of the run that the peer has answered since: of a READ by its data.
    pub(super) fn trim_run(&mut self) {
        let Some(run) = self.marks.run else { return };
        let data = run.psn.since(self.una) >= 0 && !self.is_read_at(run.psn);
        let from = if data { self.marks.acked } else { self.una };
        if from.since(run.psn) > 0 {
            self.marks.run = self.run_of(from, run.end);
        }
    }

    fn run_of(&self, psn: Psn, end: Psn) -> Option<Run> {
        let place = self.place_of(psn).filter(|_| end.since(psn) > 0)?;
        Some(Run { psn, place, end })
    }

    /// Sends `packets` again from `psn` on, which was sent before: those of one kind that stand
    /// together, or one READ request. One past the last of them; `None` if nothing of it is in flight.
    pub fn resend_requests(&mut self, psn: Psn, packets: u32) -> Option<Psn> {
        let end = match self.read_end(psn) {
            Some(end) => end,
            None => psn.add(packets.min(self.data_len(psn))),
        };
        let end = if end.since(self.next) > 0 { self.next } else { end };
        self.marks.run = self.run_of(psn, end);
        self.marks.run.map(|run| run.end)
    }

    /// Asks again for the rest of the oldest READ request in flight, also for what came early.
    pub fn resend_read(&mut self) -> Option<Psn> {
        self.resend_requests(self.una, 1)
    }

    /// Asks again for the oldest missing answers, at most `packets`, and up to the first that came
    /// early. One past the last of them.
    ///
    /// Only the oldest: rxe answers no request for something older than what it was asked for again
    /// last, in the same READ.
    pub fn resend_answers(&mut self, packets: u32) -> Option<Psn> {
        let end = self.resend_read()?;
        let len = end.since(self.una).cast_unsigned().min(packets);
        let len = (0..len).find(|n| self.marks.early.contains(self.una.add(*n))).unwrap_or(len);
        let end = self.una.add(len);
        self.marks.run = self.run_of(self.una, end);
        Some(end)
    }

    /// Whether the peer is known to have sent answers that are missing.
    pub fn answers_missing(&self) -> bool {
        self.known_end().since(self.una) > 0
    }

    /// Answers that came early.
    pub fn early(&self) -> usize {
        self.marks.early.len()
    }

    /// Whether the answer `psn` came early.
    pub fn is_early(&self, psn: Psn) -> bool {
        self.marks.early.contains(psn)
    }

    /// Notes that the answer `psn` came before the oldest missing one; whether it could be noted.
    pub fn mark_early(&mut self, psn: Psn) -> bool {
        let ahead = psn.since(self.una).cast_unsigned() as usize;
        if ahead >= self.marks.early.capacity() || !self.marks.early.insert(psn) {
            return false;
        }
        if self.marks.early.len() == 1 || psn.since(self.marks.early_end) >= 0 {
            self.marks.early_end = psn.add(1);
        }
        true
    }

    /// Takes the answer at the oldest unacknowledged PSN, if it came early.
    pub(super) fn take_early(&mut self) -> bool {
        self.marks.early.remove(self.una)
    }

    /// The request that `psn` belongs to, and which packet of it.
    pub fn locate(&self, psn: Psn) -> Option<(&SendWqe, u32)> {
        let place = self.place_of(psn)?;
        self.wqes.get(place.wqe).map(|wqe| (wqe, place.packet))
    }

    /// Whether `psn` belongs to a READ.
    pub fn is_read_at(&self, psn: Psn) -> bool {
        self.locate(psn).is_some_and(|(wqe, _)| wqe.is_read())
    }

    /// Where to go back to, for a peer that has executed what is acknowledged. Not into the middle of a
    /// READ request of which older answers are missing: see [`Self::resend_answers`].
    pub fn restart_at(&self) -> Psn {
        if self.inside_read() { self.una } else { self.marks.acked }
    }

    /// Whether part of the answer to the oldest request not known to be executed came, so that it was.
    pub fn inside_read(&self) -> bool {
        let acked = self.marks.acked;
        self.locate(acked).is_some_and(|(wqe, packet)| wqe.is_read() && packet > 0)
            && !self.read_ends.iter().any(|end| *end == acked)
    }

    /// Goes back to `psn` (go-back-N), and never on: between here and there may be a READ that is no
    /// longer counted as in flight and has to be asked for again, which a fence waits for.
    pub fn rewind_to(&mut self, psn: Psn) {
        let Some(place) = self.place_of(psn) else { return };
        // Where it is, the cursor may stand before requests without packets that have not taken effect.
        if psn.since(self.next) < 0 {
            (self.next, self.cursor) = (psn, place);
        }
        (self.marks.run, self.marks.stalled) = (None, false);
        while self.read_ends.back().is_some_and(|end| end.since(self.next) > 0) {
            self.read_ends.pop_back();
        }
    }

    /// After going back, skips what the peer turns out to have; but asks again for its answers.
    pub(super) fn skip_acked(&mut self) {
        while self.marks.acked.since(self.next) > 0 {
            let Some(wqe) = self.wqes.get(self.cursor.wqe).filter(|wqe| !wqe.is_read()) else {
                return;
            };
            let ahead = self.marks.acked.since(self.next).cast_unsigned();
            let packets = ahead.min(wqe.packets - self.cursor.packet);
            self.next = self.next.add(packets);
            self.cursor.packet += packets;
            if self.cursor.packet >= wqe.packets {
                self.cursor = Place { wqe: self.cursor.wqe + 1, packet: 0 };
            }
        }
    }

    /// One past the newest packet that the peer is known to have executed.
    pub fn known_end(&self) -> Psn {
        let Marks { acked, early_end, .. } = self.marks;
        if self.marks.early.is_empty() || acked.since(early_end) > 0 { acked } else { early_end }
    }

    /// One past the answers to the READ request in flight that `psn` belongs to.
    fn read_end(&self, psn: Psn) -> Option<Psn> {
        let (wqe, packet) = self.locate(psn).filter(|(wqe, _)| wqe.is_read())?;
        let end = self.read_ends.iter().find(|end| end.since(psn) > 0);
        Some(end.copied().unwrap_or_else(|| psn.add(wqe.packets - packet)))
    }

    /// Packets from `psn` to the next READ.
    fn data_len(&self, psn: Psn) -> u32 {
        let Some(place) = self.place_of(psn) else { return 0 };
        let wqes = self.wqes.range(place.wqe..).take_while(|wqe| !wqe.is_read());
        wqes.map(|wqe| wqe.packets).fold(0, u32::saturating_add).saturating_sub(place.packet)
    }

    fn place_of(&self, psn: Psn) -> Option<Place> {
        let ahead = u32::try_from(psn.since(self.una)).ok()?;
        let mut packet = ahead + self.una_packet;
        for (wqe, request) in self.wqes.iter().enumerate() {
            if packet < request.packets {
                return Some(Place { wqe, packet });
            }
            packet -= request.packets;
        }
        None
    }
}
