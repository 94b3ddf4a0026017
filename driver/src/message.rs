//! The requests of the consumers' threads and the home to the poll core.

use crate::abi::*;
use crate::adapter::request::Opened;
use crate::connector::request::{Accept, Connect, DisconnectEvent, PrivateData};
use crate::cq::request::CreateCq;
use crate::mr::request::{Initialize, Register};
use crate::object::done::{CloseDone, CreateDone, RequestDone};
use crate::object::id::{Context, ObjectId};
use crate::platform::request::Listed;
use crate::qp::request::CreateQp;
use crate::srq::request::CreateSrq;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

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
        private_data: Box<PrivateData>,
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
