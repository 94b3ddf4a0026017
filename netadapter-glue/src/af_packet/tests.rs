use super::*;
use crate::Segments;
use crate::segment::split;
use crate::segment::tests::unit;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use std::net::UdpSocket;
use std::println;
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `program` with the words of `args`; says why where that fails.
pub(crate) fn run(program: &str, args: &str) -> Result<(), String> {
    let output = Command::new(program).args(args.split_whitespace()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let reason = || format!("{program} {args}: {}", String::from_utf8_lossy(&output.stderr));
    output.status.success().then_some(()).ok_or_else(reason)
}

/// Receives frames for as long as `wanted` of those that `is_ours` chooses are missing.
pub(crate) fn receive_frames(
    edge: &mut impl Edge,
    wanted: usize,
    is_ours: impl Fn(&[u8]) -> bool,
) -> Vec<(Vec<u8>, Option<Segments>)> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut frames = Vec::new();
    while frames.len() < wanted && Instant::now() < deadline {
        edge.receive_each(64, |received| {
            if is_ours(received.frame) {
                frames.push((received.frame.to_vec(), received.segments));
            }
        })
        .unwrap();
    }
    frames
}

/// Whether `ip` shows an interface as up: who may send before that loses what he sends.
fn is_up(name: &str) -> bool {
    let output = Command::new("ip").args(["link", "show", "dev", name]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("state UP"))
}

/// A veth pair of the test's own, without addresses and up.
pub(crate) struct Veth(pub(super) [String; 2]);

impl Veth {
    fn new(tag: &str) -> Result<Self, String> {
        let [a, b] = ["a", "b"].map(|end| format!("ng{}{tag}{end}", process::id()));
        run("ip", &format!("link add {a} type veth peer name {b}"))?;
        let veth = Self([a, b]);
        for end in &veth.0 {
            run("ip", &format!("link set {end} addrgenmode none"))?;
        }
        veth.up()?;
        Ok(veth)
    }

    /// Sets both ends up, and waits until they are.
    pub(super) fn up(&self) -> Result<(), String> {
        for end in &self.0 {
            run("ip", &format!("link set {end} up"))?;
        }
        // The kernel tells one end of the other's carrier a little later.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.0.iter().all(|end| is_up(end)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        let _ = run("ip", &format!("link del {}", self.0[0]));
    }
}

/// A veth pair, or `None` and the reason printed where the environment has none to give.
pub(super) fn veth(tag: &str) -> Option<Veth> {
    Veth::new(tag).inspect_err(|reason| println!("skipped: {reason}")).ok()
}

pub(super) fn send_unit(edge: &mut AfPacket, bytes: &[u8], segments: Option<Segments>) {
    let mut transmit = Some(Transmit { len: bytes.len(), segments });
    edge.transmit_each(1, |buffer| {
        buffer[..bytes.len()].copy_from_slice(bytes);
        transmit.take()
    })
    .unwrap();
}

fn is_roce(frame: &[u8]) -> bool {
    frame.get(36..38) == Some(&4791_u16.to_be_bytes())
}

#[test]
fn frames_cross_a_veth_pair_in_batches() {
    let Some(veth) = veth("p") else { return };
    let [mut a, mut b] = [0, 1].map(|end| AfPacket::open(&veth.0[end]).unwrap());
    assert_eq!((a.link().mtu, a.link().max_segments), (1500, 1));
    assert_ne!(a.link().mac, b.link().mac);
    let mut next = 0_u16;
    let sent = a.transmit_each(50, |buffer| {
        buffer[..60].fill(0);
        buffer[12..14].copy_from_slice(&[0x88, 0xb5]);
        buffer[14..16].copy_from_slice(&next.to_be_bytes());
        next += 1;
        Some(Transmit { len: 60, segments: None })
    });
    assert_eq!((sent, a.backlog()), (Ok(50), 0));
    let is_ours = |frame: &[u8]| frame[12..14] == [0x88, 0xb5];
    let frames = receive_frames(&mut b, 50, is_ours);
    let numbers: Vec<u16> =
        frames.iter().map(|(frame, _)| u16::from_be_bytes([frame[14], frame[15]])).collect();
    assert_eq!(numbers, Vec::from_iter(0..50));
    let own = a.receive_each(64, |received| assert!(!is_ours(received.frame)));
    assert!(own.is_ok(), "own frames do not come back");
}

