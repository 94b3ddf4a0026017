//! Memory windows: rights to a part of a memory region, given and taken by work requests.
//!
//! A window of ours is of type 2 in IBTA's words: it is bound by a request on a queue pair, and ends
//! by an invalidation, ours or the peer's. Its token is drawn once and stays, so that it is known as
//! soon as `NdkBind` has returned.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod request;
pub(crate) mod shared;
