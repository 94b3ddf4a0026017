//! The responder: a chain of small checks on each request of the peer, then its execution.
//!
//! PSN, then opcode order, then resources, then length, then key: the first check that fails
//! decides the answer (IBTA ch. 9, Responder, figure of the validation order).

use super::congestion::Loss;
use super::copy::scatter;
use super::echo::Echo;
use super::failure::Refused;
use super::held::{Held, Kept};
use super::read::{self, ReadResponder, Revoked};
use super::receive::{Received, RecvQueue, Srq};
use super::reorder::{Patience, REORDER_PACKETS};
use super::work::{Completions, WcStatus, sg_len};
use super::{Keys, PeerQp};
use crate::counters::{Counter, Tally};
use crate::env::{Instant, Memory};
use crate::ids::{Qpn, Rkey};
use crate::mr::{Access, By, MrTable, Target};
use crate::psn::{Msn, Psn};
use crate::wire::{
    Aeth, Bth, DropReason, Ext, NakCode, Opcode, Operation, Packet, Place, Pmtu, Reth, RnrTimer,
    Syndrome, UnitWriter,
};

/// The pause that a peer makes when no receive is posted: 0.64 ms.
const RNR_TIMER: RnrTimer = RnrTimer::new(12);

/// The request side of a QP.
#[derive(Debug)]
pub struct Responder {
    epsn: Psn,
    msn: Msn,
    message: Message,
    /// What the peer was told about `epsn`; further packets ahead of it are silent.
    told: Told,
    held: Held,
    held_bytes: usize,
    /// Since when `epsn` is missing.
    gap_since: Option<Instant>,
    patience: Patience,
    /// The packet last named as missing.
    named: Option<Psn>,
    /// Packets that are held came again since a gap was named last, and before that: the peer sends
    /// everything behind a gap again, so that naming the next gap at once would do it twice.
    repeats: [bool; 2],
    /// What is owed once no READ answer is owed before it.
    reply: Option<Syndrome>,
    echo: Echo,
    reads: ReadResponder,
    /// For congestion control to hear of.
    loss: Option<Loss>,
}

/// The message whose packets are arriving.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Message {
    None,
    Send { received: u64 },
    Write { written: u64, len: u32, target: Option<Target>, key: Rkey },
}

/// What the peer was told about the expected packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Told {
    Nothing,
    /// That it is missing.
    Missing,
    /// That no receive is posted for it.
    NotReady,
}

/// Why an expected request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusal {
    /// No receive is posted: try again later.
    NotReady,
    /// The request fails, and the QP with it; a receive that it held ends with this status.
    Fatal(NakCode, Option<WcStatus>),
}

const INVALID: Refusal = Refusal::Fatal(NakCode::InvalidRequest, None);

/// What the QP has to do about a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Nothing more.
    Done,
    /// The QP goes to the error state. The receive in use, if any, is already completed.
    Fail(Refused),
}

/// What a request needs beside the responder's own state.
pub struct Context<'a, M> {
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
    /// The shared queue that it is filled from.
    pub srq: Option<&'a mut Srq>,
    /// Where completions go.
    pub out: &'a mut Completions,
    /// What is counted.
    pub tally: &'a Tally,
}

impl<M> Context<'_, M> {
    const fn keys(&self) -> Keys<'_> {
        Keys { pd: self.pd, qpn: self.qpn, mrs: self.mrs }
    }

    /// Whether there is a receive for the next message.
    fn claim(&mut self) -> bool {
        self.rq.claim(self.srq.as_deref_mut())
    }

    const fn pmtu(&self) -> u64 {
        self.peer.pmtu.bytes() as u64
    }
}

impl Responder {
    /// A responder that expects nothing until [`Self::connect`]; it will hold `held_bytes`.
    pub const fn new(held_bytes: usize) -> Self {
        Self {
            epsn: Psn::new(0),
            msn: Msn::new(0),
            message: Message::None,
            told: Told::Nothing,
            held: Held::new(),
            held_bytes,
            gap_since: None,
            patience: Patience::new(),
            named: None,
            repeats: [false; 2],
            reply: None,
            echo: Echo::new(),
            reads: ReadResponder::new(),
            loss: None,
        }
    }

    /// Sets what the connection agreed on.
    pub fn connect(&mut self, peer: &PeerQp) {
        self.epsn = peer.recv_psn;
        self.msn = peer.first_msn;
        self.reads.connect(peer.inbound_reads);
    }

    /// Takes the memory for packets that come early; until then none is kept.
    pub fn hold_early(&mut self, pmtu: Pmtu) {
        self.held.reserve(self.held_bytes, pmtu);
    }

