//! Receives: the queue of a QP, and queues that several QPs share.

use super::entry::{self, RecvPoster, RecvRing, Rqe};
use crate::ids::Rkey;
use crate::mr::PdId;
use crate::qp::work::{
    Completion, Completions, MAX_SGE, Owner, PostError, RecvWr, Sge, WcKind, WcStatus,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The receive queue.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    owner: Owner,
    /// The domain of the keys in its requests.
    pd: PdId,
    ring: RecvRing,
    /// The oldest entries of the ring that have ended, and whose completions are to be taken.
    done: usize,
    /// Where the receive of the message that is arriving comes, if it is taken from a shared queue.
    claimed: Option<RecvPoster>,
}

impl RecvQueue {
    /// An empty queue for `depth` receives of at most `max_sge` elements, whose keys are those of `pd`, and
    /// where they are posted.
    pub(crate) fn new(owner: Owner, pd: PdId, depth: usize, max_sge: usize) -> (RecvPoster, Self) {
        let (poster, ring) = entry::ring(depth, max_sge);
        (poster, Self { owner, pd, ring, done: 0, claimed: None })
    }

    /// An empty queue that takes one receive at a time from a shared queue, whose keys are those of `pd`.
    pub(crate) fn of_shared(owner: Owner, pd: PdId) -> Self {
        let (poster, queue) = Self::new(owner, pd, 1, MAX_SGE);
        Self { claimed: Some(poster), ..queue }
    }

    /// Sets the name in completions.
    pub(crate) const fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// The domain of its requests' keys.
    pub(crate) const fn pd(&self) -> PdId {
        self.pd
    }

    /// Finds the receive for the next message, and takes it from the shared queue unless one was taken
    /// before. Returns whether there is one. From here on it belongs to the QP: it ends with the message, or
    /// with the QP.
    #[inline]
    pub(crate) fn claim(&mut self, shared: Option<&mut Srq>) -> bool {
        self.done < self.ring.len() || self.claim_shared(shared)
    }

    #[inline(never)]
    fn claim_shared(&mut self, shared: Option<&mut Srq>) -> bool {
        let (Some(srq), Some(poster)) = (shared, &mut self.claimed) else { return false };
        srq.claim(poster);
        self.update()
    }

    /// Takes note of what was posted. Returns whether there are new receives.
    pub(crate) fn update(&mut self) -> bool {
        self.ring.update()
    }

    /// The receive that takes the next message.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<Rqe<'_>> {
        self.ring.get(self.done).map(Rqe)
    }

    /// Completes the oldest receive. The place of one from a shared queue is free at once.
    #[inline]
    pub(crate) fn complete(&mut self, done: Received, out: &mut Completions) {
        if !self.is_own() {
            self.complete_shared(done, out);
        } else if let Some(rqe) = self.head() {
            rqe.end(done);
            self.head_ended();
        }
    }

    /// Whether its receives are posted to it, and do not come from a shared queue.
    pub(crate) const fn is_own(&self) -> bool {
        self.claimed.is_none()
    }

    /// Notes that the oldest receive of its own [has ended](Rqe::end).
    pub(crate) const fn head_ended(&mut self) {
        self.done += 1;
    }

    #[inline(never)]
    fn complete_shared(&mut self, done: Received, out: &mut Completions) {
        if let Some(rqe) = self.head() {
            out.push(done.completion(self.owner, rqe.id()));
            self.ring.pop(1);
        }
    }

    /// Whether completions are to be taken.
    pub(crate) const fn has_completions(&self) -> bool {
        self.done > 0
    }

    /// The completions to be taken.
    pub(crate) const fn ended(&self) -> usize {
        self.done
    }

    /// Removes all completions, oldest first.
    #[inline(always)]
    pub(crate) fn completions(&mut self) -> impl Iterator<Item = Completion> {
        let (owner, count) = (self.owner, core::mem::take(&mut self.done));
        self.ring.drain(count, move |entry| Rqe(entry).completion(owner))
    }

    /// Removes the oldest completion.
    pub(crate) fn pop_completion(&mut self) -> Option<Completion> {
        if !self.has_completions() {
            return None;
        }
        let completion = Rqe(self.ring.get(0)?).completion(self.owner);
        self.done -= 1;
        self.ring.pop(1);
        Some(completion)
    }

    /// Completes everything as flushed, in order, with what was posted meanwhile.
    pub(crate) fn flush(&mut self, out: &mut Completions) {
        self.ring.update();
        while self.head().is_some() {
            self.complete(Received::failed(WcStatus::Flushed), out);
        }
    }
}

/// How a receive ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Received {
    /// Status.
    pub status: WcStatus,
    /// Bytes of the message.
    pub len: u32,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// The key that the message invalidated.
    pub invalidated: Option<Rkey>,
}

impl Received {
    /// A receive that a message of `len` bytes ends.
    pub(crate) const fn success(len: u32, solicited: bool) -> Self {
        Self { status: WcStatus::Success, len, solicited, invalidated: None }
    }

    /// A receive that ends with an error.
    pub(crate) const fn failed(status: WcStatus) -> Self {
        Self { status, len: 0, solicited: false, invalidated: None }
    }

