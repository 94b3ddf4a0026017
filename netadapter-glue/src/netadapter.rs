//! An edge over the packet queues of a NetAdapterCx client driver.
//!
//! It has two halves. NetAdapterCx calls the [`TransmitQueue`] and the [`ReceiveQueue`], each on a thread of its
//! own; the poll core has the [`NetAdapterEdge`]. Between them is a wire of bounded lock-free rings, in the place
//! where a NIC has its descriptors; all buffers exist from the start.
//!
//! ```text
//!   TCP/IP        sends                            receives
//!                   |                                 ^
//!   NetAdapterCx  packet and fragment ring          packet and fragment ring
//!                   |  TransmitQueue                  |  ReceiveQueue
//!   wire          frames, spare buffers             frames, spare buffers
//!                   |                                 |
//!   poll core     NetAdapterEdge::receive           NetAdapterEdge::transmit
//! ```
//!
//! Transmit and receive are Windows' words here, in the names of the queues: Windows sends what the poll core
//! receives. The adapter is as a TAP is on Linux: its other end is the poll core.
//!
//! Windows deletes the queues of an adapter that loses its power, and creates others later. The wire survives:
//! a queue takes its end of it ([`TransmitWire`], [`ReceiveWire`]) and gives it back.
//!
//! Everything here runs on any host over rings made by a test; `netadapter-glue/client` does it.
#![allow(unsafe_code, reason = "rings are memory that NetAdapterCx shares")]

pub mod abi;
mod receive;
mod ring;
mod transmit;
mod wire;

pub use receive::ReceiveQueue;
pub use transmit::TransmitQueue;
pub use wire::Notify;

use crate::auto_traits::auto_traits;
use crate::sleeper::{ASLEEP, STARVED};
use crate::{Drops, Edge, EdgeError, Link, Received, SHORT_RUN, Slot, Transmit};
use abi::{
    NET_EXTENSION, NET_FRAGMENT, NET_FRAGMENT_VIRTUAL_ADDRESS, NET_PACKET, NET_RING_COLLECTION,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use core::task::Waker;
use ring::Ring;
use wire::{Entry, Exit, Frame, Shared, direction};

/// The configuration of an edge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NetAdapterConfig {
    /// The Ethernet address of the poll core; that of the adapter is another.
    pub mac: [u8; 6],
    /// Largest layer-3 packet in bytes.
    pub mtu: usize,
    /// Frames on their way in each direction.
    pub depth: usize,
}

/// The end of the wire that a transmit queue takes.
#[derive(Debug)]
pub struct TransmitWire {
    wire: Entry,
    shared: Arc<Shared>,
    posted: u32,
}

/// The end of the wire that a receive queue takes.
#[derive(Debug)]
pub struct ReceiveWire {
    wire: Exit,
    shared: Arc<Shared>,
}

/// The rings of one packet queue.
#[derive(Debug)]
pub struct PacketRings {
    packets: Ring<NET_PACKET>,
    fragments: Ring<NET_FRAGMENT>,
    addresses: NET_EXTENSION,
}

// SAFETY: the rings belong to the queue's calls, which come one after the other, and not to a thread.
unsafe impl Send for PacketRings {}

auto_traits! {
    PacketRings: (Send, !Sync);
}

impl PacketRings {
    /// The rings of a collection. `addresses` is the extension with the fragments' virtual addresses; `None` where the
    /// queue lacks it or a ring.
    ///
    /// # Safety
    /// Both came from one packet queue, which outlives the result. Only the queue's calls use the result.
    #[must_use]
    pub unsafe fn new(rings: *const NET_RING_COLLECTION, addresses: NET_EXTENSION) -> Option<Self> {
        // SAFETY: the caller's promise.
        let [packets, fragments] = unsafe { (*rings).Rings };
        let (packets, fragments) = (NonNull::new(packets)?, NonNull::new(fragments)?);
        if addresses.Reserved[0].is_null() {
            return None;
        }
        // SAFETY: the caller's promise; a packet ring holds packets.
        let packets = unsafe { Ring::new(packets) };
        // SAFETY: as above; a fragment ring holds fragments.
        let fragments = unsafe { Ring::new(fragments) };
        Some(Self { packets, fragments, addresses })
    }

    /// Where the buffer of a fragment begins.
    fn buffer(&self, index: u32) -> *mut u8 {
        let place = self.addresses.data(index).cast::<NET_FRAGMENT_VIRTUAL_ADDRESS>();
        // SAFETY: every fragment has the extension.
        unsafe { (*place).VirtualAddress }.cast()
    }

    /// The valid bytes of a fragment of the driver's share.
    fn data(&self, index: u32) -> &[u8] {
        let fragment = self.fragments.get(index);
        let first = self.buffer(index).wrapping_add(fragment.offset());
        // SAFETY: the system lends these bytes until the fragment goes back, which takes `&mut self`.
        unsafe { core::slice::from_raw_parts(first, fragment.valid_len()) }
    }
}

/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;

/// The poll core's half.
#[derive(Debug)]
pub struct NetAdapterEdge {
    link: Link,
    incoming: Exit,
    outgoing: Entry,
    /// Empty buffers that were lent and not filled.
    unused: Vec<Box<[u8]>>,
    shared: Arc<Shared>,
    waker: Option<Waker>,
    /// The last `transmit` ended for lack of a buffer.
    starved: bool,
}

