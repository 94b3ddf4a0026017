//! Completion queues, between the device's completions and the consumer's notification.

use super::State;
use super::objects::{Entry, Kind};
use crate::abi::*;
use crate::ndk::cq::{self, Arm, CqObject, CqShared, Cqe, CreateCq, Hold, NEWS_ERROR, Results};
use crate::ndk::{Context, Object, ObjectId};
use crate::platform::Trace;
use crate::ring::modelled::{AtomicU32, rtrb};
use crate::ring::{Doorbell, Exclusive};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use rocev2::env::Instant;

pub(super) struct CqCore {
    pub(super) object: Arc<CqObject>,
    ring: rtrb::Producer<Cqe>,
    /// Where the consumer finds the ring that takes the place of `ring`.
    rings: rtrb::Producer<rtrb::Consumer<Cqe>>,
    notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    context: Context,
    /// Entries that it may hold.
    depth: u32,
    /// Entries ever added.
    added: u32,
    /// Entries that the consumer had taken when we last looked.
    taken: u32,
    /// Entries added since the last notification, and when the first of them was.
    fresh: u32,
    fresh_since: Option<Instant>,
    /// It overran; nothing is added any more.
    failed: bool,
    /// Its notification may be due, and will be looked at.
    noted: bool,
}

/// Room of the ring that a CQ gets for a depth that its own has no room for.
pub(super) const fn deeper_ring(depth: u32) -> usize {
    (depth as usize).next_power_of_two()
}

impl CqCore {
    /// It has overrun.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Entries that the consumer has not taken, now.
    fn fill(&mut self) -> u32 {
        self.taken = self.object.shared.taken.load(Ordering::Acquire);
        self.added.wrapping_sub(self.taken)
    }

    /// Adds an entry, unless as many as it may hold are there.
    fn push(&mut self, now: Instant, cqe: Cqe) -> Result<(), ()> {
        if self.added.wrapping_sub(self.taken) >= self.depth && self.fill() >= self.depth {
            return Err(());
        }
        self.ring.push(cqe).map_err(drop)?;
        self.added = self.added.wrapping_add(1);
        self.fresh = self.fresh.saturating_add(1);
        self.fresh_since.get_or_insert(now);
        Ok(())
    }

    /// Whether moderation keeps a notification that is due.
    fn hold(&self, now: Instant) -> Hold {
        if self.failed {
            return Hold::No;
        }
        let settings = self.object.shared.moderation.load(Ordering::Acquire);
        let since = self.fresh_since.unwrap_or(now);
        cq::hold(settings, self.depth, self.fresh, since, now)
    }
}

impl State {
    pub(super) fn create_cq(&mut self, adapter: ObjectId, what: &CreateCq) -> Context {
        let depth = what.depth.max(1);
        let (ring, results) = rtrb::RingBuffer::new(depth as usize);
        let (rings, successors) = rtrb::RingBuffer::new(cq::SUCCESSORS);
        let mut pointer = core::ptr::null_mut();
        self.insert(&[adapter], |base| {
            let shared = CqShared {
                results: Exclusive::new(Results::new(results, successors)),
                taken: AtomicU32::new(0),
                depth: AtomicU32::new(depth),
                moderation: AtomicU64::new(0),
                moderating: Exclusive::new(()),
                arm: Arm::default(),
                doorbell: Doorbell::default(),
            };
            let object =
                Arc::new(Object { ndk: NDK_CQ::new(base.version, &cq::DISPATCH), base, shared });
            pointer = object.as_ndk();
            let CreateCq { notification, context, .. } = *what;
            Kind::Cq(CqCore {
                object,
                ring,
                rings,
                notification,
                context,
                depth,
                added: 0,
                taken: 0,
                fresh: 0,
                fresh_since: None,
                failed: false,
                noted: false,
            })
        });
        // Every CQ may be noted or held at once, and neither may allocate.
        let cqs = self.objects.len();
        self.held.reserve(cqs.saturating_sub(self.held.len()));
        // What is noted may be closed already.
        self.notify.reserve(cqs);
        Context::new(pointer.cast())
    }

