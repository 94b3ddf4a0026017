//! Two providers joined in memory, on a virtual clock, and a consumer that is run over them for many seeds.

use crate::layer::{in_callback, lock};
use crate::{Choice, Explore, Explorer, Limits, Report, Verifier, Verify};
use driver::abi::{NDK_ADAPTER, NDK_VERSION, NTSTATUS};
use driver::{ProviderConfig, Stepped};
use ndk_consumer::{Opener, Waited};
use netadapter_glue::Edge;
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::memory::{MemoryConfig, pair};
use rocev2::env::Instant;
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A busy turn takes so long, and an idle one lasts to the next timer, but not longer than the other.
const TURN: Duration = Duration::from_micros(1);
const IDLE: Duration = Duration::from_millis(1);
/// An adapter that closes longer, on the virtual clock, waits for an object that its consumer left open.
const CLOSE_BOUND: Duration = Duration::from_secs(1000);

/// The world of one seed, as a consumer sees it.
pub struct Lab {
    /// Its seed, for choices of the consumer's own.
    pub seed: u64,
    /// Two hosts that reach each other.
    pub hosts: [Host; 2],
}

/// A host with an adapter.
pub struct Host {
    /// Opens its adapters, with both layers on.
    pub opener: Arc<dyn Opener>,
    /// Its address.
    pub ip: IpAddr,
}

/// The outcome of one seed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// The explorer's choices, of each host.
    pub choices: [Vec<Choice>; 2],
    /// The verifier's reports, of both.
    pub reports: Vec<Report>,
    /// Objects that were left.
    pub objects: usize,
    /// The virtual time that passed, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Run {
    /// No rule was broken and nothing was left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.objects == 0 && !self.reports.iter().any(|report| report.rule.is_mistake())
    }
}

/// Runs a consumer once for each seed, under the verifier and the explorer, over two providers that are stepped by the
/// thread that waits: by `ndk_consumer`'s wrappers, or by [`Opener::run_until`]. So a seed replays a run exactly.
///
/// The seed also chooses limits, versions, and the faults of the network: none in half of the runs, else up to 2 % of each.
/// `refused` of a hundred creations are refused, so a consumer with another number than 0 has to cope with that.
///
/// # Panics
/// Where the consumer does, and where it leaves objects open that an adapter's close would wait for.
pub fn explore(seeds: Range<u64>, refused: u32, consumer: impl Fn(&Lab)) -> Vec<Run> {
    seeds.map(|seed| run(seed, refused, &consumer)).collect()
}

fn run(seed: u64, refused: u32, consumer: &impl Fn(&Lab)) -> Run {
    let ips = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
    let pair = Arc::new(Mutex::new(Pair::new(seed, ips)));
    let limits = [Limits::Maximal, Limits::Small, Limits::ConnectX3][(seed % 3) as usize];
    let explorers = [0, 1].map(|host| {
        let stepped = Arc::new(Adapters { pair: Arc::clone(&pair), host });
        let seed = seed.wrapping_mul(2).wrapping_add(host as u64);
        let explore = Explore { limits, refused, stepped: true, ..Explore::new(seed) };
        Explorer::new(stepped, explore)
    });
    let verifiers = explorers.each_ref().map(|explorer| {
        let opener: Arc<dyn Opener> = Arc::<Explorer>::clone(explorer);
        Verifier::new(opener, Verify::default())
    });
    let host = |host: usize| {
        let opener: Arc<dyn Opener> = Arc::<Verifier>::clone(&verifiers[host]);
        Host { opener, ip: ips[host] }
    };
    consumer(&Lab { seed, hosts: [host(0), host(1)] });
    let pair = lock(&pair);
    Run {
        seed,
        choices: explorers.each_ref().map(|explorer| explorer.trace()),
        reports: verifiers.iter().flat_map(|verifier| verifier.reports()).collect(),
        objects: pair.providers.iter().map(Stepped::open_objects).sum(),
        elapsed_ns: pair.now.as_nanos(),
    }
}

/// Two providers and their clock.
struct Pair {
    providers: [Stepped; 2],
    now: Instant,
}

impl Pair {
    fn new(seed: u64, ips: [IpAddr; 2]) -> Self {
        let (first, second) = pair(MemoryConfig::default());
        let mut edges = [Some(first), Some(second)];
        let provider = |host: usize| {
            let faults = faults(seed, host);
            let edge: Box<dyn Edge + Send> = match edges[host].take() {
                Some(edge) => Box::new(FaultInjector::new(edge, faults)),
                None => unreachable!("each host has an edge"),
            };
            let mut bytes = [host as u8; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            Stepped::new(edge, ProviderConfig::new(vec![ips[host]]), bytes)
        };
        Self { providers: [0, 1].map(provider), now: Instant::from_nanos(1) }
    }

    /// A turn of each.
    fn step(&mut self) {
        let turns = self.providers.each_mut().map(|provider| provider.poll(self.now));
        if turns.iter().any(|turn| turn.busy) {
            self.now = self.now + TURN;
            return;
        }
        let idle = self.now + IDLE;
        let [first, second] = turns.map(|turn| turn.next);
        let next = Instant::earlier(first, second).map_or(idle, |next| next.min(idle));
        self.now = next.max(self.now + TURN);
    }
}

fn faults(seed: u64, host: usize) -> Faults {
    let rate = if seed.is_multiple_of(2) { 0.0 } else { (seed % 5) as f64 / 200.0 };
    let seed = seed.wrapping_mul(2).wrapping_add(host as u64);
    Faults { seed, loss: rate, duplicate: rate, reorder: rate, ..Faults::default() }
}

/// Opens the adapters of one of the providers.
struct Adapters {
    pair: Arc<Mutex<Pair>>,
    host: usize,
}

impl Adapters {
    /// Takes turns until `done`, at most for `patience` on the virtual clock.
    fn step_until(&self, patience: Duration, done: &mut dyn FnMut() -> bool) -> bool {
        let deadline = lock(&self.pair).now + patience;
        loop {
            if done() {
                return true;
            }
            let mut pair = lock(&self.pair);
            if pair.now >= deadline {
                return false;
            }
            pair.step();
        }
    }
}

// SAFETY: the provider keeps an open adapter valid until it is closed.
unsafe impl Opener for Adapters {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let mut pair = lock(&self.pair);
        let now = pair.now;
        pair.providers[self.host].open_adapter(version, now)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let closed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&closed);
        let done = move || told.store(true, Ordering::Release);
        // SAFETY: the caller's promise.
        unsafe { lock(&self.pair).providers[self.host].close_adapter(adapter, done) };
        let ended = self.step_until(CLOSE_BOUND, &mut || closed.load(Ordering::Acquire));
        // A consumer that has panicked says more.
        assert!(ended || std::thread::panicking(), "an adapter is closed while objects are open");
    }

    fn run_until(&self, patience: Duration, done: &mut dyn FnMut() -> bool) -> Option<Waited> {
        if in_callback() {
            return Some(Waited::Ended);
        }
        let ended = self.step_until(patience, done);
        Some(if ended { Waited::Done } else { Waited::TimedOut })
    }

    fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        if in_callback() {
            // The pair is in a turn.
            return std::mem::forget(memory);
        }
        lock(&self.pair).providers[self.host].keep(Box::new(memory));
    }
}
