//! The requests of a queue pair, and their outcomes.

use super::*;
use crate::counters::Counter;
use crate::mr::Released;
use crate::qp::send::queue::SendQueue;
use crate::wire::gap_report::Gap;

#[test]
fn rnr_08_finite_retries_end() {
    let mut pair = Pair::new(10_000, Settings { rnr_retry: 2, ..CLEAN });
    for id in 1..=3 {
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(id, SendOp::Send, sgl);
    }
    pair.run_all();
    let flushed = WcStatus::Flushed;
    assert_eq!(
        pair.nodes[0].statuses(),
        [(1, WcStatus::RnrRetryExceeded), (2, flushed), (3, flushed)]
    );
}

#[test]
fn req_05_silence_ends_in_bounded_time() {
    let mut pair = Pair::new(10_000, Settings { faults: [1000, 0, 0, 0], ..CLEAN });
    for id in 1..=2 {
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(id, SendOp::Send, sgl);
    }
    let start = pair.now;
    pair.run_all();
    assert_eq!(
        pair.nodes[0].statuses(),
        [(1, WcStatus::TransportRetryExceeded), (2, WcStatus::Flushed)]
    );
    assert!(pair.now.saturating_since(start) < Duration::from_secs(2));
}

#[test]
fn err_01_a_refused_request_fails_alone_and_the_rest_is_flushed() {
    let mut pair = Pair::new(10_000, CLEAN);
    let good = pair.nodes[1].key;
    for id in 0..8 {
        let rkey = if id == 2 { Rkey::new(good.get() ^ 1) } else { good };
        let sgl = pair.nodes[0].sge(0, 100);
        pair.nodes[0].send(id, SendOp::Write { va: BASE, rkey }, sgl);
        let sgl = pair.nodes[1].sge(0, 100);
        pair.nodes[1].recv(id, sgl);
    }
    pair.run_all();
    let statuses: Vec<WcStatus> = pair.nodes[0].done.iter().map(|done| done.status).collect();
    let (ok, flushed) = (WcStatus::Success, WcStatus::Flushed);
    assert_eq!(
        statuses,
        [ok, ok, WcStatus::RemoteAccess, flushed, flushed, flushed, flushed, flushed]
    );
    assert_eq!(pair.nodes[1].statuses(), Vec::from_iter((0..8).map(|id| (id, flushed))));
}

#[test]
fn req_19_reads_in_flight_never_exceed_the_depth() {
    let mut pair = Pair::new(10_000, Settings { reads: 2, ..CLEAN });
    let rkey = pair.nodes[1].key;
    for id in 0..5 {
        let sgl = pair.nodes[0].sge(0, 10);
        pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl);
    }
    pair.transmit(0);
    assert_eq!(pair.sent[0].len(), 2);
    pair.run_all();
    assert_eq!(pair.nodes[0].done.len(), 5);
}

/// Requests are dropped behind a gap, those of READs, too.
#[test]
fn a_peer_that_drops_gets_no_more_read_requests_than_the_limit() {
    for len in [10, 3000] {
        let mut pair = Pair::new(10_000, Settings { reads: 4, ..CLEAN });
        let rkey = pair.nodes[1].key;
        pair.nodes[0].qp.sq.set_limit(2);
        for id in 0..4 {
            let sgl = pair.nodes[0].sge(0, len);
            pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl);
        }
        pair.transmit(0);
        assert_eq!(pair.sent[0].len(), 2, "of {len} bytes");
        pair.run_all();
        assert_eq!(pair.nodes[0].done.len(), 4);
    }
}

#[test]
fn req_21_a_fenced_request_waits_for_earlier_reads() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 10);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl.clone());
    let fenced = SendWr {
        id: 2,
        op: SendOp::Write { va: BASE, rkey },
        sgl,
        solicited: false,
        read_fence: true,
        silent: true,
    };
    pair.nodes[0].post(fenced).unwrap();
    pair.transmit(0);
    assert_eq!(pair.sent[0].iter().map(|sent| sent.0).collect::<Vec<_>>(), [Opcode::ReadRequest]);
    pair.run_all();
    assert_eq!(pair.sent[0].last().unwrap().0, Opcode::WriteOnly);
    assert!(pair.nodes[0].done.last().unwrap().silent);
}

#[test]
fn a_local_fault_fails_its_own_request_after_the_earlier_ones() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    for id in 0..4 {
        let mut sgl = pair.nodes[0].sge(0, 100);
        if id == 2 {
            sgl[0].addr = 1;
        }
        pair.nodes[0].send(id, SendOp::Write { va: BASE, rkey }, sgl);
    }
    pair.run_all();
    let ok = WcStatus::Success;
    assert_eq!(
        pair.nodes[0].statuses(),
        [(0, ok), (1, ok), (2, WcStatus::LocalProtection), (3, WcStatus::Flushed)]
    );
}

#[test]
fn err_04_a_flush_ends_everything_and_silences_the_qp() {
    let mut pair = Pair::new(300_000, CLEAN);
    let rkey = pair.nodes[1].key;
    for id in 0..3 {
        let sgl = pair.nodes[0].sge(0, 100_000);
        pair.nodes[0].send(id, SendOp::Write { va: BASE, rkey }, sgl);
        let sgl = pair.nodes[0].sge(0, 10);
        pair.nodes[0].recv(10 + id, sgl);
    }
    pair.transmit(0);
    let Node { qp, out, .. } = &mut pair.nodes[0];
    qp.flush(out);
    pair.nodes[0].collect();
    assert_eq!(pair.nodes[0].done.len(), 6);
    assert!(pair.nodes[0].done.iter().all(|done| done.status == WcStatus::Flushed));
    assert!(!pair.transmit(0) && pair.nodes[0].qp.deadline().is_none());
    let sgl = pair.nodes[0].sge(0, 10);
    pair.nodes[0].recv(99, sgl);
    pair.nodes[0].collect();
    assert_eq!(
        pair.nodes[0].done.last().map(|done| (done.id, done.status)),
        Some((99, WcStatus::Flushed))
    );
}

/// Node 0 with `count` SENDs of one packet in flight.
fn sends(count: u64, settings: Settings) -> Pair {
    let mut pair = Pair::new(10_000, settings);
    for id in 0..count {
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(id, SendOp::Send, sgl);
    }
    assert_eq!(pair.taken(0).len() as u64, count);
    pair
}

#[test]
fn req_07_a_nak_repeated_restarts_once() {
    let mut pair = sends(10, CLEAN);
    let nak = Syndrome::Nak(NakCode::PsnSequence);
    pair.answer(3, nak).unwrap();
    assert_eq!(pair.nodes[0].done.len(), 3);
    assert_eq!(pair.places(), [3]);
    pair.answer(3, nak).unwrap();
    assert_eq!(pair.places(), []);
}

#[test]
fn rnr_08_the_first_refusal_counts_even_if_it_acknowledges() {
    let mut pair = sends(2, Settings { rnr_retry: 2, ..CLEAN });
    let rnr = Syndrome::RnrNak(RnrTimer::new(1));
    for _ in 0..2 {
        pair.answer(1, rnr).unwrap();
        pair.wait(0);
        assert_eq!(pair.taken(0).len(), 1);
    }
    pair.answer(1, rnr).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::Success), (1, WcStatus::RnrRetryExceeded)]);
}