#[test]
fn a_link_down_is_no_error() {
    let Some(veth) = veth("d") else { return };
    let mut edge = AfPacket::open(&veth.0[0]).unwrap();
    run("ip", &format!("link set {} down", veth.0[0])).unwrap();
    send_unit(&mut edge, &[0; 60], None);
    assert_eq!(edge.receive_each(8, |_| ()), Ok(0));
    assert_eq!((edge.backlog(), edge.drops().transmit), (0, 1));
    run("ip", &format!("link set {} up", veth.0[0])).unwrap();
    send_unit(&mut edge, &[0; 60], None);
    assert_eq!((edge.backlog(), edge.drops().transmit), (0, 1));
}

/// A look while the interface is down finds it; one that was deleted is gone for good, whatever has its name.
#[test]
fn a_deleted_interface_closes_the_edge() {
    let Some(veth) = veth("g") else { return };
    let [name, peer] = &veth.0;
    let mut edge = AfPacket::open(name).unwrap();
    run("ip", &format!("link set {name} down")).unwrap();
    edge.take_error();
    assert_eq!(edge.receive_each(8, |_| ()), Ok(0));
    assert_eq!(edge.retry_after(), Some(DOWN_LOOK));
    run("ip", &format!("link del {name}")).unwrap();
    assert_eq!(edge.receive_each(8, |_| ()), Err(EdgeError::Closed));
    run("ip", &format!("link add {name} type veth peer name {peer}")).unwrap();
    thread::sleep(DOWN_LOOKED);
    for _ in 0..2 {
        assert_eq!(edge.receive_each(8, |_| ()), Err(EdgeError::Closed));
    }
    assert_eq!(edge.retry_after(), None);
}

#[test]
fn a_unit_crosses_a_veth_pair_as_one() {
    let Some(veth) = veth("u") else { return };
    let mut a = AfPacket::open_with_offload(&veth.0[0]).unwrap();
    assert_eq!(a.link().max_segments, 64);
    let longest = a.link().max_unit_len - 42;
    for open in [AfPacket::open, AfPacket::open_with_offload] {
        let mut b = open(&veth.0[1]).unwrap();
        for (v6, payload_len, segment_len) in [
            (false, 20_500, 1000),
            (true, 64_000, 1000),
            (false, longest, 1400),
            (false, 1000, 1000),
            (false, 1200, 600),
        ] {
            let (bytes, segments) = unit(v6, payload_len, segment_len);
            send_unit(&mut a, &bytes, Some(segments));
            let is_ours = |frame: &[u8]| is_roce(frame) || frame[12..14] == [0x86, 0xdd];
            let received = receive_frames(&mut b, 1, is_ours);
            let expected = (payload_len > segment_len).then_some(segments);
            assert_eq!(received, [(bytes, expected)], "{payload_len} bytes");
        }
        assert_eq!(b.drops(), Drops::default());
    }
}

/// A unit of TCP with the virtio header that says so, as a host's own stack sends them.
fn tcp_unit() -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([198, 51, 100, 1], [198, 51, 100, 2], 64)
        .tcp(50_000, 445, 1, 1000)
        .write(&mut frame, &[0; 20_000])
        .unwrap();
    let mut message = Vec::from([1, 1]);
    message.extend([54_u16, 1000, 34, 16].iter().flat_map(|value| value.to_ne_bytes()));
    message.extend(frame);
    message
}

/// An edge without offload takes frames and units in the order in which they come, and drops the units of others.
#[test]
fn units_keep_their_places_among_frames() {
    let Some(veth) = veth("o") else { return };
    let mut a = AfPacket::open_with_offload(&veth.0[0]).unwrap();
    let mut b = AfPacket::open(&veth.0[1]).unwrap();
    let all = [400, 3000, 500, 600, 9000, 9001].map(|payload_len| unit(false, payload_len, 1000));
    for (bytes, segments) in &all {
        send_unit(&mut a, bytes, Some(*segments));
        rustix::net::send(&a.socket, &tcp_unit(), rustix::net::SendFlags::DONTWAIT).unwrap();
    }
    let received = receive_frames(&mut b, all.len(), is_roce);
    let received: Vec<Vec<u8>> = received.into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(received, all.map(|(bytes, _)| bytes));
    // The last of TCP may have come behind.
    b.receive_each(1, |_| ()).unwrap();
    assert_eq!(b.drops().receive, 6);
}

