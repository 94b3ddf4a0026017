//! The short ways of requester and completer.
//!
//! The requester's is for new packets of requests of one element, and READs with a response of one packet, of a queue
//! pair that sends nothing else (`Qp::look`); the completer's for the expected packet of a response, and for ACKs while
//! nothing is missing. Whatever is not the usual takes the general way ([`super::requester`], [`super::completer`]):
//! nothing has changed then.

use super::completer::{self, Completer};
use super::entry::{Single, SingleOp};
use super::queue::{NewPacket, NextResponse, SendQueue, Sent};
use super::requester::{Context, Requester, ack_interval};
use crate::env::{Instant, Memory, RegionId};
use crate::ids::Qpn;
use crate::mr::{Access, LocalKeys, MrTable, PdId};
use crate::psn::Psn;
use crate::qp::PeerQp;
use crate::qp::copy::Source;
use crate::qp::work::{MAX_MESSAGE, Sge};
use crate::wire::{
    Common, CommonExt, CommonHeaders, CommonOp, Frames, Opcode, Place, Template, UnitRun,
    write_single,
};

/// Where the packets of requests go, and the memory that they are read from.
trait Outlet {
    /// The place of an element, if the rights that are needed are granted on it.
    fn local(&mut self, sge: &Sge, needed: Access) -> Option<(RegionId, u64)>;

    /// The account of a packet that was written.
    type Written;

    /// Writes a packet with these headers and so many bytes from `place`, if there is one. `None` where it fails; nothing has
    /// changed then.
    fn push(
        &mut self,
        lens: (usize, usize),
        headers: impl FnOnce() -> CommonHeaders,
        place: Option<(RegionId, u64)>,
    ) -> Option<Self::Written>;
}

/// The outlet of a packet that is written alone.
pub(crate) struct Alone<'a, M, F> {
    /// The keys, and the domain under which they are checked.
    pub keys: (&'a MrTable, PdId),
    /// Registered bytes.
    pub memory: &'a mut M,
    /// Where the packet goes.
    pub frames: &'a mut F,
    /// Its headers down to UDP.
    pub template: &'a mut Template,
    /// Its identification.
    pub ip_id: u16,
}

impl<M: Memory, F: Frames> Outlet for Alone<'_, M, F> {
    /// Its bytes.
    type Written = usize;

    #[inline(always)]
    fn local(&mut self, sge: &Sge, needed: Access) -> Option<(RegionId, u64)> {
        let (mrs, pd) = self.keys;
        mrs.local(pd, sge.lkey, sge.addr, sge.len.into(), needed).ok()
    }

    #[inline(always)]
    fn push(
        &mut self,
        lens: (usize, usize),
        headers: impl FnOnce() -> CommonHeaders,
        place: Option<(RegionId, u64)>,
    ) -> Option<usize> {
        let Self { memory, frames, template, ip_id, .. } = self;
        let Some((region, offset)) = place else {
            return write_single(*frames, template, *ip_id, lens, headers, ());
        };
        let source = Source { memory: &mut **memory, region, offset };
        write_single(*frames, template, *ip_id, lens, headers, source)
    }
}

/// Writes new packets, one after the other; `SINGLE` where each is a unit.
struct Writer<'a, 'r, M, F, const SINGLE: bool> {
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
    /// The first packet that requested a response, and whether it is a READ.
    asked: Option<(Psn, bool)>,
}

impl<M: Memory, F: Frames, const SINGLE: bool> Outlet for Writer<'_, '_, M, F, SINGLE> {
    /// Its run knows.
    type Written = ();

    #[inline(always)]
    fn local(&mut self, sge: &Sge, needed: Access) -> Option<(RegionId, u64)> {
        self.keys.local(sge.lkey, sge.addr, sge.len.into(), needed).ok()
    }

    #[inline(always)]
    fn push(
        &mut self,
        lens: (usize, usize),
        headers: impl FnOnce() -> CommonHeaders,
        place: Option<(RegionId, u64)>,
    ) -> Option<()> {
        let Some((region, offset)) = place else {
            return self.run.push_common::<SINGLE>(lens, headers, ());
        };
        let source = Source { memory: &mut *self.memory, region, offset };
        self.run.push_common::<SINGLE>(lens, headers, source)
    }
}

impl Requester {
    /// Writes the packets that may leave into units of `run`, up to the first that has to go the general way. Returns
    /// the first of them that requested a response, and whether that is a READ.
    #[inline(never)]
    pub(crate) fn fill_common<M: Memory, F: Frames>(
        &self,
        cx: &mut Context<'_, M>,
        run: &mut UnitRun<'_, F>,
    ) -> Option<(Psn, bool)> {
        if run.is_single() {
            self.fill_run::<M, F, true>(cx, run)
        } else {
            self.fill_run::<M, F, false>(cx, run)
        }
    }

    #[inline(always)]
    fn fill_run<M: Memory, F: Frames, const SINGLE: bool>(
        &self,
        cx: &mut Context<'_, M>,
        run: &mut UnitRun<'_, F>,
    ) -> Option<(Psn, bool)> {
        let Context { peer, pd, mrs, memory, sq, .. } = cx;
        let (window, room) = self.room(sq);
        let mut writer = Writer::<_, _, SINGLE> {
            dest_qpn: peer.qpn,
            pmtu: peer.pmtu.bytes() as u32,
            quarter: ack_interval(window),
            reads_max: self.initiator_depth(),
            keys: LocalKeys::new(mrs, *pd),
            memory: &mut **memory,
            run,
            asked: None,
        };
        sq.send_new(room, |new| writer.write(new));
        writer.asked
    }

