//! An edge over net buffer lists, as NDIS lends and takes them.
//!
//! It has two halves. NDIS calls the [`Port`] on any CPU: [`Port::receive`] takes a frame, [`Port::sent`]
//! takes a buffer back. The poll core has the [`NdisEdge`]. Between them are bounded lock-free rings; all
//! buffers exist from the start. An adapter of several poll cores has such a pair for each ([`Ports`]). The services of NDIS come by [`Lower`], so both halves run on any host
//! with net buffer lists made by a test.
//!
//! A received frame is lent where it lies in one piece and NDIS allows us to keep it; otherwise it is
//! copied into a buffer of ours. A frame without a buffer is dropped and counted, as a NIC does.
//!
//! Where the NIC below offers segmentation, it gets units ([`Port::offer`]); a coalesced one that it indicates is taken
//! apart ([`units`]).
#![allow(unsafe_code, reason = "net buffer lists are pointers into memory that NDIS shares")]

pub mod abi;
mod arrival;
pub mod chain;
mod coalesced;
mod ports;
mod send;
pub mod status;
pub mod units;

use crate::sleeper::{ASLEEP, STARVED, Sleeper};
use crate::{Drops, Edge, EdgeError, Link, Received, SHORT_RUN, Slot, Transmit};
use abi::{MDL, NET_BUFFER_LIST};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use arrival::{Arrival, Loan};
use chain::{Chain, Frame, Tag};
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use crossbeam_queue::ArrayQueue;
pub use ports::{Ports, open_several};
pub use send::UNIT_MAX_LEN;
use send::{Outgoing, SendBuffers, UNIT_MAX_SEGMENTS};
use units::{Coalesced, Offers, SharedOffers};

/// The services of NDIS and the memory manager for the edge. Callable at IRQL <= DISPATCH_LEVEL except
/// where a method states otherwise.
pub trait Lower: Send + Sync {
    /// A list with one net buffer over the `len` bytes at `bytes`, for sending; null for lack of resources.
    /// PASSIVE_LEVEL.
    fn allocate(&self, bytes: *mut u8, len: usize) -> *mut NET_BUFFER_LIST;

    /// Frees a list of [`allocate`](Self::allocate). PASSIVE_LEVEL.
    fn free(&self, nbl: *mut NET_BUFFER_LIST);

    /// Sends `count` lists. Each comes back by [`Ports::sent`], also where there is no NIC below.
    fn send(&self, head: *mut NET_BUFFER_LIST, count: u32);

    /// Returns lent lists to the NIC below.
    fn give_back(&self, head: *mut NET_BUFFER_LIST, count: u32);

    /// The NIC's rate in bits per second; `None` where it reports none, or has no link.
    fn speed(&self) -> Option<u64>;

    /// A system address for an MDL that has none yet; null where none can be made.
    fn map(&self, mdl: *mut MDL) -> *mut u8;
}

/// The configuration of an edge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NdisConfig {
    /// The Ethernet address that the edge sends from.
    pub mac: [u8; 6],
    /// Largest layer-3 packet in bytes.
    pub mtu: usize,
    /// Received frames that wait for the poll core.
    pub receive_depth: usize,
    /// Frames on their way out.
    pub transmit_depth: usize,
    /// Units of several segments on their way out, for a NIC that divides them; 0: there are none.
    pub units: usize,
}

/// The outcome for a received list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taken {
    /// The list is not needed any more.
    Copied,
    /// The list is kept until [`Lower::give_back`].
    Lent,
    /// There was no room, its bytes could not be reached, or it is damaged.
    Dropped,
}

/// The traffic of a port.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Frames given to the poll core.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames for which there was no room, and those that the NIC found damaged or joined wrongly.
    pub dropped: u64,
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Of those, lists that came back with a failure: they have not left.
    pub failed: u64,
    /// Of those, the ones that the NIC refused ([`status::is_refusal`]).
    pub refused: u64,
}

/// The half of the edge that NDIS calls.
pub struct Port {
    lower: Box<dyn Lower>,
    /// Frames for the poll core, oldest first.
    received: ArrayQueue<Arrival>,
    /// Empty buffers for copies.
    spare: ArrayQueue<Box<[u8]>>,
    /// Indices of send buffers that came back.
    returned: ArrayQueue<u32>,
    offers: SharedOffers,
    sleeper: Sleeper,
    counters: [AtomicU64; 7],
}

