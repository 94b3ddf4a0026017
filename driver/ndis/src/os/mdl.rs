//! Mappings of a consumer's MDLs.
//!
//! The caller's MDL is never mapped itself: NDKPI requires it unchanged, and a mapping that it has may end before the
//! region does, as only its pages stay locked. A partial MDL of ours gets a mapping of its own.
#![allow(unsafe_code, reason = "calls the kernel")]

use crate::abi::imports::{
    IoAllocateMdl, IoBuildPartialMdl, IoFreeMdl, MmMapLockedPagesSpecifyCache,
};
use crate::abi::*;
use core::ptr::{NonNull, null_mut};
use driver::platform::Mapped;

/// A mapping of a locked MDL; `None` for lack of page table entries or pool. IRQL <= DISPATCH_LEVEL.
pub(crate) fn map(mdl: &MDL) -> Option<Mapped> {
    // Pool needs none: its address ends with the memory itself.
    if mdl.MdlFlags & MDL_SOURCE_IS_NONPAGED_POOL != 0 {
        return NonNull::new(mdl.MappedSystemVa.cast()).map(Mapped::borrowed);
    }
    let partial = partial(mdl)?;
    let priority = NormalPagePriority | MdlMappingNoExecute;
    // SAFETY: the partial MDL describes locked pages; a kernel mapping raises no exception.
    let address = unsafe {
        MmMapLockedPagesSpecifyCache(partial, KernelMode, MmCached, null_mut(), 0, priority)
    };
    let Some(address) = NonNull::new(address.cast()) else {
        free(partial.cast());
        return None;
    };
    Some(Mapped::owned(address, partial.cast(), free))
}

fn partial(mdl: &MDL) -> Option<*mut MDL> {
    let (address, len) = (mdl.virtual_address(), mdl.ByteCount);
    // SAFETY: only room for the pages is made; the address is an index.
    let partial = unsafe { IoAllocateMdl(address, len, 0, 0, null_mut()) };
    if partial.is_null() {
        return None;
    }
    // SAFETY: the source is locked, and the target has room for the same pages.
    unsafe { IoBuildPartialMdl(mdl, partial, address, len) };
    // It has taken over the address of a mapping that is not ours.
    // SAFETY: just allocated, and nobody else's.
    unsafe { (*partial).MdlFlags &= !MDL_MAPPED_TO_SYSTEM_VA };
    Some(partial)
}

/// Frees a partial MDL, and with it its mapping.
fn free(partial: PVOID) {
    // SAFETY: from `partial`, and nobody else's.
    unsafe { IoFreeMdl(partial.cast()) };
}
