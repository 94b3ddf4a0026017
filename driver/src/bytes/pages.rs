//! The page lists of fast registrations.

use crate::abi::*;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Page lists of one fast-register region, so many fast-registers of it are queued or in force at
/// most: the one in force, and those of chains "invalidate, fast-register" behind it.
pub(crate) const PAGE_LISTS: usize = 4;

/// The page lists of a fast-register region. A post takes a free one and fills it; it is free again
/// when the core hears that the mapping has ended, or was never made.
#[derive(Debug)]
pub(crate) struct PageLists {
    pub(super) lists: [PageList; PAGE_LISTS],
    /// Bit n: list n is free.
    free: AtomicU32,
}

/// Logical addresses of pages.
type PageList = Box<[AtomicU64]>;

impl PageLists {
    /// Lists of at most `pages` pages each. `None`: no memory.
    pub(crate) fn new(pages: usize) -> Option<Self> {
        let mut lists: [PageList; PAGE_LISTS] = Default::default();
        for to in &mut lists {
            let mut list = Vec::new();
            list.try_reserve_exact(pages).ok()?;
            list.resize_with(pages, AtomicU64::default);
            *to = list.into_boxed_slice();
        }
        Some(Self { lists, free: AtomicU32::new((1 << PAGE_LISTS) - 1) })
    }

    /// Pages of a list, at most.
    pub(crate) fn max_pages(&self) -> usize {
        self.lists[0].len()
    }

    /// Takes a free list and fills it; `None` where all are in use. `pages` is no longer than
    /// [`Self::max_pages`]. The ring that carries the request orders this before the core's reads.
    pub(crate) fn take(&self, pages: &[NDK_LOGICAL_ADDRESS]) -> Option<usize> {
        let lowest = |free: u32| (free != 0).then_some(free & free.wrapping_sub(1));
        let free = self.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest).ok()?;
        let index = free.trailing_zeros() as usize;
        for (to, from) in self.lists[index].iter().zip(pages) {
            to.store(from.QuadPart.cast_unsigned(), Ordering::Relaxed);
        }
        Some(index)
    }

    /// Gives a list back.
    pub(crate) fn give_back(&self, index: usize) {
        self.free.fetch_or(1 << index, Ordering::Release);
    }

    pub(super) fn is_free(&self, index: usize) -> bool {
        self.free.load(Ordering::Acquire) & (1 << index) != 0
    }
}
