//! Turns and bursts: the order in which queue pairs send, and the look at them after a burst.

use super::Device;

/// A turn to send.
pub(super) struct Sender {
    pub(super) slot: usize,
    pub(super) units: usize,
    pub(super) bytes: usize,
}

impl Sender {
    /// Whether anything is left of the turn.
    pub(super) const fn goes_on(&self) -> bool {
        self.units > 0 && self.bytes > 0
    }
}

/// A turn to send: units and bytes, at most. A long one costs less for each packet, and makes the others
/// wait; where there are none, bytes do not matter.
const TURN_UNITS: usize = 32;
const TURN_BYTES: usize = 16 << 10;

impl Device {
    /// The queue pair whose turn it is, or the next one.
    pub(super) fn next_sender(&mut self) -> Option<Sender> {
        self.sender.take().or_else(|| {
            let slot = self.ready.pop_front()?;
            let bytes = if self.ready.is_empty() { usize::MAX } else { TURN_BYTES };
            Some(Sender { slot, units: TURN_UNITS, bytes })
        })
    }

    pub(super) fn end_turn(&mut self, slot: usize) {
        if let Some(entry) = self.qps[slot].as_deref_mut() {
            entry.scheduled = false;
        }
        self.touch(slot);
    }

    /// Notes that something happened to a QP.
    pub(super) fn touch(&mut self, slot: usize) {
        if let Some(entry) = self.qps[slot].as_deref_mut()
            && !core::mem::replace(&mut entry.touched, true)
        {
            self.touched.push(slot);
        }
    }

    /// The same of one that went a short way, and is looked at now, unless others wait for that.
    #[inline]
    pub(super) fn touch_shortly(&mut self, slot: usize) {
        if self.touched.is_empty() { self.settle_one(slot) } else { self.touch(slot) }
    }

    /// Completes a burst of calls into QPs.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.touched.is_empty() {
            self.settle_all();
        }
    }

    #[inline(never)]
    fn settle_all(&mut self) {
        let mut touched = core::mem::take(&mut self.touched);
        touched.drain(..).for_each(|slot| self.settle_one(slot));
        self.touched = touched;
    }

    /// Reports the failure of a QP, keeps its deadline, passes on the response to a probe, and lets it send.
    pub(super) fn settle_one(&mut self, slot: usize) {
        let Some(entry) = self.qps[slot].as_deref_mut() else { return };
        entry.touched = false;
        if entry.qp.has_completions() && !core::mem::replace(&mut entry.finished, true) {
            self.finished.push_back(slot);
        }
        if let Some(deadline) = entry.qp.take_deadline() {
            self.timers.arm(slot, deadline);
        }
        if !entry.qp.is_calm() {
            if !entry.failed && entry.qp.failure().is_some() {
                entry.failed = true;
                entry.qp.close_reorder_buffer(&mut self.reorder_pool);
                self.failures.push_back(slot);
            }
            if entry.qp.take_probe_answer()
                && let Some(conn) = entry.conn
            {
                self.cm.peer_answered(conn);
            }
        }
        let ready = entry.qp.look(self.config.short_ways);
        if ready && !core::mem::replace(&mut entry.scheduled, true) {
            self.ready.push_back(slot);
        }
    }

    pub(super) fn schedule(&mut self, slot: usize) {
        if let Some(entry) = self.qps[slot].as_deref_mut()
            && !entry.scheduled
            && entry.qp.ready()
        {
            entry.scheduled = true;
            self.ready.push_back(slot);
        }
    }
}
