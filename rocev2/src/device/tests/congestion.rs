//! Marks, CNPs and pacing between two devices.

use super::*;

const LINE: u64 = 1_250_000_000;
const MIN: u64 = 1_250_000;
/// The rate after the first loss.
const AFTER_LOSS: u64 = LINE / 8 * 3;

/// As a switch marks it.
fn marked(frame: &[u8]) -> Vec<u8> {
    let mut packet = Packet::parse(frame).unwrap();
    assert_eq!(packet.encap.traffic_class & 3, 2, "only what is capable is marked");
    packet.encap.traffic_class |= 3;
    emit(&packet)
}

/// Marks everything on the way to a node, and delivers it.
fn deliver_marked(world: &mut World, to: usize) {
    for frame in &mut world.wires[to] {
        *frame = marked(frame);
    }
    world.deliver(to);
}

fn off() -> [DeviceConfig; 2] {
    [0, 1].map(|node| DeviceConfig { dcqcn: None, ..config(false, node) })
}

/// Gives a node a notification for its queue pair `to`, whose peer is `from`.
fn notify(world: &mut World, node: usize, from: Qpn, to: Qpn) {
    let encap = world.devices[1 - node].slot(from).unwrap().1.qp.peer().unwrap().encap;
    let bth = Bth::new(Opcode::Cnp, to, Psn::default());
    world.wires[node].push_back(emit(&Packet { encap, bth, ext: Ext::Cnp, payload: &[] }));
    world.deliver(node);
}

/// Notifies the client until it has nothing left but the least rate.
fn slow_down(world: &mut World, [client, server]: [Qpn; 2]) {
    for _ in 0..20 {
        notify(world, 0, server, client);
        world.now = world.now + Duration::from_micros(50);
    }
    assert_eq!(world.devices[0].qp_rate(client, world.now), Some(MIN));
}

/// Goes on until something is done.
fn finish(world: &mut World) {
    complete(world);
    // Not by the timer that knows nothing.
    assert!(world.now < Instant::from_nanos(1_000_000));
}

fn complete(world: &mut World) {
    world.run();
    while world.done[0].is_empty() {
        world.now = world.devices.iter_mut().filter_map(Device::poll_timeout).min().unwrap();
        world.devices.iter_mut().for_each(|device| device.handle_timeout(world.now));
        world.run();
    }
}

fn cnps(world: &World, node: usize) -> usize {
    world.sent[node].iter().filter(|(opcode, _)| *opcode == Opcode::Cnp).count()
}

#[test]
fn marked_packets_bring_one_cnp_in_50_us() {
    for v6 in [false, true] {
        let (mut world, [client, _], _) = World::connected(v6);
        let start = world.now;
        for (ns, expected) in [(0, 1), (49_999, 1), (50_000, 2), (99_999, 2), (1_000_000, 3)] {
            world.now = start + Duration::from_nanos(ns);
            world.post(client, ns, world.write(), 10_000);
            world.transmit(0);
            deliver_marked(&mut world, 1);
            world.transmit(1);
            assert_eq!(cnps(&world, 1), expected, "{ns}");
            world.run_for(Duration::from_micros(20));
        }
        assert_eq!(world.devices[1].counters().get(Counter::NpCnpSent), 3);
        assert_eq!(world.devices[0].counters().get(Counter::RpCnpHandled), 3);
        assert_eq!(world.statuses(0).len(), 5);
    }
}

/// The bytes that hardware sends: no event, no migration state, BECN, no PSN.
#[test]
fn a_notification_is_that_of_hardware() {
    let (mut world, [client, _], _) = World::connected(false);
    world.post(client, 1, world.write(), 100);
    world.transmit(0);
    deliver_marked(&mut world, 1);
    world.transmit(1);
    let frame = &world.wires[0][0];
    assert_eq!((frame.len(), frame[15]), (14 + 60, 0xc2));
    let [_, q0, q1, q2] = client.get().to_be_bytes();
    assert_eq!(frame[42..54], [0x81, 0, 0xff, 0xff, 0x40, q0, q1, q2, 0, 0, 0, 0]);
    assert_eq!(frame[54..70], [0; 16]);
    world.deliver(0);
    assert_eq!(world.devices[0].qp_rate(client, world.now), Some(LINE / 2));
}

#[test]
fn the_path_chooses_the_dscp_and_we_the_ecn_bits() {
    for (dcqcn, expected) in [(Some(DcqcnConfig::default()), 0x6a), (None, 0x68)] {
        let mut configs = [config(false, 0), config(false, 1)];
        for config in &mut configs {
            config.dcqcn = dcqcn;
            config.cm.traffic_class = 0x6b;
        }
        let (mut world, [client, _], _) = World::of(configs).join(false);
        world.post(client, 1, world.write(), 3000);
        world.transmit(0);
        assert!(world.wires[1].iter().all(|frame| frame[15] == expected));
    }
}

