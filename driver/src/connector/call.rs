//! A connector for its consumer.

use super::request::{
    Accept, Acceptance, Attempt, CompleteConnect, Connect, Disconnect, DisconnectEvent, Reject,
};
use super::shared::ConnectorObject;
use crate::abi::*;
use crate::endpoint::shared::SharedEndpointObject;
use crate::object::call::{ndk_close, ndk_query_extension, request};
use crate::object::done::RequestDone;
use crate::object::entry::{Buffer, Bytes, Handle, Out, entry};
use crate::object::shared::Context;
use crate::qp::shared::QpObject;
use core::ffi::c_void;
use core::net::SocketAddr;
use rocev2::cm::ReadLimits;

/// The table of every connector.
pub(crate) static DISPATCH: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: ndk_close::<NDK_CONNECTOR>,
    NdkQueryExtension: ndk_query_extension,
    NdkConnect: ndk_connect,
    NdkConnectWithSharedEndpoint: ndk_connect_with_shared_endpoint,
    NdkCompleteConnect: ndk_complete_connect,
    NdkAccept: ndk_accept,
    NdkReject: ndk_reject,
    NdkGetConnectionData: ndk_get_connection_data,
    NdkGetLocalAddress: ndk_get_local_address,
    NdkGetPeerAddress: ndk_get_peer_address,
    NdkDisconnect: ndk_disconnect,
    NdkCompleteConnectEx: ndk_complete_connect_ex,
    NdkAcceptEx: ndk_accept_ex,
};

/// Limits beyond a byte are capped without a word, as those beyond the adapter's are.
fn limits(inbound: ULONG, outbound: ULONG) -> ReadLimits {
    let cap = |limit: ULONG| limit.min(u32::from(u8::MAX)) as u8;
    ReadLimits { inbound: cap(inbound), outbound: cap(outbound) }
}

/// Copies private data of at most `MAX` bytes.
fn private_data<const MAX: usize>(data: &Bytes<'_>) -> Result<heapless::Vec<u8, MAX>, NTSTATUS> {
    heapless::Vec::from_slice(data.at_most(MAX)?).map_err(|_| STATUS_INVALID_BUFFER_SIZE)
}

entry! {
    /// [`NDK_FN_CONNECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_connect).
    /// IRQL <= DISPATCH_LEVEL. Both addresses may be the adapter's own.
    ///
    /// Inline: `STATUS_INVALID_ADDRESS` for an address that is neither IPv4 nor IPv6,
    /// `STATUS_INVALID_BUFFER_SIZE` for too much private data, `STATUS_NETWORK_UNREACHABLE` for a destination
    /// of the other family, `STATUS_CONNECTION_REFUSED` for port 0, which has no listener. Every other failure
    /// comes later.
    fn ndk_connect(
        connector: &ConnectorObject,
        qp: Handle<'_, QpObject> = Handle::new(qp: *mut NDK_QP),
        local: Option<SocketAddr> = parse_sockaddr(source: *const SOCKADDR, source_len: ULONG),
        remote: Option<SocketAddr> = parse_sockaddr(destination: *const SOCKADDR, destination_len: ULONG),
        inbound: ULONG,
        outbound: ULONG,
        data: Bytes<'_> = Bytes::new(data: *const c_void, data_len: ULONG),
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        let local = local.ok_or(STATUS_INVALID_ADDRESS)?;
        let done = RequestDone::new(completion, context)?;
        let qp = qp.open()?;
        let what = Attempt {
            qp: qp.base.id,
            local,
            endpoint: None,
            remote: remote.ok_or(STATUS_INVALID_ADDRESS)?,
            limits: limits(inbound, outbound),
            private_data: private_data(&data)?,
        };
        connector.connect(qp, what, done)
    }
}

