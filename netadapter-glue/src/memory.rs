//! Two edges joined in memory.
//!
//! Each direction is a bounded lock-free ring of frame buffers and a second ring that carries the
//! empty buffers back. All buffers exist from the start: `depth` per direction, so the ring always
//! has room for a buffer, and a sender without a buffer meets back-pressure, never loss. Where a side has several cores, each has
//! an edge, and a pair of rings with each of the other side's ([`pair_of_cores`]).
#![allow(unsafe_code, reason = "buffers are pointers that go through the rings, many together")]

mod cores;

pub use cores::{CoreEdge, Steer, pair_of_cores};

use crate::auto_traits::auto_traits;
use crate::sleeper::{ASLEEP, STARVED, Sleeper};
use crate::{Drops, Edge, EdgeError, Link, RUN, Received, Slot, Transmit};
use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use core::{cell::UnsafeCell, ptr::NonNull, task::Waker};
use rtrb::{Consumer, Producer, RingBuffer};

/// The configuration of two joined edges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryConfig {
    /// The Ethernet addresses of the first and the second edge.
    pub macs: [[u8; 6]; 2],
    /// Largest layer-3 packet in bytes.
    pub mtu: usize,
    /// Largest number of segments in one unit; 1 makes every packet travel alone.
    pub max_segments: usize,
    /// Units on their way in each direction before the sender meets back-pressure. A power of two
    /// is not needed. Each takes a buffer of [`Link::max_unit_len`] bytes.
    pub depth: usize,
}

impl Default for MemoryConfig {
    /// Two locally administered addresses, MTU 1500, no coalescing, 256 units each way.
    fn default() -> Self {
        Self {
            macs: [[0x02, 0, 0, 0, 0, 0x01], [0x02, 0, 0, 0, 0, 0x02]],
            mtu: 1500,
            max_segments: 1,
            depth: 256,
        }
    }
}

impl MemoryConfig {
    /// Ethernet header with one VLAN tag, and as many packets as a unit may carry; but never more than an
    /// IP length field can count, the bound of a unit on every real adapter.
    fn max_unit_len(&self) -> usize {
        ETHERNET_MAX_LEN + (self.mtu * self.max_segments).min(usize::from(u16::MAX))
    }

    /// The link of each edge of a side, of the first (0) or the second (1).
    fn link(&self, side: usize) -> Link {
        assert!(self.depth > 0, "a ring needs room for one unit");
        assert!(self.max_segments > 0, "a unit has at least one segment");
        Link {
            mac: self.macs[side],
            mtu: self.mtu,
            max_segments: self.max_segments,
            max_unit_len: self.max_unit_len(),
            socket: false,
        }
    }
}

/// Two edges: each receives the frames of the other.
///
/// # Panics
/// If `depth` or `max_segments` is 0.
pub fn pair(config: MemoryConfig) -> (MemoryEdge, MemoryEdge) {
    let sleepers = [Arc::new(Sleeper::default()), Arc::new(Sleeper::default())];
    let (tx_forth, rx_forth) = direction(&config);
    let (tx_back, rx_back) = direction(&config);
    let edge = |index: usize, tx, rx| MemoryEdge {
        link: config.link(index),
        tx,
        rx,
        waker: None,
        own: sleepers[index].clone(),
        peer: sleepers[1 - index].clone(),
    };
    (edge(0, tx_forth, rx_back), edge(1, tx_back, rx_forth))
}

/// One of two edges joined in memory.
///
/// When its peer is dropped, the edge behaves as a NIC without link: its frames are lost.
#[derive(Debug)]
pub struct MemoryEdge {
    link: Link,
    tx: Tx,
    rx: Rx,
    /// The waker, kept here because a wake takes it out of the sleeper.
    waker: Option<Waker>,
    own: Arc<Sleeper>,
    peer: Arc<Sleeper>,
}

