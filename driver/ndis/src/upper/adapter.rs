//! The upper half: one virtual adapter.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

mod attributes;
mod frames;

use super::config;
use super::ip::{self, AddressWatch, Neighbourhood};
use super::ndk::NdkState;
use super::oid;
use crate::abi::imports::{NdisMIndicateStatusEx, NdisReEnumerateProtocolBindings};
use crate::abi::*;
use crate::control::device;
use crate::keywords::{Config, Mode};
use crate::log::report;
use crate::lower::binding::{Binding, LinkState};
use crate::lower::lists::{Attachment, ListPool, LowerSide};
use crate::os::pool;
use crate::os::processor::Seating;
use crate::os::reserve;
use crate::os::runner::Runner;
use crate::os::sync::{Gate, SpinLock, sleep};
use crate::os::thread::{Order, Worker};
use crate::os::{Windows, entropy, etw};
use crate::pairing::DRIVER;
use crate::problems::Problem;
use crate::stage::Stage;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;
use core::task::Waker;
use core::time::Duration;
use driver::{Limits, PollCore, ProviderConfig, Shard};
use frames::Stats;
use netadapter_glue::Edge;
use netadapter_glue::ndis::{self as edge, Lower, NdisConfig, Ports, UNIT_MAX_LEN};
use once_cell::race::OnceBox;

/// A virtual adapter.
pub(crate) struct Adapter {
    pub(crate) handle: NDIS_HANDLE,
    pub(crate) luid: NET_LUID,
    /// The interface's index.
    pub(crate) interface: NET_IFINDEX,
    config: Config,
    /// The Ethernet address, fixed while the adapter runs.
    pub(crate) mac: [u8; 6],
    attachment: Arc<Attachment>,
    /// Frames between TCP/IP and us; closed while paused.
    pub(crate) up: Gate,
    filter: AtomicU32,
    multicast: SpinLock<MulticastList>,
    addresses: SpinLock<Addresses>,
    pub(crate) stats: Stats,
    pub(crate) ndk: NdkState,
    /// Those who read counters and connections; closed before it halts.
    pub(crate) readers: Arc<Gate>,
    running: OnceBox<Running>,
    /// Frames of the poll cores that the NIC has refused.
    refusals: AtomicU32,
}

// SAFETY: the handle is NDIS's, which may be used by any thread.
unsafe impl Send for Adapter {}
// SAFETY: as above; everything else is `Sync` by itself.
unsafe impl Sync for Adapter {}

/// The parts that exist from the end of the initialization to the halt.
struct Running {
    ports: Arc<Ports>,
    shard: Arc<Shard>,
    seating: Arc<Seating>,
    parts: SpinLock<Option<Parts>>,
}

/// The parts, in the order in which they end.
struct Parts {
    watch: AddressWatch,
    state_worker: Worker,
    runner: Runner,
}

pub(crate) type MulticastList = heapless::Vec<[u8; 6], { oid::MULTICAST_MAX }>;
type Addresses = heapless::Vec<IpAddr, ADDRESSES_MAX>;

impl Adapter {
    /// Starts an adapter. If a step fails, everything before it is undone. PASSIVE_LEVEL, inside
    /// `MiniportInitializeEx`.
    pub(crate) fn start(
        handle: NDIS_HANDLE,
        parameters: &NDIS_MINIPORT_INIT_PARAMETERS,
    ) -> Result<(), NDIS_STATUS> {
        // This takes a few names and texts, which the standing reserve covers.
        let config = config::read(handle, parameters.IfIndex)?;
        let _reserve = reserve::open(bytes_to_start(&config))?;
        if config.lower.is_empty() {
            report(parameters.IfIndex, Problem::NoLowerAdapter, 0, 0);
        }
        let mac = choose_mac(&config)?;
        let attachment = Attachment::new(ListPool::new(handle)?, config.tagging);
        let adapter = Arc::new(Self {
            handle,
            luid: parameters.NetLuid,
            interface: parameters.IfIndex,
            config,
            mac,
            attachment: Arc::new(attachment),
            up: Gate::shut(),
            filter: AtomicU32::new(0),
            multicast: SpinLock::new(MulticastList::new()),
            addresses: SpinLock::new(Addresses::new()),
            stats: Stats::default(),
            ndk: NdkState::new(),
            readers: Arc::new(Gate::shut()),
            running: OnceBox::new(),
            refusals: AtomicU32::new(0),
        });
        adapter.set_registration()?;
        adapter.set_general()?;
        adapter.set_ndk()?;
        adapter.run()?;
        if adapter.config.network_direct {
            DRIVER.reach(Stage::NdkOn);
            adapter.ndk.open();
        }
        // The context's count, which `halt` takes back.
        let _ = Arc::into_raw(Arc::clone(&adapter));
        DRIVER.in_turn(|| {
            if let Some(binding) = DRIVER.binding_for(&adapter) {
                // A NIC that cannot serve it is reported; the adapter lives without link.
                let _ = adapter.attach(&binding);
            }
            adapter.readers.open();
            DRIVER.add_adapter(adapter);
            device::register();
        });
        Ok(())
    }

