//! A queue pair for its consumer: posting.

use super::shared::{Inline, QpObject};
use crate::abi::*;
use crate::mr::call::{FastRegister, remote_access};
use crate::mr::shared::MrObject;
use crate::mw::shared::MwObject;
use crate::object::call::{ndk_close, ndk_query_extension};
use crate::object::entry::{Handle, List, Sgl, entry};
use crate::object::shared::{Context, Object};
use crate::queue::{element, elements};
use crate::sync::{FLUSH, RECEIVES};
use core::sync::atomic::Ordering;
use rocev2::ids::Rkey;
use rocev2::mr::{Bind, PdId};
use rocev2::qp::{RecvPoster, RecvWr, SendOp, SendPoster, SendSlot, SendWr, Sge};

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
    #[inline(always)]
    fn post<S: IntoIterator<Item = Sge>>(
        &self,
        context: PVOID,
        flags: ULONG,
        prepare: impl FnOnce(&SendSlot<'_>) -> Result<(SendOp, S), NTSTATUS>,
    ) -> Result<NTSTATUS, NTSTATUS> {
        let mut poster = self.shared.initiator.enter().ok_or(STATUS_INVALID_DEVICE_REQUEST)?;
        let posted = self.post_entered(&mut poster, context, flags, prepare);
        posted.map_err(|status| self.refused(status))?;
        if flags & NDK_OP_FLAG_DEFER == 0 {
            self.base.shard.ring(&self.shared.bell, &self.shared.doorbell, 0);
        }
        Ok(STATUS_SUCCESS)
    }

    /// A deferred request waits for the next that is not, or for one that fails.
    #[cold]
    #[inline(never)]
    fn refused(&self, status: NTSTATUS) -> NTSTATUS {
        self.base.shard.ring(&self.shared.bell, &self.shared.doorbell, 0);
        status
    }

    #[inline(always)]
    fn post_entered<S: IntoIterator<Item = Sge>>(
        &self,
        poster: &mut SendPoster,
        context: PVOID,
        flags: ULONG,
        prepare: impl FnOnce(&SendSlot<'_>) -> Result<(SendOp, S), NTSTATUS>,
    ) -> Result<(), NTSTATUS> {
        if !self.shared.connected.load(Ordering::Acquire) {
            return Err(STATUS_CONNECTION_INVALID);
        }
        let slot = poster.slot().ok_or(STATUS_NO_MORE_ENTRIES)?;
        let (op, sgl) = prepare(&slot)?;
        let request = SendWr {
            id: Context::new(context).as_u64(),
            op,
            sgl,
            solicited: flags & NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT != 0,
            read_fence: flags & NDK_OP_FLAG_READ_FENCE != 0,
            silent: flags & NDK_OP_FLAG_SILENT_SUCCESS != 0,
        };
        // The elements were counted.
        slot.post(request).map_err(|_| STATUS_DATA_OVERRUN)
    }

    /// Posts a request over registered memory.
    #[inline(always)]
    fn post_data(
        &self,
        context: PVOID,
        op: SendOp,
        sgl: Sgl<'_>,
        flags: ULONG,
    ) -> Result<NTSTATUS, NTSTATUS> {
        let Some(sge) = sgl.single() else { return self.post_list(context, op, sgl, flags) };
        self.post(context, flags, |_| {
            self.check_reads(&op)?;
            Ok((op, Some(element(sge, self.shared.initiator_sge)?)))
        })
    }

    /// Posts a request that may have no element, or several. Not inlined, as most have one.
    #[inline(never)]
    fn post_list(
        &self,
        context: PVOID,
        op: SendOp,
        sgl: Sgl<'_>,
        flags: ULONG,
    ) -> Result<NTSTATUS, NTSTATUS> {
        self.post(context, flags, |_| {
            self.check_reads(&op)?;
            Ok((op, elements(sgl, self.shared.initiator_sge)?))
        })
    }

    /// Refuses a READ on a connection that was agreed on without.
    #[inline(always)]
    fn check_reads(&self, op: &SendOp) -> Result<(), NTSTATUS> {
        let refused = op.is_read() && !self.shared.reads.load(Ordering::Relaxed);
        if refused { Err(STATUS_INVALID_DEVICE_REQUEST) } else { Ok(()) }
    }

    /// Posts a request whose data may be inline.
    #[inline(always)]
    fn post_source(
        &self,
        context: PVOID,
        op: SendOp,
        sgl: Sgl<'_>,
        flags: ULONG,
    ) -> Result<NTSTATUS, NTSTATUS> {
        if flags & NDK_OP_FLAG_INLINE == 0 {
            self.post_data(context, op, sgl, flags)
        } else {
            self.post_inline(context, op, sgl, flags)
        }
    }

    /// Posts a request whose data is copied here, to where it stays until the request has ended; the elements may be more
    /// than the queue takes, and their tokens mean nothing.
    #[inline(never)]
    fn post_inline(
        &self,
        context: PVOID,
        op: SendOp,
        sgl: Sgl<'_>,
        flags: ULONG,
    ) -> Result<NTSTATUS, NTSTATUS> {
        self.post(context, flags, |slot| Ok((op, self.copy_inline(slot, sgl)?)))
    }

    /// Copies the elements of an inline request to the slot of inline data that goes with its place.
    #[allow(unsafe_code, reason = "inline data is named by pointers")]
    fn copy_inline(&self, slot: &SendSlot<'_>, sgl: Sgl<'_>) -> Result<Option<Sge>, NTSTATUS> {
        let mut elements = sgl.elements();
        let Some(Inline { slots, key }) = self.shared.inline.as_ref() else {
            let is_empty = elements.all(|element| element.Length == 0);
            return if is_empty { Ok(None) } else { Err(STATUS_BUFFER_OVERFLOW) };
        };
        let slot = slot.place();
        // SAFETY: the elements are readable, by `Sgl::new`, as the request is inline; the slot is free as its place
        // is, which the caller holds.
        let len = unsafe { slots.fill(slot, elements) }.ok_or(STATUS_BUFFER_OVERFLOW)?;
        // The length of a slot at most.
        Ok((len > 0).then(|| Sge { addr: slots.offset(slot), len: len as u32, lkey: *key }))
    }

    #[inline(always)]
    fn post_receive<S: IntoIterator<Item = Sge>>(
        &self,
        context: PVOID,
        elements: impl FnOnce() -> Result<S, NTSTATUS>,
    ) -> Result<NTSTATUS, NTSTATUS> {
        let mut receive = self.shared.receive.enter().ok_or(STATUS_INVALID_DEVICE_REQUEST)?;
        // A queue pair with a shared receive queue has none of its own.
        let poster = receive.as_mut().ok_or(STATUS_INVALID_DEVICE_REQUEST)?;
        let posted = post_receive_entered(poster, context, elements);
        self.base.shard.ring(&self.shared.bell, &self.shared.doorbell, RECEIVES);
        posted.map(|()| STATUS_SUCCESS)
    }

    /// Posts a receive that may have no element, or several. Not inlined, as most have one.
    #[inline(never)]
    fn post_receive_list(&self, context: PVOID, sgl: Sgl<'_>) -> Result<NTSTATUS, NTSTATUS> {
        self.post_receive(context, || elements(sgl, self.shared.receive_sge))
    }

    /// A region or window of a request, which has to be of this provider and of the domain.
    fn member<'a, N: NdkObject, S>(
        &self,
        object: &Handle<'a, Object<N, S>>,
        domain: impl FnOnce(&S) -> PdId,
    ) -> Result<&'a Object<N, S>, NTSTATUS> {
        let object = object.open()?;
        if !self.same_provider(object) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let inside = domain(&object.shared) == self.shared.pd;
        if inside { Ok(object) } else { Err(STATUS_ACCESS_VIOLATION) }
    }

    fn mr<'a>(&self, mr: &Handle<'a, MrObject>) -> Result<&'a MrObject, NTSTATUS> {
        self.member(mr, |shared| shared.pd)
    }

    fn mw<'a>(&self, mw: &Handle<'a, MwObject>) -> Result<&'a MwObject, NTSTATUS> {
        self.member(mw, |shared| shared.pd)
    }
}

