//! The effect of a REQ: it begins a connection, repeats one, or is refused.

use super::Hop;
use super::api::{ConnId, ListenerId, Peer, ReadLimits};
use super::connection::{Connection, PeerQpKey, Request, RequestKey};
use super::listener::Admission;
use super::news::Kind;
use super::receive::{Effect, Ignored, Refusal};
use super::state::{Event, State};
use super::{Cm, REQ_PRIVATE_DATA};
use crate::env::Instant;
use crate::ids::{CommId, Qpn};
use crate::wire::mad::{
    IpCm, MadHeader, MraMessage, RejMessage, RejReason, Req, Transport, gid, service_port,
};
use crate::wire::{Origin, Packet, Pmtu};
use core::net::SocketAddr;

impl Cm {
    #[inline(never)]
    pub(super) fn receive_req(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        header: &MadHeader,
        req: &Req,
        repeated: bool,
    ) -> Effect {
        let request = Request::new(packet.encap.src, req);
        if let Some(effect) = self.receive_req_again(packet, header, &request) {
            return effect;
        }
        let refusal = match self.check_req(packet, header, req) {
            Ok(peer) => match self.find_stale(&request.key, req.local_qpn) {
                None => {
                    let asked = Asked { now, repeated, request };
                    return self.take_req(packet, (header, req), asked, peer);
                }
                // The REQ is refused, not put off: unknown hosts could use up any memory that is kept for
                // them.
                Some(old) => {
                    self.check_stale(now, old);
                    STALE
                }
            },
            Err(refusal) => refusal,
        };
        self.refuse_req(packet, header, request.key.comm_id, refusal)
    }

    /// Handles a REQ that has begun a connection before; `None` for another one. On a stack of its own, as a connection
    /// that is opened takes much of one.
    #[inline(never)]
    fn receive_req_again(
        &mut self,
        packet: &Packet<'_>,
        header: &MadHeader,
        request: &Request,
    ) -> Option<Effect> {
        if let Some(id) = self.conns.find_request(request) {
            return Some(self.repeat_request(id));
        }
        let wait = self.conns.find_wait_request(request)?;
        if wait.request.as_ref() == Some(request)
            && let Ok((layers, rej)) = wait.repeated_rej(&self.config, packet)
        {
            self.transmit(layers, rej);
            return Some(Ok(()));
        }
        Some(self.refuse_req(packet, header, request.key.comm_id, STALE))
    }

    /// Finds the connection that the sender of a REQ cannot have any more, if the REQ is its own: a queue
    /// pair is in one connection at a time, and an ID names one.
    fn find_stale(&self, key: &RequestKey, qpn: Qpn) -> Option<ConnId> {
        let peer_qp = PeerQpKey { remote: key.remote, ca_guid: key.ca_guid, qpn };
        let by_qp = self.conns.find_peer_qp(&peer_qp);
        by_qp.or_else(|| self.conns.find_identity(key, &[State::Established, State::DreqSent]))
    }

    /// Handles a duplicate of a connection's REQ. While our consumer has not accepted it, MRA tells the
    /// peer to wait; later no reply is needed, as the REP is resent by its own timer.
    #[inline(never)]
    fn repeat_request(&mut self, id: ConnId) -> Effect {
        let conn = self.conns.get_mut(id).ok_or(Ignored::UnknownId)?;
        conn.step(Event::RecvReq).ok_or(Ignored::Unexpected)?;
        let (layers, mra) = (conn.layers(&self.config), conn.mra(&self.config, MraMessage::Req));
        self.transmit(layers, mra);
        Ok(())
    }

    /// Checks the REQ itself, before any consumer sees it. Returns its sender.
    #[inline(never)]
    fn check_req(
        &self,
        packet: &Packet<'_>,
        header: &MadHeader,
        req: &Req,
    ) -> Result<Peer, Refusal> {
        if req.transport != Transport::Rc {
            return Err(Refusal::new(RejReason::INVALID_TRANSPORT));
        }
        if !req.local_qpn.is_connectable() {
            return Err(Refusal::new(RejReason::UNSUPPORTED));
        }
        let port =
            service_port(req.service_id).ok_or(Refusal::new(RejReason::INVALID_SERVICE_ID))?;
        let Some(ip_cm) = req.private_data.first_chunk().and_then(IpCm::parse) else {
            // As in Linux, where the layer above the CM, a consumer to it, refuses.
            return Err(Refusal::new(RejReason::CONSUMER));
        };
        let (src, dst) = (packet.encap.src, packet.encap.dst);
        let gids = (req.primary.local_gid, req.primary.remote_gid);
        if (ip_cm.src, ip_cm.dst) != (src, dst) || gids != (gid(src), gid(dst)) {
            return Err(Refusal::new(RejReason::INVALID_GID));
        }
        let ends = (SocketAddr::new(dst, port), SocketAddr::new(src, ip_cm.src_port));
        Ok(self.peer_of(packet, (header, req), ends, self.check_pmtu(req.path_mtu)?))
    }

