//! The way of frames from a core that received them to the core that they are for.
#![cfg_attr(not(test), expect(dead_code, reason = "one core passes no frames"))]

use alloc::boxed::Box;
use alloc::vec::Vec;
use crossbeam_queue::ArrayQueue;

/// Frames on their way to one core, from all others.
///
/// All its memory is there from the start: a frame that finds no room is lost, as on a full link. Senders and receiver are
/// poll cores, each alone on its processor at the level of its turns, so that none of them waits for a step of a thread
/// that it has interrupted: no step needs [`Platform::undisturbed`](crate::platform::Platform::undisturbed).
pub(crate) struct Passage {
    free: ArrayQueue<Buffer>,
    full: ArrayQueue<Buffer>,
}

struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    /// Of a frame that stands for several packets, the payload of all but the last.
    segment_len: Option<usize>,
}

impl Passage {
    /// Room for `frames` of at most `max_len` bytes. `None`: no memory.
    pub(crate) fn new(frames: usize, max_len: usize) -> Option<Self> {
        let passage = Self { free: ArrayQueue::new(frames), full: ArrayQueue::new(frames) };
        for _ in 0..frames {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(max_len).ok()?;
            bytes.resize(max_len, 0);
            let buffer = Buffer { bytes: bytes.into_boxed_slice(), len: 0, segment_len: None };
            passage.give_back(buffer);
        }
        Some(passage)
    }

    /// Sends a copy of a frame. False: there is no room for it. The caller counts that, and wakes a receiver that sleeps.
    pub(crate) fn send(&self, frame: &[u8], segment_len: Option<usize>) -> bool {
        let Some(mut buffer) = self.free.pop() else { return false };
        let room = buffer.bytes.get_mut(..frame.len());
        let fits = room.map(|room| room.copy_from_slice(frame)).is_some();
        if fits {
            (buffer.len, buffer.segment_len) = (frame.len(), segment_len);
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
