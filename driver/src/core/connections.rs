//! Connectors and listeners, between the consumer's calls and connection management.

use super::objects::{Entry, Kind};
use super::paths::retag;
use super::trace::Ends;
use super::{State, Upcall};
use crate::abi::*;
use crate::ndk::connector::{
    Accept, Connect, ConnectorObject, DisconnectEvent, Info, PrivateData, Stage, peer_data,
};
use crate::ndk::counters::Connection;
use crate::ndk::{Endpoint, ObjectId, RequestDone, status};
use crate::platform::{EndedBy, Resolve, Trace};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::Ordering;
use netadapter_glue::neighbour::Resolution;
use rocev2::cm::{CmEvent, ConnId, Hop, Peer, ReadLimits, is_host};
use rocev2::counters::Counters;
use rocev2::device;
use rocev2::env::Instant;
use rocev2::ids::Qpn;
use rocev2::qp::QpState;
use rocev2::wire::Mac;

/// How far a connector is.
#[derive(Debug, Eq, PartialEq)]
enum Phase {
    /// Nothing was asked yet.
    Idle,
    /// The peer's link-layer address is being asked for.
    Resolving,
    /// The request is out.
    Connecting,
    /// The peer accepted; the consumer has to complete or reject.
    Offered,
    /// The peer asked; the consumer has to accept or reject.
    Requested,
    /// The answer is out.
    Accepting,
    /// Data may flow.
    Established,
    /// The consumer disconnects.
    Disconnecting,
    /// Over: the peer left, the QP failed, or it was rejected.
    Ended,
}

impl Phase {
    /// Whether there is a connection, if only until it is taken down.
    const fn is_connected(&self) -> bool {
        matches!(self, Self::Established | Self::Disconnecting)
    }
}

pub(super) struct ConnectorCore {
    object: Arc<ConnectorObject>,
    phase: Phase,
    conn: Option<ConnId>,
    qp: Option<ObjectId>,
    /// The shared endpoint that it connects from.
    endpoint: Option<ObjectId>,
    /// The local port that it holds.
    port: Option<SocketAddr>,
    /// Whom a connect asks.
    remote: Option<SocketAddr>,
    /// A connect that waits for the peer's link-layer address.
    waiting: Option<Box<Connect>>,
    /// The connect, accept or disconnect that is pending.
    pending: Option<RequestDone>,
    event: Option<DisconnectEvent>,
    /// Data could flow once.
    established: bool,
    /// What an answer to an attempt that the peer has ended meanwhile is told.
    end: NTSTATUS,
}

impl ConnectorCore {
    /// A connector for an outgoing connection.
    pub(super) const fn new(object: Arc<ConnectorObject>) -> Self {
        Self {
            object,
            phase: Phase::Idle,
            conn: None,
            qp: None,
            endpoint: None,
            port: None,
            remote: None,
            waiting: None,
            pending: None,
            event: None,
            established: false,
            end: STATUS_CONNECTION_ABORTED,
        }
    }

    /// A connector for a request that came in. It shares the local endpoint `port`.
    pub(super) fn requested(
        object: Arc<ConnectorObject>,
        conn: ConnId,
        peer: &Peer,
        port: SocketAddr,
    ) -> Self {
        let mut core = Self { conn: Some(conn), port: Some(port), ..Self::new(object) };
        core.remember(peer);
        core.enter(Phase::Requested);
        core
    }

    fn enter(&mut self, phase: Phase) {
        self.object.shared.set_stage(match phase {
            Phase::Idle => Stage::Idle,
            Phase::Offered | Phase::Requested => Stage::Rejectable,
            Phase::Ended => Stage::Gone,
            Phase::Resolving
            | Phase::Connecting
            | Phase::Accepting
            | Phase::Established
            | Phase::Disconnecting => Stage::Busy,
        });
        let active = &self.object.base.shard.counters.active;
        match (self.phase.is_connected(), phase.is_connected()) {
            (false, true) => active.add(),
            (true, false) => active.subtract(),
            (false, false) | (true, true) => {}
        }
        self.phase = phase;
    }

    /// Keeps what the peer told, for the connector's life or until another attempt.
    fn remember(&self, peer: &Peer) {
        self.publish(Info {
            local: peer.local,
            peer: peer.remote,
            limits: peer.limits,
            private_data: peer_data(&peer.private_data),
        });
    }

    /// Of the connection, as far as the peer has told.
    fn ends(&self) -> Option<Ends> {
        self.object.shared.info.get().map(|info| (info.local, info.peer))
    }

