//! Connectors: one end of a connection each.

use super::adapter::{MAX_CALLEE_DATA, MAX_CALLER_DATA};
use super::qp::QpObject;
use super::shared_endpoint::SharedEndpointObject;
use super::{
    Context, Control, Object, ObjectId, RequestDone, ndk_close, ndk_query_extension, request,
    slice, store,
};
use crate::abi::*;
use crate::ring::Latest;
use core::ffi::c_void;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU8, Ordering};
use rocev2::cm::ReadLimits;

/// A connector.
pub(crate) type ConnectorObject = Object<NDK_CONNECTOR, ConnectorShared>;

/// Private data as connection management takes and gives it.
pub(crate) type PrivateData = heapless::Vec<u8, 196>;

/// Private data as a consumer gets it: never more than the adapter says. A REP has room for 48 bytes
/// more than a consumer of this interface can send; what another peer puts there is cut, as a
/// consumer that sizes its buffer by `MaxCalleeData` and never asks could not take it.
pub(crate) type PeerData = heapless::Vec<u8, MAX_CALLEE_DATA>;

/// The part of a peer's private data that a consumer gets.
pub(crate) fn peer_data(data: &PrivateData) -> PeerData {
    data.iter().copied().take(MAX_CALLEE_DATA).collect()
}

/// What both sides see of a connector.
#[derive(Default)]
pub(crate) struct ConnectorShared {
    /// Set when the peer's request or answer arrives; a refusal gives way to what a later attempt
    /// brings.
    pub(crate) info: Latest<Info>,
    /// A [`Stage`], for the calls that answer at once.
    pub(crate) stage: AtomicU8,
}

/// What the peer told.
#[derive(Clone)]
pub(crate) struct Info {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: PeerData,
}

/// How far a connector is, as its consumer may know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Nothing was asked yet, or it failed.
    Idle = 0,
    /// The consumer may reject: an incoming request, or an answer not yet confirmed.
    Rejectable = 1,
    /// Connecting, accepting or connected.
    Busy = 2,
    /// The peer has gone.
    Gone = 3,
}

impl ConnectorShared {
    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Takes the one chance to reject, or tells why there is none.
    fn leave_rejectable(&self) -> Result<(), NTSTATUS> {
        let (from, to) = (Stage::Rejectable as u8, Stage::Idle as u8);
        match self.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(gone) if gone == Stage::Gone as u8 => Err(STATUS_CONNECTION_ABORTED),
            Err(_) => Err(STATUS_CONNECTION_INVALID),
        }
    }
}

/// Whom to tell that the connection has ended.
#[derive(Clone, Copy)]
pub(crate) enum DisconnectEvent {
    Plain(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>, Context),
    WithReason(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>, Context),
}

/// A connect on its way to the core.
pub(crate) struct Connect {
    pub(crate) qp: ObjectId,
    /// The port is 0 for any.
    pub(crate) local: SocketAddr,
    /// The shared endpoint that has `local` for the connection.
    pub(crate) endpoint: Option<ObjectId>,
    pub(crate) remote: SocketAddr,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: PrivateData,
}

/// An accept on its way to the core.
pub(crate) struct Accept {
    pub(crate) qp: ObjectId,
    pub(crate) limits: ReadLimits,
    pub(crate) private_data: PrivateData,
    pub(crate) event: DisconnectEvent,
}

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

/// Copies private data of at most `max` bytes.
///
/// # Safety
/// `data` is null or readable for `len` bytes.
unsafe fn private_data(
    data: *const c_void,
    len: ULONG,
    max: usize,
) -> Result<PrivateData, NTSTATUS> {
    if len as usize > max {
        return Err(STATUS_INVALID_BUFFER_SIZE);
    }
    if data.is_null() && len > 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(data.cast::<u8>(), len) };
    PrivateData::from_slice(bytes).map_err(|_| STATUS_INVALID_BUFFER_SIZE)
}

