//! The calls of connection management, and their effect on a connection's queue pair.

use super::engine::{Engine, QpSlot};
use super::{Device, Engines};
use crate::class::{ClassBits, TrafficClasses, without_priority};
use crate::cm::{self, CmError, CmEvent, ConnId, Connect, ListenerId, QpSide, ReadLimits};
use crate::env::Instant;
use crate::ids::Qpn;
use crate::path::{Path, PathIndex, PathNews};
use crate::psn::Msn;
use crate::qp::{PeerQp, QpState};
use crate::wire::mad::RejReason;
use crate::wire::{self, Encap, Hop};
use core::net::{IpAddr, SocketAddr};

impl<E: Engines> Device<E> {
    /// Takes a local port for one user; 0 takes any of 49152 to 65535. Returns the port.
    ///
    /// # Errors
    /// [`CmError::AddressInUse`]; [`CmError::NoPorts`] for port 0.
    pub fn bind_port(&mut self, local: IpAddr, port: u16) -> Result<u16, CmError> {
        self.front.cm.bind_port(local, port)
    }

    /// Adds a user to a bound port.
    pub fn retain_port(&mut self, local: IpAddr, port: u16) {
        self.front.cm.retain_port(local, port);
    }

    /// Removes a user from a bound port. The last one frees it.
    pub fn unbind_port(&mut self, local: IpAddr, port: u16) {
        self.front.cm.unbind_port(local, port);
    }

