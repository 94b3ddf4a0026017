//! The state of a queue pair that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::bytes::inline::InlineSlots;
use crate::object::shared::Object;
use crate::shard::Bell;
use crate::sync::{Doorbell, Exclusive};
use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use rocev2::ids::Lkey;
use rocev2::mr::PdId;
use rocev2::qp::{RecvPoster, SendPoster};

/// A queue pair.
pub(crate) type QpObject = Object<NDK_QP, QpShared>;

/// The shared state of a QP.
pub(crate) struct QpShared {
    pub(crate) pd: PdId,
    pub(crate) initiator: Exclusive<SendPoster>,
    /// Elements of an initiator request, at most.
    pub(crate) initiator_sge: usize,
    /// Entered by posts even where receives come from a shared queue, and there is no poster.
    pub(crate) receive: Exclusive<Option<RecvPoster>>,
    /// Elements of a receive, at most.
    pub(crate) receive_sge: usize,
    /// Where inline data lies until its request has ended; `None` where none is offered.
    pub(crate) inline: Option<Inline>,
    /// Initiator requests are accepted.
    pub(crate) connected: AtomicBool,
    /// The connection was agreed on with READs of ours. Stored before `connected`.
    pub(crate) reads: AtomicBool,
    pub(crate) bell: Bell,
    pub(crate) doorbell: Doorbell,
}

/// The inline data of a QP: a registration of its own, whose addresses are the offsets in it.
pub(crate) struct Inline {
    pub(crate) slots: Arc<InlineSlots>,
    pub(crate) key: Lkey,
}

const _: () = assert!(core::mem::offset_of!(QpObject, base) == 0x30);
