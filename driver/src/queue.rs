//! Work queues: the consumer's end of the rings that posts go through.

use crate::abi::*;
use crate::limits::MAX_TRANSFER;
use crate::object::shared::Context;
use crate::sync::modelled::{AtomicU32, rtrb};
use core::sync::atomic::Ordering;
use rocev2::ids::Lkey;
use rocev2::qp::{RecvWr, Sge};

/// How many requests a work queue takes, and how many of those that it took have ended.
pub(crate) struct Slots {
    depth: AtomicU32,
    retired: AtomicU32,
}

impl Slots {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth: AtomicU32::new(depth), retired: AtomicU32::new(0) }
    }

    /// A request has ended; its slot is free.
    pub(crate) fn retire(&self) {
        self.retired.fetch_add(1, Ordering::Release);
    }

    /// Requests that have ended, modulo 2^32.
    pub(crate) fn retired(&self) -> u32 {
        self.retired.load(Ordering::Acquire)
    }

    /// Changes the depth.
    pub(crate) fn set_depth(&self, depth: u32) {
        self.depth.store(depth, Ordering::Relaxed);
    }
}

/// The consumer's end of a work queue.
pub(crate) struct Queue<T> {
    ring: rtrb::Producer<T>,
    max_sge: usize,
    posted: u32,
}

impl<T> Queue<T> {
    pub(crate) const fn new(ring: rtrb::Producer<T>, max_sge: u32) -> Self {
        Self { ring, max_sge: max_sge as usize, posted: 0 }
    }

    /// Whether another request fits.
    pub(crate) fn check_room(&self, slots: &Slots) -> Result<(), NTSTATUS> {
        let queued = self.posted.wrapping_sub(slots.retired());
        if queued < slots.depth.load(Ordering::Relaxed) && !self.ring.is_full() {
            Ok(())
        } else {
            Err(STATUS_NO_MORE_ENTRIES)
        }
    }

    /// Queues a request, for which there is room.
    pub(crate) fn push(&mut self, request: T) -> Result<(), NTSTATUS> {
        self.ring.push(request).map_err(|_| STATUS_NO_MORE_ENTRIES)?;
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }
}

impl Queue<RecvWr> {
    /// Posts a receive.
    pub(crate) fn post_receive(
        &mut self,
        context: PVOID,
        sgl: &[NDK_SGE],
        slots: &Slots,
    ) -> Result<(), NTSTATUS> {
        self.check_room(slots)?;
        let sgl = elements(sgl, self.max_sge)?.collect();
        self.push(RecvWr { id: Context::new(context).as_u64(), sgl })
    }
}

/// The elements of a request, at most `max_sge` of them.
pub(crate) fn elements(
    sgl: &[NDK_SGE],
    max_sge: usize,
) -> Result<impl Iterator<Item = Sge> + '_, NTSTATUS> {
    if sgl.len() > max_sge {
        return Err(STATUS_DATA_OVERRUN);
    }
    let len: u64 = match sgl {
        [sge] => sge.Length.into(),
        sgl => sgl.iter().map(|sge| u64::from(sge.Length)).sum(),
    };
    if len > u64::from(MAX_TRANSFER) {
        return Err(STATUS_BUFFER_OVERFLOW);
    }
    Ok(sgl.iter().map(|sge| Sge {
        // A logical address for the privileged token: the same eight bytes.
        addr: sge.virtual_address().addr() as u64,
        len: sge.Length,
        lkey: Lkey::new(sge.MemoryRegionToken),
    }))
}