entry! {
    /// [`NDK_FN_CONNECT_WITH_SHARED_ENDPOINT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_connect_with_shared_endpoint).
    /// IRQL <= DISPATCH_LEVEL. As [`ndk_connect`], from the endpoint's address and port.
    fn ndk_connect_with_shared_endpoint(
        connector: &ConnectorObject,
        qp: Handle<'_, QpObject> = Handle::new(qp: *mut NDK_QP),
        endpoint: &SharedEndpointObject,
        remote: Option<SocketAddr> = parse_sockaddr(destination: *const SOCKADDR, destination_len: ULONG),
        inbound: ULONG,
        outbound: ULONG,
        data: Bytes<'_> = Bytes::new(data: *const c_void, data_len: ULONG),
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        if !connector.same_provider(endpoint) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let done = RequestDone::new(completion, context)?;
        let qp = qp.open()?;
        let what = Attempt {
            qp: qp.base.id,
            local: endpoint.shared.local,
            endpoint: Some(endpoint.base.id),
            remote: remote.ok_or(STATUS_INVALID_ADDRESS)?,
            limits: limits(inbound, outbound),
            private_data: private_data(&data)?,
        };
        connector.connect(qp, what, done)
    }
}

entry! {
    /// [`NDK_FN_COMPLETE_CONNECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_complete_connect).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_complete_connect(
        connector: &ConnectorObject,
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        event_context: PVOID,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        let event = DisconnectEvent::Plain(event, Context::new(event_context));
        let done = RequestDone::new(completion, context)?;
        connector.complete_connect(event, done)
    }
}

entry! {
    /// [`NDK_FN_COMPLETE_CONNECT_EX`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_complete_connect_ex).
    /// IRQL <= DISPATCH_LEVEL. `STATUS_NOT_SUPPORTED` on an adapter that was opened at 1.x.
    fn ndk_complete_connect_ex(
        connector: &ConnectorObject,
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        event_context: PVOID,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        connector.base.check_2_1()?;
        let event = DisconnectEvent::WithReason(event, Context::new(event_context));
        let done = RequestDone::new(completion, context)?;
        connector.complete_connect(event, done)
    }
}

impl ConnectorObject {
    fn connect(
        &self,
        qp: &QpObject,
        what: Attempt,
        done: RequestDone,
    ) -> Result<NTSTATUS, NTSTATUS> {
        if !self.same_provider(qp) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if what.local.is_ipv4() != what.remote.is_ipv4() {
            return Err(STATUS_NETWORK_UNREACHABLE);
        }
        if what.remote.port() == 0 {
            return Err(STATUS_CONNECTION_REFUSED);
        }
        let what = self.base.shard.boxed(what)?;
        request(self.base.shard(), Connect { connector: self.base.id, what, done })
    }

    fn complete_connect(
        &self,
        event: DisconnectEvent,
        done: RequestDone,
    ) -> Result<NTSTATUS, NTSTATUS> {
        request(self.base.shard(), CompleteConnect { connector: self.base.id, event, done })
    }

    fn accept(
        &self,
        qp: &QpObject,
        what: Acceptance,
        done: RequestDone,
    ) -> Result<NTSTATUS, NTSTATUS> {
        if !self.same_provider(qp) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let what = self.base.shard.boxed(what)?;
        request(self.base.shard(), Accept { connector: self.base.id, what, done })
    }
}

entry! {
    /// [`NDK_FN_ACCEPT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_accept).
    /// IRQL <= DISPATCH_LEVEL. The QP may belong to another adapter instance of this provider.
    fn ndk_accept(
        connector: &ConnectorObject,
        qp: Handle<'_, QpObject> = Handle::new(qp: *mut NDK_QP),
        inbound: ULONG,
        outbound: ULONG,
        data: Bytes<'_> = Bytes::new(data: *const c_void, data_len: ULONG),
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
        event_context: PVOID,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        let event = DisconnectEvent::Plain(event, Context::new(event_context));
        let done = RequestDone::new(completion, context)?;
        let qp = qp.open()?;
        let (limits, private_data) = (limits(inbound, outbound), private_data(&data)?);
        connector.accept(qp, Acceptance { qp: qp.base.id, limits, private_data, event }, done)
    }
}

