//! An allocator that counts: what this thread asks for and holds, and what all threads ask for. It refuses what a test has
//! it refuse ([`pool`]). A test target makes it its own:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: tests::alloc::Counting = tests::alloc::Counting;
//! ```
#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

pub mod pool;

/// The system's allocator, and counters.
pub struct Counting;

static ALL: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Made without an allocation and never dropped: the allocator itself uses them.
    static MADE: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// Allocations of all threads so far.
pub fn all() -> usize {
    ALL.load(Ordering::SeqCst)
}

/// Bytes that all threads together have allocated and not freed.
pub fn bytes() -> usize {
    BYTES.load(Ordering::SeqCst)
}

/// Allocations of this thread so far.
pub fn made() -> usize {
    MADE.get()
}

/// Bytes that this thread has allocated and not freed. What other threads free of it stays counted.
pub fn held() -> isize {
    HELD.get()
}

fn count(allocations: usize, bytes: isize) {
    ALL.fetch_add(allocations, Ordering::Relaxed);
    BYTES.fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
    MADE.set(MADE.get() + allocations);
    HELD.set(HELD.get() + bytes);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !pool::grants(layout.size()) {
            return std::ptr::null_mut();
        }
        count(1, layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // A kernel's pool has no such call: it is a new block.
        if !pool::grants(len) {
            return std::ptr::null_mut();
        }
        count(1, len.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, len) }
    }
}