#[inline(always)]
fn post_receive_entered<S: IntoIterator<Item = Sge>>(
    poster: &mut RecvPoster,
    context: PVOID,
    elements: impl FnOnce() -> Result<S, NTSTATUS>,
) -> Result<(), NTSTATUS> {
    let slot = poster.slot().ok_or(STATUS_NO_MORE_ENTRIES)?;
    let wr = RecvWr { id: Context::new(context).as_u64(), sgl: elements()? };
    // The elements were counted.
    slot.post(wr).map_err(|_| STATUS_DATA_OVERRUN)
}

entry! {
    /// [`NDK_FN_FLUSH`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_flush):
    /// cancels everything queued; the connection is lost with it. IRQL <= DISPATCH_LEVEL.
    fn ndk_flush(qp: &QpObject) {
        let shard = qp.base.shard();
        qp.shared.connected.store(false, Ordering::Release);
        // By the doorbell, which always has room: the function has no way to fail.
        shard.ring(&qp.shared.bell, &qp.shared.doorbell, FLUSH);
        Ok(())
    }
}

entry! {
    /// [`NDK_FN_SEND`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_send).
    /// IRQL <= DISPATCH_LEVEL; lock-free, as the consumer serializes its posts.
    fn ndk_send(
        qp: &QpObject,
        context: PVOID,
        sgl: Sgl<'_> = Sgl::new(sgl: *const NDK_SGE, count: ULONG),
        flags: ULONG,
    ) -> NTSTATUS {
        qp.post_source(context, SendOp::Send, sgl, flags)
    }
}

