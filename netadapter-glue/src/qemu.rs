//! QEMU netdevs over Unix sockets: `-netdev dgram` and `-netdev stream`.
//!
//! Neither loses a frame while both ends are there: a full queue is back-pressure. Both carry bare
//! Ethernet frames, without FCS or a virtio header.

mod reassembly;

use crate::inbox::Inbox;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::segment::Segment;
use crate::{Drops, Edge, EdgeError, Link, Received, Slot};
use core::time::Duration;
use reassembly::Reassembly;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, sendmsg, socket_with,
};
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The peer of `-netdev dgram,local.type=unix,local.path=PEER,remote.type=unix,remote.path=OWN`:
/// one datagram is one frame.
///
/// The ends may start in either order and restart at any time; frames that are sent while no socket is
/// bound to the peer's path are dropped. Up to 64 frames wait while the peer's queue is full, which Linux
/// makes short (`net.unix.max_dgram_qlen`).
#[derive(Debug)]
pub struct QemuDgram {
    link: Link,
    /// The socket bound to our path, never connected: a connected one would refuse a peer that restarted.
    rx: OwnedFd,
    /// The socket connected to the peer: only then does poll(2) know whether the peer's queue is full.
    tx: OwnedFd,
    tx_connected: bool,
    /// Readable when `rx` is, and also when `tx` is writable where a sleeper waits for that.
    epoll: OwnedFd,
    epoll_has_tx: bool,
    peer: SocketAddrUnix,
    own_path: PathBuf,
    inbox: Inbox,
    queue: Queue,
    refusal: Refusal,
    drops: Drops,
}

impl QemuDgram {
    /// Binds `own_path` and sends to `peer_path`. A socket left behind at `own_path` is replaced.
    ///
    /// # Errors
    /// The system call that failed, for one because a path has more than 107 bytes.
    pub fn bind(own_path: &Path, peer_path: &Path, mac: [u8; 6], mtu: usize) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let new_socket = || socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        let (rx, tx) = (new_socket()?, new_socket()?);
        let own = SocketAddrUnix::new(own_path)?;
        remove_stale_socket(own_path, &own, SocketType::DGRAM)?;
        bind(&rx, &own)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &rx, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let link = link(mac, mtu);
        Ok(Self {
            link,
            rx,
            tx,
            tx_connected: false,
            epoll,
            epoll_has_tx: false,
            peer: SocketAddrUnix::new(peer_path)?,
            own_path: own_path.into(),
            inbox: Inbox::new(link.max_unit_len),
            queue: Queue::new(DEPTH, link.max_unit_len),
            refusal: Refusal::new(),
            drops: Drops::default(),
        })
    }

    fn flush(&mut self) -> Result<(), EdgeError> {
        if !self.refusal.is_due(Instant::now) {
            return Ok(());
        }
        while self.queue.len() > 0 {
            if !self.tx_connected && !self.connect()? {
                self.drops.transmit += self.queue.clear();
                self.refusal.end_wait();
                return Ok(());
            }
            match self.queue.send(self.tx.as_fd(), &mut self.refusal) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    if self.refusal.stays(self.queue.head_len(), Instant::now()) {
                        return Ok(());
                    }
                    self.give_up();
                }
                // The peer's socket is closed. A new one may be bound to its path already.
                Err(Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE) => {
                    self.tx_connected = false;
                }
                Err(Errno::MSGSIZE) => self.give_up(),
                Err(errno) => {
                    // Offered again it would fail again, and hold up all others.
                    self.give_up();
                    return Err(os_error(errno));
                }
            }
        }
        Ok(())
    }

    /// Drops the oldest frame, which was refused.
    fn give_up(&mut self) {
        self.queue.advance(1);
        self.refusal.end_wait();
        self.drops.transmit += 1;
        self.drops.refused += 1;
    }

    /// Connects to the peer. Returns whether a socket is bound to its path.
    fn connect(&mut self) -> Result<bool, EdgeError> {
        self.tx_connected = match connect(&self.tx, &self.peer) {
            Ok(()) => true,
            Err(Errno::NOENT | Errno::CONNREFUSED) => false,
            Err(errno) => return Err(os_error(errno)),
        };
        Ok(self.tx_connected)
    }
}

impl Edge for QemuDgram {
    fn link(&self) -> Link {
        self.link
    }

