//! Requests that may pend, and the callbacks that end them.
//!
//! A callback may come on another thread before the call has returned, so what it touches is
//! reference-counted and never on the caller's stack.

use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use driver::abi::{
    NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NTSTATUS, PVOID,
    STATUS_INTERNAL_ERROR, STATUS_PENDING,
};

use crate::{NdkError, Result};

/// A value that some thread waits for and another one sets.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    value: Mutex<Option<T>>,
    ready: Condvar,
}

impl<T: Copy> Outcome<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { value: Mutex::new(None), ready: Condvar::new() })
    }

    pub(crate) fn set(&self, value: T) {
        *self.lock() = Some(value);
        self.ready.notify_all();
    }

    pub(crate) fn get(&self) -> Option<T> {
        *self.lock()
    }

    pub(crate) fn wait(&self) -> T {
        let mut value = self.lock();
        loop {
            match *value {
                Some(value) => return value,
                None => value = self.ready.wait(value).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(crate) fn wait_timeout(&self, timeout: Duration) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut value = self.lock();
        while value.is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            value = self.ready.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *value
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

    /// No code under this lock can panic, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that the provider may still be working on. Dropping it does not cancel it.
#[derive(Debug)]
#[must_use = "the request may fail later"]
pub struct Request {
    call: &'static str,
    outcome: Arc<Outcome<NTSTATUS>>,
}

impl Request {
    /// Starts a request; `start` passes what it is given on to the provider.
    pub(crate) fn start(
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
        Self { call, outcome }
    }

    /// How it ended, or `None` while it pends.
    #[must_use]
    pub fn poll(&self) -> Option<Result<()>> {
        self.outcome.get().map(|status| NdkError::check(self.call, status))
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The status of the request.
    pub fn wait(self) -> Result<()> {
        NdkError::check(self.call, self.outcome.wait())
    }

    /// Waits for the end, but not longer than `timeout`.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<()>> {
        self.outcome.wait_timeout(timeout).map(|status| NdkError::check(self.call, status))
    }
}

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

/// Creates an object and waits for it.
pub(crate) fn create<T>(
    call: &'static str,
    start: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut T) -> NTSTATUS,
) -> Result<NonNull<T>> {
    let outcome = Outcome::<Created>::new();
    let context = outcome.context();
    let mut inline: *mut T = std::ptr::null_mut();
    let status = start(Some(create_completed), context, &raw mut inline);
    let (status, object) = if status == STATUS_PENDING {
        let created = outcome.wait();
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
    use driver::abi::{STATUS_CANCELLED, STATUS_SUCCESS};

    #[test]
    fn an_inline_end_needs_no_callback() {
        let request = Request::start("NdkTest", |_, _| STATUS_CANCELLED);
        assert_eq!(request.poll().unwrap().unwrap_err().status, STATUS_CANCELLED);
        Request::start("NdkTest", |_, _| STATUS_SUCCESS).wait().unwrap();
    }

    #[test]
    fn a_callback_may_come_before_the_call_returns() {
        let request = Request::start("NdkTest", |completion, context| {
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
        let request = Request::start("NdkTest", |completion, context| {
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
