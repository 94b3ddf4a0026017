//! A reliable connected queue pair: its attributes, work requests and completions.
//!
//! Inside, three engines that do not know each other: requester and completer share the send queue, the
//! responder has the receive queue.

mod cc;
mod copy;
mod failure;
mod inbound;
mod origin;
mod outbound;
mod psn_set;
mod recv;
mod reorder_window;
mod ring;
mod send;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod unit_watch;
mod work;

pub use cc::congestion::DcqcnConfig;
pub use failure::{Failure, Refused};
pub use recv::entry::{RecvPoster, RecvSlot};
pub(crate) use recv::queue::Srqs;
pub use recv::queue::{SrqConfig, SrqError, SrqId};
pub(crate) use recv::reorder_pool::ReorderPool;
pub use send::entry::{SendPoster, SendSlot};
pub use send::requester::Window;
pub use state::QpState;
pub(crate) use work::Completions;
pub use work::{
    Completion, CompletionSink, Finished, MAX_MESSAGE, MAX_READS, MAX_SGE, Owner, PostError,
    RecvWr, SendOp, SendWr, SgList, Sge, WcKind, WcStatus, sg_len,
};

use crate::class::{ClassBits, prioritize};
use crate::counters::{Counter, QpCounters, Tally};
use crate::env::{Duration, Instant, code_duration};
use crate::ids::{Qpn, Rkey};
use crate::mr::{Access, AccessError, MrTable, PdId, Target};
use crate::psn::{Msn, Psn};
use crate::wire::mad::Make;
use crate::wire::{Encap, Hop, Origin, Pmtu};
use alloc::sync::Arc;
use cc::congestion::Congestion;
use origin::PeerOrigin;
use recv::queue::RecvQueue;
use recv::responder::Responder;
use send::completer::{self, Completer};
use send::probe::Probe;
use send::queue::SendQueue;
use send::requester::Requester;
use unit_watch::UnitWatch;

/// The protection domain and QP under which keys are checked, and the table that holds them.
#[derive(Clone, Copy)]
pub(crate) struct KeyContext<'a> {
    /// The QP's protection domain.
    pub pd: PdId,
    /// The QP, because a window belongs to one.
    pub qpn: Qpn,
    /// All registrations.
    pub mrs: &'a MrTable,
}

impl KeyContext<'_> {
    /// Checks a peer's access to `len > 0` bytes at `va`.
    ///
    /// # Errors
    /// As [`MrTable::remote`].
    #[inline]
    pub(crate) fn remote(
        &self,
        key: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<Target, AccessError> {
        self.mrs.remote(self.pd, self.qpn, key, va, len, needed)
    }
}

/// The parts of the device that its queue pairs share.
pub(crate) struct Shared<'a, M> {
    /// All keys.
    pub mrs: &'a mut MrTable,
    /// Registered bytes.
    pub memory: &'a mut M,
    /// The slots of all reorder buffers.
    pub reorder_pool: &'a mut ReorderPool,
    /// Where completions go.
    pub out: &'a mut Completions,
}

/// The connection, as the engines need it. The fields that each packet needs stand first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct PeerQp {
    /// The peer's QP.
    pub qpn: Qpn,
    /// Payload bytes of a full packet.
    pub pmtu: Pmtu,
    /// The peer's make.
    pub make: Make,
    /// The upper bits of its QPNs that name its core.
    pub core_bits: u8,
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
    /// Addresses and ports of every packet that we send; layer 2 and `ip_id` are set per packet.
    pub encap: Encap,
    /// The origin of the peer's REQ or REP.
    pub origin: Origin,
}

impl PeerQp {
    /// How long the peer tries to bring a packet, at most, before it gives up, as far as both have agreed on it.
    pub(crate) fn silence_limit(&self) -> Duration {
        code_duration(self.ack_timeout_code) * (u32::from(self.retry_count) + 1)
    }
}

