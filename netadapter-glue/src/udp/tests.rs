use super::*;
use crate::Transmit;
use crate::af_packet::AfPacket;
use crate::af_packet::tests::{flush, receive_frames, run};
use crate::segment::Segments;
use crate::segment::tests::unit;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{Ipv6Addr, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::UdpSocket;
use std::println;

/// An edge on an address of this host, which no other test has.
fn edge(own: &str, offload: bool) -> Udp {
    Udp::bind(own.parse().unwrap(), UdpConfig { offload, mtu: None }).unwrap()
}

/// An edge on the one IPv6 address that an ordinary user has: what it sends to it comes back.
fn edge_v6(offload: bool) -> Option<Udp> {
    let config = UdpConfig { offload, mtu: None };
    let edge = Udp::bind("::1".parse().unwrap(), config);
    edge.inspect_err(|reason| println!("skipped: {reason}")).ok()
}

/// A unit of `from` to `to`, with traffic class 0xa3 and hop limit 64.
fn addressed(from: &str, to: &str, payload_len: usize, segment_len: usize) -> (Vec<u8>, Segments) {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let (mut bytes, segments) = unit(from.is_ipv6(), payload_len, segment_len);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes[15] = 0xa3;
            bytes[18..20].fill(0);
            bytes[20] = 0x40;
            bytes[26..30].copy_from_slice(&from.octets());
            bytes[30..34].copy_from_slice(&to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes[14..16].copy_from_slice(&[0x6a, 0x30]);
            bytes[22..38].copy_from_slice(&from.octets());
            bytes[38..54].copy_from_slice(&to.octets());
        }
        _ => panic!("two families"),
    }
    // As the receiver's edge makes them up.
    bytes[..6].copy_from_slice(&mac_of(to));
    bytes[6..12].copy_from_slice(&mac_of(from));
    let udp = segments.header_len - 8;
    bytes[udp..udp + 2].copy_from_slice(&ROCE_PORT.to_be_bytes());
    let first_len = payload_len.min(segment_len);
    crate::segment::patch(&mut bytes[..segments.header_len], 0, first_len);
    (bytes, segments)
}

fn send(edge: &mut Udp, bytes: &[u8], segments: Option<Segments>) {
    let mut transmit = Some(Transmit { len: bytes.len(), segments });
    edge.transmit_each(1, |buffer| {
        let unit = transmit.take()?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Some(unit)
    })
    .unwrap();
}

fn received(edge: &mut Udp, wanted: usize) -> Vec<(Vec<u8>, Option<Segments>)> {
    receive_frames(edge, wanted, |_| true)
}

/// Headers, marks and payload of each packet arrive as they were sent, but for the identification.
#[test]
fn frames_cross_in_batches() {
    let (mut a, mut b) = (edge("127.1.0.1", false), edge("127.1.0.2", false));
    assert_eq!((a.link().mtu, a.link().max_segments, a.link().socket), (65_535, 1, true));
    assert_ne!(a.link().mac, b.link().mac);
    let (bytes, _) = addressed("127.1.0.1", "127.1.0.2", 1000, 1000);
    let mut next = 0_u8;
    let sent = a.transmit_each(50, |buffer| {
        buffer[..bytes.len()].copy_from_slice(&bytes);
        // The kernel does not keep ours.
        buffer[18..20].copy_from_slice(&[7, next]);
        buffer[42] = next;
        next += 1;
        Some(Transmit { len: bytes.len(), segments: None })
    });
    assert_eq!((sent, a.backlog()), (Ok(50), 0));
    let frames = received(&mut b, 50);
    assert_eq!(frames.len(), 50);
    for (place, (frame, segments)) in frames.into_iter().enumerate() {
        let mut expected = bytes.clone();
        expected[42] = place as u8;
        assert_eq!((frame, segments), (expected, None));
    }
    assert_eq!(a.drops(), Drops::default());
}

#[test]
fn a_unit_crosses_as_one_or_as_its_packets() {
    let (mut a, mut b) = (edge("127.1.1.1", true), edge("127.1.1.2", true));
    assert_eq!(a.link().max_segments, 64);
    let (first, second) = ("127.1.1.1", "127.1.1.2");
    let longest = a.link().max_unit_len - 42;
    for (payload_len, segment_len) in [(20_500, 1000), (longest, 1400), (1000, 1000)] {
        let expected = |segments| (payload_len > segment_len).then_some(segments);
        let (bytes, segments) = addressed(first, second, payload_len, segment_len);
        send(&mut a, &bytes, Some(segments));
        assert_eq!(received(&mut b, 1), [(bytes, expected(segments))], "there");
        let (bytes, segments) = addressed(second, first, payload_len, segment_len);
        send(&mut b, &bytes, Some(segments));
        assert_eq!(received(&mut a, 1), [(bytes, expected(segments))], "and back");
    }
    // One that joins no packets gets each of them; one whose kernel divides nothing sends each.
    let mut plain = edge("127.1.1.3", false);
    let (bytes, segments) = addressed(first, "127.1.1.3", 2500, 1000);
    for divides in [true, false] {
        a.divides = divides;
        send(&mut a, &bytes, Some(segments));
        let frames = received(&mut plain, 3);
        let payloads: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame[42..].to_vec()).collect();
        assert_eq!((frames.len(), &payloads[..]), (3, &bytes[42..]));
    }
    assert_eq!((a.drops(), a.backlog()), (Drops::default(), 0));
}

