//! The consumer's calls of connection management, and their effect on its queue pair.

use super::*;
use crate::cm::CmError;
use crate::qp::PostError;
use crate::wire::dissect;
use crate::wire::mad::{CmMessage, RejReason};

const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

/// The connection that node 1 was asked for.
fn asked(world: &mut World) -> ConnId {
    world.run();
    match world.events[1].pop() {
        Some(Event::Cm(CmEvent::ConnectRequest { conn, .. })) => conn,
        other => panic!("no request: {other:?}"),
    }
}

/// Why node 0 was refused.
fn refused(world: &mut World, conn: ConnId) -> (RejReason, usize) {
    world.run();
    match world.events[0].pop() {
        Some(Event::Cm(CmEvent::Refused { conn: of, reason, private_data })) if of == conn => {
            (reason, private_data.len())
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// A paused listener, or one that ended, refuses like none (IBTA ch. 12, Rejection Reasons).
#[test]
fn a_listener_that_pauses_or_ends_refuses_as_if_there_was_none() {
    for v6 in [false, true] {
        let mut world = World::new(v6);
        let local = SocketAddr::new(address(v6, 1), PORT);
        world.devices[1].bind_port(local.ip(), PORT).unwrap();
        let listener = world.devices[1].listen(local, 4).unwrap();
        assert_eq!(world.devices[1].listen(local, 4), Err(CmError::AddressInUse));
        let client = world.qp(0);

        world.devices[1].pause(listener, true);
        let conn = world.connect(v6, client);
        // RejReason::CONSUMER would say that someone listens.
        assert_eq!(refused(&mut world, conn).0, RejReason::INVALID_SERVICE_ID);
        assert!(world.events[1].is_empty());

        world.devices[1].pause(listener, false);
        let conn = world.connect(v6, client);
        // A request that the consumer has seen stays its own when the listener ends.
        let passive = asked(&mut world);
        world.devices[1].unlisten(listener);
        world.devices[1].reject(world.now, passive, b"no").unwrap();
        let (reason, len) = refused(&mut world, conn);
        assert!(reason == RejReason::CONSUMER && len >= 2);

        let conn = world.connect(v6, client);
        assert_eq!(refused(&mut world, conn).0, RejReason::INVALID_SERVICE_ID);
    }
}

/// REQ tells the peer how often to resend (IBTA ch. 12, Retry Count).
#[test]
fn a_request_announces_the_retry_count_of_the_device() {
    let mut world =
        World::of([DeviceConfig { retry_count: 3, ..config(false, 0) }, config(false, 1)]);
    let client = world.qp(0);
    world.connect(false, client);
    world.transmit(0);
    let shown = dissect(&world.wires[1][0]);
    match shown.mad() {
        Some(Ok((_, CmMessage::Req(req)))) => assert_eq!(req.retry_count, 3),
        other => panic!("no request: {other:?}"),
    }
}

/// The end with the larger MTU may be the active one: both then send packets that the other takes.
#[test]
fn ends_of_different_mtus_connect_from_either() {
    for mtus in [[4200, 1500], [1500, 4200], [9000, 600]] {
        let configs = [0, 1].map(|node| DeviceConfig { mtu: mtus[node], ..config(false, node) });
        let (mut world, [client, server], conns) = World::of(configs).join(false);
        let pmtu = Pmtu::for_mtu(mtus[0].min(mtus[1])).unwrap();
        for (device, conn) in world.devices.iter().zip(conns) {
            assert_eq!(device.front.cm.peer(conn).unwrap().pmtu, pmtu, "{mtus:?}");
        }
        world.post(client, 1, world.write(), 10_000);
        let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
        world.post(client, 2, read, 10_000);
        world.run();
        let ok = WcStatus::Success;
        assert_eq!(world.statuses(0), [(1, ok), (2, ok)], "{mtus:?}: {server:?}");
        assert_eq!(world.drops(0), []);
        assert_eq!(world.drops(1), []);
    }
}

/// The rights of a queue pair follow from its connection and its state.
#[test]
fn a_queue_pair_without_a_connection_takes_no_request_until_it_is_flushed() {
    let (mut world, [client, server], _) = World::connected(false);
    assert_eq!(world.devices[1].outbound_reads(server), 4);
    let (alone, sgl) = (world.qp(0), world.sgl(0, 0, 8));
    assert_eq!(world.devices[0].outbound_reads(alone), 0);
    assert_eq!(world.devices[0].outbound_reads(client), 4);
    let op = world.write();
    let wr = SendWr { id: 9, op, sgl, solicited: false, read_fence: false, silent: false };
    assert_eq!(world.devices[0].post_send(alone, wr.clone()), Err(PostError::NotConnected));
    world.devices[0].flush_qp(alone);
    world.devices[0].post_send(alone, wr).unwrap();
    world.deliver(0);
    assert_eq!(world.statuses(0), [(9, WcStatus::Flushed)]);
}

/// An event for a connection that its owner has let go finds nobody.
#[test]
fn a_connection_has_its_owners_name_until_it_is_closed() {
    let (mut world, _, conns) = World::connected(false);
    for (device, conn) in world.devices.iter_mut().zip(conns) {
        assert_eq!(device.conn_owner(conn), None);
        device.set_conn_owner(conn, 7);
        assert_eq!(device.conn_owner(conn), Some(7));
        device.release(world.now, conn);
        while device.poll_event().is_some() {}
        device.set_conn_owner(conn, 8);
        assert_eq!(device.conn_owner(conn), None);
    }
}

/// A bound port is free again when its last user has gone.
#[test]
fn a_port_lives_as_long_as_its_last_user() {
    let mut device = Device::new(config(false, 0));
    let local = address(false, 0);
    assert_eq!(device.bind_port(local, PORT), Ok(PORT));
    device.retain_port(local, PORT);
    device.unbind_port(local, PORT);
    assert_eq!(device.bind_port(local, PORT), Err(CmError::AddressInUse));
    device.unbind_port(local, PORT);
    assert_eq!(device.bind_port(local, PORT), Ok(PORT));
    let any = device.bind_port(local, 0).unwrap();
    assert!(any != 0 && any != PORT);
}

/// The terms of a reply may be refused too; then neither queue pair is connected, and the peer's is
/// told why (IBTA ch. 12, REJ).
#[test]
fn a_reply_can_be_refused() {
    let mut world = World::new(false);
    let qps = [world.qp(0), world.qp(1)];
    world.listen(false);
    let active = world.connect(false, qps[0]);
    let passive = asked(&mut world);
    world.devices[1].accept(world.now, passive, qps[1], LIMITS, b"terms").unwrap();
    world.run();
    assert!(matches!(world.events[0].pop(), Some(Event::Cm(CmEvent::Connected { .. }))));
    let too_long = [0; 149];
    assert_eq!(world.devices[0].reject(world.now, active, &too_long), Err(CmError::PrivateData));
    world.devices[0].reject(world.now, active, b"no").unwrap();
    world.run();
    let event = world.events[1].pop();
    assert!(
        matches!(&event, Some(Event::Cm(CmEvent::Refused { conn, reason, .. }))
            if *conn == passive && *reason == RejReason::CONSUMER),
        "{event:?}"
    );
    assert_eq!(world.devices[0].confirm(world.now, active), Err(CmError::State));
}

/// Both sides have waited for the other's response, a time that seeds the first timeout: three times as
/// long, before a round trip is measured.
#[test]
fn the_handshake_times_the_first_packet() {
    for node in [0, 1] {
        let (mut world, qps, _) = World::connected(false);
        world.now = world.now + Duration::from_millis(1);
        let sgl = world.sgl(node, 0, 8);
        let op = SendOp::Send;
        let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: false };
        world.devices[node].post_send(qps[node], wr).unwrap();
        assert!(world.transmit(node));
        let due = world.now + Duration::from_millis(3);
        assert_eq!(world.devices[node].poll_timeout(), Some(due), "{node}");
    }
}

/// Both sides learn that a connection ends: one asked for it, the other was left (IBTA ch. 12, DREQ).
#[test]
fn a_disconnect_ends_the_connection_at_both_sides() {
    for v6 in [false, true] {
        let (mut world, _, [active, passive]) = World::connected(v6);
        world.devices[0].disconnect(world.now, active).unwrap();
        assert_eq!(world.devices[0].disconnect(world.now, active), Err(CmError::State));
        world.run();
        let left = world.events[1].remove(0);
        assert!(
            matches!(left, Event::Cm(CmEvent::PeerDisconnected { conn, .. }) if conn == passive)
        );
        world.devices[1].disconnect(world.now, passive).ok();
        world.run_for(Duration::from_secs(60));
        let done = |event: &Event| {
            let Event::Cm(event) = event else { return false };
            *event == CmEvent::DisconnectDone { conn: active, timed_out: false }
        };
        assert_eq!(world.events[0].iter().filter(|event| done(event)).count(), 1);
        for (node, conn) in [(0, active), (1, passive)] {
            world.devices[node].release(world.now, conn);
        }
        world.run_for(Duration::from_secs(60));
        assert!(world.devices.iter_mut().all(|device| device.poll_timeout().is_none()));
    }
}
