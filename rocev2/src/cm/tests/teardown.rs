//! Connections end.

use super::*;

fn assert_drep(bench: &mut Bench, d_id: CommId) {
    let CmMessage::Drep(drep) = bench.sent_one() else { panic!("no DREP") };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (d_id, P_ID));
}

#[test]
fn cm_19_20_dreq_is_answered_each_time_and_reported_once() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.deliver(&dreq(d_id));
            assert_drep(&mut bench, d_id);
            let reason = DisconnectReason::Dreq;
            assert_eq!(bench.event(), CmEvent::PeerDisconnected { conn, reason });
            bench.deliver(&dreq(d_id));
            assert_drep(&mut bench, d_id);
            assert_eq!(bench.events(), []);
            // The consumer's own disconnect then has nothing to wait for, but once.
            bench.cm.disconnect(bench.now, conn).unwrap();
            assert_eq!(bench.event(), CmEvent::DisconnectDone { conn, timed_out: false });
            assert_eq!(bench.cm.disconnect(bench.now, conn), Err(CmError::State));
            bench.cm.release(bench.now, conn);
            assert_eq!(bench.event(), CmEvent::Closed { conn });
            assert_eq!(bench.sent(), []);
        });
    });
}

#[test]
fn cm_19_dreq_for_another_queue_pair_is_silent() {
    each_family(|bench| {
        bench.each_side(|mut bench, _, d_id| {
            let CmMessage::Dreq(mut dreq) = dreq(d_id) else { unreachable!() };
            dreq.remote_qpn = Qpn::new(0x12);
            bench.silent(&CmMessage::Dreq(dreq));
        });
    });
}

/// The RTU was lost, and P is done with the connection already.
#[test]
fn cm_19_dreq_before_rtu() {
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        bench.deliver(&dreq(rep.local_comm_id));
        assert_drep(&mut bench, rep.local_comm_id);
        let reason = DisconnectReason::Dreq;
        assert_eq!(bench.event(), CmEvent::PeerDisconnected { conn, reason });
    });
}

#[test]
fn cm_21_dreq_for_unknown_ids_is_answered() {
    each_family(|mut bench| {
        bench.deliver(&dreq(CommId::new(77)));
        assert_drep(&mut bench, CommId::new(77));
        assert_eq!(bench.events(), []);
    });
}

#[test]
fn cm_22_dreq_is_resent_until_drep() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.cm.disconnect(bench.now, conn).unwrap();
            assert_eq!(bench.cm.disconnect(bench.now, conn), Err(CmError::State));
            bench.advance(secs(2));
            let sent = bench.sent();
            let [CmMessage::Dreq(dreq), .., last] = sent.as_slice() else { panic!("{sent:?}") };
            assert_eq!((dreq.local_comm_id, dreq.remote_comm_id), (d_id, P_ID));
            assert_eq!(dreq.remote_qpn, P_QPN);
            assert_eq!((sent.len(), last), (3, &CmMessage::Dreq(dreq.clone())));
            bench.deliver(&drep(d_id));
            assert_eq!(bench.event(), CmEvent::DisconnectDone { conn, timed_out: false });
            bench.silent(&drep(d_id));
            bench.advance(secs(60));
            assert_eq!(bench.sent(), []);
        });
    });
}

#[test]
fn cm_22_disconnect_of_a_dead_peer_is_bounded() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, _| {
            bench.cm.disconnect(bench.now, conn).unwrap();
            bench.advance(secs(8));
            assert_eq!(bench.event(), CmEvent::DisconnectDone { conn, timed_out: true });
        });
    });
}

/// Each side answers the other's DREQ.
#[test]
fn crossing_dreqs() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.cm.disconnect(bench.now, conn).unwrap();
            assert!(matches!(bench.sent_one(), CmMessage::Dreq(_)));
            bench.deliver(&dreq(d_id));
            assert_drep(&mut bench, d_id);
            assert_eq!(bench.event(), CmEvent::DisconnectDone { conn, timed_out: false });
            bench.silent(&drep(d_id));
        });
    });
}

#[test]
fn cm_24_req_in_time_wait_is_rejected_with_reason_10() {
    each_family(|mut bench| {
        let (_, d_id) = bench.passive();
        bench.deliver(&dreq(d_id));
        bench.sent();
        bench.events();
        bench.deliver(&CmMessage::Req(bench.req()));
        assert_eq!(bench.sent_rej().reason, RejReason::STALE_CONNECTION);
        // Another request of the same queue pair is a clean new connection.
        let req = Req { local_comm_id: CommId::new(5), ..bench.req() };
        bench.deliver(&CmMessage::Req(req));
        assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    });
}

