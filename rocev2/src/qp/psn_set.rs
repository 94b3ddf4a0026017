//! A set of PSNs, for packets that come out of order.

use crate::psn::Psn;
use alloc::vec::Vec;

/// A set of PSNs, none of which is [`Self::capacity`] or more after another.
#[derive(Debug, Default)]
pub(crate) struct PsnSet {
    words: Vec<u64>,
    len: usize,
}

impl PsnSet {
    /// An empty set without capacity.
    pub(crate) const fn new() -> Self {
        Self { words: Vec::new(), len: 0 }
    }

    /// Allocates room for at least `psns` consecutive PSNs, once. Where the allocation fails, the
    /// capacity stays 0.
    pub(crate) fn reserve(&mut self, psns: u32) {
        let words = (psns.next_power_of_two() as usize).div_ceil(64);
        if self.words.is_empty() && self.words.try_reserve_exact(words).is_ok() {
            self.words.resize(words, 0);
        }
    }

    /// Consecutive PSNs that the set tells apart: a power of two, or 0.
    pub(crate) fn capacity(&self) -> usize {
        self.words.len() * 64
    }

    /// PSNs in the set.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `psn`. Returns false if it was in the set, or the set has no capacity.
    pub(crate) fn insert(&mut self, psn: Psn) -> bool {
        self.set(psn, true)
    }

    /// Removes `psn`. Returns whether it was in the set.
    pub(crate) fn remove(&mut self, psn: Psn) -> bool {
        !self.is_empty() && self.set(psn, false)
    }

    /// Whether `psn` is in the set.
    pub(crate) fn contains(&self, psn: Psn) -> bool {
        let (word, bit) = self.place(psn);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Removes all PSNs.
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
        self.len = 0;
    }

    /// Returns whether the set changed.
    fn set(&mut self, psn: Psn, present: bool) -> bool {
        let (place, bit) = self.place(psn);
        let Some(word) = self.words.get_mut(place).filter(|word| (**word & bit != 0) != present)
        else {
            return false;
        };
        *word ^= bit;
        self.len = if present { self.len + 1 } else { self.len - 1 };
        true
    }

    fn place(&self, psn: Psn) -> (usize, u64) {
        let index = psn.get() as usize & self.capacity().wrapping_sub(1);
        (index / 64, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_works_over_the_wrap_and_without_memory() {
        let mut set = PsnSet::new();
        assert!(!set.insert(Psn::new(3)) && !set.contains(Psn::new(3)) && !set.remove(Psn::new(3)));
        set.reserve(100);
        assert_eq!(set.capacity(), 128);
        let first = Psn::new(0xff_ffc0);
        for n in (0..128).step_by(3) {
            assert!(set.insert(first.add(n)) && !set.insert(first.add(n)));
        }
        assert_eq!(set.len(), 43);
        for n in 0..128 {
            assert_eq!(set.contains(first.add(n)), n % 3 == 0);
            assert_eq!(set.remove(first.add(n)), n % 3 == 0);
        }
        assert!(set.is_empty());
    }
}