#[test]
fn a_refusal_repeated_during_its_pause_counts_once() {
    let mut pair = sends(1, Settings { rnr_retry: 1, ..CLEAN });
    let rnr = Syndrome::RnrNak(RnrTimer::new(14));
    pair.answer(0, rnr).unwrap();
    let deadline = pair.nodes[0].qp.deadline();
    pair.now = pair.now + Duration::from_micros(10);
    assert_eq!(pair.answer(0, rnr), Err(DropReason::StaleResponse));
    assert_eq!(pair.nodes[0].qp.deadline(), deadline);
    assert!(pair.nodes[0].done.is_empty());
}

/// A late copy of the refused packet was executed meanwhile, and the next one refused.
#[test]
fn rnr_07_a_new_refusal_during_a_pause_makes_it_longer() {
    let mut pair = sends(3, CLEAN);
    let rnr = Syndrome::RnrNak(RnrTimer::new(14));
    pair.answer(0, rnr).unwrap();
    pair.now = pair.now + Duration::from_micros(900);
    pair.answer(0, Syndrome::ACK).unwrap();
    pair.answer(1, rnr).unwrap();
    assert_eq!(pair.nodes[0].qp.deadline(), Some(pair.now + RnrTimer::new(14).duration()));
    assert_eq!(pair.answer(1, rnr), Err(DropReason::StaleResponse));
    pair.wait(0);
    assert_eq!(pair.places()[0], 1);
}

#[test]
fn req_08_a_refusal_past_an_unanswered_read_names_its_own_request() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 3000);
    pair.nodes[0].send(0, SendOp::Read { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(2, SendOp::Write { va: BASE, rkey }, sgl);
    pair.taken(0);
    pair.answer(4, Syndrome::Nak(NakCode::RemoteAccess)).unwrap();
    let flushed = WcStatus::Flushed;
    assert_eq!(pair.nodes[0].statuses(), [(0, flushed), (1, WcStatus::RemoteAccess), (2, flushed)]);
}

#[test]
fn req_16_an_answer_of_the_wrong_kind_fails_its_own_request() {
    let mut pair = sends(2, CLEAN);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: crate::psn::Msn::new(0) };
    let psn = pair.psn(0, 1);
    let ext = Ext::AtomicAck(aeth, 0);
    pair.hand(0, (Opcode::AtomicAcknowledge, psn), ext, &[]).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::Success), (1, WcStatus::BadResponse)]);
}

/// All queues share it, so that a small one may make it grow to twice of what the large ones need.
#[test]
fn the_room_of_completions_is_known_before() {
    let mut out = Completions::default();
    (0..10).for_each(|_| out.reserve_key().unwrap());
    let sizes = [size_of::<Completion>(), size_of::<Released>()];
    for requests in [1, 64, 1, 8192, 3, 8192, 8192] {
        for [receives, requests] in [[requests, 0], [0, requests]] {
            let (before, told) = (out.capacity(), out.room_bytes(receives, requests));
            out.reserve(receives);
            out.reserve_mappings(requests);
            let after = out.capacity();
            let taken = |before, after, size| if after == before { 0 } else { after * size };
            let taken = taken(before.0, after.0, sizes[0]) + taken(before.1, after.1, sizes[1]);
            assert!(taken <= told, "{taken} bytes of {told}");
        }
    }
    // Nothing grows by what was returned, however often.
    let full = out.capacity();
    for _ in 0..3 {
        out.unreserve(8192);
        out.unreserve_mappings(8192);
        assert_eq!(out.room_bytes(8192, 8192), 0);
        out.reserve(8192);
        out.reserve_mappings(8192);
    }
    assert_eq!(out.capacity(), full);
}

/// A completion stays in its place until it is taken: only then is there room for another request.
#[test]
fn err_07_completions_take_no_room_but_that_of_their_requests() {
    let mut out = Completions::default();
    let (mut poster, mut sq) = SendQueue::new(7, 64, 1);
    let wr = |id| {
        let sgl = SgList::new();
        SendWr { id, op: SendOp::Send, sgl, solicited: false, read_fence: false, silent: true }
    };
    for round in 0..3 {
        (0..64).for_each(|id| poster.post(wr(round * 64 + id)).unwrap());
        sq.flush(&mut out);
        assert_eq!(poster.post(wr(0)), Err(PostError::QueueFull));
        for id in 0..64 {
            assert_eq!(sq.ended(), 64 - id);
            let done = sq.pop_completion().unwrap();
            assert_eq!((done.id, done.status), (round * 64 + id as u64, WcStatus::Flushed));
            assert!(!done.silent && done.owner == Owner::Qp(7));
        }
        assert!(!sq.has_completions() && sq.pop_completion().is_none());
    }
    assert_eq!(out.capacity(), (0, 0));
}

/// A response to node 0's READ.
fn data(pair: &mut Pair, at: i32, opcode: Opcode, len: usize) -> Result<(), DropReason> {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: crate::psn::Msn::new(0) };
    let ext = if opcode == Opcode::ReadResponseMiddle { Ext::None } else { Ext::Aeth(aeth) };
    let psn = pair.psn(0, at);
    pair.hand(0, (opcode, psn), ext, &vec![0x5a; len])
}

/// Node 0 with a READ of `len` bytes in flight, to 1000 and on.
fn reads(len: usize) -> Pair {
    let mut pair = Pair::new(10_000, CLEAN);
    let (va, rkey) = (BASE + 7, pair.nodes[1].key);
    let sgl = pair.nodes[0].sge(1000, len);
    pair.nodes[0].send(1, SendOp::Read { va, rkey }, sgl);
    assert_eq!(pair.taken(0).len(), 1);
    pair
}

#[test]
fn req_01_and_02_a_message_is_cut_at_the_path_mtu() {
    use Opcode::*;
    let mut pair = Pair::new(10_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, 3 * 1024 + 5);
    let (id, op) = (1, SendOp::Send);
    let wr = SendWr { id, op, sgl, solicited: true, read_fence: false, silent: false };
    pair.nodes[0].post(wr).unwrap();
    let taken = pair.taken(0);
    let sent: Vec<_> = taken.iter().map(|taken| (taken.opcode, taken.at)).collect();
    assert_eq!(sent, [(SendFirst, 0), (SendMiddle, 1), (SendMiddle, 2), (SendLast, 3)]);
    assert!(taken[..3].iter().all(|taken| !taken.bth.solicited && !taken.bth.ack_req));
    assert!(taken[3].bth.solicited && taken[3].bth.ack_req && taken[3].bth.pad_count == 3);
}

#[test]
fn a_write_solicits_nothing() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 2000);
    let op = SendOp::Write { va: BASE, rkey };
    let wr = SendWr { id: 1, op, sgl, solicited: true, read_fence: false, silent: false };
    pair.nodes[0].post(wr).unwrap();
    let taken = pair.taken(0);
    assert!(taken.len() == 2 && taken.iter().all(|taken| !taken.bth.solicited));
}

#[test]
fn req_03_04_and_11_acknowledgements_count_up_to_their_packet() {
    let mut pair = sends(3, CLEAN);
    pair.answer(2, Syndrome::ACK).unwrap();
    let ok = WcStatus::Success;
    assert_eq!(pair.nodes[0].statuses(), [(0, ok), (1, ok), (2, ok)]);
    assert_eq!(pair.answer(2, Syndrome::ACK), Err(DropReason::StaleResponse));
    let sgl = pair.nodes[0].sge(0, 3000);
    pair.nodes[0].send(3, SendOp::Send, sgl);
    pair.taken(0);
    let deadline = pair.nodes[0].qp.deadline();
    pair.now = pair.now + Duration::from_micros(100);
    pair.answer(3, Syndrome::ACK).unwrap();
    assert_eq!(pair.nodes[0].done.len(), 3);
    assert!(pair.nodes[0].qp.deadline() > deadline);
    pair.wait(0);
    // A probe shows whether the packet or only its response was lost.
    assert_eq!(pair.places(), [3]);
    pair.answer(4, GAP).unwrap();
    assert_eq!(pair.places(), [4]);
    pair.answer(5, Syndrome::ACK).unwrap();
    assert!(pair.nodes[0].done.len() == 4 && pair.nodes[0].qp.deadline().is_none());
}