    /// Listens on a bound port; an unspecified address stands for all. At most `backlog` requests, and at
    /// least one, wait for [`Self::accept`] or [`Self::reject`] at a time.
    ///
    /// # Errors
    /// [`CmError::AddressInUse`]: another listener has the endpoint.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, CmError> {
        self.front.cm.listen(local, backlog)
    }

    /// Pauses or resumes a listener: while it is paused, requests are refused as if there were no listener.
    pub fn pause(&mut self, listener: ListenerId, pause: bool) {
        self.front.cm.pause(listener, pause);
    }

    /// Ends a listener; requests that the caller has not seen are refused.
    pub fn unlisten(&mut self, listener: ListenerId) {
        self.front.cm.unlisten(listener);
    }

    /// Asks the peer for a connection. [`CmEvent::Connected`](crate::cm::CmEvent::Connected) or a failure follows.
    ///
    /// # Errors
    /// [`CmError::PrivateData`] above 56 bytes; [`CmError::Connected`]; [`CmError::Full`];
    /// [`CmError::Address`], also for a local address that is not the device's: it may have been removed
    /// while the path was resolved.
    pub fn connect(&mut self, now: Instant, connect: &Connect<'_>) -> Result<ConnId, CmError> {
        let first = self.engines.first();
        if !first.config.addresses.contains(&connect.local.ip()) {
            return Err(CmError::Address);
        }
        let path = Path { local: connect.local.ip(), remote: connect.remote.ip() };
        let path = first.paths.acquire(path, connect.hop).ok_or(CmError::Full)?;
        let starting_psn = self.front.opening.psn(&mut self.front.rng);
        let conn = self.front.cm.connect(now, connect, starting_psn);
        let conn = conn.inspect_err(|_| first.paths.release(path))?;
        self.enter_path(conn, path);
        self.attach(now, connect.qpn, conn, false);
        Ok(conn)
    }

    /// Gives a connection the caller's name for it, by which [`Self::conn_owner`] finds what an event is for.
    pub fn set_conn_owner(&mut self, conn: ConnId, owner: u64) {
        if let Some(Some(tie)) = self.front.cm.tie_mut(conn) {
            tie.owner = Some(owner);
        }
    }

    /// The caller's name for a connection; `None` where it has none, or was released.
    pub fn conn_owner(&self, conn: ConnId) -> Option<u64> {
        self.front.cm.tie(conn)?.owner
    }

    /// Confirms a connection that [`CmEvent::Connected`](crate::cm::CmEvent::Connected) offered.
    ///
    /// # Errors
    /// [`CmError`]: the connection is no longer there.
    pub fn confirm(&mut self, now: Instant, conn: ConnId) -> Result<(), CmError> {
        self.front.cm.confirm(now, conn)
    }

    /// Accepts a request: the QP receives from here on, and the reply leaves.
    ///
    /// # Errors
    /// The connection is no longer there, or the private data is too long.
    pub fn accept(
        &mut self,
        now: Instant,
        conn: ConnId,
        qpn: Qpn,
        limits: ReadLimits,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let qp = QpSide { qpn, starting_psn: self.front.opening.psn(&mut self.front.rng) };
        self.front.cm.accept(now, conn, qp, limits, private_data)?;
        self.attach(now, qpn, conn, true);
        self.bring_up(conn);
        Ok(())
    }

    /// Refuses a request, or the terms that [`CmEvent::Connected`](crate::cm::CmEvent::Connected) offered.
    ///
    /// # Errors
    /// The connection is no longer there, or the private data is too long.
    pub fn reject(
        &mut self,
        now: Instant,
        conn: ConnId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        self.front.cm.reject(now, conn, private_data)
    }

    /// Sends DREQ; [`CmEvent::DisconnectDone`](crate::cm::CmEvent::DisconnectDone) follows.
    ///
    /// # Errors
    /// The connection is not established.
    pub fn disconnect(&mut self, now: Instant, conn: ConnId) -> Result<(), CmError> {
        self.front.cm.disconnect(now, conn)
    }

    /// Releases a connection in any state; the peer gets the message that the state requires.
    pub fn release(&mut self, now: Instant, conn: ConnId) {
        if let Some((engine, slot)) = self.tied(conn)
            && let Some(entry) = engine.qps[slot].as_deref_mut()
        {
            (entry.conn, entry.awaits_rtu) = (None, false);
        }
        self.leave_path(conn);
        self.front.cm.release(now, conn);
    }

    /// Sets the classes of the services' ports. Packets of all connections have their class from the next one on, those of
    /// established ones too, and READ responses that are owed.
    pub fn set_traffic_classes(&mut self, classes: TrafficClasses) {
        self.front.cm.set_classes(classes);
        let mut after = None;
        while let Some(conn) = self.front.cm.next(after) {
            if let Some(bits) = self.front.cm.class_bits(conn)
                && let Some((engine, slot)) = self.tied(conn)
                && let Some(entry) = engine.qps[slot].as_deref_mut()
            {
                entry.set_class(bits);
            }
            after = Some(conn);
        }
    }

    // ---- time and events ----------------------------------------------------------------------

    /// Acts on every deadline of connection management that has passed.
    pub fn handle_cm_timers(&mut self, now: Instant) {
        let paths = &mut self.engines.first().paths;
        self.front.cm.handle_timeout(now, |path| {
            if let Some(index) = paths.find(path) {
                paths.doubt(now, index, PathNews::Silent);
            }
        });
        self.probe_peers(now);
    }

    /// When [`Self::handle_cm_timers`] is due next.
    #[inline]
    pub fn poll_cm_timers(&self) -> Option<Instant> {
        self.front.cm.poll_timeout()
    }

    /// Probes the queue pairs of the connections that may be stale, which a received message tells.
    #[inline]
    pub fn probe_peers(&mut self, now: Instant) {
        while let Some(conn) = self.front.cm.poll_probe() {
            self.probe_peer(now, conn);
        }
    }

    #[inline(never)]
    fn probe_peer(&mut self, now: Instant, conn: ConnId) {
        if let Some((engine, slot)) = self.tied(conn)
            && engine.qps[slot].as_deref_mut().is_some_and(|entry| entry.qp.probe())
        {
            engine.schedule(slot);
        } else {
            self.front.cm.peer_gone(now, conn);
        }
    }

    /// Whether [`Self::poll_cm`] has an event.
    #[inline]
    pub fn has_cm_events(&self) -> bool {
        self.front.cm.has_events()
    }

    /// The next event of a connection, after its effect on queue pair and path.
    #[inline(never)]
    pub fn poll_cm(&mut self) -> Option<CmEvent> {
        loop {
            let event = self.front.cm.poll_event()?;
            match &event {
                CmEvent::Connected { conn, .. } => self.bring_up(*conn),
                CmEvent::Established { conn } => {
                    if let Some((engine, slot)) = self.tied(*conn)
                        && let Some(entry) = engine.qps[slot].as_deref_mut()
                    {
                        entry.awaits_rtu = false;
                    }
                }
                CmEvent::ConnectRequest { conn, peer, .. } => {
                    // The priority is this connection's.
                    let hop = Hop { vlan: without_priority(peer.hop.vlan), ..peer.hop };
                    let path = self.engines.first().paths.acquire(peer.path(), hop);
                    let Some(path) = path else {
                        self.front.cm.refuse_unseen(*conn, RejReason::NO_RESOURCES);
                        continue;
                    };
                    self.enter_path(*conn, path);
                }
                CmEvent::Closed { .. }
                | CmEvent::PathLost { .. }
                | CmEvent::Refused { .. }
                | CmEvent::TimedOut { .. }
                | CmEvent::PeerDisconnected { .. }
                | CmEvent::DisconnectDone { .. } => {}
            }
            return Some(event);
        }
    }

    // ---- inside -------------------------------------------------------------------------------

    /// Ties a QP to a connection, for which REQ or REP was sent.
    fn attach(&mut self, now: Instant, qpn: Qpn, conn: ConnId, awaits_rtu: bool) {
        if let Some(entry) = self.engines.of(qpn).and_then(|engine| engine.entry(qpn)) {
            (entry.conn, entry.awaits_rtu) = (Some(conn), awaits_rtu);
            entry.qp.seed_rtt(now);
        }
    }

    /// The queue pair of a connection, by its engine and its slot there; see [`Engine::tied`].
    fn tied(&mut self, conn: ConnId) -> Option<(&mut Engine, usize)> {
        let qpn = self.front.cm.qp(conn)?.qpn;
        let engine = self.engines.of(qpn)?;
        let slot = engine.tied(qpn, conn)?;
        Some((engine, slot))
    }

    /// Moves the QP of a connection to RTS, as its peer is now known.
    fn bring_up(&mut self, conn: ConnId) {
        let Self { front, engines } = self;
        let (Some(peer), Some(qp)) = (front.cm.peer(conn), front.cm.qp(conn)) else { return };
        let Some(bits) = front.cm.class_bits(conn) else { return };
        let mut peer_qp = peer_qp(qp, peer, front.opening.msn);
        front.set_source_port(&mut peer_qp.encap);
        // The queue pair's core may have another table of paths, in which the first user of a path brings its hop.
        let tie = front.cm.tie(conn).map(|tie| tie.path);
        let tie = tie.map(|path| (path, engines.first().paths.hop(path)));
        let path = peer.path();
        let Some(engine) = engines.of(qp.qpn) else { return };
        let Some(slot) = engine.tied(qp.qpn, conn) else { return };
        engine.bring_up(slot, (peer_qp, bits), tie.map(|(index, hop)| (index, path, hop)));
    }
}

