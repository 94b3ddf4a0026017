//! Two sides joined in memory, each with an edge for each of its cores, as two NICs with a queue for each core are.
//!
//! Each edge has a ring to and a ring from each of the other side's, so that each has one writer and one reader. A sender has one
//! supply of buffers for all of its rings: it lends them before it knows where a unit goes. A core of the other side that takes
//! nothing can so hold up what goes to its neighbours, until it does.

use super::{Buffer, MemoryConfig, Places, Rx, buffers, lend, push, take_back};
use crate::sleeper::{ASLEEP, STARVED, Sleeper};
use crate::{Drops, Edge, EdgeError, Link, RUN, Received, Slot};
use alloc::{sync::Arc, vec::Vec};
use core::task::Waker;
use rtrb::{Consumer, Producer, RingBuffer};

/// The core of the other side, which has so many, that gets a unit with this frame; below that number.
pub type Steer = fn(frame: &[u8], cores: usize) -> usize;

/// The edges of two sides with so many cores: each receives those frames of all edges of the other side that are for its core.
/// All edges of a side have one Ethernet address. [`MemoryConfig::depth`] is of each sending edge.
///
/// # Panics
/// If `depth` or `max_segments` is 0.
pub fn pair_of_cores(
    config: MemoryConfig,
    cores: [usize; 2],
    steer: Steer,
) -> (Vec<CoreEdge>, Vec<CoreEdge>) {
    let edges = |side: usize| -> Vec<CoreEdge> {
        (0..cores[side]).map(|_| CoreEdge::new(&config, side, steer)).collect()
    };
    let mut sides = (edges(0), edges(1));
    for first in &mut sides.0 {
        for second in &mut sides.1 {
            join(config.depth, first, second);
        }
    }
    sides
}

/// Joins an edge with one of the other side.
fn join(depth: usize, first: &mut CoreEdge, second: &mut CoreEdge) {
    let (full_forth, full_back) = (RingBuffer::new(depth), RingBuffer::new(depth));
    let (empty_forth, empty_back) = (RingBuffer::new(depth), RingBuffer::new(depth));
    let way = |to: &CoreEdge, full, empty, rx| Way {
        full,
        empty,
        rx,
        peer: Arc::clone(&to.own),
        sent: false,
    };
    let rx = |from: &CoreEdge, full, empty| Rx { full, empty, _places: Arc::clone(&from.places) };
    let from_second = rx(second, full_back.1, empty_forth.0);
    let from_first = rx(first, full_forth.1, empty_back.0);
    let (forth, back) = (
        way(second, full_forth.0, empty_back.1, from_second),
        way(first, full_back.0, empty_forth.1, from_first),
    );
    first.ways.push(forth);
    second.ways.push(back);
}

/// The edge of one core of a side.
///
/// When a core of the other side drops its edge, the frames for that core are lost, and so are the buffers on the way to it.
#[derive(Debug)]
pub struct CoreEdge {
    link: Link,
    /// One for each core of the other side.
    ways: Vec<Way>,
    steer: Steer,
    /// The way to receive from next.
    next: usize,
    /// Free buffers, lent from the end.
    free: Vec<Buffer>,
    /// Buffers that a call lends at first: one more than the last that sent some has filled.
    usual: usize,
    /// The last `transmit` ended for lack of a buffer; there may be more to send.
    starved: bool,
    /// Units sent when the edge of their core was gone.
    lost: u64,
    /// The waker, kept here because a wake takes it out of the sleeper.
    waker: Option<Waker>,
    own: Arc<Sleeper>,
    /// The memory of this sender's buffers.
    places: Arc<Places>,
}

/// Both directions between two cores.
#[derive(Debug)]
struct Way {
    full: Producer<Buffer>,
    empty: Consumer<Buffer>,
    rx: Rx,
    peer: Arc<Sleeper>,
    /// Units were sent since the peer was last woken.
    sent: bool,
}

