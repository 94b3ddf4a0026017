//! What a queue pair answers.

use super::*;
use crate::wire::{NakCode, Reth};

#[test]
fn seq_05_to_07_one_nak_per_gap() {
    let mut pair = Pair::new(100_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 10 * 1024);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    pair.wires[1].remove(2);
    pair.deliver(1);
    pair.transmit(1);
    let naks = pair.sent[1].iter().filter(|(opcode, _)| *opcode == Opcode::Acknowledge).count();
    assert_eq!((naks, pair.sent[1][0].1), (1, pair.sent[0][2].1));
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn reordering_within_a_burst_costs_nothing() {
    let mut pair = Pair::new(100_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 2 * 1024);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    // The second comes first, then both in order: the NAK is out of date before it leaves.
    let second = pair.wires[1][1].clone();
    pair.wires[1].push_front(second);
    pair.run_all();
    assert_eq!(pair.sent[0].len(), 2);
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn dup_02_a_duplicate_write_is_acknowledged_and_not_executed() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 64);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    let frame = pair.wires[1][0].clone();
    pair.run_all();
    pair.nodes[1].memory.0[0][0] = 0xee;
    pair.give(1, &frame);
    assert_eq!(pair.nodes[1].memory.0[0][0], 0xee);
    let before = pair.sent[1].len();
    assert!(pair.transmit(1));
    assert_eq!(pair.sent[1][before..], [(Opcode::Acknowledge, pair.sent[0][0].1)]);
}

#[test]
fn rnr_01_a_send_waits_for_its_receive() {
    let mut pair = Pair::new(10_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, 3000);
    pair.nodes[0].send(1, SendOp::Send, sgl);
    pair.run(Duration::from_millis(50));
    assert!(pair.nodes[0].done.is_empty());
    assert_eq!(pair.nodes[1].qp.state(), QpState::Rts);
    let sgl = pair.nodes[1].sge(5000, 3000);
    pair.nodes[1].recv(7, sgl);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(pair.nodes[1].statuses(), [(7, WcStatus::Success)]);
}

#[test]
fn seq_19_a_receive_that_is_too_short_is_never_overrun() {
    for len in [101, 5000] {
        let mut pair = Pair::new(20_000, CLEAN);
        let before = pair.nodes[1].memory.0[0].clone();
        let sgl = pair.nodes[0].sge(0, len);
        pair.nodes[0].send(1, SendOp::Send, sgl);
        let sgl = pair.nodes[1].sge(10_000, 100);
        pair.nodes[1].recv(2, sgl);
        pair.run_all();
        assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::RemoteInvalidRequest)]);
        assert_eq!(pair.nodes[1].statuses(), [(2, WcStatus::LocalLength)]);
        assert!(pair.nodes[1].memory.0[0] == before);
    }
}

#[test]
fn rd_09_without_depth_a_read_is_refused() {
    let mut pair = Pair::new(10_000, CLEAN);
    pair.nodes[1] = Node::new(3, 10_000, MrKind::Registered);
    pair.nodes[1].connect(3, 2, Settings { reads: 0, ..CLEAN });
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 10);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::RemoteInvalidRequest)]);
    let sgl = pair.nodes[1].sge(0, 10);
    let mut other = Pair::new(10_000, Settings { reads: 0, ..CLEAN });
    other.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl);
    other.run_all();
    assert_eq!(other.nodes[0].statuses(), [(1, WcStatus::LocalQpOperation)]);
}

