//! Queue pairs that take their receives from one queue.

use super::*;
use crate::qp::{Completion, Owner, SrqConfig, SrqError, SrqId};
use crate::wire::NakCode;

const OWNER: u64 = 77;
const OK: WcStatus = WcStatus::Success;

/// Two connections whose ends at node 1 share a queue of 4 receives.
struct Shared {
    world: World,
    srq: SrqId,
    clients: [Qpn; 2],
    servers: [Qpn; 2],
}

impl Shared {
    fn new(threshold: usize) -> Self {
        let mut world = World::new(false);
        let config = SrqConfig { owner: OWNER, pd: PD, depth: 4, max_sge: 16, threshold };
        let srq = world.devices[1].create_srq(config);
        world.listen(false);
        let pairs = [0_u64, 1].map(|number| {
            let client = world.qp(0);
            let config = QpConfig {
                owner: 100 + number,
                pd: PD,
                send_depth: 16,
                send_sge: 16,
                recv_depth: 0,
                recv_sge: 16,
                srq: Some(srq),
            };
            let server = world.devices[1].create_qp(&config).unwrap();
            let active = world.connect(false, client);
            world.accept(server, active);
            (client, server)
        });
        Self { world, srq, clients: pairs.map(|pair| pair.0), servers: pairs.map(|pair| pair.1) }
    }

    /// A receive of 3,000 bytes at `id` times that.
    fn receive(&mut self, id: u64) -> Result<(), PostError> {
        let sgl = self.world.sgl(1, id as usize * 3000, 3000);
        self.world.devices[1].post_srq_recv(self.srq, RecvWr { id, sgl })
    }

    fn send(&mut self, number: usize, id: u64, len: usize) {
        self.world.post(self.clients[number], id, SendOp::Send, len);
    }

    /// The QP of each receive, and its outcome.
    fn received(&self) -> Vec<(u64, u64, WcStatus)> {
        let of_qp = |done: &Completion| {
            let Owner::Qp(owner) = done.owner else { panic!("{done:?}") };
            (owner, done.id, done.status)
        };
        self.world.done[1].iter().map(of_qp).collect()
    }

    fn lows(&mut self) -> usize {
        let is_low = |event: &Event| matches!(event, Event::SrqLow { owner: OWNER });
        let lows = self.world.events[1].iter().filter(|event| is_low(event)).count();
        self.world.events[1].retain(|event| !is_low(event));
        lows
    }
}

#[test]
fn rnr_06_one_receive_serves_one_message_of_one_queue_pair() {
    let mut shared = Shared::new(0);
    shared.send(0, 1, 2500);
    shared.send(1, 2, 2500);
    shared.world.run();
    // Each got its own "not ready", and nothing else happened.
    assert_eq!((shared.received(), shared.world.statuses(0)), (vec![], vec![]));
    assert!(
        shared
            .servers
            .iter()
            .all(|qpn| shared.world.devices[1].qp_state(*qpn) == Some(QpState::Rts))
    );
    shared.receive(0).unwrap();
    shared.world.run_for(Duration::from_millis(100));
    let first = shared.received();
    assert_eq!(first.len(), 1);
    shared.receive(1).unwrap();
    shared.world.run_for(Duration::from_millis(100));
    let mut owners: Vec<_> = shared.received().iter().map(|done| (done.0, done.2)).collect();
    owners.sort_by_key(|done| done.0);
    assert_eq!(owners, [(100, OK), (101, OK)]);
    assert_eq!(shared.received().iter().map(|done| done.1).collect::<Vec<_>>(), [0, 1]);
    for at in [0, 3000] {
        assert!(shared.world.memory[1].0[0][at..at + 2500] == shared.world.memory[0].0[0][..2500]);
    }
}

/// Messages of two queue pairs, packet by packet in turn: each keeps the receive that it took.
#[test]
fn rnr_06_messages_that_arrive_in_turn_do_not_share_a_receive() {
    let mut shared = Shared::new(0);
    for id in 0..3 {
        shared.receive(id).unwrap();
    }
    shared.send(0, 1, 2500);
    shared.send(1, 2, 3000);
    shared.world.transmit(0);
    let frames: Vec<_> = shared.world.wires[1].drain(..).collect();
    assert_eq!(frames.len(), 6);
    for at in [0, 3, 1, 4, 2, 5] {
        shared.world.wires[1].push_back(frames[at].clone());
    }
    shared.world.run();
    assert_eq!(shared.received(), [(100, 0, OK), (101, 1, OK)]);
    let lens: Vec<u32> = shared.world.done[1].iter().map(|done| done.len).collect();
    assert_eq!(lens, [2500, 3000]);
}