entry! {
    /// [`NDK_FN_SEND_AND_INVALIDATE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_send_and_invalidate).
    /// IRQL <= DISPATCH_LEVEL. The flags come before the token.
    fn ndk_send_and_invalidate(
        qp: &QpObject,
        context: PVOID,
        sgl: Sgl<'_> = Sgl::new(sgl: *const NDK_SGE, count: ULONG),
        flags: ULONG,
        remote_token: UINT32,
    ) -> NTSTATUS {
        qp.post_source(context, SendOp::SendInvalidate(Rkey::new(remote_token)), sgl, flags)
    }
}

entry! {
    /// [`NDK_FN_RECEIVE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_receive).
    /// IRQL <= DISPATCH_LEVEL. Legal before the QP is connected; on a failed QP the receive completes
    /// cancelled.
    fn ndk_receive(
        qp: &QpObject,
        context: PVOID,
        sgl: Sgl<'_> = Sgl::new(sgl: *const NDK_SGE, count: ULONG),
    ) -> NTSTATUS {
        let Some(sge) = sgl.single() else { return qp.post_receive_list(context, sgl) };
        qp.post_receive(context, || Ok(Some(element(sge, qp.shared.receive_sge)?)))
    }
}

entry! {
    /// [`NDK_FN_READ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_read).
    /// IRQL <= DISPATCH_LEVEL.
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` on a connection whose effective outbound read limit is 0: nothing
    /// is queued, and the QP goes on.
    fn ndk_read(
        qp: &QpObject,
        context: PVOID,
        sgl: Sgl<'_> = Sgl::new(sgl: *const NDK_SGE, count: ULONG),
        remote_address: UINT64,
        remote_token: UINT32,
        flags: ULONG,
    ) -> NTSTATUS {
        let (va, rkey) = (remote_address, Rkey::new(remote_token));
        let op = if flags & NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE != 0 {
            SendOp::ReadInvalidate { va, rkey }
        } else {
            SendOp::Read { va, rkey }
        };
        qp.post_data(context, op, sgl, flags)
    }
}

entry! {
    /// [`NDK_FN_WRITE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_write).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_write(
        qp: &QpObject,
        context: PVOID,
        sgl: Sgl<'_> = Sgl::new(sgl: *const NDK_SGE, count: ULONG),
        remote_address: UINT64,
        remote_token: UINT32,
        flags: ULONG,
    ) -> NTSTATUS {
        let op = SendOp::Write { va: remote_address, rkey: Rkey::new(remote_token) };
        qp.post_source(context, op, sgl, flags)
    }
}

