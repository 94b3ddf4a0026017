//! D listens.

use super::*;

/// Replaces `[n]` by n zero bytes; all else is hex.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            Some(zeros) => bytes.resize(bytes.len() + zeros.parse::<usize>().unwrap(), 0),
            None => bytes.extend(
                (0..word.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&word[at..at + 2], 16).unwrap()),
            ),
        }
    }
    bytes
}

/// A REQ of Linux rdma_cm over rdma_rxe, 10.0.0.2 to 10.0.0.1 port 7174.
const LINUX_REQ: &str = "
    020000000001 020000000002 0800
    45000134 23f14000 401101c6 0a000002 0a000001  d87212b7 01200000
    6400ffff 00000001 80000000  80010000 00000001
    01070203 00000000 00000002 44ed9184 0010 0000 00000000
    8491ed44 [4] 00000000 01061c06 505400fffe000002 [8]
    000011 01 000000 01 000000 a0 600964 a7 ffff 37 f0
    ffff ffff [10] ffff0a000002 [10] ffff0a000001 7a5c5000 00 40 00 88
    [44]
    00 40 c261 [12] 0a000002 [12] 0a000001 [56]
    ee503d50";

#[test]
fn cm_01_a_linux_req_is_a_connect_event() {
    let mut bench = Bench::v4(config());
    let listener = bench.listen();
    let frame = bytes(LINUX_REQ);
    bench.cm.handle_packet(bench.now, &Packet::parse(&frame).unwrap(), false);
    let CmEvent::ConnectRequest { listener: l, conn: _, peer, private_data } = bench.event() else {
        panic!()
    };
    assert_eq!(l, listener);
    let expected = Peer {
        remote: "10.0.0.2:49761".parse().unwrap(),
        local: "10.0.0.1:7174".parse().unwrap(),
        hop: Hop { src_mac: D_MAC, dst_mac: P_MAC, vlan: None },
        make: Make::Other,
        core_bits: 0,
        qpn: Qpn::new(0x11),
        starting_psn: Psn::new(0x60_0964),
        pmtu: Pmtu::B1024,
        limits: ReadLimits { inbound: 1, outbound: 1 },
        ack_timeout_code: 19,
        retry_count: 7,
        rnr_retry: 7,
        flow_label: 0x7a5c5,
        traffic_class: 0,
        origin: Origin { macs: [P_MAC, D_MAC], vlan: 0, hop_limit: 64, src_port: 0xd872 },
    };
    assert_eq!((peer, &private_data[..]), (expected, &[0; 56][..]));
}

#[test]
fn cm_02_accept_sends_a_rep() {
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        let mut private_data = [0; 196];
        private_data[..3].copy_from_slice(b"yes");
        let expected = Rep {
            local_comm_id: rep.local_comm_id,
            remote_comm_id: P_ID,
            local_qpn: D_QP.qpn,
            starting_psn: D_QP.starting_psn,
            ca_guid: D_GUID,
            private_data,
            ..bench.rep(P_ID)
        };
        assert_eq!(rep, expected);
        assert_ne!(rep.local_comm_id, CommId::new(0));
        assert_eq!(bench.cm.peer(conn).unwrap().qpn, P_QPN);
        assert_eq!(yes(&mut bench.cm, bench.now, conn), Err(CmError::State));
    });
}

#[test]
fn cm_03_rtu_establishes_once() {
    each_family(|mut bench| {
        let (_, d_id) = bench.passive();
        bench.silent(&rtu(d_id));
        bench.advance(secs(60));
        assert_eq!(bench.sent(), []);
    });
}

/// The first data packet is as good as RTU (IBTA ch. 12, Communication Established).
#[test]
fn data_establishes_as_rtu_does() {
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        bench.cm.established_by_data(bench.now, conn);
        assert_eq!(bench.event(), CmEvent::Established { conn });
        bench.cm.established_by_data(bench.now, conn);
        assert_eq!(bench.events(), []);
        bench.silent(&rtu(rep.local_comm_id));
    });
}

