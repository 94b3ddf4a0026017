//! Work queues: the consumer's end of the rings that posts go through.

use crate::abi::*;
use crate::limits::MAX_TRANSFER;
use crate::object::shared::Context;
use crate::sync::modelled::{AtomicU32, rtrb};
use core::sync::atomic::Ordering;
use rocev2::ids::Lkey;
use rocev2::qp::{RecvWr, SgList, Sge, sg_len};

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
    /// `posted` modulo the depth: the inline slot of the next request, which the request that
    /// was posted a depth ago has left.
    turn: u32,
}

impl<T> Queue<T> {
    pub(crate) const fn new(ring: rtrb::Producer<T>, max_sge: u32) -> Self {
        Self { ring, max_sge: max_sge as usize, posted: 0, turn: 0 }
    }

    /// The inline slot of the next request.
    pub(crate) const fn turn(&self) -> usize {
        self.turn as usize
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
    pub(crate) fn push(&mut self, request: T, slots: &Slots) -> Result<(), NTSTATUS> {
        self.ring.push(request).map_err(|_| STATUS_NO_MORE_ENTRIES)?;
        self.posted = self.posted.wrapping_add(1);
        self.turn += 1;
        if self.turn >= slots.depth.load(Ordering::Relaxed) {
            self.turn = 0;
        }
        Ok(())
    }

    pub(crate) fn sg_list(&self, sgl: &[NDK_SGE]) -> Result<SgList, NTSTATUS> {
        if sgl.len() > self.max_sge {
            return Err(STATUS_DATA_OVERRUN);
        }
        let list: SgList = sgl
            .iter()
            .map(|sge| Sge {
                // A logical address for the privileged token: the same eight bytes.
                addr: sge.virtual_address().addr() as u64,
                len: sge.Length,
                lkey: Lkey::new(sge.MemoryRegionToken),
            })
            .collect();
        let fits = sg_len(&list) <= u64::from(MAX_TRANSFER);
        if fits { Ok(list) } else { Err(STATUS_BUFFER_OVERFLOW) }
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
        let sgl = self.sg_list(sgl)?;
        self.push(RecvWr { id: Context::new(context).as_u64(), sgl }, slots)
    }
}
