//! The common part of all tables: sending, closing.
#![allow(unsafe_code, reason = "C functions that are given the consumer's pointers")]

use super::shared::{Context, ObjectId, Prefix};
use crate::abi::*;
use crate::message::{Control, Create, New};
use crate::object::done::{CloseDone, CreateDone};
use crate::shard::Shard;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

/// Sends a creation: `STATUS_PENDING`, or why not. See [`request`].
pub(crate) fn create(
    shard: Arc<Shard>,
    parent: ObjectId,
    what: impl Into<New>,
    done: CreateDone,
) -> Result<NTSTATUS, NTSTATUS> {
    let what = shard.boxed(what.into())?;
    // The place of the close that must not fail.
    shard.reserve_object().map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
    match shard.request(Create { parent, what, done }) {
        Ok(()) => Ok(STATUS_PENDING),
        Err(_) => {
            shard.release_object();
            Err(STATUS_INSUFFICIENT_RESOURCES)
        }
    }
}

/// Sends a request: `STATUS_PENDING`, or why not.
///
/// It borrows nothing of the object and holds the shard by itself: once the message is sent, the
/// core may finish the request, and the consumer close the object and the whole provider, before
/// this returns.
pub(crate) fn request(
    shard: Arc<Shard>,
    message: impl Into<Control>,
) -> Result<NTSTATUS, NTSTATUS> {
    match shard.request(message) {
        Ok(()) => Ok(STATUS_PENDING),
        Err(_) => Err(STATUS_INSUFFICIENT_RESOURCES),
    }
}

/// [`NDK_FN_CLOSE_OBJECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_close_object):
/// closes an object of the table's type. Never fails. IRQL <= DISPATCH_LEVEL.
///
/// A handle of another object, and a close without a completion, is a mistake of the consumer, and nothing
/// is closed: `STATUS_INVALID_PARAMETER`. So is a second close of an object that is still closing: it gets
/// `STATUS_INVALID_DEVICE_STATE`, and the completion comes once, for the first.
///
/// # Safety
/// `object` is null or an object of this provider that was not freed.
pub(crate) unsafe extern "system" fn ndk_close<N: NdkObject>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    let Some(callback) = completion else { return STATUS_INVALID_PARAMETER };
    // SAFETY: null or not freed, by the consumer's promise.
    let prefix = match unsafe { Prefix::find(object.cast(), N::TYPE) } {
        Ok(prefix) => prefix,
        Err(status) => return status,
    };
    if prefix.base.closing.swap(true, Ordering::AcqRel) {
        return STATUS_INVALID_DEVICE_STATE;
    }
    prefix.base.close(CloseDone::Callback(callback, Context::new(context)));
    STATUS_PENDING
}

/// [`NDK_FN_QUERY_EXTENSION_INTERFACE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_query_extension_interface):
/// no extension is defined, so none is offered. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// None: nothing is touched.
pub(crate) unsafe extern "system" fn ndk_query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *const GUID,
    _version: NDK_VERSION,
    _extension: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}
