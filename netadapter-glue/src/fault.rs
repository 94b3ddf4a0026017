//! Seeded loss, duplication, reordering and corruption around any edge.
//!
//! Faults strike the transmitted packets of the wrapped edge, one at a time: a unit of segments is divided
//! first. The same seed and the same frames give the same fates.

use crate::segment::{Segment, split};
use crate::{Drops, Edge, EdgeError, Link, Received, Slot, Transmit, fill_one};
use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The probability of each fault, from 0 to 1, each drawn on its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Seed of every draw.
    pub seed: u64,
    /// A frame vanishes.
    pub loss: f64,
    /// A frame is sent twice. Each copy may then be corrupted and reordered on its own.
    pub duplicate: f64,
    /// One bit flips behind the Ethernet header, which a real link's FCS protects to its next hop.
    pub corrupt: f64,
    /// A frame is delayed while later frames pass.
    pub reorder: f64,
    /// Most later frames that pass a delayed one; at least 1.
    pub reorder_frames: u32,
    /// Calls of [`Edge::transmit`] without a new frame after which delayed frames leave anyway, so that
    /// none is stuck when traffic stops. A poller that goes to sleep releases them, too.
    pub hold_polls: u32,
}

impl Default for Faults {
    /// No fault; up to 8 frames pass a delayed one, for up to 64 idle calls.
    fn default() -> Self {
        Self {
            seed: 0,
            loss: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            reorder_frames: 8,
            hold_polls: 64,
        }
    }
}

/// The frames by their fates.
#[derive(Debug, Default)]
pub struct FaultCounters {
    frames: AtomicU64,
    lost: AtomicU64,
    duplicated: AtomicU64,
    corrupted: AtomicU64,
    reordered: AtomicU64,
}

impl FaultCounters {
    /// Frames that the filter chose, each counted once.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Frames that vanished.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Frames of which a second copy was made.
    pub fn duplicated(&self) -> u64 {
        self.duplicated.load(Ordering::Relaxed)
    }

    /// Copies with a flipped bit.
    pub fn corrupted(&self) -> u64 {
        self.corrupted.load(Ordering::Relaxed)
    }

    /// Copies that were delayed.
    pub fn reordered(&self) -> u64 {
        self.reordered.load(Ordering::Relaxed)
    }
}

/// Chooses the frames that faults may strike.
pub type Filter = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// An edge whose transmitted frames suffer [`Faults`].
///
/// At most 64 frames are delayed at a time. The frames that the wrapped edge has no room for wait here: 64,
/// and the segments of a few units.
pub struct FaultInjector<E> {
    edge: E,
    faults: Faults,
    filter: Filter,
    rng: ChaCha8Rng,
    counters: Arc<FaultCounters>,
    /// The buffer that is lent to `fill`; its unit is then divided.
    unit: Box<[u8]>,
    free: Vec<Frame>,
    ready: VecDeque<Frame>,
    delayed: Vec<Delayed>,
    idle_polls: u32,
}

impl<E: Edge> FaultInjector<E> {
    /// Wraps `edge`; faults may strike every frame.
    pub fn new(edge: E, faults: Faults) -> Self {
        let link = edge.link();
        let frames = 4 * link.max_segments + READY_MAX + DELAYED_MAX;
        let frame_len = (ETHERNET_MAX_LEN + link.mtu).min(link.max_unit_len);
        let frame = || Frame { bytes: vec![0; frame_len].into(), len: 0 };
        Self {
            edge,
            faults,
            filter: Box::new(|_| true),
            rng: ChaCha8Rng::seed_from_u64(faults.seed),
            counters: Arc::default(),
            unit: vec![0; link.max_unit_len].into(),
            free: (0..frames).map(|_| frame()).collect(),
            ready: VecDeque::with_capacity(frames),
            delayed: Vec::with_capacity(DELAYED_MAX),
            idle_polls: 0,
        }
    }

    /// Spares the frames for which `filter` returns false. A filter may keep state: it can let a fault
    /// strike the third packet only, or during a time of the test's choice.
    #[must_use]
    pub fn with_filter(mut self, filter: impl FnMut(&[u8]) -> bool + Send + 'static) -> Self {
        self.filter = Box::new(filter);
        self
    }

