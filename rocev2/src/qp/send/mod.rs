//! The send side of a queue pair: requests, their responses, and loss recovery.

pub(super) mod common;
pub(super) mod completer;
pub(super) mod entry;
pub(super) mod probe;
pub(super) mod proof;
pub(super) mod queue;
pub(super) mod recovery;
pub(super) mod requester;
pub(super) mod retry;
