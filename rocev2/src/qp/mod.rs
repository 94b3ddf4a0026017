//! A reliable connected queue pair: its attributes, and the three engines that it holds.
//!
//! The engines do not know each other. [`Requester`] and [`Completer`] share the send queue; the
//! [`Responder`] has the receive queue.

pub mod completer;
pub mod congestion;
pub mod copy;
pub mod echo;
pub mod failure;
pub mod held;
pub mod probe;
pub mod rate;
pub mod read;
pub mod receive;
pub mod recovery;
pub mod reorder;
pub mod requester;
pub mod responder;
pub mod retry;
pub mod state;
#[cfg(test)]
pub(crate) mod tests;
pub mod work;

use crate::counters::{Counter, Counters, Tally};
use crate::env::{Instant, Memory};
use crate::ids::{Qpn, Rkey};
use crate::mr::{Access, AccessError, By, MrTable, PdId, Target};
use crate::psn::{Msn, Psn};
use crate::wire::{DropReason, Encap, Ext, Hop, Opcode, Packet, Pmtu, UnitWriter};
use alloc::sync::Arc;
use completer::Completer;
use congestion::{Congestion, DcqcnConfig};
use failure::Failure;
use probe::Probe;
use receive::{RecvQueue, Srq, SrqId};
use requester::{Requester, Window};
use responder::{Context, Responder};
pub use state::QpState;
use work::{Completions, PostError, RecvWr, SendQueue, SendWr, WcStatus};

/// Whose keys a QP may use, and the table that they are looked up in.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// The QP's protection domain.
    pub pd: PdId,
    /// The QP: windows are of one QP.
    pub qpn: Qpn,
    /// All registrations.
    pub mrs: &'a MrTable,
}

impl Keys<'_> {
    /// Checks a peer's access to `len > 0` bytes at `va`.
    ///
    /// # Errors
    /// As [`MrTable::remote`].
    pub fn remote(
        &self,
        key: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<Target, AccessError> {
        self.mrs.remote(self.pd, self.qpn, key, va, len, needed)
    }
}

/// The connection, as the engines need it.
#[derive(Clone, Debug)]
pub struct PeerQp {
    /// The peer's QP.
    pub qpn: Qpn,
    /// Addresses and ports of every packet that we send; layer 2 and `ip_id` are set per packet.
    pub encap: Encap,
    /// Payload bytes of a full packet.
    pub pmtu: Pmtu,
    /// PSN of our first request.
    pub send_psn: Psn,
    /// PSN of the peer's first request.
    pub recv_psn: Psn,
    /// MSN of our responder, before the peer's first request.
    pub first_msn: Msn,
    /// READs that the peer may have in flight.
    pub inbound_reads: u8,
    /// READs that we may have in flight.
    pub outbound_reads: u8,
    /// Transport timeout code, 4.096 us * 2^code.
    pub ack_timeout_code: u8,
    /// Transport retries, 0..=7.
    pub retry_count: u8,
    /// RNR retries, 7 without limit.
    pub rnr_retry: u8,
}

/// What a QP is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// The caller's name for it, returned in its completions.
    pub owner: u64,
    /// Its protection domain.
    pub pd: PdId,
    /// Initiator requests outstanding, at most.
    pub send_depth: usize,
    /// Receives outstanding, at most. Not looked at with a shared queue.
    pub recv_depth: usize,
    /// The shared queue that receives are taken from, instead of one of its own.
    pub srq: Option<SrqId>,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    qpn: Qpn,
    pd: PdId,
    state: QpState,
    peer: Option<PeerQp>,
    depths: (usize, usize),
    srq: Option<SrqId>,
    sq: SendQueue,
    rq: RecvQueue,
    requester: Requester,
    completer: Completer,
    responder: Responder,
    congestion: Congestion,
    probe: Probe,
    tally: Tally,
    /// What took it to the error state, if not its owner.
    failure: Option<Failure>,
    /// Answers and requests take turns, so that a long READ does not starve our own sends.
    requests_first: bool,
}

