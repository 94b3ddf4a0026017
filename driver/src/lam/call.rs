//! Logical address mappings for their consumer: building, releasing.

use super::shared::Lam;
use crate::abi::*;
use crate::adapter::shared::AdapterObject;
use crate::bytes::mapping::{Mapping, MdlChain};
use crate::object::entry::{Buffer, Out, Room, entry};
use crate::platform::with_memory;
use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::{null_mut, without_provenance_mut};

entry! {
    /// [`NDK_FN_BUILD_LAM`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_build_lam):
    /// maps the first `length` bytes of an MDL chain. IRQL <= DISPATCH_LEVEL.
    ///
    /// Ends inline: `STATUS_SUCCESS` with the mapping, its size and the offset of the first byte stored;
    /// `STATUS_BUFFER_TOO_SMALL` with the size that is needed, also for a null mapping;
    /// `STATUS_INVALID_PARAMETER` for a chain that is shorter than `length` or not virtually contiguous,
    /// for a length of 0 and for a null argument that must not be;
    /// `STATUS_INSUFFICIENT_RESOURCES` where the provider has no place or the system no mapping. The chain stays locked
    /// until the mapping is released.
    pub(crate) fn ndk_build_lam(
        adapter: &AdapterObject,
        chain: MdlChain<'_> = MdlChain::new(mdl: *mut MDL),
        length: SIZE_T,
        _completion: Option<NDK_FN_REQUEST_COMPLETION>,
        _context: PVOID,
        lam: Buffer<'_> = Buffer::new(lam: *mut NDK_LOGICAL_ADDRESS_MAPPING, size: *mut ULONG),
        fbo: Out<'_, ULONG> = Out::new(fbo: *mut ULONG),
    ) -> NTSTATUS {
        let first = chain.first().ok_or(STATUS_INVALID_PARAMETER)?;
        lam.len()?;
        if fbo.is_null() || length == 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let offset = (first.virtual_address().addr() % PAGE_SIZE) as u32;
        let (pages, needed) = extent(offset, length).ok_or(STATUS_INVALID_PARAMETER)?;
        let room = lam.room(needed)?;
        let shard = &adapter.base.shard;
        let platform = &*shard.platform;
        let count = chain.count(length);
        let bytes = Mapping::bytes(count) + 2 * size_of::<Lam>();
        let build = || {
            let mapping = Mapping::new(chain, count, length, platform)?;
            let address = shard.lams.build(adapter.base.id, offset, pages, mapping);
            address.ok_or(STATUS_INSUFFICIENT_RESOURCES)
        };
        let built = with_memory(platform, bytes, build);
        fill(&room, built.unwrap_or(Err(STATUS_INSUFFICIENT_RESOURCES))?, pages);
        fbo.set(offset);
        Ok(STATUS_SUCCESS)
    }
}

/// Pages over `length` bytes from `offset` of the first one, and bytes of a mapping that lists them.
/// `None`: more than the interface can tell.
fn extent(offset: u32, length: usize) -> Option<(u32, ULONG)> {
    let pages = length.checked_add(offset as usize)?.div_ceil(PAGE_SIZE);
    let needed = pages.checked_mul(size_of::<NDK_LOGICAL_ADDRESS>())?;
    let needed = needed.checked_add(NDK_LOGICAL_ADDRESS_MAPPING::size_for(0))?;
    Some((pages.try_into().ok()?, needed.try_into().ok()?))
}

/// Stores a mapping of `pages` pages, the first of which is at `address`.
fn fill(room: &Room<'_>, address: u64, pages: u32) {
    // The address again, not a pointer: what comes back with a release is only looked up.
    let context: PVOID = without_provenance_mut(address as usize);
    room.put(offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterContext), &context);
    room.put(offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageCount), &pages);
    for page in 0..pages as usize {
        let address = (address + (page * PAGE_SIZE) as u64).cast_signed();
        let at = NDK_LOGICAL_ADDRESS_MAPPING::size_for(page);
        room.put(at, &NDK_LOGICAL_ADDRESS { QuadPart: address });
    }
}

/// Where a mapping keeps what [`fill`] put there.
///
/// # Safety
/// `lam` is null or was filled by [`ndk_build_lam`], and is writable for `'a`.
#[allow(unsafe_code, reason = "the mapping is the consumer's memory")]
unsafe fn context_of<'a>(lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) -> Option<&'a Cell<PVOID>> {
    let place = lam.cast::<Cell<PVOID>>();
    // SAFETY: the caller's promise; the context is the first member.
    unsafe { place.as_ref() }
}

entry! {
    /// [`NDK_FN_RELEASE_LAM`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_release_lam):
    /// ends a mapping. IRQL <= DISPATCH_LEVEL.
    ///
    /// No request that is posted after this call can use it. The consumer promises that none is
    /// outstanding; one that is all the same may still reach the pages until the core has looked, as
    /// with any DMA. A second release of the same mapping does nothing.
    pub(crate) fn ndk_release_lam(
        adapter: &AdapterObject,
        place: Option<&Cell<PVOID>> = context_of(lam: *mut NDK_LOGICAL_ADDRESS_MAPPING),
    ) {
        let context = place.map_or(null_mut(), |place| place.replace(null_mut()));
        if !context.is_null() {
            let shard = &adapter.base.shard;
            shard.platform.undisturbed(&mut || shard.lams.release(context.addr() as u64));
            shard.wake_all();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_counts_the_pages_that_are_touched() {
        assert_eq!(extent(0, 1), Some((1, 24)));
        assert_eq!(extent(4095, 2), Some((2, 32)));
        assert_eq!(extent(0, 8192), Some((2, 32)));
        assert_eq!(extent(1, usize::MAX), None);
        assert_eq!(extent(0, 1 << 42), None);
    }
}