    /// An accept may lower the limits that the request left.
    fn agree(&self, limits: ReadLimits) {
        if let Some(info) = self.object.shared.info.get() {
            self.publish(Info { limits: info.limits.min(limits), ..info });
        }
    }

    #[allow(unsafe_code, reason = "the one writer")]
    fn publish(&self, info: Info) {
        // SAFETY: only the core's thread comes here.
        unsafe { self.object.shared.info.set(info) };
    }
}

impl State {
    fn connector(&mut self, id: ObjectId) -> Option<&mut ConnectorCore> {
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Connector(connector)) => Some(connector),
            _ => None,
        }
    }

    fn connector_of(&mut self, conn: ConnId) -> Option<(ObjectId, &mut ConnectorCore)> {
        let id = *self.conns.get(&conn)?;
        self.connector(id).map(|connector| (id, connector))
    }

    pub(super) fn owns(&self, address: IpAddr) -> bool {
        self.device.config().addresses.contains(&address)
    }

    // ---- active side --------------------------------------------------------------------------

    pub(super) fn connect(
        &mut self,
        now: Instant,
        id: ObjectId,
        mut what: Box<Connect>,
        done: RequestDone,
    ) {
        if let Err(status) = self.prepare_connect(id, &mut what) {
            return self.request_done(done, status);
        }
        let remote = what.remote.ip();
        let local = what.local.ip();
        let Some(connector) = self.connector(id) else { return };
        connector.pending = Some(done);
        connector.waiting = Some(what);
        connector.enter(Phase::Resolving);
        // What is sent to an own address comes back here (`super::loopback`).
        let own = self.owns(remote).then_some(self.mac);
        if let Some(mac) = own {
            return self.start_connect(now, id, Mac(mac), None);
        }
        match self.neighbours.lookup(now.as_nanos(), remote) {
            Some(link) => {
                self.start_connect(now, id, Mac(link.mac), retag(self.vlan, link.vlan));
            }
            None => {
                self.resolving.push(id);
                if !self.shard.platform.resolve(local, remote, Resolve::Ask) {
                    self.neighbours.resolve(now.as_nanos(), local, remote, None);
                }
            }
        }
    }

    /// Checks a connect, takes its port and ties the QP to the connector.
    fn prepare_connect(&mut self, id: ObjectId, what: &mut Connect) -> Result<(), NTSTATUS> {
        if !self.owns(what.local.ip()) {
            return Err(STATUS_INVALID_ADDRESS);
        }
        if !is_host(what.remote.ip()) {
            return Err(STATUS_NETWORK_UNREACHABLE);
        }
        let connector = self.connector(id).ok_or(STATUS_INVALID_PARAMETER)?;
        if connector.phase != Phase::Idle {
            return Err(STATUS_CONNECTION_ACTIVE);
        }
        match what.endpoint {
            Some(endpoint) => what.local = self.share_endpoint(endpoint)?,
            None => {
                let bound = self.device.bind_port(what.local.ip(), what.local.port());
                what.local.set_port(bound.map_err(status::cm_error)?);
            }
        }
        if let Err(status) = self.claim_qp(id, what.qp) {
            self.device.unbind_port(what.local.ip(), what.local.port());
            return Err(status);
        }
        if let Some(endpoint) = what.endpoint {
            self.add_parent(id, endpoint);
        }
        if let Some(connector) = self.connector(id) {
            connector.endpoint = what.endpoint;
            connector.port = Some(what.local);
            connector.remote = Some(what.remote);
        }
        Ok(())
    }

    /// Makes the QP an antecedent of the connector; a QP serves one.
    fn claim_qp(&mut self, connector_id: ObjectId, qp_id: ObjectId) -> Result<(), NTSTATUS> {
        let Some(Entry { kind: Kind::Qp(qp), closing: None, .. }) = self.objects.get_mut(qp_id)
        else {
            return Err(STATUS_INVALID_PARAMETER);
        };
        if qp.connector.is_some() {
            return Err(STATUS_CONNECTION_ACTIVE);
        }
        // Flushed, or its CQ overran: it carries nothing any more.
        if self.device.qp_state(qp.qpn) != Some(QpState::Init) {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        qp.connector = Some(connector_id);
        self.add_parent(connector_id, qp_id);
        if let Some(connector) = self.connector(connector_id) {
            connector.qp = Some(qp_id);
        }
        Ok(())
    }

    /// Undoes [`Self::claim_qp`]: the attempt failed and the QP may be used for another.
    fn release_qp(&mut self, connector_id: ObjectId) {
        let Some(qp_id) = self.connector(connector_id).and_then(|connector| connector.qp.take())
        else {
            return;
        };
        if let Some(qp) = self.qp(qp_id) {
            qp.connector = None;
        }
        self.remove_parent(connector_id, qp_id);
    }

    pub(super) fn handle_resolutions(&mut self, now: Instant) {
        while let Some(Resolution { ip, result }) = self.neighbours.poll_event() {
            let mac = result.ok().map(|link| link.mac);
            let vlan = result.ok().and_then(|link| link.vlan);
            self.finish_resolution(now, ip, mac, |tci| retag(tci, vlan));
        }
    }

    /// The link-layer address of `remote` is known, or nobody answers for it. `tag` makes the tag to be
    /// used from the one so far.
    pub(super) fn finish_resolution(
        &mut self,
        now: Instant,
        remote: IpAddr,
        mac: Option<[u8; 6]>,
        tag: impl Fn(Option<u16>) -> Option<u16>,
    ) {
        if let Some(mac) = mac {
            self.update_paths(remote, Mac(mac), &tag);
        }
        let mut index = 0;
        while let Some(&id) = self.resolving.get(index) {
            let waits = self.connector(id).is_some_and(|connector| {
                connector.waiting.as_ref().is_some_and(|what| what.remote.ip() == remote)
            });
            if !waits {
                index += 1;
                continue;
            }
            self.resolving.swap_remove(index);
            match mac {
                Some(mac) => self.start_connect(now, id, Mac(mac), tag(self.vlan)),
                None => self.fail_attempt(now, id, STATUS_HOST_UNREACHABLE),
            }
        }
    }

    /// Who listens, what is shared, and who is connected.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let of = |entry: &Entry| match &entry.kind {
            Kind::Connector(connector) if connector.phase == Phase::Established => {
                let (local, remote) = connector.ends()?;
                let (qpn, counters) = self.qp_counters(connector.qp?)?;
                let counters = Arc::clone(counters);
                let pmtu = self.device.qp_pmtu(qpn)?.bytes() as u16;
                Some(Endpoint::Connection(Connection { local, remote, qpn, pmtu, counters }))
            }
            Kind::Listener(listener) => {
                let (_, local) = listener.listening?;
                Some(Endpoint::Listener(local))
            }
            Kind::SharedEndpoint(endpoint) => endpoint.local.map(Endpoint::Shared),
            _ => None,
        };
        self.objects.values().filter_map(of).collect()
    }

    /// What a QP is called on the wire, and what it counts.
    pub(super) fn qp_counters(&self, id: ObjectId) -> Option<(Qpn, &Arc<Counters>)> {
        let Some(Entry { kind: Kind::Qp(qp), .. }) = self.objects.get(id) else { return None };
        Some((qp.qpn, self.device.qp_counters(qp.qpn)?))
    }

    fn start_connect(&mut self, now: Instant, id: ObjectId, mac: Mac, vlan: Option<u16>) {
        let src_mac = Mac(self.mac);
        let Some(what) = self.connector(id).and_then(|connector| connector.waiting.take()) else {
            return;
        };
        let Some(qpn) = self.qp(what.qp).map(|qp| qp.qpn) else { return };
        let request = device::Connect {
            qpn,
            local: what.local,
            remote: what.remote,
            hop: Hop { src_mac, dst_mac: mac, vlan },
            limits: what.limits,
            private_data: &what.private_data,
        };
        match self.device.connect(now, &request) {
            Ok(conn) => {
                self.conns.insert(conn, id);
                if let Some(connector) = self.connector(id) {
                    connector.conn = Some(conn);
                    connector.enter(Phase::Connecting);
                }
            }
            Err(error) => self.fail_attempt(now, id, status::cm_error(error)),
        }
    }

    /// A connect failed: everything that it took is given back.
    fn fail_attempt(&mut self, now: Instant, id: ObjectId, status: NTSTATUS) {
        let Some(connector) = self.connector(id) else { return };
        connector.enter(Phase::Idle);
        connector.object.base.shard.counters.failures.add();
        let (pending, remote) = (connector.pending.take(), connector.remote);
        connector.waiting = None;
        self.trace(&Trace::NotConnected { remote, status });
        // Before the QP is let go, whose close may wait for this.
        if let Some(done) = pending {
            self.request_done(done, status);
        }
        self.release_conn(now, id);
        self.release_qp(id);
        if let Some(endpoint) = self.connector(id).and_then(|connector| connector.endpoint.take()) {
            self.remove_parent(id, endpoint);
        }
    }

    /// Gives the connection and the port back.
    fn release_conn(&mut self, now: Instant, id: ObjectId) {
        let Some(connector) = self.connector(id) else { return };
        let (conn, port) = (connector.conn.take(), connector.port.take());
        if let Some(conn) = conn {
            self.conns.remove(&conn);
            self.device.release(now, conn);
        }
        if let Some(port) = port {
            self.device.unbind_port(port.ip(), port.port());
        }
    }

    pub(super) fn complete_connect(
        &mut self,
        now: Instant,
        id: ObjectId,
        event: DisconnectEvent,
        done: RequestDone,
    ) {
        match self.try_complete_connect(now, id, event) {
            Ok(()) => self.establish(now, id, Some(done)),
            Err(status) => self.request_done(done, status),
        }
    }

    fn try_complete_connect(
        &mut self,
        now: Instant,
        id: ObjectId,
        event: DisconnectEvent,
    ) -> Result<(), NTSTATUS> {
        let connector = self.connector(id).ok_or(STATUS_INVALID_PARAMETER)?;
        match connector.phase {
            Phase::Offered => {}
            Phase::Ended => return Err(connector.end),
            _ => return Err(STATUS_CONNECTION_INVALID),
        }
        let conn = connector.conn.ok_or(STATUS_CONNECTION_INVALID)?;
        connector.event = Some(event);
        self.device.confirm(now, conn).map_err(status::answer_error)
    }

    /// Data may flow: ends the request that waited for it.
    fn establish(&mut self, now: Instant, id: ObjectId, done: Option<RequestDone>) {
        let Some(connector) = self.connector(id) else { return };
        connector.enter(Phase::Established);
        connector.established = true;
        let counters = &connector.object.base.shard.counters;
        if connector.remote.is_some() { &counters.connects } else { &counters.accepts }.add();
        let (conn, qp_id, ends) = (connector.conn, connector.qp, connector.ends());
        self.trace_connected(ends);
        if let Some(done) = done {
            self.request_done(done, STATUS_SUCCESS);
        }
        let Some(qp) = qp_id.and_then(|qp| self.qp(qp)) else { return };
        let (object, qpn) = (Arc::clone(&qp.object), qp.qpn);
        if self.device.qp_state(qpn) == Some(QpState::Rts) {
            let reads = self.device.outbound_reads(qpn) > 0;
            object.shared.reads.store(reads, Ordering::Relaxed);
            object.shared.connected.store(true, Ordering::Release);
        } else {
            // It failed or was flushed before; that was no news as long as nothing was established.
            self.handle_qp_failure(now, conn);
        }
    }

    // ---- passive side -------------------------------------------------------------------------

    pub(super) fn accept(&mut self, now: Instant, id: ObjectId, what: &Accept, done: RequestDone) {
        match self.try_accept(now, id, what) {
            Ok(()) => {
                if let Some(connector) = self.connector(id) {
                    connector.pending = Some(done);
                    connector.event = Some(what.event);
                    connector.enter(Phase::Accepting);
                    connector.agree(what.limits);
                }
            }
            Err(status) => {
                self.request_done(done, status);
                // Only now, as the QP's close may wait for this.
                if self.connector(id).is_some_and(|connector| connector.phase == Phase::Requested) {
                    self.release_qp(id);
                }
            }
        }
    }

    fn try_accept(&mut self, now: Instant, id: ObjectId, what: &Accept) -> Result<(), NTSTATUS> {
        let connector = self.connector(id).ok_or(STATUS_INVALID_PARAMETER)?;
        match connector.phase {
            Phase::Requested => {}
            Phase::Ended => return Err(STATUS_CONNECTION_ABORTED),
            _ => return Err(STATUS_CONNECTION_INVALID),
        }
        let conn = connector.conn.ok_or(STATUS_CONNECTION_INVALID)?;
        self.claim_qp(id, what.qp)?;
        let Some(qpn) = self.qp(what.qp).map(|qp| qp.qpn) else {
            return Err(STATUS_INVALID_PARAMETER);
        };
        let Accept { limits, ref private_data, .. } = *what;
        self.device.accept(now, conn, qpn, limits, private_data).map_err(status::answer_error)
    }

    /// Both uses: an incoming request, or the terms of an answer.
    pub(super) fn reject(&mut self, now: Instant, id: ObjectId, private_data: &PrivateData) {
        let Some(connector) = self.connector(id) else { return };
        if !matches!(connector.phase, Phase::Requested | Phase::Offered) {
            return;
        }
        let conn = connector.conn;
        connector.enter(Phase::Ended);
        connector.object.base.shard.counters.failures.add();
        if let Some(conn) = conn {
            // A peer that has gone meanwhile needs no refusal.
            let _ = self.device.reject(now, conn, private_data);
        }
    }

    // ---- the end ------------------------------------------------------------------------------

    pub(super) fn disconnect(&mut self, now: Instant, id: ObjectId, done: RequestDone) {
        let Some(connector) = self.connector(id) else {
            return self.request_done(done, STATUS_INVALID_PARAMETER);
        };
        let qp = connector.qp;
        match (&connector.phase, connector.conn) {
            (Phase::Established, Some(conn)) => {
                connector.pending = Some(done);
                connector.enter(Phase::Disconnecting);
                if let Some(qp) = qp.and_then(|qp| self.qp(qp)) {
                    qp.object.shared.connected.store(false, Ordering::Release);
                }
                if self.device.disconnect(now, conn).is_err() {
                    // The peer's own notice crossed ours.
                    self.finish_disconnect(conn, STATUS_SUCCESS);
                }
            }
            (Phase::Ended, _) if connector.established => {
                // The peer has said its part already.
                if let Some(qp) = qp {
                    self.flush_qp(qp);
                }
                self.request_done(done, STATUS_SUCCESS);
            }
            _ => self.request_done(done, STATUS_CONNECTION_INVALID),
        }
    }

    fn finish_disconnect(&mut self, conn: ConnId, status: NTSTATUS) {
        let Some((_, connector)) = self.connector_of(conn) else { return };
        if connector.phase != Phase::Disconnecting {
            return;
        }
        connector.enter(Phase::Ended);
        let (pending, qp, ends) = (connector.pending.take(), connector.qp, connector.ends());
        self.trace_disconnected(ends, EndedBy::Consumer, qp);
        if let Some(qp) = qp {
            self.flush_qp(qp);
        }
        if let Some(done) = pending {
            self.request_done(done, status);
        }
    }

    /// Closing a connector ends its connection in whatever state, without waiting for the peer.
    pub(super) fn close_connector(&mut self, now: Instant, id: ObjectId) {
        let Some(connector) = self.connector(id) else { return };
        let (pending, qp) = (connector.pending.take(), connector.qp);
        connector.waiting = None;
        connector.event = None;
        let connected = matches!(connector.phase, Phase::Established | Phase::Disconnecting);
        let ends = connector.ends().filter(|_| connected);
        connector.enter(Phase::Ended);
        self.trace_disconnected(ends, EndedBy::Consumer, qp);
        self.resolving.retain(|&waiting| waiting != id);
        self.release_conn(now, id);
        if let Some(qp) = qp {
            self.flush_qp(qp);
        }
        if let Some(done) = pending {
            self.request_done(done, STATUS_CANCELLED);
        }
    }

    /// A QP was flushed because it lost its CQ.
    pub(super) fn handle_dead_qp(&mut self, now: Instant, qp: ObjectId) {
        let connector = self.qp(qp).and_then(|qp| qp.connector);
        let conn = connector.and_then(|id| self.connector(id)).and_then(|connector| connector.conn);
        self.handle_qp_failure(now, conn);
    }

    /// A QP failed by itself: the peer is told, and so is the consumer.
    pub(super) fn handle_qp_failure(&mut self, now: Instant, conn: Option<ConnId>) {
        let Some(conn) = conn else { return };
        if self.break_connection(conn, EndedBy::Failure) {
            // An attempt that was not established has nothing to end.
            let _ = self.device.disconnect(now, conn);
        }
    }

    /// [`Self::lose_connection`], and not by the peer's orderly end.
    fn break_connection(&mut self, conn: ConnId, by: EndedBy) -> bool {
        let broke = self.lose_connection(conn, by);
        if broke {
            self.shard.counters.errors.add();
        }
        broke
    }

    /// The connection is over without the consumer's doing. True: it was established.
    fn lose_connection(&mut self, conn: ConnId, by: EndedBy) -> bool {
        let Some((_, connector)) = self.connector_of(conn) else { return false };
        if connector.phase != Phase::Established {
            return false;
        }
        connector.enter(Phase::Ended);
        let (event, qp, ends) = (connector.event.take(), connector.qp, connector.ends());
        self.trace_disconnected(ends, by, qp);
        let mut reason = 0;
        if let Some(Kind::Qp(qp)) = qp.and_then(|qp| self.objects.get(qp)).map(|entry| &entry.kind)
        {
            qp.object.shared.connected.store(false, Ordering::Release);
            reason = self.reason(qp);
        }
        if let Some(event) = event {
            self.upcalls.push_back(Upcall::Disconnected { event, reason });
        }
        true
    }

    /// A connection that was not established failed with `status`.
    fn fail_connecting(&mut self, now: Instant, conn: ConnId, status: NTSTATUS) {
        let Some((id, connector)) = self.connector_of(conn) else { return };
        let failures = &connector.object.base.shard.counters.failures;
        match connector.phase {
            Phase::Connecting => self.fail_attempt(now, id, status),
            Phase::Accepting => {
                failures.add();
                connector.enter(Phase::Ended);
                let (pending, qp) = (connector.pending.take(), connector.qp);
                let remote = connector.ends().map(|(_, remote)| remote);
                self.trace(&Trace::NotConnected { remote, status });
                if let Some(qp) = qp {
                    self.flush_qp(qp);
                }
                if let Some(done) = pending {
                    self.request_done(done, status);
                }
            }
            Phase::Offered => {
                failures.add();
                // The acceptor gave up; if for want of our confirmation, the page has a status.
                if status == STATUS_IO_TIMEOUT {
                    connector.end = status;
                }
                connector.enter(Phase::Ended);
            }
            Phase::Requested => {
                failures.add();
                connector.enter(Phase::Ended);
            }
            Phase::Idle
            | Phase::Resolving
            | Phase::Established
            | Phase::Disconnecting
            | Phase::Ended => {}
        }
    }

    pub(super) fn handle_cm_event(&mut self, now: Instant, event: CmEvent) {
        match event {
            CmEvent::ConnectRequest { listener, conn, peer } => {
                self.handle_request(now, listener, conn, &peer)
            }
            CmEvent::Connected { conn, peer } => self.handle_connected(conn, &peer),
            CmEvent::Established { conn } => self.handle_established(now, conn),
            CmEvent::Refused { conn, reason, private_data } => {
                self.keep_refusal(conn, &private_data);
                if !self.break_connection(conn, EndedBy::Peer) {
                    self.fail_connecting(now, conn, status::refusal(reason));
                }
            }
            CmEvent::TimedOut { conn } => self.fail_connecting(now, conn, STATUS_IO_TIMEOUT),
            CmEvent::PeerDisconnected { conn, .. } => {
                if !self.lose_connection(conn, EndedBy::Peer) {
                    self.finish_disconnect(conn, STATUS_SUCCESS);
                    self.fail_connecting(now, conn, STATUS_CONNECTION_ABORTED);
                }
            }
            CmEvent::PathLost { conn } => {
                if !self.break_connection(conn, EndedBy::Path) {
                    self.fail_connecting(now, conn, STATUS_NETWORK_UNREACHABLE);
                }
            }
            CmEvent::DisconnectDone { conn, timed_out } => {
                let status = if timed_out { STATUS_IO_TIMEOUT } else { STATUS_SUCCESS };
                self.finish_disconnect(conn, status);
            }
            CmEvent::Closed { conn } => {
                self.conns.remove(&conn);
            }
        }
    }

    fn handle_connected(&mut self, conn: ConnId, peer: &Peer) {
        let Some((_, connector)) = self.connector_of(conn) else { return };
        connector.remember(peer);
        connector.enter(Phase::Offered);
        if let Some(done) = connector.pending.take() {
            self.request_done(done, STATUS_SUCCESS);
        }
    }

    fn handle_established(&mut self, now: Instant, conn: ConnId) {
        let Some((id, connector)) = self.connector_of(conn) else { return };
        if connector.phase != Phase::Accepting {
            return;
        }
        let pending = connector.pending.take();
        self.establish(now, id, pending);
    }

    /// The private data of a refusal can be read like that of an acceptance.
    fn keep_refusal(&mut self, conn: ConnId, private_data: &PrivateData) {
        let Some((_, connector)) = self.connector_of(conn) else { return };
        let Some(local) = connector.port.filter(|_| connector.phase == Phase::Connecting) else {
            return;
        };
        let limits = ReadLimits { inbound: 0, outbound: 0 };
        let peer = connector.remote.unwrap_or(local);
        let info = Info { local, peer, limits, private_data: peer_data(private_data) };
        connector.publish(info);
    }
}