#[test]
fn req_09_and_10_reserved_syndromes_are_silent_and_credits_are_ignored() {
    for byte in (0x40..=0x5f).chain(0x64..=0xff) {
        let mut pair = sends(1, CLEAN);
        let result = pair.answer(0, Syndrome::from_byte(byte));
        assert_eq!(result, Err(DropReason::ReservedSyndrome), "{byte:#x}");
        assert!(pair.nodes[0].done.is_empty() && pair.nodes[0].qp.state() == QpState::Rts);
    }
    for credits in 0..=0x1e {
        let mut pair = sends(1, CLEAN);
        pair.answer(0, Syndrome::from_byte(credits)).unwrap();
        assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::Success)]);
    }
}

#[test]
fn req_12_17_and_18_a_hole_in_an_answer_is_asked_for_again() {
    use Opcode::*;
    let mut pair = reads(3 * 1024);
    data(&mut pair, 0, ReadResponseFirst, 1024).unwrap();
    data(&mut pair, 2, ReadResponseLast, 1024).unwrap();
    assert!(pair.nodes[0].done.is_empty());
    // The packet may only be late.
    assert_eq!(pair.places(), []);
    pair.wait(0);
    let [again] = &pair.taken(0)[..] else { panic!("one request") };
    let reth = again.ext.reth().unwrap();
    assert_eq!((again.at, reth.va, reth.len), (1, BASE + 7 + 1024, 1024));
    // The same gap is not requested twice.
    let stale = Err(DropReason::StaleResponse);
    assert_eq!(data(&mut pair, 2, ReadResponseLast, 1024), stale);
    assert_eq!(data(&mut pair, 0, ReadResponseFirst, 1024), stale);
    assert_eq!(pair.places(), []);
    // As rxe responds to it, neither FIRST nor ONLY.
    data(&mut pair, 1, ReadResponseMiddle, 1024).unwrap();
    // It may be the first response, and the second request may be in the network.
    assert!(pair.nodes[0].done.is_empty());
    pair.wait(0);
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
    assert!(pair.nodes[0].memory.0[0][1000..4072].iter().all(|byte| *byte == 0x5a));
    pair.nodes[0].memory.0[0].fill(0);
    assert_eq!(data(&mut pair, 2, ReadResponseLast, 1024), Err(DropReason::StaleResponse));
    assert!(pair.nodes[0].memory.0[0].iter().all(|byte| *byte == 0));
}

#[test]
fn req_14_to_16_an_answer_that_does_not_fit_ends_the_connection() {
    use Opcode::*;
    for (len, opcode, answered) in [
        (64, ReadResponseOnly, 60),
        (64, ReadResponseOnly, 68),
        (64, ReadResponseFirst, 64),
        (2048, ReadResponseFirst, 1020),
        (2048, ReadResponseFirst, 1028),
    ] {
        let mut pair = reads(len);
        let before = pair.nodes[0].memory.0[0].clone();
        data(&mut pair, 0, opcode, answered).unwrap();
        assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::BadResponse)]);
        assert_eq!(pair.nodes[0].qp.state(), QpState::Err);
        assert!(pair.nodes[0].memory.0[0] == before);
    }
    let mut pair = sends(1, CLEAN);
    data(&mut pair, 0, ReadResponseOnly, 8).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::BadResponse)]);
}

#[test]
fn req_20_and_27_what_stands_behind_a_full_window_or_depth_waits() {
    let mut pair = Pair::new(10_000, Settings { reads: 1, ..CLEAN });
    let rkey = pair.nodes[1].key;
    for id in 0..3 {
        let sgl = pair.nodes[0].sge(0, 10);
        let op = if id < 2 { SendOp::Read { va: BASE, rkey } } else { SendOp::Send };
        pair.nodes[0].send(id, op, sgl);
    }
    assert_eq!(pair.taken(0).len(), 1);
    let mut pair = Pair::new(2_000_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, 2_000_000);
    pair.nodes[0].send(1, SendOp::Send, sgl);
    let taken = pair.taken(0);
    assert_eq!(taken.len(), 512);
    assert!(taken[511].bth.ack_req);
    pair.answer(99, Syndrome::ACK).unwrap();
    assert_eq!(pair.taken(0).len(), 100);
}

#[test]
fn req_23_and_24_an_unsignalled_request_reports_only_failure() {
    for (syndrome, statuses) in [
        (Syndrome::ACK, [(true, WcStatus::Success), (false, WcStatus::Success)]),
        (
            Syndrome::Nak(NakCode::RemoteAccess),
            [(false, WcStatus::RemoteAccess), (false, WcStatus::Flushed)],
        ),
    ] {
        let mut pair = Pair::new(10_000, CLEAN);
        let rkey = pair.nodes[1].key;
        let sgl = pair.nodes[0].sge(0, 8);
        let op = SendOp::Write { va: BASE, rkey };
        let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: true };
        pair.nodes[0].post(wr).unwrap();
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(2, SendOp::Send, sgl);
        pair.taken(0);
        let at = i32::from(syndrome == Syndrome::ACK);
        pair.answer(at, syndrome).unwrap();
        let done: Vec<_> = pair.nodes[0].done.iter().map(|c| (c.silent, c.status)).collect();
        assert_eq!(done, statuses);
    }
}

#[test]
fn req_25_a_sink_that_goes_away_fails_its_read() {
    let mut pair = reads(2048);
    let key = pair.nodes[0].key;
    pair.nodes[0].registrar.deregister(key).unwrap();
    let before = pair.nodes[0].memory.0[0].clone();
    data(&mut pair, 0, Opcode::ReadResponseFirst, 1024).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::LocalProtection)]);
    assert!(pair.nodes[0].memory.0[0] == before);
}

#[test]
fn req_30_a_resend_is_the_same_packet() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 100);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    let first = pair.taken(0);
    pair.answer(0, GAP).unwrap();
    assert_eq!(std::format!("{first:?}"), std::format!("{:?}", pair.taken(0)));
}

#[test]
fn rnr_07_and_10_a_pause_lasts_what_the_peer_asked_for() {
    for (code, micros) in [(14, 1280), (0, 655_360), (1, 10)] {
        let mut pair = sends(2, CLEAN);
        let start = pair.now;
        pair.answer(0, Syndrome::RnrNak(RnrTimer::new(code))).unwrap();
        assert_eq!(pair.taken(0).len(), 0);
        pair.wait(0);
        assert_eq!(pair.now.saturating_since(start), Duration::from_micros(micros));
        assert_eq!(pair.taken(0).len(), 2);
    }
}

#[test]
fn rnr_09_seven_is_without_end() {
    let mut pair = sends(1, CLEAN);
    for _ in 0..200 {
        pair.answer(0, Syndrome::RnrNak(RnrTimer::new(0))).unwrap();
        pair.wait(0);
        assert_eq!(pair.taken(0).len(), 1);
    }
    pair.answer(0, Syndrome::ACK).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::Success)]);
}

