//! The bytes behind every key: the device's [`Memory`].
//!
//! | Region | Made by | Its bytes |
//! | --- | --- | --- |
//! | mapped | `NdkRegisterMr` | an MDL chain |
//! | pages | `NdkFastRegister` | a list of logical pages, each looked up when it is used |
//! | inline | `NdkCreateQp` | what the consumer's posts copied |
//! | logical | the privileged token | every logical address |
#![allow(unsafe_code, reason = "the bytes belong to consumers, who name them by pointers")]

pub(crate) mod inline;
pub(crate) mod mapping;
mod names;
pub(crate) mod pages;

use crate::abi::PAGE_SIZE;
use crate::lam::core::Lams;
use crate::lam::shared::LamRing;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use inline::InlineSlots;
use mapping::Mapping;
pub(crate) use names::Names;
use names::{NOTHING, Place, Table};
use pages::{POOL_LISTS, PageLists};
use rocev2::env::{Fault, Memory, RegionId};

enum Region {
    Mapped(Mapping),
    /// The list of a fast-register region.
    Pages(Arc<PageLists>),
    Inline(Arc<InlineSlots>),
    Nothing,
}

/// All logical addresses: the region of every domain's privileged token, whose offsets are the
/// addresses. Never the place of another region.
pub(crate) const LOGICAL: RegionId = RegionId(u32::MAX);

/// The first list of the pool; the others follow. As [`LOGICAL`], never the place of another region.
const POOLED: u32 = LOGICAL.0 - POOL_LISTS as u32;

/// The name of a list of the pool.
pub(crate) const fn pooled(index: usize) -> RegionId {
    RegionId(POOLED + index as u32)
}

/// The bytes of everything that has a key, as one core sees them.
pub(crate) struct Regions {
    /// The newest array of names that this core has met.
    places: Arc<[Place]>,
    table: Arc<Table>,
    /// The bytes of logical addresses.
    pub(crate) lams: Lams,
}

impl Regions {
    /// Those that have these names, for the core that has this ring of logical addresses.
    pub(crate) fn new(names: &Names, ring: Arc<LamRing>) -> Self {
        Self { places: Arc::new([]), table: names.table(), lams: Lams::new(ring) }
    }

    /// The mapping of a page list has ended, on this core.
    pub(crate) fn release(&mut self, region: RegionId) {
        if let Some((pool, index)) = pooled_list(&self.table, region) {
            return pool.give_back(index);
        }
        self.learn(region);
        if let Region::Pages(list) = self.region(region) {
            // Of a closed region nothing is left when its list is free: see `Names::sweep`.
            let list = Arc::clone(list);
            list.give_back(0);
        }
    }

    /// Makes the newest names known to this core, if this one is not.
    fn learn(&mut self, region: RegionId) {
        if region.0 as usize >= self.places.len()
            && let Some(newest) = self.table.newest.get()
        {
            self.places = newest;
        }
    }

    #[inline(always)]
    fn region(&self, region: RegionId) -> &Region {
        self.places.get(region.0 as usize).map_or(&NOTHING, Place::region)
    }

    /// Where a range is, if it is one piece of a mapping, as nearly all are.
    #[inline(always)]
    fn piece(&self, region: RegionId, offset: u64, len: usize) -> Option<*mut u8> {
        match self.places.get(region.0 as usize)?.region() {
            Region::Mapped(mapping) => mapping.piece(offset, len),
            _ => None,
        }
    }

    fn pieces(
        &mut self,
        region: RegionId,
        offset: u64,
        len: usize,
        each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        if region == LOGICAL {
            return self.lams.pieces(offset, len, each);
        }
        if let Some((pool, index)) = pooled_list(&self.table, region) {
            return page_pieces(pool.list(index), &mut self.lams, offset, len, each);
        }
        self.learn(region);
        let Self { places, lams, .. } = self;
        match places.get(region.0 as usize).ok_or(Fault)?.region() {
            Region::Mapped(mapping) => mapping.pieces(offset, len, each),
            Region::Inline(slots) => slots.pieces(offset, len, each),
            Region::Pages(list) => page_pieces(list.list(0), lams, offset, len, each),
            Region::Nothing => Err(Fault),
        }
    }
}

