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
use crate::wire::{Reth, Single, SingleOp};

impl Responder {
    /// Executes a request. Returns false where it has to go the general way.
    #[inline]
    pub(crate) fn handle_single<M: Memory>(
        &mut self,
        single: &Single<'_>,
        cx: &mut Context<'_, M>,
    ) -> bool {
        let expected = single.psn == self.epsn
            && self.message == Message::None
            && self.reorder_buffer.is_empty()
            && single.payload.len() as u64 <= cx.pmtu();
        let executed = expected
            && match single.op {
                SingleOp::Write(reth) => write(reth, single.payload, cx),
                SingleOp::Send => send(single, cx),
                SingleOp::Read(reth) => return self.accept_read(single.psn, reth, cx),
                SingleOp::Response => false,
            };
        if executed {
            self.msn = self.msn.next();
            self.single_executed(single.ack_req);
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
fn send<M: Memory>(single: &Single<'_>, cx: &mut Context<'_, M>) -> bool {
    cx.claim();
    let len = single.payload.len() as u32;
    let Some(sge) = cx.rq.head().and_then(|rqe| rqe.first()).filter(|sge| len <= sge.len) else {
        return false;
    };
    let needed = Access::LOCAL_WRITE;
    let place = cx.mrs.local(cx.rq.pd(), sge.lkey, sge.addr, len.into(), needed);
    let placed =
        place.is_ok_and(|(region, offset)| cx.memory.write(region, offset, single.payload).is_ok());
    if placed {
        let solicited = single.solicited;
        let done = Received { status: WcStatus::Success, len, solicited, invalidated: None };
        cx.rq.complete(done, cx.out);
    }
    placed
}
