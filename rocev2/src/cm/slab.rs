//! Values under keys that are never given out twice.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Names one value for its life, and nothing after it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

/// Slots that are used again under another generation, so that an old key finds nothing.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// Boxed, so that growth moves pointers, and an empty slot costs one.
    value: Option<Boxed<T>>,
}

/// A box, which has a value as its one element, as that can be made without an allocation that must not fail.
pub(super) type Boxed<T> = Box<[T; 1]>;

/// A value in a box; `None` where there is no memory.
pub(super) fn boxed<T>(value: T) -> Option<Boxed<T>> {
    let mut one = Vec::new();
    one.try_reserve_exact(1).ok()?;
    one.push(value);
    one.into_boxed_slice().try_into().ok()
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Makes room for so many values in all. `None`: no memory.
    pub(super) fn make_room(&mut self, values: usize) -> Option<()> {
        self.slots.try_reserve_exact(values.saturating_sub(self.slots.len())).ok()?;
        self.free.try_reserve_exact(values.saturating_sub(self.free.len())).ok()
    }

    /// Slots, used and free.
    pub(super) const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds a value; `None` where there is no memory.
    pub(super) fn insert(&mut self, value: T) -> Option<Key> {
        let value = Some(boxed(value)?);
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = value;
            return Some(Key { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).expect("limits keep slots below 2^32");
        self.slots.try_reserve(1).ok()?;
        // A slot that is given up later needs no memory then.
        self.free.try_reserve(self.slots.len() + 1 - self.free.len()).ok()?;
        self.slots.push(Slot { generation: 0, value });
        Some(Key { index, generation: 0 })
    }

    /// The value in a slot, whatever its key.
    pub(super) fn at(&self, index: usize) -> Option<(Key, &T)> {
        let slot = self.slots.get(index)?;
        let [value] = &**slot.value.as_ref()?;
        Some((Key { index: index as u32, generation: slot.generation }, value))
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_deref().map(|[value]| value)
        } else {
            None
        }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_deref_mut().map(|[value]| value)
        } else {
            None
        }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let [value] = *slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }
}

impl Key {
    /// The slot.
    pub(super) const fn index(self) -> usize {
        self.index as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_is_never_another_value() {
        let mut slab = Slab::new();
        let first = slab.insert("first").unwrap();
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second").unwrap();
        assert_eq!((first.index, slab.len()), (second.index, 1));
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
    }
}
