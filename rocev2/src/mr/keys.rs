//! Draws keys, and finds the slot of a key, in constant time.

use crate::env::Rng;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

/// A retired key is not drawn again before this many others were retired, so that a peer's stale key names
/// nothing (the weakness that the ReDMArk paper exploits).
pub(super) const QUARANTINE: usize = 1 << 16;
/// Keys in use, at most: together with the quarantine, far fewer than there are prefixes.
pub(super) const MAX_KEYS: usize = 1 << 18;
/// No two keys in use or in quarantine share their upper bits. So one bit per prefix tells whether a key
/// may be drawn.
const PREFIX_BITS: u32 = 20;
/// The value of a free place.
const EMPTY: u32 = u32::MAX;

/// The keys in use, each with the number of its slot, and those in quarantine.
///
/// Draws repeat until the low bits of the key name a free place, as they do three times in four or more. So
/// a lookup examines one place, and yet the whole key is random: the repetition reveals less than one bit
/// of it.
pub(super) struct KeyIndex {
    rng: Rng,
    /// The slot of a key, by the key's low bits.
    places: Box<[u32]>,
    /// A bit for each prefix in use.
    prefixes: Box<[u64]>,
    retired: VecDeque<u32>,
}

impl KeyIndex {
    /// An empty index for at most `limit` keys in use. All its memory is allocated here.
    pub(super) fn new(rng: Rng, limit: usize) -> Self {
        Self {
            rng,
            places: vec![EMPTY; (4 * limit).next_power_of_two()].into(),
            prefixes: vec![0; 1 << (PREFIX_BITS - 6)].into(),
            retired: VecDeque::with_capacity(QUARANTINE + 1),
        }
    }

    /// Draws a key for `slot`: unpredictable, never 0, not used before within the quarantine.
    pub(super) fn draw(&mut self, slot: u32) -> u32 {
        loop {
            let key = self.rng.u32();
            let place = self.place(key);
            let (word, bit) = prefix(key);
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
            let (word, bit) = prefix(oldest);
            self.prefixes[word] &= !bit;
        }
    }

    const fn place(&self, key: u32) -> usize {
        key as usize & (self.places.len() - 1)
    }
}

/// The place of the bit of a key's prefix.
const fn prefix(key: u32) -> (usize, u64) {
    let prefix = key >> (32 - PREFIX_BITS);
    ((prefix >> 6) as usize, 1 << (prefix & 63))
}
