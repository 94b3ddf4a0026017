//! Shared receive queues: receives that any of several QPs may take.
//!
//! A receive completes on the receive CQ of the QP that took it. A QP that fails returns only the receive
//! that it has taken, cancelled; the others stay for the other QPs (IBTA ch. 10, SRQ). Receives that are
//! queued when the SRQ itself is closed end without a completion: its QPs are closed before, so there is no
//! CQ for one.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod request;
pub(crate) mod shared;
