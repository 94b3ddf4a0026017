//! Listeners.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod request;
pub(crate) mod shared;
