//! Both sides show their make in REQ and REP.

use super::*;

/// The bytes of a message of P, of that make.
fn mad_of(make: Make, message: &CmMessage) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    let header = MadHeader { transaction_id: P_TRANSACTION, make, ..MadHeader::default() };
    emit_mad(&header, message, &mut mad);
    mad
}

/// The two bytes that show the make, in what D has sent.
fn marks(bench: &mut Bench) -> Vec<[u8; 2]> {
    let sent = core::iter::from_fn(|| bench.cm.poll_transmit());
    sent.map(|CmTransmit { payload, .. }| [payload[18], payload[19]]).collect()
}

#[test]
fn req_and_rep_show_the_make_and_no_other_message() {
    for (make, core_bits, shown) in
        [(Make::Keeper, 0, *b"ND"), (Make::Keeper, 3, *b"NG"), (Make::Other, 0, [0; 2])]
    {
        each_family(|mut bench| {
            (bench.cm.config.make, bench.cm.config.core_bits) = (make, core_bits);
            let params = bench.connect_values();
            let conn = bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
            assert_eq!(marks(&mut bench), [shown]);
            bench.now = bench.cm.poll_timeout().unwrap();
            bench.cm.handle_timeout(bench.now, |_| ());
            assert_eq!(marks(&mut bench), [shown], "the second time, too");
            bench.cm.release(bench.now, conn);
            assert_eq!(marks(&mut bench), [[0; 2]], "REJ");
        });
        each_family(|mut bench| {
            (bench.cm.config.make, bench.cm.config.core_bits) = (make, core_bits);
            let conn = bench.requested();
            yes(&mut bench.cm, bench.now, conn).unwrap();
            assert_eq!(marks(&mut bench), [shown]);
        });
    }
}

/// The cores of a peer, from REQ and REP.
#[test]
fn the_cores_of_a_peer_are_those_that_it_shows() {
    let with_cores = |message: &CmMessage| {
        let mut mad = mad_of(Make::Keeper, message);
        assert_eq!(mad[18..20], *b"ND");
        mad[19] += 2;
        mad
    };
    each_family(|mut bench| {
        let (conn, req) = bench.connect();
        let rep = CmMessage::Rep(bench.rep(req.local_comm_id));
        bench.deliver_mad(bench.p, &with_cores(&rep));
        let peer = bench.cm.peer(conn).unwrap();
        assert_eq!((peer.make, peer.core_bits), (Make::Keeper, 2));
    });
    each_family(|mut bench| {
        bench.listen();
        let req = CmMessage::Req(bench.req());
        bench.deliver_mad(bench.p, &with_cores(&req));
        let CmEvent::ConnectRequest { peer, .. } = bench.event() else { panic!() };
        assert_eq!((peer.make, peer.core_bits), (Make::Keeper, 2));
    });
}

/// The first message decides: another one with the same IDs changes nothing.
#[test]
fn the_make_of_a_peer_is_that_of_its_first_message() {
    for (first, then) in [(Make::Keeper, Make::Other), (Make::Other, Make::Keeper)] {
        each_family(|mut bench| {
            let (conn, req) = bench.connect();
            for make in [first, then] {
                let rep = CmMessage::Rep(bench.rep(req.local_comm_id));
                bench.deliver_mad(bench.p, &mad_of(make, &rep));
            }
            assert_eq!(bench.cm.peer(conn).unwrap().make, first);
        });
        each_family(|mut bench| {
            bench.listen();
            for make in [first, then] {
                let req = CmMessage::Req(bench.req());
                bench.deliver_mad(bench.p, &mad_of(make, &req));
            }
            let CmEvent::ConnectRequest { conn, peer, .. } = bench.event() else { panic!() };
            assert_eq!((peer.make, bench.cm.peer(conn).unwrap().make), (first, first));
        });
    }
}
