//! An open adapter for its consumer: what it offers, and the creation of what belongs to it.

use super::shared::AdapterObject;
use crate::abi::*;
use crate::connector::request::CreateConnector;
use crate::cq::request::CreateCq;
use crate::listener::request::CreateListener;
use crate::object::call::{create, ndk_query_extension};
use crate::object::done::CreateDone;
use crate::object::entry::{Buffer, Handle, entry, processors};
use crate::object::shared::Context;
use crate::pd::request::CreatePd;
use crate::{endpoint, lam};

/// The table of every adapter.
pub(crate) static DISPATCH: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: ndk_query_extension,
    NdkQueryAdapterInfo: ndk_query_adapter_info,
    NdkCreateCq: ndk_create_cq,
    NdkCreatePd: ndk_create_pd,
    NdkCreateSharedEndpoint: endpoint::call::ndk_create_shared_endpoint,
    NdkCreateConnector: ndk_create_connector,
    NdkCreateListener: ndk_create_listener,
    NdkBuildLAM: lam::call::ndk_build_lam,
    NdkReleaseLAM: lam::call::ndk_release_lam,
};

entry! {
    /// [`NDK_FN_QUERY_ADAPTER_INFO`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_query_adapter_info).
    /// PASSIVE_LEVEL.
    ///
    /// At 1.x the structure ends before `RdmaTechnology`.
    fn ndk_query_adapter_info(
        adapter: Handle<'_, AdapterObject> = Handle::new(adapter: *mut NDK_ADAPTER),
        to: Buffer<'_> = Buffer::new(info: *mut NDK_ADAPTER_INFO, size: *mut ULONG),
    ) -> NTSTATUS {
        to.len()?;
        let adapter = adapter.open()?;
        let version = adapter.base.version;
        let len = match version.Major {
            1 => NDK_ADAPTER_INFO_V1_SIZE,
            _ => size_of::<NDK_ADAPTER_INFO>(),
        };
        to.room(len as ULONG)?.put(0, &adapter.base.shard.info(version));
        Ok(STATUS_SUCCESS)
    }
}

entry! {
    /// [`NDK_FN_CREATE_CQ`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_cq).
    /// IRQL <= DISPATCH_LEVEL. The CQ lives on the core that is nearest to the processors that the affinity names; without
    /// them, the cores take turns.
    fn ndk_create_cq(
        adapter: &AdapterObject,
        depth: ULONG,
        notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
        notification_context: PVOID,
        near: Option<(u16, u64)> = processors(affinity: *const GROUP_AFFINITY),
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _cq: *mut *mut NDK_CQ,
    ) -> NTSTATUS {
        if depth > adapter.base.shard.limits.cq_depth {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let notification = notification.ok_or(STATUS_INVALID_PARAMETER)?;
        let core = adapter.base.shard.core_near(near);
        let context_of = Context::new(notification_context);
        let what = CreateCq { core, depth, notification, context: context_of };
        let done = CreateDone::new(completion, context)?;
        create(adapter.base.shard(), adapter.base.id, what, done)
    }
}

entry! {
    /// [`NDK_FN_CREATE_PD`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_pd).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_create_pd(
        adapter: &AdapterObject,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _pd: *mut *mut NDK_PD,
    ) -> NTSTATUS {
        let done = CreateDone::new(completion, context)?;
        create(adapter.base.shard(), adapter.base.id, CreatePd, done)
    }
}

entry! {
    /// [`NDK_FN_CREATE_CONNECTOR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_connector).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_create_connector(
        adapter: &AdapterObject,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _connector: *mut *mut NDK_CONNECTOR,
    ) -> NTSTATUS {
        let done = CreateDone::new(completion, context)?;
        create(adapter.base.shard(), adapter.base.id, CreateConnector, done)
    }
}

entry! {
    /// [`NDK_FN_CREATE_LISTENER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_listener).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_create_listener(
        adapter: &AdapterObject,
        event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
        event_context: PVOID,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _listener: *mut *mut NDK_LISTENER,
    ) -> NTSTATUS {
        let event = event.ok_or(STATUS_INVALID_PARAMETER)?;
        let what = CreateListener { event, context: Context::new(event_context) };
        let done = CreateDone::new(completion, context)?;
        create(adapter.base.shard(), adapter.base.id, what, done)
    }
}
