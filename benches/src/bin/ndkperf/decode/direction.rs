//! One direction of a conversation: the requests of one side in the order of their PSNs, and the other side's responses.

mod counts;
mod ending;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rocev2::psn::Psn;
use rocev2::wire::gap_report::Gap as ReportedGap;
use rocev2::wire::{NakCode, Operation, Syndrome};

use super::findings::{Kind, Sink};
use super::gaps::Gaps;
use super::packet::Packet;
use super::reads::{Reads, changes_memory};
use super::resend::{Cause, Causes};
pub(super) use counts::nak_name;
use counts::{Counts, Nak, operation_name, record};

/// Requests of one side, and their responses. Positions count PSNs from the starting one, without a wrap.
#[derive(Debug)]
pub(super) struct Direction {
    starting_psn: Option<Psn>,
    path_mtu: Option<u64>,
    /// The PSN of position 0.
    base: Option<Psn>,
    /// The position behind the last one that was sent.
    next: i64,
    /// All before it is acknowledged.
    una: i64,
    una_ns: u64,
    sent: BTreeMap<i64, Sent>,
    /// The position behind a packet that was far out of the window.
    far: Option<i64>,
    probe: Option<i64>,
    refusal: Option<Refusal>,
    /// A NAK that ends the connection.
    is_over: bool,
    last_response_ns: u64,
    last_request: Option<(u64, u64)>,
    /// Frame and time of the first packet that was sent again.
    pub(super) first_again: Option<(u64, u64)>,
    /// The same of the first sign of congestion.
    pub(super) first_congestion: Option<(u64, u64)>,
    pub(super) causes: Causes,
    pub(super) gaps: Gaps,
    pub(super) reads: Reads,
    pub(super) counts: Counts,
    pub(super) naks: Vec<Nak>,
    pub(super) ack_latency_ns: Option<Histogram<u64>>,
    pub(super) read_latency_ns: Option<Histogram<u64>>,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    span: i64,
    first_ns: u64,
    last_ns: u64,
    frame: u64,
    times: u32,
    frame_digest: u64,
    is_timed: bool,
}

/// RNR NAKs of one packet.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    at: i64,
    times: u64,
    frame: u64,
    last_ns: u64,
    timer_us: u64,
}

/// The place of a packet in its direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Position; `None` before the first request.
    pub(super) at: Option<i64>,
    pub(super) kind: MarkKind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MarkKind {
    InOrder,
    /// So many PSNs before it are missing.
    Gap(i64),
    Again(Cause),
    OutOfOrder,
    Duplicate,
    Probe,
    OutOfWindow,
    Response,
    ResponseAgain,
}

impl Direction {
    pub(super) fn new(starting_psn: Option<Psn>, path_mtu: Option<u64>) -> Self {
        Self {
            starting_psn,
            path_mtu,
            base: None,
            next: 0,
            una: 0,
            una_ns: 0,
            sent: BTreeMap::new(),
            far: None,
            probe: None,
            refusal: None,
            is_over: false,
            last_response_ns: 0,
            last_request: None,
            first_again: None,
            first_congestion: None,
            causes: Causes::default(),
            gaps: Gaps::default(),
            reads: Reads::default(),
            counts: Counts::default(),
            naks: Vec::new(),
            ack_latency_ns: None,
            read_latency_ns: None,
        }
    }

    /// The PSN of a position.
    pub(super) fn psn_at(&self, at: i64) -> Psn {
        self.base.unwrap_or_default().add((at & 0xff_ffff) as u32)
    }

    /// First and last PSN of the requests.
    pub(super) fn psns(&self) -> Option<(Psn, Psn)> {
        (self.base.is_some() && self.next > 0).then(|| (self.psn_at(0), self.psn_at(self.next - 1)))
    }

    /// The position of a PSN: the one next to those that were sent last.
    fn position(&self, psn: Psn) -> i64 {
        self.next + i64::from(psn.since(self.psn_at(self.next)))
    }

