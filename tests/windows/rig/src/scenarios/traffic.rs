//! Frames, of TCP/IP and of RoCE.

use driver::abi::*;
use ndis_driver::counter_sets::SETS;

use super::net::{Net, PATIENCE};
use super::*;
use crate::netio::Subject;
use crate::ntos::misc::stop_counter;

/// TCP/IP's own frames pass in both directions; RoCE does not reach TCP/IP.
pub(super) fn pass_through(host: &dyn Host, _: &[String]) {
    let pair = Net::plug(host, 1500);
    let [a, b] = pair.vnics;
    for len in [60, 61, 590, 1514] {
        let mut frame = vec![0_u8; len];
        frame[..6].copy_from_slice(&b.mac());
        frame[6..12].copy_from_slice(&a.mac());
        frame[12..14].copy_from_slice(&[0x88, 0xB5]);
        for (place, byte) in frame[14..].iter_mut().enumerate() {
            *byte = (place * 7 + len) as u8;
        }
        a.send(&frame);
        eventually("a frame of TCP/IP", || b.heard.lock().unwrap().contains(&frame));
    }
    if IS_CONSUMER {
        let pair = pair.open_adapters();
        pair.connect().exchange(50, 1000);
        assert_silent(&pair);
        pair.end(host);
    } else {
        pair.end(host);
    }
}

fn assert_silent(pair: &Net) {
    for vnic in pair.vnics {
        let roce = vnic.heard.lock().unwrap().iter().filter(|frame| is_roce(frame)).count();
        assert_eq!(roce, 0, "RoCE frames reached TCP/IP");
    }
}

fn is_roce(frame: &[u8]) -> bool {
    frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0x12, 0xB7]
}

/// Two adapters connect and exchange 10,000 verified messages of each kind: [COUNT SIZE].
pub(super) fn traffic(host: &dyn Host, arguments: &[String]) {
    let net = Net::start(host, 9000);
    let connection = net.connect();
    if let [count, size] = arguments {
        connection.exchange(count.parse().expect("a count"), size.parse().expect("a size"));
    } else {
        connection.exchange(10_000, 700);
        connection.exchange(200, 60_000);
    }
    let mut statistics = [0_u8; 248];
    let answer = oid::ask(net.vnics[0], oid::QUERY, oid::NDK_STATISTICS, &mut statistics, true);
    assert_eq!((answer.status, answer.done), (0, 248));
    let mut endpoints = [0_u8; 4096];
    let answer = oid::ask(net.vnics[0], oid::QUERY, oid::NDK_CONNECTIONS, &mut endpoints, false);
    assert_eq!(answer.status, 0);
    say!("connections: {}", u32::from_le_bytes(endpoints[8..12].try_into().unwrap()));
    drop(connection);
    net.end(host);
}

/// What SMB Direct does: the client registers the pages of a buffer anew for each request and tells
/// the server their token; the server fills them and answers by a SEND that invalidates the token.
pub(super) fn traffic_smb(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let sides = [net.side_inline(0), net.side_inline(1)];
    let connection = net.connect_sides(sides, address(0), address(1)).expect("a connection");
    let client = &net.adapters.as_ref().expect("open")[0];
    connection.serve_requests(client, 500, 60_000);
    drop(connection);
    net.end(host);
}

/// The same on a wire that loses one frame of 50.
pub(super) fn lossy(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    switch::lose(50);
    connection.exchange(300, 5000);
    switch::lose(0);
    drop(connection);
    net.end(host);
}

/// The same over IPv6, whose neighbours are found by multicast.
pub(super) fn traffic_v6(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 9000);
    let connection = net.try_connect(address6(0), address6(1)).expect("a connection over IPv6");
    connection.exchange(1000, 3000);
    connection.exchange(50, 60_000);
    drop(connection);
    net.end(host);
}

