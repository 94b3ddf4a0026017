//! What both ends of a QP need to live with packets that come early: a set of PSNs, and a patience
//! that learns.

use crate::env::{Duration, Instant};
use crate::psn::Psn;
use alloc::vec::Vec;

/// Early packets behind a gap that prove the gap a loss, however recent: links do not reorder by more.
pub const REORDER_PACKETS: usize = 64;
/// How long a gap may last, at first, before what is missing counts as lost.
const PATIENCE_MIN: Duration = Duration::from_micros(100);
/// How long at most. Above it a retransmission timer is faster.
const PATIENCE_MAX: Duration = Duration::from_micros(1600);
/// Right calls in a row that halve the patience.
const RIGHT_CALLS: u8 = 16;

/// How long a gap may last before what is missing counts as lost (the reordering window of RFC 8985).
///
/// It doubles when a packet that was asked for again arrives twice, which shows that it was only late,
/// and halves after a run of calls that were right.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    wait: Duration,
    right: u8,
}

impl Patience {
    /// The shortest.
    pub const fn new() -> Self {
        Self { wait: PATIENCE_MIN, right: 0 }
    }

    /// When a gap that opened at `since` counts as a loss.
    pub fn end(&self, since: Instant) -> Instant {
        since + self.wait
    }

    /// Notes that something was asked for again.
    pub fn asked(&mut self) {
        self.right += 1;
        if self.right == RIGHT_CALLS {
            *self = Self { wait: (self.wait / 2).max(PATIENCE_MIN), right: 0 };
        }
    }

    /// Notes that it was asked for in vain.
    pub fn was_short(&mut self) {
        *self = Self { wait: (self.wait * 2).min(PATIENCE_MAX), right: 0 };
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

/// A set of PSNs, none of which is [`Self::capacity`] or more after another.
#[derive(Debug, Default)]
pub struct PsnSet {
    words: Vec<u64>,
    len: usize,
}

impl PsnSet {
    /// An empty set that can hold nothing.
    pub const fn new() -> Self {
        Self { words: Vec::new(), len: 0 }
    }

    /// Makes it able to tell at least `psns` consecutive PSNs apart. Where memory is short it stays
    /// able to hold nothing.
    pub fn reserve(&mut self, psns: u32) {
        let words = (psns.next_power_of_two() as usize).div_ceil(64);
        if self.words.is_empty() && self.words.try_reserve_exact(words).is_ok() {
            self.words.resize(words, 0);
        }
    }

    /// PSNs that it tells apart; a power of two, or 0.
    pub fn capacity(&self) -> usize {
        self.words.len() * 64
    }

    /// PSNs in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `psn`; whether it was not there and could be added.
    pub fn insert(&mut self, psn: Psn) -> bool {
        self.set(psn, true)
    }

    /// Takes `psn` out; whether it was there.
    pub fn remove(&mut self, psn: Psn) -> bool {
        !self.is_empty() && self.set(psn, false)
    }

    /// Whether `psn` is in it.
    pub fn contains(&self, psn: Psn) -> bool {
        let (word, bit) = self.place(psn);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.len = 0;
    }

    /// Whether that changed anything.
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

    #[test]
    fn patience_grows_by_mistakes_and_comes_back() {
        let start = Instant::from_nanos(0);
        let mut patience = Patience::new();
        let wait = |patience: &Patience| patience.end(start).saturating_since(start);
        for _ in 0..20 {
            patience.was_short();
        }
        assert_eq!(wait(&patience), PATIENCE_MAX);
        for _ in 0..16 * 10 {
            patience.asked();
        }
        assert_eq!(wait(&patience), PATIENCE_MIN);
    }
}
