//! D connects.

use super::*;

/// The times since the call at which D sent something, in milliseconds.
fn times(bench: &mut Bench, start: Instant) -> Vec<u128> {
    bench.log.drain(..).map(|(at, _)| at.saturating_since(start).as_millis()).collect()
}

#[test]
fn a_req_as_linux_fills_it() {
    each_family(|mut bench| {
        let (_, req) = bench.connect();
        let model = bench.req();
        let ip_cm = IpCm { src_port: 50_000, src: bench.d, dst: bench.p };
        let mut private_data = [0; 92];
        private_data[..IpCm::LEN].copy_from_slice(&ip_cm.emit());
        let expected = Req {
            local_comm_id: req.local_comm_id,
            ca_guid: D_GUID,
            local_qpn: D_QP.qpn,
            responder_resources: LIMITS.inbound,
            initiator_depth: LIMITS.outbound,
            starting_psn: D_QP.starting_psn,
            primary: Path {
                local_gid: gid(bench.d),
                remote_gid: gid(bench.p),
                flow_label: (50_000 * 31 + u32::from(PORT)) & 0xf_ffff,
                ..model.primary
            },
            private_data,
            ..model
        };
        assert_eq!(req, expected);
    });
}

#[test]
fn connected_tells_how_the_peer_is_reached() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        bench.deliver(&CmMessage::Rep(Rep {
            responder_resources: 3,
            initiator_depth: 255,
            rnr_retry: 5,
            target_ack_delay: 18,
            ..bench.rep(req.local_comm_id)
        }));
        let CmEvent::Connected { conn: c, peer, private_data } = bench.event() else { panic!() };
        assert_eq!(c, conn);
        let expected = Peer {
            remote: SocketAddr::new(bench.p, PORT),
            local: SocketAddr::new(bench.d, 50_000),
            hop: Hop { src_mac: D_MAC, dst_mac: P_MAC, vlan: Some(5) },
            make: Make::Other,
            core_bits: 0,
            qpn: P_QPN,
            starting_psn: P_PSN,
            pmtu: Pmtu::B1024,
            limits: ReadLimits { inbound: 8, outbound: 3 },
            ack_timeout_code: 20,
            retry_count: 7,
            rnr_retry: 5,
            flow_label: req.primary.flow_label,
            traffic_class: 0,
            origin: Origin { macs: [P_MAC, D_MAC], vlan: 5, hop_limit: 61, src_port: 0xc000 },
        };
        assert_eq!((peer, &private_data[..]), (expected, &[3; 196][..]));
        bench.cm.confirm(bench.now, conn).unwrap();
        let CmMessage::Rtu(rtu) = bench.sent_one() else { panic!("no RTU") };
        assert_eq!((rtu.local_comm_id, rtu.remote_comm_id), (req.local_comm_id, P_ID));
        assert_eq!(bench.cm.confirm(bench.now, conn), Err(CmError::State));
    });
}

#[test]
fn cm_09_a_lost_req_is_resent() {
    each_family(|mut bench| {
        let params = bench.connect_values();
        let start = bench.now;
        bench.cm.connect(start, &params, D_QP.starting_psn).unwrap();
        bench.collect();
        bench.advance(secs(8));
        assert!(bench.log.windows(2).all(|pair| pair[0].1 == pair[1].1), "not identical");
        assert_eq!(times(&mut bench, start), [0, 500, 1500, 3500, 7500]);
    });
}

/// An edge that has no room for seconds sends the REQ once, and not as often as a timer has fired.
#[test]
fn one_copy_of_a_req_waits_for_room() {
    each_family(|mut bench| {
        let params = bench.connect_values();
        bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
        for _ in 0..3 {
            bench.now = bench.cm.poll_timeout().unwrap();
            bench.cm.handle_timeout(bench.now, |_| ());
        }
        assert!(matches!(bench.sent_one(), CmMessage::Req(_)));
        bench.advance(secs(4));
        assert!(matches!(bench.sent_one(), CmMessage::Req(_)), "it has left, and goes again");
    });
}

#[test]
fn cm_10_req_is_given_up() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        bench.advance(secs(20));
        assert_eq!(bench.event(), CmEvent::TimedOut { conn });
        let mut sent = bench.sent();
        let Some(CmMessage::Rej(rej)) = sent.pop() else { panic!("no REJ") };
        assert_eq!((rej.reason, rej.ari()), (RejReason::TIMEOUT, D_GUID.to_be_bytes().as_slice()));
        assert_eq!((rej.local_comm_id, rej.remote_comm_id.get()), (req.local_comm_id, 0));
        assert!(sent.iter().all(|message| *message == CmMessage::Req(req.clone())));
        // The same endpoints may be tried again before the old attempt is released.
        let params = bench.connect_values();
        bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
        assert!(matches!(bench.sent_one(), CmMessage::Req(_)));
        bench.cm.release(bench.now, conn);
        assert_eq!(bench.event(), CmEvent::Closed { conn });
    });
}

