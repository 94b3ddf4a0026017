//! The services of the system that a flight needs.
#![allow(unsafe_code, reason = "hands out raw memory")]

use ndk_abi::MDL;

/// A kernel, or a process that stands in for one. All of it is called at PASSIVE_LEVEL but for [`Machine::ring`].
///
/// # Safety
/// Memory and MDLs are valid until they are freed.
pub unsafe trait Machine: Sync {
    /// Takes so many bytes that cannot be paged out: zeros, aligned to 16 bytes, and to a page from a page on. NULL if there are
    /// none.
    fn allocate(&self, bytes: usize) -> *mut u8;

    /// # Safety
    /// `start` came from [`Machine::allocate`] with this length, and nothing uses it any more.
    unsafe fn free(&self, start: *mut u8, bytes: usize);

    /// Describes memory of [`Machine::allocate`]. NULL if there is no memory for it.
    fn describe(&self, start: *mut u8, len: u32) -> *mut MDL;

    /// # Safety
    /// `mdl` came from [`Machine::describe`], and nothing uses it any more.
    unsafe fn forget(&self, mdl: *mut MDL);

    /// Nanoseconds since any moment. It never goes back.
    fn now_ns(&self) -> u64;

    /// Ends the wait of [`Machine::wait`], or the next one. IRQL <= DISPATCH_LEVEL.
    fn ring(&self);

    /// Waits for [`Machine::ring`], `limit_ns` nanoseconds at most. It may end early.
    fn wait(&self, limit_ns: u64);

    /// Tells the verdict of the step with this number, counted from 0.
    fn tell(&self, step: usize, verdict: &str);

    /// Whether the flight is to end before its next step.
    fn is_ending(&self) -> bool;
}