impl Port {
    /// The traffic so far.
    pub fn counters(&self) -> Counters {
        let [received, received_bytes, dropped, sent, sent_bytes, failed, refused] =
            [0, 1, 2, 3, 4, 5, 6].map(|index: usize| self.counters[index].load(Ordering::Relaxed));
        Counters { received, received_bytes, dropped, sent, sent_bytes, failed, refused }
    }

    /// Tells what segmentation the NIC below offers from now on. Any CPU, IRQL <= DISPATCH_LEVEL.
    pub fn offer(&self, offers: Offers) {
        self.offers.set(offers);
    }

    /// Takes one received list with one frame, or with several that the NIC has coalesced. With `keep`, the caller allows us to
    /// keep the list until [`Lower::give_back`]; without it only for the length of the call. `tag` is the VLAN tag beside the
    /// frame, as the poll core shall see it. A frame that the NIC found damaged is dropped. Any CPU, DISPATCH_LEVEL: the
    /// poll core waits for a call that has begun.
    ///
    /// # Safety
    /// `nbl` is valid, with one net buffer whose MDLs are valid and locked.
    pub unsafe fn receive(&self, nbl: *mut NET_BUFFER_LIST, tag: Option<Tag>, keep: bool) -> Taken {
        // SAFETY: the caller's promise.
        let nb = unsafe { (*nbl).FirstNetBuffer };
        if nb.is_null() {
            self.count(DROPPED, 1);
            return Taken::Dropped;
        }
        // SAFETY: as above.
        let frame = unsafe { Frame::of(nb) };
        // SAFETY: as above.
        let taken = match unsafe { Coalesced::beside(nbl) } {
            // SAFETY: as above.
            _ if unsafe { self.is_damaged(nbl, &frame) } => Taken::Dropped,
            // SAFETY: as above.
            Some(coalesced) => unsafe { self.take_apart(&frame, coalesced, tag) },
            // SAFETY: as above.
            None => unsafe { self.take(nbl, &frame, tag, keep) },
        };
        match taken {
            Taken::Copied | Taken::Lent => self.sleeper.wake_if(ASLEEP),
            Taken::Dropped => self.count(DROPPED, 1),
        }
        taken
    }

    unsafe fn take(
        &self,
        nbl: *mut NET_BUFFER_LIST,
        frame: &Frame,
        tag: Option<Tag>,
        keep: bool,
    ) -> Taken {
        let map = |mdl| self.lower.map(mdl);
        // SAFETY: the caller's promise.
        let place = if keep && tag.is_none() { unsafe { frame.contiguous(&map) } } else { None };
        let arrival = match place {
            Some(place) => Arrival::Loan(Loan { nbl, frame: place, len: frame.len() }),
            None => {
                // SAFETY: as above.
                let Some(copy) = (unsafe { self.copy(&[], frame, tag) }) else {
                    return Taken::Dropped;
                };
                copy
            }
        };
        self.publish(arrival, frame.len())
    }

    /// Copies `header` and a frame, or a part of one, behind it; `None` where there is no buffer, or no room in it.
    unsafe fn copy(&self, header: &[u8], frame: &Frame, tag: Option<Tag>) -> Option<Arrival> {
        let mut bytes = self.spare.pop()?;
        let (start, rest) = bytes.split_at_mut(header.len());
        start.copy_from_slice(header);
        let map = |mdl| self.lower.map(mdl);
        // SAFETY: the caller's promise.
        let copied = unsafe { frame.copy_to(rest, &map) };
        let whole = (copied == frame.len()).then_some(header.len() + copied);
        let len = match tag {
            Some(tag) => whole.and_then(|len| chain::insert_tag(&mut bytes, len, tag)),
            None => whole,
        };
        match len {
            Some(len) => Some(Arrival::Copy { bytes, len }),
            None => {
                self.reuse(bytes);
                None
            }
        }
    }

