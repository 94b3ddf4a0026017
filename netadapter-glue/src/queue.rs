//! Units taken for transmission that have not left yet.

use crate::refusal::Refusal;
use crate::segment::{Segment, Segments, split};
use crate::sys::BATCH;
use crate::{RUN, Slot, Transmit};
use alloc::{boxed::Box, vec};
use core::array;
use core::slice::SliceIndex;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, send, sendmmsg};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// A bounded first-in-first-out of buffers that exist from the start.
///
/// The queue is empty after most calls, and an empty one begins again at its first buffer, so that a light
/// load stays in the cache.
#[derive(Debug)]
pub(crate) struct Queue {
    messages: Box<[Message]>,
    head: usize,
    len: usize,
    /// Frames of the oldest unit that have left.
    head_sent: usize,
}

#[derive(Debug)]
struct Message {
    bytes: Box<[u8]>,
    transmit: Transmit,
}

impl Queue {
    /// Room for `depth` units of `unit_len` bytes.
    pub(crate) fn new(depth: usize, unit_len: usize) -> Self {
        let message = || Message {
            bytes: vec![0; unit_len].into(),
            transmit: Transmit { len: 0, segments: None },
        };
        Self { messages: (0..depth).map(|_| message()).collect(), head: 0, len: 0, head_sent: 0 }
    }

    /// Units that have not left entirely.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Lends up to `budget` free buffers to `fill`, run by run, until it leaves one. Returns the number of units.
    pub(crate) fn fill(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> usize {
        self.fill_inside(budget, .., fill, |_, unit| unit)
    }

    /// The same, where only the `lent` part of each buffer is lent; `seal` completes the message around it.
    pub(crate) fn fill_inside(
        &mut self,
        budget: usize,
        lent: impl SliceIndex<[u8], Output = [u8]> + Clone,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
        mut seal: impl FnMut(&mut [u8], Transmit) -> Transmit,
    ) -> usize {
        let (mut taken, mut most) = (0, FEW);
        loop {
            // The buffers behind the last unit, up to the end or to the first unit.
            let depth = self.messages.len();
            let begin = (self.head + self.len) % depth;
            let run = (depth - self.len).min(depth - begin).min(budget - taken).min(most);
            most = RUN;
            if run == 0 {
                return taken;
            }
            let messages = &mut self.messages[begin..begin + run];
            let mut slots: heapless::Vec<Slot<'_>, RUN> = messages
                .iter_mut()
                .map(|Message { bytes, transmit }| Slot {
                    buffer: &mut bytes[lent.clone()],
                    unit: transmit,
                })
                .collect();
            let filled = fill(&mut slots);
            drop(slots);
            for Message { bytes, transmit } in &mut messages[..filled] {
                *transmit = seal(bytes, *transmit);
                assert!(transmit.len <= bytes.len(), "a unit fits its buffer");
            }
            self.len += filled;
            taken += filled;
            if filled < run {
                return taken;
            }
        }
    }

    /// The units that have not left entirely, oldest first.
    pub(crate) fn units(&self) -> impl Iterator<Item = (&[u8], Option<Segments>)> {
        (0..self.len).map(|i| {
            let Message { bytes, transmit } = &self.messages[(self.head + i) % self.messages.len()];
            (&bytes[..transmit.len], transmit.segments)
        })
    }

    /// Bytes of the oldest frame.
    pub(crate) fn head_len(&self) -> usize {
        self.longest(1)
    }

    /// Bytes of the longest of the oldest `frames`.
    pub(crate) fn longest(&self, frames: usize) -> usize {
        self.frames().take(frames).map(|frame| frame.len()).max().unwrap_or_default()
    }

    /// Frames of the oldest unit that have not left.
    pub(crate) fn head_frames(&self) -> usize {
        let unit = self.units().next();
        unit.map_or(0, |(bytes, segments)| frames_of(bytes.len(), segments) - self.head_sent)
    }

    /// The frames that have not left, oldest first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Segment<'_>> {
        (0..self.len).flat_map(|i| {
            let Message { bytes, transmit } = &self.messages[(self.head + i) % self.messages.len()];
            let sent = if i == 0 { self.head_sent } else { 0 };
            split(&bytes[..transmit.len], transmit.segments).starting_at(sent)
        })
    }

    /// Notes that the `frames` oldest frames have left.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.head_sent += frames;
        while self.len > 0 {
            let Transmit { len, segments } = self.messages[self.head].transmit;
            let count = frames_of(len, segments);
            if self.head_sent < count {
                return;
            }
            self.head_sent -= count;
            self.head = (self.head + 1) % self.messages.len();
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

    /// Sends all frames as messages of a connected or bound socket, [`BATCH`] per system call, and tells `refusal` of those
    /// that leave.
    ///
    /// # Errors
    /// The error of the call; it concerns the frame at the front.
    pub(crate) fn send(&mut self, fd: BorrowedFd<'_>, refusal: &mut Refusal) -> Result<(), Errno> {
        while self.len > 0 {
            let sent = self.send_batch(fd)?;
            refusal.has_left(|| self.longest(sent));
            self.advance(sent);
        }
        Ok(())
    }

    fn send_batch(&self, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let Message { bytes, transmit } = &self.messages[self.head];
        if self.len == 1 && transmit.segments.is_none() {
            // One frame costs less by the simpler call.
            return send(fd, &bytes[..transmit.len], flags).map(|_| 1);
        }
        let units = (0..self.len).map(|i| &self.messages[(self.head + i) % self.messages.len()]);
        // The kernel imports a message of one piece much faster than one of two.
        let plain: heapless::Vec<[IoSlice<'_>; 1], BATCH> = units
            .take_while(|unit| unit.transmit.segments.is_none())
            .take(BATCH)
            .map(|unit| [IoSlice::new(&unit.bytes[..unit.transmit.len])])
            .collect();
        if !plain.is_empty() {
            return send_messages(fd, &plain, flags);
        }
        let frames: heapless::Vec<Segment<'_>, BATCH> = self.frames().take(BATCH).collect();
        let pieces: heapless::Vec<[IoSlice<'_>; 2], BATCH> =
            frames.iter().map(|f| [f.header(), f.payload()].map(IoSlice::new)).collect();
        send_messages(fd, &pieces, flags)
    }
}

/// The frames of a unit of `len` bytes.
pub(crate) fn frames_of(len: usize, segments: Option<Segments>) -> usize {
    segments.map_or(1, |segments| segments.count(len).max(1))
}

/// Buffers lent at first: one frame alone is frequent, and a run of buffers takes a while to prepare.
pub(crate) const FEW: usize = 4;

/// Sends messages, at most [`BATCH`], each of `N` pieces. Returns their number.
fn send_messages<const N: usize>(
    fd: BorrowedFd<'_>,
    pieces: &[[IoSlice<'_>; N]],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
        array::from_fn(|_| SendAncillaryBuffer::default());
    let mut messages: heapless::Vec<MMsgHdr<'_>, BATCH> =
        pieces.iter().zip(&mut controls).map(|(p, c)| MMsgHdr::new(p, c)).collect();
    sendmmsg(fd, &mut messages, flags)
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
            queue.fill(2, &mut |slots| {
                for slot in slots.iter_mut() {
                    slot.buffer[..bytes.len()].copy_from_slice(&bytes);
                    *slot.unit = Transmit { len: bytes.len(), segments: Some(segments) };
                }
                slots.len()
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
