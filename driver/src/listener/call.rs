//! A listener for its consumer.

use super::request::Listen;
use super::shared::ListenerObject;
use crate::abi::*;
use crate::object::call::{ndk_close, ndk_query_extension, request};
use crate::object::done::RequestDone;
use crate::object::entry::{Buffer, entry};
use core::net::SocketAddr;
use core::sync::atomic::Ordering;

/// The table of every listener.
pub(crate) static DISPATCH: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: ndk_close::<NDK_LISTENER>,
    NdkQueryExtension: ndk_query_extension,
    NdkListen: ndk_listen,
    NdkGetLocalAddress: ndk_get_listener_local_address,
    NdkControlConnectEvents: ndk_control_connect_events,
};

entry! {
    /// [`NDK_FN_LISTEN`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_listen).
    /// IRQL <= DISPATCH_LEVEL. A wildcard address listens on all addresses of its family.
    fn ndk_listen(
        listener: &ListenerObject,
        local: Option<SocketAddr> = parse_sockaddr(address: *const SOCKADDR, address_len: ULONG),
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        let local = local.ok_or(STATUS_INVALID_ADDRESS)?;
        let done = RequestDone::new(completion, context)?;
        request(listener.base.shard(), Listen { listener: listener.base.id, local, done })
    }
}

entry! {
    /// [`NDK_FN_GET_LISTENER_LOCAL_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_listener_local_address).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_get_listener_local_address(
        listener: &ListenerObject,
        to: Buffer<'_> = Buffer::new(address: *mut SOCKADDR, len: *mut ULONG),
    ) -> NTSTATUS {
        let local = listener.shared.local.get().ok_or(STATUS_INVALID_DEVICE_STATE)?;
        Ok(to.put_address(*local))
    }
}

entry! {
    /// [`NDK_FN_CONTROL_CONNECT_EVENTS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_control_connect_events).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_control_connect_events(listener: &ListenerObject, pause: BOOLEAN) {
        listener.shared.paused.store(pause != FALSE, Ordering::Release);
        // By the doorbell, which always has room, and which the core answers before each frame: a
        // request that is sent after this call has returned meets what was asked for.
        listener.base.shard.ring(&listener.shared.bell, &listener.shared.doorbell, 0);
        Ok(())
    }
}
