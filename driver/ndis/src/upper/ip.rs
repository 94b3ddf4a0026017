//! The knowledge of TCP/IP: the adapter's addresses and its neighbours. All at PASSIVE_LEVEL, on a worker.
#![allow(unsafe_code, reason = "calls IP Helper")]

use super::adapter::Adapter;
use crate::abi::imports::{
    CancelMibChangeNotify2, ConvertInterfaceGuidToLuid, FreeMibTable, GetBestRoute2, GetIfEntry2,
    GetIpNetEntry2, GetUnicastIpAddressTable, NotifyIpInterfaceChange, NotifyRouteChange2,
    NotifyUnicastIpAddressChange, ResolveIpNetEntry2,
};
use crate::abi::*;
use crate::handler::{handler, object};
use crate::os::Neighbours;
use crate::os::sync::{Gate, SpinLock, sleep};
use crate::pairing::DRIVER;
use crate::sorting::ADDRESSES_MAX;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ptr::null_mut;
use core::time::Duration;
use driver::Shard;
use driver::platform::{Resolve, Resolver};
use once_cell::race::OnceBox;

/// Follows the addresses of an adapter, and the paths to its neighbours, until it is dropped.
pub(crate) struct AddressWatch {
    /// The notifications of addresses, routes and interfaces.
    handles: [PVOID; 3],
    /// The context of the notifications.
    context: *mut WatchContext,
}

// SAFETY: the handles and the context belong to no thread.
unsafe impl Send for AddressWatch {}

struct WatchContext {
    adapter: Weak<Adapter>,
    /// The looks in progress. It is shut when the watch ends; a look that comes later does nothing.
    looks: Arc<Gate>,
}

impl AddressWatch {
    /// PASSIVE_LEVEL.
    pub(crate) fn start(adapter: &Arc<Adapter>) -> Result<Self, NDIS_STATUS> {
        let looks = Arc::new(Gate::shut());
        looks.open();
        let context = Box::new(WatchContext { adapter: Arc::downgrade(adapter), looks });
        let mut watch = Self { handles: [null_mut(); 3], context: Box::into_raw(context) };
        let pointer: PVOID = watch.context.cast();
        let [addresses, routes, interfaces] = &mut watch.handles;
        // SAFETY: the context lives until the notification is cancelled.
        let status = unsafe {
            NotifyUnicastIpAddressChange(AF_UNSPEC, address_changed, pointer, FALSE, addresses)
        };
        status.ok()?;
        // SAFETY: as above.
        let status =
            unsafe { NotifyRouteChange2(AF_UNSPEC, route_changed, pointer, FALSE, routes) };
        status.ok()?;
        // SAFETY: as above.
        let status = unsafe {
            NotifyIpInterfaceChange(AF_UNSPEC, interface_changed, pointer, FALSE, interfaces)
        };
        status.ok()?;
        // SAFETY: ours until the drop.
        unsafe { &*watch.context }.refresh();
        Ok(watch)
    }
}

impl Drop for AddressWatch {
    /// Waits for notifications and looks in progress. PASSIVE_LEVEL.
    fn drop(&mut self) {
        for handle in self.handles.into_iter().filter(|handle| !handle.is_null()) {
            // SAFETY: registered, and not cancelled yet.
            let _ = unsafe { CancelMibChangeNotify2(handle) };
        }
        // SAFETY: from `start`; no notification comes any more.
        let context = unsafe { Box::from_raw(self.context) };
        context.looks.close();
        context.looks.wait_empty();
    }
}

impl WatchContext {
    fn refresh(&self) {
        self.look(|adapter| adapter.set_addresses(&addresses_of(adapter.luid)));
    }

    /// Checks the paths: the way to neighbours may have changed.
    fn check(&self) {
        self.look(Adapter::check_paths);
    }

    /// Looks at what TCP/IP knows now, on the driver's thread. If its queue is full, such a look is in it, or the next
    /// change, or the next check of the paths, sees the same.
    fn look(&self, what: fn(&Adapter)) {
        let (adapter, looks) = (Weak::clone(&self.adapter), Arc::clone(&self.looks));
        let job = Box::new(move || {
            if looks.enter(1) {
                // The adapter ends before the watch may, which waits for this.
                if let Some(adapter) = adapter.upgrade() {
                    what(&adapter);
                }
                looks.leave(1);
            }
        });
        let _ = DRIVER.chores().is_some_and(|chores| chores.push(job));
    }
}

handler! {
    /// An address came, changed or went. The watch is not cancelled yet.
    fn address_changed(
        watch: &WatchContext = object(context: PVOID),
        _row: *mut MIB_UNICASTIPADDRESS_ROW,
        _notification: i32,
    ) {
        watch.refresh();
    }
}

handler! {
    /// A route came, changed or went.
    fn route_changed(
        watch: &WatchContext = object(context: PVOID),
        _row: *mut MIB_IPFORWARD_ROW2,
        _notification: i32,
    ) {
        watch.check();
    }
}

handler! {
    /// An interface came, changed or went.
    fn interface_changed(
        watch: &WatchContext = object(context: PVOID),
        _row: PVOID,
        _notification: i32,
    ) {
        watch.check();
    }
}

