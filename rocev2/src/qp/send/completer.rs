//! The completer: processes the peer's responses, completes work requests, and decides what is resent.

use super::probe::Probe;
use super::queue::{Acked, SendQueue};
use super::recovery::{Recovery, Remedy};
use super::retry::{Expiry, RetryTimer};
use crate::counters::{Counter, Tally};
use crate::env::{Duration, Instant, Memory};
use crate::psn::Psn;
use crate::qp::cc::congestion::Loss;
use crate::qp::cc::loss_sum::{BURST, LossSum};
use crate::qp::copy::{LocalFault, scatter};
use crate::qp::send::entry::Wqe;
use crate::qp::work::{Completions, WcStatus};
use crate::qp::{KeyContext, PeerQp};
use crate::wire::gap_report::Gap;
use crate::wire::mad::Make;
use crate::wire::{Aeth, DropReason, Ext, NakCode, Operation, Packet, Syndrome};

/// The RNR retry count without limit, in CM as in the QP.
const RNR_RETRY_FOREVER: u8 = 7;

/// The side of a send queue that receives responses.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Completer {
    recovery: Recovery,
    rnr_retry: u8,
    rnr_tries: u8,
    timed: Option<Timed>,
    timer: RetryTimer,
    /// The pause after an RNR NAK: the packet that was refused, and the end.
    pause: Option<(Psn, Instant)>,
    /// The last resend was one of the retransmission timeout.
    timed_out: bool,
    /// The packet that was next when the timer expired and no response had been requested.
    unasked: Option<Psn>,
    /// For congestion control.
    loss: Option<Loss>,
    losses: LossSum,
    /// Needless resends, whose first copy had a response; not counted yet.
    needless: u64,
    /// The current response is a NAK; it is READ data.
    refused: bool,
    data: bool,
    /// A loss was being recovered from when it came. A peer of our make says that it answers a duplicate.
    recovered: bool,
    answers: bool,
}

/// The packet whose round trip is being measured.
#[derive(Clone, Copy, Debug)]
struct Timed {
    psn: Psn,
    sent_at: Instant,
    read: bool,
    /// It was sent twice, or its response may have waited for another that was: a round trip takes less.
    disturbed: bool,
}

/// The consequence of a response for the QP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Nothing more.
    Done,
    /// The oldest request fails with this status and the QP goes to the error state.
    Fail(WcStatus),
}

/// The environment of the completer: the parts of the QP and the device that it works on.
pub(crate) struct Context<'a, M> {
    /// The connection.
    pub peer: &'a PeerQp,
    /// Domain and table of keys.
    pub keys: KeyContext<'a>,
    /// Registered bytes.
    pub memory: &'a mut M,
    /// The send queue.
    pub sq: &'a mut SendQueue,
    /// Where completions go.
    pub out: &'a mut Completions,
    /// The counters.
    pub tally: &'a Tally,
}

impl Completer {
    /// A completer that expects nothing.
    pub(crate) const fn new() -> Self {
        Self {
            timed: None,
            timer: RetryTimer::new(),
            recovery: Recovery::new(),
            rnr_retry: 0,
            rnr_tries: 0,
            pause: None,
            timed_out: false,
            unasked: None,
            loss: None,
            losses: LossSum::new(),
            needless: 0,
            refused: false,
            data: false,
            recovered: false,
            answers: false,
        }
    }

    /// Sets what the connection agreed on.
    pub(crate) fn connect(&mut self, peer: &PeerQp) {
        self.timer.connect(peer.ack_timeout_code, peer.retry_count);
        self.recovery.connect(peer.make);
        self.rnr_retry = peer.rnr_retry.min(RNR_RETRY_FOREVER);
    }

    /// Notes that REQ or REP was sent.
    pub(crate) fn seed_rtt(&mut self, now: Instant) {
        self.timer.seed_rtt(now);
    }

    /// Whether an RNR pause is running.
    pub(crate) const fn paused(&self) -> bool {
        self.pause.is_some()
    }

