//! Draws keys, and finds the slot of a key, in constant time.

use crate::env::Rng;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// A retired key is not drawn again before this many others were retired, so that a peer's stale key names
/// nothing (the weakness that the ReDMArk paper exploits).
pub(super) const QUARANTINE: usize = 1 << 16;
/// Keys in use, at most: their places take 16 MiB.
pub(super) const MAX_KEYS: usize = 1 << 20;
/// Places for each key in use, and prefixes for each key in use or in quarantine, at least.
const PLACES: usize = 4;
const PREFIXES: usize = 8;
/// Places and prefixes of an index that is new: enough for few keys that come and go to be as random as many.
const PLACE_BITS: u32 = 12;
const PREFIX_BITS: u32 = 14;
/// The value of a free place.
const EMPTY: u32 = u32::MAX;

/// The keys in use, each with the number of its slot, and those in quarantine.
///
/// Draws repeat until the low bits of the key name a free place, as they do three times in four or more. So
/// a lookup examines one place, and yet the whole key is random: the repetition reveals less than one bit
/// of it.
///
/// Nor do two keys in use or in quarantine share their upper bits. So one bit per prefix tells whether a key
/// may be drawn. Both tables double when they are full: keys that differ in some bits differ in more.
pub(super) struct KeyIndex {
    rng: Rng,
    /// The slot of a key, by the key's low bits.
    places: Vec<u32>,
    /// A bit for each prefix in use.
    prefixes: Vec<u64>,
    prefix_bits: u32,
    retired: VecDeque<u32>,
}

impl KeyIndex {
    /// An empty index.
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            rng,
            places: vec![EMPTY; 1 << PLACE_BITS],
            prefixes: vec![0; 1 << (PREFIX_BITS - 6)],
            prefix_bits: PREFIX_BITS,
            retired: VecDeque::new(),
        }
    }

    /// Makes room for one key more than those in use, which `keys` gives with their slots, and for the
    /// retirement of all of them. `None`: no memory, and nothing has changed.
    pub(super) fn make_room(
        &mut self,
        in_use: usize,
        keys: impl Iterator<Item = (u32, u32)> + Clone,
    ) -> Option<()> {
        let retired = (self.retired.len() + in_use + 1).min(QUARANTINE + 1);
        self.retired.try_reserve(retired.saturating_sub(self.retired.len())).ok()?;
        if self.is_full(in_use) {
            let mut places = filled(self.places.len() * 2, EMPTY)?;
            let mask = places.len() - 1;
            keys.clone().for_each(|(key, slot)| places[key as usize & mask] = slot);
            self.places = places;
        }
        if self.lacks_prefixes(in_use) {
            self.prefixes = filled(self.prefixes.len() * 2, 0)?;
            self.prefix_bits += 1;
            for key in keys.map(|(key, _)| key).chain(self.retired.iter().copied()) {
                let (word, bit) = prefix(key, self.prefix_bits);
                self.prefixes[word] |= bit;
            }
        }
        Some(())
    }

    const fn is_full(&self, in_use: usize) -> bool {
        in_use * PLACES >= self.places.len()
    }

    fn lacks_prefixes(&self, in_use: usize) -> bool {
        (in_use + self.retired.len()) * PREFIXES >= 1 << self.prefix_bits
    }

    /// Bytes that [`Self::make_room`] may allocate.
    pub(super) fn growth_bytes(&self, in_use: usize) -> usize {
        let places = if self.is_full(in_use) { 2 * self.places.len() } else { 0 };
        let prefixes = if self.lacks_prefixes(in_use) { 2 * self.prefixes.len() } else { 0 };
        let retired = if self.retired.capacity() <= QUARANTINE { 2 * QUARANTINE } else { 0 };
        (places + retired) * size_of::<u32>() + prefixes * size_of::<u64>()
    }

    /// Draws a key for `slot`: unpredictable, never 0, not used before within the quarantine. There is room
    /// for it.
    pub(super) fn draw(&mut self, slot: u32) -> u32 {
        loop {
            let key = self.rng.u32();
            let place = self.place(key);
            let (word, bit) = prefix(key, self.prefix_bits);
            if key != 0 && self.places[place] == EMPTY && self.prefixes[word] & bit == 0 {
                self.places[place] = slot;
                self.prefixes[word] |= bit;
                return key;
            }
        }
    }

    /// The only slot that can have `key`. The slot itself knows whether it does.
    pub(super) fn candidate(&self, key: u32) -> usize {
        self.places[self.place(key)] as usize
    }

    /// Retires a key in use.
    pub(super) fn retire(&mut self, key: u32) {
        let place = self.place(key);
        self.places[place] = EMPTY;
        self.retired.push_back(key);
        if self.retired.len() > QUARANTINE
            && let Some(oldest) = self.retired.pop_front()
        {
            let (word, bit) = prefix(oldest, self.prefix_bits);
            self.prefixes[word] &= !bit;
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> [usize; 3] {
        [self.places.capacity(), self.prefixes.capacity(), self.retired.capacity()]
    }

    const fn place(&self, key: u32) -> usize {
        key as usize & (self.places.len() - 1)
    }
}

/// So many values; `None`: no memory.
fn filled<T: Clone>(len: usize, value: T) -> Option<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).ok()?;
    values.resize(len, value);
    Some(values)
}

/// The place of the bit of a key's prefix of `bits`.
const fn prefix(key: u32, bits: u32) -> (usize, u64) {
    let prefix = key >> (32 - bits);
    ((prefix >> 6) as usize, 1 << (prefix & 63))
}