    /// The counters, which may be kept when the edge is given away.
    pub fn counters(&self) -> Arc<FaultCounters> {
        self.counters.clone()
    }

    /// Decides the fate of one packet. At most two frames become ready or delayed.
    fn admit(&mut self, segment: &Segment<'_>) {
        let mut frame = self.free.pop().expect("`has_room` was asked");
        frame.len = segment.copy_to(&mut frame.bytes);
        if !(self.filter)(&frame.bytes[..frame.len]) {
            return self.pass(frame);
        }
        count(&self.counters.frames);
        let lost = self.strikes(self.faults.loss);
        let duplicated = self.strikes(self.faults.duplicate);
        if lost {
            count(&self.counters.lost);
            return self.free.push(frame);
        }
        if duplicated {
            count(&self.counters.duplicated);
            let mut copy = self.free.pop().expect("`has_room` was asked");
            copy.len = frame.len;
            copy.bytes[..frame.len].copy_from_slice(&frame.bytes[..frame.len]);
            self.admit_copy(copy);
        }
        self.admit_copy(frame);
    }

    fn admit_copy(&mut self, mut frame: Frame) {
        if self.strikes(self.faults.corrupt) {
            count(&self.counters.corrupted);
            let first = if frame.len > ETHERNET_LEN { ETHERNET_LEN * 8 } else { 0 };
            let bit = first + self.below((frame.len * 8 - first) as u32) as usize;
            frame.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if self.strikes(self.faults.reorder) && self.delayed.len() < DELAYED_MAX {
            count(&self.counters.reordered);
            let passes = self.below(self.faults.reorder_frames.max(1)) + 1;
            self.age_delayed();
            return self.delayed.push(Delayed { frame, passes });
        }
        self.pass(frame);
    }

    /// Passes a frame in its turn, and behind it the delayed ones that have waited long enough.
    fn pass(&mut self, frame: Frame) {
        self.ready.push_back(frame);
        self.age_delayed();
    }

    /// Counts one more frame behind the delayed ones, whether it is delayed itself or not: so no more than
    /// `passes` frames can ever overtake one.
    fn age_delayed(&mut self) {
        for delayed in &mut self.delayed {
            delayed.passes -= 1;
        }
        while let Some(due) = self.delayed.iter().position(|delayed| delayed.passes == 0) {
            self.ready.push_back(self.delayed.remove(due).frame);
        }
    }

    fn release_delayed(&mut self) {
        self.ready.extend(self.delayed.drain(..).map(|delayed| delayed.frame));
    }

    /// Transmits the ready frames through the wrapped edge, as far as it takes them.
    fn flush(&mut self) -> Result<(), EdgeError> {
        let Self { edge, ready, free, .. } = self;
        edge.transmit_each(ready.len(), |buffer| {
            let frame = ready.pop_front()?;
            let len = frame.len;
            buffer[..len].copy_from_slice(&frame.bytes[..len]);
            free.push(frame);
            Some(Transmit { len, segments: None })
        })?;
        Ok(())
    }

    /// Whether every segment of one more unit, duplicated, would find a buffer.
    fn has_room(&self) -> bool {
        self.free.len() >= 2 * self.edge.link().max_segments
    }

    /// True with a probability of `rate`; one draw in any case.
    fn strikes(&mut self, rate: f64) -> bool {
        f64::from(self.rng.next_u32()) < rate * 4_294_967_296.0
    }

    /// A number in `0..bound`.
    fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.rng.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

impl<E: Edge> Edge for FaultInjector<E> {
    fn link(&self) -> Link {
        self.edge.link()
    }

    fn speed(&mut self) -> Option<u64> {
        self.edge.speed()
    }

    fn retry_after(&self) -> Option<core::time::Duration> {
        self.edge.retry_after()
    }

    /// The drops of the wrapped edge. Frames lost on purpose are in [`FaultCounters`].
    fn drops(&self) -> Drops {
        self.edge.drops()
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        self.edge.receive(budget, sink)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let mut units = 0;
        while units < budget && self.has_room() {
            // Taken out for the loop: `admit` needs the rest of `self`.
            let mut buffer = core::mem::take(&mut self.unit);
            let unit = fill_one(fill, &mut buffer);
            if let Some(Transmit { len, segments }) = unit {
                split(&buffer[..len], segments).for_each(|segment| self.admit(&segment));
            }
            self.unit = buffer;
            if unit.is_none() {
                break;
            }
            units += 1;
            if self.ready.len() >= READY_MAX {
                self.flush()?;
            }
        }
        self.idle_polls = if units == 0 { self.idle_polls.saturating_add(1) } else { 0 };
        if self.idle_polls >= self.faults.hold_polls {
            self.release_delayed();
        }
        self.flush()?;
        Ok(units)
    }

    fn backlog(&self) -> usize {
        self.delayed.len() + self.ready.len() + self.edge.backlog()
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.edge.set_waker(waker);
    }

    fn announce_sleep(&mut self, sleeping: bool) {
        if sleeping && !self.delayed.is_empty() {
            self.release_delayed();
            // An edge that fails now fails again in the next `transmit`, which can report it.
            let _ = self.flush();
        }
        self.edge.announce_sleep(sleeping);
    }

    #[cfg(unix)]
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.edge.fd()
    }

    #[cfg(unix)]
    fn wants_writable(&self) -> bool {
        self.edge.wants_writable()
    }

    #[cfg(unix)]
    fn take_error(&mut self) {
        self.edge.take_error();
    }

    fn asks_the_system(&self) -> bool {
        self.edge.asks_the_system()
    }
}

struct Frame {
    bytes: Box<[u8]>,
    len: usize,
}

/// A frame that is delayed until `passes` more frames have come.
struct Delayed {
    frame: Frame,
    passes: u32,
}

/// One writer, so no read-modify-write is needed.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

const ETHERNET_LEN: usize = 14;
/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;
/// Frames that wait for the wrapped edge before it is asked to take them.
const READY_MAX: usize = 64;
/// Frames delayed at a time, at most.
const DELAYED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryConfig, MemoryEdge, pair};
    use crate::segment::tests::unit;
    use proptest::prelude::*;

    fn faulty(faults: Faults) -> (FaultInjector<MemoryEdge>, MemoryEdge) {
        let config = MemoryConfig { mtu: 300, max_segments: 4, depth: 64, ..Default::default() };
        let (a, b) = pair(config);
        (FaultInjector::new(a, faults), b)
    }

    /// Sends `count` numbered frames and returns what arrives, in order.
    fn run(mut edge: impl Edge, mut peer: MemoryEdge, count: u32) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        let mut next = 0;
        while next < count || edge.backlog() > 0 {
            edge.transmit_each(16, |buffer| {
                (next < count).then(|| {
                    buffer[..60].fill(0);
                    buffer[20..24].copy_from_slice(&next.to_be_bytes());
                    next += 1;
                    Transmit { len: 60, segments: None }
                })
            })
            .unwrap();
            peer.receive_each(64, |received| arrived.push(received.frame.to_vec())).unwrap();
        }
        peer.receive_each(64, |received| arrived.push(received.frame.to_vec())).unwrap();
        arrived
    }

    fn number(frame: &[u8]) -> u32 {
        u32::from_be_bytes([frame[20], frame[21], frame[22], frame[23]])
    }

    #[test]
    fn without_faults_nothing_changes() {
        let (edge, peer) = faulty(Faults::default());
        let numbers: Vec<u32> = run(edge, peer, 500).iter().map(|frame| number(frame)).collect();
        assert_eq!(numbers, Vec::from_iter(0..500));
    }

    #[test]
    fn rates_are_met_and_counted() {
        let rates = Faults { loss: 0.1, duplicate: 0.05, ..Faults::default() };
        let (edge, peer) = faulty(rates);
        let counters = edge.counters();
        let arrived = run(edge, peer, 20_000).len() as u64;
        assert_eq!(counters.frames(), 20_000);
        assert!((1_800..2_200).contains(&counters.lost()), "{counters:?}");
        assert!((800..1_000).contains(&counters.duplicated()), "{counters:?}");
        assert_eq!(arrived, 20_000 - counters.lost() + counters.duplicated());
    }

    #[test]
    fn a_certain_fault_always_strikes() {
        let (edge, peer) = faulty(Faults { loss: 1.0, ..Faults::default() });
        assert!(run(edge, peer, 1000).is_empty());
    }

    #[test]
    fn the_same_seed_gives_the_same_fates() {
        let faults = |seed| Faults {
            seed,
            loss: 0.1,
            duplicate: 0.1,
            corrupt: 0.1,
            reorder: 0.1,
            ..Faults::default()
        };
        let arrived = |seed| {
            let (edge, peer) = faulty(faults(seed));
            run(edge, peer, 2_000)
        };
        assert_eq!(arrived(7), arrived(7));
        assert_ne!(arrived(7), arrived(8));
    }

    #[test]
    fn corruption_flips_one_bit_behind_the_ethernet_header() {
        let (edge, peer) = faulty(Faults { corrupt: 1.0, ..Faults::default() });
        let mut places = std::collections::BTreeSet::new();
        for (i, mut frame) in run(edge, peer, 5_000).into_iter().enumerate() {
            let sent = (i as u32).to_be_bytes();
            frame.iter_mut().skip(20).zip(sent).for_each(|(byte, sent)| *byte ^= sent);
            let flipped: u32 = frame.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(flipped, 1);
            places.insert(frame.iter().position(|&byte| byte != 0).unwrap());
        }
        assert_eq!(places, (14..60).collect());
    }

    #[test]
    fn the_filter_spares_frames() {
        let (edge, peer) = faulty(Faults { loss: 1.0, ..Faults::default() });
        let edge = edge.with_filter(|frame| number(frame).is_multiple_of(3));
        let numbers: Vec<u32> = run(edge, peer, 9).iter().map(|frame| number(frame)).collect();
        assert_eq!(numbers, [1, 2, 4, 5, 7, 8]);
    }

    #[test]
    fn each_segment_has_its_own_fate() {
        let (mut edge, mut peer) = faulty(Faults { loss: 1.0, ..Faults::default() });
        let mut seen = 0;
        edge = edge.with_filter(move |_| {
            seen += 1;
            seen == 2
        });
        let (unit, segments) = unit(false, 700, 200);
        let mut transmit = Some(Transmit { len: unit.len(), segments: Some(segments) });
        edge.transmit_each(8, |buffer| {
            buffer[..unit.len()].copy_from_slice(&unit);
            transmit.take()
        })
        .unwrap();
        let mut ids = Vec::new();
        peer.receive_each(8, |received| {
            assert_eq!(received.segments, None);
            ids.push(u16::from_be_bytes([received.frame[18], received.frame[19]]));
        })
        .unwrap();
        assert_eq!(ids, [0xffff, 1, 2]);
    }

    #[test]
    fn a_sleeper_leaves_no_frame_behind() {
        let (mut edge, mut peer) = faulty(Faults { reorder: 1.0, ..Faults::default() });
        let mut one = Some(Transmit { len: 60, segments: None });
        edge.transmit_each(8, |_| one.take()).unwrap();
        assert_eq!((edge.backlog(), peer.receive_each(8, |_| ()).unwrap()), (1, 0));
        edge.announce_sleep(true);
        assert_eq!((edge.backlog(), peer.receive_each(8, |_| ()).unwrap()), (0, 1));
    }

    proptest! {
        /// Reordering loses nothing and makes nothing, and no frame is overtaken by too many.
        #[test]
        fn reordering_is_a_bounded_permutation(seed: u64, reorder in 0.0..1.0, k in 1u32..20) {
            let (edge, peer) =
                faulty(Faults { seed, reorder, reorder_frames: k, ..Faults::default() });
            let numbers: Vec<u32> =
                run(edge, peer, 300).iter().map(|frame| number(frame)).collect();
            for (at, own) in numbers.iter().enumerate() {
                let later = numbers[..at].iter().filter(|&other| other > own).count();
                prop_assert!(later <= k as usize, "{own} was passed by {later}");
            }
            let mut sorted = numbers;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, Vec::from_iter(0..300));
        }
    }
}
