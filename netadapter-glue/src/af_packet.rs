//! An edge over a Linux packet socket on a named interface.
//!
//! The kernel's own stack sees every frame that arrives, but for those that the user of the edge claims
//! ([`Edge::claim`]).
//!
//! The kernel removes a VLAN tag before a packet socket sees the frame: use the VLAN's own
//! interface.

use crate::claim::Claim;
use crate::inbox::plain;
use crate::packet_ring::PacketRing;
use crate::queue::Queue;
use crate::segment::{Segments, fold, layer_3, patch, sum};
use crate::{Drops, Edge, EdgeError, Link, Received, Slot, Transmit, sys};
use alloc::string::String;
use core::net::IpAddr;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A packet socket. Needs `CAP_NET_RAW`.
///
/// Up to 64 units wait while the interface's queue is full. While the interface is down it is a NIC without
/// link: frames are dropped.
#[derive(Debug)]
pub struct AfPacket {
    link: Link,
    interface: String,
    index: i32,
    socket: OwnedFd,
    /// Whether a virtio header precedes each frame, both ways.
    offload: bool,
    ring: PacketRing,
    queue: Queue,
    drops: Drops,
    claim: Option<Claim>,
}

impl AfPacket {
    /// Opens `interface`; every packet travels alone.
    ///
    /// # Errors
    /// The system call that failed; `InvalidInput` where the interface is not Ethernet.
    pub fn open(interface: &str) -> io::Result<Self> {
        Self::new(interface, false)
    }

    /// Opens `interface` so that a unit of up to 64 segments passes the kernel as one frame
    /// (`PACKET_VNET_HDR` with UDP segmentation offload). The kernel or the NIC divides it for a device
    /// behind the interface that takes frames only.
    ///
    /// Units also arrive where the sender's kernel did not divide them, as over a veth pair: its other end
    /// must be open with offload, too, or it drops them as too long.
    ///
    /// # Errors
    /// The system call that failed; `InvalidInput` where the interface is not Ethernet.
    pub fn open_with_offload(interface: &str) -> io::Result<Self> {
        Self::new(interface, true)
    }

    fn new(interface: &str, offload: bool) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Without a protocol the socket receives nothing before it is bound to its one interface.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let fd = socket.as_fd();
        let index = netdevice::name_to_index(fd, interface)? as i32;
        sys::set_packet_option(fd, libc::PACKET_IGNORE_OUTGOING, 1)?;
        sys::set_packet_option(fd, libc::PACKET_VNET_HDR, i32::from(offload))?;
        // Neighbour solicitations for addresses that the kernel does not know are multicast.
        sys::join_all_multicast(fd, index)?;
        grow_buffer(fd);
        let link = link(sys::interface_mtu(fd, interface)?, offload);
        let message_len = VNET_LEN + link.max_unit_len;
        let ring = PacketRing::new(fd, message_len, if offload { VNET_LEN } else { 0 })?;
        sys::bind_packet(fd, index)?;
        let (hardware, mac) = sys::packet_address(fd)?;
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            link: Link { mac, ..link },
            interface: interface.into(),
            index,
            socket,
            offload,
            ring,
            queue: Queue::new(DEPTH, message_len),
            drops: Drops::default(),
            claim: None,
        })
    }

    fn flush(&mut self) -> Result<(), EdgeError> {
        while self.queue.len() > 0 {
            match self.queue.send(self.socket.as_fd()) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(()),
                Err(Errno::NETDOWN) => {
                    self.drops.transmit += self.queue.clear();
                    self.take_error();
                }
                Err(Errno::MSGSIZE | Errno::INVAL) => {
                    self.queue.advance(1);
                    self.drops.transmit += 1;
                }
                Err(errno) => return Err(EdgeError::Os(errno.raw_os_error())),
            }
        }
        Ok(())
    }
}

impl Edge for AfPacket {
    fn link(&self) -> Link {
        self.link
    }

    fn speed(&mut self) -> Option<u64> {
        sys::interface_speed(self.socket.as_fd(), &self.interface)
    }

    /// The claim stands until the edge is dropped. It takes Linux 6.6 and `CAP_BPF` beside `CAP_NET_ADMIN`: without them the
    /// kernel's stack goes on seeing the frames, which costs time, and replies with ICMP port unreachable where it owns the
    /// address and no socket has the port.
    fn claim(&mut self, addresses: &[IpAddr], udp_port: u16) {
        // First the old one goes, so that no address stays claimed by mistake.
        self.claim = None;
        self.claim = Claim::new(self.index, addresses, udp_port).ok();
    }

