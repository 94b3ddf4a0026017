//! The RDMA IP CM header and the consumer's data behind it.

use super::*;

fn refused(bench: &mut Bench, req: Req) -> RejReason {
    bench.deliver(&CmMessage::Req(req));
    assert_eq!(bench.events(), []);
    bench.sent_rej().reason
}

#[test]
fn ipc_01_our_header() {
    each_family(|mut bench| {
        let (_, req) = bench.connect();
        let (header, data) = req.private_data.split_at(IpCm::LEN);
        let nibble = if bench.d.is_ipv4() { 0x40 } else { 0x60 };
        assert_eq!(header[..4], [0, nibble, 0xc3, 0x50]);
        let (src, dst) = match (bench.d, bench.p) {
            (IpAddr::V4(d), IpAddr::V4(p)) => (u128::from(d.to_bits()), u128::from(p.to_bits())),
            (IpAddr::V6(d), IpAddr::V6(p)) => (d.to_bits(), p.to_bits()),
            _ => unreachable!(),
        };
        assert_eq!(header[4..20], src.to_be_bytes());
        assert_eq!(header[20..], dst.to_be_bytes());
        assert_eq!(data, [0; 56]);
        assert_eq!(req.service_id, 0x0106_1c06);
    });
}

#[test]
fn ipc_02_other_versions_are_rejected() {
    each_family(|mut bench| {
        bench.listen();
        for (at, value) in [(0, 0x10), (0, 0x01), (1, 0x50), (1, 0x00)] {
            let mut req = bench.req();
            req.private_data[at] = value;
            assert_eq!(refused(&mut bench, req), RejReason::CONSUMER);
        }
    });
}

#[test]
fn ipc_03_other_addresses_than_the_packets_are_rejected() {
    each_family(|mut bench| {
        bench.listen();
        for at in [19, 35] {
            let mut req = bench.req();
            req.private_data[at] ^= 4;
            assert_eq!(refused(&mut bench, req), RejReason::INVALID_GID);
        }
        let mut req = bench.req();
        req.primary.local_gid = gid(bench.d);
        assert_eq!(refused(&mut bench, req), RejReason::INVALID_GID);
        let mut req = bench.req();
        req.primary.remote_gid = gid(bench.p);
        assert_eq!(refused(&mut bench, req), RejReason::INVALID_GID);
    });
}

#[test]
fn ipc_04_only_the_tcp_port_space_is_listened_to() {
    each_family(|mut bench| {
        bench.listen();
        let port = u64::from(PORT);
        for service_id in [0x0111_0000 | port, 0x013f_0000 | port, 0x0002_0000 | port, port] {
            let req = Req { service_id, ..bench.req() };
            assert_eq!(refused(&mut bench, req), RejReason::INVALID_SERVICE_ID);
        }
        bench.deliver(&CmMessage::Req(Req { service_id: 0x0106_0000 | port, ..bench.req() }));
        assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    });
}

#[test]
fn ipc_05_caller_data_is_delivered_zero_padded() {
    for len in [0, 1, 56] {
        let mut bench = Bench::v4(config());
        let private_data = &[0xcd; 56][..len];
        let params = Connect { private_data, ..bench.connect_values() };
        bench.cm.connect(bench.now, &params, D_QP.starting_psn).unwrap();
        let CmMessage::Req(req) = bench.sent_one() else { panic!("no REQ") };
        // To a D at the other end.
        let mut peer = Bench::new(config(), "10.0.0.2", "10.0.0.1");
        peer.listen();
        peer.deliver(&CmMessage::Req(req));
        let CmEvent::ConnectRequest { private_data: told, .. } = peer.event() else { panic!() };
        let (data, padding) = told.split_at(len);
        assert_eq!((data, padding.len()), (private_data, 56 - len));
        assert!(padding.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn ipc_06_longer_data_is_refused_and_nothing_sent() {
    each_family(|mut bench| {
        let params = Connect { private_data: &[0; 57], ..bench.connect_values() };
        assert_eq!(
            bench.cm.connect(bench.now, &params, D_QP.starting_psn),
            Err(CmError::PrivateData)
        );
        let conn = bench.requested();
        let accepted = bench.cm.accept(bench.now, conn, D_QP, LIMITS, &[0; 197]);
        assert_eq!(accepted, Err(CmError::PrivateData));
        assert_eq!(bench.cm.reject(bench.now, conn, &[0; 149]), Err(CmError::PrivateData));
        assert_eq!(bench.sent(), []);
        bench.cm.accept(bench.now, conn, D_QP, LIMITS, &[1; 196]).unwrap();
        let CmMessage::Rep(rep) = bench.sent_one() else { panic!("no REP") };
        assert_eq!(rep.private_data, [1; 196]);
    });
}

/// IPC-07 is that all of this runs for link-local addresses, too.
#[test]
fn ipc_07_each_kind_of_address_connects_both_ways() {
    each_family(|bench| {
        bench.each_side(|mut bench, conn, d_id| {
            bench.deliver(&dreq(d_id));
            let reason = DisconnectReason::Dreq;
            assert_eq!(bench.event(), CmEvent::PeerDisconnected { conn, reason });
        });
    });
}

/// In the header alone: no packet comes from there.
#[test]
fn ipc_08_sources_that_are_no_host() {
    for src in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "127.0.0.1"] {
        let mut bench = Bench::v4(config());
        bench.listen();
        let p = bench.p;
        bench.p = src.parse().unwrap();
        let mut req = bench.req();
        bench.p = p;
        req.primary.local_gid = gid(p);
        assert_eq!(refused(&mut bench, req), RejReason::INVALID_GID);
    }
}