/// What a connect is given beside its connector and its own end.
struct ConnectArguments {
    qp: *mut NDK_QP,
    destination: *const SOCKADDR,
    destination_len: ULONG,
    limits: ReadLimits,
    data: *const c_void,
    data_len: ULONG,
    done: RequestDone,
}

/// [`NDK_FN_CONNECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_connect).
/// IRQL <= DISPATCH_LEVEL. Both addresses may be the adapter's own.
///
/// Inline: `STATUS_INVALID_ADDRESS` for what is no IPv4 or IPv6 address, `STATUS_INVALID_BUFFER_SIZE`
/// for too much private data, `STATUS_NETWORK_UNREACHABLE` for a destination of the other family,
/// `STATUS_CONNECTION_REFUSED` for port 0, where nobody listens. All else comes later.
///
/// # Safety
/// `connector` and `qp` are null or objects; addresses and private data are null or readable for
/// their lengths.
unsafe extern "system" fn ndk_connect(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    source: *const SOCKADDR,
    source_len: ULONG,
    destination: *const SOCKADDR,
    destination_len: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_len: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    // SAFETY: the consumer's promise about the address.
    let Some(local) = (unsafe { parse_sockaddr(source, source_len) }) else {
        return STATUS_INVALID_ADDRESS;
    };
    let done = or_return!(RequestDone::new(completion, context));
    let limits = limits(inbound, outbound);
    let arguments =
        ConnectArguments { qp, destination, destination_len, limits, data, data_len, done };
    // SAFETY: the consumer's promise.
    unsafe { connector.connect(local, None, arguments) }.unwrap_or_else(|status| status)
}

/// [`NDK_FN_CONNECT_WITH_SHARED_ENDPOINT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_connect_with_shared_endpoint).
/// IRQL <= DISPATCH_LEVEL. As [`ndk_connect`], from the endpoint's address and port.
///
/// # Safety
/// `connector`, `qp` and `endpoint` are null or objects; address and private data are null or
/// readable for their lengths.
unsafe extern "system" fn ndk_connect_with_shared_endpoint(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    destination: *const SOCKADDR,
    destination_len: ULONG,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_len: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    // SAFETY: as above.
    let endpoint = or_return!(unsafe { SharedEndpointObject::check(endpoint) });
    if !connector.same_provider(endpoint) {
        return STATUS_INVALID_PARAMETER;
    }
    let done = or_return!(RequestDone::new(completion, context));
    let limits = limits(inbound, outbound);
    let arguments =
        ConnectArguments { qp, destination, destination_len, limits, data, data_len, done };
    let (local, id) = (endpoint.shared.local, endpoint.base.id);
    // SAFETY: the consumer's promise.
    unsafe { connector.connect(local, Some(id), arguments) }.unwrap_or_else(|status| status)
}

/// [`NDK_FN_COMPLETE_CONNECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_complete_connect).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `connector` is open.
unsafe extern "system" fn ndk_complete_connect(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    let event = DisconnectEvent::Plain(event, Context::new(event_context));
    let done = or_return!(RequestDone::new(completion, context));
    connector.complete_connect(event, done)
}

/// [`NDK_FN_COMPLETE_CONNECT_EX`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_complete_connect_ex).
/// IRQL <= DISPATCH_LEVEL. `STATUS_NOT_SUPPORTED` on an adapter that was opened at 1.x.
///
/// # Safety
/// `connector` is open.
unsafe extern "system" fn ndk_complete_connect_ex(
    connector: *mut NDK_CONNECTOR,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    or_return!(connector.base.check_2_1());
    let event = DisconnectEvent::WithReason(event, Context::new(event_context));
    let done = or_return!(RequestDone::new(completion, context));
    connector.complete_connect(event, done)
}

/// What an accept is given beside its connector.
struct AcceptArguments {
    qp: *mut NDK_QP,
    limits: ReadLimits,
    data: *const c_void,
    data_len: ULONG,
    event: DisconnectEvent,
    done: RequestDone,
}

