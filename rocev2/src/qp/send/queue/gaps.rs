//! The gaps that a send queue repairs all at once, towards a peer of our make: packets that it has reported missing, and READ
//! responses that are missing here.
//!
//! A packet that was sent again counts as lost again only once a packet that left behind it has come before the reorder window
//! that a report leaves out. Packets are so many that each cannot have a time of its own, so they are told apart by two
//! generations: the older one left before a packet that is noted, and what was sent again since waits for its turn.

use super::SendQueue;
use super::scoreboard::Scoreboard;
use crate::psn::Psn;
use crate::qp::psn_set::PsnSet;
use crate::wire::gap_report::{GAPS_MAX, Gap};
use heapless::Vec;

/// Responses that are requested at once after a timer. They may all have been lost for being too many.
const ANEW: u32 = 8;

/// See the module. The sets are empty but for packets between `una` and `next`.
#[derive(Debug)]
pub(super) struct Gaps {
    /// To be sent again.
    lost: PsnSet,
    /// Sent again before `behind` left, and since.
    again: [PsnSet; 2],
    behind: Psn,
    /// The packet that left next when the last one was sent again.
    tail: Psn,
    /// One past the last packets that were sent again though nothing is known of them, and their number.
    tried: (Psn, u32),
    /// The sets hold nothing before it.
    from: Psn,
    /// Packets that may be sent again at once: as many as came behind the gaps, and twice as many as were acknowledged since. A
    /// queue that has overflowed would do so again.
    allowance: u32,
    /// Some set holds something.
    open: bool,
}

impl Gaps {
    pub(super) const fn new() -> Self {
        let again = [PsnSet::new(), PsnSet::new()];
        let [behind, tail, from] = [Psn::new(0); 3];
        Self {
            lost: PsnSet::new(),
            again,
            behind,
            tail,
            tried: (tail, 0),
            from,
            allowance: 0,
            open: false,
        }
    }

    /// Reserves memory for `psns` in flight.
    pub(super) fn reserve(&mut self, psns: u32) {
        let Self { lost, again: [older, newer], .. } = self;
        for set in [lost, older, newer] {
            set.reserve(psns);
        }
    }

    /// Whether nothing is missing, as far as is known.
    pub(super) const fn is_empty(&self) -> bool {
        !self.open
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if self.open {
            self.lost.clear();
            self.forget_again();
            self.open = false;
        }
    }

    /// Takes all that was sent again for lost again.
    fn forget_again(&mut self) {
        self.again.iter_mut().for_each(PsnSet::clear);
    }

    /// Forgets what is before `una`; `next` is the packet that leaves next.
    fn clean(&mut self, una: Psn, next: Psn) {
        let Self { lost, again: [older, newer], .. } = self;
        while self.open && una.since(self.from) > 0 {
            for set in [&mut *lost, older, newer] {
                set.remove(self.from);
            }
            self.from = self.from.add(1);
            self.allowance = self.allowance.saturating_add(2);
            self.open = !(lost.is_empty() && older.is_empty() && newer.is_empty());
        }
        if older.is_empty() && !newer.is_empty() {
            core::mem::swap(older, newer);
            self.behind = next;
        }
    }

    /// Ends the wait for those sent again before a packet that has come, where all before `end` that has not come is missing.
    fn passed(&mut self, end: Psn, next: Psn) {
        if end.since(self.behind) > 0 {
            let [older, newer] = &mut self.again;
            older.clear();
            core::mem::swap(older, newer);
            self.behind = next;
        }
    }

    /// Whether `psn` is to be sent again, or may be on its way again.
    fn holds(&self, psn: Psn) -> bool {
        let [older, newer] = &self.again;
        self.lost.contains(psn) || older.contains(psn) || newer.contains(psn)
    }

    /// Notes that `psn`, which is lost, is sent again; `next` is the packet that leaves next.
    fn sent_again(&mut self, psn: Psn, next: Psn) {
        self.lost.remove(psn);
        (self.allowance, self.tail) = (self.allowance.saturating_sub(1), next);
        let [older, newer] = &mut self.again;
        if older.is_empty() {
            self.behind = next;
        }
        let generation = if next == self.behind { older } else { newer };
        generation.insert(psn);
    }
}

