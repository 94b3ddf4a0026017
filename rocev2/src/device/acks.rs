//! The lists of ACKs: those of several queue pairs to one peer of ours leave in one packet, and come in one.

use super::engine::{Engine, QpSlot, find};
use super::transmit::headers_of;
use crate::env::{Instant, Memory};
use crate::path::{PathIndex, Paths, Source};
use crate::qp::Shared;
use crate::timer::Timers;
use crate::wire::ack_list::{ACKS_MAX, Ack};
use crate::wire::{
    Aeth, Bth, CommonExt, CommonHeaders, DropReason, Ext, Frames, Opcode, Packet, write_single,
};
use alloc::boxed::Box;

/// Writes the ACKs of the queue pairs that come `next` into one packet, as far as these owe nothing else, and have one class, one
/// path, which is `over` if there is one, and one core of the peer, which alone is given the packet. Returns that path and their
/// number; `None` where there are not several such ACKs, or no buffer.
#[inline(never)]
pub(super) fn transmit(
    qps: &mut [Option<Box<QpSlot>>],
    (slots, timers): (&[usize], &mut Timers),
    (paths, ip_id): (&Paths, u16),
    over: Option<PathIndex>,
    frames: &mut impl Frames,
) -> Option<(PathIndex, usize)> {
    let front = qps[*slots.first()?].as_deref()?;
    let path = front.path.filter(|path| over.is_none_or(|over| over == *path))?;
    let (first, peer) = front.qp.listed_ack()?;
    let (room, core_bits, class) = (peer.pmtu.bytes(), peer.core_bits, front.qp.class());
    let (mut acks, mut count) = ([[0; Ack::LEN]; 1 + ACKS_MAX], 0);
    let most = slots.len().min(1 + room / Ack::LEN);
    for (place, slot) in acks.iter_mut().zip(&slots[..most]) {
        let alike = |entry: &&QpSlot| entry.path == Some(path) && entry.qp.class() == class;
        let entry = qps[*slot].as_deref().filter(alike);
        let Some((ack, _)) = entry.and_then(|entry| entry.qp.listed_ack()) else { break };
        *place = ack.emit();
        count += 1;
    }
    if core_bits > 0 {
        // The QPNs of a core differ in their lower bits alone.
        let (first, lower) = (first.dest_qpn.get(), 1 << (24 - core_bits));
        let other_core = |ack: &_| Ack::qpn_of(ack).get() ^ first >= lower;
        count = acks[..count].iter().position(other_core).unwrap_or(count);
    }
    let slots = slots.get(..count).filter(|slots| slots.len() > 1)?;
    // The peer knows the headers of one that has sent before.
    let known = |slot: &usize| qps[*slot].as_deref().is_some_and(|entry| entry.template.is_some());
    let head = slots.iter().position(known).unwrap_or_default();
    acks.swap(0, head);
    let QpSlot { qp, template, .. } = qps[slots[head]].as_deref_mut()?;
    let template = headers_of(template, qp, paths, path)?;
    let (first, _) = qp.listed_ack()?;
    let headers = || CommonHeaders {
        opcode: Opcode::AckList,
        dest_qpn: first.dest_qpn,
        psn: first.psn,
        solicited: false,
        ack_req: false,
        ext: CommonExt::Ack(first.msn),
    };
    let others = acks[1..count].as_flattened();
    let lens = (Aeth::LEN, others.len());
    let len = write_single(frames, template, ip_id, lens, headers, others)?;
    qp.count_sent(1, len);
    for &slot in slots {
        if let Some(entry) = qps[slot].as_deref_mut() {
            entry.qp.ack_listed();
            entry.end_short_turn(slot, timers);
        }
    }
    Some((path, count))
}

