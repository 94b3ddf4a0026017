//! Calls into the consumer, made at the end of a turn.

use crate::abi::*;
use crate::connector::request::DisconnectEvent;
use crate::object::done::{CreateDone, RequestDone};
use crate::object::id::{Context, ObjectId};

/// A call into the consumer.
pub(crate) enum Upcall {
    Created { done: CreateDone, status: NTSTATUS, object: Context },
    Requested { done: RequestDone, status: NTSTATUS },
    ConnectEvent { callback: NDK_FN_CONNECT_EVENT_CALLBACK, context: Context, connector: Context },
    Disconnected { event: DisconnectEvent, reason: u32 },
    Closed { object: ObjectId },
}
