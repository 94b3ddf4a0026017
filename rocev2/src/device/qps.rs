//! Queue pairs: their lives, their numbers, and the places in the table.

use super::engine::{Engine, QpSlot, find};
use super::front::Heard;
use super::turns::Sender;
use crate::counters::Tally;
use crate::env::Instant;
use crate::ids::Qpn;
use crate::qp::{Failure, Qp, QpConfig, QpState};
use crate::wire::Pmtu;
use alloc::boxed::Box;
use alloc::sync::Arc;

impl Engine {
    /// Creates a QP in INIT; `None` where the table is full, there is no memory for a larger one, or the
    /// shared receive queue is unknown.
    pub fn create_qp(&mut self, config: &QpConfig) -> Option<Qpn> {
        if self.free.is_empty() {
            self.double()?;
        }
        let recv_pd = match config.srq {
            Some(srq) => self.srqs.enter(srq)?,
            None => config.pd,
        };
        let slot = self.draw_slot()?;
        let qpn = self.draw_qpn(slot);
        let tally = Tally::new(Arc::clone(&self.counters));
        let (qp, posters) =
            Qp::new(qpn, config, recv_pd, self.config.window, self.config.dcqcn, tally);
        self.completions.reserve_mappings(qp.send_depth());
        self.qps[slot] = Some(Box::new(QpSlot {
            dead: false,
            awaits_rtu: false,
            scheduled: false,
            touched: false,
            finished: false,
            failed: false,
            shares: config.srq.is_some(),
            news: Heard::default(),
            path: None,
            qp,
            template: None,
            heard: None,
            flow: None,
            conn: None,
            posters,
        }));
        Some(qpn)
    }

    /// Changes the caller's name for a QP, before anything is posted.
    pub fn set_qp_owner(&mut self, qpn: Qpn, owner: u64) {
        let slot = self.slot_index(qpn);
        if let Some(entry) = find(&mut self.qps, slot, qpn) {
            entry.qp.set_owner(owner);
        }
    }

    /// Destroys a QP; its posted requests complete flushed first. Another QP may take its place in the table once
    /// these completions are taken.
    pub fn destroy_qp(&mut self, qpn: Qpn) {
        self.flush_qp(qpn);
        self.settle();
        let Some((slot, entry)) = self.slot(qpn) else { return };
        let send_depth = entry.qp.send_depth();
        let (srq, path, scheduled) = (entry.qp.srq(), entry.path, entry.scheduled);
        if let Some(path) = path {
            self.paths.release(path);
        }
        self.completions.unreserve_mappings(send_depth);
        if let Some(srq) = srq {
            self.srqs.leave(srq);
        }
        self.mrs.unbind_qp(qpn);
        self.sender.take_if(|sender| sender.slot == slot);
        self.lists.timers.disarm(slot);
        // Its place in the line would be another's, which has one of its own.
        if scheduled {
            self.lists.ready.retain_mut(|ready| *ready != slot);
        }
        self.lists.failures.retain(|failed| *failed != slot);
        self.lists.heard.retain(|heard| *heard != slot);
        if let Some(entry) = self.qps[slot].as_deref_mut() {
            (entry.dead, entry.path) = (true, None);
        }
        self.bury(slot);
    }

    /// Frees the slot of a destroyed QP, unless completions are to be taken.
    pub(super) fn bury(&mut self, slot: usize) {
        let entry = self.qps[slot].take_if(|entry| entry.dead && !entry.qp.has_completions());
        if entry.is_some() {
            self.free.push_back(slot);
        }
    }

    /// Cancels everything posted on a QP; it is in the error state from here on.
    pub fn flush_qp(&mut self, qpn: Qpn) {
        let slot = self.slot_index(qpn);
        if let Some(entry) = find(&mut self.qps, slot, qpn) {
            entry.qp.flush(&mut self.completions);
            entry.qp.close_reorder_buffer(&mut self.reorder_pool);
            self.touch(slot);
        }
    }

