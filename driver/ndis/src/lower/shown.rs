//! Frames that TCP/IP is shown: copies in buffers of the adapter.
//!
//! A NIC cannot pause, sleep or go before it has all its lists back, and TCP/IP keeps what it is shown for as long as it likes, such as
//! the first fragments of a datagram whose rest does not come. So it is lent nothing of a NIC.
#![allow(unsafe_code, reason = "fills net buffers of NDIS")]

use super::lists::{List, ListPool};
use crate::abi::*;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::null_mut;
use crossbeam_queue::ArrayQueue;
use netadapter_glue::ndis::chain::{Frame, MapMdl};

/// The copies that an adapter has; those that TCP/IP does not have at present are free.
pub(crate) struct ShownFrames {
    free: ArrayQueue<*mut NET_BUFFER_LIST>,
    /// Bytes of a buffer.
    room: usize,
    /// The memory that the lists lie over; they are freed before.
    bytes: Vec<u8>,
    pool: ListPool,
}

// SAFETY: a free list is nobody's; the queue hands it to one thread.
unsafe impl Send for ShownFrames {}
// SAFETY: as above.
unsafe impl Sync for ShownFrames {}

impl ShownFrames {
    /// For frames of `room` bytes at most. PASSIVE_LEVEL. On a stack of its own, as for all that a start makes.
    #[inline(never)]
    pub(crate) fn new(adapter: NDIS_HANDLE, room: usize) -> Result<Box<Self>, NDIS_STATUS> {
        let pool = ListPool::new(adapter)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(FRAMES * room).map_err(|_| NDIS_STATUS_RESOURCES)?;
        bytes.resize(FRAMES * room, 0);
        let shown = Box::new(Self { free: ArrayQueue::new(FRAMES), room, bytes, pool });
        let first = shown.bytes.as_ptr().cast_mut();
        for number in 0..FRAMES {
            let list = shown.pool.allocate(first.wrapping_add(number * room), room);
            if list.is_null() {
                return Err(NDIS_STATUS_RESOURCES);
            }
            // SAFETY: a new list, which is nobody else's.
            shown.give_back(unsafe { List::of(list) });
        }
        Ok(shown)
    }

    /// Bytes of memory for frames of `room` bytes.
    pub(crate) const fn bytes(room: usize) -> usize {
        FRAMES * (room + size_of::<[usize; 2]>())
    }

    /// A copy of a frame. `None`: TCP/IP has all of them, or the frame has no room, or no address. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn copy_of(&self, frame: Frame, map: MapMdl<'_>) -> Option<List> {
        if frame.len() > self.room {
            return None;
        }
        // SAFETY: a free list is nobody's.
        let mut list = unsafe { List::of(self.free.pop()?) };
        // SAFETY: a list of `new`, which is ours as it was free.
        let nb = unsafe { &mut *list.FirstNetBuffer };
        // SAFETY: it has one MDL, over a buffer of `room` bytes in non-paged pool.
        let start = unsafe { &*nb.MdlChain }.system_address().unwrap_or(null_mut());
        // SAFETY: as above.
        let buffer = unsafe { core::slice::from_raw_parts_mut(start, frame.len()) };
        // SAFETY: the frame's list is ours during the call that brings it.
        if unsafe { frame.copy_to(buffer, map) } < frame.len() {
            self.give_back(list);
            return None;
        }
        // The last holder may have moved these.
        nb.CurrentMdl = nb.MdlChain;
        nb.CurrentMdlOffset = 0;
        nb.DataOffset = 0;
        nb.DataLength = frame.len();
        list.NblFlags = 0;
        list.Status = NDIS_STATUS_SUCCESS.0;
        list.NetBufferListInfo.fill(null_mut());
        Some(list)
    }

    /// The number of those that TCP/IP has. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn out(&self) -> usize {
        FRAMES - self.free.len()
    }

    /// Takes a copy back. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn give_back(&self, list: List) {
        let full = self.free.push(list.as_ptr());
        debug_assert!(full.is_ok(), "there are no more lists than places");
    }
}

impl Drop for ShownFrames {
    fn drop(&mut self) {
        while let Some(list) = self.free.pop() {
            ListPool::free(list);
        }
    }
}

/// Frames that TCP/IP may keep at a time; what comes beyond is dropped, as by a NIC without buffers.
const FRAMES: usize = 512;