    /// Frames given up so far. Frames that the kernel dropped because the ring was full are not counted here.
    fn drops(&self) -> Drops {
        Drops { receive: self.ring.dropped, ..self.drops }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let open = if self.offload { open_vnet } else { plain };
        Ok(self.ring.receive(budget, open, sink))
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let count = if self.offload {
            self.queue.fill_inside(budget, VNET_LEN.., fill, |message, unit| {
                let len = VNET_LEN + unit.len;
                seal_vnet(&mut message[..len], unit.segments);
                Transmit { len, segments: None }
            })
        } else {
            self.queue.fill_inside(budget, ..self.link.max_unit_len, fill, |_, unit| unit)
        };
        self.flush()?;
        Ok(count)
    }

    fn backlog(&self) -> usize {
        self.queue.len()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    /// The kernel reports once that the interface goes down.
    fn take_error(&mut self) {
        let _ = sockopt::socket_error(&self.socket);
    }

    fn wants_writable(&self) -> bool {
        self.queue.len() > 0
    }
}

/// The link of an address that is still to be learnt.
fn link(mtu: usize, offload: bool) -> Link {
    let mac = [0; 6];
    if !offload {
        return Link { mac, mtu, max_segments: 1, max_unit_len: ETHERNET_MAX_LEN + mtu };
    }
    // The kernel counts a whole frame in 16 bits (`GSO_LEGACY_MAX_SIZE`).
    let max_unit_len = usize::from(u16::MAX);
    Link { mac, mtu, max_segments: UDP_MAX_SEGMENTS, max_unit_len }
}

/// The default holds a few dozen large frames, which one batch exceeds.
fn grow_buffer(fd: BorrowedFd<'_>) {
    // Without CAP_NET_ADMIN the limit in net.core applies; a smaller buffer only costs speed.
    if sockopt::set_socket_send_buffer_size_force(fd, SEND_BUFFER_LEN).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(fd, SEND_BUFFER_LEN);
    }
}

/// Writes the virtio header before a frame, and changes the headers of a unit to those of the whole.
///
/// The kernel subtracts the whole length from the UDP checksum and adds that of each segment, so it expects
/// the sum of the pseudo-header there (`CHECKSUM_PARTIAL`).
fn seal_vnet(message: &mut [u8], segments: Option<Segments>) {
    let (vnet, unit) = message.split_at_mut(VNET_LEN);
    vnet.fill(0);
    let Some(segments) = segments.filter(|segments| segments.count(unit.len()) > 1) else { return };
    let (header, payload) = unit.split_at_mut(segments.header_len);
    patch(header, 0, payload.len());
    let Some(l3) = layer_3(header) else { return };
    let udp = segments.header_len - UDP_LEN;
    let addresses = match header[l3] >> 4 {
        4 => &header[l3 + 12..l3 + 20],
        _ => &header[l3 + 8..l3 + 40],
    };
    let pseudo = sum(addresses) + UDP_PROTOCOL + (UDP_LEN + payload.len()) as u32;
    header[udp + 6..].copy_from_slice(&fold(pseudo).to_be_bytes());
    vnet[0] = VNET_NEEDS_CSUM;
    vnet[1] = VNET_GSO_UDP_L4;
    vnet[2..4].copy_from_slice(&(segments.header_len as u16).to_ne_bytes());
    vnet[4..6].copy_from_slice(&(segments.segment_len as u16).to_ne_bytes());
    vnet[6..8].copy_from_slice(&(udp as u16).to_ne_bytes());
    vnet[8..10].copy_from_slice(&UDP_CHECKSUM_AT.to_ne_bytes());
}