impl ConnectorObject {
    /// # Safety
    /// The QP is null or an object; destination and private data are null or readable for their
    /// lengths.
    unsafe fn connect(
        &self,
        local: SocketAddr,
        endpoint: Option<ObjectId>,
        arguments: ConnectArguments,
    ) -> Result<NTSTATUS, NTSTATUS> {
        let ConnectArguments { qp, destination, destination_len, limits, data, data_len, done } =
            arguments;
        // SAFETY: the caller's promise.
        let qp = unsafe { QpObject::check(qp) }?;
        // SAFETY: the caller's promise about the address.
        let remote = unsafe { parse_sockaddr(destination, destination_len) };
        let remote = remote.ok_or(STATUS_INVALID_ADDRESS)?;
        // SAFETY: the caller's promise about the data.
        let private_data = unsafe { private_data(data, data_len, MAX_CALLER_DATA) }?;
        if !self.same_provider(qp) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(STATUS_NETWORK_UNREACHABLE);
        }
        if remote.port() == 0 {
            return Err(STATUS_CONNECTION_REFUSED);
        }
        let qp = qp.base.id;
        let what = Connect { qp, local, endpoint, remote, limits, private_data };
        let what = self.base.shard.boxed(what)?;
        Ok(request(self.base.shard(), Control::Connect { connector: self.base.id, what, done }))
    }

    fn complete_connect(&self, event: DisconnectEvent, done: RequestDone) -> NTSTATUS {
        request(
            self.base.shard(),
            Control::CompleteConnect { connector: self.base.id, event, done },
        )
    }

    /// # Safety
    /// The QP is null or an object; the private data is null or readable for its length.
    unsafe fn accept(&self, arguments: AcceptArguments) -> Result<NTSTATUS, NTSTATUS> {
        let AcceptArguments { qp, limits, data, data_len, event, done } = arguments;
        // SAFETY: the caller's promise.
        let qp = unsafe { QpObject::check(qp) }?;
        // SAFETY: the caller's promise about the data.
        let private_data = unsafe { private_data(data, data_len, MAX_CALLEE_DATA) }?;
        if !self.same_provider(qp) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let what = Accept { qp: qp.base.id, limits, private_data, event };
        let what = self.base.shard.boxed(what)?;
        Ok(request(self.base.shard(), Control::Accept { connector: self.base.id, what, done }))
    }
}

/// [`NDK_FN_ACCEPT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_accept).
/// IRQL <= DISPATCH_LEVEL. The QP may belong to another adapter instance of this provider.
///
/// # Safety
/// `connector` and `qp` are open; the private data is readable for its length.
unsafe extern "system" fn ndk_accept(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_len: ULONG,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    event_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    let event = DisconnectEvent::Plain(event, Context::new(event_context));
    let done = or_return!(RequestDone::new(completion, context));
    let arguments =
        AcceptArguments { qp, limits: limits(inbound, outbound), data, data_len, event, done };
    // SAFETY: the consumer's promise.
    unsafe { connector.accept(arguments) }.unwrap_or_else(|status| status)
}

/// [`NDK_FN_ACCEPT_EX`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_accept_ex).
/// IRQL <= DISPATCH_LEVEL. `STATUS_NOT_SUPPORTED` on an adapter that was opened at 1.x.
///
/// # Safety
/// `connector` and `qp` are open; the private data is readable for its length.
unsafe extern "system" fn ndk_accept_ex(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    inbound: ULONG,
    outbound: ULONG,
    data: *const c_void,
    data_len: ULONG,
    event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    event_context: PVOID,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    or_return!(connector.base.check_2_1());
    let event = DisconnectEvent::WithReason(event, Context::new(event_context));
    let done = or_return!(RequestDone::new(completion, context));
    let arguments =
        AcceptArguments { qp, limits: limits(inbound, outbound), data, data_len, event, done };
    // SAFETY: the consumer's promise.
    unsafe { connector.accept(arguments) }.unwrap_or_else(|status| status)
}