    /// On a stack of its own, as for all that a start makes.
    #[inline(never)]
    fn run(self: &Arc<Self>) -> Result<(), NDIS_STATUS> {
        let mut seed = [0; 32];
        entropy(&mut seed)?;
        let mtu = self.config.roce_mtu();
        if mtu < self.config.frame_size + 96 {
            report(
                self.interface,
                Problem::FrameSizeReduced,
                self.config.frame_size as u32,
                mtu as u32,
            );
        }
        let sizes = NdisConfig {
            mac: self.mac,
            mtu,
            receive_depth: RECEIVE_DEPTH,
            transmit_depth: TRANSMIT_DEPTH,
            units: self.config.units(),
        };
        let seating = Arc::new(Seating::take(self.config.poll_cores));
        if seating.len() > 1 {
            pool::own_lines();
        }
        let lower = || Box::new(LowerSide(Arc::clone(&self.attachment))) as Box<dyn Lower>;
        let opened = edge::open_several(seating.len(), &lower, sizes);
        let (edges, ports) = opened.ok_or(NDIS_STATUS_RESOURCES)?;
        self.attachment.set_ports(&ports);
        let edges = edges.into_iter().map(|edge| Box::new(edge) as Box<dyn Edge + Send>).collect();
        let state_worker = Worker::start(&[Order::Oldest], 256)?;
        let remote_subnets = self.config.remote_subnets;
        let neighbourhood = Arc::new(Neighbourhood::new(self.luid, remote_subnets));
        let resolver = Arc::clone(&neighbourhood);
        let platform = Box::new(Windows::new(Arc::clone(&seating), resolver, self.interface));
        let config = provider_config(&self.config);
        let make = |wakers: &[Waker]| PollCore::several(edges, platform, config, seed, wakers);
        let runner = Runner::start(Arc::clone(&seating), make)?;
        let shard = Arc::clone(runner.shard());
        neighbourhood.set_shard(&shard);
        let watch = AddressWatch::start(self)?;
        self.ndk.set_worker(state_worker.jobs());
        let parts = Parts { watch, state_worker, runner };
        let running = Running { ports, shard, seating, parts: SpinLock::new(Some(parts)) };
        // `running` is set once.
        let _ = self.running.set(Box::new(running));
        Ok(())
    }

    /// Halts the adapter. NDIS has paused it before. PASSIVE_LEVEL, inside `MiniportHaltEx`.
    pub(crate) fn halt(self: Arc<Self>) {
        DRIVER.reach(Stage::Halting);
        // A binding in progress is complete before, or finds no adapter.
        DRIVER.in_turn(|| {
            DRIVER.remove_adapter(&self);
            if !DRIVER.has_adapters() {
                device::deregister();
            }
        });
        let parts = self.running().parts.lock().take();
        let Some(Parts { watch, state_worker, runner }) = parts else { return };
        // This comes before NDK is closed for good: a change in progress could open it once more.
        drop(state_worker);
        self.ndk.close_and_wait();
        drop(watch);
        // The core still exists and returns the lists that the NIC lent it.
        DRIVER.in_turn(|| {
            if let Some(binding) = self.attachment.binding() {
                binding.leave_adapter();
                etw::unbound(self.luid, binding.name());
            }
        });
        drop(runner);
        DRIVER.reach(Stage::Halted);
    }

    fn running(&self) -> &Running {
        let running = self.running.get();
        assert!(running.is_some(), "NDIS calls after the initialization only");
        running.unwrap_or_else(|| unreachable!())
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.running().ports
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.running().shard
    }

    pub(crate) fn lists(&self) -> &ListPool {
        &self.attachment.lists
    }

    pub(crate) fn map(&self, mdl: *mut MDL) -> *mut u8 {
        LowerSide(Arc::clone(&self.attachment)).map(mdl)
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.config.mtu
    }

    /// The room for a RoCE packet with its headers, in bytes.
    pub(crate) fn roce_mtu(&self) -> usize {
        self.config.roce_mtu()
    }

    /// The NIC that it is configured for.
    pub(crate) fn nic(&self) -> &[u16] {
        &self.config.lower
    }

    /// The link of its NIC, if it has one.
    pub(crate) fn link(&self) -> Option<LinkState> {
        self.attachment.binding().map(|binding| binding.link())
    }

    /// The attachment to the NIC, with the treatment of tags.
    pub(crate) fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Whether this is the name of its NIC.
    pub(crate) fn wants(&self, name: &[u16]) -> bool {
        self.config.names(name)
    }

