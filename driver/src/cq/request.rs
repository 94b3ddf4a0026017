//! A consumer's requests to the poll core for a completion queue.

use crate::abi::*;
use crate::object::id::Context;

/// The attributes of a new CQ.
pub(crate) struct CreateCq {
    pub(crate) depth: u32,
    pub(crate) notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    pub(crate) context: Context,
}
