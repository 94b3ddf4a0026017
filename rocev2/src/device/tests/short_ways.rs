//! Goal: the short ways change nothing but the cost. Method: the same work, with the same losses, on devices that
//! take them and on devices that do not.

use super::*;
use crate::counters::Snapshot;
use crate::psn::Msn;
use crate::wire::{
    Aeth, Encap, Frames, Hop, Inbound, Place, Reth, RnrTimer, Syndrome, Template, Unit,
};
use proptest::prelude::*;
use std::string::String;

fn world(v6: bool, paced: bool, short_ways: bool) -> World {
    let dcqcn = paced.then(DcqcnConfig::default);
    World::of([0, 1].map(|node| DeviceConfig { dcqcn, short_ways, ..config(v6, node) }))
}

/// A flow is known after a packet each way.
fn acquainted() -> (World, [Qpn; 2]) {
    let (mut world, qps, _) = world(false, true, true).join(false);
    world.max_packets = 1;
    world.post(qps[0], 0, world.write(), 64);
    world.run();
    assert_eq!(world.statuses(0), [(0, WcStatus::Success)]);
    (world, qps)
}

/// Some buffers, and the frames in the first of them.
struct Buffers {
    count: usize,
    buf: Vec<u8>,
    kept: Vec<Vec<u8>>,
}

impl Frames for Buffers {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        if self.kept.len() < self.count { Some(&mut self.buf) } else { None }
    }

    fn keep(&mut self, unit: &Unit) {
        self.kept.push(self.buf[..unit.len].to_vec());
    }
}

/// The opcodes of the next run of `node`: the general way leaves after one packet.
fn next_run(world: &mut World, node: usize) -> Vec<Opcode> {
    next_run_of(world, node, 16)
}

/// The same, with so many buffers.
fn next_run_of(world: &mut World, node: usize, count: usize) -> Vec<Opcode> {
    let (device, memory) = (&mut world.devices[node], &mut world.memory[node]);
    let mut frames = Buffers { count, buf: vec![0; 2000], kept: Vec::new() };
    let any = device.poll_transmit_run(world.now, &mut frames, 1, memory);
    assert_eq!(any, !frames.kept.is_empty());
    let opcodes = frames.kept.iter().map(|frame| Packet::parse(frame).unwrap().bth.opcode);
    let opcodes = opcodes.collect();
    world.wires[1 - node].extend(frames.kept);
    opcodes
}

/// Sends one packet.
fn send_one(world: &mut World, node: usize) {
    let (device, memory) = (&mut world.devices[node], &mut world.memory[node]);
    let mut buf = vec![0; 2000];
    let unit = device.poll_transmit(world.now, &mut buf, 1, memory).unwrap();
    world.wires[1 - node].push_back(buf[..unit.len].to_vec());
}

/// Whether a QP of `node` takes a frame by the short way.
fn takes(world: &mut World, node: usize, qpn: Qpn, frame: &[u8]) -> bool {
    let (device, memory, now) = (&mut world.devices[node], &mut world.memory[node], world.now);
    let slot = device.slot_index(qpn);
    let Engine { qps, mrs, reorder_pool, completions: out, .. } = &mut **device;
    let QpSlot { qp, flow, .. } = find(qps, slot, qpn).unwrap();
    let mut none = core::iter::empty();
    let mut run = Inbound::new(flow.as_mut().unwrap(), (frame, false), &mut none);
    qp.handle_run(now, &mut run, None, &mut Shared { mrs, memory, reorder_pool, out });
    run.taken() == (1, frame.len())
}

/// Whether a QP of `node` takes a frame as one that mostly comes alone.
fn takes_single(world: &mut World, node: usize, qpn: Qpn, frame: &[u8]) -> bool {
    let (device, memory, now) = (&mut world.devices[node], &mut world.memory[node], world.now);
    let slot = device.slot_index(qpn);
    let Engine { qps, mrs, reorder_pool, completions: out, .. } = &mut **device;
    let QpSlot { qp, flow, .. } = find(qps, slot, qpn).unwrap();
    let packet = flow.as_mut().unwrap().look(frame).unwrap();
    let taken = qp.take_single(now, &packet, &mut Shared { mrs, memory, reorder_pool, out });
    device.touch(slot);
    taken
}

/// Whether a QP of `node` writes its next packet as one that leaves alone, into one of so many buffers.
fn leaves_single(world: &mut World, node: usize, qpn: Qpn, count: usize) -> bool {
    let (device, memory, now) = (&mut world.devices[node], &mut world.memory[node], world.now);
    device.settle();
    let slot = device.slot_index(qpn);
    let Engine { qps, mrs, reorder_pool, completions: out, paths, .. } = &mut **device;
    let QpSlot { qp, path, .. } = find(qps, slot, qpn).unwrap();
    let mut template = Template::new(&qp.encap(paths.hop(path.unwrap())).unwrap());
    let mut frames = Buffers { count, buf: vec![0; 2000], kept: Vec::new() };
    let shared = &mut Shared { mrs, memory, reorder_pool, out };
    let left = qp.fill_single(now, (&mut frames, &mut template, 0), shared);
    assert_eq!(frames.kept.len(), usize::from(left));
    if left {
        device.touch(slot);
        world.wires[1 - node].extend(frames.kept);
    }
    left
}

