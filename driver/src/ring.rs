//! What lies between the consumer's threads and the poll core: rings, and no shared state.
//!
//! * Work: one SPSC ring per initiator queue, per receive queue and per CQ (`rtrb`), because NDKPI
//!   obliges the consumer to serialize its calls on each.
//! * Control: one bounded MPSC ring per shard for everything else.
//! * Doorbells: one bounded MPSC ring per shard; an object is in it at most once.

use crate::ndk::adapter::Limits;
use crate::ndk::{Control, ObjectId};
use crate::platform::Platform;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use core::task::Waker;
use crossbeam_queue::ArrayQueue;

/// Control messages in flight plus objects alive, per shard. Each object holds one place for its
/// close from its creation on, so a close never fails for want of room.
const CONTROL_CAPACITY: usize = 1 << 15;

/// A value that one caller at a time may use, by the consumer's own promise. A consumer that breaks
/// the promise is turned away instead of racing.
///
/// It is also the sign that a call is inside: an object is not freed while it is entered.
#[derive(Debug)]
pub(crate) struct Exclusive<T> {
    entered: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `entered` admits one thread at a time to the value.
#[allow(unsafe_code, reason = "the flag makes the cell exclusive")]
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { entered: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless another call is using it.
    pub(crate) fn enter(&self) -> Option<Entered<'_, T>> {
        (!self.entered.swap(true, Ordering::Acquire)).then_some(Entered(self, PhantomData))
    }

    /// Whether a call is inside.
    pub(crate) fn is_entered(&self) -> bool {
        self.entered.load(Ordering::Acquire)
    }
}

/// Access to the value of an [`Exclusive`] until it is dropped.
pub(crate) struct Entered<'a, T>(&'a Exclusive<T>, PhantomData<&'a mut T>);

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only one guard exists at a time.
        unsafe { &*self.0.value.get() }
    }
}

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one guard exists at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.0.entered.store(false, Ordering::Release);
    }
}

/// The consumer's side of one poll core.
pub(crate) struct Shard {
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) limits: Limits,
    control: ArrayQueue<Control>,
    /// Free places of `control`.
    credits: AtomicUsize,
    doorbells: ArrayQueue<ObjectId>,
    sleeping: AtomicBool,
    waker: Waker,
}

/// The control ring has no room: the caller reports insufficient resources.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Full;

impl Shard {
    /// A shard whose core is woken by `waker`.
    pub(crate) fn new(platform: Box<dyn Platform>, limits: Limits, waker: Waker) -> Self {
        Self {
            platform,
            limits,
            control: ArrayQueue::new(CONTROL_CAPACITY),
            credits: AtomicUsize::new(CONTROL_CAPACITY),
            doorbells: ArrayQueue::new(CONTROL_CAPACITY),
            sleeping: AtomicBool::new(false),
            waker,
        }
    }

    /// Sends a message that takes a place of its own.
    pub(crate) fn request(&self, message: Control) -> Result<(), Full> {
        self.reserve()?;
        self.send_reserved(message);
        Ok(())
    }

    /// Takes a place for a later message.
    pub(crate) fn reserve(&self) -> Result<(), Full> {
        let take = |credits: usize| credits.checked_sub(1);
        self.credits
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .map(drop)
            .map_err(|_| Full)
    }

    /// Gives a place back: its message was taken, or will never be sent.
    pub(crate) fn release(&self) {
        self.credits.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a message whose place was taken before.
    pub(crate) fn send_reserved(&self, message: Control) {
        let pushed = self.control.push(message);
        assert!(pushed.is_ok(), "every message has a place");
        self.wake();
    }

    /// Takes a control message; its place is free again.
    pub(crate) fn next_control(&self) -> Option<Control> {
        let message = self.control.pop()?;
        self.release();
        Some(message)
    }

    /// Tells the core that `object` has something in its rings. `rung` is the object's own flag.
    pub(crate) fn ring(&self, object: ObjectId, rung: &AtomicBool) {
        if !rung.swap(true, Ordering::AcqRel) {
            // At most one entry per object, and no more objects than places.
            let pushed = self.doorbells.push(object);
            debug_assert!(pushed.is_ok());
        }
        self.wake();
    }

    /// Takes an object whose doorbell rang.
    pub(crate) fn next_doorbell(&self) -> Option<ObjectId> {
        if self.doorbells.is_empty() { None } else { self.doorbells.pop() }
    }

    /// Whether a message or a doorbell waits.
    pub(crate) fn has_work(&self) -> bool {
        !self.control.is_empty() || !self.doorbells.is_empty()
    }

    /// The core is about to sleep. It must look at [`Self::has_work`] once more after this.
    pub(crate) fn announce_sleep(&self, sleeping: bool) {
        self.sleeping.store(sleeping, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Wakes the core if it sleeps; a running core sees the ring by itself, so the busy path makes
    /// no system call.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_caller_is_turned_away() {
        let exclusive = Exclusive::new(1);
        let mut first = exclusive.enter().unwrap();
        *first += 1;
        assert!(exclusive.enter().is_none() && exclusive.is_entered());
        drop(first);
        assert_eq!(*exclusive.enter().unwrap(), 2);
    }
}
