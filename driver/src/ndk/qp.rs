//! Queue pairs: posting.

use super::{Context, Object, ndk_close, ndk_query_extension, not_supported as ns, slice};
use crate::abi::*;
use crate::ring::{Doorbell, Exclusive, FLUSH};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use rocev2::ids::{Lkey, Rkey};
use rocev2::qp::work::{MAX_MESSAGE, RecvWr, SendOp, SendWr, SgList, Sge, sg_len};

/// A queue pair.
pub(crate) type QpObject = Object<NDK_QP, QpShared>;

/// What to create.
pub(crate) struct CreateQp {
    pub(crate) receive_cq: super::ObjectId,
    pub(crate) initiator_cq: super::ObjectId,
    pub(crate) context: Context,
    pub(crate) receive_depth: u32,
    pub(crate) initiator_depth: u32,
    pub(crate) receive_sge: u32,
    pub(crate) initiator_sge: u32,
}

/// What both sides see of a QP.
pub(crate) struct QpShared {
    pub(crate) initiator: Exclusive<Queue<SendWr>>,
    pub(crate) receive: Exclusive<Queue<RecvWr>>,
    /// Requests of the initiator queue that have ended.
    pub(crate) initiator_retired: AtomicU32,
    /// Requests of the receive queue that have ended.
    pub(crate) receive_retired: AtomicU32,
    /// Initiator requests are accepted.
    pub(crate) connected: AtomicBool,
    pub(crate) doorbell: Doorbell,
}

/// The consumer's end of a work queue.
pub(crate) struct Queue<T> {
    ring: rtrb::Producer<T>,
    depth: u32,
    max_sge: usize,
    posted: u32,
}

impl<T> Queue<T> {
    pub(crate) const fn new(ring: rtrb::Producer<T>, depth: u32, max_sge: u32) -> Self {
        Self { ring, depth, max_sge: max_sge as usize, posted: 0 }
    }

    /// Queues a request unless `depth` of them have not ended.
    fn push(&mut self, request: T, retired: &AtomicU32) -> Result<(), NTSTATUS> {
        if self.posted.wrapping_sub(retired.load(Ordering::Acquire)) >= self.depth {
            return Err(STATUS_NO_MORE_ENTRIES);
        }
        self.ring.push(request).map_err(|_| STATUS_NO_MORE_ENTRIES)?;
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }

    fn sg_list(&self, sgl: &[NDK_SGE]) -> Result<SgList, NTSTATUS> {
        if sgl.len() > self.max_sge {
            return Err(STATUS_DATA_OVERRUN);
        }
        let list: SgList = sgl
            .iter()
            .map(|sge| Sge {
                addr: sge.virtual_address().addr() as u64,
                len: sge.Length,
                lkey: Lkey::new(sge.MemoryRegionToken),
            })
            .collect();
        if sg_len(&list) > MAX_MESSAGE { Err(STATUS_BUFFER_OVERFLOW) } else { Ok(list) }
    }
}

/// The table of every QP.
pub(crate) static DISPATCH: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: ndk_close,
    NdkQueryExtension: ndk_query_extension,
    NdkFlush: ndk_flush,
    NdkSend: ndk_send,
    NdkReceive: ndk_receive,
    NdkBind: ns::bind,
    NdkFastRegister: ns::fast_register,
    NdkInvalidate: ns::invalidate,
    NdkRead: ndk_read,
    NdkWrite: ndk_write,
    NdkSendAndInvalidate: ndk_send_and_invalidate,
};

impl QpObject {
    /// Posts to the initiator queue. The entered queue keeps the QP from being freed until the
    /// doorbell is rung.
    fn post(&self, context: PVOID, op: SendOp, sgl: &[NDK_SGE], flags: ULONG) -> NTSTATUS {
        let Some(mut queue) = self.shared.initiator.enter() else {
            return STATUS_INVALID_DEVICE_REQUEST;
        };
        let result = self.post_entered(&mut queue, context, op, sgl, flags);
        // A deferred request waits for the next that is not, or for one that fails.
        if flags & NDK_OP_FLAG_DEFER == 0 || result.is_err() {
            self.base.shard.ring(self.base.id, &self.shared.doorbell, 0);
        }
        match result {
            Ok(()) => STATUS_SUCCESS,
            Err(status) => status,
        }
    }

