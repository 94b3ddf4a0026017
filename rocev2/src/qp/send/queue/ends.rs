//! The ends of requests: in order, noted where the request was written, and taken from there as completions.

use super::{Place, SendQueue};
use crate::env::Instant;
use crate::mr::Released;
use crate::psn::Psn;
use crate::qp::send::entry::Wqe;
use crate::qp::work::{Completion, Completions, SendOp, WcStatus};

impl SendQueue {
    /// Completes the oldest request, unless it has to wait for the copies of a READ ([`copies`]).
    pub(super) fn succeed(&mut self, out: &mut Completions) {
        let Some(head) = self.oldest() else { return };
        if self.parked == 0 && !(head.is_read() && self.copies.before(self.una)) {
            self.end(WcStatus::Success, out);
        } else {
            if self.parked == 0 {
                let packets = self.packets(head);
                self.parked_at = self.una.back(packets);
            }
            self.parked += 1;
        }
        self.leave_head();
    }

    /// Ends the oldest entry of the ring. A mapping that was never made releases its region.
    fn end(&mut self, status: WcStatus, out: &mut Completions) {
        let Some(wqe) = self.ring.get(self.done).map(Wqe) else { return };
        if let (SendOp::FastRegister { key, mapping }, false) = (wqe.op(), wqe.executed()) {
            out.release(Released { key, region: mapping.region });
        }
        wqe.set_status(status);
        self.done += 1;
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
        self.ring.drain(count, move |entry| Wqe(entry).completion(owner))
    }

    /// Removes the oldest completion.
    #[inline]
    pub(crate) fn pop_completion(&mut self) -> Option<Completion> {
        if !self.has_completions() {
            return None;
        }
        let owner = self.owner;
        self.done -= 1;
        self.ring.take(|entry| Wqe(entry).completion(owner))
    }

    /// Whether a READ has its data and is not complete, as a copy of its request may be in the network. A
    /// fence waits for it.
    pub(crate) const fn parks(&self) -> bool {
        self.parked > 0
    }

    /// When [`Self::unpark`] has work, if no response comes.
    pub(crate) fn parked_until(&self) -> Option<Instant> {
        self.copies.deadline().filter(|_| self.parks())
    }

    /// Completes the parked requests that wait for no copy any more.
    pub(crate) fn unpark(&mut self, now: Instant, out: &mut Completions) {
        self.copies.overtaken(self.known_end());
        self.copies.expire(now);
        while let Some(wqe) = self.ring.get(self.done).map(Wqe).filter(|_| self.parks()) {
            let end = self.parked_at.add(self.packets(wqe));
            if self.copies.before(end) {
                return;
            }
            self.parked_at = end;
            self.unpark_one(out);
        }
    }

    fn unpark_one(&mut self, out: &mut Completions) {
        self.parked -= 1;
        self.end(WcStatus::Success, out);
    }

    /// Completes all parked requests: they have succeeded, whatever happens to the rest.
    fn unpark_all(&mut self, out: &mut Completions) {
        while self.parks() {
            self.unpark_one(out);
        }
    }

    /// Completes as flushed every request that ends before `psn`.
    pub(crate) fn flush_before(&mut self, psn: Psn, out: &mut Completions) {
        self.unpark_all(out);
        while let Some(head) = self.oldest() {
            let left = self.packets(head) - self.una_packet;
            if i64::from(psn.since(self.una)) < i64::from(left) {
                return;
            }
            self.end(WcStatus::Flushed, out);
            self.una = self.una.add(left);
            self.leave_head();
        }
    }

    /// Completes the oldest request with an error.
    pub(crate) fn fail_head(&mut self, status: WcStatus, out: &mut Completions) {
        self.unpark_all(out);
        if self.oldest().is_some() {
            self.end(status, out);
            self.leave_head();
        }
    }

    /// Completes everything as flushed, in order, with what was posted meanwhile.
    pub(crate) fn flush(&mut self, out: &mut Completions) {
        self.unpark_all(out);
        self.update();
        while self.oldest().is_some() {
            self.end(WcStatus::Flushed, out);
        }
        self.cursor = Place::default();
        self.una_packet = 0;
        self.read_ends.clear();
        self.reads = 0;
        self.copies.clear();
        (self.una, self.next) = (self.highest, self.highest);
        self.scoreboard.clear(self.highest);
    }

    /// Completes the oldest requests that have taken effect without a packet.
    pub(super) fn complete_executed(&mut self, out: &mut Completions) {
        while self.oldest().is_some_and(Wqe::executed) {
            self.succeed(out);
        }
    }
}