    /// PSNs that a request takes.
    fn span(&self, packet: &Packet) -> i64 {
        let len = match packet.operation() {
            Some(Operation::ReadRequest) => u64::from(packet.message_len().unwrap_or(0)),
            _ => 0,
        };
        len.div_ceil(self.mtu()).clamp(1, SPAN_MAX) as i64
    }

    fn mtu(&self) -> u64 {
        self.path_mtu.filter(|mtu| *mtu > 0).unwrap_or(LARGEST_MTU)
    }

    /// Takes a request.
    pub(super) fn request(&mut self, packet: &Packet, sink: &mut Sink<'_>) -> Mark {
        self.counts.request_packets += 1;
        if self.base.is_none() {
            self.base = Some(self.starting_psn.unwrap_or(packet.psn()));
        }
        let at = self.position(packet.psn());
        self.last_request = Some((packet.number, packet.at_ns));
        let kind = self.place(at, packet, sink);
        if matches!(kind, MarkKind::Again(_)) {
            self.first_again.get_or_insert((packet.number, packet.at_ns));
        }
        Mark { at: Some(at), kind }
    }

    fn place(&mut self, at: i64, packet: &Packet, sink: &mut Sink<'_>) -> MarkKind {
        let span = self.span(packet);
        if at < self.una && is_probe(packet) {
            self.counts.probes += 1;
            self.probe = Some(at);
            return MarkKind::Probe;
        }
        if self.is_far(at) && self.far.replace(at + span) != Some(at) {
            self.counts.out_of_window += 1;
            let (from, ahead) = (self.psn_at(self.next), at - self.next);
            sink.add(Kind::OutOfWindow, packet.number, packet.at_ns, || {
                let (distance, way) = (ahead.abs(), if ahead < 0 { "before" } else { "behind" });
                format!(
                    "PSN {:#08x} is far out of the window: {distance} {way} {:#08x}, which is next",
                    packet.psn().get(),
                    from.get(),
                )
            });
            return MarkKind::OutOfWindow;
        }
        if self.is_far(at) {
            // A second one in line with it: the direction goes on there.
            (self.next, self.una) = (at, at);
            self.gaps.forget();
        }
        self.far = None;
        let kind = if at >= self.next {
            self.ahead(at, span, packet)
        } else {
            self.behind(at, span, packet)
        };
        self.follow(at, span, kind, packet, sink);
        kind
    }

    fn is_far(&self, at: i64) -> bool {
        at - self.next > WINDOW_MAX || self.next - at > WINDOW_MAX && self.sent_at(at).is_none()
    }

    fn ahead(&mut self, at: i64, span: i64, packet: &Packet) -> MarkKind {
        let missing = at - self.next;
        if missing > 0 {
            self.gaps.open(self.next, at, packet.number, packet.at_ns);
        } else {
            self.counts.in_order += 1;
        }
        self.next = at + span;
        if missing > 0 { MarkKind::Gap(missing) } else { MarkKind::InOrder }
    }

    /// A packet before the next one: late, or sent again.
    fn behind(&mut self, at: i64, span: i64, packet: &Packet) -> MarkKind {
        let now_ns = packet.at_ns;
        if let Some(since_ns) = self.gaps.fill(at, at + span, now_ns) {
            let cause = self.causes.find(at, since_ns, self.una_ns, self.next, now_ns);
            if cause == Cause::Unknown {
                self.counts.out_of_order += 1;
                return MarkKind::OutOfOrder;
            }
            self.causes.count(cause);
            return MarkKind::Again(cause);
        }
        let before = self.sent_at(at).copied();
        let last_ns = before.map_or(now_ns, |sent| sent.last_ns);
        let cause = self.causes.find(at, last_ns, self.una_ns, self.next, now_ns);
        let is_copy = before.is_some_and(|sent| sent.frame_digest == packet.frame_digest);
        if cause == Cause::Unknown && is_copy && now_ns.saturating_sub(last_ns) < COPY_NS {
            self.counts.duplicates += 1;
            return MarkKind::Duplicate;
        }
        self.causes.count(cause);
        MarkKind::Again(cause)
    }

