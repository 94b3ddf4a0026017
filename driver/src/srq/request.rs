//! A consumer's requests to the poll core for a shared receive queue.

use crate::abi::*;
use crate::object::done::RequestDone;
use crate::object::id::{Context, ObjectId};

/// The attributes of a new SRQ.
pub(crate) struct CreateSrq {
    /// The core that it lives on.
    pub(crate) core: u8,
    pub(crate) depth: u32,
    pub(crate) max_sge: u32,
    pub(crate) threshold: u32,
    pub(crate) notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    pub(crate) context: Context,
}

/// Changes an SRQ; 0 keeps depth or threshold.
pub(crate) struct ModifySrq {
    pub(crate) srq: ObjectId,
    pub(crate) depth: u32,
    pub(crate) threshold: u32,
    pub(crate) done: RequestDone,
}
