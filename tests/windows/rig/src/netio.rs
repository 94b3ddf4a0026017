//! The stand-in for netio.sys: addresses, routes and neighbours of the vNICs.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use driver::abi::{GUID, SOCKADDR_INET};

use crate::ndis::nic;
use crate::ndis::vnic::{self, Vnic};
use crate::ntos::irql::{self, PASSIVE};
use crate::ntos::{Pointer, SUCCESS, pool};
use crate::tcpip;

const NOT_FOUND: i32 = 0xC000_0225_u32.cast_signed();
const NO_MEMORY: i32 = 0xC000_0017_u32.cast_signed();
const UNREACHABLE: i32 = 0xC000_023D_u32.cast_signed();

/// `MIB_UNICASTIPADDRESS_ROW`.
#[derive(Clone, Copy)]
#[repr(C)]
struct AddressRow {
    address: SOCKADDR_INET,
    luid: u64,
    index: u32,
    prefix_origin: i32,
    suffix_origin: i32,
    valid: u32,
    preferred: u32,
    prefix: u8,
    skip: u8,
    state: i32,
    scope: u32,
    created: i64,
}
const _: () = assert!(size_of::<AddressRow>() == 0x50);
const PREFERRED: i32 = 4;

/// `MIB_IPNET_ROW2`.
#[repr(C)]
pub struct NeighbourRow {
    address: SOCKADDR_INET,
    index: u32,
    luid: u64,
    physical: [u8; 32],
    physical_len: u32,
    state: i32,
    flags: u32,
    reachability: u32,
}
const _: () = assert!(size_of::<NeighbourRow>() == 0x58);
const REACHABLE: i32 = 5;

type Changed = unsafe extern "win64" fn(Pointer, Pointer, i32);
const INITIAL: i32 = 3;
const ADDED: i32 = 1;

/// What a notification is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Subject {
    Addresses,
    Routes,
    Interfaces,
}

#[derive(Clone, Copy)]
struct Watcher {
    number: usize,
    subject: Subject,
    callback: Changed,
    context: usize,
}

static WATCHERS: Mutex<Vec<Watcher>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);
static TABLES: AtomicUsize = AtomicUsize::new(0);

pub fn report_leaks() {
    let watchers = std::mem::take(&mut *WATCHERS.lock().unwrap());
    if !watchers.is_empty() {
        breach!("{} change notifications are left", watchers.len());
    }
    let tables = TABLES.swap(0, Ordering::SeqCst);
    if tables > 0 {
        breach!("{tables} address tables are not freed");
    }
}

fn row(vnic: &Vnic, address: IpAddr) -> AddressRow {
    AddressRow {
        address: SOCKADDR_INET::from(std::net::SocketAddr::new(address, 0)),
        luid: vnic.luid(),
        index: vnic.index,
        prefix_origin: 1,
        suffix_origin: 1,
        valid: u32::MAX,
        preferred: u32::MAX,
        prefix: 24,
        skip: 0,
        state: PREFERRED,
        scope: 0,
        created: 0,
    }
}

/// Tells the image of an address that was added.
pub fn announce(vnic: &Vnic) {
    let addresses = vnic.addresses.lock().unwrap().clone();
    for Watcher { callback, context, .. } in watchers(Subject::Addresses) {
        for &address in &addresses {
            let mut row = row(vnic, address);
            irql::run_at(PASSIVE, "an address change callback", || unsafe {
                callback(context as Pointer, (&raw mut row).cast(), ADDED);
            });
        }
    }
}

/// Tells the image that routes or interfaces have changed.
pub fn announce_change(subject: Subject) {
    // MIB_IPFORWARD_ROW2 is 104 bytes long, MIB_IPINTERFACE_ROW 168.
    let mut row = [0_u64; 21];
    for Watcher { callback, context, .. } in watchers(subject) {
        irql::run_at(PASSIVE, "a change callback", || unsafe {
            callback(context as Pointer, row.as_mut_ptr().cast(), ADDED);
        });
    }
}

fn watchers(subject: Subject) -> Vec<Watcher> {
    let watchers = WATCHERS.lock().unwrap();
    watchers.iter().filter(|watcher| watcher.subject == subject).copied().collect()
}

