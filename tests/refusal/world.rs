//! Two providers on one thread, and a consumer that allocates nothing in a call or in a callback.

use super::*;
use driver::platform::{Mapped, Platform};
use driver::{Limits, PollCore, ProviderConfig, Shard};
use ndk_consumer::{Buffer, Mdl, NdkObject};
use netadapter_glue::Edge;
use netadapter_glue::memory::{MemoryConfig, pair};
use rocev2::env::{Duration, Instant};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use tests::alloc::pool;
use tests::kit::raw::Object;

const TURN: Duration = Duration::from_micros(10);
/// On the virtual clock; a turn without work lasts as long as it may.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes that are registered: more than a page.
pub(crate) const MEMORY: usize = 3 * PAGE_SIZE;
/// So many requests of the consumer pend at once.
const ENDS: usize = 4;

/// The platform of a driver whose pool may be exhausted.
struct Kernel(Arc<AtomicU64>);

impl Platform for Kernel {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn map(&self, mdl: &MDL) -> Option<Mapped> {
        NonNull::new(mdl.MappedSystemVa.cast()).map(Mapped::borrowed)
    }

    fn with_memory(&self, bytes: usize, work: &mut dyn FnMut()) -> bool {
        pool::reserved(bytes, work)
    }

    fn has_room(&self) -> bool {
        !pool::is_short()
    }
}

/// Where a callback tells what has come.
pub(crate) struct End {
    done: Cell<bool>,
    status: Cell<NTSTATUS>,
    object: Cell<PVOID>,
}

impl End {
    const fn new() -> Self {
        let object = Cell::new(std::ptr::null_mut());
        Self { done: Cell::new(false), status: Cell::new(STATUS_PENDING), object }
    }

    pub(crate) fn context(&self) -> PVOID {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The object that has come, once.
    pub(crate) fn object<T>(&self) -> *mut T {
        self.object.replace(std::ptr::null_mut()).cast()
    }

    fn set(context: PVOID, status: NTSTATUS, object: PVOID) {
        // SAFETY: an end of the world, which outlives its providers.
        let end = unsafe { &*context.cast::<Self>() };
        end.status.set(status);
        end.object.set(object);
        end.done.set(true);
    }
}

pub(crate) unsafe extern "system" fn created(
    context: PVOID,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    End::set(context, status, object.cast());
}

pub(crate) unsafe extern "system" fn requested(context: PVOID, status: NTSTATUS) {
    End::set(context, status, std::ptr::null_mut());
}

pub(crate) unsafe extern "system" fn closed(context: PVOID) {
    End::set(context, STATUS_SUCCESS, std::ptr::null_mut());
}

pub(crate) unsafe extern "system" fn incoming(context: PVOID, connector: *mut NDK_CONNECTOR) {
    End::set(context, STATUS_SUCCESS, connector.cast());
}

pub(crate) unsafe extern "system" fn left(_: PVOID) {}

pub(crate) unsafe extern "system" fn notified(_: PVOID, _: NTSTATUS) {}

/// An object of the consumer, and how it is closed.
struct Open {
    name: &'static str,
    object: PVOID,
    close: NDK_FN_CLOSE_OBJECT,
}

pub(crate) struct World {
    cores: [PollCore; 2],
    shards: [Arc<Shard>; 2],
    clock: Arc<AtomicU64>,
    /// In the order in which they were made.
    open: Vec<Open>,
    adapters: [*mut NDK_ADAPTER; 2],
    pub(crate) ends: Box<[End; ENDS]>,
    /// The memory that the providers reach.
    #[expect(dead_code, reason = "keeps it alive")]
    memory: Buffer,
    /// What describes it.
    pub(crate) mdl: Mdl,
    /// Room for a mapping of it.
    pub(crate) lam: Box<[u64; 8]>,
}

pub(crate) fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host as u8))
}

