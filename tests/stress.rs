//! Goal: whatever a consumer does within the contract, from several threads and from inside its
//! callbacks, over a link that loses and damages frames: every request ends exactly once, every
//! close ends, and nothing is left.
//! Method: two threads call the tables of two hosts at random and close things in any order.
//! `STRESS_SECONDS` makes it longer, `STRESS_SEED` chooses the calls (not how the threads meet).

use driver::abi::*;
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::memory::{MemoryConfig, MemoryEdge, pair};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tests::raw::{Host, Memory, Object, PATIENCE, Then, start, wait};

const PORT: u16 = 7174;
/// Objects of one kind that a thread has open, at most.
const MOST: usize = 12;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    /// Takes one out.
    fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() { None } else { Some(from.swap_remove(self.below(from.len()))) }
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }
}

/// A connector that a thread or a callback closes: whoever takes it.
type Slot = Arc<Mutex<Option<Object<NDK_CONNECTOR>>>>;

/// A connector and the QP that it may be using.
struct Pair {
    host: usize,
    connector: Slot,
    qp: Option<Object<NDK_QP>>,
}

/// What the callbacks of a host and the threads share.
#[derive(Default)]
struct Shared {
    /// QPs for accepts.
    pool: Mutex<Vec<Object<NDK_QP>>>,
    /// What the callbacks leave to the threads.
    left: Mutex<Vec<Pair>>,
    /// Closes and requests whose end is awaited.
    closes: Mutex<Vec<Receiver<()>>>,
    requests: Mutex<Vec<Receiver<NTSTATUS>>>,
}

impl Shared {
    fn close_connector(&self, slot: &Slot) {
        // The guard is not kept: a close takes no lock, but its completion may come at once.
        let connector = slot.lock().unwrap().take();
        if let Some(connector) = connector {
            self.await_close(start(|then| connector.close(then)));
        }
    }

    fn await_close(&self, close: Receiver<()>) {
        self.closes.lock().unwrap().push(close);
    }

    fn await_request(&self, request: Receiver<NTSTATUS>) {
        self.requests.lock().unwrap().push(request);
    }

    /// A disconnect event that closes its connector, or does nothing.
    fn event(self: &Arc<Self>, slot: &Slot, closes: bool) -> Box<dyn Fn() + Send + Sync> {
        let (shared, slot) = (Arc::clone(self), Arc::clone(slot));
        Box::new(move || {
            if closes {
                shared.close_connector(&slot);
            }
        })
    }

    /// An incoming connection, inside the connect event.
    fn incoming(self: &Arc<Self>, host: usize, connector: Object<NDK_CONNECTOR>, rng: &mut Rng) {
        let slot: Slot = Arc::new(Mutex::new(Some(connector)));
        let qp = self.pool.lock().unwrap().pop();
        match (rng.below(8), qp) {
            (0, qp) => {
                self.pool.lock().unwrap().extend(qp);
                self.close_connector(&slot);
            }
            (1, qp) => {
                self.pool.lock().unwrap().extend(qp);
                let _rejected = connector.reject();
                self.close_connector(&slot);
            }
            (_, None) => self.close_connector(&slot),
            (_, Some(qp)) => {
                let event = self.event(&slot, rng.one_in(2));
                self.await_request(start(|then| connector.accept(qp, event, then)));
                self.left.lock().unwrap().push(Pair { host, connector: slot, qp: Some(qp) });
            }
        }
    }
}

/// One thread's objects.
struct Actor<'a> {
    hosts: &'a [Host; 2],
    shared: &'a Arc<Shared>,
    rng: Rng,
    cqs: [Vec<Object<NDK_CQ>>; 2],
    pds: [Vec<Object<NDK_PD>>; 2],
    mrs: [Vec<Memory>; 2],
    qps: [Vec<Object<NDK_QP>>; 2],
    pairs: Vec<Pair>,
    listeners: [Vec<Object<NDK_LISTENER>>; 2],
    endpoints: [Vec<Object<NDK_SHARED_ENDPOINT>>; 2],
}

impl<'a> Actor<'a> {
    fn new(hosts: &'a [Host; 2], shared: &'a Arc<Shared>, seed: u64) -> Self {
        Self {
            hosts,
            shared,
            rng: Rng(seed),
            cqs: Default::default(),
            pds: Default::default(),
            mrs: Default::default(),
            qps: Default::default(),
            pairs: Vec::new(),
            listeners: Default::default(),
            endpoints: Default::default(),
        }
    }

