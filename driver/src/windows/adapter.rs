//! The upper half: one virtual adapter.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

use super::DRIVER;
use super::binding::{Binding, LinkState};
use super::config::{Config, Mode};
use super::ip::{self, AddressWatch, Neighbourhood};
use super::lists::{Attachment, ListPool, LowerSide, retag};
use super::log::{Problem, report};
use super::ndk::NdkState;
use super::{header, oid};
use crate::abi::imports::{
    NdisCopySendNetBufferListInfo, NdisMIndicateReceiveNetBufferLists, NdisMIndicateStatusEx,
    NdisMSendNetBufferListsComplete, NdisMSetMiniportAttributes, NdisReEnumerateProtocolBindings,
};
use crate::abi::*;
use crate::core::{PollCore, ProviderConfig};
use crate::frame::{Cast, destination};
use crate::ndk::Control;
use crate::ndk::adapter::Limits;
use crate::platform::windows::reserve;
use crate::platform::windows::runner::Runner;
use crate::platform::windows::sync::{Gate, SpinLock, sleep};
use crate::platform::windows::thread::{Jobs, Worker};
use crate::platform::windows::{Windows, entropy};
use crate::ring::Shard;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use netadapter_glue::ndis::chain::{Chain, for_each};
use netadapter_glue::ndis::{self as edge, Lower as _, NdisConfig, Port};
use once_cell::race::OnceBox;

/// A virtual adapter.
pub(super) struct Adapter {
    pub(super) handle: NDIS_HANDLE,
    pub(super) luid: NET_LUID,
    config: Config,
    /// Its Ethernet address, fixed while it runs.
    pub(super) mac: [u8; 6],
    attachment: Arc<Attachment>,
    /// Frames between TCP/IP and us; shut while paused.
    pub(super) up: Gate,
    filter: AtomicU32,
    multicast: SpinLock<MulticastList>,
    addresses: SpinLock<Addresses>,
    pub(super) stats: Stats,
    pub(super) ndk: NdkState,
    running: OnceBox<Running>,
}

// SAFETY: the handle is NDIS's, which may be used by any thread.
unsafe impl Send for Adapter {}
// SAFETY: as above; everything else is `Sync` by itself.
unsafe impl Sync for Adapter {}

/// What exists from the end of the initialization to the halt.
struct Running {
    port: Arc<Port>,
    shard: Arc<Shard>,
    jobs: Jobs,
    parts: SpinLock<Option<Parts>>,
}

/// In the order in which they end.
struct Parts {
    watch: AddressWatch,
    worker: Worker,
    state_worker: Worker,
    runner: Runner,
}

pub(super) type MulticastList = heapless::Vec<[u8; 6], { oid::MULTICAST_MAX }>;
type Addresses = heapless::Vec<IpAddr, ADDRESSES_MAX>;

impl Adapter {
    /// Brings an adapter up. Whatever fails, everything before it is undone. PASSIVE_LEVEL, inside
    /// `MiniportInitializeEx`.
    pub(super) fn start(
        handle: NDIS_HANDLE,
        parameters: &NDIS_MINIPORT_INIT_PARAMETERS,
    ) -> Result<(), NDIS_STATUS> {
        let _reserve = reserve::open(reserve::ADAPTER_BYTES)?;
        let config = Config::read(handle)?;
        if config.lower.is_empty() {
            report(handle, Problem::NoLowerAdapter, 0, 0);
        }
        let mac = choose_mac(&config)?;
        let attachment = Attachment::new(ListPool::new(handle)?, config.tagging);
        let adapter = Arc::new(Self {
            handle,
            luid: parameters.NetLuid,
            config,
            mac,
            attachment: Arc::new(attachment),
            up: Gate::shut(),
            filter: AtomicU32::new(0),
            multicast: SpinLock::new(MulticastList::new()),
            addresses: SpinLock::new(Addresses::new()),
            stats: Stats::default(),
            ndk: NdkState::new(),
            running: OnceBox::new(),
        });
        adapter.set_registration()?;
        adapter.set_general()?;
        adapter.set_ndk()?;
        adapter.run()?;
        if adapter.config.network_direct {
            adapter.ndk.open();
        }
        if let Some(binding) = DRIVER.binding_for(&adapter) {
            // A NIC that cannot serve it is reported; the adapter lives without link.
            let _ = adapter.attach(&binding);
        }
        // The context's count, which `halt` takes back.
        let _ = Arc::into_raw(Arc::clone(&adapter));
        DRIVER.add_adapter(adapter);
        Ok(())
    }

