//! Requests that may pend, and the callbacks that end them.
//!
//! A callback may come on another thread before the call has returned, so what it touches is
//! reference-counted and never on the caller's stack.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use driver::abi::{
    NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NTSTATUS, PVOID,
    STATUS_DEVICE_REMOVED, STATUS_INTERNAL_ERROR, STATUS_PENDING,
};

use crate::bell::Bell;
use crate::{NdkError, Opener, Result, Waited};

/// A value that some thread waits for and another one sets.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    value: OnceLock<T>,
    bell: Bell,
}

impl<T: Copy> Outcome<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { value: OnceLock::new(), bell: Bell::default() })
    }

    /// Once.
    pub(crate) fn set(&self, value: T) {
        let _ = self.value.set(value);
        self.bell.ring();
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.value.get().copied()
    }

    /// `None`: the provider ended before it was set.
    pub(crate) fn wait(&self, opener: &dyn Opener) -> Option<T> {
        while self.wait_timeout(opener, Duration::MAX) == Waited::TimedOut {}
        self.get()
    }

    pub(crate) fn wait_timeout(&self, opener: &dyn Opener, timeout: Duration) -> Waited {
        self.bell.wait(opener, timeout, &mut || self.value.get().is_some())
    }

    /// A reference for a callback, which gives it back through [`Outcome::from_context`].
    pub(crate) fn context(self: &Arc<Self>) -> PVOID {
        Arc::into_raw(Arc::clone(self)).cast_mut().cast()
    }

    /// # Safety
    /// `context` came from [`Outcome::context`] of the same type and is passed here once.
    pub(crate) unsafe fn from_context(context: PVOID) -> Arc<Self> {
        // SAFETY: the caller vouches for it.
        unsafe { Arc::from_raw(context.cast_const().cast()) }
    }
}

/// A request that the provider may still be working on. Dropping it does not cancel it.
#[must_use = "the request may fail later"]
pub struct Request {
    call: &'static str,
    outcome: Arc<Outcome<NTSTATUS>>,
    opener: Arc<dyn Opener>,
}

impl Request {
    /// Starts a request; `start` passes what it is given on to the provider.
    pub(crate) fn start(
        opener: &Arc<dyn Opener>,
        call: &'static str,
        start: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS,
    ) -> Self {
        let outcome = Outcome::new();
        let context = outcome.context();
        let status = start(Some(request_completed), context);
        if status != STATUS_PENDING {
            // SAFETY: without PENDING the callback never runs, so its reference is ours again.
            drop(unsafe { Outcome::<NTSTATUS>::from_context(context) });
            outcome.set(status);
        }
        Self { call, outcome, opener: Arc::clone(opener) }
    }

    /// How it ended, or `None` while it pends.
    #[must_use]
    pub fn poll(&self) -> Option<Result<()>> {
        self.outcome.get().map(|status| NdkError::check(self.call, status))
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The status of the request; `STATUS_DEVICE_REMOVED` where the provider ended before it.
    pub fn wait(self) -> Result<()> {
        NdkError::check(self.call, self.outcome.wait(&*self.opener).unwrap_or(REMOVED))
    }

    /// Waits for the end, but not longer than `timeout`.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<()>> {
        match self.outcome.wait_timeout(&*self.opener, timeout) {
            Waited::Done => self.poll(),
            Waited::TimedOut => None,
            Waited::Ended => Some(NdkError::check(self.call, REMOVED)),
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("call", &self.call)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// The end of a request whose provider has ended.
pub(crate) const REMOVED: NTSTATUS = STATUS_DEVICE_REMOVED;

/// # Safety
/// `context` is the reference that [`Request::start`] gave away; called once.
unsafe extern "system" fn request_completed(context: PVOID, status: NTSTATUS) {
    // SAFETY: as this function.
    unsafe { Outcome::from_context(context) }.set(status);
}

/// The outcome of a create.
#[derive(Clone, Copy)]
struct Created {
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
}

// SAFETY: NDK objects may be used from any thread.
unsafe impl Send for Created {}
// SAFETY: as above.
unsafe impl Sync for Created {}

/// Creates an object and waits for it.
pub(crate) fn create<T>(
    opener: &Arc<dyn Opener>,
    call: &'static str,
    start: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut T) -> NTSTATUS,
) -> Result<NonNull<T>> {
    let outcome = Outcome::<Created>::new();
    let context = outcome.context();
    let mut inline: *mut T = std::ptr::null_mut();
    let status = start(Some(create_completed), context, &raw mut inline);
    let (status, object) = if status == STATUS_PENDING {
        let ended = Created { status: REMOVED, object: std::ptr::null_mut() };
        let created = outcome.wait(&**opener).unwrap_or(ended);
        (created.status, created.object.cast())
    } else {
        // SAFETY: without PENDING the callback never runs, so its reference is ours again.
        drop(unsafe { Outcome::<Created>::from_context(context) });
        (status, inline)
    };
    NdkError::check(call, status)?;
    NonNull::new(object).ok_or(NdkError { status: STATUS_INTERNAL_ERROR, call })
}

/// # Safety
/// `context` is the reference that [`create`] gave away; called once.
unsafe extern "system" fn create_completed(
    context: PVOID,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: as this function.
    unsafe { Outcome::from_context(context) }.set(Created { status, object });
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::abi::{NDK_ADAPTER, NDK_VERSION, STATUS_CANCELLED, STATUS_SUCCESS};

    /// An opener without adapters, whose consumers wait by themselves.
    struct Nobody;

    // SAFETY: it opens none.
    unsafe impl Opener for Nobody {
        fn open(&self, _: NDK_VERSION) -> std::result::Result<*mut NDK_ADAPTER, NTSTATUS> {
            Err(STATUS_CANCELLED)
        }

        unsafe fn close(&self, _: *mut NDK_ADAPTER) {}
    }

    fn nobody() -> Arc<dyn Opener> {
        Arc::new(Nobody)
    }

    #[test]
    fn an_inline_end_needs_no_callback() {
        let request = Request::start(&nobody(), "NdkTest", |_, _| STATUS_CANCELLED);
        assert_eq!(request.poll().unwrap().unwrap_err().status, STATUS_CANCELLED);
        Request::start(&nobody(), "NdkTest", |_, _| STATUS_SUCCESS).wait().unwrap();
    }

    #[test]
    fn a_callback_may_come_before_the_call_returns() {
        let request = Request::start(&nobody(), "NdkTest", |completion, context| {
            // SAFETY: called once with its context.
            unsafe { completion.unwrap()(context, STATUS_SUCCESS) };
            STATUS_PENDING
        });
        assert_eq!(request.poll(), Some(Ok(())));
    }

    #[test]
    fn a_callback_may_come_later_from_another_thread() {
        struct Context(PVOID);
        // SAFETY: a counted reference to something shared between threads.
        unsafe impl Send for Context {}
        let mut thread = None;
        let request = Request::start(&nobody(), "NdkTest", |completion, context| {
            let context = Context(context);
            thread = Some(std::thread::spawn(move || {
                let context = context;
                std::thread::sleep(Duration::from_millis(20));
                // SAFETY: called once with its context.
                unsafe { completion.unwrap()(context.0, STATUS_CANCELLED) };
            }));
            STATUS_PENDING
        });
        assert_eq!(request.wait_timeout(Duration::ZERO), None);
        assert_eq!(request.wait().unwrap_err().status, STATUS_CANCELLED);
        thread.unwrap().join().unwrap();
    }
}