impl Engine {
    /// Handles a list of ACKs: each as a packet of its own.
    pub(super) fn handle_acks<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Result<(), DropReason> {
        let Packet { bth, ext: Ext::Aeth(Aeth { msn, .. }), payload, encap } = *packet else {
            return Err(DropReason::UnknownOpcode);
        };
        let slot = self.slot_index(bth.dest_qpn);
        let entry = find(&mut self.qps, slot, bth.dest_qpn).ok_or(DropReason::UnknownQpn)?;
        let admitted = entry.qp.admits_list(&encap);
        let path = entry.path.ok_or(DropReason::QpState);
        let first = Ack { dest_qpn: bth.dest_qpn, psn: bth.psn, msn };
        if admitted.is_ok() && path.is_ok() && !entry.qp.is_peer(&encap) {
            return self.handle_first_alone(now, (slot, first), packet, memory);
        }
        super::receive::count_received(entry.qp.counters(), packet.wire_len(), admitted);
        admitted?;
        let path = path?;
        self.accepted(now, slot, Source::of(&encap));
        let (mut next, mut others) = (Some(first), Ack::parse(payload));
        while let Some(ack) = next {
            self.handle_listed(now, ack, (packet, path), memory);
            next = others.next();
        }
        Ok(())
    }

    /// Handles a list that comes from elsewhere than the packets of the queue pair that it is for: as an ACK for that one and no
    /// other. Else each of its ACKs would be a guess of its number.
    #[inline(never)]
    fn handle_first_alone<M: Memory>(
        &mut self,
        now: Instant,
        (slot, first): (usize, Ack),
        list: &Packet<'_>,
        memory: &mut M,
    ) -> Result<(), DropReason> {
        let Self { qps, mrs, reorder_pool, completions: out, .. } = self;
        let entry = qps[slot].as_deref_mut().ok_or(DropReason::UnknownQpn)?;
        let shared = &mut Shared { mrs, memory, reorder_pool, out };
        let handled = entry.qp.handle_packet(now, &alone(first, list), None, shared);
        super::receive::count_received(entry.qp.counters(), list.wire_len(), handled);
        if handled.is_ok() {
            self.accepted(now, slot, Source::of(&list.encap));
        }
        self.touch(slot);
        handled
    }

    /// Handles an ACK that came in the list `packet` over `path`. It is nothing to a queue pair of another path, which has other
    /// addresses.
    #[inline(always)]
    fn handle_listed<M: Memory>(
        &mut self,
        now: Instant,
        ack: Ack,
        (packet, path): (&Packet<'_>, PathIndex),
        memory: &mut M,
    ) {
        let slot = self.slot_index(ack.dest_qpn);
        let Self { qps, mrs, reorder_pool, completions: out, lists, .. } = self;
        let Some(entry) = find(qps, slot, ack.dest_qpn) else { return };
        if entry.path != Some(path) {
            return;
        }
        let shared = &mut Shared { mrs, memory: &mut *memory, reorder_pool, out };
        match entry.qp.take_listed(now, ack.psn, shared) {
            Some(true) if !entry.awaits_rtu && entry.settles_at_once(lists) => {
                entry.settle_received(slot, lists);
            }
            Some(true) => self.listed_came(now, slot, packet),
            Some(false) => self.handle_unusual(now, slot, ack, packet, memory),
            None => {}
        }
    }

    #[inline(never)]
    fn listed_came(&mut self, now: Instant, slot: usize, packet: &Packet<'_>) {
        self.accepted(now, slot, Source::of(&packet.encap));
        self.touch_shortly(slot);
    }

    /// The general way of an ACK of a list: the same as that of a packet.
    #[inline(never)]
    fn handle_unusual<M: Memory>(
        &mut self,
        now: Instant,
        slot: usize,
        ack: Ack,
        list: &Packet<'_>,
        memory: &mut M,
    ) {
        let Self { qps, mrs, reorder_pool, completions: out, .. } = self;
        let Some(entry) = qps[slot].as_deref_mut() else { return };
        let shared = &mut Shared { mrs, memory, reorder_pool, out };
        match entry.qp.handle_listed(now, &alone(ack, list), shared) {
            Ok(()) => self.listed_came(now, slot, list),
            // One that says nothing new is no packet that was dropped.
            Err(_) => self.touch(slot),
        }
    }
}

/// An ACK of a list as a packet of its own.
fn alone<'a>(ack: Ack, list: &Packet<'_>) -> Packet<'a> {
    let bth = Bth::new(Opcode::Acknowledge, ack.dest_qpn, ack.psn);
    Packet { encap: list.encap, bth, ext: Ext::Aeth(ack.aeth()), payload: &[] }
}