    fn run(self: &Arc<Self>) -> Result<(), NDIS_STATUS> {
        let mut seed = [0; 32];
        entropy(&mut seed)?;
        let mtu = self.config.roce_mtu();
        if mtu < self.config.frame_size + 96 {
            report(
                self.handle,
                Problem::FrameSizeReduced,
                self.config.frame_size as u32,
                mtu as u32,
            );
        }
        let lower = Box::new(LowerSide(Arc::clone(&self.attachment)));
        let sizes = NdisConfig {
            mac: self.mac,
            mtu,
            receive_depth: RECEIVE_DEPTH,
            transmit_depth: TRANSMIT_DEPTH,
        };
        let (edge, port) = edge::open(lower, sizes).ok_or(NDIS_STATUS_RESOURCES)?;
        self.attachment.set_port(&port);
        let worker = Worker::start()?;
        let state_worker = Worker::start()?;
        let remote_subnets = self.config.remote_subnets;
        let neighbourhood = Arc::new(Neighbourhood::new(self.luid, remote_subnets, worker.jobs()));
        let platform = Box::new(Windows::new(Arc::clone(&neighbourhood)));
        let config = ProviderConfig::new(Vec::new());
        let runner = Runner::start(POLL_PROCESSOR, |waker| {
            PollCore::new(Box::new(edge), platform, config, seed, waker)
        })?;
        let shard = Arc::clone(runner.shard());
        neighbourhood.set_shard(&shard);
        let watch = AddressWatch::start(self, worker.jobs())?;
        let jobs = worker.jobs();
        self.ndk.set_worker(state_worker.jobs());
        let parts = Parts { watch, worker, state_worker, runner };
        let running = Running { port, shard, jobs, parts: SpinLock::new(Some(parts)) };
        // It is set once.
        let _ = self.running.set(Box::new(running));
        Ok(())
    }

    /// Takes the adapter down. NDIS has paused it before. PASSIVE_LEVEL, inside `MiniportHaltEx`.
    ///
    /// # Safety
    /// `context` is the context of a started adapter, and not used any more.
    pub(super) unsafe fn halt(context: NDIS_HANDLE) {
        // SAFETY: the count that `start` left.
        let adapter = unsafe { Arc::from_raw(context.cast::<Self>()) };
        DRIVER.remove_adapter(&adapter);
        adapter.ndk.close_and_wait();
        let parts = adapter.running().parts.lock().take();
        let Some(Parts { watch, worker, state_worker, runner }) = parts else { return };
        drop(watch);
        drop(worker);
        drop(state_worker);
        // The core is still there to give back what the NIC lent it.
        if let Some(binding) = adapter.attachment.binding() {
            binding.leave_adapter();
            drop(adapter.attachment.set_binding(None));
        }
        drop(runner);
    }

    fn running(&self) -> &Running {
        let running = self.running.get();
        assert!(running.is_some(), "NDIS calls after the initialization only");
        running.unwrap_or_else(|| unreachable!())
    }

    pub(super) fn port(&self) -> &Arc<Port> {
        &self.running().port
    }

    pub(super) fn shard(&self) -> &Arc<Shard> {
        &self.running().shard
    }

    pub(super) fn lists(&self) -> &ListPool {
        &self.attachment.lists
    }

    pub(super) fn map(&self, mdl: *mut MDL) -> *mut u8 {
        LowerSide(Arc::clone(&self.attachment)).map(mdl)
    }

    pub(super) const fn mtu(&self) -> usize {
        self.config.mtu
    }

    /// What joins it to its NIC, and how its frames are tagged.
    pub(super) fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    pub(super) const fn network_direct(&self) -> bool {
        self.config.network_direct
    }

    /// Whether this is the name of its NIC.
    pub(super) fn wants(&self, name: &[u16]) -> bool {
        self.config.names(name)
    }

    // ---- attributes ---------------------------------------------------------------------------

