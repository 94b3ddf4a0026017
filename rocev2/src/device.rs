//! One device: the sans-IO surface of the crate.
//!
//! Frames and posted work go in by `handle_*` and `post_*`; packets, completions and events come out by
//! `poll_*`. A device acts only inside a call.

use crate::cm::{self, Cm, CmConfig, CmEvent, ConnId, QpSide, ReadLimits};
use crate::counters::{Counter, Counters, Tally};
use crate::env::{Instant, Memory, Rng};
use crate::ids::Qpn;
use crate::mr::MrTable;
use crate::path::{Path, PathIndex, PathNews, Paths, Source};
use crate::psn::{Msn, Psn};
use crate::qp::{
    Completion, Completions, DcqcnConfig, Failure, MAX_READS, PeerQp, Posters, Qp, QpConfig,
    QpState, ReorderPool, Shared, Srqs, Window,
};
use crate::timer::Timers;
use crate::wire::mad::GSI_QKEY;
use crate::wire::{
    self, Bth, Deth, DropReason, Encap, Ext, Flow, Hop, Opcode, Packet, Pmtu, Template, Unit,
    UnitWriter,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use mad_limiter::MadLimiter;
use turns::Sender;

pub use opening::Opening;

mod connections;
mod mad_limiter;
mod memory;
mod opening;
mod paths;
mod posts;
#[cfg(test)]
mod tests;
mod turns;

/// The configuration of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Source of all randomness.
    pub seed: [u8; 32],
    /// The device's IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Bytes of an IP packet, at most.
    pub mtu: usize,
    /// QPs, at most; rounded up to a power of two.
    pub max_qps: usize,
    /// Keys, at most: registrations, and reserved keys. Never more than 2^18.
    pub max_mrs: usize,
    /// READs in flight per QP and direction, at most.
    pub max_reads: u8,
    /// Transport retries written into REQ, and made by our queue pairs at least, 0..=7.
    pub retry_count: u8,
    /// The opening values of connections.
    pub opening: Opening,
    /// The send window of each QP.
    pub window: Window,
    /// Bytes for packets that come before an earlier one, of all QPs together, in slots of a full packet.
    /// They are reserved when the device is made. A packet that finds no slot is dropped, and the peer
    /// sends it again.
    pub reorder_pool: usize,
    /// Congestion control; with `None` packets are not ECN-capable, no CNP is sent, and none has an effect.
    pub dcqcn: Option<DcqcnConfig>,
    /// Connection management.
    pub cm: CmConfig,
}

impl DeviceConfig {
    /// A small device for an Ethernet link: IP packets of 1500 bytes, 64 queue pairs, 256 keys, and the
    /// defaults of all else.
    ///
    /// `seed` is a secret: a host that knows it can forge packets. `ca_guid` is the device's identity
    /// towards peers, which no other device may have; see [`CmConfig::ca_guid`].
    pub fn new(seed: [u8; 32], addresses: Vec<IpAddr>, ca_guid: u64) -> Self {
        Self {
            seed,
            addresses,
            mtu: 1500,
            max_qps: 64,
            max_mrs: 256,
            max_reads: MAX_READS as u8,
            retry_count: 7,
            opening: Opening::default(),
            window: Window::default(),
            reorder_pool: 4 << 20,
            dcqcn: Some(DcqcnConfig::default()),
            cm: CmConfig { ca_guid, ..CmConfig::default() },
        }
    }
}

/// An event: anything but the end of a work request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "rare, and moved once")]
pub enum Event {
    /// An event of a connection.
    Cm(CmEvent),
    /// A QP went to the error state by itself.
    QpFailed {
        /// The QP.
        qpn: Qpn,
        /// Its connection.
        conn: Option<ConnId>,
        /// The error that ended it.
        failure: Failure,
    },
    /// A shared receive queue fell below its threshold; once for each time that it was armed.
    SrqLow {
        /// The caller's name for the queue.
        owner: u64,
    },
}

/// A connection that its owner has not released.
struct Conn {
    path: PathIndex,
    /// The caller's name for it.
    owner: Option<u64>,
}

