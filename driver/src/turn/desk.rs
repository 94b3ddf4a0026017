//! The desk: what is not of a single core. It works in the turns of the first core, with the lane of that, and with those of
//! the others that it borrows.

use super::objects::Objects;
use crate::connector::core::Connectors;
use crate::connector::request::DisconnectEvent;
use crate::counters::Connection;
use crate::cx::Cx;
use crate::lane::{Beside, Lane};
use crate::message::Control;
use crate::mw::core::follow;
use crate::object::done::{CreateDone, RequestDone};
use crate::object::id::{At, CqKey};
use crate::platform::Trace;
use crate::platform::request::connections;
use crate::status::reason;
use crate::sync::Taken;
use crate::upcall::Upcall;
use alloc::vec::Vec;
use netadapter_glue::{Received, Slot};
use rocev2::cm::{CmEvent, ConnId};
use rocev2::env::Instant;
use rocev2::ids::Qpn;
use rocev2::qp::Failure;

/// The objects of every kind, and what they work with.
pub(super) struct Desk {
    pub(super) cx: Cx,
    pub(super) objects: Objects,
    /// Control messages that a later turn obeys.
    pub(super) taken: Taken<Control>,
}

impl Desk {
    pub(super) fn new(cx: Cx) -> Self {
        Self { cx, objects: Objects::default(), taken: Taken::default() }
    }

    /// The lane of the first core, with the work beside it.
    fn split(&mut self) -> (&mut Lane, Beside<'_>) {
        let Cx { device, paths, .. } = &mut self.cx;
        let beside = Beside { front: &mut device.front, neighbours: &mut paths.neighbours };
        (&mut device.engines.own, beside)
    }

    pub(super) fn lane(&mut self) -> &mut Lane {
        &mut self.cx.device.engines.own
    }

