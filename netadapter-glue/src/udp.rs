//! An edge over an ordinary UDP socket, for a user without any right.
//!
//! RoCEv2 is UDP to port 4791, so a socket that is bound to this port of one local address carries it. The kernel
//! writes the headers below: the edge takes them off the frames that it sends, and makes them up for what it
//! receives. Ethernet addresses are made up as well: the edge itself answers each query for one, and the kernel
//! finds the neighbours, and the routers, of which the user of the edge knows nothing.
//!
//! Source port and IPv4 identification are the kernel's, and are protected by the ICRC. So the user of the edge is told
//! ([`Link::socket`]): it sends from port 4791, and counts the identification from 0 in each unit, as Linux does
//! where packets may not be fragmented and the socket is not connected. Linux does not show the identification of a
//! received datagram at all. Those of the units that it has joined (`UDP_GRO`) are not shown either, and need not
//! count from 0. IPv6 has none.

mod control;
mod errors;
mod headers;
mod inbox;
mod sys;
#[cfg(test)]
mod tests;

use crate::neighbour::{FRAME_MAX_LEN, answer_any};
use crate::queue::{Queue, frames_of};
use crate::refusal::Refusal;
use crate::segment::Segment;
use crate::{Drops, Edge, EdgeError, Link, RUN, Received, Slot};
use alloc::format;
use alloc::string::String;
use control::{Control, Name};
use core::net::IpAddr;
use core::time::Duration;
use errors::{Errors, may_be_reported};
use headers::{header_len, mac_of};
use inbox::Inbox;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;
use sys::Outgoing;

/// A UDP socket on port 4791 of one address. Needs no right.
///
/// Up to 64 units wait while the socket's buffer or the interface's queue is full. A datagram that the kernel refuses, for want of a
/// route or because it is longer than the path takes, is dropped, as is one that the interface refuses again and again.
///
/// ICMP errors are counted ([`Drops::reported`]) and change nothing: anybody can forge them.
#[derive(Debug)]
pub struct Udp {
    link: Link,
    own: IpAddr,
    interface: Option<String>,
    socket: OwnedFd,
    /// Whether the kernel divides units.
    divides: bool,
    inbox: Inbox,
    queue: Queue,
    refusal: Refusal,
    errors: Errors,
    drops: Drops,
    /// Answers to queries, for the next [`Edge::receive`].
    answers: heapless::Deque<Answer, ANSWERS_MAX>,
}

/// The part of a batch that has left.
struct Sent {
    frames: usize,
    /// An error has kept the rest.
    is_cut: bool,
}

/// The settings of a [`Udp`] edge.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpConfig {
    /// Largest IP packet in bytes; `None` is that of the address's interface.
    pub mtu: Option<usize>,
    /// The kernel divides units of up to 64 packets (`UDP_SEGMENT`), and joins those that come (`UDP_GRO`).
    pub offload: bool,
}

impl Udp {
    /// Binds a socket to port 4791 of `own`.
    ///
    /// # Errors
    /// The system call that failed; `AddrInUse` and `AddrNotAvailable` say what mends it.
    pub fn bind(own: IpAddr, config: UdpConfig) -> io::Result<Self> {
        let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
        let fd = socket.as_fd();
        set_options(fd, own, config.offload)?;
        sys::bind(fd, &Name::new(own, ROCE_PORT)).map_err(|error| explain(error, own))?;
        let interface = sys::interface_of(own);
        let known = || crate::sys::interface_mtu(fd, interface.as_deref()?).ok();
        let mtu = config.mtu.or_else(known).unwrap_or(ETHERNET_MTU).min(IP_MAX_LEN);
        let datagram_len = if config.offload { UNIT_MAX_LEN - header_len(own) } else { mtu };
        let link = Link {
            mac: mac_of(own),
            mtu,
            max_segments: if config.offload { MAX_SEGMENTS } else { 1 },
            max_unit_len: header_len(own) + datagram_len,
            socket: true,
        };
        Ok(Self {
            link,
            own,
            interface,
            inbox: Inbox::new(own, datagram_len),
            queue: Queue::new(DEPTH, link.max_unit_len),
            refusal: Refusal::new(),
            errors: Errors::default(),
            socket,
            divides: config.offload,
            drops: Drops::default(),
            answers: heapless::Deque::new(),
        })
    }

