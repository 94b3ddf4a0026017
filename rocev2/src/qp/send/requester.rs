//! The requester: cuts work requests into packets and decides when each may leave.
//!
//! State changes only after a packet is in the buffer, so there is never a roll-back.

use super::queue::{Cause, SendQueue};
use crate::counters::{Counter, Tally};
use crate::env::{Instant, Memory};
use crate::ids::{Qpn, Rkey};
use crate::mr::{Invalidator, MrTable, PdId};
use crate::psn::Psn;
use crate::qp::PeerQp;
use crate::qp::copy::{LocalFault, check_sink, gather};
use crate::qp::send::entry::Wqe;
use crate::qp::work::{Completions, SendOp, WcStatus};
use crate::wire::{Bth, Ext, Opcode, Place, Reth, UnitWriter, segment_len};

/// The limits of a requester and of a reorder buffer.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Bytes in flight, at most (one packet may always leave).
    pub bytes: u32,
    /// A longer READ is cut into requests of this many bytes, so that the requester, not the responder,
    /// limits the bytes in flight.
    pub read_chunk: u32,
    /// The quota of a QP's reorder buffer: bytes of slots for the peer's packets that are kept while an earlier one
    /// is missing; 0 for none. A peer that runs this crate and has the port's path MTU fills one window of its own. The
    /// memory is that of [`DeviceConfig::reorder_pool`](crate::DeviceConfig::reorder_pool), and a QP has some of it
    /// only while a packet is missing.
    pub reorder_bytes: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self { bytes: 512 << 10, read_chunk: 128 << 10, reorder_bytes: 512 << 10 }
    }
}

/// The largest number of PSNs in flight; far below 2^23, where serial comparison turns around.
const WINDOW_PSN_MAX: u32 = 1 << 15;

/// The requester of one QP.
#[derive(Debug)]
pub(crate) struct Requester {
    window_packets: u32,
    chunk_packets: u32,
    initiator_depth: usize,
    window: Window,
}

/// A packet that is planned and not yet written.
struct Plan {
    opcode: Opcode,
    ext: Ext,
    /// First byte of the message in this packet.
    offset: u64,
    payload_len: usize,
    /// PSNs of the packet; of a READ request those of its responses.
    packets: u32,
    ack_req: bool,
    solicited: bool,
}

/// The reason why no packet can be planned now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wait {
    /// There is nothing to send, or the request waits for a response.
    Blocked,
    /// The request at the cursor has no packets and may take effect.
    Execute,
    /// The request at the cursor has failed locally.
    Fault(WcStatus),
}

/// The environment of the requester: the parts of the QP and the device that it works on.
pub(crate) struct Context<'a, M> {
    /// The connection.
    pub peer: &'a PeerQp,
    /// The QP's domain.
    pub pd: PdId,
    /// The QP.
    pub qpn: Qpn,
    /// All keys; some requests change the table.
    pub mrs: &'a mut MrTable,
    /// Registered bytes.
    pub memory: &'a mut M,
    /// The send queue.
    pub sq: &'a mut SendQueue,
    /// Where completions go.
    pub out: &'a mut Completions,
    /// The counters.
    pub tally: &'a Tally,
    /// The current time.
    pub now: Instant,
    /// When a packet that leaves now will have arrived or been lost.
    pub spent_by: Instant,
    /// Congestion control limits the packets that leave now.
    pub paced: bool,
}

/// Packets that were written into a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    /// Their number.
    pub written: usize,
    /// The first that requested a response, and whether it is a READ.
    pub asked: Option<(Psn, bool)>,
    /// Nothing is left that could leave now.
    pub idle: bool,
}

impl Requester {
    /// A requester that sends nothing until [`Self::connect`].
    pub(crate) const fn new(window: Window) -> Self {
        Self { window_packets: 0, chunk_packets: 1, initiator_depth: 0, window }
    }

