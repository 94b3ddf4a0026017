//! The responder: a chain of small checks on each request of the peer, then its execution.
//!
//! PSN, then opcode order, then resources, then length, then key: the first check that fails
//! decides the answer (IBTA ch. 9, Responder, figure of the validation order).

use super::gaps::{Answers, Gaps};
use super::queue::{Received, RecvQueue, Srq};
use super::read::{self, ReadResponder, Revoked};
use super::reorder_buffer::ReorderBuffer;
use super::reorder_pool::ReorderPool;
use super::unsolicited_ack::UnsolicitedAck;
use crate::counters::{Counter, Tally};
use crate::env::{Instant, Memory};
use crate::ids::{Qpn, Rkey};
use crate::mr::{Access, Invalidator, MrTable, Target};
use crate::psn::{Msn, Psn};
use crate::qp::cc::congestion::Loss;
use crate::qp::copy::scatter;
use crate::qp::failure::Refused;
use crate::qp::reorder_window::ReorderWindow;
use crate::qp::work::{Completions, WcStatus};
use crate::qp::{KeyContext, PeerQp};
use crate::wire::gap_report::{GAPS_MAX, Gap};
use crate::wire::mad::Make;
use crate::wire::{
    Aeth, Bth, DropReason, Ext, Frames, NakCode, Opcode, Operation, Packet, Place, Reth, RnrTimer,
    Syndrome, UnitRun, UnitWriter,
};

/// The pause that an RNR NAK asks of the peer: 0.64 ms.
const RNR_TIMER: RnrTimer = RnrTimer::new(12);

/// The PSNs that a peer may have in flight: a requester tells old from new by half of their space.
const MAX_IN_FLIGHT: u32 = 1 << 23;

/// The request side of a QP. The fields that each packet needs stand first, so that it is in few cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Responder {
    pub(super) epsn: Psn,
    pub(super) msn: Msn,
    /// The NAK that `epsn` has had; further packets ahead of it cause no other.
    pub(super) nak_state: NakState,
    /// The ACK or NAK that is owed, behind the READ responses that are owed.
    pub(super) reply: Option<Syndrome>,
    pub(super) trailing_reads: TrailingReads,
    /// Since when `epsn` is missing, until it has a NAK; towards a peer of our make since when a gap is missing that it was
    /// not told of.
    pub(super) gap_since: Option<Instant>,
    pub(super) unsolicited_ack: UnsolicitedAck,
    pub(super) reorder_buffer: ReorderBuffer,
    pub(super) reads: ReadResponder,
    pub(super) message: Message,
    pub(super) reorder_window: ReorderWindow,
    /// The packet of the last sequence NAK.
    pub(super) nak_psn: Option<Psn>,
    /// The gaps that a peer of our make was told of.
    pub(super) gaps: Gaps,
    /// The peer goes back N: buffered packets came again since the last sequence NAK, and between the one
    /// before it and that. An immediate NAK for the next gap would make such a peer go back twice.
    pub(super) goes_back: [bool; 2],
    /// Since when the expected packet is missing before those in the reorder buffer.
    pub(super) held_since: Instant,
    /// For congestion control.
    loss: Option<Loss>,
}

/// The READs behind the newest SEND or WRITE that was executed. Their responses alone acknowledge them: a
/// requester that misses the last response and gets an ACK with its PSN may take the READ for complete, as
/// Linux's rxe does, and its data are whatever its buffer held. An ACK of what is before them is for a requester
/// that asks for nothing but that: it confuses an rxe that has received part of a response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrailingReads {
    /// PSNs of their responses.
    packets: u32,
    messages: u32,
}

impl TrailingReads {
    pub(super) const fn any(self) -> bool {
        self.messages > 0
    }

    /// Whether the response at `psn` is one of theirs, where `epsn` is expected next.
    const fn hold(self, psn: Psn, epsn: Psn) -> bool {
        psn.since(epsn).unsigned_abs() <= self.packets
    }
}