/// The addresses of an interface, at most [`ADDRESSES_MAX`] of each kind.
#[derive(Default)]
pub(crate) struct Addresses {
    /// Those that connections may use.
    pub(crate) usable: Vec<IpAddr>,
    /// Those, and the ones that TCP/IP still looks for in the network.
    pub(crate) claimed: Vec<IpAddr>,
    /// The zone of those of its link; 0 where there is none.
    pub(crate) zone: u32,
}

fn addresses_of(luid: NET_LUID) -> Addresses {
    let mut table = null_mut();
    // SAFETY: a place for the table.
    let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &mut table) };
    if !status.is_success() || table.is_null() {
        return Addresses::default();
    }
    // SAFETY: the table was just made.
    let count = unsafe { (*table).NumEntries };
    // SAFETY: as above; its rows follow.
    let first = unsafe { (&raw const (*table).Table).cast::<MIB_UNICASTIPADDRESS_ROW>() };
    // SAFETY: as above.
    let rows = unsafe { slice(first, count) };
    let of = |least| {
        let ours =
            rows.iter().filter(move |row| row.InterfaceLuid == luid && row.DadState >= least);
        ours.filter_map(|row| row.Address.socket_addr()).take(ADDRESSES_MAX)
    };
    let ips = |least| of(least).map(|address| address.ip()).collect();
    let found = Addresses {
        usable: ips(IpDadStateDeprecated),
        claimed: ips(IpDadStateTentative),
        zone: of(IpDadStateDeprecated).find_map(zone).unwrap_or(0),
    };
    // SAFETY: the table is ours, and no longer used.
    unsafe { FreeMibTable(table.cast()) };
    found
}

/// The zone that a row names, if it is of an address of the link.
fn zone(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => None,
    }
}

/// Resolves neighbours of an adapter.
pub(crate) struct Neighbourhood {
    luid: NET_LUID,
    /// Whether peers may be behind a router.
    remote_subnets: bool,
    shard: OnceBox<Weak<Shard>>,
    /// The questions that are not answered yet: an answer serves all who asked the same.
    asked: SpinLock<heapless::Vec<Question, ASKED_MAX>>,
}

/// The path, and how much is done for it.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Question {
    local: IpAddr,
    remote: IpAddr,
    how: Resolve,
}

/// Where more are open, the same may be asked twice.
const ASKED_MAX: usize = 256;

impl Neighbourhood {
    pub(crate) fn new(luid: NET_LUID, remote_subnets: bool) -> Self {
        let asked = SpinLock::new(heapless::Vec::new());
        Self { luid, remote_subnets, shard: OnceBox::new(), asked }
    }

    pub(crate) fn set_shard(&self, shard: &Arc<Shard>) {
        // The shard is set once.
        let _ = self.shard.set(Box::new(Arc::downgrade(shard)));
    }
}

impl Neighbours for Arc<Neighbourhood> {
    fn resolve(&self, local: IpAddr, remote: IpAddr, how: Resolve) -> Resolver {
        let question = Question { local, remote, how };
        if !self.note(question) {
            return Resolver::Platform;
        }
        // A connect to a neighbour that TCP/IP knows waits for no dead one.
        let looks =
            how == Resolve::Ask && self.push(Resolve::Look, Neighbourhood::look_first, question);
        if looks || self.push(how, Neighbourhood::answer, question) {
            Resolver::Platform
        } else {
            self.forget(question);
            Resolver::Nobody
        }
    }
}

impl Neighbourhood {
    /// Queues work on a question for the threads of this kind. Returns false where there is no room.
    fn push(
        self: &Arc<Self>,
        kind: Resolve,
        work: fn(&Arc<Self>, Question),
        about: Question,
    ) -> bool {
        let this = Arc::clone(self);
        let jobs = DRIVER.resolvers(kind);
        jobs.is_some_and(|jobs| jobs.push(Box::new(move || work(&this, about))))
    }

    /// Notes a question. Returns false where it is asked already.
    fn note(&self, question: Question) -> bool {
        let mut asked = self.asked.lock();
        let is_new = !asked.contains(&question);
        if is_new {
            let _ = asked.push(question);
        }
        is_new
    }

    /// Answers a connect's question from what TCP/IP knows; else has the network asked. PASSIVE_LEVEL.
    fn look_first(self: &Arc<Self>, question: Question) {
        let Question { local, remote, how } = question;
        if let Some(mac) = neighbour(self.luid, local, remote, self.remote_subnets, Resolve::Look) {
            return self.tell(question, Some(mac));
        }
        if !self.push(how, Self::answer, question) {
            self.tell(question, None);
        }
    }

    /// Finds an answer, and tells the core. PASSIVE_LEVEL.
    fn answer(self: &Arc<Self>, question: Question) {
        let Question { local, remote, how } = question;
        // The adapter may be gone, and with it all who asked.
        let mac = self
            .shard()
            .and_then(|_| neighbour(self.luid, local, remote, self.remote_subnets, how));
        self.tell(question, mac);
    }

