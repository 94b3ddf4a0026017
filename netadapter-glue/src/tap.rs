//! An edge over a Linux TAP device: the kernel's network stack is the other end of the wire.
//!
//! The interface has an Ethernet address of its own; the edge is its one neighbour. A TAP device
//! takes and gives one frame per system call, so it is the slowest of the host edges.

use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::{Drops, Edge, EdgeError, Link, Received, Slot, sys};
use alloc::{boxed::Box, vec};
use core::time::Duration;
use rustix::io::{Errno, read, writev};
use rustix::net::{AddressFamily, SocketType, socket};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Instant;

/// The end of a TAP interface that is not the kernel's.
#[derive(Debug)]
pub struct Tap {
    link: Link,
    file: File,
    buffer: Box<[u8]>,
    queue: Queue,
    refusal: Refusal,
    drops: Drops,
}

impl Tap {
    /// Attaches to the TAP interface `name`, which is created if it does not exist and then lives
    /// as long as this edge. `mac` is the edge's own address. Needs `CAP_NET_ADMIN`, unless the
    /// interface exists and belongs to the user.
    ///
    /// Up to 64 frames wait while the kernel's queue is full; what it refuses is given up. The interface must be brought up by other
    /// means; until then frames are dropped.
    ///
    /// # Errors
    /// The system call that failed.
    pub fn open(name: &str, mac: [u8; 6]) -> io::Result<Self> {
        let file = attach(name)?;
        let any_socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let mtu = sys::interface_mtu(any_socket.as_fd(), name)?;
        let frame_len = ETHERNET_MAX_LEN + mtu;
        Ok(Self {
            link: Link { mac, mtu, max_segments: 1, max_unit_len: frame_len, socket: false },
            file,
            buffer: vec![0; frame_len].into(),
            queue: Queue::new(DEPTH, frame_len),
            refusal: Refusal::new(),
            drops: Drops::default(),
        })
    }

    fn flush(&mut self) -> Result<(), EdgeError> {
        if !self.refusal.is_due(Instant::now) {
            return Ok(());
        }
        while self.queue.len() > 0 {
            match self.send_one() {
                Ok(_) => {
                    self.refusal.has_left(|| self.queue.head_len());
                    self.queue.advance(1);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    if self.refusal.stays(self.queue.head_len(), Instant::now()) {
                        return Ok(());
                    }
                    self.refuse();
                }
                // The interface is down.
                Err(Errno::IO) => self.give_up(),
                Err(Errno::INVAL | Errno::MSGSIZE) => self.refuse(),
                Err(errno) => {
                    // Offered again it would fail again, and hold up all others.
                    self.refuse();
                    return Err(EdgeError::Os(errno.raw_os_error()));
                }
            }
        }
        Ok(())
    }

    /// Drops the oldest frame, which was refused.
    fn refuse(&mut self) {
        self.drops.refused += 1;
        self.give_up();
    }

