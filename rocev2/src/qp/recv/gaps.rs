//! The packets that are missing, as a requester of ours is told of them: all gaps at once, by [a report](crate::wire::gap_report) in the
//! place of a sequence NAK.
//!
//! A gap is told once it has outlasted the reorder window, or many packets have come behind it. A report tells all gaps before
//! the packets that came within the window, those too that were told before: so the requester learns which packets that it
//! sent again were lost again, and a report that is lost costs nothing but the time to the next one.

use super::reorder_buffer::ReorderBuffer;
use super::reorder_pool::ReorderPool;
use crate::psn::Psn;
use crate::qp::reorder_window::REORDER_PACKETS;
use crate::wire::gap_report::{GAPS_MAX, Gap};
use heapless::Vec;

/// The gaps of one queue pair, as far as they were told.
#[derive(Debug)]
pub(crate) struct Gaps {
    /// One past the newest packet behind a gap.
    newest: Psn,
    /// The reorder window that is open ends for what came before this.
    until: Psn,
    /// Everything that is missing before it was told.
    told: Psn,
    /// Packets that have come behind a gap since.
    untold: u32,
    /// A report is owed, or one that answers a duplicate.
    owed: Option<Answers>,
}

/// The cause of a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answers {
    /// Packets behind a gap.
    Early,
    /// A duplicate, which may be a probe.
    Duplicate,
}

impl Gaps {
    /// Nothing is missing before `epsn`.
    pub(crate) const fn new(epsn: Psn) -> Self {
        Self { newest: epsn, until: epsn, told: epsn, untold: 0, owed: None }
    }

    /// Notes that the packet before `end` has come behind a gap, of so many that are `held` there; `opens` where no reorder
    /// window is open, or one has just opened. Returns whether one opens, and whether so many packets have come that what is
    /// missing before them is lost.
    pub(crate) fn came(&mut self, epsn: Psn, end: Psn, held: usize, opens: bool) -> (bool, bool) {
        self.note(epsn, end, held);
        self.untold += 1;
        let opens = opens && self.newest.since(self.told) > 0;
        if opens {
            self.until = self.newest;
        }
        (opens, held.min(self.untold as usize) > REORDER_PACKETS)
    }

    /// Notes that the packet before `end` has come behind a gap, of so many that are `held` there, and tells nothing yet.
    #[inline]
    pub(crate) fn note(&mut self, epsn: Psn, end: Psn, held: usize) {
        // Behind the last gap any number of packets may have come in order, so that its PSNs may seem to lie ahead.
        let first = held == 1;
        for psn in [&mut self.newest, &mut self.told] {
            // Everything before the expected packet has come.
            *psn = if first || epsn.since(*psn) > 0 { epsn } else { *psn };
        }
        self.newest = if end.since(self.newest) > 0 { end } else { self.newest };
    }

    /// Owes a report of what is missing before the packets of the window that is open, or before the newest one. Returns
    /// whether others have come since.
    pub(crate) fn tell(&mut self, all: bool) -> bool {
        self.told = if all { self.newest } else { self.until };
        (self.until, self.untold) = (self.newest, 0);
        self.owed.get_or_insert(Answers::Early);
        self.newest.since(self.told) > 0
    }

    /// Owes a report of everything that is missing, as the answer to a duplicate.
    pub(crate) fn answer(&mut self) {
        self.tell(true);
        self.owed = Some(Answers::Duplicate);
    }

    /// Notes that the ACK that is owed answers a duplicate: nothing is missing.
    pub(crate) const fn answer_without_gap(&mut self) {
        self.owed = Some(Answers::Duplicate);
    }

    /// Whether the packet `psn` was told to be missing.
    pub(crate) fn told(&self, psn: Psn) -> bool {
        self.told.since(psn) > 0
    }

    /// Whether a report is owed, or an ACK that says that it answers a duplicate.
    pub(crate) const fn owed(&self) -> bool {
        self.owed.is_some()
    }

    /// Whether it answers a duplicate.
    pub(crate) fn answers(&self) -> bool {
        self.owed == Some(Answers::Duplicate)
    }

    /// Owes no report of packets behind a gap: nothing is missing any more.
    pub(crate) fn no_gap(&mut self) {
        self.owed = self.owed.filter(|owed| *owed == Answers::Duplicate);
    }

    /// Owes no report.
    pub(crate) const fn forget(&mut self) {
        self.owed = None;
    }

    /// The report that is owed, from the packet `epsn` on, which is missing.
    pub(crate) fn take(
        &mut self,
        epsn: Psn,
        buffer: &ReorderBuffer,
        pool: &ReorderPool,
        pmtu: u64,
    ) -> Option<(Answers, Vec<Gap, GAPS_MAX>)> {
        let answers = self.owed.take()?;
        let mut gaps = Vec::new();
        let mut end = epsn;
        for (psn, packets) in buffer.spans(pool, pmtu) {
            if psn.since(self.told) >= 0 {
                break;
            }
            let missing = psn.since(end).max(0).cast_unsigned();
            // More than any requester has in flight.
            let (Ok(missing), Ok(packets)) = (u16::try_from(missing), u16::try_from(packets))
            else {
                break;
            };
            end = psn.add(packets.into());
            let last = gaps.last_mut().filter(|_| missing == 0);
            let fits = match last {
                Some(Gap { came, .. }) => {
                    came.checked_add(packets).map(|all| *came = all).is_some()
                }
                None => gaps.push(Gap { missing, came: packets }).is_ok(),
            };
            if !fits {
                break;
            }
        }
        (!gaps.is_empty()).then_some((answers, gaps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_long_after_the_last_one_is_seen() {
        for apart in [9_000_000, (1 << 24) - 1] {
            let mut gaps = Gaps::new(Psn::new(0));
            let epsn = Psn::new(apart);
            assert_eq!(gaps.came(epsn, epsn.add(2), 1, true), (true, false));
            gaps.tell(false);
            assert!(gaps.told(epsn) && !gaps.told(epsn.add(2)));
        }
    }

    #[test]
    fn only_the_answer_to_a_duplicate_is_owed_where_nothing_is_missing() {
        let mut gaps = Gaps::new(Psn::new(7));
        gaps.tell(true);
        gaps.no_gap();
        assert!(!gaps.owed());
        gaps.answer();
        gaps.no_gap();
        assert!(gaps.owed() && gaps.answers());
    }
}
