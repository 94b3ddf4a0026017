//! The short way of the responder: the expected packet of a SEND or WRITE, or a READ; and the ACK.
//!
//! It asks the questions of the general way ([`super::responder`]) that such a packet raises, in one go. Wherever
//! the answer is not the usual one, nothing has changed, and the general way finds out what is wrong.

use super::queue::Received;
use super::read;
use super::responder::{Context, Message, Responder};
use crate::counters::Counter;
use crate::env::Memory;
use crate::mr::Access;
use crate::psn::Psn;
use crate::qp::PeerQp;
use crate::qp::work::{MAX_MESSAGE, Sge, WcStatus};
use crate::wire::{
    Common, CommonExt, CommonHeaders, CommonOp, Frames, Opcode, Place, Reth, UnitRun,
};

impl Responder {
    /// Executes a request. Returns false where it has to go the general way.
    #[inline(always)]
    pub(crate) fn handle_common<M: Memory>(
        &mut self,
        packet: &Common<'_>,
        cx: &mut Context<'_, M>,
    ) -> bool {
        let expected = packet.psn == self.epsn && self.reorder_buffer.is_empty();
        if !expected {
            return false;
        }
        let packets = match packet.op {
            CommonOp::Write(reth) => self.write_only(reth, packet.payload, cx).into(),
            CommonOp::WriteFirst(reth) => self.write_first(reth, packet.payload, cx).into(),
            CommonOp::WriteNext(last) => self.write_next(last, packet.payload, cx).into(),
            CommonOp::Send(place) => self.send(place, packet, cx).into(),
            CommonOp::Read(reth) => self.accept_read(packet.psn, reth, cx),
            CommonOp::Response(_) | CommonOp::Ack => 0,
        };
        if packets > 0 {
            self.gap_since = None;
            self.unsolicited_ack.cancel();
            // The response to a READ acknowledges it.
            self.executed(packets, packet.ack_req && !matches!(packet.op, CommonOp::Read(_)));
        }
        packets > 0
    }

    /// Writes the ACK that is owed; false where something else is owed, or it does not fit.
    #[inline]
    pub(crate) fn fill_ack<F: Frames>(&mut self, peer: &PeerQp, run: &mut UnitRun<'_, F>) -> bool {
        if !self.owes_ack() || run.is_spent() {
            return false;
        }
        let ext = CommonExt::Ack(self.msn);
        let (opcode, dest_qpn, psn) = (Opcode::Acknowledge, peer.qpn, self.epsn.prev());
        let (solicited, ack_req) = (false, false);
        let headers = || CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
        let filled = if run.is_single() {
            run.push_common::<true>((ext.len(), 0), headers, ())
        } else {
            run.push_common::<false>((ext.len(), 0), headers, ())
        };
        if filled.is_some() {
            self.reply = None;
        }
        filled.is_some()
    }

    #[inline(always)]
    fn write_only<M: Memory>(
        &mut self,
        reth: Reth,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> bool {
        let len = payload.len() as u64;
        if self.message != Message::None || u64::from(reth.len) != len || len > cx.pmtu() {
            return false;
        }
        let needed = Access::REMOTE_WRITE;
        let place = cx.mrs.remote_now(cx.pd, cx.qpn, reth.rkey, reth.va, len, needed);
        let written =
            place.is_ok_and(|(region, offset)| cx.memory.write(region, offset, payload).is_ok());
        if written {
            self.msn = self.msn.next();
        }
        written
    }

    /// The first packet of several: the whole range is checked.
    fn write_first<M: Memory>(
        &mut self,
        reth: Reth,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> bool {
        let (len, written) = (u64::from(reth.len), payload.len() as u64);
        let first = self.message == Message::None && written == cx.pmtu();
        if !first || len <= written || len > MAX_MESSAGE {
            return false;
        }
        let target = cx.keys().remote(reth.rkey, reth.va, len, Access::REMOTE_WRITE);
        let Ok(target) = target else { return false };
        let placed = cx
            .mrs
            .region(&target)
            .is_some_and(|region| cx.memory.write(region, target.offset, payload).is_ok());
        if placed {
            let (len, target, key) = (reth.len, Some(target), reth.rkey);
            self.message = Message::Write { written, len, target, key };
        }
        placed
    }

    /// A later packet: the key has to be valid still.
    fn write_next<M: Memory>(
        &mut self,
        last: bool,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> bool {
        let Message::Write { written, len, target: Some(target), key } = self.message else {
            return false;
        };
        let (end, pmtu) = (written + payload.len() as u64, cx.pmtu());
        let fits = if last {
            end == u64::from(len) && payload.len() as u64 <= pmtu
        } else {
            end < u64::from(len) && payload.len() as u64 == pmtu
        };
        let placed = fits
            && cx.mrs.region(&target).is_some_and(|region| {
                cx.memory.write(region, target.offset + written, payload).is_ok()
            });
        if placed {
            self.message = Message::Write { written: end, len, target: Some(target), key };
            if last {
                self.end_message();
            }
        }
        placed
    }

    /// A packet of a message that the first element of a receive has room for.
    fn send<M: Memory>(
        &mut self,
        place: Place,
        packet: &Common<'_>,
        cx: &mut Context<'_, M>,
    ) -> bool {
        let received = match self.message {
            Message::None if place.is_first() => 0,
            Message::Send { received } if !place.is_first() => received,
            Message::None | Message::Send { .. } | Message::Write { .. } => return false,
        };
        let (len, pmtu) = (packet.payload.len() as u64, cx.pmtu());
        let total = received + len;
        if len > pmtu || !place.is_last() && len < pmtu || total > MAX_MESSAGE {
            return false;
        }
        cx.claim();
        let first = cx.rq.head().and_then(|rqe| rqe.first());
        let Some(Sge { addr, lkey, .. }) = first.filter(|sge| total <= u64::from(sge.len)) else {
            return false;
        };
        let (at, needed) = (addr.wrapping_add(received), Access::LOCAL_WRITE);
        let placed = cx.mrs.local(cx.rq.pd(), lkey, at, len, needed);
        let placed = placed
            .is_ok_and(|(region, offset)| cx.memory.write(region, offset, packet.payload).is_ok());
        if placed && place.is_last() {
            let (len, solicited) = (total as u32, packet.solicited);
            let done = Received { status: WcStatus::Success, len, solicited, invalidated: None };
            cx.rq.complete(done, cx.out);
            self.end_message();
        } else if placed {
            self.message = Message::Send { received: total };
        }
        placed
    }

    /// Accepts a READ. Returns the packets of its response, 0 where it is refused or has to go the general way.
    fn accept_read<M>(&mut self, psn: Psn, reth: Reth, cx: &Context<'_, M>) -> u32 {
        let len = u64::from(reth.len);
        let usual = (1..=MAX_MESSAGE).contains(&len) && self.message == Message::None;
        if !usual || !self.reads.offered() {
            return 0;
        }
        let Ok(target) = read::check(reth, &cx.keys()) else { return 0 };
        let packets = if len <= cx.pmtu() { 1 } else { len.div_ceil(cx.pmtu()) as u32 };
        self.msn = self.msn.next();
        cx.tally.count(Counter::RxReadRequests);
        self.reads.accept(psn, packets, reth, target, self.msn);
        packets
    }
}
