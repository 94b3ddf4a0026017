//! Keys and shared receive queues.

use super::Device;
use crate::ids::Rkey;
use crate::mr::{AccessError, PdId, Registration, Released, Reserve};
use crate::qp::{PostError, RecvWr, SrqConfig, SrqError, SrqId};

impl Device {
    /// Registers memory; `None` where the table is full.
    pub fn register(&mut self, registration: Registration) -> Option<Rkey> {
        self.mrs.register(registration)
    }

    /// Reserves a key for a fast-register region, a window, or the logical addresses of a domain. It stays
    /// the same until [`Self::deregister`]; work requests map, bind and invalidate it. `None` where the
    /// table is full.
    pub fn reserve(&mut self, pd: PdId, what: Reserve) -> Option<Rkey> {
        self.mrs.reserve(pd, what)
    }

    /// Ends a key, registered or reserved, in any state. The bytes of a registration are the caller's again
    /// when this returns; those of a fast registration come out of [`Self::poll_released`].
    ///
    /// # Errors
    /// [`AccessError::UnknownKey`] where there is no such key.
    pub fn deregister(&mut self, key: Rkey) -> Result<(), AccessError> {
        if let Some(released) = self.mrs.deregister(key)? {
            self.completions.release(released);
        }
        Ok(())
    }

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

    /// Changes depth and threshold of a shared receive queue; `None` leaves them. A threshold is armed
    /// anew: [`Event::SrqLow`](super::Event::SrqLow) follows at once where fewer receives are queued; 0
    /// disarms.
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

    /// Queues a receive for any QP of the shared queue. Its completion names that QP.
    ///
    /// # Errors
    /// [`PostError`]: nothing was queued.
    pub fn post_srq_recv(&mut self, id: SrqId, wr: RecvWr) -> Result<(), PostError> {
        self.srqs.get_mut(id).ok_or(PostError::UnknownSrq)?.push(wr)
    }
}
