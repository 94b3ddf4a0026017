//! Stand-ins for the queues of other crates, which loom cannot look into: the same steps on the same
//! kinds of atomics with the same orderings, so that what orders what is the same. A ring that is
//! asked for many places has [`MOST`], or a model would never end.
#![allow(unsafe_code, reason = "cells whose owners the indices name")]

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread::yield_now;

const MOST: usize = 4;

fn places<T>(capacity: usize) -> Box<[UnsafeCell<Option<T>>]> {
    (0..capacity.min(MOST)).map(|_| UnsafeCell::new(None)).collect()
}

/// As `crossbeam_queue::ArrayQueue`. Positions are never reduced: place `p` is `p` modulo the
/// capacity. Its stamp is the position whose value it may take, or one more while it holds it.
pub(crate) struct ArrayQueue<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    stamps: Box<[AtomicUsize]>,
    values: Box<[UnsafeCell<Option<T>>]>,
}

// SAFETY: as the real one; a cell belongs to whom the stamps name.
unsafe impl<T: Send> Sync for ArrayQueue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for ArrayQueue<T> {}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 1, "a stamp would stand for two things");
        let values = places(capacity);
        let stamps = (0..values.len()).map(AtomicUsize::new).collect();
        Self { head: AtomicUsize::new(0), tail: AtomicUsize::new(0), stamps, values }
    }

    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        let capacity = self.values.len();
        let mut tail = self.tail.load(Relaxed);
        loop {
            let stamp = self.stamps[tail % capacity].load(Acquire);
            if stamp == tail {
                match self.tail.compare_exchange(tail, tail + 1, SeqCst, Relaxed) {
                    Ok(_) => break,
                    Err(moved) => tail = moved,
                }
                continue;
            }
            if stamp + capacity == tail + 1 {
                fence(SeqCst);
                if self.head.load(Relaxed) + capacity == tail {
                    return Err(value);
                }
            }
            yield_now();
            tail = self.tail.load(Relaxed);
        }
        // SAFETY: the place is ours until its stamp says that it is filled.
        self.values[tail % capacity].with_mut(|place| unsafe { *place = Some(value) });
        self.stamps[tail % capacity].store(tail + 1, Release);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let capacity = self.values.len();
        let mut head = self.head.load(Relaxed);
        loop {
            let stamp = self.stamps[head % capacity].load(Acquire);
            if stamp == head + 1 {
                match self.head.compare_exchange(head, head + 1, SeqCst, Relaxed) {
                    Ok(_) => break,
                    Err(moved) => head = moved,
                }
                continue;
            }
            if stamp == head {
                fence(SeqCst);
                if self.tail.load(Relaxed) == head {
                    return None;
                }
            }
            yield_now();
            head = self.head.load(Relaxed);
        }
        // SAFETY: the place is ours until its stamp says that it is empty.
        let value = self.values[head % capacity].with_mut(|place| unsafe { (*place).take() });
        self.stamps[head % capacity].store(head + capacity, Release);
        Some(value.expect("a filled place"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(SeqCst) == self.tail.load(SeqCst)
    }

    pub(crate) fn len(&self) -> usize {
        loop {
            let (tail, head) = (self.tail.load(SeqCst), self.head.load(SeqCst));
            if self.tail.load(SeqCst) == tail {
                return tail - head;
            }
            yield_now();
        }
    }
}

/// As the crate of that name: one producer, one consumer, and what each remembers of the other.
pub(crate) mod rtrb {
    use super::{Acquire, AtomicUsize, Box, Release, UnsafeCell, places};
    use alloc::vec::Vec;
    use core::cell::Cell;
    use loom::sync::Arc;

    pub(crate) struct RingBuffer<T> {
        head: AtomicUsize,
        tail: AtomicUsize,
        values: Box<[UnsafeCell<Option<T>>]>,
        capacity: usize,
    }

    // SAFETY: a cell belongs to the one end that the indices name.
    unsafe impl<T: Send> Sync for RingBuffer<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Send for RingBuffer<T> {}

