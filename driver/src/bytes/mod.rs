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
pub(crate) mod pages;

use crate::abi::PAGE_SIZE;
use crate::lam::core::Lams;
use crate::lam::shared::LamRing;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use inline::InlineSlots;
use mapping::Mapping;
use pages::{POOL_LISTS, PageLists};
use rocev2::env::{Fault, Memory, RegionId};

enum Region {
    Mapped(Mapping),
    /// The list of a fast-register region. `orphan`: the region is closed, and the list goes with its mapping.
    Pages {
        list: Arc<PageLists>,
        orphan: bool,
    },
    Inline(Arc<InlineSlots>),
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

/// The bytes of everything that has a key.
pub(crate) struct Regions {
    slots: Vec<Option<Region>>,
    free: Vec<u32>,
    /// The pool of page lists, once a fast-register region was initialised.
    pool: Option<Arc<PageLists>>,
    /// The bytes of logical addresses.
    pub(crate) lams: Lams,
}

impl Regions {
    /// Those of a core that has this ring of logical addresses.
    pub(crate) const fn new(ring: Arc<LamRing>) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), pool: None, lams: Lams::new(ring) }
    }

    pub(crate) fn insert(&mut self, mapping: Mapping) -> RegionId {
        self.insert_region(Region::Mapped(mapping))
    }

    pub(crate) fn insert_inline(&mut self, slots: Arc<InlineSlots>) -> RegionId {
        self.insert_region(Region::Inline(slots))
    }

    /// Names the list of a fast-register region, which may take others from `pool`, the one of the provider.
    pub(crate) fn insert_list(&mut self, list: Arc<PageLists>, pool: &Arc<PageLists>) -> RegionId {
        self.pool.get_or_insert_with(|| Arc::clone(pool));
        self.insert_region(Region::Pages { list, orphan: false })
    }

    /// The list of the pool that has this name, and the pool.
    fn pooled(pool: Option<&PageLists>, region: RegionId) -> Option<(&PageLists, usize)> {
        let index = region.0.checked_sub(POOLED).filter(|_| region != LOGICAL)?;
        Some((pool?, index as usize))
    }

    fn insert_region(&mut self, region: Region) -> RegionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // A place is given back where nothing may be allocated: when a request ends.
            self.free.reserve(self.slots.len());
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(region);
        RegionId(slot)
    }

    /// The memory that one more may take: the places, and the list of those that are free, double.
    pub(crate) fn growth(&self) -> usize {
        let full = self.free.is_empty() && self.slots.len() == self.slots.capacity();
        let place = size_of::<Option<Region>>() + size_of::<u32>();
        if full { 2 * self.slots.len().max(4) * place } else { 0 }
    }

    /// Forgets a region; a list that is in use is forgotten when its mapping has ended.
    pub(crate) fn remove(&mut self, region: RegionId) {
        let Some(slot) = self.slots.get_mut(region.0 as usize) else { return };
        if let Some(Region::Pages { list, orphan }) = slot
            && !list.is_free(0)
        {
            *orphan = true;
            return;
        }
        if slot.take().is_some() {
            self.free.push(region.0);
        }
    }

    /// The mapping of a page list has ended.
    pub(crate) fn release(&mut self, region: RegionId) {
        if let Some((pool, index)) = Self::pooled(self.pool.as_deref(), region) {
            return pool.give_back(index);
        }
        let slot = self.slots.get(region.0 as usize).and_then(Option::as_ref);
        if let Some(&Region::Pages { ref list, orphan }) = slot {
            list.give_back(0);
            if orphan {
                self.remove(region);
            }
        }
    }

    /// Where a range is, if it is one piece of a mapping, as nearly all are.
    #[inline(always)]
    fn piece(&self, region: RegionId, offset: u64, len: usize) -> Option<*mut u8> {
        match self.slots.get(region.0 as usize) {
            Some(Some(Region::Mapped(mapping))) => mapping.piece(offset, len),
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
        let Self { slots, pool, lams, .. } = self;
        if region == LOGICAL {
            return lams.pieces(offset, len, each);
        }
        if let Some((pool, index)) = Self::pooled(pool.as_deref(), region) {
            return page_pieces(pool.list(index), lams, offset, len, each);
        }
        match slots.get(region.0 as usize).and_then(Option::as_ref).ok_or(Fault)? {
            Region::Mapped(mapping) => mapping.pieces(offset, len, each),
            Region::Inline(slots) => slots.pieces(offset, len, each),
            Region::Pages { list, .. } => page_pieces(list.list(0), lams, offset, len, each),
        }
    }
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

impl Regions {
    #[inline(never)]
    fn read_pieces(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.pieces(region, offset, out.len(), |address, at, len| {
            // SAFETY: the piece lies inside memory that lives until it is removed here, and `out` is
            // memory of ours. The consumer may write these bytes meanwhile, as with any DMA: what is
            // read then is unspecified, and nothing else depends on it.
            unsafe { core::ptr::copy(address, out[at..at + len].as_mut_ptr(), len) };
        })
    }

    #[inline(never)]
    fn write_pieces(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.pieces(region, offset, data.len(), |address, at, len| {
            // SAFETY: as for `read_pieces`.
            unsafe { core::ptr::copy(data[at..at + len].as_ptr(), address, len) };
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
        unsafe { core::ptr::copy(address, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    #[inline(always)]
    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let Some(address) = self.piece(region, offset, data.len()) else {
            return self.write_pieces(region, offset, data);
        };
        // SAFETY: as for `read_pieces`.
        unsafe { core::ptr::copy(data.as_ptr(), address, data.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::mapping::tests::mapping;
    use super::*;
    use crate::abi::*;
    use alloc::vec;

    fn regions() -> Regions {
        Regions::new(Arc::default())
    }

    fn page(address: i64) -> NDK_LOGICAL_ADDRESS {
        NDK_LOGICAL_ADDRESS { QuadPart: address }
    }

    #[test]
    fn page_lists_are_taken_and_come_back() {
        let mut regions = regions();
        let lists = |count| Arc::new(PageLists::new(count, 2).unwrap());
        let (list, pool) = (lists(1), lists(POOL_LISTS));
        let name = regions.insert_list(Arc::clone(&list), &pool);
        assert_eq!(list.max_pages(), 2);
        assert_eq!((list.take(&[page(4096)]), list.take(&[])), (Some(0), None));
        let taken: Vec<usize> = core::iter::from_fn(|| pool.take(&[page(4096)])).collect();
        assert!(taken.into_iter().eq(0..POOL_LISTS));
        regions.release(pooled(2));
        assert_eq!((pool.take(&[page(8192), page(0)]), pool.take(&[])), (Some(2), None));
        regions.release(LOGICAL);
        regions.release(name);
        assert_eq!((list.take(&[]), pool.take(&[])), (Some(0), None));
        // Pages of no mapping are never touched.
        for name in [name, pooled(2), pooled(POOL_LISTS - 1)] {
            assert_eq!(regions.read(name, 0, &mut [0]), Err(Fault));
            assert_eq!(regions.write(name, 8192, &[0]), Err(Fault));
        }
    }

    #[test]
    fn a_list_in_use_outlives_its_region_and_its_place_comes_back() {
        let mut regions = regions();
        let [list, pool] = [1, 2].map(|count| Arc::new(PageLists::new(count, 1).unwrap()));
        let names = [&list, &pool].map(|list| regions.insert_list(Arc::clone(list), &pool));
        assert!(regions.free.capacity() >= regions.slots.len(), "a place comes back for nothing");
        assert_eq!(list.take(&[page(0)]), Some(0));
        names.into_iter().for_each(|name| regions.remove(name));
        assert_eq!(regions.free.len(), 1);
        regions.release(names[0]);
        assert_eq!(regions.free.len(), 2);
        // A second release, or one of other names, changes nothing.
        regions.release(names[0]);
        regions.remove(names[0]);
        regions.release(LOGICAL);
        assert_eq!(regions.free.len(), 2);
    }

    #[test]
    fn inline_data_lies_in_its_slot() {
        let slots = Arc::new(InlineSlots::new(3, 8).unwrap());
        let mut regions = regions();
        let region = regions.insert_inline(Arc::clone(&slots));
        let (mut first, mut second) = (*b"abc", *b"de");
        let sge = |bytes: &mut [u8]| {
            NDK_SGE::from_virtual(bytes.as_mut_ptr().cast(), bytes.len() as u32, 0)
        };
        let empty = NDK_SGE::from_virtual(core::ptr::null_mut(), 0, 0);
        // SAFETY: nobody else has the slot, and the elements are readable.
        unsafe { slots.fill(1, &[sge(&mut first), empty, sge(&mut second)]) };
        let mut out = [9; 8];
        regions.read(region, slots.offset(1), &mut out).unwrap();
        assert_eq!(&out, b"abcde\0\0\0");
        assert_eq!(regions.read(region, slots.offset(2) + 1, &mut out), Err(Fault));
        assert_eq!(regions.read(region, u64::MAX, &mut out), Err(Fault));
    }

    #[test]
    fn a_range_over_several_pieces_is_one_range() {
        let mut buffers = [vec![0; 3], vec![0; 5], vec![0; 4]];
        let mut regions = regions();
        let region = regions.insert(mapping(&mut buffers));
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
        let mut regions = regions();
        let region = regions.insert(mapping(&mut buffers));
        for (offset, len) in [(0, 5), (4, 1), (5, 0), (u64::MAX, 1)] {
            assert_eq!(regions.write(region, offset, &vec![0; len]), Err(Fault), "{offset}+{len}");
        }
        regions.remove(region);
        assert_eq!(regions.write(region, 0, &[1]), Err(Fault));
        assert_eq!(buffers, [vec![7; 4]]);
    }
}