    /// Sets what the connection agreed on.
    pub(crate) fn connect(&mut self, peer: &PeerQp) {
        let pmtu = peer.pmtu.bytes() as u32;
        self.window_packets = (self.window.bytes / pmtu).clamp(1, WINDOW_PSN_MAX);
        self.chunk_packets = (self.window.read_chunk / pmtu).clamp(1, self.window_packets);
        self.initiator_depth = usize::from(peer.outbound_reads).min(crate::qp::work::MAX_READS);
    }

    /// PSNs in flight, at most.
    pub(crate) const fn window_packets(&self) -> u32 {
        self.window_packets
    }

    /// Packets of a message after which one requests an ACK.
    pub(crate) fn ack_interval(&self, sq: &SendQueue) -> u32 {
        ack_interval(self.window_packets.min(sq.limit()))
    }

    /// READ requests in flight, at most.
    pub(super) const fn initiator_depth(&self) -> usize {
        self.initiator_depth
    }

    /// Whether a packet could leave, or a request take effect, now.
    pub(crate) fn has_work(&self, sq: &mut SendQueue, peer: &PeerQp) -> bool {
        matches!(self.plan(sq, peer), Ok(_) | Err(Wait::Execute))
    }

    /// Writes the packets that may leave and fit `unit`, and executes the requests between them that have
    /// none.
    pub(crate) fn fill<M: Memory>(
        &self,
        cx: &mut Context<'_, M>,
        unit: &mut UnitWriter<'_>,
        mut max_packets: usize,
    ) -> Filled {
        let (mut written, mut asked) = (0, None);
        while written < max_packets {
            let done = match self.plan(cx.sq, cx.peer) {
                Ok(plan) if !unit.fits(plan.ext.len(), plan.payload_len) => break,
                // Where units are lost, nothing would tell of one that takes more PSNs than it has packets.
                Ok(plan) if plan.packets > 1 && written > 0 => break,
                Ok(mut plan) => {
                    if plan.packets > 1 {
                        max_packets = 1;
                    }
                    // Pacing may delay the next packet past the timer: request an ACK now, so that the wait
                    // is not taken for loss.
                    plan.ack_req |= cx.paced && written + 1 == max_packets;
                    let packet = (cx.sq.next_to_send(), plan.opcode == Opcode::ReadRequest);
                    let result = write(&plan, cx, unit);
                    if result.is_ok() {
                        written += 1;
                        asked = asked.or(plan.ack_req.then_some(packet));
                    }
                    result
                }
                Err(Wait::Execute) => execute(cx),
                Err(Wait::Blocked) => return Filled { written, asked, idle: true },
                // A failed request is reported once all before it are complete. No further packet leaves of
                // it, or of the requests behind it.
                Err(Wait::Fault(_)) => {
                    cx.sq.give_up_resend();
                    return Filled { written, asked, idle: true };
                }
            };
            if let (Err(status), Some((wqe, _))) = (done, cx.sq.at_cursor()) {
                wqe.set_fault(status);
                cx.sq.give_up_resend();
            }
        }
        Filled { written, asked, idle: false }
    }

