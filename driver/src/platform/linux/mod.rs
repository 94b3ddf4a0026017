//! The provider in a Linux process: a thread that polls and sleeps when there is nothing to do, with the help of
//! consumers that poll or wait.

mod batch;
mod own_lines;
mod runner;
mod visit;
mod waiters;
mod wakeup;

pub use own_lines::OwnLines;
pub use visit::Waited;

use super::{Mapped, Platform};
use crate::abi::{
    MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_SOURCE_IS_NONPAGED_POOL, NDIS_STATUS_RESOURCES, NDK_ADAPTER,
    NDK_VERSION, NTSTATUS,
};
use crate::counters::{AdapterCounters, Connection};
use crate::object::shared::Context;
use crate::platform::request::{Listed, connections};
use crate::shard::Shard;
use crate::turn::ProviderConfig;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr::NonNull;
use netadapter_glue::Edge;
use rocev2::env::{Duration, Instant};
use runner::Runner;
use std::io;
use std::sync::{OnceLock, mpsc};
use std::thread::{self, JoinHandle};

/// The Linux side of [`Platform`].
struct Linux {
    origin: std::time::Instant,
    /// Of each core, once they are made.
    runners: Arc<OnceLock<Vec<Weak<Runner>>>>,
}

impl Linux {
    fn new(runners: Arc<OnceLock<Vec<Weak<Runner>>>>) -> Self {
        Self { origin: std::time::Instant::now(), runners }
    }

    fn runner(&self, core: u8) -> Option<Arc<Runner>> {
        self.runners.get()?.get(usize::from(core))?.upgrade()
    }
}

impl Platform for Linux {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn takes_turns(&self) -> bool {
        true
    }

    fn map(&self, mdl: &MDL) -> Option<Mapped> {
        map_in_process(mdl)
    }

    fn poll_core(&self, core: u8) -> bool {
        self.runner(core).is_some_and(|runner| runner.poll_inline())
    }

    fn stop_polling(&self, core: u8) {
        if let Some(runner) = self.runner(core) {
            runner.stop_polling();
        }
    }
}

/// In one process every mapping is a system mapping.
pub(super) fn map_in_process(mdl: &MDL) -> Option<Mapped> {
    let mapped = mdl.MdlFlags & (MDL_MAPPED_TO_SYSTEM_VA | MDL_SOURCE_IS_NONPAGED_POOL) != 0;
    let address = if mapped { mdl.MappedSystemVa } else { mdl.virtual_address() };
    NonNull::new(address.cast()).map(Mapped::borrowed)
}

/// Asks the core for an adapter instance, which comes by the channel.
pub(super) fn open(
    shard: &Shard,
    version: NDK_VERSION,
    sender: mpsc::Sender<Context>,
) -> Result<(), NTSTATUS> {
    let opened = Box::new(move |adapter: *mut NDK_ADAPTER| {
        // The opener waits for it.
        let _ = sender.send(Context::new(adapter.cast()));
    });
    shard.open_adapter(version, opened)
}

/// Waits for what [`open`] asked for.
pub(super) fn opened(opened: &mpsc::Receiver<Context>) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
    let adapter: *mut NDK_ADAPTER = opened.recv().map_err(|_| NDIS_STATUS_RESOURCES)?.get().cast();
    if adapter.is_null() { Err(NDIS_STATUS_RESOURCES) } else { Ok(adapter) }
}

/// A running provider: one adapter on one interface, and the threads that poll it, one for each core.
///
/// Dropping it stops the threads. Every adapter must be closed before.
pub struct Provider {
    shard: Arc<Shard>,
    /// The first core's.
    runner: Arc<Runner>,
    threads: Vec<JoinHandle<()>>,
}

impl Provider {
    /// Starts a provider on `edge`.
    ///
    /// # Errors
    /// The operating system's, for want of descriptors, threads or entropy.
    pub fn start(edge: Box<dyn Edge + Send>, config: ProviderConfig) -> io::Result<Self> {
        Self::start_cores(vec![edge], config)
    }