struct QpSlot {
    qp: Qp,
    posters: Posters,
    conn: Option<ConnId>,
    /// The path of its packets; known once it is connected.
    path: Option<PathIndex>,
    /// The headers of the last packet that it sent, with the hop and the traffic class in them.
    template: Option<(Hop, u8, Template)>,
    /// The headers of the last packet that took the general way to it.
    flow: Option<Flow>,
    /// The RTU is missing: the first packet counts as one.
    awaits_rtu: bool,
    /// In the ready queue.
    scheduled: bool,
    /// In the list of those that something happened to.
    touched: bool,
    /// In the list of those with completions to take.
    finished: bool,
    /// Destroyed, but for completions to take.
    dead: bool,
    /// Its failure was reported.
    failed: bool,
}

/// A software RDMA NIC without clock, memory or wire.
///
/// ```
/// use rocev2::env::{Instant, RegionId};
/// use rocev2::mr::{Access, PdId, Registration};
/// use rocev2::qp::{PostError, QpConfig, RecvWr, SgList, Sge};
/// use rocev2::{Device, DeviceConfig};
///
/// let address = "10.0.0.1".parse()?;
/// let mut device = Device::new(DeviceConfig::new([7; 32], vec![address], 1));
///
/// // The memory behind region 5 is the caller's; its peers name it by a key.
/// let (pd, access) = (PdId(1), Access::LOCAL_WRITE | Access::REMOTE_READ);
/// let region = Registration { pd, region: RegionId(5), base: 0x1000, len: 4096, access };
/// let key = device.register(region).ok_or("no key is left")?;
///
/// let config = QpConfig { owner: 0, pd, send_depth: 8, send_sge: 16, recv_depth: 1, recv_sge: 16, srq: None };
/// let qpn = device.create_qp(&config).ok_or("no queue pair is left")?;
/// let lkey = rocev2::ids::Lkey::new(key.get());
/// let sgl = SgList::from_iter([Sge { addr: 0x1000, len: 64, lkey }]);
/// device.post_recv(qpn, RecvWr { id: 1, sgl: sgl.clone() })?;
/// assert_eq!(device.post_recv(qpn, RecvWr { id: 2, sgl }), Err(PostError::QueueFull));
///
/// // What is still posted completes when its queue pair goes.
/// device.destroy_qp(qpn);
/// let flushed = device.poll_completion().ok_or("nothing was flushed")?;
/// assert_eq!((flushed.id, flushed.status.to_string()), (1, "the request was flushed".into()));
/// assert_eq!(device.poll_timeout(), None::<Instant>);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Device {
    config: DeviceConfig,
    rng: Rng,
    qps: Vec<Option<Box<QpSlot>>>,
    /// Slots without a QP; the one that has been free for longest is near the front.
    free: VecDeque<usize>,
    /// The latest number drawn for each slot.
    last_qpns: Vec<Qpn>,
    mrs: MrTable,
    srqs: Srqs,
    reorder_pool: ReorderPool,
    cm: Cm,
    mad_limiter: MadLimiter,
    paths: Paths,
    conns: BTreeMap<ConnId, Conn>,
    timers: Timers,
    /// Queue pairs that may have something to send.
    ready: VecDeque<usize>,
    /// The queue pair whose turn it is, and the packets and bytes that are left of it.
    sender: Option<Sender>,
    /// Queue pairs that something happened to: after a burst their failures, deadlines and readiness are
    /// looked at once.
    touched: Vec<usize>,
    /// Queue pairs with completions to take.
    finished: VecDeque<usize>,
    completions: Completions,
    events: VecDeque<Event>,
    counters: Arc<Counters>,
    ip_id: u16,
    gsi_psn: Psn,
}

