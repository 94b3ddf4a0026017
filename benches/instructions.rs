//! Instructions of a message, from the consumer's post to its completion, through the NDK tables: two
//! providers and their link on one thread, both ends counted.
//!
//! `cargo bench -p ndkperf --bench instructions` counts them under valgrind's callgrind, whose figures are the
//! same on a busy machine. It needs `valgrind`, and `cargo install gungraun-runner` in the version of `Cargo.lock`.
//! A line counts [`MESSAGES`] messages.
#![allow(unsafe_code, reason = "an opener is a promise about raw pointers")]
#![allow(missing_docs, reason = "the macros of gungraun make public items")]

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

use driver::abi::*;
use driver::{ProviderConfig, Stepped};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use ndk_consumer::{Adapter, Buffer, Connector, Cq, Mr, Opener, Pd, Qp, QpConfig, ReadLimits};
use netadapter_glue::memory::{self, MemoryConfig};
use rocev2::env::Instant;

/// Messages of a line.
const MESSAGES: usize = 1024;
/// Posted together, as a consumer with some work does.
const BATCH: usize = 32;
/// Connections, where there are many.
const MANY: usize = 1000;
/// A packet of 4096 bytes and its headers.
const MTU: usize = 4200;
/// Virtual time of a turn.
const TURN: Duration = Duration::from_micros(1);
const PATIENCE: Duration = Duration::from_mins(1);
const PORT: u16 = 7174;
const LIMITS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

#[path = "instructions/connects.rs"]
mod connects;

use connects::Lives;

library_benchmark_group!(name = messages; benchmarks = message, life);
main!(library_benchmark_groups = messages);

#[library_benchmark]
#[bench::write_64(args = (Kind::Write, 64), setup = World::new, config = at_most(2_091))]
#[bench::write_4096(args = (Kind::Write, 4096), setup = World::new, config = at_most(6_762))]
#[bench::write_65536(args = (Kind::Write, 65_536), setup = World::new, config = at_most(129_281))]
#[bench::write_64_over_1000(args = (Kind::Write, 64), setup = World::of_many, config = at_most(7_332))]
#[bench::send_64(args = (Kind::Send, 64), setup = World::new, config = at_most(2_569))]
#[bench::send_4096(args = (Kind::Send, 4096), setup = World::new, config = at_most(7_238))]
#[bench::read_64(args = (Kind::Read, 64), setup = World::new, config = at_most(3_540))]
#[bench::read_4096(args = (Kind::Read, 4096), setup = World::new, config = at_most(8_143))]
fn message(mut world: World) -> World {
    world.exchange(MESSAGES);
    world
}

#[library_benchmark]
#[bench::connects(args = (), setup = Lives::new, config = at_most(80_598))]
fn life(lives: Lives) -> Lives {
    lives.live(MESSAGES);
    lives
}

/// Fails a line that takes over 2 % more than these instructions a message: as many as were counted with Rust 1.95.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let limit = instructions * MESSAGES as u64 * 102 / 100;
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, limit)]));
    config
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Send,
    Write,
    Read,
}

/// Two connected ends that have exchanged messages already. Fields close in their order.
struct World {
    kind: Kind,
    size: usize,
    /// Chooses connections.
    random: Cell<u32>,
    _connections: Vec<[Connector; 2]>,
    client: End,
    server: End,
    hosts: Hosts,
}

impl World {
    fn new(kind: Kind, size: usize) -> Self {
        Self::with(kind, size, 1)
    }

    /// Many connections, each message over one of them.
    fn of_many(kind: Kind, size: usize) -> Self {
        Self::with(kind, size, MANY)
    }

    fn with(kind: Kind, size: usize, connections: usize) -> Self {
        let hosts = Hosts::new();
        let [client, server] = [0, 1].map(|host| End::new(&hosts, host, size, connections));
        let connections = connect(&client, &server);
        let mut world = Self {
            kind,
            size,
            random: Cell::new(1),
            _connections: connections,
            client,
            server,
            hosts,
        };
        // Each connection has been heard.
        world.exchange(MESSAGES.max(16 * world.client.qps.len()).next_multiple_of(BATCH));
        world
    }

