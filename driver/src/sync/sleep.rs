//! The agreement by which no wake of a sleeping core is lost.

use super::modelled::{AtomicBool, fence};
use core::sync::atomic::Ordering;

/// The agreement about sleep.
///
/// The core announces that it will sleep and then looks for work; others add work and then look for
/// the announcement. With a fence between the two steps on both sides at least one of them sees the
/// other, so that no wake is lost.
#[derive(Debug, Default)]
pub(crate) struct Sleep(AtomicBool);

impl Sleep {
    /// The core is about to sleep and must look for work once more after this, or is awake.
    pub(crate) fn announce(&self, sleeping: bool) {
        // A swap, as below: all changes then have one order, which loom follows.
        self.0.swap(sleeping, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// After work was added: whether the core has to be woken. The first who asks wakes it, once a sleep: until the
    /// core runs, others may add much.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
