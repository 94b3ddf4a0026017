//! All connections, and the indices that find one.

use super::api::ConnId;
use super::connection::{Connection, Owner, PeerQpKey, Request, RequestKey};
use super::deadlines::Deadlines;
use super::news::Kind;
use super::slab::Slab;
use super::state::State;
use super::unproven::Unproven;
use crate::env::{Instant, Rng};
use crate::ids::CommId;
use crate::index::{Index, Secret};
use crate::path::address_words;
use alloc::collections::VecDeque;
use core::net::SocketAddr;

/// Connections by ID, by deadline and, until the protocol retires them, by the names in messages. All of it grows
/// when a connection is added, and is refused then where there is no memory; nothing else takes any. A connection
/// that has ended stays for its time-wait, found by its IDs alone.
#[derive(Debug)]
pub(super) struct Connections {
    slab: Slab<Connection>,
    /// Connections for which all tables have room.
    room: usize,
    secret: Secret,
    by_local_id: Index,
    by_request: Index,
    /// Established connections only: a request may come from any host.
    by_peer_qp: Index,
    /// Connections that we started, by endpoints, ours first.
    by_endpoints: Index,
    deadlines: Deadlines,
    /// When the IDs of ended connections are forgotten.
    waits: Deadlines,
    /// Connections with an event to poll, each once.
    events: VecDeque<ConnId>,
    /// Connections whose queue pair is to be probed, each once.
    pub(super) probes: VecDeque<ConnId>,
    pub(super) unproven: Unproven,
    held: usize,
    /// Connections without a consumer that still wait for a response.
    lingering: usize,
}

