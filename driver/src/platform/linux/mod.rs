//! The provider in a Linux process: a thread that polls, and sleeps when there is nothing to do.

use super::{Mapped, Platform};
use crate::abi::{
    MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_SOURCE_IS_NONPAGED_POOL, NDIS_STATUS_RESOURCES, NDK_ADAPTER,
    NDK_VERSION, NTSTATUS,
};
use crate::counters::{AdapterCounters, Connection};
use crate::object::shared::Context;
use crate::platform::request::{Listed, connections};
use crate::shard::Shard;
use crate::turn::{PollCore, ProviderConfig, Turn};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr::NonNull;
use core::task::Waker;
use netadapter_glue::Edge;
use rocev2::env::{Duration, Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::mpsc;
use std::task::Wake;
use std::thread::{self, JoinHandle};

/// Time without work before the thread sleeps. A sleep and its wake cost about 10 us, so the thread
/// looks a while longer first, and lets others run between its looks.
const IDLE: Duration = Duration::from_micros(100);

/// Sleeps without a look before them, once others kept the processor for longer than that: a thread
/// that lets them run waits its turn again for milliseconds, one that sleeps is woken at once.
const CROWDED: u32 = 1000;

/// How often a failed edge is asked again.
const EDGE_RETRY: Duration = Duration::from_millis(100);

/// The Linux side of [`Platform`].
#[derive(Debug)]
struct Linux {
    origin: std::time::Instant,
}

impl Platform for Linux {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn map(&self, mdl: &MDL) -> Option<Mapped> {
        map_in_process(mdl)
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

/// Wakes the poll thread.
struct Wakeup(OwnedFd);

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A counter that is full wakes as well as one that is not.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Wakeup {
    fn clear(&self) {
        let mut count = [0; 8];
        // Nothing to read: there was no wake.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

/// A running provider: one adapter on one edge, and the thread that polls it.
///
/// Dropping it stops the thread. Every adapter must be closed before.
pub struct Provider {
    shard: Arc<Shard>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// Starts a provider on `edge`.
    ///
    /// # Errors
    /// The operating system's, for want of descriptors, threads or entropy.
    pub fn start(edge: Box<dyn Edge + Send>, config: ProviderConfig) -> io::Result<Self> {
        let seed = match config.seed {
            Some(seed) => seed,
            None => entropy()?,
        };
        let wakeup = Arc::new(Wakeup(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?));
        let waker = Waker::from(Arc::clone(&wakeup));
        let platform = Box::new(Linux { origin: std::time::Instant::now() });
        let core = PollCore::new(edge, platform, config, seed, &waker);
        let shard = Arc::clone(core.shard());
        let thread =
            thread::Builder::new().name("ndkrocev2".into()).spawn(move || run(core, &wakeup))?;
        Ok(Self { shard, thread: Some(thread) })
    }

    /// Opens an adapter instance, as the NDIS open handler does; any number may be open. The consumer gives
    /// the lowest minor version that it supports, and gets our highest.
    ///
    /// # Errors
    /// `NDIS_STATUS_BAD_VERSION`, `NDIS_STATUS_RESOURCES`.
    pub fn open_adapter(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let (sender, receiver) = mpsc::channel();
        open(&self.shard, version, sender)?;
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
        // An error means that the thread has ended, and the adapter with it.
        let _ = closed.recv();
    }
}

impl Provider {
    /// The adapter has these addresses from now on. Connections from one that is gone end at once: their
    /// consumers get the disconnect event, and the oldest request `STATUS_NETWORK_UNREACHABLE`.
    pub fn set_addresses(&self, addresses: Vec<IpAddr>) {
        // The ring is full for moments only.
        while self.shard.set_addresses(addresses.clone()).is_err() {
            thread::yield_now();
        }
    }

    /// The counters. Any thread, at any time; no lock, and the poll thread is not disturbed.
    pub fn counters(&self) -> AdapterCounters {
        self.shard.counters()
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
        if let Some(thread) = self.thread.take() {
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

fn run(mut core: PollCore, wakeup: &Wakeup) {
    let shard = Arc::clone(core.shard());
    let (mut busy_at, mut crowded) = (shard.platform.now(), 0_u32);
    loop {
        let now = shard.platform.now();
        let turn = core.poll(now);
        if turn.stopped {
            return;
        }
        if turn.busy {
            busy_at = now;
        } else if crowded == 0 && now.saturating_since(busy_at) < IDLE {
            thread::yield_now();
            if shard.platform.now().saturating_since(now) >= IDLE {
                crowded = CROWDED;
            }
        } else {
            crowded = crowded.saturating_sub(1);
            sleep(&mut core, &shard, wakeup);
        }
    }
}

/// Sleeps until a ring, the edge or a deadline has work. A thread that adds work after the announcement
/// wakes us; the turn that follows the announcement finds earlier work.
fn sleep(core: &mut PollCore, shard: &Shard, wakeup: &Wakeup) {
    wakeup.clear();
    core.announce_sleep(true);
    let turn = core.poll(shard.platform.now());
    if !turn.busy && !turn.stopped {
        wait(core, shard, wakeup, &turn);
    }
    core.announce_sleep(false);
}

fn wait(core: &PollCore, shard: &Shard, wakeup: &Wakeup, turn: &Turn) {
    let due = turn.next.map(|next| next.saturating_since(shard.platform.now()));
    let timeout = patience(due, turn.edge_failed).map(to_timespec);
    let edge = core.edge();
    let interest =
        if edge.wants_writable() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let own = PollFd::new(&wakeup.0, PollFlags::IN);
    // An interrupted or failed wait ends like one that timed out: the loop looks again.
    let _ = match edge.fd().filter(|_| !turn.edge_failed) {
        Some(fd) => poll(&mut [own, PollFd::from_borrowed_fd(fd, interest)], timeout.as_ref()),
        None => poll(&mut [own], timeout.as_ref()),
    };
}

/// How long to sleep. A failed edge's descriptor would wake us at once and for ever, so it is not
/// waited on, and the edge is asked now and then instead.
fn patience(due: Option<Duration>, edge_failed: bool) -> Option<Duration> {
    if !edge_failed {
        return due;
    }
    Some(due.map_or(EDGE_RETRY, |due| due.min(EDGE_RETRY)))
}

fn to_timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netadapter_glue::{EdgeError, Link, Received, Slot};

    /// A QEMU that has gone: its descriptor is readable for ever and yields nothing.
    struct Gone;

    impl Edge for Gone {
        fn link(&self) -> Link {
            Link { mac: [2; 6], mtu: 1500, max_segments: 1, max_unit_len: 1518 }
        }

        fn receive(
            &mut self,
            _: usize,
            _: &mut dyn FnMut(&[Received<'_>]),
        ) -> Result<usize, EdgeError> {
            Err(EdgeError::Closed)
        }

        fn transmit(
            &mut self,
            _: usize,
            _: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
        ) -> Result<usize, EdgeError> {
            Err(EdgeError::Closed)
        }
    }

    #[test]
    fn a_failed_edge_is_asked_now_and_then() {
        let platform = Box::new(Linux { origin: std::time::Instant::now() });
        let config = ProviderConfig::new(alloc::vec![]);
        let mut core = PollCore::new(Box::new(Gone), platform, config, [0; 32], Waker::noop());
        let turn = core.poll(Instant::from_nanos(1));
        assert!(turn.edge_failed && !turn.busy);
        assert_eq!(patience(None, turn.edge_failed), Some(EDGE_RETRY));
        assert_eq!(patience(Some(Duration::from_secs(1)), true), Some(EDGE_RETRY));
        assert_eq!(patience(None, false), None);
    }
}
