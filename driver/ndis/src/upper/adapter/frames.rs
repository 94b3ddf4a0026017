//! Frames of TCP/IP, which are sent as clones and shown as copies, and those of the poll cores that the NIC refuses.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

use super::{Adapter, MulticastList};
use crate::abi::imports::{
    NdisCopySendNetBufferListInfo, NdisMIndicateReceiveNetBufferLists,
    NdisMSendNetBufferListsComplete,
};
use crate::abi::*;
use crate::frame::Cast;
use crate::log::report;
use crate::lower::binding::Binding;
use crate::lower::lists::{Above, List, Lists, Shown};
use crate::os::sync::at_dispatch;
use crate::problems::{Problem, REFUSALS_TOLD};
use crate::sorting::Receiver;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use netadapter_glue::ndis::chain::{Chain, Frame};

impl Adapter {
    /// The receiver of the frame with this beginning. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn receiver(&self, frame: &[u8]) -> Receiver {
        if self.attachment.is_asleep() { Receiver::Nobody } else { self.sorting.receiver(frame) }
    }

    pub(crate) fn filter(&self) -> u32 {
        self.sorting.filter()
    }

    /// Sets the packet filter. PASSIVE_LEVEL.
    pub(crate) fn set_filter(&self, filter: u32) {
        let before = self.sorting.set_filter(filter);
        if (before ^ filter) & NDIS_PACKET_TYPE_PROMISCUOUS != 0 {
            self.ask_for_frames();
        }
    }

    pub(crate) fn multicast(&self) -> MulticastList {
        self.multicast.lock().clone()
    }

    /// Sets the multicast list. NDIS makes one request at a time. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn set_multicast(&self, list: MulticastList) {
        at_dispatch(|| self.sorting.set_multicast(&list));
        *self.multicast.lock() = list;
    }

    /// Notes that the NIC has refused a frame of a poll core, and reports it at one number of them. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn note_refusal(&self, status: i32) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 == REFUSALS_TOLD {
            report(self.interface, Problem::FramesRefused, status.cast_unsigned(), 0);
        }
    }

    /// Passes a cancellation of sends with this mark on: our clones are with the NIC at once. IRQL <=
    /// DISPATCH_LEVEL.
    pub(crate) fn cancel_sends(&self, id: PVOID) {
        if let Some(binding) = self.attachment.binding() {
            binding.cancel_sends(id);
        }
    }

    /// Sends frames of TCP/IP as clones. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn send(&self, lists: Lists<Above>, flags: ULONG) {
        let binding = self.attachment.binding();
        let (mut clones, mut failed) = (Chain::new(), Chain::new());
        lists.for_each(|mut list| match self.clone_for(binding.as_deref(), &list) {
            Ok(clone) => clone.push_to(&mut clones),
            Err(status) => {
                self.stats.out_discarded();
                list.Status = status.0;
                list.push_to(&mut failed);
            }
        });
        if let Some(binding) = binding.filter(|_| !clones.is_empty()) {
            binding.send(clones.head(), flags & NDIS_SEND_FLAGS_DISPATCH_LEVEL);
        }
        // A list that has not entered the gates does not leave them: it is completed as it is.
        self.complete(failed.head(), flags);
    }

    /// Enters both gates and clones. A list that fails has entered neither.
    fn clone_for(&self, binding: Option<&Binding>, list: &List) -> Result<List, NDIS_STATUS> {
        if self.attachment.is_asleep() || !self.up.enter(1) {
            return Err(NDIS_STATUS_PAUSED);
        }
        let Some(binding) = binding.filter(|binding| binding.io.enter(1)) else {
            self.up.leave(1);
            return Err(NDIS_STATUS_MEDIA_DISCONNECTED);
        };
        // SAFETY: the original is completed, and so not ours any more, after the clone is freed.
        let Some(mut clone) = (unsafe { self.lists().clone_of(list) }) else {
            binding.io.leave(1);
            self.up.leave(1);
            return Err(NDIS_STATUS_RESOURCES);
        };
        // SAFETY: both are valid.
        unsafe { NdisCopySendNetBufferListInfo(clone.as_ptr(), list.as_ptr()) };
        let tag = self.attachment.tagging().outgoing(clone.tag());
        clone.set_tag(tag);
        self.stats.sent(list);
        Ok(clone)
    }

    /// Completes originals that the NIC has sent or not. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn complete_sends(&self, originals: &Chain, flags: ULONG) {
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

    /// Indicates copies of received frames to TCP/IP. IRQL <= DISPATCH_LEVEL, as in `flags`.
    pub(crate) fn indicate(&self, copies: Chain, flags: ULONG) {
        if copies.is_empty() {
            return;
        }
        // SAFETY: our copies, which TCP/IP gives back.
        unsafe {
            NdisMIndicateReceiveNetBufferLists(
                self.handle,
                copies.head(),
                NDIS_DEFAULT_PORT_NUMBER,
                copies.len(),
                flags,
            );
        }
    }

    /// Takes copies back from TCP/IP. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn take_back(&self, copies: Lists<Shown>) {
        let mut count = 0;
        copies.for_each(|copy| {
            self.shown.give_back(copy);
            count += 1;
        });
        self.up.leave(count);
    }
}

/// Frames of TCP/IP.
#[derive(Default)]
pub(crate) struct Stats {
    /// Received, by [`Cast`]: frames and bytes.
    pub(crate) in_frames: [AtomicU64; 3],
    pub(crate) in_bytes: [AtomicU64; 3],
    pub(crate) in_discards: AtomicU64,
    pub(crate) out_frames: [AtomicU64; 3],
    pub(crate) out_bytes: [AtomicU64; 3],
    pub(crate) out_discards: AtomicU64,
}

impl Stats {
    pub(crate) fn received(&self, to: Option<[u8; 6]>, len: usize) {
        let kind = to.map_or(Cast::Unicast, Cast::of) as usize;
        self.in_frames[kind].fetch_add(1, Ordering::Relaxed);
        self.in_bytes[kind].fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn in_discarded(&self) {
        self.in_discards.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn out_discarded(&self) {
        self.out_discards.fetch_add(1, Ordering::Relaxed);
    }

    fn sent(&self, list: &List) {
        let mut next = list.FirstNetBuffer;
        while !next.is_null() {
            // SAFETY: a net buffer of the list.
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
