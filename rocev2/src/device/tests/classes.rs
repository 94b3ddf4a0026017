//! Traffic classes of services: their bits in all packets of a connection, and in no others.

use super::*;
use crate::class::{TrafficClass, TrafficClasses};

const CLASS: TrafficClass = TrafficClass { priority: 3, dscp: 26 };

fn of_port(port: u16) -> TrafficClasses {
    TrafficClasses { default: None, ports: vec![(port, CLASS)] }
}

/// The tag and the DSCP of each frame under way to a node, without CNPs.
fn classes(world: &World, to: usize) -> Vec<(Option<u16>, u8)> {
    let class = |frame: &Vec<u8>| {
        let encap = Packet::parse(frame).unwrap().encap;
        (encap.vlan, encap.traffic_class >> 2)
    };
    world.wires[to].iter().map(class).collect()
}

/// All frames of both nodes, until none is left, have these classes.
fn all_have(world: &mut World, expected: (Option<u16>, u8)) {
    loop {
        world.deliver(0);
        world.deliver(1);
        let sent = [0, 1].map(|node| world.transmit(node));
        for to in [0, 1] {
            assert!(classes(world, to).iter().all(|class| *class == expected), "to {to}");
        }
        if sent == [false; 2] {
            return;
        }
    }
}

const PLAIN: (Option<u16>, u8) = (None, 0);
const TAGGED: (Option<u16>, u8) = (Some(3 << 13), 26);

/// From the REQ to the DREP, at both ends, each of which has a table of its own. READs are the peer's to answer.
#[test]
fn every_packet_of_a_service_has_its_class() {
    for (port, expected) in [(PORT, TAGGED), (PORT + 1, PLAIN)] {
        let mut world = World::new(false);
        for device in &mut world.devices {
            device.set_traffic_classes(of_port(port));
        }
        let qps = [world.qp(0), world.qp(1)];
        world.listen(false);
        let active = world.connect(false, qps[0]);
        all_have(&mut world, expected);
        let Some(Event::Cm(CmEvent::ConnectRequest { conn: passive, peer, .. })) =
            world.events[1].pop()
        else {
            panic!("no request")
        };
        assert_eq!(peer.traffic_class >> 2, expected.1, "the peer is asked for the DSCP, too");
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        world.devices[1].accept(world.now, passive, qps[1], limits, &[]).unwrap();
        all_have(&mut world, expected);
        world.devices[0].confirm(world.now, active).unwrap();
        all_have(&mut world, expected);
        let read = SendOp::Read { va: BASE + 100_000, rkey: world.keys[1] };
        world.post(qps[0], 1, world.write(), 10_000);
        world.post(qps[0], 2, read, 10_000);
        all_have(&mut world, expected);
        assert_eq!(world.statuses(0), [(1, WcStatus::Success), (2, WcStatus::Success)]);
        world.devices[0].disconnect(world.now, active).unwrap();
        all_have(&mut world, expected);
        world.devices[1].release(world.now, passive);
    }
}

/// An established connection follows its table, at one end alone, too, and goes back where its class goes.
#[test]
fn connections_follow_a_new_table() {
    let (mut world, [client, _], _) = World::connected(false);
    let mut expected = [PLAIN; 2];
    for (node, table, class) in [
        (0, of_port(PORT), TAGGED),
        (1, of_port(PORT), TAGGED),
        (1, TrafficClasses { default: Some(CLASS), ports: vec![] }, TAGGED),
        (0, TrafficClasses::default(), PLAIN),
        (1, of_port(1), PLAIN),
    ] {
        world.devices[node].set_traffic_classes(table);
        expected[node] = class;
        world.post(client, 1, world.write(), 3000);
        assert!(world.transmit(0));
        assert!(classes(&world, 1).iter().all(|class| *class == expected[0]));
        world.deliver(1);
        assert!(world.transmit(1));
        assert!(classes(&world, 0).iter().all(|class| *class == expected[1]));
        world.run();
    }
    assert!(world.statuses(0).iter().all(|status| *status == (1, WcStatus::Success)));
}

/// Connections to one peer may have several classes: its frames then come with several priorities from one place.
#[test]
fn priorities_of_a_peer_raise_no_doubt() {
    let (mut world, [client, _], _) = World::connected(false);
    world.run();
    for node in [0, 1] {
        while world.devices[node].poll_path().is_some() {}
    }
    for table in [of_port(PORT), TrafficClasses::default(), of_port(PORT)] {
        world.devices[0].set_traffic_classes(table);
        world.now = world.now + Duration::from_secs(2);
        world.post(client, 1, world.write(), 8);
        world.run();
        assert_eq!(world.devices[1].poll_path(), None);
    }
    assert_eq!((world.statuses(0).len(), world.drops(1)), (3, vec![]));
}

/// A peer has two classes, and we have none: each answer goes out in the class of what was asked for, over one path.
#[test]
fn each_connection_mirrors_the_priority_of_its_request() {
    let (mut world, qps, _) = World::connected(false);
    world.devices[0].set_traffic_classes(of_port(PORT));
    let others = [world.qp(0), world.qp(1)];
    let active = world.connect(false, others[0]);
    world.accept(others[1], active);
    for (client, expected) in [(qps[0], PLAIN), (others[0], TAGGED)] {
        world.post(client, 1, world.write(), 8);
        world.transmit(0);
        assert_eq!(classes(&world, 1), [TAGGED], "our own table holds for both");
        world.deliver(1);
        world.transmit(1);
        assert_eq!(classes(&world, 0), [expected]);
        world.run();
    }
}