#[test]
fn a_packet_that_is_alone_leaves_so() {
    let (mut world, [client, server]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    assert!(!leaves_single(&mut world, 0, client, 1), "nothing is to be sent");
    for (id, op) in [(1, world.write()), (2, SendOp::Send), (3, read)] {
        let recv = RecvWr { id, sgl: world.sgl(1, 0, 64) };
        world.devices[1].post_recv(server, recv).unwrap();
        world.post(client, id, op, 64);
        assert!(!leaves_single(&mut world, 0, client, 0), "there is no buffer");
        assert!(leaves_single(&mut world, 0, client, 1), "{op:?}");
        assert!(!leaves_single(&mut world, 0, client, 1), "it has left");
        world.deliver(1);
        assert!(!leaves_single(&mut world, 1, server, 0), "there is no buffer");
        assert_eq!(leaves_single(&mut world, 1, server, 1), !op.is_read(), "an ACK, or not");
        world.run();
    }
    assert_eq!(world.statuses(0), [0, 1, 2, 3].map(|id| (id, WcStatus::Success)));
}

#[test]
fn what_is_not_alone_does_not_leave_so() {
    let (mut world, [client, _]) = acquainted();
    for bursts in [&[64, 64][..], &[1025], &[0]] {
        bursts.iter().for_each(|len| world.post(client, 1, world.write(), *len));
        assert!(!leaves_single(&mut world, 0, client, 1), "{bursts:?}");
        world.run();
    }
    assert_eq!(world.done[0].len(), 5);
}

#[test]
fn a_packet_that_is_alone_is_taken_so() {
    let (mut world, [client, server]) = acquainted();
    for (id, op) in [(1, world.write()), (2, SendOp::Send)] {
        let recv = RecvWr { id, sgl: world.sgl(1, 0, 64) };
        world.devices[1].post_recv(server, recv).unwrap();
        world.post(client, id, op, 64);
        world.transmit(0);
        let request = world.wires[1].pop_front().unwrap();
        assert!(takes_single(&mut world, 1, server, &request), "{op:?}");
        assert!(!takes_single(&mut world, 1, server, &request), "it is not executed twice");
        world.transmit(1);
        let ack = world.wires[0].pop_front().unwrap();
        assert!(takes_single(&mut world, 0, client, &ack));
        assert!(!takes_single(&mut world, 0, client, &ack), "it is not taken twice");
        world.run();
    }
    assert_eq!(world.statuses(0), [0, 1, 2].map(|id| (id, WcStatus::Success)));
    assert_eq!(world.statuses(1), [(1, WcStatus::Success)]);
}

/// A READ, an ACK with a packet behind it, and one behind a READ.
#[test]
fn what_is_not_alone_is_not_taken_so() {
    let (mut world, [client, server]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    world.post(client, 1, read, 64);
    world.transmit(0);
    let request = world.wires[1][0].clone();
    assert!(!takes_single(&mut world, 1, server, &request));
    world.run();
    world.post(client, 2, world.write(), 64);
    world.transmit(0);
    world.deliver(1);
    world.transmit(1);
    let ack = world.wires[0][0].clone();
    for op in [world.write(), read] {
        world.post(client, 3, op, 64);
        world.transmit(0);
        assert!(!takes_single(&mut world, 0, client, &ack), "{op:?} is behind it");
    }
    world.run();
    assert_eq!(world.statuses(0), [0, 1, 2, 3, 3].map(|id| (id, WcStatus::Success)));
}

#[test]
fn new_requests_of_one_packet_leave_by_the_short_way() {
    let (mut world, [client, _]) = acquainted();
    assert_eq!(next_run(&mut world, 0), [], "nothing is to be sent");
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    for (op, opcode) in [(world.write(), Opcode::WriteOnly), (read, Opcode::ReadRequest)] {
        for id in 1..=3 {
            world.post(client, id, op, 64);
        }
        assert_eq!(next_run(&mut world, 0), [opcode; 3]);
        world.run();
    }
    assert_eq!(world.done[0].len(), 7);
}

#[test]
fn responses_of_one_packet_leave_by_the_short_way() {
    let (mut world, [client, _]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    for id in 1..=3 {
        world.post(client, id, read, 64);
    }
    world.transmit(0);
    world.deliver(1);
    assert_eq!(next_run(&mut world, 1), [Opcode::read_response(Place::Only); 3]);
    world.run();
    assert_eq!(world.done[0].len(), 4);
}

#[test]
fn long_responses_go_the_short_way() {
    let (mut world, [client, server]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    world.post(client, 1, read, 5000);
    world.transmit(0);
    let request = world.wires[1].pop_front().unwrap();
    assert!(takes(&mut world, 1, server, &request));
    let slot = world.devices[1].slot_index(server);
    world.devices[1].touch(slot);
    let places = next_run(&mut world, 1).into_iter().map(Opcode::place);
    assert!(places.eq([Place::First, Place::Middle, Place::Middle, Place::Middle, Place::Last]));
    let frames: Vec<Vec<u8>> = world.wires[0].drain(..).collect();
    assert!(!takes(&mut world, 0, client, &frames[1]), "the first is missing");
    for frame in &frames {
        assert!(takes(&mut world, 0, client, frame));
    }
    let slot = world.devices[0].slot_index(client);
    world.devices[0].touch(slot);
    world.deliver(0);
    assert_eq!(world.statuses(0), [0, 1].map(|id| (id, WcStatus::Success)));
    assert_eq!(world.memory[0].0[0][..5000], world.memory[1].0[0][..5000]);
}

/// A run ends where its buffers do, and with the turn where another waits for its own; what is left of it goes on
/// with the next.
#[test]
fn a_run_has_bounds() {
    let (mut world, [client, _]) = acquainted();
    for id in 1..=10 {
        world.post(client, id, world.write(), 64);
    }
    assert_eq!([(); 3].map(|()| next_run_of(&mut world, 0, 8).len()), [8, 2, 0]);
    world.run();
    let post_all = |world: &mut World| {
        (1..=16).for_each(|id| world.post(client, id, world.write(), 1024));
    };
    post_all(&mut world);
    assert_eq!([(); 2].map(|()| next_run(&mut world, 0).len()), [16, 0]);
    world.run();
    let other = [world.qp(0), world.qp(1)];
    let active = world.connect(false, other[0]);
    world.accept(other[1], active);
    post_all(&mut world);
    world.post(other[0], 17, SendOp::Read { va: BASE, rkey: world.keys[1] }, 64);
    // 16 KiB are a turn, and all go to one host.
    let (turn, other) = (vec![Opcode::WriteOnly; 15], vec![Opcode::ReadRequest]);
    assert_eq!(next_run(&mut world, 0), [turn, other].concat());
    assert_eq!(next_run(&mut world, 0), [Opcode::WriteOnly]);
    world.run();
    assert_eq!(world.done[0].len(), 44);
    let counters = world.devices.each_ref().map(|device| device.counters().snapshot());
    assert_eq!(counters[1][Counter::RcvdPkts], counters[0][Counter::SentPkts]);
    assert_eq!(counters[1][Counter::RcvdBytes], counters[0][Counter::SentBytes]);
}

/// Queue pairs share a run where their packets go to one destination.
#[test]
fn a_run_has_one_destination() {
    let both = |node| [false, true].map(|v6| address(v6, node)).to_vec();
    let configs = [0, 1].map(|node| DeviceConfig { addresses: both(node), ..config(false, node) });
    let (mut world, [first, _], _) = World::of(configs).join(false);
    world.max_packets = 1;
    world.listen(true);
    let others = [false, true].map(|v6| {
        let [client, server] = [world.qp(0), world.qp(1)];
        let active = world.connect(v6, client);
        world.accept(server, active);
        client
    });
    for qpn in [first, others[0], others[1]] {
        world.post(qpn, 0, world.write(), 64);
    }
    assert_eq!([(); 3].map(|()| next_run(&mut world, 0).len()), [2, 1, 0]);
}

#[test]
fn after_a_loss_the_short_way_is_taken_again() {
    let (mut world, [client, _]) = acquainted();
    world.post(client, 1, world.write(), 64);
    world.transmit(0);
    world.wires[1].clear();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.statuses(0), [(0, WcStatus::Success), (1, WcStatus::Success)]);
    // The next packet finds that the pace has ended.
    world.post(client, 2, world.write(), 64);
    world.run();
    for id in 3..=5 {
        world.post(client, id, world.write(), 64);
    }
    assert_eq!(next_run(&mut world, 0), [Opcode::WriteOnly; 3]);
}

/// The timer of a request that has ended since is still in the queue.
#[test]
fn a_timer_that_nothing_waits_for_changes_nothing() {
    let (mut world, _) = acquainted();
    let before = world.devices[0].counters().snapshot();
    let due = world.devices[0].poll_timeout().unwrap();
    world.now = due;
    world.devices[0].handle_timeout(due);
    assert!(!world.transmit(0) && world.devices[0].counters().snapshot() == before);
    assert!(world.devices[0].poll_timeout().is_none_or(|next| next > due));
}

#[test]
fn all_else_leaves_by_the_general_way() {
    let (mut world, [client, _]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    for (op, len) in [(read, 5000), (world.write(), 0)] {
        world.post(client, 1, world.write(), 8);
        world.post(client, 2, op, len);
        let single = [Opcode::WriteOnly];
        assert_eq!(next_run(&mut world, 0), single, "without {op:?} of {len} bytes");
        assert_eq!(next_run(&mut world, 0).len(), 1, "{op:?} of {len} bytes");
        assert_eq!(next_run(&mut world, 0).len(), 0);
        world.run_for(Duration::from_millis(100));
    }
    assert!(world.done[0].iter().all(|done| done.status == WcStatus::Success));
    assert_eq!(world.done[0].len(), 5);
}

#[test]
fn messages_of_several_packets_go_the_short_way() {
    let (mut world, [client, server]) = acquainted();
    let recv = RecvWr { id: 9, sgl: world.sgl(1, 0, 6000) };
    world.devices[1].post_recv(server, recv).unwrap();
    for (id, op) in [(1, world.write()), (2, SendOp::Send)] {
        world.post(client, id, op, 5000);
        let opcodes = next_run(&mut world, 0);
        let places = opcodes.iter().map(|opcode| opcode.place());
        assert!(places.eq([
            Place::First,
            Place::Middle,
            Place::Middle,
            Place::Middle,
            Place::Last
        ]));
        let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
        assert!(!takes(&mut world, 1, server, &frames[1]), "the first is missing");
        for frame in &frames {
            assert!(takes(&mut world, 1, server, frame));
        }
        let slot = world.devices[1].slot_index(server);
        world.devices[1].touch(slot);
        assert_eq!(next_run(&mut world, 1), [Opcode::Acknowledge]);
        let ack = world.wires[0].pop_front().unwrap();
        assert!(takes(&mut world, 0, client, &ack));
        assert!(!takes(&mut world, 0, client, &ack), "it is not taken twice");
        let slot = world.devices[0].slot_index(client);
        world.devices[0].touch(slot);
        world.deliver(0);
    }
    world.deliver(1);
    assert_eq!(world.statuses(0), [0, 1, 2].map(|id| (id, WcStatus::Success)));
    assert_eq!(world.statuses(1), [(9, WcStatus::Success)]);
}

/// A packet before the last of its message is full.
#[test]
fn a_short_packet_in_the_middle_goes_the_general_way() {
    let (mut world, [client, server]) = acquainted();
    world.post(client, 1, world.write(), 5000);
    assert_eq!(next_run(&mut world, 0).len(), 5);
    let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
    assert!(takes(&mut world, 1, server, &frames[0]));
    let packet = Packet::parse(&frames[1]).unwrap();
    let short = emit(&Packet { payload: &packet.payload[4..], ..packet });
    assert!(!takes(&mut world, 1, server, &short));
    assert!(takes(&mut world, 1, server, &frames[1]));
}

/// The packet that uses up the window requests an ACK, wherever in its message it is.
#[test]
fn the_end_of_the_window_requests_an_ack() {
    let window = Window { bytes: 8 << 10, ..Window::default() };
    let configs = [0, 1].map(|node| DeviceConfig { window, dcqcn: None, ..config(false, node) });
    let (mut world, [client, _], _) = World::of(configs).join(false);
    world.max_packets = 1;
    world.post(client, 0, world.write(), 64);
    world.run();
    world.post(client, 1, world.write(), 64);
    world.post(client, 2, world.write(), 20 << 10);
    assert_eq!(next_run(&mut world, 0).len(), 8);
    let requests = |frame: &Vec<u8>| Packet::parse(frame).unwrap().bth.ack_req;
    let requests: Vec<bool> = world.wires[1].iter().map(requests).collect();
    assert_eq!(requests.first().zip(requests.last()), Some((&true, &true)), "{requests:?}");
    world.run();
    assert_eq!(world.done[0].len(), 3);
}

/// Equally long packets of a run are one unit where the edge carries several.
#[test]
fn a_run_fills_its_units() {
    let (mut world, [client, _]) = acquainted();
    (1..=3).for_each(|id| world.post(client, id, world.write(), 64));
    let mut frames = Buffers { count: 16, buf: vec![0; 2000], kept: Vec::new() };
    let (device, memory) = (&mut world.devices[0], &mut world.memory[0]);
    assert!(device.poll_transmit_run(world.now, &mut frames, 8, memory));
    assert_eq!(frames.kept.len(), 1);
}

/// Equally long frames that follow each other, as units, as a NIC's receive offload makes them; the last of a unit may
/// be shorter.
fn coalesce(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<usize>)> {
    let mut units: Vec<(Vec<u8>, Option<usize>)> = Vec::new();
    let mut last: Option<(Encap, usize, usize)> = None;
    for frame in frames {
        let Ok(Packet { encap, .. }) = Packet::parse(frame) else { continue };
        let header_len = encap.header_len();
        let len = frame.len() - header_len;
        let follows = last.is_some_and(|(before, first, newest)| {
            let id = if encap.src.is_ipv4() { before.ip_id.wrapping_add(1) } else { 0 };
            encap == Encap { ip_id: id, ..before } && first == newest && len <= first
        });
        if let Some((unit, _)) = units.last_mut().filter(|_| follows) {
            unit.extend_from_slice(&frame[header_len..]);
        } else {
            units.push((frame.clone(), Some(len)));
        }
        last = Some((encap, if follows { last.unwrap().1 } else { len }, len));
    }
    units
}

/// The packets of a unit that a QP of `node` takes by the short way.
fn taken_of_unit(world: &mut World, node: usize, unit: &(Vec<u8>, Option<usize>)) -> usize {
    let (device, memory, now) = (&mut world.devices[node], &mut world.memory[node], world.now);
    let mut segments = parse_unit(&unit.0, unit.1);
    let mut run = segments.run().unwrap();
    let (slot, qpn) = (device.slot_index(run.qpn()), run.qpn());
    let Engine { qps, mrs, reorder_pool, completions: out, .. } = &mut **device;
    let QpSlot { qp, .. } = find(qps, slot, qpn).unwrap();
    qp.handle_run(now, &mut run, None, &mut Shared { mrs, memory, reorder_pool, out });
    run.taken().0
}

#[test]
fn a_unit_goes_the_short_way() {
    let (mut world, [client, _]) = acquainted();
    world.post(client, 1, world.write(), 5000);
    world.transmit(0);
    let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
    let [middle] = &coalesce(&frames[1..4])[..] else { panic!("one unit") };
    assert_eq!(taken_of_unit(&mut world, 1, middle), 0, "the first is missing");
    world.post(client, 2, world.write(), 64);
    world.post(client, 3, world.write(), 64);
    world.devices[1].handle_frame(world.now, &frames[0], None, &mut world.memory[1]);
    assert_eq!(taken_of_unit(&mut world, 1, middle), 3);
    world.devices[1].handle_frame(world.now, &frames[4], None, &mut world.memory[1]);
    world.run();
    assert_eq!(world.statuses(0), [0, 1, 2, 3].map(|id| (id, WcStatus::Success)));
    assert_eq!(world.memory[1].0[0][100_000..105_000], world.memory[0].0[0][..5000]);
}

/// The packets around a bad one, which is dropped, are taken.
#[test]
fn a_bad_packet_of_a_unit_is_dropped_alone() {
    let (mut world, [client, _]) = acquainted();
    (1..=4).for_each(|id| world.post(client, id, world.write(), 64));
    world.transmit(0);
    let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
    let (mut unit, segment_len) = coalesce(&frames).remove(0);
    unit[frames[0].len() + 60] ^= 1;
    let before = world.devices[1].counters().snapshot();
    world.devices[1].handle_frame(world.now, &unit, segment_len, &mut world.memory[1]);
    let moved = world.devices[1].counters().snapshot() - before;
    assert_eq!(moved[Counter::RcvdPkts], 3);
    assert_eq!(moved[Counter::dropped(DropReason::Icrc)], 1);
    assert_eq!(moved[Counter::OutOfOrderHeld], 2);
    world.run_for(Duration::from_millis(5));
    assert_eq!(world.done[0].len(), 5);
}

/// A segment for another queue pair, or of another partition, ends a run, even if it were the next packet.
#[test]
fn a_unit_is_for_whom_its_packets_are() {
    let (mut world, [client, _]) = acquainted();
    let other = [world.qp(0), world.qp(1)];
    let active = world.connect(false, other[0]);
    world.accept(other[1], active);
    let mut taken_with = |change: &dyn Fn(&mut Bth)| {
        (1..=2).for_each(|id| world.post(client, id, world.write(), 64));
        world.transmit(0);
        let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
        let mut second = Packet::parse(&frames[1]).unwrap();
        change(&mut second.bth);
        let unit = coalesce(&[frames[0].clone(), emit(&second)]).remove(0);
        let taken = taken_of_unit(&mut world, 1, &unit);
        world.run_for(Duration::from_millis(50));
        taken
    };
    assert_eq!(taken_with(&|_| ()), 2);
    assert_eq!(taken_with(&|bth| bth.dest_qpn = other[1]), 1);
    assert_eq!(taken_with(&|bth| bth.pkey = 0x8001), 1);
}

/// Of a forged host, of another network, and with marks of congestion.
#[test]
fn the_headers_of_a_unit_count_for_each_of_its_packets() {
    let (mut world, [client, _]) = acquainted();
    (1..=2).for_each(|id| world.post(client, id, world.write(), 64));
    world.transmit(0);
    let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
    let mut moved_by = |change: &dyn Fn(Encap) -> Encap| {
        let changed = frames.iter().map(|frame| {
            let packet = Packet::parse(frame).unwrap();
            emit(&Packet { encap: change(packet.encap), ..packet })
        });
        let (unit, segment_len) = coalesce(&changed.collect::<Vec<_>>()).remove(0);
        let before = world.devices[1].counters().snapshot();
        world.devices[1].handle_frame(world.now, &unit, segment_len, &mut world.memory[1]);
        world.devices[1].counters().snapshot() - before
    };
    let mismatch = Counter::dropped(DropReason::AddressMismatch);
    let forged = |encap| Encap { src: address(false, 7), ..encap };
    assert_eq!(moved_by(&forged)[mismatch], 2);
    let foreign = |encap| Encap { dst: address(false, 7), ..encap };
    assert_eq!(moved_by(&foreign)[mismatch], 2);
    let marked = |encap: Encap| Encap { traffic_class: encap.traffic_class | 3, ..encap };
    assert_eq!(moved_by(&marked)[Counter::NpEcnMarkedRocePackets], 2);
}

#[test]
fn each_packet_of_a_run_that_came_is_counted() {
    let (mut world, [client, _]) = acquainted();
    (1..=3).for_each(|id| world.post(client, id, world.write(), 64));
    assert_eq!(next_run(&mut world, 0).len(), 3);
    let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
    let (device, memory) = (&mut world.devices[1], &mut world.memory[1]);
    let before = device.counters().snapshot();
    device.handle_frames(world.now, frames.iter().map(|frame| (&frame[..], None)), memory);
    let moved = device.counters().snapshot() - before;
    assert_eq!(moved[Counter::RcvdPkts], 3);
    assert_eq!(moved[Counter::RcvdBytes], frames.iter().map(Vec::len).sum::<usize>() as u64);
}

/// A queue pair whose completions were taken has none, and is not looked at for them again.
#[test]
fn a_completion_is_taken_once() {
    let (mut world, [client, server]) = acquainted();
    let recv = RecvWr { id: 9, sgl: world.sgl(1, 0, 64) };
    world.devices[1].post_recv(server, recv).unwrap();
    world.post(client, 1, SendOp::Send, 64);
    assert_eq!(next_run(&mut world, 0), [Opcode::SendOnly]);
    world.deliver(1);
    assert_eq!(world.statuses(1), [(9, WcStatus::Success)]);
    let slot = world.devices[1].slot_index(server);
    world.devices[1].touch(slot);
    world.devices[1].settle();
    assert!(world.devices[1].lists.finished.is_empty());
}

/// A NAK, an ACK behind a READ, and one of what was sent again.
#[test]
fn all_other_answers_go_the_general_way() {
    let (mut world, [client, _]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    world.post(client, 1, read, 64);
    world.post(client, 2, world.write(), 64);
    world.transmit(0);
    world.deliver(1);
    world.transmit(1);
    let frames: Vec<Vec<u8>> = world.wires[0].drain(..).collect();
    let opcodes: Vec<Opcode> =
        frames.iter().map(|frame| Packet::parse(frame).unwrap().bth.opcode).collect();
    assert_eq!(opcodes, [Opcode::ReadResponseOnly, Opcode::Acknowledge]);
    assert!(!takes(&mut world, 0, client, &frames[1]), "a response to the READ is missing");
    world.wires[0].extend(frames);
    world.run();
    assert_eq!(world.statuses(0), [0, 1, 2].map(|id| (id, WcStatus::Success)));
}

#[test]
fn the_expected_request_is_taken_by_the_short_way_and_no_other() {
    let (mut world, [client, server]) = acquainted();
    for id in 1..=3 {
        world.post(client, id, world.write(), 64);
    }
    world.transmit(0);
    let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
    assert!(!takes(&mut world, 1, server, &frames[1]), "it is not its turn");
    assert!(takes(&mut world, 1, server, &frames[0]));
    assert!(!takes(&mut world, 1, server, &frames[0]), "it is not executed twice");
    let counters = world.devices[1].counters().snapshot();
    world.wires[1].extend([frames[2].clone(), frames[1].clone()]);
    world.run();
    let moved = world.devices[1].counters().snapshot() - counters;
    assert_eq!(moved[Counter::OutOfOrderHeld], 1);
    assert_eq!(world.done[0].len(), 4);
    assert!(world.done[0].iter().all(|done| done.status == WcStatus::Success));
}

#[test]
fn the_expected_response_is_taken_by_the_short_way_and_no_other() {
    let (mut world, [client, _]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    for id in 1..=2 {
        world.post(client, id, read, 64);
    }
    world.transmit(0);
    world.deliver(1);
    world.transmit(1);
    let frames: Vec<Vec<u8>> = world.wires[0].drain(..).collect();
    assert!(!takes(&mut world, 0, client, &frames[1]), "it is not its turn");
    assert!(takes(&mut world, 0, client, &frames[0]));
    assert!(!takes(&mut world, 0, client, &frames[0]), "it is not taken twice");
    assert!(takes(&mut world, 0, client, &frames[1]));
    let slot = world.devices[0].slot_index(client);
    world.devices[0].touch(slot);
    world.deliver(0);
    assert_eq!(world.statuses(0), [0, 1, 2].map(|id| (id, WcStatus::Success)));
}

/// A response that comes while a probe waits shows that the peer is there.
#[test]
fn a_response_answers_a_probe_before_it_may_be_short() {
    let (mut world, [client, _]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    world.post(client, 1, read, 64);
    world.transmit(0);
    world.deliver(1);
    world.transmit(1);
    let response = world.wires[0].pop_front().unwrap();
    let slot = world.devices[0].slot_index(client);
    assert!(find(&mut world.devices[0].qps, slot, client).unwrap().qp.probe());
    world.devices[0].touch(slot);
    send_one(&mut world, 0);
    assert!(!takes(&mut world, 0, client, &response));
    let (device, memory) = (&mut world.devices[0], &mut world.memory[0]);
    device.handle_frame(world.now, &response, None, memory);
    assert!(find(&mut device.qps, slot, client).unwrap().qp.take_probe_answer());
}

/// A hop that changes in the middle of a turn is that of the next packet.
#[test]
fn the_short_way_follows_the_path() {
    let (mut world, [client, _]) = acquainted();
    for id in 1..=3 {
        world.post(client, id, world.write(), 64);
    }
    send_one(&mut world, 0);
    let (path, hop) = world.devices[0].paths().next().unwrap();
    world.devices[0].path_update(path, Hop { dst_mac: Mac([2, 9, 9, 9, 9, 9]), ..hop });
    assert_eq!(next_run(&mut world, 0), [Opcode::WriteOnly; 2]);
    let to = |frame: &Vec<u8>| Packet::parse(frame).unwrap().encap.dst_mac;
    let sent: Vec<Mac> = world.wires[1].iter().map(to).collect();
    assert_eq!(sent, [hop.dst_mac, Mac([2, 9, 9, 9, 9, 9]), Mac([2, 9, 9, 9, 9, 9])]);
}

/// A lost packet goes before new ones, towards a peer that keeps what comes behind a gap.
#[test]
fn a_resend_goes_before_new_packets() {
    // Otherwise a loss is followed by a pause.
    let (mut world, [client, _], _) = world(false, false, true).join(false);
    world.max_packets = 1;
    let lose_first_of_eight = |world: &mut World| {
        for id in 0..8 {
            world.post(client, id, world.write(), 64);
        }
        world.transmit(0);
        let frame = world.wires[1].pop_front().unwrap();
        world.deliver(1);
        Packet::parse(&frame).unwrap().bth.psn
    };
    // The first loss shows that the peer keeps.
    lose_first_of_eight(&mut world);
    world.run_for(Duration::from_millis(5));
    let lost = lose_first_of_eight(&mut world);
    while !world.transmit(1) {
        world.now = world.devices[1].poll_timeout().unwrap();
        world.devices[1].handle_timeout(world.now);
    }
    world.deliver(0);
    world.sent[0].clear();
    world.post(client, 9, world.write(), 64);
    world.transmit(0);
    assert_eq!(world.sent[0], [(Opcode::WriteOnly, lost), (Opcode::WriteOnly, lost.add(8))]);
}

/// The fate of a packet, of two hosts that know each other: all that can be seen.
#[derive(Debug, PartialEq)]
struct Verdict {
    states: [Option<QpState>; 2],
    counters: [Snapshot; 2],
    done: [Vec<(u64, WcStatus)>; 2],
    sent: [Vec<(Opcode, Psn)>; 2],
    written: bool,
}

/// Two acquainted hosts, the client with a READ on its way and the server with a receive of 100 bytes in two
/// elements; `forge` changes a sound packet that `to` gets next.
fn verdict(
    short_ways: bool,
    to: usize,
    opcode: Opcode,
    forge: fn(&mut Bth, &mut Ext, &mut Vec<u8>),
) -> Verdict {
    let (mut world, qps, _) = world(false, true, short_ways).join(false);
    world.max_packets = 1;
    let [half, other] = [0, 1].map(|part| world.sgl(1, 50 * part, 50));
    let sgl: SgList = half.into_iter().chain(other).collect();
    world.devices[1].post_recv(qps[1], RecvWr { id: 7, sgl }).unwrap();
    world.post(qps[0], 0, world.write(), 64);
    world.transmit(0);
    let request = world.wires[1][0].clone();
    world.run();
    // The flow of the responses is known by the ACK.
    let key = world.keys[1];
    world.post(qps[0], 1, SendOp::Read { va: BASE, rkey: key }, 64);
    world.transmit(0);
    let asked = world.wires[1].pop_front().unwrap();
    let [sample, asked] = [&request, &asked].map(|frame| Packet::parse(frame).unwrap());
    let reth = Reth { va: BASE + 500, rkey: key, len: 40 };
    let mut ext = match opcode {
        Opcode::WriteOnly | Opcode::ReadRequest => Ext::Reth(reth),
        Opcode::ReadResponseFirst | Opcode::ReadResponseLast | Opcode::ReadResponseOnly => {
            Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: Msn::new(2) })
        }
        _ => Ext::None,
    };
    let len = [40, 64, 0];
    let len = len[usize::from(to == 0) + 2 * usize::from(opcode == Opcode::ReadRequest)];
    let (mut bth, mut payload) = (Bth::new(opcode, qps[to], asked.bth.psn), vec![9; len]);
    bth.ack_req = true;
    forge(&mut bth, &mut ext, &mut payload);
    let encap = if to == 1 { sample.encap } else { sample.encap.reply() };
    world.wires[to].push_back(emit(&Packet { encap, bth, ext, payload: &payload }));
    world.deliver(to);
    world.run();
    Verdict {
        states: [0, 1].map(|node| world.devices[node].qp_state(qps[node])),
        counters: world.devices.each_ref().map(|device| device.counters().snapshot()),
        done: [0, 1].map(|node| world.statuses(node)),
        written: world.memory[1].0[0][500..540] == [9; 40],
        sent: world.sent,
    }
}

/// Goal: the short ways refuse what the general way refuses, in the same way. Method: sound packets, and the same with
/// one thing wrong.
#[test]
fn what_is_wrong_is_wrong_either_way() {
    type Forge = fn(&mut Bth, &mut Ext, &mut Vec<u8>);
    let sound: Forge = |_, _, _| {};
    let wrong: [(usize, Opcode, Forge); 24] = [
        (1, Opcode::WriteOnly, sound),
        (1, Opcode::WriteOnly, |_, ext, _| change(ext, |reth| reth.len = 44)),
        (1, Opcode::WriteOnly, |_, ext, _| change(ext, |reth| reth.len = 36)),
        (1, Opcode::WriteOnly, |_, ext, _| change(ext, |reth| reth.rkey = Rkey::new(1))),
        (1, Opcode::WriteOnly, |_, ext, _| change(ext, |reth| reth.va = BASE + REGION as u64 - 39)),
        (1, Opcode::WriteOnly, |bth, _, _| bth.pkey = 0x8001),
        (1, Opcode::WriteOnly, |bth, _, _| bth.pkey = 0x7fff),
        (1, Opcode::WriteOnly, |bth, _, _| bth.psn = bth.psn.add(1)),
        (1, Opcode::WriteOnly, |bth, _, _| bth.psn = bth.psn.prev()),
        (1, Opcode::WriteOnly, |_, ext, payload| {
            payload.resize(1028, 9);
            change(ext, |reth| reth.len = 1028);
        }),
        (1, Opcode::SendOnly, sound),
        (1, Opcode::SendOnly, |bth, _, _| bth.solicited = true),
        (1, Opcode::SendOnly, |_, _, payload| payload.resize(64, 9)),
        (1, Opcode::SendOnly, |_, _, payload| payload.resize(104, 9)),
        (1, Opcode::ReadRequest, sound),
        (1, Opcode::ReadRequest, |_, ext, _| change(ext, |reth| reth.va = BASE - 1)),
        (1, Opcode::ReadRequest, |_, _, payload| payload.resize(4, 9)),
        (0, Opcode::ReadResponseOnly, sound),
        (0, Opcode::ReadResponseFirst, sound),
        (0, Opcode::ReadResponseLast, sound),
        (0, Opcode::ReadResponseOnly, |_, _, payload| payload.resize(60, 9)),
        (0, Opcode::ReadResponseOnly, |_, _, payload| payload.resize(68, 9)),
        (0, Opcode::ReadResponseOnly, |bth, _, _| bth.psn = bth.psn.add(1)),
        (0, Opcode::ReadResponseOnly, |_, ext, _| {
            let syndrome = Syndrome::RnrNak(RnrTimer::new(3));
            *ext = Ext::Aeth(Aeth { syndrome, msn: Msn::new(2) });
        }),
    ];
    for (at, (to, opcode, forge)) in wrong.into_iter().enumerate() {
        let [short, general] = [true, false].map(|short| verdict(short, to, opcode, forge));
        assert_eq!(short, general, "{opcode:?}, the one at {at}");
    }
    assert!(verdict(true, 1, Opcode::WriteOnly, sound).written);
    assert!(!verdict(true, 1, Opcode::WriteOnly, wrong[1].2).written);
}

fn change(ext: &mut Ext, change: fn(&mut Reth)) {
    if let Ext::Reth(reth) = ext {
        change(reth);
    }
}

/// A READ into memory that is not to be written fails before it leaves.
#[test]
fn a_sink_grants_local_write() {
    let (mut world, [client, _]) = acquainted();
    let (region, len, access) = (RegionId(0), REGION as u64, Access::LOCAL_READ);
    let registration = Registration { pd: PD, region, base: BASE, len, access };
    let key = world.devices[0].register(registration).unwrap();
    let sgl = [Sge { addr: BASE, len: 64, lkey: Lkey::new(key.get()) }];
    let op = SendOp::Read { va: BASE, rkey: world.keys[1] };
    world.post(client, 1, world.write(), 64);
    let wr = SendWr { id: 2, op, sgl, solicited: false, read_fence: false, silent: false };
    world.devices[0].post_send(client, wr).unwrap();
    world.run();
    world.deliver(0);
    let statuses = [(0, WcStatus::Success), (1, WcStatus::Success), (2, WcStatus::LocalProtection)];
    assert_eq!(world.statuses(0), statuses);
    assert!(!world.sent[0].iter().any(|(opcode, _)| *opcode == Opcode::ReadRequest));
}

/// A work request: its operation, its length, and whether it is solicited, fenced, silent.
type Work = (u8, usize, [bool; 3]);

fn work() -> impl Strategy<Value = Work> {
    let len = prop::sample::select(vec![0, 1, 3, 64, 1000, 1024, 1025, 5000]);
    (any::<u8>(), len, any::<[bool; 3]>())
}

/// All that can be seen of a run.
struct Seen {
    frames: [Vec<Vec<u8>>; 2],
    done: [Vec<String>; 2],
    counters: [Snapshot; 2],
    memory: [Vec<u8>; 2],
    /// Completions at each host after each round trip.
    ends: Vec<[usize; 2]>,
}

/// Posts the bursts, each so many round trips after the one before. Of every so many frames, one is lost.
fn run(
    [v6, paced, units, short_ways]: [bool; 4],
    bursts: &[(Vec<Work>, usize)],
    lost: usize,
) -> Seen {
    let (mut world, [client, server], _) = world(v6, paced, short_ways).join(v6);
    world.max_packets = 1;
    let (mut frames, mut ends): ([Vec<Vec<u8>>; 2], _) = (Default::default(), Vec::new());
    for (burst, rounds) in bursts {
        for (id, (op, len, [solicited, read_fence, silent])) in burst.iter().enumerate() {
            let (va, rkey) = (BASE + 100_000 + *len as u64, world.keys[1]);
            let op = match op % 4 {
                0 => SendOp::Write { va, rkey },
                1 => SendOp::Read { va, rkey },
                _ => SendOp::Send,
            };
            let (id, [solicited, read_fence, silent]) =
                (id as u64, [*solicited, *read_fence, *silent]);
            let recv = RecvWr { id, sgl: world.sgl(1, 0, 6000) };
            // The queues may be full of what was lost.
            let _ = world.devices[1].post_recv(server, recv);
            let sgl = world.sgl(0, 0, *len);
            let wr = SendWr { id, op, sgl, solicited, read_fence, silent };
            let _ = world.devices[0].post_send(client, wr);
        }
        for _ in 0..*rounds {
            for from in [0, 1] {
                world.transmit(from);
                let sent = core::mem::take(&mut world.wires[1 - from]);
                let mut came = Vec::new();
                for frame in sent {
                    frames[from].push(frame.clone());
                    if frames[from].len() % lost != 0 {
                        came.push(frame);
                    }
                }
                let plain = |frame: &Vec<u8>| (frame.clone(), None);
                let came = if units { coalesce(&came) } else { came.iter().map(plain).collect() };
                let (device, memory) = (&mut world.devices[1 - from], &mut world.memory[1 - from]);
                for (frame, segment_len) in came {
                    device.handle_frame(world.now, &frame, segment_len, memory);
                }
                world.deliver(1 - from);
            }
            ends.push(world.done.each_ref().map(Vec::len));
            world.now = world.now + Duration::from_micros(250);
            world.devices.iter_mut().for_each(|device| device.handle_timeout(world.now));
        }
    }
    let World { done, devices, memory, .. } = world;
    Seen {
        frames,
        ends,
        done: done.map(|done| done.iter().map(|done| std::format!("{done:?}")).collect()),
        counters: devices.map(|device| device.counters().snapshot()),
        memory: memory.map(|Bytes(mut regions)| regions.swap_remove(0)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn short_ways_change_nothing_that_can_be_seen(
        v6: bool,
        paced: bool,
        units: bool,
        bursts in prop::collection::vec((prop::collection::vec(work(), 1..9), 1_usize..9), 1..7),
        lost in prop_oneof![Just(usize::MAX), 2_usize..40],
    ) {
        let bursts = [bursts, vec![(Vec::new(), 40)]].concat();
        let [short, general] = [true, false].map(|short| run([v6, paced, units, short], &bursts, lost));
        prop_assert_eq!(short.frames, general.frames);
        prop_assert_eq!(short.done, general.done);
        prop_assert_eq!(short.ends, general.ends);
        prop_assert_eq!(short.counters, general.counters);
        prop_assert!(short.memory == general.memory);
    }
}
