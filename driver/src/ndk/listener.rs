//! Listeners.

use super::{Control, Object, RequestDone, ndk_close, ndk_query_extension, request};
use crate::abi::*;
use crate::ring::Doorbell;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use once_cell::race::OnceBox;

/// A listener.
pub(crate) type ListenerObject = Object<NDK_LISTENER, ListenerShared>;

/// What both sides see of a listener.
#[derive(Default)]
pub(crate) struct ListenerShared {
    /// Set once it listens.
    pub(crate) local: OnceBox<SocketAddr>,
    /// Requests are refused as if nobody listened.
    pub(crate) paused: AtomicBool,
    pub(crate) doorbell: Doorbell,
}

/// The table of every listener.
pub(crate) static DISPATCH: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: ndk_close::<NDK_LISTENER>,
    NdkQueryExtension: ndk_query_extension,
    NdkListen: ndk_listen,
    NdkGetLocalAddress: ndk_get_listener_local_address,
    NdkControlConnectEvents: ndk_control_connect_events,
};

/// [`NDK_FN_LISTEN`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_listen).
/// IRQL <= DISPATCH_LEVEL. A wildcard address listens on all addresses of its family.
///
/// # Safety
/// `listener` is open; the address is readable for its length.
unsafe extern "system" fn ndk_listen(
    listener: *mut NDK_LISTENER,
    address: *const SOCKADDR,
    address_len: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the listener open until this call returns.
    let listener = or_return!(unsafe { ListenerObject::check(listener) });
    // SAFETY: the consumer's promise about the address.
    let Some(local) = (unsafe { parse_sockaddr(address, address_len) }) else {
        return STATUS_INVALID_ADDRESS;
    };
    let done = or_return!(RequestDone::new(completion, context));
    request(listener.base.shard(), Control::Listen { listener: listener.base.id, local, done })
}

/// [`NDK_FN_GET_LISTENER_LOCAL_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_listener_local_address).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `listener` is open; `len` is valid and `address` null or writable for `*len` bytes.
unsafe extern "system" fn ndk_get_listener_local_address(
    listener: *mut NDK_LISTENER,
    address: *mut SOCKADDR,
    len: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the listener open until this call returns.
    let listener = or_return!(unsafe { ListenerObject::check(listener) });
    let Some(local) = listener.shared.local.get() else { return STATUS_INVALID_DEVICE_STATE };
    // SAFETY: the consumer's promise about the out parameters.
    unsafe { write_sockaddr(*local, address, len) }
}

/// [`NDK_FN_CONTROL_CONNECT_EVENTS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_control_connect_events).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `listener` is open.
unsafe extern "system" fn ndk_control_connect_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    // SAFETY: the consumer keeps the listener open until this call returns.
    let Ok(listener) = (unsafe { ListenerObject::check(listener) }) else { return };
    listener.shared.paused.store(pause != FALSE, Ordering::Release);
    // By the doorbell, which always has room, and which the core answers before each frame: a
    // request that is sent after this call has returned meets what was asked for.
    listener.base.shard.ring(listener.base.id, &listener.shared.doorbell, 0);
}