fn watch(
    subject: Subject,
    callback: Changed,
    context: Pointer,
    initial: u8,
    handle: *mut usize,
) -> i32 {
    irql::at_most(PASSIVE, "a request for change notifications");
    if pool::refuses("change notification") {
        return NO_MEMORY;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let watcher = Watcher { number, subject, callback, context: context as usize };
    WATCHERS.lock().unwrap().push(watcher);
    unsafe { handle.write(number) };
    if initial != 0 {
        unsafe { callback(context, std::ptr::null_mut(), INITIAL) };
    }
    SUCCESS
}

/// Peers that answer nobody, and for whom TCP/IP waits.
static STALLED: (Mutex<Stalled>, Condvar) =
    (Mutex::new(Stalled { peers: Vec::new(), questions: 0, given_up: 0 }), Condvar::new());

struct Stalled {
    peers: Vec<IpAddr>,
    questions: usize,
    given_up: usize,
}

/// TCP/IP waits for the answers of these, and no longer for those of others.
pub fn stall(peers: &[IpAddr]) {
    STALLED.0.lock().unwrap().peers = peers.to_vec();
    STALLED.1.notify_all();
}

/// TCP/IP gives up the questions that it waits for now, as after its seconds, and waits for those that come after.
pub fn give_up() {
    STALLED.0.lock().unwrap().given_up += 1;
    STALLED.1.notify_all();
}

/// Questions whose answers TCP/IP waits for.
pub fn stalled() -> usize {
    STALLED.0.lock().unwrap().questions
}

/// Returns whether this was a peer that answers nobody.
fn wait_for(peer: IpAddr) -> bool {
    let mut stalled = STALLED.0.lock().unwrap();
    if !stalled.peers.contains(&peer) {
        return false;
    }
    stalled.questions += 1;
    let given_up = stalled.given_up;
    while stalled.peers.contains(&peer) && stalled.given_up == given_up {
        stalled = STALLED.1.wait(stalled).unwrap();
    }
    stalled.questions -= 1;
    true
}

fn resolve(row: &mut NeighbourRow) -> i32 {
    let Some(address) = row.address.socket_addr() else { return NOT_FOUND };
    if wait_for(address.ip()) {
        return UNREACHABLE;
    }
    let Some(vnic) =
        vnic::all().into_iter().find(|vnic| vnic.luid() == row.luid || vnic.index == row.index)
    else {
        return NOT_FOUND;
    };
    let Some(mac) = tcpip::resolve(vnic, address.ip()) else { return UNREACHABLE };
    tell(row, mac, REACHABLE)
}

/// Neighbours that TCP/IP has in its table, with their states.
static BELIEVED: Mutex<Vec<(IpAddr, [u8; 6], i32)>> = Mutex::new(Vec::new());

/// TCP/IP believes from now on that `address` is at `mac`.
pub fn believe(address: IpAddr, mac: [u8; 6]) {
    believe_as(address, mac, REACHABLE);
}

/// TCP/IP has `address` in its table from now on, in this `NL_NEIGHBOR_STATE`.
pub fn believe_as(address: IpAddr, mac: [u8; 6], state: i32) {
    let mut believed = BELIEVED.lock().unwrap();
    believed.retain(|(known, ..)| *known != address);
    believed.push((address, mac, state));
}

/// How often the image has had the network asked.
pub fn resolutions() -> usize {
    RESOLUTIONS.load(Ordering::SeqCst)
}

static RESOLUTIONS: AtomicUsize = AtomicUsize::new(0);

/// How often the image has asked what TCP/IP believes.
pub fn looks() -> usize {
    LOOKS.load(Ordering::SeqCst)
}

static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// Where TCP/IP believes `address` to be.
pub fn believed(address: IpAddr) -> Option<([u8; 6], i32)> {
    let believed = BELIEVED.lock().unwrap();
    believed.iter().find(|(known, ..)| *known == address).map(|(_, mac, state)| (*mac, *state))
}

fn tell(row: &mut NeighbourRow, mac: [u8; 6], state: i32) -> i32 {
    row.physical[..6].copy_from_slice(&mac);
    row.physical_len = 6;
    row.state = state;
    SUCCESS
}

/// Whether interfaces of NICs exist yet: the image may start before they do.
pub static NICS_ARE_KNOWN: AtomicBool = AtomicBool::new(true);

exports! { "netio.sys":
    fn GetUnicastIpAddressTable(family: u16, table: *mut Pointer) -> i32 {
        irql::at_most(PASSIVE, "GetUnicastIpAddressTable");
        if pool::refuses("address table") { return NO_MEMORY; }
        let rows: Vec<AddressRow> = vnic::all().into_iter()
            .flat_map(|vnic| vnic.addresses.lock().unwrap().iter().map(|&address| row(vnic, address)).collect::<Vec<_>>())
            .filter(|row| match family {
                0 => true,
                2 => row.address.socket_addr().is_some_and(|a| a.is_ipv4()),
                _ => row.address.socket_addr().is_some_and(|a| a.is_ipv6()),
            })
            .collect();
        let words = 1 + rows.len() * size_of::<AddressRow>() / 8;
        let memory = Box::into_raw(vec![0_u64; words + 1].into_boxed_slice()).cast::<u64>();
        // The length, for who frees it, in front.
        memory.write(words as u64 + 1);
        let start = memory.add(1).cast::<u8>();
        start.cast::<u32>().write(rows.len() as u32);
        start.add(8).cast::<AddressRow>().copy_from(rows.as_ptr(), rows.len());
        TABLES.fetch_add(1, Ordering::SeqCst);
        table.write(start);
        SUCCESS
    }
    fn FreeMibTable(table: Pointer) {
        let memory = table.cast::<u64>().sub(1);
        let len = memory.read() as usize;
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, len)));
        TABLES.fetch_sub(1, Ordering::SeqCst);
    }
    fn NotifyUnicastIpAddressChange(_family: u16, callback: Changed, context: Pointer, initial: u8, handle: *mut usize) -> i32 {
        watch(Subject::Addresses, callback, context, initial, handle)
    }
    fn NotifyRouteChange2(_family: u16, callback: Changed, context: Pointer, initial: u8, handle: *mut usize) -> i32 {
        watch(Subject::Routes, callback, context, initial, handle)
    }
    fn NotifyIpInterfaceChange(_family: u16, callback: Changed, context: Pointer, initial: u8, handle: *mut usize) -> i32 {
        watch(Subject::Interfaces, callback, context, initial, handle)
    }
    fn CancelMibChangeNotify2(handle: usize) -> i32 {
        irql::at_most(PASSIVE, "CancelMibChangeNotify2");
        let mut watchers = WATCHERS.lock().unwrap();
        let before = watchers.len();
        watchers.retain(|watcher| watcher.number != handle);
        if watchers.len() == before { breach!("an unknown notification is cancelled"); }
        SUCCESS
    }
    fn ConvertInterfaceGuidToLuid(guid: &GUID, luid: *mut u64) -> i32 {
        irql::at_most(PASSIVE, "ConvertInterfaceGuidToLuid");
        let [a, b, rest @ ..] = guid.Data4;
        let tail: String = rest.iter().map(|byte| format!("{byte:02X}")).collect();
        let text = format!("{{{:08X}-{:04X}-{:04X}-{a:02X}{b:02X}-{tail}}}", guid.Data1, guid.Data2, guid.Data3);
        let Some(nic) = nic::all().into_iter().find(|nic| nic.guid == text) else { return NOT_FOUND };
        luid.write(nic.luid());
        SUCCESS
    }
    /// MIB_IF_ROW2: the identifier 0, the physical address 0x424, its length 0x420, the MTU 0x464.
    fn GetIfEntry2(row: Pointer) -> i32 {
        irql::at_most(PASSIVE, "GetIfEntry2");
        if !NICS_ARE_KNOWN.load(Ordering::SeqCst) { return NOT_FOUND; }
        let luid = row.cast::<u64>().read();
        let Some(nic) = nic::all().into_iter().find(|nic| nic.luid() == luid) else { return NOT_FOUND };
        row.add(8).write_bytes(0, 1352 - 8);
        row.add(8).cast::<u32>().write(nic.index);
        row.add(0x420).cast::<u32>().write(6);
        row.add(0x424).cast::<[u8; 6]>().write(nic.mac);
        row.add(0x464).cast::<u32>().write(nic.mtu);
        SUCCESS
    }
    /// What is not on the link is behind the router.
    fn GetBestRoute2(luid: *const u64, index: u32, source: *const SOCKADDR_INET, destination: &SOCKADDR_INET,
        _options: u32, route: Pointer, best: *mut SOCKADDR_INET) -> i32 {
        irql::at_most(PASSIVE, "GetBestRoute2");
        let found = vnic::all().into_iter().find(|vnic| if luid.is_null() { vnic.index == index } else { vnic.luid() == *luid });
        let Some(vnic) = found else { return NOT_FOUND };
        route.write_bytes(0, 0x68);
        route.cast::<u64>().write(vnic.luid());
        route.add(8).cast::<u32>().write(vnic.index);
        // MIB_IPFORWARD_ROW2.NextHop; left zero where there is none.
        let destination = destination.socket_addr().map(|address| address.ip());
        if let Some(router) = destination.and_then(tcpip::router) {
            route.add(0x2C).cast::<SOCKADDR_INET>().write(std::net::SocketAddr::new(router, 0).into());
        }
        if !source.is_null() {
            best.write(*source);
        } else if let Some(&address) = vnic.addresses.lock().unwrap().first() {
            best.write(std::net::SocketAddr::new(address, 0).into());
        }
        SUCCESS
    }
    /// Knows whom a scenario makes it believe in: all others the image has to resolve.
    fn GetIpNetEntry2(row: &mut NeighbourRow) -> i32 {
        irql::at_most(PASSIVE, "GetIpNetEntry2");
        LOOKS.fetch_add(1, Ordering::SeqCst);
        let Some(address) = row.address.socket_addr() else { return NOT_FOUND };
        let Some((mac, state)) = believed(address.ip()) else { return NOT_FOUND };
        tell(row, mac, state)
    }
    /// Forgets first what it knows.
    fn ResolveIpNetEntry2(row: &mut NeighbourRow, _source: *const SOCKADDR_INET) -> i32 {
        irql::at_most(PASSIVE, "ResolveIpNetEntry2");
        if let Some(address) = row.address.socket_addr() {
            BELIEVED.lock().unwrap().retain(|(known, ..)| *known != address.ip());
        }
        RESOLUTIONS.fetch_add(1, Ordering::SeqCst);
        resolve(row)
    }
}