    /// Frames given up so far.
    fn drops(&self) -> Drops {
        Drops { receive: self.inbox.dropped, ..self.drops }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        self.inbox.receive(self.rx.as_fd(), budget, sink).map_err(os_error)
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

    fn announce_sleep(&mut self, sleeping: bool) {
        let wanted = sleeping && self.queue.len() > 0 && self.retry_after().is_none();
        if wanted == self.epoll_has_tx {
            return;
        }
        let result = if wanted {
            let data = epoll::EventData::new_u64(1);
            epoll::add(&self.epoll, &self.tx, data, epoll::EventFlags::OUT)
        } else {
            epoll::delete(&self.epoll, &self.tx)
        };
        result.expect("both descriptors are ours and open");
        self.epoll_has_tx = wanted;
    }

    fn asks_the_system(&self) -> bool {
        true
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }
}

impl Drop for QemuDgram {
    fn drop(&mut self) {
        // The path may be gone already.
        let _ = fs::remove_file(&self.own_path);
    }
}

/// The peer of `-netdev stream`: each frame follows its length, four bytes, big-endian.
///
/// Up to 64 frames wait while the socket is full.
#[derive(Debug)]
pub struct QemuStream {
    link: Link,
    listener: Option<Listener>,
    /// Without a connection the edge is a NIC without link: its frames are dropped.
    stream: Option<OwnedFd>,
    inbox: Reassembly,
    queue: Queue,
    refusal: Refusal,
    /// Bytes of the oldest queued frame, its length included, that have left.
    head_sent: usize,
    drops: Drops,
}

#[derive(Debug)]
struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl QemuStream {
    /// Waits at `path` for `-netdev stream,server=off,addr.type=unix,addr.path=PATH`. One peer is
    /// served at a time; when it goes, another may come. A socket left behind is replaced.
    ///
    /// # Errors
    /// The system call that failed.
    pub fn listen(path: &Path, mac: [u8; 6], mtu: usize) -> io::Result<Self> {
        let socket = stream_socket()?;
        let address = SocketAddrUnix::new(path)?;
        remove_stale_socket(path, &address, SocketType::STREAM)?;
        bind(&socket, &address)?;
        listen(&socket, 1)?;
        Ok(Self::new(Some(Listener { socket, path: path.into() }), None, mac, mtu))
    }

    /// Connects to `-netdev stream,server=on,addr.type=unix,addr.path=PATH`, which must be there.
    /// When the peer goes, the edge is closed.
    ///
    /// # Errors
    /// The system call that failed.
    pub fn connect(path: &Path, mac: [u8; 6], mtu: usize) -> io::Result<Self> {
        let socket = stream_socket()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self::new(None, Some(socket), mac, mtu))
    }

    fn new(listener: Option<Listener>, stream: Option<OwnedFd>, mac: [u8; 6], mtu: usize) -> Self {
        let link = link(mac, mtu);
        Self {
            link,
            listener,
            stream,
            inbox: Reassembly::new(),
            queue: Queue::new(DEPTH, link.max_unit_len),
            refusal: Refusal::new(),
            head_sent: 0,
            drops: Drops::default(),
        }
    }

    /// Whether there is a peer; it may have connected just now.
    fn has_link(&mut self) -> Result<bool, EdgeError> {
        if self.stream.is_none() {
            let Some(listener) = &self.listener else { return Err(EdgeError::Closed) };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            self.stream = match accept_with(&listener.socket, flags) {
                Ok(stream) => Some(stream),
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => None,
                Err(errno) => return Err(os_error(errno)),
            };
        }
        Ok(self.stream.is_some())
    }

    fn lose_link(&mut self) {
        self.stream = None;
        self.inbox.reset();
        self.clear();
    }

    /// Drops all frames: there is no peer.
    fn clear(&mut self) {
        self.drops.transmit += self.queue.clear();
        self.refusal.end_wait();
        self.head_sent = 0;
    }

    fn flush(&mut self) -> Result<(), EdgeError> {
        if !self.has_link()? {
            self.clear();
        }
        if !self.refusal.is_due(Instant::now) {
            return Ok(());
        }
        while self.queue.len() > 0 {
            match self.send_batch() {
                Ok(bytes) => {
                    self.refusal.has_left(|| self.queue.head_len());
                    self.advance(bytes);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    if self.stays(Instant::now()) {
                        return Ok(());
                    }
                    self.queue.advance(1);
                    self.drops.transmit += 1;
                    self.drops.refused += 1;
                }
                Err(Errno::PIPE | Errno::CONNRESET) => self.lose_link(),
                Err(errno) => {
                    self.lose_link();
                    return Err(os_error(errno));
                }
            }
        }
        Ok(())
    }

    /// Whether the oldest frame stays after it was refused. One of which a part has left does: the peer would take the next
    /// for its rest.
    fn stays(&mut self, now: Instant) -> bool {
        if self.head_sent > 0 {
            self.refusal.put_off(now);
            return true;
        }
        self.refusal.stays(self.queue.head_len(), now)
    }

