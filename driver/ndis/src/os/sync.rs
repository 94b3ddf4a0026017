//! Events, spin locks, and gates, at which an owner waits for the last of many.
#![allow(unsafe_code, reason = "calls the kernel")]

use crate::abi::imports::{
    ExAcquireSpinLockShared, ExReleaseSpinLockShared, KeAcquireSpinLockRaiseToDpc,
    KeGetCurrentProcessorNumberEx, KeInitializeEvent, KeReleaseSpinLock, KeResetEvent, KeSetEvent,
    KeWaitForSingleObject,
};
use crate::abi::*;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

/// A kernel event in memory of its own, because a waiting thread's list points into it.
pub(crate) struct Event(Box<UnsafeCell<KEVENT>>);

// SAFETY: the kernel serializes every use of an event.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that stays set until it is reset.
    pub(crate) fn notification() -> Self {
        Self::new(NotificationEvent)
    }

    /// An event that one waiter takes.
    pub(crate) fn synchronization() -> Self {
        Self::new(SynchronizationEvent)
    }

    fn new(kind: i32) -> Self {
        let event = Self(Box::new(UnsafeCell::new(KEVENT::default())));
        // SAFETY: memory for an event, nobody else's yet.
        unsafe { KeInitializeEvent(event.0.get(), kind, FALSE) };
        event
    }

    /// IRQL <= DISPATCH_LEVEL.
    pub(crate) fn set(&self) {
        // SAFETY: an initialized event.
        unsafe { KeSetEvent(self.0.get(), 0, FALSE) };
    }

    /// IRQL <= DISPATCH_LEVEL.
    pub(crate) fn reset(&self) {
        // SAFETY: an initialized event.
        unsafe { KeResetEvent(self.0.get()) };
    }

    /// PASSIVE_LEVEL.
    pub(crate) fn wait(&self) {
        wait(self.0.get().cast(), None);
    }

    /// PASSIVE_LEVEL. Waits at most that long; returns whether the event came.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        wait(self.0.get().cast(), Some(time))
    }
}

/// A mutex at PASSIVE_LEVEL: one thread at a time, which may wait while it is inside.
pub(crate) struct Turn(Event);

impl Turn {
    pub(crate) fn new() -> Self {
        let free = Event::synchronization();
        free.set();
        Self(free)
    }

    /// Waits for its turn and runs `work`. PASSIVE_LEVEL, not from within `work`.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.wait();
        let value = work();
        self.0.set();
        value
    }
}

/// Waits for any dispatcher object; returns whether it came in time. PASSIVE_LEVEL.
pub(super) fn wait(object: PVOID, time: Option<Duration>) -> bool {
    // A negative time is relative, in units of 100 ns.
    let mut due = time.map(|time| -i64::try_from(time.as_nanos() / 100).unwrap_or(i64::MAX));
    let due = due.as_mut().map_or(null_mut(), core::ptr::from_mut);
    // SAFETY: a dispatcher object that outlives the wait, as its owner waits here.
    unsafe { KeWaitForSingleObject(object, Executive, KernelMode, FALSE, due) == STATUS_SUCCESS }
}

/// Waits for a time. PASSIVE_LEVEL.
pub(crate) fn sleep(time: Duration) {
    Event::notification().wait_for(time);
}

/// The current processor, as long as the caller stays at DISPATCH_LEVEL.
pub(crate) fn processor() -> u32 {
    // SAFETY: the group's place is optional.
    unsafe { KeGetCurrentProcessorNumberEx(null_mut()) }
}

/// Runs `work` at DISPATCH_LEVEL. IRQL <= DISPATCH_LEVEL.
///
/// The functions that raise and lower the level are inline, or have other names and another module, from one processor to the next
/// (`ntddk.h`, `wdm.h`). A lock of this call's own, which it shares with nobody, raises the level by functions that every kernel has.
pub(crate) fn at_dispatch<T>(work: impl FnOnce() -> T) -> T {
    let mut lock = 0;
    // SAFETY: zero is a free lock.
    let irql = unsafe { ExAcquireSpinLockShared(&mut lock) };
    let value = work();
    // SAFETY: acquired above, at that level.
    unsafe { ExReleaseSpinLockShared(&mut lock, irql) };
    value
}

/// A value behind a spin lock. IRQL <= DISPATCH_LEVEL; DISPATCH_LEVEL while it is locked.
pub(crate) struct SpinLock<T> {
    lock: UnsafeCell<usize>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock admits one CPU at a time to the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { lock: UnsafeCell::new(0), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> SpinLockGuard<'_, T> {
        // SAFETY: zero is a free lock; it is released by the guard.
        let irql = unsafe { KeAcquireSpinLockRaiseToDpc(self.lock.get()) };
        SpinLockGuard { lock: self, irql, here: PhantomData }
    }
}

/// The guard of a [`SpinLock`], which unlocks when it is dropped.
pub(crate) struct SpinLockGuard<'a, T> {
    lock: &'a SpinLock<T>,
    irql: KIRQL,
    /// It lowers the level of the processor that it raised, and is the value's only borrow: it is neither sent nor shared.
    here: PhantomData<*mut T>,
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and this guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: acquired by this guard at that level.
        unsafe { KeReleaseSpinLock(self.lock.lock.get(), self.irql) };
    }
}

/// Counts the calls and frames in progress behind it, so that an owner can close it and wait for the last
/// (rundown protection).
pub(crate) struct Gate {
    /// Twice the number inside; the lowest bit tells that the gate is closed.
    state: AtomicUsize,
    empty: Event,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn shut() -> Self {
        let empty = Event::notification();
        empty.set();
        Self { state: AtomicUsize::new(SHUT), empty }
    }

    /// Opens the gate.
    pub(crate) fn open(&self) {
        self.empty.reset();
        self.state.fetch_and(!SHUT, Ordering::AcqRel);
    }

    /// Enters `count` times. Returns whether the gate was open; if so, each entry needs a
    /// [`leave`](Self::leave). IRQL <= DISPATCH_LEVEL.
    #[must_use]
    pub(crate) fn enter(&self, count: usize) -> bool {
        let enter = |state: usize| (state & SHUT == 0).then_some(state + 2 * count);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }

    /// Leaves `count` times. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn leave(&self, count: usize) {
        let before = self.state.fetch_sub(2 * count, Ordering::AcqRel);
        debug_assert!(before >= 2 * count, "more left than entered");
        if before == 2 * count + SHUT {
            self.empty.set();
        }
    }

    /// Whether nobody is inside at this moment. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) & !SHUT == 0
    }

    /// Closes the gate. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn close(&self) {
        // A gate that is closed already is empty, or its last one is about to signal the event: a waiter
        // must not return before, as it may free the gate.
        if self.state.fetch_or(SHUT, Ordering::AcqRel) == 0 {
            self.empty.set();
        }
    }

    /// The number of those inside at this moment. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn inside(&self) -> usize {
        self.state.load(Ordering::Acquire) / 2
    }

    /// As [`wait_empty`](Self::wait_empty), but at most that long; returns whether the last one has left. PASSIVE_LEVEL.
    pub(crate) fn wait_empty_for(&self, time: Duration) -> bool {
        self.empty.wait_for(time)
    }

    /// Waits until the last one has left a closed gate. PASSIVE_LEVEL.
    pub(crate) fn wait_empty(&self) {
        self.empty.wait();
    }
}

const SHUT: usize = 1;
