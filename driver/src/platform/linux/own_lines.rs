//! An allocator for processes whose poll cores are to share nothing.
#![allow(unsafe_code, reason = "the allocator's interface is made of raw blocks")]

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, of which each block has lines of memory of its own.
///
/// Else a block of one core may share a line with one of another, which then goes to and fro between their processors with each
/// message, in one run and not in the next. A process with several poll cores makes this its own:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: driver::OwnLines = driver::OwnLines;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnLines;

/// Bytes of a line and of the one beside, which a processor may fetch with it.
const LINE: usize = 128;

/// Lines for a block. One that is too large for them is none that the system has.
fn lines(layout: Layout) -> Layout {
    layout.align_to(LINE).map_or(layout, |layout| layout.pad_to_align())
}

// SAFETY: a block has at least the size and the alignment that are asked for, and the same layout is computed when it is freed.
unsafe impl GlobalAlloc for OwnLines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; the layout is as large at least.
        unsafe { System.alloc(lines(layout)) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(lines(layout)) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: a block that was made with this layout.
        unsafe { System.dealloc(address, lines(layout)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn no_two_blocks_share_a_line() {
        let layouts = [(1, 1), (8, 8), (64, 16), (65, 1), (200, 128), (5000, 8)];
        let layouts = layouts.map(|(size, align)| Layout::from_size_align(size, align).unwrap());
        let blocks: Vec<_> = layouts.into_iter().cycle().take(60).enumerate().collect();
        let blocks = blocks.into_iter().map(|(nth, layout)| {
            let block = match nth % 2 {
                // SAFETY: it is of some bytes.
                0 => unsafe { OwnLines.alloc(layout) },
                // SAFETY: it is of some bytes.
                _ => unsafe { OwnLines.alloc_zeroed(layout) },
            };
            assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
            (block, layout)
        });
        let blocks: Vec<_> = blocks.collect();
        let mut of: Vec<_> = blocks
            .iter()
            .map(|(block, layout)| (block.addr() / LINE, (block.addr() + layout.size() - 1) / LINE))
            .collect();
        of.sort_unstable();
        assert!(of.windows(2).all(|pair| pair[0].1 < pair[1].0), "{of:?}");
        for (block, layout) in blocks {
            // SAFETY: made above, with this layout.
            unsafe { OwnLines.dealloc(block, layout) };
        }
    }
}
