//! The NDK objects: what the consumer holds, and what becomes of its calls.
//!
//! The functions of the dispatch tables check arguments and send a message; they never touch the
//! poll core. The core (`super::turn`) owns every object's life: it creates, counts antecedents and
//! successors, and frees after the close completion has returned.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod done;
pub(crate) mod entry;
pub(crate) mod id;
pub(crate) mod request;
pub(crate) mod shared;
