//! The upper half: one virtual adapter.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

mod attributes;
mod frames;
mod nic;

use super::config;
use super::ip::{self, AddressWatch, Neighbourhood};
use super::ndk::NdkState;
use super::qos::QosState;
use crate::abi::imports::NdisReEnumerateProtocolBindings;
use crate::abi::*;
use crate::control::device;
use crate::frame::ETHERNET_HEADER_LEN;
use crate::keywords::{Config, Mode};
use crate::log::report;
use crate::lower::binding::{LinkState, wait_for_frames};
use crate::lower::lists::{Attachment, ListPool, LowerSide};
use crate::lower::shown::ShownFrames;
use crate::os::pool;
use crate::os::processor::Seating;
use crate::os::reserve;
use crate::os::runner::Runner;
use crate::os::sync::{Gate, SpinLock, at_dispatch, sleep};
use crate::os::thread::{Order, Worker};
use crate::os::{Windows, entropy};
use crate::pairing::DRIVER;
use crate::problems::Problem;
use crate::sorting::{MULTICAST_MAX, Sorting};
use crate::stage::Stage;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::task::Waker;
use core::time::Duration;
use driver::{Limits, PollCore, ProviderConfig, Shard};
use frames::Stats;
use netadapter_glue::Edge;
use netadapter_glue::ndis::{self as edge, Lower, NdisConfig, Ports, UNIT_MAX_LEN};
use nic::choose_mac;
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
    sorting: Sorting,
    /// As TCP/IP has set it.
    multicast: SpinLock<MulticastList>,
    shown: Box<ShownFrames>,
    pub(crate) stats: Stats,
    pub(crate) ndk: NdkState,
    pub(super) qos: QosState,
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

pub(crate) type MulticastList = heapless::Vec<[u8; 6], MULTICAST_MAX>;

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
        let shown = ShownFrames::new(handle, frame_room(&config))?;
        let sorting = Sorting::new(mac, config.mode == Mode::Share);
        let adapter = Arc::new(Self {
            handle,
            luid: parameters.NetLuid,
            interface: parameters.IfIndex,
            config,
            mac,
            attachment: Arc::new(attachment),
            up: Gate::shut(),
            sorting,
            multicast: SpinLock::new(MulticastList::new()),
            shown,
            stats: Stats::default(),
            ndk: NdkState::new(),
            qos: QosState::new(),
            readers: Arc::new(Gate::shut()),
            running: OnceBox::new(),
            refusals: AtomicU32::new(0),
        });
        adapter.set_registration()?;
        adapter.set_general()?;
        adapter.set_hardware_assist()?;
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
        let binding =
            DRIVER.in_turn(|| self.attachment.binding().inspect(|binding| binding.begin_parting()));
        if let Some(binding) = binding {
            binding.part();
        }
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

    pub(crate) fn shown(&self) -> &ShownFrames {
        &self.shown
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

    /// Whether it has NDIS QoS, switched on or not.
    pub(crate) const fn has_qos(&self) -> bool {
        self.config.qos.is_some()
    }

    /// The DSCP of the keywords; 0 for none.
    pub(crate) const fn dscp(&self) -> u8 {
        self.config.dscp
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

    // ---- addresses ----------------------------------------------------------------------------

    /// Sets the addresses of the interface. PASSIVE_LEVEL, on the driver's thread.
    pub(crate) fn set_addresses(&self, found: &ip::Addresses) {
        at_dispatch(|| self.sorting.set_addresses(&found.usable, &found.claimed));
        let Some(running) = self.running.get() else { return };
        // The ring is full for moments only.
        while running.shard.set_addresses(found.usable.clone(), found.zone).is_err() {
            sleep(Duration::from_millis(1));
        }
    }

    /// Checks the paths again, after a change of routes or interfaces. PASSIVE_LEVEL.
    pub(crate) fn check_paths(&self) {
        let Some(running) = self.running.get() else { return };
        // If the ring is full, the next check of the paths does it.
        let _ = running.shard.check_paths();
    }

    // ---- pause and restart --------------------------------------------------------------------

    /// Pauses: no frame passes any more when this returns. PASSIVE_LEVEL.
    pub(crate) fn pause(&self) {
        self.up.close();
        // The others are copies that TCP/IP keeps.
        let sends = || self.up.inside().saturating_sub(self.shown.out());
        wait_for_frames(&self.up, || Some((self.interface, sends())));
    }

    /// PASSIVE_LEVEL.
    pub(crate) fn restart(self: &Arc<Self>) {
        self.up.open();
        self.tell_first_policy();
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
    let shown = ShownFrames::bytes(frame_room(config));
    // They are optional, but where the pool refuses them, the reserve is asked for them, too.
    let reorder_pools = Limits::default().reorder_pool;
    config.poll_cores * core + shown + reorder_pools
}

/// Bytes of a frame of TCP/IP, with a tag in it.
const fn frame_room(config: &Config) -> usize {
    config.mtu + ETHERNET_HEADER_LEN + 4
}