impl Edge for MemoryEdge {
    fn link(&self) -> Link {
        self.link
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut count = 0;
        while count < budget {
            let burst = self.rx.receive((budget - count).min(RUN), sink);
            if burst == 0 {
                break;
            }
            count += burst;
            self.peer.wake_if(STARVED);
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let (mut count, mut run) = (0, self.tx.usual);
        while count < budget {
            let burst = (budget - count).min(run);
            let sent = self.tx.transmit(burst, fill);
            if sent > 0 {
                self.peer.wake_if(ASLEEP);
            }
            count += sent;
            if sent < burst {
                break;
            }
            run = RUN;
        }
        if count > 0 {
            self.tx.usual = (count + 1).min(RUN);
        }
        Ok(count)
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    fn drops(&self) -> Drops {
        Drops { transmit: self.tx.lost, ..Drops::default() }
    }

    fn announce_sleep(&mut self, sleeping: bool) {
        if !sleeping {
            self.own.rise();
            return;
        }
        let Some(waker) = &self.waker else { return };
        self.own.announce(waker, if self.tx.starved { STARVED } else { ASLEEP });
        // Either the peer sees that, or we see its units.
        let room = self.tx.starved && self.tx.has_room();
        if room || !self.rx.full.is_empty() {
            waker.wake_by_ref();
        }
    }
}

/// The sending half of a direction.
#[derive(Debug)]
struct Tx {
    full: Producer<Buffer>,
    empty: Consumer<Buffer>,
    /// Free buffers, lent from the end: those that were used a moment ago are still in the cache.
    free: Vec<Buffer>,
    /// Buffers that a call lends at first: one more than the last that sent some has filled, as most send about as many,
    /// and each buffer has its price.
    usual: usize,
    /// The last `transmit` ended for lack of a buffer; there may be more to send.
    starved: bool,
    /// Units sent when the other edge was gone.
    lost: u64,
    _places: Arc<Places>,
}

impl Tx {
    fn transmit(&mut self, burst: usize, fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize) -> usize {
        take_back(&mut self.empty, &mut self.free);
        let lent = burst.min(self.free.len());
        let first = self.free.len() - lent;
        let filled = lend(&mut self.free[first..], fill);
        self.starved = filled == lent && lent < burst;
        self.publish(first, filled);
        filled
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty() || !self.empty.is_empty()
    }

    /// Sends `filled` of the free buffers, from the `first` on.
    fn publish(&mut self, first: usize, filled: usize) {
        if self.full.is_abandoned() {
            self.lost += filled as u64;
        } else if filled > 0 {
            push(&mut self.full, &self.free[first..first + filled]);
            self.free.drain(first..first + filled);
        }
    }
}

/// Makes free the buffers that have come back.
#[inline(always)]
fn take_back(empty: &mut Consumer<Buffer>, free: &mut Vec<Buffer>) {
    if let Ok(chunk) = empty.read_chunk(empty.slots()) {
        let (first, second) = chunk.as_slices();
        free.extend_from_slice(first);
        free.extend_from_slice(second);
        chunk.commit_all();
    }
}

/// Lends up to [`RUN`] buffers to `fill`. Returns how many it has filled.
#[inline(always)]
fn lend(buffers: &mut [Buffer], fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize) -> usize {
    let mut slots = heapless::Vec::<Slot<'_>, RUN>::new();
    slots.extend(buffers.iter_mut().map(Buffer::slot));
    fill(&mut slots)
}

/// The receiving half of a direction.
#[derive(Debug)]
struct Rx {
    full: Consumer<Buffer>,
    empty: Producer<Buffer>,
    _places: Arc<Places>,
}

impl Rx {
    fn receive(&mut self, burst: usize, sink: &mut dyn FnMut(&[Received<'_>])) -> usize {
        let count = self.full.slots().min(burst);
        let Ok(chunk) = self.full.read_chunk(count) else { return 0 };
        if count > 0 {
            let (first, second) = chunk.as_slices();
            let mut buffers = heapless::Vec::<Buffer, RUN>::new();
            buffers.extend(first.iter().copied());
            buffers.extend(second.iter().copied());
            // Before a buffer goes back: its sender may fill it at once, and then needs its slot in this ring.
            chunk.commit_all();
            let mut units = heapless::Vec::<Received<'_>, RUN>::new();
            units.extend(buffers.iter().map(Buffer::received));
            sink(&units);
            drop(units);
            push(&mut self.empty, &buffers);
        }
        count
    }
}

/// Puts all these buffers into a ring, and leaves none of them behind for the caller to use.
fn push(ring: &mut Producer<Buffer>, buffers: &[Buffer]) {
    ring.push_entire_slice(buffers).expect("a ring has a slot for each of its buffers");
}

/// A unit at a fixed place in memory, of one end of a direction at a time: of that which has the pointer. The pointer goes
/// through the rings, and an end that puts a copy into a ring uses no other any more.
#[derive(Clone, Copy, Debug)]
struct Buffer(NonNull<Place>);

// SAFETY: it is used by the one thread that took it out of a ring.
unsafe impl Send for Buffer {}

auto_traits! {
    Buffer: (Send, !Sync);
    Places: (Send, Sync);
    MemoryEdge: (Send, !Sync);
}

#[derive(Debug)]
struct Place {
    bytes: Box<[u8]>,
    unit: Transmit,
}

/// The memory of a direction's buffers, which both ends keep.
#[derive(Debug)]
struct Places(Box<[UnsafeCell<Place>]>);

// SAFETY: only the owners of the buffers look inside.
unsafe impl Sync for Places {}

impl Buffer {
    fn new(place: &UnsafeCell<Place>) -> Self {
        Self(NonNull::from(place).cast())
    }

    fn slot(&mut self) -> Slot<'_> {
        // SAFETY: the place is this end's, which keeps its memory.
        let Place { bytes, unit } = unsafe { self.0.as_mut() };
        Slot { buffer: bytes, unit }
    }

    fn received(&self) -> Received<'_> {
        // SAFETY: as above.
        let Place { bytes, unit } = unsafe { self.0.as_ref() };
        Received { frame: &bytes[..unit.len], segments: unit.segments }
    }
}

/// The buffers of one sender, all of them free.
fn buffers(config: &MemoryConfig) -> (Arc<Places>, Vec<Buffer>) {
    let place =
        |_| Place { bytes: vec![0; config.max_unit_len()].into(), unit: Transmit::default() };
    let places = (0..config.depth).map(place).map(UnsafeCell::new).collect();
    let places = Arc::new(Places(places));
    let free = places.0.iter().map(Buffer::new).collect();
    (places, free)
}

fn direction(config: &MemoryConfig) -> (Tx, Rx) {
    let (full_tx, full_rx) = RingBuffer::new(config.depth);
    let (empty_tx, empty_rx) = RingBuffer::new(config.depth);
    let (places, free) = buffers(config);
    let rx = Rx { full: full_rx, empty: empty_tx, _places: Arc::clone(&places) };
    let tx = Tx {
        full: full_tx,
        empty: empty_rx,
        free,
        usual: RUN,
        starved: false,
        lost: 0,
        _places: places,
    };
    (tx, rx)
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segments;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread::{self, Thread};
    use std::time::{Duration, Instant};

    fn small(depth: usize) -> (MemoryEdge, MemoryEdge) {
        pair(MemoryConfig { depth, ..MemoryConfig::default() })
    }

    /// Sends up to `count` frames that carry a sequence number from `next` on.
    fn send(edge: &mut MemoryEdge, next: &mut u64, count: u64) -> usize {
        let end = *next + count;
        edge.transmit_each(usize::MAX, |buffer| {
            (*next < end).then(|| {
                buffer[..8].copy_from_slice(&next.to_ne_bytes());
                *next += 1;
                Transmit { len: 60, segments: None }
            })
        })
        .unwrap()
    }

    /// Receives what is there and checks its order.
    fn receive(edge: &mut MemoryEdge, expected: &mut u64) -> usize {
        edge.receive_each(usize::MAX, |received| {
            let (sequence, _) = received.frame.split_first_chunk().unwrap();
            assert_eq!(u64::from_ne_bytes(*sequence), *expected);
            *expected += 1;
        })
        .unwrap()
    }

    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn a_full_ring_is_back_pressure() {
        let (mut a, mut b) = small(3);
        let (mut next, mut expected) = (0, 0);
        assert_eq!(send(&mut a, &mut next, 10), 3);
        assert_eq!(next, 3, "`fill` is not asked for a frame that has no buffer");
        assert_eq!(receive(&mut b, &mut expected), 3);
        assert_eq!(send(&mut a, &mut next, 10), 3);
        assert_eq!(receive(&mut b, &mut expected), 3);
        assert_eq!(receive(&mut b, &mut expected), 0);
    }

    #[test]
    fn what_is_sent_to_an_edge_that_is_gone_is_given_up() {
        let (mut a, b) = small(3);
        let mut next = 0;
        assert_eq!(send(&mut a, &mut next, 2), 2);
        assert_eq!(a.drops(), Drops::default());
        drop(b);
        assert_eq!(send(&mut a, &mut next, 1), 1);
        let boxed: Box<dyn Edge> = Box::new(a);
        assert_eq!(boxed.drops(), Drops { transmit: 1, ..Drops::default() });
    }

    #[test]
    fn the_budget_bounds_both_directions() {
        let (mut a, mut b) = small(100);
        let sent = a.transmit_each(70, |_| Some(Transmit { len: 60, segments: None })).unwrap();
        assert_eq!(sent, 70);
        assert_eq!(b.receive_each(50, |_| ()).unwrap(), 50);
        assert_eq!(b.receive_each(50, |_| ()).unwrap(), 20);
    }

    #[test]
    fn a_unit_travels_coalesced() {
        let (mut a, mut b) = pair(MemoryConfig { max_segments: 4, ..MemoryConfig::default() });
        assert_eq!(a.link().max_unit_len, 18 + 4 * 1500);
        let segments = Some(Segments { header_len: 42, segment_len: 1000 });
        let mut transmit = Some(Transmit { len: 42 + 2500, segments });
        a.transmit_each(9, |_| transmit.take()).unwrap();
        let mut units = 0;
        b.receive_each(9, |unit| {
            assert_eq!((unit.frame.len(), unit.segments), (2542, segments));
            units += 1;
        })
        .unwrap();
        assert_eq!(units, 1);
    }

    #[test]
    fn a_lost_peer_is_a_link_down() {
        let (mut a, b) = small(3);
        drop(b);
        for _ in 0..3 {
            assert_eq!(send(&mut a, &mut 0, 10), 3, "never back-pressure");
        }
        assert_eq!(a.receive_each(1, |_| ()), Ok(0));
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let (mut a, mut b) = small(4);
        let wakes = Arc::new(CountWakes(AtomicUsize::new(0)));
        let woken = || wakes.0.swap(0, Ordering::SeqCst);
        b.set_waker(&Waker::from(wakes.clone()));
        let (mut next, mut expected) = (0, 0);
        send(&mut a, &mut next, 1);
        assert_eq!(woken(), 0, "awake");
        b.announce_sleep(true);
        assert_eq!(woken(), 1, "a unit was there already");
        receive(&mut b, &mut expected);
        for _ in 0..2 {
            b.announce_sleep(true);
            assert_eq!(woken(), 0);
            send(&mut a, &mut next, 1);
            send(&mut a, &mut next, 1);
            assert_eq!(woken(), 1, "one wake a sleep");
            b.announce_sleep(false);
            receive(&mut b, &mut expected);
        }
    }

    #[test]
    fn a_returned_buffer_wakes_a_starved_sender_only() {
        let (mut a, mut b) = small(2);
        let wakes = Arc::new(CountWakes(AtomicUsize::new(0)));
        let woken = || wakes.0.swap(0, Ordering::SeqCst);
        a.set_waker(&Waker::from(wakes.clone()));
        let (mut next, mut expected) = (0, 0);
        send(&mut a, &mut next, 1);
        a.announce_sleep(true);
        receive(&mut b, &mut expected);
        assert_eq!(woken(), 0, "all that was to send was sent");
        a.announce_sleep(false);
        send(&mut a, &mut next, 3);
        a.announce_sleep(true);
        receive(&mut b, &mut expected);
        assert_eq!(woken(), 1);
        a.announce_sleep(false);
        send(&mut a, &mut next, 3);
        receive(&mut b, &mut expected);
        a.announce_sleep(true);
        assert_eq!(woken(), 1, "buffers came back before the sleep");
    }

    /// Goal: no wake is lost, whatever the interleaving.
    /// Method: a ping-pong whose every step needs a wake, and a flood through a ring of four whose
    /// sender starves.
    #[test]
    fn two_threads_lose_no_wake() {
        for (depth, window) in [(4, 1), (4, FRAMES)] {
            let (mut a, mut b) = small(depth);
            let echo = thread::spawn(move || run(&mut b, 0));
            run(&mut a, window);
            echo.join().unwrap();
        }
    }

    /// Goal: a buffer that comes back finds a slot when it is sent again, however soon that is.
    /// Method: for a while, two threads that never sleep, and a single buffer each way.
    #[test]
    fn two_threads_find_a_slot_for_each_buffer() {
        let (mut a, mut b) = small(1);
        let echo = thread::spawn(move || {
            let (mut next, mut expected) = (0, 0);
            while !b.tx.full.is_abandoned() {
                let came = receive(&mut b, &mut expected);
                send(&mut b, &mut next, came as u64);
            }
        });
        let end = Instant::now() + Duration::from_millis(500);
        let (mut next, mut expected) = (0, 0);
        while !echo.is_finished() && (expected == 0 || Instant::now() < end) {
            send(&mut a, &mut next, 1);
            receive(&mut a, &mut expected);
        }
        drop(a);
        echo.join().unwrap();
    }

    /// Sends and receives [`FRAMES`] each way, at most `window` ahead of what came back.
    fn run(edge: &mut MemoryEdge, window: u64) {
        edge.set_waker(&Waker::from(Arc::new(Unpark(thread::current()))));
        let (mut next, mut expected) = (0, 0);
        while next < FRAMES || expected < FRAMES {
            let gone = edge.tx.full.is_abandoned();
            let allowed = (expected + window).min(FRAMES) - next;
            if send(edge, &mut next, allowed) + receive(edge, &mut expected) == 0 {
                assert!(!gone, "the other thread has failed");
                sleep(edge, &mut expected);
            }
        }
    }

    /// Sleeps until it is woken; a lost wake fails the test.
    fn sleep(edge: &mut MemoryEdge, expected: &mut u64) {
        edge.announce_sleep(true);
        if receive(edge, expected) == 0 {
            let asleep = Instant::now();
            thread::park_timeout(LIMIT);
            assert!(asleep.elapsed() < LIMIT, "a wake was lost");
        }
        edge.announce_sleep(false);
    }

    /// Each way, between two threads.
    const FRAMES: u64 = 20_000;
    /// No thread of a healthy test sleeps that long, on the slowest machine.
    const LIMIT: Duration = Duration::from_secs(60);
}
