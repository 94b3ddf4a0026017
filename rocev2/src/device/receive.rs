//! The way in: a frame to the queue pair or the connection management that it is for.

use super::engine::{Engine, QpSlot, find};
use super::front::{Front, Heard};
use crate::counters::{Cells, Counter};
use crate::env::{Instant, Memory};
use crate::ids::Qpn;
use crate::path::{Paths, Source};
use crate::qp::Shared;
use crate::wire;
use crate::wire::{Common, DropReason, Flow, Frame, Inbound, Opcode, Packet, Segments};

impl Engine {
    /// Handles units that another core than the first received, oldest first: one frame each, or segments of so many bytes
    /// behind one header.
    pub fn handle_frames<'f, M: Memory>(
        &mut self,
        now: Instant,
        frames: impl IntoIterator<Item = (&'f [u8], Option<usize>)>,
        memory: &mut M,
    ) {
        self.handle_all(now, frames, memory, None);
    }

    /// The same on the first core, with its `front`.
    #[inline(always)]
    pub(super) fn handle_all<'f, M: Memory>(
        &mut self,
        now: Instant,
        frames: impl IntoIterator<Item = (&'f [u8], Option<usize>)>,
        memory: &mut M,
        mut front: Option<&mut Front>,
    ) {
        self.enter();
        let mut frames = frames.into_iter();
        let (mut next, mut received) = (frames.next(), Received::default());
        while let Some(first) = next {
            let before = received.packets;
            next = self.handle_common(now, first, &mut frames, memory, &mut received);
            let right = core::mem::take(&mut received.refused);
            // After a run, the next frame may begin another.
            if (right || received.packets == before)
                && let Some((frame, segment_len)) = next
            {
                if segment_len.is_some() || self.handle_known(now, (frame, right), memory).is_none()
                {
                    self.handle_unit(now, (frame, segment_len), memory, front.as_deref_mut());
                }
                next = frames.next();
            }
        }
        self.leave();
        self.counters.add_received(received.packets, received.bytes);
    }

