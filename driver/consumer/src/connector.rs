//! Connectors: one end of one connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use driver::abi::*;

use crate::object::Handle;
use crate::request::{Outcome, Request, create};
use crate::{Adapter, Listener, NdkError, Qp, Result, SharedEndpoint, Waited};

/// How many RDMA READs may be in flight: those we serve, and those we issue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadLimits {
    /// READs of the peer.
    pub inbound: u32,
    /// Our own.
    pub outbound: u32,
}

/// The data of the peer's connect or accept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConnectionData {
    /// The limits in force.
    pub limits: ReadLimits,
    /// Private data, padded with zeros by the transport.
    pub private_data: Vec<u8>,
}

/// One end of a connection. Its drop disconnects.
#[derive(Debug)]
pub struct Connector {
    object: Handle<NDK_CONNECTOR>,
    disconnected: Arc<Outcome<()>>,
    /// The QP that the connection uses.
    qp: Mutex<Option<Arc<Qp>>>,
    /// The shared endpoint that it connected from.
    endpoint: Mutex<Option<Arc<SharedEndpoint>>>,
    _listener: Option<Arc<Listener>>,
    _adapter: Arc<Adapter>,
}

impl Connector {
    pub(crate) fn create(adapter: &Arc<Adapter>) -> Result<Self> {
        // SAFETY: the adapter is open.
        let object =
            create(adapter.opener(), "NdkCreateConnector", |completion, context, out| unsafe {
                (adapter.table().NdkCreateConnector)(adapter.as_ptr(), completion, context, out)
            })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, adapter.opener()) };
        Ok(Self::new(object, None, Arc::clone(adapter)))
    }

    pub(crate) fn new(
        object: Handle<NDK_CONNECTOR>,
        listener: Option<Arc<Listener>>,
        adapter: Arc<Adapter>,
    ) -> Self {
        let disconnected = Outcome::new();
        let (qp, endpoint) = (Mutex::new(None), Mutex::new(None));
        Self { object, disconnected, qp, endpoint, _listener: listener, _adapter: adapter }
    }

    /// Connects `qp` from `local` (port 0 lets the provider choose) to `remote`. When the request
    /// has ended well, [`Connector::complete_connect`] or [`Connector::reject`] must follow.
    pub fn connect(
        &self,
        qp: &Arc<Qp>,
        local: SocketAddr,
        remote: SocketAddr,
        limits: ReadLimits,
        private_data: &[u8],
    ) -> Request {
        self.keep(qp);
        let (local, remote) = (SOCKADDR_INET::from(local), SOCKADDR_INET::from(remote));
        // SAFETY: connector and QP are open; addresses and private data outlive the call.
        Request::start(self.object.opener(), "NdkConnect", |completion, context| unsafe {
            (self.object.table().NdkConnect)(
                self.as_ptr(),
                qp.as_ptr(),
                local.as_ptr(),
                local.len(),
                remote.as_ptr(),
                remote.len(),
                limits.inbound,
                limits.outbound,
                private_data.as_ptr().cast(),
                private_data.len() as ULONG,
                completion,
                context,
            )
        })
    }

    /// As [`Connector::connect`], from the address and port of `endpoint`.
    pub fn connect_shared(
        &self,
        qp: &Arc<Qp>,
        endpoint: &Arc<SharedEndpoint>,
        remote: SocketAddr,
        limits: ReadLimits,
        private_data: &[u8],
    ) -> Request {
        self.keep(qp);
        let kept = Some(Arc::clone(endpoint));
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        let remote = SOCKADDR_INET::from(remote);
        // SAFETY: connector, QP and endpoint are open; address and private data outlive the call.
        Request::start(
            self.object.opener(),
            "NdkConnectWithSharedEndpoint",
            |completion, context| unsafe {
                (self.object.table().NdkConnectWithSharedEndpoint)(
                    self.as_ptr(),
                    qp.as_ptr(),
                    endpoint.as_ptr(),
                    remote.as_ptr(),
                    remote.len(),
                    limits.inbound,
                    limits.outbound,
                    private_data.as_ptr().cast(),
                    private_data.len() as ULONG,
                    completion,
                    context,
                )
            },
        )
    }

    /// Confirms a connection that the peer has accepted.
    pub fn complete_connect(&self) -> Request {
        // SAFETY: the connector is open; it keeps `disconnected` until it is closed.
        Request::start(self.object.opener(), "NdkCompleteConnect", |completion, context| unsafe {
            (self.object.table().NdkCompleteConnect)(
                self.as_ptr(),
                Some(peer_disconnected),
                Arc::as_ptr(&self.disconnected).cast_mut().cast(),
                completion,
                context,
            )
        })
    }

    /// Accepts an incoming connection with `qp`; ends when the connection is established.
    pub fn accept(&self, qp: &Arc<Qp>, limits: ReadLimits, private_data: &[u8]) -> Request {
        self.keep(qp);
        // SAFETY: connector and QP are open; the private data outlives the call, and the connector
        // keeps `disconnected` until it is closed.
        Request::start(self.object.opener(), "NdkAccept", |completion, context| unsafe {
            (self.object.table().NdkAccept)(
                self.as_ptr(),
                qp.as_ptr(),
                limits.inbound,
                limits.outbound,
                private_data.as_ptr().cast(),
                private_data.len() as ULONG,
                Some(peer_disconnected),
                Arc::as_ptr(&self.disconnected).cast_mut().cast(),
                completion,
                context,
            )
        })
    }

    /// Refuses an incoming connection, or the terms on which the peer accepted ours.
    ///
    /// # Errors
    /// The peer has gone already.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        // SAFETY: the connector is open; the private data outlives the call.
        let status = unsafe {
            (self.object.table().NdkReject)(
                self.as_ptr(),
                private_data.as_ptr().cast(),
                private_data.len() as ULONG,
            )
        };
        NdkError::check("NdkReject", status)
    }

    /// The data of the peer.
    ///
    /// # Errors
    /// No peer has said anything yet.
    pub fn connection_data(&self) -> Result<ConnectionData> {
        let (mut inbound, mut outbound, mut len) = (0, 0, 0);
        let query = |private_data: PVOID, len: *mut ULONG, inbound, outbound| {
            // SAFETY: the connector is open; `private_data` has room for `*len` bytes.
            let status = unsafe {
                (self.object.table().NdkGetConnectionData)(
                    self.as_ptr(),
                    inbound,
                    outbound,
                    private_data,
                    len,
                )
            };
            NdkError::check("NdkGetConnectionData", status)
        };
        query(std::ptr::null_mut(), &raw mut len, &raw mut inbound, &raw mut outbound)?;
        let mut private_data = vec![0_u8; len as usize];
        query(private_data.as_mut_ptr().cast(), &raw mut len, &raw mut inbound, &raw mut outbound)?;
        Ok(ConnectionData { limits: ReadLimits { inbound, outbound }, private_data })
    }

    /// Our end's address.
    ///
    /// # Errors
    /// There is none yet.
    pub fn local_address(&self) -> Result<SocketAddr> {
        address("NdkGetLocalAddress", |address, len| {
            // SAFETY: the connector is open; `address` has room for `*len` bytes.
            unsafe { (self.object.table().NdkGetLocalAddress)(self.as_ptr(), address, len) }
        })
    }

    /// The peer's address.
    ///
    /// # Errors
    /// There is none yet.
    pub fn peer_address(&self) -> Result<SocketAddr> {
        address("NdkGetPeerAddress", |address, len| {
            // SAFETY: the connector is open; `address` has room for `*len` bytes.
            unsafe { (self.object.table().NdkGetPeerAddress)(self.as_ptr(), address, len) }
        })
    }

    /// Disconnects: ends when the peer has answered and the QP is quiet.
    pub fn disconnect(&self) -> Request {
        // SAFETY: the connector is open.
        Request::start(self.object.opener(), "NdkDisconnect", |completion, context| unsafe {
            (self.object.table().NdkDisconnect)(self.as_ptr(), completion, context)
        })
    }

    /// True once the peer has disconnected or the connection has broken.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.disconnected.get().is_some()
    }

    /// Waits for the peer to disconnect; false if `timeout` passes first.
    #[must_use]
    pub fn wait_disconnected(&self, timeout: Duration) -> bool {
        self.disconnected.wait_timeout(&**self.object.opener(), timeout) == Waited::Done
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_CONNECTOR {
        self.object.as_ptr()
    }

    /// A QP must not be dropped before its connector, whose close it would wait for.
    fn keep(&self, qp: &Arc<Qp>) {
        *self.qp.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(qp));
    }
}

/// Asks one of the address queries, whose answer fits the larger of the two families.
pub(crate) fn address(
    call: &'static str,
    query: impl FnOnce(*mut SOCKADDR, *mut ULONG) -> NTSTATUS,
) -> Result<SocketAddr> {
    let mut inet = SOCKADDR_INET::UNSPECIFIED;
    let mut len = size_of::<SOCKADDR_INET>() as ULONG;
    NdkError::check(call, query((&raw mut inet).cast(), &raw mut len))?;
    inet.socket_addr().ok_or(NdkError { status: STATUS_INTERNAL_ERROR, call })
}

/// # Safety
/// `context` is the `disconnected` of an open connector.
unsafe extern "system" fn peer_disconnected(context: PVOID) {
    // SAFETY: the connector keeps it until the close completion, the last callback of all.
    let disconnected = unsafe { &*context.cast_const().cast::<Outcome<()>>() };
    disconnected.set(());
}
