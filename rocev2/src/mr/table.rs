//! The table of all keys, which all cores read: the place of a key by some of its bits, and the slot that is named
//! there. Only the registrar puts keys in and takes them out.
//!
//! Places and slots lie in blocks that stay where they are, so that the table grows while it is read. A growth
//! doubles the blocks of places: it fills the new ones, publishes their number, and then clears what has moved. One
//! who read the old number and does not find a key there looks again.

use super::bursts::Bursts;
use super::keys::MAX_KEYS;
use super::modelled::AtomicU32;
use super::slot::{Change, Slot, View};
use super::{AccessError, At};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};
use once_cell::race::OnceBox;

/// Bits of a key's place within its block. A table that is new has one block: enough for few keys that come and go
/// to be as random as many. An interpreter takes long to fill one.
pub(super) const PLACE_BITS: u32 = if cfg!(all(any(loom, miri), test)) { 3 } else { 12 };
/// Places for each key in use, at least.
pub(super) const PLACES: usize = 4;
/// Bits of the number of a block of places. They are the upper bits of the key, so that the block is found by a shift.
const BLOCK_BITS: u32 = if cfg!(all(miri, test)) { 4 } else { 10 };
/// Bits of a slot's number within its block, and of the number of the block.
pub(super) const SLOT_BITS: u32 = if cfg!(all(any(loom, miri), test)) { 1 } else { 8 };
const SLOT_BLOCK_BITS: u32 = if cfg!(all(miri, test)) { 4 } else { MAX_KEYS.trailing_zeros() - 8 };

/// A free place. There may be such a slot, of another key.
const EMPTY: At = At(u32::MAX);

type PlaceBlock = [AtomicU32; 1 << PLACE_BITS];
pub(super) type SlotBlock = [Slot; 1 << SLOT_BITS];

impl At {
    /// That of the slot that is the `n`th to be used.
    pub(super) const fn nth(n: usize) -> Self {
        // At most 2^20 slots.
        let (block, index) = ((n >> SLOT_BITS) as u32, n as u32 & ((1 << SLOT_BITS) - 1));
        Self(block << (32 - SLOT_BLOCK_BITS) | index)
    }

    #[inline(always)]
    const fn block(self) -> usize {
        (self.0 >> (32 - SLOT_BLOCK_BITS)) as usize
    }

    #[inline(always)]
    const fn index(self) -> usize {
        self.0 as usize & ((1 << SLOT_BITS) - 1)
    }
}

/// The table, as its cores and the registrar hold it.
#[derive(Clone)]
pub(super) struct Table {
    places: Arc<[OnceBox<PlaceBlock>; 1 << BLOCK_BITS]>,
    slots: Arc<[OnceBox<SlotBlock>; 1 << SLOT_BLOCK_BITS]>,
    common: Arc<Common>,
}

struct Common {
    /// The blocks of places, a power of two, less one.
    mask: AtomicU32,
    bursts: Bursts,
}

impl Table {
    /// A table without keys.
    pub(super) fn new(cores: usize) -> Self {
        let common = Common { mask: AtomicU32::new(0), bursts: Bursts::new(cores) };
        Self { places: blocks(), slots: blocks(), common: Arc::new(common) }
    }

    pub(super) fn bursts(&self) -> &Bursts {
        &self.common.bursts
    }

    #[inline(always)]
    pub(super) fn slot(&self, at: At) -> Option<&Slot> {
        self.slots[at.block()].get().map(|block| &block[at.index()])
    }

    fn place(&self, key: u32, mask: u32) -> Option<&AtomicU32> {
        let block = key >> (32 - BLOCK_BITS) & mask;
        let block = self.places[block as usize].get()?;
        Some(&block[key as usize & ((1 << PLACE_BITS) - 1)])
    }

    /// The slot of a key, which another may change at any time.
    fn find(&self, key: u32) -> Result<(At, &Slot), AccessError> {
        loop {
            let mask = self.common.mask.load(Acquire);
            // The only slot that can have the key; the slot itself knows whether it does.
            let at = self.place(key, mask).map(|place| At(place.load(Acquire)));
            let found = at.and_then(|at| Some((at, self.slot(at)?)));
            let found = found.filter(|(_, slot)| slot.key() == key && key != 0);
            if found.is_some() || self.common.mask.load(Acquire) == mask {
                return found.ok_or(AccessError::UnknownKey);
            }
        }
    }