#[test]
fn cm_04_no_listener_is_rejected_with_reason_8() {
    each_family(|mut bench| {
        bench.deliver(&CmMessage::Req(bench.req()));
        let expected = Rej {
            local_comm_id: CommId::new(0),
            remote_comm_id: P_ID,
            message: RejMessage::Req,
            reason: RejReason::INVALID_SERVICE_ID,
            ari_len: 0,
            ari: [0; 72],
            private_data: [0; 148],
        };
        assert_eq!(bench.sent_rej(), expected);
        assert_eq!(bench.events(), []);
    });
}

/// A paused listener is as none (NdkControlConnectEvents).
#[test]
fn cm_04_a_paused_listener_is_none() {
    each_family(|mut bench| {
        let listener = bench.listen();
        bench.cm.pause(listener, true);
        bench.deliver(&CmMessage::Req(bench.req()));
        assert_eq!(bench.sent_rej().reason, RejReason::INVALID_SERVICE_ID);
        bench.cm.pause(listener, false);
        bench.deliver(&CmMessage::Req(bench.req()));
        assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    });
}

#[test]
fn cm_05_reject_carries_148_bytes() {
    each_family(|mut bench| {
        let conn = bench.requested();
        bench.cm.reject(bench.now, conn, &[0xab; 148]).unwrap();
        let rej = bench.sent_rej();
        assert_eq!((rej.remote_comm_id, rej.message), (P_ID, RejMessage::Req));
        assert_eq!((rej.reason, rej.private_data), (RejReason::CONSUMER, [0xab; 148]));
        assert_eq!(bench.cm.reject(bench.now, conn, &[]), Err(CmError::State));
        // P has not heard it and asks again: no second event, the same answer.
        bench.advance(ms(4600));
        bench.deliver(&CmMessage::Req(bench.req()));
        assert_eq!(bench.sent_rej(), rej);
        assert_eq!(bench.events(), []);
        bench.cm.release(bench.now, conn);
        assert_eq!(bench.event(), CmEvent::Closed { conn });
        assert_eq!(bench.sent(), []);
    });
}

/// CM-05, CM-23: only the REQ that was rejected is answered so again. Another with its ID is of a peer that
/// started anew, or forged.
#[test]
fn cm_05_a_rejected_id_is_stale_in_another_req() {
    type Change = fn(&mut Req);
    let others: [Change; 3] = [
        |req| req.local_qpn = Qpn::new(P_QPN.get() + 1),
        |req| req.starting_psn = P_PSN.add(1),
        |req| req.service_id = service_id(PORT + 1),
    ];
    for change in others {
        each_family(|mut bench| {
            let conn = bench.requested();
            bench.cm.reject(bench.now, conn, b"no").unwrap();
            let refused = bench.sent_rej();
            let mut other = bench.req();
            change(&mut other);
            bench.deliver(&CmMessage::Req(other));
            assert_eq!(bench.sent_rej().reason, RejReason::STALE_CONNECTION);
            bench.deliver(&CmMessage::Req(bench.req()));
            assert_eq!((bench.sent_rej(), bench.events()), (refused, Vec::new()));
        });
    }
}

#[test]
fn cm_06_07_a_duplicate_req_is_answered_by_mra() {
    each_family(|mut bench| {
        bench.requested();
        for _ in 0..3 {
            bench.deliver(&CmMessage::Req(bench.req()));
            let CmMessage::Mra(mra) = bench.sent_one() else { panic!("no MRA") };
            assert_eq!((mra.remote_comm_id, mra.message), (P_ID, MraMessage::Req));
            assert_eq!(mra.service_timeout, 22);
            assert_eq!(bench.events(), []);
        }
    });
}

#[test]
fn cm_08_a_duplicate_req_after_rep_is_silent() {
    each_family(|mut bench| {
        let (_, rep) = bench.replied();
        bench.silent(&CmMessage::Req(bench.req()));
        bench.deliver(&rtu(rep.local_comm_id));
        bench.events();
        bench.silent(&CmMessage::Req(bench.req()));
    });
}

/// Only the side that sent REQ can be sent REP.
#[test]
fn a_rep_to_the_passive_side_is_silent() {
    each_family(|mut bench| {
        let (_, d_id) = bench.passive();
        let rep = bench.rep(d_id);
        bench.silent(&CmMessage::Rep(rep));
    });
}

