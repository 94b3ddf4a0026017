//! A consumer's requests to the poll core for a connector.

use crate::abi::*;
use crate::limits::{MAX_CALLEE_DATA, MAX_CALLER_DATA};
use crate::object::done::RequestDone;
use crate::object::id::{Context, ObjectId};
use alloc::boxed::Box;
use core::net::SocketAddr;
use rocev2::cm::ReadLimits;

/// Private data of a connect.
pub(crate) type CallerData = heapless::Vec<u8, MAX_CALLER_DATA>;

/// Private data of an accept or a reject.
pub(crate) type CalleeData = heapless::Vec<u8, MAX_CALLEE_DATA>;

/// The receiver of the disconnect event.
#[derive(Clone, Copy)]
pub(crate) enum DisconnectEvent {
    Plain(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, Context),
    WithReason(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>, Context),
}

/// A new connector has no attributes.
pub(crate) struct CreateConnector;

/// Connects to a listener of a peer.
pub(crate) struct Connect {
    pub(crate) connector: ObjectId,
    pub(crate) what: Box<Attempt>,
    pub(crate) done: RequestDone,
}

/// The values of a connect: made by the call, and kept by the connector until the attempt fails or the connector
/// is closed.
pub(crate) struct Attempt {
    pub(crate) qp: ObjectId,
    /// The port is 0 for any, until the core has taken one.
    pub(crate) local: SocketAddr,
    /// The shared endpoint that has `local` for the connection.
    pub(crate) endpoint: Option<ObjectId>,
    pub(crate) remote: SocketAddr,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: CallerData,
}

/// Confirms a connection that the peer has accepted.
pub(crate) struct CompleteConnect {
    pub(crate) connector: ObjectId,
    pub(crate) event: DisconnectEvent,
    pub(crate) done: RequestDone,
}

/// Accepts a connection that a peer asked for.
pub(crate) struct Accept {
    pub(crate) connector: ObjectId,
    pub(crate) what: Box<Acceptance>,
    pub(crate) done: RequestDone,
}

/// The terms of an accept.
pub(crate) struct Acceptance {
    pub(crate) qp: ObjectId,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: CalleeData,
    pub(crate) event: DisconnectEvent,
}

/// Refuses a connection that a peer asked for, or the terms of its answer.
pub(crate) struct Reject {
    pub(crate) connector: ObjectId,
    pub(crate) private_data: Box<CalleeData>,
}

/// Ends a connection.
pub(crate) struct Disconnect {
    pub(crate) connector: ObjectId,
    pub(crate) done: RequestDone,
}
