//! Two providers and their link on one thread, and connections between them, through the NDK tables: of the benches
//! that count and that time a message.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

use driver::abi::*;
use driver::{ProviderConfig, Stepped};
use ndk_consumer::{Adapter, Buffer, Connector, Cq, Mr, Opener, Pd, Qp, QpConfig};
use netadapter_glue::memory::{self, MemoryConfig};
use rocev2::env::Instant;

use crate::pairs::{PORT, address, connect};

/// Posted together, as a consumer with some work does.
pub const BATCH: usize = 32;
/// Messages of a line, and of its set-up at least.
pub const MESSAGES: usize = 1024;
/// Of each of many connections before it is measured: it has been heard.
const WARM: usize = 16;
/// A packet of 4096 bytes and its headers.
const MTU: usize = 4200;
/// Virtual time of a turn; of one while a call is waited for, when the connection manager's own limit on its messages
/// would take many turns.
pub const TURN: Duration = Duration::from_micros(1);
const WAITING_TURN: Duration = Duration::from_micros(100);
/// Messages begin then, however many turns the calls of the set-up took: what the provider does depends on the time.
const BEGIN: Instant = Instant::from_nanos(1_000_000_000_000);

/// What a message is.
#[derive(Clone, Copy, Eq, PartialEq)]
pub enum Kind {
    /// A SEND, and its receive.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
}

/// Two connected ends that have exchanged messages already. Fields close in their order.
pub struct World {
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
    /// So many connections, each message over one of them, and packets in units of so many segments at most.
    ///
    /// # Panics
    /// The connections cannot be made.
    #[must_use]
    pub fn with(kind: Kind, size: usize, connections: usize, segments: usize) -> Self {
        let hosts = Hosts::new(segments);
        let [client, server] = [0, 1].map(|host| End::new(&hosts, host, size, connections));
        let adapters = [&client.adapter, &server.adapter];
        let connections = connect(adapters, [&client.qps, &server.qps], PORT);
        let mut world = Self {
            kind,
            size,
            random: Cell::new(1),
            _connections: connections,
            client,
            server,
            hosts,
        };
        world.hosts.pair().hold();
        world.exchange(MESSAGES.max(WARM * world.client.qps.len()).next_multiple_of(BATCH));
        world
    }

    /// Posts `count` messages and waits for their completions.
    ///
    /// # Panics
    /// One of them fails.
    pub fn exchange(&mut self, count: usize) {
        let mut pair = self.hosts.pair();
        for _ in 0..count / BATCH {
            self.post();
            let mut missing = [BATCH, if self.kind == Kind::Send { BATCH } else { 0 }];
            while missing != [0, 0] {
                pair.turn(TURN);
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

impl Drop for World {
    /// What closes waits.
    fn drop(&mut self) {
        self.hosts.pair().let_go();
    }
}

/// What a consumer has at one host. Fields close in their order.
pub struct End {
    qps: Vec<Arc<Qp>>,
    /// For completions of all queue pairs.
    pub cq: Arc<Cq>,
    mr: Arc<Mr>,
    /// For queue pairs and regions.
    pub pd: Arc<Pd>,
    /// Open.
    pub adapter: Arc<Adapter>,
}

impl End {
    /// At the client, 0, or the server, 1, with so many queue pairs for messages of so many bytes.
    ///
    /// # Panics
    /// An object cannot be created.
    #[must_use]
    pub fn new(hosts: &Hosts, host: usize, size: usize, connections: usize) -> Self {
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

/// Two providers, joined in memory, and their clock.
pub struct Pair {
    providers: [Stepped; 2],
    /// Virtual.
    pub now: Instant,
    /// Only who has it gives turns.
    held: bool,
}

impl Pair {
    /// Has no time pass behind a fixed one but by turns of the caller, until [`Self::let_go`].
    ///
    /// # Panics
    /// That time has passed already.
    pub fn hold(&mut self) {
        assert!(self.now < BEGIN, "the set-up took {:?}", self.now);
        (self.now, self.held) = (BEGIN, true);
    }

    /// Has the other thread give turns again, to calls that wait.
    pub const fn let_go(&mut self) {
        self.held = false;
    }

    /// Has so much virtual time pass, and both providers do what there is to do.
    pub fn turn(&mut self, time: Duration) {
        self.now = self.now + time;
        for provider in &mut self.providers {
            provider.poll(self.now);
        }
    }
}

/// A pair that a thread keeps running unless it is held, for calls that wait.
#[derive(Clone)]
pub struct Hosts(Arc<Mutex<Pair>>);

impl Hosts {
    /// Their packets travel in units of so many segments at most.
    #[must_use]
    pub fn new(max_segments: usize) -> Self {
        let config = MemoryConfig { mtu: MTU, max_segments, ..MemoryConfig::default() };
        let (near, far) = memory::pair(config);
        let provider = |edge, host| {
            let config = ProviderConfig::new(vec![address(host)]);
            Stepped::new(Box::new(edge), config, [host as u8; 32])
        };
        let providers = [provider(near, 0), provider(far, 1)];
        let pair =
            Arc::new(Mutex::new(Pair { providers, now: Instant::from_nanos(0), held: false }));
        let running = Arc::downgrade(&pair);
        thread::spawn(move || run(&running));
        Self(pair)
    }

    /// The pair, which waits for nobody else's turn until this is dropped.
    pub fn pair(&self) -> MutexGuard<'_, Pair> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives turns until the pair is gone.
fn run(pair: &Weak<Mutex<Pair>>) {
    while let Some(pair) = pair.upgrade() {
        let mut locked = pair.lock().unwrap_or_else(PoisonError::into_inner);
        if !locked.held {
            locked.turn(WAITING_TURN);
        }
        drop(locked);
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