/// The kernel divides a unit as `split` does, except for the UDP checksum: so the identification that
/// an ICRC covers can be predicted.
#[test]
fn the_kernel_divides_a_unit_as_we_do() {
    let Some(veth) = veth("k") else { return };
    let features = "tx-udp-segmentation off tx-gso-partial off";
    if let Err(reason) = run("ethtool", &format!("-K {} {features}", veth.0[0])) {
        return println!("skipped: {reason}");
    }
    let mut a = AfPacket::open_with_offload(&veth.0[0]).unwrap();
    let mut b = AfPacket::open(&veth.0[1]).unwrap();
    let (bytes, segments) = unit(false, 4_500, 1000);
    send_unit(&mut a, &bytes, Some(segments));
    let frames = receive_frames(&mut b, 5, is_roce);
    assert_eq!(frames.len(), 5);
    for ((mut frame, _), segment) in frames.into_iter().zip(split(&bytes, Some(segments))) {
        frame[40..42].fill(0);
        assert_eq!(frame, [segment.header(), segment.payload()].concat());
    }
}

/// A frame from 198.51.100.2 to `to`, at 198.51.100.1 or behind, as the station `mac`.
fn datagram(mac: [u8; 6], to: [u8; 4], port: u16, vlan: Option<u16>) -> Vec<u8> {
    let ethernet = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac);
    let udp = match vlan {
        Some(vlan) => {
            ethernet.single_vlan(vlan.try_into().unwrap()).ipv4([198, 51, 100, to[3] + 1], to, 64)
        }
        None => ethernet.ipv4([198, 51, 100, to[3] + 1], to, 64),
    };
    let mut frame = Vec::new();
    udp.udp(50_000, port).write(&mut frame, b"datagram").unwrap();
    frame
}

/// Goal: a claimed frame reaches the edge and not the kernel's stack; one for another port, of a VLAN, or after the claim
/// reaches both. Method: the kernel has the addresses, and sockets at the ports.
#[test]
fn the_kernel_does_not_see_what_is_claimed() {
    let Some(veth) = veth("c") else { return };
    let [a, b] = &veth.0;
    run("ip", &format!("addr add 198.51.100.1/30 dev {b}")).unwrap();
    let set_up = [
        format!("link add link {b} name {b}v type vlan id 5"),
        format!("addr add 198.51.100.5/30 dev {b}v"),
        format!("link set {b}v up"),
    ];
    let vlan = set_up.iter().try_for_each(|step| run("ip", step));
    if let Err(reason) = &vlan {
        println!("skipped: the part with a VLAN: {reason}");
    }
    let ours = [[198, 51, 100, 1], [198, 51, 100, 5]];
    let addresses = ours.map(IpAddr::from);
    // Of these addresses alone: other tests have the port, too, of theirs.
    let sockets = [(addresses[0], 4791), (addresses[0], 4792)].map(UdpSocket::bind);
    let [Ok(claimed), Ok(other)] = sockets else {
        return println!("skipped: the ports are taken");
    };
    let of_vlan = vlan.is_ok().then(|| UdpSocket::bind((addresses[1], 4791)).unwrap());
    let mut from = AfPacket::open(a).unwrap();
    let mut to = AfPacket::open(b).unwrap();
    to.claim(&addresses, 4791);
    if to.claim.is_none() {
        return println!("skipped: the kernel takes no claim");
    }
    let mac = to.link().mac;
    let frames = [
        datagram(mac, ours[0], 4791, None),
        datagram(mac, ours[1], 4791, Some(5)),
        datagram(mac, ours[0], 4792, None),
    ];
    let sources = |socket: &UdpSocket| {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let next = || socket.recv_from(&mut [0; 64]).ok().map(|(_, from)| from.ip().to_string());
        core::iter::from_fn(next).collect::<Vec<_>>()
    };
    let is_ours = |frame: &[u8]| frame.ends_with(b"datagram");
    frames.iter().for_each(|frame| send_unit(&mut from, frame, None));
    assert_eq!(receive_frames(&mut to, 3, is_ours).len(), 3, "the edge has all");
    assert!(sources(&claimed).is_empty());
    if let Some(of_vlan) = of_vlan {
        assert_eq!(sources(&of_vlan), ["198.51.100.6"]);
    }
    assert_eq!(sources(&other), ["198.51.100.2"]);
    to.claim(&[], 4791);
    send_unit(&mut from, &frames[0], None);
    assert_eq!(sources(&claimed), ["198.51.100.2"], "claimed no more");
}