impl Device {
    /// A device with no objects.
    pub fn new(mut config: DeviceConfig) -> Self {
        let mut rng = Rng::from_seed(config.seed);
        let slots = config.max_qps.next_power_of_two().clamp(2, 1 << 20);
        // A larger number could be negotiated, but not recorded; the excess would be refused as invalid.
        config.max_reads = config.max_reads.min(MAX_READS as u8);
        config.cm.limits = ReadLimits { inbound: config.max_reads, outbound: config.max_reads };
        config.cm.retry_count = config.retry_count;
        config.cm.max_pmtu = Pmtu::for_mtu(config.mtu).unwrap_or(Pmtu::B256);
        let counters = Arc::default();
        Self {
            mrs: MrTable::new(rng.fork(), config.max_mrs),
            srqs: Srqs::default(),
            reorder_pool: ReorderPool::new(config.reorder_pool, config.cm.max_pmtu),
            cm: Cm::new(config.cm.clone(), rng.fork(), Arc::clone(&counters)),
            mad_limiter: MadLimiter::new(&config.cm),
            qps: (0..slots).map(|_| None).collect(),
            free: (0..slots).collect(),
            last_qpns: core::iter::repeat_n(Qpn::default(), slots).collect(),
            paths: Paths::default(),
            conns: BTreeMap::new(),
            timers: Timers::new(slots),
            ready: VecDeque::with_capacity(slots),
            sender: None,
            touched: Vec::with_capacity(slots),
            finished: VecDeque::with_capacity(slots),
            completions: Completions::new(config.max_mrs),
            events: VecDeque::new(),
            counters,
            ip_id: rng.u32() as u16,
            gsi_psn: Psn::default(),
            rng,
            config,
        }
    }

    /// The device's configuration.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Sets the link's rate, in bytes per second, up to which queue pairs recover. It has no effect without
    /// congestion control.
    pub fn set_line_rate(&mut self, line_rate: u64) {
        let Some(dcqcn) = &mut self.config.dcqcn else { return };
        if core::mem::replace(&mut dcqcn.line_rate, line_rate) != line_rate {
            self.qps.iter_mut().flatten().for_each(|entry| entry.qp.set_line_rate(line_rate));
        }
    }

    /// The device's counters. They may be kept, and read, after the device is gone.
    pub const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// A QP's counters; `None` where there is no such QP. They may be kept, and read, after the QP is gone.
    pub fn qp_counters(&self, qpn: Qpn) -> Option<&Arc<Counters>> {
        self.slot(qpn).map(|(_, entry)| entry.qp.counters())
    }

    // ---- queue pairs --------------------------------------------------------------------------

    /// Creates a QP in INIT; `None` where the table is full, or its shared receive queue unknown.
    pub fn create_qp(&mut self, config: &QpConfig) -> Option<Qpn> {
        if self.free.is_empty() {
            return None;
        }
        let recv_pd = match config.srq {
            Some(srq) => self.srqs.enter(srq)?,
            None => config.pd,
        };
        let slot = self.draw_slot()?;
        let qpn = self.draw_qpn(slot);
        let tally = Tally::new(Arc::clone(&self.counters));
        let (qp, posters) =
            Qp::new(qpn, config, recv_pd, self.config.window, self.config.dcqcn, tally);
        self.completions.reserve_mappings(qp.send_depth());
        self.qps[slot] = Some(Box::new(QpSlot {
            qp,
            posters,
            conn: None,
            path: None,
            template: None,
            flow: None,
            awaits_rtu: false,
            scheduled: false,
            touched: false,
            finished: false,
            dead: false,
            failed: false,
        }));
        Some(qpn)
    }

    /// Changes the caller's name for a QP, before anything is posted.
    pub fn set_qp_owner(&mut self, qpn: Qpn, owner: u64) {
        let slot = self.slot_index(qpn);
        if let Some(entry) = find(&mut self.qps, slot, qpn) {
            entry.qp.set_owner(owner);
        }
    }

    /// Destroys a QP; its posted requests complete flushed first. Another QP may take its place in the table once
    /// these completions are taken.
    pub fn destroy_qp(&mut self, qpn: Qpn) {
        self.flush_qp(qpn);
        self.settle();
        let Some((slot, entry)) = self.slot(qpn) else { return };
        let send_depth = entry.qp.send_depth();
        let (srq, path) = (entry.qp.srq(), entry.path);
        if let Some(path) = path {
            self.paths.release(path);
        }
        self.completions.unreserve_mappings(send_depth);
        if let Some(srq) = srq {
            self.srqs.leave(srq);
        }
        self.mrs.unbind_qp(qpn);
        self.sender.take_if(|sender| sender.slot == slot);
        if let Some(entry) = self.qps[slot].as_deref_mut() {
            (entry.dead, entry.path) = (true, None);
        }
        self.bury(slot);
    }