#[test]
fn err_03_what_is_posted_after_an_error_comes_back() {
    let mut pair = sends(1, CLEAN);
    pair.answer(0, Syndrome::Nak(NakCode::InvalidRequest)).unwrap();
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(5, SendOp::Send, sgl);
    pair.nodes[0].collect();
    assert_eq!(
        pair.nodes[0].statuses(),
        [(0, WcStatus::RemoteInvalidRequest), (5, WcStatus::Flushed)]
    );
}

/// Node 0 with one SEND of `packets` packets in flight, and another behind it.
fn long_send(packets: usize) -> Pair {
    let mut pair = Pair::new(1_000_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, packets * P);
    pair.nodes[0].send(1, SendOp::Send, sgl);
    assert_eq!(pair.taken(0).len(), packets);
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(2, SendOp::Send, sgl);
    pair
}

#[test]
fn a_peer_that_keeps_gets_only_what_it_names() {
    let mut pair = long_send(40);
    pair.answer(3, GAP).unwrap();
    let [again] = &pair.taken(0)[..] else { panic!("nothing new before the peer is known") };
    assert!(again.at == 3 && again.bth.ack_req);
    // The ACK covers packets that were not resent.
    pair.answer(8, GAP).unwrap();
    assert_eq!(pair.places(), [8, 40]);
    // Losses in a row double what is resent.
    pair.answer(9, GAP).unwrap();
    assert_eq!(pair.places(), [9, 10]);
    pair.answer(10, ACK).unwrap();
    assert_eq!(pair.places(), [11, 12, 13, 14]);
    pair.answer(40, ACK).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(pair.places(), []);
}

#[test]
fn a_peer_that_drops_gets_everything_from_the_gap_on_once() {
    let mut pair = long_send(40);
    pair.answer(10, GAP).unwrap();
    assert_eq!(pair.places(), [10]);
    pair.answer(10, ACK).unwrap();
    assert_eq!(pair.places(), [11, 12]);
    // The peer has no packet behind either resend: it drops. The window is the distance between the losses.
    pair.answer(12, ACK).unwrap();
    assert_eq!(pair.places(), Vec::from_iter(13..26));
    pair.answer(20, GAP).unwrap();
    assert_eq!(pair.places(), Vec::from_iter(20..23));
    pair.answer(20, GAP).unwrap();
    assert_eq!(pair.places(), []);
    pair.answer(22, ACK).unwrap();
    assert_eq!(pair.places(), Vec::from_iter(23..27));
}

/// Silence is no evidence: a probe is sent (RFC 8985, tail loss probe), and the packets that the peer turns
/// out to have are not resent.
#[test]
fn after_silence_the_peer_is_probed() {
    let mut pair = long_send(10);
    pair.wait(0);
    let taken = pair.taken(0);
    let [probe, posted] = &taken[..] else { panic!("one probe before what was posted last") };
    assert!(probe.opcode == Opcode::WriteOnly && probe.ext.reth().unwrap().len == 0);
    let counters = pair.nodes[0].qp.counters();
    let counted = [Counter::TailLossProbes, Counter::LocalAckTimeoutErr].map(|c| counters.get(c));
    assert_eq!(counted, [1, 0]);
    assert!(probe.at == -1 && probe.bth.ack_req && probe.payload.is_empty());
    assert_eq!((posted.opcode, posted.at), (Opcode::SendOnly, 10));
    // Only the responses were lost.
    pair.answer(10, ACK).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert!(pair.nodes[0].qp.deadline().is_none());
}

#[test]
fn after_a_long_silence_the_oldest_packet_is_sent_again() {
    let mut pair = sends(3, CLEAN);
    let (start, mut asked) = (pair.now, 0);
    let again = loop {
        pair.wait(0);
        match &pair.places()[..] {
            [-1] => asked += 1,
            again => break again.to_vec(),
        }
    };
    assert_eq!(again, [0]);
    assert!(asked > 0 && pair.now.saturating_since(start) >= Duration::from_millis(100));
}

/// A probe takes no place in the queue nor in the window, and stands inside a message, too.
#[test]
fn a_probe_takes_no_place() {
    let mut pair = Pair::new(2_000_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, 513 * P);
    pair.nodes[0].send(1, SendOp::Send, sgl);
    assert_eq!(pair.taken(0).len(), 512);
    pair.wait(0);
    assert_eq!(pair.places(), [-1]);
    pair.answer(511, ACK).unwrap();
    assert_eq!(pair.places(), [512]);
}

/// The ACK of a probe comes behind the responses to all earlier requests: a packet that it leaves out is
/// lost. An ACK that comes sooner than half a round trip is not the probe's, and one is enough.
#[test]
fn a_probe_s_answer_shows_a_loss() {
    let mut pair = sends(3, CLEAN);
    pair.now = pair.now + Duration::from_micros(100);
    pair.answer(0, ACK).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [0]);
    pair.now = pair.now + Duration::from_micros(49);
    assert_eq!(pair.answer(0, ACK), Err(DropReason::StaleResponse));
    assert_eq!(pair.places(), []);
    pair.now = pair.now + Duration::from_micros(1);
    pair.answer(0, ACK).unwrap();
    assert_eq!(pair.places(), [1]);
    pair.now = pair.now + Duration::from_micros(100);
    assert_eq!(pair.answer(0, ACK), Err(DropReason::StaleResponse));
    assert_eq!(pair.places(), []);
}

/// A probe may overtake a READ: the READ gets the reorder window, and is requested again after that. rxe's
/// ACK names the last SEND, though a READ stands between.
#[test]
fn a_probe_s_answer_shows_a_lost_read_after_a_while() {
    for late in [false, true] {
        let mut pair = Pair::new(10_000, CLEAN);
        let rkey = pair.nodes[1].key;
        let sgl = pair.nodes[0].sge(1000, 8);
        pair.nodes[0].send(0, SendOp::Send, sgl.clone());
        for id in 1..3 {
            pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl.clone());
        }
        pair.taken(0);
        pair.now = pair.now + Duration::from_micros(100);
        pair.answer(0, ACK).unwrap();
        data(&mut pair, 1, Opcode::ReadResponseOnly, 8).unwrap();
        pair.wait(0);
        assert_eq!(pair.places(), [1]);
        pair.now = pair.now + Duration::from_micros(100);
        pair.answer(0, ACK).unwrap();
        assert_eq!(pair.places(), []);
        if late {
            data(&mut pair, 2, Opcode::ReadResponseOnly, 8).unwrap();
            assert!(pair.nodes[0].done.len() == 3 && pair.nodes[0].qp.deadline().is_none());
        } else {
            let due = pair.now + Duration::from_micros(100);
            pair.wait(0);
            assert_eq!((pair.now, pair.places()), (due, vec![2]));
        }
    }
}

/// A peer that has executed READs alone acknowledges a duplicate by the PSN before its first, and an rxe by that before 0.
#[test]
fn a_probe_is_answered_by_a_peer_that_has_taken_no_data() {
    a_probe_is_answered_by(|pair| pair.psn(0, -1));
    a_probe_is_answered_by(|_| crate::psn::Psn::new(0xff_ffff));
}

fn a_probe_is_answered_by(before_all: fn(&Pair) -> crate::psn::Psn) {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(1000, 8);
    for id in 0..2 {
        pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl.clone());
    }
    pair.taken(0);
    pair.now = pair.now + Duration::from_micros(100);
    data(&mut pair, 0, Opcode::ReadResponseOnly, 8).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [0]);
    pair.now = pair.now + Duration::from_micros(100);
    let ext = Ext::Aeth(Aeth { syndrome: ACK, msn: crate::psn::Msn::new(1) });
    let psn = before_all(&pair);
    pair.hand(0, (Opcode::Acknowledge, psn), ext, &[]).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [1], "the probe's answer shows that it was lost");
}

