//! The bytes behind every key: the device's [`Memory`].
//!
//! | Region | Made by | Its bytes |
//! | --- | --- | --- |
//! | mapped | `NdkRegisterMr` | an MDL chain |
//! | pages | `NdkFastRegister` | a list of logical pages, each looked up when it is used |
//! | inline | `NdkCreateQp` | what the consumer's posts copied |
//! | logical | the privileged token | every logical address |

use super::lam::Lams;
use crate::abi::*;
use crate::platform::{Mapped, Platform};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rocev2::env::{Fault, Memory, RegionId};

/// Where the bytes of a registration are, in order.
#[derive(Debug)]
pub(crate) struct Mapping {
    pieces: Vec<Piece>,
    len: u64,
    /// What reaches the pieces, until the region is gone.
    mapped: Vec<Mapped>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Distance of its first byte from the start of the region.
    start: u64,
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointers name memory that the consumer keeps locked and mapped for every CPU.
unsafe impl Send for Mapping {}

impl Mapping {
    /// What [`Self::new`] allocates, at most: two lists that grow by doubling, so that each copy is
    /// at most as large as all before it.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(super) unsafe fn bytes(mdl: *const MDL, len: usize) -> usize {
        let (mut count, mut reached, mut next) = (4, 0, mdl);
        // SAFETY: the caller's promise; null ends the chain.
        while let Some(mdl) = unsafe { next.as_ref() }
            && reached < len
        {
            count += 1;
            reached = reached.saturating_add(mdl.ByteCount as usize);
            next = mdl.Next;
        }
        4 * count * (size_of::<Piece>() + size_of::<Mapped>())
    }

    /// Maps the first `len` bytes of an MDL chain.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: the chain is shorter than `len`, or not virtually contiguous.
    /// `STATUS_INSUFFICIENT_RESOURCES`: no mapping could be made.
    ///
    /// # Safety
    /// `mdl` is null or a chain of valid MDLs whose pages stay locked while the mapping lives.
    pub(crate) unsafe fn new(
        mdl: *const MDL,
        len: usize,
        platform: &dyn Platform,
    ) -> Result<Self, NTSTATUS> {
        let mut mapping = Self { pieces: Vec::new(), len: 0, mapped: Vec::new() };
        let mut next = mdl;
        let mut expected = None;
        while mapping.len < len as u64 {
            // SAFETY: the caller's promise; null ends the chain.
            let Some(mdl) = (unsafe { next.as_ref() }) else {
                return Err(STATUS_INVALID_PARAMETER);
            };
            let va = mdl.virtual_address().addr();
            if expected.is_some_and(|expected| expected != va) {
                return Err(STATUS_INVALID_PARAMETER);
            }
            let mapped = platform.map(mdl).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
            let address = mapped.address();
            let piece_len = (mdl.ByteCount as usize).min(len - mapping.len as usize);
            mapping.pieces.push(Piece { start: mapping.len, address, len: piece_len });
            mapping.mapped.push(mapped);
            mapping.len += piece_len as u64;
            expected = Some(va.wrapping_add(mdl.ByteCount as usize));
            next = mdl.Next;
        }
        Ok(mapping)
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Calls `each` with the pieces of `offset .. offset + len`: address, and place in the range.
    pub(crate) fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        if offset > self.len || len as u64 > self.len - offset {
            return Err(Fault);
        }
        let first = self.pieces.partition_point(|piece| piece.start + piece.len as u64 <= offset);
        let mut done = 0;
        for piece in self.pieces.iter().skip(first) {
            if done == len {
                break;
            }
            let skip = (offset + done as u64 - piece.start) as usize;
            let take = (piece.len - skip).min(len - done);
            each(piece.address.as_ptr().wrapping_add(skip), done, take);
            done += take;
        }
        Ok(())
    }
}

/// Page lists of one fast-register region, so many fast-registers of it are queued or in force at
/// most: the one in force, and those of chains "invalidate, fast-register" behind it.
pub(crate) const PAGE_LISTS: usize = 4;

/// The page lists of a fast-register region. A post takes a free one and fills it; it is free again
/// when the core hears that the mapping has ended, or was never made.
#[derive(Debug)]
pub(crate) struct PageLists {
    lists: [PageList; PAGE_LISTS],
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

