//! The receive ring of a packet socket (packet(7), `PACKET_RX_RING` of version 2): memory that the kernel
//! fills with frames while we read others, so that neither a frame nor the look for one costs a system call.
//!
//! Version 2, not 3: the kernel hands over each frame when it comes. Version 3 hands over blocks, which a light
//! load fills only by a timer of a millisecond and more.
#![expect(unsafe_code, reason = "memory that is shared with the kernel")]

use crate::segment::layer_3;
use crate::{RUN, Received, sys};
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{
    TP_STATUS_CSUMNOTREADY, TP_STATUS_KERNEL, TP_STATUS_USER, TPACKET_ALIGNMENT, TPACKET2_HDRLEN,
    tpacket2_hdr,
};
use std::io;
use std::os::fd::BorrowedFd;

/// Places of one frame each, which the kernel and we pass in the same order. A place is ours once its status says
/// so, and the kernel's again once we have set it back.
#[derive(Debug)]
pub(crate) struct PacketRing {
    start: NonNull<u8>,
    shape: Shape,
    /// The place of the next frame.
    head: usize,
    /// Bytes of the virtio header before each frame.
    vnet_len: usize,
    /// Frames longer than a place, and those of which no unit could be made.
    pub(crate) dropped: u64,
}

// SAFETY: the mapping belongs to this value alone, and to no thread.
unsafe impl Send for PacketRing {}

/// The layout of a ring: no place lies across two blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Shape {
    place_len: usize,
    block_len: usize,
    blocks: usize,
    places_per_block: usize,
}

impl Shape {
    /// Places for messages of `message_len` bytes, in about [`RING_LEN`] bytes.
    fn new(message_len: usize) -> Self {
        // The link-layer header ends at a multiple of the alignment, and has 16 bytes at least.
        let header_len = (TPACKET2_HDRLEN + 16).next_multiple_of(TPACKET_ALIGNMENT);
        let place_len = (header_len + message_len).next_multiple_of(TPACKET_ALIGNMENT);
        let block_len = place_len.max(BLOCK_LEN).next_multiple_of(PAGE_LEN);
        let blocks = RING_LEN.div_ceil(block_len);
        Self { place_len, block_len, blocks, places_per_block: block_len / place_len }
    }

    const fn places(self) -> usize {
        self.blocks * self.places_per_block
    }

    const fn len(self) -> usize {
        self.blocks * self.block_len
    }

    /// The place behind another, around the ring.
    const fn after(self, place: usize) -> usize {
        let next = place + 1;
        if next == self.places() { 0 } else { next }
    }

    /// Where a place begins.
    const fn offset(self, place: usize) -> usize {
        let (block, rest) = (place / self.places_per_block, place % self.places_per_block);
        block * self.block_len + rest * self.place_len
    }
}

impl PacketRing {
    /// Gives the socket a ring for messages of `message_len` bytes, of which the first `vnet_len` are a virtio header.
    ///
    /// # Errors
    /// The system call that failed.
    pub(crate) fn new(fd: BorrowedFd<'_>, message_len: usize, vnet_len: usize) -> io::Result<Self> {
        let shape = Shape::new(message_len);
        sys::set_packet_ring(
            fd,
            &libc::tpacket_req {
                tp_block_size: shape.block_len as u32,
                tp_block_nr: shape.blocks as u32,
                tp_frame_size: shape.place_len as u32,
                tp_frame_nr: shape.places() as u32,
            },
        )?;
        let start = sys::map_shared(fd, shape.len())?;
        Ok(Self { start, shape, head: 0, vnet_len, dropped: 0 })
    }

