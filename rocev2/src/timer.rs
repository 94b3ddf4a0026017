//! Deadlines of all QPs of a device.
//!
//! A QP moves its deadline with every acknowledgement, nearly always to later. So the queue holds one entry
//! per QP. When it is due and the QP's own deadline has moved, it is entered again: moving a deadline costs
//! a store, not a queue operation.

use crate::env::Instant;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// A queue of deadlines by slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
    queued: Vec<Option<Instant>>,
}

impl Timers {
    /// An empty queue for `slots` slots.
    pub(crate) fn new(slots: usize) -> Self {
        let mut queued = Vec::new();
        queued.resize(slots, None);
        Self { heap: BinaryHeap::with_capacity(slots * 2), queued }
    }

    /// Makes room for `slots` slots, of which [`Self::renumber`] may then make use. `None`: no memory.
    pub(crate) fn make_room(&mut self, slots: usize) -> Option<()> {
        self.queued.try_reserve(slots.saturating_sub(self.queued.len())).ok()?;
        self.heap.try_reserve((2 * slots).saturating_sub(self.heap.len())).ok()
    }

    /// Makes the number of slots `slots`, and gives each slot another number, or none.
    pub(crate) fn renumber(&mut self, slots: usize, number: impl Fn(usize) -> Option<usize>) {
        let mut queued = core::mem::take(&mut self.heap).into_vec();
        queued.retain_mut(|Reverse((deadline, slot))| {
            let current = self.queued[*slot as usize] == Some(*deadline);
            let number = number(*slot as usize).filter(|_| current);
            *slot = number.unwrap_or_default() as u32;
            number.is_some()
        });
        self.queued.fill(None);
        self.queued.resize(slots, None);
        for Reverse((deadline, slot)) in &queued {
            self.queued[*slot as usize] = Some(*deadline);
        }
        self.heap = queued.into();
    }

    /// Ensures that `slot` is served no later than `deadline`.
    pub(crate) fn arm(&mut self, slot: usize, deadline: Instant) {
        let Some(queued) = self.queued.get_mut(slot) else { return };
        if queued.is_none_or(|queued| deadline < queued) {
            *queued = Some(deadline);
            self.drop_superseded();
            self.heap.push(Reverse((deadline, slot as u32)));
        }
    }

    /// Drops superseded entries of a full heap. A peer's short RNR pauses supersede a far deadline again
    /// and again. At least half of a full heap is superseded entries, so dropping them costs little per
    /// entry.
    fn drop_superseded(&mut self) {
        if self.heap.len() >= self.queued.len() * 2 {
            let queued = &self.queued;
            self.heap.retain(|Reverse((deadline, slot))| queued[*slot as usize] == Some(*deadline));
        }
    }

    /// Removes a slot that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<usize> {
        while let Some(&Reverse((deadline, slot))) = self.heap.peek() {
            if deadline > now {
                return None;
            }
            self.heap.pop();
            let queued = &mut self.queued[slot as usize];
            // Another entry of the slot, armed earlier than this one, may have been served already.
            if *queued == Some(deadline) {
                *queued = None;
                return Some(slot as usize);
            }
        }
        None
    }

    /// The earliest instant at which [`Self::pop_due`] may find something.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            timers.heap.len()
        });
        assert_eq!(kept, [1, 2, 3, 4, 5, 6, 7, 8, 1]);
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

    #[test]
    fn short_deadlines_before_a_far_one_leave_nothing_behind() {
        let mut timers = Timers::new(2);
        let capacity = timers.heap.capacity();
        for step in 0..1000 {
            timers.arm(0, at(1_000_000 + step));
            timers.arm(0, at(step));
            timers.arm(1, at(2_000_000));
            assert_eq!(timers.pop_due(at(step)), Some(0));
        }
        assert_eq!(timers.heap.capacity(), capacity);
        timers.arm(0, at(2000));
        assert_eq!(timers.pop_due(at(2000)), Some(0));
        assert_eq!(timers.pop_due(at(2_000_000)), Some(1));
    }
}
