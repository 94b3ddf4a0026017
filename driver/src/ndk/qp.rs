//! Queue pairs: posting.

use super::mr::{FastRegister, MrObject, MrShared, remote_access};
use super::mw::{MwObject, MwShared};
use super::queue::{Queue, Slots, status_of};
use super::regions::InlineSlots;
use super::{Context, Object, ndk_close, ndk_query_extension, slice};
use crate::abi::*;
use crate::ring::{Doorbell, Exclusive, FLUSH};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use rocev2::ids::{Lkey, Rkey};
use rocev2::mr::{Bind, PdId};
use rocev2::qp::work::{RecvWr, SendOp, SendWr, SgList, Sge};

/// Bytes of inline data in one request, at most. Small enough that a queue of the largest depth takes
/// a megabyte for them.
pub(crate) const MAX_INLINE: u32 = 256;

/// A queue pair.
pub(crate) type QpObject = Object<NDK_QP, QpShared>;

/// What to create.
pub(crate) struct CreateQp {
    pub(crate) receive_cq: super::ObjectId,
    pub(crate) initiator_cq: super::ObjectId,
    /// Takes the place of a receive queue of its own.
    pub(crate) srq: Option<super::ObjectId>,
    pub(crate) context: Context,
    pub(crate) receive_depth: u32,
    pub(crate) initiator_depth: u32,
    pub(crate) receive_sge: u32,
    pub(crate) initiator_sge: u32,
    /// Bytes of inline data per request.
    pub(crate) inline_len: u32,
}

/// What both sides see of a QP.
pub(crate) struct QpShared {
    pub(crate) pd: PdId,
    pub(crate) initiator: Exclusive<Queue<SendWr>>,
    pub(crate) receive: Exclusive<Queue<RecvWr>>,
    pub(crate) initiator_slots: Slots,
    pub(crate) receive_slots: Slots,
    /// Where inline data lies until its request has ended; `None` where none is offered.
    pub(crate) inline: Option<Inline>,
    /// Receives come from a shared receive queue.
    pub(crate) has_srq: bool,
    /// Initiator requests are accepted.
    pub(crate) connected: AtomicBool,
    /// The connection was agreed on with READs of ours. Stored before `connected`.
    pub(crate) reads: AtomicBool,
    pub(crate) doorbell: Doorbell,
}

/// The inline data of a QP: a registration of its own, whose addresses are the offsets in it.
pub(crate) struct Inline {
    pub(crate) slots: Arc<InlineSlots>,
    pub(crate) key: Lkey,
}

/// The table of every QP.
pub(crate) static DISPATCH: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: ndk_close::<NDK_QP>,
    NdkQueryExtension: ndk_query_extension,
    NdkFlush: ndk_flush,
    NdkSend: ndk_send,
    NdkReceive: ndk_receive,
    NdkBind: ndk_bind,
    NdkFastRegister: ndk_fast_register,
    NdkInvalidate: ndk_invalidate,
    NdkRead: ndk_read,
    NdkWrite: ndk_write,
    NdkSendAndInvalidate: ndk_send_and_invalidate,
};

impl QpObject {
    /// Posts what `prepare` gives to the initiator queue, if it takes another request; what `prepare`
    /// takes is not lost. The entered queue keeps the QP from being freed until the doorbell is rung.
    fn post(
        &self,
        context: PVOID,
        flags: ULONG,
        prepare: impl FnOnce(&Queue<SendWr>) -> Result<(SendOp, SgList), NTSTATUS>,
    ) -> NTSTATUS {
        let Some(mut queue) = self.shared.initiator.enter() else {
            return STATUS_INVALID_DEVICE_REQUEST;
        };
        let result = self.post_entered(&mut queue, context, flags, prepare);
        // A deferred request waits for the next that is not, or for one that fails.
        if flags & NDK_OP_FLAG_DEFER == 0 || result.is_err() {
            self.base.shard.ring(self.base.id, &self.shared.doorbell, 0);
        }
        status_of(result)
    }

