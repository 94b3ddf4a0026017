//! A receive in its ring, and the end where it is posted.

use super::queue::Received;
use crate::ids::Rkey;
use crate::qp::ring::{Entry, Half, Poster, Slot, WorkRing, flag, ring_bytes};
use crate::qp::work::{Completion, Owner, PostError, RecvWr, Sge, WcStatus};

/// A receive of one element takes half a cache line.
type Line = Half;

/// The words of a receive: the caller's name; the number of elements. Two words for each element follow.
const ID: usize = 0;
const COUNT: usize = 1;
const ELEMENTS: usize = 2;
/// The words of a receive that has ended, in place of its elements: status, event and whether a key was
/// invalidated, then from bit 32 on that key; the length of the message.
const OUTCOME: usize = 1;
const SOLICITED: u64 = 1 << 8;
const INVALIDATED: u64 = 1 << 9;
const KEY_SHIFT: u32 = 32;
const LEN: usize = 2;

/// The end of a receive queue where receives are posted. It may be on another thread than the
/// [`Device`](crate::Device), which looks there for a receive when a message comes.
#[derive(Debug)]
pub struct RecvPoster(Poster<Line>);

impl RecvPoster {
    /// The memory of a queue for `depth` receives of at most `max_sge` elements.
    pub const fn queue_bytes(depth: usize, max_sge: usize) -> usize {
        ring_bytes::<Line>(depth, ELEMENTS, max_sge)
    }

    /// The place of the next receive, if there is room for it.
    #[inline(always)]
    pub fn slot(&mut self) -> Option<RecvSlot<'_>> {
        self.0.slot().map(RecvSlot)
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], or [`PostError::TooManyElements`]: nothing was queued.
    pub fn post<S: IntoIterator<Item = Sge>>(&mut self, wr: RecvWr<S>) -> Result<(), PostError> {
        self.slot().ok_or(PostError::QueueFull)?.post(wr)
    }
}

/// The free place of a receive.
#[derive(Debug)]
pub struct RecvSlot<'a>(Slot<'a, Line>);

impl RecvSlot<'_> {
    /// Queues a receive.
    ///
    /// # Errors
    /// [`PostError::TooManyElements`]: nothing was queued.
    #[inline(always)]
    pub fn post<S: IntoIterator<Item = Sge>>(self, wr: RecvWr<S>) -> Result<(), PostError> {
        let entry = self.0.entry();
        let (count, _) = entry.set_elements(ELEMENTS, wr.sgl)?;
        entry.set(COUNT, count)?;
        entry.set(ID, wr.id)?;
        self.0.publish();
        Ok(())
    }
}

/// The core's end of a ring for receives.
pub(super) type RecvRing = WorkRing<Line>;

/// A ring for receives, and the end where they are posted.
pub(super) fn ring(depth: usize, max_sge: usize) -> (RecvPoster, RecvRing) {
    let (poster, ring) = WorkRing::new(depth, ELEMENTS, max_sge);
    (RecvPoster(poster), ring)
}

/// A receive in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rqe<'a>(pub(super) Entry<'a, Line>);

impl<'a> Rqe<'a> {
    /// The caller's name for it.
    pub(crate) fn id(self) -> u64 {
        self.0.word(ID)
    }

    /// Notes the outcome in place of the elements.
    #[inline(always)]
    pub(crate) fn end(self, done: Received) {
        let key = done.invalidated.map_or(0, Rkey::get);
        let outcome = done.status.code()
            | flag(done.solicited, SOLICITED)
            | flag(done.invalidated.is_some(), INVALIDATED)
            | u64::from(key) << KEY_SHIFT;
        let written = self.0.set(OUTCOME, outcome).and_then(|()| self.0.set(LEN, done.len.into()));
        debug_assert!(written.is_ok(), "a line has room for that");
    }

    /// The outcome, once it has ended.
    pub(crate) fn outcome(self) -> Received {
        let (outcome, len) = (self.0.word(OUTCOME), self.0.word(LEN));
        let key = Rkey::new((outcome >> KEY_SHIFT) as u32);
        Received {
            status: WcStatus::from_code(outcome & 0xf),
            len: len as u32,
            solicited: outcome & SOLICITED != 0,
            invalidated: (outcome & INVALIDATED != 0).then_some(key),
        }
    }

    /// Its end, once it has ended.
    #[inline(always)]
    pub(crate) fn completion(self, owner: Owner) -> Completion {
        self.outcome().completion(owner, self.id())
    }

    /// The elements.
    pub(crate) fn elements(self) -> impl Iterator<Item = Sge> + Clone + 'a {
        self.0.elements(ELEMENTS, self.0.word(COUNT) as usize)
    }

    /// The first element.
    pub(crate) fn first(self) -> Option<Sge> {
        (self.0.word(COUNT) > 0).then(|| self.0.element(ELEMENTS))
    }

    /// Bytes of the longest message that it takes.
    pub(crate) fn len(self) -> u64 {
        self.elements().map(|sge| u64::from(sge.len)).sum()
    }
}

#[cfg(all(not(loom), test))]
mod tests {
    use super::*;

    /// The outcome takes the place of the elements, whatever they were.
    #[test]
    fn outcomes_come_out_as_they_went_in() {
        for max_sge in [0, 1, 16] {
            let (mut poster, mut ring) = ring(1, max_sge);
            for (status, invalidated) in [
                (WcStatus::Success, Some(Rkey::new(u32::MAX))),
                (WcStatus::PathLost, None),
                (WcStatus::Flushed, Some(Rkey::new(0))),
            ] {
                for solicited in [true, false] {
                    let lkey = crate::ids::Lkey::new(u32::MAX);
                    let sge = Sge { addr: u64::MAX, len: 5, lkey };
                    let sgl = core::iter::repeat_n(sge, max_sge);
                    poster.post(RecvWr { id: u64::MAX, sgl: sgl.clone() }).unwrap();
                    ring.update();
                    let rqe = Rqe(ring.get(0).unwrap());
                    assert!(rqe.elements().eq(sgl));
                    assert_eq!((rqe.id(), rqe.len()), (u64::MAX, 5 * max_sge as u64));
                    let done = Received { status, len: 1 << 31, solicited, invalidated };
                    rqe.end(done);
                    assert_eq!((rqe.id(), rqe.outcome()), (u64::MAX, done));
                    ring.pop(1);
                }
            }
        }
    }
}