/// The list of the pool that has this name, and the pool.
fn pooled_list(table: &Table, region: RegionId) -> Option<(&PageLists, usize)> {
    let index = region.0.checked_sub(POOLED).filter(|_| region != LOGICAL)?;
    Some((table.pool.get()?, index as usize))
}

/// The pieces of a range of a page list, page by page. The transport has checked the range.
fn page_pieces(
    list: &[AtomicU64],
    lams: &mut Lams,
    offset: u64,
    len: usize,
    mut each: impl FnMut(*mut u8, usize, usize),
) -> Result<(), Fault> {
    let mut done = 0;
    while done < len {
        let at = offset.checked_add(done as u64).ok_or(Fault)?;
        let page = usize::try_from(at / PAGE_SIZE as u64).map_err(|_| Fault)?;
        let within = at as usize % PAGE_SIZE;
        let take = (PAGE_SIZE - within).min(len - done);
        // Page-aligned, as checked at the post.
        let address = list.get(page).ok_or(Fault)?.load(Ordering::Relaxed) | within as u64;
        lams.pieces(address, take, |address, at, len| each(address, done + at, len))?;
        done += take;
    }
    Ok(())
}

/// Moves bytes between memory of the consumer's and ours. The consumer, or another core, may write these bytes meanwhile,
/// as with any DMA: what is read then is unspecified, and nothing else depends on it.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes.
#[cfg(not(tsan))]
#[inline(always)]
unsafe fn transfer(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy(from, to, len) };
}