/// An edge and the ends of its wire. PASSIVE_LEVEL.
///
/// # Panics
/// If the depth is 0.
#[must_use]
pub fn open(config: NetAdapterConfig) -> (NetAdapterEdge, TransmitWire, ReceiveWire) {
    assert!(config.depth > 0, "a ring needs room for a frame");
    let unit_len = config.mtu + ETHERNET_MAX_LEN;
    let shared = Arc::new(Shared::default());
    let (from_system, incoming) = direction(config.depth, unit_len);
    let (outgoing, to_system) = direction(config.depth, unit_len);
    let edge = NetAdapterEdge {
        link: Link {
            mac: config.mac,
            mtu: config.mtu,
            max_segments: 1,
            max_unit_len: unit_len,
            socket: false,
        },
        incoming,
        outgoing,
        unused: Vec::with_capacity(config.depth),
        shared: Arc::clone(&shared),
        waker: None,
        starved: false,
    };
    let transmit = TransmitWire { wire: from_system, shared: Arc::clone(&shared), posted: 0 };
    (edge, transmit, ReceiveWire { wire: to_system, shared })
}

impl NetAdapterEdge {
    /// Frames of the next run, oldest first. Empty ones, which only carry their buffers, are not among them.
    fn take(&mut self, most: usize) -> heapless::Vec<Frame, SHORT_RUN> {
        let mut frames = heapless::Vec::new();
        while frames.len() < most.min(SHORT_RUN)
            && let Ok(frame) = self.incoming.frames.pop()
        {
            if frame.len == 0 {
                self.incoming.reuse(frame.bytes);
                continue;
            }
            // There is room: fewer than a run.
            let _ = frames.push(frame);
        }
        frames
    }

    /// Has `fill` write into up to `most` buffers, and sends what it wrote. The result is the number of buffers lent and
    /// of frames.
    fn fill_run(
        &mut self,
        most: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> (usize, usize) {
        let Self { unused, outgoing, .. } = self;
        let next = || unused.pop().or_else(|| outgoing.spare.pop().ok());
        let mut run: heapless::Vec<Box<[u8]>, SHORT_RUN> =
            core::iter::from_fn(next).take(most.min(SHORT_RUN)).collect();
        if run.is_empty() {
            return (0, 0);
        }
        let mut units = [Transmit::default(); SHORT_RUN];
        let mut slots: heapless::Vec<Slot<'_>, SHORT_RUN> =
            run.iter_mut().zip(&mut units).map(|(buffer, unit)| Slot { buffer, unit }).collect();
        let filled = fill(&mut slots);
        drop(slots);
        let lent = run.len();
        for (nth, (bytes, unit)) in run.into_iter().zip(units).enumerate() {
            if nth >= filled {
                self.unused.push(bytes);
                continue;
            }
            assert!(unit.len <= bytes.len(), "a unit fits into the buffer that was lent");
            // There is a place for each buffer.
            let _ = self.outgoing.frames.push(Frame { bytes, len: unit.len });
        }
        (lent, filled)
    }
}

impl Edge for NetAdapterEdge {
    fn link(&self) -> Link {
        self.link
    }

    fn drops(&self) -> Drops {
        // Windows' words for the queues are the opposite of the poll core's.
        Drops {
            transmit: self.shared.receive_lost.load(Ordering::Relaxed),
            receive: self.shared.transmit_lost.load(Ordering::Relaxed),
            ..Drops::default()
        }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut count = 0;
        while count < budget {
            let frames = self.take(budget - count);
            if frames.is_empty() {
                break;
            }
            let units: heapless::Vec<Received<'_>, SHORT_RUN> = frames
                .iter()
                .map(|frame| Received { frame: frame.bytes(), segments: None })
                .collect();
            sink(&units);
            drop(units);
            let taken = frames.len();
            count += taken;
            for frame in frames {
                self.incoming.reuse(frame.bytes);
            }
            self.shared.taken.fetch_add(taken as u32, Ordering::Release);
            self.shared.transmit.fire();
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let mut count = 0;
        self.starved = false;
        while count < budget {
            let run = (budget - count).min(SHORT_RUN);
            let (lent, filled) = self.fill_run(run, fill);
            count += filled;
            if filled < run {
                self.starved = filled == lent;
                break;
            }
        }
        if count > 0 {
            self.shared.receive.fire();
        }
        Ok(count)
    }

    fn backlog(&self) -> usize {
        self.outgoing.frames.buffer().capacity() - self.outgoing.frames.slots()
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    fn announce_sleep(&mut self, sleeping: bool) {
        if !sleeping {
            self.shared.sleeper.rise();
            return;
        }
        let Some(waker) = &self.waker else { return };
        self.shared.sleeper.announce(waker, if self.starved { STARVED } else { ASLEEP });
        // Either a queue sees the announcement, or we see its frames and buffers.
        let room = self.starved && !self.outgoing.spare.is_empty();
        if room || !self.incoming.frames.is_empty() {
            waker.wake_by_ref();
        }
    }
}
