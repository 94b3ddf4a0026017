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
use crate::qp::work::{MAX_MESSAGE, Sge};
use crate::wire::{
    Common, CommonExt, CommonHeaders, CommonOp, Frames, Opcode, Place, Reth, Template, write_single,
};

impl Responder {
    /// Executes a SEND or WRITE of one packet. `None` where it goes another way.
    #[inline(always)]
    pub(crate) fn handle_single<M: Memory>(
        &mut self,
        packet: &Common<'_>,
        cx: &mut Context<'_, M>,
    ) -> Option<()> {
        if packet.psn() != self.epsn || !self.reorder_buffer.is_empty() {
            return None;
        }
        if packet.op == CommonOp::Write {
            self.write_only(packet.reth()?, packet.payload, cx)?;
        } else {
            self.send_only(packet.solicited(), packet.payload, cx)?;
        }
        self.executed(packet.ack_req());
        self.gap_ended();
        Some(())
    }

    /// Executes a request; [`Self::run_ended`] follows behind the last of a run. `None` where it has to go the general way.
    #[inline(always)]
    pub(crate) fn handle_common<M: Memory>(
        &mut self,
        packet: &Common<'_>,
        cx: &mut Context<'_, M>,
    ) -> Option<()> {
        let (psn, payload) = (packet.psn(), packet.payload);
        if psn != self.epsn || !self.reorder_buffer.is_empty() {
            return None;
        }
        match packet.op {
            CommonOp::Write => self.write_only(packet.reth()?, payload, cx)?,
            CommonOp::WriteFirst => self.write_first(packet.reth()?, payload, cx)?,
            CommonOp::WriteNext(last) => self.write_next(last, payload, cx)?,
            CommonOp::Send(Place::Only) => self.send_only(packet.solicited(), payload, cx)?,
            CommonOp::Send(place) => self.send(place, packet.solicited(), payload, cx)?,
            CommonOp::Read => {
                let responses = self.accept_read(psn, packet.reth()?, cx)?;
                self.read_accepted(responses);
                return Some(());
            }
            CommonOp::Response(_) | CommonOp::Ack => return None,
        }
        self.executed(packet.ack_req());
        Some(())
    }

    /// Notes that packets were executed, since `epsn` was the expected one.
    pub(crate) fn run_ended(&mut self, epsn: Psn) {
        if self.epsn != epsn {
            self.gap_ended();
        }
    }

    /// The packet that was expected has come.
    #[inline(always)]
    const fn gap_ended(&mut self) {
        self.gap_since = None;
        self.unsolicited_ack.cancel();
    }

    /// Writes the ACK that is owed, with the headers of `template` and this identification. Returns its bytes; `None` where
    /// something else is owed, or it does not fit.
    #[inline(always)]
    pub(crate) fn fill_ack<F: Frames>(
        &mut self,
        peer: &PeerQp,
        frames: &mut F,
        template: &mut Template,
        ip_id: u16,
    ) -> Option<usize> {
        if !self.owes_ack() {
            return None;
        }
        let (psn, msn) = self.acknowledged()?;
        let ext = CommonExt::Ack(msn);
        let (opcode, dest_qpn) = (Opcode::Acknowledge, peer.qpn);
        let (solicited, ack_req) = (false, false);
        let headers = || CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
        let len = write_single(frames, template, ip_id, (ext.len(), 0), headers, ())?;
        self.ack_left();
        Some(len)
    }

    /// Notes that the ACK that is owed has left.
    #[inline(always)]
    pub(crate) fn ack_left(&mut self) {
        self.reply = None;
    }