    fn act(&mut self) {
        let host = self.rng.below(2);
        match self.rng.below(32) {
            0 => self.create_cq(host),
            1 => self.create_pd(host),
            2 => self.create_mr(host),
            3 | 4 => self.create_qp(host),
            5 => self.fill_pool(host),
            6..=9 => self.connect(host),
            10 => self.listen(host),
            11 => self.adopt(),
            12 => self.flush(host),
            13 => self.disconnect(),
            14 => self.pause(host),
            15 => self.close_one(host),
            16 => self.close_pair(),
            17 => self.create_and_close(host),
            18 => self.change_cq(host),
            19 => self.share(host),
            _ => self.post(host),
        }
    }

    /// A CQ whose notification takes the results and arms again.
    fn create_cq(&mut self, host: usize) {
        if self.cqs[host].len() >= MOST {
            return;
        }
        let own: Arc<OnceLock<Object<NDK_CQ>>> = Arc::default();
        let seen = Arc::clone(&own);
        let notify = Box::new(move |status: NTSTATUS| {
            let Some(cq) = seen.get().filter(|_| status.is_success()) else { return };
            let mut results = [NDK_RESULT::EMPTY; 16];
            while cq.results(&mut results) > 0 {}
            cq.arm();
        });
        let depth = 1 + self.rng.below(64) as u32;
        let cq = wait(|then| self.hosts[host].adapter.create_cq(depth, notify, then)).unwrap();
        own.set(cq).expect("set once");
        cq.arm();
        self.cqs[host].push(cq);
    }

    /// Another depth, other moderation; the smaller depth may overrun.
    fn change_cq(&mut self, host: usize) {
        let (depth, interval) = (1 + self.rng.below(256) as u32, self.rng.below(300) as u32);
        if let Some(cq) = self.rng.pick(&self.cqs[host]) {
            self.shared.await_request(start(|then| cq.resize(depth, then)));
            assert_eq!(cq.moderate(interval, depth / 16), STATUS_SUCCESS);
        }
    }

    fn share(&mut self, host: usize) {
        if self.endpoints[host].len() < 2 {
            let (adapter, local) = (self.hosts[host].adapter, self.hosts[host].at(0));
            self.endpoints[host].push(wait(|then| adapter.share(local, then)).unwrap());
        }
    }

    fn create_pd(&mut self, host: usize) {
        if self.pds[host].len() < MOST {
            self.pds[host].push(wait(|then| self.hosts[host].adapter.create_pd(then)).unwrap());
        }
    }

    fn create_mr(&mut self, host: usize) {
        if let Some(&pd) = self.rng.pick(&self.pds[host]).filter(|_| self.mrs[host].len() < 4) {
            self.mrs[host].push(Memory::new(pd, 16_384));
        }
    }

    fn new_qp(&mut self, host: usize) -> Option<Object<NDK_QP>> {
        let &pd = self.rng.pick(&self.pds[host])?;
        let &cq = self.rng.pick(&self.cqs[host])?;
        Some(wait(|then| pd.create_qp(cq, 8, then)).unwrap())
    }

    fn create_qp(&mut self, host: usize) {
        if self.qps[host].len() < MOST
            && let Some(qp) = self.new_qp(host)
        {
            self.qps[host].push(qp);
        }
    }

    /// Callbacks accept on both hosts with QPs of the second one, where the listeners are.
    fn fill_pool(&mut self, _host: usize) {
        if self.shared.pool.lock().unwrap().len() < MOST
            && let Some(qp) = self.new_qp(1)
        {
            self.shared.pool.lock().unwrap().push(qp);
        }
    }

    /// To the second host, from the first or from itself.
    fn connect(&mut self, host: usize) {
        if self.pairs.len() >= 2 * MOST {
            return;
        }
        let Some(qp) = self.rng.take(&mut self.qps[host]) else { return };
        let adapter = self.hosts[host].adapter;
        let connector = wait(|then| adapter.create_connector(then)).unwrap();
        let slot: Slot = Arc::new(Mutex::new(Some(connector)));
        let event = self.shared.event(&slot, self.rng.one_in(2));
        let (shared, target) = (Arc::clone(self.shared), Arc::clone(&slot));
        let refuses = self.rng.one_in(6);
        let (local, remote) = (self.hosts[host].at(0), self.hosts[1].at(PORT));
        let endpoint = self.rng.one_in(3).then(|| self.rng.pick(&self.endpoints[host])).flatten();
        let request = start(|then| {
            let then: Then<NTSTATUS> = Box::new(move |status: NTSTATUS| {
                // Re-enters, unless someone closes the connector.
                if let (true, Some(connector)) = (status.is_success(), *target.lock().unwrap()) {
                    if refuses {
                        let _ = connector.reject();
                    } else {
                        shared.await_request(start(|then| {
                            connector.complete_connect(event, then);
                        }));
                    }
                }
                then(status);
            });
            match endpoint {
                Some(&endpoint) => connector.connect_shared(qp, endpoint, remote, then),
                None => connector.connect(qp, local, remote, then),
            }
        });
        self.shared.await_request(request);
        self.pairs.push(Pair { host, connector: slot, qp: Some(qp) });
    }