#[test]
fn cm_11_a_lost_rep_is_resent() {
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        bench.advance(secs(5));
        let sent = bench.sent();
        assert!(sent.len() >= 3 && sent.iter().all(|m| *m == CmMessage::Rep(rep.clone())));
        bench.deliver(&rtu(rep.local_comm_id));
        assert_eq!(bench.event(), CmEvent::Established { conn });
    });
}

/// REP never answered: one REJ 4, so that the peer is not left half open; it is repeated to a peer
/// that shows up late.
#[test]
fn cm_11_rep_is_given_up_with_reason_4() {
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        bench.advance(secs(20));
        assert_eq!(bench.event(), CmEvent::TimedOut { conn });
        let Some(CmMessage::Rej(rej)) = bench.sent().pop() else { panic!("no REJ") };
        assert_eq!((rej.reason, rej.ari()), (RejReason::TIMEOUT, D_GUID.to_be_bytes().as_slice()));
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (rep.local_comm_id, P_ID));
        bench.deliver(&rtu(rep.local_comm_id));
        assert_eq!(bench.sent_rej(), rej);
    });
}

#[test]
fn cm_15_accept_after_30_s() {
    each_family(|mut bench| {
        let conn = bench.requested();
        for _ in 0..6 {
            bench.advance(secs(5));
            bench.deliver(&CmMessage::Req(bench.req()));
            assert!(matches!(bench.sent_one(), CmMessage::Mra(_)));
        }
        yes(&mut bench.cm, bench.now, conn).unwrap();
        let CmMessage::Rep(rep) = bench.sent_one() else { panic!("no REP") };
        bench.deliver(&rtu(rep.local_comm_id));
        assert_eq!(bench.event(), CmEvent::Established { conn });
    });
}

/// MRA(REP): P's consumer is slow to confirm.
#[test]
fn mra_delays_the_resend_of_rep() {
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        bench.deliver(&mra(rep.local_comm_id, MraMessage::Rep, 24));
        bench.advance(secs(68));
        assert_eq!(bench.sent(), []);
        bench.advance(secs(2));
        assert_eq!(bench.sent(), [CmMessage::Rep(rep.clone())]);
        bench.deliver(&rtu(rep.local_comm_id));
        assert_eq!(bench.event(), CmEvent::Established { conn });
    });
}

/// Lets a connection that may be stale end: `after` the check began, without a response.
fn silence(bench: &mut Bench, conn: ConnId) {
    let mut probes = Vec::new();
    let start = bench.now;
    let event = loop {
        probes.extend(bench.cm.poll_probe().map(|id| {
            assert_eq!(id, conn);
            bench.now.saturating_since(start).as_millis()
        }));
        if let Some(event) = bench.events().pop() {
            break event;
        }
        bench.advance(ms(100));
    };
    assert_eq!(probes, [0, 100, 300, 700]);
    assert_eq!(bench.now.saturating_since(start), stale::LIMIT);
    assert_eq!(event, CmEvent::PeerDisconnected { conn, reason: DisconnectReason::Stale });
}

/// The peer has restarted and counts its IDs from the same start; Linux would be silent.
#[test]
fn cm_23_a_restarted_peer_is_stale_and_its_old_connection_ends_by_silence() {
    each_family(|mut bench| {
        let (conn, _) = bench.passive();
        let req = Req { starting_psn: P_PSN.add(1), ..bench.req() };
        bench.deliver(&CmMessage::Req(req.clone()));
        assert_eq!(bench.sent_rej().reason, RejReason::STALE_CONNECTION);
        silence(&mut bench, conn);
        bench.advance(secs(1));
        bench.deliver(&CmMessage::Req(req));
        assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    });
}

#[test]
fn cm_23_a_queue_pair_in_use_is_stale_and_its_connection_ends_by_silence() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, _| {
            bench.listen_again();
            let req = Req { local_comm_id: CommId::new(5), ..bench.req() };
            bench.deliver(&CmMessage::Req(req.clone()));
            let rej = bench.sent_rej();
            assert_eq!(rej.reason, RejReason::STALE_CONNECTION);
            assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId::new(0), CommId::new(5)));
            silence(&mut bench, conn);
            let req = Req { local_comm_id: CommId::new(6), ..req };
            bench.deliver(&CmMessage::Req(req));
            assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
        });
    });
}