#[test]
fn units_and_marks_cross_over_ipv6() {
    for offload in [false, true] {
        let Some(mut edge) = edge_v6(offload) else { return };
        let (bytes, segments) = addressed("::1", "::1", 5000, 1000);
        let segments = offload.then_some(segments);
        let len = if offload { bytes.len() } else { 62 + 1000 };
        send(&mut edge, &bytes[..len], segments);
        assert_eq!(received(&mut edge, 1), [(bytes[..len].to_vec(), segments)]);
    }
}

/// As `rdma_rxe` sends all of its packets.
#[test]
fn no_udp_checksum_is_needed() {
    const UDP_NO_CHECK6_TX: i32 = 101;
    let Some(mut edge) = edge_v6(false) else { return };
    let peer = UdpSocket::bind("[::1]:0").unwrap();
    sys::set_option(peer.as_fd(), (libc::SOL_UDP, UDP_NO_CHECK6_TX), 1).unwrap();
    peer.send_to(&[7; 20], SocketAddr::new(edge.own, ROCE_PORT)).unwrap();
    assert_eq!(received(&mut edge, 1).len(), 1);
}

/// Any neighbour is found, at an address that the frames of this neighbour come from.
#[test]
fn queries_are_answered() {
    use crate::neighbour::Neighbours;
    for (own, peer) in [("127.1.2.1", "127.1.2.2"), ("::1", "::1")] {
        let (own, peer): (IpAddr, IpAddr) = (own.parse().unwrap(), peer.parse().unwrap());
        let Ok(mut edge) = Udp::bind(own, UdpConfig::default()) else { continue };
        let mut neighbours = Neighbours::new(edge.link().mac, &[own]);
        neighbours.resolve(0, own, peer);
        edge.transmit_each(2, |buffer| {
            neighbours.poll_transmit(buffer).map(|len| Transmit { len, segments: None })
        })
        .unwrap();
        edge.receive_each(2, |unit| assert!(neighbours.handle_frame(0, unit.frame))).unwrap();
        let mac = neighbours.poll_event().unwrap().result.unwrap().mac;
        assert_eq!((mac, edge.drops()), (mac_of(peer), Drops::default()));
    }
}

#[test]
fn what_is_no_datagram_is_dropped_and_counted() {
    let mut edge = edge("127.1.3.1", false);
    let (good, _) = addressed("127.1.3.1", "127.1.3.2", 100, 100);
    let changed = |at: usize, value| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let tagged = [&good[..12], &[0x81, 0, 0, 5], &good[12..]].concat();
    // IP options, TCP, another source, another port, cut headers.
    let frames = [
        tagged,
        changed(14, 0x46),
        changed(23, 6),
        changed(29, 9),
        changed(37, 1),
        good[..41].to_vec(),
        Vec::new(),
    ];
    for frame in &frames {
        send(&mut edge, frame, None);
    }
    assert_eq!((edge.drops().transmit, edge.backlog()), (frames.len() as u64, 0));
    // No route leads from a loopback address to another host's.
    let (nowhere, _) = addressed("127.1.3.1", "203.0.113.1", 100, 100);
    send(&mut edge, &nowhere, None);
    assert_eq!((edge.drops().transmit, edge.backlog()), (8, 0));

    // A datagram without a byte, or with more than there may be, is no frame.
    let own = SocketAddr::from(([127, 1, 3, 1], ROCE_PORT));
    let config = UdpConfig { mtu: Some(1500), offload: false };
    drop(edge);
    let mut edge = Udp::bind(own.ip(), config).unwrap();
    assert_eq!(edge.link().mtu, 1500);
    let stranger = UdpSocket::bind("127.1.3.2:0").unwrap();
    for len in [0, 1501, 3] {
        stranger.send_to(&[1; 2000][..len], own).unwrap();
    }
    let frames = received(&mut edge, 1);
    assert_eq!((frames[0].0.len(), edge.drops().receive), (45, 2));
    let port = stranger.local_addr().unwrap().port().to_be_bytes();
    assert_eq!(frames[0].0[34..36], port);
}

