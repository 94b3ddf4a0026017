//! One device: the sans-IO surface of the crate.
//!
//! Frames and posted work go in by `handle_*` and `post_*`; packets, completions and events come out by
//! `poll_*`. A device acts only inside a call.

use crate::cm::{self, Cm, CmConfig, CmEvent, ConnId, QpSide, ReadLimits, Tie};
use crate::counters::{Counters, QpCounters};
use crate::env::{Instant, Rng};
use crate::ids::Qpn;
use crate::mr::{MrTable, Registrar};
use crate::path::{PathIndex, PathNews, Paths};
use crate::psn::{Msn, Psn};
use crate::qp::{
    Completions, DcqcnConfig, Failure, MAX_READS, PeerQp, Posters, Qp, QpState, ReorderPool, Srqs,
    WcStatus, Window,
};
use crate::wire::mad::{Make, RejReason};
use crate::wire::{self, Encap, Flow, Ids, Pmtu};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU32;
use mad_limiter::MadLimiter;
use transmit::Headers;
use turns::{Lists, Sender};

pub use opening::Opening;

mod acks;
mod completions;
mod connections;
mod line;
mod mad_limiter;
mod memory;
mod opening;
mod paths;
mod posts;
mod qps;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;
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
    /// The frames stand for datagrams of a socket on port [`wire::ROCE_PORT`], of which the operating system writes the headers
    /// and shows no IPv4 identification; see [`wire::Segments::infer_ids`].
    pub socket: bool,
    /// QPs, at most; rounded up to a power of two. Their tables take memory as QPs are created.
    pub max_qps: usize,
    /// Keys, at most: registrations, and reserved keys. Never more than 2^20. Their tables take memory as
    /// keys are made.
    pub max_mrs: usize,
    /// Fast registrations that are posted and not in force, at most, of all QPs together, if the caller sees to
    /// that. With `None` there is room for as many as the queues hold, which is 8 bytes for each request.
    pub max_queued_mappings: Option<usize>,
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
    /// Common packets take ways of their own, which give the same packets and results; without them each takes the
    /// general way, for comparison.
    pub short_ways: bool,
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
            socket: false,
            max_qps: 64,
            max_mrs: 256,
            max_queued_mappings: None,
            max_reads: MAX_READS as u8,
            retry_count: 7,
            opening: Opening::default(),
            window: Window::default(),
            reorder_pool: 4 << 20,
            dcqcn: Some(DcqcnConfig::default()),
            short_ways: true,
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

/// Places of the table of QPs of a new device.
const FIRST_SLOTS: usize = 64;

/// A queue pair, and what the device knows of it. The fields that each packet needs stand first.
#[repr(C, align(64))]
struct QpSlot {
    /// Destroyed, but for completions to take.
    dead: bool,
    /// The RTU is missing: the first packet counts as one.
    awaits_rtu: bool,
    /// In the ready queue.
    scheduled: bool,
    /// In the list of those that something happened to.
    touched: bool,
    /// In the list of those with completions to take.
    finished: bool,
    /// Its failure is told, or to be told.
    failed: bool,
    /// It takes its receives from a shared queue, which [`Qp::srq`] names.
    shares: bool,
    /// The path of its packets; known once it is connected.
    path: Option<PathIndex>,
    qp: Qp,
    /// The headers of the last packet that it sent.
    template: Option<Headers>,
    /// [`Paths::origins`] when the path was told that the packets of `flow` come from where it is heard.
    heard: Option<NonZeroU32>,
    /// The headers of the last packet that took the general way to it.
    flow: Option<Flow>,
    conn: Option<ConnId>,
    posters: Posters,
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
    registrar: Registrar,
    mrs: MrTable,
    srqs: Srqs,
    reorder_pool: ReorderPool,
    cm: Cm,
    mad_limiter: MadLimiter,
    paths: Paths,
    lists: Lists,
    /// The queue pair whose turn it is, and the packets and bytes that are left of it.
    sender: Option<Sender>,
    completions: Completions,
    counters: Arc<Counters>,
    ids: Ids,
    gsi_psn: Psn,
}