impl CoreEdge {
    /// An edge that is joined with no other.
    fn new(config: &MemoryConfig, side: usize, steer: Steer) -> Self {
        let (places, free) = buffers(config);
        Self {
            link: config.link(side),
            ways: Vec::new(),
            steer,
            next: 0,
            free,
            usual: RUN,
            starved: false,
            lost: 0,
            waker: None,
            own: Arc::default(),
            places,
        }
    }

    fn send(&mut self, burst: usize, fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize) -> usize {
        for way in &mut self.ways {
            take_back(&mut way.empty, &mut self.free);
        }
        let lent = burst.min(self.free.len());
        let first = self.free.len() - lent;
        let filled = lend(&mut self.free[first..], fill);
        self.starved = filled == lent && lent < burst;
        self.publish(first, filled);
        filled
    }

    /// Sends `filled` of the free buffers, from the `first` on, each to its core.
    fn publish(&mut self, first: usize, filled: usize) {
        let Self { ways, free, steer, lost, .. } = self;
        let cores = ways.len();
        let core_of = |buffer: &Buffer| steer(buffer.received().frame, cores);
        let buffers: heapless::Vec<Buffer, RUN> = free.drain(first..first + filled).collect();
        let mut rest = buffers.as_slice();
        while let [front, behind @ ..] = rest {
            let core = core_of(front);
            let same = behind.iter().take_while(|buffer| core_of(buffer) == core).count();
            let (run, others) = rest.split_at(1 + same);
            let way = &mut ways[core];
            if way.full.is_abandoned() {
                *lost += run.len() as u64;
                free.extend_from_slice(run);
            } else {
                push(&mut way.full, run);
                way.sent = true;
            }
            rest = others;
        }
        for way in ways.iter_mut().filter(|way| way.sent) {
            way.sent = false;
            way.peer.wake_if(ASLEEP);
        }
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty() || self.ways.iter().any(|way| !way.empty.is_empty())
    }
}

impl Edge for CoreEdge {
    fn link(&self) -> Link {
        self.link
    }