#[test]
fn an_address_that_cannot_be_had_is_told_with_what_mends_it() {
    let first = edge("127.1.4.1", false);
    let told = |own: &str| {
        let error = Udp::bind(own.parse().unwrap(), UdpConfig::default()).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = told("127.1.4.1");
    assert_eq!(kind, io::ErrorKind::AddrInUse);
    assert!(text.contains("4791") && text.contains("rdma_rxe"), "{text}");
    drop(first);
    // A child that another test forks has the socket, too, until it executes its program.
    let free = || Udp::bind("127.1.4.1".parse().unwrap(), UdpConfig::default()).is_ok();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !free() {
        assert!(Instant::now() < deadline, "the port is free again");
    }
    let (kind, text) = told("198.51.100.77");
    assert_eq!(kind, io::ErrorKind::AddrNotAvailable);
    assert!(text.contains("ip address"), "{text}");
}

/// Goal: with its error queue on, a socket hears that the interface refuses a datagram, and that holds up no other one.
/// Method: a network of the thread's own; its veth pair takes packets of 4200 bytes on this side, and of 1500 on the other.
#[test]
fn datagrams_behind_a_refused_one_leave() {
    let told = std::thread::spawn(send_past_a_refused_one).join().unwrap();
    if let Err(reason) = told {
        println!("skipped: {reason}");
    }
}

/// An edge in a network of this thread's own, on a side of a veth pair that takes packets of 4200 bytes; and the other side, which
/// takes these. The ends are the addresses of both.
fn beside_a_veth(mtu: usize, ends: [&str; 2]) -> Result<(Udp, AfPacket), String> {
    crate::sys::own_network().map_err(|error| error.to_string())?;
    run("ip", &format!("link add v0 mtu 4200 type veth peer name v1 mtu {mtu}"))?;
    let [own, peer] = ends;
    for args in [
        "link set v0 addrgenmode none",
        "link set v1 addrgenmode none",
        "link set v0 up",
        "link set v1 up",
        &format!("route add {peer} dev v0"),
        &format!("neigh add {peer} lladdr 02:00:00:00:00:09 dev v0"),
    ] {
        run("ip", args)?;
    }
    let nodad = if own.contains(':') { "nodad" } else { "" };
    run("ip", &format!("addr add {own} dev v0 {nodad}"))?;
    let peer = AfPacket::open("v1").map_err(|error| error.to_string())?;
    Ok((edge(own, false), peer))
}

fn send_past_a_refused_one() -> Result<(), String> {
    let [own, there] = ["192.0.2.1", "192.0.2.2"];
    let (mut edge, mut peer) = beside_a_veth(1500, [own, there])?;
    let (long, _) = addressed(own, there, 4000, 4000);
    let short = |number| {
        let (mut bytes, _) = addressed(own, there, 100, 100);
        bytes[42] = number;
        bytes
    };
    send(&mut edge, &long, None);
    assert!(edge.retry_after().is_some() && !edge.wants_writable());
    for number in 0..20 {
        send(&mut edge, &short(number), None);
    }
    let calls = flush(&mut edge);
    assert!(calls <= 250, "{calls} calls");
    for number in 20..40 {
        send(&mut edge, &long, None);
        send(&mut edge, &short(number), None);
        assert_eq!(edge.backlog(), 0);
    }
    let is_ours = |frame: &[u8]| frame.get(36..38) == Some(&ROCE_PORT.to_be_bytes());
    let frames = receive_frames(&mut peer, 40, is_ours);
    let numbers: Vec<u8> = frames.iter().map(|(frame, _)| frame[42]).collect();
    assert_eq!(numbers, Vec::from_iter(0..40));
    assert_eq!(edge.drops(), Drops { transmit: 21, refused: 21, ..Drops::default() });
    Ok(())
}

/// Goal: no forged ICMP error makes the path to a peer too narrow for our packets.
/// Method: the other side of a veth pair says once that a packet of ours was too long for a router; a long one leaves afterwards.
#[test]
fn a_forged_path_mtu_is_not_believed() {
    let v4 = || send_past_a_forged_mtu(["192.0.2.1", "192.0.2.2"], too_long_for_a_router);
    if let Err(reason) = std::thread::spawn(v4).join().unwrap() {
        println!("skipped: {reason}");
    }
}

/// The same of IPv6.
#[test]
fn a_forged_packet_too_big_is_not_believed() {
    let v6 = || send_past_a_forged_mtu(["2001:db8::1", "2001:db8::2"], too_big_for_a_router);
    if let Err(reason) = std::thread::spawn(v6).join().unwrap() {
        println!("skipped: {reason}");
    }
}

fn send_past_a_forged_mtu(
    [own, there]: [&str; 2],
    forge: fn(&[u8]) -> Vec<u8>,
) -> Result<(), String> {
    let (mut edge, mut peer) = beside_a_veth(4200, [own, there])?;
    let (long, segments) = addressed(own, there, 4000, 4000);
    let too_long = forge(&long);
    let sent = peer.transmit_each(1, |buffer| {
        buffer[..too_long.len()].copy_from_slice(&too_long);
        Some(Transmit { len: too_long.len(), segments: None })
    });
    assert_eq!(sent, Ok(1));
    let known = run("ip", &format!("route get {there}"));
    send(&mut edge, &long, None);
    let port = segments.header_len - 6..segments.header_len - 4;
    let is_ours = |frame: &[u8]| frame.get(port.clone()) == Some(&ROCE_PORT.to_be_bytes());
    assert_eq!(receive_frames(&mut peer, 1, is_ours)[0].0.len(), long.len(), "{known:?}");
    assert_eq!(edge.drops().refused, 0);
    Ok(())
}

/// The ICMP error (RFC 792, RFC 1191) of a router behind which links carry 600 bytes, about a packet of ours.
fn too_long_for_a_router(ours: &[u8]) -> Vec<u8> {
    let mut icmp = [&[3, 4, 0, 0, 0, 0, 2, 88], &ours[14..14 + 28]].concat();
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    let mut ip =
        [&[0x45, 0, 0, 56, 0, 1, 0, 0, 64, 1, 0, 0, 192, 0, 2, 254], &ours[26..30]].concat();
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9, 8, 0], &ip, &icmp].concat()
}

