//! Protection domains: the parents of memory regions and queue pairs.

use super::cq::CqObject;
use super::qp::{CreateQp, MAX_INLINE};
use super::srq::{CreateSrq, SrqObject};
use super::{Context, Create, CreateDone, Object, create, ndk_close, ndk_query_extension, store};
use crate::abi::*;
use rocev2::ids::Rkey;
use rocev2::qp::work::MAX_SGE;

/// A protection domain.
pub(crate) type PdObject = Object<NDK_PD, PdShared>;

/// What both sides see of a domain.
pub(crate) struct PdShared {
    /// Names all logical addresses.
    pub(crate) privileged: Rkey,
}

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

/// [`NDK_FN_CREATE_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_mr).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `pd` is open.
unsafe extern "system" fn ndk_create_mr(
    pd: *mut NDK_PD,
    fast_register: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _mr: *mut *mut NDK_MR,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the domain open until this call returns.
    let pd = or_return!(unsafe { PdObject::check(pd) });
    let what = Create::Mr { fast_register: fast_register != FALSE };
    let done = or_return!(CreateDone::new(completion, context));
    create(pd.base.shard(), pd.base.id, what, done)
}

/// [`NDK_FN_CREATE_QP`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_qp).
/// IRQL <= DISPATCH_LEVEL. The CQs may be one object.
///
/// # Safety
/// `pd`, `receive_cq` and `initiator_cq` are null or objects.
unsafe extern "system" fn ndk_create_qp(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
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
    let config = Config {
        cqs: [receive_cq, initiator_cq],
        srq: None,
        context: qp_context,
        receive: (receive_depth, receive_sge),
        initiator: (initiator_depth, initiator_sge),
        inline_len: inline_size,
    };
    let done = or_return!(CreateDone::new(completion, context));
    // SAFETY: the consumer's promise about the objects.
    let created = unsafe { create_qp(pd, &config, done) };
    created.unwrap_or_else(|status| status)
}

/// [`NDK_FN_CREATE_QP_WITH_SRQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_qp_with_srq).
/// IRQL <= DISPATCH_LEVEL. Receives name memory by the keys of the SRQ's domain, which need not be
/// this one.
///
/// # Safety
/// `pd`, `receive_cq`, `initiator_cq` and `srq` are null or objects.
unsafe extern "system" fn ndk_create_qp_with_srq(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    srq: *mut NDK_SRQ,
    qp_context: PVOID,
    initiator_depth: ULONG,
    initiator_sge: ULONG,
    inline_size: ULONG,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _qp: *mut *mut NDK_QP,
) -> NTSTATUS {
    let config = Config {
        cqs: [receive_cq, initiator_cq],
        srq: Some(srq),
        context: qp_context,
        receive: (0, 0),
        initiator: (initiator_depth, initiator_sge),
        inline_len: inline_size,
    };
    let done = or_return!(CreateDone::new(completion, context));
    // SAFETY: the consumer's promise about the objects.
    let created = unsafe { create_qp(pd, &config, done) };
    created.unwrap_or_else(|status| status)
}

/// What a QP is created with, as the consumer gave it.
struct Config {
    /// For receives, and for initiator requests.
    cqs: [*mut NDK_CQ; 2],
    srq: Option<*mut NDK_SRQ>,
    context: PVOID,
    /// Depth, and elements of a request.
    receive: (ULONG, ULONG),
    initiator: (ULONG, ULONG),
    inline_len: ULONG,
}

/// # Safety
/// `pd` and the CQs are null or objects.
unsafe fn create_qp(
    pd: *mut NDK_PD,
    config: &Config,
    done: CreateDone,
) -> Result<NTSTATUS, NTSTATUS> {
    let [receive_cq, initiator_cq] = config.cqs;
    // SAFETY: the consumer keeps the domain open until this call returns.
    let pd = unsafe { PdObject::check(pd) }?;
    // SAFETY: the consumer's promise.
    let receive_cq = unsafe { CqObject::check(receive_cq) }?;
    // SAFETY: as above.
    let initiator_cq = unsafe { CqObject::check(initiator_cq) }?;
    let srq = match config.srq {
        // SAFETY: as above.
        Some(srq) => Some(unsafe { SrqObject::check(srq) }?),
        None => None,
    };
    let (limits, Config { receive, initiator, .. }) = (&pd.base.shard.limits, config);
    let deep = receive.0.max(initiator.0) > limits.queue_depth;
    let wide = receive.1.max(initiator.1) as usize > MAX_SGE;
    if deep
        || wide
        || config.inline_len > MAX_INLINE
        || !pd.same_provider(receive_cq)
        || !pd.same_provider(initiator_cq)
        || srq.is_some_and(|srq| !pd.same_provider(srq))
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
    Ok(create(pd.base.shard(), pd.base.id, Create::Qp(what), done))
}

/// [`NDK_FN_CREATE_MW`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_mw).
/// IRQL <= DISPATCH_LEVEL. The window is not bound.
///
/// # Safety
/// `pd` is open.
unsafe extern "system" fn ndk_create_mw(
    pd: *mut NDK_PD,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _mw: *mut *mut NDK_MW,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the domain open until this call returns.
    let pd = or_return!(unsafe { PdObject::check(pd) });
    let done = or_return!(CreateDone::new(completion, context));
    create(pd.base.shard(), pd.base.id, Create::Mw, done)
}

/// [`NDK_FN_CREATE_SRQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_srq).
/// IRQL <= DISPATCH_LEVEL. The affinity hint is not used: an SRQ lives on its shard's core.
///
/// A threshold above 0 arms the notification.
///
/// # Safety
/// `pd` is open.
unsafe extern "system" fn ndk_create_srq(
    pd: *mut NDK_PD,
    depth: ULONG,
    max_sge: ULONG,
    threshold: ULONG,
    notification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    notification_context: PVOID,
    _affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _srq: *mut *mut NDK_SRQ,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the domain open until this call returns.
    let pd = or_return!(unsafe { PdObject::check(pd) });
    if depth > pd.base.shard.limits.srq_depth || max_sge as usize > MAX_SGE {
        return STATUS_INVALID_PARAMETER;
    }
    let what = CreateSrq {
        depth,
        max_sge,
        threshold,
        notification,
        context: Context::new(notification_context),
    };
    let done = or_return!(CreateDone::new(completion, context));
    create(pd.base.shard(), pd.base.id, Create::Srq(what), done)
}

/// [`NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_privileged_memory_region_token).
/// IRQL <= DISPATCH_LEVEL. The token names all logical addresses, for reading and writing by this
/// domain's own requests; no peer can use it. 0, which names nothing, for what is no open domain.
///
/// # Safety
/// `pd` is open; `token` is null or writable.
unsafe extern "system" fn ndk_get_privileged_memory_region_token(
    pd: *mut NDK_PD,
    token: *mut UINT32,
) {
    // SAFETY: the consumer keeps the domain open until this call returns.
    let pd = unsafe { PdObject::check(pd) };
    let privileged = pd.map_or(0, |pd| pd.shared.privileged.get());
    // SAFETY: the consumer's promise.
    unsafe { store(token, privileged) };
}