    fn is_free(&self, index: usize) -> bool {
        self.free.load(Ordering::Acquire) & (1 << index) != 0
    }
}

/// Room for the inline data of every request that a QP's initiator queue holds.
#[derive(Debug)]
pub(crate) struct InlineSlots {
    bytes: Box<[UnsafeCell<u8>]>,
    slot_len: usize,
}

// SAFETY: a slot is written by the post that holds it, before its request is in the ring, and read
// by the core until the request has ended; only then another post can hold it.
unsafe impl Sync for InlineSlots {}

impl InlineSlots {
    /// `count` slots of `slot_len` bytes. `None`: no memory.
    pub(crate) fn new(count: usize, slot_len: usize) -> Option<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count.checked_mul(slot_len)?).ok()?;
        bytes.resize_with(count * slot_len, UnsafeCell::default);
        Some(Self { bytes: bytes.into_boxed_slice(), slot_len })
    }

    /// Bytes that a slot holds.
    pub(crate) const fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Distance of a slot's first byte from the start of the region.
    pub(crate) const fn offset(&self, slot: usize) -> u64 {
        (slot * self.slot_len) as u64
    }

    /// Copies the elements into a slot. They are no longer than it, in all.
    ///
    /// # Safety
    /// The caller holds the slot; the elements are readable kernel addresses.
    pub(crate) unsafe fn fill(&self, slot: usize, sgl: &[NDK_SGE]) {
        let begin = slot * self.slot_len;
        let mut room = &self.bytes[begin..begin + self.slot_len];
        for sge in sgl.iter().filter(|sge| sge.Length > 0) {
            let (to, rest) = room.split_at(sge.Length as usize);
            let from = sge.virtual_address().cast::<u8>().cast_const();
            // SAFETY: the caller holds the slot, which `to` is a part of, and the element is
            // readable for its length.
            unsafe { core::ptr::copy(from, UnsafeCell::raw_get(to.as_ptr()), to.len()) };
            room = rest;
        }
    }

    fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let begin = usize::try_from(offset).map_err(|_| Fault)?;
        let end = begin.checked_add(len).ok_or(Fault)?;
        let bytes = self.bytes.get(begin..end).ok_or(Fault)?;
        each(UnsafeCell::raw_get(bytes.as_ptr()), 0, len);
        Ok(())
    }
}

enum Region {
    Mapped(Mapping),
    /// A list of a fast-register region. `orphan`: the region is closed, and the list goes with its
    /// mapping.
    Pages {
        lists: Arc<PageLists>,
        index: usize,
        orphan: bool,
    },
    Inline(Arc<InlineSlots>),
}

/// All logical addresses: the region of every domain's privileged token, whose offsets are the
/// addresses. Never the place of another region.
pub(crate) const LOGICAL: RegionId = RegionId(u32::MAX);

/// The bytes of everything that has a key.
#[derive(Default)]
pub(crate) struct Regions {
    slots: Vec<Option<Region>>,
    free: Vec<u32>,
    /// The bytes of logical addresses.
    pub(crate) lams: Lams,
}

impl Regions {
    pub(crate) fn insert(&mut self, mapping: Mapping) -> RegionId {
        self.insert_region(Region::Mapped(mapping))
    }

    pub(crate) fn insert_inline(&mut self, slots: Arc<InlineSlots>) -> RegionId {
        self.insert_region(Region::Inline(slots))
    }

