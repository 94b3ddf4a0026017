//! The inline data of posts.
#![allow(unsafe_code, reason = "the bytes belong to consumers, who name them by pointers")]

use crate::abi::*;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use rocev2::env::Fault;

/// Room for the inline data of every request that a QP's initiator queue holds.
#[derive(Debug)]
pub(crate) struct InlineSlots {
    bytes: Box<[UnsafeCell<u8>]>,
    slot_len: usize,
}

// SAFETY: a slot is written by the post that holds it, before its request is in the ring, and read
// by the core until the request has ended; only then another post can hold it.
unsafe impl Sync for InlineSlots {}

impl InlineSlots {
    /// `count` slots of `slot_len` bytes. `None`: no memory.
    pub(crate) fn new(count: usize, slot_len: usize) -> Option<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count.checked_mul(slot_len)?).ok()?;
        bytes.resize_with(count * slot_len, UnsafeCell::default);
        Some(Self { bytes: bytes.into_boxed_slice(), slot_len })
    }

    /// Distance of a slot's first byte from the start of the region.
    pub(crate) const fn offset(&self, slot: usize) -> u64 {
        (slot * self.slot_len) as u64
    }

    /// Copies the elements into a slot, and returns the bytes that they had; `None`: they are longer than it, in all.
    ///
    /// # Safety
    /// The caller holds the slot; the elements are readable kernel addresses.
    pub(crate) unsafe fn fill(
        &self,
        slot: usize,
        elements: impl Iterator<Item = NDK_SGE>,
    ) -> Option<usize> {
        let begin = slot * self.slot_len;
        let mut room = &self.bytes[begin..begin + self.slot_len];
        for sge in elements.filter(|sge| sge.Length > 0) {
            let (to, rest) = room.split_at_checked(sge.Length as usize)?;
            let from = sge.virtual_address().cast::<u8>().cast_const();
            // SAFETY: the caller holds the slot, which `to` is a part of, and the element is
            // readable for its length.
            unsafe { core::ptr::copy(from, UnsafeCell::raw_get(to.as_ptr()), to.len()) };
            room = rest;
        }
        Some(self.slot_len - room.len())
    }

    pub(super) fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let begin = usize::try_from(offset).map_err(|_| Fault)?;
        let end = begin.checked_add(len).ok_or(Fault)?;
        let bytes = self.bytes.get(begin..end).ok_or(Fault)?;
        each(UnsafeCell::raw_get(bytes.as_ptr()), 0, len);
        Ok(())
    }
}
