//! The short way of the requester: new SENDs and WRITEs of one packet and one element, one after the other.
//!
//! It is for a queue pair that sends new packets and nothing else (`Qp::look`). Whatever is not the usual takes the
//! general way ([`super::requester`]): nothing has changed then.

use super::requester::{Context, Requester};
use crate::env::Memory;
use crate::mr::Access;
use crate::wire::{Reth, SingleHeaders, UnitWriter};

impl Requester {
    /// Writes the requests that may leave and fit `unit`, up to the first that has to go the general way. Returns the
    /// number of packets.
    #[inline]
    pub(crate) fn fill_singles<M: Memory>(
        &self,
        cx: &mut Context<'_, M>,
        unit: &mut UnitWriter<'_>,
        max_packets: usize,
    ) -> usize {
        let window = self.window_packets().min(cx.sq.limit());
        let mut written = 0;
        while written < max_packets && cx.sq.in_flight() < window && write_next(cx, unit).is_some()
        {
            written += 1;
        }
        written
    }
}

#[inline]
fn write_next<M: Memory>(cx: &mut Context<'_, M>, unit: &mut UnitWriter<'_>) -> Option<()> {
    let single = cx.sq.new_request()?.single()?;
    let (sge, len) = (single.sge, single.sge.len as usize);
    if !(1..=cx.peer.pmtu.bytes()).contains(&len) {
        return None;
    }
    let place = cx.mrs.local(cx.pd, sge.lkey, sge.addr, sge.len.into(), Access::LOCAL_READ);
    let (region, offset) = place.ok()?;
    let headers = SingleHeaders {
        dest_qpn: cx.peer.qpn,
        psn: cx.sq.next(),
        solicited: single.solicited,
        reth: single.write.map(|(va, rkey)| Reth { va, rkey, len: sge.len }),
    };
    let memory = &mut *cx.memory;
    unit.push_single(&headers, len, |payload| memory.read(region, offset, payload).ok())?;
    cx.sq.single_sent();
    Some(())
}
