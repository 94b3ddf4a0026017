//! The receive side of a queue pair: receives, the peer's requests, and their responses.

mod common;
mod early;
pub(super) mod entry;
mod gaps;
pub(super) mod queue;
mod read;
pub(super) mod reorder_buffer;
pub(super) mod responder;
mod unsolicited_ack;