    fn flush(&mut self) -> Result<(), EdgeError> {
        if !self.refusal.is_due(Instant::now) {
            return Ok(());
        }
        let (mut failed, mut again) = (false, 0);
        while self.queue.len() > 0 {
            match self.send() {
                Ok(Sent { frames: 0, .. }) => self.keep_aside(),
                Ok(Sent { frames, is_cut }) => {
                    self.refusal.has_left(|| self.queue.longest(frames));
                    self.queue.advance(frames);
                    failed = false;
                    if is_cut {
                        // The error that has cut it is gone, and its report must not stay where datagrams are to be received.
                        self.errors.take(self.socket.as_fd());
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    if self.refusal.stays(self.queue.head_len(), Instant::now()) {
                        return Ok(());
                    }
                    self.refuse();
                }
                // The interface adds no checksums, without which the kernel divides nothing.
                Err(Errno::IO) if self.divides => self.divides = false,
                // The first error may be one that a report has left, and so may each that comes with a report.
                Err(errno) if self.is_reported(errno) || !failed => {
                    if again == AGAIN_MAX {
                        return Ok(());
                    }
                    (failed, again) = (true, again + 1);
                }
                Err(errno) => {
                    failed = false;
                    self.give_up_for(errno)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the network has reported an error such as this one.
    fn is_reported(&mut self, errno: Errno) -> bool {
        may_be_reported(errno) && self.errors.take(self.socket.as_fd())
    }

    /// Drops the oldest unit for an error of its own.
    fn give_up_for(&mut self, errno: Errno) -> Result<(), EdgeError> {
        match errno {
            Errno::MSGSIZE | Errno::INVAL | Errno::ACCESS | Errno::PERM => self.refuse(),
            _ => self.give_up(),
        }
        if is_of_one_datagram(errno) {
            return Ok(());
        }
        Err(EdgeError::Os(errno.raw_os_error()))
    }

    /// Sends a batch of queued units: none where the oldest is no datagram.
    fn send(&self) -> Result<Sent, Errno> {
        let header_len = header_len(self.own);
        let socket = self.socket.as_fd();
        let datagram = |headers: &[u8], payload, segment_len| {
            let (to, mut traits) = headers::read(self.own, headers)?;
            traits.segment_len = segment_len;
            Some(Outgoing { to, control: Control::new(&traits, self.own.is_ipv6()), payload })
        };
        if self.divides || self.link.max_segments == 1 {
            let units = self.queue.units().take(RUN).map_while(|(bytes, segments)| {
                let (headers, payload) = bytes.split_at_checked(header_len)?;
                let segments = segments.filter(|segments| segments.count(bytes.len()) > 1);
                datagram(headers, payload, segments.map(|segments| segments.segment_len))
            });
            let units: heapless::Vec<Outgoing<'_>, RUN> = units.collect();
            let sent = if units.is_empty() { 0 } else { sys::send(socket, &units)? };
            let frames = |(bytes, segments): (&[u8], _)| frames_of(bytes.len(), segments);
            let frames = self.queue.units().take(sent).map(frames).sum();
            return Ok(Sent { frames, is_cut: sent < units.len() });
        }
        let frames: heapless::Vec<Segment<'_>, RUN> = self.queue.frames().take(RUN).collect();
        let datagrams = frames.iter().map_while(|frame| match frame.header() {
            [] => {
                let (headers, payload) = frame.payload().split_at_checked(header_len)?;
                datagram(headers, payload, None)
            }
            headers => datagram(headers, frame.payload(), None),
        });
        let datagrams: heapless::Vec<Outgoing<'_>, RUN> = datagrams.collect();
        let frames = if datagrams.is_empty() { 0 } else { sys::send(socket, &datagrams)? };
        Ok(Sent { frames, is_cut: frames < datagrams.len() })
    }

    /// Answers the oldest unit, which is no datagram, if it is a query.
    fn keep_aside(&mut self) {
        let mut answer = Answer::from_array([0; FRAME_MAX_LEN]);
        let frame = self.queue.units().next().map_or(&[][..], |(bytes, _)| bytes);
        match answer_any(frame, mac_of, &mut answer) {
            Some(len) => {
                answer.truncate(len);
                // The user repeats a query whose answer finds no room.
                let _ = self.answers.push_back(answer);
                self.queue.advance(1);
            }
            None => self.give_up(),
        }
    }

    /// Drops the oldest unit, which was refused.
    fn refuse(&mut self) {
        self.drops.refused += 1;
        self.give_up();
    }

    /// Drops the oldest unit.
    fn give_up(&mut self) {
        self.queue.advance(self.queue.head_frames());
        self.refusal.end_wait();
        self.drops.transmit += 1;
    }

    /// Lends up to `budget` datagrams to `sink`, whatever was reported meanwhile. Returns their number.
    fn receive_datagrams(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, Errno> {
        for _ in 0..AGAIN_MAX {
            match self.inbox.receive(self.socket.as_fd(), budget, sink) {
                Err(errno) if may_be_reported(errno) => {
                    self.errors.take(self.socket.as_fd());
                }
                result => return result,
            }
        }
        Ok(0)
    }

    /// Lends up to `budget` answers to `sink`. Returns their number.
    fn hand_answers(&mut self, budget: usize, sink: &mut dyn FnMut(&[Received<'_>])) -> usize {
        let mut count = 0;
        while count < budget
            && let Some(answer) = self.answers.pop_front()
        {
            sink(&[Received { frame: &answer, segments: None }]);
            count += 1;
        }
        count
    }
}

impl Edge for Udp {
    fn link(&self) -> Link {
        self.link
    }

    fn speed(&mut self) -> Option<u64> {
        crate::sys::interface_speed(self.socket.as_fd(), self.interface.as_deref()?)
    }

    /// Units given up so far. Datagrams that the kernel dropped because the socket's buffer was full are not counted here.
    fn drops(&self) -> Drops {
        Drops { receive: self.inbox.dropped, reported: self.errors.reported, ..self.drops }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let answers = self.hand_answers(budget, sink);
        let received = self.receive_datagrams(budget - answers, sink);
        received.map(|count| answers + count).map_err(|errno| EdgeError::Os(errno.raw_os_error()))
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let count = self.queue.fill(budget, fill);
        self.flush()?;
        Ok(count)
    }

    fn backlog(&self) -> usize {
        self.queue.len()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn wants_writable(&self) -> bool {
        self.queue.len() > 0 && self.retry_after().is_none()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }

    /// The descriptor is ready as long as the error queue holds something.
    fn take_error(&mut self) {
        self.errors.take(self.socket.as_fd());
    }

    fn asks_the_system(&self) -> bool {
        true
    }
}

/// Nothing is fragmented, each datagram tells its marks and hop limit, and the kernel what became of those that were sent. A path's
/// MTU is the interface's: `DO` would take a smaller one from any ICMP error, which needs no more than both addresses to forge.
fn set_options(fd: BorrowedFd<'_>, own: IpAddr, offload: bool) -> io::Result<()> {
    let options: &[((i32, i32), i32)] = if own.is_ipv4() {
        &[
            ((libc::SOL_IP, libc::IP_MTU_DISCOVER), libc::IP_PMTUDISC_PROBE),
            ((libc::SOL_IP, libc::IP_RECVTOS), 1),
            ((libc::SOL_IP, libc::IP_RECVTTL), 1),
            ((libc::SOL_IP, libc::IP_RECVERR), 1),
        ]
    } else {
        &[
            // RoCEv2 needs no UDP checksum, and many peers send none.
            ((libc::SOL_UDP, UDP_NO_CHECK6_RX), 1),
            ((libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER), libc::IPV6_PMTUDISC_PROBE),
            ((libc::SOL_IPV6, libc::IPV6_RECVTCLASS), 1),
            ((libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT), 1),
            ((libc::SOL_IPV6, libc::IPV6_RECVERR), 1),
        ]
    };
    for &(option, value) in options {
        sys::set_option(fd, option, value)?;
    }
    if offload {
        sys::set_option(fd, (libc::SOL_UDP, libc::UDP_GRO), 1)?;
    }
    // Without CAP_NET_ADMIN the limits in net.core apply; smaller buffers cost packets, which are sent again.
    if sockopt::set_socket_recv_buffer_size_force(fd, BUFFER_LEN).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(fd, BUFFER_LEN);
    }
    if sockopt::set_socket_send_buffer_size_force(fd, BUFFER_LEN).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(fd, BUFFER_LEN);
    }
    Ok(())
}

/// Whether an error concerns one datagram: it has no route or no neighbour, a filter refuses it, or the path takes no packet
/// as long.
const fn is_of_one_datagram(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MSGSIZE
            | Errno::INVAL
            | Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::ADDRNOTAVAIL
            | Errno::CONNREFUSED
            | Errno::ACCESS
            | Errno::PERM
    )
}

/// Says what mends an address that cannot be bound.
fn explain(error: io::Error, own: IpAddr) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "UDP port {ROCE_PORT} of {own} is taken, by another program or, for all addresses, by the kernel's rdma_rxe: use \
             another address of this host, or end the program, or unload rdma_rxe, which may keep the port though it has no link \
             (`rmmod rdma_rxe`)"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("no interface of this host has {own}; `ip address` lists those that there are")
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

/// An answer to a query.
type Answer = heapless::Vec<u8, FRAME_MAX_LEN>;

/// The UDP destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// Takes what comes without a checksum over IPv6, too (udp(7)).
const UDP_NO_CHECK6_RX: i32 = 102;
/// Answers that wait. A query without one is repeated.
const ANSWERS_MAX: usize = 16;
/// Calls that one turn makes again because of errors that the network may have reported.
const AGAIN_MAX: usize = 2 * DEPTH;
/// Units that wait for the socket.
const DEPTH: usize = 64;
/// Segments that every kernel with UDP segmentation takes in one unit.
const MAX_SEGMENTS: usize = 64;
/// The kernel counts a whole frame in 16 bits (`GSO_LEGACY_MAX_SIZE`); a longer unit it divides at once.
const UNIT_MAX_LEN: usize = u16::MAX as usize;
const IP_MAX_LEN: usize = u16::MAX as usize;
/// MTU where neither the user nor an interface says another.
const ETHERNET_MTU: usize = 1500;
const BUFFER_LEN: usize = 4 << 20;
