//! The connection manager: the RDMA IP CM service over RC (IBTA ch. 12 and annex A11), as a sans-IO
//! state machine.
//!
//! ```text
//! active                                passive
//! connect            -- REQ ->          ConnectRequest
//! Connected          <- REP --          accept
//! confirm            -- RTU ->          Established
//! disconnect         -- DREQ ->         PeerDisconnected
//! DisconnectDone     <- DREP --
//! release, Closed                       release, Closed
//! ```
//!
//! [`Device`](crate::Device) has the calls, and reports [`CmEvent`]s. Nothing grows with the messages of
//! peers: connections, backlogs, ended connections and messages to send have limits, and each kind of event
//! comes once for a connection. Only a REQ takes memory, for the connection that it begins, and is put off where
//! there is none; every other message and every timer finds what it needs in place.
//!
//! A datagram identifies its sender only by the secrets that it names. Addresses, GUIDs and the peer's QPN
//! are no secret: a message that names nothing else begins a request, or is refused, and ends nothing
//! (`stale`). To send a message in a connection's name, an unknown host would have to guess our
//! communication ID (32 random bits, and the peer's as well once it is known). On the data path it would
//! need our QPN (24 bits, of which the lowest are the place in the device's table: 8 random ones where
//! that has grown to 65,536) to send a CNP, which slows the connection down for a while; and also a PSN (24 random
//! bits) that is expected, or in flight, to have a request executed or a response accepted.

mod api;
mod config;
mod connection;
mod deadlines;
mod listener;
mod message;
mod news;
mod path_mtu;
mod ports;
mod receive;
mod request;
mod retry;
mod send;
mod slab;
mod stale;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod time_wait;
mod unproven;

pub use api::{
    CmError, CmEvent, ConnId, Connect, DisconnectReason, ListenerId, Peer, PrivateData,
    REJ_PRIVATE_DATA, REP_PRIVATE_DATA, REQ_PRIVATE_DATA, ReadLimits,
};
pub(crate) use api::{CmTransmit, Layers, QpSide, Tie};
pub use config::CmConfig;

pub use crate::peer_limits::PeerLimits;
pub use crate::wire::{Hop, is_host};

use crate::class::{ClassBits, TrafficClasses};
use crate::counters::Counters;
use crate::env::{Instant, Rng};
use crate::ids::CommId;
use crate::path::Path;
use crate::psn::Psn;
use crate::wire::mad::{self, RejReason};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use connection::{Connection, Owner};
use core::net::{IpAddr, SocketAddr};
use listener::{Listeners, plain};
use news::Kind;
use ports::Ports;
pub(crate) use receive::Outcome;
use state::{Event, State};
use table::Connections;

/// The connections, listeners and local endpoints of one adapter.
#[derive(Debug)]
pub(crate) struct Cm {
    config: CmConfig,
    rng: Rng,
    /// High half of our transaction IDs.
    agent: u32,
    ports: Ports,
    listeners: Listeners,
    conns: Connections,
    transmits: VecDeque<CmTransmit>,
    /// Of the message that is being handled.
    outcome: Outcome,
    counters: Arc<Counters>,
}

impl Cm {
    /// A connection manager without connections, which counts into its device's counters. `rng` makes IDs
    /// that no peer can guess.
    #[inline(never)]
    pub(crate) fn boxed(config: CmConfig, mut rng: Rng, counters: Arc<Counters>) -> Box<Self> {
        let conns = Connections::new(&mut rng);
        let transmits = VecDeque::with_capacity(config.max_transmits);
        Box::new(Self {
            config,
            agent: rng.u32(),
            rng,
            ports: Ports::default(),
            listeners: Listeners::new(),
            conns,
            transmits,
            outcome: Outcome::default(),
            counters,
        })
    }

    /// Takes a local endpoint, for one user; port 0 takes any of 49152 to 65535. Returns the port.
    ///
    /// # Errors
    /// [`CmError::AddressInUse`]; [`CmError::NoPorts`] for port 0.
    pub(crate) fn bind_port(&mut self, local: IpAddr, port: u16) -> Result<u16, CmError> {
        self.ports.bind(local, port, &mut self.rng)
    }

