//! What became of an adapter's connections, as `NDIS_NDK_PERFORMANCE_COUNTERS` counts it.

use core::sync::atomic::{AtomicU64, Ordering};

/// Written by the core, read by anybody.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Outbound connections established.
    pub(crate) connects: Counter,
    /// Inbound connections established.
    pub(crate) accepts: Counter,
    /// Attempts of either side that ended without a connection, except those that the consumer gave
    /// up by a close.
    pub(crate) failures: Counter,
    /// Established connections that broke. A peer's orderly end is none.
    pub(crate) errors: Counter,
    /// Connections now.
    pub(crate) active: Counter,
    /// CQs that overran.
    pub(crate) cq_errors: Counter,
}

/// One number.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    #[cfg_attr(not(all(windows, target_env = "msvc")), allow(dead_code, reason = "only NDIS asks"))]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
