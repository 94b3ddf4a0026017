//! A receive in its ring, and the end where it is posted.

use crate::qp::ring::{Entry, Poster, WorkRing, ring_bytes};
use crate::qp::work::{PostError, RecvWr, Sge};

/// The words of a receive: the caller's name; the number of elements. Two words for each element follow.
const ID: usize = 0;
const COUNT: usize = 1;
const ELEMENTS: usize = 2;

/// The end of a receive queue where receives are posted. It may be on another thread than the
/// [`Device`](crate::Device), which looks there for a receive when a message comes.
#[derive(Debug)]
pub struct RecvPoster(Poster);

impl RecvPoster {
    /// The memory of a queue for `depth` receives of at most `max_sge` elements.
    pub const fn queue_bytes(depth: usize, max_sge: usize) -> usize {
        ring_bytes(depth, ELEMENTS, max_sge)
    }

    /// Whether another receive fits.
    pub fn has_room(&mut self) -> bool {
        self.0.has_room()
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], or [`PostError::TooManyElements`]: nothing was queued.
    pub fn post<S: IntoIterator<Item = Sge>>(&mut self, wr: RecvWr<S>) -> Result<(), PostError> {
        self.0.post(|entry| {
            let (count, _) = entry.set_elements(ELEMENTS, wr.sgl)?;
            entry.set(COUNT, count)?;
            entry.set(ID, wr.id)
        })
    }
}

/// A ring for receives, and the end where they are posted.
pub(super) fn ring(depth: usize, max_sge: usize) -> (RecvPoster, WorkRing) {
    let (poster, ring) = WorkRing::new(depth, ELEMENTS, max_sge);
    (RecvPoster(poster), ring)
}

/// A receive in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rqe<'a>(pub(super) Entry<'a>);

impl<'a> Rqe<'a> {
    /// The caller's name for it.
    pub(crate) fn id(self) -> u64 {
        self.0.word(ID)
    }

    /// The elements.
    pub(crate) fn elements(self) -> impl Iterator<Item = Sge> + Clone + 'a {
        self.0.elements(ELEMENTS, self.0.word(COUNT) as usize)
    }

    /// Bytes of the longest message that it takes.
    pub(crate) fn len(self) -> u64 {
        self.elements().map(|sge| u64::from(sge.len)).sum()
    }
}
