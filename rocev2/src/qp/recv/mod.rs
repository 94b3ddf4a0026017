//! The receive side of a queue pair: receives, the peer's requests, and their responses.

mod common;
mod early;
pub(super) mod entry;
mod gaps;
pub(super) mod queue;
mod read;
mod reorder_buffer;
pub(super) mod reorder_pool;
pub(super) mod responder;
mod shares;
mod unsolicited_ack;
