//! The boundary of NDK, between a consumer and a provider: the tables of each object and the callbacks of the consumer, each call
//! handed on and noted.
//!
//! A consumer may put tables of its own into the objects that it got (`NDK_ADAPTER` and the others have theirs behind the header), and
//! a provider never reads them back. So nothing of provider and consumer is changed, and what a run shows is evidence: the statuses
//! that the provider gave, its notifications, and whether a completion was there for each.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, PoisonError};

use driver::abi::*;

use super::thunk::{ARGUMENTS, Convention, call, stub};
use super::{bytes, late};
use crate::ntos::irql::{self, DISPATCH};
use crate::stack;

/// Where a call crosses.
#[derive(Debug)]
pub(crate) struct Site {
    /// The function of the table, also where its callback is called.
    name: &'static str,
    target: usize,
    /// The provider's convention.
    provider: Convention,
    way: Way,
}

/// In which direction, and what for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Way {
    /// The consumer calls the provider.
    Function,
    /// The provider calls the consumer.
    Callback(Callback),
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Callback {
    /// Context, status, object.
    Creation,
    /// Context, status.
    Request,
    /// Context.
    Close,
    /// Context, status.
    Notification,
    /// Context, connector.
    ConnectEvent,
    /// Context.
    DisconnectEvent,
}

/// The slots of each kind's table, by `NDK_OBJECT_TYPE`.
const TABLES: [&[&str]; 11] = [
    &[],
    NDK_ADAPTER_DISPATCH::SLOTS,
    NDK_QP_DISPATCH::SLOTS,
    NDK_CQ_DISPATCH::SLOTS,
    NDK_MR_DISPATCH::SLOTS,
    NDK_MW_DISPATCH::SLOTS,
    NDK_PD_DISPATCH::SLOTS,
    NDK_SHARED_ENDPOINT_DISPATCH::SLOTS,
    NDK_CONNECTOR_DISPATCH::SLOTS,
    NDK_LISTENER_DISPATCH::SLOTS,
    NDK_SRQ_DISPATCH::SLOTS,
];
/// The places of an object's kind and table.
const KIND: usize = 4;
const DISPATCH_AT: usize = 0x28;

/// The callbacks among the arguments of a function, with their places.
fn callbacks(name: &str) -> &'static [(usize, Callback)] {
    use Callback::{Close, ConnectEvent, Creation, DisconnectEvent, Notification, Request};
    match name {
        "NdkCreateCq" => &[(2, Notification), (5, Creation)],
        "NdkCreatePd" | "NdkCreateConnector" | "NdkCreateMw" => &[(1, Creation)],
        "NdkCreateMr" => &[(2, Creation)],
        "NdkCreateSharedEndpoint" => &[(3, Creation)],
        "NdkCreateListener" => &[(1, ConnectEvent), (3, Creation)],
        "NdkCreateSrq" => &[(4, Notification), (7, Creation)],
        "NdkCreateQp" => &[(9, Creation)],
        "NdkCreateQpWithSrq" => &[(8, Creation)],
        "NdkDeregisterMr" | "NdkDisconnect" => &[(1, Request)],
        "NdkResizeCq" => &[(2, Request)],
        "NdkBuildLAM" | "NdkInitializeFastRegisterMr" | "NdkModifySrq" | "NdkListen" => {
            &[(3, Request)]
        }
        "NdkRegisterMr" => &[(4, Request)],
        "NdkConnect" => &[(10, Request)],
        "NdkConnectWithSharedEndpoint" => &[(9, Request)],
        "NdkCompleteConnect" | "NdkCompleteConnectEx" => &[(1, DisconnectEvent), (3, Request)],
        "NdkAccept" | "NdkAcceptEx" => &[(6, DisconnectEvent), (8, Request)],
        name if name.starts_with("NdkClose") => &[(1, Close)],
        _ => &[],
    }
}

