//! Goal: the short ways change nothing but the cost. Method: the same work, with the same losses, on devices that
//! take them and on devices that do not.

use super::*;
use crate::counters::Snapshot;
use proptest::prelude::*;
use std::string::String;

fn world(v6: bool, short_ways: bool) -> World {
    World::of([0, 1].map(|node| DeviceConfig { short_ways, ..config(v6, node) }))
}

/// A flow is known after a packet each way.
fn acquainted() -> (World, [Qpn; 2]) {
    let (mut world, qps, _) = world(false, true).join(false);
    world.max_packets = 1;
    world.post(qps[0], 0, world.write(), 64);
    world.run();
    assert_eq!(world.statuses(0), [(0, WcStatus::Success)]);
    (world, qps)
}

/// The opcode of the next packet of `node`, if it takes the short way.
fn next_single(world: &mut World, node: usize) -> Option<Opcode> {
    let (device, memory) = (&mut world.devices[node], &mut world.memory[node]);
    let mut buf = vec![0; 2000];
    let unit = device.transmit_singles(world.now, &mut buf, 1, memory)?;
    let frame = &buf[..unit.len];
    world.wires[1 - node].push_back(frame.to_vec());
    Some(Packet::parse(frame).unwrap().bth.opcode)
}

/// Sends the first packet of a turn, for which a queue pair has to be found.
fn begin_turn(world: &mut World, node: usize) {
    let (device, memory) = (&mut world.devices[node], &mut world.memory[node]);
    let mut buf = vec![0; 2000];
    let unit = device.poll_transmit(world.now, &mut buf, 1, memory).unwrap();
    world.wires[1 - node].push_back(buf[..unit.len].to_vec());
}

/// Whether the responder executes a frame by the short way.
fn takes(world: &mut World, server: Qpn, frame: &[u8]) -> bool {
    let (device, memory, now) = (&mut world.devices[1], &mut world.memory[1], world.now);
    let slot = device.slot_index(server);
    let Device { qps, mrs, reorder_pool, completions: out, .. } = device;
    let QpSlot { qp, flow, .. } = find(qps, slot, server).unwrap();
    let known = flow.as_ref().unwrap().check(frame).unwrap();
    let mut shared = Shared { mrs, memory, reorder_pool, out };
    Single::of(&known).is_some_and(|single| qp.handle_single(now, 0, &single, None, &mut shared))
}

#[test]
fn new_requests_of_one_packet_leave_by_the_short_way() {
    let (mut world, [client, _]) = acquainted();
    assert_eq!(next_single(&mut world, 0), None, "nothing is to be sent");
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    for (op, opcode) in [(world.write(), Opcode::WriteOnly), (read, Opcode::ReadRequest)] {
        for id in 1..=3 {
            world.post(client, id, op, 64);
        }
        begin_turn(&mut world, 0);
        assert_eq!(
            [(); 3].map(|()| next_single(&mut world, 0)),
            [Some(opcode), Some(opcode), None]
        );
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
    begin_turn(&mut world, 1);
    let only = Some(Opcode::read_response(wire::Place::Only));
    assert_eq!([(); 3].map(|()| next_single(&mut world, 1)), [only, only, None]);
    world.run();
    assert_eq!(world.done[0].len(), 4);
}

#[test]
fn all_else_leaves_by_the_general_way() {
    let (mut world, [client, _]) = acquainted();
    let read = SendOp::Read { va: BASE, rkey: world.keys[1] };
    for (op, len) in [(read, 5000), (world.write(), 5000), (world.write(), 0)] {
        world.post(client, 1, world.write(), 8);
        world.post(client, 2, op, len);
        begin_turn(&mut world, 0);
        assert_eq!(next_single(&mut world, 0), None, "{op:?} of {len} bytes");
        assert!(world.transmit(0));
        world.run_for(Duration::from_millis(100));
    }
    assert!(world.done[0].iter().all(|done| done.status == WcStatus::Success));
    assert_eq!(world.done[0].len(), 7);
}

#[test]
fn the_expected_request_is_taken_by_the_short_way_and_no_other() {
    let (mut world, [client, server]) = acquainted();
    for id in 1..=3 {
        world.post(client, id, world.write(), 64);
    }
    world.transmit(0);
    let frames: Vec<Vec<u8>> = world.wires[1].drain(..).collect();
    assert!(!takes(&mut world, server, &frames[1]), "it is not its turn");
    assert!(takes(&mut world, server, &frames[0]));
    assert!(!takes(&mut world, server, &frames[0]), "it is not executed twice");
    let counters = world.devices[1].counters().snapshot();
    world.wires[1].extend([frames[2].clone(), frames[1].clone()]);
    world.run();
    let moved = world.devices[1].counters().snapshot() - counters;
    assert_eq!(moved[Counter::OutOfOrderHeld], 1);
    assert_eq!(world.done[0].len(), 4);
    assert!(world.done[0].iter().all(|done| done.status == WcStatus::Success));
}

/// A work request: its operation, its length, and whether it is solicited, fenced, silent.
type Work = (u8, usize, [bool; 3]);

/// All that can be seen of a run.
struct Seen {
    frames: [Vec<Vec<u8>>; 2],
    done: [Vec<String>; 2],
    counters: [Snapshot; 2],
    memory: [Vec<u8>; 2],
}

/// Posts the bursts one after the other. Of every so many frames, one is lost.
fn run(v6: bool, short_ways: bool, bursts: &[Vec<Work>], lost: usize) -> Seen {
    let (mut world, [client, server], _) = world(v6, short_ways).join(v6);
    world.max_packets = 1;
    let mut frames: [Vec<Vec<u8>>; 2] = Default::default();
    for burst in bursts {
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
        for _ in 0..40 {
            for from in [0, 1] {
                world.transmit(from);
                let sent = core::mem::take(&mut world.wires[1 - from]);
                for frame in sent {
                    frames[from].push(frame.clone());
                    if frames[from].len() % lost != 0 {
                        world.wires[1 - from].push_back(frame);
                    }
                }
                world.deliver(1 - from);
            }
            world.now = world.now + Duration::from_micros(250);
            world.devices.iter_mut().for_each(|device| device.handle_timeout(world.now));
        }
    }
    let World { done, devices, memory, .. } = world;
    Seen {
        frames,
        done: done.map(|done| done.iter().map(|done| std::format!("{done:?}")).collect()),
        counters: devices.map(|device| device.counters().snapshot()),
        memory: memory.map(|Bytes(mut regions)| regions.swap_remove(0)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn short_ways_change_nothing_that_can_be_seen(
        v6: bool,
        bursts in prop::collection::vec(
            prop::collection::vec(
                (any::<u8>(), prop::sample::select(vec![0, 1, 3, 64, 1000, 1024, 1025, 5000]), any::<[bool; 3]>()),
                1..9,
            ),
            1..5,
        ),
        lost in prop_oneof![Just(usize::MAX), 2_usize..40],
    ) {
        let [short, general] = [true, false].map(|short_ways| run(v6, short_ways, &bursts, lost));
        prop_assert_eq!(short.frames, general.frames);
        prop_assert_eq!(short.done, general.done);
        prop_assert_eq!(short.counters, general.counters);
        prop_assert!(short.memory == general.memory);
    }
}
