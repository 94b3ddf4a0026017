//! Memory that an adapter may reach.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use driver::abi::PAGE_SIZE;

/// Page-aligned memory, zero at first, which a registration gives to the adapter.
///
/// The adapter reads and writes it at any time, as a device does by DMA, and threads may share it. So there are no
/// references into it, only copies in and out. A copy moves each byte by itself, in no order: of bytes that another thread,
/// or a transfer, writes meanwhile it sees some old and some new ones, and no other. Those of a transfer are all there once
/// the completion that ends it has been seen.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: plain memory, owned.
unsafe impl Send for Buffer {}
// SAFETY: every access is atomic for each byte, see `copy_in`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes.
    ///
    /// # Panics
    /// If there is no such memory.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::try_new(len).expect("there is memory for the buffer")
    }

    /// `len` bytes; `None` where there is no such memory.
    #[must_use]
    pub fn try_new(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), PAGE_SIZE).ok()?.pad_to_align();
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout, len })
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Copies `bytes` in at `offset`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset..offset + bytes.len());
        // SAFETY: the range lies inside, and nobody holds a reference to it.
        unsafe { copy_in(bytes, to) }
    }

    /// Copies out from `offset` until `bytes` is full.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.at(offset..offset + bytes.len());
        // SAFETY: the range lies inside and is initialized.
        unsafe { copy_out(from, bytes) }
    }

    /// The byte at `offset` as it is now, for a thread that polls memory which a peer writes. Copies that come after it see
    /// all that the adapter had written before this byte.
    ///
    /// # Panics
    /// If it does not lie inside.
    #[must_use]
    pub fn load(&self, offset: usize) -> u8 {
        let byte = self.at(offset..offset + 1);
        // SAFETY: the byte lies inside, is initialized, and outlives the call; a byte is never read in parts.
        unsafe { AtomicU8::from_ptr(byte) }.load(Ordering::Acquire)
    }

    /// A copy of `range`.
    ///
    /// # Panics
    /// If it does not lie inside.
    #[must_use]
    pub fn to_vec(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes);
        bytes
    }

    /// The address of `range`, which must lie inside.
    fn at(&self, range: Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        self.as_ptr().wrapping_add(range.start)
    }
}

/// Copies bytes into memory that others may read and write meanwhile: each by itself, as by a relaxed store.
///
/// # Safety
/// `to` is writable for as many bytes, but for such accesses of others.
unsafe fn copy_in(bytes: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        move_bytes(bytes.as_ptr(), to, bytes.len());
    };
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    for (at, &byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { AtomicU8::from_ptr(to.wrapping_add(at)) }.store(byte, Ordering::Relaxed);
    }
}

/// Copies bytes out of such memory: each by itself, as by a relaxed load.
///
/// # Safety
/// `from` is readable for as many bytes, as for [`copy_in`].
unsafe fn copy_out(from: *mut u8, bytes: &mut [u8]) {
    // SAFETY: the caller's promise.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        move_bytes(from, bytes.as_mut_ptr(), bytes.len());
    };
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    for (at, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(at)) }.load(Ordering::Relaxed);
    }
}

/// The processor's own copy of bytes. Rust has none that is atomic for each byte but one byte after the other, which takes
/// 40 times as long; the compiler does not look into this one, and takes no more of it for granted.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; the direction flag is clear.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

impl From<&[u8]> for Buffer {
    /// A copy.
    ///
    /// # Panics
    /// As [`Buffer::new`].
    fn from(bytes: &[u8]) -> Self {
        let buffer = Self::new(bytes.len());
        buffer.write(0, bytes);
        buffer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let buffer = Buffer::new(5000);
        assert_eq!(buffer.as_ptr().addr() % PAGE_SIZE, 0);
        buffer.write(4998, &[1, 2]);
        let mut bytes = [9; 3];
        buffer.read(4997, &mut bytes);
        assert_eq!(bytes, [0, 1, 2]);
        assert_eq!([4997, 4998, 4999].map(|offset| buffer.load(offset)), bytes);
    }

    /// Two threads over the same bytes: each byte is from one of them. Miri and `ThreadSanitizer` look for more.
    #[test]
    fn threads_may_copy_at_once() {
        let (buffer, rounds) = (Buffer::new(70), if cfg!(miri) { 3 } else { 300 });
        std::thread::scope(|scope| {
            for value in [1, 2] {
                let buffer = &buffer;
                scope.spawn(move || (0..rounds).for_each(|_| buffer.write(3, &[value; 60])));
            }
            for _ in 0..rounds {
                assert!(buffer.to_vec(0..70).iter().all(|byte| [0, 1, 2].contains(byte)));
                assert!([0, 1, 2].contains(&buffer.load(30)));
            }
        });
        let bytes = buffer.to_vec(0..70);
        assert!(bytes[3..63].iter().all(|byte| [1, 2].contains(byte)));
        assert_eq!([&bytes[..3], &bytes[63..]].concat(), [0; 10]);
    }

    #[test]
    #[should_panic(expected = "of 10")]
    fn nothing_is_written_past_the_end() {
        Buffer::new(10).write(9, &[0, 0]);
    }
}