    /// The same for a queue of which one request waits, and takes one packet. Returns its bytes and its PSN, and whether it is
    /// a READ; `None` where it goes another way.
    #[inline(always)]
    pub(crate) fn fill_one<M: Memory, F: Frames>(
        &self,
        peer: &PeerQp,
        sq: &mut SendQueue,
        mut outlet: Alone<'_, M, F>,
    ) -> Option<(usize, Psn, bool)> {
        let (_, room) = self.room(sq);
        let may_read = sq.reads_in_flight() < self.initiator_depth();
        let pmtu = peer.pmtu.bytes() as u32;
        sq.send_one(room, |wqe, psn| {
            let sge = wqe.first();
            if !(1..=pmtu).contains(&sge.len) {
                return None;
            }
            write_request(&mut outlet, wqe.single(sge)?, (peer.qpn, psn), may_read)
        })
    }

    /// The window, and the packets that may leave of it.
    #[inline(always)]
    fn room(&self, sq: &SendQueue) -> (u32, u32) {
        let window = self.window_packets().min(sq.limit());
        (window, window.saturating_sub(sq.in_flight()))
    }
}

const SEND: u8 = SingleOp::Send as u8;
const WRITE: u8 = SingleOp::Write as u8;
const READ: u8 = SingleOp::Read as u8;

/// Writes the only packet of a request; of a READ, if one may leave, that of a response of one packet. Returns what the outlet
/// tells of it, and whether it is a READ; `None` where it goes another way.
#[inline(always)]
fn write_request<O: Outlet>(
    outlet: &mut O,
    request: Single,
    to: (Qpn, Psn),
    may_read: bool,
) -> Option<(O::Written, bool)> {
    match request.op {
        SingleOp::Send => write_only::<SEND, _>(outlet, request, to),
        SingleOp::Write => write_only::<WRITE, _>(outlet, request, to),
        SingleOp::Read if may_read => write_only::<READ, _>(outlet, request, to),
        SingleOp::Read => None,
    }
}

/// The same of one operation. Each has code of its own.
#[inline(always)]
fn write_only<const OP: u8, O: Outlet>(
    outlet: &mut O,
    Single { reth, sge, solicited, .. }: Single,
    (dest_qpn, psn): (Qpn, Psn),
) -> Option<(O::Written, bool)> {
    let read = OP == READ;
    let (opcode, ext) = match OP {
        SEND => (Opcode::SendOnly, CommonExt::None),
        WRITE => (Opcode::WriteOnly, CommonExt::Reth(reth)),
        _ => (Opcode::ReadRequest, CommonExt::Reth(reth)),
    };
    let needed = if read { Access::LOCAL_WRITE } else { Access::LOCAL_READ };
    let len = if read { 0 } else { sge.len as usize };
    let place = outlet.local(&sge, needed)?;
    let headers = || CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req: true, ext };
    let written = outlet.push((ext.len(), len), headers, (!read).then_some(place))?;
    Some((written, read))
}

impl<M: Memory, F: Frames, const SINGLE: bool> Writer<'_, '_, M, F, SINGLE> {
    #[inline(always)]
    fn write(&mut self, new: &NewPacket<'_>) -> Option<Sent> {
        if self.run.is_spent() { None } else { self.write_next(new) }
    }

    /// Apart from the loop, whose state would else take the registers.
    #[inline(never)]
    fn write_next(&mut self, new: &NewPacket<'_>) -> Option<Sent> {
        let sge = new.wqe.first();
        if new.packet > 0 || !(1..=self.pmtu).contains(&sge.len) {
            return self.write_part(new);
        }
        let (to, may_read) = ((self.dest_qpn, new.psn), new.reads < self.reads_max);
        let ((), read) = write_request(self, new.wqe.single(sge)?, to, may_read)?;
        self.asked(new.psn, read);
        Some(Sent { last: true, read })
    }

    /// A packet of a longer SEND or WRITE.
    #[inline(never)]
    fn write_part(&mut self, new: &NewPacket<'_>) -> Option<Sent> {
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
        if ack_req {
            self.asked(new.psn, false);
        }
        Some(Sent { last, read: false })
    }

    const fn asked(&mut self, psn: Psn, read: bool) {
        if self.asked.is_none() {
            self.asked = Some((psn, read));
        }
    }
}

impl Completer {
    /// Takes a response or an ACK. Returns false where it has to go the general way. [`Self::plain_data_ends`] is due behind
    /// responses.
    #[inline(always)]
    pub(crate) fn handle_common<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Common<'_>,
        cx: &mut completer::Context<'_, M>,
    ) -> bool {
        match packet.op {
            CommonOp::Response(place) => self.handle_response(place, packet, cx),
            _ => self.handle_ack(now, packet.psn(), cx),
        }
    }

    /// Takes the ACK of new packets of a queue pair that has no READ in flight and recovers from nothing. Returns false
    /// where it has to go the general way.
    #[inline]
    fn handle_ack<M>(
        &mut self,
        now: Instant,
        psn: Psn,
        cx: &mut completer::Context<'_, M>,
    ) -> bool {
        let usual = cx.sq.has_plain_data() && self.is_quiet() && cx.sq.expects(psn);
        if usual {
            self.plain_ack_came(now, psn, cx.sq, cx.out);
        }
        usual
    }

    /// Takes the next packet of the response to the oldest request. Returns false where it has to go the general way.
    #[inline]
    fn handle_response<M: Memory>(
        &mut self,
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
            cx.sq.next_response_taken(last, cx.out);
            self.plain_data_came(cx.sq);
        }
        placed
    }
}
