//! Two providers of some cores each, whose turns the caller takes: a lane is one core of each, and the queue pairs between them.
#![allow(unsafe_code, reason = "an opener is a promise about raw pointers")]

use driver::abi::*;
use driver::platform::{Mapped, Platform};
use driver::{PollCore, ProviderConfig, Shard};
use messages::pairs::{self, PORT, address};
use ndk_consumer::{Adapter, Buffer, Connector, Cq, Mr, Opener, Qp, QpConfig};
use netadapter_glue::host::BoxEdge;
use rocev2::env::Instant;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Waker;
use std::thread;

/// Posted together, as a consumer with some work does.
const BATCH: usize = 32;
/// Bytes of a message.
const SIZE: usize = 64;

/// The system of a provider whose turns others take.
struct System(std::time::Instant);

impl Platform for System {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn takes_turns(&self) -> bool {
        true
    }

    fn map(&self, mdl: &MDL) -> Option<Mapped> {
        NonNull::new(mdl.virtual_address().cast()).map(Mapped::borrowed)
    }
}

/// One core of each side, the queue pairs between them, and the consumer of both.
pub(crate) struct Lane {
    /// Those of the client and of the server.
    cores: [PollCore; 2],
    qps: Vec<Arc<Qp>>,
    cqs: [Arc<Cq>; 2],
    mrs: [Arc<Mr>; 2],
    now: Arc<dyn Fn() -> Instant + Send + Sync>,
    next: usize,
}

impl Lane {
    /// One turn of each core.
    pub(crate) fn turn(&mut self) {
        for core in &mut self.cores {
            core.poll((self.now)());
        }
    }

    /// Writes a batch of messages, each over the next queue pair, and waits for them. Returns their number.
    pub(crate) fn exchange(&mut self) -> usize {
        for slot in 0..BATCH {
            self.next = (self.next + 1) % self.qps.len();
            let part = slot * SIZE..(slot + 1) * SIZE;
            let local = [self.mrs[0].sge(part.clone())];
            let remote = self.mrs[1].remote(part.start);
            self.qps[self.next].write(slot, &local, remote, 0).expect("a request is free");
        }
        let mut missing = BATCH;
        while missing > 0 {
            self.turn();
            let mut results = [NDK_RESULT::EMPTY; BATCH];
            let taken = self.cqs[0].results(&mut results);
            assert!(results[..taken].iter().all(|result| result.Status == STATUS_SUCCESS));
            missing -= taken;
        }
        BATCH
    }
}

/// Two adapters, and what their consumer keeps open meanwhile. Fields close in their order.
pub(crate) struct World {
    _connections: Vec<[Connector; 2]>,
    ends: [End; 2],
    hosts: Arc<Hosts>,
}

/// The consumer's objects at one side, but for those of the lanes.
struct End {
    adapter: Arc<Adapter>,
    lanes: Vec<Objects>,
}

/// The consumer's objects on one core.
#[derive(Clone)]
struct Objects {
    qps: Vec<Arc<Qp>>,
    cq: Arc<Cq>,
    mr: Arc<Mr>,
}

/// The cores of both sides while nobody else has them: a thread takes their turns.
struct Hosts {
    cores: Mutex<[Vec<PollCore>; 2]>,
    shards: [Arc<Shard>; 2],
    now: Arc<dyn Fn() -> Instant + Send + Sync>,
}

impl World {
    /// Two adapters on these edges, each of which has a core, with so many connections for each core.
    pub(crate) fn new(edges: [Vec<BoxEdge>; 2], connections: usize) -> Self {
        let cores = edges[0].len();
        let hosts = Hosts::start(edges);
        let ends = [0, 1].map(|side| End::new(&hosts, side, cores, connections));
        let connections = (0..cores).flat_map(|core| connect(&ends, core)).collect();
        Self { _connections: connections, ends, hosts }
    }

    /// The lanes, whose turns nobody else takes from here on, until they come back.
    pub(crate) fn take_lanes(&mut self) -> Vec<Lane> {
        let sides = self.hosts.cores.lock().unwrap_or_else(PoisonError::into_inner).split_out();
        let [clients, servers] = sides;
        let lane = |(core, (client, server)): (usize, (PollCore, PollCore))| {
            let [near, far] = [0, 1].map(|side| self.ends[side].lanes[core].clone());
            Lane {
                cores: [client, server],
                qps: near.qps,
                cqs: [near.cq, far.cq],
                mrs: [near.mr, far.mr],
                now: Arc::clone(&self.hosts.now),
                next: 0,
            }
        };
        clients.into_iter().zip(servers).enumerate().map(lane).collect()
    }