    /// Frees the slot of a destroyed QP, unless completions are to be taken.
    fn bury(&mut self, slot: usize) {
        let entry = self.qps[slot].take_if(|entry| entry.dead && !entry.qp.has_completions());
        if entry.is_some() {
            self.free.push_back(slot);
        }
    }

    /// Cancels everything posted on a QP; it is in the error state from here on.
    pub fn flush_qp(&mut self, qpn: Qpn) {
        let slot = self.slot_index(qpn);
        if let Some(entry) = find(&mut self.qps, slot, qpn) {
            entry.qp.flush(&mut self.completions);
            entry.qp.close_reorder_buffer(&mut self.reorder_pool);
            self.touch(slot);
        }
    }

    /// The state of a QP.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.slot(qpn).map(|(_, entry)| entry.qp.state())
    }

    /// Payload bytes of a full packet between a QP and its peer; `None` without one.
    pub fn qp_pmtu(&self, qpn: Qpn) -> Option<Pmtu> {
        self.slot(qpn)?.1.qp.peer().map(|peer| peer.pmtu)
    }

    /// The error that took a QP to the error state, if its owner did not; known with its first unsuccessful
    /// completion.
    pub fn qp_failure(&self, qpn: Qpn) -> Option<Failure> {
        self.slot(qpn)?.1.qp.failure()
    }

    /// READs that a QP may have in flight; 0 without a connection, or where none were negotiated.
    pub fn outbound_reads(&self, qpn: Qpn) -> u8 {
        let peer = self.slot(qpn).and_then(|(_, entry)| entry.qp.peer());
        peer.map_or(0, |peer| peer.outbound_reads)
    }

    /// The rate to which congestion control limits a QP, in bytes per second; `None` without a limit.
    pub fn qp_rate(&mut self, qpn: Qpn, now: Instant) -> Option<u64> {
        let slot = self.slot_index(qpn);
        find(&mut self.qps, slot, qpn)?.qp.rate(now)
    }

    // ---- packets ------------------------------------------------------------------------------

    /// Handles a received unit: one frame, or `segment_len`-byte segments behind one header.
    pub fn handle_frame<M: Memory>(
        &mut self,
        now: Instant,
        frame: &[u8],
        segment_len: Option<usize>,
        memory: &mut M,
    ) {
        let known = if segment_len.is_none() { self.parse_known(frame) } else { None };
        if let Some(packet) = known {
            let handled = self.handle_rc(now, &packet, memory);
            count_received(&self.counters, &packet, handled);
        } else {
            self.handle_unit(now, frame, segment_len, memory);
        }
    }

    /// Parses a frame like the last one that its QP accepted; see [`Flow`].
    fn parse_known<'a>(&self, frame: &'a [u8]) -> Option<Packet<'a>> {
        let (_, entry) = self.slot(wire::destination_of(frame)?)?;
        entry.flow.as_ref()?.parse(frame)
    }

    /// Handles any unit.
    fn handle_unit<M: Memory>(
        &mut self,
        now: Instant,
        frame: &[u8],
        segment_len: Option<usize>,
        memory: &mut M,
    ) {
        let mut packets = wire::parse_unit(frame, segment_len);
        loop {
            packets.take_gsi(self.mad_limiter.allows(now));
            let Some(packet) = packets.next() else { break };
            match packet {
                Ok(packet) => {
                    let handled = self.handle_packet(now, &packet, memory);
                    count_received(&self.counters, &packet, handled);
                    if handled.is_ok() && segment_len.is_none() {
                        self.learn_flow(frame, &packet);
                    }
                }
                Err(reason) => self.counters.add(Counter::dropped(reason), 1),
            }
        }
    }

    fn learn_flow(&mut self, frame: &[u8], packet: &Packet<'_>) {
        let slot = self.slot_index(packet.bth.dest_qpn);
        if let Some(entry) = find(&mut self.qps, slot, packet.bth.dest_qpn) {
            entry.flow = Flow::of(frame, packet);
        }
    }

    fn handle_packet<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Result<(), DropReason> {
        if !self.config.addresses.contains(&packet.encap.dst) {
            return Err(DropReason::AddressMismatch);
        }
        if packet.bth.dest_qpn == Qpn::GSI {
            check_pkey(packet)?;
            return self.handle_gsi(now, packet);
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
        let qpn = packet.bth.dest_qpn;
        let slot = self.slot_index(qpn);
        let entry = find(&mut self.qps, slot, qpn).ok_or(DropReason::UnknownQpn)?;
        let Self { mrs, srqs, reorder_pool, completions: out, .. } = self;
        let srq_id = entry.qp.srq();
        let srq = srq_id.and_then(|id| srqs.get_mut(id));
        let rc = packet.bth.opcode == Opcode::Cnp || packet.bth.opcode.is_rc();
        let handled = if rc {
            entry.qp.handle_packet(now, packet, srq, &mut Shared { mrs, memory, reorder_pool, out })
        } else {
            Err(DropReason::TransportMismatch)
        };
        count_received(entry.qp.counters(), packet, handled);
        if let Some(id) = srq_id {
            srqs.list(id);
        }
        if handled.is_ok()
            && let Some(path) = entry.path
        {
            self.paths.heard(now, path, Source::of(&packet.encap));
        }
        if handled.is_ok()
            && entry.awaits_rtu
            && let Some(conn) = entry.conn
        {
            entry.awaits_rtu = false;
            self.cm.established_by_data(now, conn);
            self.pump_cm();
        }
        // A dropped packet may cause a response, too: the NAK of a gap.
        self.touch(slot);
        handled
    }

    fn handle_gsi(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), DropReason> {
        match packet.ext {
            Ext::Deth(Deth { qkey: GSI_QKEY, .. }) => {
                self.mad_limiter.received();
                self.cm.handle_packet(now, packet);
                // It may be forged, so it starts no more than a check.
                let path = Path { local: packet.encap.dst, remote: packet.encap.src };
                if let Some(path) = self.paths.find(path) {
                    self.paths.heard(now, path, Source::of(&packet.encap));
                }
                self.probe_peers(now);
                self.pump_cm();
                Ok(())
            }
            Ext::Deth(_) | Ext::DethImm(..) => Err(DropReason::QKey),
            _ => Err(DropReason::TransportMismatch),
        }
    }

    /// Allows or stops the processing of received CM messages. These let unknown peers allocate memory; a
    /// caller that is short of memory stops them. They are then dropped and counted, and the peers resend
    /// them.
    pub fn admit_messages(&mut self, admitted: bool) {
        self.mad_limiter.set_closed(!admitted);
    }

    /// Writes the next unit of at most `max_packets` packets into `buf`; `None` where there is nothing to
    /// send. Queue pairs take turns. CM messages go before them, but not all the time.
    pub fn poll_transmit<M: Memory>(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        max_packets: usize,
        memory: &mut M,
    ) -> Option<Unit> {
        if self.mad_limiter.sends_first()
            && let Some(unit) = self.transmit_cm(buf)
        {
            return Some(unit);
        }
        let unit = self.transmit_qp(now, buf, max_packets, memory);
        if unit.is_some() {
            self.mad_limiter.qp_sent();
            return unit;
        }
        self.transmit_cm(buf)
    }

    fn transmit_qp<M: Memory>(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        max_packets: usize,
        memory: &mut M,
    ) -> Option<Unit> {
        self.settle();
        // Each queue pair has one turn: a packet that does not fit `buf` leaves its queue pair ready.
        for _ in 0..=self.ready.len() {
            let Sender { slot, units, bytes } = self.next_sender()?;
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            let Some(path) = entry.path else { continue };
            let QpSlot { qp, template, .. } = entry;
            let hop = self.paths.hop(path);
            let Some(template) = template_of(template, qp, hop) else { continue };
            let mut unit = UnitWriter::new(buf, template, self.ip_id);
            let Self { mrs, reorder_pool, completions: out, .. } = self;
            let mut shared = Shared { mrs, memory, reorder_pool, out };
            let written = qp.fill(now, &mut unit, max_packets, &mut shared);
            let unit = unit.finish();
            let completed = qp.has_completions();
            if written > 0 && units > 1 && bytes > unit.len && qp.ready() {
                let (units, bytes) = (units - 1, bytes - unit.len);
                self.sender = Some(Sender { slot, units, bytes });
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

    // ---- time and results ---------------------------------------------------------------------

    /// Acts on every deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        // A response that has come stops the timers that wait for it.
        self.settle();
        while let Some(slot) = self.timers.pop_due(now) {
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            entry.qp.handle_timeout(now, &mut self.completions);
            if entry.is_stalled()
                && let Some(path) = entry.path
            {
                self.paths.doubt(now, path, PathNews::Silent);
            }
            self.touch(slot);
        }
        let Self { cm, paths, .. } = self;
        cm.handle_timeout(now, |path| {
            if let Some(index) = paths.find(path) {
                paths.doubt(now, index, PathNews::Silent);
            }
        });
        self.probe_peers(now);
        self.pump_cm();
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        if let Some(Sender { slot, .. }) = self.sender {
            self.touch(slot);
        }
        self.settle();
        [self.timers.next(), self.cm.poll_timeout()].into_iter().flatten().min()
    }

    /// The next completion, in order per queue.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.settle();
        while let Some(&slot) = self.finished.front() {
            if let Some(entry) = self.qps[slot].as_deref_mut() {
                if let Some(completion) = entry.qp.pop_completion() {
                    return Some(completion);
                }
                entry.finished = false;
            }
            self.finished.pop_front();
            self.bury(slot);
        }
        self.completions.pop()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.pump_cm();
        let low = self.srqs.pop_low().map(|owner| Event::SrqLow { owner });
        low.or_else(|| self.events.pop_front())
    }

    // ---- inside -------------------------------------------------------------------------------

    fn pump_cm(&mut self) {
        // The failure of a QP comes before the end of its connection.
        self.settle();
        while let Some(event) = self.cm.poll_event() {
            match &event {
                CmEvent::Connected { conn, .. } => self.bring_up(*conn),
                CmEvent::Established { conn } => {
                    if let Some((_, entry)) = self.slot_of(*conn) {
                        entry.awaits_rtu = false;
                    }
                }
                CmEvent::Closed { conn } => self.leave_path(*conn),
                CmEvent::ConnectRequest { conn, peer, .. } => {
                    self.enter_path(*conn, peer.path(), peer.hop);
                }
                CmEvent::PathLost { .. }
                | CmEvent::Refused { .. }
                | CmEvent::TimedOut { .. }
                | CmEvent::PeerDisconnected { .. }
                | CmEvent::DisconnectDone { .. } => {}
            }
            self.events.push_back(Event::Cm(event));
        }
    }

    /// Ties a QP to a connection, for which REQ or REP was sent.
    fn attach(&mut self, now: Instant, qpn: Qpn, conn: ConnId, awaits_rtu: bool) {
        let slot = self.slot_index(qpn);
        if let Some(entry) = find(&mut self.qps, slot, qpn) {
            (entry.conn, entry.awaits_rtu) = (Some(conn), awaits_rtu);
            entry.qp.seed_rtt(now);
        }
    }

    /// The queue pair of a connection. It may be gone, or belong to another connection by now, after a
    /// refusal of this one.
    fn slot_of(&mut self, conn: ConnId) -> Option<(usize, &mut QpSlot)> {
        let qpn = self.cm.qp(conn)?.qpn;
        let slot = self.slot_index(qpn);
        let entry = find(&mut self.qps, slot, qpn).filter(|entry| entry.conn == Some(conn))?;
        Some((slot, entry))
    }

    /// Moves the QP of a connection to RTS, as its peer is now known.
    fn bring_up(&mut self, conn: ConnId) {
        let (Some(peer), Some(qp)) = (self.cm.peer(conn), self.cm.qp(conn)) else { return };
        let peer_qp = peer_qp(qp, peer, self.config.opening.msn);
        let path = self.conns.get(&conn).map(|conn| conn.path);
        let Some((_, entry)) = self.slot_of(conn) else { return };
        if entry.qp.state() != QpState::Init {
            return;
        }
        entry.qp.connect(peer_qp);
        entry.path = path;
        if let Some(path) = path {
            self.paths.retain(path);
        }
    }

    /// Draws a slot from the half of the free ones that have been free for longest: the low bits of the
    /// next QPN cannot be guessed either, and a slot that was just given up is not used again soon.
    fn draw_slot(&mut self) -> Option<usize> {
        let oldest = self.free.len().div_ceil(2) as u32;
        let drawn = self.rng.below(oldest) as usize;
        self.free.swap_remove_front(drawn)
    }

    /// Draws a QPN. The slot is in the low bits, so that a packet finds its QP without a search. The other
    /// bits are random, so that a QPN cannot be guessed, and a stale one names no QP.
    fn draw_qpn(&mut self, slot: usize) -> Qpn {
        loop {
            let high = self.rng.u32() & !(self.qps.len() as u32 - 1);
            let qpn = Qpn::new(high | slot as u32);
            // Packets to a number that was just given up may still be in the network (time-wait).
            if qpn.is_connectable() && qpn != self.last_qpns[slot] {
                self.last_qpns[slot] = qpn;
                return qpn;
            }
        }
    }

    const fn slot_index(&self, qpn: Qpn) -> usize {
        qpn.get() as usize & (self.qps.len() - 1)
    }

    fn slot(&self, qpn: Qpn) -> Option<(usize, &QpSlot)> {
        let slot = self.slot_index(qpn);
        let entry = self.qps[slot].as_deref().filter(|entry| entry.is(qpn))?;
        Some((slot, entry))
    }
}

fn find(qps: &mut [Option<Box<QpSlot>>], slot: usize, qpn: Qpn) -> Option<&mut QpSlot> {
    qps[slot].as_deref_mut().filter(|entry| entry.is(qpn))
}

/// The headers of the next packet of a QP over `hop`; `None` where it has no peer.
fn template_of<'a>(
    known: &'a mut Option<(Hop, u8, Template)>,
    qp: &Qp,
    hop: Hop,
) -> Option<&'a Template> {
    let class = qp.traffic_class()?;
    if !known.as_ref().is_some_and(|(over, of, _)| (*over, *of) == (hop, class)) {
        *known = Some((hop, class, Template::new(&qp.encap(hop)?)));
    }
    known.as_ref().map(|(.., template)| template)
}

