//! Time-wait: the memory of ended connections while their packets may still be in the network.

use super::CmConfig;
use super::connection::{Connection, Request, RequestKey};
use super::message::Mad;
use super::receive::Ignored;
use crate::env::Instant;
use crate::ids::CommId;
use crate::wire::{DropReason, Encap, Packet};
use alloc::collections::{BTreeMap, BTreeSet};

/// An ended connection.
#[derive(Clone, Debug)]
pub(super) struct TimeWait {
    remote_id: Option<CommId>,
    request: Option<Request>,
    /// Layers 2 to 4 towards the peer.
    encap: Encap,
    /// Our REJ that ended it, if any: repeated until the peer has received it.
    rej: Option<Mad>,
    until: Instant,
}

impl TimeWait {
    pub(super) fn new(config: &CmConfig, conn: &Connection, now: Instant) -> Self {
        // A peer that missed our REJ repeats its message after the negotiated time, not sooner.
        let asks_again = if conn.rejected { conn.response_timeout } else { Default::default() };
        Self {
            remote_id: conn.remote_id,
            request: conn.request,
            encap: conn.encap(config),
            rej: conn.rejected.then_some(conn.message),
            until: now + config.time_wait + asks_again.min(config.connect_limit),
        }
    }

    /// The reply to a message that belongs to this connection.
    pub(super) fn rej(&self, packet: &Packet<'_>) -> Result<(Encap, Mad), Ignored> {
        self.check_addresses(packet)?;
        Ok((self.encap, self.rej.ok_or(Ignored::UnknownId)?))
    }

    pub(super) fn check_addresses(&self, packet: &Packet<'_>) -> Result<(), Ignored> {
        if (packet.encap.src, packet.encap.dst) == (self.encap.dst, self.encap.src) {
            Ok(())
        } else {
            Err(Ignored::Dropped(DropReason::AddressMismatch))
        }
    }

    /// Whether a REQ is a duplicate of the one that began this connection.
    pub(super) fn came_from(&self, request: &Request) -> bool {
        self.request.as_ref() == Some(request)
    }

    /// Whether a message with this local ID is from the peer.
    pub(super) fn is_peer(&self, comm_id: CommId) -> bool {
        self.remote_id == Some(comm_id)
    }
}

/// Ended connections by our ID, by their REQ and by time. Their number is bounded: the first to expire
/// makes room.
#[derive(Debug)]
pub(super) struct TimeWaits {
    by_local_id: BTreeMap<CommId, TimeWait>,
    by_request: BTreeMap<RequestKey, CommId>,
    by_time: BTreeSet<(Instant, CommId)>,
}

impl TimeWaits {
    pub(super) const fn new() -> Self {
        Self { by_local_id: BTreeMap::new(), by_request: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    pub(super) fn insert(&mut self, local_id: CommId, wait: TimeWait, limit: usize) {
        if limit == 0 {
            return;
        }
        if self.by_local_id.len() >= limit {
            self.pop_first();
        }
        if let Some(request) = &wait.request {
            self.by_request.insert(request.key, local_id);
        }
        self.by_time.insert((wait.until, local_id));
        self.by_local_id.insert(local_id, wait);
    }

    pub(super) fn find(&self, local_id: CommId) -> Option<&TimeWait> {
        self.by_local_id.get(&local_id)
    }

    pub(super) fn find_request(&self, key: &RequestKey) -> Option<&TimeWait> {
        self.by_request.get(key).and_then(|local_id| self.find(*local_id))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// Forgets connections that are old enough.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_deadline().is_some_and(|until| until <= now) {
            self.pop_first();
        }
    }

    fn pop_first(&mut self) {
        let Some((_, local_id)) = self.by_time.pop_first() else { return };
        let Some(TimeWait { request: Some(request), .. }) = self.by_local_id.remove(&local_id)
        else {
            return;
        };
        if self.by_request.get(&request.key) == Some(&local_id) {
            self.by_request.remove(&request.key);
        }
    }

    /// Whether all indices are empty.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_local_id.is_empty() && self.by_request.is_empty() && self.by_time.is_empty()
    }
}
