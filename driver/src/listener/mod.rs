//! Listeners.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod shared;