impl Qp {
    /// A QP in INIT. The keys of its receives are those of `recv_pd`: its own domain, or that of the
    /// shared queue.
    pub fn new(
        qpn: Qpn,
        config: &QpConfig,
        recv_pd: PdId,
        window: Window,
        dcqcn: Option<DcqcnConfig>,
        tally: Tally,
    ) -> Self {
        // Of a shared queue, it holds the one receive that a message is arriving in.
        let recv_depth = if config.srq.is_some() { 1 } else { config.recv_depth };
        Self {
            qpn,
            pd: config.pd,
            state: QpState::Init,
            peer: None,
            depths: (config.send_depth, recv_depth),
            srq: config.srq,
            sq: SendQueue::new(config.owner, config.send_depth),
            rq: RecvQueue::new(config.owner, recv_pd, recv_depth),
            requester: Requester::new(window),
            completer: Completer::new(),
            responder: Responder::new(window.held as usize),
            congestion: Congestion::new(dcqcn),
            probe: Probe::new(),
            tally,
            failure: None,
            requests_first: false,
        }
    }

    /// Its number.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its state.
    pub const fn state(&self) -> QpState {
        self.state
    }

    /// What it counts.
    pub const fn counters(&self) -> &Arc<Counters> {
        self.tally.of_qp()
    }

    /// What took it to the error state, if not its owner.
    pub const fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The connection, once there is one.
    pub const fn peer(&self) -> Option<&PeerQp> {
        self.peer.as_ref()
    }

    /// The shared queue that it takes its receives from.
    pub const fn srq(&self) -> Option<SrqId> {
        self.srq
    }

    /// Depths of send and receive queue.
    pub const fn depths(&self) -> (usize, usize) {
        self.depths
    }

    /// Ties the QP to a peer and moves it to RTS. A QP is connected once in its life. The memory for
    /// packets that come early is still to be taken ([`Self::hold_early`]).
    pub fn connect(&mut self, peer: PeerQp) {
        self.sq.start_at(peer.send_psn);
        self.requester.connect(&peer);
        self.sq.reserve_early(self.requester.window_packets());
        self.completer.connect(&peer);
        self.responder.connect(&peer);
        self.peer = Some(peer);
        self.state = QpState::Rts;
    }

    /// Takes memory for packets that come early, if the QP is connected. Not before the peer has shown
    /// that it is there: it is much more than all else that a connection takes.
    pub fn hold_early(&mut self) {
        if let Some(peer) = self.peer.as_ref().filter(|_| self.state == QpState::Rts) {
            self.responder.hold_early(peer.pmtu);
        }
    }

    /// The peer was asked for the connection, or granted it: nothing is sent before its answer.
    pub fn handshake(&mut self, now: Instant) {
        self.completer.handshake(now);
    }

    /// Queues an initiator request; in the error state it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]: nothing was queued and no completion follows.
    pub fn post_send(&mut self, wr: SendWr, out: &mut Completions) -> Result<(), PostError> {
        if wr.op.is_read() && self.peer.as_ref().is_some_and(|peer| peer.outbound_reads == 0) {
            return Err(PostError::NoReads);
        }
        let pmtu = self.peer.as_ref().map_or(0, |peer| peer.pmtu.bytes() as u64);
        if pmtu == 0 && self.state == QpState::Init {
            return Err(PostError::NotConnected);
        }
        self.sq.push(wr, pmtu.max(1))?;
        if self.state == QpState::Err {
            self.sq.flush(out);
        }
        Ok(())
    }

    /// Queues a receive; in the error state it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError::QueueFull`] or [`PostError::SharedReceives`]: nothing was queued and no completion
    /// follows.
    pub fn post_recv(&mut self, wr: RecvWr, out: &mut Completions) -> Result<(), PostError> {
        if self.srq.is_some() {
            return Err(PostError::SharedReceives);
        }
        self.rq.push(wr)?;
        if self.state == QpState::Err {
            self.rq.flush(out);
        }
        Ok(())
    }

