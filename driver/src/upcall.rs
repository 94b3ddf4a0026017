//! Calls into the consumer, made at the end of a turn.
#![allow(unsafe_code, reason = "calls the consumer's C callbacks")]

use crate::abi::*;
use crate::connector::request::DisconnectEvent;
use crate::object::done::{CreateDone, RequestDone};
use crate::object::id::{Context, ObjectId};
use crate::sync::modelled::AtomicBool;
use core::sync::atomic::Ordering;

/// A call into the consumer.
pub(crate) enum Upcall {
    Created { done: CreateDone, status: NTSTATUS, object: Context },
    Requested { done: RequestDone, status: NTSTATUS },
    ConnectEvent { callback: NDK_FN_CONNECT_EVENT_CALLBACK, context: Context, connector: Context },
    Disconnected { event: DisconnectEvent, reason: u32 },
    Closed { object: ObjectId },
}

/// The notification of a CQ or an SRQ.
#[derive(Clone, Copy)]
pub(crate) struct Notice {
    pub(crate) callback: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    pub(crate) context: Context,
    pub(crate) status: NTSTATUS,
}

impl Notice {
    /// Makes it. One at a time of an object, as only the thread of its core makes them.
    #[inline(always)]
    pub(crate) fn call(self) {
        // SAFETY: the consumer's callback with the consumer's context, of an object that is not closed yet.
        unsafe { (self.callback)(self.context.get(), self.status) };
    }
}

/// Whether a notification of an object is inside the consumer, while its core does not hold its lane. The object's close
/// completes after it.
#[derive(Debug, Default)]
pub(crate) struct Calling(AtomicBool);

impl Calling {
    /// A notification begins. The core holds the lane.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// It has returned.
    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether one is inside, for the desk, which has borrowed the lane.
    pub(crate) fn is_inside(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
