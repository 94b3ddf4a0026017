//! Ranges of positions that are missing.

use std::collections::BTreeMap;

/// A gap that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    end: i64,
    frame: u64,
    since_ns: u64,
}

/// A gap that was filled, in whole or in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) start: i64,
    pub(super) end: i64,
    /// From the packet behind it to the one that filled it.
    pub(super) lasted_ns: u64,
}

/// The gaps of a direction.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    open: BTreeMap<i64, Open>,
    /// How often a packet came when others before it had not.
    pub(super) count: u64,
    /// Positions that were missing.
    pub(super) missing: u64,
    /// The first [`LISTED_MAX`] fillings.
    pub(super) filled: Vec<Filled>,
    pub(super) longest_ns: u64,
}

impl Gaps {
    pub(super) fn open(&mut self, start: i64, end: i64, frame: u64, since_ns: u64) {
        self.count += 1;
        self.missing += end.abs_diff(start);
        if self.open.len() >= OPEN_MAX {
            self.open.pop_first();
        }
        self.open.insert(start, Open { end, frame, since_ns });
    }

    /// Takes a packet at these positions; the time since which it was missing, if it was.
    pub(super) fn fill(&mut self, from: i64, until: i64, now_ns: u64) -> Option<u64> {
        let (&start, &gap) =
            self.open.range(..=from).next_back().filter(|(_, gap)| from < gap.end)?;
        let until = until.min(gap.end);
        self.open.remove(&start);
        if start < from {
            self.open.insert(start, Open { end: from, ..gap });
        }
        if until < gap.end {
            self.open.insert(until, gap);
        }
        let lasted_ns = now_ns.saturating_sub(gap.since_ns);
        self.longest_ns = self.longest_ns.max(lasted_ns);
        let filled = Filled { start: from, end: until, lasted_ns };
        // The packets behind it fill the same gap.
        let last = self.filled.last_mut().filter(|last| last.end == from && start == from);
        if let Some(last) = last {
            *last = Filled { start: last.start, ..filled };
        } else if self.filled.len() < LISTED_MAX {
            self.filled.push(filled);
        }
        Some(gap.since_ns)
    }

    /// Gaps that are open: start, end, and the time since which they are.
    pub(super) fn still_open(&self) -> impl Iterator<Item = (i64, i64, u64)> {
        self.open.iter().map(|(start, gap)| (*start, gap.end, gap.since_ns))
    }

    pub(super) fn open_psns(&self) -> u64 {
        self.open.iter().map(|(start, gap)| gap.end.abs_diff(*start)).sum()
    }

    /// The first open one: its start, and the frame and time that showed it.
    pub(super) fn first_open(&self) -> Option<(i64, u64, u64)> {
        self.open.first_key_value().map(|(start, gap)| (*start, gap.frame, gap.since_ns))
    }

    pub(super) fn forget(&mut self) {
        self.open.clear();
    }
}

/// Open gaps of a direction.
const OPEN_MAX: usize = 4096;
/// Filled ones that are listed.
const LISTED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_filled_from_any_side() {
        let mut gaps = Gaps::default();
        gaps.open(10, 20, 1, 100);
        assert_eq!(gaps.fill(9, 10, 150), None);
        assert_eq!(gaps.fill(14, 16, 150), Some(100));
        assert_eq!(gaps.fill(14, 15, 150), None);
        assert_eq!(gaps.fill(10, 14, 160), Some(100));
        assert_eq!(gaps.fill(16, 17, 170), Some(100));
        let open: Vec<_> = gaps.still_open().collect();
        assert_eq!(open, [(17, 20, 100)]);
        assert_eq!(gaps.fill(17, 40, 300), Some(100), "a READ may reach beyond it");
        assert_eq!((gaps.open_psns(), gaps.missing, gaps.longest_ns), (0, 10, 200));
    }
}
