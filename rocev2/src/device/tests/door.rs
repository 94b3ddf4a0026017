//! The packets that a device drops before any queue pair sees them, and the requests for which it has no
//! room.

use super::*;
use crate::qp::SrqConfig;
use crate::wire::{Aeth, Syndrome};

/// A connected pair, and node 0's WRITE to node 1 as it leaves.
fn written() -> (World, Vec<u8>, [Qpn; 2]) {
    let (mut world, qps, _) = World::connected(false);
    world.post(qps[0], 1, world.write(), 8);
    world.transmit(0);
    let frame = world.wires[1].pop_front().unwrap();
    (world, frame, qps)
}

/// Gives node 1 the packet as `change` leaves it; how that is counted, and that nothing comes of it.
fn refused(world: &mut World, frame: &[u8], change: impl Fn(&mut Packet<'_>)) -> DropReason {
    let mut packet = Packet::parse(frame).unwrap();
    change(&mut packet);
    let before = world.drops(1);
    let memory = world.memory[1].0.clone();
    world.wires[1].push_back(emit(&packet));
    world.deliver(1);
    assert!(!world.transmit(1), "an answer");
    assert!(world.memory[1].0 == memory && world.events[1].is_empty() && world.done[1].is_empty());
    let mut drops = world.drops(1);
    drops.retain(|drop| !before.contains(drop));
    assert_eq!(drops.len(), 1, "{drops:?}");
    drops[0].0
}

/// CA17-24, IBTA ch. 9, Packet Header Validation: partition, destination, transport and Q_Key come
/// before the queue pair, and what fails is silent.
#[test]
fn packets_for_no_queue_pair_are_counted_and_not_answered() {
    let (mut world, frame, _) = written();
    let world = &mut world;
    assert_eq!(refused(world, &frame, |packet| packet.bth.pkey = 0x7ffe), DropReason::PKey);
    assert_eq!(
        refused(world, &frame, |packet| packet.encap.dst = address(false, 7)),
        DropReason::AddressMismatch
    );
    let nobody = Qpn::new(0xff_fffe);
    assert_eq!(
        refused(world, &frame, |packet| packet.bth.dest_qpn = nobody),
        DropReason::UnknownQpn
    );
    // A datagram to a connected queue pair, and a connection's packet to QP 1.
    let deth = |qkey| Deth { qkey, src_qpn: Qpn::GSI };
    let datagram = |packet: &mut Packet<'_>| {
        (packet.bth.opcode, packet.ext) = (Opcode::UdSendOnly, Ext::Deth(deth(GSI_QKEY)));
    };
    assert_eq!(refused(world, &frame, datagram), DropReason::TransportMismatch);
    let to_gsi = |packet: &mut Packet<'_>| packet.bth.dest_qpn = Qpn::GSI;
    assert_eq!(refused(world, &frame, to_gsi), DropReason::TransportMismatch);
    let wrong_qkey = |packet: &mut Packet<'_>| {
        packet.bth.dest_qpn = Qpn::GSI;
        (packet.bth.opcode, packet.ext) = (Opcode::UdSendOnly, Ext::Deth(deth(GSI_QKEY ^ 1)));
    };
    assert_eq!(refused(world, &frame, wrong_qkey), DropReason::QKey);

    // The same packet unharmed, from a limited member of the partition, is executed.
    let mut good = Packet::parse(&frame).unwrap();
    good.bth.pkey = 0x7fff;
    world.wires[1].push_back(emit(&good));
    world.run();
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
}

/// An address that went away hears nothing more.
#[test]
fn packets_to_an_address_that_went_away_are_dropped() {
    let (mut world, frame, _) = written();
    world.devices[1].set_addresses(world.now, vec![address(false, 9)]);
    assert_eq!(world.devices[1].config().addresses, [address(false, 9)]);
    world.deliver(1);
    world.events[1].clear();
    assert_eq!(refused(&mut world, &frame, |_| ()), DropReason::AddressMismatch);
    // Its connections do not come back with it.
    world.devices[1].set_addresses(world.now, vec![address(false, 1)]);
    assert_eq!(refused(&mut world, &frame, |_| ()), DropReason::QpState);
}

