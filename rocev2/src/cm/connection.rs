//! One connection and its knowledge of both sides.

use super::ReadLimits;
use super::api::{
    CmEvent, ConnId, Connect, DisconnectReason, Layers, ListenerId, Peer, PrivateData, QpSide, Tie,
};
use super::config::{CmConfig, fold_ack_delay};
use super::listener::plain;
use super::message::Mad;
use super::news::{Kind, News};
use super::receive::Ignored;
use super::retry::Retry;
use super::slab::{Boxed, boxed};
use super::stale::StaleCheck;
use super::state::{Event, State};
use crate::class::{ClassBits, TrafficClass, priority_of};
use crate::env::{Duration, Instant, code_duration};
use crate::ids::{CommId, Qpn};
use crate::psn::Psn;
use crate::wire::mad::{IpCm, MadHeader, Make, RejReason, Rep, Req};
use crate::wire::{DropReason, Encap, GSI_SOURCE_PORT, Origin, Packet};
use core::net::IpAddr;

/// The owner of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// The consumer.
    Consumer,
    /// The consumer has released the connection, and is still to learn that the ID is gone.
    Released,
    /// The protocol alone.
    Nobody,
}

/// A REQ's identity: the peer will not use it for another connection before it restarts. The address is
/// part of it, so that no third host can interfere.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct RequestKey {
    pub(super) remote: IpAddr,
    pub(super) comm_id: CommId,
    pub(super) ca_guid: u64,
}

/// A peer's queue pair, which is in one connection at a time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct PeerQpKey {
    pub(super) remote: IpAddr,
    pub(super) ca_guid: u64,
    pub(super) qpn: Qpn,
}

/// The content that distinguishes a REQ from that of a restarted peer, whose IDs may repeat, and from a
/// forged one that comes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Request {
    pub(super) key: RequestKey,
    qpn: Qpn,
    starting_psn: u32,
    service_id: u64,
}

impl Request {
    pub(super) fn new(remote: IpAddr, req: &Req) -> Self {
        Self {
            key: RequestKey { remote, comm_id: req.local_comm_id, ca_guid: req.ca_guid },
            qpn: req.local_qpn,
            starting_psn: req.starting_psn.get(),
            service_id: req.service_id,
        }
    }
}

/// One connection, of either side.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) owner: Owner,
    pub(super) local_id: CommId,
    /// The peer's ID, known from REQ or REP on.
    pub(super) remote_id: Option<CommId>,
    /// The transaction ID of the exchange that establishes the connection, or of the one that ends it.
    pub(super) transaction_id: u64,
    /// The REQ of the connection; none on the active side.
    pub(super) request: Option<Request>,
    /// The peer's GUID; known with `remote_id`.
    pub(super) ca_guid: u64,
    /// Our queue pair; known from `connect` or `accept` on.
    pub(super) qp: QpSide,
    pub(super) peer: Peer,
    /// The negotiated response time of the peer.
    pub(super) response_timeout: Duration,
    /// When the REQ came, and whether it had come before and found no room.
    pub(super) since: Instant,
    pub(super) repeated: bool,
    /// The listener whose backlog counts the connection.
    pub(super) listener: Option<ListenerId>,
    /// The consumer knows the ID.
    pub(super) delivered: bool,
    /// Our REQ, REP or REJ; resent by a timer, or when the peer repeats its own message. None once the connection is
    /// established.
    pub(super) message: Option<Boxed<Mad>>,
    /// Where the private data of the peer waits for the event that brings it; none once the connection is
    /// established.
    pub(super) private_data: Option<Boxed<PrivateData>>,
    /// Active side: the path MTU is the one that the peer named when it refused our first REQ.
    pub(super) pmtu_lowered: bool,
    /// Our last message is a REJ.
    pub(super) rejected: bool,
    /// The peer has ended the established connection, and the consumer has not called `disconnect`.
    pub(super) ended_by_peer: bool,
    pub(super) retry: Option<Retry>,
    /// The check whether the peer still has the connection, if a message denies that.
    pub(super) stale_check: StaleCheck,
    /// The events to poll.
    pub(super) news: News,
    /// The peer's reason, if it has ended the connection.
    pub(super) end: DisconnectReason,
    pub(super) tie: Option<Tie>,
}

impl Connection {
    /// The active side, before its REQ.
    pub(super) fn active(
        config: &CmConfig,
        (local_id, transaction_id): (CommId, u64),
        connect: &Connect<'_>,
        starting_psn: Psn,
    ) -> Self {
        let (local, remote) = (plain(connect.local), plain(connect.remote));
        let peer = Peer {
            remote,
            local,
            hop: connect.hop,
            make: Make::Other,
            core_bits: 0,
            qpn: Qpn::default(),
            starting_psn: Psn::default(),
            pmtu: config.max_pmtu,
            limits: connect.limits.min(config.limits),
            ack_timeout_code: config.ack_timeout_code,
            retry_count: config.retry_count.min(7),
            rnr_retry: 0,
            flow_label: flow_label(local.port(), remote.port()),
            traffic_class: config.traffic_class,
            origin: Origin::default(),
        };
        let response_timeout = config.request_timeout();
        let base = Self::new(local_id, transaction_id, peer, response_timeout);
        let qp = QpSide { qpn: connect.qpn, starting_psn };
        Self { qp, delivered: true, ..base }
    }

