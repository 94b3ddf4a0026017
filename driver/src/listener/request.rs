//! A consumer's requests to the poll core for a listener.

use crate::abi::*;
use crate::object::done::RequestDone;
use crate::object::id::{Context, ObjectId};
use core::net::SocketAddr;

/// The attributes of a new listener.
pub(crate) struct CreateListener {
    pub(crate) event: NDK_FN_CONNECT_EVENT_CALLBACK,
    pub(crate) context: Context,
}

/// Listens at an address; the port is 0 for any.
pub(crate) struct Listen {
    pub(crate) listener: ObjectId,
    pub(crate) local: SocketAddr,
    pub(crate) done: RequestDone,
}
