//! Packets behind a gap wait in slots that all queue pairs share.

use super::*;

const OK: WcStatus = WcStatus::Success;

/// Two connections to node 1, which has this many slots.
fn world(slots: usize) -> (World, [[Qpn; 2]; 2]) {
    let configs = [0, 1].map(|node| {
        let reorder_pool = slots * Pmtu::B1024.bytes();
        DeviceConfig { reorder_pool, ..config(false, node) }
    });
    let mut world = World::of(configs);
    world.listen(false);
    let pairs = [0, 1].map(|_| {
        let [client, server] = [world.qp(0), world.qp(1)];
        let active = world.connect(false, client);
        world.accept(server, active);
        [client, server]
    });
    (world, pairs)
}

/// Sends `count` WRITEs of which the first gets lost; returns how many wait behind it.
fn gap(world: &mut World, client: Qpn, count: u64) -> u64 {
    let held = |world: &World| world.devices[1].counters().get(Counter::OutOfOrderHeld);
    let before = held(world);
    for id in 0..count {
        world.post(client, id, world.write(), 8);
    }
    world.transmit(0);
    world.wires[1].pop_front();
    world.deliver(1);
    held(world) - before
}

/// Slots of node 1 that are held.
fn taken(world: &World) -> usize {
    world.devices[1].reorder_pool.taken()
}

#[test]
fn a_gap_takes_slots_and_its_end_gives_them_back() {
    let (mut world, [[first, _], [second, _]]) = world(5);
    assert_eq!(gap(&mut world, first, 4), 3);
    assert_eq!(gap(&mut world, second, 5), 2, "the first has the others");
    world.run_for(Duration::from_secs(1));
    let done: Vec<_> = world.done[0].iter().map(|done| done.status).collect();
    assert_eq!(done, [OK; 9], "what found no slot is sent again");
    assert_eq!(taken(&world), 0, "a gap that is closed has no slot");
}

/// Two connections of a peer have all; a third one has its third, and all recover.
#[test]
fn a_connection_has_its_share_at_once() {
    let (mut world, [[first, _], [second, _]]) = world(6);
    let [third, server] = [world.qp(0), world.qp(1)];
    let active = world.connect(false, third);
    world.accept(server, active);
    assert_eq!(gap(&mut world, first, 9), 3, "half of all");
    assert_eq!(gap(&mut world, second, 9), 3);
    assert_eq!(gap(&mut world, third, 9), 2);
    assert_eq!(taken(&world), 6);
    world.run_for(Duration::from_secs(1));
    let done: Vec<_> = world.done[0].iter().map(|done| done.status).collect();
    assert_eq!((done, taken(&world)), (vec![OK; 27], 0));
}

#[test]
fn an_end_gives_slots_back_too() {
    type End = fn(&mut World, [Qpn; 2]);
    let ends: [End; 3] = [
        |world, [_, server]| world.devices[1].flush_qp(server),
        |world, [_, server]| world.devices[1].destroy_qp(server),
        |world, _| {
            let path = Path { local: address(false, 1), remote: address(false, 0) };
            world.devices[1].path_lost(world.now, path);
            world.devices[1].handle_timeout(world.now);
        },
    ];
    for end in ends {
        let (mut world, [first, _]) = world(4);
        assert_eq!((gap(&mut world, first[0], 5), taken(&world)), (2, 2));
        end(&mut world, first);
        assert_eq!(taken(&world), 0);
    }
}

/// A queue pair that is gone wakes nobody.
#[test]
fn err_06_the_timer_of_a_gap_ends_with_its_queue_pair() {
    let (mut world, [[first, server], _]) = world(2);
    world.run_for(Duration::from_secs(1));
    assert_eq!(gap(&mut world, first, 2), 1);
    assert!(world.devices[1].poll_timeout().is_some(), "the reorder window");
    world.devices[1].destroy_qp(server);
    assert_eq!(world.devices[1].poll_timeout(), None);
}

/// It is of all queue pairs together, whatever their cores are.
#[test]
fn the_cores_of_a_device_share_the_slots() {
    let config = DeviceConfig { reorder_pool: 12 * Pmtu::B1024.bytes(), ..config(false, 0) };
    for (cores, slots) in [(1, 12), (3, 4)] {
        let (_, engines) = crate::split(config.clone(), cores);
        let limits: Vec<_> = engines.iter().map(|engine| engine.reorder_pool.limit()).collect();
        assert_eq!(limits, vec![slots; cores]);
    }
}