/// Packets that were found lost, and were not known to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The first packet.
    pub first: Psn,
    /// The number of packets.
    pub packets: u32,
}

impl SendQueue {
    /// Reserves memory for gaps in `psns` packets, which a peer of our make reports.
    pub(super) fn reserve_gaps(&mut self, psns: u32) {
        self.scoreboard.gaps.reserve(psns);
    }

    /// Whether packets or responses are missing that are repaired by gaps.
    pub(crate) const fn has_gaps(&self) -> bool {
        !self.scoreboard.gaps.is_empty()
    }

    /// Takes all that was sent again for lost again: it is known to be missing after it must have come.
    pub(crate) fn gaps_are_old(&mut self) {
        self.scoreboard.gaps.forget_again();
    }

    /// Sends again what the peer misses from `psn` on. Returns what was not known to be lost.
    pub(crate) fn gaps_reported(
        &mut self,
        psn: Psn,
        gaps: impl Iterator<Item = Gap>,
    ) -> Option<Found> {
        let gaps: Vec<Gap, GAPS_MAX> = gaps.collect();
        let end = gaps.iter().fold(psn, |end, gap| end.add(gap.covered()));
        // Nothing has come that was not sent.
        if self.highest.since(end) < 0 { None } else { self.repair(psn, &gaps, end, false) }
    }

    /// Requests the READ responses again that are missing before `end`; `sure` where they are not late. Returns what was not
    /// known to be lost.
    pub(crate) fn responses_lost(&mut self, end: Psn, sure: bool) -> Option<Found> {
        let mut gaps = Vec::<Gap, GAPS_MAX>::new();
        let (mut at, mut came) = (self.una, true);
        while end.since(at) > 0 {
            // Before a response that has come, all else was executed.
            let comes = self.is_early(at) || !self.is_read_at(at);
            if came && !comes && gaps.push(Gap::default()).is_err() {
                break;
            }
            if let Some(gap) = gaps.last_mut() {
                let packets = if comes { &mut gap.came } else { &mut gap.missing };
                *packets = packets.saturating_add(1);
            }
            (at, came) = (at.add(1), comes);
        }
        self.repair(self.una, &gaps, at, sure)
    }

    /// Sends again what is lost of the gaps from `psn` on, before `end`.
    fn repair(&mut self, psn: Psn, gaps: &[Gap], end: Psn, sure: bool) -> Option<Found> {
        self.open_gaps(end);
        let mut tried = if sure { u32::MAX } else { 0 };
        let (mut end, mut behind, mut found) = (end, Gap::default(), None);
        for gap in gaps.iter().rev() {
            behind.came = behind.came.saturating_add(gap.came);
            let at = end.back(gap.covered());
            // Packets that have overtaken others are few: then only the oldest one counts as lost, as if named alone.
            let few = !sure && behind.came < gap.missing.max(behind.missing);
            let lost = match (few, at == psn) {
                (false, _) => gap.missing.into(),
                (true, true) => {
                    tried = self.tried_at(at, gap.missing.into());
                    tried
                }
                (true, false) => 0,
            };
            for n in (0..lost).rev() {
                if self.lose(at.add(n)) {
                    let packets = found.map_or(1, |found: Found| found.packets + 1);
                    found = Some(Found { first: at.add(n), packets });
                }
            }
            behind.missing = behind.missing.saturating_add(gap.missing);
            end = at;
        }
        let allowance = &mut self.scoreboard.gaps.allowance;
        *allowance = if sure { ANEW } else { (*allowance).max(behind.came.into()).max(tried) };
        if self.scoreboard.resend.is_none() {
            self.begin_gap();
        }
        found
    }