    // ---- the NIC below ------------------------------------------------------------------------

    pub(crate) fn is_attached(&self) -> bool {
        self.attachment.binding().is_some()
    }

    /// Joins the adapter to its NIC. PASSIVE_LEVEL, in turn.
    pub(crate) fn attach(self: &Arc<Self>, binding: &Arc<Binding>) -> Result<(), NDIS_STATUS> {
        if binding.mtu() < self.mtu() {
            let (theirs, ours) = (binding.mtu() as u32, self.mtu() as u32);
            report(self.interface, Problem::LowerMtuTooSmall, theirs, ours);
            return Err(NDIS_STATUS_NOT_SUPPORTED);
        }
        if self.config.mode == Mode::Inherit && binding.mac != self.mac {
            report(self.interface, Problem::AddressDiffers, 0, 0);
        }
        DRIVER.reach(Stage::Binding);
        binding.set_filter(self.lower_filter(binding)).inspect_err(|status| {
            report(self.interface, Problem::FilterRefused, status.0.cast_unsigned(), 0);
        })?;
        drop(self.attachment.set_binding(Some(Arc::clone(binding))));
        binding.set_adapter(Arc::clone(self));
        self.follow_offers(binding);
        self.move_near(binding);
        etw::bound(self.luid, binding.name(), binding.link().speed);
        DRIVER.reach(Stage::Bound);
        self.indicate_link(binding.link());
        Ok(())
    }

    /// Moves the poll cores to the processors that are nearest to the NIC. PASSIVE_LEVEL, in turn.
    fn move_near(&self, binding: &Binding) {
        let running = self.running();
        if running.seating.move_near(&binding.distances())
            && let Some(parts) = &*running.parts.lock()
        {
            parts.runner.follow_seats();
        }
    }

    /// Whether it sends units where the NIC divides them.
    pub(crate) const fn has_units(&self) -> bool {
        self.config.units() > 0
    }

    /// Has the edge send units as far as the NIC divides them. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn follow_offers(&self, binding: &Binding) {
        if self.has_units() {
            binding.tell_offers(|offers| {
                let tags = self.attachment.tagging().tags_roce();
                self.ports().offer(if tags { offers.beside_tags() } else { offers });
            });
        }
    }

    /// Moves to a VLAN; 0: to none. PASSIVE_LEVEL.
    pub(crate) fn set_vlan(&self, vlan: u16) {
        self.attachment.set_vlan(vlan);
        if let Some(binding) = self.attachment.binding() {
            self.follow_offers(&binding);
        }
    }

    /// Parts from the NIC; nothing of it is in progress any more. PASSIVE_LEVEL, in turn.
    pub(crate) fn detach(&self, binding: &Arc<Binding>) {
        let attached = self.attachment.set_binding(None);
        debug_assert!(attached.is_none_or(|attached| Arc::ptr_eq(&attached, binding)));
        etw::unbound(self.luid, binding.name());
        self.indicate_link(LinkState { connected: false, speed: NDIS_LINK_SPEED_UNKNOWN });
    }

    /// The NIC's packet filter. It has all multicast, because the adapter's own list is kept here. Where
    /// the NIC has another address, it has everything, of which only our frames are taken.
    fn lower_filter(&self, binding: &Binding) -> u32 {
        let common =
            NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_ALL_MULTICAST | NDIS_PACKET_TYPE_BROADCAST;
        if binding.mac == self.mac { common } else { common | NDIS_PACKET_TYPE_PROMISCUOUS }
    }

    /// Tells NDIS the link's state. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn indicate_link(&self, link: LinkState) {
        let state =
            if link.connected { MediaConnectStateConnected } else { MediaConnectStateDisconnected };
        let mut buffer = NDIS_LINK_STATE {
            Header: header(NDIS_OBJECT_TYPE_DEFAULT, 1, size_of::<NDIS_LINK_STATE>()),
            MediaConnectState: state,
            MediaDuplexState: MediaDuplexStateFull,
            XmitLinkSpeed: link.speed,
            RcvLinkSpeed: link.speed,
            PauseFunctions: 0,
            AutoNegotiationFlags: 0,
        };
        let mut indication = NDIS_STATUS_INDICATION {
            Header: header(
                NDIS_OBJECT_TYPE_STATUS_INDICATION,
                1,
                size_of::<NDIS_STATUS_INDICATION>(),
            ),
            SourceHandle: self.handle,
            PortNumber: NDIS_DEFAULT_PORT_NUMBER,
            StatusCode: NDIS_STATUS_LINK_STATE,
            Flags: 0,
            DestinationHandle: null_mut(),
            RequestId: null_mut(),
            StatusBuffer: (&raw mut buffer).cast(),
            StatusBufferSize: size_of::<NDIS_LINK_STATE>() as ULONG,
            Guid: GUID { Data1: 0, Data2: 0, Data3: 0, Data4: [0; 8] },
            NdisReserved: [null_mut(); 4],
        };
        // SAFETY: both live during the call.
        unsafe { NdisMIndicateStatusEx(self.handle, &mut indication) };
    }

    // ---- addresses ----------------------------------------------------------------------------

    /// Sets the addresses of the interface, and the zone of those of its link. PASSIVE_LEVEL.
    pub(crate) fn set_addresses(&self, (addresses, zone): (Vec<IpAddr>, u32)) {
        *self.addresses.lock() = addresses.iter().copied().take(ADDRESSES_MAX).collect();
        let Some(running) = self.running.get() else { return };
        // The ring is full for moments only.
        while running.shard.set_addresses(addresses.clone(), zone).is_err() {
            sleep(Duration::from_millis(1));
        }
    }

    /// Checks the paths again, after a change of routes or interfaces. PASSIVE_LEVEL.
    pub(crate) fn check_paths(&self) {
        let Some(running) = self.running.get() else { return };
        // If the ring is full, the next check of the paths does it.
        let _ = running.shard.check_paths();
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses.lock().clone()
    }

    // ---- pause and restart --------------------------------------------------------------------

    /// Pauses: no frame passes any more when this returns. PASSIVE_LEVEL.
    pub(crate) fn pause(&self) {
        self.up.close();
        self.up.wait_empty();
    }

    /// PASSIVE_LEVEL.
    pub(crate) fn restart(self: &Arc<Self>) {
        self.up.open();
        match self.attachment.binding() {
            Some(binding) => self.indicate_link(binding.link()),
            None => {
                // Only NDIS can offer the NIC again, and not inside a handler.
                let job = Box::new(|| {
                    let protocol = DRIVER.protocol();
                    if !protocol.is_null() {
                        // SAFETY: registered, and deregistered only when these jobs have ended.
                        unsafe { NdisReEnumerateProtocolBindings(protocol) };
                    }
                });
                // If the queue is full, the next restart asks again.
                let _ = DRIVER.chores().is_some_and(|chores| chores.push(job));
            }
        }
    }
}

