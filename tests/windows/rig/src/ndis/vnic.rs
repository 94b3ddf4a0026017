//! The image as a miniport: its adapters, with a stand-in of TCP/IP and of NDK consumers on top.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

use ::driver::abi::{NDK_ADAPTER, NDK_VERSION, NTSTATUS};

use super::nbl::{self, Nbl};
use super::qos::{self, Qos};
use super::{
    Completion, FAILURE, Header, PENDING, RESOURCES, SUCCESS, driver, member, oid, set_member,
};
use crate::ntos::irql::{self, DISPATCH, HIGH, PASSIVE};
use crate::ntos::{Pointer, UnicodeString, lock, mdl, pool, registry};
use crate::tcpip;

pub struct Vnic {
    pub keywords: Mutex<HashMap<String, String>>,
    pub index: u32,
    pub addresses: Mutex<Vec<IpAddr>>,
    context: AtomicUsize,
    state: AtomicU8,
    /// Held by TCP/IP's sends, of which none begins in a pause.
    sends: RwLock<()>,
    attributes: Mutex<Attributes>,
    pause_done: Completion,
    restart_done: Completion,
    /// What TCP/IP heard.
    pub heard: Mutex<Vec<Vec<u8>>>,
    /// What travelled beside the last frame of each content.
    pub tags: Mutex<HashMap<Vec<u8>, usize>>,
    /// How sends with a mark have ended.
    pub ended: Mutex<Vec<(usize, i32)>>,
    /// 1 connected, 2 disconnected.
    pub link: AtomicI32,
    ndk_adapters: AtomicUsize,
    /// Times that consumers were told to let go, that the last of them had, and that they were told to come.
    pub ndk_disables: AtomicUsize,
    pub ndk_disabled: AtomicUsize,
    pub ndk_enables: AtomicUsize,
    /// TCP/IP keeps what it is shown, until it is told to let go or paused.
    pub keeps: AtomicBool,
    kept: Mutex<Vec<usize>>,
    pub qos: Qos,
}

unsafe impl Send for Vnic {}
unsafe impl Sync for Vnic {}

/// What the image told in `MiniportInitializeEx`, in its order.
#[derive(Default)]
struct Attributes {
    order: Vec<u8>,
    mac: [u8; 6],
    mtu: u32,
    mac_options: u32,
    ndk_enabled: bool,
    oids: Vec<u32>,
}

const HALTED: u8 = 0;
const INITIALIZING: u8 = 1;
const PAUSED: u8 = 2;
const RUNNING: u8 = 3;
const PAUSING: u8 = 4;
const RESTARTING: u8 = 5;

const REGISTRATION: u8 = 0x9E;
const GENERAL: u8 = 0x9F;
const NDK: u8 = 0xB3;

static VNICS: Mutex<Vec<&'static Vnic>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);
/// Calls that return lists to the image and are not over.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

pub fn all() -> Vec<&'static Vnic> {
    VNICS.lock().unwrap().clone()
}

pub fn count() -> usize {
    all().len()
}

pub fn halt_all() {
    for vnic in all() {
        vnic.remove();
    }
}

