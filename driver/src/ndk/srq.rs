//! Shared receive queues: receives that any of several QPs may take.
//!
//! A receive completes on the receive CQ of the QP that took it. A QP that fails gives only the
//! receive that it held back, cancelled; the others stay for the other QPs (IBTA ch. 10, SRQ). What
//! is still queued when the SRQ itself is closed ends without a completion: its QPs are closed
//! before, so no CQ is left to tell.

use super::queue::{Queue, Slots};
use super::{
    Context, Control, Object, RequestDone, ndk_close, ndk_query_extension, request, slice,
};
use crate::abi::*;
use crate::ring::{Doorbell, Exclusive};
use rocev2::qp::work::RecvWr;

/// A shared receive queue.
pub(crate) type SrqObject = Object<NDK_SRQ, SrqShared>;

/// What to create.
pub(crate) struct CreateSrq {
    pub(crate) depth: u32,
    pub(crate) max_sge: u32,
    pub(crate) threshold: u32,
    pub(crate) notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    pub(crate) context: Context,
}

/// What both sides see of an SRQ.
pub(crate) struct SrqShared {
    pub(crate) receive: Exclusive<Queue<RecvWr>>,
    pub(crate) slots: Slots,
    pub(crate) doorbell: Doorbell,
}

/// The table of every SRQ.
pub(crate) static DISPATCH: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: ndk_close::<NDK_SRQ>,
    NdkQueryExtension: ndk_query_extension,
    NdkModifySrq: ndk_modify_srq,
    NdkSrqReceive: ndk_srq_receive,
};

impl SrqObject {
    fn post(&self, context: PVOID, sgl: &[NDK_SGE]) -> NTSTATUS {
        let Some(mut queue) = self.shared.receive.enter() else {
            return STATUS_INVALID_DEVICE_REQUEST;
        };
        if self.base.is_closing() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let posted = queue.post_receive(context, sgl, &self.shared.slots);
        self.base.shard.ring(self.base.id, &self.shared.doorbell, 0);
        posted
    }
}

/// [`NDK_FN_MODIFY_SRQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_modify_srq).
/// IRQL <= DISPATCH_LEVEL. A depth of 0 keeps the depth, a threshold of 0 the threshold and its arm.
/// A depth below the receives that are queued ends with `STATUS_BUFFER_OVERFLOW` and changes nothing
/// (as in the user-mode interface).
///
/// # Safety
/// `srq` is open.
unsafe extern "system" fn ndk_modify_srq(
    srq: *mut NDK_SRQ,
    depth: ULONG,
    threshold: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the SRQ open until this call returns.
    let srq = or_return!(unsafe { SrqObject::check(srq) });
    if depth > srq.base.shard.limits.srq_depth {
        return STATUS_INVALID_PARAMETER;
    }
    let done = or_return!(RequestDone::new(completion, context));
    request(srq.base.shard(), Control::ModifySrq { srq: srq.base.id, depth, threshold, done })
}

/// [`NDK_FN_SRQ_RECEIVE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_srq_receive).
/// IRQL <= DISPATCH_LEVEL; lock-free, as the consumer serializes its posts.
///
/// # Safety
/// `srq` is open; `sgl` is readable for `count` elements.
unsafe extern "system" fn ndk_srq_receive(
    srq: *mut NDK_SRQ,
    context: PVOID,
    sgl: *const NDK_SGE,
    count: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the SRQ open until this call returns.
    let srq = or_return!(unsafe { SrqObject::check(srq) });
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    srq.post(context, sgl)
}