    /// Posts `count` messages and waits for their completions. Nobody else runs the providers meanwhile.
    fn exchange(&mut self, count: usize) {
        let mut pair = self.hosts.pair();
        for _ in 0..count / BATCH {
            self.post();
            let mut missing = [BATCH, if self.kind == Kind::Send { BATCH } else { 0 }];
            while missing != [0, 0] {
                pair.turn();
                missing[0] -= self.client.completed();
                missing[1] -= self.server.completed();
            }
        }
    }

    /// A number below `bound`.
    fn draw(&self, bound: usize) -> usize {
        // Of Numerical Recipes; the high bits are the random ones.
        let random = self.random.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random.set(random);
        ((u64::from(random) * bound as u64) >> 32) as usize
    }

    fn post(&self) {
        let (client, server) = (&self.client, &self.server);
        for slot in 0..BATCH {
            let connection = if client.qps.len() > 1 { self.draw(client.qps.len()) } else { 0 };
            let (from, to) = (&client.qps[connection], &server.qps[connection]);
            let part = slot * self.size..(slot + 1) * self.size;
            let local = [client.mr.sge(part.clone())];
            let remote = server.mr.remote(part.start);
            let posted = match self.kind {
                Kind::Send => {
                    let room = [server.mr.sge(part)];
                    to.receive(slot, &room).expect("a receive is free");
                    from.send(slot, &local, 0)
                }
                Kind::Write => from.write(slot, &local, remote, 0),
                Kind::Read => from.read(slot, &local, remote, 0),
            };
            posted.expect("a request is free");
        }
    }
}

/// What a consumer has at one host. Fields close in their order.
struct End {
    qps: Vec<Arc<Qp>>,
    cq: Arc<Cq>,
    mr: Arc<Mr>,
    pd: Arc<Pd>,
    adapter: Arc<Adapter>,
}

impl End {
    fn new(hosts: &Hosts, host: usize, size: usize, connections: usize) -> Self {
        let opener = Host { hosts: hosts.clone(), host };
        let adapter = Adapter::open(Arc::new(opener)).expect("the adapter opens");
        let pd = adapter.create_pd().expect("a domain");
        let cq = adapter.create_cq(4 * BATCH as u32).expect("a completion queue");
        let create = |_| pd.create_qp(&cq, &cq, QpConfig::default()).expect("a queue pair");
        let qps = (0..connections).map(create).collect();
        let reach = NDK_MR_FLAG_ALLOW_LOCAL_WRITE
            | NDK_MR_FLAG_ALLOW_REMOTE_READ
            | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        let mr = pd.register(Buffer::new((BATCH * size).max(1)), reach).expect("a region");
        Self { qps, cq, mr, pd, adapter }
    }

    /// Takes completions, each of which succeeded; returns how many.
    fn completed(&self) -> usize {
        let mut results = [NDK_RESULT::EMPTY; BATCH];
        let taken = self.cq.results(&mut results);
        assert!(results[..taken].iter().all(|result| result.Status == STATUS_SUCCESS));
        taken
    }
}

/// Connects each queue pair of the client with the server's at its place.
fn connect(client: &End, server: &End) -> Vec<[Connector; 2]> {
    let [from, to] = [SocketAddr::new(address(0), 0), SocketAddr::new(address(1), PORT)];
    let listener = server.adapter.listen(to).expect("the port is free");
    let connect_one = |(near, far)| {
        let active = client.adapter.create_connector().expect("a connector");
        let connecting = active.connect(near, from, to, LIMITS, &[]);
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accepting = passive.accept(far, LIMITS, &[]);
        connecting.wait().expect("the offer comes");
        active.complete_connect().wait().expect("the connection is made");
        accepting.wait().expect("the connection is made");
        [active, passive]
    };
    client.qps.iter().zip(&server.qps).map(connect_one).collect()
}

const fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host as u8))
}

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
}

/// A pair that a thread keeps running wherever nobody holds it, for calls that wait.
#[derive(Clone)]
struct Hosts(Arc<Mutex<Pair>>);

impl Hosts {
    fn new() -> Self {
        let (near, far) = memory::pair(MemoryConfig { mtu: MTU, ..MemoryConfig::default() });
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
