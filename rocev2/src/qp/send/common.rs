//! The short ways of requester and completer.
//!
//! The requester's is for new requests of one packet and one element, or READs with a response of one, of a queue pair
//! that sends nothing else (`Qp::look`); the completer's for the expected one of these responses. Whatever is not the
//! usual takes the general way ([`super::requester`], [`super::completer`]): nothing has changed then.

use super::completer::{self, Completer};
use super::entry::Single;
use super::requester::{Context, Requester};
use crate::env::{Instant, Memory};
use crate::mr::Access;
use crate::qp::work::Sge;
use crate::wire::{
    self, Bth, CommonHeaders, CommonOp, Ext, Frames, Opcode, Reth, UnitRun, UnitWriter,
};
use core::convert::Infallible;

impl Requester {
    /// Writes the requests that may leave into units of `run`, up to the first that has to go the general way.
    #[inline]
    pub(crate) fn fill_common<M: Memory, F: Frames>(
        &self,
        cx: &mut Context<'_, M>,
        run: &mut UnitRun<'_, F>,
    ) {
        let window = self.window_packets().min(cx.sq.limit());
        while run.push(|unit, max_packets| {
            let mut written = 0;
            while written < max_packets
                && cx.sq.in_flight() < window
                && self.write_next(cx, unit).is_some()
            {
                written += 1;
            }
            written
        }) {}
    }

    #[inline]
    fn write_next<M: Memory>(
        &self,
        cx: &mut Context<'_, M>,
        unit: &mut UnitWriter<'_>,
    ) -> Option<()> {
        let Single { op, sge, solicited } = cx.sq.new_request()?.single()?;
        let len = sge.len as usize;
        if !(1..=cx.peer.pmtu.bytes()).contains(&len) {
            return None;
        }
        let (dest_qpn, psn) = (cx.peer.qpn, cx.sq.next());
        let reth = match op {
            CommonOp::Send => None,
            CommonOp::Write(reth) => Some(reth),
            CommonOp::Read(reth) => return self.request_read(reth, sge, cx, unit),
            CommonOp::Response => return None,
        };
        let place = cx.mrs.local(cx.pd, sge.lkey, sge.addr, sge.len.into(), Access::LOCAL_READ);
        let (region, offset) = place.ok()?;
        let headers = CommonHeaders { dest_qpn, psn, solicited, reth };
        let memory = &mut *cx.memory;
        unit.push_common(&headers, len, |payload| memory.read(region, offset, payload).ok())?;
        cx.sq.single_sent(false);
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
        let ext = Ext::Reth(reth);
        if cx.sq.reads_in_flight() >= self.initiator_depth() || !unit.fits(ext.len(), 0) {
            return None;
        }
        let needed = Access::LOCAL_WRITE;
        cx.mrs.local(cx.pd, sink.lkey, sink.addr, sink.len.into(), needed).ok()?;
        let mut bth = Bth::new(Opcode::ReadRequest, cx.peer.qpn, cx.sq.next());
        bth.ack_req = true;
        unit.push(&bth, &ext, 0, |_| Ok::<(), Infallible>(())).ok()?;
        cx.sq.single_sent(true);
        Some(())
    }
}

impl Completer {
    /// Takes the response to the oldest request. Returns false where it has to go the general way.
    #[inline]
    pub(crate) fn handle_common<M: Memory>(
        &mut self,
        now: Instant,
        response: &wire::Common<'_>,
        cx: &mut completer::Context<'_, M>,
    ) -> bool {
        let len = response.payload.len() as u64;
        let sink = cx.sq.single_read(response.psn, len).filter(|_| self.is_quiet());
        let Some(Sge { addr, lkey, .. }) = sink else { return false };
        let place = cx.keys.mrs.local(cx.keys.pd, lkey, addr, len, Access::LOCAL_WRITE);
        let placed = place.is_ok_and(|(region, offset)| {
            cx.memory.write(region, offset, response.payload).is_ok()
        });
        if placed {
            let before = cx.sq.acked();
            cx.sq.single_read_taken(cx.out);
            self.data_came(now, before, cx.sq);
        }
        placed
    }
}
