//! The state of a shared receive queue that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::object::shared::Object;
use crate::queue::{Queue, Slots};
use crate::sync::{Doorbell, Exclusive};
use rocev2::qp::RecvWr;

/// A shared receive queue.
pub(crate) type SrqObject = Object<NDK_SRQ, SrqShared>;

/// The shared state of an SRQ.
pub(crate) struct SrqShared {
    pub(crate) receive: Exclusive<Queue<RecvWr>>,
    pub(crate) slots: Slots,
    pub(crate) doorbell: Doorbell,
}
