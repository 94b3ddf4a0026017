//! Drawing keys, and finding what a key stands for, in constant time.

use crate::env::Rng;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

/// A key is not drawn again within this many keys given up, so that a peer's stale key meets
/// nothing (the weakness that the ReDMArk paper exploits).
pub(super) const QUARANTINE: usize = 1 << 16;
/// Live keys, at most: together with the quarantine, far fewer than there are prefixes.
pub(super) const MAX_KEYS: usize = 1 << 18;
/// No two keys that live or are in quarantine share their upper bits. So one bit per prefix says
/// whether a key may be drawn.
const PREFIX_BITS: u32 = 20;
/// A place that no key takes.
const EMPTY: u32 = u32::MAX;

/// The keys that live, each with the number of its slot, and those in quarantine.
///
/// A key is drawn until its low bits name a place that is free, which they do three times in four
/// or more: so a lookup is one look, and yet the whole key is random. What the rejections give away
/// of it is less than one bit.
pub(super) struct KeyIndex {
    rng: Rng,
    /// By the low bits of a key, its slot.
    places: Box<[u32]>,
    /// A bit for each prefix in use.
    prefixes: Box<[u64]>,
    retired: VecDeque<u32>,
}

impl KeyIndex {
    /// No keys yet; at most `limit` of them live at a time. All memory is taken here.
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

    /// The only slot that can have `key`. Whether it has it, the slot knows.
    pub(super) fn candidate(&self, key: u32) -> usize {
        self.places[self.place(key)] as usize
    }

    /// Gives up a key that lives.
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

/// Where the bit of a key's prefix is.
const fn prefix(key: u32) -> (usize, u64) {
    let prefix = key >> (32 - PREFIX_BITS);
    ((prefix >> 6) as usize, 1 << (prefix & 63))
}
