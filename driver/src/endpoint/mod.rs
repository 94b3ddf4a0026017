//! Shared endpoints: a local address and port for several outgoing connections.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod request;
pub(crate) mod shared;