/// Whether a function returns a status.
fn has_status(name: &str) -> bool {
    const OTHERS: [&str; 10] = [
        "NdkArmCq",
        "NdkControlConnectEvents",
        "NdkFlush",
        "NdkGetCqResults",
        "NdkGetCqResultsEx",
        "NdkGetLocalTokenFromMr",
        "NdkGetPrivilegedMemoryRegionToken",
        "NdkGetRemoteTokenFromMr",
        "NdkGetRemoteTokenFromMw",
        "NdkReleaseLAM",
    ];
    !OTHERS.contains(&name)
}

/// What has crossed.
#[derive(Default)]
struct Seen {
    /// How often each function of the provider, its completions (the name behind "end of ") and its results had each status.
    statuses: BTreeMap<(String, u32), usize>,
    notifications: usize,
    /// Notifications behind which the consumer found nothing.
    empty: usize,
}

static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);

thread_local! {
    /// A notification runs, and has not looked for completions yet.
    static IS_NOTIFIED: Cell<bool> = const { Cell::new(false) };
}

fn note(what: String, status: u32) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    *seen.statuses.entry((what, status)).or_insert(0) += 1;
}

/// Tells what has crossed.
pub(crate) fn tell() {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for ((what, status), count) in &seen.statuses {
        say!("boundary: {count} times {what} {status:#x}");
    }
    say!("boundary: {} notifications, {} of them empty", seen.notifications, seen.empty);
    let [compared, missing] = bytes::compared();
    say!(
        "boundary: the bytes of {compared} requests were compared, and {missing} SENDs have not arrived"
    );
}

/// Whether a listener of the consumer listens.
pub(crate) fn is_listening() -> bool {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    ["NdkListen", "end of NdkListen"]
        .iter()
        .any(|&what| seen.statuses.contains_key(&(what.into(), 0)))
}

/// Puts tables of ours into an object that the consumer gets, if it has none yet.
///
/// # Safety
/// It is an object of a provider of this convention.
pub(crate) unsafe fn adopt(object: u64, provider: Convention) {
    type Tables = HashMap<usize, &'static [usize]>;
    static OURS: LazyLock<Mutex<Tables>> = LazyLock::new(Mutex::default);
    let object = object as *mut u8;
    let kind = object.add(KIND).cast::<u32>().read() as usize;
    let place = object.add(DISPATCH_AT).cast::<usize>();
    let theirs = place.read();
    let mut ours = OURS.lock().unwrap();
    if ours.values().any(|table| table.as_ptr() as usize == theirs) {
        return;
    }
    let ours = *ours.entry(theirs).or_insert_with(|| {
        let slots = TABLES[kind].iter().enumerate().map(|(slot, &name)| {
            let target = (theirs as *const usize).add(slot).read();
            let site = Site { name, target, provider, way: Way::Function };
            stub(Box::leak(Box::new(site)), Convention::Windows)
        });
        slots.collect::<Vec<_>>().leak()
    });
    place.write(ours.as_ptr() as usize);
}

