//! Two threads that count together, in code of our own: with a spin lock, or without. Nothing is loaded.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::ntos::{Pointer, misc};

const THREADS: usize = 2;
const ROUNDS: usize = 100;
static LOCK: AtomicUsize = AtomicUsize::new(0);
static IS_LOCKED: AtomicUsize = AtomicUsize::new(0);
static READY: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// `locked`, or `unlocked`, which a schedule has to find.
pub(super) fn race(_: &dyn Host, arguments: &[String]) {
    IS_LOCKED.store(usize::from(arguments == ["locked"]), Ordering::SeqCst);
    for _ in 0..THREADS {
        overflow::thread(count, 0);
    }
    eventually("the end of the threads", || dispatcher::running() == 0);
    let counted = COUNT.load(Ordering::SeqCst);
    if counted != THREADS * ROUNDS {
        breach!("two threads have counted to {counted}");
    }
}

unsafe extern "win64" fn count(_: Pointer) {
    // Neither has done before the other begins.
    READY.fetch_add(1, Ordering::SeqCst);
    while READY.load(Ordering::SeqCst) < THREADS {
        unsafe { misc::KeQueryInterruptTime() };
    }
    for _ in 0..ROUNDS {
        if IS_LOCKED.load(Ordering::SeqCst) == 0 {
            unsafe { add() };
            continue;
        }
        unsafe {
            let old = lock::KeAcquireSpinLockRaiseToDpc(&LOCK);
            add();
            lock::KeReleaseSpinLock(&LOCK, old);
        }
    }
}

/// Reads, calls the kernel, and writes.
unsafe fn add() {
    let before = COUNT.load(Ordering::SeqCst);
    misc::KeQueryInterruptTime();
    COUNT.store(before + 1, Ordering::SeqCst);
}
