//! Posting: work requests, and the ends where other threads post them.

use super::engine::{Engine, find};
use crate::ids::Qpn;
use crate::qp::{PostError, RecvPoster, RecvWr, SendOp, SendPoster, SendWr, Sge};

impl Engine {
    /// Queues an initiator request.
    ///
    /// # Errors
    /// [`PostError`]: nothing was queued. [`PostError::PosterTaken`] after [`Self::take_send_poster`].
    pub fn post_send<S: IntoIterator<Item = Sge>>(
        &mut self,
        qpn: Qpn,
        wr: SendWr<S>,
    ) -> Result<(), PostError> {
        let slot = self.slot_index(qpn);
        let entry = find(&mut self.qps, slot, qpn).ok_or(PostError::UnknownQp)?;
        entry.qp.admits(&wr)?;
        entry.posters.send.as_mut().ok_or(PostError::PosterTaken)?.post(wr)?;
        self.ring_doorbell(qpn);
        Ok(())
    }

    /// Takes the end where initiator requests are posted, for another thread; `None` where there is no such
    /// QP, or it was taken before. There nothing is refused for the state of the QP: one that is not connected
    /// keeps the request until it is, and a READ on a connection without READs fails the QP.
    pub fn take_send_poster(&mut self, qpn: Qpn) -> Option<SendPoster> {
        let slot = self.slot_index(qpn);
        find(&mut self.qps, slot, qpn)?.posters.send.take()
    }

    /// Takes the end where receives are posted, for another thread; `None` where there is no such QP, it was
    /// taken before, or the QP takes its receives from a shared queue. A message finds a receive as soon as it
    /// is posted; [`Self::ring_doorbell`] matters only to a QP in the error state, which flushes it.
    pub fn take_recv_poster(&mut self, qpn: Qpn) -> Option<RecvPoster> {
        let slot = self.slot_index(qpn);
        find(&mut self.qps, slot, qpn)?.posters.recv.take()
    }

    /// Takes note of what was posted to a [`SendPoster`] or [`RecvPoster`] before. Returns whether
    /// [`Self::next_window_request`] may have a request.
    pub fn ring_doorbell(&mut self, qpn: Qpn) -> bool {
        self.ring(qpn, true)
    }

    /// The same of a [`SendPoster`] alone, for less.
    #[inline]
    pub fn ring_send_doorbell(&mut self, qpn: Qpn) -> bool {
        self.ring(qpn, false)
    }

    #[inline]
    fn ring(&mut self, qpn: Qpn, receives: bool) -> bool {
        let slot = self.slot_index(qpn);
        let Self { qps, completions, lists, .. } = self;
        let Some(entry) = find(qps, slot, qpn) else { return false };
        entry.qp.ring_doorbell(receives, completions);
        let windows = entry.qp.has_window_requests();
        if entry.settles_at_once(lists) {
            entry.settle_rung(slot, lists);
        } else {
            self.touch_shortly(slot);
        }
        windows
    }

    /// The next posted request that binds or ends a window; each comes out once, unless it ends before.
    pub fn next_window_request(&mut self, qpn: Qpn) -> Option<SendOp> {
        let slot = self.slot_index(qpn);
        let Self { qps, mrs, .. } = self;
        let qp = &mut find(qps, slot, qpn)?.qp;
        let of_window = |op: &SendOp| match op {
            SendOp::Invalidate(key) => mrs.is_window(*key),
            _ => true,
        };
        core::iter::from_fn(|| qp.next_window_request()).find(of_window)
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// [`PostError`]: nothing was queued. [`PostError::PosterTaken`] after [`Self::take_recv_poster`].
    pub fn post_recv<S: IntoIterator<Item = Sge>>(
        &mut self,
        qpn: Qpn,
        wr: RecvWr<S>,
    ) -> Result<(), PostError> {
        let slot = self.slot_index(qpn);
        let entry = find(&mut self.qps, slot, qpn).ok_or(PostError::UnknownQp)?;
        if entry.qp.srq().is_some() {
            return Err(PostError::SharedReceives);
        }
        entry.posters.recv.as_mut().ok_or(PostError::PosterTaken)?.post(wr)?;
        self.ring_doorbell(qpn);
        Ok(())
    }
}
