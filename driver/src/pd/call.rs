//! A protection domain for its consumer: the creation of what belongs to it.

use super::shared::PdObject;
use crate::abi::*;
use crate::cq::shared::CqObject;
use crate::limits::MAX_INLINE;
use crate::mr::request::CreateMr;
use crate::mw::request::CreateMw;
use crate::object::call::{create, ndk_close, ndk_query_extension};
use crate::object::done::CreateDone;
use crate::object::entry::{Handle, Out, entry, processors};
use crate::object::shared::Context;
use crate::qp::request::CreateQp;
use crate::srq::request::CreateSrq;
use crate::srq::shared::SrqObject;
use rocev2::qp::MAX_SGE;

/// The table of every protection domain.
pub(crate) static DISPATCH: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: ndk_close::<NDK_PD>,
    NdkQueryExtension: ndk_query_extension,
    NdkCreateMr: ndk_create_mr,
    NdkCreateMw: ndk_create_mw,
    NdkCreateSrq: ndk_create_srq,
    NdkCreateQp: ndk_create_qp,
    NdkCreateQpWithSrq: ndk_create_qp_with_srq,
    NdkGetPrivilegedMemoryRegionToken: ndk_get_privileged_memory_region_token,
};

entry! {
    /// [`NDK_FN_CREATE_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_mr).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_create_mr(
        pd: &PdObject,
        fast_register: BOOLEAN,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _mr: *mut *mut NDK_MR,
    ) -> NTSTATUS {
        let what = CreateMr { fast_register: fast_register != FALSE };
        let done = CreateDone::new(completion, context)?;
        create(pd.base.shard(), pd.base.id, what, done)
    }
}

entry! {
    /// [`NDK_FN_CREATE_QP`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_qp).
    /// IRQL <= DISPATCH_LEVEL. The CQs may be one object.
    fn ndk_create_qp(
        pd: Handle<'_, PdObject> = Handle::new(pd: *mut NDK_PD),
        receive_cq: Handle<'_, CqObject> = Handle::new(receive_cq: *mut NDK_CQ),
        initiator_cq: Handle<'_, CqObject> = Handle::new(initiator_cq: *mut NDK_CQ),
        qp_context: PVOID,
        receive_depth: ULONG,
        initiator_depth: ULONG,
        receive_sge: ULONG,
        initiator_sge: ULONG,
        inline_size: ULONG,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _qp: *mut *mut NDK_QP,
    ) -> NTSTATUS {
        let done = CreateDone::new(completion, context)?;
        let config = Config {
            cqs: [receive_cq, initiator_cq],
            srq: None,
            context: qp_context,
            receive: (receive_depth, receive_sge),
            initiator: (initiator_depth, initiator_sge),
            inline_len: inline_size,
        };
        pd.open()?.create_qp(&config, done)
    }
}

entry! {
    /// [`NDK_FN_CREATE_QP_WITH_SRQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_qp_with_srq).
    /// IRQL <= DISPATCH_LEVEL. Receives name memory by the keys of the SRQ's domain, which need not be
    /// this one.
    fn ndk_create_qp_with_srq(
        pd: Handle<'_, PdObject> = Handle::new(pd: *mut NDK_PD),
        receive_cq: Handle<'_, CqObject> = Handle::new(receive_cq: *mut NDK_CQ),
        initiator_cq: Handle<'_, CqObject> = Handle::new(initiator_cq: *mut NDK_CQ),
        srq: Handle<'_, SrqObject> = Handle::new(srq: *mut NDK_SRQ),
        qp_context: PVOID,
        initiator_depth: ULONG,
        initiator_sge: ULONG,
        inline_size: ULONG,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _qp: *mut *mut NDK_QP,
    ) -> NTSTATUS {
        let done = CreateDone::new(completion, context)?;
        let config = Config {
            cqs: [receive_cq, initiator_cq],
            srq: Some(srq),
            context: qp_context,
            receive: (0, 0),
            initiator: (initiator_depth, initiator_sge),
            inline_len: inline_size,
        };
        pd.open()?.create_qp(&config, done)
    }
}