/// A REP that comes too late meets the REJ again, and no connection.
#[test]
fn cm_10_a_late_rep_is_rejected() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        bench.cm.release(bench.now, conn);
        let rej = bench.sent_rej();
        assert_eq!(rej.reason, RejReason::TIMEOUT);
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        assert_eq!(bench.sent_rej(), rej);
        assert_eq!(bench.event(), CmEvent::Closed { conn });
        bench.advance(secs(6));
        bench.silent(&CmMessage::Rep(bench.rep(req.local_comm_id)));
    });
}

#[test]
fn cm_12_a_duplicate_rep_is_answered_with_rtu() {
    each_family(|mut bench| {
        let (_, d_id) = bench.active();
        for _ in 0..2 {
            bench.deliver(&CmMessage::Rep(bench.rep(d_id)));
            assert!(matches!(bench.sent_one(), CmMessage::Rtu(_)));
            assert_eq!(bench.events(), []);
        }
        // Another one's REP, by its ID, is not ours to answer.
        let other = Rep { local_comm_id: CommId::new(1), ..bench.rep(d_id) };
        bench.silent(&CmMessage::Rep(other));
    });
}

/// Our consumer has no deadline to confirm: P is told to wait.
#[test]
fn a_duplicate_rep_before_confirm_is_answered_by_mra() {
    each_family(|mut bench| {
        let (conn, d_id) = bench.connected();
        for _ in 0..10 {
            bench.advance(secs(5));
            bench.deliver(&CmMessage::Rep(bench.rep(d_id)));
            let CmMessage::Mra(mra) = bench.sent_one() else { panic!("no MRA") };
            assert_eq!((mra.local_comm_id, mra.message), (d_id, MraMessage::Rep));
        }
        bench.cm.confirm(bench.now, conn).unwrap();
        assert!(matches!(bench.sent_one(), CmMessage::Rtu(_)));
    });
}

#[test]
fn cm_13_mra_delays_the_resend_of_req() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        bench.deliver(&mra(req.local_comm_id, MraMessage::Req, 20));
        bench.advance(ms(4500));
        assert_eq!(bench.sent(), []);
        bench.advance(ms(100));
        assert_eq!(bench.sent(), [CmMessage::Req(req.clone())]);
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        assert!(matches!(bench.event(), CmEvent::Connected { conn: c, .. } if c == conn));
    });
}

/// CM-13: the peer says how long, 4.096 us * 2^n, and is believed up to a limit.
#[test]
fn cm_13_an_mra_is_believed_up_to_the_service_limit() {
    for code in 0..32 {
        let mut bench = Bench::v4(config());
        let (_, req) = bench.connect();
        bench.deliver(&mra(req.local_comm_id, MraMessage::Req, code));
        let service = Duration::from_nanos(4096 << code).min(secs(70));
        let wait = service + config().packet_lifetime();
        assert_eq!(bench.cm.poll_timeout(), Some(bench.now + wait), "{code}");
    }
}

#[test]
fn cm_14_a_second_mra_is_ignored() {
    each_family(|mut bench| {
        let (_, req) = bench.connect();
        bench.deliver(&mra(req.local_comm_id, MraMessage::Req, 20));
        let due = bench.cm.poll_timeout();
        bench.advance(ms(1000));
        bench.silent(&mra(req.local_comm_id, MraMessage::Req, 24));
        bench.silent(&mra(req.local_comm_id, MraMessage::Rep, 24));
        assert_eq!(bench.cm.poll_timeout(), due);
    });
}

/// It says which message it is about: ours, or nothing.
#[test]
fn an_mra_about_another_message_is_silent() {
    each_family(|mut bench| {
        let (_, req) = bench.connect();
        let due = bench.cm.poll_timeout();
        bench.silent(&mra(req.local_comm_id, MraMessage::Rep, 24));
        bench.silent(&mra(req.local_comm_id, MraMessage::Lap, 24));
        assert_eq!(bench.cm.poll_timeout(), due);
        bench.deliver(&mra(req.local_comm_id, MraMessage::Req, 24));
        assert!(bench.cm.poll_timeout() > due);
    });
    each_family(|mut bench| {
        let (_, rep) = bench.replied();
        let due = bench.cm.poll_timeout();
        bench.silent(&mra(rep.local_comm_id, MraMessage::Req, 24));
        bench.silent(&mra(rep.local_comm_id, MraMessage::Lap, 24));
        assert_eq!(bench.cm.poll_timeout(), due);
        bench.deliver(&mra(rep.local_comm_id, MraMessage::Rep, 24));
        assert!(bench.cm.poll_timeout() > due);
    });
}

