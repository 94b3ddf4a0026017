//! The marks of a send queue that decide what is sent again: what the peer has executed, what data
//! of READs came early, and a stretch to resend before new packets.

use super::{Place, SendQueue, SendWqe};
use crate::psn::Psn;
use crate::qp::reorder::PsnSet;

/// Holes in the answers to READs that are asked for at once; a responder answers few at a time.
const HOLES: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Marks {
    /// The peer has executed every request before this. Not before `una`; after it where data of a
    /// READ is missing.
    pub(super) acked: Psn,
    pub(super) run: Option<Run>,
    /// Answers to READs that came before `una` did.
    early: PsnSet,
    /// One past the newest of them, where there are any.
    early_end: Psn,
    /// Packets in flight, at most, towards a peer that drops what comes early.
    limit: u32,
    /// Nothing new leaves until the peer has answered what was resent.
    stalled: bool,
}

/// A stretch that is sent again, once, before anything else. The marks in PSN space stay.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Its next packet.
    pub psn: Psn,
    pub(super) place: Place,
    end: Psn,
    /// It asks for missing answers only; else it is requests as they were.
    answers: bool,
}

impl Marks {
    pub(super) const fn new() -> Self {
        Self {
            acked: Psn::new(0),
            run: None,
            early: PsnSet::new(),
            early_end: Psn::new(0),
            limit: u32::MAX,
            stalled: false,
        }
    }

    /// Forgets what was to be sent again.
    pub(super) fn clear(&mut self, next: Psn) {
        (self.acked, self.run, self.stalled) = (next, None, false);
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

    /// What leaves before anything new.
    pub const fn run(&self) -> Option<Run> {
        self.marks.run
    }

    /// PSNs from the next one of `run` on that belong together.
    pub fn run_len(&self, run: Run) -> u32 {
        let left = run.end.since(run.psn).max(0).cast_unsigned();
        if !run.answers {
            return left;
        }
        (0..left).find(|n| self.marks.early.contains(run.psn.add(*n))).unwrap_or(left)
    }

    /// Moves the run over `packets` PSNs just sent; whether there was one.
    pub(super) fn run_sent(&mut self, packets: u32) -> bool {
        let Some(run) = self.marks.run else { return false };
        self.marks.run = self.run_from(run.psn.add(packets), run);
        true
    }

    /// Drops the part of the run that the peer has answered since.
    pub(super) fn trim_run(&mut self) {
        let Some(run) = self.marks.run else { return };
        let from = if run.answers { self.una } else { self.marks.acked };
        if from.since(run.psn) > 0 || run.answers {
            let from = if from.since(run.psn) > 0 { from } else { run.psn };
            self.marks.run = self.run_from(from, run);
        }
    }

    fn run_from(&self, psn: Psn, run: Run) -> Option<Run> {
        if run.answers { self.hole(psn, run.end) } else { self.requests(psn, run.end) }
    }

    fn requests(&self, psn: Psn, end: Psn) -> Option<Run> {
        let place = self.place_of(psn).filter(|_| end.since(psn) > 0)?;
        Some(Run { psn, place, end, answers: false })
    }

    /// The oldest missing answer in `psn..end`.
    fn hole(&self, mut psn: Psn, end: Psn) -> Option<Run> {
        let mut place = self.place_of(psn)?;
        while end.since(psn) > 0 {
            let wqe = self.wqes.get(place.wqe)?;
            if wqe.is_read() && !self.marks.early.contains(psn) {
                return Some(Run { psn, place, end, answers: true });
            }
            let step = if wqe.is_read() { 1 } else { wqe.packets - place.packet };
            psn = psn.add(step);
            place.packet += step;
            if place.packet >= wqe.packets {
                place = self.place_of(psn)?;
            }
        }
        None
    }

    /// Sends `packets` again from `psn` on, which was sent before: those of one kind that stand
    /// together, or one READ request. One past the last of them; `None` if nothing of it is in flight.
    pub fn resend_requests(&mut self, psn: Psn, packets: u32) -> Option<Psn> {
        let end = match self.read_end(psn) {
            Some(end) => end,
            None => psn.add(packets.min(self.data_len(psn))),
        };
        let end = if end.since(self.next) > 0 { self.next } else { end };
        self.marks.run = self.requests(psn, end);
        self.marks.run.map(|run| run.end)
    }

    /// Asks again for the rest of the oldest READ request in flight, also for what came early.
    pub fn resend_read(&mut self) -> Option<Psn> {
        self.resend_requests(self.una, 1)
    }

    /// Asks again for the oldest answers that are known to be missing. One past the last of them.
    pub fn resend_answers(&mut self) -> Psn {
        let known = self.known_end();
        let known = if known.since(self.next) > 0 { self.next } else { known };
        let mut end = self.una;
        for _ in 0..HOLES {
            let Some(hole) = self.hole(end, known) else { break };
            end = hole.psn.add(self.run_len(hole));
        }
        self.marks.run = self.hole(self.una, end);
        end
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
        self.trim_run();
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

    /// Goes back to `psn` (go-back-N).
    pub fn rewind_to(&mut self, psn: Psn) {
        let Some(place) = self.place_of(psn) else { return };
        (self.next, self.cursor) = (psn, place);
        (self.marks.run, self.marks.stalled) = (None, false);
        while self.read_ends.back().is_some_and(|end| end.since(psn) > 0) {
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

    fn known_end(&self) -> Psn {
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
