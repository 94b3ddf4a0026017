//! The page lists of fast registrations.
//!
//! A fast-register region has a list of its own, for the mapping that is in force. A fast registration that is
//! queued behind the end of that mapping takes a list of a pool, which all regions of a provider share.

use crate::abi::*;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// Lists of the pool: so many fast registrations are queued behind others at most.
pub(crate) const POOL_LISTS: usize = 64;

/// Page lists of one length. A post takes a free one and fills it; it is free again when the core hears that the
/// mapping has ended, or was never made.
#[derive(Debug)]
pub(crate) struct PageLists {
    /// Logical addresses of pages, list after list.
    pages: Box<[AtomicU64]>,
    max_pages: usize,
    /// Bit n: list n is free.
    free: AtomicU64,
}

impl PageLists {
    /// `count` lists, 64 at most, of at most `max_pages` pages each. `None`: no memory.
    pub(crate) fn new(count: usize, max_pages: usize) -> Option<Self> {
        let mut pages = Vec::new();
        pages.try_reserve_exact(count * max_pages).ok()?;
        pages.resize_with(count * max_pages, AtomicU64::default);
        let free = AtomicU64::new(u64::MAX >> (POOL_LISTS - count));
        Some(Self { pages: pages.into_boxed_slice(), max_pages, free })
    }

    /// Pages of a list, at most.
    pub(crate) const fn max_pages(&self) -> usize {
        self.max_pages
    }

    /// Takes a free list and fills it; `None` where all are in use, and no page was read. `pages` is no longer than
    /// [`Self::max_pages`]. The ring that carries the request orders this before the core's reads.
    pub(crate) fn take(
        &self,
        pages: &mut impl Iterator<Item = NDK_LOGICAL_ADDRESS>,
    ) -> Option<usize> {
        let lowest = |free: u64| (free != 0).then_some(free & free.wrapping_sub(1));
        let free = self.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest).ok()?;
        let index = free.trailing_zeros() as usize;
        for (to, from) in self.list(index).iter().zip(pages) {
            to.store(from.QuadPart.cast_unsigned(), Ordering::Relaxed);
        }
        Some(index)
    }

    pub(super) fn list(&self, index: usize) -> &[AtomicU64] {
        &self.pages[index * self.max_pages..][..self.max_pages]
    }

    /// Gives a list back.
    pub(crate) fn give_back(&self, index: usize) {
        self.free.fetch_or(1 << index, Ordering::Release);
    }

    pub(super) fn is_free(&self, index: usize) -> bool {
        self.free.load(Ordering::Acquire) & (1 << index) != 0
    }
}
