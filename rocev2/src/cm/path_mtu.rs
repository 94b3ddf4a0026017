//! Active side: the peer's port carries a smaller path MTU than ours.
//!
//! The passive side cannot lower the path MTU of a REQ. It refuses the REQ and names the largest path MTU that would do (IBTA
//! ch. 12, rejection reason 26), and the active side asks once more with that one. The REJ counts as any other does: it has to
//! name our ID, and to come from the peer's address.

use super::Cm;
use super::api::ConnId;
use super::connection::Connection;
use super::message::with_header;
use super::receive::{Effect, Ignored};
use super::state::State;
use crate::counters::Counter;
use crate::env::Instant;
use crate::wire::Pmtu;
use crate::wire::mad::{CmMessage, MadHeader, Rej, RejMessage, RejReason, parse_mad};

impl Cm {
    /// Handles REJ 26 of our REQ; `None` where the REJ is another one, or ends the attempt.
    #[inline(never)]
    pub(super) fn receive_pmtu_rej(
        &mut self,
        now: Instant,
        id: ConnId,
        header: &MadHeader,
        rej: &Rej,
    ) -> Option<Effect> {
        let about = (rej.message, rej.reason);
        let conn = self.conns.get_mut(id)?;
        if conn.state != State::ReqSent || about != (RejMessage::Req, RejReason::INVALID_MTU) {
            return None;
        }
        // Of the first REQ, and late or a copy.
        if conn.pmtu_lowered && header.transaction_id != conn.transaction_id {
            return Some(Err(Ignored::Unexpected));
        }
        let transaction_id = self.rng.u64();
        if conn.lower_pmtu(rej, transaction_id).is_none() {
            self.counters.add(Counter::CmPathMtuRefused, 1);
            return None;
        }
        self.send_until_answered(now, id);
        Some(Ok(()))
    }
}

impl Connection {
    /// Puts the path MTU that a REJ names into our REQ, which is another one then, with a transaction of its own. `None` where
    /// that was done before, or the REJ names none that is smaller.
    // Two messages: they are not to be on the stack while the new one is sent.
    #[inline(never)]
    fn lower_pmtu(&mut self, rej: &Rej, transaction_id: u64) -> Option<()> {
        let named = rej.ari().first().and_then(|code| Pmtu::from_code(*code));
        let pmtu = named.filter(|pmtu| *pmtu < self.peer.pmtu && !self.pmtu_lowered)?;
        let (header, message) = parse_mad(&self.last_message()?).ok()?;
        let CmMessage::Req(mut req) = message else { return None };
        req.path_mtu = pmtu.code();
        (self.peer.pmtu, self.pmtu_lowered) = (pmtu, true);
        self.transaction_id = transaction_id;
        self.set_message(with_header(
            &MadHeader { transaction_id, ..header },
            &CmMessage::Req(req),
        ));
        Some(())
    }
}