    fn shard(&self) -> Option<Arc<Shard>> {
        self.shard.get().and_then(|shard| shard.upgrade())
    }

    /// Tells the core an answer. PASSIVE_LEVEL.
    fn tell(&self, question: Question, mac: Option<[u8; 6]>) {
        // Before: a question that comes from here on has an answer of its own.
        self.forget(question);
        // The absence of a known neighbour is no answer.
        if mac.is_none() && question.how == Resolve::Look {
            return;
        }
        while let Some(shard) = self.shard()
            && shard.resolved(question.remote, mac).is_err()
        {
            sleep(Duration::from_millis(1));
        }
    }

    fn forget(&self, question: Question) {
        let mut asked = self.asked.lock();
        if let Some(at) = asked.iter().position(|known| *known == question) {
            asked.swap_remove(at);
        }
    }
}

/// The Ethernet address of the next hop. The cache comes first, because resolving flushes it.
fn neighbour(
    luid: NET_LUID,
    local: IpAddr,
    remote: IpAddr,
    remote_subnets: bool,
    how: Resolve,
) -> Option<[u8; 6]> {
    let source = SOCKADDR_INET::from(SocketAddr::new(local, 0));
    let router = router(luid, &source, remote)?;
    if router.is_some() && !remote_subnets {
        return None;
    }
    let hop = router.unwrap_or_else(|| SOCKADDR_INET::from(SocketAddr::new(remote, 0)));
    let mut row = MIB_IPNET_ROW2 {
        Address: hop,
        InterfaceIndex: 0,
        InterfaceLuid: luid,
        PhysicalAddress: [0; 32],
        PhysicalAddressLength: 0,
        State: 0,
        Flags: 0,
        ReachabilityTime: 0,
    };
    if how != Resolve::Renew {
        // SAFETY: the row lives during the call.
        let known = unsafe { GetIpNetEntry2(&mut row) };
        if known.is_success() && row.State >= NlnsDelay {
            return mac(&row);
        }
        if how == Resolve::Look {
            return None;
        }
        row.State = 0;
    }
    // SAFETY: both live during the call.
    let resolved = unsafe { ResolveIpNetEntry2(&mut row, &source) };
    if resolved.is_success() { mac(&row) } else { None }
}

/// The router on the way to `remote`, if one is needed; the outer `None` means that there is no route.
fn router(luid: NET_LUID, source: &SOCKADDR_INET, remote: IpAddr) -> Option<Option<SOCKADDR_INET>> {
    let destination = SOCKADDR_INET::from(SocketAddr::new(remote, 0));
    // SAFETY: all zero is an empty route.
    let mut route: MIB_IPFORWARD_ROW2 = unsafe { core::mem::zeroed() };
    let mut best = SOCKADDR_INET::UNSPECIFIED;
    // SAFETY: everything lives during the call.
    let found = unsafe { GetBestRoute2(&luid, 0, source, &destination, 0, &mut route, &mut best) };
    found.ok().ok()?;
    let hop = route.NextHop.socket_addr().filter(|hop| !hop.ip().is_unspecified());
    Some(hop.map(SOCKADDR_INET::from))
}

fn mac(row: &MIB_IPNET_ROW2) -> Option<[u8; 6]> {
    let [a, b, c, d, e, f, ..] = row.PhysicalAddress;
    let address = [a, b, c, d, e, f];
    (row.PhysicalAddressLength == 6 && address != [0; 6]).then_some(address)
}

/// The Ethernet address of the interface whose GUID this is, as text.
pub(crate) fn mac_of(guid: &[u16]) -> Option<[u8; 6]> {
    let guid = parse_guid(guid)?;
    let mut luid = NET_LUID::default();
    // SAFETY: both live during the call.
    unsafe { ConvertInterfaceGuidToLuid(&guid, &mut luid) }.ok().ok()?;
    // SAFETY: all zero is an empty row. In a box, as a kernel stack is small.
    let mut row: Box<MIB_IF_ROW2> = unsafe { Box::new_zeroed().assume_init() };
    row.InterfaceLuid = luid;
    // SAFETY: the row lives during the call.
    unsafe { GetIfEntry2(&mut *row) }.ok().ok()?;
    let [a, b, c, d, e, f, ..] = row.PhysicalAddress;
    let address = [a, b, c, d, e, f];
    (row.PhysicalAddressLength == 6 && address != [0; 6]).then_some(address)
}

/// `{xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx}`, with or without braces.
fn parse_guid(text: &[u16]) -> Option<GUID> {
    let mut digits =
        text.iter().filter_map(|&unit| char::from(u8::try_from(unit).ok()?).to_digit(16));
    let mut number = |count: usize| {
        digits
            .by_ref()
            .take(count)
            .try_fold((0, 0_u64), |(len, value), digit| {
                Some((len + 1, value << 4 | u64::from(digit)))
            })
            .filter(|&(len, _)| len == count)
            .map(|(_, value)| value)
    };
    let (a, b, c, d) = (number(8)?, number(4)?, number(4)?, number(16)?);
    Some(GUID { Data1: a as u32, Data2: b as u16, Data3: c as u16, Data4: d.to_be_bytes() })
}