/// The ICMPv6 error (RFC 4443) of a router behind which links carry 1280 bytes, about a packet of ours.
fn too_big_for_a_router(ours: &[u8]) -> Vec<u8> {
    let mut icmp = [&[2, 0, 0, 0, 0, 0, 5, 0], &ours[14..14 + 48]].concat();
    let router = "2001:db8::fe".parse::<Ipv6Addr>().unwrap().octets();
    let (len, own) = ([0, icmp.len() as u8], &ours[22..38]);
    let pseudo = [&router[..], own, &[0, 0], &len, &[0, 0, 0, 58], &icmp].concat();
    let sum = checksum(&pseudo);
    icmp[2..4].copy_from_slice(&sum);
    let ip = [&[0x60, 0, 0, 0], &len[..], &[58, 64], &router, own].concat();
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9, 0x86, 0xdd], &ip, &icmp].concat()
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let pairs = bytes.as_chunks::<2>().0.iter();
    let sum: u32 = pairs.map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes()
}

/// Goal: reports of the network, which anybody can forge, are counted, and cost no datagram on its way out or in.
/// Method: every other datagram is for an address of this host where nobody has the port, so that the kernel reports each.
#[test]
fn reports_of_the_network_are_counted_and_change_nothing() {
    let (mut a, mut b) = (edge("127.1.5.1", false), edge("127.1.5.2", false));
    let (to_b, _) = addressed("127.1.5.1", "127.1.5.2", 100, 100);
    let (to_nobody, _) = addressed("127.1.5.1", "127.1.5.3", 100, 100);
    let (to_a, _) = addressed("127.1.5.2", "127.1.5.1", 100, 100);
    for round in 0..20_u8 {
        let mut next = 0;
        let sent = a.transmit_each(10, |buffer| {
            let frame = if next % 2 == 0 { &to_nobody } else { &to_b };
            next += 1;
            buffer[..frame.len()].copy_from_slice(frame);
            Some(Transmit { len: frame.len(), segments: None })
        });
        assert_eq!((sent, a.backlog()), (Ok(10), 0));
        send(&mut b, &to_a, None);
        assert_eq!((received(&mut b, 5).len(), received(&mut a, 1).len()), (5, 1), "{round}");
    }
    for _ in 0..3 {
        // The report is there before the next call, whichever that is.
        send(&mut a, &to_nobody, None);
        send(&mut a, &to_b, None);
        assert_eq!(received(&mut b, 1).len(), 1);
        send(&mut b, &to_a, None);
        send(&mut a, &to_nobody, None);
        assert_eq!(a.receive_each(1, |_| ()), Ok(1));
    }
    let Drops { transmit, reported, .. } = a.drops();
    assert!(transmit == 0 && reported > 0, "{:?}", a.drops());
    send(&mut a, &to_nobody, None);
    assert!(is_ready(&a), "the error queue wakes who sleeps");
    a.take_error();
    assert!(!is_ready(&a) && a.drops().reported > reported);
    assert_eq!(a.receive_each(1, |_| ()), Ok(0));
}

fn is_ready(edge: &Udp) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(edge.fd().unwrap(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}