    /// The end of the receive with this name.
    pub(super) fn completion(self, owner: Owner, id: u64) -> Completion {
        Completion {
            owner,
            id,
            kind: self.invalidated.map_or(WcKind::Receive, WcKind::ReceiveInvalidate),
            status: self.status,
            len: self.len,
            solicited: self.solicited,
            silent: false,
        }
    }
}

/// Names a shared receive queue of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SrqId {
    slot: u32,
    serial: u32,
}

/// The attributes of a new shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqConfig {
    /// The caller's name for the queue, returned in its events.
    pub owner: u64,
    /// The domain of the keys in its receives.
    pub pd: PdId,
    /// Receives queued, at most. A receive that a QP has taken for a message no longer counts.
    pub depth: usize,
    /// Elements of a receive, at most.
    pub max_sge: usize,
    /// The low mark: an event reports once that a message has left fewer receives than this. 0 for no
    /// event.
    pub threshold: usize,
}

/// The reason why a shared receive queue could not be changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SrqError {
    /// No such queue.
    #[error("there is no such shared receive queue")]
    Unknown,
    /// QPs take their receives from it.
    #[error("queue pairs use the shared receive queue")]
    InUse,
    /// More receives are queued than the new depth.
    #[error("more receives are queued than the new depth")]
    Outstanding,
}

/// A receive queue that several QPs take their receives from, in order.
#[derive(Debug)]
pub(crate) struct Srq {
    config: SrqConfig,
    /// The end where receives are posted, unless it was taken.
    poster: Option<RecvPoster>,
    /// The ring that is posted to stands last. Those before it are less deep, and go when they are empty.
    rings: VecDeque<RecvRing>,
    /// Receives that the last ring holds.
    room: usize,
    /// Receives ever taken by queue pairs, modulo 2^32.
    claimed: u32,
    /// The threshold has not been crossed since it was set. Below 0 nothing falls.
    armed: bool,
    /// Times that it was crossed and is not reported yet.
    due: u32,
    /// The queue is in the list of those with an event to report.
    listed: bool,
    users: usize,
}

impl Srq {
    fn new(config: SrqConfig) -> Self {
        let (poster, ring) = entry::ring(config.depth, config.max_sge);
        Self {
            config,
            poster: Some(poster),
            rings: VecDeque::from([ring]),
            room: config.depth,
            claimed: 0,
            armed: true,
            due: 0,
            listed: false,
            users: 0,
        }
    }

    /// Appends a receive.
    ///
    /// # Errors
    /// [`PostError`]: nothing was queued and no completion follows.
    pub(crate) fn post<S: IntoIterator<Item = Sge>>(
        &mut self,
        wr: RecvWr<S>,
    ) -> Result<(), PostError> {
        let full = self.len() >= self.config.depth;
        let poster = self.poster.as_mut().ok_or(PostError::PosterTaken)?;
        if full {
            return Err(PostError::QueueFull);
        }
        poster.post(wr)?;
        self.update();
        Ok(())
    }

    /// Sets the name in events.
    pub(crate) const fn set_owner(&mut self, owner: u64) {
        self.config.owner = owner;
    }

    /// Takes the end where receives are posted.
    pub(crate) const fn take_poster(&mut self) -> Option<RecvPoster> {
        self.poster.take()
    }

    /// Takes note of what was posted.
    pub(crate) fn update(&mut self) {
        for ring in &mut self.rings {
            // A ring without a poster gets nothing more, so it is looked at once more after that was seen.
            let ends = ring.is_abandoned();
            ring.update();
            if !ends {
                break;
            }
        }
        while self.rings.len() > 1 && self.rings[0].len() == 0 && self.rings[0].is_abandoned() {
            self.rings.pop_front();
        }
    }

    /// Receives queued.
    fn len(&self) -> usize {
        self.rings.iter().map(RecvRing::len).sum()
    }

    /// Receives ever queued, modulo 2^32.
    pub(crate) fn posted(&self) -> u32 {
        // No more than the depth of a ring.
        self.claimed.wrapping_add(self.len() as u32)
    }

    /// Changes depth and threshold; `None` leaves them. A threshold is armed anew, and fires at once where
    /// fewer receives are queued; 0 disarms.
    ///
    /// # Errors
    /// [`SrqError::Outstanding`]: nothing was changed.
    fn modify(&mut self, depth: Option<usize>, threshold: Option<usize>) -> Result<(), SrqError> {
        self.update();
        if let Some(depth) = depth {
            if depth < self.len() {
                return Err(SrqError::Outstanding);
            }
            self.deepen(depth);
            self.config.depth = depth;
        }
        if let Some(threshold) = threshold {
            (self.config.threshold, self.armed) = (threshold, true);
            self.look();
        }
        Ok(())
    }

    /// Puts a ring for `depth` receives behind the others, if the last one is less deep. Powers of two, so
    /// that there are few in a queue's life.
    fn deepen(&mut self, depth: usize) {
        if depth > self.room {
            self.room = depth.next_power_of_two();
            let (poster, ring) = entry::ring(self.room, self.config.max_sge);
            self.poster = Some(poster);
            self.rings.push_back(ring);
        }
    }

