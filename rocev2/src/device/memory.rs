//! Keys and shared receive queues.

use super::engine::Engine;
use super::{Device, Engines, Front};
use crate::ids::Rkey;
use crate::mr::{AccessError, PdId, Registration, Released, Reserve};
use crate::qp::{PostError, RecvPoster, RecvWr, Sge, SrqConfig, SrqError, SrqId};

impl<E: Engines> Device<E> {
    /// Registers memory; `None` where the table is full, or there is no memory for it.
    pub fn register(&mut self, registration: Registration) -> Option<Rkey> {
        self.front.registrar.register(registration)
    }

    /// Reserves a key for a fast-register region, a window, or the logical addresses of a domain. It stays
    /// the same until [`Self::deregister`]; work requests map, bind and invalidate it. `None` where the
    /// table is full, or there is no memory.
    pub fn reserve(&mut self, pd: PdId, what: Reserve) -> Option<Rkey> {
        let Self { front: Front { registrar, .. }, engines } = self;
        let mut has_room = true;
        if what == Reserve::Window {
            let windows = registrar.windows() + 1;
            engines.for_each(&mut |engine| has_room &= engine.mrs.make_room(windows).is_some());
        }
        if !has_room {
            return None;
        }
        let key = registrar.reserve(pd, what)?;
        if matches!(what, Reserve::FastRegister(_)) {
            let mut reserved = 0;
            engines.for_each(&mut |engine| {
                has_room = has_room && engine.completions.reserve_key().is_some();
                reserved += usize::from(has_room);
            });
            if !has_room {
                engines.for_each(&mut |engine| {
                    if reserved > 0 {
                        engine.completions.unreserve_key();
                        reserved -= 1;
                    }
                });
                let ended = registrar.deregister(key);
                debug_assert!(ended.is_ok());
                return None;
            }
        }
        Some(key)
    }

    /// Ends a key, registered or reserved, in any state. The bytes of a registration are the caller's again
    /// when this returns; those of a fast registration come out of [`Engine::poll_released`].
    ///
    /// # Errors
    /// [`AccessError::UnknownKey`] where there is no such key.
    pub fn deregister(&mut self, key: Rkey) -> Result<(), AccessError> {
        let Self { front: Front { registrar, .. }, engines } = self;
        if registrar.is_fast_register(key) {
            engines.for_each(&mut |engine| engine.completions.unreserve_key());
        }
        if let Some(released) = registrar.deregister(key)? {
            engines.first().completions.release(released);
        }
        Ok(())
    }

    /// Bytes that the tables of the device may allocate for one more key: a table that is full doubles.
    pub fn key_bytes(&mut self) -> usize {
        let Self { front: Front { registrar, .. }, engines } = self;
        // All cores have room for as many.
        let first = engines.first();
        let of_core =
            first.mrs.growth_bytes(registrar.windows() + 1) + first.completions.key_bytes();
        registrar.growth_bytes() + first.cores() * of_core
    }
}

impl Engine {
    /// The next region of a fast registration whose bytes the device no longer uses. Every region that a
    /// posted [`SendOp::FastRegister`](crate::qp::SendOp::FastRegister) named comes out here once, whether
    /// its mapping ended, its key ended, or the request failed or was flushed.
    pub fn poll_released(&mut self) -> Option<Released> {
        self.completions.pop_released()
    }

    /// Bytes that the completions of so many more receives of a shared queue, and the mappings of so many more
    /// initiator requests, may allocate beside the queues themselves: all queues share these tables, and they
    /// double.
    pub fn room_bytes(&self, shared_receives: usize, requests: usize) -> usize {
        self.completions.room_bytes(shared_receives, requests)
    }

    /// Creates a shared receive queue. Its threshold is armed.
    pub fn create_srq(&mut self, config: SrqConfig) -> SrqId {
        self.completions.reserve(config.depth);
        self.srqs.create(config)
    }

    /// Changes the caller's name for a shared receive queue, before anything is posted.
    pub fn set_srq_owner(&mut self, id: SrqId, owner: u64) {
        if let Some(srq) = self.srqs.get_mut(id) {
            srq.set_owner(owner);
        }
    }

    /// Changes depth and threshold of a shared receive queue; `None` leaves them. A threshold is armed
    /// anew: [`Event::SrqLow`](super::Event::SrqLow) follows at once where fewer receives are queued; 0
    /// disarms. A queue that becomes deeper may get a ring of its new depth, in which case
    /// [`Self::take_srq_poster`] gives the end to post to from then on; a poster that was taken before is
    /// to be dropped then.
    ///
    /// # Errors
    /// [`SrqError`]: nothing was changed.
    pub fn modify_srq(
        &mut self,
        id: SrqId,
        depth: Option<usize>,
        threshold: Option<usize>,
    ) -> Result<(), SrqError> {
        let before = self.srqs.modify(id, depth, threshold)?;
        if let Some(depth) = depth {
            self.completions.reserve(depth.saturating_sub(before));
            self.completions.unreserve(before.saturating_sub(depth));
        }
        Ok(())
    }

    /// Destroys a shared receive queue; its receives complete flushed, in the queue's name.
    ///
    /// # Errors
    /// [`SrqError`]: unknown, or a QP uses it.
    pub fn destroy_srq(&mut self, id: SrqId) -> Result<(), SrqError> {
        let config = self.srqs.destroy(id, &mut self.completions)?;
        self.completions.unreserve(config.depth);
        Ok(())
    }

    /// Takes the end where receives of a shared queue are posted, for another thread; `None` where it was
    /// taken before, or there is no such queue. A message finds what was posted before the last
    /// [`Self::ring_srq_doorbell`]. The poster takes as many receives as its ring holds; to obey a depth that
    /// became less is its owner's part.
    pub fn take_srq_poster(&mut self, id: SrqId) -> Option<RecvPoster> {
        self.srqs.get_mut(id)?.take_poster()
    }

    /// Takes note of what was posted to a poster of a shared queue before.
    pub fn ring_srq_doorbell(&mut self, id: SrqId) {
        if let Some(srq) = self.srqs.get_mut(id) {
            srq.update();
        }
    }

    /// Receives of a shared queue that were taken note of in its life, modulo 2^32.
    pub fn srq_posted(&mut self, id: SrqId) -> Option<u32> {
        self.srqs.get_mut(id).map(|srq| srq.posted())
    }

    /// Queues a receive for any QP of the shared queue. Its completion names that QP.
    ///
    /// # Errors
    /// [`PostError`]: nothing was queued. [`PostError::PosterTaken`] after [`Self::take_srq_poster`].
    pub fn post_srq_recv<S: IntoIterator<Item = Sge>>(
        &mut self,
        id: SrqId,
        wr: RecvWr<S>,
    ) -> Result<(), PostError> {
        self.srqs.get_mut(id).ok_or(PostError::UnknownSrq)?.post(wr)
    }
}