    /// While this lives, the thread that takes the turns of the lanes that are here does nothing.
    pub(crate) fn quiet(&self) -> impl Drop + '_ {
        self.hosts.cores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lanes back, in their order.
    pub(crate) fn give_back(&mut self, lanes: Vec<Lane>) {
        let mut sides = self.hosts.cores.lock().unwrap_or_else(PoisonError::into_inner);
        for Lane { cores: [client, server], .. } in lanes {
            sides[0].push(client);
            sides[1].push(server);
        }
    }
}

/// Empties the vectors.
trait SplitOut {
    fn split_out(&mut self) -> Self;
}

impl SplitOut for [Vec<PollCore>; 2] {
    fn split_out(&mut self) -> Self {
        self.each_mut().map(std::mem::take)
    }
}

impl Hosts {
    fn start(edges: [Vec<BoxEdge>; 2]) -> Arc<Self> {
        let origin = std::time::Instant::now();
        let provider = |side: usize, edges: Vec<BoxEdge>| {
            let mut config = ProviderConfig::new(vec![address(side)]);
            config.limits.qps = 256;
            config.limits.mrs = 1024;
            config.limits.reorder_pool = 1 << 20;
            let wakers = vec![Waker::noop().clone(); edges.len()];
            PollCore::several(edges, Box::new(System(origin)), config, [side as u8; 32], &wakers)
        };
        let [near, far] = edges;
        let cores = [provider(0, near), provider(1, far)];
        let shards = [0, 1].map(|side: usize| Arc::clone(cores[side][0].shard()));
        let clock = System(origin);
        let hosts =
            Arc::new(Self { cores: Mutex::new(cores), shards, now: Arc::new(move || clock.now()) });
        let running = Arc::downgrade(&hosts);
        thread::spawn(move || {
            while let Some(hosts) = running.upgrade() {
                hosts.turn();
                drop(hosts);
                thread::yield_now();
            }
        });
        hosts
    }

    fn turn(&self) {
        let mut sides = self.cores.lock().unwrap_or_else(PoisonError::into_inner);
        for core in sides.iter_mut().flatten() {
            core.poll((self.now)());
        }
    }
}

impl End {
    fn new(hosts: &Arc<Hosts>, side: usize, cores: usize, connections: usize) -> Self {
        let opener = Host { hosts: Arc::clone(hosts), side };
        let adapter = Adapter::open(Arc::new(opener)).expect("the adapter opens");
        let pd = adapter.create_pd().expect("a domain");
        let reach = NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        let objects = |core: usize| {
            let cq = adapter.create_cq_near(4 * BATCH as u32, 1 << core).expect("a CQ");
            let create = |_| pd.create_qp(&cq, &cq, QpConfig::default()).expect("a queue pair");
            let qps = (0..connections).map(create).collect();
            let mr = pd.register(Buffer::new(BATCH * SIZE), reach).expect("a region");
            Objects { qps, cq, mr }
        };
        let lanes = (0..cores).map(objects).collect();
        Self { adapter, lanes }
    }
}

/// Connects the queue pairs of one core.
fn connect(ends: &[End; 2], core: usize) -> Vec<[Connector; 2]> {
    let adapters = ends.each_ref().map(|end| &end.adapter);
    let qps = ends.each_ref().map(|end| end.lanes[core].qps.as_slice());
    // A port is between two addresses once.
    pairs::connect(adapters, qps, PORT + core as u16)
}

/// One of the providers, as its consumer sees it.
struct Host {
    hosts: Arc<Hosts>,
    side: usize,
}

// SAFETY: the provider keeps an open adapter valid until it is closed.
unsafe impl Opener for Host {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let (sender, opened) = mpsc::channel();
        let keep = move |adapter: *mut NDK_ADAPTER| {
            sender.send(adapter.expose_provenance()).expect("somebody waits");
        };
        self.hosts.shards[self.side].open_adapter(version, Box::new(keep))?;
        let adapter = opened.recv().expect("the adapter opens");
        Ok(std::ptr::with_exposed_provenance_mut(adapter))
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let (sender, closed) = mpsc::channel();
        let done = Box::new(move || sender.send(()).expect("somebody waits"));
        // SAFETY: the caller passes an open adapter and lets go of it.
        unsafe { self.hosts.shards[self.side].close_adapter(adapter, done) };
        closed.recv().expect("the adapter closes");
    }
}
