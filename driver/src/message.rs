//! The requests of the consumers' threads and the home to the poll core, and the end of each.

use crate::abi::*;
use crate::connector::request::{Accept, CalleeData, Connect, DisconnectEvent};
use crate::counters::Connection;
use crate::cq::request::CreateCq;
use crate::mr::request::{Initialize, Register};
use crate::object::id::{Context, ObjectId};
use crate::qp::request::CreateQp;
use crate::srq::request::CreateSrq;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// How a request that returned `STATUS_PENDING` ends.
#[derive(Clone, Copy)]
pub(crate) struct RequestDone {
    pub(crate) callback: NDK_FN_REQUEST_COMPLETION,
    pub(crate) context: Context,
}

impl RequestDone {
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: no callback, and the request would end unheard.
    pub(crate) fn new(
        callback: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> Result<Self, NTSTATUS> {
        let callback = callback.ok_or(STATUS_INVALID_PARAMETER)?;
        Ok(Self { callback, context: Context::new(context) })
    }
}

/// How a creation that returned `STATUS_PENDING` ends.
#[derive(Clone, Copy)]
pub(crate) struct CreateDone {
    pub(crate) callback: NDK_FN_CREATE_COMPLETION,
    pub(crate) context: Context,
}

impl CreateDone {
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: there is no callback, so no consumer would ever have the object, to
    /// close it.
    pub(crate) fn new(
        callback: Option<NDK_FN_CREATE_COMPLETION>,
        context: PVOID,
    ) -> Result<Self, NTSTATUS> {
        let callback = callback.ok_or(STATUS_INVALID_PARAMETER)?;
        Ok(Self { callback, context: Context::new(context) })
    }
}

/// How a close ends.
pub(crate) enum CloseDone {
    /// By the consumer's callback.
    Callback(NDK_FN_CLOSE_COMPLETION, Context),
    /// By a signal to the thread that waits in the close of the adapter.
    Signal(Closed),
}

/// A message to the poll core.
pub(crate) enum Control {
    OpenAdapter {
        version: NDK_VERSION,
        opened: Opened,
    },
    Create {
        parent: ObjectId,
        what: Box<Create>,
        done: CreateDone,
    },
    Close {
        object: ObjectId,
        done: CloseDone,
    },
    ResizeCq {
        cq: ObjectId,
        depth: u32,
        done: RequestDone,
    },
    RegisterMr {
        mr: ObjectId,
        what: Box<Register>,
        done: RequestDone,
    },
    InitializeFastRegisterMr {
        mr: ObjectId,
        what: Box<Initialize>,
        done: RequestDone,
    },
    /// 0 keeps depth or threshold.
    ModifySrq {
        srq: ObjectId,
        depth: u32,
        threshold: u32,
        done: RequestDone,
    },
    DeregisterMr {
        mr: ObjectId,
        done: RequestDone,
    },
    Connect {
        connector: ObjectId,
        what: Box<Connect>,
        done: RequestDone,
    },
    CompleteConnect {
        connector: ObjectId,
        event: DisconnectEvent,
        done: RequestDone,
    },
    Accept {
        connector: ObjectId,
        what: Box<Accept>,
        done: RequestDone,
    },
    Reject {
        connector: ObjectId,
        private_data: Box<CalleeData>,
    },
    Disconnect {
        connector: ObjectId,
        done: RequestDone,
    },
    Listen {
        listener: ObjectId,
        local: SocketAddr,
        done: RequestDone,
    },
    /// The adapter owns these addresses from now on.
    SetAddresses {
        addresses: Vec<IpAddr>,
    },
    /// [`crate::platform::Platform::resolve`] has ended; `None` where there was no answer.
    Resolved {
        remote: IpAddr,
        mac: Option<[u8; 6]>,
    },
    /// The operating system's routes or interfaces have changed: neighbours may be elsewhere.
    CheckPaths,
    /// A query for the listeners and connections.
    List {
        /// Gets nothing where there is no memory for them.
        listed: Listed,
    },
    Stop,
}

/// The object to create.
pub(crate) enum Create {
    Pd,
    Cq(CreateCq),
    Mr { fast_register: bool },
    Mw,
    Srq(CreateSrq),
    Qp(CreateQp),
    Connector,
    Listener { event: NDK_FN_CONNECT_EVENT_CALLBACK, context: Context },
    SharedEndpoint { local: SocketAddr },
}

/// Gets an open adapter, or NULL where there are no resources for it. It is called in a turn of the core.
pub type Opened = Box<dyn FnOnce(*mut NDK_ADAPTER) + Send>;
/// Is told that an adapter is closed. It is called in a turn of the core.
pub type Closed = Box<dyn FnOnce() + Send>;
/// Gets the endpoints of an adapter, or `None` where there is no memory for the list. It is called in a
/// turn of the core.
pub type Listed = Box<dyn FnOnce(Option<Vec<Endpoint>>) + Send>;

/// An object with a local address.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// Established.
    Connection(Connection),
    /// It takes requests.
    Listener(SocketAddr),
    /// Outgoing connections share it.
    Shared(SocketAddr),
}

/// Those of endpoints that have a peer.
pub(crate) fn connections(endpoints: Vec<Endpoint>) -> Vec<Connection> {
    let connected = |endpoint| match endpoint {
        Endpoint::Connection(connection) => Some(connection),
        Endpoint::Listener(_) | Endpoint::Shared(_) => None,
    };
    endpoints.into_iter().filter_map(connected).collect()
}
