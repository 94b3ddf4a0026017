//! The short ways of requester and completer.
//!
//! The requester's is for new packets of requests of one element, and READs with a response of one packet, of a queue
//! pair that sends nothing else (`Qp::look`); the completer's for the expected packet of a response, and for ACKs while
//! nothing is missing. Whatever is not the usual takes the general way ([`super::requester`], [`super::completer`]):
//! nothing has changed then.

use super::completer::{self, Completer};
use super::entry::{Single, SingleOp};
use super::queue::NextResponse;
use super::requester::{Context, Requester, ack_interval};
use crate::env::{Instant, Memory};
use crate::mr::Access;
use crate::psn::Psn;
use crate::qp::work::{MAX_MESSAGE, Sge};
use crate::wire::{
    Common, CommonExt, CommonHeaders, CommonOp, Frames, Opcode, Place, Reth, UnitRun,
};

/// The window of a run: packets that may leave, and those of one message after which an ACK is requested.
#[derive(Clone, Copy)]
struct Room {
    left: u32,
    quarter: u32,
}

/// A packet that was written.
struct Written {
    /// The last of its request.
    last: bool,
    read: bool,
}

impl Requester {
    /// Writes the packets that may leave into units of `run`, up to the first that has to go the general way. Returns
    /// the first of them that ended its request, and whether that is a READ.
    #[inline]
    pub(crate) fn fill_common<M: Memory, F: Frames>(
        &self,
        cx: &mut Context<'_, M>,
        run: &mut UnitRun<'_, F>,
    ) -> Option<(Psn, bool)> {
        if run.is_single() {
            self.fill_units::<true, _, _>(cx, run)
        } else {
            self.fill_units::<false, _, _>(cx, run)
        }
    }

    #[inline(always)]
    fn fill_units<const SINGLE: bool, M: Memory, F: Frames>(
        &self,
        cx: &mut Context<'_, M>,
        run: &mut UnitRun<'_, F>,
    ) -> Option<(Psn, bool)> {
        let window = self.window_packets().min(cx.sq.limit());
        let left = window.saturating_sub(cx.sq.in_flight());
        let (mut room, mut ended) = (Room { left, quarter: ack_interval(window) }, None);
        while room.left > 0
            && let Some(Written { last, read }) = self.write_next::<SINGLE, _, _>(cx, room, run)
        {
            room.left -= 1;
            if last && ended.is_none() {
                ended = Some((cx.sq.next(), read));
            }
            cx.sq.new_packet_sent(last, read);
        }
        ended
    }

    #[inline(always)]
    fn write_next<const SINGLE: bool, M: Memory, F: Frames>(
        &self,
        cx: &mut Context<'_, M>,
        room: Room,
        run: &mut UnitRun<'_, F>,
    ) -> Option<Written> {
        let (wqe, done) = cx.sq.new_packet()?;
        let Single { op, sge, solicited } = wqe.single()?;
        let left = u64::from(sge.len).checked_sub(done)?;
        if left == 0 || u64::from(sge.len) > MAX_MESSAGE {
            return None;
        }
        let pmtu = cx.peer.pmtu.bytes() as u64;
        let (first, last, len) = (done == 0, left <= pmtu, left.min(pmtu));
        let place = Place::of(first, last);
        let (opcode, ext) = match op {
            SingleOp::Send => (Opcode::send(place), CommonExt::None),
            SingleOp::Write(reth) if first => (Opcode::write(place), CommonExt::Reth(reth)),
            SingleOp::Write(_) => (Opcode::write(place), CommonExt::None),
            SingleOp::Read(reth) if place == Place::Only => {
                return self.request_read::<SINGLE, _, _>(reth, sge, cx, run);
            }
            SingleOp::Read(_) => return None,
        };
        let (addr, needed) = (sge.addr.wrapping_add(done), Access::LOCAL_READ);
        let (region, offset) = cx.mrs.local(cx.pd, sge.lkey, addr, len, needed).ok()?;
        let ack_req = last || room.requests_ack(done / pmtu);
        let (dest_qpn, psn, solicited) = (cx.peer.qpn, cx.sq.next(), solicited && last);
        let headers = CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
        let memory = &mut *cx.memory;
        run.push_common::<SINGLE>(&headers, len as usize, |payload| {
            memory.read(region, offset, payload).ok()
        })?;
        Some(Written { last, read: false })
    }

    /// Requests a response of one packet.
    fn request_read<const SINGLE: bool, M, F: Frames>(
        &self,
        reth: Reth,
        sink: Sge,
        cx: &Context<'_, M>,
        run: &mut UnitRun<'_, F>,
    ) -> Option<Written> {
        if cx.sq.reads_in_flight() >= self.initiator_depth() {
            return None;
        }
        let needed = Access::LOCAL_WRITE;
        cx.mrs.local(cx.pd, sink.lkey, sink.addr, sink.len.into(), needed).ok()?;
        let (opcode, dest_qpn, psn) = (Opcode::ReadRequest, cx.peer.qpn, cx.sq.next());
        let (solicited, ack_req, ext) = (false, true, CommonExt::Reth(reth));
        let headers = CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
        run.push_common::<SINGLE>(&headers, 0, |_| Some(()))?;
        Some(Written { last: true, read: true })
    }
}

impl Room {
    /// Whether packet `packet` of a message, not the last, requests an ACK: before the window is used up.
    const fn requests_ack(self, packet: u64) -> bool {
        self.left == 1 || (packet + 1).is_multiple_of(self.quarter as u64)
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
            _ => self.handle_ack(now, packet.psn, calm, cx),
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
        let next = cx.sq.next_response(response.psn, len).filter(|_| self.is_quiet());
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
            self.data_came(now, before, cx.sq);
        }
        placed
    }
}