    fn plan(&self, sq: &mut SendQueue, peer: &PeerQp) -> Result<Plan, Wait> {
        let (mut in_flight, mut reads) = (sq.in_flight(), sq.reads_in_flight());
        let parks = sq.parks();
        let limit = sq.limit();
        let window = self.window_packets.min(limit);
        let all_complete = sq.cursor_at_head();
        let again = sq.resend().map(|range| sq.resend_len(range));
        if again.is_some() {
            // A resend has its place in the window, and at the peer, from the first time.
            (in_flight, reads) = (0, 0);
        } else if sq.stalled() {
            return Err(Wait::Blocked);
        }
        sq.skip_executed();
        let (wqe, packet) = sq.at_cursor().ok_or(Wait::Blocked)?;
        if let Some(status) = wqe.fault() {
            return Err(Wait::Fault(status));
        }
        let packets = sq.packets(wqe);
        if wqe.read_fence() && packet == 0 && (reads > 0 || parks) {
            return Err(Wait::Blocked);
        }
        let pmtu = peer.pmtu.bytes() as u64;
        let room = window.saturating_sub(in_flight).min(again.unwrap_or(window));
        let room = (room, window);
        match wqe.op() {
            SendOp::FastRegister { .. } | SendOp::Bind(_) => Err(Wait::Execute),
            // Earlier requests may use the key (10.6.5.1).
            SendOp::Invalidate(_) if all_complete => Err(Wait::Execute),
            SendOp::Invalidate(_) => Err(Wait::Blocked),
            SendOp::Read { va, rkey } | SendOp::ReadInvalidate { va, rkey } => {
                if self.initiator_depth == 0 {
                    wqe.set_fault(WcStatus::LocalQpOperation);
                    return Err(Wait::Fault(WcStatus::LocalQpOperation));
                }
                let end = (packet / self.chunk_packets + 1)
                    .saturating_mul(self.chunk_packets)
                    .min(packets)
                    .min(packet.saturating_add(again.unwrap_or(u32::MAX)));
                let requested = end - packet;
                // The limit bounds wasted packets: requests are, responses are not.
                let room = self.window_packets.saturating_sub(in_flight);
                let full = reads >= self.initiator_depth.min(limit as usize);
                if full || (requested > room && in_flight > 0) {
                    return Err(Wait::Blocked);
                }
                let offset = u64::from(packet) * pmtu;
                let len = wqe.len().min(u64::from(end) * pmtu) - offset.min(wqe.len());
                // A chunk is at most 2^31 bytes, the longest message.
                let reth = Reth { va: va.wrapping_add(offset), rkey, len: len as u32 };
                Ok(Plan::request(Opcode::ReadRequest, Ext::Reth(reth), requested))
            }
            SendOp::Send => plan_data(wqe, (packet, packets), pmtu, room, Data::Send(None)),
            SendOp::SendInvalidate(key) => {
                plan_data(wqe, (packet, packets), pmtu, room, Data::Send(Some(key)))
            }
            SendOp::Write { va, rkey } => {
                // Message length was bounded to 2^31 when the request was queued.
                let reth = Reth { va, rkey, len: wqe.len() as u32 };
                plan_data(wqe, (packet, packets), pmtu, room, Data::Write(reth))
            }
        }
    }
}

/// Packets of a message after which one requests an ACK.
pub(super) const fn ack_interval(window: u32) -> u32 {
    let quarter = window / 4;
    if quarter > 1 { quarter } else { 1 }
}

/// The next packet of a message, `packet` of `packets`; `room` packets may leave of a window of as many as `window`.
fn plan_data(
    wqe: Wqe<'_>,
    (packet, packets): (u32, u32),
    pmtu: u64,
    (room, window): (u32, u32),
    data: Data,
) -> Result<Plan, Wait> {
    if room == 0 {
        return Err(Wait::Blocked);
    }
    let offset = u64::from(packet) * pmtu;
    let last = packet + 1 == packets;
    let (opcode, ext) = data.header(packet == 0, last);
    // Request an ACK at the end of a message, and often enough inside a long one that the window opens
    // before it is used up: packets whose last one requests no ACK would wait for the timer.
    let quarter = ack_interval(window);
    Ok(Plan {
        opcode,
        ext,
        offset,
        // The length of one packet.
        payload_len: wqe.len().saturating_sub(offset).min(pmtu) as usize,
        packets: 1,
        ack_req: last || room == 1 || (packet + 1).is_multiple_of(quarter),
        // A WRITE causes no event (IBTA ch. 9, Solicited Event).
        solicited: last && wqe.solicited() && !matches!(data, Data::Write(_)),
    })
}

