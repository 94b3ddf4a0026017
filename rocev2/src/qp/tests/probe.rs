//! The probe: is the peer still there?

use super::*;

/// Node 0 sends a probe. Returns whether node 1 has responded in a second.
fn answered(pair: &mut Pair) -> bool {
    assert!(pair.nodes[0].qp.probe());
    pair.run(Duration::from_secs(1));
    pair.nodes[0].qp.take_probe_answer()
}

/// C9-105: to the responder a probe is a duplicate, or before the first PSN, so it changes nothing there;
/// nor does its ACK here.
#[test]
fn a_probe_is_answered_and_changes_nothing() {
    let mut pair = Pair::new(10_000, CLEAN);
    for round in 0..3 {
        assert!(answered(&mut pair) && !pair.nodes[0].qp.take_probe_answer());
        assert_eq!(pair.sent[0].pop(), Some((Opcode::WriteOnly, pair.psn(0, round - 1).get())));
        assert_eq!(
            (pair.nodes[0].done.len(), pair.nodes[1].done.len()),
            (round as usize, round as usize)
        );
        let (send, recv) = (pair.nodes[0].sge(0, 8), pair.nodes[1].sge(0, 8));
        pair.nodes[1].recv(7, recv);
        pair.nodes[0].send(7, SendOp::Send, send);
        pair.run_all();
        assert_eq!(pair.sent[0].pop(), Some((Opcode::SendOnly, pair.psn(0, round).get())));
    }
    assert!(pair.nodes.iter().all(|node| node.statuses() == [(7, WcStatus::Success); 3]));
}

/// A probe with READs and WRITEs in flight, and in the pause after RNR NAK, causes no resend.
#[test]
fn a_probe_does_not_disturb_what_is_in_flight() {
    let mut pair = Pair::new(100_000, CLEAN);
    let rkey = pair.nodes[1].key;
    for (id, op) in [SendOp::Read { va: BASE, rkey }, SendOp::Write { va: BASE + 50_000, rkey }]
        .into_iter()
        .enumerate()
    {
        let sgl = pair.nodes[0].sge(0, 20_000);
        pair.nodes[0].send(id as u64, op, sgl);
    }
    pair.transmit(0);
    assert!(answered(&mut pair));
    assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::Success), (1, WcStatus::Success)]);
    assert_eq!(pair.sent[0].len(), 1 + 20 + 1, "a READ, a WRITE and the probe");
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(2, SendOp::Send, sgl);
    pair.transmit(0);
    pair.deliver(1);
    pair.transmit(1);
    pair.deliver(0);
    assert!(pair.nodes[0].qp.probe());
    pair.transmit(0);
    pair.deliver(1);
    pair.transmit(1);
    pair.deliver(0);
    assert!(pair.nodes[0].qp.take_probe_answer());
}

#[test]
fn a_queue_pair_that_is_gone_does_not_answer() {
    let mut pair = Pair::new(10_000, CLEAN);
    let Node { qp, out, .. } = &mut pair.nodes[1];
    qp.flush(out);
    assert!(!answered(&mut pair));
    let Node { qp, out, .. } = &mut pair.nodes[0];
    qp.flush(out);
    assert!(!qp.probe());
}

/// A response about any other packet, a request and a CNP show nothing: any host could send them.
#[test]
fn only_the_peer_knows_the_answer() {
    let mut pair = Pair::new(10_000, CLEAN);
    let ack = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: crate::psn::Msn::new(0) });
    assert!(pair.nodes[0].qp.probe());
    pair.transmit(0);
    for at in [-3, -2, 0, 1, 1000, 1 << 22] {
        let psn = pair.psn(0, at);
        let _ = pair.hand(0, (Opcode::Acknowledge, psn), ack, &[]);
    }
    let (expected, before) = (pair.psn(1, 0), pair.psn(0, -1));
    let _ = pair.hand(0, (Opcode::SendOnly, expected), Ext::None, &[1]);
    let _ = pair.hand(0, (Opcode::SendOnly, before), Ext::None, &[1]);
    let _ = pair.hand(0, (Opcode::Cnp, before), Ext::Cnp, &[]);
    let _ = pair.hand(0, (Opcode::ReadResponseOnly, before), ack, &[1]);
    assert!(!pair.nodes[0].qp.take_probe_answer());
    assert_eq!(pair.hand(0, (Opcode::Acknowledge, before), ack, &[]), Ok(()));
    assert!(pair.nodes[0].qp.take_probe_answer());
}

