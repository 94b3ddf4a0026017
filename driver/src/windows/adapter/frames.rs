//! Frames of TCP/IP, which pass in both directions as clones.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

use super::{Adapter, MulticastList};
use crate::abi::imports::{
    NdisCopySendNetBufferListInfo, NdisMIndicateReceiveNetBufferLists,
    NdisMSendNetBufferListsComplete,
};
use crate::abi::*;
use crate::frame::{Cast, destination};
use crate::windows::binding::Binding;
use crate::windows::lists::{ListPool, retag};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use netadapter_glue::ndis::chain::{Chain, Frame, for_each};

impl Adapter {
    /// Whether the frame that begins so is for TCP/IP or us. IRQL <= DISPATCH_LEVEL.
    pub(in crate::windows) fn takes(&self, frame: &[u8]) -> bool {
        !self.attachment.is_asleep() && destination(frame).is_some_and(|to| self.accepts(to))
    }

    fn accepts(&self, to: [u8; 6]) -> bool {
        let filter = self.filter.load(Ordering::Relaxed);
        if filter & NDIS_PACKET_TYPE_PROMISCUOUS != 0 {
            return true;
        }
        match Cast::of(to) {
            // Also without a filter: RoCE does not wait for TCP/IP.
            Cast::Unicast => to == self.mac,
            Cast::Broadcast => filter & NDIS_PACKET_TYPE_BROADCAST != 0,
            Cast::Multicast => {
                filter & NDIS_PACKET_TYPE_ALL_MULTICAST != 0
                    || filter & NDIS_PACKET_TYPE_MULTICAST != 0
                        && self.multicast.lock().contains(&to)
            }
        }
    }

    pub(in crate::windows) fn filter(&self) -> u32 {
        self.filter.load(Ordering::Relaxed)
    }

    pub(in crate::windows) fn set_filter(&self, filter: u32) {
        self.filter.store(filter, Ordering::Relaxed);
    }

    pub(in crate::windows) fn multicast(&self) -> MulticastList {
        self.multicast.lock().clone()
    }

    pub(in crate::windows) fn set_multicast(&self, list: MulticastList) {
        *self.multicast.lock() = list;
    }

    /// Passes on that sends with this mark are not wanted any more: ours are with the NIC at once.
    /// IRQL <= DISPATCH_LEVEL.
    pub(in crate::windows) fn cancel_sends(&self, id: PVOID) {
        if let Some(binding) = self.attachment.binding() {
            binding.cancel_sends(id);
        }
    }

    /// Sends frames of TCP/IP as clones. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `head` is a chain of lists that are ours until they are completed.
    pub(in crate::windows) unsafe fn send(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        let binding = self.attachment.binding();
        let (mut clones, mut failed) = (Chain::new(), Chain::new());
        let each = |nbl: *mut NET_BUFFER_LIST| {
            // SAFETY: the caller's promise.
            match unsafe { self.clone_for(binding.as_deref(), nbl) } {
                // SAFETY: just made.
                Ok(clone) => unsafe { clones.push(clone) },
                Err(status) => {
                    self.stats.out_discarded();
                    // SAFETY: the caller's promise.
                    unsafe { (*nbl).Status = status.0 };
                    // SAFETY: as above.
                    unsafe { failed.push(nbl) };
                }
            }
        };
        // SAFETY: as above.
        unsafe { for_each(head, each) };
        if let Some(binding) = binding.filter(|_| !clones.is_empty()) {
            binding.send(clones.head(), flags & NDIS_SEND_FLAGS_DISPATCH_LEVEL);
        }
        // A list that has not entered does not leave: it is completed as it is.
        self.complete(failed.head(), flags);
    }

    /// Enters both gates and clones; what fails has entered neither.
    unsafe fn clone_for(
        &self,
        binding: Option<&Binding>,
        nbl: *mut NET_BUFFER_LIST,
    ) -> Result<*mut NET_BUFFER_LIST, NDIS_STATUS> {
        if self.attachment.is_asleep() || !self.up.enter(1) {
            return Err(NDIS_STATUS_PAUSED);
        }
        let Some(binding) = binding.filter(|binding| binding.io.enter(1)) else {
            self.up.leave(1);
            return Err(NDIS_STATUS_MEDIA_DISCONNECTED);
        };
        // SAFETY: the caller's promise: the original is ours until the clone is freed.
        let clone = unsafe { self.lists().clone_of(nbl) };
        if clone.is_null() {
            binding.io.leave(1);
            self.up.leave(1);
            return Err(NDIS_STATUS_RESOURCES);
        }
        // SAFETY: both are valid.
        unsafe { NdisCopySendNetBufferListInfo(clone, nbl) };
        let tagging = self.attachment.tagging();
        // SAFETY: just made, and ours.
        unsafe { retag(clone, |tag| tagging.outgoing(tag)) };
        // SAFETY: the caller's promise.
        unsafe { self.stats.sent(nbl) };
        Ok(clone)
    }