/// An answer to nothing that was asked changes nothing (IBTA ch. 9, ghost acknowledgements).
#[test]
fn an_answer_to_nothing_is_stale() {
    let (mut world, frame, _) = written();
    let ack = |packet: &mut Packet<'_>| {
        let msn = crate::psn::Msn::new(0);
        packet.bth.opcode = Opcode::Acknowledge;
        packet.ext = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn });
        packet.payload = &[];
    };
    assert_eq!(refused(&mut world, &frame, ack), DropReason::StaleResponse);
}

#[test]
fn full_tables_and_queues_refuse_and_take_nothing() {
    let mut world = World::new(false);
    let config = QpConfig {
        owner: 0,
        pd: PD,
        send_depth: 2,
        send_sge: 16,
        recv_depth: 1,
        recv_sge: 16,
        srq: None,
    };
    let device = &mut world.devices[0];
    let qps = Vec::from_iter(std::iter::from_fn(|| device.create_qp(&config)));
    assert_eq!(qps.len(), device.config().max_qps);
    device.destroy_qp(qps[0]);
    assert_eq!(device.qp_state(qps[0]), None);
    let again = device.create_qp(&config).unwrap();
    assert_eq!((device.create_qp(&config), device.qp_state(again)), (None, Some(QpState::Init)));

    let (mut world, [client, _], _) = World::connected(false);
    let sgl = world.sgl(0, 0, 8);
    let device = &mut world.devices[0];
    let posts = |device: &mut Device| {
        (0..=16).map(|id| device.post_recv(client, RecvWr { id, sgl: sgl.clone() })).collect()
    };
    let posted: Vec<_> = posts(device);
    assert!(posted[..16].iter().all(Result::is_ok));
    assert_eq!(posted[16], Err(PostError::QueueFull));
    let op = SendOp::Write { va: BASE, rkey: world.keys[1] };
    let wr = |id| SendWr {
        id,
        op,
        sgl: sgl.clone(),
        solicited: false,
        read_fence: false,
        silent: false,
    };
    let device = &mut world.devices[0];
    let posted = Vec::from_iter((0..=16).map(|id| device.post_send(client, wr(100 + id))));
    assert!(posted[..16].iter().all(Result::is_ok));
    assert_eq!(posted[16], Err(PostError::QueueFull));
    // Names of nothing.
    let stranger = Qpn::new(0xff_fffe);
    assert_eq!(device.post_send(stranger, wr(1)), Err(PostError::UnknownQp));
    let recv = RecvWr { id: 1, sgl: sgl.clone() };
    assert_eq!(device.post_recv(stranger, recv), Err(PostError::UnknownQp));
    let srq =
        device.create_srq(SrqConfig { owner: 1, pd: PD, depth: 1, max_sge: 16, threshold: 0 });
    device.destroy_srq(srq).unwrap();
    let recv = RecvWr { id: 1, sgl: sgl.clone() };
    assert_eq!(device.post_srq_recv(srq, recv), Err(PostError::UnknownSrq));
    assert_eq!(device.create_qp(&QpConfig { srq: Some(srq), ..config }), None);
    // A flush ends everything that was taken, in order, and nothing else.
    device.flush_qp(client);
    world.deliver(0);
    let (sends, recvs) = ((100..116), (0..16));
    let flushed = Vec::from_iter(world.statuses(0).into_iter().map(|(id, status)| {
        assert_eq!(status, WcStatus::Flushed);
        id
    }));
    let of = |ids: std::ops::Range<u64>| flushed.iter().copied().filter(move |id| ids.contains(id));
    assert!(of(sends.clone()).eq(sends) && of(recvs.clone()).eq(recvs) && flushed.len() == 32);
}

/// A receive is there with its doorbell and no sooner: the memory that it names may be told only behind that.
#[test]
fn a_receive_is_seen_with_its_doorbell() {
    let (mut world, qps, _) = World::connected(false);
    let mut poster = world.devices[1].take_recv_poster(qps[1]).unwrap();
    let sgl = [Sge { addr: BASE, len: 64, lkey: Lkey::new(world.keys[1].get()) }];
    poster.post(RecvWr { id: 7, sgl }).unwrap();
    world.post(qps[0], 1, SendOp::Send, 8);
    world.transmit(0);
    world.deliver(1);
    assert!(world.done[1].is_empty());
    world.devices[1].ring_doorbell(qps[1]);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.statuses(1), [(7, WcStatus::Success)]);
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
}