/// However many REQs come, the connection is asked four times a second at most, and none of them ends it.
#[test]
fn cm_23_a_connection_that_answers_outlives_any_number_of_stale_reqs() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, _| {
            bench.listen_again();
            let mut probes = 0;
            for n in 0..5000 {
                let req = Req { local_comm_id: CommId::new(n + 5), ..bench.req() };
                bench.deliver(&CmMessage::Req(req));
                assert_eq!(bench.sent_rej().reason, RejReason::STALE_CONNECTION);
                while let Some(id) = bench.cm.poll_probe() {
                    assert_eq!(id, conn);
                    bench.cm.peer_answered(id);
                    probes += 1;
                }
                bench.advance(ms(1));
                assert_eq!(bench.events(), []);
            }
            assert_eq!(probes, 20);
            bench.advance(secs(60));
            assert_eq!((bench.events(), bench.sent(), bench.cm.poll_probe()), Default::default());
        });
    });
}

/// Our own queue pair failed before: nothing speaks for the connection, and nobody has to wait.
#[test]
fn cm_23_a_connection_that_cannot_be_asked_ends_at_once() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, _| {
            bench.listen_again();
            let req = Req { local_comm_id: CommId::new(5), ..bench.req() };
            bench.deliver(&CmMessage::Req(req));
            assert_eq!(bench.cm.poll_probe(), Some(conn));
            bench.cm.peer_gone(bench.now, conn);
            let reason = DisconnectReason::Stale;
            assert_eq!(bench.event(), CmEvent::PeerDisconnected { conn, reason });
        });
    });
}

/// DREQ is the check then, sent at once for the new REQ; its DREP makes room.
#[test]
fn cm_23_a_connection_that_is_being_left_is_asked_by_dreq() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.listen_again();
            bench.cm.disconnect(bench.now, conn).unwrap();
            bench.sent();
            let req = Req { local_comm_id: CommId::new(5), ..bench.req() };
            for _ in 0..100 {
                bench.deliver(&CmMessage::Req(req.clone()));
            }
            let sent = bench.sent();
            assert_eq!(sent.iter().filter(|m| matches!(m, CmMessage::Dreq(_))).count(), 1);
            assert_eq!((sent.len(), bench.cm.poll_probe()), (101, None));
            bench.deliver(&drep(d_id));
            assert_eq!(bench.event(), CmEvent::DisconnectDone { conn, timed_out: false });
            bench.deliver(&CmMessage::Req(req));
            assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
        });
    });
}

/// A request that nobody has confirmed proves nothing, be it under the same ID or for the same queue pair:
/// whichever comes first, the confirmed one counts.
#[test]
fn cm_23_a_forged_request_before_the_real_one_does_not_stand_in_its_way() {
    each_family(|mut bench| {
        let forged = bench.requested();
        yes(&mut bench.cm, bench.now, forged).unwrap();
        assert!(matches!(bench.sent_one(), CmMessage::Rep(_)));
        for change in [
            |req: Req| Req { starting_psn: P_PSN.add(1), ..req },
            |req: Req| Req { local_comm_id: CommId::new(5), ..req },
            |req: Req| Req { local_qpn: Qpn::new(0x78), ..req },
        ] {
            let req = change(bench.req());
            bench.deliver(&CmMessage::Req(req.clone()));
            let CmEvent::ConnectRequest { conn, .. } = bench.event() else { panic!() };
            yes(&mut bench.cm, bench.now, conn).unwrap();
            let CmMessage::Rep(rep) = bench.sent_one() else { panic!("no REP") };
            let CmMessage::Rtu(rtu) = rtu(rep.local_comm_id) else { unreachable!() };
            bench.deliver(&CmMessage::Rtu(Rtu { local_comm_id: req.local_comm_id, ..rtu }));
            assert_eq!(bench.event(), CmEvent::Established { conn });
            bench.cm.release(bench.now, conn);
            assert_eq!(bench.event(), CmEvent::Closed { conn });
            let CmMessage::Drep(drep) = drep(rep.local_comm_id) else { unreachable!() };
            bench.deliver(&CmMessage::Drep(Drep { local_comm_id: req.local_comm_id, ..drep }));
            // The identity rests for a while (CM-24).
            bench.advance(secs(1));
            bench.sent();
        }
        bench.advance(secs(20));
        assert_eq!(bench.event(), CmEvent::TimedOut { conn: forged });
    });
}

