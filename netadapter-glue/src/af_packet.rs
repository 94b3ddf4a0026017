//! An edge over a Linux packet socket on a named interface.
//!
//! The kernel's own stack sees every frame that arrives, but for those that the user of the edge claims
//! ([`Edge::claim`]).
//!
//! The kernel removes a VLAN tag before a packet socket sees the frame: use the VLAN's own
//! interface.

mod group;
mod ring;
mod vnet;

pub use group::CoreField;

use crate::claim::Claim;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::{Drops, Edge, EdgeError, Link, Received, Slot, Transmit, sys};
use alloc::string::String;
use core::net::IpAddr;
use core::time::Duration;
use ring::Ring;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// A packet socket. Needs `CAP_NET_RAW`.
///
/// It understands units of many packets, which arrive where the sender's kernel did not divide what it sent, as over a veth
/// pair, and where the receiving one joins datagrams. Up to 64 units wait while the interface's queue is full; what the interface refuses, as
/// a veth does whose other end has a smaller MTU, is given up. While the interface is down it is a NIC without
/// link: frames are dropped.
#[derive(Debug)]
pub struct AfPacket {
    link: Link,
    interface: String,
    index: i32,
    socket: OwnedFd,
    ring: Ring,
    queue: Queue,
    refusal: Refusal,
    drops: Drops,
    claim: Option<Claim>,
    /// When the interface went down, for a while: it may be about to be deleted.
    down: Option<Instant>,
    /// It was deleted.
    gone: bool,
}

impl AfPacket {
    /// Opens `interface`; every packet is sent alone. A unit that arrives costs a system call, and as many wait as the socket's
    /// receive buffer holds, three at least.
    ///
    /// # Errors
    /// The system call that failed; `InvalidInput` where the interface is not Ethernet.
    pub fn open(interface: &str) -> io::Result<Self> {
        Self::new(interface, false, |_| Ok(()))
    }

    /// Opens `interface` so that a unit of up to 64 segments passes the kernel as one frame (UDP segmentation offload), both
    /// ways. The kernel or the NIC divides it for a device behind the interface that takes frames only. A unit that arrives has a
    /// place in the ring, of which there are fewer than places of a frame.
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
        sys::set_packet_option(fd, libc::PACKET_VNET_HDR, 1)?;
        // Neighbour solicitations for addresses that the kernel does not know are multicast.
        sys::join_all_multicast(fd, index)?;
        grow_buffers(fd);
        let link = link(sys::interface_mtu(fd, interface)?, offload);
        let message_len = vnet::LEN + link.max_unit_len;
        let ring = Ring::new(fd, message_len)?;
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
            ring,
            queue: Queue::new(DEPTH, message_len),
            refusal: Refusal::new(),
            drops: Drops::default(),
            claim: None,
            down: None,
            gone: false,
        })
    }

    fn flush(&mut self) -> Result<(), EdgeError> {
        if !self.refusal.is_due(Instant::now) {
            return Ok(());
        }
        while self.queue.len() > 0 {
            match self.queue.send(self.socket.as_fd(), &mut self.refusal) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    if self.refusal.stays(self.queue.head_len(), Instant::now()) {
                        return Ok(());
                    }
                    self.give_up();
                }
                Err(Errno::NETDOWN) => {
                    self.drops.transmit += self.queue.clear();
                    self.refusal.end_wait();
                    self.take_error();
                }
                Err(Errno::MSGSIZE | Errno::INVAL) => self.give_up(),
                Err(errno) => {
                    // Offered again it would fail again, and hold up all others.
                    self.give_up();
                    return Err(EdgeError::Os(errno.raw_os_error()));
                }
            }
        }
        Ok(())
    }

    /// Nobody tells that one that is down is deleted, which follows at once where it is why it went down. A new one of the same
    /// name is another.
    fn look_for_interface(&mut self) {
        self.gone = netdevice::index_to_name(&self.socket, self.index as u32) == Err(Errno::NODEV);
        self.down = self.down.filter(|since| since.elapsed() < DOWN_LOOKED);
    }

    /// Drops the oldest unit, which was refused.
    fn give_up(&mut self) {
        self.queue.advance(self.queue.head_frames());
        self.refusal.end_wait();
        self.drops.transmit += 1;
        self.drops.refused += 1;
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
        if self.down.is_some() {
            self.look_for_interface();
        }
        if self.gone {
            return Err(EdgeError::Closed);
        }
        Ok(self.ring.receive(self.socket.as_fd(), budget, sink))
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let count = self.queue.fill_inside(budget, vnet::LEN.., fill, |message, unit| {
            let len = vnet::LEN + unit.len;
            vnet::seal(&mut message[..len], unit.segments);
            Transmit { len, segments: None }
        });
        self.flush()?;
        Ok(count)
    }

    fn backlog(&self) -> usize {
        self.queue.len()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    /// The kernel reports once that the interface goes down. One that is deleted goes down before.
    fn take_error(&mut self) {
        let _ = sockopt::socket_error(&self.socket);
        self.down = Some(Instant::now());
    }

    fn wants_writable(&self) -> bool {
        // It is writable for a frame that it refuses, too.
        self.queue.len() > 0 && self.refusal.retry_after().is_none()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after().or(self.down.map(|_| DOWN_LOOK))
    }
}

/// The link of an address that is still to be learnt.
fn link(mtu: usize, offload: bool) -> Link {
    let (max_segments, max_unit_len) = match offload {
        false => (1, ETHERNET_MAX_LEN + mtu),
        // The kernel counts a whole frame in 16 bits (`GSO_LEGACY_MAX_SIZE`).
        true => (UDP_MAX_SEGMENTS, usize::from(u16::MAX)),
    };
    Link { mac: [0; 6], mtu, max_segments, max_unit_len, socket: false }
}

/// The defaults hold a few dozen large frames to send, which one batch exceeds, and three units that have arrived.
fn grow_buffers(fd: BorrowedFd<'_>) {
    // Without CAP_NET_ADMIN the limits in net.core apply; a smaller buffer only costs speed.
    if sockopt::set_socket_send_buffer_size_force(fd, BUFFER_LEN).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(fd, BUFFER_LEN);
    }
    if sockopt::set_socket_recv_buffer_size_force(fd, BUFFER_LEN).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(fd, BUFFER_LEN);
    }
}

/// The time between two looks whether an interface that went down is still there, and that for which it is looked for.
const DOWN_LOOK: Duration = Duration::from_millis(100);
const DOWN_LOOKED: Duration = Duration::from_secs(1);
/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;
/// Units that wait for the interface.
const DEPTH: usize = 64;
/// Segments that every kernel with UDP segmentation takes in one unit.
const UDP_MAX_SEGMENTS: usize = 64;
const BUFFER_LEN: usize = 4 << 20;

#[cfg(test)]
pub(crate) mod tests;