impl Vnic {
    /// Creates the adapter and starts it, as PnP and NDIS do.
    ///
    /// # Errors
    /// What `MiniportInitializeEx` or `MiniportRestart` returned.
    pub fn add(keywords: &[(&str, String)], addresses: &[IpAddr]) -> Result<&'static Self, i32> {
        let vnic: &'static Self = Box::leak(Box::new(Self {
            keywords: Mutex::new(keywords.iter().map(|(k, v)| ((*k).into(), v.clone())).collect()),
            index: 10 + NEXT.fetch_add(1, Ordering::Relaxed) as u32,
            addresses: Mutex::new(addresses.to_vec()),
            context: AtomicUsize::new(0),
            state: AtomicU8::new(INITIALIZING),
            sends: RwLock::new(()),
            attributes: Mutex::default(),
            pause_done: Completion::new(),
            restart_done: Completion::new(),
            heard: Mutex::default(),
            tags: Mutex::default(),
            ended: Mutex::default(),
            link: AtomicI32::new(0),
            ndk_adapters: AtomicUsize::new(0),
            ndk_disables: AtomicUsize::new(0),
            ndk_disabled: AtomicUsize::new(0),
            ndk_enables: AtomicUsize::new(0),
            keeps: AtomicBool::new(false),
            kept: Mutex::default(),
            qos: Qos::default(),
        }));
        VNICS.lock().unwrap().push(vnic);
        let status = vnic.initialize();
        if status != SUCCESS {
            vnic.forget();
            return Err(status);
        }
        vnic.state.store(PAUSED, Ordering::SeqCst);
        let status = vnic.restart();
        if status != SUCCESS {
            vnic.halt();
            return Err(status);
        }
        // Directed, multicast, broadcast.
        vnic.set_filter(0x0B);
        let mut list = tcpip::multicast_of(addresses).concat();
        let answer = oid::ask(vnic, oid::SET, oid::ETHERNET_MULTICAST_LIST, &mut list, false);
        if answer.status != SUCCESS {
            breach!("the multicast list was refused: {answer:x?}");
        }
        Ok(vnic)
    }

    fn initialize(&self) -> i32 {
        let (miniport, context) = driver::registered().miniport.expect("the driver is loaded");
        // NDIS_MINIPORT_INIT_PARAMETERS, revision 1.
        let mut parameters = [0_u64; 0x40 / 8];
        let start = parameters.as_mut_ptr().cast::<u8>();
        unsafe {
            set_member(start, 0, Header::new(0x81, 1, 0x40));
            set_member(start, 0x20, self.index);
            set_member(start, 0x28, self.luid());
        }
        let status = irql::run_at(PASSIVE, "MiniportInitializeEx", || unsafe {
            miniport.initialize.expect("checked")(self.handle(), context as Pointer, start)
        });
        lock::none_held("MiniportInitializeEx");
        if status == SUCCESS
            && ![&[REGISTRATION, GENERAL, NDK][..], &[REGISTRATION, GENERAL, qos::ATTRIBUTES, NDK]]
                .contains(&&*self.attributes.lock().unwrap().order)
        {
            breach!(
                "attributes were set in the order {:x?}",
                self.attributes.lock().unwrap().order
            );
        }
        status
    }

    pub fn restart(&self) -> i32 {
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        let mut parameters = [0_u64; 3];
        let start = parameters.as_mut_ptr().cast::<u8>();
        unsafe { set_member(start, 0, Header::new(0x80, 1, 24)) };
        self.state.store(RESTARTING, Ordering::SeqCst);
        self.restart_done.begin();
        let returned = irql::run_at(PASSIVE, "MiniportRestart", || unsafe {
            miniport.restart.expect("checked")(self.context(), start)
        });
        let status = self.restart_done.wait("MiniportRestart", returned);
        self.state.store(if status == SUCCESS { RUNNING } else { PAUSED }, Ordering::SeqCst);
        status
    }

    pub fn pause(&self) {
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        let mut parameters = [0_u64; 2];
        let start = parameters.as_mut_ptr().cast::<u8>();
        unsafe { set_member(start, 0, Header::new(0x80, 1, 12)) };
        {
            let _none = self.sends.write().unwrap();
            self.state.store(PAUSING, Ordering::SeqCst);
        }
        self.let_go();
        self.pause_done.begin();
        let returned = irql::run_at(PASSIVE, "MiniportPause", || unsafe {
            miniport.pause.expect("checked")(self.context(), start)
        });
        let status = self.pause_done.wait("MiniportPause", returned);
        if status != SUCCESS {
            breach!("MiniportPause ended with {status:#x}: it must not fail");
        }
        self.state.store(PAUSED, Ordering::SeqCst);
        let edge = self.handle() as usize;
        if nbl::lent(edge) + nbl::borrowed(edge) > 0 {
            breach!("a pause ended with lists in flight");
        }
    }

    /// Pauses and halts.
    pub fn remove(&self) {
        self.pause();
        self.halt();
    }

    /// The device is gone, and the driver is told; then NDIS pauses and halts as for any other end.
    pub fn remove_by_surprise(&self) {
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        // NET_DEVICE_PNP_EVENT: the port, NdisDevicePnPEventSurpriseRemoved.
        let mut event = [0_u64; 4];
        let start = event.as_mut_ptr().cast::<u8>();
        unsafe {
            set_member(start, 0, Header::new(0x80, 1, 32));
            set_member(start, 8, 2_i32);
        }
        irql::run_at(PASSIVE, "MiniportDevicePnPEventNotify", || unsafe {
            miniport.pnp_event.expect("checked")(self.context(), start);
        });
        lock::none_held("MiniportDevicePnPEventNotify");
        self.pause();
        // NdisHaltDeviceSurpriseRemoved.
        self.halt_for(3);
    }

    /// The system goes down: in order, or by a bug check, which halts every processor where it is.
    pub fn shut_down(&self, by_bug_check: bool) {
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        let irql = if by_bug_check { HIGH } else { PASSIVE };
        irql::run_at(irql, "MiniportShutdownEx", || unsafe {
            miniport.shutdown.expect("checked")(self.context(), i32::from(by_bug_check));
        });
        lock::none_held("MiniportShutdownEx");
    }

    /// TCP/IP lets go of what it has kept, and keeps nothing more.
    pub fn let_go(&self) {
        self.keeps.store(false, Ordering::SeqCst);
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        kept.into_iter().for_each(|lists| self.give_back(lists));
    }

    /// How many lists TCP/IP keeps.
    pub fn kept(&self) -> usize {
        self.kept
            .lock()
            .unwrap()
            .iter()
            .map(|&lists| unsafe { nbl::chain(lists as *mut Nbl) }.len())
            .sum()
    }

    fn give_back(&self, lists: usize) {
        let (miniport, _) = driver::registered().miniport.expect("an adapter has a driver");
        for list in unsafe { nbl::chain(lists as *mut Nbl) } {
            nbl::give_back(list);
        }
        irql::run_at(DISPATCH, "MiniportReturnNetBufferLists", || unsafe {
            miniport.return_lists.expect("checked")(self.context(), lists as *mut Nbl, 1);
        });
    }

    /// Halts an adapter that is paused.
    pub fn remove_paused(&self) {
        self.halt();
    }

    fn halt(&self) {
        self.halt_for(0);
    }

    fn halt_for(&self, action: i32) {
        super::eventually("the end of returns", || RETURNING.load(Ordering::SeqCst) == 0);
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        irql::run_at(PASSIVE, "MiniportHaltEx", || unsafe {
            miniport.halt.expect("checked")(self.context(), action);
        });
        lock::none_held("MiniportHaltEx");
        if self.ndk_adapters.load(Ordering::SeqCst) > 0 {
            breach!("MiniportHaltEx returned with NDK adapters open");
        }
        self.forget();
    }

    fn forget(&self) {
        self.state.store(HALTED, Ordering::SeqCst);
        VNICS.lock().unwrap().retain(|vnic| !std::ptr::eq(*vnic, self));
    }

    /// The adapter of an NDIS handle.
    pub fn find(handle: Pointer) -> Option<&'static Self> {
        all().into_iter().find(|vnic| std::ptr::eq(std::ptr::from_ref(*vnic).cast(), handle))
    }

    fn alive(handle: Pointer, function: &str) -> Option<&'static Self> {
        let vnic = Self::find(handle);
        if vnic.is_none() {
            breach!("{function} on an adapter that does not exist");
        }
        vnic
    }

    pub fn handle(&self) -> Pointer {
        std::ptr::from_ref(self) as Pointer
    }

    /// `MiniportAdapterContext`.
    pub fn context(&self) -> Pointer {
        self.context.load(Ordering::SeqCst) as Pointer
    }

    pub fn luid(&self) -> u64 {
        6 << 48 | u64::from(self.index) << 24
    }

    pub fn mac(&self) -> [u8; 6] {
        self.attributes.lock().unwrap().mac
    }

    pub fn mac_options(&self) -> u32 {
        self.attributes.lock().unwrap().mac_options
    }

    pub fn mtu(&self) -> u32 {
        self.attributes.lock().unwrap().mtu
    }

    /// The identifier of the interface that is created next.
    pub fn next_luid() -> u64 {
        6 << 48 | (10 + NEXT.load(Ordering::Relaxed) as u64) << 24
    }

    pub fn set_filter(&self, filter: u32) {
        let mut bytes = filter.to_le_bytes();
        let answer = oid::ask(self, oid::SET, oid::GEN_CURRENT_PACKET_FILTER, &mut bytes, false);
        if answer.status != SUCCESS {
            breach!("the packet filter {filter:#x} was refused: {answer:x?}");
        }
    }

    /// TCP/IP sends a frame; returns when the image has completed it.
    pub fn send(&self, frame: &[u8]) {
        self.post(frame, 0, 0);
        let edge = self.handle() as usize;
        super::eventually("the completion of a send", || nbl::lent(edge) == 0);
    }

    /// TCP/IP sends a frame of its own accord, if the adapter is not paused or gone by then.
    pub fn send_if_up(&self, frame: &[u8]) {
        let _send = self.sends.read().unwrap();
        if self.state.load(Ordering::SeqCst) == RUNNING {
            self.post(frame, 0, 0);
        }
    }

    /// TCP/IP sends a frame with this beside it, and a mark by which it may be cancelled.
    pub fn post(&self, frame: &[u8], tag: usize, mark: usize) {
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        let list = nbl::make(frame, 20, mdl::NON_PAGED, self.handle());
        unsafe {
            (*list).info[nbl::VLAN] = tag;
            (*list).info[nbl::CANCEL] = mark;
        }
        nbl::lend(list, self.handle() as usize);
        irql::run_at(DISPATCH, "MiniportSendNetBufferLists", || unsafe {
            miniport.send.expect("checked")(self.context(), list, 0, 1);
        });
        lock::none_held("MiniportSendNetBufferLists");
    }

    /// TCP/IP wants no more of the sends with this mark.
    pub fn cancel_sends(&self, mark: usize) {
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        irql::run_at(DISPATCH, "MiniportCancelSend", || unsafe {
            miniport.cancel_send.expect("checked")(self.context(), mark as Pointer);
        });
        lock::none_held("MiniportCancelSend");
    }

    /// Cancels requests with this mark, whether there are any or not.
    pub fn cancel_requests(&self, mark: usize) {
        let (miniport, _) = driver::registered().miniport.expect("the driver is loaded");
        for cancel in [miniport.cancel_oid, miniport.cancel_direct_oid] {
            irql::run_at(DISPATCH, "MiniportCancelOidRequest", || unsafe {
                cancel.expect("checked")(self.context(), mark as Pointer);
            });
        }
    }

    /// An NDK adapter, as WSK opens it for a consumer.
    ///
    /// # Errors
    /// What the handler returned.
    pub fn open_ndk(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let ndk = driver::registered().ndk.expect("an NDK provider");
        // NDIS_OPEN_NDK_ADAPTER_PARAMETERS: the version, a switch, a port of it.
        let mut parameters = [u32::from(version.Major) | u32::from(version.Minor) << 16, 0, 0];
        let mut adapter = std::ptr::null_mut();
        let status = irql::run_at(PASSIVE, "OpenNDKAdapterHandler", || unsafe {
            (ndk.open)(self.context(), parameters.as_mut_ptr().cast(), &raw mut adapter)
        });
        lock::none_held("OpenNDKAdapterHandler");
        match status {
            SUCCESS if !adapter.is_null() => {
                self.ndk_adapters.fetch_add(1, Ordering::SeqCst);
                Ok(adapter.cast())
            }
            SUCCESS => {
                breach!("OpenNDKAdapterHandler succeeded without an adapter");
                Err(NTSTATUS(FAILURE))
            }
            PENDING => {
                breach!("OpenNDKAdapterHandler pends");
                Err(NTSTATUS(FAILURE))
            }
            status => Err(NTSTATUS(status)),
        }
    }

    pub fn close_ndk(&self, adapter: *mut NDK_ADAPTER) {
        let ndk = driver::registered().ndk.expect("an NDK provider");
        // Counted first: what waits for the last close goes on within the call.
        self.ndk_adapters.fetch_sub(1, Ordering::SeqCst);
        irql::run_at(PASSIVE, "CloseNDKAdapterHandler", || unsafe {
            (ndk.close)(self.context(), adapter.cast());
        });
        lock::none_held("CloseNDKAdapterHandler");
    }

    /// The OIDs that the adapter says it supports.
    pub fn oids(&self) -> Vec<u32> {
        self.attributes.lock().unwrap().oids.clone()
    }

    unsafe fn set_attributes(&self, start: Pointer) -> i32 {
        let header = member::<Header>(start, 0);
        let mut attributes = self.attributes.lock().unwrap();
        match header.kind {
            REGISTRATION => {
                header.check(
                    "registration attributes",
                    REGISTRATION,
                    &[(1, 28), (2, 28), (1, 32), (2, 32)],
                );
                self.context.store(member(start, 8), Ordering::SeqCst);
                // NDIS_WDM, SURPRISE_REMOVE_OK and NO_HALT_ON_SUSPEND.
                let flags = member::<u32>(start, 0x10);
                if flags != 0x2 | 0x4 | 0x20 {
                    breach!("AttributeFlags are {flags:#x}");
                }
            }
            GENERAL => {
                header.check("general attributes", GENERAL, &[(1, 216), (2, 224)]);
                attributes.mac = member(start, 0x7E);
                attributes.mtu = member(start, 0x10);
                attributes.mac_options = member(start, 0x50);
                let medium: [i32; 2] = member(start, 8);
                if medium != [0, 14] {
                    breach!("medium and physical medium are {medium:?}");
                }
                if member::<u16>(start, 0x5C) != 6 {
                    breach!("MacAddressLength is {}", member::<u16>(start, 0x5C));
                }
                let (oids, len) = (member::<usize>(start, 0xC8), member::<u32>(start, 0xD0));
                if oids == 0 || len == 0 || len % 4 != 0 {
                    breach!("the list of OIDs has {len} bytes");
                }
                let oids = std::slice::from_raw_parts(oids as *const u32, len as usize / 4);
                for needed in [
                    oid::NDK_SET_STATE,
                    oid::NDK_STATISTICS,
                    oid::NDK_CONNECTIONS,
                    oid::NDK_LOCAL_ENDPOINTS,
                ] {
                    if !oids.contains(&needed) {
                        breach!("OID {needed:#x} is not in the list");
                    }
                }
                attributes.oids = oids.to_vec();
            }
            NDK => {
                header.check("NDK attributes", NDK, &[(1, 16)]);
                attributes.ndk_enabled = member::<u8>(start, 4) != 0;
                let capabilities = member::<Pointer>(start, 8);
                member::<Header>(capabilities, 0).check("NDIS_NDK_CAPABILITIES", 0x80, &[(1, 56)]);
                if member::<usize>(capabilities, 0x30) == 0 {
                    breach!("the NDK capabilities have no adapter info");
                }
            }
            qos::ATTRIBUTES => self.qos.set_attributes(start),
            kind => {
                say!("attributes {kind:#x}: ignored");
                return SUCCESS;
            }
        }
        attributes.order.push(header.kind);
        SUCCESS
    }
}

