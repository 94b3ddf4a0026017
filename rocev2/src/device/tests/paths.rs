//! Connections whose path to the peer changes.

use super::*;
use crate::path::{Path, PathNews, Source};
use crate::wire::Hop;

fn path(v6: bool, from: usize) -> Path {
    Path { local: address(v6, from), remote: address(v6, 1 - from) }
}

/// The way of node `from` to the other one, whose port is now the one with this last byte.
fn hop(from: usize, last: u8, vlan: Option<u16>) -> Hop {
    Hop { src_mac: mac(from), dst_mac: Mac([2, 0, 0, 0, 0, last]), vlan }
}

/// Layer 2 of the frames that are under way to a node.
fn hops(world: &World, to: usize) -> Vec<Hop> {
    let hop = |frame: &Vec<u8>| {
        let encap = Packet::parse(frame).unwrap().encap;
        Hop { src_mac: encap.src_mac, dst_mac: encap.dst_mac, vlan: encap.vlan }
    };
    world.wires[to].iter().map(hop).collect()
}

/// Two connected QPs of devices that take what is for any Ethernet address.
fn connected_anywhere(v6: bool) -> (World, [Qpn; 2], [ConnId; 2]) {
    let link = LinkEnd::default();
    World::of([0, 1].map(|node| DeviceConfig { link, ..config(v6, node) })).join(v6)
}

fn news(world: &mut World, node: usize) -> Vec<(PathNews, Option<Source>)> {
    let event = core::iter::from_fn(|| world.devices[node].poll_path());
    event.map(|event| (event.why, event.source)).collect()
}

/// The peer's first frame is no more than a beginning: what the path's owner says holds for requests,
/// answers and messages of connection management alike, from the next packet on.
#[test]
fn everything_follows_the_path() {
    for v6 in [false, true] {
        let (mut world, [client, _], [active, passive]) = connected_anywhere(v6);
        assert_eq!(world.devices[1].path_hop(path(v6, 1)), Some(hop(1, 1, None)));
        for (last, vlan) in [(7, None), (8, Some(0x6005)), (2, None)] {
            let hops_now = [hop(0, last, vlan), hop(1, last, vlan)];
            for node in [0, 1] {
                world.devices[node].path_update(path(v6, node), hops_now[node]);
            }
            world.post(client, last.into(), world.write(), 8);
            assert!(world.transmit(0));
            assert_eq!(hops(&world, 1), [hops_now[0]]);
            world.deliver(1);
            assert!(world.transmit(1));
            assert_eq!(hops(&world, 0), [hops_now[1]]);
            world.run();
            assert_eq!(world.done[0].last().unwrap().status, WcStatus::Success);
        }
        world.devices[0].path_update(path(v6, 0), hop(0, 9, None));
        world.devices[1].path_update(path(v6, 1), hop(1, 6, None));
        world.devices[0].disconnect(world.now, active).unwrap();
        world.transmit(0);
        assert_eq!(hops(&world, 1), [hop(0, 9, None)], "DREQ");
        world.deliver(1);
        world.transmit(1);
        assert_eq!(hops(&world, 0), [hop(1, 6, None)], "DREP");
        world.devices[1].release(world.now, passive);
    }
}

/// The origin that a frame claims raises a doubt, and moves nothing; that of a dropped frame does neither.
#[test]
fn a_changed_source_is_a_doubt_and_no_more() {
    let (mut world, [client, _], _) = World::connected(false);
    world.post(client, 1, world.write(), 8);
    world.run();
    news(&mut world, 1);
    world.now = world.now + Duration::from_secs(1);
    world.post(client, 2, world.write(), 8);
    world.transmit(0);
    let frame = world.wires[1].pop_front().unwrap();
    let mut packet = Packet::parse(&frame).unwrap();
    packet.encap.src_mac = Mac([2, 0, 0, 0, 0, 9]);
    let good = emit(&packet);
    // A response to no request, from elsewhere than the requests.
    let msn = crate::psn::Msn::new(0);
    packet.bth.opcode = Opcode::Acknowledge;
    packet.ext = Ext::Aeth(crate::wire::Aeth { syndrome: crate::wire::Syndrome::ACK, msn });
    packet.payload = &[];
    world.wires[1].push_back(emit(&packet));
    world.deliver(1);
    assert_eq!(world.drops(1), [(DropReason::FlowMismatch, 1)]);
    assert_eq!(news(&mut world, 1), []);
    world.wires[1].push_back(good);
    world.deliver(1);
    let source = Source { mac: Mac([2, 0, 0, 0, 0, 9]), vlan: None };
    assert_eq!(news(&mut world, 1), [(PathNews::Moved, Some(source))]);
    world.transmit(1);
    assert_eq!(hops(&world, 0), [hop(1, 1, None)]);
}

