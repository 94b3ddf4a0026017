//! Protection domains: the parents of memory regions and queue pairs.

use super::cq::CqObject;
use super::qp::CreateQp;
use super::{
    Create, CreateDone, Object, create, ndk_close, ndk_query_extension, not_supported as ns,
};
use crate::abi::*;
use rocev2::qp::work::MAX_SGE;

/// A protection domain.
pub(crate) type PdObject = Object<NDK_PD, ()>;

/// The table of every protection domain.
pub(crate) static DISPATCH: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: ndk_close,
    NdkQueryExtension: ndk_query_extension,
    NdkCreateMr: ndk_create_mr,
    NdkCreateMw: ns::create_mw,
    NdkCreateSrq: ns::create_srq,
    NdkCreateQp: ndk_create_qp,
    NdkCreateQpWithSrq: ns::create_qp_with_srq,
    NdkGetPrivilegedMemoryRegionToken: ns::get_privileged_memory_region_token,
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
    let pd = match unsafe { PdObject::check(pd) } {
        Ok(pd) => pd,
        Err(status) => return status,
    };
    let what = Create::Mr { fast_register: fast_register != FALSE };
    create(pd.base.shard(), pd.base.id, what, CreateDone::new(completion, context))
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
    // SAFETY: the consumer keeps the domain open until this call returns.
    let pd = match unsafe { PdObject::check(pd) } {
        Ok(pd) => pd,
        Err(status) => return status,
    };
    // SAFETY: the consumer's promise.
    let receive_cq = match unsafe { CqObject::check(receive_cq) } {
        Ok(cq) => cq,
        Err(status) => return status,
    };
    // SAFETY: as above.
    let initiator_cq = match unsafe { CqObject::check(initiator_cq) } {
        Ok(cq) => cq,
        Err(status) => return status,
    };
    let limits = &pd.base.shard.limits;
    let deep = receive_depth.max(initiator_depth) > limits.queue_depth;
    let wide = receive_sge.max(initiator_sge) as usize > MAX_SGE;
    if deep
        || wide
        || inline_size > 0
        || !pd.same_provider(receive_cq)
        || !pd.same_provider(initiator_cq)
    {
        return STATUS_INVALID_PARAMETER;
    }
    let what = CreateQp {
        receive_cq: receive_cq.base.id,
        initiator_cq: initiator_cq.base.id,
        context: super::Context::new(qp_context),
        receive_depth,
        initiator_depth,
        receive_sge,
        initiator_sge,
    };
    create(pd.base.shard(), pd.base.id, Create::Qp(what), CreateDone::new(completion, context))
}
