//! The ring of the objects whose doorbells ring: from many threads to the core.

use super::modelled::{AtomicU64, AtomicUsize};
use crate::object::id::RingerKey;
use alloc::boxed::Box;
use core::sync::atomic::Ordering;
use slotmap::{Key, KeyData};

/// An index that one side changes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Index(AtomicUsize);

/// The objects whose doorbells ring, in their order.
///
/// A ring that has a place for all who may be in it is never full. So a thread takes a place without a look at the core's
/// index, and the core sees by the place alone whether it is filled: a third of the instructions of
/// `crossbeam_queue::ArrayQueue`, and half of its memory.
#[derive(Debug)]
pub(crate) struct Bells {
    /// A power of two. [`EMPTY`], or an object.
    places: Box<[AtomicU64]>,
    /// The next place to fill, never reduced.
    filled: Index,
    /// The next place to empty, the core's.
    emptied: Index,
}

/// Where no object is. No key's number is 0.
const EMPTY: u64 = 0;

impl Bells {
    /// A ring for `objects` at a time.
    pub(crate) fn new(objects: usize) -> Self {
        let places = (0..objects.next_power_of_two()).map(|_| AtomicU64::new(EMPTY)).collect();
        Self { places, filled: Index::default(), emptied: Index::default() }
    }

    #[inline(always)]
    fn place(&self, index: usize) -> &AtomicU64 {
        &self.places[index & (self.places.len() - 1)]
    }

    /// Appends an object that is not in the ring. The core gets none that is behind a place which is taken and not filled
    /// yet, so that nothing should come between; who has filled it wakes the core.
    #[inline(always)]
    pub(crate) fn push(&self, object: RingerKey) {
        // Acquire and Release: who takes a place for the second time does so after a thread that has seen it emptied.
        let index = self.filled.0.fetch_add(1, Ordering::AcqRel);
        self.place(index).store(object.data().as_ffi(), Ordering::Release);
    }

    /// Takes the oldest object.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<RingerKey> {
        let index = self.emptied.0.load(Ordering::Relaxed);
        let place = self.place(index);
        let object = place.load(Ordering::Acquire);
        if object == EMPTY {
            return None;
        }
        place.store(EMPTY, Ordering::Relaxed);
        self.emptied.0.store(index.wrapping_add(1), Ordering::Relaxed);
        Some(KeyData::from_ffi(object).into())
    }

    /// Objects in the ring, those included whose places are taken and not filled.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        let emptied = self.emptied.0.load(Ordering::Relaxed);
        self.filled.0.load(Ordering::Relaxed).wrapping_sub(emptied)
    }

    /// Whether [`Self::pop`] has none.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        let index = self.emptied.0.load(Ordering::Relaxed);
        self.place(index).load(Ordering::Relaxed) == EMPTY
    }
}

#[cfg(all(not(loom), test))]
mod tests {
    use super::*;

    /// Places are used again, and objects come in their order.
    #[test]
    fn objects_come_in_the_order_in_which_they_rang() {
        let id = |number: u64| RingerKey::from(KeyData::from_ffi((1 << 32) + number));
        let bells = Bells::new(3);
        for first in 0..10 {
            assert_eq!((bells.pop(), bells.is_empty()), (None, true));
            (first..first + 4).for_each(|number| bells.push(id(number)));
            assert_eq!(bells.len(), 4);
            assert!((first..first + 4).all(|number| bells.pop() == Some(id(number))));
        }
    }

    #[test]
    fn each_thread_is_heard_in_its_order() {
        const EACH: u64 = if cfg!(miri) { 20 } else { 10_000 };
        let bells = Bells::new(4);
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 1..=2_u64 {
                let (bells, answered) = (&bells, &answered);
                scope.spawn(move || {
                    for number in 0..EACH {
                        // No more than two of a thread are in the ring.
                        while number > answered.load(Ordering::Acquire) / 2 + 1 {
                            std::thread::yield_now();
                        }
                        bells.push(KeyData::from_ffi(thread << 33 | 1 << 32 | number).into());
                    }
                });
            }
            let mut heard = [0; 2];
            while heard != [EACH; 2] {
                let Some(object) = bells.pop() else { continue };
                let data = object.data().as_ffi();
                let (thread, number) = ((data >> 33) as usize - 1, data & u64::from(u32::MAX));
                assert_eq!(core::mem::replace(&mut heard[thread], number + 1), number);
                let both = heard[0].min(heard[1]);
                answered.store(2 * both, Ordering::Release);
            }
        });
        assert!(bells.is_empty());
    }
}
