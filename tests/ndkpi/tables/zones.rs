//! The zones of link-local addresses (RFC 4007, `sin6_scope_id`): what a consumer has named comes back, and two links do
//! not meet.

use super::*;
use ndk_consumer::{Connector, NdkError};
use std::net::SocketAddr;

crate::tests! {
    both_ends_are_in_the_zone_that_was_named
    an_adapter_knows_its_zone
    a_connect_stays_in_its_zone
    a_refusal_tells_the_zone_too
    an_own_listener_has_a_zone_too
}

const LINK: [&str; 2] = ["fe80::1", "fe80::2"];

/// Two hosts, the adapter of the second in this zone.
fn net(zone: u32) -> Net {
    Net::with_config(LINK, |config| {
        if config.addresses == [LINK[1].parse::<std::net::IpAddr>().unwrap()] {
            config.zone = zone;
        }
    })
}

/// A port of a host, in a zone.
fn at(net: &Net, host: usize, port: u16, zone: u32) -> SocketAddr {
    match net.at(host, port) {
        SocketAddr::V6(mut v6) => {
            v6.set_scope_id(zone);
            v6.into()
        }
        v4 @ SocketAddr::V4(_) => v4,
    }
}

/// The zones of our and of the peer's address.
fn zones(connector: &Connector) -> [u32; 2] {
    let zone = |address: Result<SocketAddr, NdkError>| match address.unwrap() {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => panic!("an IPv6 address was connected"),
    };
    [zone(connector.local_address()), zone(connector.peer_address())]
}

/// Connects the first host to the second, where it listens in zone `listen`; the zones that both connectors tell.
fn connected(net: &Net, listen: u32, [from, to]: [u32; 2]) -> [[u32; 2]; 2] {
    let sides = [net.side(0), net.side(1)];
    let listener = net.adapters[1].listen(at(net, 1, PORT, listen)).unwrap();
    let active = net.adapters[0].create_connector().unwrap();
    let (from, to) = (at(net, 0, 0, from), at(net, 1, PORT, to));
    let request = active.connect(&sides[0].qp, from, to, LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&sides[1].qp, LIMITS, b"");
    request.wait().unwrap();
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    [zones(&active), zones(&passive)]
}

/// Each host has a name of its own for the link, so the two may differ.
fn both_ends_are_in_the_zone_that_was_named() {
    for (listen, named, told) in [
        (0, [0, 0], [[0, 0], [0, 0]]),
        (7, [7, 7], [[7, 7], [7, 7]]),
        (7, [3, 0], [[3, 3], [7, 7]]),
        (0, [0, 3], [[3, 3], [0, 0]]),
    ] {
        assert_eq!(connected(&net(0), listen, named), told, "{listen} {named:?}");
    }
}

fn an_adapter_knows_its_zone() {
    let net = net(9);
    assert_eq!(connected(&net, 0, [0, 0]), [[0, 0], [9, 9]]);
    let listener = net.adapters[1].listen(at(&net, 1, PORT + 1, 0)).unwrap();
    assert_eq!(listener.local_address().unwrap(), at(&net, 1, PORT + 1, 9));
    let endpoint = net.adapters[1].share(at(&net, 1, PORT + 2, 0)).unwrap();
    assert_eq!(endpoint.local_address().unwrap(), at(&net, 1, PORT + 2, 9));
    // An address of another link is not this adapter's.
    let foreign = at(&net, 1, PORT + 3, 8);
    let refused = |status: Option<NdkError>| status.map(|error| error.status);
    assert_eq!(refused(net.adapters[1].listen(foreign).err()), Some(STATUS_INVALID_ADDRESS));
    assert_eq!(refused(net.adapters[1].share(foreign).err()), Some(STATUS_INVALID_ADDRESS));
    // One for all addresses has the zone of those that connect to it.
    let any = "[::]:7200".parse().unwrap();
    let listener = net.adapters[1].listen(any).unwrap();
    assert_eq!(listener.local_address().unwrap(), any);
    let side = net.side(0);
    let active = net.adapters[0].create_connector().unwrap();
    let request = active.connect(&side.qp, net.at(0, 0), net.at(1, 7200), LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    assert_eq!(zones(&passive), [9, 9]);
    passive.reject(b"").unwrap();
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
}

fn a_connect_stays_in_its_zone() {
    let net = net(9);
    let _listener = net.listen();
    let connect = |host: usize, from, to| {
        let side = net.side(host);
        let connector = net.adapters[host].create_connector().unwrap();
        let (from, to) = (at(&net, host, 0, from), at(&net, 1 - host, PORT, to));
        let request = connector.connect(&side.qp, from, to, LIMITS, b"");
        let end = status(request.wait());
        // The queue pair is as good as before.
        let dead = net.at(1 - host, 9);
        let again = connector.connect(&side.qp, net.at(host, 0), dead, LIMITS, b"");
        assert_eq!(status(again.wait()), STATUS_CONNECTION_REFUSED);
        end
    };
    assert_eq!(connect(0, 3, 5), STATUS_NETWORK_UNREACHABLE);
    assert_eq!(connect(1, 0, 5), STATUS_NETWORK_UNREACHABLE);
    assert_eq!(connect(1, 9, 5), STATUS_NETWORK_UNREACHABLE);
    assert_eq!(connect(1, 5, 5), STATUS_INVALID_ADDRESS);
    let endpoint = net.adapters[0].share(at(&net, 0, 4000, 3)).unwrap();
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let to = at(&net, 1, PORT, 5);
    let request = connector.connect_shared(&side.qp, &endpoint, to, LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_NETWORK_UNREACHABLE);
}

fn a_refusal_tells_the_zone_too() {
    let net = net(0);
    let side = net.side(0);
    let connector = net.adapters[0].create_connector().unwrap();
    let (from, to) = (at(&net, 0, 0, 3), at(&net, 1, PORT, 0));
    let request = connector.connect(&side.qp, from, to, LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    assert_eq!(zones(&connector), [3, 3]);
}

/// A connect to an own address does not leave the host, where a link has one name.
fn an_own_listener_has_a_zone_too() {
    let net = net(0);
    let connect = |zone| {
        let side = net.side(1);
        let connector = net.adapters[1].create_connector().unwrap();
        let (from, to) = (at(&net, 1, 0, zone), at(&net, 1, PORT, zone));
        let request = connector.connect(&side.qp, from, to, LIMITS, b"");
        (side, connector, request)
    };
    let listener = net.adapters[1].listen(at(&net, 1, PORT, 7)).unwrap();
    let (_side, _connector, request) = connect(3);
    assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    for zone in [7, 0] {
        let (_side, _connector, request) = connect(zone);
        let passive = listener.next(PATIENCE).unwrap();
        assert_eq!(zones(&passive), [7, 7]);
        passive.reject(b"").unwrap();
        assert_eq!(status(request.wait()), STATUS_CONNECTION_REFUSED);
    }
}
