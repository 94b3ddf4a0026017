//! Goal: one adapter serves 65,536 connected queue pairs and a million keys, takes the memory for them as they are
//! created, and gives all of it back.
//! Method: an allocator that counts, and one test in the process. An ordinary run has a part of the numbers;
//! `SCALE=full cargo test -p tests --test scale -- --nocapture` has all of them, in some minutes and 3 GB. `SCALE=table`
//! has the 10,000 connections that the table of the benches is about, and says what processor time they took, on one
//! processor.

use driver::abi::{NDK_RESULT, STATUS_SUCCESS};
use ndk_consumer::{
    Buffer, Connector, Cq, Listener, Mdl, Qp, QpConfig, ReadLimits, SharedEndpoint,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tests::alloc::{Counting, bytes};
use tests::figures::record;
use tests::kit::raw::wait;
use tests::kit::{ALL_ACCESS, Net, PATIENCE, Side};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Ports of each host: a connection has a pair of them to itself.
const PORTS: usize = 256;
const FIRST_PORT: u16 = 5_000;

/// The fast-register regions of a socket of Microsoft's sample, which has one registration beside them.
const REGIONS: usize = 512;
const PAGES: u32 = 512;

/// So many connections are left alone for a while, in which they should take no processor time.
const IDLE_PAIRS: usize = 10_000;
const IDLE: Duration = Duration::from_secs(2);

/// Bytes that the test's own thread keeps.
const WAITS: usize = 256;

const LEN: usize = 64;
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };

/// Prints a line at once: the test harness would keep one of `eprintln` in memory, which is counted here.
macro_rules! say {
    ($($text:tt)*) => {
        drop(writeln!(io::stderr(), $($text)*))
    };
}

#[test]
fn memory_comes_with_objects_and_goes_with_them() {
    let [pairs, keys, sockets] = match std::env::var("SCALE").as_deref() {
        Ok("full") => [65_536, 1_000_000, 256],
        Ok("table") => [IDLE_PAIRS, 20_000, 4],
        _ => [1_000, 20_000, 4],
    };
    if pairs == IDLE_PAIRS {
        stay_on_one_processor();
    }
    // A process has some memory once.
    connect(2);
    for (what, count, run) in [
        ("connected pairs", pairs, connect as fn(usize) -> usize),
        ("keys", keys, register),
        ("sockets of 513 keys", sockets, open),
    ] {
        let (before, begin) = (bytes(), Instant::now());
        let each = run(count) / count;
        say!("{count} {what}: {each} bytes each, {:?}", begin.elapsed());
        back_to(before);
    }
}

/// Keeps this thread, and those that it starts, where it is: what they take for a connection is then that of one core,
/// and not what it costs to wake another.
fn stay_on_one_processor() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).expect("a processor");
    assert_eq!(sched_getaffinity(None).expect("processors").count(), 1);
}

/// Waits until no more is allocated than before, as threads end in their own time. A thread of the test that has
/// waited for another keeps what it waits by.
fn back_to(before: usize) {
    let begin = Instant::now();
    while bytes() > before + WAITS {
        assert!(begin.elapsed() < PATIENCE, "{} bytes are left", bytes() - before);
        thread::sleep(Duration::from_millis(10));
    }
}

/// The bytes that `make` takes, and what it makes.
fn taken<T>(make: impl FnOnce() -> T) -> (usize, T) {
    let before = bytes();
    let made = make();
    (bytes().saturating_sub(before), made)
}

/// Connects so many pairs, lets each WRITE once, and closes them. Returns the bytes that they took.
fn connect(count: usize) -> usize {
    let net = Net::new();
    // Without the queue pair of a side, which would be one too many.
    let domains = [0, 1].map(|host| {
        let Side { pd, mr, .. } = net.side(host);
        (pd, mr)
    });
    let cqs = [0, 1].map(|host| net.adapters[host].create_cq(32_768).expect("a CQ"));
    let ports = || (FIRST_PORT..).take(PORTS.min(count));
    let listeners: Vec<_> =
        ports().map(|port| net.adapters[1].listen(net.at(1, port)).expect("a listener")).collect();
    let endpoints: Vec<_> =
        ports().map(|port| net.adapters[0].share(net.at(0, port)).expect("an endpoint")).collect();
    let config = QpConfig {
        receive_depth: 1,
        initiator_depth: 1,
        receive_sge: 1,
        initiator_sge: 1,
        ..QpConfig::default()
    };
    let began = processor_time();
    let (taken, pairs) = taken(|| {
        let pair = |number: usize| {
            let qps = [0, 1].map(|host| {
                domains[host].0.create_qp(&cqs[host], &cqs[host], config).expect("a queue pair")
            });
            let (listener, port) = (number / PORTS, FIRST_PORT + (number / PORTS) as u16);
            let ends = [&endpoints[number % PORTS.min(count)]];
            let connectors = join(&net, &listeners[listener], port, ends[0], &qps);
            (qps, connectors)
        };
        (0..count).map(pair).collect::<Vec<_>>()
    });
    // Of both ends, and of this consumer of both.
    let rate = count as f64 / (processor_time() - began).as_secs_f64();
    say!("{rate:.0} connections in a second of one processor");
    record("scale/connects", rate);
    for (number, ([client, _], _)) in pairs.iter().enumerate() {
        let at = number % (1 << 10) * LEN;
        client
            .write(number, &[domains[0].1.sge(at..at + LEN)], domains[1].1.remote(at), 0)
            .expect("a WRITE");
        if number % 1000 == 999 {
            complete(&cqs[0], 1000);
        }
    }
    complete(&cqs[0], count % 1000);
    if count >= IDLE_PAIRS {
        idle();
    }
    drop(pairs);
    taken
}