    /// Takes what the edge received.
    pub(super) fn receive(&mut self, units: &[Received<'_>]) {
        let lane = self.lane();
        // A receive that was posted before a frame arrived must be seen with it: some peers
        // allow no "receiver not ready" at all.
        lane.drain_doorbells();
        if !lane.rung.is_empty() {
            self.answer_listeners();
        }
        let (lane, beside) = self.split();
        lane.receive(units, &mut Some(beside));
    }

    /// Takes what other cores have passed on. Returns the number of units.
    pub(super) fn receive_passed(&mut self) -> usize {
        let (lane, beside) = self.split();
        lane.receive_passed(Some(beside))
    }

    /// Writes units for the edge into `slots`. Returns their number.
    pub(super) fn fill(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let (lane, beside) = self.split();
        lane.fill(slots, Some(beside))
    }

    /// Whether [`Self::fill`] may have a unit.
    pub(super) fn may_transmit(&mut self) -> bool {
        let (lane, Beside { front, neighbours }) = self.split();
        neighbours.may_transmit() || front.may_transmit(&mut lane.engine)
    }

    pub(super) fn handle_timeouts(&mut self) {
        let Cx { now, device, paths, .. } = &mut self.cx;
        let lane = &mut device.engines.own;
        lane.engine.handle_timers(*now);
        device.front.collect(&mut lane.engine);
        device.handle_cm_timers(*now);
        paths.neighbours.handle_timeout(now.as_nanos());
    }

    /// When the next turn is due at the latest.
    pub(super) fn next_timeout(&mut self) -> Option<Instant> {
        let Cx { device, paths, .. } = &mut self.cx;
        let neighbours = paths.neighbours.poll_timeout().map(Instant::from_nanos);
        let others = Instant::earlier(neighbours, device.poll_cm_timers());
        Instant::earlier(device.engines.own.next_timeout(), others)
    }

    /// Answers the listeners that have rung.
    pub(super) fn answer_listeners(&mut self) {
        while let Some(key) = self.lane().rung.pop() {
            self.objects.listeners.service(&mut self.cx, key);
        }
    }

    /// Asks for paths, and goes on where an answer was waited for.
    pub(super) fn follow_paths(&mut self) {
        let Cx { now, device, paths, shard, .. } = &mut self.cx;
        paths.follow(*now, device, shard);
        self.objects.connectors.handle_resolutions(&mut self.cx);
    }

    /// Established connections.
    pub(super) fn connections(&mut self) -> Vec<Connection> {
        let connections = connections(self.objects.endpoints(&mut self.cx));
        self.cx.device.engines.give_back();
        connections
    }

    // ---- news of the lanes --------------------------------------------------------------------

    /// Does what the lanes have for the desk; whether that was anything. Of those of other cores, the lanes that ask for it.
    pub(super) fn handle_news(&mut self) -> bool {
        let own = u64::from(self.lane().has_news());
        self.handle_news_with(own)
    }

    /// The same for the lanes of other cores.
    pub(super) fn handle_news_of_others(&mut self) {
        self.handle_news_with(0);
    }

    /// The same for these lanes and those that ask for it.
    fn handle_news_with(&mut self, cores: u64) -> bool {
        let cores = cores | self.cx.shard.take_news();
        if cores != 0 {
            self.handle_news_of(cores);
        }
        cores != 0
    }

    /// The desk may have ended work on the lanes that it has, and so may all that comes of that: the completions are in their
    /// CQs before the consumer hears of what was done.
    pub(super) fn settle(&mut self) {
        if self.cx.shard.cores() > 1 {
            while let news @ 1.. = self.deliver_on_lanes() {
                self.handle_news_of(news);
            }
        }
    }

    /// Delivers the completions of the lanes that the desk has; which of those have news then.
    fn deliver_on_lanes(&mut self) -> u64 {
        let mut news = 0;
        self.cx.device.engines.for_each_here(|lane| {
            lane.deliver_completions();
            news |= u64::from(lane.has_news()) << lane.core;
        });
        news
    }

    #[inline(never)]
    fn handle_news_of(&mut self, cores: u64) {
        let cores = (0..self.cx.shard.cores() as u8).filter(|core| cores & 1 << core != 0);
        self.tie_windows(cores.clone());
        for core in cores.clone() {
            self.answer_listeners();
            self.take_abroad(core);
            while let Some(cq) = self.cx.lane(core).cqs.pop_overrun() {
                self.lose_cq(cq);
            }
            self.collect(core);
            self.handle_failures(core, false);
        }
        // Of a path that is lost, its connections tell first.
        self.handle_connections();
        for core in cores {
            self.handle_failures(core, true);
        }
    }

    fn collect(&mut self, core: u8) {
        let Cx { now, device, paths, shard, .. } = &mut self.cx;
        let lane = device.engines.lane(core);
        device.front.collect(&mut lane.engine);
        paths.ask(*now, lane, shard);
    }

    /// Ties the windows that lanes have bound to their regions, in the order in which they were bound.
    fn tie_windows(&mut self, cores: impl Iterator<Item = u8> + Clone) {
        let cx = &mut self.cx;
        let first = |cx: &mut Cx| {
            let places =
                cores.clone().filter_map(|core| Some((cx.lane(core).windows.place()?, core)));
            places.min()
        };
        while let Some((_, core)) = first(cx) {
            if let Some(op) = cx.lane(core).windows.take() {
                follow(cx, &op);
            }
        }
    }

    /// Takes the completions of a core's queue pairs to CQs of other cores.
    fn take_abroad(&mut self, core: u8) {
        let abroad = self.cx.lane(core).cqs.take_abroad();
        for &(cq, entry) in &abroad {
            let Lane { now, shard, cqs, .. } = self.cx.lane(cq.core);
            let mut entries = core::iter::once(entry);
            if !cqs.push(*now, cq.key, 1, entries.by_ref()) && entries.next().is_some() {
                cqs.overrun(shard, cq.key);
            }
        }
        self.cx.lane(core).cqs.put_abroad(abroad);
    }

    /// A CQ that has overrun takes its QPs with it, and with a QP its connection.
    fn lose_cq(&mut self, cq: At<CqKey>) {
        for core in 0..self.cx.shard.cores() as u8 {
            for key in self.cx.lane(core).qps.on(cq) {
                self.cx.lane(core).lose_cq(key);
                self.objects.connectors.handle_dead_qp(&mut self.cx, At { core, key });
            }
        }
    }

    /// The queue pairs of a lane that failed; see [`rocev2::Engine::poll_failure`].
    fn handle_failures(&mut self, core: u8, path_lost: bool) {
        while let Some((qpn, conn, failure)) = self.cx.lane(core).engine.poll_failure(path_lost) {
            self.handle_failure(qpn, conn, failure);
        }
    }

    fn handle_failure(&mut self, qpn: Qpn, conn: Option<ConnId>, failure: Failure) {
        let Self { cx, objects: Objects { connectors, .. }, .. } = self;
        cx.trace(&Trace::QpFailed { qpn, failure, code: reason::code(failure) });
        if let Some(key) = conn.and_then(|conn| Connectors::of(cx, conn)) {
            connectors.handle_qp_failure(cx, key);
        }
    }

    // ---- connections --------------------------------------------------------------------------

    /// Tells the objects what happened to their connections; whether that was anything.
    // An event with a peer's private data takes half a kilobyte of stack each time that it is moved, which the rest of a
    // turn must not pay for.
    #[inline]
    pub(super) fn handle_connections(&mut self) -> bool {
        self.cx.device.has_cm_events() && self.handle_connection_events()
    }

    #[inline(never)]
    fn handle_connection_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.cx.device.poll_cm() {
            any = true;
            self.handle_connection(event);
        }
        any
    }

    #[inline(never)]
    fn handle_connection(&mut self, event: CmEvent) {
        let Self { cx, objects: Objects { connectors, listeners, .. }, .. } = self;
        match event {
            CmEvent::ConnectRequest { listener, conn, peer, private_data } => {
                let from = (&peer, &private_data);
                listeners.handle_request(cx, connectors, listener, conn, from);
            }
            event => connectors.handle_event(cx, event),
        }
    }

    // ---- calls into the consumer --------------------------------------------------------------

    /// Whether there are calls for [`Self::call_back`] to make.
    pub(super) fn has_callbacks(&self) -> bool {
        !self.cx.upcalls.is_empty() || self.cx.device.engines.own.has_callbacks()
    }

    /// Calls into the consumer: last in a turn, with nothing of the device borrowed, because a
    /// callback may post, arm, close or connect.
    pub(super) fn call_back(&mut self) -> bool {
        let due = self.cx.upcalls.len();
        if due > 0 {
            self.run_upcalls(due);
        }
        let notified = self.lane().call_back();
        due + notified > 0
    }

    #[inline(never)]
    fn run_upcalls(&mut self, due: usize) {
        for _ in 0..due {
            if let Some(upcall) = self.cx.upcalls.pop_front() {
                // A callback takes its time, and the other cores need their lanes.
                self.cx.device.engines.give_back();
                self.run(upcall);
            }
        }
        // Nor do the notifications that follow keep a lane from its core.
        self.cx.device.engines.give_back();
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
            Upcall::Closed { object } => self.finish_close(object),
            // A callback that the consumer did not give.
            Upcall::Disconnected { .. } => {}
        }
    }
}
