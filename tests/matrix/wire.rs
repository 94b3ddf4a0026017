//! The cable between a guest and our program: it hurts frames of both directions, can be pulled out, and records what
//! either end has sent.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::qemu::QemuDgram;
use netadapter_glue::{Edge, Transmit};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tests::lab::{Side, Sockets};

/// What a wire does to the frames that pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hurt {
    /// It strikes RoCE packets alone: a neighbour that is asked for twice takes a second.
    pub(crate) faults: Faults,
    pub(crate) delay: Duration,
}

/// A running wire.
pub(crate) struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    pulled: AtomicBool,
    over: AtomicBool,
}

impl Wire {
    /// Joins the guest's link to ours. All that an end sends is written to `capture`, before it is hurt.
    pub(crate) fn join(guest: &Sockets, ours: &Sockets, hurt: Hurt, capture: &Path) -> Self {
        // It stands where our program would stand for the guest, and where the guest would for us.
        let end = |sockets: &Sockets, side, seed| {
            let (here, there) = sockets.of(side);
            let edge = QemuDgram::bind(here, there, [2, 0, 0, 0, 0, 9], MTU).expect("a new link");
            let faults = Faults { seed: hurt.faults.seed + seed, ..hurt.faults };
            FaultInjector::new(edge, faults).with_filter(is_roce)
        };
        let ends = [end(guest, Side::Ours, 0), end(ours, Side::Guest, 1)];
        let file = File::create(capture).expect("target/tmp is writable");
        let capture = PcapWriter::new(BufWriter::new(file)).expect("target/tmp is writable");
        let shared = Arc::<Shared>::default();
        let strand = Strand {
            ends,
            under_way: [VecDeque::new(), VecDeque::new()],
            delay: hurt.delay,
            capture,
            shared: Arc::clone(&shared),
        };
        Self { shared, thread: Some(thread::spawn(|| strand.run())) }
    }

    /// Bytes that were sent so far, by either end.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Pulls the cable out, or puts it back. What is sent meanwhile is lost.
    pub(crate) fn pull(&self, out: bool) {
        self.shared.pulled.store(out, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(ended.is_some_and(|ended| ended.is_ok()), "the wire has failed");
        }
    }
}

/// What the wire's thread owns.
struct Strand {
    /// The end that sends to the guest, and the one that sends to us.
    ends: [FaultInjector<QemuDgram>; 2],
    /// Frames that came from each end, and when they may leave by the other.
    under_way: [VecDeque<(Instant, Vec<u8>)>; 2],
    delay: Duration,
    capture: PcapWriter<BufWriter<File>>,
    shared: Arc<Shared>,
}

impl Strand {
    fn run(mut self) {
        while !self.shared.over.load(Ordering::Relaxed) {
            let moved: usize = (0..2).map(|from| self.take(from) + self.give(from)).sum();
            if moved == 0 {
                self.sleep();
            }
        }
    }

    /// Takes what one end has sent. One that sends faster than the other takes has to wait.
    fn take(&mut self, from: usize) -> usize {
        let Self { ends, under_way, delay, capture, shared } = self;
        let room = UNDER_WAY_MAX - under_way[from].len();
        let due = Instant::now() + *delay;
        let pulled = shared.pulled.load(Ordering::Relaxed);
        let taken = ends[from].receive_each(room, |received| {
            record(capture, received.frame);
            shared.bytes.fetch_add(received.frame.len() as u64, Ordering::Relaxed);
            if !pulled {
                under_way[from].push_back((due, received.frame.to_vec()));
            }
        });
        taken.expect("a Unix socket works")
    }

    /// Gives to the other end what is due.
    fn give(&mut self, from: usize) -> usize {
        let Self { ends, under_way, .. } = self;
        let now = Instant::now();
        let due = under_way[from].iter().take_while(|(due, _)| *due <= now).count();
        let given = ends[1 - from].transmit_each(due, |buffer| {
            let (_, frame) = under_way[from].pop_front()?;
            buffer[..frame.len()].copy_from_slice(&frame);
            Some(Transmit { len: frame.len(), segments: None })
        });
        given.expect("a Unix socket works")
    }

    /// Until something comes, can leave, or is due.
    fn sleep(&mut self) {
        if self.under_way.iter().any(|frames| frames.len() == UNDER_WAY_MAX) {
            // What comes has to wait, and would end any other sleep at once.
            return thread::sleep(NAP);
        }
        let now = Instant::now();
        let due = self.under_way.iter().filter_map(|frames| frames.front()).map(|(due, _)| *due);
        let rest = due.min().map_or(SLEEP_MAX, |due| due.saturating_duration_since(now));
        // What a fault holds back leaves now at the latest.
        self.ends.iter_mut().for_each(|end| end.announce_sleep(true));
        let fds = self.ends.each_ref().map(|end| end.fd().expect("it has one"));
        let mut fds = fds.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
        let nanoseconds = rest.min(SLEEP_MAX).as_nanos().max(NAP.as_nanos());
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds as i64 };
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, Some(&timeout));
        self.ends.iter_mut().for_each(|end| end.announce_sleep(false));
    }
}

fn record(capture: &mut PcapWriter<BufWriter<File>>, frame: &[u8]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let packet = PcapPacket::new(now, frame.len() as u32, frame);
    capture.write_packet(&packet).expect("target/tmp is writable");
}

/// Whether a frame is a RoCEv2 packet: UDP to its port.
fn is_roce(frame: &[u8]) -> bool {
    let (protocol, udp) = match frame.get(12..14) {
        Some([0x08, 0x00]) => (23, 34),
        Some([0x86, 0xdd]) => (20, 54),
        _ => return false,
    };
    frame.get(protocol) == Some(&17) && frame.get(udp + 2..udp + 4) == Some(&[0x12, 0xb7])
}

/// The largest that a cell has.
const MTU: usize = 9000;
/// Frames on their way in a direction: 2 ms of a fast sender.
const UNDER_WAY_MAX: usize = 4096;
/// The end of a wire is noticed after that.
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// The shortest sleep: the guest needs the processor, too.
const NAP: Duration = Duration::from_micros(100);