/// `ndk-consumer` opens its adapters here.
pub struct Opener(pub &'static Vnic);

// SAFETY: the image keeps an open adapter valid; that is what is tested.
unsafe impl ndk_consumer::Opener for Opener {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        self.0.open_ndk(version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        self.0.close_ndk(adapter);
    }
}

const NET_EVENT_NDK_ENABLE: i32 = 13;
const NET_EVENT_NDK_DISABLE: i32 = 14;
const STATUS_LINK_STATE: i32 = 0x4001_0017;

exports! { "ndis.sys":
    fn NdisMSetMiniportAttributes(handle: Pointer, start: Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisMSetMiniportAttributes");
        registry::witness("NdisMSetMiniportAttributes");
        let Some(vnic) = Vnic::alive(handle, "NdisMSetMiniportAttributes") else { return FAILURE };
        if vnic.state.load(Ordering::SeqCst) != INITIALIZING { breach!("attributes are set outside of MiniportInitializeEx"); }
        if pool::refuses("NdisMSetMiniportAttributes") { return RESOURCES; }
        vnic.set_attributes(start)
    }
    fn NdisMPauseComplete(handle: Pointer) {
        irql::at_most(DISPATCH, "NdisMPauseComplete");
        if let Some(vnic) = Vnic::alive(handle, "NdisMPauseComplete") {
            vnic.pause_done.complete("MiniportPause", SUCCESS);
        }
    }
    fn NdisMRestartComplete(handle: Pointer, status: i32) {
        irql::at_most(DISPATCH, "NdisMRestartComplete");
        if let Some(vnic) = Vnic::alive(handle, "NdisMRestartComplete") {
            vnic.restart_done.complete("MiniportRestart", status);
        }
    }
    fn NdisMSendNetBufferListsComplete(handle: Pointer, lists: *mut Nbl, _flags: u32) {
        irql::at_most(DISPATCH, "NdisMSendNetBufferListsComplete");
        if Vnic::alive(handle, "NdisMSendNetBufferListsComplete").is_none() { return; }
        let Some(vnic) = Vnic::find(handle) else { return };
        for list in nbl::chain(lists) {
            if !nbl::returned(list, handle as usize) { continue; }
            let mark = (*list).info[nbl::CANCEL];
            if mark != 0 { vnic.ended.lock().unwrap().push((mark, (*list).status)); }
            nbl::unmake(list);
        }
    }
    fn NdisMIndicateReceiveNetBufferLists(handle: Pointer, lists: *mut Nbl, port: u32, count: u32, flags: u32) {
        irql::at_most(DISPATCH, "NdisMIndicateReceiveNetBufferLists");
        let Some(vnic) = Vnic::alive(handle, "NdisMIndicateReceiveNetBufferLists") else { return };
        if port != 0 { breach!("a receive on port {port}"); }
        // One that has begun may end while the image pauses, which waits for it.
        if ![RUNNING, RESTARTING, PAUSING].contains(&vnic.state.load(Ordering::SeqCst)) {
            breach!("a receive is indicated while the adapter is paused");
        }
        let all = nbl::chain(lists);
        if all.len() != count as usize { breach!("{count} lists are indicated, {} are in the chain", all.len()); }
        for &list in &all {
            for frame in nbl::frames(list) {
                tcpip::hear(vnic, &frame);
                vnic.tags.lock().unwrap().insert(frame.clone(), (*list).info[nbl::VLAN]);
                vnic.heard.lock().unwrap().push(frame);
            }
        }
        const RESOURCES_FLAG: u32 = 2;
        if flags & RESOURCES_FLAG != 0 { return; }
        all.iter().for_each(|&list| nbl::borrow(list, handle as usize));
        if vnic.keeps.load(Ordering::SeqCst) {
            vnic.kept.lock().unwrap().push(lists as usize);
            return;
        }
        // TCP/IP returns them at once, or later and from another thread.
        let lists = lists as usize;
        RETURNING.fetch_add(1, Ordering::SeqCst);
        let give = move || {
            vnic.give_back(lists);
            RETURNING.fetch_sub(1, Ordering::SeqCst);
        };
        if count.is_multiple_of(2) { give() } else { std::thread::spawn(give); }
    }
    fn NdisMIndicateStatusEx(handle: Pointer, indication: Pointer) {
        irql::at_most(DISPATCH, "NdisMIndicateStatusEx");
        let Some(vnic) = Vnic::alive(handle, "NdisMIndicateStatusEx") else { return };
        member::<Header>(indication, 0).check("NDIS_STATUS_INDICATION", 0x98, &[(1, 112)]);
        if member::<Pointer>(indication, 8) != handle { breach!("SourceHandle of a status is not the adapter"); }
        let code = member::<i32>(indication, 0x14);
        if code == STATUS_LINK_STATE {
            let state = member::<Pointer>(indication, 0x30);
            member::<Header>(state, 0).check("NDIS_LINK_STATE", 0x80, &[(1, 40)]);
            if member::<u32>(indication, 0x38) != 40 { breach!("a link state of {} bytes", member::<u32>(indication, 0x38)); }
            vnic.link.store(member(state, 4), Ordering::SeqCst);
            say!("vNIC {}: link state {}, {} bit/s", vnic.index, member::<i32>(state, 4), member::<u64>(state, 0x10));
        } else if code == qos::OPERATIONAL_CHANGE {
            vnic.qos.indicated(member(indication, 0x30), member(indication, 0x38));
        } else {
            say!("vNIC {}: status {code:#x}", vnic.index);
        }
    }
    fn NdisMNetPnPEvent(handle: Pointer, notification: Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisMNetPnPEvent");
        let Some(vnic) = Vnic::alive(handle, "NdisMNetPnPEvent") else { return FAILURE };
        member::<Header>(notification, 0).check("NET_PNP_EVENT_NOTIFICATION", 0x80, &[(1, 0xA4), (1, 0xA8), (2, 0xB0), (2, 0xAC)]);
        if oid::IN_OID.get() { breach!("NdisMNetPnPEvent in the context of an OID request"); }
        match member::<i32>(notification, 8) {
            NET_EVENT_NDK_ENABLE => { vnic.ndk_enables.fetch_add(1, Ordering::SeqCst); }
            NET_EVENT_NDK_DISABLE => {
                vnic.ndk_disables.fetch_add(1, Ordering::SeqCst);
                // NDIS tells the consumers, and returns when the last of them has let go.
                while vnic.ndk_adapters.load(Ordering::SeqCst) > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                vnic.ndk_disabled.fetch_add(1, Ordering::SeqCst);
            }
            code => breach!("NdisMNetPnPEvent with event {code}"),
        }
        say!("vNIC {}: net event {}", vnic.index, member::<i32>(notification, 8));
        SUCCESS
    }
    fn NdisMGetDeviceProperty(_handle: Pointer, a: *mut Pointer, b: *mut Pointer, c: *mut Pointer, _d: Pointer, _e: Pointer) {
        for out in [a, b, c] { if !out.is_null() { out.write(std::ptr::null_mut()); } }
    }
    fn NdisMQueryAdapterInstanceName(name: *mut UnicodeString, _handle: Pointer) -> i32 {
        name.write(UnicodeString::leak("RoCEv2 stand-in"));
        SUCCESS
    }
}
