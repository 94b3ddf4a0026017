//! The responses of a queue pair: order, duplicates, receives.

use super::*;

#[test]
fn seq_05_to_07_one_nak_per_gap() {
    let mut pair = Pair::new(100_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 10 * 1024);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    pair.wires[1].remove(2);
    pair.deliver(1);
    assert!(!pair.transmit(1), "the packet may only be late");
    pair.wait(1);
    pair.transmit(1);
    let naks = pair.sent[1].iter().filter(|(opcode, _)| *opcode == Opcode::Acknowledge).count();
    assert_eq!((naks, pair.sent[1][0].1), (1, pair.sent[0][2].1));
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(pair.sent[0].len(), 11, "what came after the gap was kept");
}

#[test]
fn reordering_within_a_burst_costs_nothing() {
    let mut pair = Pair::new(100_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 2 * 1024);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    // The second comes first, then both in order: the NAK is obsolete before it leaves.
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
fn seq_01_to_04_messages_complete_once_and_are_acknowledged() {
    let mut pair = ready(20);
    pair.ask(0, Opcode::SendOnly, Ext::None, 10).unwrap();
    assert_eq!(pair.acks(), [(ACK, 0, 1)]);
    for (at, opcode) in [Opcode::SendFirst, Opcode::SendMiddle].into_iter().enumerate() {
        pair.ask(at as i32 + 1, opcode, Ext::None, P).unwrap();
    }
    pair.ask(3, Opcode::SendLast, Ext::None, 1).unwrap();
    assert_eq!(pair.acks(), [(ACK, 3, 2)]);
    for at in 4..14 {
        pair.ask(at, Opcode::SendOnly, Ext::None, 0).unwrap();
    }
    // One acknowledgement for the burst.
    assert_eq!(pair.acks(), [(ACK, 13, 12)]);
    let lens: Vec<u32> = pair.nodes[1].done.iter().map(|done| done.len).collect();
    assert_eq!(lens[..3], [10, 2049, 0]);
    assert_eq!(lens.len(), 12);
}

#[test]
fn seq_06_to_07_and_dup_05_a_gap_stays_until_it_is_filled() {
    let mut pair = ready(20);
    let send = |pair: &mut Pair, at| pair.ask(at, Opcode::SendOnly, Ext::None, 1);
    assert_eq!(send(&mut pair, 0), Ok(()));
    pair.acks();
    // Buffered, and not executed.
    assert_eq!(send(&mut pair, 2), Ok(()));
    assert_eq!(pair.acks(), []);
    let until = pair.held_until();
    pair.wait(1);
    assert_eq!(pair.acks(), [(GAP, 1, 1)]);
    for (at, result) in [(3, Ok(())), (5, Ok(())), (2, Err(DropReason::Duplicate))] {
        assert_eq!(send(&mut pair, at), result);
        assert_eq!(pair.acks(), []);
    }
    assert_eq!(pair.nodes[1].qp.deadline(), until);
    // A duplicate is acknowledged and changes nothing.
    assert_eq!(send(&mut pair, 0), Ok(()));
    assert_eq!(pair.acks(), [(ACK, 0, 1)]);
    assert_eq!(pair.nodes[1].done.len(), 1);
    // The buffered packets are executed with the missing one. A peer that goes back N gets time to close
    // the next gap, too.
    assert_eq!(send(&mut pair, 1), Ok(()));
    assert_eq!(pair.acks(), [(ACK, 3, 4)]);
    assert_eq!(pair.nodes[1].done.len(), 4);
    pair.wait(1);
    assert_eq!(pair.acks(), [(GAP, 4, 4)]);
    assert_eq!(send(&mut pair, 4), Ok(()));
    assert_eq!(pair.acks(), [(ACK, 5, 6)]);
}

#[test]
fn seq_07_the_next_gap_is_named_as_soon_as_one_is_closed() {
    let mut pair = ready(20);
    for at in [1, 2, 4] {
        pair.ask(at, Opcode::SendOnly, Ext::None, 1).unwrap();
    }
    pair.wait(1);
    assert_eq!(pair.acks(), [(GAP, 0, 0)]);
    pair.ask(0, Opcode::SendOnly, Ext::None, 1).unwrap();
    assert_eq!(pair.acks(), [(GAP, 3, 3)]);
}

#[test]
fn a_gap_with_many_packets_behind_it_is_a_loss() {
    let mut pair = ready(0);
    for at in 1..=65 {
        assert_eq!(pair.acks(), [], "{at}");
        pair.ask(at, Opcode::SendOnly, Ext::None, 1).unwrap();
    }
    assert_eq!(pair.acks(), [(GAP, 0, 0)]);
}

#[test]
fn duplicates_of_nakked_packets_widen_the_reorder_window() {
    let mut pair = ready(60);
    let mut waits = Vec::new();
    for at in (0..8).step_by(2) {
        pair.ask(at + 1, Opcode::SendOnly, Ext::None, 1).unwrap();
        let start = pair.now;
        pair.wait(1);
        waits.push(pair.now.saturating_since(start).as_micros());
        for _ in 0..2 {
            pair.ask(at, Opcode::SendOnly, Ext::None, 1).unwrap();
        }
        pair.acks();
    }
    assert_eq!(waits, [100, 200, 400, 800]);
}

/// Buffered packets are checked in their turn: order, keys, length; and a READ gets its response then.
#[test]
fn buffered_packets_are_checked_in_their_turn() {
    let mut pair = ready(1);
    let bad = Ext::Reth(Reth { va: BASE, rkey: Rkey::new(1), len: 8 });
    pair.ask(1, Opcode::WriteOnly, bad, 8).unwrap();
    assert_eq!(pair.nodes[1].qp.state(), QpState::Rts);
    pair.ask(0, Opcode::SendOnly, Ext::None, 4).unwrap();
    assert_eq!(pair.nodes[1].done[0].status, WcStatus::Success);
    refused(pair, ACCESS, 1, 1, 1, "a bad key that was held");

    let mut pair = ready(0);
    let key = pair.nodes[1].key;
    pair.ask(1, Opcode::ReadRequest, read(key, 0, 2048), 0).unwrap();
    pair.ask(3, Opcode::WriteOnly, write(&pair, 9000, 4), 4).unwrap();
    pair.ask(0, Opcode::WriteOnly, write(&pair, 8000, 4), 4).unwrap();
    let answers: Vec<_> = pair.taken(1).iter().map(|taken| (taken.opcode, taken.at)).collect();
    let (first, last) = (Opcode::ReadResponseFirst, Opcode::ReadResponseLast);
    assert_eq!(answers, [(first, 1), (last, 2), (Opcode::Acknowledge, 3)]);

    // A peer may send no request inside the PSNs of a READ.
    let mut pair = ready(4);
    pair.ask(1, Opcode::SendOnly, Ext::None, 1).unwrap();
    pair.ask(0, Opcode::ReadRequest, read(pair.nodes[1].key, 0, 2048), 0).unwrap();
    assert!(pair.nodes[1].done.is_empty() && pair.nodes[1].qp.deadline().is_none());
}

#[test]
fn rnr_03_a_buffered_packet_waits_for_its_receive() {
    let rnr = Syndrome::RnrNak(RnrTimer::new(12));
    let mut pair = ready(1);
    for at in [1, 2, 0] {
        pair.ask(at, Opcode::SendOnly, Ext::None, 1).unwrap();
    }
    assert_eq!(pair.acks(), [(rnr, 1, 1)]);
    assert_eq!(pair.nodes[1].qp.deadline(), pair.held_until());
    for id in 1..3 {
        let sgl = pair.nodes[1].sge(10_000, 1);
        pair.nodes[1].recv(id, sgl);
    }
    pair.ask(1, Opcode::SendOnly, Ext::None, 1).unwrap();
    assert_eq!(pair.acks(), [(ACK, 2, 3)]);
}

/// Each packet finds a place that is far from the next, in every order.
#[test]
fn packets_ahead_alone_cost_bounded_memory() {
    let mut pair = ready(0);
    for at in (1..5000).rev() {
        let result = pair.ask(at, Opcode::SendOnly, Ext::None, P);
        assert_eq!(result, if at < 512 { Ok(()) } else { Err(DropReason::Gap) }, "{at}");
    }
    // Longer than any packet may be: not worth a place.
    assert_eq!(pair.ask(3, Opcode::SendOnly, Ext::None, P + 4), Err(DropReason::Gap));
    assert_eq!(pair.acks(), [(GAP, 0, 0)]);
}

/// Goal: what a gap holds comes back when the missing packet has not come for as long as its peer may try, though others come
/// all the time; with progress the time begins anew.
#[test]
fn a_gap_that_does_not_move_holds_nothing_for_ever() {
    let mut pair = ready(20);
    let send = |pair: &mut Pair, at| pair.ask(at, Opcode::SendOnly, Ext::None, 1);
    let held = |pair: &Pair| pair.nodes[1].reorder_pool.taken();
    let pass = |pair: &mut Pair, time: Duration| {
        pair.now = pair.now + time;
        let Node { qp, reorder_pool, out, .. } = &mut pair.nodes[1];
        qp.handle_timeout(pair.now, reorder_pool, out);
    };
    let all = code_duration(14) * 8;
    for at in [2, 4, 6] {
        send(&mut pair, at).unwrap();
    }
    pass(&mut pair, all - Duration::from_nanos(1));
    assert_eq!((send(&mut pair, 0), held(&pair)), (Ok(()), 3));
    assert_eq!((send(&mut pair, 1), held(&pair)), (Ok(()), 2), "progress");
    for at in 7..17 {
        pass(&mut pair, all / 10);
        send(&mut pair, at).unwrap();
    }
    pass(&mut pair, all / 10);
    assert_eq!(held(&pair), 0, "3 has not come");
    assert!(pair.nodes[1].qp.deadline().is_none(), "and nothing waits for it any more");
    pair.acks();
    for at in 3..17 {
        assert_eq!(send(&mut pair, at), Ok(()));
    }
    assert_eq!((pair.acks(), pair.nodes[1].done.len()), (vec![(ACK, 16, 17)], 17));
}

#[test]
fn seq_08_the_window_turns_around_at_half_the_space() {
    let mut pair = ready(1);
    assert_eq!(pair.ask(1 << 23, Opcode::SendOnly, Ext::None, 1), Ok(()));
    assert_eq!(pair.acks(), [(ACK, -1, 0)]);
    assert_eq!(pair.ask((1 << 23) - 1, Opcode::SendOnly, Ext::None, 1), Err(DropReason::Gap));
    assert_eq!(pair.acks(), [(GAP, 0, 0)]);
    assert!(pair.nodes[1].done.is_empty());
}

#[test]
fn seq_09_psns_go_on_at_zero() {
    // The first PSN of node 0 is 2000 above that of the settings.
    let psn = Psn::new(0xff_ffff - 2000);
    let mut pair = Pair::new(10_000, Settings { psn, ..CLEAN });
    for at in 0..3 {
        let sgl = pair.nodes[1].sge(0, 8);
        pair.nodes[1].recv(at, sgl);
        pair.ask(at as i32, Opcode::SendOnly, Ext::None, 8).unwrap();
        let [ack] = &pair.taken(1)[..] else { panic!("one acknowledgement") };
        assert_eq!(ack.bth.psn.get(), [0xff_ffff, 0, 1][at as usize]);
    }
    let ok = WcStatus::Success;
    assert_eq!(pair.nodes[1].statuses(), [(0, ok), (1, ok), (2, ok)]);
}

#[test]
fn seq_10_to_12_a_packet_out_of_its_message_is_refused() {
    use Opcode::*;
    let kinds = |pair: &Pair| {
        let reth = write(pair, 0, 3 * P);
        let short = write(pair, 0, 8);
        [
            (SendFirst, Ext::None, P),
            (SendMiddle, Ext::None, P),
            (SendLast, Ext::None, 8),
            (SendLastImm, Ext::Imm(1), 8),
            (SendLastInv, Ext::Ieth(Rkey::new(1)), 8),
            (SendOnly, Ext::None, 8),
            (WriteFirst, reth, P),
            (WriteMiddle, Ext::None, P),
            (WriteLast, Ext::None, 8),
            (WriteLastImm, Ext::Imm(1), 8),
            (WriteOnly, short, 8),
            (ReadRequest, short, 0),
        ]
    };
    for (opcode, ext, len) in kinds(&ready(0)) {
        if opcode.place().is_first() || opcode == ReadRequest {
            continue;
        }
        let mut pair = ready(2);
        pair.ask(0, opcode, ext, len).unwrap();
        refused(pair, INVALID, 0, 0, 2, &std::format!("{opcode:?} alone"));
    }
    for open in [SendFirst, WriteFirst] {
        let fits: &[Opcode] = match open {
            SendFirst => &[SendMiddle, SendLast, SendLastImm, SendLastInv],
            _ => &[WriteMiddle, WriteLast, WriteLastImm],
        };
        for (opcode, ext, len) in kinds(&ready(0)) {
            if fits.contains(&opcode) {
                continue;
            }
            let mut pair = ready(2);
            let ext_of_first = if open == WriteFirst { write(&pair, 0, 3 * P) } else { Ext::None };
            pair.ask(0, open, ext_of_first, P).unwrap();
            pair.taken(1);
            pair.ask(1, opcode, ext, len).unwrap();
            refused(pair, INVALID, 1, 0, 2, &std::format!("{opcode:?} after {open:?}"));
        }
    }
}

#[test]
fn seq_13_to_16_packets_have_the_length_of_their_place() {
    use Opcode::*;
    for (open, opcode, len) in [
        (false, SendFirst, P - 4),
        (false, SendFirst, P + 4),
        (false, SendFirst, P - 1),
        (false, SendOnly, P + 1),
        (true, SendMiddle, P - 4),
        (true, SendLast, 0),
        (true, SendLast, P + 1),
    ] {
        let mut pair = ready(2);
        if open {
            pair.ask(0, SendFirst, Ext::None, P).unwrap();
            pair.taken(1);
        }
        let at = i32::from(open);
        pair.ask(at, opcode, Ext::None, len).unwrap();
        refused(pair, INVALID, at, 0, 2, &std::format!("{opcode:?} of {len}"));
    }
}

#[test]
fn seq_18_every_short_length_is_placed_exactly() {
    for len in (0..=8).chain(P - 3..=P) {
        let mut pair = ready(1);
        let before = pair.nodes[1].memory.0[0].clone();
        pair.ask(0, Opcode::SendOnly, Ext::None, len).unwrap();
        assert_eq!(pair.nodes[1].done[0].len, len as u32);
        let mut after = before;
        after[10_000..10_000 + len].fill(0x5a);
        assert!(pair.nodes[1].memory.0[0] == after, "{len}");
    }
}

#[test]
fn seq_20_a_message_fills_its_elements_in_order() {
    let mut pair = ready(0);
    let mut sgl = pair.nodes[1].sge(30, 7);
    for (offset, len) in [(3, 13), (100, 2981)] {
        sgl.push(pair.nodes[1].sge(offset, len)[0]).unwrap();
    }
    pair.nodes[1].recv(1, sgl);
    let sent = pair.nodes[0].sge(0, 3001);
    pair.nodes[0].send(1, SendOp::Send, sent);
    pair.run_all();
    let [from, to] = [0, 1].map(|node| pair.nodes[node].memory.0[0].clone());
    assert!(to[30..37] == from[..7] && to[3..16] == from[7..20] && to[100..3081] == from[20..3001]);
}

#[test]
fn seq_21_to_23_only_the_end_of_a_message_is_solicited() {
    let mut pair = ready(3);
    pair.ask(0, Opcode::SendOnlyImm, Ext::Imm(7), 4).unwrap();
    assert!(pair.nodes[1].done[0].solicited);
    // Every packet made by hand has the bit; here the last one clears it.
    pair.ask(1, Opcode::SendFirst, Ext::None, P).unwrap();
    let psn = pair.psn(0, 2);
    let mut bth = Bth::new(Opcode::SendLast, Qpn::new(3), psn);
    bth.solicited = false;
    let encap = pair.nodes[0].qp.peer().unwrap().encap;
    let packet = Packet { encap, bth, ext: Ext::None, payload: &[1] };
    let (qp, mut shared) = pair.nodes[1].parts();
    qp.handle_packet(pair.now, &packet, None, &mut shared).unwrap();
    pair.nodes[1].collect();
    assert!(!pair.nodes[1].done[1].solicited);
}

#[test]
fn dup_01_to_06_and_12_a_duplicate_is_acknowledged_and_not_executed() {
    let mut pair = ready(2);
    pair.ask(0, Opcode::SendFirst, Ext::None, P).unwrap();
    pair.ask(1, Opcode::SendMiddle, Ext::None, P).unwrap();
    pair.ask(2, Opcode::SendLast, Ext::None, 1).unwrap();
    pair.acks();
    pair.ask(0, Opcode::SendFirst, Ext::None, P).unwrap();
    assert_eq!(pair.acks(), [(ACK, 2, 1)]);
    // The last opcode is unchanged: the next message is fine.
    pair.ask(3, Opcode::SendOnly, Ext::None, 5).unwrap();
    assert_eq!(pair.acks(), [(ACK, 3, 2)]);
    // A bad key or length is not checked, nor is the empty receive queue.
    let bad = Ext::Reth(Reth { va: 0, rkey: Rkey::new(1), len: 77 });
    for (opcode, ext, len) in [
        (Opcode::WriteOnly, bad, 3),
        (Opcode::SendOnly, Ext::None, 1),
        (Opcode::SendMiddle, Ext::None, 3),
    ] {
        pair.ask(2, opcode, ext, len).unwrap();
        assert_eq!(pair.acks(), [(ACK, 3, 2)]);
    }
    for _ in 0..1000 {
        pair.ask(3, Opcode::SendOnly, Ext::None, 5).unwrap();
    }
    assert_eq!(pair.acks(), [(ACK, 3, 2)]);
    assert_eq!(pair.nodes[1].done.len(), 2);
}

#[test]
fn rnr_01_to_05_a_message_without_a_receive_waits_and_the_rest_is_silent() {
    let rnr = Syndrome::RnrNak(RnrTimer::new(12));
    let mut pair = ready(0);
    pair.ask(0, Opcode::SendFirst, Ext::None, P).unwrap();
    assert_eq!(pair.acks(), [(rnr, 0, 0)]);
    pair.ask(1, Opcode::SendMiddle, Ext::None, P).unwrap();
    pair.ask(2, Opcode::SendLast, Ext::None, 1).unwrap();
    assert_eq!(pair.acks(), []);
    assert_eq!(pair.nodes[1].qp.deadline(), pair.held_until());
    let mut pair = ready(0);
    pair.ask(0, Opcode::WriteFirst, write(&pair, 0, P + 1), P).unwrap();
    pair.ask(1, Opcode::WriteLastImm, Ext::Imm(1), 1).unwrap();
    assert_eq!(pair.acks(), [(rnr, 1, 0)]);
    assert!(pair.nodes[1].memory.0[0][..P].iter().all(|byte| *byte == 0x5a));
    let sgl = pair.nodes[1].sge(10_000, 0);
    pair.nodes[1].recv(1, sgl);
    pair.ask(1, Opcode::WriteLastImm, Ext::Imm(1), 1).unwrap();
    assert_eq!(pair.acks(), [(ACK, 1, 1)]);
    assert_eq!(pair.nodes[1].statuses(), [(1, WcStatus::Success)]);
}

/// C9-148: the MSN counts modulo 2^24, for ACKs and READs alike.
#[test]
fn the_msn_wraps() {
    let mut pair = Pair::new(100_000, Settings { msn: Msn::new(0xff_fffe), ..CLEAN });
    for (at, msn) in [(0, 0xff_ffff), (1, 0), (2, 1)] {
        pair.ask(at, Opcode::WriteOnly, write(&pair, 0, 8), 8).unwrap();
        assert_eq!(pair.acks(), [(ACK, at, msn)]);
    }
}

/// SEQ: a NAK that has not left when its gap closes is obsolete.
#[test]
fn a_nak_whose_gap_has_closed_does_not_leave() {
    let mut pair = ready(4);
    pair.ask(1, Opcode::SendOnly, Ext::None, 8).unwrap();
    pair.wait(1);
    pair.ask(0, Opcode::SendOnly, Ext::None, 8).unwrap();
    assert_eq!(pair.acks(), [(ACK, 1, 2)]);
    // Nor where no packet behind the gap could be buffered.
    let mut pair = ready(4);
    assert_eq!(pair.ask(100_000, Opcode::SendOnly, Ext::None, 8), Err(DropReason::Gap));
    pair.ask(0, Opcode::SendOnly, Ext::None, 8).unwrap();
    assert_eq!(pair.acks(), [(ACK, 0, 1)]);
}

/// A peer that goes on has heard the ACK that its duplicate asked for.
#[test]
fn a_new_request_ends_unsolicited_acks() {
    let mut pair = ready(2);
    for _ in 0..2 {
        pair.ask(0, Opcode::SendOnly, Ext::None, 1).unwrap();
    }
    assert_eq!(pair.acks(), [(ACK, 0, 1)]);
    assert!(pair.nodes[1].qp.deadline().is_some());
    pair.ask(1, Opcode::SendOnly, Ext::None, 1).unwrap();
    assert_eq!(pair.acks(), [(ACK, 1, 2)]);
    assert_eq!(pair.nodes[1].qp.deadline(), None);
}