entry! {
    /// [`NDK_FN_ACCEPT_EX`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_accept_ex).
    /// IRQL <= DISPATCH_LEVEL. `STATUS_NOT_SUPPORTED` on an adapter that was opened at 1.x.
    fn ndk_accept_ex(
        connector: &ConnectorObject,
        qp: Handle<'_, QpObject> = Handle::new(qp: *mut NDK_QP),
        inbound: ULONG,
        outbound: ULONG,
        data: Bytes<'_> = Bytes::new(data: *const c_void, data_len: ULONG),
        event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
        event_context: PVOID,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        connector.base.check_2_1()?;
        let event = DisconnectEvent::WithReason(event, Context::new(event_context));
        let done = RequestDone::new(completion, context)?;
        let qp = qp.open()?;
        let (limits, private_data) = (limits(inbound, outbound), private_data(&data)?);
        connector.accept(qp, Acceptance { qp: qp.base.id, limits, private_data, event }, done)
    }
}

entry! {
    /// [`NDK_FN_REJECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_reject).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_reject(
        connector: &ConnectorObject,
        data: Bytes<'_> = Bytes::new(data: *const c_void, data_len: ULONG),
    ) -> NTSTATUS {
        let private_data = connector.base.shard.boxed(private_data(&data)?)?;
        let sent = connector.base.shard().request_if(|| {
            connector.shared.leave_rejectable()?;
            Ok(Reject { connector: connector.base.id, private_data })
        });
        sent.unwrap_or(Err(STATUS_INSUFFICIENT_RESOURCES)).map(|()| STATUS_SUCCESS)
    }
}

entry! {
    /// [`NDK_FN_GET_CONNECTION_DATA`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_connection_data).
    /// IRQL <= DISPATCH_LEVEL. Answers at any time from the peer's first message on. Never asks for more
    /// than `MaxCalleeData` bytes ([`PeerData`](super::shared::PeerData)).
    fn ndk_get_connection_data(
        connector: &ConnectorObject,
        inbound: Out<'_, ULONG> = Out::new(inbound: *mut ULONG),
        outbound: Out<'_, ULONG> = Out::new(outbound: *mut ULONG),
        data: Buffer<'_> = Buffer::new(data: PVOID, data_len: *mut ULONG),
    ) -> NTSTATUS {
        let info = connector.shared.info.get().ok_or(STATUS_CONNECTION_INVALID)?;
        let stored = data.put_part(&info.private_data)?;
        inbound.set(ULONG::from(info.limits.inbound));
        outbound.set(ULONG::from(info.limits.outbound));
        Ok(stored)
    }
}

entry! {
    /// [`NDK_FN_GET_LOCAL_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_local_address).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_get_local_address(
        connector: &ConnectorObject,
        to: Buffer<'_> = Buffer::new(address: *mut SOCKADDR, len: *mut ULONG),
    ) -> NTSTATUS {
        let info = connector.shared.info.get().ok_or(STATUS_CONNECTION_INVALID)?;
        Ok(to.put_address(info.local))
    }
}

entry! {
    /// [`NDK_FN_GET_PEER_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_peer_address).
    /// IRQL <= DISPATCH_LEVEL. Works inside the connect event.
    fn ndk_get_peer_address(
        connector: &ConnectorObject,
        to: Buffer<'_> = Buffer::new(address: *mut SOCKADDR, len: *mut ULONG),
    ) -> NTSTATUS {
        let info = connector.shared.info.get().ok_or(STATUS_CONNECTION_INVALID)?;
        Ok(to.put_address(info.peer))
    }
}

entry! {
    /// [`NDK_FN_DISCONNECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_disconnect).
    /// IRQL <= DISPATCH_LEVEL.
    fn ndk_disconnect(
        connector: &ConnectorObject,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        let done = RequestDone::new(completion, context)?;
        request(connector.base.shard(), Disconnect { connector: connector.base.id, done })
    }
}