/// The message whose packets are arriving.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Message {
    None,
    Send { received: u64 },
    Write { written: u64, len: u32, target: Option<Target>, key: Rkey },
}

/// The NAK that the expected packet has had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NakState {
    None,
    /// PSN sequence error: the packet is missing.
    Sequence,
    /// RNR NAK: no receive is posted for it.
    Rnr,
}

/// The reason to refuse an expected request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// No receive is posted: RNR NAK.
    NotReady,
    /// The request fails, and the QP with it. A receive that it occupies ends with this status.
    Fatal(NakCode, Option<WcStatus>),
}

const INVALID: Refusal = Refusal::Fatal(NakCode::InvalidRequest, None);

/// The consequence of a request for the QP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Nothing more.
    Done,
    /// The packet would end the connection, and comes from elsewhere than the peer's: nothing has changed.
    Disbelieved,
    /// The QP goes to the error state. The receive in use, if any, is already completed.
    Fail(Refused),
}

/// The environment of the responder: the parts of the QP and the device that it works on.
pub(crate) struct Context<'a, M> {
    /// The connection.
    pub peer: &'a PeerQp,
    /// Domain and table of keys; invalidation changes the table.
    pub pd: crate::mr::PdId,
    /// The QP.
    pub qpn: Qpn,
    /// All registrations.
    pub mrs: &'a mut MrTable,
    /// Registered bytes.
    pub memory: &'a mut M,
    /// The receive queue.
    pub rq: &'a mut RecvQueue,
    /// The shared receive queue of the QP.
    pub srq: Option<&'a mut Srq>,
    /// Where completions go.
    pub out: &'a mut Completions,
    /// The counters.
    pub tally: &'a Tally,
    /// The packet comes as the peer's do, and may end the connection.
    pub known: bool,
}

impl<M> Context<'_, M> {
    pub(super) const fn keys(&self) -> KeyContext<'_> {
        KeyContext { pd: self.pd, qpn: self.qpn, mrs: self.mrs }
    }

    /// Whether there is a receive for the next message; it is taken from the shared queue if need be.
    pub(super) fn claim(&mut self) -> bool {
        self.rq.claim(self.srq.as_deref_mut())
    }

    pub(super) const fn pmtu(&self) -> u64 {
        self.peer.pmtu.bytes() as u64
    }
}

impl Responder {
    /// A responder that expects nothing until [`Self::connect`], and then buffers up to `reorder_bytes`.
    pub(crate) const fn new(reorder_bytes: u32) -> Self {
        Self {
            epsn: Psn::new(0),
            msn: Msn::new(0),
            message: Message::None,
            nak_state: NakState::None,
            reorder_buffer: ReorderBuffer::new(reorder_bytes),
            held_since: Instant::from_nanos(0),
            gap_since: None,
            reorder_window: ReorderWindow::new(),
            nak_psn: None,
            gaps: Gaps::new(Psn::new(0)),
            goes_back: [false; 2],
            reply: None,
            trailing_reads: TrailingReads { packets: 0, messages: 0 },
            unsolicited_ack: UnsolicitedAck::new(),
            reads: ReadResponder::new(),
            loss: None,
        }
    }

    /// Sets what the connection agreed on.
    pub(crate) fn connect(&mut self, peer: &PeerQp) {
        self.epsn = peer.recv_psn;
        self.gaps = Gaps::new(self.epsn);
        self.msn = peer.first_msn;
        self.reads.connect(peer.inbound_reads, peer.make);
        self.reorder_buffer.open(peer.pmtu);
    }

    /// Gives the buffered packets up, and buffers no other: the QP is at its end.
    pub(crate) fn close_reorder_buffer(&mut self, pool: &mut ReorderPool) {
        self.reorder_buffer.close(pool);
    }