/// A frame that a socket of this host sends over a virtual interface has no checksum yet, and is not damaged.
#[test]
fn an_unfinished_checksum_is_none() {
    for (offload, ip) in [(false, "127.0.0.1"), (true, "127.0.0.1"), (false, "::1")] {
        let open = if offload { AfPacket::open_with_offload } else { AfPacket::open };
        let mut edge = match open("lo") {
            Ok(edge) => edge,
            Err(error) => return println!("skipped: lo: {error}"),
        };
        let Ok(socket) = UdpSocket::bind((ip, 0)) else {
            println!("skipped: the part with {ip}");
            continue;
        };
        let address = socket.local_addr().unwrap();
        socket.send_to(&[7; 20], address).unwrap();
        let port = address.port().to_be_bytes();
        let is_ours = |frame: &[u8]| frame.len() > 36 && frame[frame.len() - 26..][..2] == port;
        let frames = receive_frames(&mut edge, 1, is_ours);
        let (frame, _) = frames.first().unwrap();
        assert_eq!(frame[frame.len() - 22..], [[0; 2].as_slice(), &[7; 20]].concat(), "{ip}");
    }
}

/// A veth pair says 10 Gb/s, and its file says the same.
#[test]
fn a_link_has_its_speed() {
    let Some(veth) = veth("s") else { return };
    let mut edge = AfPacket::open(&veth.0[0]).unwrap();
    let file = std::format!("/sys/class/net/{}/speed", veth.0[0]);
    let Ok(mbit) = std::fs::read_to_string(&file) else { return println!("skipped: {file}") };
    let mbit: u64 = mbit.trim().parse().unwrap();
    assert_eq!(edge.speed(), Some(mbit * 1_000_000));
    assert_eq!(AfPacket::open("lo").unwrap().speed(), None, "who does not say");
}

#[test]
fn there_must_be_such_an_interface() {
    match AfPacket::open("nosuchinterface") {
        Err(error) => println!("{error}"),
        Ok(edge) => panic!("{edge:?}"),
    }
}

/// A veth pair whose second end takes packets of 1500 bytes, and whose first sends longer ones.
pub(crate) fn narrow_veth(tag: &str) -> Option<Veth> {
    let veth = veth(tag)?;
    let widened = run("ip", &format!("link set {} mtu 4200", veth.0[0]));
    widened.map(|()| veth).inspect_err(|reason| println!("skipped: {reason}")).ok()
}

/// A frame of `len` bytes, with a number behind its header.
pub(crate) fn numbered(len: usize, number: u8) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[..12].copy_from_slice(&[2; 12]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Has an edge send a frame, unless it has no room.
pub(crate) fn offer(edge: &mut impl Edge, frame: &[u8]) {
    let mut transmit = Some(Transmit { len: frame.len(), segments: None });
    edge.transmit_each(1, |buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        transmit.take()
    })
    .unwrap();
}

/// Calls an edge as its poller does, which sleeps as it is told, until nothing waits. Returns how often.
pub(crate) fn flush(edge: &mut impl Edge) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut calls = 0;
    while edge.backlog() > 0 && Instant::now() < deadline {
        assert!(!edge.wants_writable() || edge.retry_after().is_none(), "it would spin");
        thread::sleep(edge.retry_after().unwrap_or(Duration::from_micros(100)));
        edge.transmit_each(0, |_| None).unwrap();
        calls += 1;
    }
    assert_eq!(edge.backlog(), 0, "frames are stuck");
    calls
}