    #[inline(always)]
    fn write_only<M: Memory>(
        &mut self,
        reth: Reth,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> Option<()> {
        let len = payload.len() as u64;
        if self.message != Message::None || u64::from(reth.len) != len || len > cx.pmtu() {
            return None;
        }
        let needed = Access::REMOTE_WRITE;
        let place = cx.mrs.remote_now(cx.pd, cx.qpn, reth.rkey, reth.va, len, needed);
        let (region, offset) = place.ok()?;
        cx.memory.write(region, offset, payload).ok()?;
        self.msn = self.msn.next();
        Some(())
    }

    /// The first packet of several: the whole range is checked.
    fn write_first<M: Memory>(
        &mut self,
        reth: Reth,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> Option<()> {
        let (len, written) = (u64::from(reth.len), payload.len() as u64);
        let first = self.message == Message::None && written == cx.pmtu();
        if !first || len <= written || len > MAX_MESSAGE {
            return None;
        }
        let target = cx.keys().remote(reth.rkey, reth.va, len, Access::REMOTE_WRITE).ok()?;
        cx.memory.write(cx.mrs.region(&target)?, target.offset, payload).ok()?;
        let (len, target, key) = (reth.len, Some(target), reth.rkey);
        self.message = Message::Write { written, len, target, key };
        Some(())
    }

    /// A later packet: the key has to be valid still.
    fn write_next<M: Memory>(
        &mut self,
        last: bool,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> Option<()> {
        let Message::Write { written, len, target: Some(target), key } = self.message else {
            return None;
        };
        let (end, pmtu) = (written + payload.len() as u64, cx.pmtu());
        let fits = if last {
            end == u64::from(len) && payload.len() as u64 <= pmtu
        } else {
            end < u64::from(len) && payload.len() as u64 == pmtu
        };
        if !fits {
            return None;
        }
        cx.memory.write(cx.mrs.region(&target)?, target.offset + written, payload).ok()?;
        self.message = Message::Write { written: end, len, target: Some(target), key };
        if last {
            self.end_message();
        }
        Some(())
    }

    /// A message of one packet, which the first element of the next receive has room for. From a shared queue none is
    /// here before the general way claims it.
    #[inline(always)]
    fn send_only<M: Memory>(
        &mut self,
        solicited: bool,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> Option<()> {
        let (len, pmtu, needed) = (payload.len() as u64, cx.pmtu(), Access::LOCAL_WRITE);
        if self.message != Message::None {
            return None;
        }
        let rqe = cx.rq.head()?;
        debug_assert!(cx.rq.is_own());
        let sge = rqe.first().filter(|sge| len <= pmtu && len <= u64::from(sge.len))?;
        let (region, offset) = cx.mrs.local(cx.rq.pd(), sge.lkey, sge.addr, len, needed).ok()?;
        cx.memory.write(region, offset, payload).ok()?;
        rqe.end(Received::success(len as u32, solicited));
        cx.rq.head_ended();
        self.msn = self.msn.next();
        Some(())
    }

    /// A packet of a message that the first element of a receive has room for.
    fn send<M: Memory>(
        &mut self,
        place: Place,
        solicited: bool,
        payload: &[u8],
        cx: &mut Context<'_, M>,
    ) -> Option<()> {
        let received = match self.message {
            Message::None if place.is_first() => 0,
            Message::Send { received } if !place.is_first() => received,
            Message::None | Message::Send { .. } | Message::Write { .. } => return None,
        };
        let (len, pmtu) = (payload.len() as u64, cx.pmtu());
        let total = received + len;
        if len > pmtu || !place.is_last() && len < pmtu || total > MAX_MESSAGE {
            return None;
        }
        cx.claim();
        let first = cx.rq.head().and_then(|rqe| rqe.first());
        let Sge { addr, lkey, .. } = first.filter(|sge| total <= u64::from(sge.len))?;
        let (at, needed) = (addr.wrapping_add(received), Access::LOCAL_WRITE);
        let (region, offset) = cx.mrs.local(cx.rq.pd(), lkey, at, len, needed).ok()?;
        cx.memory.write(region, offset, payload).ok()?;
        if place.is_last() {
            let len = total as u32;
            cx.rq.complete(Received::success(len, solicited), cx.out);
            self.end_message();
        } else {
            self.message = Message::Send { received: total };
        }
        Some(())
    }

    /// Accepts a READ. Returns the packets of its response; `None` where it is refused or has to go the general way.
    fn accept_read<M>(&mut self, psn: Psn, reth: Reth, cx: &Context<'_, M>) -> Option<u32> {
        let len = u64::from(reth.len);
        let usual = (1..=MAX_MESSAGE).contains(&len) && self.message == Message::None;
        if !usual || !self.reads.offered() {
            return None;
        }
        let target = read::check(reth, &cx.keys()).ok()?;
        let packets = if len <= cx.pmtu() { 1 } else { len.div_ceil(cx.pmtu()) as u32 };
        self.msn = self.msn.next();
        cx.tally.count(Counter::RxReadRequests);
        self.reads.accept(psn, packets, reth, target, self.msn);
        Some(packets)
    }
}
