//! A consumer's requests to the poll core for a completion queue.

use crate::abi::*;
use crate::object::done::RequestDone;
use crate::object::id::{Context, ObjectId};

/// The attributes of a new CQ.
pub(crate) struct CreateCq {
    /// The core that it lives on.
    pub(crate) core: u8,
    pub(crate) depth: u32,
    pub(crate) notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    pub(crate) context: Context,
}

/// Changes how many entries a CQ may hold.
pub(crate) struct ResizeCq {
    pub(crate) cq: ObjectId,
    pub(crate) depth: u32,
    pub(crate) done: RequestDone,
}
