//! One device: the sans-IO surface of the crate.
//!
//! Frames and posted work go in by `handle_*` and `post_*`; packets, completions and events come out by
//! `poll_*`. A device acts only inside a call.
//!
//! A device is a [`Front`], which has its connections, and an [`Engine`] for each core, which has its queue pairs. One of one
//! core is both, and looks like one thing; of one of several cores, the engines may each be in the hands of another thread.

use crate::cm::{CmConfig, CmEvent, ConnId, ReadLimits};
use crate::env::Rng;
use crate::ids::{Qpn, core_bits};
use crate::mr::Registrar;
use crate::qp::{DcqcnConfig, Failure, MAX_READS, WcStatus, Window};
use crate::wire::Pmtu;
use crate::wire::mad::Make;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::{Deref, DerefMut};

pub use engine::Engine;
pub use front::Front;
pub use link_end::LinkEnd;
pub use opening::Opening;

mod acks;
mod completions;
mod connections;
mod engine;
mod front;
mod greylist;
mod line;
mod link_end;
mod mad_limiter;
mod memory;
mod one_core;
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
    /// Its end of the link.
    pub link: LinkEnd,
    /// Bytes of an IP packet, at most.
    pub mtu: usize,
    /// The frames stand for datagrams of a socket on port [`ROCE_PORT`](crate::wire::ROCE_PORT), of which the operating system writes the headers
    /// and shows no IPv4 identification; see [`infer_ids`](crate::wire::Segments::infer_ids).
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
    /// Bytes for packets that come before an earlier one, of all QPs together, in slots of a full packet of the port.
    /// They are reserved when the device is made, a part for each core. Where no slot is free, those peers give that hold
    /// most. A packet that finds no slot, or had to give it, is dropped, and the peer sends it again.
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
            link: LinkEnd::default(),
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

/// The engines of a device, for its front.
pub trait Engines {
    /// The one of the front's own core.
    fn first(&mut self) -> &mut Engine;

    /// The one that has the queue pair, or would have it.
    fn of(&mut self, qpn: Qpn) -> Option<&mut Engine>;

    /// Calls `each` with every one.
    fn for_each(&mut self, each: &mut dyn FnMut(&mut Engine));
}

impl Engines for Box<Engine> {
    #[inline(always)]
    fn first(&mut self) -> &mut Engine {
        self
    }

    #[inline(always)]
    fn of(&mut self, _: Qpn) -> Option<&mut Engine> {
        Some(self)
    }

    fn for_each(&mut self, each: &mut dyn FnMut(&mut Engine)) {
        each(self);
    }
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
pub struct Device<E = Box<Engine>> {
    /// Its connections.
    pub front: Front,
    /// Its queue pairs.
    pub engines: E,
}

impl Device {
    /// A device with no objects.
    pub fn new(config: DeviceConfig) -> Self {
        let (front, mut engines) = split(config, 1);
        Self { front: *front, engines: engines.remove(0) }
    }
}

/// A device of one core is its engine, and more.
impl Deref for Device {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engines
    }
}

impl DerefMut for Device {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engines
    }
}

/// The parts of a device of so many cores, at most [`MAX_CORES`](crate::ids::MAX_CORES): its front, and an engine for each core, the
/// first of which is the front's own. Each engine has room for `max_qps` queue pairs, and a reorder pool of the whole size.
// The parts pass through a frame of its own, which is gone before they are used.
#[inline(never)]
pub fn split(mut config: DeviceConfig, cores: usize) -> (Box<Front>, Vec<Box<Engine>>) {
    let mut rng = Rng::from_seed(config.seed);
    config.max_qps = config.max_qps.next_power_of_two().clamp(2, 1 << (20 - core_bits(cores)));
    // A larger number could be negotiated, but not recorded; the excess would be refused as invalid.
    config.max_reads = config.max_reads.min(MAX_READS as u8);
    config.cm.limits = ReadLimits { inbound: config.max_reads, outbound: config.max_reads };
    config.cm.retry_count = config.retry_count;
    config.cm.max_pmtu = Pmtu::for_mtu(config.mtu).unwrap_or(Pmtu::B256);
    let keeps = config.window.reorder_bytes > 0;
    config.cm.make = if keeps { Make::Keeper } else { Make::Other };
    // At least: for tests, a device may say that it has more.
    config.cm.core_bits = config.cm.core_bits.max(core_bits(cores) as u8);
    let registrar = Registrar::new(rng.fork(), config.max_mrs, cores);
    let engine = |core| {
        let mrs = registrar.table(core);
        Engine::boxed(config.clone(), (core, cores), mrs, rng.fork())
    };
    let mut engines: Vec<_> = (0..cores).map(engine).collect();
    let mut front = Front::boxed(&config, registrar, rng, Arc::clone(engines[0].counters()));
    let loopback_mac = link_end::loopback_mac(&mut front.rng.fork());
    engines.iter_mut().for_each(|engine| engine.loopback_mac = loopback_mac);
    (front, engines)
}

/// Whether a QP failed because its path is gone, of which its connection tells first.
const fn is_path_lost(failure: Failure) -> bool {
    matches!(failure, Failure::Request { status: WcStatus::PathLost, .. })
}