/// Leaves the connections alone, and says what part of a processor they take.
fn idle() {
    let began = processor_time();
    thread::sleep(IDLE);
    let percent = 100.0 * (processor_time() - began).as_secs_f64() / IDLE.as_secs_f64();
    say!("{percent:.2} % of a processor while they are idle");
    record("scale/idle", percent);
}

/// Of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().expect("time goes forward")
}

/// Connects two queue pairs between two ports.
fn join(
    net: &Net,
    listener: &Arc<Listener>,
    port: u16,
    endpoint: &Arc<SharedEndpoint>,
    qps: &[Arc<Qp>; 2],
) -> [Connector; 2] {
    let active = net.adapters[0].create_connector().expect("a connector");
    let request = active.connect_shared(&qps[0], endpoint, net.at(1, port), LIMITS, b"");
    let passive = listener.next(PATIENCE).expect("a connect event");
    let accept = passive.accept(&qps[1], LIMITS, b"");
    request.wait().expect("a connection");
    active.complete_connect().wait().expect("a connection");
    accept.wait().expect("a connection");
    [active, passive]
}

/// Takes so many completions, each a success.
fn complete(cq: &Arc<Cq>, count: usize) {
    let (mut results, mut taken, begin) = ([NDK_RESULT::EMPTY; 64], 0, Instant::now());
    while taken < count {
        let some = cq.results(&mut results);
        assert!(results[..some].iter().all(|result| result.Status == STATUS_SUCCESS));
        taken += some;
        assert!(begin.elapsed() < PATIENCE, "{taken} of {count} completions");
    }
}

/// Registers memory so many times. Returns the bytes that this took.
fn register(count: usize) -> usize {
    let net = Net::new();
    let pd = wait(|then| net.raw(0).create_pd(then)).expect("a domain");
    let buffer = Buffer::new(LEN);
    let mut mdl = Mdl::new(buffer.as_ptr(), LEN);
    let mut register = |_| {
        let mr = wait(|then| pd.create_mr(then)).expect("a region");
        assert_eq!(wait(|then| mr.register(&mut mdl, LEN, then)), STATUS_SUCCESS);
        mr
    };
    let (taken, regions) = taken(|| (0..count).map(&mut register).collect::<Vec<_>>());
    let tokens: BTreeSet<u32> = regions.iter().map(|mr| mr.token()).collect();
    assert_eq!(tokens.len(), count, "each has a key of its own");
    regions.into_iter().for_each(|mr| wait(|then| mr.close(then)));
    wait(|then| pd.close(then));
    taken
}

/// Makes so many sockets of the shape of Microsoft's sample. Returns the bytes that they took.
fn open(count: usize) -> usize {
    let net = Net::new();
    let info = net.adapters[0].info().expect("the limits");
    let config = QpConfig {
        receive_depth: info.MaxReceiveQueueDepth,
        initiator_depth: info.MaxInitiatorQueueDepth,
        receive_sge: 4,
        initiator_sge: 4,
        ..QpConfig::default()
    };
    let socket = |_| {
        let adapter = net.open(0);
        let (pd, cq) =
            (adapter.create_pd().expect("a domain"), adapter.create_cq(8192).expect("a CQ"));
        let qp = pd.create_qp(&cq, &cq, config).expect("a queue pair");
        let mr = pd.register(Buffer::new(1), ALL_ACCESS).expect("a key");
        let region = |_| pd.create_frmr(PAGES, true).expect("a fast-register region");
        (qp, mr, (0..REGIONS).map(region).collect::<Vec<_>>())
    };
    let (taken, sockets) = taken(|| (0..count).map(socket).collect::<Vec<_>>());
    drop(sockets);
    taken
}
