//! Connectors: one end of a connection each.

mod accept;
pub(crate) mod call;
mod connect;
pub(crate) mod core;
mod end;
pub(crate) mod request;
pub(crate) mod shared;
mod state;