    /// The state of a key's slot; `user` as in [`Slot::view`].
    pub(super) fn view(&self, key: u32, user: u64) -> Result<(At, View), AccessError> {
        let (at, slot) = self.find(key)?;
        let view = slot.view(user);
        if view.key == key { Ok((at, view)) } else { Err(AccessError::UnknownKey) }
    }

    /// Takes the slot of a key for a change.
    pub(super) fn change(&self, key: u32) -> Result<(At, Change<'_>, View), AccessError> {
        let (at, slot) = self.find(key)?;
        let change = slot.change();
        let view = change.view();
        if view.key == key { Ok((at, change, view)) } else { Err(AccessError::UnknownKey) }
    }

    // ---- for the registrar --------------------------------------------------------------------

    /// Places, free and not.
    pub(super) fn places(&self) -> usize {
        if self.places[0].get().is_some() { self.place_blocks() << PLACE_BITS } else { 0 }
    }

    fn place_blocks(&self) -> usize {
        self.common.mask.load(Acquire) as usize + 1
    }

    /// Bytes that [`Self::add_places`] may allocate.
    pub(super) fn added_bytes(&self) -> usize {
        self.place_blocks() * size_of::<PlaceBlock>()
    }

    /// Makes the first places, or doubles them; `keys` gives the keys in use with their slots. `None`: no memory, and no
    /// key has moved.
    pub(super) fn add_places(&self, keys: impl Iterator<Item = (u32, At)> + Clone) -> Option<()> {
        if self.places() == 0 {
            return self.add_block(0);
        }
        let (blocks, mask) = (self.place_blocks(), self.place_blocks() as u32 - 1);
        let wider = mask << 1 | 1;
        for block in blocks..2 * blocks {
            self.add_block(block)?;
        }
        let moved = |key: &u32| key >> (32 - BLOCK_BITS) & wider > mask;
        for (key, at) in keys.clone().filter(|(key, _)| moved(key)) {
            self.place(key, wider)?.store(at.0, Release);
        }
        self.common.mask.store(wider, Release);
        for (key, _) in keys.filter(|(key, _)| moved(key)) {
            self.place(key, mask)?.store(EMPTY.0, Release);
        }
        Some(())
    }

    fn add_block(&self, block: usize) -> Option<()> {
        fill(self.places.get(block)?, || AtomicU32::new(EMPTY.0))
    }

    /// Whether there is the slot that is the `n`th to be used.
    pub(super) fn has_slot(&self, n: usize) -> bool {
        self.slot(At::nth(n)).is_some()
    }

    /// Makes the `n`th slot, and others with it. `None`: no memory.
    pub(super) fn add_slot(&self, n: usize) -> Option<()> {
        fill(self.slots.get(At::nth(n).block())?, Slot::default)
    }

    /// Whether the place of a key is free.
    pub(super) fn is_free(&self, key: u32) -> bool {
        let place = self.place(key, self.common.mask.load(Acquire));
        place.is_some_and(|place| place.load(Acquire) == EMPTY.0)
    }

    /// Frees the place of a key.
    pub(super) fn free_place(&self, key: u32) {
        self.set_place(key, EMPTY);
    }

    /// Lets a key be found.
    pub(super) fn set_place(&self, key: u32, at: At) {
        if let Some(place) = self.place(key, self.common.mask.load(Acquire)) {
            place.store(at.0, Release);
        }
    }
}

/// Blocks of which there is none yet. A vector makes them, as their number is too large for a stack.
fn blocks<T, const N: usize>() -> Arc<[OnceBox<T>; N]> {
    let empty: Arc<[OnceBox<T>]> = (0..N).map(|_| OnceBox::new()).collect();
    empty.try_into().unwrap_or_else(|_| unreachable!("there are so many"))
}

/// Makes a block, unless there is one. `None`: no memory.
fn fill<T, const N: usize>(block: &OnceBox<[T; N]>, entry: impl FnMut() -> T) -> Option<()> {
    if block.get().is_some() {
        return Some(());
    }
    block.set(boxed(entry)?).ok()
}

/// So many entries; `None`: no memory.
pub(super) fn boxed<T, const N: usize>(entry: impl FnMut() -> T) -> Option<Box<[T; N]>> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(N).ok()?;
    entries.extend(core::iter::repeat_with(entry).take(N));
    entries.into_boxed_slice().try_into().ok()
}
