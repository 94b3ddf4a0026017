//! The way out: the next unit, of connection management or of the queue pair whose turn it is.

use super::{Device, QpSlot};
use crate::cm;
use crate::counters::Counter;
use crate::env::{Instant, Memory};
use crate::ids::Qpn;
use crate::path::{Path, PathIndex, Paths};
use crate::qp::{Qp, Shared};
use crate::wire::mad::GSI_QKEY;
use crate::wire::{Bth, Deth, Ext, Opcode, Template, Unit, UnitWriter};

/// The headers of a QP's packets down to UDP, with what may change in them.
pub(super) struct Headers {
    template: Template,
    /// [`Paths::changes`] when they were made.
    hops: u32,
    traffic_class: u8,
}

impl Device {
    /// Writes the next unit of at most `max_packets` packets into `buf`; `None` where there is nothing to
    /// send. Queue pairs take turns. CM messages go before them, but not all the time.
    pub fn poll_transmit<M: Memory>(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        max_packets: usize,
        memory: &mut M,
    ) -> Option<Unit> {
        if self.cm.has_message()
            && self.mad_limiter.sends_first()
            && let Some(unit) = self.transmit_cm(buf)
        {
            return Some(unit);
        }
        let unit = self.transmit_qp(now, buf, max_packets, memory);
        if unit.is_some() {
            self.mad_limiter.qp_sent();
            return unit;
        }
        if self.cm.has_message() { self.transmit_cm(buf) } else { None }
    }

    fn transmit_qp<M: Memory>(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        max_packets: usize,
        memory: &mut M,
    ) -> Option<Unit> {
        self.settle();
        if let Some(unit) = self.transmit_singles(now, buf, max_packets, memory) {
            return Some(unit);
        }
        // Each queue pair has one turn: a packet that does not fit `buf` leaves its queue pair ready.
        for _ in 0..=self.ready.len() {
            let mut sender = self.next_sender()?;
            let slot = sender.slot;
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            let QpSlot { qp, template, path: Some(path), .. } = entry else { continue };
            let Some(template) = headers_of(template, qp, &self.paths, *path) else { continue };
            let mut unit = UnitWriter::new(buf, template, self.ip_id);
            let Self { mrs, reorder_pool, completions: out, .. } = self;
            let mut shared = Shared { mrs, memory, reorder_pool, out };
            let written = qp.fill(now, &mut unit, max_packets, &mut shared);
            let unit = unit.finish();
            let completed = qp.has_completions();
            if written > 0 && sender.goes_on(&unit) && qp.ready() {
                self.sender = Some(sender);
                if completed {
                    self.touch(slot);
                }
            } else {
                self.end_turn(slot);
            }
            if written > 0 {
                self.ip_id = self.ip_id.wrapping_add(written as u16);
                return Some(unit);
            }
        }
        None
    }

    /// The short way of [`Self::transmit_qp`]: the queue pair whose turn it is goes on with new requests.
    #[inline]
    pub(super) fn transmit_singles<M: Memory>(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        max_packets: usize,
        memory: &mut M,
    ) -> Option<Unit> {
        let Self { sender, mrs, reorder_pool, completions: out, .. } = self;
        let sender = sender.as_mut()?;
        let QpSlot { qp, template, .. } = self.qps[sender.slot].as_deref_mut()?;
        let headers = template.as_ref().filter(|known| known.hops == self.paths.changes())?;
        let mut unit = UnitWriter::new(buf, &headers.template, self.ip_id);
        let mut shared = Shared { mrs, memory, reorder_pool, out };
        let written = qp.fill_stream(now, &mut unit, max_packets, &mut shared);
        if written == 0 {
            return None;
        }
        self.ip_id = self.ip_id.wrapping_add(written as u16);
        let unit = unit.finish();
        if !sender.goes_on(&unit) || !qp.streams() {
            let slot = sender.slot;
            self.sender = None;
            self.end_turn(slot);
        }
        Some(unit)
    }

    fn transmit_cm(&mut self, buf: &mut [u8]) -> Option<Unit> {
        let cm::CmTransmit { mut encap, payload } = self.cm.poll_transmit()?;
        // Where the path is not in use, this is a reply to an unknown peer, and goes back to where the
        // message came from.
        if let Some(path) = self.paths.find(Path { local: encap.src, remote: encap.dst }) {
            encap.set_hop(self.paths.hop(path));
        }
        let bth = Bth::new(Opcode::UdSendOnly, Qpn::GSI, self.gsi_psn);
        self.gsi_psn = self.gsi_psn.add(1);
        let template = Template::new(&encap);
        let mut unit = UnitWriter::new(buf, &template, self.ip_id);
        self.ip_id = self.ip_id.wrapping_add(1);
        let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI });
        let Ok(()) = unit.push(&bth, &ext, payload.len(), |out| {
            out.copy_from_slice(&payload);
            Ok::<(), core::convert::Infallible>(())
        });
        self.counters.add(Counter::SentPkts, 1);
        self.counters.add(Counter::SentBytes, unit.wire_len() as u64);
        self.mad_limiter.sent();
        Some(unit.finish())
    }
}

/// The headers of the next packet of a QP over `path`; `None` where it has no peer.
fn headers_of<'a>(
    known: &'a mut Option<Headers>,
    qp: &Qp,
    paths: &Paths,
    path: PathIndex,
) -> Option<&'a Template> {
    let (traffic_class, hops) = (qp.traffic_class()?, paths.changes());
    let fits = |known: &Headers| known.hops == hops && known.traffic_class == traffic_class;
    if !known.as_ref().is_some_and(fits) {
        let template = Template::new(&qp.encap(paths.hop(path))?);
        *known = Some(Headers { template, hops, traffic_class });
    }
    known.as_ref().map(|known| &known.template)
}