    /// Acts on a packet whose ICRC, QPN and opcode are good. `srq` is the queue that [`Self::srq`]
    /// names.
    ///
    /// # Errors
    /// [`DropReason`]: the packet changed nothing.
    pub fn handle_packet<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        mrs: &mut MrTable,
        memory: &mut M,
        srq: Option<&mut Srq>,
        out: &mut Completions,
    ) -> Result<(), DropReason> {
        let Some(peer) = self.peer.as_ref().filter(|_| self.state.receives()) else {
            return Err(DropReason::QpState);
        };
        check_addresses(peer, &packet.encap)?;
        if packet.bth.opcode == Opcode::Cnp {
            if !self.congestion.handle_cnp(now) {
                return Err(DropReason::Congestion);
            }
            self.tally.count(Counter::RpCnpHandled);
            return Ok(());
        }
        let probed = self.probe.heeds(&packet.bth, &self.sq);
        // Whatever becomes of it, it was in a queue that was too long. What has no data made none so.
        if !packet.payload.is_empty() && self.congestion.received(now, packet.encap.traffic_class) {
            self.tally.count(Counter::NpEcnMarkedRocePackets);
        }
        let failure = if packet.bth.opcode.is_response() {
            let keys = Keys { pd: self.pd, qpn: self.qpn, mrs };
            let (sq, tally) = (&mut self.sq, &self.tally);
            let mut cx = completer::Context { peer, keys, memory, sq, out, tally };
            let verdict = self.completer.handle(now, packet, &mut cx);
            self.sq.unpark(now, out);
            while let Some(key) = self.sq.pop_ended_key() {
                // It has ended already where the READ was of nothing; else the data just went
                // through it.
                if let Ok(Some(released)) = mrs.invalidate(self.pd, By::Owner, key) {
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
            let mut cx = Context { peer, pd, qpn, mrs, memory, rq, srq, out, tally };
            let verdict = self.responder.handle(now, packet, &mut cx);
            if let Some(loss) = self.responder.take_loss() {
                self.congestion.handle_loss(now, loss);
            }
            match verdict? {
                responder::Verdict::Done => return Ok(()),
                responder::Verdict::Fail(refused) => Failure::Refused(refused),
            }
        };
        self.fail(failure, out);
        Ok(())
    }

    /// Sends a [probe](Probe): the peer's queue pair is asked whether it is still there. False where this
    /// one is not connected, or no longer.
    pub fn probe(&mut self) -> bool {
        let connected = self.state == QpState::Rts;
        if connected {
            self.probe.ask();
        }
        connected
    }

    /// Whether the peer has answered since a probe was sent; told once.
    pub fn take_probe_answer(&mut self) -> bool {
        self.probe.take_answer()
    }

    /// The next instant at which [`Self::handle_timeout`] has work.
    pub fn deadline(&self) -> Option<Instant> {
        if self.state != QpState::Rts {
            return None;
        }
        let pace = self.congestion.rate().deadline();
        let parked = self.sq.parked_until();
        let deadlines = [self.completer.deadline(), self.responder.deadline(), pace, parked];
        deadlines.into_iter().flatten().min()
    }

    /// Acts on expired timers.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut Completions) {
        if self.state != QpState::Rts {
            return;
        }
        self.unblock(now);
        self.responder.handle_timeout(now, &self.tally);
        self.sq.unpark(now, out);
        let verdict = self.completer.handle_timeout(now, &mut self.sq, &self.tally);
        if let Some(loss) = self.completer.take_loss() {
            self.congestion.handle_loss(now, loss);
        }
        if let completer::Verdict::Fail(status) = verdict {
            self.fail(self.request_failed(status), out);
        }
    }

    /// Ends a wait of the pace; it counts if it kept anything back.
    fn unblock(&mut self, now: Instant) {
        let waited = self.congestion.rate_mut().handle_timeout(now);
        if let Some(waited) = waited
            && (self.answers_ready() || self.requests_ready())
        {
            self.tally.add(Counter::PacedNs, waited.as_nanos() as u64);
        }
    }

    /// Whether a packet could leave now.
    pub fn ready(&mut self) -> bool {
        let aside = self.congestion.owes_cnp() || self.probes();
        aside || self.answers_ready() || self.requests_ready()
    }

    /// Whether a probe is to be sent, for its owner or its requester.
    fn probes(&self) -> bool {
        self.probe.owed() || self.completer.probes()
    }

    /// An acknowledgement is owed behind the answers to READs, which are paced.
    fn answers_ready(&self) -> bool {
        let paced = self.congestion.rate().blocked() && self.responder.answers_reads();
        self.responder.ready() && !paced
    }

    fn requests_ready(&mut self) -> bool {
        if self.congestion.rate().blocked() {
            return false;
        }
        let Self { state: QpState::Rts, peer: Some(peer), sq, requester, completer, .. } = self
        else {
            return false;
        };
        !completer.paused() && requester.ready(sq, peer)
    }

    /// Layers 2 to 4 of the unit that [`Self::fill`] writes next, over `hop`; `None` without a peer.
    pub fn encap(&self, hop: Hop) -> Option<Encap> {
        let mut encap = self.peer.as_ref()?.encap;
        encap.set_hop(hop);
        encap.traffic_class = self.congestion.traffic_class(encap.traffic_class);
        Some(encap)
    }

    /// Tries in a row that the peer has not answered.
    pub const fn tries(&self) -> u32 {
        self.completer.tries()
    }

    /// The link has another rate now, in bytes per second.
    pub fn set_line_rate(&mut self, line_rate: u64) {
        self.congestion.set_line_rate(line_rate);
    }

    /// Bytes of packets per second that it sends at most; `None` where nothing limits them.
    pub fn rate(&mut self, now: Instant) -> Option<u64> {
        self.congestion.rate_mut().current(now)
    }

    /// Writes packets of one direction into `unit`; returns how many.
    pub fn fill<M: Memory>(
        &mut self,
        now: Instant,
        mrs: &mut MrTable,
        memory: &mut M,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        out: &mut Completions,
    ) -> usize {
        let written = if self.congestion.owes_cnp() {
            self.fill_cnp(unit)
        } else if self.probes() {
            self.fill_probe(now, unit)
        } else {
            self.fill_either(now, mrs, memory, unit, max_packets, out)
        };
        if written > 0 {
            self.tally.add(Counter::SentPkts, written as u64);
            self.tally.add(Counter::SentBytes, unit.wire_len() as u64);
        }
        written
    }

    fn fill_either<M: Memory>(
        &mut self,
        now: Instant,
        mrs: &mut MrTable,
        memory: &mut M,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        out: &mut Completions,
    ) -> usize {
        self.requests_first = !self.requests_first;
        let pmtu = self.peer.as_ref().map_or(0, |peer| peer.pmtu.bytes());
        let max_packets = max_packets.min(self.congestion.rate_mut().allowed(now, pmtu));
        let mut written = 0;
        for requests in [self.requests_first, !self.requests_first] {
            if written == 0 {
                written = if requests {
                    self.fill_requests(now, mrs, memory, unit, max_packets, out)
                } else {
                    let keys = Keys { pd: self.pd, qpn: self.qpn, mrs };
                    self.fill_answers(now, &keys, memory, unit, max_packets, out)
                };
            }
        }
        written
    }

    fn fill_cnp(&mut self, unit: &mut UnitWriter<'_>) -> usize {
        if !unit.fits(Ext::Cnp.len(), 0) {
            return 0;
        }
        let Some(peer) = self.peer.as_ref() else { return 0 };
        let Some(bth) = self.congestion.take_cnp(peer.qpn) else { return 0 };
        let Ok(()) = unit.push(&bth, &Ext::Cnp, 0, |_| Ok::<(), core::convert::Infallible>(()));
        self.tally.count(Counter::NpCnpSent);
        1
    }

    fn fill_probe(&mut self, now: Instant, unit: &mut UnitWriter<'_>) -> usize {
        let Some(peer) = self.peer.as_ref() else { return 0 };
        let (bth, ext) = Probe::packet(peer.qpn, self.sq.una());
        if !unit.fits(ext.len(), 0) {
            return 0;
        }
        let Ok(()) = unit.push(&bth, &ext, 0, |_| Ok::<(), core::convert::Infallible>(()));
        self.probe.sent();
        let tail = self.completer.probe_sent(now, &self.sq);
        self.tally.count(if tail { Counter::TailLossProbes } else { Counter::ProbesSent });
        1
    }

    fn fill_answers<M: Memory>(
        &mut self,
        now: Instant,
        keys: &Keys<'_>,
        memory: &mut M,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        out: &mut Completions,
    ) -> usize {
        if !self.answers_ready() {
            return 0;
        }
        let paced = self.responder.answers_reads();
        let Some(peer) = self.peer.as_ref() else { return 0 };
        let tally = &self.tally;
        let (written, verdict) = self.responder.fill(peer, keys, memory, unit, max_packets, tally);
        if paced && written > 0 {
            self.congestion.rate_mut().sent(now, unit.wire_len());
        }
        if let responder::Verdict::Fail(refused) = verdict {
            self.fail(Failure::Refused(refused), out);
        }
        written
    }

    fn fill_requests<M: Memory>(
        &mut self,
        now: Instant,
        mrs: &mut MrTable,
        memory: &mut M,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        out: &mut Completions,
    ) -> usize {
        if !self.requests_ready() {
            return 0;
        }
        let Some(peer) = self.peer.as_ref() else { return 0 };
        let new = !self.sq.resending();
        let paced = self.congestion.rate_mut().current(now).is_some();
        // What is new has no copies.
        let spent_by = if new { now } else { self.completer.spent_by(now) };
        let (pd, qpn, sq, tally) = (self.pd, self.qpn, &mut self.sq, &self.tally);
        let mut cx =
            requester::Context { peer, pd, qpn, mrs, memory, sq, out, tally, now, spent_by, paced };
        let written = self.requester.fill(&mut cx, unit, max_packets);
        if written > 0 {
            self.completer.sent(now, new, &self.sq);
            self.congestion.rate_mut().sent(now, unit.wire_len());
        }
        if self.sq.in_flight() == 0
            && let Some(status) = self.sq.head().and_then(|(wqe, _)| wqe.fault)
        {
            self.fail(self.request_failed(status), out);
        }
        written
    }

    /// Cancels everything: the owner flushes, disconnects or closes. Nothing is sent any more.
    pub fn flush(&mut self, out: &mut Completions) {
        self.responder.clear();
        self.enter_error(out);
    }

    /// The way to the peer is gone: the oldest initiator request ends so, everything else is flushed,
    /// and nothing is sent any more, not even a NAK that is owed.
    pub fn lose_path(&mut self, out: &mut Completions) {
        self.responder.clear();
        if self.state == QpState::Rts {
            self.fail(self.request_failed(WcStatus::PathLost), out);
        }
    }

    /// Our oldest request fails with `status`.
    const fn request_failed(&self, status: WcStatus) -> Failure {
        Failure::Request { status, psn: self.sq.una() }
    }

    /// Goes to the error state by an error: the oldest initiator request ends with its status if it
    /// is one of ours that failed, everything else is flushed (C10-42). The NAK that tells the peer of
    /// a failed request of its own still leaves, behind the answers owed before it; nothing else does
    /// (IBTA ch. 10, Error State).
    fn fail(&mut self, failure: Failure, out: &mut Completions) {
        self.failure = Some(failure);
        if let Failure::Request { status, .. } = failure {
            self.responder.clear();
            self.sq.fail_head(status, out);
        }
        self.enter_error(out);
    }

    fn enter_error(&mut self, out: &mut Completions) {
        self.state = QpState::Err;
        self.completer.stop();
        self.congestion.stop();
        self.probe = Probe::new();
        self.sq.flush(out);
        self.rq.flush(out);
    }
}

/// A packet belongs to a connection only if both addresses do: the cheapest defence there is.
fn check_addresses(peer: &PeerQp, encap: &Encap) -> Result<(), DropReason> {
    let fits = encap.dst == peer.encap.src && encap.src == peer.encap.dst;
    if fits { Ok(()) } else { Err(DropReason::AddressMismatch) }
}
