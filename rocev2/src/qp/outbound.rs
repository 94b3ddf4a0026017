//! The way out of a queue pair: which packets leave next, and their writing.

use super::recv::responder;
use super::send::common::Alone;
use super::send::probe::Probe;
use super::send::requester;
use super::unit_watch::UnitWatch;
use super::{Failure, KeyContext, PeerQp, Qp, QpState, Shared, Stream};
use crate::counters::Counter;
use crate::env::{Instant, Memory};
use crate::units::{Fate, Outcome};
use crate::wire::ack_list::Ack;
use crate::wire::mad::Make;
use crate::wire::{Ext, Frames, Template, UnitRun, UnitWriter};

impl Qp {
    /// Looks at what is to be sent next, after something has happened. Until something happens again, nothing but new
    /// packets of requests becomes ready, and these wait for nothing but the window: they may take the short way.
    /// Returns [`Self::ready`].
    pub(crate) fn look(&mut self, short_ways: bool) -> bool {
        let aside = self.congestion.owes_cnp() || self.probes();
        let paced = self.congestion.rate().is_active();
        let (requests, answers) = (self.requests_ready(), self.responder.ready());
        let short = short_ways && !aside && !paced;
        self.stream = match (requests, answers) {
            (true, false) if short && self.sq.sends_new() => Stream::Requests,
            (false, true) if short => self.answers_next(),
            (true | false, true | false) => Stream::None,
        };
        (self.answers, self.received) = (answers, self.rq.has_completions());
        self.calm = short && self.rests_calmly();
        aside || requests || answers && self.responses_ready()
    }

    /// The same of a calm queue pair: nothing but the short ways came since the last look at all else.
    #[inline(always)]
    pub(crate) fn look_calmly(&mut self) -> bool {
        debug_assert!(self.sq.is_calm(), "the short ways keep it so");
        let (requests, answers) = (!self.requests_idle, self.answers);
        self.stream = match (requests, answers) {
            (true, false) => Stream::Requests,
            (false, true) => self.answers_next(),
            (true | false, true | false) => Stream::None,
        };
        requests || answers
    }

    /// The answers that leave next, where no request does.
    #[inline(always)]
    fn answers_next(&self) -> Stream {
        if self.responder.owes_read_responses() {
            Stream::Responses
        } else if self.responder.owes_ack() {
            Stream::Ack
        } else {
            Stream::None
        }
    }

    /// Whether nothing that is neither paced nor to be sent keeps the QP from being calm.
    fn rests_calmly(&self) -> bool {
        let engines = self.completer.is_quiet() && self.responder.is_calm() && self.sq.is_calm();
        self.state == QpState::Rts && self.probe.is_idle() && engines
    }