    /// Drops the oldest frame.
    fn give_up(&mut self) {
        self.queue.advance(1);
        self.refusal.end_wait();
        self.drops.transmit += 1;
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

    /// Frames given up so far.
    fn drops(&self) -> Drops {
        self.drops
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        for count in 0..budget {
            match read(&self.file, &mut self.buffer[..]) {
                Ok(len) => sink(&[Received { frame: &self.buffer[..len], segments: None }]),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(count),
                Err(errno) => return Err(EdgeError::Os(errno.raw_os_error())),
            }
        }
        Ok(budget)
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
        Some(self.file.as_fd())
    }

    fn wants_writable(&self) -> bool {
        self.queue.len() > 0 && self.retry_after().is_none()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }
}

/// Makes the TAP interface `name`, which lives until its network namespace ends or somebody deletes it: so it is set up
/// before an edge opens it. Needs `CAP_NET_ADMIN`.
///
/// # Errors
/// The system call that failed.
pub fn create(name: &str) -> io::Result<()> {
    sys::keep_tap(attach(name)?.as_fd())
}

fn attach(name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open("/dev/net/tun")?;
    sys::attach_tap(file.as_fd(), name)?;
    Ok(file)
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;
/// Frames that wait for the kernel.
const DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transmit;
    use crate::af_packet::AfPacket;
    use crate::af_packet::tests::{
        expect_no_hold_up, narrow_veth, receive_frames, refusing_socket, run,
    };
    use crate::neighbour::Neighbours;
    use alloc::format;
    use alloc::string::{String, ToString};
    use core::net::IpAddr;
    use core::time::Duration;
    use std::process::{Command, Stdio};
    use std::time::Instant;
    use std::{println, process, thread};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// A network namespace of the test's own, so that its addresses are nobody else's.
    struct Namespace(String);

    impl Namespace {
        fn new() -> Result<Self, String> {
            let name = format!("ng{}", process::id());
            run("ip", &format!("netns add {name}"))?;
            Ok(Self(name))
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = run("ip", &format!("netns del {}", self.0));
        }
    }

    /// Goal: Linux takes us for a neighbour, and we take Linux for one.
    /// Method: the kernel pings us over a TAP device, IPv4 and IPv6, while we resolve its address.
    #[test]
    fn the_kernel_and_we_are_neighbours() {
        if let Err(reason) = ping_each_other() {
            println!("skipped: {reason}");
        }
    }

    fn ping_each_other() -> Result<(), String> {
        let name = format!("ngnd{}", process::id());
        let mut tap = Tap::open(&name, MAC).map_err(|error| error.to_string())?;
        let namespace = Namespace::new()?;
        let netns = &namespace.0;
        run("ip", &format!("link set {name} netns {netns}"))?;
        run("ip", &format!("-n {netns} link set {name} up"))?;
        for (prefix, kernel, own) in
            [("24", "192.0.2.1", "192.0.2.2"), ("64 nodad", "2001:db8::1", "2001:db8::2")]
        {
            run("ip", &format!("-n {netns} addr add {kernel}/{prefix} dev {name}"))?;
            run("ping", "-V")?;
            let ping = format!("netns exec {netns} ping -q -n -c 2 -i 0.2 -W 5 {own}");
            let mut ping = Command::new("ip")
                .args(ping.split_whitespace())
                .stdout(Stdio::null())
                .spawn()
                .map_err(|error| error.to_string())?;
            let (kernel, own): (IpAddr, IpAddr) = (kernel.parse().unwrap(), own.parse().unwrap());
            let mut neighbours = Neighbours::new(MAC, &[own]);
            neighbours.resolve(0, own, kernel);
            let start = Instant::now();
            let status = loop {
                turn(&mut tap, &mut neighbours, start.elapsed().as_nanos() as u64);
                if let Some(status) = ping.try_wait().unwrap() {
                    break status;
                }
                thread::sleep(Duration::from_millis(1));
            };
            assert!(status.success(), "{own} does not answer");
            let found = neighbours.poll_event().unwrap();
            assert_eq!(found.ip, kernel);
            assert_ne!(found.result.unwrap().mac, MAC);
        }
        Ok(())
    }

    fn turn(edge: &mut impl Edge, neighbours: &mut Neighbours, now_ns: u64) {
        neighbours.handle_timeout(now_ns);
        edge.receive_each(64, |received| {
            neighbours.handle_frame(now_ns, received.frame);
        })
        .unwrap();
        edge.transmit_each(64, |buffer| {
            let len = neighbours.poll_transmit(buffer)?;
            Some(Transmit { len, segments: None })
        })
        .unwrap();
    }

    fn send(edge: &mut impl Edge, number: u8) {
        let mut transmit = Some(Transmit { len: 60, segments: None });
        edge.transmit_each(1, |buffer| {
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

    /// Goal: what the kernel refuses holds up nothing. A TAP's own kernel refuses a frame only for want of memory, so a packet
    /// socket stands in its place.
    #[test]
    fn frames_behind_a_refused_one_leave() {
        let Some(veth) = narrow_veth("t") else { return };
        let frame_len = ETHERNET_MAX_LEN + 4200;
        let mut tap = Tap {
            link: Link {
                mac: MAC,
                mtu: 4200,
                max_segments: 1,
                max_unit_len: frame_len,
                socket: false,
            },
            file: refusing_socket(&veth).into(),
            buffer: vec![0; frame_len].into(),
            queue: Queue::new(DEPTH, frame_len),
            refusal: Refusal::new(),
            drops: Drops::default(),
        };
        expect_no_hold_up(&mut tap);
    }
}
