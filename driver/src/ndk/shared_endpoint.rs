//! Shared endpoints: a local address and port for several outgoing connections.

use super::adapter::AdapterObject;
use super::{Create, CreateDone, Object, create, ndk_close, ndk_query_extension};
use crate::abi::*;
use core::net::SocketAddr;

/// A shared endpoint.
pub(crate) type SharedEndpointObject = Object<NDK_SHARED_ENDPOINT, SharedEndpointShared>;

/// What both sides see of a shared endpoint.
pub(crate) struct SharedEndpointShared {
    /// Its address, with the port that was chosen if none was named.
    pub(crate) local: SocketAddr,
}

/// The table of every shared endpoint.
pub(crate) static DISPATCH: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: ndk_close::<NDK_SHARED_ENDPOINT>,
    NdkQueryExtension: ndk_query_extension,
    NdkGetLocalAddress: ndk_get_shared_endpoint_local_address,
};

/// [`NDK_FN_CREATE_SHARED_ENDPOINT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_create_shared_endpoint).
/// IRQL <= DISPATCH_LEVEL. Port 0 takes any.
///
/// The endpoint is in use until it and every connector that connected with it are closed. It pends,
/// and ends with `STATUS_SHARING_VIOLATION`, `STATUS_INVALID_ADDRESS` or `STATUS_TOO_MANY_ADDRESSES`
/// where the page says so; a wildcard address is none of this adapter. What is no IPv4 or IPv6
/// address is refused inline.
///
/// # Safety
/// `adapter` is open; the address is null or readable for its length.
pub(crate) unsafe extern "system" fn ndk_create_shared_endpoint(
    adapter: *mut NDK_ADAPTER,
    address: *const SOCKADDR,
    address_len: ULONG,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: PVOID,
    _endpoint: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the adapter open until this call returns.
    let adapter = or_return!(unsafe { AdapterObject::check(adapter) });
    // SAFETY: the consumer's promise about the address.
    let Some(local) = (unsafe { parse_sockaddr(address, address_len) }) else {
        return STATUS_INVALID_ADDRESS;
    };
    let done = or_return!(CreateDone::new(completion, context));
    create(adapter.base.shard(), adapter.base.id, Create::SharedEndpoint { local }, done)
}

/// [`NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_shared_endpoint_local_address).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `endpoint` is open; `len` is null or valid and `address` null or writable for `*len` bytes.
unsafe extern "system" fn ndk_get_shared_endpoint_local_address(
    endpoint: *mut NDK_SHARED_ENDPOINT,
    address: *mut SOCKADDR,
    len: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the endpoint open until this call returns.
    let endpoint = or_return!(unsafe { SharedEndpointObject::check(endpoint) });
    // SAFETY: the consumer's promise about the out parameters.
    unsafe { write_sockaddr(endpoint.shared.local, address, len) }
}