    /// Whether a packet may leave now. Only [`Self::fill`] knows.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        if self.calm {
            return !self.requests_idle || self.answers;
        }
        let aside = self.congestion.owes_cnp() || self.probes();
        aside || self.responses_ready() || self.requests_ready()
    }

    /// Whether a probe is to be sent, for the owner or the requester.
    fn probes(&self) -> bool {
        self.probe.owed() || self.completer.probes()
    }

    /// Whether, of all that [`Self::look`] looks at, the last call of [`Self::fill`] has changed nothing but the deadline,
    /// and nothing may leave until something happens.
    pub(crate) const fn rests(&self) -> bool {
        matches!(self.stream, Stream::Rest)
    }

    /// An ACK or NAK waits behind the READ responses that are owed, which are paced.
    pub(super) fn responses_ready(&self) -> bool {
        let paced = self.responder.owes_read_responses();
        self.responder.ready() && !(paced && self.congestion.rate().blocked())
    }

    pub(super) fn requests_ready(&self) -> bool {
        let waits = self.congestion.rate().blocked() || self.completer.paused();
        self.state == QpState::Rts && !self.requests_idle && !waits
    }

    /// Writes the next packet, with the headers of `template` and this identification, where it is the only one to be sent:
    /// an ACK, or that of a request. Returns false where [`Self::fill`] is to find out what is sent.
    #[inline(always)]
    pub(crate) fn fill_single<M: Memory, F: Frames>(
        &mut self,
        now: Instant,
        (frames, template, ip_id): (&mut F, &mut Template, u16),
        shared: &mut Shared<'_, M>,
    ) -> bool {
        let Some(peer) = self.peer.as_ref() else { return false };
        let filled = match self.stream {
            Stream::Ack => self.responder.fill_ack(peer, frames, template, ip_id),
            Stream::Requests => {
                let (keys, memory) = ((&*shared.mrs, self.pd), &mut *shared.memory);
                let outlet = Alone { keys, memory, frames, template, ip_id };
                self.fill_request(now, outlet)
            }
            Stream::None | Stream::Responses | Stream::Rest => None,
        };
        let Some(len) = filled else { return false };
        (self.answers, self.stream) = (false, Stream::Rest);
        self.count_sent(1, len);
        true
    }

    /// Whether an ACK leaves next, and its receiver takes a list of them.
    #[inline(always)]
    pub(crate) fn lists_ack(&self) -> bool {
        let takes = |peer: &PeerQp| peer.make == Make::Keeper;
        self.stream == Stream::Ack && self.peer.as_ref().is_some_and(takes)
    }

    /// That ACK, and its receiver.
    #[inline(always)]
    pub(crate) fn listed_ack(&self) -> Option<(Ack, &PeerQp)> {
        let peer = self.peer.as_ref().filter(|_| self.lists_ack())?;
        debug_assert!(self.responder.owes_ack(), "as it was looked at");
        let (psn, msn) = self.responder.acknowledged()?;
        Some((Ack { dest_qpn: peer.qpn, psn, msn }, peer))
    }

    /// Notes that it has left.
    #[inline(always)]
    pub(crate) fn ack_listed(&mut self) {
        self.responder.ack_left();
        (self.answers, self.stream) = (false, Stream::Rest);
    }

    /// The packet of the only request that waits, if it takes no other. Returns its bytes.
    #[inline(always)]
    fn fill_request<M: Memory, F: Frames>(
        &mut self,
        now: Instant,
        outlet: Alone<'_, M, F>,
    ) -> Option<usize> {
        let peer = self.peer.as_ref()?;
        let (len, psn, read) = self.requester.fill_one(peer, &mut self.sq, outlet)?;
        self.requests_idle = true;
        self.deadline_moved |= self.completer.sent(now, Some((psn, read)), &self.sq);
        self.congestion.rate_mut().sent(now, len);
        Some(len)
    }

    /// Writes packets of one direction into units of `run`: into several where all of them go the short way.
    pub(crate) fn fill<M: Memory, F: Frames>(
        &mut self,
        now: Instant,
        run: &mut UnitRun<'_, F>,
        shared: &mut Shared<'_, M>,
    ) {
        let next = self.sq.next();
        let responses =
            if run.is_single() { None } else { self.responder.reads().next_responses() };
        self.fill_stream(now, run, shared);
        if run.packets() == 0 && run.push(|unit, max| self.fill_unit(now, unit, max, shared)) {
            self.count_sent(run.packets(), run.wire_len());
        }
        if let Some(unit) = run.first_divided() {
            self.tally.add(Counter::UnitsSent, run.divided() as u64);
            // A run is of one direction.
            let requests = self.sq.next().since(next);
            if requests == 0 {
                self.responder.reads_mut().watch_unit(now, responses, unit);
            } else if self.watched.is_none() && requests as usize == run.packets() {
                self.watched = Some(UnitWatch::of(now, next, unit));
            }
        }
    }

    /// The fate of a unit, of those that are watched.
    pub(crate) fn judge_unit(&mut self) -> Option<Fate> {
        let acked = self.sq.acked();
        let fate = match self.watched.and_then(|unit| unit.fate(acked)) {
            Some(fate) => {
                self.watched = None;
                fate
            }
            None => self.responder.reads_mut().judge_unit()?,
        };
        if fate.outcome == Outcome::Lost {
            self.tally.count(Counter::UnitsLost);
        }
        Some(fate)
    }

    /// Whether a unit that leaves next would be of packets that were not sent before. It is watched then, instead of another one.
    pub(crate) fn try_unit(&mut self) -> bool {
        let new = !self.sq.resending() && !self.responder.reads().responds_again();
        if new {
            self.watched = None;
            self.responder.reads_mut().forget_unit();
        }
        new
    }

    /// The general way of [`Self::fill`]. Returns the number of packets.
    fn fill_unit<M: Memory>(
        &mut self,
        now: Instant,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        shared: &mut Shared<'_, M>,
    ) -> usize {
        (self.calm, self.deadline_moved) = (false, true);
        if self.congestion.owes_cnp() {
            self.fill_cnp(unit)
        } else if self.probes() {
            self.fill_probe(now, unit)
        } else {
            self.fill_either(now, unit, max_packets, shared)
        }
    }

    /// Counts packets that have left.
    pub(crate) fn count_sent(&self, packets: usize, bytes: usize) {
        self.tally.add(Counter::SentPkts, packets as u64);
        self.tally.add(Counter::SentBytes, bytes as u64);
    }

    /// The short way of [`Self::fill`], where only new requests, or only responses to READs, are to be sent. Nothing is
    /// written where they have to go the general way.
    #[inline]
    fn fill_stream<M: Memory, F: Frames>(
        &mut self,
        now: Instant,
        run: &mut UnitRun<'_, F>,
        shared: &mut Shared<'_, M>,
    ) {
        match self.stream {
            // The next packet goes the general way: of ACKs, one that found no room.
            Stream::None | Stream::Rest | Stream::Ack => {
                self.stream = Stream::None;
                return;
            }
            Stream::Requests => self.stream_requests(now, run, shared),
            Stream::Responses => self.stream_responses(run, shared),
        }
        run.end();
        if run.packets() > 0 {
            self.congestion.rate_mut().sent(now, run.wire_len());
            self.count_sent(run.packets(), run.wire_len());
        } else {
            self.stream = Stream::None;
        }
    }

    fn stream_requests<M: Memory, F: Frames>(
        &mut self,
        now: Instant,
        run: &mut UnitRun<'_, F>,
        shared: &mut Shared<'_, M>,
    ) {
        let Some(peer) = self.peer.as_ref() else { return };
        let Shared { mrs, memory, out, .. } = shared;
        let (pd, qpn, sq, tally, memory) =
            (self.pd, self.qpn, &mut self.sq, &self.tally, &mut **memory);
        let (spent_by, paced) = (now, false);
        let mut cx =
            requester::Context { peer, pd, qpn, mrs, memory, sq, out, tally, now, spent_by, paced };
        let asked = self.requester.fill_common(&mut cx, run);
        if run.packets() > 0 {
            self.deadline_moved |= self.completer.sent(now, asked, &self.sq);
            if !self.sq.has_more() {
                (self.requests_idle, self.stream) = (true, Stream::Rest);
            }
        }
    }

    fn stream_responses<M: Memory, F: Frames>(
        &mut self,
        run: &mut UnitRun<'_, F>,
        shared: &mut Shared<'_, M>,
    ) {
        let Some(peer) = self.peer.as_ref() else { return };
        let Shared { mrs, memory, .. } = shared;
        let keys = KeyContext { pd: self.pd, qpn: self.qpn, mrs };
        self.responder.fill_common(peer, &keys, *memory, run);
        if !self.responder.owes_read_responses() {
            // An ACK or NAK may wait behind them.
            self.answers = self.responder.ready();
            self.stream = if self.answers { Stream::None } else { Stream::Rest };
        }
    }

    fn fill_either<M: Memory>(
        &mut self,
        now: Instant,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        shared: &mut Shared<'_, M>,
    ) -> usize {
        // Both ways take turns; packets of one alone, which may go the short way, take none.
        self.requests_first ^= self.requests_ready() && self.responses_ready();
        let pmtu = self.peer.as_ref().map_or(0, |peer| peer.pmtu.bytes());
        let max_packets = max_packets.min(self.congestion.rate_mut().allowed(now, pmtu));
        let mut written = 0;
        for requests in [self.requests_first, !self.requests_first] {
            if written == 0 {
                written = if requests {
                    self.fill_requests(now, unit, max_packets, shared)
                } else {
                    self.fill_responses(now, unit, max_packets, shared)
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

    fn fill_responses<M: Memory>(
        &mut self,
        now: Instant,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        shared: &mut Shared<'_, M>,
    ) -> usize {
        if !self.responses_ready() {
            return 0;
        }
        let Shared { mrs, memory, out, reorder_pool } = shared;
        let keys = KeyContext { pd: self.pd, qpn: self.qpn, mrs };
        let paced = self.responder.owes_read_responses();
        let Some(peer) = self.peer.as_ref() else { return 0 };
        let told = (&**reorder_pool, &self.tally);
        let (written, verdict) = self.responder.fill(peer, &keys, *memory, unit, max_packets, told);
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
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        shared: &mut Shared<'_, M>,
    ) -> usize {
        if !self.requests_ready() {
            return 0;
        }
        let Shared { mrs, memory, out, .. } = shared;
        let memory = &mut **memory;
        let Some(peer) = self.peer.as_ref() else { return 0 };
        let new = !self.sq.resending();
        // Where units are lost, a packet that was lost with one still comes.
        let max_packets = if new { max_packets } else { max_packets.min(1) };
        let again = (!new).then(|| (self.sq.next_to_send(), peer.make));
        let paced = self.congestion.rate_mut().current(now).is_some();
        // A new packet has no copies.
        let spent_by = if new { now } else { self.completer.spent_by(now) };
        if !new && peer.make == Make::Keeper {
            self.sq.set_congested(self.completer.responses_congested(&self.sq));
        }
        let (pd, qpn, sq, tally) = (self.pd, self.qpn, &mut self.sq, &self.tally);
        let mut cx =
            requester::Context { peer, pd, qpn, mrs, memory, sq, out, tally, now, spent_by, paced };
        let requester::Filled { written, asked, idle } =
            self.requester.fill(&mut cx, unit, max_packets);
        let asked = asked.filter(|_| new);
        self.requests_idle = idle;
        if written > 0 {
            self.completer.sent(now, asked, &self.sq);
            self.congestion.rate_mut().sent(now, unit.wire_len());
            if let (Some((psn, make)), Some(unit)) = (again, &mut self.watched) {
                unit.sent_again(psn, make);
            }
        }
        if self.sq.in_flight() == 0
            && let Some(status) = self.sq.head().and_then(|(wqe, _)| wqe.fault())
        {
            self.fail(self.request_failed(status), out);
        }
        written
    }
}