/// Each change of routes and interfaces has the paths looked at, though no look is due. TCP/IP comes to
/// believe that the peer is elsewhere: the connection follows, is not heard there, has the network asked
/// again, and goes on. Then its address is taken away, and it ends at once.
pub(super) fn paths(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(20, 1000);
    for subject in [Subject::Routes, Subject::Interfaces] {
        stop_counter(|| {
            let before = netio::looks();
            netio::announce_change(subject);
            eventually("a look at the paths", || netio::looks() > before);
        });
    }
    // Nobody is there.
    netio::believe(address(1), [2, 0xDE, 0xAD, 0, 0, 1]);
    netio::announce_change(Subject::Routes);
    connection.exchange_during(1000, || {
        eventually("TCP/IP to be asked again", || netio::believed(address(1)).is_none());
    });

    let vnic = net.vnics[0];
    vnic.addresses.lock().unwrap().retain(|known| *known != address(0));
    netio::announce(vnic);
    let ended = connection.connectors[0].wait_disconnected(PATIENCE);
    assert!(ended, "the connection outlives its address");
    drop(connection);
    net.end(host);
}

/// A peer behind a router is reached where `*NetworkDirectGlobalFlags` allows it, and only there.
pub(super) fn subnets(host: &dyn Host, _: &[String]) {
    let far = IpAddr::from([10, 9, 0, 1]);
    for (flags, allowed) in [("1", true), ("0", false)] {
        let net = Net::plug_with(host, 1500, &[("*NetworkDirectGlobalFlags", flags)]);
        net.vnics[1].addresses.lock().unwrap().push(far);
        netio::announce(net.vnics[1]);
        let net = net.open_adapters();
        // The new address arrives by a worker.
        let adapter = &net.adapters.as_ref().expect("open")[1];
        eventually("the new address", || adapter.listen((far, 0).into()).is_ok());
        match net.try_connect(address(0), far) {
            Ok(connection) => {
                assert!(allowed, "connected to a remote subnet, which is forbidden");
                connection.exchange(20, 1000);
            }
            Err(error) => {
                assert!(!allowed, "{error}");
                assert_eq!(error.status, STATUS_HOST_UNREACHABLE);
            }
        }
        // What is on the link is always allowed.
        drop(net.connect());
        net.end(host);
    }
}

/// `OID_NDK_STATISTICS` tells what became of connections and completion queues.
pub(super) fn counters(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(10, 1000);
    expect_counters(&net, 0, "connected", [1, 0, 0, 0, 1, 0]);
    expect_counters(&net, 1, "connected", [0, 1, 0, 0, 1, 0]);
    connection.connectors[0].disconnect().wait().expect("a disconnect");
    expect_counters(&net, 0, "disconnected", [1, 0, 0, 0, 0, 0]);
    expect_counters(&net, 1, "disconnected by the peer", [0, 1, 0, 0, 0, 0]);
    drop(connection);

    // Nobody listens.
    let side = net.side(0);
    let adapter = &net.adapters.as_ref().expect("open")[0];
    let active = adapter.create_connector().expect("a connector");
    let (from, to) = ((address(0), 0).into(), (address(1), 9).into());
    let refused = active.connect(&side.qp, from, to, super::net::LIMITS, b"").wait();
    assert_eq!(refused.expect_err("nobody listens").status, STATUS_CONNECTION_REFUSED);
    expect_counters(&net, 0, "refused", [1, 0, 1, 0, 0, 0]);
    drop((active, side));

    // A WRITE by a key that the peer does not know breaks the connection.
    let connection = net.connect();
    let [here, _] = &connection.sides;
    let mut remote = connection.sides[1].mr.remote(0);
    remote.token ^= 0x100;
    here.qp.write(9, &[here.mr.sge(0..8)], remote, 0).expect("a write");
    assert!(connection.connectors[0].wait_disconnected(PATIENCE), "no disconnect event");
    expect_counters(&net, 0, "broken", [2, 0, 1, 1, 0, 0]);
    drop(connection);

    // Two completions do not fit into a CQ of one.
    let mut sides = [net.side(0), net.side(1)];
    sides[0] = net.side_with(0, 1);
    let connection = net.connect_sides(sides, address(0), address(1)).expect("a connection");
    let [here, there] = &connection.sides;
    for _ in 0..3 {
        let to = there.mr.remote(0);
        // Once the CQ is dead, so is its QP.
        let _ = here.qp.write(3, &[here.mr.sge(0..8)], to, 0);
    }
    assert!(connection.connectors[0].wait_disconnected(PATIENCE), "no disconnect event");
    expect_counters(&net, 0, "overrun", [3, 0, 1, 2, 0, 1]);
    drop(connection);
    say!("counters verified");
    net.end(host);
}

