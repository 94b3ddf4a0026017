//! The receive ring of a packet socket (packet(7), `PACKET_RX_RING` of version 2): memory that the kernel
//! fills with frames while we read others, so that neither a frame nor the look for one costs a system call.
//!
//! Version 2, not 3: the kernel hands over each frame when it comes. Version 3 hands over blocks, which a light
//! load fills only by a timer of a millisecond and more.
//!
//! A unit of many packets may be longer than a place. The kernel then keeps it in the socket's receive queue as well
//! (`PACKET_COPY_THRESH`), from which a system call takes it, so that the places need room for frames only.
#![expect(unsafe_code, reason = "memory that is shared with the kernel")]

use super::vnet;
use crate::auto_traits::auto_traits;
use crate::{RUN, Received, sys};
use alloc::{boxed::Box, vec};
use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{
    TP_STATUS_COPY, TP_STATUS_KERNEL, TP_STATUS_USER, TPACKET_ALIGNMENT, TPACKET2_HDRLEN,
    tpacket2_hdr,
};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::BorrowedFd;

/// Places of one frame each, which the kernel and we pass in the same order. A place is ours once its status says
/// so, and the kernel's again once we have set it back.
#[derive(Debug)]
pub(crate) struct Ring {
    start: NonNull<u8>,
    shape: Shape,
    /// The place of the next frame.
    head: usize,
    /// For a unit that no place has room for.
    long: Box<[u8]>,
    /// Frames longer than a place that are no unit of UDP, units that the socket had no room for, and damaged ones.
    pub(crate) dropped: u64,
}

// SAFETY: the mapping belongs to this value alone, and to no thread.
unsafe impl Send for Ring {}

auto_traits! {
    Ring: (Send, !Sync);
}

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

impl Ring {
    /// Gives the socket a ring of places for messages of `message_len` bytes, of which the first are a virtio header.
    ///
    /// # Errors
    /// The system call that failed.
    pub(crate) fn new(fd: BorrowedFd<'_>, message_len: usize) -> io::Result<Self> {
        sys::set_packet_option(fd, libc::PACKET_COPY_THRESH, 1)?;
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
        Ok(Self { start, shape, head: 0, long: vec![0; UNIT_MAX_LEN].into(), dropped: 0 })
    }

    /// Lends up to `budget` frames and units to `sink`, and returns their number. `fd` is the socket.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> usize {
        let (mut arrived, mut taken) = (0, 0);
        while arrived < budget {
            let (places, units) = match self.content(self.head) {
                Content::None => break,
                Content::Message => self.lend((budget - arrived).min(RUN), sink),
                Content::BeginOfLong => (1, usize::from(self.lend_long(fd, sink).is_some())),
            };
            self.dropped += (places - units) as u64;
            self.give_back(places);
            arrived += places;
            taken += units;
        }
        taken
    }

    /// Lends the frames of the next places, `most` at most, that have messages as a whole. Returns the numbers of places and of
    /// units.
    fn lend(&self, most: usize, sink: &mut dyn FnMut(&[Received<'_>])) -> (usize, usize) {
        let mut units = heapless::Vec::<Received<'_>, RUN>::new();
        let (mut end, mut places) = (self.head, 0);
        while places < most && self.content(end) == Content::Message {
            // SAFETY: filled, and we come to each once.
            let (message, whole) = unsafe { self.message(end) };
            if let Some(unit) = whole.then(|| vnet::open(message)).flatten() {
                units.push(unit).expect("a run fits");
            }
            end = self.shape.after(end);
            places += 1;
        }
        if !units.is_empty() {
            sink(&units);
        }
        (places, units.len())
    }

    /// Takes the message of which the next place has the begin out of the socket's queue, and lends it where it is a unit.
    fn lend_long(
        &mut self,
        fd: BorrowedFd<'_>,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Option<()> {
        // SAFETY: filled, and used here only.
        let (begin, _) = unsafe { self.message(self.head) };
        // Large units of TCP are frequent on an interface of others: of these as little is copied as may be.
        let wanted = if vnet::begins_unit(begin) { self.long.len() } else { vnet::LEN };
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let (_, len) = recv(fd, &mut self.long[..wanted], flags).ok()?;
        let unit = vnet::open(self.long[..wanted].get_mut(..len)?)?;
        sink(&[unit]);
        Some(())
    }

    fn give_back(&mut self, places: usize) {
        for _ in 0..places {
            self.status(self.head).store(TP_STATUS_KERNEL, Ordering::Release);
            self.head = self.shape.after(self.head);
        }
    }

    fn content(&self, place: usize) -> Content {
        let status = self.status(place).load(Ordering::Acquire);
        match (status & TP_STATUS_USER != 0, status & TP_STATUS_COPY != 0) {
            (false, _) => Content::None,
            (true, false) => Content::Message,
            (true, true) => Content::BeginOfLong,
        }
    }

    /// The status of a place.
    fn status(&self, place: usize) -> &AtomicU32 {
        let at = self.shape.offset(place) + offset_of!(tpacket2_hdr, tp_status);
        // SAFETY: inside the mapping.
        let status = unsafe { self.start.add(at) }.cast();
        // SAFETY: a place is aligned, and both sides change its status as a whole.
        unsafe { status.as_ref() }
    }

    /// The message in a place, and whether it is whole. One that does not lie in its place is empty.
    ///
    /// # Safety
    /// The status says that the place is ours; it is lent once at a time.
    unsafe fn message<'a>(&self, place: usize) -> (&'a mut [u8], bool) {
        // SAFETY: inside the mapping.
        let place = unsafe { self.start.add(self.shape.offset(place)) };
        // SAFETY: the header is the kernel's, which writes no more once the place is ours.
        let header = unsafe { place.cast::<tpacket2_hdr>().read() };
        let end = usize::from(header.tp_mac) + header.tp_snaplen as usize;
        let begin = usize::from(header.tp_mac).checked_sub(vnet::LEN);
        let Some(begin) = begin.filter(|_| end <= self.shape.place_len) else {
            return (&mut [], false);
        };
        // SAFETY: inside the place.
        let message = unsafe { place.add(begin) };
        // SAFETY: the caller's promise: nobody else has these bytes.
        let message = unsafe { core::slice::from_raw_parts_mut(message.as_ptr(), end - begin) };
        (message, header.tp_snaplen == header.tp_len)
    }
}

/// The content of a place, as its status tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Content {
    None,
    Message,
    /// The begin of a message that is longer than a place, and lies in the socket's queue.
    BeginOfLong,
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: all of it, and what it lent is gone.
        unsafe { sys::unmap(self.start, self.shape.len()) };
    }
}

/// The longest unit: the length of its datagram has 16 bits, and the Ethernet header may have two VLAN tags.
const UNIT_MAX_LEN: usize = vnet::LEN + 22 + u16::MAX as usize;
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
