//! The responses of a queue pair: WRITE, READ, keys.

use super::*;

/// The second node's QP.
const QPN: Qpn = Qpn::new(3);

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
    // A READ of ours is not even queued, and the queue pair works on.
    let mut other = Pair::new(10_000, Settings { reads: 0, ..CLEAN });
    for op in [SendOp::Read { va: BASE, rkey }, SendOp::ReadInvalidate { va: BASE, rkey }] {
        let sgl = sgl.clone();
        let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: false };
        assert_eq!(other.nodes[0].post(wr), Err(PostError::NoReads));
    }
    let rkey = other.nodes[1].key;
    let sgl = other.nodes[0].sge(0, 10);
    other.nodes[0].send(2, SendOp::Write { va: BASE, rkey }, sgl);
    other.run_all();
    assert_eq!(other.nodes[0].statuses(), [(2, WcStatus::Success)]);
}

/// An element of zero bytes names no memory: it is skipped, with any key and address.
#[test]
fn an_element_of_no_bytes_needs_no_key() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    pair.nodes[1].memory.0[0][..64].fill(7);
    let empty = Sge { addr: u64::MAX, len: 0, lkey: Lkey::new(0) };
    let list = |sgl: &SgList| SgList::from_slice(&[empty, sgl[0], empty]).unwrap();
    let [to, from] = [list(&pair.nodes[0].sge(100, 64)), list(&pair.nodes[1].sge(200, 64))];
    pair.nodes[1].recv(1, from);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, to.clone());
    pair.run_all();
    pair.nodes[0].send(2, SendOp::Send, to);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(pair.nodes[1].memory.0[0][200..264], [7; 64]);
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
    pair.nodes[1].registrar.deregister(rkey).unwrap();
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::RemoteAccess)]);
}

#[test]
fn rd_11_answers_before_a_revoked_one_still_leave() {
    let mut pair = Pair::new(10_000, Settings { segments: 16, ..CLEAN });
    let good = pair.nodes[1].key;
    let access = Access::REMOTE_READ;
    let len = 10_000;
    let registration = Registration { pd: PD, region: RegionId(0), base: BASE, len, access };
    let doomed = pair.nodes[1].registrar.register(registration).unwrap();
    pair.ask(0, Opcode::ReadRequest, read(good, 0, 64), 0).unwrap();
    pair.ask(1, Opcode::ReadRequest, read(doomed, 0, 64), 0).unwrap();
    pair.nodes[1].registrar.deregister(doomed).unwrap();
    let sent: Vec<_> = pair.taken(1).iter().map(|taken| (taken.opcode, taken.at)).collect();
    assert_eq!(sent, [(Opcode::ReadResponseOnly, 0), (Opcode::Acknowledge, 1)]);
}

/// The connection ends there: later requests get no response.
#[test]
fn rd_11_answers_behind_a_revoked_one_never_leave() {
    let mut pair = Pair::new(10_000, Settings { segments: 16, ..CLEAN });
    let good = pair.nodes[1].key;
    let (access, len) = (Access::REMOTE_READ, 10_000);
    let registration = Registration { pd: PD, region: RegionId(0), base: BASE, len, access };
    let doomed = pair.nodes[1].registrar.register(registration).unwrap();
    pair.ask(0, Opcode::ReadRequest, read(doomed, 0, 64), 0).unwrap();
    pair.ask(1, Opcode::ReadRequest, read(good, 0, 64), 0).unwrap();
    pair.nodes[1].registrar.deregister(doomed).unwrap();
    let sent: Vec<_> = pair.taken(1).iter().map(|taken| (taken.opcode, taken.at)).collect();
    assert_eq!(sent, [(Opcode::Acknowledge, 0)]);
}

