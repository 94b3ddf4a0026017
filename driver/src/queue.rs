//! Work queues: their slots, and the elements of requests.

use crate::abi::*;
use crate::limits::MAX_TRANSFER;
use crate::sync::modelled::AtomicU32;
use core::sync::atomic::Ordering;
use rocev2::ids::Lkey;
use rocev2::qp::Sge;

/// How many requests a work queue takes, and how many of those that it took have ended.
pub(crate) struct Slots {
    depth: AtomicU32,
    retired: AtomicU32,
}

impl Slots {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth: AtomicU32::new(depth), retired: AtomicU32::new(0) }
    }

    /// Whether there is a slot for another request, when `posted` were taken, modulo 2^32.
    pub(crate) fn check_room(&self, posted: u32) -> Result<(), NTSTATUS> {
        let queued = posted.wrapping_sub(self.retired());
        let has_room = queued < self.depth.load(Ordering::Relaxed);
        if has_room { Ok(()) } else { Err(STATUS_NO_MORE_ENTRIES) }
    }

    /// A request has ended; its slot is free.
    pub(crate) fn retire(&self) {
        self.retired.fetch_add(1, Ordering::Release);
    }

    /// Requests that have ended, modulo 2^32.
    pub(crate) fn retired(&self) -> u32 {
        self.retired.load(Ordering::Acquire)
    }

    /// Requests that it takes.
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Changes the depth.
    pub(crate) fn set_depth(&self, depth: u32) {
        self.depth.store(depth, Ordering::Relaxed);
    }
}

/// The element of a request that has one, of at most `max_sge`.
#[inline(always)]
pub(crate) fn element(sge: &NDK_SGE, max_sge: usize) -> Result<Sge, NTSTATUS> {
    check_count(1, max_sge)?;
    check_len(sge.Length.into())?;
    Ok(convert(sge))
}

/// The elements of a request, at most `max_sge` of them.
pub(crate) fn elements(
    sgl: &[NDK_SGE],
    max_sge: usize,
) -> Result<impl Iterator<Item = Sge> + '_, NTSTATUS> {
    check_count(sgl.len(), max_sge)?;
    check_len(total_len(sgl))?;
    Ok(sgl.iter().map(convert))
}

/// The sum of the lengths.
pub(crate) fn total_len(sgl: &[NDK_SGE]) -> u64 {
    sgl.iter().map(|sge| u64::from(sge.Length)).sum()
}

const fn check_count(count: usize, max_sge: usize) -> Result<(), NTSTATUS> {
    if count > max_sge { Err(STATUS_DATA_OVERRUN) } else { Ok(()) }
}

const fn check_len(len: u64) -> Result<(), NTSTATUS> {
    if len > MAX_TRANSFER as u64 { Err(STATUS_BUFFER_OVERFLOW) } else { Ok(()) }
}

#[inline(always)]
fn convert(sge: &NDK_SGE) -> Sge {
    // A logical address for the privileged token: the same eight bytes.
    let addr = sge.virtual_address().addr() as u64;
    Sge { addr, len: sge.Length, lkey: Lkey::new(sge.MemoryRegionToken) }
}