    fn listen(&mut self, _host: usize) {
        // Both threads try; the port has one listener at a time.
        if self.listeners[1].len() >= 2 {
            return;
        }
        let (shared, seed) = (Arc::clone(self.shared), self.rng.next());
        let rng = Mutex::new(Rng(seed));
        let incoming =
            Box::new(move |connector| shared.incoming(1, connector, &mut rng.lock().unwrap()));
        let host = &self.hosts[1];
        let listener = wait(|then| host.adapter.create_listener(incoming, then)).unwrap();
        self.shared.await_request(start(|then| listener.listen(host.at(PORT), then)));
        self.listeners[1].push(listener);
    }

    /// Takes over what a callback accepted.
    fn adopt(&mut self) {
        self.pairs.extend(self.shared.left.lock().unwrap().pop());
    }

    fn flush(&mut self, host: usize) {
        if self.rng.one_in(4)
            && let Some(qp) = self.rng.pick(&self.qps[host])
        {
            qp.flush();
        }
    }

    fn disconnect(&mut self) {
        let Some(pair) = self.rng.pick(&self.pairs) else { return };
        // Under the lock, so that no callback closes it meanwhile.
        if let Some(connector) = *pair.connector.lock().unwrap() {
            self.shared.await_request(start(|then| connector.disconnect(then)));
        }
    }

    fn pause(&mut self, host: usize) {
        let pause = self.rng.one_in(3);
        if let Some(listener) = self.rng.pick(&self.listeners[host]) {
            listener.pause(pause);
        }
    }

    fn close_one(&mut self, host: usize) {
        let closes = &self.shared.closes;
        let mut closed = closes.lock().unwrap();
        match self.rng.below(7) {
            0 => closed
                .extend(self.rng.take(&mut self.cqs[host]).map(|cq| start(|then| cq.close(then)))),
            1 => closed
                .extend(self.rng.take(&mut self.pds[host]).map(|pd| start(|then| pd.close(then)))),
            2 => closed.extend(
                self.rng
                    .take(&mut self.mrs[host])
                    .map(|memory| start(|then| memory.mr.close(then))),
            ),
            3 => closed
                .extend(self.rng.take(&mut self.qps[host]).map(|qp| start(|then| qp.close(then)))),
            4 if self.rng.one_in(8) => closed.extend(
                self.rng.take(&mut self.listeners[host]).map(|one| start(|then| one.close(then))),
            ),
            5 => closed.extend(
                self.rng.take(&mut self.endpoints[host]).map(|one| start(|then| one.close(then))),
            ),
            _ => {}
        }
    }

    /// A connector and its QP, in either order.
    fn close_pair(&mut self) {
        let Some(Pair { connector, qp, .. }) = self.rng.take(&mut self.pairs) else { return };
        let qp_first = self.rng.one_in(2);
        let close_qp = || {
            if let Some(qp) = qp {
                self.shared.await_close(start(|then| qp.close(then)));
            }
        };
        if qp_first {
            close_qp();
            self.shared.close_connector(&connector);
        } else {
            self.shared.close_connector(&connector);
            close_qp();
        }
    }

    /// Closed where it is created: in the callback.
    fn create_and_close(&mut self, host: usize) {
        let shared = Arc::clone(self.shared);
        self.hosts[host].adapter.create_connector(Box::new(move |connector| {
            let connector = connector.unwrap();
            shared.await_close(start(|then| connector.close(then)));
        }));
    }

