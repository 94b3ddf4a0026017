//! The adapter: what it offers, and the creation of everything else.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod request;
pub(crate) mod shared;