    fn sent_at(&self, at: i64) -> Option<&Sent> {
        let (start, sent) = self.sent.range(..=at).next_back()?;
        (at < start + sent.span).then_some(sent)
    }

    /// Remembers a request in its place.
    fn follow(&mut self, at: i64, span: i64, kind: MarkKind, packet: &Packet, sink: &mut Sink<'_>) {
        let Packet { number, at_ns, frame_digest, .. } = *packet;
        let known = self.sent.range_mut(..=at).next_back();
        let is_new = match known.filter(|(start, sent)| at < **start + sent.span) {
            Some((_, sent)) => {
                (sent.last_ns, sent.frame, sent.frame_digest) = (at_ns, number, frame_digest);
                sent.times += u32::from(kind != MarkKind::Duplicate);
                false
            }
            None => {
                if self.sent.len() >= SENT_MAX {
                    self.sent.pop_first();
                }
                let sent = Sent {
                    span,
                    first_ns: at_ns,
                    last_ns: at_ns,
                    frame: number,
                    times: 1,
                    frame_digest,
                    is_timed: false,
                };
                self.sent.insert(at, sent);
                true
            }
        };
        if packet.operation() == Some(Operation::ReadRequest) && kind != MarkKind::Duplicate {
            self.reads.request(at, span, self.mtu(), packet, sink);
        }
        if is_new {
            self.tally(packet);
            if packet.operation().is_some_and(changes_memory) {
                self.reads.behind(at, packet);
            }
        }
    }

    /// Counts a request that is here for the first time.
    pub(super) fn tally(&mut self, packet: &Packet) {
        let Some(name) = packet.operation().and_then(operation_name) else { return };
        let done = self.counts.operations.entry(name).or_default();
        done.packets += 1;
        done.messages += u64::from(packet.place().is_some_and(|place| place.is_last()));
        done.bytes += match packet.operation() {
            Some(Operation::ReadRequest) => packet.message_len().unwrap_or(0).into(),
            _ => packet.payload_len,
        };
    }

    /// Takes a response of the other side.
    pub(super) fn response(&mut self, packet: &Packet, sink: &mut Sink<'_>) -> Mark {
        self.last_response_ns = packet.at_ns;
        if self.base.is_none() {
            self.reads.unmatched += 1;
            self.count_response(packet);
            return Mark { at: None, kind: MarkKind::Response };
        }
        let at = self.position(packet.psn());
        let mut kind = MarkKind::Response;
        match packet.operation() {
            Some(Operation::ReadResponse) => {
                let answered = self.reads.response(at, self.una, packet, sink);
                if answered.is_again {
                    kind = MarkKind::ResponseAgain;
                }
                if let Some(latency_ns) = answered.latency_ns {
                    record(&mut self.read_latency_ns, latency_ns);
                }
                if let Some(hole) = answered.hole {
                    self.causes.signal(Cause::ImpliedNak, hole, self.next, packet.at_ns);
                }
                self.advance(at.saturating_add(1), packet);
            }
            Some(Operation::GapReport) => {
                self.counts.gap_reports += 1;
                self.advance(at, packet);
                let covered: u32 =
                    ReportedGap::parse(&packet.report).map(ReportedGap::covered).sum();
                let until = self.next.max(at + i64::from(covered));
                self.causes.signal(Cause::GapReport, at, until, packet.at_ns);
            }
            _ => self.syndrome(at, packet, sink),
        }
        Mark { at: Some(at), kind }
    }

