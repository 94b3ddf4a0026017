//! Two edges joined in memory.
//!
//! Each direction is a bounded lock-free ring of frame buffers and a second ring that carries the
//! empty buffers back. All buffers exist from the start: `depth` per direction, so the ring always
//! has room for a buffer, and a sender without a buffer meets back-pressure, never loss.

use crate::{Edge, EdgeError, Link, Received, Segments, Transmit};
use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use atomic_waker::AtomicWaker;
use core::sync::atomic::{AtomicU8, Ordering, fence};
use core::task::Waker;
use rtrb::{Consumer, Producer, RingBuffer};

/// What joins the two edges.
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
    /// Ethernet header with one VLAN tag, and as many packets as a unit may carry; but never more
    /// than an IP length field can count, which is what bounds a unit on every real adapter.
    fn max_unit_len(&self) -> usize {
        ETHERNET_MAX_LEN + (self.mtu * self.max_segments).min(usize::from(u16::MAX))
    }
}

/// Two edges: what one transmits, the other receives.
///
/// # Panics
/// If `depth` or `max_segments` is 0.
pub fn pair(config: MemoryConfig) -> (MemoryEdge, MemoryEdge) {
    assert!(config.depth > 0, "a ring needs room for one unit");
    assert!(config.max_segments > 0, "a unit has at least one segment");
    let sleepers = [Arc::new(Sleeper::default()), Arc::new(Sleeper::default())];
    let (tx_forth, rx_forth) = direction(&config);
    let (tx_back, rx_back) = direction(&config);
    let edge = |index: usize, tx, rx| MemoryEdge {
        link: Link {
            mac: config.macs[index],
            mtu: config.mtu,
            max_segments: config.max_segments,
            max_unit_len: config.max_unit_len(),
        },
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
/// When its peer is dropped it behaves as a NIC without link: what it sends is lost.
#[derive(Debug)]
pub struct MemoryEdge {
    link: Link,
    tx: Tx,
    rx: Rx,
    /// Kept here, because a wake takes the waker out of the sleeper.
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
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, EdgeError> {
        let mut count = 0;
        while count < budget {
            let burst = self.rx.receive((budget - count).min(BURST), sink);
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
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> Result<usize, EdgeError> {
        let mut count = 0;
        while count < budget {
            let burst = (budget - count).min(BURST);
            let sent = self.tx.transmit(burst, fill);
            if sent > 0 {
                self.peer.wake_if(ASLEEP);
            }
            count += sent;
            if sent < burst {
                break;
            }
        }
        Ok(count)
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    fn announce_sleep(&mut self, sleeping: bool) {
        if !sleeping {
            self.own.state.store(AWAKE, Ordering::Relaxed);
            return;
        }
        let Some(waker) = &self.waker else { return };
        self.own.waker.register(waker);
        let state = if self.tx.starved { STARVED } else { ASLEEP };
        // Release: whoever sees the state also finds the waker.
        self.own.state.store(state, Ordering::Release);
        // Pairs with the fence in `wake_if`: either the peer sees the state, or we see its units.
        fence(Ordering::SeqCst);
        let room = self.tx.starved && !self.tx.empty.is_empty();
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
    /// Free buffers, last in first out: a buffer used a moment ago is still in the cache.
    free: Vec<Buffer>,
    /// Filled and not yet published; one publication per burst.
    staged: Vec<Buffer>,
    /// The last `transmit` ended for want of a buffer.
    starved: bool,
}

impl Tx {
    fn transmit(
        &mut self,
        burst: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> usize {
        if let Ok(chunk) = self.empty.read_chunk(self.empty.slots()) {
            self.free.extend(chunk);
        }
        self.starved = false;
        while self.staged.len() < burst {
            let Some(mut buffer) = self.free.pop() else {
                self.starved = true;
                break;
            };
            let Some(transmit) = fill(&mut buffer.bytes) else {
                self.free.push(buffer);
                break;
            };
            buffer.set(transmit);
            self.staged.push(buffer);
        }
        self.publish()
    }

    fn publish(&mut self) -> usize {
        let count = self.staged.len();
        if self.full.is_abandoned() {
            self.free.append(&mut self.staged);
        } else if count > 0 {
            let chunk = self.full.write_chunk_uninit(count);
            let chunk = chunk.expect("a ring has a slot for each of its buffers");
            chunk.fill_from_iter(self.staged.drain(..));
        }
        count
    }
}

/// The receiving half of a direction.
#[derive(Debug)]
struct Rx {
    full: Consumer<Buffer>,
    empty: Producer<Buffer>,
    /// Read and not yet handed back; one publication per burst.
    done: Vec<Buffer>,
}

impl Rx {
    fn receive(&mut self, burst: usize, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let count = self.full.slots().min(burst);
        let Ok(chunk) = self.full.read_chunk(count) else { return 0 };
        for buffer in chunk {
            sink(buffer.received());
            self.done.push(buffer);
        }
        if count > 0 {
            let chunk = self.empty.write_chunk_uninit(self.done.len());
            let chunk = chunk.expect("a ring has a slot for each of its buffers");
            chunk.fill_from_iter(self.done.drain(..));
        }
        count
    }
}

/// One unit at a fixed place in memory.
#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    len: u32,
    header_len: u32,
    /// 0 for a plain frame.
    segment_len: u32,
}

impl Buffer {
    fn new(len: usize) -> Self {
        Self { bytes: vec![0; len].into(), len: 0, header_len: 0, segment_len: 0 }
    }

    fn set(&mut self, transmit: Transmit) {
        assert!(transmit.len <= self.bytes.len(), "a unit fits into the buffer that was lent");
        let segments = transmit.segments.unwrap_or(Segments { header_len: 0, segment_len: 0 });
        self.len = transmit.len as u32;
        self.header_len = segments.header_len as u32;
        self.segment_len = segments.segment_len as u32;
    }

    fn received(&self) -> Received<'_> {
        let segments = Segments {
            header_len: self.header_len as usize,
            segment_len: self.segment_len as usize,
        };
        Received {
            frame: &self.bytes[..self.len as usize],
            segments: (self.segment_len > 0).then_some(segments),
        }
    }
}

/// Whether the owner of an edge sleeps, and how to wake it.
#[derive(Debug, Default)]
struct Sleeper {
    state: AtomicU8,
    waker: AtomicWaker,
}

impl Sleeper {
    /// Wakes a sleeper whose state is at least `state`. Called after the ring was published.
    ///
    /// A poller that is awake costs one fence and one load of a line that nobody writes.
    fn wake_if(&self, state: u8) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) >= state
            && self.state.swap(AWAKE, Ordering::Acquire) != AWAKE
        {
            self.waker.wake();
        }
    }
}

fn direction(config: &MemoryConfig) -> (Tx, Rx) {
    let (full_tx, full_rx) = RingBuffer::new(config.depth);
    let (empty_tx, empty_rx) = RingBuffer::new(config.depth);
    let free = (0..config.depth).map(|_| Buffer::new(config.max_unit_len())).collect();
    let staged = Vec::with_capacity(BURST.min(config.depth));
    let done = Vec::with_capacity(BURST.min(config.depth));
    let tx = Tx { full: full_tx, empty: empty_rx, free, staged, starved: false };
    (tx, Rx { full: full_rx, empty: empty_tx, done })
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;
/// Units per publication: enough to hide its cost, few enough that the other core starts early.
const BURST: usize = 32;
/// Sleeper states, in the order in which more events wake.
const AWAKE: u8 = 0;
/// Asleep: a unit wakes.
const ASLEEP: u8 = 1;
/// Asleep with units to send and no buffer: a unit or a buffer wakes.
const STARVED: u8 = 2;