/// REJ 10: the peer asks its old connection whether that one lives, so our first connect after a restart
/// asks again, and succeeds.
#[test]
fn a_stale_req_asks_again_for_three_seconds() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        let stale = rej(req.local_comm_id, RejMessage::Req, RejReason::STALE_CONNECTION);
        let start = bench.now;
        let mut asked = 0;
        let event = loop {
            bench.deliver(&stale);
            if let Some(event) = bench.events().pop() {
                break event;
            }
            bench.advance(ms(250));
            assert_eq!(bench.sent_one(), CmMessage::Req(req.clone()));
            asked += 1;
        };
        let reason = RejReason::STALE_CONNECTION;
        assert!(
            matches!(event, CmEvent::Refused { conn: c, reason: r, .. } if (c, r) == (conn, reason))
        );
        assert_eq!((asked, bench.now.saturating_since(start)), (12, secs(3)));
    });
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        bench.deliver(&rej(req.local_comm_id, RejMessage::Req, RejReason::STALE_CONNECTION));
        bench.advance(ms(250));
        assert_eq!(bench.sent_one(), CmMessage::Req(req.clone()));
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        assert!(matches!(bench.event(), CmEvent::Connected { conn: c, .. } if c == conn));
    });
}

/// MRA after MRA, each renewed by our resend, keeps the attempt alive, but not for ever.
#[test]
fn mra_extends_the_attempt_within_bounds() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        let start = bench.now;
        let mut events = Vec::new();
        while events.is_empty() {
            bench.deliver(&mra(req.local_comm_id, MraMessage::Req, 31));
            bench.advance(secs(1));
            bench.sent();
            events = bench.events();
        }
        assert_eq!(events, [CmEvent::TimedOut { conn }]);
        let waited = bench.now.saturating_since(start).as_secs();
        assert_eq!(waited, config().peer_limits.response_limit.as_secs());
    });
}

#[test]
fn cm_16_rej_ends_the_attempt() {
    each_family(|mut bench| {
        for (message, local_comm_id) in
            [(RejMessage::Req, CommId::new(0)), (RejMessage::Req, P_ID), (RejMessage::Rep, P_ID)]
        {
            let (conn, req) = bench.connect();
            let CmMessage::Rej(rej) = rej(req.local_comm_id, message, RejReason::CONSUMER) else {
                unreachable!()
            };
            bench.deliver(&CmMessage::Rej(Rej { local_comm_id, ..rej }));
            let CmEvent::Refused { conn: c, reason, private_data } = bench.event() else {
                panic!()
            };
            assert_eq!((c, reason), (conn, RejReason::CONSUMER));
            assert_eq!(private_data, [9; 148]);
            bench.advance(secs(60));
            assert_eq!(bench.sent(), []);
        }
    });
}

#[test]
fn cm_17_18_unknown_ids_are_silent() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        let unknown = CommId::new(req.local_comm_id.get() ^ 1);
        bench.silent(&rej(unknown, RejMessage::Req, RejReason::CONSUMER));
        bench.silent(&CmMessage::Rep(bench.rep(unknown)));
        bench.silent(&mra(unknown, MraMessage::Req, 20));
        bench.silent(&rtu(unknown));
        bench.silent(&drep(unknown));
        // Nor is a message of the passive side's peer for the active one.
        bench.silent(&rtu(req.local_comm_id));
        bench.silent(&drep(req.local_comm_id));
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        assert!(matches!(bench.event(), CmEvent::Connected { conn: c, .. } if c == conn));
    });
}

/// REP from a queue pair that is in a live connection with us.
#[test]
fn a_stale_rep_is_rejected_with_reason_10() {
    each_family(|mut bench| {
        let (old, _) = bench.active();
        let local = SocketAddr::new(bench.d, 50_001);
        let params = Connect { local, ..bench.connect_values() };
        bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
        let CmMessage::Req(req) = bench.sent_one() else { panic!("no REQ") };
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        let rej = bench.sent_rej();
        assert_eq!((rej.reason, rej.message), (RejReason::STALE_CONNECTION, RejMessage::Rep));
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (req.local_comm_id, P_ID));
        // The old one is asked, and lives as long as it answers.
        assert_eq!(bench.cm.poll_probe(), Some(old));
        bench.cm.peer_answered(old);
        assert_eq!((bench.events(), bench.cm.poll_probe()), (Vec::new(), None));
    });
}

