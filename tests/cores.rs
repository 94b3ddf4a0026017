//! Adapters of several cores through the tables: queue pairs of every core, and what cores share.
//!
//! A CQ lives on the core that its affinity names, a queue pair on that of its SRQ or else of its initiator CQ. So a test
//! chooses the core of everything. The hosts run in threads, one a core, and are joined in memory.

#[path = "cores/ends.rs"]
mod ends;
#[path = "cores/keys.rs"]
mod keys;
#[path = "cores/queues.rs"]
mod queues;
#[path = "cores/stalls.rs"]
mod stalls;
#[path = "cores/steering.rs"]
mod steering;

use driver::abi::*;
use ndk_consumer::{Adapter, Buffer, Connector, Cq, Mr, Pd, Qp, QpConfig};
use rocev2::wire::core_of;
use std::sync::Arc;
use std::thread;
use tests::kit::*;

/// How many cores the hosts have.
const CORES: [[usize; 2]; 4] = [[2, 2], [3, 3], [2, 1], [1, 3]];

/// A consumer's domain with a MiB that has every right, for queue pairs of every core.
struct Domain {
    adapter: Arc<Adapter>,
    mr: Arc<Mr>,
    pd: Arc<Pd>,
}

impl Domain {
    fn new(adapter: &Arc<Adapter>) -> Self {
        let pd = adapter.create_pd().unwrap();
        let mr = pd.register(Buffer::new(1 << 20), ALL_ACCESS).unwrap();
        Self { adapter: Arc::clone(adapter), mr, pd }
    }

    fn cq(&self, core: usize) -> Arc<Cq> {
        self.adapter.create_cq_near(256, 1 << core).unwrap()
    }

    /// A side on a core.
    fn side(&self, core: usize) -> Side {
        let cq = self.cq(core);
        let qp = self.qp(&cq, &cq);
        Side { cq, mr: Arc::clone(&self.mr), qp, pd: Arc::clone(&self.pd) }
    }

    fn qp(&self, receives: &Arc<Cq>, requests: &Arc<Cq>) -> Arc<Qp> {
        self.pd.create_qp(receives, requests, QpConfig::default()).unwrap()
    }
}

/// Connections between two domains: one of each core with each core of the other side.
struct Mesh {
    pairs: Vec<([Side; 2], [Connector; 2])>,
    domains: [Domain; 2],
    net: Net,
}

impl Mesh {
    fn new(net: Net, cores: [usize; 2]) -> Self {
        let domains = [0, 1].map(|host| Domain::new(&net.adapters[host]));
        let listener = net.listen();
        let pair = |(near, far)| {
            let sides = [domains[0].side(near), domains[1].side(far)];
            let ends = net.connect_qps_by(&listener, PORT, &sides[0].qp, &sides[1].qp);
            (sides, ends)
        };
        let all = (0..cores[0]).flat_map(|near| (0..cores[1]).map(move |far| (near, far)));
        let pairs = all.map(pair).collect();
        Self { pairs, domains, net }
    }

    fn of(cores: [usize; 2]) -> Self {
        Self::new(Net::of_cores(cores, core_of), cores)
    }

    /// Every operation on every connection, both ways, all at once. Each connection has its part of the memory.
    fn exchange(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let [local, remote] = [from, to].map(|side| &self.domains[side].mr);
            fill(local, 3);
            fill(remote, 5);
            thread::scope(|scope| {
                for (at, (sides, _)) in self.pairs.iter().enumerate() {
                    let sides = [&sides[from], &sides[to]];
                    scope.spawn(move || exchange(sides, at * PART));
                }
            });
        }
    }

    /// Closes everything, and finds nothing left.
    fn finish(self) {
        drop((self.pairs, self.domains));
        self.net.finish();
    }
}

/// Bytes of memory that a connection has on each side, and of a message: many packets.
const PART: usize = 96 << 10;
const LEN: usize = 20_000;

