//! The steps of a core's turn on its lane, in their order.

use super::sink::Sink;
use super::{Beside, Lane};
use crate::bytes::Regions;
use crate::cq::core::Delivery;
use crate::cq::shared::CqObject;
use crate::object::id::Ringer;
use crate::srq::shared::SrqObject;
use crate::upcall::Notice;
use alloc::sync::Arc;
use netadapter_glue::Received;
use rocev2::env::Instant;
use rocev2::{Engine, Front};

impl Lane {
    /// Takes what the edge received; on the first core with the work `beside` the lane.
    #[inline]
    pub(crate) fn receive(&mut self, units: &[Received<'_>], beside: &mut Option<Beside<'_>>) {
        let Self { now, core, shard, engine, bytes, .. } = self;
        let cores = shard.cores();
        if cores == 1 {
            return receive_own((*now, engine, bytes), units, beside);
        }
        for own in units.split(|unit| !shard.keeps((*core, cores), unit)) {
            receive_own((*now, engine, bytes), own, beside);
        }
    }

    /// Takes what other cores have passed on; on the first core with the work `beside` the lane. Returns the number of units.
    #[inline]
    pub(crate) fn receive_passed(&mut self, beside: Option<Beside<'_>>) -> usize {
        if self.door.has_passed() { self.drain_passage(beside) } else { 0 }
    }

    #[inline(never)]
    fn drain_passage(&mut self, mut beside: Option<Beside<'_>>) -> usize {
        let (now, shard, mut units) = (self.now.as_nanos(), Arc::clone(&self.shard), 0);
        self.drain_doorbells();
        if let Some(passage) = shard.passed(self.core) {
            passage.drain(&mut |frame, segment_len| {
                units += 1;
                let front = match &mut beside {
                    // A NIC that knows no queue pairs gives anything to any core.
                    Some(Beside { front, neighbours }) => {
                        if neighbours.handle_frame(now, frame) {
                            return;
                        }
                        Some(&mut **front)
                    }
                    None => None,
                };
                self.handle_frames(core::iter::once((frame, segment_len)), front);
            });
        }
        units
    }

    /// Gives units to the transport; on the first core with its front.
    #[inline(always)]
    fn handle_frames<'f>(
        &mut self,
        frames: impl IntoIterator<Item = (&'f [u8], Option<usize>)>,
        front: Option<&mut Front>,
    ) {
        let Self { now, engine, bytes, .. } = self;
        match front {
            Some(front) => front.handle_frames(*now, engine, frames, bytes),
            None => engine.handle_frames(*now, frames, bytes),
        }
    }

    /// Answers the doorbells that ring now; bounded, however fast others ring meanwhile.
    #[inline]
    pub(crate) fn drain_doorbells(&mut self) -> bool {
        self.door.has_posts() && self.answer_doorbells()
    }

    #[inline(never)]
    fn answer_doorbells(&mut self) -> bool {
        let ringing = self.door.ringing();
        for _ in 0..ringing {
            let Some(ringer) = self.door.next_doorbell() else { break };
            if let Some(&Some(ringer)) = self.ringers.get(ringer) {
                self.service(ringer);
            }
        }
        // After the posts, so that a post never meets a mapping that was built before it and is not
        // known yet.
        self.bytes.lams.update();
        ringing > 0
    }

    /// Does what an object rang for: moves its posted work into the engine, looks at its arm, and
    /// so on.
    fn service(&mut self, ringer: Ringer) {
        let Self { engine, windows, .. } = self;
        match ringer {
            Ringer::Qp(key) => self.qps.service(engine, windows, key),
            Ringer::Cq(key) => self.cqs.service(key),
            Ringer::Srq(key) => self.srqs.service(engine, key),
            Ringer::Listener(key) => self.rung.push(key),
        }
    }

    /// Gives the CQs what the engine has for them; whether that was anything.
    pub(crate) fn deliver_completions(&mut self) -> bool {
        // Before the consumer sees the end of what held them, and may want them again.
        while let Some(released) = self.engine.poll_released() {
            self.bytes.release(released.region);
        }
        let any = self.push_completions();
        self.cqs.tell();
        any
    }

    fn push_completions(&mut self) -> bool {
        let Self { now, shard, engine, qps, cqs, srqs, batch, .. } = self;
        let mut sink = Sink::new(Delivery { now: *now, shard }, qps, cqs, batch);
        engine.take_completions(&mut sink);
        while let Some(completion) = engine.poll_completion() {
            sink.take_shared(engine, srqs, &completion);
        }
        sink.finish()
    }

    /// When the next turn is due at the latest.
    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        Instant::earlier(self.engine.poll_timers(), self.cqs.moderated_until())
    }

    /// Whether there are notifications for [`Self::call_back`] to make.
    pub(crate) fn has_callbacks(&self) -> bool {
        self.cqs.has_dirty() || self.engine.has_srq_low()
    }

    /// Makes the notifications that are due: last in a turn, because one may post, arm or close. How many were looked at.
    #[inline]
    pub(crate) fn call_back(&mut self) -> usize {
        if self.has_callbacks() { self.notify() } else { 0 }
    }

    #[inline(never)]
    fn notify(&mut self) -> usize {
        let mut low = 0;
        while let Some(owner) = self.engine.poll_srq_low() {
            if let Some((notice, _)) = self.srqs.notice(owner) {
                notice.call();
            }
            low += 1;
        }
        low + self.cqs.notify(self.now)
    }

    /// The next notification that is due, for a core that makes it without its lane: the object is kept, and its close waits,
    /// until it was made. `None`: no other is due.
    pub(crate) fn next_notice(&mut self) -> Option<DetachedNotice> {
        while let Some(owner) = self.engine.poll_srq_low() {
            if let Some((notice, srq)) = self.srqs.notice(owner) {
                srq.shared.calling.begin();
                return Some(DetachedNotice { notice, of: Notifier::Srq(Arc::clone(srq)) });
            }
        }
        let (notice, cq) = self.cqs.next_notice(self.now)?;
        cq.shared.calling.begin();
        Some(DetachedNotice { notice, of: Notifier::Cq(Arc::clone(cq)) })
    }
}

/// A notification that is made without the lane.
pub(crate) struct DetachedNotice {
    notice: Notice,
    of: Notifier,
}

/// The object of a notification.
enum Notifier {
    Cq(Arc<CqObject>),
    Srq(Arc<SrqObject>),
}

impl DetachedNotice {
    /// Makes it.
    pub(crate) fn call(self) {
        self.notice.call();
        match self.of {
            Notifier::Cq(cq) => cq.shared.calling.end(),
            Notifier::Srq(srq) => srq.shared.calling.end(),
        }
    }
}

/// Takes units that are for this core.
fn receive_own(
    (now, engine, bytes): (Instant, &mut Engine, &mut Regions),
    units: &[Received<'_>],
    beside: &mut Option<Beside<'_>>,
) {
    match beside {
        Some(Beside { front, neighbours }) => {
            // The transport's, and not about addresses.
            let rest =
                units.iter().filter(|unit| !neighbours.handle_frame(now.as_nanos(), unit.frame));
            front.handle_frames(now, engine, rest.map(frame_of), bytes);
        }
        None => engine.handle_frames(now, units.iter().map(frame_of), bytes),
    }
}

/// A unit, as the transport takes it.
#[inline(always)]
pub(super) fn frame_of<'f>(unit: &Received<'f>) -> (&'f [u8], Option<usize>) {
    (unit.frame, unit.segments.map(|of| of.segment_len))
}
