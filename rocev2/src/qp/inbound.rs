//! The way in of a queue pair: a received packet to the engine that it is for.

use super::recv::queue::Srq;
use super::recv::responder::{self, Context};
use super::send::completer;
use super::{Failure, KeyContext, PeerQp, Qp, Shared};
use crate::counters::Counter;
use crate::env::{Instant, Memory};
use crate::mr::Invalidator;
use crate::psn::Psn;
use crate::wire::mad::Make;
use crate::wire::{
    Common, CommonOp, CommonRun, DropReason, Encap, Hop, Opcode, Origin, Packet, Place,
};

impl Qp {
    /// Acts on a packet whose ICRC, QPN and opcode are good. `srq` is the queue that [`Self::srq`]
    /// names.
    ///
    /// # Errors
    /// [`DropReason`]: the packet changed nothing.
    pub(crate) fn handle_packet<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        srq: Option<&mut Srq>,
        shared: &mut Shared<'_, M>,
    ) -> Result<(), DropReason> {
        let Some(peer) = self.peer.as_ref().filter(|_| self.state.receives()) else {
            return Err(DropReason::QpState);
        };
        check_addresses(peer, &packet.encap)?;
        // From a peer that has not shown itself as one of ours this opcode means nothing, or something else.
        if packet.bth.opcode == Opcode::GapReport && peer.make != Make::Keeper {
            return Err(DropReason::UnknownOpcode);
        }
        if self.origin.knows(&Origin::of(&packet.encap)) {
            self.handle_known(now, packet, srq, shared)
        } else {
            self.handle_unknown(now, packet, srq, shared)
        }
    }

    /// Acts on a packet of the peer, whose origin is `known`, or whose number shows that it is the peer's.
    pub(super) fn act<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        srq: Option<&mut Srq>,
        shared: &mut Shared<'_, M>,
        known: bool,
    ) -> Result<(), DropReason> {
        let Shared { mrs, memory, reorder_pool, out } = shared;
        let memory = &mut **memory;
        let Some(peer) = self.peer.as_ref() else { return Err(DropReason::QpState) };
        (self.calm, self.deadline_moved) = (false, true);
        if packet.bth.opcode == Opcode::Cnp {
            if !self.congestion.handle_cnp(now) {
                return Err(DropReason::Congestion);
            }
            self.tally.count(Counter::RpCnpHandled);
            return Ok(());
        }
        let probed = self.probe.heeds(&packet.bth, &self.sq);
        // A mark counts even if the packet is dropped next. Packets without payload do not cause
        // congestion.
        let data = known && !packet.payload.is_empty();
        if data && self.congestion.received(now, packet.encap.traffic_class) {
            self.tally.count(Counter::NpEcnMarkedRocePackets);
        }
        let failure = if packet.bth.opcode.is_response() {
            self.requests_idle = false;
            let keys = KeyContext { pd: self.pd, qpn: self.qpn, mrs };
            let (sq, tally) = (&mut self.sq, &self.tally);
            let mut cx = completer::Context { peer, keys, memory, sq, out, tally };
            let verdict = self.completer.handle(now, packet, &mut cx);
            self.sq.unpark(now, out);
            while let Some(key) = self.sq.pop_ended_key() {
                // The key may have ended already where the READ had zero bytes; otherwise the data just
                // went through it.
                if let Ok(Some(released)) = mrs.invalidate(self.pd, Invalidator::Owner, key) {
                    out.release(released);
                }
            }
            if let Some(loss) = self.completer.take_loss() {
                self.congestion.handle_loss(now, loss);
            }
            match verdict {
                Ok(completer::Verdict::Done) => return Ok(()),
                Err(_) if probed => return Ok(()),
                Err(reason) => return Err(reason),
                Ok(completer::Verdict::Fail(status)) => self.request_failed(status),
            }
        } else {
            let (pd, qpn, rq, tally) = (self.pd, self.qpn, &mut self.rq, &self.tally);
            let mut cx = Context { peer, pd, qpn, mrs, memory, rq, srq, out, tally, known };
            let verdict = self.responder.handle(now, packet, reorder_pool, &mut cx);
            if let Some(loss) = self.responder.take_loss() {
                self.congestion.handle_loss(now, loss);
            }
            match verdict? {
                responder::Verdict::Done => return Ok(()),
                responder::Verdict::Disbelieved => return Err(DropReason::FlowMismatch),
                responder::Verdict::Fail(refused) => Failure::Refused(refused),
            }
        };
        self.fail(failure, out);
        Ok(())
    }

    /// Whether packets with these headers are the peer's: its addresses, and its origin as far as that is known.
    pub(crate) fn is_peer(&self, encap: &Encap) -> bool {
        let addresses = self.peer.as_ref().is_some_and(|peer| check_addresses(peer, encap).is_ok());
        addresses && self.origin.knows(&Origin::of(encap))
    }

    /// The same, and no part of the origin is still to be learned.
    pub(crate) fn is_peer_for_sure(&self, encap: &Encap) -> bool {
        self.origin.knows_port() && self.is_peer(encap)
    }

    /// Follows a neighbour that was found elsewhere.
    pub(crate) fn follow(&mut self, before: Hop, hop: Hop) {
        self.origin.follow(before, hop);
    }

    /// The short way of [`Self::handle_packet`] for most packets of the peer: for those of `run`, up to the first that has
    /// to go the general way.
    #[inline]
    pub(crate) fn handle_run<'f, M: Memory>(
        &mut self,
        now: Instant,
        run: &mut impl CommonRun<'f>,
        srq: Option<&mut Srq>,
        shared: &mut Shared<'_, M>,
    ) {
        if let Some(first) = run.look() {
            self.handle_run_from(now, first, run, srq, shared);
        }
    }

    /// The same, where the packet that `run` looks at is `first`.
    #[inline]
    pub(crate) fn handle_run_from<'f, M: Memory>(
        &mut self,
        now: Instant,
        first: Common<'f>,
        run: &mut impl CommonRun<'f>,
        mut srq: Option<&mut Srq>,
        shared: &mut Shared<'_, M>,
    ) {
        if !self.state.receives() {
            return;
        }
        let mut next = Some(first);
        while let Some(packet) = next {
            next = if packet.answers() {
                self.take_answers(now, packet, run, shared)
            } else {
                self.take_requests(packet, run, srq.as_deref_mut(), shared)
            };
        }
    }

    /// The short way of [`Self::handle_packet`] for a packet that mostly comes alone, without the state of a run. False: it is
    /// another one, and nothing has changed.
    #[inline(always)]
    pub(crate) fn take_single<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Common<'_>,
        shared: &mut Shared<'_, M>,
    ) -> bool {
        if !self.state.receives() {
            return false;
        }
        match packet.op {
            CommonOp::Ack => self.newest_acked(now, packet.psn(), shared),
            CommonOp::Write | CommonOp::Send(Place::Only) => self.execute_single(packet, shared),
            _ => false,
        }
    }

    /// Whether a [list of ACKs](crate::wire::ack_list) with these headers is from its peer, and that is one of ours.
    ///
    /// # Errors
    /// [`DropReason`]: it is not.
    pub(crate) fn admits_list(&self, encap: &Encap) -> Result<(), DropReason> {
        let Some(peer) = self.peer.as_ref().filter(|_| self.state.receives()) else {
            return Err(DropReason::QpState);
        };
        check_addresses(peer, encap)?;
        if peer.make == Make::Keeper { Ok(()) } else { Err(DropReason::UnknownOpcode) }
    }

    /// The general way of an ACK of a list whose headers are those of another queue pair of the same peer.
    ///
    /// # Errors
    /// [`DropReason`]: it changed nothing.
    pub(crate) fn handle_listed<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        shared: &mut Shared<'_, M>,
    ) -> Result<(), DropReason> {
        if self.peer.is_none() || !self.state.receives() {
            return Err(DropReason::QpState);
        }
        self.act(now, packet, None, shared, true)
    }

    /// Takes an ACK that its peer has put into a list. `None` where the peer takes no part in lists; false where the ACK has
    /// to go the general way.
    #[inline(always)]
    pub(crate) fn take_listed<M>(
        &mut self,
        now: Instant,
        psn: Psn,
        shared: &mut Shared<'_, M>,
    ) -> Option<bool> {
        self.peer.as_ref().filter(|peer| peer.make == Make::Keeper)?;
        Some(self.newest_acked(now, psn, shared))
    }

    /// Executes a SEND or WRITE of one packet.
    #[inline(always)]
    fn execute_single<M: Memory>(
        &mut self,
        packet: &Common<'_>,
        shared: &mut Shared<'_, M>,
    ) -> bool {
        let Some(peer) = self.peer.as_ref() else { return false };
        let Shared { mrs, memory, out, .. } = shared;
        let (pd, qpn, rq, tally, memory) =
            (self.pd, self.qpn, &mut self.rq, &self.tally, &mut **memory);
        let known = true;
        let mut cx = Context { peer, pd, qpn, mrs, memory, rq, srq: None, out, tally, known };
        if self.responder.handle_single(packet, &mut cx).is_none() {
            return false;
        }
        self.answers = self.responder.ready();
        if packet.op != CommonOp::Write {
            self.received = self.rq.has_completions();
        }
        true
    }

    /// Takes the ACK of the newest packet of a calm QP that has no READ in flight, and so of all that it has sent. False:
    /// it is another one, and nothing has changed.
    #[inline(always)]
    fn newest_acked<M>(&mut self, now: Instant, psn: Psn, shared: &mut Shared<'_, M>) -> bool {
        if !self.calm || self.sq.reads_in_flight() > 0 {
            return false;
        }
        let Some((packets, more)) = self.sq.acknowledge_newest(psn, shared.out) else {
            return false;
        };
        self.completer.newest_ack_came(now, packets, &mut self.sq);
        self.requests_idle &= !more;
        true
    }

    /// Executes the request `packet`, and those behind it. Returns the first other packet that may go the short way.
    #[inline(never)]
    fn take_requests<'f, M: Memory>(
        &mut self,
        mut packet: Common<'f>,
        run: &mut impl CommonRun<'f>,
        srq: Option<&mut Srq>,
        shared: &mut Shared<'_, M>,
    ) -> Option<Common<'f>> {
        let (peer, Shared { mrs, memory, out, .. }) = (self.peer.as_ref()?, shared);
        let (pd, qpn, rq, tally, memory) =
            (self.pd, self.qpn, &mut self.rq, &self.tally, &mut **memory);
        let known = true;
        let mut cx = Context { peer, pd, qpn, mrs, memory, rq, srq, out, tally, known };
        let epsn = self.responder.epsn();
        let next = loop {
            if packet.answers() {
                break Some(packet);
            }
            if self.responder.handle_common(&packet, &mut cx).is_none() {
                break None;
            }
            let Some(next) = run.take() else { break None };
            packet = next;
        };
        self.responder.run_ended(epsn);
        (self.answers, self.received) = (self.responder.ready(), self.rq.has_completions());
        next
    }

    /// Takes the response or ACK `packet`, and those behind it. Returns the first other packet that may go the short way.
    #[inline(never)]
    fn take_answers<'f, M: Memory>(
        &mut self,
        now: Instant,
        mut packet: Common<'f>,
        run: &mut impl CommonRun<'f>,
        shared: &mut Shared<'_, M>,
    ) -> Option<Common<'f>> {
        let (peer, Shared { mrs, memory, out, .. }) = (self.peer.as_ref()?, shared);
        let keys = KeyContext { pd: self.pd, qpn: self.qpn, mrs };
        let (memory, tally) = (&mut **memory, &self.tally);
        let mut cx = completer::Context { peer, keys, memory, sq: &mut self.sq, out, tally };
        let (mut any, mut data) = (false, false);
        let next = loop {
            if !packet.answers() {
                break Some(packet);
            }
            let probed = !self.calm && self.probe.waits();
            if probed || !self.completer.handle_common(now, &packet, &mut cx) {
                break None;
            }
            (any, data) = (true, data | packet.is_response());
            let Some(next) = run.take() else { break None };
            packet = next;
        };
        if data {
            self.completer.plain_data_ends(now, cx.sq);
        }
        if any {
            // Nothing is to be sent again.
            self.requests_idle &= !cx.sq.has_more();
            self.deadline_moved |= cx.sq.outstanding();
        }
        next
    }
}

/// Checks that a packet has both addresses of the connection: the cheapest defence against forged packets.
fn check_addresses(peer: &PeerQp, encap: &Encap) -> Result<(), DropReason> {
    let fits = encap.dst == peer.encap.src && encap.src == peer.encap.dst;
    if fits { Ok(()) } else { Err(DropReason::AddressMismatch) }
}