    /// Moves the oldest receive to `to`, where there is room for it.
    fn claim(&mut self, to: &mut RecvPoster) {
        let Some(ring) = self.rings.iter_mut().find(|ring| ring.len() > 0) else { return };
        if let Some(rqe) = ring.get(0).map(Rqe) {
            let posted = to.post(RecvWr { id: rqe.id(), sgl: rqe.elements() });
            debug_assert!(posted.is_ok(), "there is room for one");
        }
        ring.pop(1);
        self.claimed = self.claimed.wrapping_add(1);
        self.look();
    }

    fn look(&mut self) {
        if self.armed && self.len() < self.config.threshold {
            self.armed = false;
            self.due += 1;
        }
    }

    fn flush(mut self, out: &mut Completions) {
        // Nobody posts to a queue that goes.
        self.poster = None;
        self.update();
        let flushed = Received::failed(WcStatus::Flushed);
        let owner = Owner::Srq(self.config.owner);
        for ring in &self.rings {
            let queued = (0..ring.len()).filter_map(|index| ring.get(index).map(Rqe));
            queued.for_each(|rqe| out.push(flushed.completion(owner, rqe.id())));
        }
    }
}

/// All shared receive queues of a device.
#[derive(Debug, Default)]
pub(crate) struct Srqs {
    slots: Vec<(u32, Option<Srq>)>,
    /// The queues with an event to report, each once.
    listed: VecDeque<SrqId>,
}

impl Srqs {
    /// Creates a queue, and allocates all its memory.
    pub(crate) fn create(&mut self, config: SrqConfig) -> SrqId {
        let free = self.slots.iter().position(|(_, srq)| srq.is_none());
        let slot = free.unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let (serial, srq) = &mut self.slots[slot];
        *serial = serial.wrapping_add(1);
        *srq = Some(Srq::new(config));
        // There are never 2^32 queues.
        let id = SrqId { slot: slot as u32, serial: *serial };
        self.listed.reserve(self.slots.len() - self.listed.len());
        id
    }

    /// Destroys a queue and returns its attributes. Its receives complete flushed, in the name of the
    /// queue, as no QP has taken them.
    ///
    /// # Errors
    /// [`SrqError::Unknown`] or [`SrqError::InUse`].
    pub(crate) fn destroy(
        &mut self,
        id: SrqId,
        out: &mut Completions,
    ) -> Result<SrqConfig, SrqError> {
        let entry = self.entry(id).ok_or(SrqError::Unknown)?;
        let srq = entry.take_if(|srq| srq.users == 0).ok_or(SrqError::InUse)?;
        let config = srq.config;
        srq.flush(out);
        self.listed.retain(|&listed| listed != id);
        Ok(config)
    }

    /// Changes depth and threshold of a queue; `None` leaves them. Returns the depth before.
    ///
    /// # Errors
    /// [`SrqError::Unknown`] or [`SrqError::Outstanding`].
    pub(crate) fn modify(
        &mut self,
        id: SrqId,
        depth: Option<usize>,
        threshold: Option<usize>,
    ) -> Result<usize, SrqError> {
        let srq = self.get_mut(id).ok_or(SrqError::Unknown)?;
        let before = srq.config.depth;
        srq.modify(depth, threshold)?;
        self.list(id);
        Ok(before)
    }

    /// A queue.
    pub(crate) fn get_mut(&mut self, id: SrqId) -> Option<&mut Srq> {
        self.entry(id)?.as_mut()
    }

    /// Counts one more QP that uses the queue. Returns the domain of its keys.
    pub(crate) fn enter(&mut self, id: SrqId) -> Option<PdId> {
        let srq = self.get_mut(id)?;
        srq.users += 1;
        Some(srq.config.pd)
    }

    /// Counts one QP less that uses the queue.
    pub(crate) fn leave(&mut self, id: SrqId) {
        if let Some(srq) = self.get_mut(id) {
            srq.users -= 1;
        }
    }

    /// Lists the queue if it has an event to report.
    pub(crate) fn list(&mut self, id: SrqId) {
        if let Some(srq) = self.get_mut(id).filter(|srq| srq.due > 0 && !srq.listed) {
            srq.listed = true;
            self.listed.push_back(id);
        }
    }

    /// Whether a queue fell below its threshold, for [`Self::pop_low`].
    pub(crate) fn has_low(&self) -> bool {
        !self.listed.is_empty()
    }

    /// The owner of the next queue that fell below its threshold, once for each time that it was armed.
    pub(crate) fn pop_low(&mut self) -> Option<u64> {
        let &id = self.listed.front()?;
        let srq = self.get_mut(id)?;
        srq.due -= 1;
        let (owner, last) = (srq.config.owner, srq.due == 0);
        if last {
            srq.listed = false;
            self.listed.pop_front();
        }
        Some(owner)
    }

    fn entry(&mut self, id: SrqId) -> Option<&mut Option<Srq>> {
        let (serial, srq) = self.slots.get_mut(id.slot as usize)?;
        (*serial == id.serial && srq.is_some()).then_some(srq)
    }
}