    /// The next instant at which [`Self::handle_timeout`] has work.
    pub fn deadline(&self) -> Option<Instant> {
        [self.gap_deadline(), self.echo.deadline()].into_iter().flatten().min()
    }

    fn gap_deadline(&self) -> Option<Instant> {
        self.gap_since.map(|since| self.patience.end(since))
    }

    /// Tells the peer about a gap that has lasted too long to be mere reordering, and what it may not
    /// have heard.
    pub fn handle_timeout(&mut self, now: Instant, tally: &Tally) {
        if self.gap_deadline().is_some_and(|deadline| now >= deadline) {
            self.name_gap();
        }
        if self.echo.take(now) {
            tally.count(Counter::AckRepeated);
            self.reply.get_or_insert(Syndrome::ACK);
        }
    }

    /// Whether a packet is owed to the peer.
    pub fn ready(&self) -> bool {
        self.reply.is_some() || self.reads.busy()
    }

    /// Whether an answer to a READ is owed.
    pub fn answers_reads(&self) -> bool {
        self.reads.busy()
    }

    /// What the last packet showed to be lost.
    pub const fn take_loss(&mut self) -> Option<Loss> {
        self.loss.take()
    }

    /// Forgets everything owed: the QP was flushed by its owner, or failed on its other side.
    pub fn clear(&mut self) {
        self.reply = None;
        self.gap_since = None;
        self.echo.cancel();
        self.reads.clear();
    }