    fn set_registration(self: &Arc<Self>) -> Result<(), NDIS_STATUS> {
        let size = NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1;
        let mut attributes = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
            Header: header(NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, 1, size),
            MiniportAdapterContext: Arc::as_ptr(self).cast_mut().cast(),
            // A halt would wait for NDK consumers, who do not go because the system sleeps.
            AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM
                | NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK
                | NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND,
            CheckForHangTimeInSeconds: 0,
            InterfaceType: NdisInterfaceInternal,
        };
        self.set_attributes((&raw mut attributes).cast())
    }

    fn set_general(&self) -> Result<(), NDIS_STATUS> {
        let (mac_options, filters) = (oid::mac_options(self.config.tagging), oid::PACKET_FILTERS);
        let mut address = [0; NDIS_MAX_PHYS_ADDRESS_LENGTH];
        address[..6].copy_from_slice(&self.mac);
        let mut oids = oid::SUPPORTED;
        let mut attributes = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
            Header: header(
                NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
                2,
                size_of::<NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES>(),
            ),
            Flags: 0,
            MediaType: NdisMedium802_3,
            PhysicalMediumType: NdisPhysicalMedium802_3,
            MtuSize: self.config.mtu as ULONG,
            MaxXmitLinkSpeed: MAX_SPEED,
            XmitLinkSpeed: NDIS_LINK_SPEED_UNKNOWN,
            MaxRcvLinkSpeed: MAX_SPEED,
            RcvLinkSpeed: NDIS_LINK_SPEED_UNKNOWN,
            // Until the first restart, which tells the state of the NIC.
            MediaConnectState: MediaConnectStateDisconnected,
            MediaDuplexState: MediaDuplexStateFull,
            LookaheadSize: self.config.mtu as ULONG,
            PowerManagementCapabilities: null_mut(),
            MacOptions: mac_options,
            SupportedPacketFilters: filters,
            MaxMulticastListSize: oid::MULTICAST_MAX as ULONG,
            MacAddressLength: 6,
            PermanentMacAddress: address,
            CurrentMacAddress: address,
            RecvScaleCapabilities: null_mut(),
            AccessType: NET_IF_ACCESS_BROADCAST,
            DirectionType: NET_IF_DIRECTION_SENDRECEIVE,
            ConnectionType: NET_IF_CONNECTION_DEDICATED,
            IfType: IF_TYPE_ETHERNET_CSMACD,
            IfConnectorPresent: FALSE,
            SupportedStatistics: oid::STATISTICS,
            SupportedPauseFunctions: 0,
            DataBackFillSize: 0,
            ContextBackFillSize: 0,
            SupportedOidList: oids.as_mut_ptr(),
            SupportedOidListLength: size_of_val(&oids) as ULONG,
            AutoNegotiationFlags: 0,
            PowerManagementCapabilitiesEx: null_mut(),
        };
        self.set_attributes((&raw mut attributes).cast())
    }

    fn set_ndk(&self) -> Result<(), NDIS_STATUS> {
        let limits = Limits::default();
        let mut info = limits.info();
        let mut capabilities = NDIS_NDK_CAPABILITIES {
            Header: header(
                NDIS_OBJECT_TYPE_DEFAULT,
                NDIS_NDK_CAPABILITIES_REVISION_1,
                size_of::<NDIS_NDK_CAPABILITIES>(),
            ),
            Flags: 0,
            MaxQpCount: limits.qps as ULONG,
            MaxCqCount: limits.qps as ULONG,
            MaxMrCount: limits.mrs as ULONG,
            MaxPdCount: limits.mrs as ULONG,
            MaxInboundReadLimit: 0,
            MaxOutboundReadLimit: 0,
            MaxMwCount: 0,
            MaxSrqCount: 0,
            MissingCounterMask: super::ndk::MISSING_COUNTERS,
            NdkInfo: &mut info,
        };
        let mut attributes = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
            Header: header(
                NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
                NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
                size_of::<NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES>(),
            ),
            Enabled: self.config.network_direct.into(),
            NdkCapabilities: &mut capabilities,
        };
        self.set_attributes((&raw mut attributes).cast())
    }

    /// `attributes` begins with its header, and lives during the call.
    fn set_attributes(&self, attributes: *mut NDIS_OBJECT_HEADER) -> Result<(), NDIS_STATUS> {
        // SAFETY: the callers above.
        unsafe { NdisMSetMiniportAttributes(self.handle, attributes) }.ok()
    }

    // ---- the NIC below ------------------------------------------------------------------------

    pub(super) fn is_attached(&self) -> bool {
        self.attachment.binding().is_some()
    }

    /// Joins the adapter to its NIC. PASSIVE_LEVEL.
    pub(super) fn attach(self: &Arc<Self>, binding: &Arc<Binding>) -> Result<(), NDIS_STATUS> {
        if binding.mtu() < self.mtu() {
            let (theirs, ours) = (binding.mtu() as u32, self.mtu() as u32);
            report(self.handle, Problem::LowerMtuTooSmall, theirs, ours);
            return Err(NDIS_STATUS_NOT_SUPPORTED);
        }
        if self.config.mode == Mode::Inherit && binding.mac != self.mac {
            report(self.handle, Problem::AddressDiffers, 0, 0);
        }
        binding.set_filter(self.lower_filter(binding)).inspect_err(|status| {
            report(self.handle, Problem::FilterRefused, status.0.cast_unsigned(), 0);
        })?;
        drop(self.attachment.set_binding(Some(Arc::clone(binding))));
        binding.set_adapter(Some(Arc::clone(self)));
        self.indicate_link(binding.link());
        Ok(())
    }

    /// The NIC goes away; nothing of it is under way any more. PASSIVE_LEVEL.
    pub(super) fn detach(&self, binding: &Arc<Binding>) {
        let attached = self.attachment.set_binding(None);
        debug_assert!(attached.is_none_or(|attached| Arc::ptr_eq(&attached, binding)));
        self.indicate_link(LinkState { connected: false, speed: NDIS_LINK_SPEED_UNKNOWN });
    }

    /// What the NIC has to receive. All multicast: the adapter's own list is kept here. With an
    /// address that is not the NIC's, everything, of which only what is ours is taken.
    fn lower_filter(&self, binding: &Binding) -> u32 {
        let common =
            NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_ALL_MULTICAST | NDIS_PACKET_TYPE_BROADCAST;
        if binding.mac == self.mac { common } else { common | NDIS_PACKET_TYPE_PROMISCUOUS }
    }

    /// Tells NDIS the link's state. IRQL <= DISPATCH_LEVEL.
    pub(super) fn indicate_link(&self, link: LinkState) {
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

    /// The interface has these addresses now. PASSIVE_LEVEL.
    pub(super) fn set_addresses(&self, addresses: Vec<IpAddr>) {
        *self.addresses.lock() = addresses.iter().copied().take(ADDRESSES_MAX).collect();
        let Some(running) = self.running.get() else { return };
        // The ring is full for moments only.
        while running.shard.request(Control::SetAddresses { addresses: addresses.clone() }).is_err()
        {
            sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn addresses(&self) -> Addresses {
        self.addresses.lock().clone()
    }

    // ---- pause and restart --------------------------------------------------------------------

    /// Nothing passes any more when this returns. PASSIVE_LEVEL.
    pub(super) fn pause(&self) {
        self.up.close();
        self.up.wait_empty();
    }

    /// PASSIVE_LEVEL.
    pub(super) fn restart(self: &Arc<Self>) {
        self.up.open();
        match self.attachment.binding() {
            Some(binding) => self.indicate_link(binding.link()),
            None => {
                // Only NDIS can offer the NIC again, and not from inside a handler.
                let job = Box::new(|| {
                    // SAFETY: registered before any adapter is initialized or restarted.
                    unsafe { NdisReEnumerateProtocolBindings(DRIVER.protocol()) };
                });
                // A queue that is full of other work: the next restart asks again.
                let _ = DRIVER.protocol().is_null() || self.running().jobs.push(job);
            }
        }
    }

    // ---- frames -------------------------------------------------------------------------------

    /// Whether the frame that begins so is for TCP/IP or us. IRQL <= DISPATCH_LEVEL.
    pub(super) fn takes(&self, frame: &[u8]) -> bool {
        !self.attachment.is_asleep() && destination(frame).is_some_and(|to| self.accepts(to))
    }

    fn accepts(&self, to: [u8; 6]) -> bool {
        let filter = self.filter.load(Ordering::Relaxed);
        if filter & NDIS_PACKET_TYPE_PROMISCUOUS != 0 {
            return true;
        }
        match Cast::of(to) {
            // Also without a filter: RoCE does not wait for TCP/IP.
            Cast::Unicast => to == self.mac,
            Cast::Broadcast => filter & NDIS_PACKET_TYPE_BROADCAST != 0,
            Cast::Multicast => {
                filter & NDIS_PACKET_TYPE_ALL_MULTICAST != 0
                    || filter & NDIS_PACKET_TYPE_MULTICAST != 0
                        && self.multicast.lock().contains(&to)
            }
        }
    }

    pub(super) fn filter(&self) -> u32 {
        self.filter.load(Ordering::Relaxed)
    }

    pub(super) fn set_filter(&self, filter: u32) {
        self.filter.store(filter, Ordering::Relaxed);
    }

    pub(super) fn multicast(&self) -> MulticastList {
        self.multicast.lock().clone()
    }

    pub(super) fn set_multicast(&self, list: MulticastList) {
        *self.multicast.lock() = list;
    }

    /// Passes on that sends with this mark are not wanted any more: ours are with the NIC at once.
    /// IRQL <= DISPATCH_LEVEL.
    pub(super) fn cancel_sends(&self, id: PVOID) {
        if let Some(binding) = self.attachment.binding() {
            binding.cancel_sends(id);
        }
    }

    /// Sends frames of TCP/IP as clones. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `head` is a chain of lists that are ours until they are completed.
    pub(super) unsafe fn send(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        let binding = self.attachment.binding();
        let (mut clones, mut failed) = (Chain::new(), Chain::new());
        let each = |nbl: *mut NET_BUFFER_LIST| {
            // SAFETY: the caller's promise.
            match unsafe { self.clone_for(binding.as_deref(), nbl) } {
                // SAFETY: just made.
                Ok(clone) => unsafe { clones.push(clone) },
                Err(status) => {
                    self.stats.out_discarded();
                    // SAFETY: the caller's promise.
                    unsafe { (*nbl).Status = status.0 };
                    // SAFETY: as above.
                    unsafe { failed.push(nbl) };
                }
            }
        };
        // SAFETY: as above.
        unsafe { for_each(head, each) };
        if let Some(binding) = binding.filter(|_| !clones.is_empty()) {
            binding.send(clones.head(), flags & NDIS_SEND_FLAGS_DISPATCH_LEVEL);
        }
        // A list that has not entered does not leave: it is completed as it is.
        self.complete(failed.head(), flags);
    }

    /// Enters both gates and clones; what fails has entered neither.
    unsafe fn clone_for(
        &self,
        binding: Option<&Binding>,
        nbl: *mut NET_BUFFER_LIST,
    ) -> Result<*mut NET_BUFFER_LIST, NDIS_STATUS> {
        if self.attachment.is_asleep() || !self.up.enter(1) {
            return Err(NDIS_STATUS_PAUSED);
        }
        let Some(binding) = binding.filter(|binding| binding.io.enter(1)) else {
            self.up.leave(1);
            return Err(NDIS_STATUS_MEDIA_DISCONNECTED);
        };
        // SAFETY: the caller's promise: the original is ours until the clone is freed.
        let clone = unsafe { self.lists().clone_of(nbl) };
        if clone.is_null() {
            binding.io.leave(1);
            self.up.leave(1);
            return Err(NDIS_STATUS_RESOURCES);
        }
        // SAFETY: both are valid.
        unsafe { NdisCopySendNetBufferListInfo(clone, nbl) };
        let tagging = self.attachment.tagging();
        // SAFETY: just made, and ours.
        unsafe { retag(clone, |tag| tagging.outgoing(tag)) };
        // SAFETY: the caller's promise.
        unsafe { self.stats.sent(nbl) };
        Ok(clone)
    }

    /// The NIC has sent these originals, or not. IRQL <= DISPATCH_LEVEL.
    pub(super) fn complete_sends(&self, originals: &Chain, flags: ULONG) {
        if !originals.is_empty() {
            self.complete(originals.head(), flags);
            self.up.leave(originals.len() as usize);
        }
    }

    fn complete(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        if !head.is_null() {
            let flags = flags & NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL;
            // SAFETY: lists that were given to `send`.
            unsafe { NdisMSendNetBufferListsComplete(self.handle, head, flags) };
        }
    }

    /// Shows TCP/IP the clones of received frames. IRQL <= DISPATCH_LEVEL.
    pub(super) fn indicate(&self, clones: Chain, flags: ULONG) {
        let count = clones.len();
        if count == 0 {
            return;
        }
        let kept = NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL | NDIS_RECEIVE_FLAGS_RESOURCES;
        // SAFETY: our clones; with RESOURCES they are still ours after the call.
        unsafe {
            NdisMIndicateReceiveNetBufferLists(
                self.handle,
                clones.head(),
                NDIS_DEFAULT_PORT_NUMBER,
                count,
                flags & kept,
            );
        }
        if flags & NDIS_RECEIVE_FLAGS_RESOURCES != 0 {
            let free = |clone| {
                // SAFETY: as above.
                let _ = unsafe { ListPool::free_clone(clone) };
            };
            // SAFETY: as above.
            unsafe { for_each(clones.head(), free) };
            self.up.leave(count as usize);
        }
    }

    /// TCP/IP has done with these clones. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `head` is a chain of clones that were indicated without RESOURCES.
    pub(super) unsafe fn take_back(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        let mut originals = Chain::new();
        let each = |clone| {
            // SAFETY: the caller's promise.
            let original = unsafe { ListPool::free_clone(clone) };
            // SAFETY: the NIC's list, ours until it is given back.
            unsafe { originals.push(original) };
        };
        // SAFETY: as above.
        unsafe { for_each(head, each) };
        // The NIC waits for these at its gate, so it is still attached.
        if let Some(binding) = self.attachment.binding() {
            binding.give_back(originals.head(), originals.len(), flags);
        }
        self.up.leave(originals.len() as usize);
    }
}

/// The address that an adapter starts with. PASSIVE_LEVEL.
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
    // Its own, and the same at every start: a digest (FNV-1a) of the name of the NIC.
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

/// Frames of TCP/IP.
#[derive(Default)]
pub(super) struct Stats {
    /// Received, by [`Cast`]: frames and bytes.
    pub(super) in_frames: [AtomicU64; 3],
    pub(super) in_bytes: [AtomicU64; 3],
    pub(super) in_discards: AtomicU64,
    pub(super) out_frames: [AtomicU64; 3],
    pub(super) out_bytes: [AtomicU64; 3],
    pub(super) out_discards: AtomicU64,
}

impl Stats {
    pub(super) fn received(&self, to: Option<[u8; 6]>, len: usize) {
        let kind = to.map_or(Cast::Unicast, Cast::of) as usize;
        self.in_frames[kind].fetch_add(1, Ordering::Relaxed);
        self.in_bytes[kind].fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(super) fn in_discarded(&self) {
        self.in_discards.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn out_discarded(&self) {
        self.out_discards.fetch_add(1, Ordering::Relaxed);
    }

    /// # Safety
    /// `nbl` is valid with its net buffers.
    unsafe fn sent(&self, nbl: *const NET_BUFFER_LIST) {
        // SAFETY: the caller's promise.
        let mut next = unsafe { (*nbl).FirstNetBuffer };
        while !next.is_null() {
            // SAFETY: as above.
            let frame = unsafe { netadapter_glue::ndis::chain::Frame::of(next) };
            let mut to = [0; 6];
            // An address that is not mapped yet counts as unicast.
            // SAFETY: as above.
            let whole = unsafe { frame.copy_to(&mut to, &|_| null_mut()) } == to.len();
            let kind = if whole { Cast::of(to) } else { Cast::Unicast } as usize;
            self.out_frames[kind].fetch_add(1, Ordering::Relaxed);
            self.out_bytes[kind].fetch_add(frame.len() as u64, Ordering::Relaxed);
            // SAFETY: as above.
            next = unsafe { (*next).Next };
        }
    }
}

/// The fastest that is said of the adapter before its NIC is known: 100 Gbit/s.
const MAX_SPEED: u64 = 100_000_000_000;
const RECEIVE_DEPTH: usize = 1024;
const TRANSMIT_DEPTH: usize = 512;
const ADDRESSES_MAX: usize = 32;
/// The processor of the thread that takes over from DPCs.
const POLL_PROCESSOR: u32 = 0;