/// Goal: a frame that the kernel refuses each time holds up those behind it for a bounded time, and others as long do not at all; no
/// frame that it takes is lost.
#[test]
fn frames_behind_a_refused_one_leave() {
    let Some(veth) = narrow_veth("r") else { return };
    let mut edge = AfPacket::open(&veth.0[0]).unwrap();
    let mut peer = AfPacket::open(&veth.0[1]).unwrap();
    offer(&mut edge, &numbered(4000, 0));
    assert!(
        edge.retry_after().is_some() && !edge.wants_writable(),
        "no event tells when it is over"
    );
    for number in 1..=20 {
        offer(&mut edge, &numbered(100, number));
    }
    let calls = flush(&mut edge);
    assert!(calls <= 250, "{calls} calls: it is offered again each 500 us for 100 ms");
    for number in 21..=40 {
        offer(&mut edge, &numbered(4000 + usize::from(number), number));
        assert_eq!(edge.backlog(), 0, "none is waited for again");
        offer(&mut edge, &numbered(100, number));
    }
    let is_ours = |frame: &[u8]| frame[12..14] == [0x88, 0xb5];
    let numbers: Vec<u8> =
        receive_frames(&mut peer, 40, is_ours).iter().map(|(frame, _)| frame[99]).collect();
    assert_eq!(numbers, Vec::from_iter(1..=40));
    assert_eq!(edge.drops(), Drops { transmit: 21, refused: 21, ..Drops::default() });

    run("ip", &format!("link set {} mtu 4200", veth.0[1])).unwrap();
    offer(&mut edge, &numbered(4000, 0));
    assert_eq!((edge.backlog(), edge.drops().refused), (0, 21), "the MTU was raised");
}

/// Goal: a full queue is waited for, however long it takes, as long as frames leave.
/// Method: a shaper whose queue holds six frames, at 2 Mb/s.
#[test]
fn a_full_queue_below_loses_nothing() {
    let Some(veth) = veth("s") else { return };
    let shaper = "root tbf rate 2mbit burst 3000 limit 9000";
    if let Err(reason) = run("tc", &format!("qdisc add dev {} {shaper}", veth.0[0])) {
        return println!("skipped: {reason}");
    }
    let mut edge = AfPacket::open(&veth.0[0]).unwrap();
    let mut peer = AfPacket::open(&veth.0[1]).unwrap();
    for number in 0..60 {
        offer(&mut edge, &numbered(1400, number));
    }
    assert!(edge.retry_after().is_some(), "the queue is full");
    flush(&mut edge);
    let is_ours = |frame: &[u8]| frame[12..14] == [0x88, 0xb5];
    let numbers: Vec<u8> =
        receive_frames(&mut peer, 60, is_ours).iter().map(|(frame, _)| frame[99]).collect();
    assert_eq!((numbers, edge.drops()), (Vec::from_iter(0..60), Drops::default()));
}

/// The place of another edge's descriptor in its tests: a socket of which the kernel refuses frames of more than 1500 bytes.
pub(crate) fn refusing_socket(veth: &Veth) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).unwrap();
    let index = netdevice::name_to_index(&socket, &veth.0[0]).unwrap() as i32;
    sys::bind_packet(socket.as_fd(), index).unwrap();
    socket
}

/// Goal: what holds for a packet socket holds for an edge of another kind whose descriptor refuses in the same way.
pub(crate) fn expect_no_hold_up(edge: &mut impl Edge) {
    offer(edge, &numbered(4000, 0));
    assert!(edge.retry_after().is_some() && !edge.wants_writable());
    offer(edge, &numbered(100, 1));
    let calls = flush(edge);
    assert!(calls <= 250, "{calls} calls");
    for number in 2..10 {
        offer(edge, &numbered(4000, number));
        offer(edge, &numbered(100, number));
        assert_eq!(edge.backlog(), 0);
    }
    assert_eq!(edge.drops(), Drops { transmit: 9, refused: 9, ..Drops::default() });
}
