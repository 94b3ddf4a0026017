//! The short ways of requester and completer.
//!
//! The requester's is for new packets of requests of one element, and READs with a response of one packet, of a queue
//! pair that sends nothing else (`Qp::look`); the completer's for the expected packet of a response, and for ACKs while
//! nothing is missing. Whatever is not the usual takes the general way ([`super::requester`], [`super::completer`]):
//! nothing has changed then.

use super::completer::{self, Completer};
use super::entry::{Single, SingleOp};
use super::queue::{NewPacket, NextResponse, Sent};
use super::requester::{Context, Requester, ack_interval};
use crate::env::{Instant, Memory};
use crate::ids::Qpn;
use crate::mr::{Access, LocalKeys};
use crate::psn::Psn;
use crate::qp::copy::Source;
use crate::qp::work::{MAX_MESSAGE, Sge};
use crate::wire::{Common, CommonExt, CommonHeaders, CommonOp, Frames, Opcode, Place, UnitRun};

/// Writes new packets, one after the other.
struct Writer<'a, 'r, M, F> {
    /// The queue pair that they are for, and the bytes of a full one.
    dest_qpn: Qpn,
    pmtu: u32,
    /// Packets of one message after which an ACK is requested.
    quarter: u32,
    /// READ requests in flight, at most.
    reads_max: usize,
    keys: LocalKeys<'a>,
    memory: &'a mut M,
    run: &'a mut UnitRun<'r, F>,
    /// The first packet that ended its request, and whether that is a READ.
    ended: Option<(Psn, bool)>,
}

impl Requester {
    /// Writes the packets that may leave into units of `run`, up to the first that has to go the general way. Returns
    /// the first of them that ended its request, and whether that is a READ.
    #[inline(never)]
    pub(crate) fn fill_common<M: Memory, F: Frames>(
        &self,
        cx: &mut Context<'_, M>,
        run: &mut UnitRun<'_, F>,
    ) -> Option<(Psn, bool)> {
        let Context { peer, pd, mrs, memory, sq, .. } = cx;
        let window = self.window_packets().min(sq.limit());
        let room = window.saturating_sub(sq.in_flight());
        let single = run.is_single();
        let mut writer = Writer {
            dest_qpn: peer.qpn,
            pmtu: peer.pmtu.bytes() as u32,
            quarter: ack_interval(window),
            reads_max: self.initiator_depth(),
            keys: LocalKeys::new(mrs, *pd),
            memory: &mut **memory,
            run,
            ended: None,
        };
        if single {
            sq.send_new(room, |new| writer.write::<true>(new));
        } else {
            sq.send_new(room, |new| writer.write::<false>(new));
        }
        writer.ended
    }
}

const SEND: u8 = SingleOp::Send as u8;
const WRITE: u8 = SingleOp::Write as u8;
const READ: u8 = SingleOp::Read as u8;

impl<M: Memory, F: Frames> Writer<'_, '_, M, F> {
    #[inline(always)]
    fn write<const SINGLE: bool>(&mut self, new: &NewPacket<'_>) -> Option<Sent> {
        if self.run.is_spent() { None } else { self.write_next::<SINGLE>(new) }
    }

    /// Apart from the loop, whose state would else take the registers.
    #[inline(never)]
    fn write_next<const SINGLE: bool>(&mut self, new: &NewPacket<'_>) -> Option<Sent> {
        let sge = new.wqe.first();
        if new.packet > 0 || !(1..=self.pmtu).contains(&sge.len) {
            return self.write_part::<SINGLE>(new);
        }
        let request = new.wqe.single(sge)?;
        match request.op {
            SingleOp::Send => self.write_only::<SINGLE, SEND>(request, new),
            SingleOp::Write => self.write_only::<SINGLE, WRITE>(request, new),
            SingleOp::Read => self.write_only::<SINGLE, READ>(request, new),
        }
    }