/// Moves what one side has in its part to the other one's by each operation, a few times.
fn exchange([local, remote]: [&Side; 2], part: usize) {
    let [sent, written, read] = [0, 1, 2].map(|nth| part + nth * (32 << 10));
    for round in 0..4 {
        remote.qp.receive(7, &[remote.mr.sge(sent..sent + LEN)]).unwrap();
        local.qp.send(1, &[local.mr.sge(part + round..part + round + LEN)], 0).unwrap();
        let source = [local.mr.sge(part + 99..part + 99 + LEN)];
        local.qp.write(2, &source, remote.mr.remote(written), 0).unwrap();
        let target = [local.mr.sge(read..read + LEN)];
        local.qp.read(3, &target, remote.mr.remote(read + 5), 0).unwrap();
        assert_eq!(local.statuses(3), [STATUS_SUCCESS; 3]);
        let received = remote.results(1)[0];
        assert_eq!((received.Status, received.BytesTransferred), (STATUS_SUCCESS, LEN as u32));
        assert!(remote.bytes(sent, LEN) == local.bytes(part + round, LEN), "SEND");
        assert!(remote.bytes(written, LEN) == local.bytes(part + 99, LEN), "WRITE");
        assert!(local.bytes(read, LEN) == remote.bytes(read + 5, LEN), "READ");
    }
}

/// Writes a pattern.
fn fill(mr: &Mr, seed: u32) {
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| ((at * seed) ^ (at >> 8)) as u8).collect();
    mr.buffer().write(0, &bytes);
}

#[test]
fn every_core_talks_to_every_core() {
    for cores in CORES {
        let mesh = Mesh::of(cores);
        mesh.exchange();
        for host in [0, 1] {
            // Of each of its cores one for each of the others.
            let own = mesh.net.providers[host].connections();
            let mut of: Vec<_> = own.iter().map(|one| one.qpn.core(cores[host])).collect();
            of.sort_unstable();
            let each = |core| [core].repeat(cores[1 - host]);
            assert_eq!(of, (0..cores[host]).flat_map(each).collect::<Vec<_>>(), "{cores:?}");
            let counters = mesh.net.providers[host].counters();
            assert_eq!((counters.edge.receive, counters.errors, counters.failures), (0, 0, 0));
        }
        mesh.finish();
    }
}

/// Where the consumer has no wish, its queues take turns on the cores.
#[test]
fn queues_without_affinity_are_spread() {
    let net = Net::of_cores([3, 1], core_of);
    let listener = net.listen();
    let far = net.side(1);
    let sides: Vec<_> = (0..6).map(|_| net.side(0)).collect();
    let ends: Vec<_> = sides
        .iter()
        .map(|side| {
            let peer = far.pd.create_qp(&far.cq, &far.cq, QpConfig::default()).unwrap();
            (net.connect_qps_by(&listener, PORT, &side.qp, &peer), peer)
        })
        .collect();
    let mut of: Vec<_> = net.providers[0].connections().iter().map(|one| one.qpn.core(3)).collect();
    of.sort_unstable();
    assert_eq!(of, [0, 0, 1, 1, 2, 2]);
    drop((ends, sides, far, listener));
    net.finish();
}

#[test]
fn a_hundred_connects_at_once() {
    const THREADS: usize = 4;
    let cores = [3, 2];
    let net = Net::of_cores(cores, core_of);
    let domains = [0, 1].map(|host| Domain::new(&net.adapters[host]));
    thread::scope(|scope| {
        for nth in 0..THREADS {
            let (net, domains) = (&net, &domains);
            scope.spawn(move || {
                let port = PORT + nth as u16;
                let listener = net.adapters[1].listen(net.at(1, port)).unwrap();
                let cqs = [0, 1].map(|host| domains[host].cq(nth % cores[host]));
                let ends: Vec<_> = (0..25)
                    .map(|at| {
                        let other = domains[0].cq((nth + at) % cores[0]);
                        let qps = [domains[0].qp(&other, &other), domains[1].qp(&cqs[1], &cqs[1])];
                        (net.connect_qps_by(&listener, port, &qps[0], &qps[1]), qps)
                    })
                    .collect();
                assert!(ends.iter().all(|(ends, _)| !ends[0].is_disconnected()));
                for (at, ([active, passive], _)) in ends.into_iter().enumerate() {
                    let [first, second] =
                        if at % 2 == 0 { [active, passive] } else { [passive, active] };
                    drop(first);
                    assert!(second.wait_disconnected(PATIENCE));
                }
            });
        }
    });
    for (host, counters) in net.providers.iter().map(|provider| provider.counters()).enumerate() {
        let made = [counters.connects, counters.accepts][host];
        assert_eq!((made, counters.active, counters.errors, counters.failures), (100, 0, 0, 0));
    }
    drop(domains);
    net.finish();
}
