//! One `NET_RING`, as the client driver works on it.
//!
//! The driver owns the elements from `BeginIndex` up to, not including, `EndIndex`. The system moves
//! `EndIndex`; the driver moves `BeginIndex`, and so gives elements back: it drains them. `NextIndex` lies between
//! them and is the driver's own: the elements before it are posted to the hardware, those from it on are not
//! ([introduction](https://learn.microsoft.com/windows-hardware/drivers/netcx/introduction-to-net-rings)).
//! One call of the system at a time touches a ring, so its indices are plain numbers.

use super::abi::{NET_FRAGMENT, NET_PACKET, NET_RING};
use core::marker::PhantomData;
use core::ptr::NonNull;

/// A ring of elements `T`.
#[derive(Debug)]
pub(super) struct Ring<T> {
    ring: NonNull<NET_RING>,
    elements: PhantomData<*mut T>,
}

/// An element type of a ring.
///
/// # Safety
/// Any bits are a value.
pub(super) unsafe trait Element: Copy {}

// SAFETY: numbers.
unsafe impl Element for NET_PACKET {}
// SAFETY: a number.
unsafe impl Element for NET_FRAGMENT {}

impl<T: Element> Ring<T> {
    /// # Safety
    /// The ring holds elements that begin with a `T`, and lives as long as this. Nothing else touches the
    /// driver's share of it during a method.
    pub(super) unsafe fn new(ring: NonNull<NET_RING>) -> Self {
        Self { ring, elements: PhantomData }
    }

    /// Elements in all: a power of two.
    pub(super) fn size(&self) -> u32 {
        // SAFETY: the ring lives.
        unsafe { (*self.ring.as_ptr()).NumberOfElements }
    }

    /// First element of the driver's share.
    pub(super) fn begin(&self) -> u32 {
        // SAFETY: the ring lives.
        unsafe { (*self.ring.as_ptr()).BeginIndex }
    }

    /// First element of the driver's share that is not posted.
    pub(super) fn next(&self) -> u32 {
        // SAFETY: the ring lives.
        unsafe { (*self.ring.as_ptr()).NextIndex }
    }

    /// First element behind the driver's share.
    pub(super) fn end(&self) -> u32 {
        // SAFETY: the ring lives.
        unsafe { (*self.ring.as_ptr()).EndIndex }
    }

    /// Gives the elements before `index` back to the system.
    pub(super) fn set_begin(&mut self, index: u32) {
        // SAFETY: the ring lives, and the member is the driver's.
        unsafe { (*self.ring.as_ptr()).BeginIndex = index };
    }

    /// Notes that the elements before `index` are posted.
    pub(super) fn set_next(&mut self, index: u32) {
        // SAFETY: the ring lives, and the member is the driver's.
        unsafe { (*self.ring.as_ptr()).NextIndex = index };
    }

    /// `NetRingAdvanceIndex`: the index `by` elements further.
    pub(super) fn advance(&self, index: u32, by: u32) -> u32 {
        index.wrapping_add(by) & (self.size() - 1)
    }

    /// `NetRingGetRangeCount`: elements from `from` up to `to`.
    pub(super) fn count(&self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & (self.size() - 1)
    }

    /// The element at `index` of the driver's share.
    pub(super) fn get(&self, index: u32) -> T {
        // SAFETY: the element lies in the ring, and no other writes it.
        unsafe { self.element(index).read() }
    }

    /// Writes the element at `index` of the driver's share.
    pub(super) fn set(&mut self, index: u32, element: T) {
        // SAFETY: the element lies in the ring, and is the driver's.
        unsafe { self.element(index).write(element) };
    }

    /// `NetRingGetElementAtIndex`.
    fn element(&self, index: u32) -> *mut T {
        assert!(index < self.size(), "an index of this ring");
        // SAFETY: the ring lives.
        let stride = unsafe { (*self.ring.as_ptr()).ElementStride };
        let first = self.ring.as_ptr().wrapping_add(1).cast::<T>();
        first.wrapping_byte_add(usize::from(stride) * index as usize)
    }
}