    /// The only packet of a request; of a READ that of a response of one packet. Each operation has code of its own.
    #[inline(always)]
    fn write_only<const SINGLE: bool, const OP: u8>(
        &mut self,
        Single { reth, sge, solicited, .. }: Single,
        new: &NewPacket<'_>,
    ) -> Option<Sent> {
        let read = OP == READ;
        if read && new.reads >= self.reads_max {
            return None;
        }
        let (opcode, ext) = match OP {
            SEND => (Opcode::SendOnly, CommonExt::None),
            WRITE => (Opcode::WriteOnly, CommonExt::Reth(reth)),
            _ => (Opcode::ReadRequest, CommonExt::Reth(reth)),
        };
        let needed = if read { Access::LOCAL_WRITE } else { Access::LOCAL_READ };
        let len = if read { 0 } else { sge.len as usize };
        let Self { dest_qpn, keys, memory, run, .. } = self;
        let place = keys.local(sge.lkey, sge.addr, sge.len.into(), needed);
        let (region, offset) = place.ok()?;
        let headers = || {
            let (dest_qpn, psn, ack_req) = (*dest_qpn, new.psn, true);
            CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext }
        };
        let lens = (ext.len(), len);
        if read {
            run.push_common::<SINGLE>(lens, headers, ())?;
        } else {
            let source = Source { memory: &mut **memory, region, offset };
            run.push_common::<SINGLE>(lens, headers, source)?;
        }
        self.ended(new.psn, read);
        Some(Sent { last: true, read })
    }

    /// A packet of a longer SEND or WRITE.
    #[inline(never)]
    fn write_part<const SINGLE: bool>(&mut self, new: &NewPacket<'_>) -> Option<Sent> {
        let Single { op, reth, sge, solicited } = new.wqe.single(new.wqe.first())?;
        let (len, pmtu) = (u64::from(sge.len), u64::from(self.pmtu));
        let done = u64::from(new.packet) * pmtu;
        let left = len.checked_sub(done).filter(|left| *left > 0 && len <= MAX_MESSAGE)?;
        let (first, last) = (new.packet == 0, left <= pmtu);
        let place = Place::of(first, last);
        let (opcode, ext) = match op {
            SingleOp::Send => (Opcode::send(place), CommonExt::None),
            SingleOp::Write if first => (Opcode::write(place), CommonExt::Reth(reth)),
            SingleOp::Write => (Opcode::write(place), CommonExt::None),
            SingleOp::Read => return None,
        };
        // Before the window is used up, too.
        let ack_req = last || new.room == 1 || (new.packet + 1).is_multiple_of(self.quarter);
        let (dest_qpn, psn, solicited) = (self.dest_qpn, new.psn, solicited && last);
        let headers = || CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
        let (addr, len) = (sge.addr.wrapping_add(done), left.min(pmtu));
        let Self { keys, memory, run, .. } = self;
        let (region, offset) = keys.local(sge.lkey, addr, len, Access::LOCAL_READ).ok()?;
        let source = Source { memory: &mut **memory, region, offset };
        run.push_common::<SINGLE>((ext.len(), len as usize), headers, source)?;
        if last {
            self.ended(new.psn, false);
        }
        Some(Sent { last, read: false })
    }

    const fn ended(&mut self, psn: Psn, read: bool) {
        if self.ended.is_none() {
            self.ended = Some((psn, read));
        }
    }
}

impl Completer {
    /// Takes a response or an ACK; `calm` is the queue pair's. Returns false where it has to go the general way.
    #[inline(always)]
    pub(crate) fn handle_common<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Common<'_>,
        calm: bool,
        cx: &mut completer::Context<'_, M>,
    ) -> bool {
        match packet.op {
            CommonOp::Response(place) => self.handle_response(now, place, packet, cx),
            _ => self.handle_ack(now, packet.psn(), calm, cx),
        }
    }

    /// Takes the ACK of new packets of a queue pair that has no READ in flight and recovers from nothing, as `calm` says
    /// already where it is true. Returns false where it has to go the general way.
    #[inline]
    fn handle_ack<M>(
        &mut self,
        now: Instant,
        psn: Psn,
        calm: bool,
        cx: &mut completer::Context<'_, M>,
    ) -> bool {
        let plain = if calm {
            cx.sq.reads_in_flight() == 0
        } else {
            cx.sq.has_plain_data() && self.is_quiet()
        };
        if calm
            && plain
            && let Some(packets) = cx.sq.acknowledge_newest(psn, cx.out)
        {
            self.newest_ack_came(now, packets, cx.sq);
            return true;
        }
        let usual = plain && cx.sq.expects(psn);
        if usual {
            self.plain_ack_came(now, psn, cx.sq, cx.out);
        }
        usual
    }

    /// Takes the next packet of the response to the oldest request. Returns false where it has to go the general way.
    #[inline]
    fn handle_response<M: Memory>(
        &mut self,
        now: Instant,
        place: Place,
        response: &Common<'_>,
        cx: &mut completer::Context<'_, M>,
    ) -> bool {
        let len = response.payload.len() as u64;
        let next = cx.sq.next_response(response.psn(), len).filter(|_| self.is_quiet());
        let Some(NextResponse { sink: Sge { addr, lkey, .. }, done, last }) = next else {
            return false;
        };
        // The last packet of the message ends a response.
        if last && !place.is_last() {
            return false;
        }
        let addr = addr.wrapping_add(done);
        let place = cx.keys.mrs.local(cx.keys.pd, lkey, addr, len, Access::LOCAL_WRITE);
        let placed = place.is_ok_and(|(region, offset)| {
            cx.memory.write(region, offset, response.payload).is_ok()
        });
        if placed {
            let before = cx.sq.acked();
            cx.sq.next_response_taken(last, cx.out);
            self.plain_data_came(now, before, cx.sq);
        }
        placed
    }
}