    /// The next instant at which [`Self::handle_timeout`] has work.
    pub(crate) fn deadline(&self, peer: &PeerQp) -> Option<Instant> {
        let gap = Instant::earlier(self.gap_deadline(), self.hold_deadline(peer));
        Instant::earlier(gap, self.unsolicited_ack.deadline())
    }

    /// Acts on a gap that has outlasted the reorder window, or all the time of its peer, and sends the unsolicited ACK that is
    /// due.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        peer: &PeerQp,
        (pool, tally): (&mut ReorderPool, &Tally),
    ) {
        self.gap_timed_out(now, peer, pool);
        if self.unsolicited_ack.take(now) {
            tally.count(Counter::AckRepeated);
            self.answer_again(peer.make);
        }
    }

    /// Owes what answers a duplicate, or stands for an answer that was lost: what is missing, or an ACK. It comes too late to tell how
    /// long a round trip takes, and says so to a peer of our make.
    fn answer_again(&mut self, make: Make) {
        if self.tells_gaps(make) {
            self.gaps.answer();
            return;
        }
        // A NAK that is owed acknowledges as much.
        self.reply.get_or_insert(Syndrome::ACK);
        if make == Make::Keeper {
            self.gaps.answer_without_gap();
        }
    }

    /// Whether a packet is owed to the peer.
    pub(crate) fn ready(&self) -> bool {
        self.reply.is_some() || self.gaps.owed() || self.reads.busy()
    }

    /// Whether nothing is missing, and no deadline runs.
    pub(crate) fn is_calm(&self) -> bool {
        let waits = self.gap_since.is_some() || self.unsolicited_ack.deadline().is_some();
        self.reorder_buffer.is_empty() && !waits
    }

    /// Whether READ responses are owed.
    pub(crate) fn owes_read_responses(&self) -> bool {
        self.reads.busy()
    }

    /// Whether an ACK is owed, and no READ response before it.
    #[inline]
    pub(crate) fn owes_ack(&self) -> bool {
        self.reply == Some(Syndrome::ACK) && !self.gaps.owed() && !self.reads.busy()
    }

    /// The loss that the last packet showed.
    pub(crate) const fn take_loss(&mut self) -> Option<Loss> {
        self.loss.take()
    }

    /// Drops everything owed: the QP was flushed by its owner, or failed on its other side.
    pub(crate) fn clear(&mut self) {
        self.reply = None;
        self.gap_since = None;
        self.gaps.forget();
        self.unsolicited_ack.cancel();
        self.reads.clear();
    }

    /// Acts on a request packet.
    ///
    /// # Errors
    /// [`DropReason`]: a duplicate without a response, or a packet behind a gap that the reorder buffer has
    /// no room for.
    pub(crate) fn handle<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        pool: &mut ReorderPool,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        self.reorder_buffer.update(pool);
        match packet.bth.psn.since(self.epsn) {
            0 => Ok(self.in_order(now, packet, pool, cx)),
            i32::MIN..0 => self.duplicate(now, packet, cx),
            ahead => self.early(now, ahead.cast_unsigned(), packet, pool, cx),
        }
    }

    pub(super) fn expected<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Verdict {
        let message = self.message;
        match self.check_order(packet).and_then(|()| self.execute(packet, cx)) {
            Ok(()) => Verdict::Done,
            Err(Refusal::Fatal(..)) if !cx.known => {
                self.message = message;
                Verdict::Disbelieved
            }
            Err(Refusal::NotReady) => {
                cx.tally.count(Counter::OutOfBuffer);
                (self.nak_state, self.gap_since) = (NakState::Rnr, None);
                // A report would name this packet as missing.
                self.gaps.forget();
                self.reply = Some(Syndrome::RnrNak(RNR_TIMER));
                Verdict::Done
            }
            Err(Refusal::Fatal(code, status)) => {
                self.reply = Some(Syndrome::Nak(code));
                if status == Some(WcStatus::LocalLength) {
                    cx.tally.count(Counter::RespLocalLengthError);
                }
                let refused = Refused { code, psn: self.epsn, key: self.named_key(packet.ext) };
                if let Some(status) = status {
                    cx.rq.complete(Received::failed(status), cx.out);
                }
                Verdict::Fail(refused)
            }
        }
    }

    /// The PSN of the packet that is expected.
    pub(crate) const fn epsn(&self) -> Psn {
        self.epsn
    }

    /// Moves on behind the expected packet of a SEND or WRITE, which may ask for an ACK.
    #[inline]
    pub(super) fn executed(&mut self, ack_req: bool) {
        self.epsn = self.epsn.add(1);
        self.nak_state = NakState::None;
        self.trailing_reads = TrailingReads::default();
        // A NAK that has not left yet is obsolete.
        if ack_req || self.reply.is_some() {
            self.reply = Some(Syndrome::ACK);
        }
    }

    /// Moves on behind a READ. Its responses acknowledge all before it, too, so nothing else is owed.
    pub(super) fn read_accepted(&mut self, responses: u32) {
        self.epsn = self.epsn.add(responses);
        self.nak_state = NakState::None;
        self.reply = None;
        let TrailingReads { packets, messages } = &mut self.trailing_reads;
        *packets = packets.saturating_add(responses);
        *messages = messages.saturating_add(1);
    }

    /// PSN and MSN of an ACK: those of the newest packet of a SEND or WRITE. `None` where the READs behind it
    /// fill all that a peer may have in flight, so that it waits for no ACK.
    #[inline]
    pub(crate) const fn acknowledged(&self) -> Option<(Psn, Msn)> {
        let TrailingReads { packets, messages } = self.trailing_reads;
        if packets > MAX_IN_FLIGHT {
            return None;
        }
        Some((self.epsn.back(packets + 1), self.msn.back(messages)))
    }

    /// The key that a packet names, or that of the WRITE in progress.
    const fn named_key(&self, ext: Ext) -> Option<Rkey> {
        match (ext, self.message) {
            (Ext::Reth(reth) | Ext::RethImm(reth, _), _) => Some(reth.rkey),
            (Ext::AtomicEth(atomic), _) => Some(atomic.rkey),
            (Ext::Ieth(key), _) | (_, Message::Write { key, .. }) => Some(key),
            _ => None,
        }
    }

    /// Handles a request that was executed before: it is acknowledged again, never executed again (C9-105).
    fn duplicate<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        cx.tally.count(Counter::DuplicateRequest);
        if self.nak_psn == Some(packet.bth.psn) {
            // The packet came twice, so it was late and not lost.
            self.nak_psn = None;
            self.reorder_window.widen();
        }
        let is_read = packet.bth.opcode.operation() == Operation::ReadRequest;
        if !is_read && !self.trailing_reads.any() {
            self.unsolicited_ack.arm(now);
        }
        let answered = match (packet.bth.opcode.operation(), packet.ext) {
            (Operation::ReadRequest, Ext::Reth(reth)) => {
                let others = self.reads.busy();
                let behind = self.sent_behind(packet.bth.psn) * cx.pmtu();
                let replayed = self.reads.replay(now, packet.bth.psn, reth, cx.pmtu(), &cx.keys());
                let acks_all = self.trailing_reads.hold(packet.bth.psn, self.epsn);
                if replayed && acks_all && self.reply == Some(Syndrome::ACK) {
                    self.reply = None;
                }
                // A peer of our make sees whether many were lost in a row.
                let keeper = cx.peer.make == Make::Keeper;
                let chance = keeper && !packet.bth.becn;
                let behind = (!keeper).then_some(behind);
                let (at, end) = (packet.bth.psn, self.epsn);
                self.loss = match (replayed, chance) {
                    (false, _) => None,
                    (true, false) => Some(Loss::Response { at, end, behind }),
                    (true, true) => (!others).then_some(Loss::Unexplained { at, end }),
                };
                replayed
            }
            (Operation::Send | Operation::Write, _) if packet.bth.ack_req => {
                self.answer_again(cx.peer.make);
                true
            }
            _ => false,
        };
        if answered { Ok(Verdict::Done) } else { Err(DropReason::Duplicate) }
    }

    /// Whether a duplicate asks for a READ that was executed, or for a part of one.
    pub(crate) fn remembers(&self, packet: &Packet<'_>, pmtu: u64) -> bool {
        match (packet.bth.opcode.operation(), packet.ext) {
            (Operation::ReadRequest, Ext::Reth(reth)) => {
                self.reads.remembers(packet.bth.psn, reth, pmtu)
            }
            _ => false,
        }
    }

    /// The responses behind `psn` that have left.
    fn sent_behind(&self, psn: Psn) -> u64 {
        let next = self.reads.next_psn().unwrap_or(self.epsn);
        next.since(psn).max(0).cast_unsigned().into()
    }

    /// Checks the order of opcodes: each packet of a message follows the one before it, and only a first or
    /// only packet begins one.
    fn check_order(&self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let opens = matches!(packet.bth.opcode.place(), Place::First | Place::Only);
        let fits = match (self.message, packet.bth.opcode.operation()) {
            (Message::None, _) => opens,
            (Message::Send { .. }, Operation::Send) | (Message::Write { .. }, Operation::Write) => {
                !opens
            }
            (Message::Send { .. } | Message::Write { .. }, _) => false,
        };
        if fits { Ok(()) } else { Err(self.invalid()) }
    }

    /// The refusal of an invalid request. A receive that a SEND in progress occupies ends with it.
    const fn invalid(&self) -> Refusal {
        match self.message {
            Message::Send { .. } => {
                Refusal::Fatal(NakCode::InvalidRequest, Some(WcStatus::RemoteInvalidRequest))
            }
            Message::None | Message::Write { .. } => INVALID,
        }
    }

    /// Executes the expected packet, and moves on behind it.
    fn execute<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<(), Refusal> {
        match (packet.bth.opcode.operation(), packet.ext) {
            (Operation::Send, _) => self.execute_send(packet, cx)?,
            (Operation::Write, ext) => self.execute_write(packet, ext, cx)?,
            (Operation::ReadRequest, Ext::Reth(reth)) => {
                let responses = self.execute_read(packet, reth, cx)?;
                self.read_accepted(responses);
                return Ok(());
            }
            // Atomics, FLUSH and ATOMIC_WRITE are not offered by this adapter.
            _ => return Err(INVALID),
        }
        self.executed(packet.bth.ack_req);
        Ok(())
    }

    fn execute_send<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<(), Refusal> {
        let received = match self.message {
            Message::Send { received } => received,
            Message::None | Message::Write { .. } => 0,
        };
        cx.claim();
        let Some(rqe) = cx.rq.head() else {
            return Err(Refusal::NotReady);
        };
        check_packet_len(packet, cx.pmtu()).map_err(|()| self.invalid())?;
        let total = received + packet.payload.len() as u64;
        let fits = total <= rqe.len();
        if !fits || total > crate::qp::work::MAX_MESSAGE {
            return Err(Refusal::Fatal(NakCode::InvalidRequest, Some(WcStatus::LocalLength)));
        }
        let pd = cx.rq.pd();
        scatter(rqe.elements(), received, packet.payload, pd, cx.mrs, cx.memory).map_err(|_| {
            Refusal::Fatal(NakCode::RemoteOperational, Some(WcStatus::LocalProtection))
        })?;
        self.message = Message::Send { received: total };
        if ends(packet) {
            self.finish_send(packet, total, cx)?;
        }
        Ok(())
    }

    fn finish_send<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        total: u64,
        cx: &mut Context<'_, M>,
    ) -> Result<(), Refusal> {
        let invalidated = invalidated_key(packet.ext);
        if let Some(key) = invalidated {
            // The contract is this order: the payload is placed, the key ends, the receive completes.
            let released =
                cx.mrs.invalidate(cx.pd, Invalidator::Peer(cx.qpn), key).map_err(|_| {
                    Refusal::Fatal(NakCode::RemoteOperational, Some(WcStatus::LocalQpOperation))
                })?;
            if let Some(released) = released {
                cx.out.release(released);
            }
        }
        let done = Received {
            status: WcStatus::Success,
            // Bounded by MAX_MESSAGE.
            len: total as u32,
            solicited: packet.bth.solicited,
            invalidated,
        };
        cx.rq.complete(done, cx.out);
        self.end_message();
        Ok(())
    }

    fn execute_write<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        ext: Ext,
        cx: &mut Context<'_, M>,
    ) -> Result<(), Refusal> {
        let has_imm = matches!(ext, Ext::Imm(_) | Ext::RethImm(..));
        if has_imm && !cx.claim() {
            return Err(Refusal::NotReady);
        }
        let (written, len, target, key) = match (self.message, reth(ext)) {
            (Message::Write { written, len, target, key }, _) => (written, len, target, key),
            (_, Some(reth)) => (0, reth.len, check_write(reth, has_imm, cx)?, reth.rkey),
            (_, None) => return Err(INVALID),
        };
        check_write_len(packet, written, len, cx.pmtu())?;
        if let Some(target) = target.filter(|_| !packet.payload.is_empty()) {
            // The key must be valid for each packet.
            let region = cx.mrs.region(&target).ok_or_else(|| access_error(has_imm))?;
            cx.memory
                .write(region, target.offset + written, packet.payload)
                .map_err(|_| Refusal::Fatal(NakCode::RemoteOperational, None))?;
        }
        self.message =
            Message::Write { written: written + packet.payload.len() as u64, len, target, key };
        if ends(packet) {
            if has_imm {
                let solicited = packet.bth.solicited;
                cx.rq.complete(
                    Received { status: WcStatus::Success, len, solicited, invalidated: None },
                    cx.out,
                );
            }
            self.end_message();
        }
        Ok(())
    }

    /// Accepts a READ. Returns the packets of its response.
    fn execute_read<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        reth: Reth,
        cx: &Context<'_, M>,
    ) -> Result<u32, Refusal> {
        if !packet.payload.is_empty()
            || u64::from(reth.len) > crate::qp::work::MAX_MESSAGE
            || !self.reads.offered()
        {
            return Err(INVALID);
        }
        let target = read::check(reth, &cx.keys())
            .map_err(|_| Refusal::Fatal(NakCode::RemoteAccess, None))?;
        let packets = u64::from(reth.len).div_ceil(cx.pmtu()).max(1) as u32;
        // A READ counts as a message once it is accepted (C9-148).
        self.msn = self.msn.next();
        cx.tally.count(Counter::RxReadRequests);
        self.reads.accept(packet.bth.psn, packets, reth, target, self.msn);
        Ok(packets)
    }

    pub(super) fn end_message(&mut self) {
        self.message = Message::None;
        self.msn = self.msn.next();
    }

    /// The short way of [`Self::fill`], for responses to READs.
    #[inline]
    pub(crate) fn fill_common<M: Memory, F: Frames>(
        &mut self,
        peer: &PeerQp,
        keys: &KeyContext<'_>,
        memory: &mut M,
        run: &mut UnitRun<'_, F>,
    ) {
        self.reads.fill_common(peer, keys, memory, run);
    }

    /// The READs of the peer.
    pub(crate) const fn reads(&self) -> &ReadResponder {
        &self.reads
    }

    /// The same, for the watch over their units.
    pub(crate) const fn reads_mut(&mut self) -> &mut ReadResponder {
        &mut self.reads
    }

    /// Writes the responses that are owed into `unit`. Returns the number of packets, and the verdict.
    pub(crate) fn fill<M: Memory>(
        &mut self,
        peer: &PeerQp,
        keys: &KeyContext<'_>,
        memory: &mut M,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        (pool, tally): (&ReorderPool, &Tally),
    ) -> (usize, Verdict) {
        match self.reads.fill(peer, keys, memory, unit, max_packets) {
            Ok(0) => {
                let answers = self.gaps.answers();
                let written = match self.fill_gaps(peer, unit, (pool, tally)) {
                    0 => self.fill_reply(peer, (unit, answers), tally),
                    written => written,
                };
                (written, Verdict::Done)
            }
            Ok(written) => (written, Verdict::Done),
            // The peer still waits for the response, and ends the connection. To another the NAK tells nothing, as
            // a requester drops one for a request that is complete (IBTA ch. 9, Requester Side).
            Err(Revoked { psn, again: true, .. }) => {
                let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
                let nak = Aeth { syndrome, msn: self.msn };
                (fill_aeth(nak, (psn, false), peer, unit, tally), Verdict::Done)
            }
            Err(revoked) => {
                self.reads.clear();
                let code = NakCode::RemoteAccess;
                self.reply = Some(Syndrome::Nak(code));
                self.epsn = revoked.psn;
                let refused = Refused { code, psn: revoked.psn, key: Some(revoked.key) };
                (self.fill_reply(peer, (unit, false), tally), Verdict::Fail(refused))
            }
        }
    }

    fn fill_gaps(
        &mut self,
        peer: &PeerQp,
        unit: &mut UnitWriter<'_>,
        (pool, tally): (&ReorderPool, &Tally),
    ) -> usize {
        if self.reads.busy() || !unit.fits(0, GAPS_MAX * Gap::LEN) {
            return 0;
        }
        let pmtu = peer.pmtu.bytes() as u64;
        let Some((answers, gaps)) = self.gaps.take(self.epsn, &self.reorder_buffer, pool, pmtu)
        else {
            return 0;
        };
        let mut bth = Bth::new(Opcode::GapReport, peer.qpn, self.epsn);
        bth.solicited = answers == Answers::Duplicate;
        let Ok(()) = unit.push(&bth, &Ext::None, gaps.len() * Gap::LEN, |payload| {
            for (out, gap) in payload.chunks_exact_mut(Gap::LEN).zip(&gaps) {
                out.copy_from_slice(&gap.emit());
            }
            Ok::<(), core::convert::Infallible>(())
        });
        tally.count(Counter::SendSeqErr);
        1
    }

    /// Writes the ACK or NAK that is owed; an ACK says whether it `answers` a duplicate.
    fn fill_reply(
        &mut self,
        peer: &PeerQp,
        (unit, answers): (&mut UnitWriter<'_>, bool),
        tally: &Tally,
    ) -> usize {
        let Some(syndrome) = self.reply.filter(|_| !self.reads.busy()) else {
            return 0;
        };
        // The PSN of a NAK is the packet refused.
        let place = match syndrome {
            Syndrome::Ack { .. } => self.acknowledged(),
            Syndrome::RnrNak(_) | Syndrome::Nak(_) | Syndrome::Reserved(_) => {
                Some((self.epsn, self.msn))
            }
        };
        let Some((psn, msn)) = place else {
            self.reply = None;
            return 0;
        };
        let written = fill_aeth(Aeth { syndrome, msn }, (psn, answers), peer, unit, tally);
        if written > 0 {
            self.reply = None;
        }
        written
    }
}

