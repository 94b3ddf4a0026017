//! A peer's port carries a smaller path MTU than ours.

use super::*;

/// P's REJ of the REQ of `d_id`, with this additional information.
fn rej(d_id: CommId, reason: RejReason, ari: &[u8]) -> Rej {
    let mut field = [0; 72];
    field[..ari.len()].copy_from_slice(ari);
    Rej {
        local_comm_id: CommId::default(),
        remote_comm_id: d_id,
        message: RejMessage::Req,
        reason,
        ari_len: ari.len() as u8,
        ari: field,
        private_data: [0; 148],
    }
}

fn too_large(d_id: CommId, code: u8) -> Rej {
    rej(d_id, RejReason::INVALID_MTU, &[code])
}

fn jumbo(d: &str, p: &str) -> Bench {
    Bench::new(CmConfig { max_pmtu: Pmtu::B4096, ..config() }, d, p)
}

/// A bench of each family that has asked P, and its REQ.
fn each_asked(case: impl Fn(Bench, ConnId, Req)) {
    for (d, p) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let mut bench = jumbo(d, p);
        let (conn, req) = bench.connect();
        assert_eq!(req.path_mtu, 5);
        case(bench, conn, req);
    }
}

impl Bench {
    /// Delivers a REJ of the exchange that D's last REQ began.
    fn deliver_answer(&mut self, conn: ConnId, rej: &Rej) {
        let transaction_id = self.cm.conns.get(conn).unwrap().transaction_id;
        let (header, mut mad) =
            (MadHeader { transaction_id, ..MadHeader::default() }, [0; MAD_LEN]);
        emit_mad(&header, &CmMessage::Rej(rej.clone()), &mut mad);
        self.deliver_mad(self.p, &mad);
    }
}

#[test]
fn cm_36_the_path_mtu_that_the_peer_names_is_asked_for() {
    each_asked(|mut bench, conn, req| {
        let first = bench.cm.conns.get(conn).unwrap().transaction_id;
        bench.advance(ms(100));
        bench.deliver_answer(conn, &too_large(req.local_comm_id, 3));
        // All else is as before, and it is repeated as the first was.
        let again = Req { path_mtu: 3, ..req.clone() };
        assert_eq!(bench.sent(), [CmMessage::Req(again.clone())]);
        assert_ne!(bench.cm.conns.get(conn).unwrap().transaction_id, first);
        bench.advance(ms(600));
        assert_eq!(bench.sent(), [CmMessage::Req(again)]);
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        let CmEvent::Connected { peer, .. } = bench.event() else { panic!("not connected") };
        assert_eq!(peer.pmtu, Pmtu::B1024);
    });
}

/// A copy of the first REJ says nothing of the second REQ.
#[test]
fn cm_36_a_copy_of_the_first_rej_is_silent() {
    each_asked(|mut bench, conn, req| {
        let transaction_id = bench.cm.conns.get(conn).unwrap().transaction_id;
        let rej = too_large(req.local_comm_id, 3);
        bench.deliver_answer(conn, &rej);
        assert_eq!(bench.sent().len(), 1);
        let (header, mut mad) =
            (MadHeader { transaction_id, ..MadHeader::default() }, [0; MAD_LEN]);
        emit_mad(&header, &CmMessage::Rej(rej), &mut mad);
        bench.cm.handle_timeout(bench.now, |_| ());
        bench.deliver_mad(bench.p, &mad);
        assert_eq!((bench.sent(), bench.events()), Default::default());
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        assert!(matches!(bench.event(), CmEvent::Connected { .. }));
    });
}

#[test]
fn cm_36_one_more_req_is_sent_and_no_third() {
    each_asked(|mut bench, conn, req| {
        bench.deliver_answer(conn, &too_large(req.local_comm_id, 3));
        assert_eq!(bench.sent().len(), 1);
        bench.deliver_answer(conn, &too_large(req.local_comm_id, 1));
        assert!(matches!(bench.event(), CmEvent::Refused { reason: RejReason::INVALID_MTU, .. }));
        assert_eq!(bench.sent(), []);
        assert_eq!(bench.cm.counters.get(Counter::CmPathMtuRefused), 1);
    });
}

/// A REJ that names nothing smaller, or no path MTU, ends the attempt; and so does any other reason.
#[test]
fn cm_36_a_rej_without_a_smaller_path_mtu_is_final() {
    let cases: [(RejReason, &[u8]); 7] = [
        (RejReason::INVALID_MTU, &[5]),
        (RejReason::INVALID_MTU, &[6]),
        (RejReason::INVALID_MTU, &[0]),
        (RejReason::INVALID_MTU, &[0xff]),
        (RejReason::INVALID_MTU, &[]),
        (RejReason::CONSUMER, &[3]),
        (RejReason::INVALID_GID, &[3]),
    ];
    for (reason, ari) in cases {
        each_asked(|mut bench, conn, req| {
            bench.deliver_answer(conn, &rej(req.local_comm_id, reason, ari));
            let CmEvent::Refused { reason: told, .. } = bench.event() else { panic!("{ari:?}") };
            assert_eq!((told, bench.sent()), (reason, Vec::new()));
        });
    }
}

/// A host that does not know our ID, or is at another address, lowers nothing.
#[test]
fn cm_36_a_forged_rej_lowers_no_path_mtu() {
    each_asked(|mut bench, _, req| {
        let stranger = if bench.p.is_ipv4() { "10.0.0.3" } else { "fd00::3" }.parse().unwrap();
        let rej = CmMessage::Rej(too_large(req.local_comm_id, 1));
        bench.assert_silent(|bench| bench.deliver_from(stranger, &rej));
        bench.silent(&CmMessage::Rej(too_large(CommId::new(0x1234), 1)));
        bench.deliver(&CmMessage::Rep(bench.rep(req.local_comm_id)));
        let CmEvent::Connected { peer, .. } = bench.event() else { panic!() };
        assert_eq!(peer.pmtu, Pmtu::B4096);
    });
}