    /// The packets, of so many that are missing from `psn` on, that are sent again though nothing tells that more than one is
    /// lost: twice as many each time that the very next one is missing; of a READ that was not executed the whole request.
    fn tried_at(&mut self, psn: Psn, missing: u32) -> u32 {
        let new = self.scoreboard.acked.since(psn) <= 0;
        if let Some(end) = self.read_end(psn).filter(|_| new) {
            return end.since(psn).max(1).cast_unsigned().min(missing);
        }
        let (end, packets) = self.scoreboard.gaps.tried;
        let packets = if end == psn { packets.saturating_mul(2) } else { 1 };
        let packets = packets.min(missing);
        self.scoreboard.gaps.tried = (psn.add(packets), packets);
        packets
    }

    fn open_gaps(&mut self, end: Psn) {
        let (una, next) = (self.una, self.next);
        let gaps = &mut self.scoreboard.gaps;
        gaps.clean(una, next);
        if gaps.is_empty() {
            (gaps.from, gaps.allowance) = (una, 0);
        }
        gaps.passed(end, next);
    }

    /// Notes that `psn` is lost, unless that is known, or nothing can be done about it.
    fn lose(&mut self, psn: Psn) -> bool {
        let ahead = psn.since(self.una);
        let Self { scoreboard, next, .. } = self;
        let gaps = &mut scoreboard.gaps;
        let fits = ahead >= 0 && (ahead as usize) < gaps.lost.capacity() && psn.since(*next) < 0;
        let lost = fits && !gaps.holds(psn) && gaps.lost.insert(psn);
        gaps.open |= lost;
        lost
    }

    /// Begins to send the oldest packets again that are lost, if there are any.
    pub(super) fn begin_gap(&mut self) {
        if self.scoreboard.gaps.lost.is_empty() || self.scoreboard.gaps.allowance == 0 {
            return;
        }
        let mut psn = self.scoreboard.gaps.from;
        while !self.scoreboard.gaps.lost.is_empty() && psn.since(self.next) < 0 {
            if !self.scoreboard.gaps.lost.contains(psn) {
                psn = psn.add(1);
                continue;
            }
            let end = self.gap_at(psn);
            let len = end.since(psn).max(1).cast_unsigned();
            let begins = end != psn && self.resend_within(psn, end);
            for psn in (0..len).map(|n| psn.add(n)) {
                if begins {
                    self.scoreboard.gaps.sent_again(psn, self.next);
                } else {
                    self.scoreboard.gaps.lost.remove(psn);
                }
            }
            if begins {
                return;
            }
            psn = psn.add(len);
        }
    }

    /// One past the lost packets from `psn` on that are sent again together: of SENDs and WRITEs, or of the responses to one
    /// READ request. `psn` itself if it is none, or has come since.
    fn gap_at(&self, psn: Psn) -> Psn {
        let Scoreboard { gaps, acked, .. } = &self.scoreboard;
        let lost = |psn: Psn| gaps.lost.contains(psn);
        let read_end = self.read_end(psn);
        let end = read_end.unwrap_or_else(|| psn.add(self.data_len(psn)));
        let executed = read_end.is_none() && acked.since(psn) > 0;
        let most = end.since(psn).max(0).cast_unsigned();
        let came = |psn: Psn| executed || self.is_early(psn);
        let len = (0..most).find(|n| !lost(psn.add(*n)) || came(psn.add(*n))).unwrap_or(most);
        // A READ that the peer may not have executed is requested as it was.
        let new = read_end.is_some() && acked.since(psn) <= 0;
        match new {
            true if len == most && self.begins_read(psn) => end,
            true => psn,
            false => psn.add(len.min(gaps.allowance)),
        }
    }

    /// Forgets the gaps before `una`, and sends more of what is lost again.
    pub(super) fn close_gaps(&mut self) {
        let (una, next) = (self.una, self.next);
        let gaps = &mut self.scoreboard.gaps;
        gaps.clean(una, next);
        // A packet that left before the last one that was sent again, and has not come with that, was lost, too.
        let missing = if gaps.is_empty() { gaps.tail.since(una) } else { 0 };
        if missing > 0 && !self.is_read_at(una) {
            let packets = self.tried_at(una, missing.cast_unsigned());
            self.scoreboard.gaps.allowance = packets;
            (0..packets).for_each(|n| {
                self.lose(una.add(n));
            });
        }
        if self.scoreboard.resend.is_none() {
            self.begin_gap();
        }
    }
}