    fn publish(&self, arrival: Arrival, len: usize) -> Taken {
        let taken = if matches!(arrival, Arrival::Loan(_)) { Taken::Lent } else { Taken::Copied };
        match self.received.push(arrival) {
            Ok(()) => {
                self.count(RECEIVED, 1);
                self.count(RECEIVED_BYTES, len as u64);
                taken
            }
            Err(Arrival::Copy { bytes, .. }) => {
                self.reuse(bytes);
                Taken::Dropped
            }
            // The caller still has the list, and returns it itself.
            Err(Arrival::Loan(_)) => Taken::Dropped,
        }
    }

    fn reuse(&self, bytes: Box<[u8]>) {
        // There is a place for each buffer.
        let _ = self.spare.push(bytes);
    }

    /// Takes one sent list back, whether it left or not: nothing is sent again here, so a NIC that refuses each holds up
    /// nothing. Returns whether it refused this one. A list that a NIC keeps is its own, and its buffer is out until then.
    /// Any CPU, DISPATCH_LEVEL, as for [`receive`](Self::receive).
    ///
    /// # Safety
    /// `nbl` came from [`Lower::allocate`] of this port's edge.
    pub unsafe fn sent(&self, nbl: *mut NET_BUFFER_LIST) -> bool {
        // SAFETY: the caller's promise; the NIC has written there, or the edge.
        let status = unsafe { (*nbl).Status };
        let refused = status::is_refusal(status);
        if status < 0 {
            self.count(FAILED, 1);
            self.count(REFUSED, refused.into());
        }
        // SAFETY: the caller's promise; the edge wrote its index there.
        let index = unsafe { (*nbl).ProtocolReserved[OWNER_SLOT] }.addr();
        // There is a place for each buffer.
        let _ = self.returned.push(index as u32);
        self.sleeper.wake_if(STARVED);
        refused
    }

    /// Drops every frame that waits for the poll core, and returns loans. For a pause, with the poll core
    /// at rest or not. IRQL <= DISPATCH_LEVEL.
    pub fn drain(&self) {
        let mut loans = Chain::new();
        while let Some(arrival) = self.received.pop() {
            match arrival {
                Arrival::Copy { bytes, .. } => self.reuse(bytes),
                // SAFETY: a loan is nobody else's.
                Arrival::Loan(loan) => unsafe { loans.push(loan.nbl) },
            }
        }
        self.settle(&loans);
    }

    fn settle(&self, loans: &Chain) {
        if !loans.is_empty() {
            self.lower.give_back(loans.head(), loans.len());
        }
    }

    fn count(&self, which: usize, by: u64) {
        self.counters[which].fetch_add(by, Ordering::Relaxed);
    }
}

/// The poll core's half.
pub struct NdisEdge {
    port: Arc<Port>,
    link: Link,
    buffers: SendBuffers,
    /// Frames of units for which there was no buffer.
    given_up: u64,
    waker: Option<Waker>,
    /// The last `transmit` ended for lack of a buffer.
    starved: bool,
}

/// An edge and its port, which has this number; `None` for lack of lists. PASSIVE_LEVEL.
fn open(lower: Box<dyn Lower>, config: NdisConfig, number: usize) -> Option<(NdisEdge, Arc<Port>)> {
    assert!(config.receive_depth > 0 && config.transmit_depth > 0, "a ring needs room for a frame");
    let frame_len = config.mtu + ETHERNET_MAX_LEN;
    let port = Arc::new(Port {
        lower,
        received: ArrayQueue::new(config.receive_depth),
        spare: ArrayQueue::new(config.receive_depth),
        returned: ArrayQueue::new(config.transmit_depth + config.units),
        offers: SharedOffers::default(),
        sleeper: Sleeper::default(),
        counters: [const { AtomicU64::new(0) }; 7],
    });
    for _ in 0..config.receive_depth {
        port.reuse(vec![0; frame_len].into());
    }
    let (max_segments, max_unit_len) = match config.units {
        0 => (1, frame_len),
        _ => (UNIT_MAX_SEGMENTS, UNIT_MAX_LEN.max(frame_len)),
    };
    let mut edge = NdisEdge {
        port: Arc::clone(&port),
        link: Link { mac: config.mac, mtu: config.mtu, max_segments, max_unit_len, socket: false },
        buffers: SendBuffers::new(config.transmit_depth, frame_len, config.units),
        given_up: 0,
        waker: None,
        starved: false,
    };
    for _ in 0..config.transmit_depth + config.units {
        edge.buffers.add(&*port.lower, number)?;
    }
    Some((edge, port))
}