impl Connections {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            slab: Slab::new(),
            room: 0,
            secret: Secret::new(rng),
            by_local_id: Index::default(),
            by_request: Index::default(),
            by_peer_qp: Index::default(),
            by_endpoints: Index::default(),
            deadlines: Deadlines::default(),
            waits: Deadlines::default(),
            events: VecDeque::new(),
            probes: VecDeque::new(),
            unproven: Unproven::default(),
            held: 0,
            lingering: 0,
        }
    }

    /// Connections that a consumer has.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Connections without a consumer.
    pub(super) const fn lingering(&self) -> usize {
        self.lingering
    }

    /// Adds a connection; `None` where there is no memory.
    pub(super) fn insert(&mut self, conn: Connection) -> Option<ConnId> {
        if self.slab.len() == self.room {
            self.make_room((2 * self.room).max(8))?;
        }
        let local_id = self.local_id_hash(conn.local_id);
        let request = conn.request.map(|request| self.request_hash(&request.key));
        self.unproven.make_room()?;
        let endpoints = self.endpoints_hash(conn.peer.local, conn.peer.remote);
        let key = self.slab.insert(conn)?;
        self.by_local_id.insert(local_id, key.index());
        match request {
            Some(request) => {
                self.by_request.insert(request, key.index());
                self.unproven.enter(ConnId(key));
            }
            None => self.by_endpoints.insert(endpoints, key.index()),
        }
        self.held += 1;
        Some(ConnId(key))
    }

    fn make_room(&mut self, room: usize) -> Option<()> {
        self.slab.make_room(room)?;
        for index in [
            &mut self.by_local_id,
            &mut self.by_request,
            &mut self.by_peer_qp,
            &mut self.by_endpoints,
        ] {
            index.make_room(room)?;
        }
        self.deadlines.make_room(room)?;
        self.waits.make_room(room)?;
        for queue in [&mut self.events, &mut self.probes] {
            queue.try_reserve_exact(room - queue.len()).ok()?;
        }
        self.room = room;
        Some(())
    }

    fn local_id_hash(&self, local_id: CommId) -> u32 {
        self.secret.hash([local_id.get().into()])
    }

    fn request_hash(&self, key: &RequestKey) -> u32 {
        let [high, low] = address_words(key.remote);
        self.secret.hash([high, low, key.comm_id.get().into(), key.ca_guid])
    }

    fn peer_qp_hash(&self, key: &PeerQpKey) -> u32 {
        let [high, low] = address_words(key.remote);
        self.secret.hash([high, low, key.ca_guid, key.qpn.get().into()])
    }

    fn endpoints_hash(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        let ([a, b], [c, d]) = (address_words(local.ip()), address_words(remote.ip()));
        self.secret.hash([a, b, c, d, u64::from(local.port()) << 16 | u64::from(remote.port())])
    }

    /// The connections in these places that `is` chooses.
    fn choose(
        &self,
        places: impl Iterator<Item = usize>,
        is: impl Fn(usize, &Connection) -> bool,
    ) -> Option<ConnId> {
        let mut found = places.filter_map(|place| self.slab.at(place).map(|entry| (place, entry)));
        found.find(|(place, (_, conn))| is(*place, conn)).map(|(_, (key, _))| ConnId(key))
    }

    /// Enters an established connection under the peer's queue pair.
    pub(super) fn index_peer_qp(&mut self, id: ConnId) {
        self.unproven.leave(id);
        if let Some(peer_qp) = self.get(id).and_then(Connection::peer_qp) {
            self.by_peer_qp.insert(self.peer_qp_hash(&peer_qp), id.0.index());
        }
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Connection> {
        self.slab.get(id.0)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.slab.get_mut(id.0)
    }

    fn by_local_id(&self, local_id: CommId, waits: bool) -> Option<ConnId> {
        let places = self.by_local_id.find(self.local_id_hash(local_id));
        self.choose(places, |place, conn| {
            conn.local_id == local_id && self.waits.has(place) == waits
        })
    }

    pub(super) fn find(&mut self, local_id: CommId) -> Option<(ConnId, &mut Connection)> {
        let id = self.by_local_id(local_id, false)?;
        Some((id, self.get_mut(id)?))
    }

    /// The connection in time-wait that had this ID.
    pub(super) fn find_wait(&self, local_id: CommId) -> Option<&Connection> {
        self.get(self.by_local_id(local_id, true)?)
    }

    /// The connection that has this ID, or had it and is in time-wait.
    pub(super) fn find_any(&self, local_id: CommId) -> Option<&Connection> {
        let mut found = [false, true].iter().filter_map(|waits| self.by_local_id(local_id, *waits));
        self.get(found.next()?)
    }

    pub(super) fn is_used(&self, local_id: CommId) -> bool {
        self.find_any(local_id).is_some()
    }

    pub(super) fn find_request(&self, request: &Request) -> Option<ConnId> {
        let places = self.by_request.find(self.request_hash(&request.key));
        self.choose(places, |place, conn| {
            conn.request.as_ref() == Some(request) && !self.waits.has(place)
        })
    }

    /// A connection in time-wait whose REQ had this identity: that of the request itself, if it is there.
    pub(super) fn find_wait_request(&self, request: &Request) -> Option<&Connection> {
        let hash = self.request_hash(&request.key);
        let find = |same: bool| {
            self.choose(self.by_request.find(hash), |place, conn| {
                let is = conn
                    .request
                    .is_some_and(|other| other.key == request.key && (!same || other == *request));
                is && self.waits.has(place)
            })
        };
        self.get(find(true).or_else(|| find(false))?)
    }

    /// A connection whose REQ had this identity and that is in one of `states`.
    pub(super) fn find_identity(&self, key: &RequestKey, states: &[State]) -> Option<ConnId> {
        let places = self.by_request.find(self.request_hash(key));
        self.choose(places, |_, conn| {
            conn.request.is_some_and(|request| request.key == *key) && states.contains(&conn.state)
        })
    }

    pub(super) fn find_peer_qp(&self, peer_qp: &PeerQpKey) -> Option<ConnId> {
        let places = self.by_peer_qp.find(self.peer_qp_hash(peer_qp));
        self.choose(places, |_, conn| conn.peer_qp().as_ref() == Some(peer_qp))
    }

    pub(super) fn is_connected(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let places = self.by_endpoints.find(self.endpoints_hash(local, remote));
        let ends = |conn: &Connection| (conn.peer.local, conn.peer.remote) == (local, remote);
        self.choose(places, |_, conn| ends(conn)).is_some()
    }

    /// The first connection that `is` chooses of those behind the one of `after`.
    pub(super) fn next(
        &self,
        after: Option<ConnId>,
        is: impl Fn(&Connection) -> bool,
    ) -> Option<ConnId> {
        let first = after.map_or(0, |id| id.0.index() + 1);
        self.choose(first..self.slab.slots(), |_, conn| is(conn))
    }

    /// Sets or clears a connection's one timer.
    pub(super) fn set_deadline(&mut self, id: ConnId, deadline: Option<Instant>) {
        if self.get(id).is_some() {
            self.deadlines.set(id.0.index(), deadline);
        }
    }

    /// When [`Self::pop_due`] or [`Self::expire`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let first = [self.deadlines.first(), self.waits.first()];
        first.into_iter().flatten().map(|(deadline, _)| deadline).min()
    }

    /// Takes a connection whose deadline has passed, and clears the deadline.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<ConnId> {
        let (_, place) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.deadlines.set(place, None);
        self.slab.at(place).map(|(key, _)| ConnId(key))
    }

    /// Notes an event of a connection.
    pub(super) fn tell(&mut self, id: ConnId, kind: Kind) {
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        if conn.news.is_empty() {
            self.events.push_back(id);
        }
        conn.news.add(kind);
    }

    /// Whether there is an event.
    #[inline]
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the next event.
    pub(super) fn poll(&mut self) -> Option<(ConnId, Kind)> {
        let id = *self.events.front()?;
        let conn = self.slab.get_mut(id.0)?;
        let kind = conn.news.pop()?;
        if conn.news.is_empty() {
            self.events.pop_front();
        }
        Some((id, kind))
    }

    /// Retires a connection: no message finds it from here on, but for those that find it in time-wait, of which
    /// there are `limit` at most.
    pub(super) fn retire(&mut self, id: ConnId, wait: Option<Instant>, limit: usize) {
        self.set_deadline(id, None);
        self.free_endpoints(id);
        self.unproven.leave(id);
        let Some(conn) = self.get(id) else { return };
        let nobody = conn.owner == Owner::Nobody;
        if let Some(peer_qp) = conn.peer_qp() {
            self.by_peer_qp.remove(self.peer_qp_hash(&peer_qp), id.0.index());
        }
        self.lingering -= usize::from(nobody);
        match wait.filter(|_| limit > 0) {
            Some(until) => {
                while self.waits.len() >= limit {
                    self.end_wait();
                }
                self.waits.set(id.0.index(), Some(until));
            }
            None => self.forget(id),
        }
    }

    /// Forgets connections whose time-wait is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.waits.first().is_some_and(|(until, _)| until <= now) {
            self.end_wait();
        }
    }

    /// Ends the time-wait that is to end first.
    fn end_wait(&mut self) {
        let Some((_, place)) = self.waits.first() else { return };
        self.waits.set(place, None);
        if let Some((key, _)) = self.slab.at(place) {
            self.forget(ConnId(key));
        }
    }

    /// Forgets the IDs of a connection that has ended, and with them the connection, unless its consumer has it.
    fn forget(&mut self, id: ConnId) {
        let Some(conn) = self.get(id) else { return };
        let local_id = self.local_id_hash(conn.local_id);
        let request = conn.request.map(|request| self.request_hash(&request.key));
        self.by_local_id.remove(local_id, id.0.index());
        if let Some(request) = request {
            self.by_request.remove(request, id.0.index());
        }
        self.free_if_done(id);
    }

    /// Frees the endpoints of a connection for another one.
    pub(super) fn free_endpoints(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get(id.0) {
            let endpoints = self.endpoints_hash(conn.peer.local, conn.peer.remote);
            self.by_endpoints.remove(endpoints, id.0.index());
        }
    }

    /// Removes the consumer from a connection.
    pub(super) fn disown(&mut self, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        conn.owner = Owner::Nobody;
        conn.private_data = None;
        let lingers = conn.state != State::Closed;
        if !conn.news.is_empty() {
            self.events.retain(|other| *other != id);
        }
        self.held -= 1;
        self.lingering += usize::from(lingers);
        self.free_if_done(id);
    }

    /// Frees a connection that neither consumer nor protocol needs.
    fn free_if_done(&mut self, id: ConnId) {
        let done = |conn: &Connection| (conn.owner, conn.state) == (Owner::Nobody, State::Closed);
        if self.get(id).is_some_and(done) && !self.waits.has(id.0.index()) {
            self.slab.remove(id.0);
        }
    }

    /// Connections with an event.
    #[cfg(test)]
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// Whether all indices are empty.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let indices = [&self.by_local_id, &self.by_request, &self.by_peer_qp, &self.by_endpoints];
        self.slab.len() == 0
            && indices.into_iter().all(Index::is_empty)
            && self.deadlines.len() + self.waits.len() + self.events.len() == 0
            && self.held + self.lingering + self.unproven.len() == 0
    }
}