/// The attributes of a new QP.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// The caller's name for the QP, returned in its completions.
    pub owner: u64,
    /// The protection domain.
    pub pd: PdId,
    /// Initiator requests outstanding, at most.
    pub send_depth: usize,
    /// Elements of an initiator request, at most.
    pub send_sge: usize,
    /// Receives outstanding, at most. Ignored with a shared queue.
    pub recv_depth: usize,
    /// Elements of a receive, at most.
    pub recv_sge: usize,
    /// The shared queue from which the QP takes its receives, instead of a queue of its own.
    pub srq: Option<SrqId>,
}

/// The ends where requests of a QP are posted, unless the caller took them; no receives where these come from
/// a shared queue.
#[derive(Debug)]
pub(crate) struct Posters {
    /// Of initiator requests.
    pub send: Option<SendPoster>,
    /// Of receives.
    pub recv: Option<RecvPoster>,
}

/// The packets of a queue pair that leave next, where they are all of one kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stream {
    /// There are none, or of several kinds, or something limits them.
    None,
    /// New requests.
    Requests,
    /// Responses to READs.
    Responses,
    /// One ACK.
    Ack,
    /// All of a stream have left, and there are none until something happens.
    Rest,
}

/// A queue pair. The fields that each packet needs stand first, here and in the engines, so that it is in few cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Qp {
    tally: Tally,
    qpn: Qpn,
    pd: PdId,
    state: QpState,
    /// Nothing is late, lost, paced, marked or probed for, as far as [`Self::look`] knows: the only deadline is that of the
    /// retransmission timer, and nothing is to be sent but new requests, READ responses and an ACK or NAK. The short
    /// ways keep it so, and all else ends it.
    calm: bool,
    /// The requester has nothing to send until something happens: a post, a response, a timeout.
    requests_idle: bool,
    /// The packets that leave next, as far as [`Self::look`] knows.
    stream: Stream,
    /// The deadline may be earlier than [`Self::take_deadline`] has told.
    deadline_moved: bool,
    /// The traffic class of packets with data.
    traffic_class: u8,
    /// While the QP is calm: responses are owed; receives may have completions to take. They spare a look at what has
    /// nothing to do with our own requests.
    answers: bool,
    received: bool,
    peer: Option<PeerQp>,
    sq: SendQueue,
    completer: Completer,
    requester: Requester,
    congestion: Congestion,
    srq: Option<SrqId>,
    send_depth: u32,
    probe: Probe,
    /// Responses and requests take turns, so that a long READ of the peer does not starve our own sends.
    requests_first: bool,
    responder: Responder,
    rq: RecvQueue,
    /// A unit of our requests whose fate is not known yet; the responder watches one of its own.
    watched: Option<UnitWatch>,
    origin: PeerOrigin,
    /// The priority of its packets; `None`: that of the path's tag.
    priority: Option<u8>,
    /// The error that took the QP to the error state, if its owner did not.
    failure: Option<Failure>,
}

impl Qp {
    /// A QP in INIT. The keys of its receives are those of `recv_pd`: its own domain, or that of the
    /// shared queue.
    pub(crate) fn new(
        qpn: Qpn,
        config: &QpConfig,
        recv_pd: PdId,
        window: Window,
        dcqcn: Option<DcqcnConfig>,
        tally: Tally,
    ) -> (Self, Posters) {
        let owner = Owner::Qp(config.owner);
        let (recv, rq) = if config.srq.is_some() {
            // Only the receive of the message that is arriving.
            (None, RecvQueue::of_shared(owner, recv_pd))
        } else {
            let (depth, max_sge) = (config.recv_depth, config.recv_sge);
            let (recv, rq) = RecvQueue::new(owner, recv_pd, depth, max_sge);
            (Some(recv), rq)
        };
        let (send, sq) = SendQueue::new(config.owner, config.send_depth, config.send_sge);
        let qp = Self {
            tally,
            qpn,
            pd: config.pd,
            state: QpState::Init,
            calm: false,
            requests_idle: true,
            stream: Stream::None,
            deadline_moved: false,
            traffic_class: 0,
            answers: false,
            received: false,
            peer: None,
            sq,
            completer: Completer::new(),
            requester: Requester::new(window),
            congestion: Congestion::new(dcqcn),
            srq: config.srq,
            // Far fewer than 2^32 requests fit the memory.
            send_depth: config.send_depth as u32,
            probe: Probe::new(),
            requests_first: false,
            responder: Responder::new(window.reorder_bytes),
            rq,
            watched: None,
            origin: PeerOrigin::new(Origin::default()),
            priority: None,
            failure: None,
        };
        (qp, Posters { send: Some(send), recv })
    }

