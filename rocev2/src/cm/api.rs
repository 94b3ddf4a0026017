//! The types that pass between a connection manager and its owner.

use super::slab::Key;
use crate::class::ClassBits;
use crate::ids::Qpn;
use crate::path::{Path, PathIndex};
use crate::psn::Psn;
use crate::wire::mad::{MAD_LEN, Make, RejReason};
use crate::wire::{Encap, Hop, Origin, Pmtu};
use core::net::SocketAddr;

/// Names a connection from [`Device::connect`](crate::Device::connect) or [`CmEvent::ConnectRequest`] to
/// [`CmEvent::Closed`], and none after it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnId(pub(super) Key);

/// Names a listener for its life, and none after it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ListenerId(pub(super) Key);

/// Limits on outstanding READs and atomics.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReadLimits {
    /// READs of the peer, served by us (responder resources; NDK's InboundReadLimit).
    pub inbound: u8,
    /// READs of ours, served by the peer (initiator depth; NDK's OutboundReadLimit).
    pub outbound: u8,
}

impl ReadLimits {
    /// The smaller limit of the two, each way.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            inbound: self.inbound.min(other.inbound),
            outbound: self.outbound.min(other.outbound),
        }
    }
}

/// The attributes of our queue pair that the peer needs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct QpSide {
    /// The QPN.
    pub qpn: Qpn,
    /// The PSN at which the *peer* starts to send to it.
    pub starting_psn: Psn,
}

/// Bytes of the longest private data that a REQ carries for the consumer.
pub const REQ_PRIVATE_DATA: usize = 56;

/// Bytes of the longest private data of a REP.
pub const REP_PRIVATE_DATA: usize = 196;

/// Bytes of the longest private data of a REJ.
pub const REJ_PRIVATE_DATA: usize = 148;

/// Private data as it came: the message's whole field, as the sender's length is not on the wire.
pub type PrivateData = heapless::Vec<u8, REP_PRIVATE_DATA>;

/// The values of a connect.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    /// The QP to connect.
    pub qpn: Qpn,
    /// Own address and a bound port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Layer 2 towards the peer. A path in use keeps its hop.
    pub hop: Hop,
    /// READs wanted per direction, up to those of the adapter.
    pub limits: ReadLimits,
    /// At most [`REQ_PRIVATE_DATA`] bytes for the peer's consumer.
    pub private_data: &'a [u8],
}

/// The peer's queue pair and the path to it, from REQ or REP.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Peer {
    /// The peer's endpoint.
    pub remote: SocketAddr,
    /// Our endpoint.
    pub local: SocketAddr,
    /// Layer 2 towards the peer; on the passive side mirrored from the request's frame.
    pub hop: Hop,
    /// The peer's make, as its REQ or REP shows it.
    pub make: Make,
    /// The upper bits of a QPN that name the peer's core, as its REQ or REP shows them ([`crate::ids::core_bits`]).
    pub core_bits: u8,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The PSN at which *we* start to send.
    pub starting_psn: Psn,
    /// The path MTU, both ways.
    pub pmtu: Pmtu,
    /// The effective read limits, offered by both sides. Accepting may lower them.
    pub limits: ReadLimits,
    /// Transport timer for our queue pair: 4.096 us * 2^n.
    pub ack_timeout_code: u8,
    /// Transport retries for our queue pair, up to 7.
    pub retry_count: u8,
    /// RNR retries for our queue pair; 7 is without limit.
    pub rnr_retry: u8,
    /// Label of the path, 20 bits, for [`crate::wire::source_port`].
    pub flow_label: u32,
    /// Traffic class for the connection's packets.
    pub traffic_class: u8,
    /// Where REQ or REP came from; nowhere before the latter.
    pub origin: Origin,
}

impl Peer {
    pub(crate) const fn path(&self) -> Path {
        Path { local: self.local.ip(), remote: self.remote.ip() }
    }
}

