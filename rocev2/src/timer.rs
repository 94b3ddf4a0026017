//! Deadlines of all QPs of a device.
//!
//! A QP moves its deadline with every acknowledgement, nearly always to later. So the queue holds one entry
//! per QP. When it is due and the QP's own deadline has moved, it is entered again: moving a deadline costs
//! a store, not a queue operation.
//!
//! Most QPs wait for the same time, the shortest, so that deadlines mostly come in their order. Those stand in line, which
//! costs less than a heap; the others are in a heap.

use crate::env::Instant;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A queue of deadlines by slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Entries in the order of their deadlines.
    line: VecDeque<(Instant, u32)>,
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The deadline under which a slot is in the queue; [`NEVER`] where it is not.
    queued: Vec<Instant>,
}

/// Entries that leave the line for one that is earlier, at most.
const MOVED_MAX: usize = 2;

/// No deadline.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl Timers {
    /// An empty queue for `slots` slots.
    pub(crate) fn new(slots: usize) -> Self {
        let mut queued = Vec::new();
        queued.resize(slots, NEVER);
        let (line, heap) =
            (VecDeque::with_capacity(slots * 2), BinaryHeap::with_capacity(slots * 2));
        Self { line, heap, queued }
    }

    /// Makes room for `slots` slots, of which [`Self::renumber`] may then make use. `None`: no memory.
    pub(crate) fn make_room(&mut self, slots: usize) -> Option<()> {
        self.queued.try_reserve(slots.saturating_sub(self.queued.len())).ok()?;
        self.line.try_reserve((2 * slots).saturating_sub(self.line.len())).ok()?;
        self.heap.try_reserve((2 * slots).saturating_sub(self.heap.len())).ok()
    }

    /// Makes the number of slots `slots`, and gives each slot another number, or none.
    pub(crate) fn renumber(&mut self, slots: usize, number: impl Fn(usize) -> Option<usize>) {
        let mut queued = core::mem::take(&mut self.heap).into_vec();
        queued.extend(self.line.drain(..).map(Reverse));
        queued.retain_mut(|Reverse((deadline, slot))| {
            let current = self.queued[*slot as usize] == *deadline;
            let number = number(*slot as usize).filter(|_| current);
            *slot = number.unwrap_or_default() as u32;
            number.is_some()
        });
        self.queued.fill(NEVER);
        self.queued.resize(slots, NEVER);
        for Reverse((deadline, slot)) in &queued {
            self.queued[*slot as usize] = *deadline;
        }
        self.heap = queued.into();
    }

    /// Ensures that `slot` is served no later than `deadline`.
    #[inline]
    pub(crate) fn arm(&mut self, slot: usize, deadline: Instant) {
        if self.queued.get(slot).is_some_and(|queued| deadline < *queued) {
            self.enter(slot, deadline);
        }
    }

    #[inline(always)]
    fn enter(&mut self, slot: usize, deadline: Instant) {
        self.queued[slot] = deadline;
        let entry = (deadline, slot as u32);
        if self.follows(deadline) && !self.is_full() {
            self.line.push_back(entry);
        } else {
            self.enter_anywhere(entry);
        }
    }

    #[inline(never)]
    fn enter_anywhere(&mut self, entry: (Instant, u32)) {
        self.drop_superseded();
        // A few far deadlines are not to keep the others out of the line.
        for _ in 0..MOVED_MAX {
            if self.follows(entry.0) {
                break;
            }
            self.heap.extend(self.line.pop_back().map(Reverse));
        }
        if self.follows(entry.0) {
            self.line.push_back(entry);
        } else {
            self.heap.push(Reverse(entry));
        }
    }

    /// Whether the line may go on with this deadline. Those of one turn are equal.
    #[inline(always)]
    fn follows(&self, deadline: Instant) -> bool {
        self.line.back().is_none_or(|(last, _)| *last <= deadline)
    }

    /// Whether it is time to look for superseded entries.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.heap.len() + self.line.len() >= self.queued.len() * 2
    }

    /// The entry with the earliest deadline, and whether it stands in line.
    #[inline]
    fn first(&self) -> Option<((Instant, u32), bool)> {
        match (self.line.front(), self.heap.peek()) {
            (Some(first), Some(Reverse(other))) if other.0 < first.0 => Some((*other, false)),
            (Some(first), _) => Some((*first, true)),
            (None, other) => other.map(|Reverse(other)| (*other, false)),
        }
    }

    /// Drops superseded entries of a full queue. A peer's short RNR pauses supersede a far deadline again
    /// and again. At least half of a full queue is superseded entries, so dropping them costs little per
    /// entry.
    fn drop_superseded(&mut self) {
        if self.is_full() {
            let queued = &self.queued;
            self.line.retain(|(deadline, slot)| queued[*slot as usize] == *deadline);
            self.heap.retain(|Reverse((deadline, slot))| queued[*slot as usize] == *deadline);
        }
    }

    /// Forgets the deadline of a slot, whose QP is gone.
    pub(crate) fn disarm(&mut self, slot: usize) {
        if let Some(queued) = self.queued.get_mut(slot) {
            *queued = NEVER;
        }
        while let Some(((deadline, slot), in_line)) = self.first()
            && self.queued[slot as usize] != deadline
        {
            self.remove_first(in_line);
        }
    }

    /// Removes a slot that is due, and superseded entries before that of the next one, so that [`Self::next`] names none.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<usize> {
        while let Some(((deadline, slot), in_line)) = self.first() {
            let queued = &mut self.queued[slot as usize];
            // Another entry of the slot, armed earlier than this one, may have been served already.
            let current = *queued == deadline;
            if current && deadline > now {
                return None;
            }
            if current {
                *queued = NEVER;
            }
            self.remove_first(in_line);
            if current {
                return Some(slot as usize);
            }
        }
        None
    }

    #[inline(always)]
    fn remove_first(&mut self, in_line: bool) {
        if in_line {
            self.line.pop_front();
        } else {
            self.heap.pop();
        }
    }

    /// The earliest instant at which [`Self::pop_due`] may find something.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.first().map(|((deadline, _), _)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn an_earlier_deadline_wins_and_a_slot_is_due_once() {
        let mut timers = Timers::new(2);
        timers.arm(0, at(50));
        timers.arm(0, at(20));
        timers.arm(0, at(90));
        timers.arm(1, at(30));
        assert_eq!(timers.next(), Some(at(20)));
        assert_eq!(timers.pop_due(at(10)), None);
        assert_eq!(timers.pop_due(at(60)), Some(0));
        assert_eq!(timers.pop_due(at(60)), Some(1));
        assert_eq!(timers.pop_due(at(60)), None);
    }

    /// Dropping looks at every entry, so it waits until the heap is full.
    #[test]
    fn superseded_deadlines_are_dropped_many_at_once() {
        let mut timers = Timers::new(4);
        let kept = [9, 8, 7, 6, 5, 4, 3, 2, 1].map(|ns| {
            timers.arm(0, at(ns));
            timers.heap.len() + timers.line.len()
        });
        assert_eq!(kept, [1, 2, 3, 4, 5, 6, 7, 8, 1]);
    }

    /// Neither the entry of a slot that is gone nor one that was superseded wakes anybody.
    #[test]
    fn an_entry_that_nobody_waits_for_is_no_deadline() {
        for slots in [[0, 1], [1, 0]] {
            let [gone, other] = slots;
            let mut timers = Timers::new(2);
            timers.arm(gone, at(20));
            timers.disarm(gone);
            assert_eq!(timers.next(), None);
            timers.arm(gone, at(20));
            timers.arm(other, at(30));
            timers.arm(other, at(10));
            assert_eq!(timers.pop_due(at(10)), Some(other));
            timers.disarm(gone);
            assert_eq!(timers.next(), None, "of {other} none is left either");
            timers.arm(gone, at(50));
            assert_eq!([(); 2].map(|()| timers.pop_due(at(60))), [Some(gone), None]);
        }
    }

    /// A far deadline that a nearer one has superseded goes with that.
    #[test]
    fn what_was_superseded_goes_with_what_was_due() {
        let mut timers = Timers::new(2);
        timers.arm(0, at(50));
        timers.arm(0, at(10));
        assert_eq!([(); 2].map(|()| timers.pop_due(at(10))), [Some(0), None]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_slot_with_another_number_is_due_as_before() {
        let mut timers = Timers::new(2);
        timers.arm(0, at(50));
        timers.arm(1, at(40));
        timers.arm(1, at(30));
        timers.make_room(4).unwrap();
        timers.renumber(4, |slot| (slot == 1).then_some(3));
        timers.arm(2, at(35));
        assert_eq!([(); 3].map(|()| timers.pop_due(at(60))), [Some(3), Some(2), None]);
    }

    /// A far deadline goes to the heap once, and those behind it stand in line.
    #[test]
    fn deadlines_that_come_in_their_order_stand_in_line() {
        let mut timers = Timers::new(8);
        timers.arm(0, at(1_000_000));
        for slot in 1..8 {
            timers.arm(slot, at(300 + slot as u64));
            assert_eq!((timers.line.len(), timers.heap.len()), (slot, 1));
        }
        timers.arm(7, at(301));
        assert_eq!((timers.line.len(), timers.heap.len()), (5, 4), "a few made room for it");
        let due = core::iter::from_fn(|| timers.pop_due(at(2_000_000)));
        assert!(due.eq([1, 7, 2, 3, 4, 5, 6, 0]));
    }

    proptest! {
        /// Each slot is due once, in the order of the earliest deadlines.
        #[test]
        fn slots_are_due_in_order(arms in vec((0..16_usize, 0..1000_u64), 0..200)) {
            let (mut timers, mut expected) = (Timers::new(16), [u64::MAX; 16]);
            for (slot, ns) in arms {
                timers.arm(slot, at(ns));
                expected[slot] = expected[slot].min(ns);
            }
            let armed = (0..16).filter(|slot| expected[*slot] < u64::MAX);
            prop_assert_eq!(timers.next(), armed.clone().map(|slot| at(expected[slot])).min());
            let mut due: Vec<_> = core::iter::from_fn(|| timers.pop_due(at(1000))).collect();
            prop_assert!(due.is_sorted_by_key(|slot| expected[*slot]), "{due:?}");
            due.sort_unstable();
            prop_assert!(due.into_iter().eq(armed));
        }
    }

    #[test]
    fn short_deadlines_before_a_far_one_leave_nothing_behind() {
        let mut timers = Timers::new(2);
        let capacities = |timers: &Timers| (timers.heap.capacity(), timers.line.capacity());
        let before = capacities(&timers);
        for step in 0..1000 {
            timers.arm(0, at(1_000_000 + step));
            timers.arm(0, at(step));
            timers.arm(1, at(2_000_000));
            assert_eq!(timers.pop_due(at(step)), Some(0));
        }
        assert_eq!(capacities(&timers), before);
        timers.arm(0, at(2000));
        assert_eq!(timers.pop_due(at(2000)), Some(0));
        assert_eq!(timers.pop_due(at(2_000_000)), Some(1));
    }
}
