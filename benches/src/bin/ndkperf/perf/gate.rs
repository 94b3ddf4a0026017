//! The moment at which all threads of a run begin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

use super::meter::Meter;

/// All of them wait until the last one is ready, and begin when the one that watches says so.
pub(super) struct Gate {
    barrier: Barrier,
    failed: AtomicBool,
    meter: OnceLock<Meter>,
}

impl Gate {
    pub(super) fn new(threads: u16) -> Self {
        let barrier = Barrier::new(usize::from(threads) + 1);
        Self { barrier, failed: AtomicBool::new(false), meter: OnceLock::new() }
    }

    /// A thread is ready, or never will be; whether it shall begin.
    pub(super) fn pass(&self, ready: bool) -> bool {
        if !ready {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.barrier.wait();
        self.barrier.wait();
        !self.failed.load(Ordering::Relaxed)
    }

    /// Waits for all threads, and lets them begin after `look`.
    pub(super) fn open(&self, look: impl FnOnce()) {
        self.barrier.wait();
        look();
        self.meter.get_or_init(Meter::start);
        self.barrier.wait();
    }

    /// Processor time since then.
    pub(super) fn cpu(&self) -> Duration {
        self.meter.get().map_or(Duration::ZERO, Meter::cpu)
    }
}
