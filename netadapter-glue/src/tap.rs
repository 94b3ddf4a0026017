//! Linux TAP: the kernel's network stack as the other end of the wire.
//!
//! The interface has an Ethernet address of its own; the edge is its one neighbour. A TAP device
//! takes and gives one frame per system call, so it is the slowest of the host edges.

use crate::queue::Queue;
use crate::{Drops, Edge, EdgeError, Link, Received, Transmit, sys};
use alloc::{boxed::Box, vec};
use rustix::io::{Errno, read, writev};
use rustix::net::{AddressFamily, SocketType, socket};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The end of a TAP interface that is not the kernel's.
#[derive(Debug)]
pub struct Tap {
    link: Link,
    file: File,
    buffer: Box<[u8]>,
    queue: Queue,
    drops: Drops,
}

impl Tap {
    /// Attaches to the TAP interface `name`, which is created if it does not exist and then lives
    /// as long as this edge. `mac` is the edge's own address. Needs `CAP_NET_ADMIN`, unless the
    /// interface exists and belongs to the user.
    ///
    /// Up to 64 frames wait while the kernel's queue is full. Somebody must bring the interface up;
    /// until then frames are dropped.
    ///
    /// # Errors
    /// The system call that failed.
    pub fn open(name: &str, mac: [u8; 6]) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun")?;
        sys::attach_tap(file.as_fd(), name)?;
        let any_socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let mtu = sys::interface_mtu(any_socket.as_fd(), name)?;
        let frame_len = ETHERNET_MAX_LEN + mtu;
        Ok(Self {
            link: Link { mac, mtu, max_segments: 1, max_unit_len: frame_len },
            file,
            buffer: vec![0; frame_len].into(),
            queue: Queue::new(DEPTH, frame_len),
            drops: Drops::default(),
        })
    }

    /// Frames given up so far.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    fn flush(&mut self) -> Result<(), EdgeError> {
        while self.queue.len() > 0 {
            match self.send_one() {
                Ok(_) => self.queue.advance(1),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(()),
                // The interface is down, or the frame is not one.
                Err(Errno::IO | Errno::INVAL | Errno::MSGSIZE) => {
                    self.queue.advance(1);
                    self.drops.transmit += 1;
                }
                Err(errno) => return Err(EdgeError::Os(errno.raw_os_error())),
            }
        }
        Ok(())
    }

    fn send_one(&self) -> Result<usize, Errno> {
        let Some(frame) = self.queue.frames().next() else { return Ok(0) };
        writev(&self.file, &[frame.header(), frame.payload()].map(IoSlice::new))
    }
}

impl Edge for Tap {
    fn link(&self) -> Link {
        self.link
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, EdgeError> {
        for count in 0..budget {
            match read(&self.file, &mut self.buffer[..]) {
                Ok(len) => sink(Received { frame: &self.buffer[..len], segments: None }),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(count),
                Err(errno) => return Err(EdgeError::Os(errno.raw_os_error())),
            }
        }
        Ok(budget)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> Result<usize, EdgeError> {
        let count = self.queue.fill(budget, fill);
        self.flush()?;
        Ok(count)
    }

    fn backlog(&self) -> usize {
        self.queue.len()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn wants_writable(&self) -> bool {
        self.queue.len() > 0
    }
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;
/// Frames that wait for the kernel.
const DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::af_packet::AfPacket;
    use crate::af_packet::tests::{receive_frames, run};
    use alloc::format;
    use std::{println, process};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn send(edge: &mut dyn Edge, number: u8) {
        let mut transmit = Some(Transmit { len: 60, segments: None });
        edge.transmit(1, &mut |buffer| {
            buffer[..60].fill(number);
            buffer[..14].copy_from_slice(&[0xff; 14]);
            buffer[12..14].copy_from_slice(&[0x88, 0xb5]);
            transmit.take()
        })
        .unwrap();
    }

    #[test]
    fn frames_cross_between_tap_and_kernel() {
        let name = format!("ngtap{}", process::id());
        let mut tap = match Tap::open(&name, MAC) {
            Ok(tap) => tap,
            Err(error) => return println!("skipped: {error}"),
        };
        assert_eq!((tap.link().mac, tap.link().mtu), (MAC, 1500));
        send(&mut tap, 1);
        assert_eq!(tap.drops().transmit, 1, "the interface is down");
        for command in ["addrgenmode none", "up"] {
            if let Err(reason) = run("ip", &format!("link set {name} {command}")) {
                return println!("skipped: {reason}");
            }
        }
        let mut kernel = match AfPacket::open(&name) {
            Ok(kernel) => kernel,
            Err(error) => return println!("skipped: {error}"),
        };
        assert_ne!(kernel.link().mac, MAC);
        let is_ours = |frame: &[u8]| frame[12..14] == [0x88, 0xb5];
        for number in 2..20 {
            send(&mut tap, number);
            assert_eq!(receive_frames(&mut kernel, 1, is_ours)[0].0[59], number);
            send(&mut kernel, number);
            assert_eq!(receive_frames(&mut tap, 1, is_ours)[0].0[59], number);
        }
        assert_eq!((tap.backlog(), tap.drops().transmit), (0, 1));
    }
}