    fn post_entered(
        &self,
        queue: &mut Queue<SendWr>,
        context: PVOID,
        flags: ULONG,
        prepare: impl FnOnce(&Queue<SendWr>) -> Result<(SendOp, SgList), NTSTATUS>,
    ) -> Result<(), NTSTATUS> {
        if self.base.is_closing() {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        if !self.shared.connected.load(Ordering::Acquire) {
            return Err(STATUS_CONNECTION_INVALID);
        }
        let slots = &self.shared.initiator_slots;
        queue.check_room(slots)?;
        let (op, sgl) = prepare(queue)?;
        let request = SendWr {
            id: Context::new(context).as_u64(),
            op,
            sgl,
            solicited: flags & NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT != 0,
            read_fence: flags & NDK_OP_FLAG_READ_FENCE != 0,
            silent: flags & NDK_OP_FLAG_SILENT_SUCCESS != 0,
        };
        queue.push(request, slots)
    }

    /// Posts a request over registered memory.
    fn post_data(&self, context: PVOID, op: SendOp, sgl: &[NDK_SGE], flags: ULONG) -> NTSTATUS {
        self.post(context, flags, |queue| Ok((op, queue.sg_list(sgl)?)))
    }

    /// Posts a request whose data may be inline. Inline data is copied here, to where it stays until
    /// the request has ended; the elements may then be more than the queue takes, and their tokens
    /// mean nothing.
    ///
    /// # Safety
    /// The elements of an inline request are readable kernel addresses.
    unsafe fn post_source(
        &self,
        context: PVOID,
        op: SendOp,
        sgl: &[NDK_SGE],
        flags: ULONG,
    ) -> NTSTATUS {
        if flags & NDK_OP_FLAG_INLINE == 0 {
            return self.post_data(context, op, sgl, flags);
        }
        self.post(context, flags, |queue| {
            let slot = queue.turn();
            // SAFETY: the caller's promise; the queue has room, so the slot is free.
            let inline = unsafe { self.copy_inline(slot, sgl) }?;
            Ok((op, inline))
        })
    }

    /// Copies the elements of an inline request.
    ///
    /// # Safety
    /// They are readable, and no request uses the slot.
    unsafe fn copy_inline(&self, slot: usize, sgl: &[NDK_SGE]) -> Result<SgList, NTSTATUS> {
        let mut list = SgList::new();
        let len: u64 = sgl.iter().map(|sge| u64::from(sge.Length)).sum();
        if len == 0 {
            return Ok(list);
        }
        let Some(Inline { slots, key }) =
            self.shared.inline.as_ref().filter(|inline| len <= inline.slots.slot_len() as u64)
        else {
            return Err(STATUS_BUFFER_OVERFLOW);
        };
        // SAFETY: the caller's promise.
        unsafe { slots.fill(slot, sgl) };
        // The length of a slot at most.
        let sge = Sge { addr: slots.offset(slot), len: len as u32, lkey: *key };
        let pushed = list.push(sge);
        debug_assert!(pushed.is_ok());
        Ok(list)
    }

    fn post_receive(&self, context: PVOID, sgl: &[NDK_SGE]) -> NTSTATUS {
        // A queue pair with a shared receive queue has none of its own.
        if self.shared.has_srq {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        let Some(mut queue) = self.shared.receive.enter() else {
            return STATUS_INVALID_DEVICE_REQUEST;
        };
        if self.base.is_closing() {
            return STATUS_INVALID_DEVICE_STATE;
        }
        let posted = queue.post_receive(context, sgl, &self.shared.receive_slots);
        self.base.shard.ring(self.base.id, &self.shared.doorbell, 0);
        posted
    }

    /// A region or window of a request, which has to be of this provider and of the domain.
    ///
    /// # Safety
    /// `object` is null or an object that lives for `'a`.
    unsafe fn member<'a, N: NdkObject, S>(
        &self,
        object: *mut N,
        domain: impl FnOnce(&S) -> PdId,
    ) -> Result<&'a Object<N, S>, NTSTATUS> {
        // SAFETY: the caller's promise.
        let object = unsafe { Object::<N, S>::check(object) }?;
        if !self.same_provider(object) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let inside = domain(&object.shared) == self.shared.pd;
        if inside { Ok(object) } else { Err(STATUS_ACCESS_VIOLATION) }
    }