#[test]
fn err_08_a_failed_queue_pair_gives_only_the_receive_that_it_took() {
    let mut shared = Shared::new(0);
    for id in 0..3 {
        shared.receive(id).unwrap();
    }
    shared.send(0, 1, 3000);
    shared.world.transmit(0);
    // The first packet takes the receive; the rest never comes.
    shared.world.wires[1].truncate(1);
    shared.world.deliver(1);
    shared.world.devices[1].flush_qp(shared.servers[0]);
    shared.world.deliver(1);
    assert_eq!(shared.received(), [(100, 0, WcStatus::Flushed)]);
    shared.send(1, 2, 100);
    shared.send(1, 3, 100);
    shared.world.run();
    assert_eq!(shared.received()[1..], [(101, 1, OK), (101, 2, OK)]);
}

#[test]
fn a_message_too_long_ends_its_own_connection_only() {
    let mut shared = Shared::new(0);
    shared.receive(0).unwrap();
    shared.receive(1).unwrap();
    shared.send(0, 1, 3001);
    shared.world.run();
    assert_eq!(shared.received(), [(100, 0, WcStatus::LocalLength)]);
    let naks = shared.servers.map(|server| shared.world.devices[1].qp_failure(server)?.nak());
    assert_eq!(naks, [Some((NakCode::InvalidRequest, true)), None]);
    shared.send(1, 2, 3000);
    shared.world.run();
    assert_eq!(shared.received()[1..], [(101, 1, OK)]);
}

#[test]
fn a_threshold_is_told_once_for_each_arming() {
    let mut shared = Shared::new(3);
    let consume = |shared: &mut Shared, times| {
        for id in 0..times {
            shared.send(0, id, 1);
        }
        shared.world.run();
        shared.lows()
    };
    for id in 0..4 {
        shared.receive(id).unwrap();
    }
    assert_eq!(consume(&mut shared, 1), 0, "three are as many as asked for");
    assert_eq!(consume(&mut shared, 2), 1);
    for id in 0..3 {
        shared.receive(id).unwrap();
    }
    assert_eq!(consume(&mut shared, 4), 0, "not armed again");
    let arm = |shared: &mut Shared, threshold| {
        shared.world.devices[1].modify_srq(shared.srq, None, Some(threshold)).unwrap();
    };
    // It is empty: told at once, each time.
    arm(&mut shared, 1);
    arm(&mut shared, 4);
    shared.world.run();
    assert_eq!(shared.lows(), 2);
    shared.receive(0).unwrap();
    arm(&mut shared, 1);
    arm(&mut shared, 0);
    assert_eq!(consume(&mut shared, 1), 0, "disarmed");
}

#[test]
fn a_depth_is_kept_and_changed() {
    let mut shared = Shared::new(0);
    for id in 0..4 {
        shared.receive(id).unwrap();
    }
    assert_eq!(shared.receive(4), Err(PostError::QueueFull));
    let device = &mut shared.world.devices[1];
    assert_eq!(device.modify_srq(shared.srq, Some(3), Some(9)), Err(SrqError::Outstanding));
    device.modify_srq(shared.srq, Some(4), None).unwrap();
    device.modify_srq(shared.srq, Some(5), None).unwrap();
    shared.receive(4).unwrap();
    assert_eq!(shared.receive(5), Err(PostError::QueueFull));
    shared.send(0, 1, 1);
    shared.world.run();
    assert_eq!(shared.lows(), 0, "a change that was refused armed nothing");
}

/// Receives that were posted count before their doorbell, too.
#[test]
fn a_depth_below_what_was_posted_is_refused() {
    let mut shared = Shared::new(0);
    let (srq, device) = (shared.srq, &mut shared.world.devices[1]);
    let mut poster = device.take_srq_poster(srq).unwrap();
    (0..3).for_each(|id| poster.post(RecvWr { id, sgl: SgList::new() }).unwrap());
    assert_eq!(device.modify_srq(srq, Some(2), None), Err(SrqError::Outstanding));
    device.modify_srq(srq, Some(3), None).unwrap();
}

