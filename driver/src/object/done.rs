//! How a request ends: the callbacks that a consumer gave with it.

use super::id::Context;
use crate::abi::*;
use alloc::boxed::Box;

/// How a request that returned `STATUS_PENDING` ends.
#[derive(Clone, Copy)]
pub(crate) struct RequestDone {
    pub(crate) callback: NDK_FN_REQUEST_COMPLETION,
    pub(crate) context: Context,
}

impl RequestDone {
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: no callback, and the request would end unheard.
    pub(crate) fn new(
        callback: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> Result<Self, NTSTATUS> {
        let callback = callback.ok_or(STATUS_INVALID_PARAMETER)?;
        Ok(Self { callback, context: Context::new(context) })
    }
}

/// How a creation that returned `STATUS_PENDING` ends.
#[derive(Clone, Copy)]
pub(crate) struct CreateDone {
    pub(crate) callback: NDK_FN_CREATE_COMPLETION,
    pub(crate) context: Context,
}

impl CreateDone {
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: there is no callback, so no consumer would ever have the object, to
    /// close it.
    pub(crate) fn new(
        callback: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
    ) -> Result<Self, NTSTATUS> {
        let callback = callback.ok_or(STATUS_INVALID_PARAMETER)?;
        Ok(Self { callback, context: Context::new(context) })
    }
}

/// How a close ends.
pub(crate) enum CloseDone {
    /// By the consumer's callback.
    Callback(NDK_FN_CLOSE_COMPLETION, Context),
    /// By a signal to the thread that waits in the close of the adapter.
    Signal(Closed),
}

/// Is told that an adapter is closed. It is called in a turn of the core.
pub type Closed = Box<dyn FnOnce() + Send>;
