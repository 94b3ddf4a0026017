//! All connections, and the indices that find one.

use super::api::ConnId;
use super::connection::{Connection, Owner, PeerQpKey, Request, RequestKey};
use super::slab::Slab;
use super::state::State;
use crate::env::Instant;
use crate::ids::CommId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Connections by ID, by deadline and, until the protocol retires them, by the names in messages. All
/// look-ups are logarithmic, so that the cost of a flood of requests stays linear.
#[derive(Debug)]
pub(super) struct Connections {
    slab: Slab<Connection>,
    by_local_id: BTreeMap<CommId, ConnId>,
    by_request: BTreeMap<Request, ConnId>,
    /// Established connections only: a request may come from any host.
    by_peer_qp: BTreeMap<PeerQpKey, ConnId>,
    /// Connections that we started, by endpoints, ours first.
    by_endpoints: BTreeMap<(SocketAddr, SocketAddr), ConnId>,
    deadlines: BTreeSet<(Instant, ConnId)>,
    /// Connections without a consumer that still wait for a response.
    lingering: usize,
}

impl Connections {
    pub(super) const fn new() -> Self {
        Self {
            slab: Slab::new(),
            by_local_id: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_peer_qp: BTreeMap::new(),
            by_endpoints: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            lingering: 0,
        }
    }

    /// Connections that a consumer has.
    pub(super) fn held(&self) -> usize {
        self.slab.len() - self.lingering
    }

    /// Connections without a consumer.
    pub(super) const fn lingering(&self) -> usize {
        self.lingering
    }

    pub(super) fn insert(&mut self, conn: Connection) -> ConnId {
        let local_id = conn.local_id;
        let request = conn.request;
        let endpoints = (conn.peer.local, conn.peer.remote);
        let id = ConnId(self.slab.insert(conn));
        self.by_local_id.insert(local_id, id);
        match request {
            Some(request) => {
                self.by_request.insert(request, id);
            }
            None => {
                self.by_endpoints.insert(endpoints, id);
            }
        }
        id
    }

    /// Enters an established connection under the peer's queue pair.
    pub(super) fn index_peer_qp(&mut self, id: ConnId) {
        if let Some(peer_qp) = self.get(id).and_then(Connection::peer_qp) {
            self.by_peer_qp.insert(peer_qp, id);
        }
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Connection> {
        self.slab.get(id.0)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.slab.get_mut(id.0)
    }

    pub(super) fn find(&mut self, local_id: CommId) -> Option<(ConnId, &mut Connection)> {
        let id = *self.by_local_id.get(&local_id)?;
        Some((id, self.get_mut(id)?))
    }

    pub(super) fn find_request(&self, request: &Request) -> Option<ConnId> {
        self.by_request.get(request).copied()
    }

    /// The first connection whose REQ had this identity and that is in one of `states`.
    pub(super) fn find_identity(&self, key: &RequestKey, states: &[State]) -> Option<ConnId> {
        let known = self.by_request.range(Request::first(*key)..);
        let mut ids = known.take_while(|(request, _)| request.key == *key).map(|(_, id)| *id);
        ids.find(|id| self.get(*id).is_some_and(|conn| states.contains(&conn.state)))
    }

    pub(super) fn find_peer_qp(&self, peer_qp: &PeerQpKey) -> Option<ConnId> {
        self.by_peer_qp.get(peer_qp).copied()
    }

    pub(super) fn is_used(&self, local_id: CommId) -> bool {
        self.by_local_id.contains_key(&local_id)
    }

    pub(super) fn is_connected(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.by_endpoints.contains_key(&(local, remote))
    }

    /// All connections that `keep` chooses.
    pub(super) fn select(&self, keep: impl Fn(&Connection) -> bool) -> Vec<ConnId> {
        let chosen = self.slab.iter().filter(|(_, conn)| keep(conn));
        chosen.map(|(key, _)| ConnId(key)).collect()
    }

    /// Sets or clears a connection's one timer.
    pub(super) fn set_deadline(&mut self, id: ConnId, deadline: Option<Instant>) {
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        if let Some(old) = core::mem::replace(&mut conn.deadline, deadline) {
            self.deadlines.remove(&(old, id));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes a connection whose deadline has passed, and clears the deadline.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<ConnId> {
        let (_, id) = *self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.set_deadline(id, None);
        Some(id)
    }

    /// Removes a connection from all indices but that of its ID. Returns it, so that its IDs can be
    /// remembered.
    pub(super) fn retire(&mut self, id: ConnId) -> Option<&Connection> {
        self.set_deadline(id, None);
        self.free_endpoints(id);
        let conn = self.slab.get(id.0)?;
        self.by_local_id.remove(&conn.local_id);
        if let Some(request) = &conn.request {
            self.by_request.remove(request);
        }
        if let Some(peer_qp) = conn.peer_qp() {
            remove_if(&mut self.by_peer_qp, &peer_qp, id);
        }
        Some(conn)
    }

    /// Frees the endpoints of a connection for another one.
    pub(super) fn free_endpoints(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get(id.0) {
            remove_if(&mut self.by_endpoints, &(conn.peer.local, conn.peer.remote), id);
        }
    }

    /// Removes the consumer from a connection.
    pub(super) fn disown(&mut self, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        conn.owner = Owner::Nobody;
        self.lingering += 1;
        self.free_if_done(id);
    }

    /// Frees a connection that neither consumer nor protocol needs.
    pub(super) fn free_if_done(&mut self, id: ConnId) {
        let done = |conn: &Connection| (conn.owner, conn.state) == (Owner::Nobody, State::Closed);
        if self.get(id).is_some_and(done) {
            self.slab.remove(id.0);
            self.lingering -= 1;
        }
    }

    /// Whether all indices are empty.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.slab.len() == 0
            && self.by_local_id.is_empty()
            && self.by_request.is_empty()
            && self.by_peer_qp.is_empty()
            && self.by_endpoints.is_empty()
            && self.deadlines.is_empty()
            && self.lingering == 0
    }
}

/// Removes `key` if it leads to `id`; it may lead to a later connection by now.
fn remove_if<K: Ord>(map: &mut BTreeMap<K, ConnId>, key: &K, id: ConnId) {
    if map.get(key) == Some(&id) {
        map.remove(key);
    }
}