    impl<T> RingBuffer<T> {
        #[allow(clippy::new_ret_no_self, reason = "as the crate")]
        pub(crate) fn new(capacity: usize) -> (Producer<T>, Consumer<T>) {
            let (head, tail, values) = (AtomicUsize::new(0), AtomicUsize::new(0), places(capacity));
            let ring = Arc::new(Self { head, tail, values, capacity });
            let producer = Producer { ring: Arc::clone(&ring), tail: 0, head: Cell::new(0) };
            (producer, Consumer { ring, head: 0, tail: Cell::new(0) })
        }

        pub(crate) const fn capacity(&self) -> usize {
            self.capacity
        }
    }

    pub(crate) struct Producer<T> {
        ring: Arc<RingBuffer<T>>,
        tail: usize,
        /// The consumer's index when last looked at.
        head: Cell<usize>,
    }

    /// There is no room.
    #[derive(Debug)]
    pub(crate) struct PushError;
    /// There is nothing.
    #[derive(Debug)]
    pub(crate) struct PopError;

    impl<T> Producer<T> {
        pub(crate) fn is_full(&self) -> bool {
            let places = self.ring.values.len();
            if self.tail - self.head.get() == places {
                self.head.set(self.ring.head.load(Acquire));
            }
            self.tail - self.head.get() == places
        }

        pub(crate) fn push(&mut self, value: T) -> Result<(), PushError> {
            if self.is_full() {
                return Err(PushError);
            }
            let place = &self.ring.values[self.tail % self.ring.values.len()];
            // SAFETY: an empty place is the producer's.
            place.with_mut(|place| unsafe { *place = Some(value) });
            self.tail += 1;
            self.ring.tail.store(self.tail, Release);
            Ok(())
        }

        pub(crate) fn write_chunk_uninit(
            &mut self,
            count: usize,
        ) -> Result<WriteChunk<'_, T>, PushError> {
            let taken = self.ring.head.load(Acquire);
            self.head.set(taken);
            let free = self.ring.values.len() - (self.tail - taken);
            if count > free { Err(PushError) } else { Ok(WriteChunk { producer: self, count }) }
        }

        pub(crate) fn buffer(&self) -> &RingBuffer<T> {
            &self.ring
        }
    }

    /// Places for values that are published together; here one by one, which shows a reader more.
    pub(crate) struct WriteChunk<'a, T> {
        producer: &'a mut Producer<T>,
        count: usize,
    }

    impl<T> WriteChunk<'_, T> {
        pub(crate) fn fill_from_iter(self, values: impl IntoIterator<Item = T>) -> usize {
            let pushed = values.into_iter().take(self.count);
            pushed.map(|value| self.producer.push(value)).filter(Result::is_ok).count()
        }
    }

    pub(crate) struct Consumer<T> {
        ring: Arc<RingBuffer<T>>,
        head: usize,
        /// The producer's index when last looked at.
        tail: Cell<usize>,
    }

    impl<T> Consumer<T> {
        pub(crate) fn is_empty(&self) -> bool {
            if self.tail.get() == self.head {
                self.tail.set(self.ring.tail.load(Acquire));
            }
            self.tail.get() == self.head
        }

        pub(crate) fn slots(&self) -> usize {
            self.tail.set(self.ring.tail.load(Acquire));
            self.tail.get() - self.head
        }

        pub(crate) fn read_chunk(&mut self, count: usize) -> Result<Vec<T>, PopError> {
            (0..count).map(|_| self.pop()).collect()
        }

        pub(crate) fn pop(&mut self) -> Result<T, PopError> {
            if self.is_empty() {
                return Err(PopError);
            }
            let place = &self.ring.values[self.head % self.ring.values.len()];
            // SAFETY: a filled place is the consumer's.
            let value = place.with_mut(|place| unsafe { (*place).take() });
            self.head += 1;
            self.ring.head.store(self.head, Release);
            value.ok_or(PopError)
        }
    }
}