/// The provider's own configuration, as the keywords change it.
fn provider_config(keywords: &Config) -> ProviderConfig {
    let mut config = ProviderConfig::new(Vec::new());
    // The two bits below are for ECN.
    config.cm.traffic_class = keywords.dscp << 2;
    if !keywords.congestion_control {
        config.dcqcn = None;
    }
    if let Some(code) = keywords.ack_timeout_code {
        config.ack_timeout_code = code;
    }
    if let Some(count) = keywords.retry_count {
        config.retry_count = count;
    }
    config
}

/// The address that an adapter starts with. PASSIVE_LEVEL.
#[inline(never)]
fn choose_mac(config: &Config) -> Result<[u8; 6], NDIS_STATUS> {
    if let Some(address) = config.network_address {
        return Ok(address);
    }
    let lower = (config.mode == Mode::Inherit).then(|| ip::mac_of(&config.lower)).flatten();
    if let Some(address) = lower {
        return Ok(address);
    }
    if config.lower.is_empty() {
        let mut address = [0; 6];
        entropy(&mut address)?;
        return Ok(local(address));
    }
    // An address of its own, the same at every start: a digest (FNV-1a) of the name of the NIC.
    let digest = config.lower.iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, &unit| {
        (digest ^ u64::from(unit | 0x20)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [a, b, c, d, e, f, ..] = digest.to_le_bytes();
    Ok(local([a, b, c, d, e, f]))
}

/// Locally administered, for one station.
const fn local([first, rest @ ..]: [u8; 6]) -> [u8; 6] {
    let [b, c, d, e, f] = rest;
    [first & 0xfc | 2, b, c, d, e, f]
}

const RECEIVE_DEPTH: usize = 1024;
const TRANSMIT_DEPTH: usize = 512;
/// Memory of a poll core: tables of keys, objects, queue pairs and timers, and its rings.
const CORE_BYTES: usize = 8 << 20;
/// Memory of a frame beside its payload: headers, its place in a ring, alignment.
const FRAME_BYTES: usize = 128;

/// The memory that a start may allocate.
fn bytes_to_start(config: &Config) -> usize {
    let frames = (RECEIVE_DEPTH + TRANSMIT_DEPTH) * (config.roce_mtu() + FRAME_BYTES);
    let core = CORE_BYTES + frames + config.units() * (UNIT_MAX_LEN + FRAME_BYTES);
    // They are optional, but where the pool refuses them, the reserve is asked for them, too.
    let reorder_pools = Limits::default().reorder_pool;
    config.poll_cores * core + reorder_pools
}
const ADDRESSES_MAX: usize = 32;