/// A queue that became deeper has another ring. The receives of the one before come first, up to its last post.
#[test]
fn a_deeper_ring_comes_after_the_one_before() {
    let mut shared = Shared::new(0);
    let (srq, device) = (shared.srq, &mut shared.world.devices[1]);
    let wr = |id| RecvWr { id, sgl: SgList::new() };
    let mut before = device.take_srq_poster(srq).unwrap();
    assert_eq!(device.post_srq_recv(srq, wr(9)), Err(PostError::PosterTaken));
    before.post(wr(0)).unwrap();
    device.modify_srq(srq, Some(3), None).unwrap();
    assert!(device.take_srq_poster(srq).is_none(), "the ring is deep enough");
    device.modify_srq(srq, Some(5), None).unwrap();
    let mut after = device.take_srq_poster(srq).unwrap();
    before.post(wr(1)).unwrap();
    device.ring_srq_doorbell(srq);
    before.post(wr(2)).unwrap();
    after.post(wr(3)).unwrap();
    device.ring_srq_doorbell(srq);
    assert_eq!(
        device.srq_posted(srq),
        Some(3),
        "nobody knows whether that is all of the ring before"
    );
    drop(before);
    device.ring_srq_doorbell(srq);
    for id in 0..4 {
        shared.send(id as usize % 2, id, 0);
        shared.world.run();
    }
    assert_eq!(shared.received().iter().map(|done| done.1).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(shared.world.devices[1].srq_posted(srq), Some(4));
}

#[test]
fn a_shared_queue_goes_after_its_queue_pairs_and_gives_its_receives_back() {
    let mut shared = Shared::new(1);
    shared.receive(0).unwrap();
    shared.receive(1).unwrap();
    let Shared { mut world, srq, servers, .. } = shared;
    let device = &mut world.devices[1];
    let own = RecvWr { id: 5, sgl: SgList::new() };
    assert_eq!(device.post_recv(servers[0], own.clone()), Err(PostError::SharedReceives));
    for server in servers {
        assert_eq!(device.destroy_srq(srq), Err(SrqError::InUse));
        device.destroy_qp(server);
    }
    device.destroy_srq(srq).unwrap();
    let config = SrqConfig { owner: OWNER + 1, pd: PD, depth: 1, max_sge: 16, threshold: 0 };
    let next = device.create_srq(config);
    assert_eq!(device.destroy_srq(srq), Err(SrqError::Unknown), "its place is another's now");
    assert_eq!(device.post_srq_recv(srq, own), Err(PostError::UnknownSrq));
    device.destroy_srq(next).unwrap();
    world.deliver(1);
    let flushed = WcStatus::Flushed;
    let done: Vec<_> =
        world.done[1].iter().map(|done| (done.owner, done.id, done.status)).collect();
    assert_eq!(done, [(Owner::Srq(OWNER), 0, flushed), (Owner::Srq(OWNER), 1, flushed)]);
}

/// The keys in a shared receive are those of the queue's domain, whichever queue pair takes it.
#[test]
fn a_shared_receive_is_checked_in_the_domain_of_its_queue() {
    for (pd, status) in [(PD, OK), (PdId(2), WcStatus::LocalProtection)] {
        let mut world = World::new(false);
        let srq = world.devices[1].create_srq(SrqConfig {
            owner: 0,
            pd,
            depth: 1,
            max_sge: 16,
            threshold: 0,
        });
        let config = QpConfig {
            owner: 1,
            pd: PdId(3),
            send_depth: 1,
            send_sge: 16,
            recv_depth: 0,
            recv_sge: 16,
            srq: Some(srq),
        };
        let server = world.devices[1].create_qp(&config).unwrap();
        let client = world.qp(0);
        world.listen(false);
        let active = world.connect(false, client);
        world.accept(server, active);
        let sgl = world.sgl(1, 0, 100);
        world.devices[1].post_srq_recv(srq, RecvWr { id: 1, sgl }).unwrap();
        world.post(client, 1, SendOp::Send, 100);
        world.run();
        assert_eq!(world.statuses(1), [(1, status)]);
    }
}
