//! Turns and bursts: the order in which queue pairs send, and the look at them after a burst.

use super::engine::{Engine, QpSlot};
use super::front::Heard;
use super::line::Line;
use crate::env::Instant;
use crate::timer::Timers;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The queue pairs that something is to be done for, by their slots.
pub(super) struct Lists {
    pub(super) timers: Timers,
    /// Those that may have something to send.
    pub(super) ready: Line,
    /// Those that something happened to: after a burst their failures, deadlines and readiness are looked at once.
    pub(super) touched: Vec<usize>,
    /// Those with completions to take.
    pub(super) finished: Vec<usize>,
    /// Those whose failure is to be told.
    pub(super) failures: VecDeque<usize>,
    /// Those that have heard something of their connections, and when the last one did.
    pub(super) heard: Vec<usize>,
    pub(super) heard_at: Instant,
}

impl Lists {
    /// Empty ones, with room for `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            timers: Timers::new(slots),
            ready: Line::new(slots),
            touched: Vec::with_capacity(slots),
            finished: Vec::with_capacity(slots),
            failures: VecDeque::with_capacity(slots),
            heard: Vec::with_capacity(slots),
            heard_at: Instant::default(),
        }
    }

    /// Makes room for `slots` slots, while nothing is touched. `None`: no memory.
    pub(super) fn make_room(&mut self, slots: usize) -> Option<()> {
        self.touched.try_reserve_exact(slots).ok()?;
        self.ready.make_room(slots)?;
        self.finished.try_reserve_exact(slots - self.finished.len()).ok()?;
        self.failures.try_reserve_exact(slots - self.failures.len()).ok()?;
        self.heard.try_reserve_exact(slots - self.heard.len()).ok()?;
        self.timers.make_room(slots)
    }

    /// Whether a failure is to be told, or news of a connection.
    pub(super) fn has_news(&self) -> bool {
        !self.failures.is_empty() || !self.heard.is_empty()
    }

    /// Makes the number of slots `slots`, and gives each slot another number, or none.
    pub(super) fn renumber(&mut self, slots: usize, number: impl Fn(usize) -> Option<usize>) {
        let renumber = |slot: &mut usize| number(*slot).map(|now| *slot = now).is_some();
        self.finished.retain_mut(renumber);
        self.failures.retain_mut(renumber);
        self.heard.retain_mut(renumber);
        self.ready.retain_mut(renumber);
        self.timers.renumber(slots, number);
    }
}

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

impl Engine {
    /// The queue pair whose turn it is, or the next one.
    #[inline]
    pub(super) fn next_sender(&mut self) -> Option<Sender> {
        if self.sender.is_some() {
            return self.sender.take();
        }
        let slot = self.lists.ready.pop()?;
        let bytes = if self.lists.ready.is_empty() { usize::MAX } else { TURN_BYTES };
        Some(Sender { slot, units: TURN_UNITS, bytes })
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
            self.lists.touched.push(slot);
        }
    }

    /// The same of one that went a short way, and is looked at now, unless others wait for that.
    pub(super) fn touch_shortly(&mut self, slot: usize) {
        if self.lists.touched.is_empty() { self.settle_one(slot) } else { self.touch(slot) }
    }

    /// Completes a burst of calls into QPs.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.lists.touched.is_empty() {
            self.settle_all();
        }
    }

    #[inline(never)]
    fn settle_all(&mut self) {
        let mut touched = core::mem::take(&mut self.lists.touched);
        touched.drain(..).for_each(|slot| self.settle_one(slot));
        self.lists.touched = touched;
    }

    /// Reports the failure of a QP, keeps its deadline, passes on the response to a probe, and lets it send.
    #[inline(never)]
    pub(super) fn settle_one(&mut self, slot: usize) {
        let Self { qps, lists, reorder_pool, config, .. } = self;
        let Some(entry) = qps[slot].as_deref_mut() else { return };
        entry.touched = false;
        if entry.qp.is_calm() {
            return entry.settle_calmly(slot, lists);
        }
        entry.note_progress(slot, lists);
        if !entry.failed && entry.qp.failure().is_some() {
            entry.failed = true;
            entry.qp.close_reorder_buffer(reorder_pool);
            lists.failures.push_back(slot);
        }
        if entry.qp.take_probe_answer() {
            entry.hears(slot, lists, Heard::ANSWER);
        }
        let ready = entry.qp.look(config.short_ways);
        entry.schedule(slot, lists, ready);
    }

    pub(super) fn schedule(&mut self, slot: usize) {
        if let Some(entry) = self.qps[slot].as_deref_mut() {
            let ready = entry.qp.ready();
            entry.schedule(slot, &mut self.lists, ready);
        }
    }
}

impl QpSlot {
    /// Whether [`Self::settle_received`] or [`Self::settle_rung`] may take the place of a touch: no other waits to be looked at before it.
    #[inline(always)]
    pub(super) fn settles_at_once(&self, lists: &Lists) -> bool {
        self.qp.is_calm() && lists.touched.is_empty()
    }

    /// The whole of [`Engine::settle_one`] for a queue pair that is calm.
    #[inline(always)]
    fn settle_calmly(&mut self, slot: usize, lists: &mut Lists) {
        self.note_progress(slot, lists);
        self.settle_rung(slot, lists);
    }

    /// The same for one that has taken a packet alone: that starts no timer.
    #[inline(always)]
    pub(super) fn settle_received(&mut self, slot: usize, lists: &mut Lists) {
        self.note_completions(slot, lists);
        self.settle_rung(slot, lists);
    }

    /// The same for one that has heard of posts, and nothing else: they complete nothing.
    #[inline(always)]
    pub(super) fn settle_rung(&mut self, slot: usize, lists: &mut Lists) {
        debug_assert!(self.finished || !self.qp.has_completions(), "noted before");
        let ready = self.qp.look_calmly();
        self.schedule(slot, lists, ready);
    }

    /// Ends the turn of a queue pair that [rests](crate::qp::Qp::rests).
    #[inline(always)]
    pub(super) fn end_short_turn(&mut self, slot: usize, timers: &mut Timers) {
        self.scheduled = false;
        if let Some(deadline) = self.qp.take_deadline() {
            timers.arm(slot, deadline);
        }
    }

    /// The completions to take, and the deadline, of a queue pair that something happened to.
    #[inline(always)]
    fn note_progress(&mut self, slot: usize, lists: &mut Lists) {
        self.note_completions(slot, lists);
        if let Some(deadline) = self.qp.take_deadline() {
            lists.timers.arm(slot, deadline);
        }
    }

    #[inline(always)]
    fn note_completions(&mut self, slot: usize, lists: &mut Lists) {
        if self.qp.has_completions() && !core::mem::replace(&mut self.finished, true) {
            lists.finished.push(slot);
        }
    }

    /// Notes news of its connection.
    pub(super) fn hears(&mut self, slot: usize, lists: &mut Lists, heard: Heard) {
        if self.news.is_empty() {
            lists.heard.push(slot);
        }
        self.news = self.news.with(heard);
    }

    /// Gives it a turn to send where it is ready and has none.
    #[inline(always)]
    fn schedule(&mut self, slot: usize, lists: &mut Lists, ready: bool) {
        if ready && !core::mem::replace(&mut self.scheduled, true) {
            lists.ready.push(slot);
        }
    }
}
