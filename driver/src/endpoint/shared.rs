//! The state of a shared endpoint that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::object::shared::Object;
use core::net::SocketAddr;

/// A shared endpoint.
pub(crate) type SharedEndpointObject = Object<NDK_SHARED_ENDPOINT, SharedEndpointShared>;

/// The state between both sides.
pub(crate) struct SharedEndpointShared {
    /// Its address, with the port that was chosen if none was named.
    pub(crate) local: SocketAddr,
}