#[test]
fn rd_08_repeated_requests_do_not_use_up_the_depth() {
    let mut pair = Pair::new(10_000, Settings { reads: 16, ..CLEAN });
    let key = pair.nodes[1].key;
    for at in 0..16 {
        pair.ask(at, Opcode::ReadRequest, read(key, 0, 8), 0).unwrap();
    }
    assert_eq!(pair.taken(1).len(), 16);
    // Stray duplicates of old requests, and then a full depth of new ones.
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

#[test]
fn wrt_01_to_04_a_write_with_immediate_takes_a_receive_and_not_its_buffer() {
    let mut pair = ready(2);
    let before = pair.nodes[1].memory.0[0][10_000..14_000].to_vec();
    pair.ask(0, Opcode::WriteOnly, write(&pair, 0, 64), 64).unwrap();
    assert!(pair.nodes[1].done.is_empty());
    let reth = write(&pair, 0, 64).reth().unwrap();
    pair.ask(1, Opcode::WriteOnlyImm, Ext::RethImm(reth, 5), 64).unwrap();
    pair.ask(2, Opcode::WriteFirst, write(&pair, 0, P + 8), P).unwrap();
    pair.ask(3, Opcode::WriteLastImm, Ext::Imm(5), 8).unwrap();
    assert_eq!(pair.acks(), [(ACK, 3, 3)]);
    let lens: Vec<u32> = pair.nodes[1].done.iter().map(|done| done.len).collect();
    assert_eq!(lens, [64, P as u32 + 8]);
    assert!(pair.nodes[1].memory.0[0][..P + 8].iter().all(|byte| *byte == 0x5a));
    assert!(pair.nodes[1].memory.0[0][10_000..14_000] == before);
}

#[test]
fn wrt_05_to_10_a_write_carries_what_it_announced() {
    use Opcode::*;
    // The announced length, then the packets and their lengths; the last one is refused.
    let cases: [(usize, &[(Opcode, usize)]); 8] = [
        (3 * P, &[(WriteFirst, P), (WriteLast, P)]),
        (2 * P, &[(WriteFirst, P), (WriteMiddle, P)]),
        (P + 8, &[(WriteFirst, P), (WriteLast, 12)]),
        (64, &[(WriteOnly, 60)]),
        (0, &[(WriteFirst, P)]),
        (P, &[(WriteFirst, P)]),
        (2 * P, &[(WriteOnly, 2 * P)]),
        ((1 << 31) + 4, &[(WriteFirst, P)]),
    ];
    for (len, packets) in cases {
        let mut pair = ready(1);
        let before = pair.nodes[1].memory.0[0].clone();
        for (at, (opcode, payload)) in packets.iter().enumerate() {
            pair.taken(1);
            let ext = if at == 0 { write(&pair, 0, len) } else { Ext::None };
            pair.ask(at as i32, *opcode, ext, *payload).unwrap();
        }
        assert!(pair.nodes[1].memory.0[0][P..] == before[P..]);
        refused(pair, INVALID, packets.len() as i32 - 1, 0, 1, &std::format!("{packets:?}"));
    }
}

#[test]
fn wrt_08_and_rd_04_nothing_needs_no_key() {
    let mut pair = ready(0);
    let nothing = Ext::Reth(Reth { va: 1, rkey: Rkey::new(0xdead_beef), len: 0 });
    pair.ask(0, Opcode::WriteOnly, nothing, 0).unwrap();
    assert_eq!(pair.acks(), [(ACK, 0, 1)]);
    pair.ask(1, Opcode::ReadRequest, nothing, 0).unwrap();
    let [taken] = &pair.taken(1)[..] else { panic!("one answer") };
    assert_eq!((taken.opcode, taken.at), (Opcode::ReadResponseOnly, 1));
    pair.ask(2, Opcode::WriteOnly, nothing, 0).unwrap();
    assert_eq!(pair.acks(), [(ACK, 2, 3)]);
}

#[test]
fn wrt_12_a_region_that_goes_away_ends_its_write() {
    let mut pair = ready(1);
    let key = pair.nodes[1].key;
    pair.ask(0, Opcode::WriteFirst, write(&pair, 0, 3 * P), P).unwrap();
    pair.taken(1);
    pair.nodes[1].registrar.deregister(key).unwrap();
    let before = pair.nodes[1].memory.0[0].clone();
    pair.ask(1, Opcode::WriteMiddle, Ext::None, P).unwrap();
    assert!(pair.nodes[1].memory.0[0] == before);
    refused(pair, ACCESS, 1, 0, 1, "deregistered");
}

#[test]
fn dup_07_to_09_a_read_is_answered_again_only_as_it_was_asked() {
    let mut pair = ready(0);
    let key = pair.nodes[1].key;
    let whole = read(key, 100, 3 * P as u32 + 1);
    pair.ask(0, Opcode::ReadRequest, whole, 0).unwrap();
    let first = pair.taken(1);
    pair.ask(0, Opcode::ReadRequest, whole, 0).unwrap();
    let again = pair.taken(1);
    let payloads =
        |taken: &[Taken]| Vec::from_iter(taken.iter().map(|taken| taken.payload.clone()));
    assert!(first.len() == 4 && payloads(&first) == payloads(&again));
    for other in [
        read(Rkey::new(key.get() ^ 1), 100, P as u32),
        read(key, 99, P as u32),
        read(key, 100, 3 * P as u32 + 2),
    ] {
        let result = pair.ask(0, Opcode::ReadRequest, other, 0);
        assert_eq!((result, pair.taken(1).len()), (Err(DropReason::Duplicate), 0));
    }
    // Four newer ones take its place in the record.
    for at in 4..8 {
        pair.ask(at, Opcode::ReadRequest, read(key, 0, 1), 0).unwrap();
        pair.taken(1);
    }
    assert_eq!(pair.ask(0, Opcode::ReadRequest, whole, 0), Err(DropReason::Duplicate));
}

/// Half of a READ response is lost, and the key ends: without a NAK the peer would request the rest for
/// ever. A late copy of a READ whose response has arrived looks the same here, so the connection does not
/// end on this side.
#[test]
fn dup_10_a_read_asked_for_again_and_again_whose_key_has_ended_is_refused() {
    let mut pair = ready(1);
    let key = pair.nodes[1].key;
    pair.ask(0, Opcode::ReadRequest, read(key, 0, 4 * P as u32), 0).unwrap();
    assert_eq!(pair.taken(1).len(), 4);
    pair.nodes[1].registrar.deregister(key).unwrap();
    let ask = |pair: &mut Pair, at: i32| {
        pair.ask(at, Opcode::ReadRequest, read(key, at as u64 * 1024, (4 - at as u32) * 1024), 0)
    };
    assert_eq!(ask(&mut pair, 2), Err(DropReason::Duplicate));
    for at in [2, 0] {
        pair.now = pair.now + Duration::from_millis(500);
        assert_eq!((ask(&mut pair, at), pair.acks()), (Ok(()), vec![(ACCESS, at, 1)]));
    }
    assert_eq!(pair.nodes[1].qp.state(), QpState::Rts);
    pair.ask(4, Opcode::SendOnly, Ext::None, 0).unwrap();
    assert_eq!(pair.acks(), [(ACK, 4, 2)]);
}

/// A READ that still waits for its response ends with the NAK; one that has it is not affected.
#[test]
fn dup_10_a_requester_hears_of_an_ended_key_only_where_it_waits() {
    for waits in [true, false] {
        let mut pair = Pair::new(10_000, CLEAN);
        let rkey = pair.nodes[1].key;
        let sgl = pair.nodes[0].sge(0, 64);
        pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl);
        pair.transmit(0);
        let request = pair.wires[1][0].clone();
        pair.deliver(1);
        pair.transmit(1);
        if waits {
            pair.wires[0].clear();
        }
        pair.deliver(0);
        pair.nodes[1].registrar.deregister(rkey).unwrap();
        pair.give(1, &request);
        pair.now = pair.now + Duration::from_millis(500);
        pair.give(1, &request);
        pair.transmit(1);
        assert_eq!(pair.wires[0].len(), 1, "a NAK");
        pair.deliver(0);
        let status = if waits { WcStatus::RemoteAccess } else { WcStatus::Success };
        let state = if waits { QpState::Err } else { QpState::Rts };
        assert_eq!(
            (pair.nodes[0].statuses(), pair.nodes[0].qp.state()),
            (vec![(1, status)], state)
        );
    }
}

