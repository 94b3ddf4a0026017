//! The place between the consumer and the provider.
//!
//! ```text
//! consumer ──> front ──> table of the layer ──> a layer's rules ──> the provider's table
//!          <── upcall <── a layer's delivery <── completion or event <──┘
//! ```
//!
//! Each object that the provider hands out gets a front, an object of the layer's own with the layer's table. So the
//! provider's `Dispatch` stays as it is, the version in the header may be another, and a call on an object that
//! is closed meets a front and no freed memory.

mod call;
mod front;
mod pending;
mod tables;
mod upcall;

pub(crate) use call::{Ask, Call, End, Operation, Post, Then};
pub use front::Kind;
pub(crate) use front::{Record, find};
pub(crate) use pending::Pending;
pub(crate) use upcall::{Carried, Upcall, in_callback};

use driver::abi::*;
use front::{Origin, put_before};
use ndk_consumer::Opener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A set of rules for all calls and callbacks of the adapters that one opener opens.
pub(crate) trait Layer: Send + Sync {
    /// The consumer has called, and the provider has not been asked yet. An error is the answer of the call.
    fn asked(&self, call: &Call, ask: &mut Ask<'_>) -> Result<Then, NTSTATUS>;

    /// The consumer has called a function of an object that it had closed before.
    fn stale(&self, _call: &Call) {}

    /// The consumer has called a function of one type of object with an object of another.
    fn mistaken(&self, _call: &Call) {}

    /// Makes a call that may pend, and gives the answer to the consumer.
    fn conduct(&self, _pending: &Pending, start: &mut dyn FnMut() -> NTSTATUS) -> NTSTATUS {
        start()
    }

    /// The provider has ended a call that was pending. `None`: the callback of the consumer is not called for it.
    fn finished(&self, _pending: &Pending, end: End) -> Option<End> {
        Some(end)
    }

    /// A callback of the consumer is due.
    fn deliver(&self, upcall: Upcall) {
        upcall.run();
    }

    /// The consumer takes completions.
    fn taken(&self, _call: &Call, _results: &mut [Taken<'_>]) {}

    /// A listener hands out a connector.
    fn incoming(&self, _listener: &Record, _connector: &Arc<Record>) {}
}

/// A completion on its way to the consumer.
pub(crate) struct Taken<'a> {
    pub(crate) status: NTSTATUS,
    pub(crate) request_context: &'a mut PVOID,
    /// The operation, where the consumer asks for it.
    pub(crate) kind: Option<NDK_OPERATION_TYPE>,
    /// The token that the peer has invalidated.
    pub(crate) token: Option<u32>,
}

/// Opens an adapter behind a front.
pub(crate) fn open(
    layer: Weak<dyn Layer>,
    inner: &dyn Opener,
    asked: NDK_VERSION,
    number: u64,
    version: Option<NDK_VERSION>,
) -> Result<Arc<Record>, NTSTATUS> {
    let adapter = inner.open(asked)?;
    let origin = Origin::Opened { number, version };
    // SAFETY: just opened, and nobody else knows it.
    Ok(unsafe { put_before(adapter.cast(), layer, origin) })
}

/// Closes the adapter behind a front.
///
/// # Safety
/// It was opened by `inner`, and nothing uses it any more.
pub(crate) unsafe fn close(record: &Record, inner: &dyn Opener) {
    record.closing();
    // SAFETY: the caller's promise.
    unsafe { inner.close(record.inner().cast()) };
    record.closed();
}

/// A poisoned lock guards values that are whole between two statements.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
