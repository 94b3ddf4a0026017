//! Spin locks, and the mutual exclusion that waits.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use super::irql::{self, APC, DISPATCH};

thread_local! {
    /// How often this thread has taken one.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    /// The spin locks that this thread holds, in order.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Reports a thread that leaves a callback of the image with a lock held.
pub fn none_held(what: &str) {
    HELD.with_borrow(|held| {
        if !held.is_empty() {
            breach!("{what} returned with {} spin locks held", held.len());
        }
    });
}

/// Which locks were taken while this one was held, by whomever. Two threads that take two locks in
/// opposite orders wait for each other one day, even if they did not this time.
static ORDER: Mutex<BTreeMap<usize, BTreeSet<usize>>> = Mutex::new(BTreeMap::new());

/// Notes that `inner` is taken while `outer` is held.
fn note(outer: usize, inner: usize) {
    let mut order = ORDER.lock().unwrap();
    if !order.entry(outer).or_default().insert(inner) {
        return;
    }
    NESTINGS.fetch_add(1, Ordering::Relaxed);
    // Whether there is a way back, over any number of locks.
    let (mut seen, mut next) = (BTreeSet::new(), vec![inner]);
    while let Some(lock) = next.pop() {
        if lock == outer {
            breach!("the spin locks at {outer:#x} and {inner:#x} are taken in both orders");
            return;
        }
        if seen.insert(lock) {
            next.extend(order.get(&lock).into_iter().flatten());
        }
    }
}

/// The memory is another's from now on: what it held of locks is over.
pub fn forget(memory: Range<usize>) {
    let mut order = ORDER.lock().unwrap();
    order.retain(|lock, _| !memory.contains(lock));
    for inner in order.values_mut() {
        inner.retain(|lock| !memory.contains(lock));
    }
}

/// How often a lock was taken while another was held, and those two for the first time.
pub fn nestings() -> usize {
    NESTINGS.load(Ordering::Relaxed)
}

static NESTINGS: AtomicUsize = AtomicUsize::new(0);

/// How often this thread has taken a spin lock.
pub fn taken() -> usize {
    TAKEN.get()
}

fn acquire(lock: &AtomicUsize) {
    TAKEN.set(TAKEN.get() + 1);
    let address = lock as *const _ as usize;
    HELD.with_borrow_mut(|held| {
        if held.contains(&address) {
            breach!("a spin lock is acquired by its holder");
            crate::log::verdict(format_args!("deadlock"), false);
        }
        held.iter().for_each(|&outer| note(outer, address));
        held.push(address);
    });
    while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        crate::schedule::blocks();
        std::thread::yield_now();
    }
}

fn release(lock: &AtomicUsize) {
    let address = lock as *const _ as usize;
    HELD.with_borrow_mut(|held| match held.iter().rposition(|&held| held == address) {
        Some(place) => drop(held.remove(place)),
        None => breach!("a spin lock is released by a thread that does not hold it"),
    });
    if irql::current() != DISPATCH {
        breach!("a spin lock is released at IRQL {}", irql::current());
    }
    lock.store(0, Ordering::Release);
}

/// `KLOCK_QUEUE_HANDLE`.
#[derive(Debug)]
#[repr(C)]
pub struct QueueHandle {
    next: usize,
    lock: *const AtomicUsize,
    old: u8,
}
const _: () = assert!(size_of::<QueueHandle>() == 0x18);

exports! { "ntoskrnl.exe":
    fn KeInitializeSpinLock(lock: &AtomicUsize) { lock.store(0, Ordering::Relaxed); }
    fn KeAcquireSpinLockRaiseToDpc(lock: &AtomicUsize) -> u8 {
        irql::at_most(DISPATCH, "KeAcquireSpinLockRaiseToDpc");
        let old = irql::set(DISPATCH);
        acquire(lock);
        old
    }
    fn KeReleaseSpinLock(lock: &AtomicUsize, old: u8) {
        release(lock);
        if old > DISPATCH { breach!("KeReleaseSpinLock restores IRQL {old}"); }
        irql::set(old);
    }
    fn KeAcquireSpinLockAtDpcLevel(lock: &AtomicUsize) {
        if irql::current() != DISPATCH {
            breach!("KeAcquireSpinLockAtDpcLevel at IRQL {}", irql::current());
        }
        acquire(lock);
    }
    fn KeReleaseSpinLockFromDpcLevel(lock: &AtomicUsize) { release(lock); }
    fn KeTryToAcquireSpinLockAtDpcLevel(lock: &AtomicUsize) -> u8 {
        if lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() { return 0; }
        HELD.with_borrow_mut(|held| held.push(lock as *const _ as usize));
        1
    }
    // Shared locks are no part of a hierarchy: nobody takes one for itself.
    fn ExAcquireSpinLockShared(lock: &AtomicI32) -> u8 {
        irql::at_most(DISPATCH, "ExAcquireSpinLockShared");
        lock.fetch_add(1, Ordering::Acquire);
        irql::set(DISPATCH)
    }
    fn ExReleaseSpinLockShared(lock: &AtomicI32, old: u8) {
        if lock.fetch_sub(1, Ordering::Release) < 1 {
            breach!("a shared spin lock is released that nobody holds");
        }
        if irql::current() != DISPATCH || old > DISPATCH {
            breach!("a shared spin lock is released at IRQL {}, to {old}", irql::current());
        }
        irql::set(old);
    }
    /// The thread's old IRQL waits in its `KLOCK_QUEUE_HANDLE`.
    fn KeAcquireInStackQueuedSpinLock(lock: *const AtomicUsize, handle: *mut QueueHandle) {
        irql::at_most(DISPATCH, "KeAcquireInStackQueuedSpinLock");
        let old = irql::set(DISPATCH);
        handle.write(QueueHandle { next: 0, lock, old });
        acquire(&*lock);
    }
    fn KeReleaseInStackQueuedSpinLock(handle: &QueueHandle) {
        release(&*handle.lock);
        irql::set(handle.old);
    }
    fn ExInitializePushLock(lock: &AtomicUsize) { lock.store(0, Ordering::Relaxed); }
    fn ExAcquirePushLockExclusiveEx(lock: &AtomicUsize, _flags: u32) {
        irql::at_most(APC, "ExAcquirePushLockExclusiveEx");
        while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            crate::schedule::blocks();
        std::thread::yield_now();
        }
    }
    fn ExReleasePushLockExclusiveEx(lock: &AtomicUsize, _flags: u32) {
        lock.store(0, Ordering::Release);
    }
    fn KeEnterCriticalRegion() { irql::at_most(APC, "KeEnterCriticalRegion"); }
    fn KeLeaveCriticalRegion() { irql::at_most(APC, "KeLeaveCriticalRegion"); }
}
