//! Units taken for transmission that have not left yet.

use crate::Transmit;
use crate::segment::{Segment, Segments, split};
use crate::sys::BATCH;
use alloc::{boxed::Box, vec};
use core::array;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// A bounded first-in-first-out of buffers that exist from the start.
///
/// The queue is empty after most calls, and an empty one begins again at its first buffer, so that a light
/// load stays in the cache.
#[derive(Debug)]
pub(crate) struct Queue {
    slots: Box<[Slot]>,
    head: usize,
    len: usize,
    /// Frames of the oldest unit that have left.
    head_sent: usize,
}

#[derive(Debug)]
struct Slot {
    bytes: Box<[u8]>,
    transmit: Transmit,
}

impl Queue {
    /// Room for `depth` units of `unit_len` bytes.
    pub(crate) fn new(depth: usize, unit_len: usize) -> Self {
        let slot = || Slot {
            bytes: vec![0; unit_len].into(),
            transmit: Transmit { len: 0, segments: None },
        };
        Self { slots: (0..depth).map(|_| slot()).collect(), head: 0, len: 0, head_sent: 0 }
    }

    /// Units that have not left entirely.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Lends up to `budget` free buffers to `fill` until that declines. Returns the number of units.
    pub(crate) fn fill(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> usize {
        let before = self.len;
        while self.len < self.slots.len() && self.len - before < budget {
            let at = (self.head + self.len) % self.slots.len();
            let slot = &mut self.slots[at];
            let Some(transmit) = fill(&mut slot.bytes) else { break };
            assert!(transmit.len <= slot.bytes.len(), "a unit fits into the buffer it was lent");
            slot.transmit = transmit;
            self.len += 1;
        }
        self.len - before
    }

    /// The frames that have not left, oldest first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Segment<'_>> {
        (0..self.len).flat_map(|i| {
            let Slot { bytes, transmit } = &self.slots[(self.head + i) % self.slots.len()];
            let sent = if i == 0 { self.head_sent } else { 0 };
            split(&bytes[..transmit.len], transmit.segments).starting_at(sent)
        })
    }

    /// Notes that the `frames` oldest frames have left.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.head_sent += frames;
        while self.len > 0 {
            let Transmit { len, segments } = self.slots[self.head].transmit;
            let count = segments.map_or(1, |segments: Segments| segments.count(len).max(1));
            if self.head_sent < count {
                return;
            }
            self.head_sent -= count;
            self.head = (self.head + 1) % self.slots.len();
            self.len -= 1;
        }
        self.head = 0;
    }

    /// Drops all frames. Returns their number.
    pub(crate) fn clear(&mut self) -> u64 {
        let count = self.frames().count();
        self.advance(count);
        count as u64
    }

    /// Sends all frames as messages of a connected or bound socket, [`BATCH`] per system call.
    ///
    /// # Errors
    /// The error of the call; it concerns the frame at the front.
    pub(crate) fn send(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        while self.len > 0 {
            let sent = self.send_batch(fd)?;
            self.advance(sent);
        }
        Ok(())
    }

    fn send_batch(&self, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let frames: heapless::Vec<Segment<'_>, BATCH> = self.frames().take(BATCH).collect();
        let slices: heapless::Vec<[IoSlice<'_>; 2], BATCH> =
            frames.iter().map(|f| [f.header(), f.payload()].map(IoSlice::new)).collect();
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
            array::from_fn(|_| SendAncillaryBuffer::default());
        let mut messages: heapless::Vec<MMsgHdr<'_>, BATCH> =
            slices.iter().zip(&mut controls).map(|(s, c)| MMsgHdr::new(s, c)).collect();
        sendmmsg(fd, &mut messages, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::tests::unit;
    use alloc::vec::Vec;

    #[test]
    fn frames_leave_in_order_across_units() {
        let mut queue = Queue::new(3, 1000);
        let (bytes, segments) = unit(false, 450, 100);
        let mut ids = Vec::new();
        for round in 0..50 {
            queue.fill(2, &mut |buffer| {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Some(Transmit { len: bytes.len(), segments: Some(segments) })
            });
            assert!(queue.len() <= 3);
            let step = round % 7;
            for frame in queue.frames().take(step) {
                ids.push(u16::from_be_bytes([frame.header()[18], frame.header()[19]]));
            }
            queue.advance(step.min(queue.frames().count()));
        }
        let expected: Vec<u16> =
            (0..ids.len()).map(|i| 0xffff_u16.wrapping_add(i as u16 % 5)).collect();
        assert_eq!(ids, expected);
        let left = queue.frames().count() as u64;
        assert_eq!((queue.clear(), queue.len()), (left, 0));
    }
}
