//! The table of queue pairs, which grows.

use super::*;
use std::collections::BTreeSet;

/// An owner with a budget of memory learns before that the table will double: a slot is in seven lists at least.
#[test]
fn the_growth_of_the_table_is_told() {
    let mut device = Device::new(DeviceConfig { max_qps: 1000, ..config(false, 0) });
    let before = device.qp_bytes(0);
    device.free.clear();
    assert!(device.qp_bytes(0) - before >= 7 * size_of::<usize>() * 2 * device.qps.len());
}

/// Queue pairs wait to send, have their turn, wait for a timer, and have completions to take, while their
/// table doubles four times.
#[test]
fn queue_pairs_keep_their_numbers_and_their_work_while_the_table_grows() {
    let mut world =
        World::of([0, 1].map(|node| DeviceConfig { max_qps: 1000, ..config(false, node) }));
    world.listen(false);
    let clients: Vec<Qpn> = (0..8)
        .map(|_| {
            let (client, server) = (world.qp(0), world.qp(1));
            let active = world.connect(false, client);
            world.accept(server, active);
            client
        })
        .collect();
    let [lost, rest @ ..] = clients.as_slice() else { unreachable!() };
    world.post(*lost, 1, world.write(), 10_000);
    world.transmit(0);
    world.wires[1].clear();
    rest.iter().for_each(|client| world.post(*client, 1, world.write(), 10_000));
    let mut buf = vec![0; 2000];
    let World { devices: [device, _], memory: [memory, _], now, .. } = &mut world;
    let unit = device.poll_transmit(*now, &mut buf, 1, memory).unwrap();
    device.flush_qp(clients[7]);
    let before = device.qps.len();
    let mut made = Vec::from_iter((8..1024).map(|_| world.qp(0)));
    let numbers: BTreeSet<Qpn> = made.iter().chain(&clients).copied().collect();
    let device = &mut world.devices[0];
    assert_eq!((before, device.qps.len(), numbers.len()), (64, 1024, 1024));
    assert!(numbers.iter().all(|qpn| device.qp_state(*qpn).is_some()));
    let config = QpConfig {
        owner: 0,
        pd: PD,
        send_depth: 1,
        send_sge: 1,
        recv_depth: 1,
        recv_sge: 1,
        srq: None,
    };
    assert_eq!(device.create_qp(&config), None, "the table is full");
    made.drain(500..).for_each(|qpn| device.destroy_qp(qpn));
    made.extend((0..516).map(|_| world.qp(0)));
    assert_eq!(made.iter().filter(|qpn| !numbers.contains(qpn)).count(), 516);
    world.wires[1].push_back(buf[..unit.len].to_vec());
    world.run_for(Duration::from_secs(10));
    let done = world.statuses(0);
    assert_eq!(done.len(), 8);
    let flushed = done.iter().filter(|(_, status)| *status == WcStatus::Flushed).count();
    let succeeded = done.iter().filter(|(_, status)| *status == WcStatus::Success).count();
    assert_eq!((flushed, succeeded), (1, 7));
}

/// The line of those that wait to send has room for each place of the table once. A packet takes no memory.
#[test]
fn a_queue_pair_that_waits_to_send_leaves_the_line_when_it_is_destroyed() {
    let mut world = World::new(false);
    world.listen(false);
    let (client, server) = (world.qp(0), world.qp(1));
    let active = world.connect(false, client);
    world.accept(server, active);
    world.post(client, 1, world.write(), 64);
    let device = &mut world.devices[0];
    assert!(!device.lists.ready.is_empty());
    device.destroy_qp(client);
    assert!(device.lists.ready.is_empty());
}
