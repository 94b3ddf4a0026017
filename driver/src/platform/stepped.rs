//! The provider in a simulation, without thread and clock: its owner gives each turn its time.

use super::linux::{map_in_process, open};
use super::{Mapped, Platform};
use crate::abi::{MDL, NDK_ADAPTER, NDK_VERSION, NTSTATUS, STATUS_INSUFFICIENT_RESOURCES};
use crate::counters::{AdapterCounters, Connection};
use crate::turn::{PollCore, ProviderConfig, Turn};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::Waker;
use netadapter_glue::Edge;
use rocev2::env::Instant;
use std::sync::mpsc;
use std::task::Wake;

/// Time stands still between two turns.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

/// [`Clock`], as the core's platform.
struct Simulated(Arc<Clock>);

impl Platform for Simulated {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.0.load(Ordering::Relaxed))
    }

    fn takes_turns(&self) -> bool {
        true
    }

    fn map(&self, mdl: &MDL) -> Option<Mapped> {
        map_in_process(mdl)
    }
}

/// Remembers that a sleeping core has work.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A provider that runs only inside [`Stepped::poll`], on the caller's thread. The same calls give
/// the same packets. Dropping it is a crash: objects that are open are gone without a word.
pub struct Stepped {
    cores: Vec<PollCore>,
    clock: Arc<Clock>,
    /// Of each core.
    woken: Vec<Arc<Woken>>,
}

impl Stepped {
    /// A provider on `edge`, whose randomness comes from `seed` alone.
    pub fn new(edge: Box<dyn Edge + Send>, config: ProviderConfig, seed: [u8; 32]) -> Self {
        Self::with_cores(vec![edge], config, seed)
    }

    /// The same of several cores; see [`PollCore::several`].
    pub fn with_cores(
        edges: Vec<Box<dyn Edge + Send>>,
        config: ProviderConfig,
        seed: [u8; 32],
    ) -> Self {
        let clock = Arc::<Clock>::default();
        let platform = Box::new(Simulated(Arc::clone(&clock)));
        let woken: Vec<_> = edges.iter().map(|_| Arc::<Woken>::default()).collect();
        let wakers: Vec<_> = woken.iter().map(|woken| Waker::from(Arc::clone(woken))).collect();
        let cores = PollCore::several(edges, platform, config, seed, &wakers);
        Self { cores, clock, woken }
    }

    /// One turn of each core at `now`, which never goes back: the sum of them.
    pub fn poll(&mut self, now: Instant) -> Turn {
        let turns = (0..self.cores.len()).map(|core| self.poll_core(core, now));
        turns.reduce(Turn::with).expect("there is a core")
    }

    /// One turn of one core.
    pub fn poll_core(&mut self, core: usize, now: Instant) -> Turn {
        self.clock.0.store(now.as_nanos(), Ordering::Relaxed);
        self.cores[core].poll(now)
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// A core will sleep, or has woken; see [`PollCore::announce_sleep`].
    pub fn announce_sleep(&mut self, core: usize, sleeping: bool) {
        self.woken[core].0.store(false, Ordering::Relaxed);
        self.cores[core].announce_sleep(sleeping);
    }

    /// Whether a core was woken since it announced its sleep.
    pub fn is_woken(&self, core: usize) -> bool {
        self.woken[core].0.load(Ordering::Relaxed)
    }

    /// The counters.
    pub fn counters(&self) -> AdapterCounters {
        self.cores[0].counters()
    }

    /// The adapter has these addresses from the next turn on. Connections from one that is gone end at once.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES`: too much waits for the next turn.
    pub fn set_addresses(&self, addresses: Vec<IpAddr>) -> Result<(), NTSTATUS> {
        let sent = self.cores[0].shard().set_addresses(addresses, 0);
        sent.map_err(|_| STATUS_INSUFFICIENT_RESOURCES)
    }

    /// Keeps memory until no core can reach it by a mapping of logical addresses whose release has returned.
    pub fn keep(&self, memory: Box<dyn Send + Sync>) {
        self.cores[0].shard().keep(memory);
    }

    /// Established connections.
    pub fn connections(&mut self) -> Vec<Connection> {
        self.cores[0].connections()
    }

    /// Objects that exist: 0 once every adapter is closed.
    pub fn open_objects(&self) -> usize {
        self.cores[0].shard().open_objects()
    }

    /// Opens an adapter instance, in one turn at `now`.
    ///
    /// # Errors
    /// `NDIS_STATUS_BAD_VERSION`, `NDIS_STATUS_RESOURCES`.
    pub fn open_adapter(
        &mut self,
        version: NDK_VERSION,
        now: Instant,
    ) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let (sender, opened) = mpsc::channel();
        open(self.cores[0].shard(), version, sender)?;
        self.poll(now);
        super::linux::opened(&opened)
    }

    /// Closes an adapter instance; `closed` is called in a later turn, once every object under it
    /// is closed.
    ///
    /// # Safety
    /// `adapter` was opened here and is not closed yet; nothing uses it any more.
    #[allow(unsafe_code, reason = "the consumer's pointer is the object")]
    pub unsafe fn close_adapter(
        &self,
        adapter: *mut NDK_ADAPTER,
        closed: impl FnOnce() + Send + 'static,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.cores[0].shard().close_adapter(adapter, Box::new(closed)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netadapter_glue::{EdgeError, Link, Received, Slot};
    use rocev2::qp::DcqcnConfig;

    /// A link with the speed of the test, in bits per second; 0 where it is unknown.
    struct Changing(Arc<AtomicU64>);

    impl Edge for Changing {
        fn link(&self) -> Link {
            Link { mac: [2; 6], mtu: 1500, max_segments: 1, max_unit_len: 1518, socket: false }
        }

        fn speed(&mut self) -> Option<u64> {
            Some(self.0.load(Ordering::Relaxed)).filter(|speed| *speed > 0)
        }

        fn receive(
            &mut self,
            _: usize,
            _: &mut dyn FnMut(&[Received<'_>]),
        ) -> Result<usize, EdgeError> {
            Ok(0)
        }

        fn transmit(
            &mut self,
            _: usize,
            _: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
        ) -> Result<usize, EdgeError> {
            Ok(0)
        }
    }

    /// Goal: congestion control knows the link's speed, soon after that changes; where it is unknown, the
    /// last one, and at first that of the configuration.
    #[test]
    fn the_speed_of_the_link_is_followed() {
        let speed = Arc::<AtomicU64>::default();
        let start = |config| Stepped::new(Box::new(Changing(Arc::clone(&speed))), config, [0; 32]);
        let mut on = start(ProviderConfig::new(alloc::vec![]));
        let mut seconds = 0;
        let mut follow = |bits| {
            speed.store(bits, Ordering::Relaxed);
            seconds += 1;
            on.poll(Instant::from_nanos(seconds * 1_000_000_000));
            on.cores[0].line_rate()
        };
        assert_eq!(follow(0), Some(DcqcnConfig::default().line_rate));
        assert_eq!(follow(25_000_000_000), Some(3_125_000_000));
        assert_eq!(follow(1_000_000_000), Some(125_000_000));
        assert_eq!(follow(0), Some(125_000_000));
        let mut off = start(ProviderConfig { dcqcn: None, ..ProviderConfig::new(alloc::vec![]) });
        off.poll(Instant::from_nanos(1));
        assert_eq!(off.cores[0].line_rate(), None);
    }
}