/// The ACK of a probe stands behind the responses to a long READ, as the peer works in order. It comes when a second
/// probe is on its way, and tells nothing about what was sent since the first.
#[test]
fn a_late_answer_to_a_probe_is_not_taken_for_that_to_the_next() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(1000, 8);
    for id in 0..2 {
        pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl.clone());
    }
    pair.taken(0);
    pair.now = pair.now + Duration::from_micros(100);
    data(&mut pair, 0, Opcode::ReadResponseOnly, 8).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [0]);
    data(&mut pair, 1, Opcode::ReadResponseOnly, 8).unwrap();
    pair.nodes[0].send(2, SendOp::Send, sgl);
    assert_eq!(pair.places(), [2]);
    pair.wait(0);
    assert_eq!(pair.places(), [1]);
    pair.now = pair.now + Duration::from_micros(100);
    let ext = Ext::Aeth(Aeth { syndrome: ACK, msn: crate::psn::Msn::new(1) });
    let none_yet = (Opcode::Acknowledge, crate::psn::Psn::new(0xff_ffff));
    assert_eq!(pair.hand(0, none_yet, ext, &[]), Err(DropReason::StaleResponse));
    assert_eq!(pair.places(), [1], "a probe more: it may be that the first was lost");
    pair.hand(0, none_yet, ext, &[]).unwrap();
    assert_eq!(pair.places(), [2], "this one is behind it");
}

/// Where nothing was lost before, an ACK that comes now may be that of a probe that was lost, and a probe more shows that it
/// is not. Where something was, and no READ is in flight, it comes within the timer, or never.
#[test]
fn a_lost_probe_does_not_silence_the_next() {
    for lossy in [false, true] {
        a_lost_probe(lossy);
    }
}

fn a_lost_probe(lossy: bool) {
    let mut pair = Pair::new(10_000, CLEAN);
    let sgl = pair.nodes[0].sge(1000, 8);
    let first = i32::from(lossy);
    if lossy {
        pair.nodes[0].send(9, SendOp::Send, sgl.clone());
        assert_eq!(pair.places(), [0]);
        pair.answer(0, GAP).unwrap();
        assert_eq!(pair.places(), [0]);
        pair.answer(0, ACK).unwrap();
    }
    for id in 0..3 {
        pair.nodes[0].send(id, SendOp::Send, sgl.clone());
    }
    pair.taken(0);
    pair.now = pair.now + Duration::from_micros(100);
    pair.answer(first, ACK).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [first], "a probe, which is lost");
    pair.answer(first + 1, ACK).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [first + 1]);
    pair.now = pair.now + Duration::from_micros(100);
    if !lossy {
        assert_eq!(pair.answer(1, ACK), Err(DropReason::StaleResponse));
        assert_eq!(pair.places(), [1], "another probe");
    }
    pair.answer(first + 1, ACK).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [first + 2]);
}

/// A long READ takes several requests, and the peer lacks part of one that it names.
#[test]
fn a_request_of_a_long_read_that_is_named_is_sent_again() {
    let chunk = crate::qp::Window::default().read_chunk as usize;
    let packets = i32::try_from(chunk / 1024).unwrap();
    let mut pair = Pair::new(3 * chunk, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 2 * chunk);
    pair.nodes[0].send(0, SendOp::Read { va: BASE, rkey }, sgl);
    assert_eq!(pair.places(), [0, packets]);
    for at in 0..packets {
        let opcode = match at {
            0 => Opcode::ReadResponseFirst,
            at if at + 1 == packets => Opcode::ReadResponseLast,
            _ => Opcode::ReadResponseMiddle,
        };
        data(&mut pair, at, opcode, 1024).unwrap();
    }
    pair.answer(packets, GAP).unwrap();
    assert_eq!(pair.places(), [], "it may only be late");
    pair.wait(0);
    let sent = pair.taken(0);
    assert_eq!(
        sent.iter().map(|sent| (sent.opcode, sent.at)).collect::<Vec<_>>(),
        [(Opcode::ReadRequest, packets)]
    );
}

/// The ACK of a probe comes sooner than the data of any READ, and does not show that the timer expired
/// early.
#[test]
fn a_probe_is_answered_sooner_than_a_read() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(1000, 8);
    // A READ that was resent may wait for its copies meanwhile.
    let next = |pair: &mut Pair| loop {
        pair.wait(0);
        let places = pair.places();
        if !places.is_empty() {
            return places;
        }
    };
    let mut waits = vec![];
    for id in 0..5 {
        pair.nodes[0].send(id as u64, SendOp::Read { va: BASE, rkey }, sgl.clone());
        pair.taken(0);
        let sent_at = pair.now;
        if id > 0 {
            assert_eq!(next(&mut pair), [id - 1]);
            waits.push(pair.now.saturating_since(sent_at));
            pair.now = pair.now + Duration::from_micros(20);
            pair.answer(id, ACK).unwrap();
            assert_eq!(next(&mut pair), [id], "the answer was lost");
        }
        pair.now = pair.now + Duration::from_micros(500);
        data(&mut pair, id, Opcode::ReadResponseOnly, 8).unwrap();
    }
    assert!(waits.iter().all(|wait| *wait <= waits[0]), "{waits:?}");
}

/// Karn's rule: the round trip of a resent packet is not measured. It took less than the time since the first copy; the shortest
/// of these counts.
#[test]
fn a_packet_sent_again_is_no_measure() {
    let mut pair = sends(1, CLEAN);
    for (id, took_us) in [(0, 200), (1, 1000)] {
        pair.answer(id, GAP).unwrap();
        assert_eq!(pair.places(), [id]);
        pair.now = pair.now + Duration::from_micros(took_us);
        pair.answer(id, ACK).unwrap();
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(1, SendOp::Send, sgl);
        pair.taken(0);
        assert_eq!(pair.nodes[0].qp.deadline(), Some(pair.now + Duration::from_micros(3 * 200)));
    }
}

/// One resend is needless once: a response to a later packet that comes as soon is no second sign.
#[test]
fn a_needless_resend_is_counted_once() {
    let mut pair = sends(3, CLEAN);
    pair.now = pair.now + Duration::from_micros(100);
    pair.answer(0, ACK).unwrap();
    pair.answer(1, GAP).unwrap();
    assert_eq!(pair.places(), [1]);
    for at in [1, 2] {
        pair.now = pair.now + Duration::from_micros(10);
        pair.answer(at, ACK).unwrap();
        assert_eq!(pair.nodes[0].qp.counters().get(Counter::NeedlessResends), 1, "{at}");
    }
}

/// A NAK shows that the peer is there, and the missing packet is resent, or given time to arrive: no probe
/// leaves sooner than a whole wait after it.
#[test]
fn a_nak_that_sends_nothing_again_starts_the_timer_anew() {
    for (mut pair, resent) in [(sends(1, CLEAN), true), (reads(8), false)] {
        if resent {
            pair.answer(0, GAP).unwrap();
            assert_eq!(pair.places(), [0]);
        }
        pair.now = pair.now + Duration::from_millis(50);
        pair.answer(0, GAP).unwrap();
        assert_eq!(pair.places(), []);
        let wait = crate::env::code_duration(14);
        assert_eq!(pair.nodes[0].qp.deadline(), Some(pair.now + wait), "{resent}");
    }
}

