//! Sending: messages, their resends, and the connections that end with one.

use super::api::{CmTransmit, ConnId, Layers};
use super::connection::Connection;
use super::message::Mad;
use super::news::Kind;
use super::retry::Retry;
use super::state::{Event, State};
use super::{Cm, REJ_PRIVATE_DATA};
use crate::counters::Counter;
use crate::env::Instant;
use crate::wire::mad::RejReason;

impl Cm {
    // A message is a quarter of a kilobyte: what makes or moves one does so on a stack of its own, as a kernel's is
    // small.

    #[inline(never)]
    pub(super) fn transmit(&mut self, layers: Layers, payload: Mad) {
        if self.transmits.len() < self.config.max_transmits {
            self.transmits.push_back(CmTransmit { layers, payload });
        } else {
            self.counters.add(Counter::CmTransmitFull, 1);
        }
    }

    /// The same for a reply to somebody unknown, which leaves a quarter of the queue to messages of connections.
    #[inline(never)]
    pub(super) fn transmit_refusal(&mut self, layers: Layers, payload: Mad) {
        if self.transmits.len() < self.config.max_transmits.div_ceil(4) * 3 {
            self.transmit(layers, payload);
        } else {
            self.counters.add(Counter::CmTransmitFull, 1);
        }
    }

    /// Sends a connection's message for the first time.
    pub(super) fn send(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(id) else { return };
        if let Some(message) = conn.last_message() {
            self.transmit(conn.layers(&self.config), message);
        }
    }

    /// Sends a connection's message again. At most one copy waits to leave.
    pub(super) fn send_again(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(id) else { return };
        let (layers, Some(message)) = (conn.layers(&self.config), conn.last_message()) else {
            return;
        };
        let waits =
            |other: &CmTransmit| other.layers == layers && head(&other.payload) == head(&message);
        if !self.transmits.iter().any(waits) {
            self.transmit(layers, message);
        }
    }

    /// Sends a connection's message and starts its timer.
    pub(super) fn send_until_answered(&mut self, now: Instant, id: ConnId) {
        self.send(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        let limit = match conn.state {
            State::DreqSent => self.config.disconnect_limit,
            _ => self.config.connect_limit,
        };
        let (retry, deadline) = Retry::start(now, &self.config, conn.response_timeout, limit);
        conn.retry = Some(retry);
        self.conns.set_deadline(id, Some(deadline));
    }

    /// Acts on a connection's timer.
    #[inline(never)]
    pub(super) fn resend(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.state == State::Established {
            return self.probe_or_lose(now, id);
        }
        match conn.retry.as_mut().and_then(|retry| retry.resend(now)) {
            Some(deadline) => {
                self.conns.set_deadline(id, Some(deadline));
                self.send_again(id);
            }
            None => self.give_up(now, id),
        }
    }

    pub(super) fn give_up(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let rej = conn.rej_timeout(&self.config);
        match conn.step(Event::GiveUp) {
            Some(State::ReqSent | State::RepSent) => {
                // Linux sends nothing here, and leaves a peer whose responses were lost half open.
                conn.set_message(rej);
                conn.rejected = true;
                self.send(id);
                self.report(id, Kind::TimedOut);
            }
            Some(_) => self.report(id, Kind::DisconnectTimedOut),
            None => return,
        }
        self.retire(now, id);
    }

    pub(super) fn establish(&mut self, now: Instant, id: ConnId, event: Event) -> Option<()> {
        let conn = self.conns.get_mut(id)?;
        conn.step(event)?;
        conn.give_room_back();
        self.conns.set_deadline(id, None);
        self.claim_peer_qp(now, id);
        self.report(id, Kind::Established);
        Some(())
    }

    /// Notes that the peer's queue pair is in this connection now, and so no longer in another: only the
    /// peer could respond to our REQ or REP, whose ID no other host knows.
    pub(super) fn claim_peer_qp(&mut self, now: Instant, id: ConnId) {
        let peer_qp = self.conns.get(id).and_then(Connection::peer_qp);
        if let Some(old) = peer_qp.and_then(|peer_qp| self.conns.find_peer_qp(&peer_qp)) {
            self.lose_peer(now, old);
        }
        self.conns.index_peer_qp(id);
    }

    /// Refuses the peer's REQ or REP.
    pub(super) fn send_rej(
        &mut self,
        now: Instant,
        id: ConnId,
        private_data: [u8; REJ_PRIVATE_DATA],
    ) {
        let Some(conn) = self.conns.get(id) else { return };
        let rej = conn.rej(RejReason::CONSUMER, private_data);
        self.end_with_rej(now, id, rej);
    }

    /// Refuses a request that the consumer never saw, and forgets it.
    pub(crate) fn refuse_unseen(&mut self, id: ConnId, reason: RejReason) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let rej = conn.rej(reason, [0; _]);
        if conn.step(Event::SendRej).is_some() {
            conn.set_message(rej);
            self.send(id);
            self.conns.retire(id, None, 0);
        }
        self.leave_backlog(id);
        self.conns.disown(id);
    }

    pub(super) fn end_with_rej(&mut self, now: Instant, id: ConnId, rej: Mad) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.step(Event::SendRej);
        conn.set_message(rej);
        conn.rejected = true;
        self.send(id);
        self.retire(now, id);
    }

    pub(super) fn send_dreq(&mut self, now: Instant, id: ConnId) -> Option<()> {
        let transaction_id = self.rng.u64();
        let conn = self.conns.get_mut(id)?;
        conn.step(Event::SendDreq)?;
        // It starts another exchange.
        conn.transaction_id = transaction_id;
        self.send_until_answered(now, id);
        Some(())
    }

    /// Leaves a connection whose consumer is gone: DREQ is resent in the background, if there is room for
    /// that.
    pub(super) fn leave(&mut self, now: Instant, id: ConnId) {
        self.send_dreq(now, id);
        if self.conns.lingering() >= self.config.max_connections {
            self.give_up(now, id);
        }
    }

    /// Retires a connection: the protocol has ended, and its IDs are remembered for a while.
    pub(super) fn retire(&mut self, now: Instant, id: ConnId) {
        let wait = self.conns.get(id).map(|conn| now + conn.time_wait(&self.config));
        self.conns.retire(id, wait, self.config.max_time_wait);
    }
}

/// Transaction, kind and IDs, which determine the rest of a connection's message.
fn head(message: &Mad) -> [u64; 3] {
    [8, 16, 24].map(|at| u64::from_be_bytes(message[at..at + 8].try_into().expect("8 bytes")))
}