    /// Changes the owner's name for the QP.
    pub(crate) fn set_owner(&mut self, owner: u64) {
        self.sq.set_owner(owner);
        self.rq.set_owner(Owner::Qp(owner));
    }

    /// The QP's number.
    pub(crate) const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The QP's state.
    pub(crate) const fn state(&self) -> QpState {
        self.state
    }

    /// The QP's counters.
    pub(crate) const fn counters(&self) -> &Arc<QpCounters> {
        self.tally.of_qp()
    }

    /// The error that took the QP to the error state, if its owner did not.
    pub(crate) const fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The connection, once there is one.
    pub(crate) const fn peer(&self) -> Option<&PeerQp> {
        self.peer.as_ref()
    }

    /// The shared queue from which the QP takes its receives.
    pub(crate) const fn srq(&self) -> Option<SrqId> {
        self.srq
    }

    /// Initiator requests outstanding, at most.
    pub(crate) const fn send_depth(&self) -> usize {
        self.send_depth as usize
    }

    /// Connects the QP to a peer and moves it to RTS, once in its life.
    pub(crate) fn connect(&mut self, mut peer: PeerQp) {
        self.sq.start_at(peer.send_psn, peer.pmtu, peer.make);
        if peer.outbound_reads > 0 && !self.sq.reserve_reads() {
            peer.outbound_reads = 0;
        }
        self.requester.connect(&peer);
        self.sq.reserve_missing(self.requester.window_packets(), peer.make);
        self.completer.connect(&peer);
        self.responder.connect(&peer);
        self.traffic_class = self.congestion.class_of_data(peer.encap.traffic_class);
        self.origin = PeerOrigin::of(&peer);
        self.peer = Some(peer);
        self.state = QpState::Rts;
    }

    /// Sets the class of its packets, once it has a peer. Headers that were made before are to be made anew.
    pub(crate) fn set_class(&mut self, bits: ClassBits) {
        let Some(peer) = &mut self.peer else { return };
        peer.encap.traffic_class = bits.traffic_class;
        self.priority = bits.priority;
        self.traffic_class = self.congestion.class_of_data(bits.traffic_class);
    }

    /// The class of its packets with data.
    pub(crate) const fn class(&self) -> ClassBits {
        ClassBits { traffic_class: self.traffic_class, priority: self.priority }
    }

    /// Gives back the slots of a QP that is at its end.
    pub(crate) fn close_reorder_buffer(&mut self, pool: &mut ReorderPool) {
        self.responder.close_reorder_buffer(pool);
    }

    /// Notes that REQ or REP was sent: no packet leaves before the peer's response.
    pub(crate) fn seed_rtt(&mut self, now: Instant) {
        self.completer.seed_rtt(now);
    }