    /// # Safety
    /// As for [`Self::member`].
    unsafe fn mr<'a>(&self, mr: *mut NDK_MR) -> Result<&'a MrObject, NTSTATUS> {
        // SAFETY: the caller's promise.
        unsafe { self.member(mr, |shared: &MrShared| shared.pd) }
    }

    /// # Safety
    /// As for [`Self::member`].
    unsafe fn mw<'a>(&self, mw: *mut NDK_MW) -> Result<&'a MwObject, NTSTATUS> {
        // SAFETY: the caller's promise.
        unsafe { self.member(mw, |shared: &MwShared| shared.pd) }
    }
}

/// [`NDK_FN_FLUSH`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_flush):
/// cancels everything queued; the connection is lost with it. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `qp` is open.
unsafe extern "system" fn ndk_flush(qp: *mut NDK_QP) {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let Ok(qp) = (unsafe { QpObject::check(qp) }) else { return };
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
    let qp = or_return!(unsafe { QpObject::check(qp) });
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    // SAFETY: the consumer's promise about inline data.
    unsafe { qp.post_source(context, SendOp::Send, sgl, flags) }
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
    let qp = or_return!(unsafe { QpObject::check(qp) });
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    let op = SendOp::SendInvalidate(Rkey::new(remote_token));
    // SAFETY: the consumer's promise about inline data.
    unsafe { qp.post_source(context, op, sgl, flags) }
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
    let qp = or_return!(unsafe { QpObject::check(qp) });
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    qp.post_receive(context, sgl)
}

/// [`NDK_FN_READ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_read).
/// IRQL <= DISPATCH_LEVEL.
///
/// `STATUS_INVALID_DEVICE_REQUEST` on a connection whose effective outbound read limit is 0: nothing
/// is queued, and the QP goes on.
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
    let qp = or_return!(unsafe { QpObject::check(qp) });
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    let (va, rkey) = (remote_address, Rkey::new(remote_token));
    let op = if flags & NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE != 0 {
        SendOp::ReadInvalidate { va, rkey }
    } else {
        SendOp::Read { va, rkey }
    };
    qp.post(context, flags, |queue| {
        if !qp.shared.reads.load(Ordering::Relaxed) {
            return Err(STATUS_INVALID_DEVICE_REQUEST);
        }
        Ok((op, queue.sg_list(sgl)?))
    })
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
    let qp = or_return!(unsafe { QpObject::check(qp) });
    // SAFETY: the consumer's promise about the list.
    let sgl = unsafe { slice(sgl, count) };
    let op = SendOp::Write { va: remote_address, rkey: Rkey::new(remote_token) };
    // SAFETY: the consumer's promise about inline data.
    unsafe { qp.post_source(context, op, sgl, flags) }
}

