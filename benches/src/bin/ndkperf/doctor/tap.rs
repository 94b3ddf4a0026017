//! The edge of an examination: it records the frames of both directions, can mark those that leave, and comes back when the
//! provider on it ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use netadapter_glue::host::BoxEdge;
use netadapter_glue::memory::{self, MemoryConfig};
use netadapter_glue::segment::split;
use netadapter_glue::{Edge, EdgeError, Received, Segments, Slot, forward_edge};

use crate::decode::Seen;

/// The frames that an examination has seen.
pub(super) struct Trace {
    origin: Instant,
    frames: Mutex<Frames>,
    /// Frames that leave get a mark of congestion, where their transport knows of ECN.
    marks: AtomicBool,
    marked: AtomicU64,
}

#[derive(Default)]
struct Frames {
    all: Vec<Seen>,
    bytes: usize,
}

impl Trace {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            frames: Mutex::default(),
            marks: AtomicBool::new(false),
            marked: AtomicU64::new(0),
        })
    }

    /// The time now, on the clock of the frames.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Frames so far.
    pub(super) fn len(&self) -> usize {
        self.lock().all.len()
    }

    /// Hands the frames from number `from` on, counted from 0, to `look`.
    pub(super) fn since<T>(&self, from: usize, look: impl FnOnce(&[Seen]) -> T) -> T {
        let frames = self.lock();
        look(frames.all.get(from..).unwrap_or_default())
    }

    /// Marks what leaves from now on, or no longer.
    pub(super) fn mark(&self, marks: bool) {
        self.marks.store(marks, Ordering::Relaxed);
    }

    /// Frames that were marked.
    pub(super) fn marked(&self) -> u64 {
        self.marked.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, unit: &[u8], segments: Option<Segments>) {
        let at_ns = self.now_ns();
        let mut frames = self.lock();
        for segment in split(unit, segments) {
            // An examination has a few megabytes; a link that others flood must not fill our memory.
            if frames.bytes + segment.len() > BYTES_MAX {
                return;
            }
            let mut bytes = vec![0; segment.len()];
            segment.copy_to(&mut bytes);
            frames.bytes += bytes.len();
            frames.all.push(Seen { at_ns, bytes });
        }
    }
}

/// The edge.
pub(super) struct Tap {
    edge: BoxEdge,
    trace: Arc<Trace>,
    home: Sender<BoxEdge>,
}

impl Tap {
    /// A tap on `edge`, and the place where it arrives when the tap is dropped.
    pub(super) fn lend(edge: BoxEdge, trace: &Arc<Trace>) -> (Self, Receiver<BoxEdge>) {
        let (home, back) = mpsc::channel();
        (Self { edge, trace: Arc::clone(trace), home }, back)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let (nowhere, _) = memory::pair(MemoryConfig { depth: 1, ..MemoryConfig::default() });
        // Nobody waits for it after the last step.
        let _ = self.home.send(std::mem::replace(&mut self.edge, Box::new(nowhere)));
    }
}

impl Edge for Tap {
    forward_edge!(self => self.edge);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let Self { edge, trace, .. } = self;
        edge.receive(budget, &mut |units| {
            units.iter().for_each(|unit| trace.record(unit.frame, unit.segments));
            sink(units);
        })
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let Self { edge, trace, .. } = self;
        edge.transmit(budget, &mut |slots| {
            let filled = fill(slots);
            for slot in &mut slots[..filled] {
                let len = slot.unit.len;
                if trace.marks.load(Ordering::Relaxed) && mark(&mut slot.buffer[..len]) {
                    trace.marked.fetch_add(1, Ordering::Relaxed);
                }
                trace.record(slot.bytes(), slot.unit.segments);
            }
            filled
        })
    }
}

/// Marks a packet whose sender knows of ECN, as a switch with a full queue does (RFC 3168, 5); whether it was one.
/// The ICRC does not cover the mark.
fn mark(frame: &mut [u8]) -> bool {
    let Some((at, is_v4)) = ip_header(frame) else { return false };
    let ip = &mut frame[at..];
    let (class, shift) = if is_v4 { (1, 0) } else { (1, 4) };
    if !matches!(ip[class] >> shift & ECN, 0b01 | 0b10) {
        return false;
    }
    ip[class] |= ECN << shift;
    if is_v4 {
        checksum(&mut ip[..IPV4_LEN]);
    }
    true
}

/// The place of the IP header of a frame behind at most one tag, and whether it is one of IPv4, without options.
pub(super) fn ip_header(frame: &[u8]) -> Option<(usize, bool)> {
    let at = if frame.get(12..14)? == [0x81, 0x00] { 18 } else { 14 };
    let ether_type = frame.get(at - 2..at)?;
    let is_v4 = match ether_type {
        [0x08, 0x00] if *frame.get(at)? == 0x45 => true,
        [0x86, 0xdd] => false,
        _ => return None,
    };
    let len = if is_v4 { IPV4_LEN } else { IPV6_LEN };
    (frame.len() >= at + len).then_some((at, is_v4))
}

/// Writes the checksum of an IPv4 header anew (RFC 1071).
pub(super) fn checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header.as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The bits of ECN in a traffic class: both are the mark.
const ECN: u8 = 0b11;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
/// Bytes of frames that are kept.
const BYTES_MAX: usize = 128 << 20;
