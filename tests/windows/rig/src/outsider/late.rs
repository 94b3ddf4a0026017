//! Events that come late: notifications, connects and disconnects rest on the provider's thread before the consumer's code begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static LATE_US: AtomicU64 = AtomicU64::new(0);

/// Each event comes so many microseconds late from now on.
pub fn set(late_us: u64) {
    LATE_US.store(late_us, Ordering::Relaxed);
}

pub(crate) fn rest() {
    let late_us = LATE_US.load(Ordering::Relaxed);
    if late_us > 0 {
        std::thread::sleep(Duration::from_micros(late_us));
    }
}