    fn post_entered(
        &self,
        queue: &mut Queue<SendWr>,
        context: PVOID,
        op: SendOp,
        sgl: &[NDK_SGE],
        flags: ULONG,
    ) -> Result<(), NTSTATUS> {
        if self.base.is_closing() {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        if !self.shared.connected.load(Ordering::Acquire) {
            return Err(STATUS_CONNECTION_INVALID);
        }
        let list = queue.sg_list(sgl)?;
        // Inline data is not offered (MaxInlineDataSize is 0).
        if flags & NDK_OP_FLAG_INLINE != 0 && sg_len(&list) > 0 {
            return Err(STATUS_BUFFER_OVERFLOW);
        }
        let request = SendWr {
            id: Context::new(context).as_u64(),
            op,
            sgl: list,
            solicited: flags & NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT != 0,
            read_fence: flags & NDK_OP_FLAG_READ_FENCE != 0,
            silent: flags & NDK_OP_FLAG_SILENT_SUCCESS != 0,
        };
        queue.push(request, &self.shared.initiator_retired)
    }

    fn post_receive(&self, context: PVOID, sgl: &[NDK_SGE]) -> NTSTATUS {
        let Some(mut queue) = self.shared.receive.enter() else {
            return STATUS_INVALID_DEVICE_REQUEST;
        };
        if self.base.is_closing() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let posted = queue.sg_list(sgl).and_then(|sgl| {
            let request = RecvWr { id: Context::new(context).as_u64(), sgl };
            queue.push(request, &self.shared.receive_retired)
        });
        self.base.shard.ring(self.base.id, &self.shared.doorbell, 0);
        match posted {
            Ok(()) => STATUS_SUCCESS,
            Err(status) => status,
        }
    }
}

/// Refuses a request of a kind that is not offered. As with every post that fails, what was deferred
/// before it is deferred no longer.
///
/// # Safety
/// `qp` is open.
pub(crate) unsafe fn refuse(qp: *mut NDK_QP) -> NTSTATUS {
    // SAFETY: the caller's promise.
    let qp = unsafe { QpObject::from_ndk(qp) };
    let entered = qp.shared.initiator.enter();
    qp.base.shard.ring(qp.base.id, &qp.shared.doorbell, 0);
    drop(entered);
    STATUS_NOT_SUPPORTED
}

/// [`NDK_FN_FLUSH`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_flush):
/// cancels everything queued; the connection is lost with it. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `qp` is open.
unsafe extern "system" fn ndk_flush(qp: *mut NDK_QP) {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = unsafe { QpObject::from_ndk(qp) };
    let shard = qp.base.shard();
    qp.shared.connected.store(false, Ordering::Release);
    // By the doorbell, which always has room: the function has no way to fail.
    shard.ring(qp.base.id, &qp.shared.doorbell, FLUSH);
}

/// [`NDK_FN_SEND`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_send).
/// IRQL <= DISPATCH_LEVEL; lock-free, as the consumer serializes its posts.
///
/// # Safety
/// `qp` is open; `sgl` is readable for `count` elements.
unsafe extern "system" fn ndk_send(
    qp: *mut NDK_QP,
    context: PVOID,
    sgl: *const NDK_SGE,
    count: ULONG,
    flags: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = unsafe { QpObject::from_ndk(qp) };
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    qp.post(context, SendOp::Send, sgl, flags)
}

/// [`NDK_FN_SEND_AND_INVALIDATE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_send_and_invalidate).
/// IRQL <= DISPATCH_LEVEL. The flags come before the token.
///
/// # Safety
/// `qp` is open; `sgl` is readable for `count` elements.
unsafe extern "system" fn ndk_send_and_invalidate(
    qp: *mut NDK_QP,
    context: PVOID,
    sgl: *const NDK_SGE,
    count: ULONG,
    flags: ULONG,
    remote_token: UINT32,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = unsafe { QpObject::from_ndk(qp) };
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    qp.post(context, SendOp::SendInvalidate(Rkey::new(remote_token)), sgl, flags)
}

/// [`NDK_FN_RECEIVE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_receive).
/// IRQL <= DISPATCH_LEVEL. Legal before the QP is connected; on a failed QP the receive completes
/// cancelled.
///
/// # Safety
/// `qp` is open; `sgl` is readable for `count` elements.
unsafe extern "system" fn ndk_receive(
    qp: *mut NDK_QP,
    context: PVOID,
    sgl: *const NDK_SGE,
    count: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = unsafe { QpObject::from_ndk(qp) };
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    qp.post_receive(context, sgl)
}

/// [`NDK_FN_READ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_read).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `qp` is open; `sgl` is readable for `count` elements.
unsafe extern "system" fn ndk_read(
    qp: *mut NDK_QP,
    context: PVOID,
    sgl: *const NDK_SGE,
    count: ULONG,
    remote_address: UINT64,
    remote_token: UINT32,
    flags: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = unsafe { QpObject::from_ndk(qp) };
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    // Local invalidation after a READ is not offered (no adapter flag), so its flag is ignored.
    qp.post(context, SendOp::Read { va: remote_address, rkey: Rkey::new(remote_token) }, sgl, flags)
}

/// [`NDK_FN_WRITE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_write).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `qp` is open; `sgl` is readable for `count` elements.
unsafe extern "system" fn ndk_write(
    qp: *mut NDK_QP,
    context: PVOID,
    sgl: *const NDK_SGE,
    count: ULONG,
    remote_address: UINT64,
    remote_token: UINT32,
    flags: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = unsafe { QpObject::from_ndk(qp) };
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    qp.post(
        context,
        SendOp::Write { va: remote_address, rkey: Rkey::new(remote_token) },
        sgl,
        flags,
    )
}