    /// Checks the path MTU. The passive side cannot lower it, as REP has no field for it; the REJ names the
    /// largest one that would do.
    fn check_pmtu(&self, code: u8) -> Result<Pmtu, Refusal> {
        let max = self.config.max_pmtu;
        let pmtu = Pmtu::from_code(code).filter(|pmtu| *pmtu <= max);
        pmtu.ok_or(Refusal::with_ari(RejReason::INVALID_MTU, max.code()))
    }

    fn take_req(
        &mut self,
        packet: &Packet<'_>,
        (header, req): (&MadHeader, &Req),
        asked: Asked,
        peer: Peer,
    ) -> Effect {
        let refusal = match self.listeners.admit(peer.local) {
            Admission::Room(_) | Admission::Full
                if self.conns.held() >= self.config.max_connections =>
            {
                Refusal::new(RejReason::NO_RESOURCES)
            }
            Admission::Room(listener) => {
                // As a full backlog, a want of memory may be over when the peer repeats its request.
                self.make_way(&asked).ok_or(Ignored::PutOff)?;
                return self.open(header, req, asked, listener, peer).ok_or(Ignored::PutOff);
            }
            Admission::Later(listener) => {
                return self.take_place_of_another(header, req, asked, listener, peer);
            }
            Admission::Full => Refusal::new(RejReason::NO_RESOURCES),
            Admission::Nobody => Refusal::new(RejReason::INVALID_SERVICE_ID),
        };
        self.refuse_req(packet, header, asked.request.key.comm_id, refusal)
    }

    /// Makes room in the list of connections whose peer has proved nothing yet, if it is full; `None` where nobody may be displaced.
    fn make_way(&mut self, asked: &Asked) -> Option<()> {
        let has_room = self.conns.unproven.len() < self.config.max_unproven;
        (has_room || asked.repeated && self.displace(asked.now, |_| true)).then_some(())
    }

    /// Handles a REQ that found the backlog full: a repeated one takes the place of another.
    fn take_place_of_another(
        &mut self,
        header: &MadHeader,
        req: &Req,
        asked: Asked,
        listener: ListenerId,
        peer: Peer,
    ) -> Effect {
        if !asked.repeated {
            return Err(Ignored::PutOff);
        }
        let has_room = self.conns.held() < self.config.max_connections;
        if !has_room || !self.displace(asked.now, Self::waits_at(listener)) {
            self.listeners.put_off(listener);
            return Err(Ignored::PutOff);
        }
        self.open(header, req, asked, listener, peer).ok_or(Ignored::PutOff)
    }

    #[inline(never)]
    fn open(
        &mut self,
        header: &MadHeader,
        req: &Req,
        Asked { now, repeated, request }: Asked,
        listener: ListenerId,
        peer: Peer,
    ) -> Option<()> {
        let local_id = self.new_comm_id();
        let mut conn = Connection::passive(
            &self.config,
            local_id,
            header.transaction_id,
            listener,
            request,
            req,
            peer,
        )?;
        (conn.since, conn.repeated) = (now, repeated);
        conn.step(Event::RecvReq);
        let id = self.conns.insert(conn)?;
        self.listeners.take_place(listener);
        self.report(id, Kind::ConnectRequest);
        Some(())
    }

    fn peer_of(
        &self,
        packet: &Packet<'_>,
        (header, req): (&MadHeader, &Req),
        (local, remote): (SocketAddr, SocketAddr),
        pmtu: Pmtu,
    ) -> Peer {
        let offered =
            ReadLimits { inbound: req.initiator_depth, outbound: req.responder_resources };
        let (own, limits) = (&self.config, &self.config.peer_limits);
        Peer {
            remote,
            local,
            hop: Hop {
                src_mac: packet.encap.dst_mac,
                dst_mac: packet.encap.src_mac,
                vlan: packet.encap.vlan,
            },
            make: header.make,
            core_bits: header.core_bits,
            qpn: req.local_qpn,
            starting_psn: req.starting_psn,
            pmtu,
            limits: self.config.limits.min(offered),
            ack_timeout_code: limits
                .ack_timeout_code(own.ack_timeout_code, req.primary.ack_timeout),
            retry_count: limits.retry_count(own.retry_count, req.retry_count),
            rnr_retry: req.rnr_retry,
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            origin: Origin::of(&packet.encap),
        }
    }

    /// Refuses a REQ, whose sender knows no ID of ours.
    fn refuse_req(
        &mut self,
        packet: &Packet<'_>,
        header: &MadHeader,
        remote_id: CommId,
        refusal: Refusal,
    ) -> Effect {
        let ids = (CommId::default(), remote_id);
        self.refuse(packet, header, ids, RejMessage::Req, refusal);
        Ok(())
    }
}

/// A REQ that would begin a connection.
struct Asked {
    now: Instant,
    /// It found no room some time ago.
    repeated: bool,
    request: Request,
}

const STALE: Refusal = Refusal::new(RejReason::STALE_CONNECTION);

/// The part of a REQ's private data that is the consumer's.
const _: () = assert!(REQ_PRIVATE_DATA + IpCm::LEN == 92);
