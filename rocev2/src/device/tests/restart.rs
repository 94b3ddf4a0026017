//! A peer that is killed and comes back, and hosts that only claim to be it.

use super::*;
use crate::cm::DisconnectReason;

/// Node 0 is killed and comes back as it was: the same GUID, and its first queue pair has the same number.
fn restart(world: &mut World, v6: bool) -> Qpn {
    world.devices[0] = Device::new(config(v6, 0));
    world.wires = Default::default();
    world.events = Default::default();
    let qpn = world.qp(0);
    // The restarted device draws the same numbers again; a further QP has others.
    let elsewhere = world.qp(0);
    let conn = world.connect(v6, elsewhere);
    world.devices[0].release(world.now, conn);
    while world.transmit(0) {}
    world.wires = Default::default();
    qpn
}

fn stale(event: &Event) -> bool {
    matches!(event, Event::Cm(CmEvent::PeerDisconnected { reason: DisconnectReason::Stale, .. }))
}

/// Its first connect succeeds within three seconds, though node 1 still has the old connection, idle or with
/// requests in flight, and learns only now that it is gone.
#[test]
fn a_peer_that_was_killed_is_connected_again_within_three_seconds() {
    for (v6, busy) in [(false, false), (true, false), (false, true)] {
        let (mut world, qps, _) = World::connected(v6);
        let again = restart(&mut world, v6);
        assert_eq!(again, qps[0]);
        let server = world.qp(1);
        if busy {
            let sgl = world.sgl(1, 0, 5000);
            let wr = SendWr {
                id: 9,
                op: SendOp::Write { va: BASE, rkey: world.keys[0] },
                sgl,
                solicited: false,
                read_fence: false,
                silent: false,
            };
            world.devices[1].post_send(qps[1], wr).unwrap();
        }
        let start = world.now;
        let active = world.connect(v6, again);
        world.run_for(Duration::from_millis(2900));
        let [ended, request] = [world.events[1].remove(0), world.events[1].remove(0)];
        assert!(stale(&ended), "{ended:?}");
        let Event::Cm(CmEvent::ConnectRequest { conn, .. }) = request else {
            panic!("{request:?}")
        };
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        world.devices[1].accept(world.now, conn, server, limits, &[]).unwrap();
        world.run();
        let event = world.events[0].pop();
        assert!(
            matches!(event, Some(Event::Cm(CmEvent::Connected { conn, .. })) if conn == active),
            "{event:?}"
        );
        assert!(world.now.saturating_since(start) < Duration::from_secs(3));
    }
}

/// The REQ of one that is said to be node 0, from another port and under another ID.
fn forged(world: &mut World, v6: bool, qpn: Qpn) -> Vec<u8> {
    let mut forger = Device::new(DeviceConfig { seed: [99; 32], ..config(v6, 0) });
    let (local, remote) = (address(v6, 0), address(v6, 1));
    let request = Connect {
        qpn,
        local: SocketAddr::new(local, 777),
        remote: SocketAddr::new(remote, PORT),
        hop: cm::Hop { src_mac: mac(0), dst_mac: mac(1), vlan: None },
        limits: ReadLimits { inbound: 4, outbound: 4 },
        private_data: b"",
    };
    forger.connect(world.now, &request).unwrap();
    let mut buf = vec![0; 2000];
    let unit = forger.poll_transmit(world.now, &mut buf, 1, &mut world.memory[0]).unwrap();
    buf[..unit.len].to_vec()
}

/// One forged REQ a millisecond, for ten seconds: each is refused, eight probes a second leave at most, and
/// the connection works on, whichever side it was asked from.
#[test]
fn forged_requests_do_not_end_a_connection() {
    for v6 in [false, true] {
        let (mut world, qps, _) = World::connected(v6);
        let frame = forged(&mut world, v6, qps[0]);
        for id in 0..10_000 {
            world.devices[1].handle_frame(world.now, &frame, None, &mut world.memory[1]);
            if id % 100 == 0 {
                world.post(qps[0], id, world.write(), 3000);
            }
            world.run_for(Duration::from_micros(500));
            world.now = world.now + Duration::from_millis(1);
        }
        world.run_for(Duration::from_secs(60));
        let told = |events: &Vec<Event>| events.is_empty();
        assert!(world.events.iter().all(told), "{:?}", world.events);
        assert!(world.statuses(0).into_iter().eq((0..100).map(|n| (n * 100, WcStatus::Success))));
        let count = |opcode| world.sent[1].iter().filter(|sent| sent.0 == opcode).count();
        assert_eq!(count(Opcode::UdSendOnly), 10_000, "one refusal for each");
        let probes = count(Opcode::WriteOnly);
        assert!((20..=80).contains(&probes), "{probes}");
    }
}