    /// Sends as much of the next frames as fits. Returns the number of bytes.
    fn send_batch(&self) -> Result<usize, Errno> {
        let Some(stream) = &self.stream else { return Err(Errno::PIPE) };
        let frames: heapless::Vec<([u8; 4], Segment<'_>), STREAM_BATCH> = self
            .queue
            .frames()
            .take(STREAM_BATCH)
            .map(|frame| ((frame.len() as u32).to_be_bytes(), frame))
            .collect();
        let mut slices: heapless::Vec<IoSlice<'_>, { 3 * STREAM_BATCH }> = frames
            .iter()
            .flat_map(|(len, frame)| [&len[..], frame.header(), frame.payload()].map(IoSlice::new))
            .collect();
        let mut slices = &mut slices[..];
        IoSlice::advance_slices(&mut slices, self.head_sent);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)
    }

    /// Notes that `bytes` more have left.
    fn advance(&mut self, bytes: usize) {
        self.head_sent += bytes;
        let mut left = 0;
        for frame in self.queue.frames() {
            let len = LENGTH_LEN + frame.len();
            if self.head_sent < len {
                break;
            }
            self.head_sent -= len;
            left += 1;
        }
        self.queue.advance(left);
    }
}

impl Edge for QemuStream {
    fn link(&self) -> Link {
        self.link
    }