#[test]
fn cm_31_a_req_replayed_after_time_wait_is_new() {
    each_family(|mut bench| {
        let (conn, d_id) = bench.passive();
        bench.deliver(&dreq(d_id));
        bench.cm.release(bench.now, conn);
        bench.sent();
        bench.events();
        bench.advance(ms(600));
        bench.deliver(&CmMessage::Req(bench.req()));
        let CmEvent::ConnectRequest { conn: again, .. } = bench.event() else { panic!() };
        assert_ne!(again, conn);
        yes(&mut bench.cm, bench.now, again).unwrap();
        let CmMessage::Rep(rep) = bench.sent_one() else { panic!("no REP") };
        assert_ne!(rep.local_comm_id, d_id);
        bench.silent(&rtu(d_id));
        bench.deliver(&rtu(rep.local_comm_id));
        assert_eq!(bench.event(), CmEvent::Established { conn: again });
        assert_eq!(bench.cm.disconnect(bench.now, conn), Err(CmError::UnknownId));
    });
}

#[test]
fn cm_32_messages_from_another_address_are_silent() {
    each_family(|bench| {
        let stranger = if bench.p.is_ipv4() { "10.0.0.3" } else { "fd00::3" }.parse().unwrap();
        bench.each_side(|mut bench, conn, d_id| {
            for message in [
                rtu(d_id),
                mra(d_id, MraMessage::Req, 20),
                rej(d_id, RejMessage::Other, RejReason::STALE_CONNECTION),
                dreq(d_id),
                drep(d_id),
                CmMessage::Rep(bench.rep(d_id)),
            ] {
                bench.assert_silent(|bench| bench.deliver_from(stranger, &message));
            }
            bench.deliver(&dreq(d_id));
            bench.sent();
            let reason = DisconnectReason::Dreq;
            assert_eq!(bench.event(), CmEvent::PeerDisconnected { conn, reason });
            // In time-wait, too.
            bench.assert_silent(|bench| bench.deliver_from(stranger, &dreq(d_id)));
        });
    });
}

#[test]
fn cm_32_messages_from_another_address_are_silent_while_connecting() {
    each_family(|mut bench| {
        let stranger = if bench.p.is_ipv4() { "10.0.0.3" } else { "fd00::3" }.parse().unwrap();
        let (_, req) = bench.connect();
        let d_id = req.local_comm_id;
        for message in [
            mra(d_id, MraMessage::Req, 20),
            rej(d_id, RejMessage::Req, RejReason::CONSUMER),
            CmMessage::Rep(bench.rep(d_id)),
        ] {
            bench.assert_silent(|bench| bench.deliver_from(stranger, &message));
        }
    });
    each_family(|mut bench| {
        let stranger = if bench.p.is_ipv4() { "10.0.0.3" } else { "fd00::3" }.parse().unwrap();
        let (_, rep) = bench.replied();
        let d_id = rep.local_comm_id;
        for message in [
            mra(d_id, MraMessage::Rep, 20),
            rej(d_id, RejMessage::Rep, RejReason::CONSUMER),
            rtu(d_id),
        ] {
            bench.assert_silent(|bench| bench.deliver_from(stranger, &message));
        }
    });
}

/// With our ID, which somebody may have guessed, and any other than the peer's.
fn foreign(d_id: CommId) -> Vec<CmMessage> {
    let mut messages = Vec::from([
        rtu(d_id),
        rej(d_id, RejMessage::Other, RejReason::STALE_CONNECTION),
        rej(d_id, RejMessage::Rep, RejReason::CONSUMER),
        rej(d_id, RejMessage::Req, RejReason::TIMEOUT),
        mra(d_id, MraMessage::Rep, 20),
        dreq(d_id),
        drep(d_id),
    ]);
    for message in &mut messages {
        match message {
            CmMessage::Rtu(Rtu { local_comm_id, .. })
            | CmMessage::Rej(Rej { local_comm_id, .. })
            | CmMessage::Mra(Mra { local_comm_id, .. })
            | CmMessage::Dreq(Dreq { local_comm_id, .. })
            | CmMessage::Drep(Drep { local_comm_id, .. }) => {
                *local_comm_id = CommId::new(P_ID.get() ^ 1);
            }
            _ => unreachable!(),
        }
    }
    messages
}