    /// Lends up to `budget` frames to `sink`, as far as `open` makes units of them. Returns the number of units.
    pub(crate) fn receive(
        &mut self,
        budget: usize,
        open: impl for<'a> Fn(&'a mut [u8]) -> Option<Received<'a>>,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> usize {
        let (mut arrived, mut taken) = (0, 0);
        while arrived < budget && self.is_filled(self.head) {
            let (places, units) = self.lend((budget - arrived).min(RUN), &open, sink);
            arrived += places;
            taken += units;
        }
        taken
    }

    /// Lends the frames of up to `most` filled places, and gives the places back. Returns the numbers of places and of units.
    fn lend(
        &mut self,
        most: usize,
        open: impl for<'a> Fn(&'a mut [u8]) -> Option<Received<'a>>,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> (usize, usize) {
        let mut units = heapless::Vec::<Received<'_>, RUN>::new();
        let (mut end, mut places) = (self.head, 0);
        while places < most && self.is_filled(end) {
            // SAFETY: filled, and we come to each once.
            let message = unsafe { self.message(end) };
            if let Some(unit) = message.and_then(&open) {
                units.push(unit).expect("a run fits");
            }
            end = self.shape.after(end);
            places += 1;
        }
        if !units.is_empty() {
            sink(&units);
        }
        let count = units.len();
        self.dropped += (places - count) as u64;
        for _ in 0..places {
            self.status(self.head).store(TP_STATUS_KERNEL, Ordering::Release);
            self.head = self.shape.after(self.head);
        }
        (places, count)
    }

    fn is_filled(&self, place: usize) -> bool {
        self.status(place).load(Ordering::Acquire) & TP_STATUS_USER != 0
    }

    /// The status of a place.
    fn status(&self, place: usize) -> &AtomicU32 {
        let at = self.shape.offset(place) + offset_of!(tpacket2_hdr, tp_status);
        // SAFETY: inside the mapping.
        let status = unsafe { self.start.add(at) }.cast();
        // SAFETY: a place is aligned, and both sides change its status as a whole.
        unsafe { status.as_ref() }
    }

    /// The message in a place; `None` where it was cut.
    ///
    /// # Safety
    /// The status says that the place is ours; it is lent once at a time.
    unsafe fn message<'a>(&self, place: usize) -> Option<&'a mut [u8]> {
        // SAFETY: inside the mapping.
        let place = unsafe { self.start.add(self.shape.offset(place)) };
        // SAFETY: the header is the kernel's, which writes no more once the place is ours.
        let header = unsafe { place.cast::<tpacket2_hdr>().read() };
        let (begin, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let begin = begin.checked_sub(self.vnet_len)?;
        let len = len + self.vnet_len;
        if header.tp_snaplen < header.tp_len || begin + len > self.shape.place_len {
            return None;
        }
        // SAFETY: inside the place.
        let message = unsafe { place.add(begin) };
        // SAFETY: the caller's promise: nobody else has these bytes.
        let message = unsafe { core::slice::from_raw_parts_mut(message.as_ptr(), len) };
        // A virtio header says the same.
        if self.vnet_len == 0 && header.tp_status & TP_STATUS_CSUMNOTREADY != 0 {
            omit_udp_checksum(message);
        }
        Some(message)
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: all of it, and what it lent is gone.
        unsafe { sys::unmap(self.start, self.shape.len()) };
    }
}

/// Takes the UDP checksum off a frame, in which there is none (0) then: the sender's kernel left it to a NIC, and the frame
/// has met none.
fn omit_udp_checksum(frame: &mut [u8]) {
    let udp = layer_3(frame).and_then(|ip| match frame.get(ip)? >> 4 {
        4 if *frame.get(ip + 9)? == UDP => Some(ip + usize::from(frame[ip] & 0x0f) * 4),
        6 if *frame.get(ip + 6)? == UDP => Some(ip + 40),
        _ => None,
    });
    if let Some(checksum) = udp.and_then(|udp| frame.get_mut(udp + 6..udp + 8)) {
        checksum.fill(0);
    }
}

/// The protocol number of UDP.
const UDP: u8 = 17;

/// Memory of a ring: a few thousand frames of 1,500 bytes, as many as a window of eight queue pairs.
const RING_LEN: usize = 8 << 20;
/// Memory that the kernel takes in one piece, at least.
const BLOCK_LEN: usize = 64 << 10;
const PAGE_LEN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_in_their_blocks() {
        for message_len in [60, 1528, 4228, 65_545] {
            let shape = Shape::new(message_len);
            assert_eq!(shape.block_len % PAGE_LEN, 0);
            for place in 0..shape.places() {
                let (begin, end) = (shape.offset(place), shape.offset(place) + shape.place_len);
                assert_eq!(begin / shape.block_len, (end - 1) / shape.block_len);
                assert_eq!(begin % TPACKET_ALIGNMENT, 0);
                assert!(end <= shape.len());
            }
        }
    }
}