/// Writes an ACK or NAK where it fits, one that `answers` a duplicate with the solicited event bit. Returns the number of
/// packets.
fn fill_aeth(
    aeth: Aeth,
    (psn, answers): (Psn, bool),
    peer: &PeerQp,
    unit: &mut UnitWriter<'_>,
    tally: &Tally,
) -> usize {
    let ext = Ext::Aeth(aeth);
    if !unit.fits(ext.len(), 0) {
        return 0;
    }
    let mut bth = Bth::new(Opcode::Acknowledge, peer.qpn, psn);
    bth.solicited = answers;
    let Ok(()) = unit.push(&bth, &ext, 0, |_| Ok::<(), core::convert::Infallible>(()));
    if let Some(counter) = refusal_counter(aeth.syndrome) {
        tally.count(counter);
    }
    1
}

/// The counter of a NAK.
const fn refusal_counter(syndrome: Syndrome) -> Option<Counter> {
    match syndrome {
        Syndrome::RnrNak(_) => Some(Counter::SendRnrErr),
        Syndrome::Nak(NakCode::PsnSequence) => Some(Counter::SendSeqErr),
        Syndrome::Nak(NakCode::InvalidRequest) => Some(Counter::RespRemoteInvalidRequest),
        Syndrome::Nak(NakCode::RemoteAccess) => Some(Counter::RespRemoteAccessErrors),
        Syndrome::Nak(NakCode::RemoteOperational) => Some(Counter::RespRemoteOpErrors),
        Syndrome::Ack { .. } | Syndrome::Nak(NakCode::InvalidRd) | Syndrome::Reserved(_) => None,
    }
}