/// Writes one packet.
fn write<M: Memory>(
    plan: &Plan,
    cx: &mut Context<'_, M>,
    unit: &mut UnitWriter<'_>,
) -> Result<(), WcStatus> {
    let psn = cx.sq.next_to_send();
    let Some((wqe, _)) = cx.sq.at_cursor() else { return Ok(()) };
    let is_read = wqe.is_read();
    if is_read {
        check_sink(wqe.elements(), cx.pd, cx.mrs)
            .map_err(|LocalFault| WcStatus::LocalProtection)?;
    }
    if let Some(key) = wqe.ended_key() {
        cx.mrs.check_invalidable(cx.pd, key).map_err(|_| WcStatus::MemoryManagement)?;
    }
    let mut bth = plan.bth(cx.peer.qpn, psn);
    bth.becn = is_read && cx.sq.reports_congestion();
    let sgl = wqe.elements();
    unit.push(&bth, &plan.ext, plan.payload_len, |payload| {
        gather(sgl, plan.offset, payload, cx.pd, cx.mrs, cx.memory)
            .map_err(|LocalFault| WcStatus::LocalProtection)
    })?;
    if let Some(cause) = cx.sq.resent_for() {
        let len = segment_len(plan.ext.len(), plan.payload_len) + cx.peer.encap.header_len();
        count_again(cause, is_read, len, cx.tally);
    }
    cx.sq.sent(plan.packets, is_read, cx.now, cx.spent_by);
    Ok(())
}

/// Counts a resent packet of `len` bytes.
fn count_again(cause: Cause, is_read: bool, len: usize, tally: &Tally) {
    let (packets, bytes) = match cause {
        Cause::Timer => (Counter::ResentTimerPkts, Counter::ResentTimerBytes),
        Cause::Nak => (Counter::ResentNakPkts, Counter::ResentNakBytes),
        Cause::ImpliedNak => (Counter::ResentImpliedNakPkts, Counter::ResentImpliedNakBytes),
        Cause::Rnr => (Counter::ResentRnrPkts, Counter::ResentRnrBytes),
    };
    tally.count(packets);
    tally.add(bytes, len as u64);
    if is_read {
        tally.count(Counter::ReadRequestsResent);
    }
}

/// Executes the request at the cursor, which has no packets.
fn execute<M>(cx: &mut Context<'_, M>) -> Result<(), WcStatus> {
    let Some((wqe, _)) = cx.sq.at_cursor() else { return Ok(()) };
    match &wqe.op() {
        SendOp::FastRegister { key, mapping } => {
            cx.mrs.map(cx.pd, *key, mapping).map_err(|_| WcStatus::MemoryManagement)?;
        }
        SendOp::Invalidate(key) => {
            let released = cx.mrs.invalidate(cx.pd, Invalidator::Owner, *key);
            if let Some(released) = released.map_err(|_| WcStatus::MemoryManagement)? {
                cx.out.release(released);
            }
        }
        SendOp::Bind(bind) => {
            cx.mrs.bind(cx.pd, cx.qpn, bind).map_err(|_| WcStatus::MemoryBind)?;
        }
        // These leave as packets.
        SendOp::Send
        | SendOp::SendInvalidate(_)
        | SendOp::Write { .. }
        | SendOp::Read { .. }
        | SendOp::ReadInvalidate { .. } => return Ok(()),
    }
    cx.sq.executed(cx.out);
    Ok(())
}

impl Plan {
    const fn request(opcode: Opcode, ext: Ext, packets: u32) -> Self {
        Self { opcode, ext, offset: 0, payload_len: 0, packets, ack_req: true, solicited: false }
    }

    const fn bth(&self, dest_qpn: Qpn, psn: Psn) -> Bth {
        let mut bth = Bth::new(self.opcode, dest_qpn, psn);
        bth.ack_req = self.ack_req;
        bth.solicited = self.solicited;
        bth
    }
}

/// A message that carries our data.
#[derive(Clone, Copy)]
enum Data {
    /// SEND, and the key that it invalidates.
    Send(Option<Rkey>),
    Write(Reth),
}

impl Data {
    /// Opcode and extended header of a packet by its place in the message.
    const fn header(self, first: bool, last: bool) -> (Opcode, Ext) {
        let place = Place::of(first, last);
        match self {
            Self::Send(Some(key)) if last => (Opcode::send(place).with_inv(), Ext::Ieth(key)),
            Self::Send(_) => (Opcode::send(place), Ext::None),
            Self::Write(reth) if first => (Opcode::write(place), Ext::Reth(reth)),
            Self::Write(_) => (Opcode::write(place), Ext::None),
        }
    }
}