impl World {
    /// Two hosts, each with an open adapter.
    pub(crate) fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1));
        let (first, second) = pair(MemoryConfig::default());
        let core = |edge: Box<dyn Edge + Send>, host: usize| {
            let limits = Limits { reorder_pool: 1 << 16, objects: 256, ..Limits::default() };
            let config = ProviderConfig { limits, ..ProviderConfig::new(vec![address(host)]) };
            let platform = Box::new(Kernel(Arc::clone(&clock)));
            let wakers = [Waker::noop().clone()];
            let mut cores =
                PollCore::several(vec![edge], platform, config, [host as u8; 32], &wakers);
            cores.pop().expect("an edge has a core")
        };
        let cores = [core(Box::new(first), 0), core(Box::new(second), 1)];
        let shards = cores.each_ref().map(|core| Arc::clone(core.shard()));
        let memory = Buffer::new(MEMORY);
        let mut world = Self {
            cores,
            shards,
            clock,
            open: Vec::with_capacity(64),
            adapters: [std::ptr::null_mut(); 2],
            ends: Box::new([const { End::new() }; ENDS]),
            mdl: Mdl::new(memory.as_ptr(), memory.len()),
            memory,
            lam: Box::new([0; 8]),
        };
        world.adapters = [0, 1].map(|host| world.open_adapter(host));
        world
    }

    fn open_adapter(&mut self, host: usize) -> *mut NDK_ADAPTER {
        let opened = Arc::new(AtomicUsize::new(0));
        let tell = Arc::clone(&opened);
        let then = Box::new(move |adapter: *mut NDK_ADAPTER| {
            tell.store(adapter.expose_provenance(), Ordering::Relaxed);
        });
        self.shards[host].open_adapter(driver::VERSION, then).expect("there is memory");
        self.run_until(|_| opened.load(Ordering::Relaxed) != 0);
        std::ptr::with_exposed_provenance_mut(opened.load(Ordering::Relaxed))
    }

    pub(crate) fn adapter(&self, host: usize) -> Object<NDK_ADAPTER> {
        Object(self.adapters[host])
    }

    /// An object that was made, by its name.
    pub(crate) fn get<T>(&self, name: &str) -> Object<T> {
        let found = self.open.iter().find(|open| open.name == name);
        Object(found.map_or(std::ptr::null_mut(), |open| open.object.cast()))
    }

    /// Takes turns until `done`. False where that takes longer than a consumer waits.
    pub(crate) fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) -> bool {
        let deadline = Instant::from_nanos(self.clock.load(Ordering::Relaxed)) + PATIENCE;
        while !done(self) {
            let now = Instant::from_nanos(self.clock.load(Ordering::Relaxed));
            if now > deadline {
                return false;
            }
            let turns = self.cores.each_mut().map(|core| pool::provider(|| core.poll(now)));
            let soon = now + TURN;
            let [first, second] = turns.each_ref().map(|turn| turn.next);
            let busy = turns.iter().any(|turn| turn.busy);
            let later = Instant::earlier(first, second).filter(|_| !busy);
            let next = later.map_or(soon, |later| later.max(soon));
            self.clock.store(next.as_nanos(), Ordering::Relaxed);
        }
        true
    }

    /// Makes a request that ends at one of the ends. Whether it pends.
    pub(crate) fn begin(&self, end: usize, start: impl FnOnce(PVOID) -> NTSTATUS) -> bool {
        let end = &self.ends[end];
        end.done.set(false);
        let status = pool::provider(|| start(end.context()));
        if status != STATUS_PENDING {
            end.status.set(status);
            end.done.set(true);
        }
        status == STATUS_PENDING
    }

    /// Waits for an end.
    pub(crate) fn end(&mut self, end: usize) -> NTSTATUS {
        assert!(self.run_until(|world| world.ends[end].done.get()), "a request ends");
        self.ends[end].status.get()
    }

    /// Whether an end has come.
    pub(crate) fn is_done(&self, end: usize) -> bool {
        self.ends[end].done.get()
    }

    /// Makes an end ready for an event.
    pub(crate) fn expect(&self, end: usize) {
        self.ends[end].done.set(false);
    }

    /// Makes a request and waits for its end.
    pub(crate) fn request(&mut self, start: impl FnOnce(PVOID) -> NTSTATUS) -> NTSTATUS {
        self.request_at(0, start)
    }

    /// The same, at another end.
    pub(crate) fn request_at(
        &mut self,
        end: usize,
        start: impl FnOnce(PVOID) -> NTSTATUS,
    ) -> NTSTATUS {
        self.begin(end, start);
        self.end(end)
    }

    /// Creates an object, and keeps it by its name.
    pub(crate) fn create<T: NdkObject>(
        &mut self,
        name: &'static str,
        start: impl FnOnce(PVOID, *mut *mut T) -> NTSTATUS,
    ) -> NTSTATUS {
        let mut inline: *mut T = std::ptr::null_mut();
        let pends = self.begin(0, |context| start(context, &raw mut inline));
        let status = self.end(0);
        if status == STATUS_SUCCESS {
            let object = if pends { self.ends[0].object() } else { inline };
            self.keep(name, object);
        }
        status
    }

    /// Keeps an open object by a name.
    pub(crate) fn keep<T: NdkObject>(&mut self, name: &'static str, object: *mut T) {
        let opened = NonNull::new(object).expect("an object was made");
        // SAFETY: it is open.
        let close = T::close(&unsafe { T::table(opened) });
        self.open.push(Open { name, object: object.cast(), close });
    }

    /// Closes an object, if it was made.
    pub(crate) fn close_one(&mut self, name: &str) {
        let Some(at) = self.open.iter().position(|open| open.name == name) else { return };
        let Open { object, close, .. } = self.open.remove(at);
        self.begin(3, |context| {
            // SAFETY: an open object, and this is its only close.
            unsafe { close(object.cast(), Some(closed), context) }
        });
        assert_eq!(self.end(3), STATUS_SUCCESS, "a close never fails");
    }

    /// Closes all objects, the newest first, and the adapters: nothing is left.
    pub(crate) fn close(mut self) {
        while let Some(Open { name, .. }) = self.open.last() {
            let name = *name;
            self.close_one(name);
        }
        for host in 0..2 {
            let over = Arc::new(AtomicUsize::new(0));
            let tell = Arc::clone(&over);
            let then = Box::new(move || tell.store(1, Ordering::Relaxed));
            // SAFETY: open, and nothing uses it any more.
            unsafe { self.shards[host].close_adapter(self.adapters[host], then) };
            assert!(self.run_until(|_| over.load(Ordering::Relaxed) == 1), "an adapter closes");
            assert_eq!(self.shards[host].open_objects(), 0, "host {host} keeps an object");
        }
    }
}