    /// Starts a provider of several poll cores, one for each of `edges`, which are those of one interface; see
    /// [`PollCore::several`](crate::PollCore::several). The process does well to have [`OwnLines`].
    ///
    /// # Errors
    /// As [`Self::start`]; `Unsupported` for several that are one socket.
    ///
    /// # Panics
    /// Without an edge, or with more than [`MAX_CORES`](rocev2::ids::MAX_CORES).
    pub fn start_cores(
        edges: Vec<Box<dyn Edge + Send>>,
        config: ProviderConfig,
    ) -> io::Result<Self> {
        let seed = match config.seed {
            Some(seed) => seed,
            None => entropy()?,
        };
        if edges.len() > 1 && edges[0].link().socket {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let runners = Runner::all(edges, config, seed)?;
        let runner = Arc::clone(&runners[0]);
        let shard = Arc::clone(runner.shard());
        let mut provider = Self { shard, runner, threads: Vec::with_capacity(runners.len()) };
        for runner in runners {
            let thread = thread::Builder::new().name("ndkrocev2".into());
            provider.threads.push(thread.spawn(move || runner.run())?);
        }
        Ok(provider)
    }

    /// Opens an adapter instance, as the NDIS open handler does; any number may be open. The consumer gives
    /// the lowest minor version that it supports, and gets our highest.
    ///
    /// # Errors
    /// `NDIS_STATUS_BAD_VERSION`, `NDIS_STATUS_RESOURCES`.
    pub fn open_adapter(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let (sender, receiver) = mpsc::channel();
        open(&self.shard, version, sender)?;
        self.runner.recall();
        opened(&receiver)
    }

    /// Closes an adapter instance. Returns once every object under it is closed and every callback
    /// has returned. Never call it from a callback.
    ///
    /// # Safety
    /// `adapter` was opened here and is not closed yet; nothing uses it any more.
    #[allow(unsafe_code, reason = "the consumer's pointer is the object")]
    pub unsafe fn close_adapter(&self, adapter: *mut NDK_ADAPTER) {
        let (sender, closed) = mpsc::channel();
        let signal = Box::new(move || {
            // The closer waits for it.
            let _ = sender.send(());
        });
        // SAFETY: the caller's promise.
        unsafe { self.shard.close_adapter(adapter, signal) };
        self.runner.recall();
        // An error means that the thread has ended, and the adapter with it.
        let _ = closed.recv();
    }
}

impl Provider {
    /// Lends this thread to the provider until `done`, not longer than `patience`: for a consumer that waits, and so
    /// that no other thread has to be woken for a packet or a callback.
    ///
    /// The thread takes the core's turns, makes the callbacks that are due, those for other threads of the consumer
    /// included, and sleeps where there is no work; after each turn it asks `done`, which should be quick. Of several
    /// threads one runs the core, and the others sleep and ask `done` once callbacks were made. So `done` is about what
    /// a callback has changed, such as the notification of a CQ that was armed.
    ///
    /// With several cores their own threads make the turns and the callbacks, and this one sleeps and asks `done` after those.
    ///
    /// Never call it from a callback, nor with a lock that a callback takes. A thread that comes back soon posts
    /// without a wake, and the provider's own thread takes over within a millisecond where it does not.
    pub fn run_until(&self, patience: Duration, mut done: impl FnMut() -> bool) -> Waited {
        self.runner.run_until(patience, &mut done)
    }

    /// The adapter has these addresses from now on. Connections from one that is gone end at once: their
    /// consumers get the disconnect event, and the oldest request `STATUS_NETWORK_UNREACHABLE`.
    pub fn set_addresses(&self, addresses: Vec<IpAddr>) {
        // The ring is full for moments only.
        while self.shard.set_addresses(addresses.clone(), 0).is_err() {
            thread::yield_now();
        }
    }

    /// Keeps memory until no core can reach it by a mapping of logical addresses whose release has returned.
    pub fn keep(&self, memory: Box<dyn Send + Sync>) {
        self.shard.keep(memory);
    }

    /// The counters. Any thread, at any time; no lock, and the poll thread is not disturbed.
    pub fn counters(&self) -> AdapterCounters {
        self.shard.counters()
    }

    /// Whether the edge has failed, as one whose interface was deleted: nothing comes and nothing goes. It is asked again now and then.
    pub fn edge_failed(&self) -> bool {
        self.runner.edge_failed()
    }

    /// Established connections of all adapter instances. It asks the poll thread for the list, and waits:
    /// never call it from a callback. The counters of each can then be read without asking.
    pub fn connections(&self) -> Vec<Connection> {
        let (sender, receiver) = mpsc::channel();
        let mut listed: Listed = Box::new(move |endpoints| {
            // The caller waits for it.
            let _ = sender.send(endpoints.unwrap_or_default());
        });
        // The ring is full for moments only.
        while let Err(again) = self.shard.list(listed) {
            listed = again;
            thread::yield_now();
        }
        self.runner.recall();
        connections(receiver.recv().unwrap_or_default())
    }

    /// Objects that exist: 0 once every adapter is closed.
    pub fn open_objects(&self) -> usize {
        self.shard.open_objects()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        while self.shard.stop().is_err() {
            thread::yield_now();
        }
        self.runner.recall();
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn entropy() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let mut filled = 0;
    while filled < seed.len() {
        filled +=
            rustix::rand::getrandom(&mut seed[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(seed)
}