    /// The next instant at which [`Self::handle_timeout`] has work.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let retry = self.pause.map(|(_, until)| until).or(self.timer.deadline());
        Instant::earlier(retry, self.recovery.deadline())
    }

    /// When a packet that leaves now will have arrived or been lost.
    pub(crate) fn spent_by(&self, now: Instant) -> Instant {
        now + self.timer.life(now)
    }

    /// Tries in a row without a response.
    pub(crate) const fn tries(&self) -> u32 {
        self.timer.tries()
    }

    /// The loss that the last packet or timeout showed.
    pub(crate) const fn take_loss(&mut self) -> Option<Loss> {
        self.loss.take()
    }

    /// When the retransmission timer expires, which is the whole of [`Self::deadline`] while nothing is recovered from.
    pub(crate) const fn timer_deadline(&self) -> Option<Instant> {
        self.timer.deadline()
    }

    /// Stops probing: the QP has failed. Timers and pauses count in RTS alone.
    pub(crate) fn stop(&mut self) {
        self.recovery.stop();
    }

    /// Notes that packets have left; `asked` is the first of them, sent for the first time, that requested a response, and
    /// whether that is a READ. Returns whether the timer was started.
    #[inline(always)]
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        asked: Option<(Psn, bool)>,
        sq: &SendQueue,
    ) -> bool {
        let stopped = self.timer.deadline().is_none();
        if stopped {
            // The first of a queue is the oldest of it.
            let oldest = asked.filter(|(psn, _)| *psn == sq.una());
            self.timer.start(now, || oldest.map_or_else(|| reads(sq), |(_, read)| read));
        }
        // Only a packet that requests a response has one of its own.
        if self.timed.is_none() {
            self.timed =
                asked.map(|(psn, read)| Timed { psn, sent_at: now, read, disturbed: false });
        }
        stopped
    }

    /// Whether the requester has a probe to send.
    pub(crate) const fn probes(&self) -> bool {
        self.recovery.probes()
    }

    /// Notes that a probe has left. Returns whether it was one of the requester.
    pub(crate) fn probe_sent(&mut self, now: Instant, sq: &SendQueue) -> bool {
        // Only behind a READ does its ACK wait for more than the path.
        let slow = sq.reads_in_flight() > 0;
        let until = if slow { self.spent_by(now) } else { now + self.timer.wait(now) };
        self.recovery.probe_sent(now, until, sq)
    }

    /// When the response was requested for which the timer waits, if that may be later than the last progress.
    fn asked_at(&mut self, now: Instant, interval: u32, sq: &SendQueue) -> Option<Instant> {
        if self.recovery.has_evidence() || sq.has_gone_back() {
            return None;
        }
        if sq.asks_nothing(interval) {
            // Where no packet has left since, none may for long, and a probe requests what they did not.
            return (self.unasked.replace(sq.next()) != Some(sq.next())).then_some(now);
        }
        self.timed.filter(|timed| sq.acked().since(timed.psn) <= 0).map(|timed| timed.sent_at)
    }

    /// Acts on expired timers. One packet of `interval` inside a message requests an ACK.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        interval: u32,
        sq: &mut SendQueue,
        tally: &Tally,
    ) -> Verdict {
        if let Some(at) = self.recovery.handle_timeout(now, sq) {
            self.packet_lost(now, self.request_lost(at, sq), tally);
        }
        if let Some((_, until)) = self.pause {
            if now >= until {
                self.end_pause(now, sq);
            }
            return Verdict::Done;
        }
        if self.timer.deadline().is_some_and(|deadline| now >= deadline)
            && let Some(at) = self.asked_at(now, interval, sq)
        {
            self.timer.put_off(now, at);
        }
        match self.timer.expired(now) {
            Expiry::None => {}
            Expiry::GiveUp => {
                tally.count(Counter::LocalAckTimeoutErr);
                tally.count(Counter::RetryExceededErr);
                return Verdict::Fail(WcStatus::TransportRetryExceeded);
            }
            expiry @ (Expiry::Probe | Expiry::Resend) => {
                let tries = (self.timer.tries(), expiry == Expiry::Resend);
                if self.recovery.timeout(tries, sq) == Remedy::Resend {
                    tally.count(Counter::LocalAckTimeoutErr);
                    tally.count(Counter::CompleterRetryErr);
                    self.timed_out = true;
                    self.disturb();
                    if expiry == Expiry::Resend || self.is_congestion() {
                        self.loss = Some(Loss::Timeout);
                    }
                }
            }
        }
        Verdict::Done
    }

    fn end_pause(&mut self, now: Instant, sq: &mut SendQueue) {
        self.pause = None;
        // A READ response that is requested again may have replaced the resend that was planned.
        if !sq.resending() && sq.outstanding() {
            self.recovery.refused(sq);
        }
        // During the pause the peer may have accepted everything and only a response been lost: the timer
        // has to run.
        if sq.outstanding() {
            self.timer.sent(now, || reads(sq));
        }
    }

    /// Accounts for packets that are lost by what a response shows, and resent; with what congestion control is told of that.
    fn packet_lost(&mut self, now: Instant, signal: Option<Loss>, tally: &Tally) {
        tally.count(Counter::CompleterRetryErr);
        self.timed_out = false;
        self.disturb();
        self.loss = signal.or(self.loss);
        if !self.paused() {
            self.timer.restart(now);
        }
    }

    /// The signal to congestion control that the packet `at` is lost, by a NAK or a probe's ACK.
    fn request_lost(&self, at: Psn, sq: &SendQueue) -> Option<Loss> {
        self.is_congestion().then(|| Loss::Request { at, end: sq.next() })
    }

    /// Whether congestion control takes a loss for its signal. A peer that keeps what is behind a gap is sent
    /// again what was lost and no more, so there only delay tells a queue that overflows from chance.
    fn is_congestion(&self) -> bool {
        !self.recovery.peer_keeps() || self.timer.is_slow()
    }

    /// Whether READ responses were lost to congestion: several in a row are missing. How long they take tells less: they may
    /// have waited for the processor of either end.
    pub(crate) fn responses_congested(&self, sq: &SendQueue) -> bool {
        sq.misses_in_a_row(BURST)
    }

    /// Acts on a response packet.
    ///
    /// # Errors
    /// [`DropReason`]: the response is stale, foreign or reserved, and changed nothing.
    pub(crate) fn handle<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        let psn = packet.bth.psn;
        let opcode = packet.bth.opcode;
        if opcode.operation() == Operation::ReadResponse
            && cx.sq.read_response_came(psn, opcode.place())
        {
            self.sent_in_vain(now);
        }
        self.answers = cx.peer.make == Make::Keeper && packet.bth.solicited;
        if let Some(at) = self.recovery.only_probe().filter(|_| self.answers) {
            self.timer.probe_answered(now.nanos_since(at));
        }
        if !cx.sq.expects(psn) {
            let probed = self.probed(now, packet, cx);
            self.answers = false;
            if probed {
                return Ok(Verdict::Done);
            }
            self.count_needless(cx.tally);
            self.recovery.repeated(psn);
            return Err(DropReason::StaleResponse);
        }
        self.refused = matches!(packet.ext, Ext::Aeth(Aeth { syndrome, .. })
            if !matches!(syndrome, Syndrome::Ack { .. }));
        self.data = opcode.operation() == Operation::ReadResponse;
        self.recovered = self.recovery.has_evidence() || cx.sq.has_gaps();
        let result = match (opcode.operation(), packet.ext) {
            (Operation::Acknowledge, Ext::Aeth(aeth)) => self.handle_aeth(now, psn, aeth, cx),
            (Operation::ReadResponse, _) => self.handle_read_data(now, packet, cx),
            (Operation::GapReport, _) => {
                self.handle_gaps(now, packet, cx);
                Ok(Verdict::Done)
            }
            // No atomic is ever requested.
            _ => Ok(self.refuse(now, psn, WcStatus::BadResponse, cx.sq, cx.out)),
        };
        if self.recovery.watch(now, cx.sq) {
            cx.tally.count(Counter::ImpliedNakSeqErr);
        }
        self.count_needless(cx.tally);
        // It is of this response alone: the short ways ask for it, and do not set it.
        self.answers = false;
        result
    }

    fn handle_aeth<M>(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Aeth,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        let Context { sq, out, tally, .. } = cx;
        match aeth.syndrome {
            // Beyond an unfinished READ it shows that READ responses were lost, or are late.
            Syndrome::Ack { .. } => {
                self.ack_came(now, psn, sq, out);
                Ok(Verdict::Done)
            }
            // Nothing was sent since: this NAK is the one that made the pause, once more, or an older one.
            // A later packet can be refused meanwhile, where a late copy of the refused one was executed.
            Syndrome::RnrNak(_)
                if self.pause.is_some_and(|(refused, _)| psn.since(refused) <= 0) =>
            {
                Err(DropReason::StaleResponse)
            }
            // The peer has executed the packet since.
            Syndrome::RnrNak(_) if psn.since(sq.acked()) < 0 => Err(DropReason::StaleResponse),
            Syndrome::RnrNak(timer) => {
                tally.count(Counter::RcvdRnrErr);
                let lost_read = self.acknowledge(now, psn, sq, out).lost_read;
                let verdict = self.handle_rnr(now, psn, timer.duration(), sq, tally);
                if lost_read && verdict != Verdict::Done {
                    // As in `refuse`.
                    sq.flush_before(psn, out);
                }
                Ok(verdict)
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                tally.count(Counter::PacketSeqErr);
                self.acknowledge(now, psn, sq, out);
                // A NAK may be older than what was acknowledged since.
                if psn == sq.acked() {
                    self.disturb();
                    if self.recovery.handle_sequence_nak(now, self.timer.wait(now), sq) {
                        self.packet_lost(now, self.request_lost(psn, sq), tally);
                    } else if self.recovery.has_evidence() && !self.paused() {
                        self.timer.restart(now);
                    }
                }
                Ok(Verdict::Done)
            }
            Syndrome::Nak(NakCode::InvalidRequest) => {
                tally.count(Counter::ReqRemoteInvalidRequest);
                Ok(self.refuse(now, psn, WcStatus::RemoteInvalidRequest, sq, out))
            }
            Syndrome::Nak(NakCode::RemoteAccess) => {
                tally.count(Counter::ReqRemoteAccessErrors);
                Ok(self.refuse(now, psn, WcStatus::RemoteAccess, sq, out))
            }
            Syndrome::Nak(NakCode::RemoteOperational) => {
                tally.count(Counter::ReqRemoteOpErrors);
                Ok(self.refuse(now, psn, WcStatus::RemoteOperation, sq, out))
            }
            Syndrome::Nak(NakCode::InvalidRd) | Syndrome::Reserved(_) => {
                Err(DropReason::ReservedSyndrome)
            }
        }
    }

    /// Acts on a report of what the peer misses, which takes the place of a sequence NAK.
    fn handle_gaps<M>(&mut self, now: Instant, packet: &Packet<'_>, cx: &mut Context<'_, M>) {
        let Context { sq, out, tally, .. } = cx;
        tally.count(Counter::PacketSeqErr);
        let psn = packet.bth.psn;
        self.acknowledge(now, psn, sq, out);
        if packet.bth.solicited {
            self.probe_shows_gaps(sq);
        }
        let mut gaps = Gap::parse(packet.payload);
        self.heard_of(now, gaps.clone().fold(psn, |end, gap| end.add(gap.covered())).prev());
        if let Some(lost) = self.recovery.gaps_reported(psn, gaps.clone(), sq) {
            let came = self.recovery.take_since_loss();
            let congestion = self.losses.show_congestion(came, lost.packets)
                | gaps.any(|gap| u32::from(gap.missing) >= BURST);
            let signal = Loss::Overflow { at: lost.first, end: sq.next() };
            self.packet_lost(now, congestion.then_some(signal), tally);
        } else if !self.paused() {
            self.timer.restart(now);
        }
    }

    /// Acts on a report that answers a duplicate, which may be a probe: what was sent again before that has come, or was lost.
    fn probe_shows_gaps(&mut self, sq: &mut SendQueue) {
        if self.recovery.probed_at(sq).is_some() && self.recovery.probe_answered(sq) {
            sq.gaps_are_old();
        }
    }

    /// Acts on the ACK of a probe. Returns whether the packet is one. The peer works in order, and had
    /// executed nothing unacknowledged when the probe arrived.
    fn probed<M>(&mut self, now: Instant, packet: &Packet<'_>, cx: &mut Context<'_, M>) -> bool {
        let ack = matches!(packet.ext, Ext::Aeth(Aeth { syndrome: Syndrome::Ack { .. }, .. }));
        let answer = ack && !self.paused() && Probe::answers(&packet.bth, cx.sq);
        if !answer || !self.recovery.probe_answered(cx.sq) {
            return false;
        }
        let sent_at = self.recovery.probed_at(cx.sq);
        // It may be an older ACK that is late.
        if sent_at.is_none_or(|at| !self.answers && self.timer.is_too_soon(now.nanos_since(at))) {
            return false;
        }
        self.disturb();
        if self.recovery.lacks(now, cx.sq) {
            self.packet_lost(now, self.request_lost(cx.sq.acked(), cx.sq), cx.tally);
        } else {
            self.timer.restart(now);
        }
        true
    }

    /// Processes what a response says about all packets before `psn`. That comes before what it says about
    /// `psn` itself: progress restores the tries that an RNR NAK then uses.
    fn acknowledge(
        &mut self,
        now: Instant,
        psn: Psn,
        sq: &mut SendQueue,
        out: &mut Completions,
    ) -> Acked {
        let before = sq.acked();
        let acked = sq.acknowledge(psn, out);
        if acked.progress {
            self.progress(now, before, sq);
        }
        acked
    }

    /// Processes a fatal NAK: it acknowledges the packets before `psn` and ends the request that owns
    /// `psn`. A READ before it lost its responses, which will not come again.
    fn refuse(
        &mut self,
        now: Instant,
        psn: Psn,
        status: WcStatus,
        sq: &mut SendQueue,
        out: &mut Completions,
    ) -> Verdict {
        if self.acknowledge(now, psn, sq, out).lost_read {
            sq.flush_before(psn, out);
        }
        Verdict::Fail(status)
    }

    fn handle_rnr(
        &mut self,
        now: Instant,
        refused: Psn,
        pause: Duration,
        sq: &mut SendQueue,
        tally: &Tally,
    ) -> Verdict {
        if self.rnr_retry != RNR_RETRY_FOREVER {
            if self.rnr_tries == self.rnr_retry {
                tally.count(Counter::RetryRnrExceededErr);
                return Verdict::Fail(WcStatus::RnrRetryExceeded);
            }
            self.rnr_tries += 1;
        }
        self.recovery.refused(sq);
        self.disturb();
        self.pause = Some((refused, now + pause));
        self.timer.pause(now + pause);
        Verdict::Done
    }

    fn handle_read_data<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        let psn = packet.bth.psn;
        let before = cx.sq.acked();
        let acked = cx.sq.acknowledge(psn, cx.out);
        let result = if acked.lost_read {
            self.place_early(now, packet, cx)
        } else {
            Ok(Self::place_next(packet, cx))
        };
        // Its implied acknowledgement and its arrival are one step.
        if cx.sq.acked() != before || acked.progress || !acked.lost_read {
            self.progress(now, before, cx.sq);
        }
        result
    }

    /// Whether nothing is being recovered from, gaps apart, which the queue knows.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pause.is_none() && self.timer.tries() == 0 && !self.recovery.has_evidence()
    }

    /// Notes that a packet of READ data came that was expected, while nothing is recovered from and nothing was sent twice.
    #[inline]
    pub(super) fn plain_data_came(&mut self, sq: &mut SendQueue) {
        (self.refused, self.data) = (false, true);
        self.recovery.grow(1, sq);
    }

    /// Notes the progress of all such packets that came at once.
    #[inline]
    pub(crate) fn plain_data_ends(&mut self, now: Instant, sq: &SendQueue) {
        self.plain_progress(now, sq, reads);
    }

    /// Processes an ACK of `psn` while nothing is recovered from, nothing was sent twice, and no READ is in flight.
    #[inline]
    pub(super) fn plain_ack_came(
        &mut self,
        now: Instant,
        psn: Psn,
        sq: &mut SendQueue,
        out: &mut Completions,
    ) {
        let before = sq.acked();
        sq.acknowledge(psn.add(1), out);
        self.plain_progress(now, sq, |_| false);
        self.recovery.grow(sq.acked().since(before).cast_unsigned(), sq);
    }

    /// As [`Self::plain_ack_came`], where all `packets` in flight are acknowledged.
    #[inline(always)]
    pub(crate) fn newest_ack_came(&mut self, now: Instant, packets: u32, sq: &mut SendQueue) {
        self.note_progress(now, sq, true);
        self.timer.progress(now, false, || false);
        self.recovery.grow(packets, sq);
    }

    /// As [`Self::progress`], where nothing else that it asks for can be the case. `reads` tells whether the oldest
    /// request is a READ.
    #[inline]
    fn plain_progress(
        &mut self,
        now: Instant,
        sq: &SendQueue,
        reads: impl FnOnce(&SendQueue) -> bool,
    ) {
        self.note_progress(now, sq, false);
        self.timer.progress(now, sq.outstanding(), || reads(sq));
    }

    /// Processes an ACK of `psn`.
    fn ack_came(&mut self, now: Instant, psn: Psn, sq: &mut SendQueue, out: &mut Completions) {
        (self.refused, self.data) = (false, false);
        self.acknowledge(now, psn.add(1), sq, out);
    }

    /// Places READ data at the oldest unacknowledged PSN.
    fn place_next<M: Memory>(packet: &Packet<'_>, cx: &mut Context<'_, M>) -> Verdict {
        let Some((wqe, done)) = cx.sq.head().filter(|(wqe, _)| wqe.is_read()) else {
            return Verdict::Fail(WcStatus::BadResponse);
        };
        if !fits(packet, wqe, done, cx.sq, cx.peer) {
            return Verdict::Fail(WcStatus::BadResponse);
        }
        if place(packet, wqe, done, cx.peer, &cx.keys, cx.memory).is_err() {
            return Verdict::Fail(WcStatus::LocalProtection);
        }
        cx.sq.read_response_taken(cx.out);
        Verdict::Done
    }

    /// Places READ data beyond the oldest missing response: until the READ completes, the sink belongs to
    /// it. Data that do not fit are dropped, and judged when their turn comes.
    fn place_early<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        let psn = packet.bth.psn;
        if cx.sq.is_early(psn) {
            self.recovery.repeated(psn);
            return Err(DropReason::StaleResponse);
        }
        let read = cx.sq.locate(psn).filter(|(wqe, _)| wqe.is_read());
        let placed = read.is_some_and(|(wqe, done)| {
            fits(packet, wqe, done, cx.sq, cx.peer)
                && place(packet, wqe, done, cx.peer, &cx.keys, cx.memory).is_ok()
        });
        if !(placed && cx.sq.mark_early(psn)) {
            return Err(DropReason::StaleResponse);
        }
        cx.tally.count(Counter::EarlyReadResponses);
        self.heard_of(now, psn);
        Ok(Verdict::Done)
    }

    /// Acts on progress: `before` was the oldest unacknowledged PSN until now.
    fn progress(&mut self, now: Instant, before: Psn, sq: &mut SendQueue) {
        self.note_progress(now, sq, false);
        let again = sq.take_again().map(|at| now.nanos_since(at));
        if let Some(after_ns) = again.filter(|after_ns| !self.timer.is_too_soon(*after_ns)) {
            self.timer.resend_answered(after_ns);
        }
        if again.is_some_and(|after_ns| self.timer.is_too_soon(after_ns)) {
            self.sent_in_vain(now);
        } else if !self.refused && !self.recovered && self.timer.tries() > 0 {
            // The ACK of a probe comes a round trip after it: any sooner response was only late. Round
            // trips of READs, which take longer, tell nothing about that.
            let soon = |at| self.timer.is_too_soon(now.nanos_since(at));
            let probe = self.recovery.last_probe().filter(|_| !sq.responses_missing());
            if self.data || !self.answers && probe.is_some_and(soon) {
                self.timer.was_early(now);
            }
        }
        if self.pause.is_none() {
            self.timer.progress(now, sq.outstanding(), || reads(sq));
        }
        self.recovery.acknowledged(now, sq.acked().since(before).cast_unsigned(), sq);
    }

    /// Restores the RNR retries, and ends the measurement of a round trip, if its response has come; a `plain` one is to no
    /// READ and to no probe.
    #[inline(always)]
    fn note_progress(&mut self, now: Instant, sq: &SendQueue, plain: bool) {
        self.rnr_tries = 0;
        if let Some(Timed { psn, sent_at, read, disturbed }) = self.timed
            && sq.acked().since(psn) > 0
        {
            // An acknowledgement beyond a READ is no response to it, nor is the answer to a probe one to the packet whose ACK was
            // lost: with the silence before the probe in the estimate, each lost ACK would have the next probe come later.
            let after_ns = now.nanos_since(sent_at);
            debug_assert!(!plain || !read && !self.answers);
            if disturbed || !plain && (self.answers || read && sq.responses_missing()) {
                self.timer.took_at_most(after_ns);
            } else {
                self.timer.sample(now, after_ns, !plain && read);
            }
            self.timed = None;
        }
    }

    /// Notes that the packet that is measured, or one before it, is sent again or refused.
    fn disturb(&mut self) {
        if let Some(timed) = &mut self.timed {
            timed.disturbed = true;
        }
    }

    /// Notes that `psn` has come to the peer, or its response here, though an older one has not: what is measured, and left no
    /// later than it, took no longer for a round trip.
    fn heard_of(&mut self, now: Instant, psn: Psn) {
        if let Some(timed) = self.timed.filter(|timed| psn.since(timed.psn) >= 0) {
            self.timer.took_at_most(now.nanos_since(timed.sent_at));
        }
    }

    fn count_needless(&mut self, tally: &Tally) {
        if self.needless > 0 {
            tally.add(Counter::NeedlessResends, core::mem::take(&mut self.needless));
        }
    }

    /// Counts a needless resend: the first copy has had a response.
    fn sent_in_vain(&mut self, now: Instant) {
        self.needless += 1;
        if self.timed_out {
            self.timer.was_early(now);
        }
    }
}