#[test]
fn rd_02_to_06_and_dup_11_answers_keep_the_order_of_their_numbers() {
    use Opcode::*;
    let mut pair = ready(2);
    let key = pair.nodes[1].key;
    pair.ask(0, SendOnly, Ext::None, 1).unwrap();
    pair.ask(1, ReadRequest, read(key, 0, 3 * P as u32 + 1), 0).unwrap();
    pair.ask(5, ReadRequest, read(key, 0, 2 * P as u32), 0).unwrap();
    pair.ask(7, SendOnly, Ext::None, 1).unwrap();
    pair.ask(0, SendOnly, Ext::None, 1).unwrap();
    let taken = pair.taken(1);
    let sent: Vec<_> = taken.iter().map(|taken| (taken.opcode, taken.at)).collect();
    let (first, middle, last) = (ReadResponseFirst, ReadResponseMiddle, ReadResponseLast);
    assert_eq!(
        sent,
        [(first, 1), (middle, 2), (middle, 3), (last, 4), (first, 5), (last, 6), (Acknowledge, 7)]
    );
    assert_eq!((taken[3].payload.len(), taken[3].bth.pad_count), (1, 3));
}

#[test]
fn rd_10_and_12_a_read_needs_its_right_and_carries_nothing() {
    let mut pair = ready(0);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let len = 64;
    let registration = Registration { pd: PD, region: RegionId(0), base: BASE, len, access };
    let key = pair.nodes[1].registrar.register(registration).unwrap();
    pair.ask(0, Opcode::ReadRequest, read(key, 0, 64), 0).unwrap();
    refused(pair, ACCESS, 0, 0, 0, "no right");
    let mut pair = ready(0);
    let key = pair.nodes[1].key;
    pair.ask(0, Opcode::ReadRequest, read(key, 0, 64), 4).unwrap();
    refused(pair, INVALID, 0, 0, 0, "payload");
}