impl Device {
    /// A device with no objects.
    pub fn new(mut config: DeviceConfig) -> Self {
        let mut rng = Rng::from_seed(config.seed);
        config.max_qps = config.max_qps.next_power_of_two().clamp(2, 1 << 20);
        let slots = config.max_qps.min(FIRST_SLOTS);
        // A larger number could be negotiated, but not recorded; the excess would be refused as invalid.
        config.max_reads = config.max_reads.min(MAX_READS as u8);
        config.cm.limits = ReadLimits { inbound: config.max_reads, outbound: config.max_reads };
        config.cm.retry_count = config.retry_count;
        config.cm.max_pmtu = Pmtu::for_mtu(config.mtu).unwrap_or(Pmtu::B256);
        let keeps = config.window.reorder_bytes > 0;
        config.cm.make = if keeps { Make::Keeper } else { Make::Other };
        let counters = Arc::default();
        let registrar = Registrar::new(rng.fork(), config.max_mrs, 1);
        Self {
            mrs: registrar.table(0),
            registrar,
            srqs: Srqs::default(),
            reorder_pool: ReorderPool::new(config.reorder_pool, config.cm.max_pmtu),
            cm: Cm::new(config.cm.clone(), rng.fork(), Arc::clone(&counters)),
            mad_limiter: MadLimiter::new(&config.cm),
            qps: (0..slots).map(|_| None).collect(),
            free: (0..slots).collect(),
            last_qpns: core::iter::repeat_n(Qpn::default(), slots).collect(),
            paths: Paths::new(&mut rng.fork()),
            lists: Lists::new(slots),
            sender: None,
            completions: Completions::new(config.max_queued_mappings),
            counters,
            ids: Ids::new(config.socket, rng.u32() as u16),
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
    pub fn qp_counters(&self, qpn: Qpn) -> Option<&Arc<QpCounters>> {
        self.slot(qpn).map(|(_, entry)| entry.qp.counters())
    }

    // ---- time and results ---------------------------------------------------------------------

    /// Acts on every deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        // A response that has come stops the timers that wait for it.
        self.settle();
        while let Some(slot) = self.lists.timers.pop_due(now) {
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            // The deadline has nearly always moved meanwhile, or there is none any more.
            match entry.qp.deadline() {
                None => continue,
                Some(later) if later > now => {
                    self.lists.timers.arm(slot, later);
                    continue;
                }
                Some(_) => {}
            }
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
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        if let Some(Sender { slot, .. }) = self.sender {
            self.touch(slot);
        }
        self.settle();
        Instant::earlier(self.lists.timers.next(), self.cm.poll_timeout())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.settle();
        if let Some(owner) = self.srqs.pop_low() {
            return Some(Event::SrqLow { owner });
        }
        // The failure of a QP comes before the end of its connection, but behind the loss of its path.
        self.poll_failure(|failure| !is_path_lost(failure))
            .or_else(|| self.poll_cm().map(Event::Cm))
            .or_else(|| self.poll_failure(is_path_lost))
    }

    // ---- inside -------------------------------------------------------------------------------

    /// The next failure of a QP, if it is one that `is` chooses.
    fn poll_failure(&mut self, is: impl Fn(Failure) -> bool) -> Option<Event> {
        let entry = self.qps[*self.lists.failures.front()?].as_deref()?;
        let failure = entry.qp.failure().filter(|failure| is(*failure))?;
        self.lists.failures.pop_front();
        Some(Event::QpFailed { qpn: entry.qp.qpn(), conn: entry.conn, failure })
    }

    /// The next event of a connection, after its effect on queue pair and path.
    fn poll_cm(&mut self) -> Option<CmEvent> {
        loop {
            let event = self.cm.poll_event()?;
            match &event {
                CmEvent::Connected { conn, .. } => self.bring_up(*conn),
                CmEvent::Established { conn } => {
                    if let Some((_, entry)) = self.slot_of(*conn) {
                        entry.awaits_rtu = false;
                    }
                }
                CmEvent::ConnectRequest { conn, peer, .. } => {
                    let Some(path) = self.paths.acquire(peer.path(), peer.hop) else {
                        self.cm.refuse_unseen(*conn, RejReason::NO_RESOURCES);
                        continue;
                    };
                    self.enter_path(*conn, path);
                }
                CmEvent::Closed { .. }
                | CmEvent::PathLost { .. }
                | CmEvent::Refused { .. }
                | CmEvent::TimedOut { .. }
                | CmEvent::PeerDisconnected { .. }
                | CmEvent::DisconnectDone { .. } => {}
            }
            return Some(event);
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

    /// A socket has one source port.
    const fn set_source_port(&self, encap: &mut Encap) {
        if self.config.socket {
            encap.src_port = wire::ROCE_PORT;
        }
    }

    /// Moves the QP of a connection to RTS, as its peer is now known.
    fn bring_up(&mut self, conn: ConnId) {
        let (Some(peer), Some(qp)) = (self.cm.peer(conn), self.cm.qp(conn)) else { return };
        let mut peer_qp = peer_qp(qp, peer, self.config.opening.msn);
        self.set_source_port(&mut peer_qp.encap);
        let path = self.cm.tie(conn).map(|tie| tie.path);
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

    const fn slot_index(&self, qpn: Qpn) -> usize {
        qpn.get() as usize & (self.qps.len() - 1)
    }

    fn slot(&self, qpn: Qpn) -> Option<(usize, &QpSlot)> {
        let slot = self.slot_index(qpn);
        let entry = self.qps[slot].as_deref().filter(|entry| entry.is(qpn))?;
        Some((slot, entry))
    }
}

#[inline]
fn find(qps: &mut [Option<Box<QpSlot>>], slot: usize, qpn: Qpn) -> Option<&mut QpSlot> {
    qps[slot].as_deref_mut().filter(|entry| entry.is(qpn))
}

/// Whether a QP failed because its path is gone, of which its connection tells first.
const fn is_path_lost(failure: Failure) -> bool {
    matches!(failure, Failure::Request { status: WcStatus::PathLost, .. })
}

/// The peer, as connection management found it, in the form that the engines need.
fn peer_qp(own: QpSide, peer: &cm::Peer, first_msn: Msn) -> PeerQp {
    PeerQp {
        make: peer.make,
        core_bits: peer.core_bits,
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
