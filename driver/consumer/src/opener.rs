//! Where the consumer meets the provider: the place that NDIS takes on Windows.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use driver::abi::{NDK_ADAPTER, NDK_VERSION, NTSTATUS};

/// Opens and closes NDK adapters.
///
/// # Safety
/// An opened adapter is valid, tables and all, until it is closed.
pub unsafe trait Opener: Send + Sync {
    /// Opens an adapter that runs at `version` or a higher minor version of it.
    ///
    /// # Errors
    /// As `OPEN_NDK_ADAPTER_HANDLER`: bad version, not ready, no resources.
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS>;

    /// Closes an adapter; returns when everything under it is closed and silent.
    ///
    /// # Safety
    /// `adapter` came from `open` and is not used afterwards.
    unsafe fn close(&self, adapter: *mut NDK_ADAPTER);

    /// Runs the provider on this thread until `done`, which callbacks bring about, at most for `patience`. `None`, and
    /// at once: a thread that waits cannot do that here.
    fn run_until(&self, _patience: Duration, _done: &mut dyn FnMut() -> bool) -> Option<Waited> {
        None
    }

    /// Keeps `memory` for as long as a core may still reach it by a mapping whose release has returned: `NdkReleaseLAM` does
    /// not wait for the cores. An opener that cannot know keeps it for ever.
    fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        std::mem::forget(memory);
    }
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waited {
    /// The event has come that the caller waited for.
    Done,
    /// The time has passed.
    TimedOut,
    /// The provider has ended, and nothing comes any more.
    Ended,
}

#[cfg(target_os = "linux")]
// SAFETY: the provider keeps an open adapter valid until it is closed.
unsafe impl Opener for driver::Provider {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        self.open_adapter(version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: the caller passes an open adapter and lets go of it.
        unsafe { self.close_adapter(adapter) }
    }

    fn run_until(&self, patience: Duration, done: &mut dyn FnMut() -> bool) -> Option<Waited> {
        Some(match Self::run_until(self, patience, done) {
            driver::Waited::Done => Waited::Done,
            driver::Waited::TimedOut => Waited::TimedOut,
            driver::Waited::Ended => Waited::Ended,
        })
    }

    fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        Self::keep(self, Box::new(memory));
    }
}
