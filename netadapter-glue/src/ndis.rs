//! An edge over net buffer lists, as NDIS lends and takes them.
//!
//! It has two halves. NDIS calls the [`Port`] on any CPU: [`Port::receive`] takes a frame, [`Port::sent`]
//! takes a buffer back. The poll core has the [`NdisEdge`]. Between them are bounded lock-free rings; all
//! buffers exist from the start. The services of NDIS come by [`Lower`], so both halves run on any host
//! with net buffer lists made by a test.
//!
//! A received frame is lent where it lies in one piece and NDIS allows us to keep it; otherwise it is
//! copied into a buffer of ours. A frame without a buffer is dropped and counted, as a NIC does.
#![allow(unsafe_code, reason = "net buffer lists are pointers into memory that NDIS shares")]

pub mod abi;
mod arrival;
pub mod chain;
mod send;

use crate::sleeper::{ASLEEP, STARVED, Sleeper};
use crate::{Drops, Edge, EdgeError, Link, Received, SHORT_RUN, Slot, Transmit};
use abi::{MDL, NET_BUFFER_LIST};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use arrival::{Arrival, Loan};
use chain::{Chain, Frame, Tag};
use core::ptr::without_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use crossbeam_queue::ArrayQueue;
use send::SendBuffer;

/// The services of NDIS and the memory manager for the edge. Callable at IRQL <= DISPATCH_LEVEL except
/// where a method states otherwise.
pub trait Lower: Send + Sync {
    /// A list with one net buffer over the `len` bytes at `bytes`, for sending; null for lack of resources.
    /// PASSIVE_LEVEL.
    fn allocate(&self, bytes: *mut u8, len: usize) -> *mut NET_BUFFER_LIST;

    /// Frees a list of [`allocate`](Self::allocate). PASSIVE_LEVEL.
    fn free(&self, nbl: *mut NET_BUFFER_LIST);

    /// Sends `count` lists. Each comes back by [`Port::sent`], also where there is no NIC below.
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
}

/// The outcome for a received list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taken {
    /// The list is not needed any more.
    Copied,
    /// The list is kept until [`Lower::give_back`].
    Lent,
    /// There was no room, or its bytes could not be reached.
    Dropped,
}

/// The traffic of a port.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Frames given to the poll core.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames for which there was no room.
    pub dropped: u64,
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
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
    sleeper: Sleeper,
    counters: [AtomicU64; 5],
}

impl Port {
    /// The traffic so far.
    pub fn counters(&self) -> Counters {
        let [received, received_bytes, dropped, sent, sent_bytes] =
            [0, 1, 2, 3, 4].map(|index: usize| self.counters[index].load(Ordering::Relaxed));
        Counters { received, received_bytes, dropped, sent, sent_bytes }
    }