/// The performance counter sets: what one adapter sent the other has received, per adapter and per
/// connection, and the frames are those that `OID_NDK_STATISTICS` tells.
pub(super) fn performance(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let wanted: Vec<_> =
        SETS.iter().map(|set| (set.name.to_owned(), set.members().count())).collect();
    assert_eq!(pcw::registered(), wanted);
    let [adapters, drops, connections] = SETS.map(|set| set.name);
    assert_eq!(pcw::collect(connections), []);
    let connection = net.connect();
    connection.exchange(20, 1000);
    // The last acknowledgements may be on their way.
    let balanced = |name| {
        let both = pcw::collect(name);
        let [here, there] = both.as_slice() else { return None };
        let [[sent, received], [other_sent, other_received]] =
            [here, there].map(|instance| [traffic_of(instance, 0), traffic_of(instance, 2)]);
        (sent == other_received && received == other_sent).then_some((sent, received))
    };
    for name in [adapters, connections] {
        eventually(name, || balanced(name).is_some());
    }
    let Some((sent, received)) = balanced(connections) else { panic!("they were balanced") };
    assert!(sent[0] > 20 && sent[1] > 20_000 && received[0] > 0, "{sent:?} {received:?}");
    let mut room = [0_u8; 248];
    oid::ask(net.vnics[0], oid::QUERY, oid::NDK_STATISTICS, &mut room, true);
    // RDMAOutFrames.
    let frames = u64::from_le_bytes(room[8 + 8 * 29..][..8].try_into().unwrap());
    let (all, _) = balanced(adapters).expect("still");
    assert_eq!(frames, all[0], "the frames that NDIS is told of");
    for (instance, index) in pcw::collect(adapters).iter().zip([0, 1]) {
        assert_eq!(instance.name, format!("ifIndex {}", instance.id), "adapter {index}");
    }
    let quiet = pcw::collect(drops);
    assert_eq!(quiet.len(), 2);
    connection.connectors[0].disconnect().wait().expect("a disconnect");
    eventually("the end of both connections", || pcw::collect(connections).is_empty());
    drop(connection);
    say!("performance counters verified");
    net.end(host);
}

/// Packets and bytes, which follow each other.
fn traffic_of(instance: &pcw::Instance, at: usize) -> [u64; 2] {
    [instance.values[at], instance.values[at + 1]]
}

/// Connect, Accept, ConnectFailure, ConnectionError, ActiveConnection, CQError: the last is number 25.
fn expect_counters(net: &Net, number: usize, when: &str, wanted: [u64; 6]) {
    let read = || {
        let mut room = [0_u8; 248];
        let answer = oid::ask(net.vnics[number], oid::QUERY, oid::NDK_STATISTICS, &mut room, true);
        assert_eq!((answer.status, answer.done), (0, 248));
        [0, 1, 2, 3, 4, 25].map(|counter| {
            let place = 8 + 8 * counter;
            u64::from_le_bytes(room[place..place + 8].try_into().unwrap())
        })
    };
    if !eventually("the counters", || read() == wanted) {
        breach!("counters of adapter {number}, {when}: {:?}, not {wanted:?}", read());
    }
}