/// The response was known to be missing, and came because it was requested again: the timer that did so was
/// not early, and the next one is not longer.
#[test]
fn an_answer_asked_for_again_shows_no_early_timer() {
    use Opcode::*;
    let mut pair = reads(3 * 1024);
    pair.now = pair.now + Duration::from_micros(100);
    data(&mut pair, 0, ReadResponseFirst, 1024).unwrap();
    data(&mut pair, 2, ReadResponseLast, 1024).unwrap();
    for after in ["the gap has lasted", "the timer has run out"] {
        pair.wait(0);
        assert_eq!(pair.places(), [1], "{after}");
    }
    assert_eq!(pair.nodes[0].qp.tries(), 1);
    pair.now = pair.now + Duration::from_micros(100);
    data(&mut pair, 1, ReadResponseMiddle, 1024).unwrap();
    let (op, sgl) = (SendOp::Read { va: BASE, rkey: pair.nodes[1].key }, pair.nodes[0].sge(0, 8));
    pair.nodes[0].send(2, op, sgl);
    assert_eq!(pair.places(), [3]);
    // A round trip of 100 us, and four times its variation.
    assert_eq!(pair.nodes[0].qp.deadline(), Some(pair.now + Duration::from_micros(300)));
}

#[test]
fn progress_restores_the_back_off() {
    let mut pair = sends(4, CLEAN);
    pair.now = pair.now + Duration::from_micros(100);
    pair.answer(0, ACK).unwrap();
    let left = |pair: &Pair| pair.nodes[0].qp.deadline().unwrap().saturating_since(pair.now);
    let first = left(&pair);
    for times in [2, 4] {
        pair.wait(0);
        pair.taken(0);
        assert_eq!(left(&pair), first * times);
    }
    pair.answer(2, GAP).unwrap();
    assert_eq!(left(&pair), first);
}

#[test]
fn rnr_08_progress_restores_the_retries() {
    let mut pair = sends(2, Settings { rnr_retry: 2, ..CLEAN });
    let rnr = Syndrome::RnrNak(RnrTimer::new(1));
    for at in [0, 1] {
        for _ in 0..2 {
            pair.answer(at, rnr).unwrap();
            pair.wait(0);
            assert_eq!(pair.places()[0], at);
        }
        assert_eq!(pair.nodes[0].qp.state(), QpState::Rts);
        if at == 0 {
            pair.answer(0, ACK).unwrap();
        }
    }
    pair.answer(1, rnr).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(0, WcStatus::Success), (1, WcStatus::RnrRetryExceeded)]);
}

#[test]
fn req_14_early_data_of_a_wrong_length_is_not_placed() {
    use Opcode::*;
    for (at, opcode, len) in
        [(1, ReadResponseMiddle, 1020), (2, ReadResponseLast, 500), (2, ReadResponseMiddle, 1024)]
    {
        let mut pair = reads(3 * 1024);
        let before = pair.nodes[0].memory.0[0].clone();
        assert_eq!(data(&mut pair, at, opcode, len), Err(DropReason::StaleResponse));
        assert!(pair.nodes[0].memory.0[0] == before && pair.nodes[0].done.is_empty());
        // The packet does not count as present, either.
        data(&mut pair, 0, ReadResponseFirst, 1024).unwrap();
        assert_eq!(pair.nodes[0].qp.sq.una(), pair.psn(0, 1));
    }
}

/// READ data that was requested again and comes twice was only late: the next gap gets twice the time, even
/// where the duplicate still waits for data before it.
#[test]
fn data_that_comes_twice_makes_the_requester_patient() {
    use Opcode::ReadResponseMiddle as Middle;
    for twice in [false, true] {
        let mut pair = reads(8 * 1024);
        data(&mut pair, 0, Opcode::ReadResponseFirst, 1024).unwrap();
        let mut waits = Vec::new();
        // One response is requested, and then, as the gap continues, two.
        for (early, missing) in [(4, 1), (1, 2)] {
            data(&mut pair, early, Middle, 1024).unwrap();
            let start = pair.now;
            pair.wait(0);
            waits.push(pair.now.saturating_since(start).as_micros());
            assert_eq!(pair.places(), [missing]);
        }
        // A response behind the requested ones tells nothing.
        assert_eq!(data(&mut pair, 4, Middle, 1024), Err(DropReason::StaleResponse));
        data(&mut pair, 3, Middle, 1024).unwrap();
        if twice {
            assert_eq!(data(&mut pair, 3, Middle, 1024), Err(DropReason::StaleResponse));
        }
        data(&mut pair, 2, Middle, 1024).unwrap();
        data(&mut pair, 6, Middle, 1024).unwrap();
        let start = pair.now;
        pair.wait(0);
        waits.push(pair.now.saturating_since(start).as_micros());
        assert_eq!(waits, [100, 100, if twice { 200 } else { 100 }]);
    }
}

/// Many responders send a NAK for mere reordering. A READ gets time to arrive after all.
#[test]
fn a_read_that_is_named_and_comes_late_is_not_asked_again() {
    let mut pair = reads(1024);
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(2, SendOp::Send, sgl);
    assert_eq!(pair.places(), [1]);
    pair.answer(0, GAP).unwrap();
    assert_eq!(pair.places(), []);
    data(&mut pair, 0, Opcode::ReadResponseOnly, 1024).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
    // The SEND came before it, and was dropped.
    pair.wait(0);
    assert_eq!(pair.places(), [1]);
    let mut pair = reads(1024);
    pair.answer(0, GAP).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [0], "it does not come");
}

/// A READ that was sent twice is complete when both copies have their responses, and a fence waits for
/// that.
#[test]
fn a_read_sent_twice_is_not_complete_before_its_copy_is_spent() {
    for second_answer in [true, false] {
        let mut pair = reads(1024);
        let sgl = pair.nodes[0].sge(0, 8);
        let op = SendOp::SendInvalidate(Rkey::new(5));
        let fenced = SendWr { id: 2, op, sgl, solicited: false, read_fence: true, silent: false };
        pair.nodes[0].post(fenced).unwrap();
        pair.answer(0, GAP).unwrap();
        pair.wait(0);
        assert_eq!(pair.places(), [0]);
        data(&mut pair, 0, Opcode::ReadResponseOnly, 1024).unwrap();
        assert!(pair.nodes[0].done.is_empty() && pair.places().is_empty());
        if second_answer {
            let stale = data(&mut pair, 0, Opcode::ReadResponseOnly, 1024);
            assert_eq!(stale, Err(DropReason::StaleResponse));
        } else {
            pair.wait(0);
        }
        let needless = pair.nodes[0].qp.counters().get(Counter::NeedlessResends);
        assert_eq!(needless, u64::from(second_answer));
        assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
        assert_eq!(pair.places(), [1]);
    }
}