/// Full and limited members of the default partition match; reserved keys do not.
fn check_pkey(packet: &Packet<'_>) -> Result<(), DropReason> {
    let fits = packet.bth.pkey & 0x7fff == Bth::DEFAULT_PKEY & 0x7fff;
    if fits { Ok(()) } else { Err(DropReason::PKey) }
}

fn count_received(counters: &Counters, packet: &Packet<'_>, handled: Result<(), DropReason>) {
    counters.add(Counter::RcvdPkts, 1);
    counters.add(Counter::RcvdBytes, packet.wire_len() as u64);
    if let Err(reason) = handled {
        counters.add(Counter::dropped(reason), 1);
    }
}

/// The peer, as connection management found it, in the form that the engines need.
fn peer_qp(own: QpSide, peer: &cm::Peer, first_msn: Msn) -> PeerQp {
    PeerQp {
        qpn: peer.qpn,
        encap: Encap {
            src_mac: peer.hop.src_mac,
            dst_mac: peer.hop.dst_mac,
            vlan: peer.hop.vlan,
            src: peer.local.ip(),
            dst: peer.remote.ip(),
            traffic_class: peer.traffic_class,
            hop_limit: 64,
            ip_id: 0,
            flow_label: 0,
            src_port: wire::source_port(peer.flow_label, own.qpn, peer.qpn),
        },
        pmtu: peer.pmtu,
        send_psn: peer.starting_psn,
        recv_psn: own.starting_psn,
        first_msn,
        inbound_reads: peer.limits.inbound,
        outbound_reads: peer.limits.outbound,
        ack_timeout_code: peer.ack_timeout_code,
        retry_count: peer.retry_count,
        rnr_retry: peer.rnr_retry,
    }
}
