//! A consumer's requests to the poll core for a queue pair.

use crate::object::id::{Context, ObjectId};

/// The attributes of a new QP.
pub(crate) struct CreateQp {
    pub(crate) receive_cq: ObjectId,
    pub(crate) initiator_cq: ObjectId,
    /// Takes the place of a receive queue of its own.
    pub(crate) srq: Option<ObjectId>,
    pub(crate) context: Context,
    pub(crate) receive_depth: u32,
    pub(crate) initiator_depth: u32,
    pub(crate) receive_sge: u32,
    pub(crate) initiator_sge: u32,
    /// Bytes of inline data per request.
    pub(crate) inline_len: u32,
}