/// The consumer's callback, as the provider is to call it.
fn wrap(target: u64, callback: Callback, of: &Site) -> u64 {
    type Wrapped = HashMap<(u64, &'static str, Callback, Convention), u64>;
    static WRAPPED: LazyLock<Mutex<Wrapped>> = LazyLock::new(Mutex::default);
    if target == 0 {
        return 0;
    }
    let key = (target, of.name, callback, of.provider);
    *WRAPPED.lock().unwrap().entry(key).or_insert_with(|| {
        let Site { name, provider, .. } = *of;
        let way = Way::Callback(callback);
        let site = Site { name, target: target as usize, provider, way };
        stub(Box::leak(Box::new(site)), provider) as u64
    })
}

/// What a stub calls: hands the call on.
///
/// # Safety
/// `arguments` are those of a call of the stub; more words may be read behind them.
pub(crate) unsafe extern "win64" fn handle(site: &'static Site, arguments: *mut u64) -> u64 {
    match site.way {
        Way::Function => function(site, arguments),
        Way::Callback(callback) => called_back(site, callback, arguments),
    }
}

unsafe fn function(site: &'static Site, arguments: *mut u64) -> u64 {
    let mut words = arguments.cast::<[u64; ARGUMENTS]>().read();
    stack::outside(|| {
        for &(place, callback) in callbacks(site.name) {
            words[place] = wrap(words[place], callback, site);
        }
        unsafe { bytes::begins(site.name, &words) };
    });
    let result = match site.provider {
        Convention::Windows => call(site.target, site.provider, words),
        Convention::Linux => stack::outside(|| call(site.target, site.provider, words)),
    };
    stack::outside(|| unsafe { returned(site, &words, result) });
    result
}

/// Notes how a function has ended.
unsafe fn returned(site: &Site, words: &[u64; ARGUMENTS], result: u64) {
    let status = result as u32;
    bytes::ends(site.name, words, result);
    match site.name {
        "NdkGetCqResults" => results(words[1], status, size_of::<NDK_RESULT>()),
        "NdkGetCqResultsEx" => results(words[1], status, size_of::<NDK_RESULT_EX>()),
        name if has_status(name) => note(name.into(), status),
        _ => {}
    }
    let created = callbacks(site.name).iter().find(|(_, callback)| *callback == Callback::Creation);
    if let (Some((place, _)), 0) = (created, status) {
        let object = (words[place + 2] as *const u64).read();
        bytes::created(words[place + 1], object);
        adopt(object, site.provider);
    }
}

/// Notes the statuses of results, which lie so many bytes apart.
unsafe fn results(start: u64, count: u32, len: usize) {
    if IS_NOTIFIED.replace(false) && count == 0 {
        SEEN.lock().unwrap().empty += 1;
    }
    for index in 0..count as usize {
        let place = (start as *const u8).add(index * len);
        let [status, received] = place.cast::<[u32; 2]>().read();
        bytes::result(place.add(16).cast::<u64>().read(), status, received as usize);
        note("a result".into(), status);
    }
}

unsafe fn called_back(site: &'static Site, callback: Callback, arguments: *mut u64) -> u64 {
    let mut words = [0; ARGUMENTS];
    // No callback has more.
    words[..3].copy_from_slice(&arguments.cast::<[u64; 3]>().read());
    stack::outside(|| unsafe { arrives(site, callback, &words) });
    let call = || unsafe { call(site.target, Convention::Windows, words) };
    let result = match site.provider {
        Convention::Windows => call(),
        Convention::Linux => irql::run_at(DISPATCH, "a callback of the consumer", call),
    };
    IS_NOTIFIED.set(false);
    result
}

/// Notes a callback, before which this thread may rest.
unsafe fn arrives(site: &Site, callback: Callback, words: &[u64; ARGUMENTS]) {
    // Those of the thousand regions that a consumer makes first, and lets go of at last, would only take time.
    if matches!(
        callback,
        Callback::Notification | Callback::ConnectEvent | Callback::DisconnectEvent
    ) {
        late::rest();
    }
    let [context, status, object, ..] = *words;
    match callback {
        Callback::Creation => {
            note(format!("end of {}", site.name), status as u32);
            if status as u32 == 0 {
                bytes::created(context, object);
                adopt(object, site.provider);
            }
        }
        Callback::Request => note(format!("end of {}", site.name), status as u32),
        Callback::Notification => {
            note("a notification".into(), status as u32);
            SEEN.lock().unwrap().notifications += 1;
            IS_NOTIFIED.set(true);
        }
        Callback::ConnectEvent => {
            note("a connect event".into(), 0);
            // The connector is the second argument.
            adopt(status, site.provider);
        }
        Callback::DisconnectEvent => note("a disconnect event".into(), 0),
        Callback::Close => {}
    }
}