/// The consumer's attributes of a new QP.
struct Config<'a> {
    /// For receives, and for initiator requests.
    cqs: [Handle<'a, CqObject>; 2],
    srq: Option<Handle<'a, SrqObject>>,
    context: PVOID,
    /// Depth, and elements of a request.
    receive: (ULONG, ULONG),
    initiator: (ULONG, ULONG),
    inline_len: ULONG,
}

impl PdObject {
    fn create_qp(&self, config: &Config<'_>, done: CreateDone) -> Result<NTSTATUS, NTSTATUS> {
        let [receive_cq, initiator_cq] = &config.cqs;
        let (receive_cq, initiator_cq) = (receive_cq.open()?, initiator_cq.open()?);
        let srq = config.srq.as_ref().map(Handle::open).transpose()?;
        let (limits, Config { receive, initiator, .. }) = (&self.base.shard.limits, config);
        let deep = receive.0.max(initiator.0) > limits.queue_depth;
        let wide = receive.1.max(initiator.1) as usize > MAX_SGE;
        if deep
            || wide
            || config.inline_len > MAX_INLINE
            || !self.same_provider(receive_cq)
            || !self.same_provider(initiator_cq)
            || srq.is_some_and(|srq| !self.same_provider(srq))
        {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let what = CreateQp {
            receive_cq: receive_cq.base.id,
            initiator_cq: initiator_cq.base.id,
            srq: srq.map(|srq| srq.base.id),
            context: Context::new(config.context),
            receive_depth: receive.0,
            initiator_depth: initiator.0,
            receive_sge: receive.1,
            initiator_sge: initiator.1,
            inline_len: config.inline_len,
        };
        create(self.base.shard(), self.base.id, what, done)
    }
}

entry! {
    /// [`NDK_FN_CREATE_MW`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_mw).
    /// IRQL <= DISPATCH_LEVEL. The window is not bound.
    fn ndk_create_mw(
        pd: &PdObject,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _mw: *mut *mut NDK_MW,
    ) -> NTSTATUS {
        let done = CreateDone::new(completion, context)?;
        create(pd.base.shard(), pd.base.id, CreateMw, done)
    }
}

entry! {
    /// [`NDK_FN_CREATE_SRQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_srq).
    /// IRQL <= DISPATCH_LEVEL. The SRQ, and each QP that has it, lives on the core that is nearest to the processors that the
    /// affinity names; without them, the cores take turns.
    ///
    /// A threshold above 0 arms the notification.
    fn ndk_create_srq(
        pd: &PdObject,
        depth: ULONG,
        max_sge: ULONG,
        threshold: ULONG,
        notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
        notification_context: PVOID,
        near: Option<(u16, u64)> = processors(affinity: *const GROUP_AFFINITY),
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _srq: *mut *mut NDK_SRQ,
    ) -> NTSTATUS {
        if depth > pd.base.shard.limits.srq_depth || max_sge as usize > MAX_SGE {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let what = CreateSrq {
            core: pd.base.shard.core_near(near),
            depth,
            max_sge,
            threshold,
            notification,
            context: Context::new(notification_context),
        };
        let done = CreateDone::new(completion, context)?;
        create(pd.base.shard(), pd.base.id, what, done)
    }
}

entry! {
    /// [`NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_privileged_memory_region_token).
    /// IRQL <= DISPATCH_LEVEL. The token names all logical addresses, for reading and writing by this
    /// domain's own requests; no peer can use it. 0, which names nothing, for what is no open domain.
    fn ndk_get_privileged_memory_region_token(
        pd: Handle<'_, PdObject> = Handle::new(pd: *mut NDK_PD),
        token: Out<'_, UINT32> = Out::new(token: *mut UINT32),
    ) {
        token.set(pd.open().map_or(0, |pd| pd.shared.privileged.get()));
        Ok(())
    }
}
