//! A shared endpoint for its consumer.

use super::request::CreateSharedEndpoint;
use super::shared::SharedEndpointObject;
use crate::abi::*;
use crate::adapter::shared::AdapterObject;
use crate::object::call::{create, ndk_close, ndk_query_extension};
use crate::object::done::CreateDone;
use crate::object::entry::{Buffer, entry};
use core::net::SocketAddr;

/// The table of every shared endpoint.
pub(crate) static DISPATCH: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: ndk_close::<NDK_SHARED_ENDPOINT>,
    NdkQueryExtension: ndk_query_extension,
    NdkGetLocalAddress: ndk_get_shared_endpoint_local_address,
};

entry! {
    /// [`NDK_FN_CREATE_SHARED_ENDPOINT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_shared_endpoint).
    /// IRQL <= DISPATCH_LEVEL. Port 0 takes any.
    ///
    /// The endpoint is in use until it and every connector that connected with it are closed. It pends, and
    /// ends with `STATUS_SHARING_VIOLATION`, `STATUS_INVALID_ADDRESS` or `STATUS_TOO_MANY_ADDRESSES` where the
    /// page says so; a wildcard address is none of this adapter. An address that is neither IPv4 nor IPv6 is
    /// refused inline.
    pub(crate) fn ndk_create_shared_endpoint(
        adapter: &AdapterObject,
        local: Option<SocketAddr> = parse_sockaddr(address: *const SOCKADDR, address_len: ULONG),
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
        _endpoint: *mut *mut NDK_SHARED_ENDPOINT,
    ) -> NTSTATUS {
        let local = local.ok_or(STATUS_INVALID_ADDRESS)?;
        let done = CreateDone::new(completion, context)?;
        create(adapter.base.shard(), adapter.base.id, CreateSharedEndpoint { local }, done)
    }
}

entry! {
    /// [`NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_shared_endpoint_local_address).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_get_shared_endpoint_local_address(
        endpoint: &SharedEndpointObject,
        to: Buffer<'_> = Buffer::new(address: *mut SOCKADDR, len: *mut ULONG),
    ) -> NTSTATUS {
        Ok(to.put_address(endpoint.shared.local))
    }
}
