//! Goal: an object takes the memory that its attributes ask for, and little more. Method: an allocator that
//! counts, and one test in the process; what the hosts hold for many objects, over their number. The completion
//! queue of connections is one for all, and not counted.

use ndk_consumer::{QpConfig, SrqConfig};
use std::thread;
use std::time::Duration;
use tests::alloc::{Counting, bytes};
use tests::figures::record;
use tests::kit::{Net, PORT};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Connections. Tables that double are the smaller a part of the whole the more there are.
const CONNECTIONS: usize = 200;

/// A fast-register region of 512 pages takes that at most, the pool apart that all share.
const FRMR: usize = 5_000;

/// Objects of another kind.
const OBJECTS: usize = 500;

/// Tables that are shared grow with the connections, and are counted. Depth of both queues, elements of a request, and what an end of a connection with them takes at most.
const SHAPES: [(u32, u32, usize); 3] = [(64, 1, 14_300), (512, 4, 123_000), (4096, 4, 930_000)];

/// Elements of a receive, and what a shared receive queue of 16 takes at most.
const SRQS: [(u32, usize); 3] = [(1, 3_610), (4, 4_710), (16, 7_800)];

/// One after the other, as they share the counts.
#[test]
fn an_object_takes_what_was_asked_for_and_little_more() {
    idle_connections();
    shared_receive_queues();
    fast_register_regions();
}

fn idle_connections() {
    for (depth, elements, most) in SHAPES {
        let taken = taken(depth, elements);
        eprintln!("depth {depth}/{depth}, {elements} elements: {taken} bytes");
        record(&format!("memory/qp/{depth}/{elements}"), taken as f64);
        assert!(taken <= most, "{taken} bytes, and {most} are allowed");
    }
}

fn shared_receive_queues() {
    for (elements, most) in SRQS {
        let net = Net::new();
        let pd = net.side(0).pd;
        let config = SrqConfig { depth: 16, receive_sge: elements, threshold: 0 };
        let taken = each(|| pd.create_srq(config).expect("a shared receive queue"));
        eprintln!("shared receive queue of 16, {elements} elements: {taken} bytes");
        record(&format!("memory/srq/16/{elements}"), taken as f64);
        assert!(taken <= most, "{taken} bytes, and {most} are allowed");
    }
}

fn fast_register_regions() {
    let net = Net::new();
    let pd = net.side(0).pd;
    let taken = each(|| pd.create_frmr(512, true).expect("a fast-register region"));
    eprintln!("fast-register region of 512 pages: {taken} bytes");
    record("memory/frmr/512", taken as f64);
    assert!(taken <= FRMR, "{taken} bytes, and {FRMR} are allowed");
}

/// Bytes that an object takes.
fn each<T>(make: impl Fn() -> T) -> usize {
    // The first one takes what is taken once.
    let first = make();
    let before = bytes();
    let objects: Vec<_> = (0..OBJECTS).map(|_| make()).collect();
    thread::sleep(Duration::from_millis(100));
    let taken = bytes().checked_sub(before).expect("objects take memory");
    drop((first, objects));
    taken / OBJECTS
}

/// Bytes that an end of an idle connection takes.
fn taken(depth: u32, elements: u32) -> usize {
    let net = Net::new();
    let sides = [0, 1].map(|host| net.side(host));
    let config = QpConfig {
        receive_depth: depth,
        initiator_depth: depth,
        receive_sge: elements,
        initiator_sge: elements,
        ..QpConfig::default()
    };
    let listener = net.listen();
    let connect = || {
        let qps = sides
            .each_ref()
            .map(|side| side.pd.create_qp(&side.cq, &side.cq, config).expect("a queue pair"));
        let connectors = net.connect_qps_by(&listener, PORT, &qps[0], &qps[1]);
        (qps, connectors)
    };
    // The first one takes what is taken once.
    let first = connect();
    let before = bytes();
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| connect()).collect();
    // The poll cores free what the last connect needed.
    thread::sleep(Duration::from_millis(100));
    let taken = bytes().checked_sub(before).expect("connections take memory");
    drop((first, connections));
    taken / (2 * CONNECTIONS)
}
