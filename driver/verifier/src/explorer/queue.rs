//! Callbacks that wait for their turn, in the order in which their ends came.

use crate::layer::{Upcall, in_callback, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A tick where there are threads.
const TICK: Duration = Duration::from_millis(1);

struct Items {
    waiting: VecDeque<(u8, Upcall)>,
    /// One of them runs.
    running: bool,
    /// No callback comes any more.
    ended: bool,
}

/// One line for all callbacks: an object's close comes after everything that ended before it, and after the closes of
/// its successors.
pub(super) struct Queue {
    items: Mutex<Items>,
    changed: Condvar,
}

impl Queue {
    /// A queue that a thread of its own serves, or that is served by [`Queue::turn`].
    pub(super) fn new(threaded: bool) -> Arc<Self> {
        let items = Items { waiting: VecDeque::new(), running: false, ended: false };
        let queue = Arc::new(Self { items: Mutex::new(items), changed: Condvar::new() });
        if threaded {
            let served = Arc::clone(&queue);
            thread::spawn(move || served.serve());
        }
        queue
    }

    pub(super) fn push(&self, ticks: u8, upcall: Upcall) {
        lock(&self.items).waiting.push_back((ticks, upcall));
        self.changed.notify_all();
    }

    /// Nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        let items = lock(&self.items);
        items.waiting.is_empty() && !items.running
    }

    /// Waits until nothing waits or runs.
    pub(super) fn drain(&self) {
        let mut items = lock(&self.items);
        while !items.waiting.is_empty() || items.running {
            items = self.wait(items);
        }
    }

    /// No callback comes any more.
    pub(super) fn end(&self) {
        lock(&self.items).ended = true;
        self.changed.notify_all();
    }

    fn wait<'a>(&self, items: MutexGuard<'a, Items>) -> MutexGuard<'a, Items> {
        self.changed.wait(items).unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of the thread.
    fn serve(&self) {
        let mut items = lock(&self.items);
        loop {
            match items.waiting.pop_front() {
                Some((ticks, upcall)) => {
                    items.running = true;
                    drop(items);
                    thread::sleep(TICK * u32::from(ticks));
                    upcall.run();
                    items = lock(&self.items);
                    items.running = false;
                    self.changed.notify_all();
                }
                None if items.ended => return,
                None => items = self.wait(items),
            }
        }
    }

    /// A tick has passed: makes the callbacks that are due, on this thread.
    pub(super) fn turn(&self) {
        if in_callback() {
            return;
        }
        let mut items = lock(&self.items);
        if let Some((ticks, _)) = items.waiting.front_mut() {
            *ticks = ticks.saturating_sub(1);
        }
        while let Some((0, _)) = items.waiting.front()
            && let Some((_, upcall)) = items.waiting.pop_front()
        {
            items.running = true;
            drop(items);
            upcall.run();
            items = lock(&self.items);
            items.running = false;
        }
    }
}
