//! The kernel's pool as the allocator, and a panic as a bug check.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::panic::PanicInfo;

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    /// IRQL <= DISPATCH_LEVEL.
    fn ExAllocatePoolWithTag(pool: i32, bytes: usize, tag: u32) -> *mut c_void;
    /// IRQL <= DISPATCH_LEVEL.
    fn ExFreePoolWithTag(block: *mut c_void, tag: u32);
    /// Any IRQL.
    fn KeBugCheckEx(code: u32, first: usize, second: usize, third: usize, fourth: usize) -> !;
}

/// `NonPagedPoolNx`.
const NON_PAGED_POOL_NX: i32 = 512;
/// The tag that pool tools show: "NdkC".
const TAG: u32 = u32::from_le_bytes(*b"NdkC");
/// The alignment of every block.
const POOL_ALIGN: usize = 16;
/// `MANUALLY_INITIATED_CRASH1`.
const CRASH: u32 = 0xDEAD_DEAD;

struct Pool;

#[global_allocator]
static POOL: Pool = Pool;

// SAFETY: blocks are disjoint, aligned as asked, and live until they are freed.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Rings want their indices on cache lines of their own. The block's address stands below such a place.
        let more = if layout.align() > POOL_ALIGN { layout.align() } else { 0 };
        let Some(bytes) = layout.size().checked_add(more) else { return core::ptr::null_mut() };
        // SAFETY: any size may be asked for.
        let block = unsafe { ExAllocatePoolWithTag(NON_PAGED_POOL_NX, bytes, TAG) }.cast::<u8>();
        if more == 0 || block.is_null() {
            return block;
        }
        let place = block.wrapping_add(more - block.addr() % more);
        // SAFETY: at least 16 bytes of the block lie below the place.
        unsafe { place.cast::<*mut u8>().wrapping_sub(1).write(block) };
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let block = if layout.align() > POOL_ALIGN {
            // SAFETY: `alloc` left the block's address there.
            unsafe { place.cast::<*mut u8>().wrapping_sub(1).read() }
        } else {
            place
        };
        // SAFETY: a block of the pool with this tag.
        unsafe { ExFreePoolWithTag(block.cast(), TAG) };
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let line = info.location().map_or(0, |at| at.line());
    // SAFETY: never returns.
    unsafe { KeBugCheckEx(CRASH, TAG as usize, line as usize, 0, 0) }
}
