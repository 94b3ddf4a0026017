//! Everything but the edge, which lends its buffers while this works on them.

use super::objects::Objects;
use super::sink::{Batch, Sink};
use super::transmit::Loopback;
use crate::connector::core::Connectors;
use crate::connector::request::DisconnectEvent;
use crate::cq::core::Delivery;
use crate::cx::Cx;
use crate::message::Control;
use crate::object::done::{CreateDone, RequestDone};
use crate::object::id::{CqKey, ObjectId, Place};
use crate::platform::Trace;
use crate::status::reason;
use crate::sync::Taken;
use crate::upcall::Upcall;
use netadapter_glue::Received;
use rocev2::Event;
use rocev2::cm::CmEvent;
use rocev2::env::Instant;

/// The objects of every kind, and what they work with.
pub(super) struct State {
    pub(super) cx: Cx,
    pub(super) objects: Objects,
    /// Of one unit of the edge.
    pub(super) max_segments: usize,
    pub(super) loopback: Loopback,
    /// Control messages that a later turn obeys.
    pub(super) taken: Taken<Control>,
    batch: Batch,
}

impl State {
    pub(super) fn new(cx: Cx, max_segments: usize) -> Self {
        let (objects, loopback) = (Objects::default(), Loopback::default());
        let (taken, batch) = (Taken::default(), Batch::default());
        Self { cx, objects, max_segments, loopback, taken, batch }
    }

    /// Takes what the edge received.
    pub(super) fn receive(&mut self, units: &[Received<'_>]) {
        let Cx { now, device, bytes, paths, .. } = &mut self.cx;
        let rest = units.iter().filter(|unit| {
            // The transport's, and not about addresses.
            !paths.neighbours.handle_frame(now.as_nanos(), unit.frame)
        });
        let frames = rest.map(|unit| (unit.frame, unit.segments.map(|of| of.segment_len)));
        device.handle_frames(*now, frames, bytes);
    }

    pub(super) fn handle_timeouts(&mut self) {
        let Cx { now, device, paths, .. } = &mut self.cx;
        device.handle_timeout(*now);
        paths.neighbours.handle_timeout(now.as_nanos());
    }

    /// When the next turn is due at the latest.
    pub(super) fn next_timeout(&mut self) -> Option<Instant> {
        let neighbours = self.cx.paths.neighbours.poll_timeout().map(Instant::from_nanos);
        let others = Instant::earlier(neighbours, self.objects.cqs.moderated_until());
        Instant::earlier(self.cx.device.poll_timeout(), others)
    }

    /// Answers the doorbells that ring now; bounded, however fast others ring meanwhile.
    #[inline]
    pub(super) fn drain_doorbells(&mut self) -> bool {
        self.cx.shard.has_posts() && self.answer_doorbells()
    }

    #[inline(never)]
    fn answer_doorbells(&mut self) -> bool {
        let ringing = self.cx.shard.ringing();
        for _ in 0..ringing {
            if let Some(id) = self.cx.shard.next_doorbell() {
                self.service(id);
            }
        }
        // After the posts, so that a post never meets a mapping that was built before it and is not
        // known yet.
        self.cx.bytes.lams.update();
        ringing > 0
    }

    /// Does what an object rang for: moves its posted work into the device, looks at its arm, and
    /// so on.
    fn service(&mut self, id: ObjectId) {
        let Some(place) = self.cx.lifetimes.place(id) else { return };
        match place {
            Place::Qp(key) => self.objects.qps.service(&mut self.cx, key),
            Place::Cq(key) => self.objects.cqs.service(key),
            Place::Srq(key) => self.objects.srqs.service(&mut self.cx, key),
            Place::Listener(key) => self.objects.listeners.service(&mut self.cx, key),
            Place::Adapter(_)
            | Place::Pd(_)
            | Place::Mr(_)
            | Place::Mw(_)
            | Place::Connector(_)
            | Place::Endpoint(_) => {}
        }
    }

    /// Asks for paths, and goes on where an answer was waited for.
    pub(super) fn follow_paths(&mut self) {
        let Cx { now, device, paths, shard, .. } = &mut self.cx;
        paths.follow(*now, device, shard);
        self.objects.connectors.handle_resolutions(&mut self.cx, &mut self.objects.qps);
    }

    pub(super) fn deliver_completions(&mut self) -> bool {
        // Before the consumer sees the end of what held them, and may want them again.
        while let Some(released) = self.cx.device.poll_released() {
            self.cx.bytes.release(released.region);
        }
        self.cx.names.sweep();
        let mut any = self.push_completions();
        while let Some(cq) = self.objects.cqs.pop_overrun() {
            self.lose_cq(cq);
            any |= self.push_completions();
        }
        self.objects.cqs.tell();
        any
    }

    /// Gives the CQs what the device has for them; whether that was anything.
    fn push_completions(&mut self) -> bool {
        let Objects { cqs, qps, srqs, .. } = &mut self.objects;
        let Cx { now, device, shard, .. } = &mut self.cx;
        let mut sink = Sink::new(Delivery { now: *now, shard }, qps, cqs, &mut self.batch);
        device.take_completions(&mut sink);
        while let Some(completion) = device.poll_completion() {
            sink.take_shared(device, srqs, &completion);
        }
        sink.finish()
    }

    /// A CQ that has overrun takes its QPs with it, and with a QP its connection.
    fn lose_cq(&mut self, cq: CqKey) {
        let Self { cx, objects: Objects { qps, connectors, .. }, .. } = self;
        for key in qps.on(cq) {
            qps.lose_cq(cx, key);
            connectors.handle_dead_qp(cx, qps, key);
        }
    }

    /// Tells the objects what happened to them; whether that was anything.
    // An event with a peer's private data takes half a kilobyte of stack each time that it is moved, which the rest of a
    // turn must not pay for.
    #[inline(never)]
    pub(super) fn handle_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.cx.device.poll_event() {
            any = true;
            self.handle_event(event);
        }
        any
    }