/// Two requests for the same queue pair, and both are confirmed: only the peer can do that, and it has the
/// queue pair in the later one.
#[test]
fn cm_23_a_queue_pair_that_is_confirmed_elsewhere_has_left() {
    each_family(|mut bench| {
        let (old, old_rep) = bench.replied();
        let req = Req { local_comm_id: CommId::new(5), ..bench.req() };
        bench.deliver(&CmMessage::Req(req.clone()));
        let CmEvent::ConnectRequest { conn, .. } = bench.event() else { panic!() };
        yes(&mut bench.cm, bench.now, conn).unwrap();
        bench.sent();
        bench.deliver(&rtu(old_rep.local_comm_id));
        assert_eq!(bench.event(), CmEvent::Established { conn: old });
        bench.cm.established_by_data(bench.now, conn);
        let reason = DisconnectReason::Stale;
        let lost = CmEvent::PeerDisconnected { conn: old, reason };
        assert_eq!(bench.events(), [lost, CmEvent::Established { conn }]);
    });
}

/// REP is for who does not know our ID; data shows that the peer does.
#[test]
fn a_rep_is_not_resent_once_data_has_come() {
    each_family(|mut bench| {
        let (conn, _) = bench.replied();
        bench.cm.established_by_data(bench.now, conn);
        assert_eq!(bench.event(), CmEvent::Established { conn });
        bench.advance(secs(60));
        assert_eq!((bench.sent(), bench.events()), Default::default());
    });
}

#[test]
fn cm_25_26_no_cm_datagram_is_silent() {
    each_family(|mut bench| {
        bench.listen();
        let mut good = [0; MAD_LEN];
        emit_mad(&MadHeader::default(), &CmMessage::Req(bench.req()), &mut good);
        for (at, value) in [(0, 2), (2, 1), (3, 1), (17, 0x99), (17, 0x19), (17, 0x1a)] {
            let mut mad = good;
            mad[at] = value;
            bench.assert_silent(|bench| bench.deliver_mad(bench.p, &mad));
        }
        for mad in [&[&good[..], &[0]].concat(), &good[..255], &[]] {
            bench.assert_silent(|bench| bench.deliver_mad(bench.p, mad));
        }
        bench.deliver_mad(bench.p, &good);
        assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    });
}

/// The refusal of a REQ that differs from a good one in one field.
fn refusal(bench: &mut Bench, change: impl FnOnce(&mut Req)) -> Rej {
    let mut req = bench.req();
    change(&mut req);
    bench.deliver(&CmMessage::Req(req));
    assert_eq!(bench.events(), []);
    let rej = bench.sent_rej();
    assert_eq!((rej.local_comm_id, rej.message), (CommId::new(0), RejMessage::Req));
    rej
}

#[test]
fn cm_27_other_transports_are_rejected_with_reason_9() {
    each_family(|mut bench| {
        bench.listen();
        for transport in [Transport::Uc, Transport::Rd, Transport::Extended] {
            let rej = refusal(&mut bench, |req| req.transport = transport);
            assert_eq!(rej.reason, RejReason::INVALID_TRANSPORT);
        }
    });
}

#[test]
fn a_queue_pair_that_cannot_be_connected_is_rejected_with_reason_5() {
    each_family(|mut bench| {
        bench.listen();
        for qpn in NOT_CONNECTABLE {
            let rej = refusal(&mut bench, |req| req.local_qpn = qpn);
            assert_eq!(rej.reason, RejReason::UNSUPPORTED);
        }
    });
}

#[test]
fn cm_28_bad_path_mtus_are_rejected_with_reason_26() {
    let mut bench = Bench::v4(CmConfig { max_pmtu: Pmtu::B2048, ..config() });
    bench.listen();
    for path_mtu in [0, 5, 6, 15] {
        let rej = refusal(&mut bench, |req| req.path_mtu = path_mtu);
        assert_eq!((rej.reason, rej.ari()), (RejReason::INVALID_MTU, [4].as_slice()));
    }
    bench.deliver(&CmMessage::Req(Req { path_mtu: 4, ..bench.req() }));
    assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
}