/// [`NDK_FN_FAST_REGISTER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_fast_register).
/// IRQL <= DISPATCH_LEVEL; takes no lock and no memory: the pages are copied into a list that the
/// region has held since it was initialised.
///
/// Inline it fails with `STATUS_INVALID_DEVICE_REQUEST` for a region of the other kind,
/// `STATUS_INVALID_DEVICE_STATE` for one that is not initialised, `STATUS_INVALID_PARAMETER` for
/// numbers that do not fit each other, `STATUS_ACCESS_VIOLATION` for remote rights on a region that
/// was initialised without and for a region of another domain, and
/// `STATUS_INSUFFICIENT_RESOURCES` where all page lists of the region are queued or in force. Whether
/// the region is free to be mapped is only known in its turn: if not, the request ends with
/// `STATUS_INVALID_DEVICE_REQUEST`.
///
/// # Safety
/// `qp` is open, `mr` null or open; `pages` is null or readable for `count` elements.
unsafe extern "system" fn ndk_fast_register(
    qp: *mut NDK_QP,
    context: PVOID,
    mr: *mut NDK_MR,
    count: ULONG,
    pages: *const NDK_LOGICAL_ADDRESS,
    fbo: ULONG,
    length: SIZE_T,
    base: PVOID,
    flags: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = or_return!(unsafe { QpObject::check(qp) });
    // SAFETY: the consumer's promise about the array; a null one holds nothing.
    let pages = unsafe { slice(pages, count) };
    let what = FastRegister { pages, fbo, len: length as u64, base: base.addr() as u64, flags };
    qp.post(context, flags, |_| {
        // SAFETY: the consumer keeps the region open until this call returns.
        let mr = unsafe { qp.mr(mr) }?;
        Ok((mr.fast_register(&what)?, SgList::new()))
    })
}

/// [`NDK_FN_BIND`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_bind).
/// IRQL <= DISPATCH_LEVEL; takes no lock and no memory.
///
/// Inline it fails with `STATUS_INVALID_PARAMETER` for objects of another kind or provider,
/// `STATUS_INVALID_DEVICE_STATE` for a region without a token, and `STATUS_ACCESS_VIOLATION` for
/// objects of another domain and for remote write on a region without local write. The bounds, and
/// whether the window is free to be bound, are checked in its turn.
///
/// # Safety
/// `qp` is open; `mr` and `mw` are null or open.
unsafe extern "system" fn ndk_bind(
    qp: *mut NDK_QP,
    context: PVOID,
    mr: *mut NDK_MR,
    mw: *mut NDK_MW,
    address: PVOID,
    length: SIZE_T,
    flags: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = or_return!(unsafe { QpObject::check(qp) });
    qp.post(context, flags, |_| {
        // SAFETY: the consumer keeps the region open until this call returns.
        let mr = unsafe { qp.mr(mr) }?;
        // SAFETY: the consumer keeps the window open until this call returns.
        let mw = unsafe { qp.mw(mw) }?;
        let access = remote_access(flags);
        let bind = Bind {
            window: mw.shared.key,
            region: mr.shared.key_to_bind(access)?,
            va: address.addr() as u64,
            len: length as u64,
            access,
        };
        Ok((SendOp::Bind(bind), SgList::new()))
    })
}

/// [`NDK_FN_INVALIDATE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_invalidate).
/// IRQL <= DISPATCH_LEVEL; takes no lock and no memory.
///
/// Inline it fails with `STATUS_INVALID_DEVICE_REQUEST` for a region of `NdkRegisterMr`, which
/// `NdkDeregisterMr` ends, and with `STATUS_INVALID_PARAMETER` for what is neither region nor window.
/// What is not mapped or bound in its turn ends with `STATUS_INVALID_DEVICE_REQUEST`.
///
/// # Safety
/// `qp` is open; `object` is null or an open object.
unsafe extern "system" fn ndk_invalidate(
    qp: *mut NDK_QP,
    context: PVOID,
    object: *mut NDK_OBJECT_HEADER,
    flags: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the QP open until this call returns.
    let qp = or_return!(unsafe { QpObject::check(qp) });
    qp.post(context, flags, |_| {
        // SAFETY: null, or open by the consumer's promise.
        let kind = unsafe { object.as_ref() }.ok_or(STATUS_INVALID_PARAMETER)?.ObjectType;
        let key = if kind == NdkObjectTypeMw {
            // SAFETY: a window that the consumer keeps open until this call returns.
            unsafe { qp.mw(object.cast()) }?.shared.key
        } else {
            // SAFETY: as above, an object of whatever type.
            unsafe { qp.mr(object.cast()) }?.shared.fast_register_key()?
        };
        Ok((SendOp::Invalidate(key), SgList::new()))
    })
}
