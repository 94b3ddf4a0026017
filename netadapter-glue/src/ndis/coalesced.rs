//! Received frames that are not just what was on the wire: damaged ones, and several in one list.

use super::abi::NET_BUFFER_LIST;
use super::chain::{Frame, MapMdl, Tag};
use super::units::{Coalesced, Verdict};
use super::{DROPPED, Port, Taken};
use crate::Segments;
use crate::segment::{HEADER_MAX_LEN, patch};

impl Port {
    /// Whether the NIC found the frame damaged.
    ///
    /// # Safety
    /// As for [`Port::receive`]; `frame` is the list's.
    pub(super) unsafe fn is_damaged(&self, nbl: *const NET_BUFFER_LIST, frame: &Frame) -> bool {
        // SAFETY: the caller's promise.
        let verdict = unsafe { Verdict::beside(nbl) };
        // SAFETY: as above.
        verdict.complains() && verdict.condemns(unsafe { self.head_of(frame) }.bytes())
    }

    /// Takes datagrams that the NIC has coalesced, each as a frame with headers of its own. Those for which there is no room are
    /// dropped and counted, each for itself.
    ///
    /// # Safety
    /// As for [`Port::receive`]; `frame` is the list's.
    #[inline(never)]
    pub(super) unsafe fn take_apart(
        &self,
        frame: &Frame,
        coalesced: Coalesced,
        tag: Option<Tag>,
    ) -> Taken {
        // SAFETY: the caller's promise.
        let head = unsafe { self.head_of(frame) };
        let Some(segments) = coalesced.segments(head.bytes(), frame.len()) else {
            return Taken::Dropped;
        };
        let mut taken = 0;
        for index in 0..coalesced.count {
            // SAFETY: as above.
            taken += usize::from(unsafe { self.take_segment(&head, frame, segments, index, tag) });
        }
        let lost = (coalesced.count - taken) as u64;
        if taken > 0 {
            self.count(DROPPED, lost);
            return Taken::Copied;
        }
        // The caller counts one.
        self.count(DROPPED, lost - 1);
        Taken::Dropped
    }

    /// Takes one segment; false where there was no room.
    unsafe fn take_segment(
        &self,
        head: &Head,
        frame: &Frame,
        Segments { header_len, segment_len }: Segments,
        index: usize,
        tag: Option<Tag>,
    ) -> bool {
        let payload = frame.behind(header_len + index * segment_len).first(segment_len);
        let mut header = *head;
        let header = header.first_mut(header_len);
        patch(header, index as u16, payload.len());
        // SAFETY: the caller's promise.
        let copy = unsafe { self.copy(header, &payload, tag) };
        copy.is_some_and(|copy| self.publish(copy, header_len + payload.len()) == Taken::Copied)
    }

    unsafe fn head_of(&self, frame: &Frame) -> Head {
        // SAFETY: the caller's promise.
        unsafe { Head::of(frame, &|mdl| self.lower.map(mdl)) }
    }
}

/// The first bytes of a frame: at least its headers.
#[derive(Clone, Copy)]
struct Head {
    bytes: [u8; HEADER_MAX_LEN],
    len: usize,
}

impl Head {
    /// # Safety
    /// As for [`Frame::copy_to`].
    unsafe fn of(frame: &Frame, map: MapMdl<'_>) -> Self {
        let mut bytes = [0; HEADER_MAX_LEN];
        // SAFETY: the caller's promise.
        let len = unsafe { frame.copy_to(&mut bytes, map) };
        Self { bytes, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The first `len` of them, to be changed.
    fn first_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[..len]
    }
}