impl NdisEdge {
    fn collect(&mut self) {
        while let Some(index) = self.port.returned.pop() {
            self.buffers.release(index);
        }
    }
}

impl Drop for NdisEdge {
    /// The owner has waited for all sends. A buffer that is still out is left alone.
    fn drop(&mut self) {
        self.port.drain();
        self.collect();
        self.buffers.free(&*self.port.lower);
    }
}

impl Edge for NdisEdge {
    fn link(&self) -> Link {
        self.link
    }

    fn speed(&mut self) -> Option<u64> {
        self.port.lower.speed()
    }

    fn drops(&self) -> Drops {
        let Counters { dropped, failed, refused, .. } = self.port.counters();
        Drops { transmit: self.given_up + failed, refused, receive: dropped, ..Drops::default() }
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut loans = Chain::new();
        let mut count = 0;
        loop {
            let next = core::iter::from_fn(|| self.port.received.pop());
            let arrivals: heapless::Vec<Arrival, SHORT_RUN> =
                next.take((budget - count).min(SHORT_RUN)).collect();
            if arrivals.is_empty() {
                break;
            }
            let units: heapless::Vec<Received<'_>, SHORT_RUN> = arrivals
                .iter()
                .map(|arrival| Received { frame: arrival.frame(), segments: None })
                .collect();
            sink(&units);
            drop(units);
            count += arrivals.len();
            for arrival in arrivals {
                match arrival {
                    Arrival::Copy { bytes, .. } => self.port.reuse(bytes),
                    // SAFETY: the loan is nobody else's.
                    Arrival::Loan(loan) => unsafe { loans.push(loan.nbl) },
                }
            }
        }
        self.port.settle(&loans);
        Ok(count)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        self.collect();
        self.starved = false;
        let offers = self.port.offers.get();
        let room = self.buffers.room(&offers);
        let (mut out, mut taken) = (Outgoing::new(), 0);
        while taken < budget {
            let run = (budget - taken).min(SHORT_RUN);
            let lent = self.buffers.lend(run, room);
            let mut units = [Transmit::default(); SHORT_RUN];
            let filled = self.buffers.fill(&lent, room, &mut units, fill);
            for (place, unit) in lent.iter().zip(&units[..filled]) {
                self.buffers.send(*place, *unit, &offers, &mut out);
            }
            for place in lent[filled..].iter().rev() {
                self.buffers.release(*place);
            }
            taken += filled;
            if filled < run {
                self.starved = filled == lent.len();
                break;
            }
        }
        self.given_up += out.given_up;
        if !out.chain.is_empty() {
            self.port.count(SENT, out.frames);
            self.port.count(SENT_BYTES, out.bytes);
            self.port.lower.send(out.chain.head(), out.chain.len());
        }
        Ok(taken)
    }

    fn backlog(&self) -> usize {
        self.buffers.out() - self.port.returned.len()
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    fn announce_sleep(&mut self, sleeping: bool) {
        let port = &self.port;
        if !sleeping {
            port.sleeper.rise();
            return;
        }
        let Some(waker) = &self.waker else { return };
        port.sleeper.announce(waker, if self.starved { STARVED } else { ASLEEP });
        // Either NDIS sees the announcement, or we see its frames.
        let room = self.starved && !port.returned.is_empty();
        if room || !port.received.is_empty() {
            waker.wake_by_ref();
        }
    }
}

/// The member of `ProtocolReserved` that names the buffer: the protocol's while the list is out.
const OWNER_SLOT: usize = 0;
/// The member that names the port.
const PORT_SLOT: usize = 1;
/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;

const RECEIVED: usize = 0;
const RECEIVED_BYTES: usize = 1;
const DROPPED: usize = 2;
const SENT: usize = 3;
const SENT_BYTES: usize = 4;
const FAILED: usize = 5;
const REFUSED: usize = 6;

#[cfg(test)]
mod tests;