#[test]
fn key_09_and_12_a_send_invalidates_after_its_data() {
    for len in [10, 3000] {
        let mut pair = Pair::with_kind(10_000, CLEAN, MrKind::FastRegister);
        let rkey = pair.nodes[1].key;
        let sgl = pair.nodes[1].sge(4000, len);
        pair.nodes[1].recv(5, sgl);
        let sgl = pair.nodes[0].sge(0, len);
        pair.nodes[0].send(1, SendOp::SendInvalidate(rkey), sgl.clone());
        pair.run_all();
        assert_eq!(pair.nodes[1].done[0].kind, WcKind::ReceiveInvalidate(rkey));
        assert!(pair.nodes[1].memory.0[0][4000..4000 + len] == pair.nodes[0].memory.0[0][..len]);
        pair.nodes[0].send(2, SendOp::Write { va: BASE, rkey }, sgl);
        pair.run_all();
        assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::RemoteAccess)]);
    }
}

#[test]
fn rd_11_a_region_that_goes_away_ends_its_read() {
    let mut pair = Pair::new(300_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 200_000);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl);
    pair.transmit(0);
    pair.deliver(1);
    pair.nodes[1].mrs.deregister(rkey).unwrap();
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::RemoteAccess)]);
}

fn read(key: Rkey, offset: u64, len: u32) -> Ext {
    Ext::Reth(Reth { va: BASE + offset, rkey: key, len })
}

#[test]
fn rd_11_answers_before_a_revoked_one_still_leave() {
    let mut pair = Pair::new(10_000, Settings { segments: 16, ..CLEAN });
    let good = pair.nodes[1].key;
    let access = Access::REMOTE_READ;
    let (len, kind) = (10_000, MrKind::Registered);
    let registration = Registration { pd: PD, region: RegionId(0), base: BASE, len, access, kind };
    let doomed = pair.nodes[1].mrs.register(registration).unwrap();
    pair.ask(0, Opcode::ReadRequest, read(good, 0, 64), 0).unwrap();
    pair.ask(1, Opcode::ReadRequest, read(doomed, 0, 64), 0).unwrap();
    pair.nodes[1].mrs.deregister(doomed).unwrap();
    let sent: Vec<_> = pair.taken(1).iter().map(|taken| (taken.opcode, taken.at)).collect();
    assert_eq!(sent, [(Opcode::ReadResponseOnly, 0), (Opcode::Acknowledge, 1)]);
}

#[test]
fn rd_08_repeated_requests_do_not_use_up_the_depth() {
    let mut pair = Pair::new(10_000, Settings { reads: 16, ..CLEAN });
    let key = pair.nodes[1].key;
    for at in 0..16 {
        pair.ask(at, Opcode::ReadRequest, read(key, 0, 8), 0).unwrap();
    }
    assert_eq!(pair.taken(1).len(), 16);
    // Stray duplicates of requests long answered, and then a full depth of new ones.
    for at in 0..5 {
        pair.ask(at, Opcode::ReadRequest, read(key, 0, 8), 0).unwrap();
    }
    for at in 16..32 {
        pair.ask(at, Opcode::ReadRequest, read(key, 0, 8), 0).unwrap();
    }
    let sent: Vec<i32> = pair.taken(1).iter().map(|taken| taken.at).collect();
    assert!(sent.ends_with(&Vec::from_iter(16..32)), "{sent:?}");
    assert_eq!(pair.nodes[1].qp.state(), QpState::Rts);
}

#[test]
fn err_05_a_failure_of_our_own_ends_our_answers_too() {
    let mut pair = Pair::new(10_000, CLEAN);
    let key = pair.nodes[1].key;
    let sgl = pair.nodes[1].sge(0, 8);
    pair.nodes[1].send(1, SendOp::Send, sgl);
    pair.taken(1);
    pair.ask(0, Opcode::ReadRequest, read(key, 0, 3000), 0).unwrap();
    let psn = pair.psn(1, 0);
    let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
    let ext = Ext::Aeth(Aeth { syndrome, msn: crate::psn::Msn::new(0) });
    pair.hand(1, (Opcode::Acknowledge, psn), ext, &[]).unwrap();
    assert_eq!(pair.nodes[1].qp.state(), QpState::Err);
    assert_eq!(pair.taken(1).len(), 0);
}