/// The ACK of a probe does not overtake the responses to the READs before it: it would be taken for the
/// proof that they are lost.
#[test]
fn the_answer_stands_behind_those_to_reads() {
    let mut pair = Pair::new(10_000, CLEAN);
    let key = pair.nodes[1].key;
    pair.ask(0, Opcode::ReadRequest, read(key, 0, 3 * P as u32), 0).unwrap();
    let nothing = Ext::Reth(Reth { va: 0, rkey: Rkey::new(0), len: 0 });
    pair.ask(-1, Opcode::WriteOnly, nothing, 0).unwrap();
    let taken = pair.taken(1);
    let opcodes: Vec<_> = taken.iter().map(|taken| taken.opcode).collect();
    let [first, middle, last] =
        [Opcode::ReadResponseFirst, Opcode::ReadResponseMiddle, Opcode::ReadResponseLast];
    assert_eq!(opcodes, [first, middle, last, Opcode::Acknowledge]);
    assert_eq!(taken[3].at, -1);
}

/// A response that was not requested is not late, however slowly the packets before its request leave. Where they stop, a
/// probe requests it.
#[test]
fn no_probe_precedes_what_requests_a_response() {
    let mut pair = Pair::new(200_000, CLEAN);
    let (rkey, mut buf) = (pair.nodes[1].key, [0; 65_000]);
    let post = |pair: &mut Pair, len: usize| {
        let sgl = pair.nodes[0].sge(0, len);
        pair.nodes[0].send(0, SendOp::Write { va: BASE, rkey }, sgl);
    };
    post(&mut pair, 8);
    pair.run_all();
    post(&mut pair, 100 * 1024);
    // The timer expires a dozen times meanwhile.
    for _ in 0..100 {
        assert!(pair.transmit_unit(0, &mut buf));
        pair.now = pair.now + Duration::from_micros(50);
        if pair.nodes[0].qp.deadline().is_some_and(|deadline| deadline <= pair.now) {
            pair.wait(0);
        }
    }
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::Success); 2]);
    assert_eq!(pair.sent[0].len(), 1 + 100, "packets, and no probe");
    post(&mut pair, 100 * 1024);
    (0..10).for_each(|_| assert!(pair.transmit_unit(0, &mut buf)));
    pair.wait(0);
    pair.wait(0);
    pair.transmit(0);
    let probes = pair.sent[0].iter().filter(|(opcode, _)| *opcode == Opcode::WriteOnly).count();
    assert_eq!(probes, 1 + 1, "the short WRITE, and a probe");
}

/// The answer to a probe does not tell how long the packet took whose ACK was lost: one message at a time, with every fourth ACK
/// lost, goes on as fast as at first.
#[test]
fn lost_acks_make_no_probe_later() {
    let mut pair = Pair::new(10_000, Settings { make: Make::Keeper, ..CLEAN });
    let rkey = pair.nodes[1].key;
    let cross = |pair: &mut Pair, from: usize| {
        pair.transmit(from);
        pair.now = pair.now + Duration::from_micros(10);
        pair.deliver(1 - from);
    };
    let mut waits = Vec::new();
    for round in 0..40 {
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(round, SendOp::Write { va: BASE, rkey }, sgl);
        cross(&mut pair, 0);
        if round % 4 == 3 {
            assert_eq!(pair.taken(1).len(), 1, "the ACK is lost");
            let before = pair.now;
            pair.wait(0);
            waits.push(pair.now.saturating_since(before));
            cross(&mut pair, 0);
        }
        cross(&mut pair, 1);
        assert_eq!(pair.nodes[0].statuses().last(), Some(&(round, WcStatus::Success)));
    }
    assert!(waits.iter().all(|wait| *wait <= waits[0]), "{waits:?}");
}
