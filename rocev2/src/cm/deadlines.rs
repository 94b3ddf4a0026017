//! Deadlines of connections, by their places in the table.

use crate::env::Instant;
use alloc::vec::Vec;

/// A heap, the earliest deadline first, which knows where each place stands in it. Room is made while the table
/// grows, so that to set a deadline takes no memory.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<(Instant, u32)>,
    /// Of each place its position in the heap.
    at: Vec<u32>,
}

/// The position of a place without a deadline.
const NOWHERE: u32 = u32::MAX;

impl Deadlines {
    /// Makes room for so many places. `None`: no memory.
    pub(super) fn make_room(&mut self, places: usize) -> Option<()> {
        self.heap.try_reserve_exact(places.saturating_sub(self.heap.len())).ok()?;
        self.at.try_reserve_exact(places.saturating_sub(self.at.len())).ok()?;
        self.at.resize(places.max(self.at.len()), NOWHERE);
        Some(())
    }

    /// Sets, moves or clears the deadline of a place.
    pub(super) fn set(&mut self, place: usize, deadline: Option<Instant>) {
        let at = self.position(place);
        let at = match (at, deadline) {
            (None, None) => return,
            (None, Some(deadline)) => {
                self.heap.push((deadline, place as u32));
                self.heap.len() - 1
            }
            (Some(at), Some(deadline)) => {
                self.heap[at].0 = deadline;
                at
            }
            (Some(at), None) => {
                self.at[place] = NOWHERE;
                self.heap.swap_remove(at);
                if at == self.heap.len() {
                    return;
                }
                at
            }
        };
        self.settle(at);
    }

    /// Whether a place has a deadline.
    pub(super) fn has(&self, place: usize) -> bool {
        self.position(place).is_some()
    }

    /// The earliest deadline, and its place.
    pub(super) fn first(&self) -> Option<(Instant, usize)> {
        self.heap.first().map(|(deadline, place)| (*deadline, *place as usize))
    }

    /// The number of deadlines.
    pub(super) const fn len(&self) -> usize {
        self.heap.len()
    }

    fn position(&self, place: usize) -> Option<usize> {
        self.at.get(place).filter(|at| **at != NOWHERE).map(|at| *at as usize)
    }

    /// Moves the entry at `at`, which is new or has changed, to where it belongs.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.heap.swap(at, (at - 1) / 2);
            self.note(at);
            at = (at - 1) / 2;
        }
        while let Some(child) = self.least_child(at)
            && self.heap[child] < self.heap[at]
        {
            self.heap.swap(at, child);
            self.note(at);
            at = child;
        }
        self.note(at);
    }

    fn least_child(&self, at: usize) -> Option<usize> {
        [2 * at + 1, 2 * at + 2]
            .into_iter()
            .filter(|child| *child < self.heap.len())
            .min_by_key(|child| self.heap[*child])
    }

    fn note(&mut self, at: usize) {
        self.at[self.heap[at].1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The first deadline is the earliest of those that were set last.
        #[test]
        fn the_earliest_is_first(
            steps in prop::collection::vec((0_usize..9, prop::option::of(0_u64..99)), 0..300),
        ) {
            let (mut deadlines, mut model) = (Deadlines::default(), BTreeMap::new());
            deadlines.make_room(9).unwrap();
            for (place, deadline) in steps {
                let deadline = deadline.map(Instant::from_nanos);
                deadlines.set(place, deadline);
                match deadline {
                    Some(deadline) => model.insert(place, deadline),
                    None => model.remove(&place),
                };
                let earliest = model.iter().map(|(place, deadline)| (*deadline, *place)).min();
                prop_assert_eq!(deadlines.first(), earliest);
                prop_assert_eq!(deadlines.len(), model.len());
                prop_assert!((0..9).all(|place| deadlines.has(place) == model.contains_key(&place)));
            }
        }
    }
}
