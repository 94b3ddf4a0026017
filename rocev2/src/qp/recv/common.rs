//! The short way of the responder: the expected request where it is one packet, and its response is.
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
use crate::qp::work::WcStatus;
use crate::wire::{Common, CommonOp, Reth};

impl Responder {
    /// Executes a request. Returns false where it has to go the general way.
    #[inline]
    pub(crate) fn handle_common<M: Memory>(
        &mut self,
        packet: &Common<'_>,
        cx: &mut Context<'_, M>,
    ) -> bool {
        let expected = packet.psn == self.epsn
            && self.message == Message::None
            && self.reorder_buffer.is_empty()
            && packet.payload.len() as u64 <= cx.pmtu();
        let executed = expected
            && match packet.op {
                CommonOp::Write(reth) => write(reth, packet.payload, cx),
                CommonOp::Send => send(packet, cx),
                CommonOp::Read(reth) => return self.accept_read(packet.psn, reth, cx),
                CommonOp::Response => false,
            };
        if executed {
            self.msn = self.msn.next();
            self.single_executed(packet.ack_req);
        }
        executed
    }

    fn single_executed(&mut self, answer: bool) {
        self.gap_since = None;
        self.unsolicited_ack.cancel();
        self.executed(1, answer);
    }

    /// Accepts a READ whose response is one packet. The response acknowledges it.
    fn accept_read<M>(&mut self, psn: Psn, reth: Reth, cx: &Context<'_, M>) -> bool {
        let single = (1..=cx.pmtu()).contains(&u64::from(reth.len)) && self.reads.offered();
        let Some(Ok(target)) = single.then(|| read::check(reth, &cx.keys())) else { return false };
        self.msn = self.msn.next();
        cx.tally.count(Counter::RxReadRequests);
        self.reads.accept(psn, 1, reth, target, self.msn);
        self.single_executed(false);
        true
    }
}

fn write<M: Memory>(reth: Reth, payload: &[u8], cx: &mut Context<'_, M>) -> bool {
    if u64::from(reth.len) != payload.len() as u64 {
        return false;
    }
    let (len, needed) = (u64::from(reth.len), Access::REMOTE_WRITE);
    let place = cx.mrs.remote_now(cx.pd, cx.qpn, reth.rkey, reth.va, len, needed);
    place.is_ok_and(|(region, offset)| cx.memory.write(region, offset, payload).is_ok())
}

/// Into the first element of a receive.
fn send<M: Memory>(packet: &Common<'_>, cx: &mut Context<'_, M>) -> bool {
    cx.claim();
    let len = packet.payload.len() as u32;
    let Some(sge) = cx.rq.head().and_then(|rqe| rqe.first()).filter(|sge| len <= sge.len) else {
        return false;
    };
    let needed = Access::LOCAL_WRITE;
    let place = cx.mrs.local(cx.rq.pd(), sge.lkey, sge.addr, len.into(), needed);
    let placed =
        place.is_ok_and(|(region, offset)| cx.memory.write(region, offset, packet.payload).is_ok());
    if placed {
        let solicited = packet.solicited;
        let done = Received { status: WcStatus::Success, len, solicited, invalidated: None };
        cx.rq.complete(done, cx.out);
    }
    placed
}