#[test]
fn a_notified_queue_pair_keeps_its_pace_and_others_go_on() {
    let (mut world, qps, _) = World::connected(false);
    let others = [world.qp(0), world.qp(1)];
    let active = world.connect(false, others[0]);
    world.accept(others[1], active);
    slow_down(&mut world, qps);
    world.sent = Default::default();
    world.post(qps[0], 1, world.write(), 49_000);
    world.post(others[0], 2, world.write(), 49_000);
    world.run();
    assert_eq!(world.statuses(0), [(2, WcStatus::Success)]);
    // Of the first only one packet, and then when the next one leaves.
    assert_eq!(world.sent[0].len(), 48 + 1);
    let wait = world.devices[0].poll_timeout().unwrap().saturating_since(world.now);
    assert!((700..900).contains(&wait.as_micros()), "{wait:?}");
    let start = world.now;
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.statuses(0), [(2, WcStatus::Success), (1, WcStatus::Success)]);
    assert!(world.now.saturating_since(start) > Duration::from_millis(2));
    assert_eq!(world.sent[0].len(), 2 * 48, "and nothing twice");
}

/// Goal: a new rate of the link holds for old queue pairs and for new ones.
#[test]
fn the_link_may_change_its_rate() {
    let (mut world, [client, server], _) = World::connected(false);
    world.devices[0].set_line_rate(LINE / 10);
    notify(&mut world, 0, server, client);
    assert_eq!(world.devices[0].qp_rate(client, world.now), Some(LINE / 20));
    let others = [world.qp(0), world.qp(1)];
    let active = world.connect(false, others[0]);
    world.accept(others[1], active);
    notify(&mut world, 0, others[1], others[0]);
    assert_eq!(world.devices[0].qp_rate(others[0], world.now), Some(LINE / 20));
    let (mut world, [client, server], _) = World::of(off()).join(false);
    world.devices[0].set_line_rate(LINE / 10);
    notify(&mut world, 0, server, client);
    assert_eq!(world.devices[0].qp_rate(client, world.now), None);
}

#[test]
fn acknowledgements_do_not_wait_for_a_pace() {
    let (mut world, [client, server], _) = World::connected(false);
    slow_down(&mut world, [client, server]);
    world.post(client, 1, world.write(), 49_000);
    world.run();
    let (sgl, op) = (world.sgl(1, 0, 5000), SendOp::Write { va: BASE, rkey: world.keys[0] });
    let wr = SendWr { id: 2, op, sgl, solicited: false, read_fence: false, silent: false };
    world.devices[1].post_send(server, wr).unwrap();
    world.run();
    assert_eq!((world.statuses(0).len(), world.statuses(1)), (0, vec![(2, WcStatus::Success)]));
}

#[test]
fn marked_read_responses_slow_the_responder() {
    let (mut world, [client, server], _) = World::connected(false);
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    world.post(client, 1, read, 20_000);
    world.transmit(0);
    world.deliver(1);
    world.transmit(1);
    deliver_marked(&mut world, 0);
    world.run();
    assert_eq!((cnps(&world, 0), cnps(&world, 1)), (1, 0));
    assert_eq!(world.devices[1].qp_rate(server, world.now), Some(LINE / 2));
    assert_eq!(world.devices[0].qp_rate(client, world.now), None);
    // At that rate the next response takes its time.
    slow_down(&mut world, [client, server]);
    for _ in 0..20 {
        notify(&mut world, 1, client, server);
        world.now = world.now + Duration::from_micros(50);
    }
    world.post(client, 2, read, 20_000);
    world.run();
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
    world.devices[1].settle();
    assert!(world.devices[1].lists.ready.is_empty(), "nobody looks at it before its time");
    let start = world.now;
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.statuses(0), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert!(world.now.saturating_since(start) > Duration::from_millis(1));
}

#[test]
fn loss_slows_down_where_nothing_is_marked() {
    for kind in [SendOp::Write { va: BASE, rkey: Rkey::new(0) }, SendOp::Send] {
        for (dcqcn, expected) in
            [(off()[0].dcqcn, None), (config(false, 0).dcqcn, Some(AFTER_LOSS))]
        {
            let mut configs = [0, 1].map(|node| DeviceConfig { dcqcn, ..config(false, node) });
            configs[1].window.reorder_bytes = 0;
            let (mut world, [client, server], _) = World::of(configs).join(false);
            let sgl = world.sgl(1, 200_000, 20_000);
            world.devices[1].post_recv(server, RecvWr { id: 7, sgl }).unwrap();
            let op = if kind == SendOp::Send { kind } else { world.write() };
            world.post(client, 1, op, 10_000);
            world.transmit(0);
            world.wires[1].remove(3);
            finish(&mut world);
            assert_eq!(world.devices[0].qp_rate(client, world.now), expected);
        }
    }
}