    /// The passive side: a REQ has arrived.
    pub(super) fn passive(
        config: &CmConfig,
        local_id: CommId,
        transaction_id: u64,
        listener: ListenerId,
        request: Request,
        req: &Req,
        peer: Peer,
    ) -> Option<Self> {
        let response_timeout = code_duration(req.local_response_timeout).min(config.connect_limit);
        let (_, private_data) = req.private_data.split_at(IpCm::LEN);
        let mut conn = Self {
            remote_id: Some(req.local_comm_id),
            request: Some(request),
            ca_guid: req.ca_guid,
            listener: Some(listener),
            ..Self::new(local_id, transaction_id, peer, response_timeout)
        };
        conn.make_room()?;
        conn.keep_data(private_data);
        Some(conn)
    }

    fn new(local_id: CommId, transaction_id: u64, peer: Peer, response_timeout: Duration) -> Self {
        Self {
            state: State::Idle,
            owner: Owner::Consumer,
            local_id,
            remote_id: None,
            transaction_id,
            request: None,
            ca_guid: 0,
            qp: QpSide { qpn: Qpn::default(), starting_psn: Psn::default() },
            peer,
            response_timeout,
            since: Instant::default(),
            repeated: false,
            listener: None,
            delivered: false,
            message: None,
            private_data: None,
            pmtu_lowered: false,
            rejected: false,
            ended_by_peer: false,
            retry: None,
            stale_check: StaleCheck::default(),
            news: News::default(),
            end: DisconnectReason::Dreq,
            tie: None,
        }
    }

    /// Moves to the next state and returns the one before.
    pub(super) fn step(&mut self, event: Event) -> Option<State> {
        let next = self.state.next(event)?;
        Some(core::mem::replace(&mut self.state, next))
    }

    pub(super) const fn is_active(&self) -> bool {
        self.request.is_none()
    }

    /// The peer's queue pair, once it is known.
    pub(super) fn peer_qp(&self) -> Option<PeerQpKey> {
        self.remote_id?;
        let remote = self.peer.remote.ip();
        Some(PeerQpKey { remote, ca_guid: self.ca_guid, qpn: self.peer.qpn })
    }

    /// Checks that a message comes from the peer's address, to ours: its IDs could be guessed.
    pub(super) fn check_addresses(&self, packet: &Packet<'_>) -> Result<(), Ignored> {
        let addresses = (packet.encap.src, packet.encap.dst);
        if addresses == (self.peer.remote.ip(), self.peer.local.ip()) {
            Ok(())
        } else {
            Err(Ignored::Dropped(DropReason::AddressMismatch))
        }
    }

    /// The class of its service: the one that a connect asks for is at the peer.
    fn class(&self, config: &CmConfig) -> Option<TrafficClass> {
        let service = if self.is_active() { self.peer.remote } else { self.peer.local };
        config.classes.of(service.port())
    }

    /// The bits of its queue pair's packets.
    pub(super) fn class_bits(&self, config: &CmConfig) -> ClassBits {
        self.bits(config, self.peer.traffic_class)
    }

    /// The bits of its messages.
    pub(super) fn message_class(&self, config: &CmConfig) -> ClassBits {
        self.bits(config, config.traffic_class)
    }

    /// Without a class, the priority is that of the peer's request, if it has one.
    fn bits(&self, config: &CmConfig, traffic_class: u8) -> ClassBits {
        let asked = if self.is_active() { None } else { priority_of(self.peer.hop.vlan) };
        ClassBits::new(self.class(config), ClassBits { traffic_class, priority: asked })
    }

    /// Layers 2 to 4 of a message to the peer.
    pub(super) fn layers(&self, config: &CmConfig) -> Layers {
        let encap = Encap {
            src_mac: self.peer.hop.src_mac,
            dst_mac: self.peer.hop.dst_mac,
            vlan: self.peer.hop.vlan,
            src: self.peer.local.ip(),
            dst: self.peer.remote.ip(),
            traffic_class: config.traffic_class,
            hop_limit: config.hop_limit,
            ip_id: 0,
            flow_label: 0,
            src_port: GSI_SOURCE_PORT,
        };
        Layers { encap, priority: None }.with_class(self.message_class(config))
    }