const fn reth(ext: Ext) -> Option<Reth> {
    match ext {
        Ext::Reth(reth) | Ext::RethImm(reth, _) => Some(reth),
        _ => None,
    }
}

const fn invalidated_key(ext: Ext) -> Option<Rkey> {
    match ext {
        Ext::Ieth(key) => Some(key),
        _ => None,
    }
}

fn ends(packet: &Packet<'_>) -> bool {
    matches!(packet.bth.opcode.place(), Place::Last | Place::Only)
}

/// The refusal of a key. The receive that an immediate would consume ends, too (C9-222.1).
fn access_error(has_imm: bool) -> Refusal {
    Refusal::Fatal(NakCode::RemoteAccess, has_imm.then_some(WcStatus::LocalAccess))
}

/// Checks length, key, rights and bounds of a whole WRITE at its first packet.
fn check_write<M>(
    reth: Reth,
    has_imm: bool,
    cx: &Context<'_, M>,
) -> Result<Option<Target>, Refusal> {
    if u64::from(reth.len) > crate::qp::work::MAX_MESSAGE {
        return Err(INVALID);
    }
    if reth.len == 0 {
        // Zero bytes need no key (C9-88).
        return Ok(None);
    }
    cx.keys()
        .remote(reth.rkey, reth.va, u64::from(reth.len), Access::REMOTE_WRITE)
        .map(Some)
        .map_err(|_| access_error(has_imm))
}