/// Takes the virtio header off a message. `None` where the frame is a unit of another protocol.
///
/// An unfinished UDP checksum becomes 0 (none): the frame never was on a wire.
fn open_vnet(message: &mut [u8]) -> Option<Received<'_>> {
    let (vnet, unit) = message.split_first_chunk_mut::<VNET_LEN>()?;
    let [flags, gso, _, _, size_0, size_1, start_0, start_1, offset_0, offset_1] = *vnet;
    let udp = usize::from(u16::from_ne_bytes([start_0, start_1]));
    let checksum_at = u16::from_ne_bytes([offset_0, offset_1]);
    let is_udp = flags & VNET_NEEDS_CSUM != 0 && checksum_at == UDP_CHECKSUM_AT;
    if is_udp {
        unit.get_mut(udp + 6..udp + UDP_LEN)?.fill(0);
    }
    match gso {
        VNET_GSO_NONE => Some(Received { frame: unit, segments: None }),
        VNET_GSO_UDP_L4 if is_udp => {
            let segment_len = usize::from(u16::from_ne_bytes([size_0, size_1]));
            let segments = Segments { header_len: udp + UDP_LEN, segment_len };
            let (header, payload) = unit.split_at_mut_checked(segments.header_len)?;
            if segment_len == 0 || header.len() > crate::segment::HEADER_MAX_LEN {
                return None;
            }
            patch(header, 0, payload.len().min(segment_len));
            Some(Received { frame: unit, segments: Some(segments) })
        }
        _ => None,
    }
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;
const UDP_LEN: usize = 8;
const UDP_PROTOCOL: u32 = 17;
/// The offset of the checksum in a UDP header.
const UDP_CHECKSUM_AT: u16 = 6;
/// Units that wait for the interface.
const DEPTH: usize = 64;
/// Segments that every kernel with UDP segmentation takes in one unit.
const UDP_MAX_SEGMENTS: usize = 64;
/// `struct virtio_net_hdr`: flags, type, header length, segment length, checksum start and offset.
const VNET_LEN: usize = 10;
const VNET_NEEDS_CSUM: u8 = 1;
const VNET_GSO_NONE: u8 = 0;
const VNET_GSO_UDP_L4: u8 = 5;
const SEND_BUFFER_LEN: usize = 4 << 20;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::segment::split;
    use crate::segment::tests::unit;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;
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
    struct Veth([String; 2]);

    impl Veth {
        fn new(tag: &str) -> Result<Self, String> {
            let [a, b] = ["a", "b"].map(|end| format!("ng{}{tag}{end}", process::id()));
            run("ip", &format!("link add {a} type veth peer name {b}"))?;
            let veth = Self([a, b]);
            for end in &veth.0 {
                run("ip", &format!("link set {end} addrgenmode none"))?;
                run("ip", &format!("link set {end} up"))?;
            }
            // The kernel tells one end of the other's carrier a little later.
            let deadline = Instant::now() + Duration::from_secs(5);
            while !veth.0.iter().all(|end| is_up(end)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(veth)
        }
    }

    impl Drop for Veth {
        fn drop(&mut self) {
            let _ = run("ip", &format!("link del {}", self.0[0]));
        }
    }

    /// A veth pair, or `None` and the reason printed where the environment has none to give.
    fn veth(tag: &str) -> Option<Veth> {
        Veth::new(tag).inspect_err(|reason| println!("skipped: {reason}")).ok()
    }

    fn send_unit(edge: &mut AfPacket, bytes: &[u8], segments: Option<Segments>) {
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

        // Without offload the edge divides a unit itself.
        let (bytes, segments) = unit(false, 1000, 300);
        send_unit(&mut a, &bytes, Some(segments));
        let frames = receive_frames(&mut b, 4, is_roce);
        let expected: Vec<Vec<u8>> = split(&bytes, Some(segments))
            .map(|segment| [segment.header(), segment.payload()].concat())
            .collect();
        assert_eq!(frames.into_iter().map(|(frame, _)| frame).collect::<Vec<_>>(), expected);
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

    #[test]
    fn a_unit_crosses_a_veth_pair_as_one() {
        let Some(veth) = veth("u") else { return };
        let [mut a, mut b] = [0, 1].map(|end| AfPacket::open_with_offload(&veth.0[end]).unwrap());
        assert_eq!(a.link().max_segments, 64);
        let longest = a.link().max_unit_len - 42;
        for (v6, payload_len, segment_len) in [
            (false, 20_500, 1000),
            (true, 64_000, 1000),
            (false, longest, 1400),
            (false, 1000, 1000),
        ] {
            let (bytes, segments) = unit(v6, payload_len, segment_len);
            send_unit(&mut a, &bytes, Some(segments));
            let is_ours = |frame: &[u8]| is_roce(frame) || frame[12..14] == [0x86, 0xdd];
            let received = receive_frames(&mut b, 1, is_ours);
            let expected = (payload_len > segment_len).then_some(segments);
            assert_eq!(received, [(bytes, expected)], "{payload_len} bytes");
        }
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
}
