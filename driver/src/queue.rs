//! Work queues: their slots, and the elements of requests.

use crate::abi::*;
use crate::limits::MAX_TRANSFER;
use crate::object::entry::Sgl;
use crate::sync::modelled::AtomicU32;
use core::sync::atomic::Ordering;
use rocev2::ids::Lkey;
use rocev2::qp::{MAX_SGE, Sge};

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
pub(crate) fn element(sge: NDK_SGE, max_sge: usize) -> Result<Sge, NTSTATUS> {
    check_count(1, max_sge)?;
    check_len(sge.Length.into())?;
    Ok(convert(sge))
}

/// The elements of a request, at most `max_sge` of them: a copy, as the lengths that are checked here are to be those that the
/// transport gets.
pub(crate) fn elements(
    sgl: Sgl<'_>,
    max_sge: usize,
) -> Result<heapless::Vec<Sge, MAX_SGE>, NTSTATUS> {
    check_count(sgl.len(), max_sge.min(MAX_SGE))?;
    let elements: heapless::Vec<Sge, MAX_SGE> = sgl.elements().map(convert).collect();
    check_len(elements.iter().map(|sge| u64::from(sge.len)).sum())?;
    Ok(elements)
}

const fn check_count(count: usize, max_sge: usize) -> Result<(), NTSTATUS> {
    if count > max_sge { Err(STATUS_DATA_OVERRUN) } else { Ok(()) }
}

const fn check_len(len: u64) -> Result<(), NTSTATUS> {
    if len > MAX_TRANSFER as u64 { Err(STATUS_BUFFER_OVERFLOW) } else { Ok(()) }
}

#[inline(always)]
fn convert(sge: NDK_SGE) -> Sge {
    // A logical address for the privileged token: the same eight bytes.
    let addr = sge.virtual_address().addr() as u64;
    Sge { addr, len: sge.Length, lkey: Lkey::new(sge.MemoryRegionToken) }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "a list of the test")]
mod tests {
    use super::*;

    fn list(lengths: &[u32]) -> alloc::vec::Vec<NDK_SGE> {
        lengths.iter().map(|&len| NDK_SGE::from_virtual(core::ptr::null_mut(), len, 7)).collect()
    }

    #[test]
    fn a_request_has_so_many_elements_and_bytes() {
        let elements = |lengths: &[u32], max_sge| {
            let list = list(lengths);
            // SAFETY: the list has so many elements.
            let sgl = unsafe { Sgl::new(list.as_ptr(), list.len() as ULONG) };
            elements(sgl, max_sge).map(|sges| sges.iter().map(|sge| sge.len).collect())
        };
        assert_eq!(elements(&[1, 2, 3], 3), Ok(alloc::vec![1, 2, 3]));
        assert_eq!(elements(&[1, 2, 3], 2), Err(STATUS_DATA_OVERRUN));
        assert_eq!(elements(&[1; MAX_SGE + 1], MAX_SGE + 1), Err(STATUS_DATA_OVERRUN));
        assert_eq!(elements(&[MAX_TRANSFER, 0], 2), Ok(alloc::vec![MAX_TRANSFER, 0]));
        assert_eq!(elements(&[MAX_TRANSFER, 1], 2), Err(STATUS_BUFFER_OVERFLOW));
        assert_eq!(elements(&[u32::MAX; MAX_SGE], MAX_SGE), Err(STATUS_BUFFER_OVERFLOW));
    }
}
