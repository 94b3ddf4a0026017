//! Non-paged pool as the allocator of the image.
//!
//! The pool aligns to 16 bytes, and rings need 128. A layout with a larger alignment gets a block with room
//! to move up; the block's own address stands right below the address that the caller gets.
#![allow(unsafe_code, reason = "the allocator's interface is made of raw blocks")]

use super::reserve;
use super::text::{counted, utf16};
use crate::abi::imports::{ExAllocatePoolWithTag, ExFreePoolWithTag, MmGetSystemRoutineAddress};
use crate::abi::*;
use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Non-paged pool. IRQL <= DISPATCH_LEVEL.
pub(crate) struct Pool;

#[cfg(not(test))]
#[global_allocator]
static POOL: Pool = Pool;

/// `ExAllocatePool2`, where the system has it (Windows 10 2004 and later).
static ALLOCATE_POOL2: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Several poll cores have begun.
static OWN_LINES: AtomicBool = AtomicBool::new(false);

type AllocatePool2 = unsafe extern "system" fn(flags: u64, bytes: usize, tag: ULONG) -> PVOID;

/// Looks up the newer function. Called once, before the first allocation. PASSIVE_LEVEL.
pub(crate) fn init() {
    let name: [u16; 15] = utf16("ExAllocatePool2");
    let mut name = counted(&name);
    // SAFETY: the string lives during the call.
    let routine = unsafe { MmGetSystemRoutineAddress(&mut name) };
    ALLOCATE_POOL2.store(routine, Ordering::Relaxed);
}

// SAFETY: blocks are disjoint, aligned as asked, and live until they are freed.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = aligned(layout);
        if block.is_null() { reserve::allocate(layout) } else { block }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if reserve::deallocate(address) {
            return;
        }
        let block = if layout.align() <= POOL_ALIGN {
            address
        } else {
            // SAFETY: `aligned` left the block's address there.
            unsafe { address.cast::<*mut u8>().wrapping_sub(1).read() }
        };
        // SAFETY: a block of the pool.
        unsafe { free(block) };
    }
}

/// A block of the pool with any alignment; null where the pool is exhausted.
fn aligned(layout: Layout) -> *mut u8 {
    if layout.align() <= POOL_ALIGN {
        return allocate(layout.size());
    }
    let Some(size) = layout.size().checked_add(layout.align()) else { return null_mut() };
    let block = allocate(size);
    if block.is_null() {
        return block;
    }
    // The block is aligned to 16, so there are at least 16 bytes below the next multiple.
    let address = block.wrapping_add(layout.align() - block.addr() % layout.align());
    // SAFETY: the word below `address` lies inside the block, which is aligned for it.
    unsafe { address.cast::<*mut u8>().wrapping_sub(1).write(block) };
    address
}

/// Frees a block.
///
/// # Safety
/// `block` came from [`allocate`] and is not used any more.
pub(super) unsafe fn free(block: *mut u8) {
    // SAFETY: a block of the pool with this tag.
    unsafe { ExFreePoolWithTag(block.cast(), TAG) };
}

/// From here on each block has lines of memory of its own: several poll cores are to share none. IRQL <= DISPATCH_LEVEL.
pub(crate) fn own_lines() {
    OWN_LINES.store(true, Ordering::Relaxed);
}

/// A block of the pool; null where it is exhausted. IRQL <= DISPATCH_LEVEL.
pub(super) fn allocate(bytes: usize) -> *mut u8 {
    let own_lines = OWN_LINES.load(Ordering::Relaxed);
    let (kind, flag, unit) = match own_lines {
        true => (NonPagedPoolNxCacheAligned, POOL_FLAG_CACHE_ALIGNED, LINE),
        false => (NonPagedPoolNx, 0, 1),
    };
    // No layout comes near the largest number.
    let bytes = bytes.next_multiple_of(unit);
    let pool2 = ALLOCATE_POOL2.load(Ordering::Relaxed);
    if pool2.is_null() {
        // SAFETY: any size and type may be asked for.
        return unsafe { ExAllocatePoolWithTag(kind, bytes, TAG) }.cast();
    }
    // SAFETY: the system's function has this signature.
    let pool2 = unsafe { core::mem::transmute::<PVOID, AllocatePool2>(pool2) };
    // SAFETY: any size may be asked for.
    unsafe { pool2(POOL_FLAG_NON_PAGED | POOL_FLAG_UNINITIALIZED | flag, bytes, TAG) }.cast()
}

/// The alignment of every block of the pool.
const POOL_ALIGN: usize = 16;
/// Bytes of a line of memory.
const LINE: usize = 64;
/// The tag that pool tools show: "NdkR".
pub(crate) const TAG: ULONG = u32::from_le_bytes(*b"NdkR");