    fn count_response(&mut self, packet: &Packet) {
        match packet.ext.and_then(|ext| ext.aeth()).map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack { .. }) => self.counts.acks += 1,
            Some(syndrome) => {
                if let Some(name) = nak_name(syndrome) {
                    *self.counts.naks.entry(name).or_default() += 1;
                }
            }
            None => {}
        }
    }

    /// Takes the AETH of an ACK or NAK.
    fn syndrome(&mut self, at: i64, packet: &Packet, sink: &mut Sink<'_>) {
        let Some(aeth) = packet.ext.and_then(|ext| ext.aeth()) else { return };
        self.count_response(packet);
        let (frame, at_ns, psn) = (packet.number, packet.at_ns, packet.psn());
        let mut timer_us = None;
        match aeth.syndrome {
            Syndrome::Ack { .. } => return self.acknowledge(at, packet, sink),
            Syndrome::Reserved(_) => return,
            Syndrome::RnrNak(timer) => {
                self.advance(at, packet);
                let us = timer.duration().as_micros() as u64;
                timer_us = Some(us);
                let times =
                    self.refusal.filter(|known| known.at == at).map_or(0, |known| known.times) + 1;
                self.refusal = Some(Refusal { at, times, frame, last_ns: at_ns, timer_us: us });
                self.causes.signal(Cause::RnrNak, at, self.next, at_ns);
                sink.add(Kind::NotReady, frame, at_ns, || {
                    format!(
                        "RNR NAK for PSN {:#08x}: no receive was posted; wait {us} us",
                        psn.get()
                    )
                });
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                self.advance(at, packet);
                self.causes.signal(Cause::NakSequence, at, self.next, at_ns);
            }
            Syndrome::Nak(_) => {
                self.advance(at, packet);
                self.is_over = true;
                let name = nak_name(aeth.syndrome).unwrap_or("NAK");
                self.reads.refused(at, packet, sink);
                let request = self.sent_at(at).map(|sent| sent.frame);
                sink.add(Kind::Refused, frame, at_ns, || {
                    let of = request.map_or_else(String::new, |frame| format!(" of frame {frame}"));
                    format!("NAK {name} refuses PSN {:#08x}{of}: the connection is over", psn.get())
                });
            }
        }
        if self.naks.len() < NAKS_MAX
            && let Some(name) = nak_name(aeth.syndrome)
        {
            self.naks.push(Nak { name, psn, frame, at_ns, timer_us });
        }
    }

    fn acknowledge(&mut self, at: i64, packet: &Packet, sink: &mut Sink<'_>) {
        let now_ns = packet.at_ns;
        if at >= self.next {
            self.counts.acks_unseen += 1;
            sink.add(Kind::Unseen, packet.number, now_ns, || {
                format!(
                    "ACK of PSN {:#08x}, which was not sent in this capture: the capture misses packets",
                    packet.psn().get()
                )
            });
            return;
        }
        if self.probe == Some(at) {
            self.probe = None;
            self.causes.signal(Cause::ProbeAnswer, self.una, self.next, now_ns);
        }
        if let Some(hole) = self.reads.acknowledged(at) {
            self.causes.signal(Cause::ImpliedNak, hole, self.next, now_ns);
        }
        if at >= self.una
            && let Some((_, sent)) = self.sent.range_mut(..=at).next_back()
            && sent.times == 1
            && !sent.is_timed
        {
            sent.is_timed = true;
            record(&mut self.ack_latency_ns, now_ns.saturating_sub(sent.first_ns));
        }
        self.advance(at + 1, packet);
    }

    /// All before `una` is acknowledged.
    fn advance(&mut self, una: i64, packet: &Packet) {
        if una > self.una && una <= self.next {
            (self.una, self.una_ns) = (una, packet.at_ns);
            if self.refusal.is_some_and(|refusal| refusal.at < una) {
                self.refusal = None;
            }
        }
    }
}

/// A zero-length WRITE: executed, it does nothing, and its ACK tells how far the responder is.
fn is_probe(packet: &Packet) -> bool {
    packet.operation() == Some(Operation::Write) && packet.message_len() == Some(0)
}

/// PSNs from the next one that a requester may be away from; no window is larger.
const WINDOW_MAX: i64 = 1 << 16;
/// PSNs of one request: a message has 2 GiB at most.
const SPAN_MAX: u64 = 1 << 23;
const LARGEST_MTU: u64 = 4096;
/// Packets that are remembered.
const SENT_MAX: usize = 1 << 13;
/// NAKs that are listed.
const NAKS_MAX: usize = 256;
/// A network's copy of a packet comes within this time.
const COPY_NS: u64 = 1_000_000;
