//! Two providers of any number of cores on a virtual clock, and the wire between them.
#![allow(unsafe_code, reason = "an adapter is closed by its pointer")]

use driver::abi::{NDK_ADAPTER, NDK_VERSION};
use driver::{ProviderConfig, Stepped};
use netadapter_glue::{Edge, EdgeError, Link, Received, Slot, fill_one};
use rocev2::env::Instant;
use rocev2::wire::core_of;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tests::kit::numbered::clear_events;
use tests::kit::raw::Object;

/// Frames that wait on one side of the wire, at most: what comes then is lost.
const WIRE: usize = 256;
/// Rounds in which two providers must fall silent while time stands still.
const STORM: usize = 3000;
/// A path MTU of 256: messages of a few KiB are many packets.
const MTU: usize = 400;

/// What crosses the edge of a core.
#[derive(Default)]
struct Port {
    inbox: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

/// The edge of a core.
struct FuzzEdge {
    mac: [u8; 6],
    port: Arc<Mutex<Port>>,
    buffer: Vec<u8>,
}

fn lock(port: &Mutex<Port>) -> MutexGuard<'_, Port> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Edge for FuzzEdge {
    fn link(&self) -> Link {
        let max_unit_len = MTU + 14 + 64;
        Link { mac: self.mac, mtu: MTU, max_segments: 1, max_unit_len, socket: false }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut port = lock(&self.port);
        let count = budget.min(port.inbox.len());
        for frame in port.inbox.drain(..count) {
            sink(&[Received { frame: &frame, segments: None }]);
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        for sent in 0..budget {
            let Some(unit) = fill_one(fill, &mut self.buffer) else { return Ok(sent) };
            lock(&self.port).sent.push(self.buffer[..unit.len].to_vec());
        }
        Ok(budget)
    }
}

/// A core of a host.
struct Core {
    port: Arc<Mutex<Port>>,
    /// When its next timer is due.
    next: Option<Instant>,
}

/// The two hosts.
pub(super) struct Hosts {
    pub(super) providers: [Stepped; 2],
    pub(super) adapters: [Object<NDK_ADAPTER>; 2],
    pub(super) addresses: [IpAddr; 2],
    /// What is on its way to each of them.
    pub(super) wire: [VecDeque<Vec<u8>>; 2],
    cores: [Vec<Core>; 2],
    now: Instant,
}

impl Hosts {
    pub(super) fn new(v6: bool, cores: [usize; 2], configure: fn(&mut ProviderConfig)) -> Self {
        clear_events();
        let addresses = [1, 2].map(|number: u8| match v6 {
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]),
            false => IpAddr::from([10, 0, 0, number]),
        });
        let core = || Core { port: Arc::default(), next: None };
        let cores = cores.map(|count| (0..count).map(|_| core()).collect::<Vec<_>>());
        let now = Instant::from_nanos(1);
        let mut providers = [0, 1].map(|host: usize| {
            let edge = |core: &Core| -> Box<dyn Edge + Send> {
                let mac = [2, 0, 0, 0, 0, 1 + host as u8];
                let port = Arc::clone(&core.port);
                Box::new(FuzzEdge { mac, port, buffer: vec![0; MTU + 14 + 64] })
            };
            let mut config = ProviderConfig::new(vec![addresses[host]]);
            config.limits.reorder_pool = 64 << 10;
            configure(&mut config);
            let edges = cores[host].iter().map(edge).collect();
            Stepped::with_cores(edges, config, [1 + host as u8; 32])
        });
        let adapters = providers.each_mut().map(|provider| {
            let version = NDK_VERSION { Major: 2, Minor: 1 };
            Object(provider.open_adapter(version, now).expect("an adapter opens"))
        });
        Self { providers, adapters, addresses, wire: Default::default(), cores, now }
    }

    pub(super) fn cores(&self, host: usize) -> usize {
        self.cores[host].len()
    }

    /// One turn of a core; whether it did anything.
    pub(super) fn turn(&mut self, host: usize, core: usize) -> bool {
        let turn = self.providers[host].poll_core(core, self.now);
        let own = &mut self.cores[host][core];
        own.next = turn.next;
        let sent = std::mem::take(&mut lock(&own.port).sent);
        let busy = turn.busy || !sent.is_empty();
        let wire = &mut self.wire[1 - host];
        let room = WIRE.saturating_sub(wire.len());
        wire.extend(sent.into_iter().take(room));
        busy
    }

    /// A frame comes to a core; to its own, where none is named.
    pub(super) fn deliver(&mut self, host: usize, core: Option<usize>, frame: Vec<u8>) {
        let cores = &self.cores[host];
        let core = core.unwrap_or_else(|| core_of(&frame, cores.len()));
        lock(&cores[core].port).inbox.push_back(frame);
    }

    /// All frames arrive, and each core has a turn; whether anything happened.
    pub(super) fn round(&mut self) -> bool {
        let mut busy = false;
        for host in [0, 1] {
            for frame in std::mem::take(&mut self.wire[host]) {
                self.deliver(host, None, frame);
            }
            for core in 0..self.cores(host) {
                let has_mail = !lock(&self.cores[host][core].port).inbox.is_empty();
                busy |= self.turn(host, core) | has_mail;
            }
        }
        busy
    }

    /// Everything arrives, and what comes of it, while time stands still.
    pub(super) fn settle(&mut self) {
        assert!((0..STORM).any(|_| !self.round()), "a storm");
    }

    /// Time passes without a turn.
    pub(super) fn advance(&mut self, ns: u64) {
        self.now = Instant::from_nanos(self.now.as_nanos() + ns);
    }

    /// To the next timer. False: there is none.
    pub(super) fn jump(&mut self) -> bool {
        let next = self.cores.iter().flatten().filter_map(|core| core.next).min();
        self.now = self.now.max(next.unwrap_or(self.now));
        next.is_some()
    }

    /// Closes the adapters, whose objects are closed, and finds nothing left.
    pub(super) fn finish(mut self) {
        let closed = [0, 1].map(|host| {
            let closed = Arc::<AtomicBool>::default();
            let tell = Arc::clone(&closed);
            let told = move || tell.store(true, Ordering::Relaxed);
            // SAFETY: opened by `new`, and nothing uses it any more.
            unsafe { self.providers[host].close_adapter(self.adapters[host].0, told) };
            closed
        });
        self.settle();
        assert!(
            closed.iter().all(|closed| closed.load(Ordering::Relaxed)),
            "an adapter stays open"
        );
        let left = self.providers.iter().map(Stepped::open_objects);
        assert_eq!(left.sum::<usize>(), 0, "objects that nobody has");
    }
}
