//! The threads that wait for the core's work while another thread does it.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use rocev2::env::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The threads that wait for news. Where there are none, to tell of news costs a fence and a load.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    count: AtomicU32,
    /// Those of them that would run the core.
    visitors: AtomicU32,
    /// How often there were news.
    news: Mutex<u64>,
    told: Condvar,
}

/// One that waits is counted for as long as this lives.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiters {
    /// Whether one of them would run the core, as far as this thread knows.
    pub(super) fn has_visitor(&self) -> bool {
        self.visitors.load(Ordering::Relaxed) > 0
    }

    /// Wakes all of them, after what they wait for may have come.
    pub(super) fn tell(&self) {
        self.wake(&self.count);
    }

    /// Wakes them where one would run the core, after that was given back.
    pub(super) fn tell_visitors(&self) {
        self.wake(&self.visitors);
    }

    fn wake(&self, those: &AtomicU32) {
        // Either we see who waits, or its look sees what has come.
        fence(Ordering::SeqCst);
        if those.load(Ordering::Relaxed) > 0 {
            *self.lock() += 1;
            self.told.notify_all();
        }
    }

    /// Waits for news that come after `look` has found nothing, not longer than `patience`; as one that would run the
    /// core, or not.
    pub(super) fn wait(&self, patience: Duration, visits: bool, look: impl FnOnce() -> bool) {
        let before = *self.lock();
        let _counted = Counted::new(&self.count);
        let _visitor = visits.then(|| Counted::new(&self.visitors));
        fence(Ordering::SeqCst);
        if !look() {
            let news = self.lock();
            // The caller looks again, whatever ends the wait.
            drop(self.told.wait_timeout_while(news, patience, |news| *news == before));
        }
    }

    /// No code under this lock can panic, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn news_reach_who_waits() {
        let (waiters, news) = (Waiters::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !news.load(Ordering::Relaxed) {
                    waiters.wait(Duration::MAX, true, || news.load(Ordering::Relaxed));
                }
            });
            while !waiters.has_visitor() {
                thread::yield_now();
            }
            news.store(true, Ordering::Relaxed);
            waiters.tell();
        });
        waiters.wait(Duration::ZERO, false, || false);
        assert!(!waiters.has_visitor());
    }
}
