//! Protection domains: the parents of memory regions and queue pairs.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod request;
pub(crate) mod shared;
