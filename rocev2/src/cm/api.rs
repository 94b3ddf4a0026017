//! What passes between a connection manager and its owner.

use super::slab::Key;
use crate::ids::Qpn;
use crate::psn::Psn;
use crate::wire::mad::{MAD_LEN, RejReason};
use crate::wire::{Encap, Hop, Pmtu};
use core::net::SocketAddr;

/// Names a connection from [`super::Cm::connect`] or [`CmEvent::ConnectRequest`] to
/// [`CmEvent::Closed`], and none after it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnId(pub(super) Key);

/// Names a listener for its life, and none after it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ListenerId(pub(super) Key);

/// How many READs and atomics may be outstanding.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReadLimits {
    /// From the peer, served by us (responder resources; NDK's InboundReadLimit).
    pub inbound: u8,
    /// From us, served by the peer (initiator depth; NDK's OutboundReadLimit).
    pub outbound: u8,
}

impl ReadLimits {
    /// The smaller of both, each way.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            inbound: self.inbound.min(other.inbound),
            outbound: self.outbound.min(other.outbound),
        }
    }
}

/// Our queue pair, as the peer needs to know it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct QpSide {
    /// Its number.
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

/// What [`super::Cm::connect`] needs.
#[derive(Clone, Debug)]
pub struct ConnectParams<'a> {
    /// Our endpoint, bound by the caller.
    pub local: SocketAddr,
    /// The listener's endpoint.
    pub remote: SocketAddr,
    /// Layer 2 towards it.
    pub hop: Hop,
    /// Our queue pair.
    pub qp: QpSide,
    /// Our read limits, capped to those of the adapter.
    pub limits: ReadLimits,
    /// The path MTU to ask for, capped to that of the port.
    pub pmtu: Pmtu,
    /// RNR retries for the peer's queue pair; 7 is without end.
    pub rnr_retry: u8,
    /// Transport retries for both queue pairs, up to 7.
    pub retry_count: u8,
    /// At most [`REQ_PRIVATE_DATA`] bytes.
    pub private_data: &'a [u8],
}

/// What [`super::Cm::accept`] needs.
#[derive(Clone, Debug)]
pub struct AcceptParams<'a> {
    /// Our queue pair, which can receive by now.
    pub qp: QpSide,
    /// Our read limits; they may lower those that the request left.
    pub limits: ReadLimits,
    /// RNR retries for the peer's queue pair; 7 is without end.
    pub rnr_retry: u8,
    /// At most [`REP_PRIVATE_DATA`] bytes.
    pub private_data: &'a [u8],
}

/// How the peer's queue pair is reached, from REQ or REP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    /// The peer's endpoint.
    pub remote: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// Layer 2 towards the peer; on the passive side mirrored from the request's frame.
    pub hop: Hop,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The PSN at which *we* start to send.
    pub starting_psn: Psn,
    /// The path MTU, both ways.
    pub pmtu: Pmtu,
    /// Effective limits: what both sides offered. Accepting may lower them.
    pub limits: ReadLimits,
    /// Transport timer for our queue pair: 4.096 us * 2^n.
    pub ack_timeout_code: u8,
    /// Transport retries for our queue pair, up to 7.
    pub retry_count: u8,
    /// RNR retries for our queue pair; 7 is without end.
    pub rnr_retry: u8,
    /// Label of the path, 20 bits, for [`crate::wire::source_port`].
    pub flow_label: u32,
    /// Traffic class for the connection's packets.
    pub traffic_class: u8,
    /// Of the REQ, 56 bytes, or of the REP, 196.
    pub private_data: PrivateData,
}

/// What a connection manager tells its owner. Each kind comes at most once for a connection, and
/// none after `Closed`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CmEvent {
    /// Passive side: to be answered by `accept`, `reject` or `release`. There is no deadline.
    ConnectRequest {
        /// Who was asked.
        listener: ListenerId,
        /// The connection that may come of it.
        conn: ConnId,
        /// Who asks.
        peer: Peer,
    },
    /// Active side: REP arrived. To be answered by `confirm`, `reject` or `release`; no deadline.
    Connected {
        /// The connection.
        conn: ConnId,
        /// What was agreed on.
        peer: Peer,
    },
    /// Passive side: the peer has confirmed, or its data has arrived.
    Established {
        /// The connection.
        conn: ConnId,
    },
    /// The peer refused before the connection was established; either side.
    Refused {
        /// The connection that failed.
        conn: ConnId,
        /// Why.
        reason: RejReason,
        /// Of the REJ, 148 bytes; empty where the end came another way.
        private_data: PrivateData,
    },
    /// The peer did not answer REQ or REP.
    TimedOut {
        /// The connection that failed.
        conn: ConnId,
    },
    /// The peer ended the connection, or no longer has it.
    PeerDisconnected {
        /// The connection.
        conn: ConnId,
        /// How it ended.
        reason: DisconnectReason,
    },
    /// The way to the peer is gone for good; nothing was sent.
    PathLost {
        /// The connection, which was not being ended already.
        conn: ConnId,
    },
    /// Our DREQ was answered or given up.
    DisconnectDone {
        /// The connection.
        conn: ConnId,
        /// It was given up.
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

/// How the peer ended a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DisconnectReason {
    /// In order.
    Dreq,
    /// It does not take the connection for one.
    Rejected(RejReason),
    /// It has started anew and uses the IDs or the queue pair for something else.
    Stale,
}

/// A CM message to send as UD SEND_ONLY from QP 1 to QP 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CmTransmit {
    /// Layers 2 to 4; the sender fills in the IP identification.
    pub encap: Encap,
    /// The whole payload.
    pub payload: [u8; MAD_LEN],
}

/// Why a call was refused. Nothing was sent and nothing has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CmError {
    /// The private data does not fit the message.
    PrivateData,
    /// The addresses differ in family, or the remote one names no single host.
    Address,
    /// Someone has that local endpoint.
    AddressInUse,
    /// No ephemeral port is left.
    NoPorts,
    /// A connection between these two endpoints exists.
    Connected,
    /// As many connections as there may be.
    Full,
    /// There is no connection with that ID, any more.
    UnknownId,
    /// The connection is not in a state for this call; the peer may have ended it meanwhile.
    State,
}