    /// Adds a user to a bound endpoint. False, and no user more, where it is not bound.
    pub(crate) fn retain_port(&mut self, local: IpAddr, port: u16) -> bool {
        self.ports.retain(local, port)
    }

    /// Takes a user from a bound endpoint. The last one frees it.
    pub(crate) fn unbind_port(&mut self, local: IpAddr, port: u16) {
        self.ports.unbind(local, port);
    }

    /// Takes requests for `local`, which the caller has bound; an unspecified address stands for all. At
    /// most `backlog` of them, and at least one, wait for the consumer's accept or reject at a time.
    ///
    /// # Errors
    /// [`CmError::AddressInUse`] where another listener has the endpoint.
    pub(crate) fn listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<ListenerId, CmError> {
        self.listeners.insert(local, backlog.max(1))
    }

    /// Pauses or resumes a listener: a paused one refuses requests as if there were none. Requests taken
    /// before stay.
    pub(crate) fn pause(&mut self, listener: ListenerId, paused: bool) {
        self.listeners.pause(listener, paused);
    }

    /// Ends a listener. Requests that [`Cm::poll_event`] has not returned are refused and never seen; the
    /// others stay with their consumer, to be accepted or rejected as before.
    pub(crate) fn unlisten(&mut self, listener: ListenerId) {
        if !self.listeners.remove(listener) {
            return;
        }
        let unseen = |conn: &Connection| conn.listener == Some(listener) && !conn.delivered;
        let mut after = None;
        while let Some(id) = self.conns.next(after, unseen) {
            self.refuse_unseen(id, RejReason::INVALID_SERVICE_ID);
            after = Some(id);
        }
    }