    /// The short way, for `first` and the frames behind it, up to one that has to go another way, or the end of a run of one
    /// queue pair. Counts the packets that it took, and returns the first frame that it did not.
    #[inline(always)]
    fn handle_common<'f, M: Memory>(
        &mut self,
        now: Instant,
        first: Frame<'f>,
        frames: &mut impl Iterator<Item = Frame<'f>>,
        memory: &mut M,
        received: &mut Received,
    ) -> Option<Frame<'f>> {
        let (mut frame, None) = first else { return Some(first) };
        let Some(mut qpn) = wire::destination_of(frame) else { return Some(first) };
        loop {
            let slot = self.slot_index(qpn);
            let Self { qps, mrs, reorder_pool, completions: out, lists, paths, .. } = self;
            let Some(entry) = find(qps, slot, qpn) else { break };
            let QpSlot { qp, flow: Some(flow), .. } = entry else { break };
            let Some(packet) = flow.look(frame) else { break };
            let shared = &mut Shared { mrs, memory: &mut *memory, reorder_pool, out };
            if !qp.take_single(now, &packet, shared) {
                let first = (frame, Some(packet));
                return self.handle_run(now, slot, first, frames, memory, received);
            }
            let bytes = flow.wire_len();
            qp.counters().add_received(1, bytes as u64);
            received.add(1, bytes);
            if entry.is_heard(paths) && entry.settles_at_once(lists) {
                entry.settle_received(slot, lists);
            } else {
                self.run_came(now, slot);
            }
            let next = frames.next();
            let Some((another, None)) = next else { return next };
            let Some(to) = wire::destination_of(another) else { return next };
            if to == qpn {
                // It was not alone.
                return self.handle_run(now, slot, (another, None), frames, memory, received);
            }
            (frame, qpn) = (another, to);
        }
        Some((frame, None))
    }

    /// The same for a run of packets of the queue pair in `slot`, from `frame` on, whose packet may have been looked at. Apart
    /// from packets that are alone, which do without the state of a run.
    #[inline(never)]
    fn handle_run<'f, M: Memory>(
        &mut self,
        now: Instant,
        slot: usize,
        (frame, first): (&'f [u8], Option<Common<'f>>),
        frames: &mut impl Iterator<Item = Frame<'f>>,
        memory: &mut M,
        received: &mut Received,
    ) -> Option<Frame<'f>> {
        let Self { qps, mrs, srqs, reorder_pool, completions: out, .. } = self;
        let Some(QpSlot { qp, shares, flow: Some(flow), .. }) = qps[slot].as_deref_mut() else {
            return Some((frame, None));
        };
        let srq_id = if *shares { qp.srq() } else { None };
        let srq = srq_id.and_then(|id| srqs.get_mut(id));
        let mut run = Inbound::new(flow, (frame, first.is_some()), frames);
        let shared = &mut Shared { mrs, memory, reorder_pool, out };
        match first {
            Some(first) => qp.handle_run_from(now, first, &mut run, srq, shared),
            None => qp.handle_run(now, &mut run, srq, shared),
        }
        let ((packets, bytes), (next, right)) = (run.taken(), run.next());
        received.refused = right;
        if packets > 0 {
            qp.counters().add_received(packets as u64, bytes as u64);
            received.add(packets, bytes);
            if let Some(id) = srq_id {
                srqs.list(id);
            }
            self.run_came(now, slot);
        }
        next
    }

    /// Notes that a QP has accepted packets of its flow, and looks at it.
    #[inline(never)]
    fn run_came(&mut self, now: Instant, slot: usize) {
        self.accepted_of_flow(now, slot);
        self.touch_shortly(slot);
    }

    /// Handles a frame like the last one that its QP accepted by the general way; see [`Flow`]. Its ICRC may be known to be
    /// right. `None` where it has to go that way itself.
    fn handle_known<M: Memory>(
        &mut self,
        now: Instant,
        (frame, right): (&[u8], bool),
        memory: &mut M,
    ) -> Option<()> {
        let qpn = wire::destination_of(frame)?;
        let slot = self.slot_index(qpn);
        let QpSlot { flow, .. } = find(&mut self.qps, slot, qpn)?;
        let packet = flow.as_mut()?.check(frame)?.packet(right)?;
        let handled = self.handle_rc(now, &packet, memory);
        count_received(&self.counters, packet.wire_len(), handled);
        Some(())
    }

    /// Handles any unit. Apart from the short way of frames, whose loop has all registers then.
    #[inline(never)]
    fn handle_unit<M: Memory>(
        &mut self,
        now: Instant,
        (frame, segment_len): Frame<'_>,
        memory: &mut M,
        mut front: Option<&mut Front>,
    ) {
        let mut packets = wire::parse_unit(frame, segment_len);
        if self.config.socket {
            packets.infer_ids();
        }
        loop {
            if self.config.short_ways {
                self.handle_segments(now, &mut packets, memory);
            }
            if let Some(head) = packets.next_mad() {
                packets
                    .take_gsi(front.as_deref_mut().is_some_and(|front| front.allows(now, &head)));
            }
            let Some(packet) = packets.next() else { break };
            match packet {
                // In a unit for several cores: theirs.
                Ok(packet) if self.is_foreign(packet.bth.dest_qpn) => {}
                Ok(packet) => {
                    let handled = self.handle_packet(now, &packet, memory, front.as_deref_mut());
                    count_received(&self.counters, packet.wire_len(), handled);
                    let flow_of = (handled.is_ok() && segment_len.is_none()).then_some(frame);
                    self.learn_flow(flow_of, &packet);
                }
                Err(reason) => self.counters.add(Counter::dropped(reason), 1),
            }
        }
    }

    /// The short way for what is left of a unit of several packets, up to one that has to go another way.
    fn handle_segments<M: Memory>(
        &mut self,
        now: Instant,
        segments: &mut Segments<'_>,
        memory: &mut M,
    ) {
        let Some(mut run) = segments.run() else { return };
        let (encap, qpn) = (*run.encap(), run.qpn());
        if self.check_ends(&encap).is_err() {
            return;
        }
        let slot = self.slot_index(qpn);
        let Some(QpSlot { qp, .. }) = find(&mut self.qps, slot, qpn) else { return };
        if !qp.is_peer(&encap) {
            return;
        }
        let Self { mrs, srqs, reorder_pool, completions: out, .. } = self;
        let srq_id = qp.srq();
        let srq = srq_id.and_then(|id| srqs.get_mut(id));
        qp.handle_run(now, &mut run, srq, &mut Shared { mrs, memory, reorder_pool, out });
        let (packets, bytes) = run.taken();
        if packets > 0 {
            qp.counters().add_received(packets as u64, bytes as u64);
            self.counters.add_received(packets as u64, bytes as u64);
            if let Some(id) = srq_id {
                srqs.list(id);
            }
            self.accepted(now, slot, Source::of(&encap));
            self.touch_shortly(slot);
        }
    }

    /// Makes the flow of a queue pair that of a packet that it accepted, if that came as a `frame` of its own. Only what comes as
    /// the peer's packets do may take the short ways; so a flow ends where they come from elsewhere.
    fn learn_flow(&mut self, frame: Option<&[u8]>, packet: &Packet<'_>) {
        let slot = self.slot_index(packet.bth.dest_qpn);
        if !self.config.short_ways {
            return;
        }
        let Some(entry) = find(&mut self.qps, slot, packet.bth.dest_qpn) else { return };
        if let Some(frame) = frame.filter(|_| entry.qp.is_peer_for_sure(&packet.encap)) {
            (entry.flow, entry.heard) = (Flow::of(frame, packet), None);
        } else if entry.flow.as_ref().is_some_and(|flow| !entry.qp.is_peer(flow.encap())) {
            (entry.flow, entry.heard) = (None, None);
        }
    }

    fn handle_packet<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        memory: &mut M,
        front: Option<&mut Front>,
    ) -> Result<(), DropReason> {
        self.check_ends(&packet.encap)?;
        if packet.bth.dest_qpn == Qpn::GSI {
            check_pkey(packet)?;
            let front = front.ok_or(DropReason::UnknownQpn)?;
            return front.handle_gsi(now, self, packet);
        }
        self.handle_rc(now, packet, memory)
    }

    /// Handles a packet for any QP but QP 1.
    fn handle_rc<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Result<(), DropReason> {
        check_pkey(packet)?;
        if packet.bth.opcode == Opcode::AckList {
            return self.handle_acks(now, packet, memory);
        }
        let qpn = packet.bth.dest_qpn;
        let slot = self.slot_index(qpn);
        let entry = find(&mut self.qps, slot, qpn).ok_or(DropReason::UnknownQpn)?;
        let Self { mrs, srqs, reorder_pool, completions: out, .. } = self;
        let srq_id = entry.qp.srq();
        let srq = srq_id.and_then(|id| srqs.get_mut(id));
        let handled = if packet.bth.opcode.is_connected() {
            entry.qp.handle_packet(now, packet, srq, &mut Shared { mrs, memory, reorder_pool, out })
        } else {
            Err(DropReason::TransportMismatch)
        };
        count_received(entry.qp.counters(), packet.wire_len(), handled);
        if let Some(id) = srq_id {
            srqs.list(id);
        }
        // A notification names no PSN, so it does not show that its sender has our REP.
        if handled.is_ok() && packet.bth.opcode != Opcode::Cnp {
            self.accepted(now, slot, Source::of(&packet.encap));
        }
        // A dropped packet may cause a response, too: the NAK of a gap.
        self.touch(slot);
        handled
    }

    /// Notes that a QP has accepted packets of its flow.
    fn accepted_of_flow(&mut self, now: Instant, slot: usize) {
        let Some(entry) = self.qps[slot].as_deref_mut() else { return };
        if !entry.is_heard(&self.paths) {
            let source = entry.flow.as_ref().map(|flow| Source::of(flow.encap()));
            let heard = source.is_some_and(|source| self.accepted(now, slot, source));
            if let Some(entry) = self.qps[slot].as_deref_mut() {
                entry.heard = heard.then_some(self.paths.origins());
            }
        }
    }

    /// Notes that a QP has accepted a packet from `source`. Returns whether the path is heard from there.
    pub(super) fn accepted(&mut self, now: Instant, slot: usize, source: Source) -> bool {
        let Some(entry) = self.qps[slot].as_deref_mut() else { return false };
        let heard = entry.path.is_some_and(|path| self.paths.heard(now, path, source));
        if entry.awaits_rtu && entry.conn.is_some() {
            entry.awaits_rtu = false;
            self.lists.heard_at = now;
            entry.hears(slot, &mut self.lists, Heard::DATA);
        }
        heard
    }
}

/// Packets that went the short way, and their bytes, which are counted together.
#[derive(Default)]
struct Received {
    packets: u64,
    bytes: u64,
    /// The frame that was not taken is a common packet with the right ICRC, which its QP has refused.
    refused: bool,
}

impl Received {
    const fn add(&mut self, packets: usize, bytes: usize) {
        self.packets += packets as u64;
        self.bytes += bytes as u64;
    }
}

impl QpSlot {
    /// Whether packets of its flow tell nothing new by their coming: it is established, and its path was told where they
    /// come from.
    #[inline(always)]
    fn is_heard(&self, paths: &Paths) -> bool {
        !self.awaits_rtu && self.heard == Some(paths.origins())
    }
}

fn check_pkey(packet: &Packet<'_>) -> Result<(), DropReason> {
    if packet.bth.is_of_default_partition() { Ok(()) } else { Err(DropReason::PKey) }
}

pub(super) fn count_received<const N: usize>(
    counters: &Cells<N>,
    wire_len: usize,
    handled: Result<(), DropReason>,
) {
    counters.add_received(1, wire_len as u64);
    if let Err(reason) = handled {
        counters.add(Counter::dropped(reason), 1);
    }
}
