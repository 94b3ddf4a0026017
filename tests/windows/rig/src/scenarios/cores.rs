//! Adapters of several poll cores.

use std::collections::BTreeSet;
use std::thread::scope;

use driver::abi::NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED;
use ndis_driver::counter_sets::SETS;

use super::net::{Connection, Net, PATIENCE, PORT};
use super::threads::expect_seats;
use super::*;

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

fn connect(net: &Net, number: u16) -> Connection {
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
