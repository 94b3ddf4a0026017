//! What a queue pair sends, and how its requests end.

use super::*;

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
    let Node { qp, out, .. } = &mut pair.nodes[0];
    qp.post_send(fenced, out).unwrap();
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
