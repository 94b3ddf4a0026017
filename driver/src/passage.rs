//! The way of frames from a core that received them to the core that they are for.

use alloc::boxed::Box;
use alloc::vec::Vec;
use crossbeam_queue::ArrayQueue;
use netadapter_glue::Segments;
use netadapter_glue::segment::split;
use rocev2::wire::bth_of;

/// Frames on their way to one core, from all others.
///
/// All its memory is there from the start: a frame that finds no room is lost, as on a full link. Senders and receiver are
/// poll cores, each alone on its processor at the level of its turns, so that none of them waits for a step of a thread
/// that it has interrupted: no step needs [`Platform::undisturbed`](crate::platform::Platform::undisturbed).
pub(crate) struct Passage {
    free: ArrayQueue<Buffer>,
    full: ArrayQueue<Buffer>,
    /// Bytes of a buffer.
    max_len: usize,
}

struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    /// Of a frame that stands for several packets, the payload of all but the last.
    segment_len: Option<usize>,
}

impl Passage {
    /// Room for `frames` of at most `max_len` bytes, in a box: it is too large to be passed on a kernel's stack. `None`: no memory.
    #[inline(never)]
    pub(crate) fn new(frames: usize, max_len: usize) -> Option<Box<Self>> {
        let (free, full) = (ArrayQueue::new(frames), ArrayQueue::new(frames));
        let passage = Box::new(Self { free, full, max_len });
        for _ in 0..frames {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(max_len).ok()?;
            bytes.resize(max_len, 0);
            let buffer = Buffer { bytes: bytes.into_boxed_slice(), len: 0, segment_len: None };
            passage.give_back(buffer);
        }
        Some(passage)
    }

    /// Sends a copy of a frame; of one that is longer than a buffer, as a NIC may join more than it would send together, of each
    /// packet. False: there is no room for it, or for a part. The caller counts that, and wakes a receiver that sleeps.
    pub(crate) fn send(&self, frame: &[u8], segment_len: Option<usize>) -> bool {
        if frame.len() <= self.max_len {
            return self.send_parts([frame, &[]], segment_len);
        }
        let segments = segment_len.zip(bth_of(frame));
        let segments =
            segments.map(|(segment_len, header_len)| Segments { header_len, segment_len });
        split(frame, segments)
            .all(|packet| self.send_parts([packet.header(), packet.payload()], None))
    }

    fn send_parts(&self, [header, rest]: [&[u8]; 2], segment_len: Option<usize>) -> bool {
        let Some(mut buffer) = self.free.pop() else { return false };
        let len = header.len() + rest.len();
        let fits = len <= buffer.bytes.len();
        if fits {
            buffer.bytes[..header.len()].copy_from_slice(header);
            buffer.bytes[header.len()..len].copy_from_slice(rest);
            (buffer.len, buffer.segment_len) = (len, segment_len);
            let sent = self.full.push(buffer);
            debug_assert!(sent.is_ok(), "each queue has a place for every buffer");
        } else {
            self.give_back(buffer);
        }
        fits
    }

    /// Whether no frame waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty()
    }

    /// Gives the receiver the frames that wait now, each with what [`Self::send`] was told of it; bounded, however fast
    /// others send meanwhile.
    pub(crate) fn drain(&self, each: &mut dyn FnMut(&[u8], Option<usize>)) {
        for _ in 0..self.full.len() {
            let Some(buffer) = self.full.pop() else { return };
            each(&buffer.bytes[..buffer.len], buffer.segment_len);
            self.give_back(buffer);
        }
    }

    fn give_back(&self, buffer: Buffer) {
        let given = self.free.push(buffer);
        debug_assert!(given.is_ok(), "each queue has a place for every buffer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    type Frame = (Vec<u8>, Option<usize>);

    fn drained(passage: &Passage) -> Vec<Frame> {
        let mut frames = Vec::new();
        passage.drain(&mut |frame, segment_len| frames.push((frame.to_vec(), segment_len)));
        frames
    }

    #[test]
    fn frames_arrive_in_order_and_as_they_were() {
        let passage = Passage::new(3, 4).unwrap();
        assert!(passage.is_empty() && drained(&passage).is_empty());
        let frames: [Frame; 3] = [(vec![1, 2, 3, 4], Some(2)), (vec![5], None), (vec![], None)];
        for _ in 0..3 {
            assert!(frames.iter().all(|(frame, segment_len)| passage.send(frame, *segment_len)));
            assert!(!passage.is_empty());
            assert_eq!(drained(&passage), frames);
        }
    }

    #[test]
    fn a_frame_without_room_is_refused() {
        let passage = Passage::new(2, 4).unwrap();
        assert!(!passage.send(&[0; 5], None), "longer than any");
        assert!(passage.send(&[1], None) && passage.send(&[2], None));
        assert!(!passage.send(&[3], None), "no buffer is free");
        assert_eq!(drained(&passage), [(vec![1], None), (vec![2], None)]);
        assert!(passage.send(&[4], None) && passage.send(&[5], None));
    }

    /// Goal: a unit that is longer than a buffer arrives as its packets, each with its own headers.
    #[test]
    fn a_unit_without_a_buffer_of_its_length_is_divided() {
        let mut unit = vec![0; 42 + 2 * 20 + 8];
        // IPv4 of no options, UDP to RoCEv2.
        unit[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17]);
        unit[36..38].copy_from_slice(&4791_u16.to_be_bytes());
        unit[42..].iter_mut().zip(1..).for_each(|(byte, at)| *byte = at);
        let passage = Passage::new(4, 62).unwrap();
        assert!(passage.send(&unit, Some(20)));
        let frames = drained(&passage);
        let payloads: Vec<_> = frames.iter().map(|(frame, _)| &frame[42..]).collect();
        assert_eq!(payloads, [&unit[42..62], &unit[62..82], &unit[82..]]);
        let ids: Vec<_> = frames.iter().map(|(frame, segment)| (frame[19], *segment)).collect();
        assert_eq!(ids, [(7, None), (8, None), (9, None)]);
        assert!(!passage.send(&unit, None), "no unit");
        assert!(passage.send(&unit[..62], Some(20)) && !passage.send(&unit, Some(1)), "no room");
    }

    #[test]
    fn memory_that_cannot_be_had_is_no_passage() {
        assert!(Passage::new(1, usize::MAX).is_none());
    }

    #[test]
    fn what_comes_during_a_drain_waits_for_the_next() {
        let passage = Passage::new(2, 1).unwrap();
        assert!(passage.send(&[0], None));
        let mut count = 0;
        passage.drain(&mut |frame, _| {
            assert!(passage.send(frame, None));
            count += 1;
        });
        assert_eq!((count, drained(&passage)), (1, vec![(vec![0], None)]));
    }

    #[test]
    fn many_send_while_one_receives() {
        let (passage, each) = (Passage::new(4, 8).unwrap(), if cfg!(miri) { 20 } else { 2000_u32 });
        std::thread::scope(|scope| {
            for sender in 0..3_u32 {
                let passage = &passage;
                scope.spawn(move || {
                    for number in 0..each {
                        let frame = [sender, number].map(u32::to_le_bytes);
                        while !passage.send(frame.as_flattened(), Some(sender as usize)) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0; 3];
            while next != [each; 3] {
                passage.drain(&mut |frame, segment_len| {
                    let sender = segment_len.unwrap();
                    let sent = [sender as u32, next[sender]].map(u32::to_le_bytes);
                    assert_eq!(frame, sent.as_flattened(), "in the order of its sender");
                    next[sender] += 1;
                });
                std::thread::yield_now();
            }
        });
        assert!(passage.is_empty());
    }
}
