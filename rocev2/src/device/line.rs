//! Slots that wait in line.

use alloc::vec::Vec;

/// Slots in the order in which they came.
///
/// Those that come are behind the others, in a list of their own, until no other is left: so neither end looks for the end of
/// a ring, and the first ones are a slice.
#[derive(Debug, Default)]
pub(super) struct Line {
    first: Vec<usize>,
    /// So many of the first have left.
    taken: usize,
    behind: Vec<usize>,
}

impl Line {
    /// An empty one, with room for `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        let list = || Vec::with_capacity(slots);
        Self { first: list(), taken: 0, behind: list() }
    }

    /// Makes room for `slots` slots, each of them once. `None`: no memory.
    pub(super) fn make_room(&mut self, slots: usize) -> Option<()> {
        self.first.drain(..core::mem::take(&mut self.taken));
        for list in [&mut self.first, &mut self.behind] {
            list.try_reserve_exact(slots - list.len()).ok()?;
        }
        Some(())
    }

    #[inline(always)]
    pub(super) const fn is_empty(&self) -> bool {
        self.taken == self.first.len() && self.behind.is_empty()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, slot: usize) {
        self.behind.push(slot);
    }

    /// The first ones, though perhaps not all; none where it is empty.
    #[inline(always)]
    pub(super) fn first(&mut self) -> &[usize] {
        if self.taken == self.first.len() {
            self.first.clear();
            self.taken = 0;
            core::mem::swap(&mut self.first, &mut self.behind);
        }
        &self.first[self.taken..]
    }

    /// Removes so many of those that [`Self::first`] has just told.
    #[inline(always)]
    pub(super) fn leave(&mut self, count: usize) {
        self.taken += count;
        debug_assert!(self.taken <= self.first.len(), "told before");
    }

    /// Removes the first one.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<usize> {
        let slot = *self.first().first()?;
        self.leave(1);
        Some(slot)
    }

    /// Keeps those for which `keep` is true, with the numbers that it gives them.
    pub(super) fn retain_mut(&mut self, mut keep: impl FnMut(&mut usize) -> bool) {
        self.first.drain(..core::mem::take(&mut self.taken));
        for list in [&mut self.first, &mut self.behind] {
            list.retain_mut(&mut keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        Pop,
        Leave(usize),
        MakeRoom,
        Retain,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..100_usize).prop_map(Step::Push),
            2 => Just(Step::Pop),
            1 => (0..4_usize).prop_map(Step::Leave),
            1 => Just(Step::MakeRoom),
            1 => Just(Step::Retain),
        ]
    }

    proptest! {
        /// Slots leave in the order in which they came.
        #[test]
        fn it_is_a_queue(steps in vec(step(), 0..100)) {
            let (mut line, mut queue) = (Line::new(0), VecDeque::new());
            for step in steps {
                match step {
                    Step::Push(slot) => {
                        line.push(slot);
                        queue.push_back(slot);
                    }
                    Step::Pop => prop_assert_eq!(line.pop(), queue.pop_front()),
                    Step::Leave(count) => {
                        let first = line.first();
                        prop_assert_eq!(first.is_empty(), queue.is_empty());
                        let count = count.min(first.len());
                        prop_assert!(first[..count].iter().copied().eq(queue.drain(..count)));
                        line.leave(count);
                    }
                    Step::MakeRoom => line.make_room(200).unwrap(),
                    Step::Retain => {
                        let keep = |slot: &mut usize| {
                            *slot += 1;
                            !slot.is_multiple_of(3)
                        };
                        line.retain_mut(keep);
                        queue.retain_mut(keep);
                    }
                }
                prop_assert_eq!(line.is_empty(), queue.is_empty());
            }
        }
    }
}
