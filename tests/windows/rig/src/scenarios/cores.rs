//! Adapters of several poll cores.

use std::collections::BTreeSet;
use std::thread::{scope, sleep};
use std::time::Duration;

use driver::abi::NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED;
use ndis_driver::counter_sets::SETS;

use super::net::{Connection, Net, PATIENCE, PORT};
use super::threads::{REALTIME, expect_seats};
use super::*;
use crate::ntos::dpc;

/// More than the stand-in has processors: the adapter has one on each.
const KEYWORDS: [(&str, &str); 1] = [("PollCores", "3")];
const CORES: u32 = 2;

/// Connections on all cores of two adapters exchange verified messages side by side: [COUNT SIZE]. One ends under them, and
/// its place is taken; in the end all do.
pub(super) fn cores(host: &dyn Host, arguments: &[String]) {
    let net = Net::plug_with(host, 1500, &KEYWORDS).open_adapters();
    let adapter = &net.adapters.as_ref().expect("open")[0];
    let flags = adapter.info().expect("an answer").AdapterFlags;
    assert_ne!(flags & NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED, 0);
    let (count, size) = match arguments {
        [count, size] => (count.parse().expect("a count"), size.parse().expect("a size")),
        _ => (1000, 5000),
    };
    let mut connections: Vec<_> = (0..4).map(|number| connect(&net, number)).collect();
    assert_eq!(cores_of_connections(), BTreeSet::from_iter(0..CORES));
    exchange(&connections, count, size);
    let ended = connections.remove(1);
    scope(|scope| {
        scope.spawn(|| exchange(&connections, count, size));
        ended.connectors[0].disconnect().wait().expect("a disconnect");
        assert!(ended.connectors[1].wait_disconnected(PATIENCE), "the peer hears nothing");
        drop(ended);
    });
    connections.push(connect(&net, 4));
    exchange(&connections, count, size);
    drop(connections);
    net.end(host);
}

/// A connection of the two adapters to a listener of its own.
pub(super) fn connect(net: &Net, number: u16) -> Connection {
    let sides = [net.side(0), net.side(1)];
    net.connect_by(sides, address(0), (address(1), PORT + number).into()).expect("a connection")
}

fn exchange(connections: &[Connection], count: usize, size: usize) {
    scope(|scope| {
        for connection in connections {
            scope.spawn(move || connection.exchange(count, size));
        }
    });
}

/// The cores that have connections, of either adapter.
fn cores_of_connections() -> BTreeSet<u32> {
    let [.., connections] = SETS.map(|set| set.name);
    // A connection's number is its QPN, whose highest bit names one of two cores.
    pcw::collect(connections).iter().map(|instance| instance.id >> 23).collect()
}

/// The cores of an adapter move to the processors that are nearest to its NIC when that is bound, and exchange data there. Where
/// NDIS tells no processors they stay.
pub(super) fn cores_near(host: &dyn Host, _: &[String]) {
    dpc::set_processors(4);
    let net = Net::plug_with(host, 1500, &[("PollCores", "2")]);
    expect_seats(&[0, 1, 2, 3].map(|processor| (processor, REALTIME)));
    // The other adapter has the processors 0 and 3.
    let near = [Some(vec![(2, 9)]), None, Some(vec![(0, 4), (3, 1), (2, 1)]), Some(Vec::new())];
    let seats = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 3, 3], [0, 2, 3, 3]];
    for (near, seats) in near.into_iter().zip(seats) {
        net.nics[0].unbind();
        expect_link(net.vnics[0], false);
        *net.nics[0].processors.lock().unwrap() = near;
        net.nics[0].bind();
        expect_ready(net.vnics[0], net.nics[0]);
        expect_seats(&seats.map(|processor| (processor, REALTIME)));
    }
    let net = net.open_adapters();
    // Of the two cores of each adapter, which sit on 2 and 3, and on 3 and 0.
    for (core, processors) in [[1 << 2, 1 << 3], [1 << 3, 1 << 0]].into_iter().enumerate() {
        let sides = [0, 1].map(|number| net.side_near(number, processors[number]));
        let connection = net.connect_sides(sides, address(0), address(1)).expect("a connection");
        assert_eq!(cores_of_connections(), BTreeSet::from([core as u32]));
        drop(connection);
    }
    // Of cores that are all among the processors any is as good as another.
    let sides = [0, 1].map(|number| net.side_near(number, 0b1111));
    let connection = net.connect_sides(sides, address(0), address(1)).expect("a connection");
    connection.exchange(10, 5000);
    drop(connection);
    let connections: Vec<_> = (0..4).map(|number| connect(&net, number)).collect();
    assert_eq!(cores_of_connections(), BTreeSet::from_iter(0..CORES));
    exchange(&connections, 300, 5000);
    // The first DPC of a core that has moved still ran where the core was.
    dpc::take_targets();
    let ran = targets_of_dpcs(&connections);
    assert!(ran.iter().all(|processor| [0, 2, 3].contains(processor)), "{ran:?}");
    drop(connections);
    net.end(host);
}

/// The processors on which DPCs of cores ran. A core whose thread has work runs no DPC, so the consumers let it rest first.
fn targets_of_dpcs(connections: &[Connection]) -> Vec<usize> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        sleep(Duration::from_millis(20));
        exchange(connections, 300, 5000);
        let ran = dpc::take_targets();
        if !ran.is_empty() {
            return ran;
        }
    }
    panic!("no DPC of a core ran");
}

/// Adapters of several cores start and end, also by surprise and without a NIC. Each core has a processor of its own in its
/// adapter; where that leaves none for ordinary threads, they come first.
pub(super) fn cores_start(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nics = [Nic::plug_in(1500), Nic::plug_in(1500)];
    let add = |number: usize| add_with(number, nics[number], &KEYWORDS);
    let first = add(0);
    expect_ready(first, nics[0]);
    expect_seats(&[(0, None), (1, None)]);
    let second = add(1);
    expect_ready(second, nics[1]);
    expect_seats(&[(0, None), (0, None), (1, None), (1, None)]);
    first.remove_by_surprise();
    expect_seats(&[(0, None), (1, None)]);
    nics[1].unbind();
    expect_link(second, false);
    second.remove();
    expect_seats(&[]);
    add(0).remove();
    finish(host);
}