/// Whether the oldest request is a READ.
fn reads(sq: &SendQueue) -> bool {
    sq.head().is_some_and(|(wqe, _)| wqe.is_read())
}

/// Whether a READ response has the length and the place of packet `done` of a READ. The last packet of the
/// message must end a response; earlier ones may, where a long READ was cut into several requests. Some
/// peers respond to a resent READ with FIRST, and rxe with MIDDLE, so the two are not told apart.
pub(super) fn fits(
    packet: &Packet<'_>,
    wqe: Wqe<'_>,
    done: u32,
    sq: &SendQueue,
    peer: &PeerQp,
) -> bool {
    let pmtu = peer.pmtu.bytes() as u64;
    let expected = wqe.len().saturating_sub(u64::from(done) * pmtu).min(pmtu);
    let must_end = done + 1 == sq.packets(wqe);
    packet.payload.len() as u64 == expected && (!must_end || packet.bth.opcode.place().is_last())
}

fn place<M: Memory>(
    packet: &Packet<'_>,
    wqe: Wqe<'_>,
    done: u32,
    peer: &PeerQp,
    keys: &KeyContext<'_>,
    memory: &mut M,
) -> Result<(), LocalFault> {
    let offset = u64::from(done) * peer.pmtu.bytes() as u64;
    scatter(wqe.elements(), offset, packet.payload, keys.pd, keys.mrs, memory)
}

impl Default for Completer {
    fn default() -> Self {
        Self::new()
    }
}