/// CM-17 for every message: one ID of two is none.
#[test]
fn cm_17_a_message_with_our_id_and_another_peers_changes_nothing() {
    let ignored = |bench: &mut Bench, d_id| {
        let due = bench.cm.poll_timeout();
        for message in foreign(d_id) {
            bench.deliver(&message);
            let sent = bench.sent();
            match message {
                // As for one of unknown IDs (CM-21).
                CmMessage::Dreq(_) => assert!(matches!(sent[..], [CmMessage::Drep(_)])),
                _ => assert_eq!(sent, []),
            }
            assert_eq!((bench.events(), bench.cm.poll_timeout()), (Vec::new(), due), "{message:?}");
        }
    };
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            ignored(&mut bench, d_id);
            // Nor while we leave.
            bench.cm.disconnect(bench.now, conn).unwrap();
            bench.sent();
            ignored(&mut bench, d_id);
            bench.deliver(&drep(d_id));
            assert_eq!(bench.event(), CmEvent::DisconnectDone { conn, timed_out: false });
        });
    });
    // Nor before the peer has confirmed.
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        ignored(&mut bench, rep.local_comm_id);
        bench.deliver(&rtu(rep.local_comm_id));
        assert_eq!(bench.event(), CmEvent::Established { conn });
    });
}

/// As a rebooted peer sends it, for one.
#[test]
fn rej_ends_an_established_connection() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.deliver(&rej(d_id, RejMessage::Other, RejReason::STALE_CONNECTION));
            let reason = DisconnectReason::Rejected(RejReason::STALE_CONNECTION);
            assert_eq!(bench.event(), CmEvent::PeerDisconnected { conn, reason });
            assert_eq!(bench.sent(), []);
        });
    });
}

/// DREQ leaves and is resent, but nobody waits for it.
#[test]
fn release_of_an_established_connection() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.cm.release(bench.now, conn);
            assert_eq!(bench.event(), CmEvent::Closed { conn });
            assert_eq!(bench.cm.peer(conn), None);
            // The same endpoints are free at once.
            let params = bench.connect_values();
            bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
            bench.advance(ms(600));
            let sent = bench.sent();
            let dreqs = sent.iter().filter(|m| matches!(m, CmMessage::Dreq(_))).count();
            assert_eq!((dreqs, sent.len()), (2, 4));
            bench.deliver(&drep(d_id));
            assert_eq!(bench.events(), []);
            assert_eq!(
                bench.cm.connect(bench.now, &params, D_QP.starting_psn),
                Err(CmError::Connected)
            );
        });
    });
}

#[test]
fn release_owes_a_pending_disconnect_its_event() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.cm.disconnect(bench.now, conn).unwrap();
            bench.cm.release(bench.now, conn);
            let done = CmEvent::DisconnectDone { conn, timed_out: true };
            assert_eq!(bench.events(), [done, CmEvent::Closed { conn }]);
            bench.sent();
            bench.deliver(&drep(d_id));
            assert_eq!(bench.events(), []);
        });
    });
}

/// Closing instead of answering is a refusal (NDK: implicit reject).
#[test]
fn release_before_an_answer_rejects() {
    each_family(|mut bench| {
        let conn = bench.requested();
        bench.cm.release(bench.now, conn);
        let rej = bench.sent_rej();
        assert_eq!((rej.reason, rej.message), (RejReason::CONSUMER, RejMessage::Req));
        assert_eq!(bench.event(), CmEvent::Closed { conn });
    });
    each_family(|mut bench| {
        let (conn, _) = bench.connected();
        bench.cm.release(bench.now, conn);
        let rej = bench.sent_rej();
        assert_eq!((rej.reason, rej.message), (RejReason::CONSUMER, RejMessage::Rep));
        assert_eq!(bench.event(), CmEvent::Closed { conn });
    });
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        bench.cm.release(bench.now, conn);
        let rej = bench.sent_rej();
        assert_eq!((rej.reason, rej.message), (RejReason::CONSUMER, RejMessage::Rep));
        bench.deliver(&rtu(rep.local_comm_id));
        assert_eq!(bench.sent_rej(), rej);
        assert_eq!(bench.event(), CmEvent::Closed { conn });
    });
}

/// An event that the consumer has not taken is not news any more.
#[test]
fn release_withdraws_what_was_not_taken() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        bench.cm.release(bench.now, conn);
        assert_eq!(bench.event(), CmEvent::Closed { conn });
        bench.cm.release(bench.now, conn);
        assert_eq!(bench.events(), []);
    });
}

/// Messages that wait to be sent over a lost path never leave, replies to unknown hosts included; messages
/// for other paths do.
#[test]
fn messages_that_wait_for_a_lost_path_are_not_sent() {
    let mut bench = Bench::v4(config());
    let params = bench.connect_values();
    let conn = bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
    bench.deliver(&dreq(CommId::new(77)));
    bench.deliver_from("10.0.0.3".parse().unwrap(), &dreq(CommId::new(78)));
    let lost = crate::path::Path { local: bench.d, remote: bench.p };
    bench.cm.lose_paths(bench.now, |path| path == lost);
    assert_drep(&mut bench, CommId::new(78));
    assert_eq!(bench.event(), CmEvent::PathLost { conn });
}