impl Engine {
    /// The slot of the queue pair that is tied to a connection. It may be gone, or belong to another connection by now, after a
    /// refusal of this one.
    fn tied(&self, qpn: Qpn, conn: ConnId) -> Option<usize> {
        let (slot, entry) = self.slot(qpn)?;
        (entry.conn == Some(conn)).then_some(slot)
    }

    /// Moves a QP to RTS, towards this peer and over this path, which the first core has at an index.
    fn bring_up(
        &mut self,
        slot: usize,
        (peer, bits): (PeerQp, ClassBits),
        path: Option<(PathIndex, Path, Hop)>,
    ) {
        let Some(QpSlot { qp, path: of, .. }) = self.qps[slot].as_deref_mut() else { return };
        if qp.state() != QpState::Init {
            return;
        }
        let known = path.is_some();
        *of = path.and_then(|(index, path, hop)| {
            if self.core.0 > 0 {
                return self.paths.join(path, hop);
            }
            self.paths.retain(index);
            Some(index)
        });
        qp.connect(peer);
        qp.set_class(bits);
        if known && of.is_none() {
            // There is no memory for another path.
            qp.lose_path(&mut self.completions);
            self.touch(slot);
        }
    }
}

impl QpSlot {
    /// Sets the class of its packets.
    fn set_class(&mut self, bits: ClassBits) {
        self.qp.set_class(bits);
        // The next packet makes its headers anew.
        self.template = None;
    }
}

/// The peer, as connection management found it, in the form that the engines need.
fn peer_qp(own: QpSide, peer: &cm::Peer, first_msn: Msn) -> PeerQp {
    PeerQp {
        make: peer.make,
        core_bits: peer.core_bits,
        qpn: peer.qpn,
        encap: Encap {
            src_mac: peer.hop.src_mac,
            dst_mac: peer.hop.dst_mac,
            vlan: peer.hop.vlan,
            src: peer.local.ip(),
            dst: peer.remote.ip(),
            traffic_class: peer.traffic_class,
            hop_limit: 64,
            ip_id: 0,
            flow_label: 0,
            src_port: wire::source_port(peer.flow_label, own.qpn, peer.qpn),
        },
        pmtu: peer.pmtu,
        send_psn: peer.starting_psn,
        recv_psn: own.starting_psn,
        first_msn,
        inbound_reads: peer.limits.inbound,
        outbound_reads: peer.limits.outbound,
        ack_timeout_code: peer.ack_timeout_code,
        retry_count: peer.retry_count,
        rnr_retry: peer.rnr_retry,
        origin: peer.origin,
    }
}
