//! A consumer's requests to the poll core for a connector.

use crate::abi::*;
use crate::object::id::{Context, ObjectId};
use core::net::SocketAddr;
use rocev2::cm::ReadLimits;

/// Private data as connection management takes and gives it.
pub(crate) type PrivateData = heapless::Vec<u8, 196>;

/// The receiver of the disconnect event.
#[derive(Clone, Copy)]
pub(crate) enum DisconnectEvent {
    Plain(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, Context),
    WithReason(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>, Context),
}

/// A connect on its way to the core.
pub(crate) struct Connect {
    pub(crate) qp: ObjectId,
    /// The port is 0 for any.
    pub(crate) local: SocketAddr,
    /// The shared endpoint that has `local` for the connection.
    pub(crate) endpoint: Option<ObjectId>,
    pub(crate) remote: SocketAddr,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: PrivateData,
}

/// An accept on its way to the core.
pub(crate) struct Accept {
    pub(crate) qp: ObjectId,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: PrivateData,
    pub(crate) event: DisconnectEvent,
}