    /// The other side's cores take turns.
    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let (mut count, mut idle) = (0, 0);
        while count < budget && idle < self.ways.len() {
            let next = self.next;
            self.next = if next + 1 == self.ways.len() { 0 } else { next + 1 };
            let way = &mut self.ways[next];
            let burst = way.rx.receive((budget - count).min(RUN), sink);
            idle += 1;
            if burst > 0 {
                idle = 0;
                way.peer.wake_if(STARVED);
            }
            count += burst;
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let (mut count, mut run) = (0, self.usual);
        while count < budget {
            let burst = (budget - count).min(run);
            let sent = self.send(burst, fill);
            count += sent;
            if sent < burst {
                break;
            }
            run = RUN;
        }
        if count > 0 {
            self.usual = (count + 1).min(RUN);
        }
        Ok(count)
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    fn drops(&self) -> Drops {
        Drops { transmit: self.lost, ..Drops::default() }
    }

    fn announce_sleep(&mut self, sleeping: bool) {
        if !sleeping {
            self.own.rise();
            return;
        }
        let Some(waker) = &self.waker else { return };
        self.own.announce(waker, if self.starved { STARVED } else { ASLEEP });
        // Either the others see that, or we see their units.
        let room = self.starved && self.has_room();
        if room || self.ways.iter().any(|way| !way.rx.full.is_empty()) {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transmit;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread::{self, Thread};
    use std::time::{Duration, Instant};

    /// The first byte of a frame names its core.
    fn steer(frame: &[u8], cores: usize) -> usize {
        usize::from(frame[0]) % cores
    }

    fn sides(depth: usize, cores: [usize; 2]) -> (Vec<CoreEdge>, Vec<CoreEdge>) {
        pair_of_cores(MemoryConfig { depth, ..MemoryConfig::default() }, cores, steer)
    }

    /// Sends frames of two bytes. Returns how many were taken.
    fn send(edge: &mut CoreEdge, frames: &[[u8; 2]]) -> usize {
        let mut next = frames.iter();
        let write = |buffer: &mut [u8]| {
            buffer[..2].copy_from_slice(next.next()?);
            Some(Transmit { len: 2, segments: None })
        };
        edge.transmit_each(frames.len(), write).unwrap()
    }

    fn receive(edge: &mut CoreEdge, budget: usize) -> Vec<[u8; 2]> {
        let mut frames = Vec::new();
        edge.receive_each(budget, |unit| frames.push(unit.frame.try_into().unwrap())).unwrap();
        frames
    }

    #[derive(Default)]
    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Counts the wakes of an edge. The result tells how many there were since it was asked.
    fn watch(edge: &mut CoreEdge) -> impl Fn() -> usize + use<> {
        let wakes = Arc::new(CountWakes::default());
        edge.set_waker(&Waker::from(wakes.clone()));
        move || wakes.0.swap(0, Ordering::SeqCst)
    }

    #[test]
    fn each_core_gets_its_frames_from_all() {
        let (mut a, mut b) = sides(16, [2, 3]);
        assert_eq!((a.len(), b.len()), (2, 3));
        for (side, edges) in [&a, &b].into_iter().enumerate() {
            let macs = MemoryConfig::default().macs;
            assert!(edges.iter().all(|edge| edge.link().mac == macs[side]));
        }
        assert_eq!(send(&mut a[0], &[[0, 1], [1, 2], [1, 3], [2, 4], [0, 5]]), 5);
        assert_eq!(send(&mut a[1], &[[2, 6], [2, 7]]), 2);
        assert_eq!(receive(&mut b[0], 9), [[0, 1], [0, 5]]);
        assert_eq!(receive(&mut b[1], 9), [[1, 2], [1, 3]]);
        assert_eq!(receive(&mut b[2], 9), [[2, 4], [2, 6], [2, 7]]);
        // Frames for all cores of the side that has fewer.
        for (core, edge) in (0..).zip(&mut b) {
            assert_eq!(send(edge, &[[0, core], [1, core]]), 2);
        }
        for (own, edge) in (0..).zip(&mut a) {
            assert_eq!(receive(edge, 9), [[own, 0], [own, 1], [own, 2]]);
            assert_eq!(receive(edge, 9), [] as [[u8; 2]; 0]);
        }
    }

    #[test]
    fn the_senders_take_turns() {
        let (mut a, mut b) = sides(16, [2, 1]);
        for (sender, edge) in (0..).zip(&mut a) {
            assert_eq!(send(edge, &[[0, sender]; 3]), 3);
        }
        let turns: Vec<u8> = (0..6).flat_map(|_| receive(&mut b[0], 1)).map(|[_, n]| n).collect();
        assert_eq!(turns, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_sender_has_so_many_buffers_for_all() {
        let (mut a, mut b) = sides(3, [1, 2]);
        let starved = watch(&mut a[0]);
        for _ in 0..5 {
            assert_eq!(send(&mut a[0], &[[0, 0], [1, 1], [0, 2], [1, 3]]), 3);
            a[0].announce_sleep(true);
            assert_eq!(starved(), 0);
            assert_eq!(receive(&mut b[1], 9), [[1, 1]]);
            assert_eq!(starved(), 1, "a buffer came back");
            a[0].announce_sleep(false);
            assert_eq!(send(&mut a[0], &[[1, 4], [1, 5]]), 1);
            assert_eq!(receive(&mut b[0], 9), [[0, 0], [0, 2]]);
            a[0].announce_sleep(true);
            assert_eq!(starved(), 1, "before the sleep");
            a[0].announce_sleep(false);
            assert_eq!(receive(&mut b[1], 9), [[1, 4]]);
        }
    }

    #[test]
    fn the_core_of_a_frame_is_woken_alone() {
        let (mut a, mut b) = sides(8, [2, 2]);
        let [first, second] = b.as_mut_slice() else { panic!() };
        let woken = [watch(first), watch(second)];
        let wakes = || [woken[0](), woken[1]()];
        first.announce_sleep(true);
        second.announce_sleep(true);
        assert_eq!(wakes(), [0, 0]);
        send(&mut a[0], &[[1, 0], [1, 0]]);
        assert_eq!(wakes(), [0, 1]);
        send(&mut a[1], &[[1, 0], [0, 0]]);
        assert_eq!(wakes(), [1, 0], "one wake a sleep");
        second.announce_sleep(false);
        assert_eq!(receive(second, 2).len(), 2);
        second.announce_sleep(true);
        assert_eq!(wakes(), [0, 1], "one is there still");
    }

    #[test]
    fn a_core_that_is_gone_takes_nothing() {
        let (mut a, mut b) = sides(3, [1, 2]);
        drop(b.pop());
        for _ in 0..3 {
            assert_eq!(send(&mut a[0], &[[1, 0], [0, 1], [1, 2]]), 3, "never back-pressure");
            assert_eq!(receive(&mut b[0], 9), [[0, 1]]);
        }
        assert_eq!(a[0].drops(), Drops { transmit: 6, ..Drops::default() });
    }

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Goal: no frame and no wake is lost among several senders and receivers. Method: each of two cores a side, in a thread of
    /// its own, floods both of the other side through a few buffers, and sleeps whenever it finds nothing.
    #[test]
    fn four_threads_lose_no_wake() {
        let (a, b) = sides(4, [2, 2]);
        let cores = a.into_iter().zip(0..).chain(b.into_iter().zip(0..));
        let threads: Vec<_> =
            cores.map(|(edge, core)| thread::spawn(move || flood(edge, core))).collect();
        // An edge that is gone would take frames: each lives until all are done.
        let edges: Vec<CoreEdge> = threads.into_iter().map(|end| end.join().unwrap()).collect();
        assert!(edges.iter().all(|edge| edge.drops() == Drops::default()));
    }

    /// Sends [`FRAMES`] numbered frames to each core of the other side, and receives as many from each, in order.
    fn flood(mut edge: CoreEdge, core: u8) -> CoreEdge {
        edge.set_waker(&Waker::from(Arc::new(Unpark(thread::current()))));
        let (mut sent, mut came) = (0, [0; 2]);
        while sent < 2 * FRAMES || came != [FRAMES; 2] {
            let write = |buffer: &mut [u8]| {
                let number = (sent < 2 * FRAMES).then_some(sent / 2)?;
                buffer[..2].copy_from_slice(&[(sent % 2) as u8, core]);
                buffer[2..6].copy_from_slice(&number.to_ne_bytes());
                sent += 1;
                Some(Transmit { len: 6, segments: None })
            };
            let progress = edge.transmit_each(usize::MAX, write).unwrap();
            if progress + take(&mut edge, core, &mut came) == 0 {
                edge.announce_sleep(true);
                if take(&mut edge, core, &mut came) == 0 {
                    let asleep = Instant::now();
                    thread::park_timeout(LIMIT);
                    assert!(asleep.elapsed() < LIMIT, "a wake was lost");
                }
                edge.announce_sleep(false);
            }
        }
        edge
    }

    fn take(edge: &mut CoreEdge, core: u8, came: &mut [u32; 2]) -> usize {
        edge.receive_each(usize::MAX, |unit| {
            let [to, from, number @ ..] = unit.frame else { panic!() };
            assert_eq!(*to, core);
            let expected = &mut came[usize::from(*from)];
            assert_eq!(u32::from_ne_bytes(number.try_into().unwrap()), *expected);
            *expected += 1;
        })
        .unwrap()
    }

    /// From each core to each core of the other side.
    const FRAMES: u32 = 10_000;
    /// No thread of a healthy test sleeps that long, on the slowest machine.
    const LIMIT: Duration = Duration::from_secs(60);
}
