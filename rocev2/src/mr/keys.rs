//! Draws keys, and remembers those that are not to be drawn.

use crate::env::Rng;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// A retired key is not drawn again before this many others were retired, so that a peer's stale key names
/// nothing (the weakness that the ReDMArk paper exploits).
pub(super) const QUARANTINE: usize = 1 << 16;
/// Keys in use, at most: their places take 16 MiB.
pub(super) const MAX_KEYS: usize = 1 << 20;
/// Prefixes for each key in use or in quarantine, at least.
const PREFIXES: usize = 8;
/// Prefixes at first: enough for few keys that come and go to be as random as many.
const PREFIX_BITS: u32 = 14;

/// The keys in use and those in quarantine.
///
/// Draws repeat until the key's place in the table is free, as it is three times in four or more. So a lookup
/// examines one place, and yet the whole key is random: the repetition reveals less than one bit of it.
///
/// Nor do two keys in use or in quarantine share their upper bits. So one bit per prefix tells whether a key
/// may be drawn. Both tables double when they are full: keys that differ in some bits differ in more.
pub(super) struct Draws {
    rng: Rng,
    /// A bit for each prefix in use.
    prefixes: Vec<u64>,
    prefix_bits: u32,
    retired: VecDeque<u32>,
}

impl Draws {
    /// No key was drawn yet.
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            rng,
            prefixes: vec![0; 1 << (PREFIX_BITS - 6)],
            prefix_bits: PREFIX_BITS,
            retired: VecDeque::new(),
        }
    }

    /// Makes room for one key more than those in use, and for the retirement of all of them. `None`: no memory,
    /// and nothing has changed.
    pub(super) fn make_room(
        &mut self,
        in_use: usize,
        keys: impl Iterator<Item = u32>,
    ) -> Option<()> {
        let retired = (self.retired.len() + in_use + 1).min(QUARANTINE + 1);
        self.retired.try_reserve(retired.saturating_sub(self.retired.len())).ok()?;
        if self.lacks_prefixes(in_use) {
            let mut prefixes = Vec::new();
            prefixes.try_reserve_exact(self.prefixes.len() * 2).ok()?;
            prefixes.resize(self.prefixes.len() * 2, 0);
            self.prefixes = prefixes;
            self.prefix_bits += 1;
            for key in keys.chain(self.retired.iter().copied()) {
                let (word, bit) = prefix(key, self.prefix_bits);
                self.prefixes[word] |= bit;
            }
        }
        Some(())
    }

    fn lacks_prefixes(&self, in_use: usize) -> bool {
        (in_use + self.retired.len()) * PREFIXES >= 1 << self.prefix_bits
    }

    /// Bytes that [`Self::make_room`] may allocate.
    pub(super) fn growth_bytes(&self, in_use: usize) -> usize {
        let prefixes = if self.lacks_prefixes(in_use) { 2 * self.prefixes.len() } else { 0 };
        let retired = if self.retired.capacity() <= QUARANTINE { 2 * QUARANTINE } else { 0 };
        retired * size_of::<u32>() + prefixes * size_of::<u64>()
    }

    /// Draws a key whose place is free: unpredictable, never 0, not used before within the quarantine. There is room
    /// for it.
    pub(super) fn draw(&mut self, is_free: impl Fn(u32) -> bool) -> u32 {
        loop {
            let key = self.rng.u32();
            let (word, bit) = prefix(key, self.prefix_bits);
            if key != 0 && is_free(key) && self.prefixes[word] & bit == 0 {
                self.prefixes[word] |= bit;
                return key;
            }
        }
    }

    /// Retires a key in use.
    pub(super) fn retire(&mut self, key: u32) {
        self.retired.push_back(key);
        if self.retired.len() > QUARANTINE
            && let Some(oldest) = self.retired.pop_front()
        {
            let (word, bit) = prefix(oldest, self.prefix_bits);
            self.prefixes[word] &= !bit;
        }
    }

    #[cfg(all(not(loom), test))]
    pub(super) fn bytes(&self) -> [usize; 2] {
        [self.prefixes.capacity() * 8, self.retired.capacity() * 4]
    }
}

/// The place of the bit of a key's prefix of `bits`.
const fn prefix(key: u32, bits: u32) -> (usize, u64) {
    let prefix = key >> (32 - bits);
    ((prefix >> 6) as usize, 1 << (prefix & 63))
}