/// A silent peer is resolved again well before the connection is given up, and the connection works on once
/// it is found elsewhere.
#[test]
fn silence_is_a_doubt_and_the_peer_may_be_elsewhere() {
    let (mut world, [client, _], _) = connected_anywhere(false);
    assert_eq!(news(&mut world, 0).len(), 1);
    world.post(client, 1, world.write(), 8);
    world.transmit(0);
    world.wires[1].clear();
    let began = world.now;
    while news(&mut world, 0).is_empty() {
        assert!(world.done[0].is_empty() && world.events[0].is_empty());
        world.now = world.devices[0].poll_timeout().unwrap();
        world.devices[0].handle_timeout(world.now);
        world.transmit(0);
        world.wires[1].clear();
    }
    assert!(
        world.now.saturating_since(began) < Duration::from_secs(1),
        "{:?}",
        world.now.saturating_since(began)
    );
    world.devices[0].path_update(path(false, 0), hop(0, 5, None));
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
}

/// A peer that has only been heard is followed, too: one that moves before its first packet, and one that
/// moves right after another doubt, and whose messages alone show it.
#[test]
fn a_peer_that_moves_early_or_twice_is_doubted() {
    let moved = |world: &mut World, last: u8| {
        let frame = world.wires[1].pop_front().unwrap();
        let mut packet = Packet::parse(&frame).unwrap();
        packet.encap.src_mac = Mac([2, 0, 0, 0, 0, last]);
        world.wires[1].clear();
        world.wires[1].push_back(emit(&packet));
        world.deliver(1);
        news(world, 1).iter().map(|(_, source)| source.unwrap().mac.0[5]).collect::<Vec<_>>()
    };
    for by_message in [false, true] {
        let (mut world, [client, _], [active, _]) = World::connected(false);
        news(&mut world, 1);
        world.now = world.now + Duration::from_secs(2);
        let say = |world: &mut World| {
            if by_message {
                let _ = world.devices[0].disconnect(world.now, active);
            } else {
                world.post(client, 1, world.write(), 8);
            }
            world.transmit(0);
        };
        say(&mut world);
        assert_eq!(moved(&mut world, 9), [9], "the REQ told where it was");
        if by_message {
            continue;
        }
        say(&mut world);
        assert_eq!(moved(&mut world, 8), [] as [u8; 0], "too soon");
        world.now = world.now + Duration::from_secs(1);
        say(&mut world);
        assert_eq!(moved(&mut world, 8), [8]);
    }
}

/// Nor does a connection begin there: the address may go while the way is asked for.
#[test]
fn no_connect_leaves_from_a_lost_address() {
    let mut world = World::new(false);
    let (qpn, local) = (world.qp(0), address(false, 0));
    let port = world.devices[0].bind_port(local, 0).unwrap();
    world.devices[0].set_addresses(world.now, vec![address(false, 5)]);
    let request = Connect {
        qpn,
        local: SocketAddr::new(local, port),
        remote: SocketAddr::new(address(false, 1), PORT),
        hop: hop(0, 2, None),
        limits: ReadLimits { inbound: 4, outbound: 4 },
        private_data: b"",
    };
    let result = world.devices[0].connect(world.now, &request);
    assert_eq!((result, world.transmit(0)), (Err(cm::CmError::Address), false));
}

/// A connection that its owner has let go takes its leave in the background, but not from an address that is
/// gone, nor once that is back.
#[test]
fn no_farewell_leaves_from_a_lost_address() {
    let (mut world, [client, _], [active, _]) = World::connected(false);
    world.devices[0].release(world.now, active);
    world.devices[0].destroy_qp(client);
    while world.devices[0].poll_event().is_some() {}
    assert_eq!(world.devices[0].paths().count(), 0, "nobody uses it");
    assert!(world.transmit(0), "DREQ");
    world.wires[1].clear();
    let local = address(false, 0);
    world.devices[0].set_addresses(world.now, vec![]);
    world.devices[0].set_addresses(world.now, vec![local]);
    for _ in 0..10 {
        world.now = world.now + Duration::from_secs(1);
        world.devices[0].handle_timeout(world.now);
        assert!(!world.transmit(0));
    }
}

/// So is one that does not answer a REQ, which follows the path as data does.
#[test]
fn an_unanswered_connect_doubts_the_path() {
    let mut world = World::new(false);
    let client = world.qp(0);
    world.listen(false);
    world.connect(false, client);
    world.transmit(0);
    world.wires[1].clear();
    assert_eq!(news(&mut world, 0), [(PathNews::Opened, None)]);
    world.now = world.devices[0].poll_timeout().unwrap();
    world.devices[0].handle_timeout(world.now);
    assert_eq!(news(&mut world, 0), [(PathNews::Silent, None)]);
    world.devices[0].path_update(path(false, 0), hop(0, 5, None));
    world.transmit(0);
    assert_eq!(hops(&world, 1), [hop(0, 5, None)]);
}