    /// Takes one received list with one frame. With `keep`, the caller allows us to keep the list until
    /// [`Lower::give_back`]; without it only for the length of the call. `tag` is the VLAN tag beside the
    /// frame, as the poll core shall see it. Any CPU, DISPATCH_LEVEL: the poll core waits for a call that
    /// has begun.
    ///
    /// # Safety
    /// `nbl` is valid, with one net buffer whose MDLs are valid and locked.
    pub unsafe fn receive(&self, nbl: *mut NET_BUFFER_LIST, tag: Option<Tag>, keep: bool) -> Taken {
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take(nbl, tag, keep) };
        match taken {
            Taken::Copied | Taken::Lent => self.sleeper.wake_if(ASLEEP),
            Taken::Dropped => self.count(DROPPED, 1),
        }
        taken
    }

    unsafe fn take(&self, nbl: *mut NET_BUFFER_LIST, tag: Option<Tag>, keep: bool) -> Taken {
        // SAFETY: the caller's promise.
        let nb = unsafe { (*nbl).FirstNetBuffer };
        if nb.is_null() {
            return Taken::Dropped;
        }
        // SAFETY: as above.
        let frame = unsafe { Frame::of(nb) };
        let map = |mdl| self.lower.map(mdl);
        // SAFETY: as above.
        let place = if keep && tag.is_none() { unsafe { frame.contiguous(&map) } } else { None };
        let arrival = match place {
            Some(place) => Arrival::Loan(Loan { nbl, frame: place, len: frame.len() }),
            None => {
                // SAFETY: as above.
                let Some(copy) = (unsafe { self.copy(&frame, tag) }) else {
                    return Taken::Dropped;
                };
                copy
            }
        };
        self.publish(arrival, frame.len())
    }

    unsafe fn copy(&self, frame: &Frame, tag: Option<Tag>) -> Option<Arrival> {
        let mut bytes = self.spare.pop()?;
        let map = |mdl| self.lower.map(mdl);
        // SAFETY: the caller's promise.
        let copied = unsafe { frame.copy_to(&mut bytes, &map) };
        let whole = (copied == frame.len()).then_some(copied);
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

    /// Takes one sent list back, whether it left or not. Any CPU, DISPATCH_LEVEL, as for
    /// [`receive`](Self::receive).
    ///
    /// # Safety
    /// `nbl` came from [`Lower::allocate`] of this port's edge.
    pub unsafe fn sent(&self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: the caller's promise; the edge wrote its index there.
        let index = unsafe { (*nbl).ProtocolReserved[OWNER_SLOT] }.addr();
        // There is a place for each buffer.
        let _ = self.returned.push(index as u32);
        self.sleeper.wake_if(STARVED);
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
    buffers: Vec<SendBuffer>,
    /// Indices of buffers that may be filled, last in first out.
    free: Vec<u32>,
    waker: Option<Waker>,
    /// The last `transmit` ended for lack of a buffer.
    starved: bool,
}

/// An edge and its port; `None` for lack of lists. PASSIVE_LEVEL.
///
/// # Panics
/// If a depth is 0.
pub fn open(lower: Box<dyn Lower>, config: NdisConfig) -> Option<(NdisEdge, Arc<Port>)> {
    assert!(config.receive_depth > 0 && config.transmit_depth > 0, "a ring needs room for a frame");
    let unit_len = config.mtu + ETHERNET_MAX_LEN;
    let port = Arc::new(Port {
        lower,
        received: ArrayQueue::new(config.receive_depth),
        spare: ArrayQueue::new(config.receive_depth),
        returned: ArrayQueue::new(config.transmit_depth),
        sleeper: Sleeper::default(),
        counters: [const { AtomicU64::new(0) }; 5],
    });
    for _ in 0..config.receive_depth {
        port.reuse(vec![0; unit_len].into());
    }
    let mut edge = NdisEdge {
        port: Arc::clone(&port),
        link: Link { mac: config.mac, mtu: config.mtu, max_segments: 1, max_unit_len: unit_len },
        buffers: Vec::with_capacity(config.transmit_depth),
        free: Vec::with_capacity(config.transmit_depth),
        waker: None,
        starved: false,
    };
    for index in 0..config.transmit_depth {
        edge.add_buffer(index as u32, unit_len)?;
    }
    Some((edge, port))
}

impl NdisEdge {
    fn add_buffer(&mut self, index: u32, len: usize) -> Option<()> {
        let mut bytes: Box<[u8]> = vec![0; len].into();
        let nbl = self.port.lower.allocate(bytes.as_mut_ptr(), len);
        if nbl.is_null() {
            return None;
        }
        // SAFETY: just allocated, and ours.
        unsafe { (*nbl).ProtocolReserved[OWNER_SLOT] = without_provenance_mut(index as usize) };
        self.buffers.push(SendBuffer { bytes, nbl });
        self.free.push(index);
        Some(())
    }

    /// Has `fill` write into the last `lent` free buffers, the last of them first. Returns the lengths of the units,
    /// which are ready to be sent.
    fn fill_run(
        &mut self,
        lent: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> heapless::Vec<usize, SHORT_RUN> {
        let Self { buffers, free, .. } = self;
        let places = || free.iter().rev().take(lent).map(|index| *index as usize);
        // Taken out, because safe code lends no two elements of a list by their places.
        let mut run: heapless::Vec<Box<[u8]>, SHORT_RUN> =
            places().map(|place| core::mem::take(&mut buffers[place].bytes)).collect();
        let mut units = [Transmit::default(); SHORT_RUN];
        let mut slots: heapless::Vec<Slot<'_>, SHORT_RUN> =
            run.iter_mut().zip(&mut units).map(|(buffer, unit)| Slot { buffer, unit }).collect();
        let filled = if lent > 0 { fill(&mut slots) } else { 0 };
        drop(slots);
        let lens: heapless::Vec<usize, SHORT_RUN> =
            units[..filled].iter().map(|unit| unit.len).collect();
        for (place, bytes) in places().zip(run) {
            buffers[place].bytes = bytes;
        }
        for (place, len) in places().zip(&lens) {
            buffers[place].dress(*len);
        }
        lens
    }

    fn collect(&mut self) {
        while let Some(index) = self.port.returned.pop() {
            self.free.push(index);
        }
    }
}

impl Drop for NdisEdge {
    /// The owner has waited for all sends. A buffer that is still out is left alone.
    fn drop(&mut self) {
        self.port.drain();
        self.collect();
        let mut home = vec![false; self.buffers.len()];
        for &index in &self.free {
            home[index as usize] = true;
        }
        for (buffer, home) in self.buffers.drain(..).zip(home) {
            if home {
                self.port.lower.free(buffer.nbl);
            } else {
                debug_assert!(home, "a send outlives its edge");
                core::mem::forget(buffer);
            }
        }
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
        Drops { transmit: 0, receive: self.port.counters().dropped }
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
        let mut chain = Chain::new();
        let mut bytes = 0;
        while (chain.len() as usize) < budget {
            let run = (budget - chain.len() as usize).min(SHORT_RUN);
            let lent = run.min(self.free.len());
            let filled = self.fill_run(lent, fill);
            for _ in 0..filled.len() {
                let Some(index) = self.free.pop() else { break };
                // SAFETY: the list is ours until it is sent.
                unsafe { chain.push(self.buffers[index as usize].nbl) };
            }
            bytes += filled.iter().map(|len| *len as u64).sum::<u64>();
            if filled.len() < run {
                self.starved = filled.len() == lent;
                break;
            }
        }
        if !chain.is_empty() {
            self.port.count(SENT, chain.len().into());
            self.port.count(SENT_BYTES, bytes);
            self.port.lower.send(chain.head(), chain.len());
        }
        Ok(chain.len() as usize)
    }

    fn backlog(&self) -> usize {
        self.buffers.len() - self.free.len() - self.port.returned.len()
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
/// Ethernet header with one VLAN tag.
const ETHERNET_MAX_LEN: usize = 18;

const RECEIVED: usize = 0;
const RECEIVED_BYTES: usize = 1;
const DROPPED: usize = 2;
const SENT: usize = 3;
const SENT_BYTES: usize = 4;

#[cfg(test)]
mod tests;