/// A responder works in order: the response to a packet that left behind the copy shows that the copy was
/// executed, lost, or is late by no more than a network reorders. The consumer does not wait for longer.
#[test]
fn a_read_sent_twice_waits_no_longer_once_something_newer_is_answered() {
    let mut pair = reads(1024);
    pair.answer(0, GAP).unwrap();
    pair.wait(0);
    let sent_at = pair.now;
    assert_eq!(pair.places(), [0]);
    data(&mut pair, 0, Opcode::ReadResponseOnly, 1024).unwrap();
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(2, SendOp::Send, sgl);
    assert_eq!(pair.places(), [1]);
    pair.answer(1, ACK).unwrap();
    assert_eq!(pair.nodes[0].statuses(), []);
    pair.wait(0);
    assert_eq!(pair.now, sent_at + Duration::from_millis(10));
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn a_read_with_its_data_succeeds_though_a_copy_is_in_flight_when_the_connection_ends() {
    let mut pair = reads(1024);
    pair.answer(0, GAP).unwrap();
    pair.wait(0);
    pair.taken(0);
    data(&mut pair, 0, Opcode::ReadResponseOnly, 1024).unwrap();
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(2, SendOp::Send, sgl);
    let Node { qp, out, .. } = &mut pair.nodes[0];
    qp.flush(out);
    pair.nodes[0].collect();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);
}

#[test]
fn req_06_an_answer_beyond_an_unfinished_read_is_remembered() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(1000, 2048);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(2, SendOp::Write { va: BASE, rkey }, sgl);
    pair.taken(0);
    data(&mut pair, 1, Opcode::ReadResponseLast, 1024).unwrap();
    pair.answer(3, ACK).unwrap();
    assert!(pair.nodes[0].done.is_empty());
    data(&mut pair, 0, Opcode::ReadResponseFirst, 1024).unwrap();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert!(pair.nodes[0].qp.deadline().is_none());
    assert!(pair.nodes[0].memory.0[0][1000..3048].iter().all(|byte| *byte == 0x5a));
}

/// READ, READ, WRITE; the first response is lost, and the peer's ACK comes when the first READ was
/// requested again.
#[test]
fn requests_acknowledged_behind_a_read_are_not_resent() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(1000, 8);
    for id in 0..2 {
        pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl.clone());
    }
    pair.nodes[0].send(2, SendOp::Write { va: BASE, rkey }, sgl);
    assert_eq!(pair.places(), [0, 1, 2]);
    pair.wait(0);
    loop {
        match pair.places()[..] {
            [-1] => pair.wait(0),
            [0] => break,
            ref other => panic!("{other:?}"),
        }
    }
    pair.answer(2, ACK).unwrap();
    assert_eq!(pair.places(), []);
}

#[test]
fn rnr_11_a_pause_asked_for_by_what_was_taken_since_is_stale() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(2, SendOp::Send, sgl);
    pair.taken(0);
    pair.answer(1, ACK).unwrap();
    let stale = Err(DropReason::StaleResponse);
    assert_eq!(pair.answer(1, Syndrome::RnrNak(RnrTimer::new(14))), stale);
    data(&mut pair, 0, Opcode::ReadResponseOnly, 8).unwrap();
    assert_eq!(pair.nodes[0].done.len(), 2);
}

#[test]
fn rnr_12_what_was_refused_is_sent_again_though_an_answer_was_missing_in_the_pause() {
    let mut pair = long_send(40);
    for at in [3, 8] {
        pair.answer(at, GAP).unwrap();
        pair.places();
    }
    pair.answer(40, ACK).unwrap();
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(3, SendOp::Read { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(4, SendOp::Send, sgl);
    assert_eq!(pair.places(), [41, 42]);
    pair.answer(42, Syndrome::RnrNak(RnrTimer::new(12))).unwrap();
    // The response counts as lost, and comes.
    pair.wait(0);
    data(&mut pair, 41, Opcode::ReadResponseOnly, 8).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), [42]);
}

/// The SEND behind a READ gets two RNR NAKs; the response to the READ is lost each time, and in the second
/// pause the SEND is acknowledged. The pause ends with nothing to send.
fn lose_an_answer_twice(pair: &mut Pair) {
    assert_eq!(pair.places(), [0, 1]);
    let rnr = Syndrome::RnrNak(RnrTimer::new(12));
    pair.answer(1, rnr).unwrap();
    pair.wait(0);
    pair.wait(0);
    assert_eq!(pair.places(), [0, 1]);
    pair.answer(1, rnr).unwrap();
    pair.answer(1, ACK).unwrap();
    pair.wait(0);
    assert_eq!(pair.places(), []);
}

/// Everything but the response to a READ that was requested again came in the pause: no packet is left to
/// be sent whose timer would run.
#[test]
fn an_answer_that_is_lost_again_before_a_pause_is_asked_for_after_it() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(2, SendOp::Send, sgl);
    lose_an_answer_twice(&mut pair);
    pair.wait(0);
    assert_eq!(pair.places(), [0]);
}

/// The same, and behind it stand a request that only takes effect here, once the READ is complete, and
/// one that comes after.
#[test]
fn a_request_without_packets_is_not_passed_after_a_pause() {
    let mut pair = Pair::new(10_000, CLEAN);
    let (rkey, sgl) = (pair.nodes[1].key, pair.nodes[0].sge(0, 8));
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let key = pair.nodes[0].registrar.reserve(PD, Reserve::FastRegister(access)).unwrap();
    let mapping = Mapping { region: RegionId(0), offset: 0, base: BASE, len: 100, access };
    pair.nodes[0].mrs.map(PD, key, &mapping).unwrap();
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(2, SendOp::Send, sgl.clone());
    pair.nodes[0].send(3, SendOp::Invalidate(key), SgList::new());
    pair.nodes[0].send(4, SendOp::Send, sgl);
    lose_an_answer_twice(&mut pair);
    data(&mut pair, 0, Opcode::ReadResponseOnly, 8).unwrap();
    assert_eq!(pair.places(), [2]);
    let qpn = Qpn::new(2);
    let reached = pair.nodes[0].mrs.remote(PD, qpn, key, BASE, 8, Access::REMOTE_READ);
    assert!(reached.is_err(), "the key has ended");
}

#[test]
fn rnr_08_the_request_that_was_refused_fails_though_an_answer_before_it_is_missing() {
    let mut pair = Pair::new(10_000, Settings { rnr_retry: 0, ..CLEAN });
    let (rkey, sgl) = (pair.nodes[1].key, pair.nodes[0].sge(0, 8));
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl.clone());
    pair.nodes[0].send(2, SendOp::Send, sgl);
    assert_eq!(pair.places(), [0, 1]);
    pair.answer(1, Syndrome::RnrNak(RnrTimer::new(12))).unwrap();
    let ends = [(1, WcStatus::Flushed), (2, WcStatus::RnrRetryExceeded)];
    assert_eq!(pair.nodes[0].statuses(), ends);
}

/// A quarter of a window at a slow rate takes longer than the timer: that is no silence, which would make
/// the rate slower still.
#[test]
fn a_paced_message_asks_often_enough() {
    let mut pair = Pair::new(2 << 20, CLEAN);
    let config = QpConfig {
        owner: 2,
        pd: PD,
        send_depth: 64,
        send_sge: 16,
        recv_depth: 64,
        recv_sge: 16,
        srq: None,
    };
    let rate = DcqcnConfig { line_rate: 125_000_000, min_rate: 1_250_000 };
    let window = Window::default();
    (pair.nodes[0].qp, pair.nodes[0].posters) =
        Qp::new(Qpn::new(2), &config, PD, window, Some(rate), tally());
    pair.nodes[0].connect(2, 3, CLEAN);
    let (rkey, sgl) = (pair.nodes[1].key, pair.nodes[0].sge(0, 1 << 20));
    for id in 0..40 {
        pair.nodes[0].send(id, SendOp::Write { va: BASE, rkey }, sgl.clone());
    }
    pair.transmit(0);
    pair.wires[1].remove(300);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses().len(), 40);
    assert_eq!(pair.sent[0].len(), 40 * 1024 + 1, "packets, and the one that was lost");
}