/// [`NDK_FN_REJECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_reject).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `connector` is open; the private data is readable for its length.
unsafe extern "system" fn ndk_reject(
    connector: *mut NDK_CONNECTOR,
    data: *const c_void,
    data_len: ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    // SAFETY: the consumer's promise about the data.
    let private_data = unsafe { private_data(data, data_len, MAX_CALLEE_DATA) };
    let boxed = private_data.and_then(|private_data| connector.base.shard.boxed(private_data));
    let private_data = or_return!(boxed);
    let sent = connector.base.shard().request_if(|| {
        connector.shared.leave_rejectable()?;
        Ok(Control::Reject { connector: connector.base.id, private_data })
    });
    sent.unwrap_or(Err(STATUS_INSUFFICIENT_RESOURCES)).into()
}

/// [`NDK_FN_GET_CONNECTION_DATA`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_connection_data).
/// IRQL <= DISPATCH_LEVEL. Answers at any time from the peer's first message on. Never asks for more
/// than `MaxCalleeData` bytes ([`PeerData`]).
///
/// # Safety
/// `connector` is open; the out parameters are null or writable, `data` for `*data_len` bytes.
unsafe extern "system" fn ndk_get_connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut ULONG,
    outbound: *mut ULONG,
    data: PVOID,
    data_len: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    let Some(info) = connector.shared.info.get() else { return STATUS_CONNECTION_INVALID };
    if data_len.is_null() {
        return STATUS_INVALID_PARAMETER;
    }
    // SAFETY: not null, so valid by the consumer's promise.
    let room = unsafe { data_len.read() } as usize;
    if data.is_null() && room > 0 {
        return STATUS_INVALID_PARAMETER;
    }
    let required = info.private_data.len();
    let copied = room.min(required);
    if copied > 0 {
        // SAFETY: the consumer's buffer holds `room` bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(info.private_data.as_ptr(), data.cast::<u8>(), copied)
        };
    }
    // SAFETY: the consumer's promise about the out parameters.
    unsafe { store(inbound, ULONG::from(info.limits.inbound)) };
    // SAFETY: as above.
    unsafe { store(outbound, ULONG::from(info.limits.outbound)) };
    // SAFETY: as above.
    unsafe { store(data_len, required as ULONG) };
    if data.is_null() || room >= required { STATUS_SUCCESS } else { STATUS_BUFFER_TOO_SMALL }
}

/// [`NDK_FN_GET_LOCAL_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_local_address).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `connector` is open; `len` is valid and `address` null or writable for `*len` bytes.
unsafe extern "system" fn ndk_get_local_address(
    connector: *mut NDK_CONNECTOR,
    address: *mut SOCKADDR,
    len: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    let Some(info) = connector.shared.info.get() else { return STATUS_CONNECTION_INVALID };
    // SAFETY: the consumer's promise about the out parameters.
    unsafe { write_sockaddr(info.local, address, len) }
}

/// [`NDK_FN_GET_PEER_ADDRESS`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_peer_address).
/// IRQL <= DISPATCH_LEVEL. Works inside the connect event.
///
/// # Safety
/// `connector` is open; `len` is valid and `address` null or writable for `*len` bytes.
unsafe extern "system" fn ndk_get_peer_address(
    connector: *mut NDK_CONNECTOR,
    address: *mut SOCKADDR,
    len: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    let Some(info) = connector.shared.info.get() else { return STATUS_CONNECTION_INVALID };
    // SAFETY: the consumer's promise about the out parameters.
    unsafe { write_sockaddr(info.peer, address, len) }
}

/// [`NDK_FN_DISCONNECT`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_disconnect).
/// IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `connector` is open.
unsafe extern "system" fn ndk_disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the connector open until this call returns.
    let connector = or_return!(unsafe { ConnectorObject::check(connector) });
    let done = or_return!(RequestDone::new(completion, context));
    request(connector.base.shard(), Control::Disconnect { connector: connector.base.id, done })
}
