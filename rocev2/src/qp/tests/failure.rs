//! The failure of a queue pair is known at both ends.

use super::*;
use crate::qp::failure::{Failure, Refused};

const KEY: Rkey = Rkey::new(0xdead_beef);

/// The failures of both nodes, after the first has posted `op`.
fn failures(op: SendOp, prepare: impl FnOnce(&mut Pair)) -> [Option<Failure>; 2] {
    let mut pair = Pair::new(10_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, 3000);
    pair.nodes[0].send(1, op, sgl);
    prepare(&mut pair);
    pair.run_all();
    pair.nodes.each_ref().map(|node| node.qp.failure())
}

fn request(status: WcStatus, psn: Psn) -> Option<Failure> {
    Some(Failure::Request { status, psn })
}

#[test]
fn a_nak_is_reported_at_both_ends() {
    let psn = Pair::new(1, CLEAN).psn(0, 0);
    let access = Refused { code: NakCode::RemoteAccess, psn, key: Some(KEY) };
    for op in [SendOp::Write { va: BASE, rkey: KEY }, SendOp::Read { va: BASE, rkey: KEY }] {
        let [asked, answered] = failures(op, |_| ());
        assert_eq!(asked, request(WcStatus::RemoteAccess, psn));
        assert_eq!(answered, Some(Failure::Refused(access)));
        assert_eq!(asked.unwrap().nak(), Some((NakCode::RemoteAccess, false)));
        assert_eq!(answered.unwrap().nak(), Some((NakCode::RemoteAccess, true)));
    }
    let short = |pair: &mut Pair| {
        let sgl = pair.nodes[1].sge(0, 2999);
        pair.nodes[1].recv(1, sgl);
    };
    let [asked, answered] = failures(SendOp::Send, short);
    let psn = psn.add(2);
    let long = Refused { code: NakCode::InvalidRequest, psn, key: None };
    assert_eq!(asked, request(WcStatus::RemoteInvalidRequest, psn));
    assert_eq!(answered, Some(Failure::Refused(long)));
}

/// The failure names the key, even if it ended while its message was in progress.
#[test]
fn a_refused_part_names_the_key_of_the_whole() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let reth = Reth { va: BASE, rkey, len: 3000 };
    pair.hand(1, (Opcode::WriteFirst, pair.psn(0, 0)), Ext::Reth(reth), &[0; 1024]).unwrap();
    pair.nodes[1].registrar.deregister(rkey).unwrap();
    pair.hand(1, (Opcode::WriteMiddle, pair.psn(0, 1)), Ext::None, &[0; 1024]).unwrap();
    let refused = Refused { code: NakCode::RemoteAccess, psn: pair.psn(0, 1), key: Some(rkey) };
    assert_eq!(pair.nodes[1].qp.failure(), Some(Failure::Refused(refused)));
    // Two packets of the READ response have left.
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let reth = Reth { va: BASE, rkey, len: 3000 };
    pair.hand(1, (Opcode::ReadRequest, pair.psn(0, 0)), Ext::Reth(reth), &[]).unwrap();
    pair.nodes[1].registrar.deregister(rkey).unwrap();
    pair.transmit(1);
    let refused = Refused { code: NakCode::RemoteAccess, psn: pair.psn(0, 0), key: Some(rkey) };
    assert_eq!(pair.nodes[1].qp.failure(), Some(Failure::Refused(refused)));
}

#[test]
fn silence_and_faults_of_our_own_are_told_apart() {
    let good = Pair::new(10_000, CLEAN).nodes[1].key;
    let psn = Pair::new(1, CLEAN).psn(0, 0);
    let write = SendOp::Write { va: BASE, rkey: good };
    let deaf = |pair: &mut Pair| pair.settings.faults = [1000, 0, 0, 0];
    assert_eq!(failures(write, deaf), [request(WcStatus::TransportRetryExceeded, psn), None]);
    let gone = |pair: &mut Pair| {
        let key = pair.nodes[0].key;
        pair.nodes[0].registrar.deregister(key).unwrap();
    };
    let [own, peer] = failures(write, gone);
    assert_eq!((own, peer), (request(WcStatus::LocalProtection, psn), None));
    assert_eq!(own.unwrap().nak(), None);
    // A flush by the owner has no reason.
    let mut pair = Pair::new(10_000, CLEAN);
    let Node { qp, out, .. } = &mut pair.nodes[0];
    qp.flush(out);
    assert_eq!((qp.state(), qp.failure()), (QpState::Err, None));
}

/// IBTA ch. 10, Error State: no packet leaves but a NAK that is owed, and no timer runs.
#[test]
fn a_queue_pair_in_error_asks_nothing() {
    let mut pair = Pair::new(10_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, 8);
    pair.nodes[0].send(1, SendOp::Send, sgl);
    pair.taken(0);
    pair.wait(0);
    let Node { qp, out, .. } = &mut pair.nodes[0];
    assert!(qp.ready() && qp.deadline().is_some());
    qp.flush(out);
    assert!(!qp.ready() && qp.deadline().is_none());
}
