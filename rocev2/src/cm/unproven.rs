//! Connections whose peer has proved nothing yet. Anybody can send a REQ, from any address: that the peer is there shows its RTU, or
//! its first packet, which name what we have sent to it.
//!
//! A place of a full backlog, or of the full list of all such connections, is not held against somebody who asks again. A REQ
//! that was put off once and comes again takes the place of a random one that came for the first time, or is old: a forger
//! of many addresses asks once from each, and an honest peer that loses its place so asks again as well.

use super::Cm;
use super::api::{ConnId, ListenerId};
use super::connection::Connection;
use super::news::Kind;
use super::state::{Event, State};
use crate::env::{Duration, Instant};
use alloc::vec::Vec;

/// The age from which on a repeated request may be displaced, too: a handshake takes a round trip, and the consumer's time.
const OLD: Duration = Duration::from_secs(2);
/// Connections that are looked at for one that may be displaced.
const LOOKS: usize = 64;

/// The list of them.
#[derive(Debug, Default)]
pub(super) struct Unproven(Vec<ConnId>);

impl Unproven {
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes room for one more; `None` where there is no memory.
    pub(super) fn make_room(&mut self) -> Option<()> {
        self.0.try_reserve(1).ok()
    }

    pub(super) fn enter(&mut self, id: ConnId) {
        self.0.push(id);
    }

    /// Removes a connection; one that is not in the list is ignored.
    pub(super) fn leave(&mut self, id: ConnId) {
        if let Some(at) = self.0.iter().position(|other| *other == id) {
            self.0.swap_remove(at);
        }
    }

    /// Some of them, from a place on that `random` chooses.
    fn some(&self, random: u32) -> impl Iterator<Item = ConnId> {
        let first = ((u64::from(random) * self.0.len() as u64) >> 32) as usize;
        let (before, behind) = self.0.split_at(first);
        behind.iter().chain(before).take(LOOKS).copied()
    }
}

impl Cm {
    /// Makes room for a repeated request: a random connection that `may` be displaced ends. Returns whether there was one.
    pub(super) fn displace(&mut self, now: Instant, may: impl Fn(&Connection) -> bool) -> bool {
        let (random, conns) = (self.rng.u32(), &self.conns);
        let displaceable = |conn: &Connection| {
            may(conn) && (!conn.repeated || now.saturating_since(conn.since) >= OLD)
        };
        let found = conns.unproven.some(random).find(|id| conns.get(*id).is_some_and(displaceable));
        if let Some(id) = found {
            self.end_unproven(now, id);
        }
        found.is_some()
    }

    /// Whether a connection waits in the backlog of a listener.
    pub(super) fn waits_at(listener: ListenerId) -> impl Fn(&Connection) -> bool {
        move |conn| conn.listener == Some(listener)
    }

    fn end_unproven(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.state != State::ReqReceived {
            // As for want of the RTU.
            return self.give_up(now, id);
        }
        // In silence: a peer that is there asks again, and is a new one then.
        let delivered = conn.delivered;
        conn.step(Event::PathLost);
        self.leave_backlog(id);
        self.report(id, Kind::TimedOut);
        self.conns.retire(id, None, 0);
        if !delivered {
            self.conns.disown(id);
        }
    }
}