    /// The state of a QP.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.slot(qpn).map(|(_, entry)| entry.qp.state())
    }

    /// Payload bytes of a full packet between a QP and its peer; `None` without one.
    pub fn qp_pmtu(&self, qpn: Qpn) -> Option<Pmtu> {
        self.slot(qpn)?.1.qp.peer().map(|peer| peer.pmtu)
    }

    /// The error that took a QP to the error state, if its owner did not; known with its first unsuccessful
    /// completion.
    pub fn qp_failure(&self, qpn: Qpn) -> Option<Failure> {
        self.slot(qpn)?.1.qp.failure()
    }

    /// READs that a QP may have in flight; 0 without a connection, or where none were negotiated.
    pub fn outbound_reads(&self, qpn: Qpn) -> u8 {
        let peer = self.slot(qpn).and_then(|(_, entry)| entry.qp.peer());
        peer.map_or(0, |peer| peer.outbound_reads)
    }

    /// The rate to which congestion control limits a QP, in bytes per second; `None` without a limit.
    pub fn qp_rate(&mut self, qpn: Qpn, now: Instant) -> Option<u64> {
        let slot = self.slot_index(qpn);
        find(&mut self.qps, slot, qpn)?.qp.rate(now)
    }

    /// Bytes that the creation of a QP with so many initiator requests may allocate beside its queues: a table that is full doubles.
    pub fn qp_bytes(&self, requests: usize) -> usize {
        /// The entries of a slot: in the table and its lists, twice in the timers, and in the queue of those
        /// which as vectors that double may have twice the room.
        const SLOT_BYTES: usize = 256;
        let slots = if self.free.is_empty() { 2 * self.qps.len() * SLOT_BYTES } else { 0 };
        slots + self.completions.room_bytes(0, requests)
    }

    /// Doubles the table, so that each QP has the place that its number names in a larger one. `None` where
    /// it is as large as it may be, or there is no memory; nothing has changed then.
    fn double(&mut self) -> Option<()> {
        let (before, slots) = (self.qps.len(), 2 * self.qps.len());
        if slots > self.config.max_qps {
            return None;
        }
        // Nothing is in the list of those that are touched.
        self.settle();
        self.qps.try_reserve_exact(before).ok()?;
        self.last_qpns.try_reserve_exact(before).ok()?;
        self.free.try_reserve_exact(slots - self.free.len()).ok()?;
        self.lists.make_room(slots)?;
        self.qps.resize_with(slots, || None);
        self.last_qpns.resize(slots, Qpn::default());
        for slot in 0..before {
            self.move_up(slot, slot + before);
            // A place that was free is in the list of them, and the one above it was never used.
            let taken = self.qps[slot + before].is_some();
            self.free.push_front(if taken { slot } else { slot + before });
        }
        self.renumber(before);
        Some(())
    }

    /// Moves a slot to its place `above` in the table that has doubled, if its number names that.
    fn move_up(&mut self, slot: usize, above: usize) {
        if self.slot_index(self.last_qpns[slot]) == above {
            self.qps.swap(slot, above);
            self.last_qpns.swap(slot, above);
        }
    }

    /// Follows the QPs of a table that has doubled from `before` places in the lists of slots.
    fn renumber(&mut self, before: usize) {
        let Self { qps, lists, sender, .. } = self;
        let number = |slot: usize| [slot, slot + before].into_iter().find(|at| qps[*at].is_some());
        lists.renumber(qps.len(), number);
        *sender = sender.take().and_then(|old| Some(Sender { slot: number(old.slot)?, ..old }));
    }

    /// Draws a slot from the half of the free ones that have been free for longest: the low bits of the
    /// next QPN cannot be guessed either, and a slot that was just given up is not used again soon.
    fn draw_slot(&mut self) -> Option<usize> {
        let oldest = self.free.len().div_ceil(2) as u32;
        let drawn = self.rng.below(oldest) as usize;
        self.free.swap_remove_front(drawn)
    }

    /// Draws a QPN. The slot is in the low bits, so that a packet finds its QP without a search. The core, of several, is in
    /// the highest ones. The other bits are random, so that a QPN cannot be guessed, and a stale one names no QP.
    fn draw_qpn(&mut self, slot: usize) -> Qpn {
        loop {
            let high = self.rng.u32() & !(self.qps.len() as u32 - 1);
            let (core, cores) = self.core;
            let qpn = Qpn::of_core(core, cores, high | slot as u32);
            // Packets to a number that was just given up may still be in the network (time-wait).
            if qpn.is_connectable() && qpn != self.last_qpns[slot] {
                self.last_qpns[slot] = qpn;
                return qpn;
            }
        }
    }
}