#[test]
fn cm_29_read_limits_are_capped_both_ways() {
    let limits = ReadLimits { inbound: 6, outbound: 5 };
    let mut bench = Bench::v4(CmConfig { limits, ..config() });
    bench.listen();
    let req = Req { responder_resources: 255, initiator_depth: 255, ..bench.req() };
    bench.deliver(&CmMessage::Req(req));
    let CmEvent::ConnectRequest { conn, peer, .. } = bench.event() else { panic!() };
    assert_eq!(peer.limits, limits);
    // Accepting may lower them.
    let limits = ReadLimits { inbound: 255, outbound: 2 };
    bench.cm.accept(bench.now, conn, D_QP, limits, b"yes").unwrap();
    let CmMessage::Rep(rep) = bench.sent_one() else { panic!("no REP") };
    assert_eq!((rep.responder_resources, rep.initiator_depth), (6, 2));
    let limits = ReadLimits { inbound: 6, outbound: 2 };
    assert_eq!(bench.cm.peer(conn).unwrap().limits, limits);
}

#[test]
fn cm_33_sidr_lap_apr() {
    each_family(|mut bench| {
        bench.listen();
        let mut mad = [0; MAD_LEN];
        emit_mad(&MadHeader::default(), &CmMessage::Req(bench.req()), &mut mad);
        mad[17] = 0x17;
        bench.deliver_mad(bench.p, &mad);
        let CmMessage::SidrRep(sidr_rep) = bench.sent_one() else { panic!("no SIDR_REP") };
        assert_eq!((sidr_rep.request_id, sidr_rep.status), (P_ID.get(), 1));
        for attribute in [0x18, 0x19, 0x1a] {
            mad[17] = attribute;
            bench.assert_silent(|bench| bench.deliver_mad(bench.p, &mad));
        }
    });
}

#[test]
fn cm_34_an_alternate_path_is_ignored() {
    each_family(|mut bench| {
        bench.listen();
        let req = bench.req();
        bench.deliver(&CmMessage::Req(Req { alternate: req.primary, ..req }));
        assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    });
}

/// The active consumer rejects what we offered.
#[test]
fn cm_35_rej_after_rep_ends_the_accept() {
    each_family(|mut bench| {
        let (conn, rep) = bench.replied();
        bench.deliver(&rej(rep.local_comm_id, RejMessage::Rep, RejReason::CONSUMER));
        let CmEvent::Refused { conn: c, reason, private_data } = bench.event() else { panic!() };
        assert_eq!((c, reason), (conn, RejReason::CONSUMER));
        assert_eq!(private_data, [9; 148]);
        bench.advance(secs(60));
        assert_eq!(bench.sent(), []);
    });
}

/// The peer gave up before it heard of our ID: REJ 4 names only its own, and its GUID.
#[test]
fn rej_4_finds_the_request_by_guid() {
    each_family(|mut bench| {
        let conn = bench.requested();
        let timeout = rej(CommId::new(0), RejMessage::Other, RejReason::TIMEOUT);
        bench.silent(&timeout);
        let CmMessage::Rej(mut rej) = timeout else { unreachable!() };
        rej.ari[..8].copy_from_slice(&P_GUID.to_be_bytes());
        rej.ari_len = 8;
        bench.deliver(&CmMessage::Rej(rej));
        let event = bench.event();
        assert!(
            matches!(event, CmEvent::Refused { conn: c, reason: RejReason::TIMEOUT, .. } if c == conn)
        );
    });
}

/// Once the connection is established, the peer knows our ID, and so has to name it.
#[test]
fn rej_4_by_guid_does_not_end_an_established_connection() {
    each_family(|mut bench| {
        bench.passive();
        for d_id in [0, 1, P_ID.get()] {
            let CmMessage::Rej(mut rej) =
                rej(CommId::new(d_id), RejMessage::Other, RejReason::TIMEOUT)
            else {
                unreachable!()
            };
            rej.ari[..8].copy_from_slice(&P_GUID.to_be_bytes());
            rej.ari_len = 8;
            bench.silent(&CmMessage::Rej(rej));
        }
    });
}

impl Bench {
    /// A listener, where the side under test may have one already.
    fn listen_again(&mut self) {
        match self.cm.listen(SocketAddr::new(self.d, PORT), 128) {
            Ok(_) | Err(CmError::AddressInUse) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}