    /// Takes the values of a REP.
    pub(super) fn take_rep(
        &mut self,
        config: &CmConfig,
        origin: Origin,
        header: &MadHeader,
        rep: &Rep,
    ) {
        self.remote_id = Some(rep.local_comm_id);
        self.ca_guid = rep.ca_guid;
        let offered =
            ReadLimits { inbound: rep.initiator_depth, outbound: rep.responder_resources };
        let peer = &mut self.peer;
        (peer.make, peer.qpn) = (header.make, rep.local_qpn);
        (peer.core_bits, peer.origin) = (header.core_bits, origin);
        peer.starting_psn = rep.starting_psn;
        peer.limits = peer.limits.min(offered);
        peer.rnr_retry = rep.rnr_retry;
        let wanted = fold_ack_delay(config.ack_timeout_code, rep.target_ack_delay);
        peer.ack_timeout_code =
            config.peer_limits.ack_timeout_code(config.ack_timeout_code, wanted);
        self.keep_data(&rep.private_data);
    }

    /// Makes room for our messages and the peer's data; `None` where there is no memory.
    pub(super) fn make_room(&mut self) -> Option<()> {
        self.message = Some(boxed([0; _])?);
        self.private_data = Some(boxed(PrivateData::new())?);
        Some(())
    }

    /// Gives that room back: the connection is established.
    pub(super) fn give_room_back(&mut self) {
        (self.message, self.private_data) = (None, None);
    }

    /// Keeps private data of the peer for the event that brings it, unless other data wait there.
    pub(super) fn keep_data(&mut self, data: &[u8]) {
        if let Some([kept]) = self.private_data.as_deref_mut()
            && kept.is_empty()
        {
            kept.extend(data.iter().copied());
        }
    }

    /// Takes the private data that was kept.
    fn take_data(&mut self) -> PrivateData {
        let kept = self.private_data.as_deref_mut();
        kept.map(|[kept]| core::mem::take(kept)).unwrap_or_default()
    }

    /// Puts another message in the place of the one that establishes the connection.
    pub(super) fn set_message(&mut self, message: Mad) {
        if let Some([kept]) = self.message.as_deref_mut() {
            *kept = message;
        }
    }

    /// Our last message, which may have to be sent again.
    pub(super) fn last_message(&self) -> Option<Mad> {
        match self.state {
            State::Established if self.is_active() => Some(self.rtu()),
            State::DreqSent => Some(self.dreq()),
            State::Idle
            | State::ReqSent
            | State::RepReceived
            | State::ReqReceived
            | State::RepSent
            | State::Established
            | State::Closed => self.message.as_deref().map(|[message]| *message),
        }
    }

    /// The event of a kind. Its private data is taken.
    pub(super) fn event(&mut self, conn: ConnId, kind: Kind) -> Option<CmEvent> {
        Some(match kind {
            Kind::ConnectRequest => CmEvent::ConnectRequest {
                listener: self.listener?,
                conn,
                peer: self.peer.clone(),
                private_data: self.take_data(),
            },
            Kind::Connected => {
                CmEvent::Connected { conn, peer: self.peer.clone(), private_data: self.take_data() }
            }
            Kind::Established => CmEvent::Established { conn },
            Kind::Refused => {
                let reason = match self.end {
                    DisconnectReason::Rejected(reason) => reason,
                    DisconnectReason::Dreq | DisconnectReason::Stale => RejReason::STALE_CONNECTION,
                };
                CmEvent::Refused { conn, reason, private_data: self.take_data() }
            }
            Kind::TimedOut => CmEvent::TimedOut { conn },
            Kind::PeerDisconnected => CmEvent::PeerDisconnected { conn, reason: self.end },
            Kind::PathLost => CmEvent::PathLost { conn },
            Kind::DisconnectDone => CmEvent::DisconnectDone { conn, timed_out: false },
            Kind::DisconnectTimedOut => CmEvent::DisconnectDone { conn, timed_out: true },
            Kind::Closed => CmEvent::Closed { conn },
        })
    }

    /// The peer's ID; 0 while unknown, as on the wire.
    pub(super) fn remote_id(&self) -> CommId {
        self.remote_id.unwrap_or_default()
    }

    /// Whether a message with this local ID is from the peer, as far as its ID is known.
    pub(super) fn may_be_peer(&self, comm_id: CommId) -> bool {
        self.remote_id.is_none_or(|remote_id| remote_id == comm_id)
    }
}

/// The label of a path between two ports (Linux `rdma_calc_flow_label`).
fn flow_label(src_port: u16, dst_port: u16) -> u32 {
    (u32::from(src_port) * 31 + u32::from(dst_port)) & 0xf_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From our capture of Linux: the label of each REQ and the ports in its service ID and header.
    #[test]
    fn flow_labels_as_linux_makes_them() {
        assert_eq!(flow_label(0xc261, 0x1c06), 0x7a5c5);
    }
}