/// So is one on which an RTU gets lost: the active side waits for nothing, and would never know. (Seed 86582: an answer with
/// the address that the peer had before, forged or late, had ended the first doubt.)
#[test]
fn a_repeated_rep_doubts_the_path() {
    let mut world = World::new(false);
    let qps = [world.qp(0), world.qp(1)];
    world.listen(false);
    let active = world.connect(false, qps[0]);
    world.run();
    let Some(Event::Cm(CmEvent::ConnectRequest { conn, .. })) = world.events[1].pop() else {
        panic!("no request")
    };
    let limits = ReadLimits { inbound: 4, outbound: 4 };
    world.devices[1].accept(world.now, conn, qps[1], limits, &[]).unwrap();
    world.run();
    world.devices[0].confirm(world.now, active).unwrap();
    world.transmit(0);
    world.wires[1].clear();
    news(&mut world, 0);
    world.now = world.devices[1].poll_timeout().unwrap();
    world.devices[1].handle_timeout(world.now);
    world.transmit(1);
    world.deliver(0);
    let reasons: Vec<PathNews> = news(&mut world, 0).into_iter().map(|(why, _)| why).collect();
    assert_eq!(reasons, [PathNews::Silent]);
}

/// All users of a lost path get their events at once, and no others do; nothing is sent.
#[test]
fn a_lost_path_ends_its_connections_at_once() {
    for v6 in [false, true] {
        let (mut world, [client, server], [active, passive]) = World::connected(v6);
        world.post(client, 1, world.write(), 8);
        world.post(client, 2, world.write(), 8);
        world.devices[0].set_addresses(world.now, vec![address(v6, 0), address(v6, 5)]);
        world.deliver(0);
        assert!(world.events[0].is_empty() && world.done[0].is_empty(), "it is still there");
        world.devices[0].set_addresses(world.now, vec![address(v6, 5)]);
        world.deliver(0);
        assert_eq!(world.statuses(0), [(1, WcStatus::PathLost), (2, WcStatus::Flushed)]);
        assert!(matches!(
            &world.events[0][..],
            [Event::Cm(CmEvent::PathLost { conn }), Event::QpFailed { qpn, conn: Some(_), .. }]
            if *conn == active && *qpn == client
        ));
        assert!(!world.transmit(0));
        // No peer can be reached, and the owner need not wait.
        world.devices[0].disconnect(world.now, active).unwrap();
        world.devices[0].release(world.now, active);
        assert!(!world.transmit(0));
        world.deliver(0);
        world.devices[0].destroy_qp(client);
        assert_eq!(world.devices[0].paths().count(), 0);
        // The other end, with a response in flight.
        world.devices[1].path_lost(world.now, path(v6, 1));
        world.deliver(1);
        let told = world.events[1].iter();
        assert_eq!(told.filter(|event| matches!(event, Event::QpFailed { .. })).count(), 1);
        assert_eq!(world.devices[1].qp_state(server), Some(QpState::Err));
        world.devices[1].release(world.now, passive);
        world.devices[1].destroy_qp(server);
        world.deliver(1);
        assert_eq!(world.devices[1].paths().count(), 0);
    }
}

/// A connection that is not established yet ends as well, on either side.
#[test]
fn a_lost_path_ends_what_is_being_connected() {
    let mut world = World::new(false);
    let client = world.qp(0);
    world.listen(false);
    let active = world.connect(false, client);
    world.run();
    for node in [0, 1] {
        world.events[node].clear();
        world.devices[node].path_lost(world.now, path(false, node));
        world.deliver(node);
        let told = &world.events[node][..];
        assert!(matches!(told, [Event::Cm(CmEvent::PathLost { .. })]), "{told:?}");
        assert!(
            !world.transmit(node)
                && world.devices[node].poll_timeout().is_none_or(|at| at > world.now)
        );
    }
    world.devices[0].release(world.now, active);
    world.deliver(0);
    assert_eq!(world.devices[0].paths().count(), 0);
    assert_eq!(world.devices[0].qp_state(client), Some(QpState::Init), "it may be used again");
}

/// However many connections come and go, the table holds what is in use.
#[test]
fn the_table_is_bounded_by_its_users() {
    let mut world = World::new(false);
    world.listen(false);
    for round in 0..50 {
        let qps = [world.qp(0), world.qp(1)];
        let active = world.connect(false, qps[0]);
        if round % 2 == 0 {
            let passive = world.accept(qps[1], active);
            world.devices[1].release(world.now, passive);
        } else {
            world.run();
            let Some(Event::Cm(CmEvent::ConnectRequest { conn, .. })) = world.events[1].pop()
            else {
                panic!("no request")
            };
            world.devices[1].reject(world.now, conn, &[]).unwrap();
            world.devices[1].release(world.now, conn);
            world.run();
        }
        for device in &mut world.devices {
            assert!(device.paths().count() <= 1);
        }
        world.devices[0].release(world.now, active);
        world.run();
        world.devices[0].destroy_qp(qps[0]);
        world.devices[1].destroy_qp(qps[1]);
        for node in [0, 1] {
            assert_eq!(world.devices[node].paths().count(), 0, "round {round}, node {node}");
            assert_eq!(world.devices[node].poll_path(), None);
        }
        world.now = world.now + Duration::from_secs(30);
        world.devices.iter_mut().for_each(|device| device.handle_timeout(world.now));
        world.events = Default::default();
    }
}
