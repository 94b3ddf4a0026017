//! An edge over a Linux packet socket on a named interface.
//!
//! The kernel's own stack sees every frame that arrives, but for those that the user of the edge claims
//! ([`Edge::claim`]).
//!
//! The kernel removes a VLAN tag before a packet socket sees the frame: use the VLAN's own
//! interface.

mod group;

pub use group::CoreField;

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
        Self::new(interface, false, |_| Ok(()))
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
        Self::new(interface, true, |_| Ok(()))
    }

    /// The edge, after `prepare` of its socket, to which no frame has come yet.
    fn new(
        interface: &str,
        offload: bool,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<Self> {
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
        prepare(fd)?;
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
        return Link {
            mac,
            mtu,
            max_segments: 1,
            max_unit_len: ETHERNET_MAX_LEN + mtu,
            socket: false,
        };
    }
    // The kernel counts a whole frame in 16 bits (`GSO_LEGACY_MAX_SIZE`).
    let max_unit_len = usize::from(u16::MAX);
    Link { mac, mtu, max_segments: UDP_MAX_SEGMENTS, max_unit_len, socket: false }
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
pub(crate) mod tests;
