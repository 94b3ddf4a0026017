//! The effect of each message of a peer, except REQ.

use super::Cm;
use super::api::{ConnId, DisconnectReason, Layers};
use super::connection::{Connection, PeerQpKey, RequestKey};
use super::message::mad;
use super::news::Kind;
use super::state::{Event, State};
use crate::counters::Counter;
use crate::env::Instant;
use crate::ids::CommId;
use crate::wire::mad::{
    CmMessage, Drep, Dreq, MadHeader, Mra, MraMessage, Rej, RejMessage, RejReason, Rep, Rtu,
    SidrRep, SidrReq, parse_mad,
};
use crate::wire::{DropReason, Encap, GSI_SOURCE_PORT, Origin, Packet};

/// The reason why a message had no effect and no reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ignored {
    /// The message should not have been sent to us.
    Dropped(DropReason),
    /// The message names no connection that we have.
    UnknownId,
    /// The connection's state does not admit the message.
    Unexpected,
    /// There is no room for the request; the peer repeats it.
    PutOff,
}

impl Ignored {
    const fn counter(self) -> Counter {
        match self {
            Self::Dropped(reason) => Counter::dropped(reason),
            Self::UnknownId => Counter::CmUnknownId,
            Self::Unexpected => Counter::CmUnexpected,
            Self::PutOff => Counter::CmPutOff,
        }
    }
}

/// The news of a received message beside its effect on a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Outcome {
    /// One of our messages has not reached the peer.
    pub(crate) unheard: bool,
    /// The message is a REQ for which there was no room.
    pub(crate) put_off: bool,
}

/// The effect of a message.
pub(super) type Effect = Result<(), Ignored>;

