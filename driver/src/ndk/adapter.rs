//! The adapter: what it offers, and the creation of everything else.

use super::cq::CreateCq;
use super::mr::MAX_PAGES;
use super::qp::MAX_INLINE;
use super::{
    Context, Create, CreateDone, Object, create, lam, ndk_query_extension, shared_endpoint,
};
use crate::abi::*;
use rocev2::qp::work::{MAX_READS, MAX_SGE};

/// An open adapter.
pub(crate) type AdapterObject = Object<NDK_ADAPTER, ()>;

/// The highest interface version that this provider runs at.
pub(crate) const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };
/// The highest of those before, whose `NDK_ADAPTER_INFO` is shorter.
const VERSION_1: NDK_VERSION = NDK_VERSION { Major: 1, Minor: 2 };

/// The version to run at for a consumer that names the lowest minor version it can live with: the
/// highest of that major version, as a minor version contains those before it. `None`: we cannot
/// serve it.
pub(crate) const fn negotiate(asked: NDK_VERSION) -> Option<NDK_VERSION> {
    let highest = match asked.Major {
        1 => VERSION_1,
        2 => VERSION,
        _ => return None,
    };
    if asked.Minor <= highest.Minor { Some(highest) } else { None }
}

/// Bytes of private data in a connect: the 92 of a CM REQ less the 36 of the IP CM header.
pub(crate) const MAX_CALLER_DATA: usize = 56;
/// Bytes of private data in an accept or a reject: the smaller of REP's 196 and REJ's 148.
pub(crate) const MAX_CALLEE_DATA: usize = 148;

/// Bytes of one registration, and of a window, at most: nearly a TiB. Consumers take such a number
/// for a `ULONG` or a `LONG`, so its low half is large and positive too.
pub(crate) const MAX_REGISTRATION: usize = (1 << 40) - (1 << 31) - PAGE_SIZE;

/// Bytes of one request over all its elements, at most: as on hardware, and positive as a `LONG`,
/// which the 2^31 of the protocol are not.
pub(crate) const MAX_TRANSFER: u32 = 1 << 30;

/// What the adapter accepts. Memory for a queue is taken when it is created, so the depths are
/// modest: a QP that asks for all of it takes about 7 MiB, an SRQ of any depth 2.5 MiB, a CQ 1 MiB, a
/// fast-register region up to 16 KiB.
///
/// QPs and keys have limits of their own, for all adapter instances of a provider together. A key
/// goes to each registration, initialised fast-register region, window and domain, and to each QP
/// that takes inline data. Everything else is only counted: all objects of a provider are at most
/// 32768, each from its creation until its close has completed (`crate::ring`). Beyond any limit a
/// creation or registration ends with `STATUS_INSUFFICIENT_RESOURCES`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) queue_depth: u32,
    pub(crate) srq_depth: u32,
    pub(crate) cq_depth: u32,
    pub(crate) qps: usize,
    pub(crate) mrs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue_depth: 4096, srq_depth: 4096, cq_depth: 32_768, qps: 4096, mrs: 16_384 }
    }
}

impl Limits {
    /// What [`NDK_FN_QUERY_ADAPTER_INFO`] answers.
    pub(crate) fn info(&self, version: NDK_VERSION) -> NDK_ADAPTER_INFO {
        NDK_ADAPTER_INFO {
            Version: version,
            // No OUI is assigned to this project.
            VendorId: 0,
            DeviceId: 1,
            MaxRegistrationSize: MAX_REGISTRATION,
            MaxWindowSize: MAX_REGISTRATION,
            FRMRPageCount: MAX_PAGES,
            MaxInitiatorRequestSge: MAX_SGE as u32,
            MaxReceiveRequestSge: MAX_SGE as u32,
            MaxReadRequestSge: MAX_SGE as u32,
            MaxTransferLength: MAX_TRANSFER,
            MaxInlineDataSize: MAX_INLINE,
            MaxInboundReadLimit: MAX_READS as u32,
            MaxOutboundReadLimit: MAX_READS as u32,
            MaxReceiveQueueDepth: self.queue_depth,
            MaxInitiatorQueueDepth: self.queue_depth,
            MaxSrqDepth: self.srq_depth,
            MaxCqDepth: self.cq_depth,
            LargeRequestThreshold: 8192,
            MaxCallerData: MAX_CALLER_DATA as u32,
            MaxCalleeData: MAX_CALLEE_DATA as u32,
            // Without MULTI_ENGINE_SUPPORTED, which promises that connections run in parallel: one
            // poll core serves an adapter. It comes with a second.
            AdapterFlags: NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
                | NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
                | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
                | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
                | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
            RdmaTechnology: NdkRoCEv2,
        }
    }
}

