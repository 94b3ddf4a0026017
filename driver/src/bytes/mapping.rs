//! The bytes of an MDL chain.
#![allow(unsafe_code, reason = "the bytes belong to consumers, who name them by pointers")]

use crate::abi::*;
use crate::platform::{Mapped, Platform};
use alloc::vec::Vec;
use core::ptr::NonNull;
use rocev2::env::Fault;

/// The MDLs of a consumer's buffer.
#[derive(Clone, Copy)]
pub(crate) struct MdlChain<'a>(Option<&'a MDL>);

impl<'a> MdlChain<'a> {
    /// # Safety
    /// `mdl` is null or a chain of valid MDLs, whose pages stay locked while a mapping of them lives.
    pub(crate) unsafe fn new(mdl: *const MDL) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { mdl.as_ref() })
    }

    /// The first; `None` of a null pointer.
    pub(crate) const fn first(self) -> Option<&'a MDL> {
        self.0
    }

    fn iter(self) -> impl Iterator<Item = &'a MDL> {
        // SAFETY: by `new`; null ends the chain.
        core::iter::successors(self.0, |mdl| unsafe { mdl.Next.as_ref() })
    }

    /// The MDLs that hold the first `len` bytes, or all where they are too few.
    pub(crate) fn count(self, len: usize) -> usize {
        let (mut count, mut reached) = (0, 0_usize);
        for mdl in self.iter() {
            if reached >= len {
                break;
            }
            count += 1;
            reached = reached.saturating_add(byte_count(mdl));
        }
        count
    }
}

/// The bytes of an MDL, read once.
fn byte_count(mdl: &MDL) -> usize {
    // SAFETY: a field of a valid MDL.
    unsafe { (&raw const mdl.ByteCount).read_volatile() as usize }
}

/// Where the bytes of a registration are, in order.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// The first byte, and the bytes from there on if they are one piece; else 0.
    whole: (NonNull<u8>, u64),
    pieces: Vec<Piece>,
    len: u64,
    /// The mappings of the pieces, until the region is gone.
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
// SAFETY: a shared mapping gives addresses only, and is undone by its last owner.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The memory that [`Self::new`] allocates for so many MDLs, at most: two lists, and the headers of their blocks.
    pub(crate) fn bytes(count: usize) -> usize {
        2 * (4 + count) * (size_of::<Piece>() + size_of::<Mapped>())
    }

    /// Maps the first `len` bytes of an MDL chain, of which so many MDLs hold them.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: the MDLs hold less than `len`, or are not virtually contiguous.
    /// `STATUS_INSUFFICIENT_RESOURCES`: no mapping could be made.
    pub(crate) fn new(
        chain: MdlChain<'_>,
        count: usize,
        len: usize,
        platform: &dyn Platform,
    ) -> Result<Self, NTSTATUS> {
        let whole = (NonNull::dangling(), 0);
        let mut mapping = Self { whole, pieces: Vec::new(), len: 0, mapped: Vec::new() };
        let reserved = mapping.pieces.try_reserve_exact(count);
        reserved.map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        let reserved = mapping.mapped.try_reserve_exact(count);
        reserved.map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        // No more than were counted, though the chain be longer by now: there is memory for so many.
        let (mut chain, mut expected) = (chain.iter().take(count), None);
        while mapping.len < len as u64 {
            let mdl = chain.next().ok_or(STATUS_INVALID_PARAMETER)?;
            let (va, bytes) = (mdl.virtual_address().addr(), byte_count(mdl));
            if expected.is_some_and(|expected| expected != va) {
                return Err(STATUS_INVALID_PARAMETER);
            }
            let mapped = platform.map(mdl).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
            let address = mapped.address();
            let piece_len = bytes.min(len - mapping.len as usize);
            mapping.pieces.push(Piece { start: mapping.len, address, len: piece_len });
            mapping.mapped.push(mapped);
            mapping.len += piece_len as u64;
            expected = Some(va.wrapping_add(bytes));
        }
        mapping.find_whole();
        Ok(mapping)
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    fn find_whole(&mut self) {
        if let [piece] = self.pieces.as_slice() {
            self.whole = (piece.address, self.len);
        }
    }

    /// The address of `offset .. offset + len`, if the mapping has that range, and is one piece.
    #[inline(always)]
    pub(crate) fn piece(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let (address, whole) = self.whole;
        let inside = offset < whole && len as u64 <= whole - offset;
        inside.then(|| address.as_ptr().wrapping_add(offset as usize))
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
        let whole = (NonNull::dangling(), 0);
        let mut mapping = Mapping { whole, pieces, len: start, mapped: Vec::new() };
        mapping.find_whole();
        mapping
    }

    /// One piece gives every range inside it and no other; several give none.
    #[test]
    fn one_piece_gives_the_ranges_inside_it() {
        let mut buffers = [vec![0; 3], vec![0; 2]];
        let start = buffers[0].as_mut_ptr();
        let one = mapping(&mut buffers[..1]);
        for (offset, len) in (0..5).flat_map(|offset| (0..5).map(move |len| (offset, len))) {
            let inside = offset < 3 && offset + len <= 3;
            let address = inside.then(|| start.wrapping_add(offset));
            assert_eq!(one.piece(offset as u64, len), address, "{len} bytes from {offset} on");
        }
        assert_eq!((one.piece(u64::MAX, 1), one.piece(1, usize::MAX)), (None, None));
        assert_eq!(mapping(&mut buffers).piece(0, 1), None);
    }

    /// A platform in whose process all memory is mapped.
    struct Process;

    impl Platform for Process {
        fn now(&self) -> rocev2::env::Instant {
            rocev2::env::Instant::default()
        }

        fn map(&self, mdl: &MDL) -> Option<Mapped> {
            NonNull::new(mdl.MappedSystemVa.cast()).map(Mapped::borrowed)
        }
    }

    fn mdl(bytes: &mut [u8], next: *mut MDL) -> MDL {
        let start: *mut u8 = bytes.as_mut_ptr();
        let offset = start.addr() % PAGE_SIZE;
        MDL {
            Next: next,
            Size: size_of::<MDL>() as i16,
            MdlFlags: MDL_MAPPED_TO_SYSTEM_VA,
            Process: core::ptr::null_mut(),
            MappedSystemVa: start.cast(),
            StartVa: start.wrapping_sub(offset).cast(),
            ByteCount: bytes.len() as ULONG,
            ByteOffset: offset as ULONG,
        }
    }

    /// A chain that becomes longer after it was counted is mapped no further: there is memory for so many pieces.
    #[test]
    fn a_chain_is_mapped_as_far_as_it_was_counted() {
        let mut bytes = [0; 24];
        let (first, rest) = bytes.split_at_mut(8);
        let (second, third) = rest.split_at_mut(8);
        let mut third = mdl(third, core::ptr::null_mut());
        let mut second = mdl(second, &raw mut third);
        let first = mdl(first, &raw mut second);
        // SAFETY: three MDLs over memory of this test.
        let chain = unsafe { MdlChain::new(&raw const first) };
        assert_eq!([0, 8, 9, 24, 25].map(|len| chain.count(len)), [0, 1, 2, 3, 3]);
        let mapped = |count, len| {
            let mapping = Mapping::new(chain, count, len, &Process)?;
            Ok((mapping.len(), mapping.pieces.len(), mapping.pieces.capacity()))
        };
        assert_eq!(mapped(2, 16), Ok((16, 2, 2)));
        assert_eq!(mapped(3, 17), Ok((17, 3, 3)));
        assert_eq!(mapped(1, 16), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(mapped(3, 25), Err(STATUS_INVALID_PARAMETER));
    }
}