    fn cq(&mut self, id: ObjectId) -> Option<&mut CqCore> {
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(Kind::Cq(cq)) => Some(cq),
            _ => None,
        }
    }

    /// Changes how many entries a CQ may hold; see `crate::ndk::cq::ndk_resize_cq`.
    ///
    /// A ring that is deep enough stays. A deeper one takes its place at once on our side; the
    /// consumer goes over to it when it has emptied the one before.
    pub(super) fn resize_cq(&mut self, id: ObjectId, depth: u32) -> NTSTATUS {
        let depth = depth.max(1);
        let Some(cq) = self.cq(id) else { return STATUS_INVALID_PARAMETER };
        if cq.failed {
            return STATUS_INVALID_DEVICE_STATE;
        }
        if cq.fill() > depth {
            return STATUS_BUFFER_OVERFLOW;
        }
        if depth as usize > cq.ring.buffer().capacity() {
            let (ring, results) = rtrb::RingBuffer::new(deeper_ring(depth));
            if cq.rings.push(results).is_err() {
                return STATUS_INSUFFICIENT_RESOURCES;
            }
            cq.ring = ring;
        }
        cq.depth = depth;
        cq.object.shared.depth.store(depth, Ordering::Release);
        // Moderation by count may have become meaningless.
        self.note(id);
        STATUS_SUCCESS
    }

    /// Looks at the CQ's notification at the end of the turn, once.
    pub(super) fn note(&mut self, id: ObjectId) {
        if let Some(cq) = self.cq(id)
            && !core::mem::replace(&mut cq.noted, true)
        {
            self.notify.push_back(id);
        }
    }

    pub(super) fn push_cqe(&mut self, now: Instant, id: ObjectId, cqe: Cqe, mut news: u8) {
        let Some(cq) = self.cq(id) else { return };
        if cq.failed {
            return;
        }
        if cq.push(now, cqe).is_err() {
            cq.failed = true;
            cq.object.base.shard.counters.cq_errors.add();
            news = NEWS_ERROR;
        }
        let (failed, depth) = (cq.failed, cq.depth);
        if cq.object.shared.arm.add(news) {
            self.note(id);
        }
        if failed {
            self.trace(&Trace::CqOverrun { depth });
            self.fail_qps_of(now, id);
        }
    }

    /// A CQ overran: it is dead, and so is every QP on it (IBTA ch. 10, CQ errors), and with a QP
    /// its connection.
    fn fail_qps_of(&mut self, now: Instant, cq_id: ObjectId) {
        let is_on_it = |entry: &Entry| match &entry.kind {
            Kind::Qp(qp) => qp.receive_cq == cq_id || qp.initiator_cq == cq_id,
            _ => false,
        };
        let dead: Vec<ObjectId> =
            self.objects.iter().filter(|(_, entry)| is_on_it(entry)).map(|(id, _)| id).collect();
        for id in dead {
            if let Some(qp) = self.qp(id) {
                qp.lost_cq = true;
            }
            self.flush_qp(id);
            self.handle_dead_qp(now, id);
        }
    }

    /// Looks again at the CQs whose notification was held back until now.
    pub(super) fn release_held(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(&(until, id)) = self.held.get(index) {
            if until <= now {
                self.held.swap_remove(index);
                self.note(id);
            } else {
                index += 1;
            }
        }
    }

    /// Keeps a due notification until then.
    fn hold(&mut self, id: ObjectId, until: Instant) {
        match self.held.iter_mut().find(|(_, cq)| *cq == id) {
            Some(held) => held.0 = until,
            None => self.held.push((until, id)),
        }
    }

    #[allow(unsafe_code, reason = "calls the consumer's C callback")]
    pub(super) fn notify_cq(&mut self, now: Instant, id: ObjectId) {
        let Some(entry) = self.objects.get_mut(id) else { return };
        let Kind::Cq(cq) = &mut entry.kind else { return };
        cq.noted = false;
        if entry.closing.is_some() || !cq.object.shared.arm.is_due() {
            return;
        }
        match cq.hold(now) {
            Hold::No => {}
            Hold::Until(until) => return self.hold(id, until),
            // The completion that it waits for leads here again.
            Hold::ForCount => return,
        }
        if !cq.object.shared.arm.take() {
            return;
        }
        (cq.fresh, cq.fresh_since) = (0, None);
        let status = if cq.failed { STATUS_BUFFER_OVERFLOW } else { STATUS_SUCCESS };
        let (callback, context) = (cq.notification, cq.context);
        self.held.retain(|&(_, held)| held != id);
        // SAFETY: the consumer's callback with the consumer's context; one at a time, as only this
        // thread makes them.
        unsafe { callback(context.get(), status) };
    }
}