/// The same, byte by byte, as a device does it: ThreadSanitizer then keeps silent about two transfers that meet, and still
/// reports one that meets anything else, such as the end of its memory.
///
/// # Safety
/// As above.
#[cfg(tsan)]
unsafe fn transfer(from: *const u8, to: *mut u8, len: usize) {
    use core::sync::atomic::AtomicU8;
    for at in 0..len {
        // SAFETY: the caller's promise.
        let from = unsafe { AtomicU8::from_ptr(from.cast_mut().wrapping_add(at)) };
        // SAFETY: as above.
        let to = unsafe { AtomicU8::from_ptr(to.wrapping_add(at)) };
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Regions {
    #[inline(never)]
    fn read_pieces(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.pieces(region, offset, out.len(), |address, at, len| {
            // SAFETY: the piece lies inside memory that lives until its name is removed, and `out` is
            // memory of ours.
            unsafe { transfer(address, out[at..at + len].as_mut_ptr(), len) };
        })
    }

    #[inline(never)]
    fn write_pieces(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.pieces(region, offset, data.len(), |address, at, len| {
            // SAFETY: as for `read_pieces`.
            unsafe { transfer(data[at..at + len].as_ptr(), address, len) };
        })
    }
}

impl Memory for Regions {
    #[inline(always)]
    fn read(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let Some(address) = self.piece(region, offset, out.len()) else {
            return self.read_pieces(region, offset, out);
        };
        // SAFETY: as for `read_pieces`.
        unsafe { transfer(address, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    #[inline(always)]
    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let Some(address) = self.piece(region, offset, data.len()) else {
            return self.write_pieces(region, offset, data);
        };
        // SAFETY: as for `read_pieces`.
        unsafe { transfer(data.as_ptr(), address, data.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::mapping::tests::mapping;
    use super::*;
    use crate::abi::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn regions() -> (Names, Regions) {
        let names = Names::default();
        let regions = Regions::new(&names, Arc::default());
        (names, regions)
    }

    fn page(address: i64) -> NDK_LOGICAL_ADDRESS {
        NDK_LOGICAL_ADDRESS { QuadPart: address }
    }

    #[test]
    fn page_lists_are_taken_and_come_back() {
        let (mut names, mut regions) = regions();
        let lists = |count| Arc::new(PageLists::new(count, 2).unwrap());
        let (list, pool) = (lists(1), lists(POOL_LISTS));
        let name = names.insert_list(Arc::clone(&list), &pool);
        assert_eq!(list.max_pages(), 2);
        assert_eq!(
            (list.take(&mut [page(4096)].into_iter()), list.take(&mut core::iter::empty())),
            (Some(0), None)
        );
        let taken: Vec<usize> =
            core::iter::from_fn(|| pool.take(&mut [page(4096)].into_iter())).collect();
        assert!(taken.into_iter().eq(0..POOL_LISTS));
        regions.release(pooled(2));
        assert_eq!(
            (
                pool.take(&mut [page(8192), page(0)].into_iter()),
                pool.take(&mut core::iter::empty())
            ),
            (Some(2), None)
        );
        regions.release(LOGICAL);
        regions.release(name);
        assert_eq!(
            (list.take(&mut core::iter::empty()), pool.take(&mut core::iter::empty())),
            (Some(0), None)
        );
        // Pages of no mapping are never touched.
        for name in [name, pooled(2), pooled(POOL_LISTS - 1)] {
            assert_eq!(regions.read(name, 0, &mut [0]), Err(Fault));
            assert_eq!(regions.write(name, 8192, &[0]), Err(Fault));
        }
    }

    #[test]
    fn inline_data_lies_in_its_slot() {
        let slots = Arc::new(InlineSlots::new(3, 8).unwrap());
        let (mut names, mut regions) = regions();
        let region = names.insert_inline(Arc::clone(&slots));
        let (mut first, mut second) = (*b"abc", *b"de");
        let sge = |bytes: &mut [u8]| {
            NDK_SGE::from_virtual(bytes.as_mut_ptr().cast(), bytes.len() as u32, 0)
        };
        let empty = NDK_SGE::from_virtual(core::ptr::null_mut(), 0, 0);
        // SAFETY: nobody else has the slot, and the elements are readable.
        let filled =
            unsafe { slots.fill(1, [sge(&mut first), empty, sge(&mut second)].into_iter()) };
        assert_eq!(filled, Some(5));
        let mut out = [9; 8];
        regions.read(region, slots.offset(1), &mut out).unwrap();
        assert_eq!(&out, b"abcde\0\0\0");
        assert_eq!(regions.read(region, slots.offset(2) + 1, &mut out), Err(Fault));
        assert_eq!(regions.read(region, u64::MAX, &mut out), Err(Fault));
    }

    /// A list that grows while it is read is refused, and its neighbours' slots are left alone.
    #[test]
    fn inline_data_stays_in_its_slot() {
        let slots = Arc::new(InlineSlots::new(3, 8).unwrap());
        let (mut names, mut regions) = regions();
        let region = names.insert_inline(Arc::clone(&slots));
        let mut bytes = [1; 32];
        let mut fill = |lengths: &[u32]| {
            let start = bytes.as_mut_ptr().cast();
            let list = lengths.iter().map(|&length| NDK_SGE::from_virtual(start, length, 0));
            // SAFETY: nobody else has the slot, and an element that fits is readable.
            unsafe { slots.fill(1, list) }
        };
        assert_eq!(fill(&[3, 0, 5]), Some(8));
        assert_eq!([fill(&[9]), fill(&[8, 1]), fill(&[1, u32::MAX]), fill(&[7, 7])], [None; 4]);
        let mut out = [9; 24];
        regions.read(region, 0, &mut out).unwrap();
        assert_eq!((&out[..8], &out[16..]), ([0; 8].as_slice(), [0; 8].as_slice()));
    }

    #[test]
    fn a_range_over_several_pieces_is_one_range() {
        let mut buffers = [vec![0; 3], vec![0; 5], vec![0; 4]];
        let (mut names, mut regions) = regions();
        let region = names.insert(mapping(&mut buffers));
        let data: Vec<u8> = (1..=8).collect();
        regions.write(region, 2, &data).unwrap();
        assert_eq!(buffers, [vec![0, 0, 1], vec![2, 3, 4, 5, 6], vec![7, 8, 0, 0]]);
        let mut out = [0; 8];
        regions.read(region, 2, &mut out).unwrap();
        assert_eq!(out.as_slice(), data);
    }

    #[test]
    fn nothing_outside_is_touched() {
        let mut buffers = [vec![7; 4]];
        let (mut names, mut regions) = regions();
        let region = names.insert(mapping(&mut buffers));
        for (offset, len) in [(0, 5), (4, 1), (5, 0), (u64::MAX, 1)] {
            assert_eq!(regions.write(region, offset, &vec![0; len]), Err(Fault), "{offset}+{len}");
        }
        // SAFETY: nobody uses it.
        unsafe { names.remove(region) };
        assert_eq!(regions.write(region, 0, &[1]), Err(Fault));
        assert_eq!(buffers, [vec![7; 4]]);
    }
}