#[test]
fn going_back_does_not_pass_a_read_that_has_to_be_asked_for_again() {
    let (mut poster, mut sq) = SendQueue::new(0, 4, 1);
    sq.start_at(Psn::default(), Pmtu::B1024, Make::Other);
    assert!(sq.reserve_reads());
    let (va, rkey) = (BASE, Rkey::new(1));
    for (id, op) in [(0, SendOp::Send), (1, SendOp::Read { va, rkey }), (2, SendOp::Send)] {
        let sgl = SgList::new();
        let wr = SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false };
        poster.post(wr).unwrap();
        sq.update();
        let now = Instant::from_nanos(0);
        sq.sent(1, matches!(op, SendOp::Read { .. }), now, now);
    }
    let start = sq.una();
    sq.rewind_to(start);
    assert_eq!(sq.reads_in_flight(), 0);
    sq.rewind_to(start.add(2));
    assert_eq!((sq.next(), sq.at_cursor().unwrap().0.id()), (start, 0));
}

/// A resend that faults goes back: what leaves anew behind it is no gap any more.
#[test]
fn going_back_forgets_the_gaps() {
    let (mut poster, mut sq) = SendQueue::new(0, 1, 1);
    sq.start_at(Psn::default(), Pmtu::B1024, Make::Keeper);
    sq.reserve_missing(4, Make::Keeper);
    let sgl = [Sge { addr: BASE, len: 4096, lkey: Lkey::new(1) }];
    let (op, solicited, read_fence, silent) = (SendOp::Send, false, false, false);
    poster.post(SendWr { id: 1, op, sgl, solicited, read_fence, silent }).unwrap();
    sq.update();
    let (start, now) = (sq.una(), Instant::from_nanos(0));
    sq.sent(4, false, now, now);
    let gaps = [Gap { missing: 1, came: 1 }; 2];
    assert_eq!(sq.gaps_reported(start, gaps.into_iter()).map(|found| found.packets), Some(2));
    sq.rewind_to(start);
    sq.sent(4, false, now, now);
    sq.acknowledge(start.add(1), &mut Completions::default());
    assert!(!sq.resending());
}

/// A message whose source is deregistered when half of it is sent still fails as itself when a packet of
/// its first half has to be resent.
#[test]
fn a_fault_found_while_sending_again_fails_its_own_request() {
    for named in [0, 2] {
        let mut pair = long_send(40);
        let key = pair.nodes[0].key;
        pair.nodes[0].registrar.deregister(key).unwrap();
        pair.answer(named, GAP).unwrap();
        assert_eq!(pair.places(), []);
        let first = (1, WcStatus::LocalProtection);
        assert_eq!(pair.nodes[0].statuses(), [first, (2, WcStatus::Flushed)]);
    }
}

#[test]
fn a_hole_that_a_peer_does_not_answer_alone_is_asked_for_with_the_rest() {
    use Opcode::*;
    let mut pair = reads(4 * 1024);
    data(&mut pair, 2, ReadResponseMiddle, 1024).unwrap();
    let mut lens = Vec::new();
    for _ in 0..4 {
        pair.wait(0);
        lens.extend(pair.taken(0).iter().map(|taken| taken.ext.reth().unwrap().len));
    }
    assert_eq!(lens, [1024, 2048, 2048, 4096]);
}

/// A SEND and two READs; the retransmission timeout resends the SEND, and then its first copy is
/// acknowledged. That tells nothing about the READs, whose responses may be in flight: a probe is sent.
#[test]
fn reads_behind_a_timed_out_request_are_probed_first() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(1000, 8);
    pair.nodes[0].send(0, SendOp::Send, sgl.clone());
    for id in 1..3 {
        pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl.clone());
    }
    assert_eq!(pair.places(), [0, 1, 2]);
    let (mut again, start) = (0, pair.now);
    while again == 0 {
        assert!(pair.now.saturating_since(start) < Duration::from_secs(1));
        pair.wait(0);
        again = pair.taken(0).iter().filter(|taken| taken.opcode == Opcode::SendOnly).count();
    }
    pair.now = pair.now + Duration::from_millis(84);
    pair.answer(0, ACK).unwrap();
    let taken = pair.taken(0);
    assert!(taken.iter().all(|taken| taken.opcode != Opcode::ReadRequest), "asked for again");
}

#[test]
fn going_back_skips_what_the_peer_turns_out_to_have_and_no_more() {
    let (mut poster, mut sq) = SendQueue::new(0, 2, 1);
    sq.start_at(Psn::default(), Pmtu::B1024, Make::Other);
    assert!(sq.reserve_reads());
    let (va, rkey, now) = (BASE, Rkey::new(1), Instant::from_nanos(0));
    let requests = [(SendOp::Read { va, rkey }, 1), (SendOp::Send, 8)];
    for (id, (op, packets)) in requests.into_iter().enumerate() {
        let sgl = [Sge { addr: BASE, len: packets * 1024, lkey: Lkey::new(1) }];
        let (id, solicited, read_fence, silent) = (id as u64, false, false, false);
        poster.post(SendWr { id, op, sgl, solicited, read_fence, silent }).unwrap();
        sq.update();
        sq.sent(packets, id == 0, now, now);
    }
    let start = sq.una();
    sq.rewind_to(start);
    assert!(sq.acknowledge(start.add(3), &mut Completions::default()).lost_read);
    // The READ is requested again, and two packets behind it have come.
    sq.sent(1, true, now, now);
    let (request, packet) = sq.at_cursor().unwrap();
    assert_eq!((sq.next(), request.id(), packet), (start.add(3), 1, 2));
}

#[test]
fn a_gap_is_filled_before_the_next_one() {
    let (mut poster, mut sq) = SendQueue::new(0, 1, 1);
    sq.start_at(Psn::default(), Pmtu::B1024, Make::Keeper);
    sq.reserve_missing(8, Make::Keeper);
    let sgl = [Sge { addr: BASE, len: 8 * 1024, lkey: Lkey::new(1) }];
    let (op, solicited, read_fence, silent) = (SendOp::Send, false, false, false);
    poster.post(SendWr { id: 1, op, sgl, solicited, read_fence, silent }).unwrap();
    sq.update();
    let (start, now) = (sq.una(), Instant::from_nanos(0));
    sq.sent(8, false, now, now);
    let gaps = [Gap { missing: 2, came: 2 }; 2];
    assert_eq!(sq.gaps_reported(start, gaps.into_iter()).map(|found| found.packets), Some(4));
    sq.acknowledge(start.add(1), &mut Completions::default());
    assert_eq!(sq.at_cursor().unwrap().1, 1, "the rest of the first one is still missing");
}

/// Karn: the pause that a peer asks for is no part of a round trip.
#[test]
fn no_round_trip_is_measured_over_an_rnr_pause() {
    let mut pair = Pair::new(10_000, CLEAN);
    for at in 0..3 {
        let sgl = pair.nodes[0].sge(0, 10);
        pair.nodes[0].send(at as u64, SendOp::Send, sgl);
        assert_eq!(pair.places(), [at]);
        if at == 1 {
            pair.answer(at, Syndrome::RnrNak(RnrTimer::new(0))).unwrap();
            pair.wait(0);
            assert_eq!(pair.places(), [at]);
        }
        if at < 2 {
            pair.answer(at, ACK).unwrap();
        }
    }
    let waits = pair.nodes[0].qp.deadline().unwrap().saturating_since(pair.now);
    assert!(waits < Duration::from_millis(10), "{waits:?}");
}
