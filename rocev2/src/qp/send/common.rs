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
    Common, CommonExt, CommonHeaders, Frames, Opcode, Place, Reth, UnitRun, UnitWriter,
};

/// The window of a run: packets in flight, at most, and those of one message after which an ACK is requested.
#[derive(Clone, Copy)]
struct Room {
    window: u32,
    quarter: u32,
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
        let window = self.window_packets().min(cx.sq.limit());
        let (room, mut ended) = (Room { window, quarter: ack_interval(window) }, None);
        while run.push(|unit, max_packets| {
            let mut written = 0;
            while written < max_packets
                && cx.sq.in_flight() < window
                && self.write_next(cx, room, unit).is_some()
            {
                written += 1;
                if ended.is_none() && cx.sq.is_between() {
                    ended = Some((cx.sq.newest(), cx.sq.newest_is_read()));
                }
            }
            written
        }) {}
        ended
    }

    #[inline]
    fn write_next<M: Memory>(
        &self,
        cx: &mut Context<'_, M>,
        room: Room,
        unit: &mut UnitWriter<'_>,
    ) -> Option<()> {
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
                return self.request_read(reth, sge, cx, unit);
            }
            SingleOp::Read(_) => return None,
        };
        let (addr, needed) = (sge.addr.wrapping_add(done), Access::LOCAL_READ);
        let (region, offset) = cx.mrs.local(cx.pd, sge.lkey, addr, len, needed).ok()?;
        let ack_req = last || room.requests_ack(cx.sq.in_flight(), done / pmtu);
        let (dest_qpn, psn, solicited) = (cx.peer.qpn, cx.sq.next(), solicited && last);
        let headers = CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
        let memory = &mut *cx.memory;
        unit.push_common(&headers, len as usize, |payload| {
            memory.read(region, offset, payload).ok()
        })?;
        cx.sq.new_packet_sent(last, false);
        Some(())
    }

    /// Requests a response of one packet.
    fn request_read<M>(
        &self,
        reth: Reth,
        sink: Sge,
        cx: &mut Context<'_, M>,
        unit: &mut UnitWriter<'_>,
    ) -> Option<()> {
        if cx.sq.reads_in_flight() >= self.initiator_depth() {
            return None;
        }
        let needed = Access::LOCAL_WRITE;
        cx.mrs.local(cx.pd, sink.lkey, sink.addr, sink.len.into(), needed).ok()?;
        let (opcode, dest_qpn, psn) = (Opcode::ReadRequest, cx.peer.qpn, cx.sq.next());
        let (solicited, ack_req, ext) = (false, true, CommonExt::Reth(reth));
        let headers = CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
        unit.push_common(&headers, 0, |_| Some(()))?;
        cx.sq.new_packet_sent(true, true);
        Some(())
    }
}

impl Room {
    /// Whether packet `packet` of a message, not the last, requests an ACK while so many are in flight: before the
    /// window is used up.
    const fn requests_ack(self, in_flight: u32, packet: u64) -> bool {
        in_flight + 1 == self.window || (packet + 1).is_multiple_of(self.quarter as u64)
    }
}

impl Completer {
    /// Takes the ACK of new packets of a queue pair that has no READ in flight and recovers from nothing, as `calm` says
    /// already where it is true. Returns false where it has to go the general way.
    #[inline]
    pub(crate) fn handle_ack<M>(
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
    pub(crate) fn handle_response<M: Memory>(
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