    fn post(&mut self, host: usize) {
        let kind = self.rng.below(4);
        let Some(&memory) = self.rng.pick(&self.mrs[host]) else { return };
        let (offset, len) = (self.rng.below(8192) as u64, self.rng.below(8192) as u32);
        let sgl = [memory.sge(offset, len)];
        let pairs: Vec<_> = self.pairs.iter().filter(|pair| pair.host == host).collect();
        let Some(qp) = self.rng.pick(&pairs).and_then(|pair| pair.qp) else { return };
        // Refused or accepted: both are fine.
        let _status = match kind {
            0 | 1 => qp.receive(1, &sgl),
            2 => qp.send(2, &sgl),
            _ => {
                let Some(remote) = self.rng.pick(&self.mrs[1 - host]) else { return };
                qp.write(3, &sgl, remote.address, remote.token)
            }
        };
    }

    fn close_all(mut self) {
        let mut pairs = std::mem::take(&mut self.pairs);
        while !pairs.is_empty() {
            self.pairs.extend(self.rng.take(&mut pairs));
            self.close_pair();
        }
        for host in 0..2 {
            while let Some(one) = self.listeners[host].pop() {
                self.shared.await_close(start(|then| one.close(then)));
            }
            while let Some(one) = self.endpoints[host].pop() {
                self.shared.await_close(start(|then| one.close(then)));
            }
        }
        for host in 0..2 {
            let Self { cqs, pds, qps, mrs, shared, .. } = &mut self;
            for pd in std::mem::take(&mut pds[host]) {
                shared.await_close(start(|then| pd.close(then)));
            }
            for cq in std::mem::take(&mut cqs[host]) {
                shared.await_close(start(|then| cq.close(then)));
            }
            for qp in std::mem::take(&mut qps[host]) {
                shared.await_close(start(|then| qp.close(then)));
            }
            for memory in std::mem::take(&mut mrs[host]) {
                shared.await_close(start(|then| memory.mr.close(then)));
            }
        }
    }
}

/// Closes what the callbacks left, until nothing more comes.
fn close_rest(shared: &Shared) {
    for pair in std::mem::take(&mut *shared.left.lock().unwrap()) {
        shared.close_connector(&pair.connector);
        if let Some(qp) = pair.qp {
            shared.await_close(start(|then| qp.close(then)));
        }
    }
    for qp in std::mem::take(&mut *shared.pool.lock().unwrap()) {
        shared.await_close(start(|then| qp.close(then)));
    }
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn faulty(edge: MemoryEdge, seed: u64) -> Box<FaultInjector<MemoryEdge>> {
    let faults = Faults {
        seed,
        loss: 0.01,
        duplicate: 0.01,
        corrupt: 0.01,
        reorder: 0.02,
        ..Faults::default()
    };
    Box::new(FaultInjector::new(edge, faults))
}

#[test]
fn anything_within_the_contract_ends() {
    let seed = environment("STRESS_SEED", 1);
    let seconds = environment("STRESS_SECONDS", 3);
    eprintln!("STRESS_SEED={seed} STRESS_SECONDS={seconds}");
    let (first, second) = pair(MemoryConfig::default());
    let hosts = [
        Host::new(faulty(first, seed), "10.0.0.1"),
        Host::new(faulty(second, seed + 1), "10.0.0.2"),
    ];
    let shared: Arc<Shared> = Arc::default();
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (hosts, shared) = (&hosts, &shared);
            scope.spawn(move || {
                let mut actor = Actor::new(hosts, shared, seed ^ (thread << 32));
                let mut calls = 0_u64;
                while Instant::now() < end {
                    actor.act();
                    calls += 1;
                }
                eprintln!("{calls} calls");
                actor.close_all();
            });
        }
    });
    // No connect event comes from here on, but one may be running.
    for host in &hosts {
        let pd = wait(|then| host.adapter.create_pd(then)).unwrap();
        wait(|then| pd.close(then));
    }
    close_rest(&shared);
    let closes = std::mem::take(&mut *shared.closes.lock().unwrap());
    for close in &closes {
        close.recv_timeout(PATIENCE).expect("every close ends");
    }
    hosts.into_iter().for_each(Host::close);
    let requests = std::mem::take(&mut *shared.requests.lock().unwrap());
    let ended: Vec<_> = requests.iter().map(|request| request.try_recv()).collect();
    assert!(ended.iter().all(Result::is_ok), "every request ends");
    assert!(requests.iter().all(|request| request.try_recv().is_err()), "and once");
    let established = ended.iter().filter(|status| **status == Ok(STATUS_SUCCESS)).count();
    eprintln!("{} closes, {} requests, {established} successful", closes.len(), ended.len());
}
