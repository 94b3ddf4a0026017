//! A consumer's request to the poll core for a shared endpoint.

use core::net::SocketAddr;

/// The attributes of a new shared endpoint.
pub(crate) struct CreateSharedEndpoint {
    /// The port is 0 for any.
    pub(crate) local: SocketAddr,
}
