//! Answers to queries and pings, and frames that are none.

use super::*;

#[test]
fn a_routed_or_damaged_solicitation_is_ignored() {
    let mut host = host(0);
    let mut frame = [0; FRAME_MAX_LEN];
    let len = message::query(&mut frame, MACS[1], ip("fd00::2"), ip("fd00::1"), None);
    // Hop limit (RFC 4861, 7.1.1), checksum, code.
    for (at, value) in [(21, 254), (56, frame[56] ^ 1), (55, 1)] {
        let mut bad = frame;
        bad[at] = value;
        assert!(!host.handle_frame(0, &bad[..len]), "byte {at}");
    }
    assert!(host.handle_frame(0, &frame[..len]));
}

#[test]
fn duplicate_address_detection_is_answered_to_all() {
    let mut host = host(0);
    let mut frame = [0; FRAME_MAX_LEN];
    let len = message::query(&mut frame, MACS[1], ip("::"), ip("fd00::1"), None);
    // The option with our address is not allowed in a solicitation from nobody.
    assert!(!host.handle_frame(0, &frame[..len]));
    let target = ip("fd00::1");
    let IpAddr::V6(target_v6) = target else { panic!() };
    let builder = PacketBuilder::ethernet2(MACS[1], [0x33, 0x33, 0xff, 0, 0, 1])
        .ipv6([0; 16], solicited_node(target_v6).octets(), 255)
        .icmpv6(etherparse::Icmpv6Type::NeighborSolicitation);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &target_v6.octets()).unwrap();
    assert!(host.handle_frame(0, &bytes));
    let [answer] = &frames(&mut host)[..] else { panic!() };
    assert_eq!(answer[..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(answer[58], 0x20, "override, but not solicited");
}

#[test]
fn pings_are_answered() {
    let mut host = host(0);
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(MACS[1], MACS[0])
        .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
        .icmpv4_echo_request(7, 9)
        .write(&mut bytes, &[5; 57])
        .unwrap();
    assert!(host.handle_frame(0, &bytes));
    bytes.clear();
    let IpAddr::V6(link_local_1) = IpAddr::V6(link_local(MACS[1])) else { panic!() };
    PacketBuilder::ethernet2(MACS[1], MACS[0])
        .ipv6(link_local_1.octets(), link_local(MACS[0]).octets(), 64)
        .icmpv6_echo_request(7, 9)
        .write(&mut bytes, &[5; 57])
        .unwrap();
    assert!(host.handle_frame(0, &bytes));
    for frame in frames(&mut host) {
        assert!(frame.starts_with(&MACS[1]));
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        match (packet.net, packet.transport) {
            (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
                assert_eq!(ip.header().destination(), [10, 0, 0, 2]);
                let header = icmp.header();
                assert_eq!(header.checksum, header.icmp_type.calc_checksum(&[5; 57]));
                assert_eq!((icmp.type_u8(), icmp.payload()), (0, &[5; 57][..]));
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
                let (from, to) = (ip.header().source(), ip.header().destination());
                assert_eq!(to, link_local_1.octets());
                assert!(icmp.is_checksum_valid(from, to));
                assert_eq!((icmp.type_u8(), icmp.payload()), (129, &[5; 57][..]));
            }
            other => panic!("{other:?}"),
        }
    }
    bytes.clear();
    PacketBuilder::ethernet2(MACS[1], MACS[0])
        .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64)
        .icmpv4_echo_request(7, 9)
        .write(&mut bytes, &[5; 1000])
        .unwrap();
    assert!(!host.handle_frame(0, &bytes), "too long to keep");
}

proptest! {
    /// No frame makes a host panic, and none makes it speak more than its queue holds.
    #[test]
    fn any_frame_is_survived(
        v6: bool,
        answer: bool,
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        damage in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
        cut in 0usize..=100,
    ) {
        let mut host = host(0);
        let _ = host.handle_frame(0, &bytes);
        let mut frame = [0; FRAME_MAX_LEN];
        let (own, other) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        let len = if answer {
            message::answer(&mut frame, MACS[1], ip(other), Some(ip(own)), MACS[0])
        } else {
            message::query(&mut frame, MACS[1], ip(other), ip(own), None)
        };
        for (at, value) in damage {
            frame[at] = value;
        }
        let _ = host.handle_frame(0, &frame[..len.min(cut)]);
        let _ = host.handle_frame(0, &frame[..len]);
        prop_assert!(frames(&mut host).len() <= ANSWERS_MAX);
    }
}
