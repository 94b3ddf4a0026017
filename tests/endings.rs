//! Goal: thousands of connections that end at once take no memory for it, whether their peer ends them or falls
//! silent: a kernel that has none left must not need any then.
//! Method: two providers and their consumer on one thread, once the connections are made, and an allocator that
//! counts what that thread asks for in the turns of one of them.
#![allow(unsafe_code, reason = "an opener is a promise about raw pointers")]

use driver::abi::*;
use driver::{ProviderConfig, Stepped};
use ndk_consumer::{Adapter, Connector, Opener, QpConfig, ReadLimits, Request};
use netadapter_glue::memory::{self, MemoryConfig};
use rocev2::env::Instant;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;
use tests::alloc::{Counting, made};
use tests::kit::{PATIENCE, PORT};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONNECTIONS: usize = 3000;
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
/// Virtual time of a turn: long enough for the messages of connection management that may come in it.
const TURN: Duration = Duration::from_micros(500);

/// Two providers, joined in memory, and their clock.
struct Pair {
    providers: [Stepped; 2],
    now: Instant,
}

impl Pair {
    fn turn(&mut self) {
        self.now = self.now + TURN;
        for provider in &mut self.providers {
            provider.poll(self.now);
        }
    }

    /// A turn of one host alone. Returns its allocations.
    fn turn_of(&mut self, host: usize) -> usize {
        let before = made();
        self.providers[host].poll(self.now);
        made() - before
    }
}

/// A pair that a thread keeps running wherever nobody holds it, for calls that wait.
#[derive(Clone)]
struct Hosts(Arc<Mutex<Pair>>);

impl Hosts {
    fn new() -> Self {
        let (near, far) = memory::pair(MemoryConfig::default());
        let provider = |edge, host| {
            let config = ProviderConfig::new(vec![address(host)]);
            Stepped::new(Box::new(edge), config, [host as u8; 32])
        };
        let providers = [provider(near, 0), provider(far, 1)];
        let pair = Arc::new(Mutex::new(Pair { providers, now: Instant::from_nanos(0) }));
        let running = Arc::downgrade(&pair);
        thread::spawn(move || run(&running));
        Self(pair)
    }

    fn pair(&self) -> MutexGuard<'_, Pair> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives turns until the pair is gone.
fn run(pair: &Weak<Mutex<Pair>>) {
    while let Some(pair) = pair.upgrade() {
        pair.lock().unwrap_or_else(PoisonError::into_inner).turn();
        drop(pair);
        thread::yield_now();
    }
}

/// One of the pair's providers, as its consumer sees it.
struct Host {
    hosts: Hosts,
    host: usize,
}

// SAFETY: the provider keeps an open adapter valid until it is closed.
unsafe impl Opener for Host {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let pair = &mut *self.hosts.pair();
        pair.providers[self.host].open_adapter(version, pair.now)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let (sender, closed) = mpsc::channel();
        let done = move || sender.send(()).expect("somebody waits");
        // SAFETY: the caller passes an open adapter and lets go of it.
        unsafe { self.hosts.pair().providers[self.host].close_adapter(adapter, done) };
        closed.recv().expect("the adapter closes");
    }
}

const fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host as u8))
}

/// So many connections, the end of the first host first.
fn connect(hosts: &Hosts) -> Vec<[Connector; 2]> {
    let adapters = [0, 1].map(|host| {
        Adapter::open(Arc::new(Host { hosts: hosts.clone(), host })).expect("an adapter")
    });
    let config = QpConfig {
        receive_depth: 1,
        initiator_depth: 1,
        receive_sge: 1,
        initiator_sge: 1,
        ..QpConfig::default()
    };
    let ends = adapters.each_ref().map(|adapter| {
        (adapter.create_pd().expect("a domain"), adapter.create_cq(16).expect("a CQ"))
    });
    let [from, to] = [SocketAddr::new(address(0), 0), SocketAddr::new(address(1), PORT)];
    let listener = adapters[1].listen(to).expect("a listener");
    let connect_one = |_| {
        let [near, far] =
            ends.each_ref().map(|(pd, cq)| pd.create_qp(cq, cq, config).expect("a QP"));
        let active = adapters[0].create_connector().expect("a connector");
        let connecting = active.connect(&near, from, to, LIMITS, &[]);
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accepting = passive.accept(&far, LIMITS, &[]);
        connecting.wait().expect("the offer comes");
        active.complete_connect().wait().expect("the connection is made");
        accepting.wait().expect("the connection is made");
        [active, passive]
    };
    (0..CONNECTIONS).map(connect_one).collect()
}

fn disconnect(connections: &[[Connector; 2]], host: usize) -> Vec<Request> {
    connections.iter().map(|ends| ends[host].disconnect()).collect()
}

fn is_over(request: &Request) -> bool {
    request.poll().is_some()
}

/// The peer disconnects all of them.
#[test]
fn a_peer_that_ends_all_its_connections_costs_no_memory() {
    let hosts = Hosts::new();
    let connections = connect(&hosts);
    let mut pair = hosts.pair();
    let requests = disconnect(&connections, 1);
    let mut allocations = 0;
    while !requests.iter().all(is_over) {
        pair.turn_of(1);
        allocations += pair.turn_of(0);
        pair.now = pair.now + TURN;
    }
    assert!(connections.iter().all(|[end, _]| end.is_disconnected()));
    assert_eq!(allocations, 0);
}

/// The consumer disconnects all of them, and the peer is silent.
#[test]
fn a_peer_that_is_silent_costs_no_memory() {
    let hosts = Hosts::new();
    let connections = connect(&hosts);
    let mut pair = hosts.pair();
    let requests = disconnect(&connections, 0);
    let mut allocations = 0;
    while !requests.iter().all(is_over) {
        allocations += pair.turn_of(0);
        pair.now = pair.now + TURN * 20;
    }
    assert_eq!(allocations, 0);
}