/// Towards a peer that keeps what is behind a gap, a loss without delay is chance.
#[test]
fn a_loss_without_delay_slows_nobody_towards_one_of_ours() {
    let (mut world, [client, _], _) = World::connected(false);
    for timed_out in [false, false, true] {
        world.post(client, 1, world.write(), 10_000);
        world.transmit(0);
        world.wires[1].remove(3);
        if timed_out {
            // The packet is lost again, and the timer sends it once more.
            world.deliver(1);
            world.now = world.devices[1].poll_timeout().unwrap();
            world.devices[1].handle_timeout(world.now);
            world.transmit(1);
            world.deliver(0);
            world.transmit(0);
            assert_eq!(world.wires[1].drain(..).count(), 1);
        }
        complete(&mut world);
        world.done[0].clear();
        assert_eq!(world.devices[0].qp_rate(client, world.now), None);
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.devices[0].qp_rate(client, world.now), None);
    }
}

/// READs, of whose response a part is lost.
fn lose_responses(world: &mut World, client: Qpn, lost: core::ops::Range<usize>) {
    world.post(client, 1, SendOp::Read { va: BASE, rkey: world.keys[1] }, 20_000);
    world.transmit(0);
    world.deliver(1);
    world.transmit(1);
    world.wires[0].drain(lost);
}

/// Each loss slows down towards a peer of another make. One of ours reports those of several responses in a row.
#[test]
fn read_responses_requested_again_slow_the_responder() {
    for (reorder_bytes, lost, slows) in [
        (0, 3..4, true),
        (512 << 10, 3..4, false),
        (512 << 10, 3..6, false),
        (512 << 10, 3..7, true),
    ] {
        let mut configs = [config(false, 0), config(false, 1)];
        configs[0].window.reorder_bytes = reorder_bytes;
        let (mut world, [client, server], _) = World::of(configs).join(false);
        lose_responses(&mut world, client, lost);
        finish(&mut world);
        assert_eq!(world.devices[1].qp_rate(server, world.now).is_some(), slows);
    }
}

/// One lost READ response is chance, however late those come that are requested again: they may have waited for the
/// processor of either end.
#[test]
fn a_late_read_response_is_no_congestion() {
    let (mut world, [client, server], _) = World::connected(false);
    for _ in 0..3 {
        lose_responses(&mut world, client, 3..4);
        world.run();
        while !world.transmit(0) {
            world.now = world.now.max(world.devices[0].poll_timeout().unwrap());
            world.devices[0].handle_timeout(world.now);
        }
        world.deliver(1);
        assert_eq!(world.devices[1].qp_rate(server, world.now), None);
        world.transmit(1);
        world.now = world.now + Duration::from_millis(1);
        world.run();
        assert_eq!(world.done[0].drain(..).count(), 1);
    }
}

#[test]
fn a_cnp_from_elsewhere_or_without_congestion_control_is_dropped() {
    for (configs, last, reason) in [
        (off(), 1, DropReason::Congestion),
        ([config(false, 0), config(false, 1)], 9, DropReason::AddressMismatch),
    ] {
        let (mut world, qps, _) = World::of(configs).join(false);
        let mut encap = world.devices[0].slot(qps[0]).unwrap().1.qp.peer().unwrap().encap;
        encap.src = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let bth = Bth::new(Opcode::Cnp, qps[1], Psn::default());
        world.wires[1].push_back(emit(&Packet { encap, bth, ext: Ext::Cnp, payload: &[] }));
        world.run();
        assert_eq!(world.devices[1].qp_rate(qps[1], world.now), None);
        assert_eq!((world.drops(1), world.sent[1].len()), (vec![(reason, 1)], 0));
    }
}

/// A marked packet of a path is taken as it came, though we are not ECN-capable.
#[test]
fn without_control_a_mark_is_not_answered() {
    let (mut world, [client, _], _) = World::of(off()).join(false);
    world.post(client, 1, world.write(), 100);
    world.transmit(0);
    for frame in &mut world.wires[1] {
        let mut packet = Packet::parse(frame).unwrap();
        packet.encap.traffic_class |= 3;
        *frame = emit(&packet);
    }
    world.run();
    assert_eq!((cnps(&world, 1), world.statuses(0)), (0, vec![(1, WcStatus::Success)]));
}

/// A packet without payload causes no congestion.
#[test]
fn a_mark_on_an_acknowledgement_brings_no_cnp() {
    let (mut world, [client, _], _) = World::connected(false);
    world.post(client, 1, world.write(), 64);
    world.transmit(0);
    world.deliver(1);
    world.transmit(1);
    for frame in &mut world.wires[0] {
        let mut packet = Packet::parse(frame).unwrap();
        packet.encap.traffic_class |= 3;
        *frame = emit(&packet);
    }
    world.deliver(0);
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
    world.transmit(0);
    assert_eq!(cnps(&world, 0), 0);
}

/// Anybody who knows the queue pair can send a notification: it names no PSN.
#[test]
fn a_notification_stands_for_no_lost_rtu() {
    let mut world = World::new(false);
    let qps = [world.qp(0), world.qp(1)];
    world.listen(false);
    world.join_without_rtu(qps);
    notify(&mut world, 1, qps[0], qps[1]);
    assert!(world.devices[1].slot(qps[1]).unwrap().1.awaits_rtu);
    world.post(qps[0], 1, world.write(), 8);
    world.run();
    assert!(matches!(world.events[1][..], [Event::Cm(CmEvent::Established { .. })]));
}