    /// The NIC has sent these originals, or not. IRQL <= DISPATCH_LEVEL.
    pub(in crate::windows) fn complete_sends(&self, originals: &Chain, flags: ULONG) {
        if !originals.is_empty() {
            self.complete(originals.head(), flags);
            self.up.leave(originals.len() as usize);
        }
    }

    fn complete(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        if !head.is_null() {
            let flags = flags & NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL;
            // SAFETY: lists that were given to `send`.
            unsafe { NdisMSendNetBufferListsComplete(self.handle, head, flags) };
        }
    }

    /// Shows TCP/IP the clones of received frames. IRQL <= DISPATCH_LEVEL.
    pub(in crate::windows) fn indicate(&self, clones: Chain, flags: ULONG) {
        let count = clones.len();
        if count == 0 {
            return;
        }
        let kept = NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL | NDIS_RECEIVE_FLAGS_RESOURCES;
        // SAFETY: our clones; with RESOURCES they are still ours after the call.
        unsafe {
            NdisMIndicateReceiveNetBufferLists(
                self.handle,
                clones.head(),
                NDIS_DEFAULT_PORT_NUMBER,
                count,
                flags & kept,
            );
        }
        if flags & NDIS_RECEIVE_FLAGS_RESOURCES != 0 {
            let free = |clone| {
                // SAFETY: as above.
                let _ = unsafe { ListPool::free_clone(clone) };
            };
            // SAFETY: as above.
            unsafe { for_each(clones.head(), free) };
            self.up.leave(count as usize);
        }
    }

    /// TCP/IP has done with these clones. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `head` is a chain of clones that were indicated without RESOURCES.
    pub(in crate::windows) unsafe fn take_back(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        let mut originals = Chain::new();
        let each = |clone| {
            // SAFETY: the caller's promise.
            let original = unsafe { ListPool::free_clone(clone) };
            // SAFETY: the NIC's list, ours until it is given back.
            unsafe { originals.push(original) };
        };
        // SAFETY: as above.
        unsafe { for_each(head, each) };
        // The NIC waits for these at its gate, so it is still attached.
        if let Some(binding) = self.attachment.binding() {
            binding.give_back(originals.head(), originals.len(), flags);
        }
        self.up.leave(originals.len() as usize);
    }
}

/// Frames of TCP/IP.
#[derive(Default)]
pub(in crate::windows) struct Stats {
    /// Received, by [`Cast`]: frames and bytes.
    pub(in crate::windows) in_frames: [AtomicU64; 3],
    pub(in crate::windows) in_bytes: [AtomicU64; 3],
    pub(in crate::windows) in_discards: AtomicU64,
    pub(in crate::windows) out_frames: [AtomicU64; 3],
    pub(in crate::windows) out_bytes: [AtomicU64; 3],
    pub(in crate::windows) out_discards: AtomicU64,
}

impl Stats {
    pub(in crate::windows) fn received(&self, to: Option<[u8; 6]>, len: usize) {
        let kind = to.map_or(Cast::Unicast, Cast::of) as usize;
        self.in_frames[kind].fetch_add(1, Ordering::Relaxed);
        self.in_bytes[kind].fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(in crate::windows) fn in_discarded(&self) {
        self.in_discards.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::windows) fn out_discarded(&self) {
        self.out_discards.fetch_add(1, Ordering::Relaxed);
    }

    /// # Safety
    /// `nbl` is valid with its net buffers.
    unsafe fn sent(&self, nbl: *const NET_BUFFER_LIST) {
        // SAFETY: the caller's promise.
        let mut next = unsafe { (*nbl).FirstNetBuffer };
        while !next.is_null() {
            // SAFETY: as above.
            let frame = unsafe { Frame::of(next) };
            let mut to = [0; 6];
            // An address that is not mapped yet counts as unicast.
            // SAFETY: as above.
            let whole = unsafe { frame.copy_to(&mut to, &|_| null_mut()) } == to.len();
            let kind = if whole { Cast::of(to) } else { Cast::Unicast } as usize;
            self.out_frames[kind].fetch_add(1, Ordering::Relaxed);
            self.out_bytes[kind].fetch_add(frame.len() as u64, Ordering::Relaxed);
            // SAFETY: as above.
            next = unsafe { (*next).Next };
        }
    }
}