    /// Names every list of a fast-register region.
    pub(crate) fn insert_lists(&mut self, lists: &Arc<PageLists>) -> [RegionId; PAGE_LISTS] {
        core::array::from_fn(|index| {
            let lists = Arc::clone(lists);
            self.insert_region(Region::Pages { lists, index, orphan: false })
        })
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

    /// Forgets a region; a list that is in use is forgotten when its mapping has ended.
    pub(crate) fn remove(&mut self, region: RegionId) {
        let Some(slot) = self.slots.get_mut(region.0 as usize) else { return };
        if let Some(Region::Pages { lists, index, orphan }) = slot
            && !lists.is_free(*index)
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
        let slot = self.slots.get(region.0 as usize).and_then(Option::as_ref);
        if let Some(&Region::Pages { ref lists, index, orphan }) = slot {
            lists.give_back(index);
            if orphan {
                self.remove(region);
            }
        }
    }

    fn pieces(
        &self,
        region: RegionId,
        offset: u64,
        len: usize,
        each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        if region == LOGICAL {
            return self.lams.pieces(offset, len, each);
        }
        match self.slots.get(region.0 as usize).and_then(Option::as_ref).ok_or(Fault)? {
            Region::Mapped(mapping) => mapping.pieces(offset, len, each),
            Region::Inline(slots) => slots.pieces(offset, len, each),
            Region::Pages { lists, index, .. } => {
                page_pieces(&lists.lists[*index], &self.lams, offset, len, each)
            }
        }
    }
}

/// The pieces of a range of a page list, page by page. The transport has checked the range.
fn page_pieces(
    list: &[AtomicU64],
    lams: &Lams,
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

impl Memory for Regions {
    fn read(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.pieces(region, offset, out.len(), |address, at, len| {
            // SAFETY: the piece lies inside memory that lives until it is removed here, and `out` is
            // memory of ours. The consumer may write these bytes meanwhile, as with any DMA: what is
            // read then is unspecified, and nothing else depends on it.
            unsafe { core::ptr::copy(address, out[at..at + len].as_mut_ptr(), len) };
        })
    }

    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.pieces(region, offset, data.len(), |address, at, len| {
            // SAFETY: as for `read`.
            unsafe { core::ptr::copy(data[at..at + len].as_ptr(), address, len) };
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;

    /// A mapping of one piece after the other.
    pub(crate) fn mapping(buffers: &mut [Vec<u8>]) -> Mapping {
        let mut start = 0;
        let pieces = buffers
            .iter_mut()
            .map(|buffer| {
                let piece = Piece {
                    start,
                    address: NonNull::new(buffer.as_mut_ptr()).unwrap(),
                    len: buffer.len(),
                };
                start += buffer.len() as u64;
                piece
            })
            .collect();
        Mapping { pieces, len: start, mapped: Vec::new() }
    }

    fn page(address: i64) -> NDK_LOGICAL_ADDRESS {
        NDK_LOGICAL_ADDRESS { QuadPart: address }
    }

    #[test]
    fn page_lists_are_taken_and_come_back() {
        let mut regions = Regions::default();
        let lists = Arc::new(PageLists::new(2).unwrap());
        let names = regions.insert_lists(&lists);
        assert_eq!(lists.max_pages(), 2);
        let taken: Vec<usize> = core::iter::from_fn(|| lists.take(&[page(4096)])).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        regions.release(names[2]);
        assert_eq!(lists.take(&[page(8192), page(0)]), Some(2));
        assert_eq!(lists.take(&[]), None);
        // Pages of no mapping are never touched.
        assert_eq!(regions.read(names[2], 0, &mut [0]), Err(Fault));
        assert_eq!(regions.write(names[2], 8192, &[0]), Err(Fault));
    }

    #[test]
    fn a_list_in_use_outlives_its_region_and_its_place_comes_back() {
        let mut regions = Regions::default();
        let lists = Arc::new(PageLists::new(1).unwrap());
        let names = regions.insert_lists(&lists);
        assert!(regions.free.capacity() >= regions.slots.len(), "a place comes back for nothing");
        assert_eq!(lists.take(&[page(0)]), Some(0));
        names.into_iter().for_each(|name| regions.remove(name));
        assert_eq!(regions.free.len(), PAGE_LISTS - 1);
        regions.release(names[0]);
        assert_eq!(regions.free.len(), PAGE_LISTS);
        // What is told twice, or of others, changes nothing.
        regions.release(names[0]);
        regions.remove(names[0]);
        regions.release(LOGICAL);
        assert_eq!(regions.free.len(), PAGE_LISTS);
    }

    #[test]
    fn inline_data_lies_in_its_slot() {
        let slots = Arc::new(InlineSlots::new(3, 8).unwrap());
        let mut regions = Regions::default();
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
        let mut regions = Regions::default();
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
        let mut regions = Regions::default();
        let region = regions.insert(mapping(&mut buffers));
        for (offset, len) in [(0, 5), (4, 1), (5, 0), (u64::MAX, 1)] {
            assert_eq!(regions.write(region, offset, &vec![0; len]), Err(Fault), "{offset}+{len}");
        }
        regions.remove(region);
        assert_eq!(regions.write(region, 0, &[1]), Err(Fault));
        assert_eq!(buffers, [vec![7; 4]]);
    }
}
