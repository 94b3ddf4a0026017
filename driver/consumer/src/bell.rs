//! How a thread waits for what a callback changes.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Opener, Waited};

/// Rung by callbacks. The thread that waits runs the provider meanwhile where its opener can, and sleeps where it
/// cannot; while nobody sleeps, a ring is a fence and a load.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    /// Ends the waits for what the caller has just changed.
    pub(crate) fn ring(&self) {
        // Either we see who sleeps, or its look sees the change.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.lock());
            self.rung.notify_all();
        }
    }

    /// Waits until `done`, at most for `patience`.
    pub(crate) fn wait(
        &self,
        opener: &dyn Opener,
        patience: Duration,
        done: &mut dyn FnMut() -> bool,
    ) -> Waited {
        opener.run_until(patience, done).unwrap_or_else(|| self.sleep(patience, done))
    }

    fn sleep(&self, patience: Duration, done: &mut dyn FnMut() -> bool) -> Waited {
        let lock = self.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = self.rung.wait_timeout_while(lock, patience, |()| !done());
        let (_lock, ended) = slept.unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        if ended.timed_out() { Waited::TimedOut } else { Waited::Done }
    }

    /// A poisoned lock, which guards nothing, is as good as any.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