/// An event of a connection manager. Each kind comes at most once for a connection, and none after
/// `Closed`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CmEvent {
    /// Passive side: REQ arrived. The owner calls `accept`, `reject` or `release`. There is no deadline.
    ConnectRequest {
        /// The listener.
        listener: ListenerId,
        /// The connection that is requested.
        conn: ConnId,
        /// The peer.
        peer: Peer,
        /// The private data of the REQ, 56 bytes.
        private_data: PrivateData,
    },
    /// Active side: REP arrived. The owner calls `confirm`, `reject` or `release`. There is no deadline.
    Connected {
        /// The connection.
        conn: ConnId,
        /// The peer, with the negotiated values.
        peer: Peer,
        /// The private data of the REP, 196 bytes.
        private_data: PrivateData,
    },
    /// Passive side: RTU or data of the peer has arrived.
    Established {
        /// The connection.
        conn: ConnId,
    },
    /// Either side: the peer refused before the connection was established.
    Refused {
        /// The connection that failed.
        conn: ConnId,
        /// The reason.
        reason: RejReason,
        /// The private data of the REJ, 148 bytes; empty where no REJ came, or nobody had asked for the event before
        /// yet.
        private_data: PrivateData,
    },
    /// The peer did not respond to REQ or REP.
    TimedOut {
        /// The connection that failed.
        conn: ConnId,
    },
    /// The peer ended the connection, or no longer has it.
    PeerDisconnected {
        /// The connection.
        conn: ConnId,
        /// The reason.
        reason: DisconnectReason,
    },
    /// The path to the peer is gone for good; no message was sent.
    PathLost {
        /// The connection, which was not being ended already.
        conn: ConnId,
    },
    /// DREP has arrived, or DREQ was given up.
    DisconnectDone {
        /// The connection.
        conn: ConnId,
        /// DREQ was given up.
        timed_out: bool,
    },
    /// `release` is done: the ID is gone.
    Closed {
        /// The ID.
        conn: ConnId,
    },
}

impl CmEvent {
    /// The connection that the event is about.
    pub const fn conn(&self) -> ConnId {
        match self {
            Self::ConnectRequest { conn, .. }
            | Self::Connected { conn, .. }
            | Self::Established { conn }
            | Self::Refused { conn, .. }
            | Self::TimedOut { conn }
            | Self::PeerDisconnected { conn, .. }
            | Self::PathLost { conn }
            | Self::DisconnectDone { conn, .. }
            | Self::Closed { conn } => *conn,
        }
    }
}

/// The reason for which a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The peer sent DREQ.
    Dreq,
    /// The peer refuses the connection.
    Rejected(RejReason),
    /// The peer has started anew and uses the IDs or the queue pair for another connection.
    Stale,
}

/// The part of a connection that is its device's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tie {
    /// The path of its packets.
    pub path: PathIndex,
    /// The caller's name for it.
    pub owner: Option<u64>,
}

/// Layers 2 to 4 of a message; the sender fills in the IP identification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Layers {
    /// Those of the way that is known where the message is made.
    pub encap: Encap,
    /// The priority of the tag, whatever the way has; `None` without a class.
    pub priority: Option<u8>,
}

impl Layers {
    /// These layers, in a class.
    pub(super) fn with_class(mut self, bits: ClassBits) -> Self {
        self.encap.traffic_class = bits.traffic_class;
        Self { priority: bits.priority, ..self }
    }
}

/// A CM message to send as UD SEND_ONLY from QP 1 to QP 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CmTransmit {
    /// Layers 2 to 4.
    pub layers: Layers,
    /// The whole payload.
    pub payload: [u8; MAD_LEN],
}

/// The reason why a call was refused. Nothing was sent or changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CmError {
    /// The private data does not fit the message.
    #[error("the private data does not fit the message")]
    PrivateData,
    /// The addresses differ in family, or the remote one names no single host.
    #[error("the addresses do not fit each other, the device or a single host")]
    Address,
    /// The local endpoint is in use.
    #[error("the local endpoint is in use")]
    AddressInUse,
    /// No ephemeral port is left.
    #[error("no ephemeral port is left")]
    NoPorts,
    /// A connection between these two endpoints exists.
    #[error("the two endpoints are connected already")]
    Connected,
    /// There are as many connections or listeners as may be, or as there is memory for.
    #[error("there is no room for another connection or listener")]
    Full,
    /// There is no connection with that ID any more.
    #[error("there is no such connection")]
    UnknownId,
    /// The connection is not in a state for this call; the peer may have ended it meanwhile.
    #[error("the state of the connection does not allow the call")]
    State,
}