    /// Sends REQ; the peer is to start at `starting_psn`. [`CmEvent::Connected`], `Refused` or `TimedOut`
    /// follows.
    ///
    /// # Errors
    /// [`CmError::PrivateData`] above 56 bytes, `Address`, `Connected` or `Full`.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
        starting_psn: Psn,
    ) -> Result<ConnId, CmError> {
        let (local, remote) = (plain(connect.local), plain(connect.remote));
        let are_hosts = is_host(local.ip(), local.ip()) && is_host(remote.ip(), local.ip());
        if local.is_ipv4() != remote.is_ipv4() || !are_hosts {
            return Err(CmError::Address);
        }
        if self.conns.is_connected(local, remote) {
            return Err(CmError::Connected);
        }
        if self.conns.held() >= self.config.max_connections {
            return Err(CmError::Full);
        }
        let local_id = self.new_comm_id();
        let transaction_id = self.transaction_id(local_id);
        let ids = (local_id, transaction_id);
        let mut conn = Connection::active(&self.config, ids, connect, starting_psn);
        let req = conn.req(&self.config, connect.private_data)?;
        conn.make_room().ok_or(CmError::Full)?;
        conn.set_message(req);
        conn.step(Event::SendReq);
        let id = self.conns.insert(conn).ok_or(CmError::Full)?;
        self.send_until_answered(now, id);
        Ok(id)
    }

    /// Active side, after [`CmEvent::Connected`]: sends RTU. Our queue pair can send by now.
    ///
    /// # Errors
    /// [`CmError::State`] where the peer has given up meanwhile.
    pub(crate) fn confirm(&mut self, now: Instant, id: ConnId) -> Result<(), CmError> {
        let conn = held(&mut self.conns, id)?;
        conn.step(Event::SendRtu).ok_or(CmError::State)?;
        conn.give_room_back();
        self.send(id);
        self.claim_peer_qp(now, id);
        Ok(())
    }

    /// Passive side, after [`CmEvent::ConnectRequest`]: sends REP, before which our queue pair has to
    /// receive. [`CmEvent::Established`], `Refused`, `TimedOut` or `PeerDisconnected` follows. The effective read limits are then those of [`Cm::peer`].
    ///
    /// # Errors
    /// [`CmError::PrivateData`] above 196 bytes; [`CmError::State`] where the peer has given up
    /// meanwhile.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        id: ConnId,
        qp: QpSide,
        limits: ReadLimits,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let conn = held(&mut self.conns, id)?;
        let rep = conn.rep(&self.config, qp, limits, private_data)?;
        conn.step(Event::SendRep).ok_or(CmError::State)?;
        conn.set_message(rep);
        conn.qp = qp;
        conn.peer.limits = conn.peer.limits.min(limits);
        self.leave_backlog(id);
        self.send_until_answered(now, id);
        Ok(())
    }

    /// Either side, before `accept` or `confirm`: sends REJ 28. The ID is still to be released.
    ///
    /// # Errors
    /// [`CmError::PrivateData`] above 148 bytes; [`CmError::State`] where the peer has given up
    /// meanwhile.
    pub(crate) fn reject(
        &mut self,
        now: Instant,
        id: ConnId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let private_data = mad::private_data(private_data).ok_or(CmError::PrivateData)?;
        let conn = held(&mut self.conns, id)?;
        if !matches!(conn.state, State::ReqReceived | State::RepReceived) {
            return Err(CmError::State);
        }
        self.leave_backlog(id);
        self.send_rej(now, id, private_data);
        Ok(())
    }

    /// Sends DREQ; [`CmEvent::DisconnectDone`] follows, at once where the peer was first.
    ///
    /// # Errors
    /// [`CmError::State`] where the connection never was established, or `disconnect` was called
    /// before.
    pub(crate) fn disconnect(&mut self, now: Instant, id: ConnId) -> Result<(), CmError> {
        let conn = held(&mut self.conns, id)?;
        if conn.state == State::Closed && conn.ended_by_peer {
            conn.ended_by_peer = false;
            self.conns.tell(id, Kind::DisconnectDone);
            return Ok(());
        }
        self.send_dreq(now, id).ok_or(CmError::State)
    }

    /// Releases the connection for the consumer, in any state. The peer gets the message that the state
    /// requires, and is not waited for. [`CmEvent::Closed`] follows, after a `DisconnectDone` that is owed,
    /// and no other event. An ID that is gone is ignored.
    pub(crate) fn release(&mut self, now: Instant, id: ConnId) {
        let Ok(conn) = held(&mut self.conns, id) else { return };
        conn.owner = Owner::Released;
        match conn.state {
            State::Idle | State::Closed => {}
            State::ReqSent => {
                let rej = conn.rej_timeout(&self.config);
                self.end_with_rej(now, id, rej);
            }
            State::RepReceived | State::ReqReceived | State::RepSent => {
                self.send_rej(now, id, [0; _]);
            }
            State::Established => self.leave(now, id),
            State::DreqSent => {
                self.conns.tell(id, Kind::DisconnectTimedOut);
            }
        }
        self.leave_backlog(id);
        self.conns.free_endpoints(id);
        self.conns.tell(id, Kind::Closed);
        if let Some(conn) = self.conns.get_mut(id) {
            conn.news.release();
        }
    }

    /// Ends the connections whose path is gone for good, each by [`CmEvent::PathLost`], or `DisconnectDone`
    /// where we were ending it. No message is sent any more.
    pub(crate) fn lose_paths(&mut self, now: Instant, lost: impl Fn(Path) -> bool) {
        let mut after = None;
        while let Some(id) = self.conns.next(after, |conn| lost(conn.peer.path())) {
            self.lose_way(now, id);
            after = Some(id);
        }
        self.transmits.retain(|CmTransmit { layers: Layers { encap, .. }, .. }| {
            !lost(Path { local: encap.src, remote: encap.dst })
        });
    }

    /// Passive side: the first valid packet on the queue pair counts as the RTU, which may be lost or late.
    /// Ignored in any other state.
    pub(crate) fn established_by_data(&mut self, now: Instant, id: ConnId) {
        self.establish(now, id, Event::RecvData);
    }

    /// The peer's queue pair and the path to it, until the ID is released. The active side knows the peer's
    /// part from [`CmEvent::Connected`] on.
    pub(crate) fn peer(&self, id: ConnId) -> Option<&Peer> {
        let conn = self.conns.get(id)?;
        (conn.owner == Owner::Consumer).then_some(&conn.peer)
    }

    /// The bits of its queue pair's packets, until the ID is released. The active side knows the peer's part of them as
    /// [`Cm::peer`] does.
    pub(crate) fn class_bits(&self, id: ConnId) -> Option<ClassBits> {
        let conn = self.conns.get(id).filter(|conn| conn.owner == Owner::Consumer)?;
        Some(conn.class_bits(&self.config))
    }

    /// Sets the classes of services, from the next message on.
    pub(crate) fn set_classes(&mut self, classes: TrafficClasses) {
        self.config.classes = classes;
    }

    /// The connection behind `after`, or the first one.
    pub(crate) fn next(&self, after: Option<ConnId>) -> Option<ConnId> {
        self.conns.next(after, |_| true)
    }

    /// Our queue pair, until the ID is released. The passive side knows it from [`Cm::accept`] on.
    pub(crate) fn qp(&self, id: ConnId) -> Option<QpSide> {
        let conn = self.conns.get(id)?;
        (conn.owner == Owner::Consumer).then_some(conn.qp)
    }

    /// Acts on expired timers: resends, gives up and forgets. Calls `silent` with the path of each message
    /// without a response: the peer may be elsewhere.
    pub(crate) fn handle_timeout(&mut self, now: Instant, mut silent: impl FnMut(Path)) {
        while let Some(id) = self.conns.pop_due(now) {
            if let Some(conn) = self.conns.get(id).filter(|conn| conn.state != State::Established) {
                silent(conn.peer.path());
            }
            self.resend(now, id);
        }
        self.conns.expire(now);
    }

    /// When [`Cm::handle_timeout`] has work.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.conns.next_deadline()
    }

    /// Whether [`Cm::poll_event`] may have an event.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.conns.has_events()
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<CmEvent> {
        loop {
            let (id, kind) = self.conns.poll()?;
            let conn = self.conns.get_mut(id)?;
            conn.delivered = true;
            let event = conn.event(id, kind);
            if kind == Kind::Closed {
                self.conns.disown(id);
            }
            if event.is_some() {
                return event;
            }
        }
    }

    /// The device's part of a connection; `None` where it is gone, or that was taken.
    pub(crate) fn tie(&self, id: ConnId) -> Option<Tie> {
        self.conns.get(id)?.tie
    }

    /// The same, to be set, changed or taken.
    pub(crate) fn tie_mut(&mut self, id: ConnId) -> Option<&mut Option<Tie>> {
        self.conns.get_mut(id).map(|conn| &mut conn.tie)
    }

    /// Whether an ID of ours names a connection with this peer, or one that has ended a moment ago.
    pub(crate) fn knows(&self, id: CommId, peer: IpAddr) -> bool {
        self.conns.find_any(id).is_some_and(|conn| conn.peer.remote.ip() == peer)
    }

    /// Whether there is a message to send.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        !self.transmits.is_empty()
    }

    /// The next message to send.
    pub(crate) fn poll_transmit(&mut self) -> Option<CmTransmit> {
        self.transmits.pop_front()
    }

    /// Reports an event, if the consumer still has the connection.
    fn report(&mut self, id: ConnId, kind: Kind) {
        if held(&mut self.conns, id).is_ok() {
            self.conns.tell(id, kind);
        }
    }

    /// Takes a request out of its backlog: the consumer has accepted, rejected or released it.
    fn leave_backlog(&mut self, id: ConnId) {
        let listener = self.conns.get_mut(id).and_then(|conn| conn.listener.take());
        if let Some(listener) = listener {
            self.listeners.leave_place(listener);
        }
    }

    /// Draws a communication ID: never 0, which stands for none, and never one in use or just used.
    fn new_comm_id(&mut self) -> CommId {
        loop {
            let id = CommId::new(self.rng.u32());
            if id.get() != 0 && !self.conns.is_used(id) {
                return id;
            }
        }
    }

    /// A transaction ID as Linux makes it: an agent and a connection.
    fn transaction_id(&self, local_id: CommId) -> u64 {
        u64::from(self.agent) << 32 | u64::from(local_id.get())
    }
}

/// A connection that the consumer has not released.
fn held(conns: &mut Connections, id: ConnId) -> Result<&mut Connection, CmError> {
    let conn = conns.get_mut(id).filter(|conn| conn.owner == Owner::Consumer);
    conn.ok_or(CmError::UnknownId)
}