/// The table of every adapter.
pub(crate) static DISPATCH: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: ndk_query_extension,
    NdkQueryAdapterInfo: ndk_query_adapter_info,
    NdkCreateCq: ndk_create_cq,
    NdkCreatePd: ndk_create_pd,
    NdkCreateSharedEndpoint: shared_endpoint::ndk_create_shared_endpoint,
    NdkCreateConnector: ndk_create_connector,
    NdkCreateListener: ndk_create_listener,
    NdkBuildLAM: lam::ndk_build_lam,
    NdkReleaseLAM: lam::ndk_release_lam,
};

/// [`NDK_FN_QUERY_ADAPTER_INFO`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_query_adapter_info).
/// PASSIVE_LEVEL.
///
/// At 1.x the structure ends before `RdmaTechnology`.
///
/// # Safety
/// `adapter` is open, `size` is valid, `info` is null or writable for `*size` bytes.
unsafe extern "system" fn ndk_query_adapter_info(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDK_ADAPTER_INFO,
    size: *mut ULONG,
) -> NTSTATUS {
    if size.is_null() {
        return STATUS_INVALID_PARAMETER;
    }
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let adapter = or_return!(unsafe { AdapterObject::check(adapter) });
    // SAFETY: not null, so valid by the consumer's promise.
    let room = unsafe { size.read() } as usize;
    let version = adapter.base.version;
    let len = match version.Major {
        1 => NDK_ADAPTER_INFO_V1_SIZE,
        _ => size_of::<NDK_ADAPTER_INFO>(),
    };
    // SAFETY: as above.
    unsafe { size.write(len as ULONG) };
    if info.is_null() || room < len {
        return STATUS_BUFFER_TOO_SMALL;
    }
    let answer = adapter.base.shard.limits.info(version);
    // SAFETY: the consumer's buffer holds at least `len` bytes, and so does `answer`.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), info.cast::<u8>(), len)
    };
    STATUS_SUCCESS
}

/// [`NDK_FN_CREATE_CQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_cq).
/// IRQL <= DISPATCH_LEVEL. The affinity hint is not used: a CQ lives on its shard's core.
///
/// # Safety
/// `adapter` is open.
unsafe extern "system" fn ndk_create_cq(
    adapter: *mut NDK_ADAPTER,
    depth: ULONG,
    notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notification_context: PVOID,
    _affinity: *const GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _cq: *mut *mut NDK_CQ,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let adapter = or_return!(unsafe { AdapterObject::check(adapter) });
    if depth > adapter.base.shard.limits.cq_depth {
        return STATUS_INVALID_PARAMETER;
    }
    let notification = or_return!(notification.ok_or(STATUS_INVALID_PARAMETER));
    let what = CreateCq { depth, notification, context: Context::new(notification_context) };
    let done = or_return!(CreateDone::new(completion, context));
    create(adapter.base.shard(), adapter.base.id, Create::Cq(what), done)
}

/// [`NDK_FN_CREATE_PD`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_pd).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `adapter` is open.
unsafe extern "system" fn ndk_create_pd(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _pd: *mut *mut NDK_PD,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let adapter = or_return!(unsafe { AdapterObject::check(adapter) });
    let done = or_return!(CreateDone::new(completion, context));
    create(adapter.base.shard(), adapter.base.id, Create::Pd, done)
}

/// [`NDK_FN_CREATE_CONNECTOR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_connector).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `adapter` is open.
unsafe extern "system" fn ndk_create_connector(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _connector: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let adapter = or_return!(unsafe { AdapterObject::check(adapter) });
    let done = or_return!(CreateDone::new(completion, context));
    create(adapter.base.shard(), adapter.base.id, Create::Connector, done)
}

/// [`NDK_FN_CREATE_LISTENER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_listener).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `adapter` is open.
unsafe extern "system" fn ndk_create_listener(
    adapter: *mut NDK_ADAPTER,
    event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    event_context: PVOID,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _listener: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let adapter = or_return!(unsafe { AdapterObject::check(adapter) });
    let event = or_return!(event.ok_or(STATUS_INVALID_PARAMETER));
    let what = Create::Listener { event, context: Context::new(event_context) };
    let done = or_return!(CreateDone::new(completion, context));
    create(adapter.base.shard(), adapter.base.id, what, done)
}