    /// Frames given up so far.
    fn drops(&self) -> Drops {
        Drops { receive: self.inbox.dropped, ..self.drops }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut count = self.inbox.deliver(budget, sink);
        while count < budget && self.has_link()? {
            let Some(stream) = &self.stream else { break };
            match self.inbox.read(stream.as_fd()) {
                Ok(true) => {}
                Ok(false) | Err(Errno::CONNRESET) => {
                    self.lose_link();
                    break;
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(os_error(errno)),
            }
            count += self.inbox.deliver(budget - count, sink);
        }
        Ok(count)
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

    fn asks_the_system(&self) -> bool {
        true
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let listener = || self.listener.as_ref().map(|listener| listener.socket.as_fd());
        self.stream.as_ref().map(AsFd::as_fd).or_else(listener)
    }

    fn wants_writable(&self) -> bool {
        self.queue.len() > 0 && self.retry_after().is_none()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The path may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

fn link(mac: [u8; 6], mtu: usize) -> Link {
    Link { mac, mtu, max_segments: 1, max_unit_len: ETHERNET_MAX_LEN + mtu, socket: false }
}

fn stream_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// A socket's name outlives the process that bound it: the name of a dead process is removed. A name in
/// use, and anything else at `path`, stays for `bind` to refuse.
///
/// A dead name and a live one differ only in the result of a connect to them.
fn remove_stale_socket(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn os_error(errno: Errno) -> EdgeError {
    EdgeError::Os(errno.raw_os_error())
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;
/// Frames that wait for the peer.
const DEPTH: usize = 64;
/// The length before each frame of a stream.
const LENGTH_LEN: usize = 4;
/// Frames per system call of a stream.
const STREAM_BATCH: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transmit;
    use crate::af_packet::tests::{
        expect_no_hold_up, narrow_veth, numbered, offer, refusing_socket,
    };
    use alloc::vec::Vec;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use tempfile::TempDir;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const MTU: usize = 1500;

    /// Offers `count` frames numbered from `next` on; returns how many were taken.
    fn send(edge: &mut impl Edge, next: &mut u32, count: u32) -> usize {
        let end = *next + count;
        edge.transmit_each(usize::MAX, |buffer| {
            (*next < end).then(|| {
                let len = 60 + (*next as usize * 37) % 1400;
                buffer[..len].fill(*next as u8);
                buffer[..4].copy_from_slice(&next.to_be_bytes());
                *next += 1;
                Transmit { len, segments: None }
            })
        })
        .unwrap()
    }

    /// Receives what is there and checks order and content; returns how many that was.
    fn receive(edge: &mut impl Edge, budget: usize, expected: &mut u32) -> usize {
        edge.receive_each(budget, |received| {
            let (number, rest) = received.frame.split_first_chunk().unwrap();
            assert_eq!(u32::from_be_bytes(*number), *expected);
            assert_eq!(received.frame.len(), 60 + (*expected as usize * 37) % 1400);
            assert!(rest.iter().all(|&byte| byte == *expected as u8));
            *expected += 1;
        })
        .unwrap()
    }

    /// Moves `frames` frames from `a` to `b`, with back-pressure on the way.
    fn transfer(a: &mut impl Edge, b: &mut impl Edge, frames: u32) {
        let (mut next, mut expected, mut pressed) = (0, 0, false);
        while expected < frames {
            let left = frames - next;
            send(a, &mut next, left);
            assert!(a.backlog() <= DEPTH);
            pressed |= a.backlog() > 0;
            receive(b, 5, &mut expected);
        }
        assert!(pressed, "the test is meant to fill the socket");
        assert_eq!(receive(b, 1, &mut expected), 0);
    }

    fn is_ready(edge: &dyn Edge) -> bool {
        let wanted = if edge.wants_writable() { PollFlags::OUT } else { PollFlags::empty() };
        let fd = edge.fd().unwrap();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN | wanted)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    fn dgram_pair(dir: &TempDir) -> (QemuDgram, QemuDgram) {
        let (p, q) = (dir.path().join("p"), dir.path().join("q"));
        let a = QemuDgram::bind(&p, &q, MAC, MTU).unwrap();
        (a, QemuDgram::bind(&q, &p, MAC, MTU).unwrap())
    }

    #[test]
    fn dgrams_lose_nothing_under_back_pressure() {
        let dir = TempDir::new().unwrap();
        let (mut a, mut b) = dgram_pair(&dir);
        transfer(&mut a, &mut b, 3_000);
        transfer(&mut b, &mut a, 3_000);
        assert_eq!((a.drops(), b.drops()), (Drops::default(), Drops::default()));
    }

    #[test]
    fn one_datagram_is_one_frame() {
        let dir = TempDir::new().unwrap();
        let (p, q) = (dir.path().join("p"), dir.path().join("q"));
        let mut edge = QemuDgram::bind(&p, &q, MAC, MTU).unwrap();
        let qemu = UnixDatagram::bind(&q).unwrap();
        send(&mut edge, &mut 0, 1);
        let mut buffer = [0; 2000];
        assert_eq!(qemu.recv(&mut buffer).unwrap(), 60);
        qemu.send_to(&[0; 100], &p).unwrap();
        qemu.send_to(&[0; 1519], &p).unwrap();
        let mut lens = Vec::new();
        edge.receive_each(8, |received| lens.push(received.frame.len())).unwrap();
        assert_eq!(lens, [100]);
        assert_eq!(edge.drops(), Drops { receive: 1, ..Drops::default() });
    }

    #[test]
    fn a_dgram_peer_may_come_late_and_restart() {
        let dir = TempDir::new().unwrap();
        let (p, q) = (dir.path().join("p"), dir.path().join("q"));
        let mut a = QemuDgram::bind(&p, &q, MAC, MTU).unwrap();
        let mut next = 0;
        assert_eq!(send(&mut a, &mut next, 3), 3);
        assert_eq!((a.backlog(), a.drops().transmit), (0, 3), "nobody is there");
        for _ in 0..2 {
            // The socket file that a killed process leaves behind is replaced.
            drop(UnixDatagram::bind(&q));
            let mut b = QemuDgram::bind(&q, &p, MAC, MTU).unwrap();
            let mut expected = next;
            // The peer speaks first: a socket connected to its predecessor would refuse it.
            send(&mut b, &mut 0, 1);
            assert_eq!(receive(&mut a, 8, &mut 0), 1);
            send(&mut a, &mut next, 1);
            assert_eq!(receive(&mut b, 8, &mut expected), 1);
        }
        assert!(!q.exists(), "an edge removes its own path");
    }

    #[test]
    fn a_sleeping_dgram_sender_sees_room() {
        let dir = TempDir::new().unwrap();
        let (mut a, mut b) = dgram_pair(&dir);
        let (mut next, mut expected) = (0, 0);
        send(&mut a, &mut next, 50);
        assert!(a.backlog() > 0);
        a.announce_sleep(true);
        assert!(!is_ready(&a));
        receive(&mut b, usize::MAX, &mut expected);
        assert!(is_ready(&a));
        a.announce_sleep(false);
        assert!(!is_ready(&a));
        send(&mut b, &mut 0, 1);
        assert!(is_ready(&a));
    }

    #[test]
    fn a_file_in_the_way_is_not_removed() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("p");
        fs::write(&path, "precious").unwrap();
        assert!(QemuDgram::bind(&path, &dir.path().join("q"), MAC, MTU).is_err());
        assert!(QemuStream::listen(&path, MAC, MTU).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn streams_lose_nothing_under_back_pressure() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("p");
        let mut a = QemuStream::listen(&path, MAC, MTU).unwrap();
        let mut b = QemuStream::connect(&path, MAC, MTU).unwrap();
        assert!(is_ready(&a), "a caller wakes a sleeping listener");
        transfer(&mut b, &mut a, 5_000);
        transfer(&mut a, &mut b, 5_000);
        assert_eq!((a.drops(), b.drops()), (Drops::default(), Drops::default()));
    }

    #[test]
    fn frames_come_out_of_a_stream_however_it_is_cut() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("p");
        let listener = UnixListener::bind(&path).unwrap();
        let mut edge = QemuStream::connect(&path, MAC, MTU).unwrap();
        let (mut qemu, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        for len in [60_u32, 0, 200_000, 1514] {
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.resize(bytes.len() + len as usize, 7);
        }
        let mut lens = Vec::new();
        for step in [1, 3, 7, 70_000] {
            // Stays below the socket's buffer: one thread plays both ends.
            for piece in bytes.chunks(step) {
                qemu.write_all(piece).unwrap();
                edge.receive_each(8, |received| lens.push(received.frame.len())).unwrap();
            }
            edge.receive_each(8, |received| lens.push(received.frame.len())).unwrap();
            assert_eq!(core::mem::take(&mut lens), [60, 0, 1514]);
        }
        assert_eq!(edge.drops().receive, 4);

        send(&mut edge, &mut 0, 1);
        let mut frame = [0; 64];
        qemu.read_exact(&mut frame).unwrap();
        assert_eq!(frame[..4], [0, 0, 0, 60]);
    }

    #[test]
    fn a_listener_outlives_its_peer_and_a_caller_does_not() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("p");
        let mut edge = QemuStream::listen(&path, MAC, MTU).unwrap();
        let mut next = 0;
        send(&mut edge, &mut next, 1);
        assert_eq!(edge.drops().transmit, 1);
        let descriptor = |edge: &QemuStream| edge.fd().map(|fd| fd.as_raw_fd());
        let alone = descriptor(&edge);
        for _ in 0..2 {
            let mut qemu = UnixStream::connect(&path).unwrap();
            // Half a frame, then the peer is gone: the next one begins afresh.
            qemu.write_all(&[0, 0, 0, 100, 1, 2, 3]).unwrap();
            assert_eq!(edge.receive_each(8, |_| ()), Ok(0));
            // A poller may keep only the descriptor of an edge that does not ask the system.
            assert!(descriptor(&edge) != alone && edge.asks_the_system());
            drop(qemu);
            assert_eq!(edge.receive_each(8, |_| ()), Ok(0));
        }
        let mut caller = QemuStream::connect(&path, MAC, MTU).unwrap();
        let mut number = 0;
        send(&mut caller, &mut number, 1);
        assert_eq!(receive(&mut edge, 8, &mut 0), 1);
        drop(edge);
        assert_eq!(caller.receive_each(8, |_| ()), Ok(0));
        assert_eq!(caller.receive_each(8, |_| ()), Err(EdgeError::Closed));
    }

    /// Goal: what the kernel refuses holds up nothing. The sockets of a netdev are refused only for want of memory, so a packet
    /// socket stands in their place.
    #[test]
    fn frames_behind_a_refused_one_leave() {
        let Some(veth) = narrow_veth("q") else { return };
        let dir = TempDir::new().unwrap();
        let [own, peer] = ["a", "b"].map(|name| dir.path().join(name));
        let mut dgram = QemuDgram::bind(&own, &peer, MAC, 4200).unwrap();
        (dgram.tx, dgram.tx_connected) = (refusing_socket(&veth), true);
        expect_no_hold_up(&mut dgram);
        offer(&mut dgram, &numbered(1600, 0));
        dgram.announce_sleep(true);
        assert!(!dgram.epoll_has_tx, "a socket that refuses is writable for ever");
        let mut stream = QemuStream::new(None, Some(refusing_socket(&veth)), MAC, 4200);
        expect_no_hold_up(&mut stream);
    }

    /// Goal: a peer of a stream never takes the begin of a frame for that of the next.
    #[test]
    fn a_begun_frame_is_never_given_up() {
        let Some(veth) = narrow_veth("w") else { return };
        let mut stream = QemuStream::new(None, Some(refusing_socket(&veth)), MAC, 4200);
        offer(&mut stream, &numbered(4000, 0));
        stream.head_sent = 1;
        for _ in 0..300 {
            std::thread::sleep(stream.retry_after().expect("it is offered again"));
            stream.flush().unwrap();
        }
        assert_eq!((stream.backlog(), stream.drops()), (1, Drops::default()));
        stream.lose_link();
        assert_eq!((stream.retry_after(), stream.drops().transmit), (None, 1));
        assert_eq!(stream.head_sent, 0, "a new link begins with a whole frame");
    }
}