entry! {
    /// [`NDK_FN_FAST_REGISTER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_fast_register).
    /// IRQL <= DISPATCH_LEVEL; takes no lock and no memory: the pages are copied into a list that the
    /// region has held since it was initialised.
    ///
    /// Inline it fails with `STATUS_INVALID_DEVICE_REQUEST` for a region of the other kind,
    /// `STATUS_INVALID_DEVICE_STATE` for one that is not initialised, `STATUS_INVALID_PARAMETER` for
    /// numbers that do not fit each other, `STATUS_ACCESS_VIOLATION` for remote rights on a region that
    /// was initialised without and for a region of another domain, and
    /// `STATUS_INSUFFICIENT_RESOURCES` where the page list of the region and those of the pool are queued
    /// or in force. Whether the region is free to be mapped is only known in its turn: if not, the request
    /// ends with `STATUS_INVALID_DEVICE_REQUEST`.
    fn ndk_fast_register(
        qp: &QpObject,
        context: PVOID,
        mr: Handle<'_, MrObject> = Handle::new(mr: *mut NDK_MR),
        pages: List<'_, NDK_LOGICAL_ADDRESS> = List::counted(count: ULONG, pages: *const NDK_LOGICAL_ADDRESS),
        fbo: ULONG,
        length: SIZE_T,
        base: PVOID,
        flags: ULONG,
    ) -> NTSTATUS {
        let what = FastRegister { pages, fbo, len: length as u64, base: base.addr() as u64, flags };
        qp.post(context, flags, |_| Ok((qp.mr(&mr)?.fast_register(what)?, core::iter::empty())))
    }
}

entry! {
    /// [`NDK_FN_BIND`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_bind).
    /// IRQL <= DISPATCH_LEVEL; takes no lock and no memory.
    ///
    /// Inline it fails with `STATUS_INVALID_PARAMETER` for objects of another kind or provider,
    /// `STATUS_INVALID_DEVICE_STATE` for a region without a token, and `STATUS_ACCESS_VIOLATION` for
    /// objects of another domain and for remote write on a region without local write. The bounds, and
    /// whether the window is free to be bound, are checked in its turn.
    fn ndk_bind(
        qp: &QpObject,
        context: PVOID,
        mr: Handle<'_, MrObject> = Handle::new(mr: *mut NDK_MR),
        mw: Handle<'_, MwObject> = Handle::new(mw: *mut NDK_MW),
        address: PVOID,
        length: SIZE_T,
        flags: ULONG,
    ) -> NTSTATUS {
        qp.post(context, flags, |_| {
            let (mr, mw) = (qp.mr(&mr)?, qp.mw(&mw)?);
            let access = remote_access(flags);
            let bind = Bind {
                window: mw.shared.key,
                region: mr.shared.key_to_bind(access)?,
                va: address.addr() as u64,
                len: length as u64,
                access,
            };
            Ok((SendOp::Bind(bind), core::iter::empty()))
        })
    }
}

entry! {
    /// [`NDK_FN_INVALIDATE`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_invalidate).
    /// IRQL <= DISPATCH_LEVEL; takes no lock and no memory.
    ///
    /// Inline it fails with `STATUS_INVALID_DEVICE_REQUEST` for a region of `NdkRegisterMr`, which
    /// `NdkDeregisterMr` ends, and with `STATUS_INVALID_PARAMETER` for an object that is neither region nor
    /// window. In its turn it ends with `STATUS_INVALID_DEVICE_REQUEST` for a region that is not mapped, or a
    /// window that is not bound.
    fn ndk_invalidate(
        qp: &QpObject,
        context: PVOID,
        object: Handle<'_, MrObject> = Handle::new(object: *mut NDK_OBJECT_HEADER),
        flags: ULONG,
    ) -> NTSTATUS {
        qp.post(context, flags, |_| {
            let key = if object.kind()? == NdkObjectTypeMw {
                qp.mw(&object.cast())?.shared.key
            } else {
                qp.mr(&object)?.shared.fast_register_key()?
            };
            Ok((SendOp::Invalidate(key), core::iter::empty()))
        })
    }
}