impl Cm {
    /// Handles a UD SEND_ONLY to QP 1 with the right Q_Key. Replies go back the way it came. `repeated`: if it is a REQ, it
    /// found no room some time ago.
    #[inline(never)]
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        repeated: bool,
    ) -> Outcome {
        let parsed = parsed(packet);
        let effect = match &parsed {
            Ok((header, message)) => self.receive(now, packet, (header, message), repeated),
            Err(reason) => Err(Ignored::Dropped(*reason)),
        };
        if let Err(ignored) = effect {
            self.counters.add(ignored.counter(), 1);
            if let Ok((_, message)) = &parsed {
                self.counters.add(Counter::cm_dropped(message), 1);
            }
        }
        self.outcome.put_off = effect == Err(Ignored::PutOff);
        core::mem::take(&mut self.outcome)
    }

    fn receive(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        (header, message): (&MadHeader, &CmMessage),
        repeated: bool,
    ) -> Effect {
        match message {
            CmMessage::Req(req) => self.receive_req(now, packet, header, req, repeated),
            CmMessage::Rep(rep) => self.receive_rep(now, packet, header, rep),
            CmMessage::Rtu(rtu) => self.receive_rtu(now, packet, rtu),
            CmMessage::Rej(rej) => self.receive_rej(now, packet, header, rej),
            CmMessage::Mra(mra) => self.receive_mra(now, packet, mra),
            CmMessage::Dreq(dreq) => self.receive_dreq(now, packet, header, dreq),
            CmMessage::Drep(drep) => self.receive_drep(now, packet, drep),
            CmMessage::SidrReq(sidr_req) => self.receive_sidr_req(packet, header, sidr_req),
            // We send no SIDR_REQ.
            CmMessage::SidrRep(_) => Err(Ignored::Unexpected),
        }
    }

    #[inline(never)]
    fn receive_rep(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        header: &MadHeader,
        rep: &Rep,
    ) -> Effect {
        let Some((id, conn)) = self.conns.find(rep.remote_comm_id) else {
            return self.repeat_rej(packet, rep.remote_comm_id);
        };
        conn.check_addresses(packet)?;
        if !conn.is_active() || !conn.may_be_peer(rep.local_comm_id) {
            return Err(Ignored::UnknownId);
        }
        if conn.state == State::ReqSent {
            return self.take_rep(now, packet, header, id, rep);
        }
        match conn.step(Event::RecvRep).ok_or(Ignored::Unexpected)? {
            // The RTU has not come, and no data: the peer sends both after it.
            State::Established => {
                self.outcome.unheard = true;
                self.send_again(id);
            }
            // The consumer has no deadline; MRA shows the peer that we are alive.
            _ => {
                let layers = conn.layers(&self.config);
                let mra = conn.mra(&self.config, MraMessage::Rep);
                self.transmit(layers, mra);
            }
        }
        Ok(())
    }

    fn take_rep(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        header: &MadHeader,
        id: ConnId,
        rep: &Rep,
    ) -> Effect {
        if !rep.local_qpn.is_connectable() {
            return Err(Ignored::Unexpected);
        }
        let peer_qp =
            PeerQpKey { remote: packet.encap.src, ca_guid: rep.ca_guid, qpn: rep.local_qpn };
        if let Some(old) = self.conns.find_peer_qp(&peer_qp) {
            let stale = Refusal::new(RejReason::STALE_CONNECTION);
            let (local, remote) = (rep.remote_comm_id, rep.local_comm_id);
            self.refuse(packet, header, (local, remote), RejMessage::Rep, stale);
            self.check_stale(now, old);
            return Ok(());
        }
        let conn = self.conns.get_mut(id).ok_or(Ignored::UnknownId)?;
        conn.step(Event::RecvRep).ok_or(Ignored::Unexpected)?;
        conn.take_rep(&self.config, Origin::of(&packet.encap), header, rep);
        self.conns.set_deadline(id, None);
        self.report(id, Kind::Connected);
        Ok(())
    }

    fn receive_rtu(&mut self, now: Instant, packet: &Packet<'_>, rtu: &Rtu) -> Effect {
        let Some((id, _)) = self.find_pair(packet, rtu.remote_comm_id, rtu.local_comm_id)? else {
            return self.repeat_rej(packet, rtu.remote_comm_id);
        };
        self.establish(now, id, Event::RecvRtu).ok_or(Ignored::Unexpected)
    }

    #[inline(never)]
    fn receive_rej(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        header: &MadHeader,
        rej: &Rej,
    ) -> Effect {
        let (id, conn) = self.find_rejected(packet, rej).ok_or(Ignored::UnknownId)?;
        conn.check_addresses(packet)?;
        if (conn.state, rej.reason) == (State::ReqSent, RejReason::STALE_CONNECTION)
            && let Some(again) = conn.retry.as_mut().and_then(|retry| retry.put_off(now))
        {
            self.conns.set_deadline(id, Some(again));
            return Ok(());
        }
        if let Some(effect) = self.receive_pmtu_rej(now, id, header, rej) {
            return effect;
        }
        let conn = self.conns.get_mut(id).ok_or(Ignored::UnknownId)?;
        let before = conn.step(Event::RecvRej).ok_or(Ignored::Unexpected)?;
        self.end_by_peer(now, id, before, End::Rej(rej));
        Ok(())
    }

    /// Finds the connection of a REJ. The peer may not know our ID, if it gave up before our REP came; then
    /// its GUID leads there. Later it has to name both IDs, as any other host could know its own.
    fn find_rejected(
        &mut self,
        packet: &Packet<'_>,
        rej: &Rej,
    ) -> Option<(ConnId, &mut Connection)> {
        let id = match self.conns.find(rej.remote_comm_id) {
            Some((id, conn)) if conn.may_be_peer(rej.local_comm_id) => id,
            _ if rej.reason == RejReason::TIMEOUT => {
                let ca_guid = u64::from_be_bytes(*rej.ari().first_chunk()?);
                let (remote, comm_id) = (packet.encap.src, rej.local_comm_id);
                let states = [State::ReqReceived, State::RepSent];
                self.conns.find_identity(&RequestKey { remote, comm_id, ca_guid }, &states)?
            }
            _ => return None,
        };
        Some((id, self.conns.get_mut(id)?))
    }

    fn receive_mra(&mut self, now: Instant, packet: &Packet<'_>, mra: &Mra) -> Effect {
        let (id, conn) = self.conns.find(mra.remote_comm_id).ok_or(Ignored::UnknownId)?;
        conn.check_addresses(packet)?;
        if !conn.may_be_peer(mra.local_comm_id) {
            return Err(Ignored::UnknownId);
        }
        match (conn.state, mra.message) {
            (State::ReqSent, MraMessage::Req) | (State::RepSent, MraMessage::Rep) => {}
            _ => return Err(Ignored::Unexpected),
        }
        conn.step(Event::RecvMra).ok_or(Ignored::Unexpected)?;
        let service_time = self.config.peer_limits.service_time(mra.service_timeout);
        let wait = service_time + self.config.packet_lifetime();
        let deadline = conn.retry.as_mut().and_then(|retry| retry.extend(now, wait));
        self.conns.set_deadline(id, Some(deadline.ok_or(Ignored::Unexpected)?));
        Ok(())
    }

    fn receive_dreq(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        header: &MadHeader,
        dreq: &Dreq,
    ) -> Effect {
        match self.find_pair(packet, dreq.remote_comm_id, dreq.local_comm_id)? {
            Some((id, conn)) => {
                if conn.qp.qpn != dreq.remote_qpn {
                    return Err(Ignored::Unexpected);
                }
                let before = conn.step(Event::RecvDreq).ok_or(Ignored::Unexpected)?;
                let mut to = self.answer(packet);
                if let Some(conn) = self.conns.get(id) {
                    to = to.with_class(conn.message_class(&self.config));
                }
                self.send_drep(to, header, dreq);
                self.end_by_peer(now, id, before, End::Dreq);
            }
            None => {
                let mut to = self.answer(packet);
                if let Some(wait) = self.conns.find_wait(dreq.remote_comm_id)
                    && wait.remote_id == Some(dreq.local_comm_id)
                {
                    wait.check_addresses(packet)?;
                    to = to.with_class(wait.message_class(&self.config));
                }
                // DREP is sent for an unknown connection, too: the peer only wants to be done.
                self.send_drep(to, header, dreq);
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn send_drep(&mut self, to: Layers, header: &MadHeader, dreq: &Dreq) {
        let drep = CmMessage::Drep(Drep {
            local_comm_id: dreq.remote_comm_id,
            remote_comm_id: dreq.local_comm_id,
            private_data: [0; 224],
        });
        self.transmit(to, mad(header.transaction_id, &drep));
    }

    fn receive_drep(&mut self, now: Instant, packet: &Packet<'_>, drep: &Drep) -> Effect {
        let pair = self.find_pair(packet, drep.remote_comm_id, drep.local_comm_id)?;
        let (id, conn) = pair.ok_or(Ignored::UnknownId)?;
        conn.step(Event::RecvDrep).ok_or(Ignored::Unexpected)?;
        self.report(id, Kind::DisconnectDone);
        self.retire(now, id);
        Ok(())
    }

    /// Refuses a SIDR_REQ: there are no datagram services here.
    #[inline(never)]
    fn receive_sidr_req(
        &mut self,
        packet: &Packet<'_>,
        header: &MadHeader,
        sidr_req: &SidrReq,
    ) -> Effect {
        let sidr_rep = CmMessage::SidrRep(SidrRep {
            request_id: sidr_req.request_id,
            status: SidrRep::UNSUPPORTED,
            info_len: 0,
            qpn: Default::default(),
            service_id: sidr_req.service_id,
            qkey: 0,
            info: [0; 72],
            private_data: [0; 136],
        });
        self.transmit(self.answer(packet), mad(header.transaction_id, &sidr_rep));
        Ok(())
    }

    /// The connection with this pair of IDs; an error where another host uses them.
    fn find_pair(
        &mut self,
        packet: &Packet<'_>,
        local_id: CommId,
        remote_id: CommId,
    ) -> Result<Option<(ConnId, &mut Connection)>, Ignored> {
        match self.conns.find(local_id) {
            Some((id, conn)) if conn.remote_id == Some(remote_id) => {
                conn.check_addresses(packet)?;
                Ok(Some((id, conn)))
            }
            _ => Ok(None),
        }
    }

    /// Repeats our REJ, which the peer has not received.
    #[inline(never)]
    fn repeat_rej(&mut self, packet: &Packet<'_>, local_id: CommId) -> Effect {
        let wait = self.conns.find_wait(local_id).ok_or(Ignored::UnknownId)?;
        let (layers, rej) = wait.repeated_rej(&self.config, packet)?;
        self.transmit(layers, rej);
        Ok(())
    }

    /// Ends a connection that the peer no longer has.
    pub(super) fn lose_peer(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(before) = conn.step(Event::PeerLost) else { return };
        self.end_by_peer(now, id, before, End::Lost);
    }

    /// Ends a connection whose path is gone for good.
    pub(super) fn lose_way(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(before) = conn.step(Event::PathLost) else { return };
        // No DREQ can reach the peer.
        conn.ended_by_peer = before == State::Established;
        self.report(
            id,
            match before {
                State::DreqSent => Kind::DisconnectTimedOut,
                _ => Kind::PathLost,
            },
        );
        self.retire(now, id);
    }

    /// Reports the event that the end means in the state before, and retires the connection.
    fn end_by_peer(&mut self, now: Instant, id: ConnId, before: State, end: End<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.end = end.reason();
        let kind = match (before, end) {
            (State::DreqSent, _) => Kind::DisconnectDone,
            // A peer that disconnects was connected; its RTU may be lost.
            (State::Established, _) | (_, End::Dreq) => Kind::PeerDisconnected,
            (_, End::Rej(rej)) => {
                conn.keep_data(&rej.private_data);
                Kind::Refused
            }
            (_, End::Lost) => Kind::Refused,
        };
        conn.ended_by_peer = kind == Kind::PeerDisconnected;
        self.report(id, kind);
        self.retire(now, id);
    }

    /// Refuses a message that belongs to no connection, or not to the one that it names.
    #[inline(never)]
    pub(super) fn refuse(
        &mut self,
        packet: &Packet<'_>,
        header: &MadHeader,
        (local_comm_id, remote_comm_id): (CommId, CommId),
        message: RejMessage,
        refusal: Refusal,
    ) {
        let mut ari = [0; 72];
        ari[0] = refusal.ari.unwrap_or(0);
        let rej = CmMessage::Rej(Rej {
            local_comm_id,
            remote_comm_id,
            message,
            reason: refusal.reason,
            ari_len: u8::from(refusal.ari.is_some()),
            ari,
            private_data: [0; 148],
        });
        self.transmit_refusal(self.answer(packet), mad(header.transaction_id, &rej));
    }

    /// Layers 2 to 4 of a reply to a packet. The reply does not repeat its ECN bits and ports.
    fn answer(&self, packet: &Packet<'_>) -> Layers {
        let encap = Encap {
            traffic_class: self.config.traffic_class,
            hop_limit: self.config.hop_limit,
            ip_id: 0,
            flow_label: 0,
            src_port: GSI_SOURCE_PORT,
            ..packet.encap.reply()
        };
        Layers { encap, priority: None }
    }
}

#[inline(never)]
fn parsed(packet: &Packet<'_>) -> Result<(MadHeader, CmMessage), DropReason> {
    parse_mad(packet.payload)
}

/// The ways in which a peer ends a connection.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// The peer has sent DREQ.
    Dreq,
    /// The peer has sent REJ.
    Rej(&'a Rej),
    /// The peer has started anew.
    Lost,
}

impl End<'_> {
    const fn reason(&self) -> DisconnectReason {
        match self {
            Self::Dreq => DisconnectReason::Dreq,
            Self::Rej(rej) => DisconnectReason::Rejected(rej.reason),
            Self::Lost => DisconnectReason::Stale,
        }
    }
}

/// The reason why a message is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    reason: RejReason,
    /// One byte of additional reject information.
    ari: Option<u8>,
}

impl Refusal {
    pub(super) const fn new(reason: RejReason) -> Self {
        Self { reason, ari: None }
    }

    pub(super) const fn with_ari(reason: RejReason, ari: u8) -> Self {
        Self { reason, ari: Some(ari) }
    }
}