#[test]
fn a_rep_from_a_queue_pair_that_cannot_be_connected_is_ignored() {
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        let rep = bench.rep(req.local_comm_id);
        for local_qpn in NOT_CONNECTABLE {
            bench.deliver(&CmMessage::Rep(Rep { local_qpn, ..rep.clone() }));
            assert_eq!(bench.events(), []);
        }
        assert_eq!(bench.cm.counters.get(Counter::CmUnexpected), 3);
        bench.deliver(&CmMessage::Rep(rep));
        assert!(matches!(bench.event(), CmEvent::Connected { conn: c, .. } if c == conn));
    });
}

#[test]
fn cm_35_reject_after_rep() {
    each_family(|mut bench| {
        let (conn, d_id) = bench.connected();
        bench.cm.reject(bench.now, conn, b"no").unwrap();
        let rej = bench.sent_rej();
        assert_eq!((rej.reason, rej.message), (RejReason::CONSUMER, RejMessage::Rep));
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (d_id, P_ID));
        assert!(rej.private_data.starts_with(b"no\0"));
        // P has not heard it.
        bench.advance(ms(4500));
        bench.deliver(&CmMessage::Rep(bench.rep(d_id)));
        assert_eq!(bench.sent_rej(), rej);
        assert_eq!(bench.cm.confirm(bench.now, conn), Err(CmError::State));
    });
}

/// A REJ is repeated to the host that it was for, as it names numbers of both.
#[test]
fn cm_32_a_rej_is_repeated_to_its_peer_only() {
    each_family(|mut bench| {
        let stranger = if bench.p.is_ipv4() { "10.0.0.3" } else { "fd00::3" }.parse().unwrap();
        let (conn, d_id) = bench.connected();
        bench.cm.reject(bench.now, conn, b"no").unwrap();
        let rej = bench.sent_rej();
        let rep = CmMessage::Rep(bench.rep(d_id));
        bench.assert_silent(|bench| bench.deliver_from(stranger, &rep));
        bench.deliver(&rep);
        assert_eq!(bench.sent_rej(), rej);
    });
}

#[test]
fn wrong_parameters_send_nothing() {
    each_family(|mut bench| {
        let good = bench.connect_values();
        let other_family = if bench.d.is_ipv4() { "fd00::9" } else { "10.0.0.9" };
        for remote in [other_family, "0.0.0.0", "224.0.0.1", "255.255.255.255", "127.0.0.1", "::"] {
            let remote = SocketAddr::new(remote.parse().unwrap(), PORT);
            let params = Connect { remote, ..good.clone() };
            assert_eq!(
                bench.cm.connect(bench.now, &params, D_QP.starting_psn),
                Err(CmError::Address)
            );
        }
        bench.connect();
        assert_eq!(bench.cm.connect(bench.now, &good, D_QP.starting_psn), Err(CmError::Connected));
        assert_eq!(bench.sent(), []);
    });
}

/// Both sides of a connection in one connection manager (SYS-14): same address, same GUID.
#[test]
fn a_connection_with_oneself() {
    let mut bench = Bench::v4(config());
    bench.p = bench.d;
    bench.listen();
    let hop = Hop { src_mac: D_MAC, dst_mac: D_MAC, vlan: None };
    let params = Connect { hop, ..bench.connect_values() };
    let active = bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
    let mut events = loop_back(&mut bench);
    let CmEvent::ConnectRequest { conn: passive, .. } = events.remove(0) else { panic!() };
    let qp = QpSide { qpn: Qpn::new(0x12), ..D_QP };
    bench.cm.accept(bench.now, passive, qp, LIMITS, b"yes").unwrap();
    let events = loop_back(&mut bench);
    assert!(matches!(events[..], [CmEvent::Connected { conn, .. }] if conn == active));
    bench.cm.confirm(bench.now, active).unwrap();
    assert_eq!(loop_back(&mut bench), [CmEvent::Established { conn: passive }]);
    bench.cm.disconnect(bench.now, passive).unwrap();
    let reason = DisconnectReason::Dreq;
    let disconnected = CmEvent::PeerDisconnected { conn: active, reason };
    let done = CmEvent::DisconnectDone { conn: passive, timed_out: false };
    assert_eq!(loop_back(&mut bench), [disconnected, done]);
}

fn loop_back(bench: &mut Bench) -> Vec<CmEvent> {
    while let Some(CmTransmit { layers: Layers { encap, .. }, payload }) = bench.cm.poll_transmit()
    {
        let packet = Packet {
            encap,
            bth: Bth::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0)),
            ext: Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI }),
            payload: &payload,
        };
        bench.cm.handle_packet(bench.now, &packet, false);
    }
    bench.events()
}