#[test]
fn key_01_to_08_a_bad_key_is_a_remote_access_error() {
    let good = ready(0).nodes[1].key;
    let reth = |va, rkey, len| Ext::Reth(Reth { va, rkey, len });
    for (ext, len) in [
        (reth(BASE - 1, good, 1), 1),
        (reth(BASE + 20_000, good, 1), 1),
        (reth(u64::MAX - 7, good, 8), 8),
        (reth(u64::MAX, good, 2), 2),
        (reth(BASE, Rkey::new(good.get() ^ 0x80), 1), 1),
    ] {
        let mut pair = ready(1);
        pair.ask(0, Opcode::WriteOnly, ext, len).unwrap();
        refused(pair, ACCESS, 0, 0, 1, &std::format!("{ext:?}"));
    }
}

#[test]
fn key_10_and_11_a_key_that_cannot_be_invalidated_ends_the_connection() {
    let good = ready(0).nodes[1].key;
    for key in [good, Rkey::new(good.get() ^ 1)] {
        let mut pair = ready(2);
        pair.ask(0, Opcode::SendOnlyInv, Ext::Ieth(key), 1).unwrap();
        let statuses: Vec<_> = pair.nodes[1].done.iter().map(|done| done.status).collect();
        assert_eq!(statuses, [WcStatus::LocalQpOperation, WcStatus::Flushed]);
        assert!(pair.nodes[1].mrs.remote(PD, QPN, good, BASE, 1, Access::REMOTE_WRITE).is_ok());
    }
}

#[test]
fn dup_13_a_duplicate_invalidates_nothing() {
    let mut pair = Pair::with_kind(20_000, CLEAN, MrKind::FastRegister);
    let key = pair.nodes[1].key;
    let sgl = SgList::new();
    pair.nodes[1].recv(1, sgl);
    pair.ask(0, Opcode::SendOnly, Ext::None, 0).unwrap();
    pair.ask(0, Opcode::SendOnlyInv, Ext::Ieth(key), 0).unwrap();
    assert!(pair.nodes[1].mrs.remote(PD, QPN, key, BASE, 1, Access::REMOTE_WRITE).is_ok());
}

#[test]
fn pkt_14_operations_that_are_not_offered_are_refused() {
    let pair = ready(0);
    let reth = write(&pair, 0, 8);
    let atomic = AtomicEth { va: BASE, rkey: pair.nodes[1].key, swap_or_add: 1, compare: 0 };
    for (opcode, ext, len) in [
        (Opcode::CompareSwap, Ext::AtomicEth(atomic), 0),
        (Opcode::FetchAdd, Ext::AtomicEth(atomic), 0),
        (Opcode::AtomicWrite, reth, 8),
    ] {
        let mut pair = ready(1);
        pair.ask(0, opcode, ext, len).unwrap();
        refused(pair, INVALID, 0, 0, 1, &std::format!("{opcode:?}"));
    }
}