/// Checks the payload length: first and middle packets are full, a last one is not empty.
fn check_packet_len(packet: &Packet<'_>, pmtu: u64) -> Result<(), ()> {
    let len = packet.payload.len() as u64;
    let fits = match packet.bth.opcode.place() {
        Place::First | Place::Middle => len == pmtu,
        Place::Last => (1..=pmtu).contains(&len),
        Place::Only => len <= pmtu,
    };
    if fits { Ok(()) } else { Err(()) }
}

/// Checks that a WRITE has exactly the length that its first packet announced.
fn check_write_len(packet: &Packet<'_>, written: u64, len: u32, pmtu: u64) -> Result<(), Refusal> {
    let left = u64::from(len) - written;
    let payload = packet.payload.len() as u64;
    let exact = if ends(packet) { payload == left } else { payload < left };
    if exact && check_packet_len(packet, pmtu).is_ok() { Ok(()) } else { Err(INVALID) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_names_no_packet_that_a_peer_would_take_for_a_new_one() {
        let mut responder = Responder::new(0);
        responder.executed(true);
        responder.read_accepted(MAX_IN_FLIGHT - 1);
        responder.read_accepted(1);
        assert_eq!(responder.acknowledged(), Some((Psn::new(0), Msn::new(0).back(2))));
        responder.read_accepted(1);
        assert_eq!(responder.acknowledged(), None);
        responder.executed(true);
        assert_eq!(responder.acknowledged(), Some((responder.epsn().prev(), Msn::new(0))));
    }
}