    /// Acts on a request packet.
    ///
    /// # Errors
    /// [`DropReason`]: a duplicate that is not answered, or a packet behind a gap that cannot be held.
    pub fn handle<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        let ahead = packet.bth.psn.since(self.epsn);
        if ahead >= 0 {
            self.echo.cancel();
        }
        match ahead {
            0 => Ok(self.in_order(now, packet, cx)),
            i32::MIN..0 => self.duplicate(now, packet, cx),
            ahead => self.early(now, ahead.cast_unsigned(), packet, cx.tally),
        }
    }

    /// The expected packet, and those held that it was the last to be missing for. They are judged
    /// and executed as if they came now.
    fn in_order<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Verdict {
        let (told, first) = (self.told, self.epsn);
        let mut verdict = self.expected(packet, cx);
        if self.held.is_empty() {
            self.gap_since = None;
            return verdict;
        }
        let mut held = core::mem::take(&mut self.held);
        let (mut from, mut released) = (first, false);
        while verdict == Verdict::Done && self.epsn != from {
            // A READ takes PSNs in which a peer may not send anything else.
            held.forget(from, self.epsn.since(from).cast_unsigned());
            from = self.epsn;
            if let Some(packet) = held.take(from, cx.peer.encap) {
                released = true;
                verdict = self.expected(&packet, cx);
            }
        }
        self.held = held;
        if self.epsn != first && verdict == Verdict::Done && self.told != Told::NotReady {
            self.next_gap(now, told, released);
        }
        verdict
    }

    /// Part of what was held is executed, and of the rest something is missing.
    fn next_gap(&mut self, now: Instant, told: Told, released: bool) {
        if released {
            self.reply = Some(Syndrome::ACK);
            self.echo.arm(now);
        }
        self.gap_since = (!self.held.is_empty()).then_some(now);
        // What is held came about a round trip ago: what is missing before it is lost, not late.
        if released && told == Told::Missing && self.repeats == [false; 2] && !self.held.is_empty()
        {
            self.name_gap();
        }
    }

    /// A packet whose predecessors have not come. It is held; the peer is told, once per gap, if they
    /// do not come after all: most often they are only late.
    fn early(
        &mut self,
        now: Instant,
        ahead: u32,
        packet: &Packet<'_>,
        tally: &Tally,
    ) -> Result<Verdict, DropReason> {
        tally.count(Counter::OutOfSeqRequest);
        let kept = self.held.keep(ahead, packet);
        if kept == Kept::Before {
            self.repeats[0] = true;
        }
        if self.told == Told::Nothing {
            if kept == Kept::Before || self.gap_since.is_none() {
                self.gap_since = Some(now);
            }
            let lost = kept == Kept::No || self.held.len() > REORDER_PACKETS;
            if lost || self.gap_deadline().is_some_and(|deadline| now >= deadline) {
                self.name_gap();
            }
        }
        match kept {
            Kept::Yes => {
                tally.count(Counter::OutOfOrderHeld);
                Ok(Verdict::Done)
            }
            Kept::Before => Err(DropReason::Duplicate),
            Kept::No => Err(DropReason::Gap),
        }
    }

    /// One NAK per gap: a second would send the requester back twice.
    fn name_gap(&mut self) {
        (self.told, self.gap_since) = (Told::Missing, None);
        self.named = Some(self.epsn);
        self.reply = Some(Syndrome::Nak(NakCode::PsnSequence));
        self.patience.asked();
        self.repeats = [false, self.repeats[0]];
    }

    fn expected<M: Memory>(&mut self, packet: &Packet<'_>, cx: &mut Context<'_, M>) -> Verdict {
        match self.check_order(packet).and_then(|()| self.execute(packet, cx)) {
            Ok(packets) => {
                self.epsn = self.epsn.add(packets);
                self.told = Told::Nothing;
                // A NAK that has not left yet is out of date.
                if packet.bth.ack_req && packet.bth.opcode != Opcode::ReadRequest
                    || self.reply.is_some()
                {
                    self.reply = Some(Syndrome::ACK);
                }
                Verdict::Done
            }
            Err(Refusal::NotReady) => {
                cx.tally.count(Counter::OutOfBuffer);
                (self.told, self.gap_since) = (Told::NotReady, None);
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

    /// The key that a packet names, or the WRITE that it goes on with.
    const fn named_key(&self, ext: Ext) -> Option<Rkey> {
        match (ext, self.message) {
            (Ext::Reth(reth) | Ext::RethImm(reth, _), _) => Some(reth.rkey),
            (Ext::AtomicEth(atomic), _) => Some(atomic.rkey),
            (Ext::Ieth(key), _) | (_, Message::Write { key, .. }) => Some(key),
            _ => None,
        }
    }

    /// A request that was executed before is acknowledged again, never executed again (C9-105).
    fn duplicate<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        cx.tally.count(Counter::DuplicateRequest);
        if self.named == Some(packet.bth.psn) {
            // It came twice, so it was late and not lost.
            self.named = None;
            self.patience.was_short();
        }
        if packet.bth.opcode.operation() != Operation::ReadRequest {
            self.echo.arm(now);
        }
        let answered = match (packet.bth.opcode.operation(), packet.ext) {
            (Operation::ReadRequest, Ext::Reth(reth)) => {
                let replayed = self.reads.replay(packet.bth.psn, reth, cx.pmtu(), &cx.keys());
                self.loss = replayed.then_some(Loss::Answer { at: packet.bth.psn, end: self.epsn });
                replayed
            }
            (Operation::Send | Operation::Write, _) if packet.bth.ack_req => {
                // An owed NAK acknowledges as much.
                self.reply.get_or_insert(Syndrome::ACK);
                true
            }
            _ => false,
        };
        if answered { Ok(Verdict::Done) } else { Err(DropReason::Duplicate) }
    }

    /// Each packet of a message follows the one before it; only a first or only packet opens one.
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

    /// An invalid request; a receive that a SEND in progress holds ends with it.
    const fn invalid(&self) -> Refusal {
        match self.message {
            Message::Send { .. } => {
                Refusal::Fatal(NakCode::InvalidRequest, Some(WcStatus::RemoteInvalidRequest))
            }
            Message::None | Message::Write { .. } => INVALID,
        }
    }

    /// Executes the expected packet; returns how many PSNs it takes.
    fn execute<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<u32, Refusal> {
        match (packet.bth.opcode.operation(), packet.ext) {
            (Operation::Send, _) => self.execute_send(packet, cx).map(|()| 1),
            (Operation::Write, ext) => self.execute_write(packet, ext, cx).map(|()| 1),
            (Operation::ReadRequest, Ext::Reth(reth)) => self.execute_read(packet, reth, cx),
            // Atomics, FLUSH and ATOMIC_WRITE are not offered by this adapter.
            _ => Err(INVALID),
        }
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
        let Some(wr) = cx.rq.head() else {
            return Err(Refusal::NotReady);
        };
        check_packet_len(packet, cx.pmtu()).map_err(|()| self.invalid())?;
        let total = received + packet.payload.len() as u64;
        let fits = total <= sg_len(&wr.sgl);
        if !fits || total > super::work::MAX_MESSAGE {
            return Err(Refusal::Fatal(NakCode::InvalidRequest, Some(WcStatus::LocalLength)));
        }
        let pd = cx.rq.pd();
        scatter(&wr.sgl, received, packet.payload, pd, cx.mrs, cx.memory).map_err(|_| {
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
            // Payload placed, key ended, completion last: that order is the contract.
            let released = cx.mrs.invalidate(cx.pd, By::Peer(cx.qpn), key).map_err(|_| {
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
            // The key must still be live, for each packet.
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

    fn execute_read<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        reth: Reth,
        cx: &mut Context<'_, M>,
    ) -> Result<u32, Refusal> {
        if !packet.payload.is_empty()
            || u64::from(reth.len) > super::work::MAX_MESSAGE
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

    fn end_message(&mut self) {
        self.message = Message::None;
        self.msn = self.msn.next();
    }

    /// Writes what is owed into `unit`. Returns packets written, and the verdict.
    pub fn fill<M: Memory>(
        &mut self,
        peer: &PeerQp,
        keys: &Keys<'_>,
        memory: &mut M,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
        tally: &Tally,
    ) -> (usize, Verdict) {
        match self.reads.fill(peer, keys, memory, unit, max_packets) {
            Ok(0) => (self.fill_reply(peer, unit, tally), Verdict::Done),
            Ok(written) => (written, Verdict::Done),
            // Where the peer still waits for the answer, it ends the connection. A copy of the request that
            // was late does not: a requester drops a NAK of what it has (IBTA ch. 9, Requester Side).
            Err(Revoked { psn, again: true, .. }) => {
                let nak = Syndrome::Nak(NakCode::RemoteAccess);
                (self.fill_aeth(nak, psn, peer, unit, tally), Verdict::Done)
            }
            Err(revoked) => {
                self.reads.clear();
                let code = NakCode::RemoteAccess;
                self.reply = Some(Syndrome::Nak(code));
                self.epsn = revoked.psn;
                let refused = Refused { code, psn: revoked.psn, key: Some(revoked.key) };
                (self.fill_reply(peer, unit, tally), Verdict::Fail(refused))
            }
        }
    }

    fn fill_reply(&mut self, peer: &PeerQp, unit: &mut UnitWriter<'_>, tally: &Tally) -> usize {
        let Some(syndrome) = self.reply.filter(|_| !self.reads.busy()) else {
            return 0;
        };
        // An ACK names the newest packet executed; a NAK the one refused.
        let psn = match syndrome {
            Syndrome::Ack { .. } => self.epsn.prev(),
            Syndrome::RnrNak(_) | Syndrome::Nak(_) | Syndrome::Reserved(_) => self.epsn,
        };
        let written = self.fill_aeth(syndrome, psn, peer, unit, tally);
        if written > 0 {
            self.reply = None;
        }
        written
    }

    fn fill_aeth(
        &self,
        syndrome: Syndrome,
        psn: Psn,
        peer: &PeerQp,
        unit: &mut UnitWriter<'_>,
        tally: &Tally,
    ) -> usize {
        let ext = Ext::Aeth(Aeth { syndrome, msn: self.msn });
        if !unit.fits(ext.len(), 0) {
            return 0;
        }
        let bth = Bth::new(Opcode::Acknowledge, peer.qpn, psn);
        let Ok(()) = unit.push(&bth, &ext, 0, |_| Ok::<(), core::convert::Infallible>(()));
        if let Some(counter) = refusal_counter(syndrome) {
            tally.count(counter);
        }
        1
    }
}

/// The counter of an answer that refuses something.
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

/// A key that fails; the receive that an immediate would consume ends too (C9-222.1).
fn access_error(has_imm: bool) -> Refusal {
    Refusal::Fatal(NakCode::RemoteAccess, has_imm.then_some(WcStatus::LocalAccess))
}

/// Checks length, key, rights and bounds of a whole WRITE at its first packet.
fn check_write<M>(
    reth: Reth,
    has_imm: bool,
    cx: &Context<'_, M>,
) -> Result<Option<Target>, Refusal> {
    if u64::from(reth.len) > super::work::MAX_MESSAGE {
        return Err(INVALID);
    }
    if reth.len == 0 {
        // Nothing is written, so no key is looked at (C9-88).
        return Ok(None);
    }
    cx.keys()
        .remote(reth.rkey, reth.va, u64::from(reth.len), Access::REMOTE_WRITE)
        .map(Some)
        .map_err(|_| access_error(has_imm))
}

/// First and middle packets are full; a last one carries something.
fn check_packet_len(packet: &Packet<'_>, pmtu: u64) -> Result<(), ()> {
    let len = packet.payload.len() as u64;
    let fits = match packet.bth.opcode.place() {
        Place::First | Place::Middle => len == pmtu,
        Place::Last => (1..=pmtu).contains(&len),
        Place::Only => len <= pmtu,
    };
    if fits { Ok(()) } else { Err(()) }
}

/// A WRITE carries exactly the length that its first packet announced.
fn check_write_len(packet: &Packet<'_>, written: u64, len: u32, pmtu: u64) -> Result<(), Refusal> {
    let left = u64::from(len) - written;
    let payload = packet.payload.len() as u64;
    let exact = if ends(packet) { payload == left } else { payload < left };
    if exact && check_packet_len(packet, pmtu).is_ok() { Ok(()) } else { Err(INVALID) }
}