    #[inline(never)]
    fn handle_event(&mut self, event: Event) {
        let Self { cx, objects: Objects { qps, connectors, listeners, .. }, .. } = self;
        match event {
            Event::Cm(CmEvent::ConnectRequest { listener, conn, peer, private_data }) => {
                let from = (&peer, &private_data);
                listeners.handle_request(cx, connectors, listener, conn, from);
            }
            Event::Cm(event) => connectors.handle_event(cx, qps, event),
            Event::QpFailed { conn, qpn, failure } => {
                cx.trace(&Trace::QpFailed { qpn, failure, code: reason::code(failure) });
                if let Some(key) = conn.and_then(|conn| Connectors::of(cx, conn)) {
                    connectors.handle_qp_failure(cx, qps, key);
                }
            }
            Event::SrqLow { owner } => {
                cx.upcalls.push_back(Upcall::SrqLow { owner });
            }
        }
    }

    /// Calls into the consumer: last in a turn, with nothing of the device borrowed, because a
    /// callback may post, arm, close or connect.
    pub(super) fn call_back(&mut self) -> bool {
        let due = self.cx.upcalls.len();
        if due > 0 {
            self.run_upcalls(due);
        }
        let notified = self.objects.cqs.notify(&self.cx);
        due + notified > 0
    }

    #[inline(never)]
    fn run_upcalls(&mut self, due: usize) {
        for _ in 0..due {
            if let Some(upcall) = self.cx.upcalls.pop_front() {
                self.run(upcall);
            }
        }
    }

    #[allow(unsafe_code, reason = "calls the consumer's C callbacks")]
    fn run(&mut self, upcall: Upcall) {
        match upcall {
            Upcall::Created { done: CreateDone { callback, context }, status, object } => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get(), status, object.get().cast()) };
            }
            Upcall::Requested { done: RequestDone { callback, context }, status } => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get(), status) };
            }
            Upcall::ConnectEvent { callback, context, connector } => {
                // SAFETY: the consumer's callback with its context; the connector is the consumer's from
                // here on.
                unsafe { callback(context.get(), connector.get().cast()) };
            }
            Upcall::Disconnected {
                event: DisconnectEvent::Plain(Some(callback), context), ..
            } => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get()) };
            }
            Upcall::Disconnected {
                event: DisconnectEvent::WithReason(Some(callback), context),
                reason,
            } => {
                // SAFETY: the consumer's callback with the consumer's context.
                unsafe { callback(context.get(), reason) };
            }
            Upcall::SrqLow { owner } => self.objects.srqs.notify(&self.cx, owner),
            Upcall::Closed { object } => self.finish_close(object),
            // A callback that the consumer did not give.
            Upcall::Disconnected { .. } => {}
        }
    }
}