    /// Whether an initiator request may be posted.
    ///
    /// # Errors
    /// [`PostError::NoReads`] or [`PostError::NotConnected`].
    pub(crate) fn admits<S>(&self, wr: &SendWr<S>) -> Result<(), PostError> {
        match &self.peer {
            Some(peer) if wr.op.is_read() && peer.outbound_reads == 0 => Err(PostError::NoReads),
            None if self.state == QpState::Init => Err(PostError::NotConnected),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes note of what was posted, of receives if there are new ones; in the error state it completes flushed at once.
    #[inline]
    pub(crate) fn ring_doorbell(&mut self, receives: bool, out: &mut Completions) {
        if self.sq.update() {
            self.requests_idle = false;
        }
        // With the doorbell and no sooner: what a receive names may be told only behind it.
        if receives {
            self.rq.update();
        }
        if self.state == QpState::Err {
            self.sq.flush(out);
            self.rq.flush(out);
        }
    }

    /// Whether completions are to be taken.
    #[inline]
    pub(crate) fn has_completions(&self) -> bool {
        self.sq.has_completions() || self.has_received()
    }

    #[inline]
    fn has_received(&self) -> bool {
        if self.calm { self.received } else { self.may_have_received() }
    }

    /// Not inlined, as the compiler would look at the receive queue in any case.
    #[inline(never)]
    fn may_have_received(&self) -> bool {
        self.rq.has_completions()
    }

    /// Removes all completions. Their places may be posted to again.
    #[inline(always)]
    pub(crate) fn take_completions(&mut self, sink: &mut impl CompletionSink) {
        let received = self.has_received();
        if self.sq.ended() == 1 && !received {
            let queue = self.finished(false, 1);
            sink.take(&queue, self.sq.pop_completion().into_iter());
        } else {
            self.take_several(received, sink);
        }
    }

    /// The same of more than one. Not inlined, so that its loops have all registers.
    #[inline(never)]
    fn take_several(&mut self, received: bool, sink: &mut impl CompletionSink) {
        if self.sq.has_completions() {
            let queue = self.finished(false, self.sq.ended());
            sink.take(&queue, self.sq.completions());
        }
        if received {
            let queue = self.finished(true, self.rq.ended());
            sink.take(&queue, self.rq.completions());
            self.received = false;
        }
    }

    /// The state of a queue, as a sink is told of it.
    #[inline(always)]
    const fn finished(&self, receives: bool, count: usize) -> Finished {
        let (owner, succeeded) = (self.sq.owner(), !matches!(self.state, QpState::Err));
        Finished { owner, receives, count, succeeded, failure: self.failure }
    }

    /// Removes the next completion, in order per queue.
    pub(crate) fn pop_completion(&mut self) -> Option<Completion> {
        let sent = self.sq.pop_completion();
        if sent.is_some() || !self.has_received() {
            return sent;
        }
        let received = self.rq.pop_completion();
        self.received = self.rq.has_completions();
        received
    }

    /// Whether [`Self::next_window_request`] may have a request.
    #[inline]
    pub(crate) fn has_window_requests(&self) -> bool {
        self.sq.has_window_requests()
    }

    /// The next request, of those not seen yet, that binds or may end a window.
    pub(crate) fn next_window_request(&mut self) -> Option<SendOp> {
        self.sq.next_window_request()
    }

    /// Sends a [probe](Probe), to which the peer's queue pair responds if it is still there. Returns false
    /// where this QP is not, or no longer, connected.
    pub(crate) fn probe(&mut self) -> bool {
        let connected = self.state == QpState::Rts;
        if connected {
            self.calm = false;
            self.probe.ask();
        }
        connected
    }

    /// Whether the peer has responded since a probe was sent; true once for each probe.
    pub(crate) fn take_probe_answer(&mut self) -> bool {
        self.probe.take_answer()
    }

    /// [`Self::deadline`], if it may be earlier than when this told it last.
    #[inline]
    pub(crate) fn take_deadline(&mut self) -> Option<Instant> {
        if core::mem::take(&mut self.deadline_moved) { self.deadline() } else { None }
    }

    /// Whether there is nothing to tell but completions, deadline and readiness.
    pub(crate) const fn is_calm(&self) -> bool {
        self.calm
    }

    /// The next instant at which [`Self::handle_timeout`] has work.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.calm { self.completer.timer_deadline() } else { self.any_deadline() }
    }

    fn any_deadline(&self) -> Option<Instant> {
        if self.state != QpState::Rts {
            return None;
        }
        let pace = self.congestion.rate().deadline();
        let parked = self.sq.parked_until();
        let responder = self.peer.as_ref().and_then(|peer| self.responder.deadline(peer));
        let engines = Instant::earlier(self.completer.deadline(), responder);
        Instant::earlier(engines, Instant::earlier(pace, parked))
    }

    /// Acts on expired timers.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        pool: &mut ReorderPool,
        out: &mut Completions,
    ) {
        (self.calm, self.deadline_moved) = (false, true);
        if self.state != QpState::Rts {
            return;
        }
        self.unblock(now);
        self.requests_idle = false;
        if let Some(peer) = &self.peer {
            self.responder.handle_timeout(now, peer, (pool, &self.tally));
        }
        self.sq.unpark(now, out);
        let interval = self.requester.ack_interval(&self.sq);
        let verdict = self.completer.handle_timeout(now, interval, &mut self.sq, &self.tally);
        if let Some(loss) = self.completer.take_loss() {
            self.congestion.handle_loss(now, loss);
        }
        if let completer::Verdict::Fail(status) = verdict {
            self.fail(self.request_failed(status), out);
        }
    }

    /// Ends a wait for the token bucket; the wait counts if it delayed a packet.
    fn unblock(&mut self, now: Instant) {
        let Some(waited) = self.congestion.rate_mut().handle_timeout(now) else { return };
        let Self { peer: Some(peer), sq, requester, .. } = self else { return };
        let requests = !self.completer.paused() && requester.has_work(sq, peer);
        if requests || self.responses_ready() {
            self.tally.add(Counter::PacedNs, waited.as_nanos() as u64);
        }
    }

    /// The traffic class of the unit that [`Self::fill`] writes next; `None` without a peer.
    pub(crate) fn traffic_class(&self) -> Option<u8> {
        if self.calm {
            return Some(self.traffic_class);
        }
        let peer = self.peer.as_ref()?;
        Some(self.congestion.traffic_class(peer.encap.traffic_class))
    }

    /// Layers 2 to 4 of that unit over `hop`; `None` without a peer.
    pub(crate) fn encap(&self, hop: Hop) -> Option<Encap> {
        let traffic_class = self.traffic_class()?;
        let mut encap = Encap { traffic_class, ..self.peer.as_ref()?.encap };
        encap.set_hop(hop);
        prioritize(&mut encap, self.priority);
        Some(encap)
    }

    /// Tries in a row without a response.
    pub(crate) const fn tries(&self) -> u32 {
        self.completer.tries()
    }

    /// Sets the link's rate, in bytes per second.
    pub(crate) fn set_line_rate(&mut self, line_rate: u64) {
        self.congestion.set_line_rate(line_rate);
    }

    /// The QP's rate in bytes per second; `None` without a limit.
    pub(crate) fn rate(&mut self, now: Instant) -> Option<u64> {
        self.congestion.rate_mut().current(now)
    }

    /// Cancels everything, because the owner flushes, disconnects or closes. No packet leaves any more.
    pub(crate) fn flush(&mut self, out: &mut Completions) {
        self.responder.clear();
        self.enter_error(out);
    }

    /// Fails the QP because its path is gone: the oldest initiator request ends with that status,
    /// everything else is flushed, and no packet leaves any more, not even a NAK that is owed.
    pub(crate) fn lose_path(&mut self, out: &mut Completions) {
        self.responder.clear();
        if self.state == QpState::Rts {
            self.fail(self.request_failed(WcStatus::PathLost), out);
        }
    }

    /// The failure of our oldest request with `status`.
    const fn request_failed(&self, status: WcStatus) -> Failure {
        Failure::Request { status, psn: self.sq.una() }
    }

    /// Goes to the error state by an error. The oldest initiator request ends with its status if one of
    /// ours failed; everything else is flushed (C10-42). The NAK that refuses a request of the peer still
    /// leaves, behind the responses owed before it, and no other packet does (IBTA ch. 10, Error State).
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
        (self.calm, self.stream) = (false, Stream::None);
        self.completer.stop();
        self.congestion.stop();
        self.probe = Probe::new();
        self.sq.flush(out);
        self.rq.flush(out);
    }
}
