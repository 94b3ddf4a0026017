//! A lane: one core's part of the provider, which is its queue pairs and all that their work needs.
//!
//! A core has its lane in each of its turns. The desk does the rest (`crate::turn`): messages, the lives of
//! objects, connections. It works on the first core, has the lane of that, and borrows another one between two of its turns
//! ([`Lanes`]). So neither side has a copy of the other's state, and nothing is sent between them but the wish that the desk
//! look at a lane ([`Lane::has_news`]).

pub(crate) mod lanes;
mod sink;
mod steps;
mod transmit;

pub(crate) use lanes::Lanes;
pub(crate) use steps::DetachedNotice;
pub(crate) use transmit::Beside;

use crate::bytes::Regions;
use crate::cq::core::Cqs;
use crate::mw::core::Windows;
use crate::object::id::{ListenerKey, QpKey, Ringer, RingerKey};
use crate::platform::Trace;
use crate::qp::core::Qps;
use crate::shard::{Bell, Door, Shard};
use crate::srq::core::Srqs;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use netadapter_glue::Link;
use rocev2::Engine;
use rocev2::counters::Counter;
use rocev2::env::Instant;
use sink::Batch;
use slotmap::SlotMap;
use transmit::Loopback;

/// One core's part of the provider.
pub(crate) struct Lane {
    pub(crate) core: u8,
    /// The time of this turn.
    pub(crate) now: Instant,
    pub(crate) shard: Arc<Shard>,
    /// Its own in the shard.
    door: Arc<Door>,
    /// In a box, as it is too large to be passed on a kernel's stack.
    pub(crate) engine: Box<Engine>,
    pub(crate) bytes: Regions,
    pub(crate) qps: Qps,
    pub(crate) cqs: Cqs,
    pub(crate) srqs: Srqs,
    /// The objects whose doorbells ring here.
    ringers: SlotMap<RingerKey, Option<Ringer>>,
    /// Requests that concern windows, for the desk; room for each window is made when it is created.
    pub(crate) windows: Windows,
    /// Listeners that have rung, for the desk, each once.
    pub(crate) rung: Vec<ListenerKey>,
    /// Packets to it come back.
    loopback_mac: [u8; 6],
    /// Of one unit of the edge.
    max_segments: usize,
    /// It was told that units are lost.
    told_units: bool,
    loopback: Loopback,
    batch: Batch,
}

impl Lane {
    pub(crate) fn new(
        core: u8,
        shard: Arc<Shard>,
        engine: Box<Engine>,
        bytes: Regions,
        windows: Windows,
        link: &Link,
    ) -> Self {
        Self {
            core,
            now: Instant::default(),
            door: Arc::clone(shard.door(core)),
            shard,
            loopback_mac: engine.loopback_mac().0,
            engine,
            bytes,
            qps: Qps::default(),
            cqs: Cqs::new(core),
            srqs: Srqs::default(),
            ringers: SlotMap::default(),
            windows,
            rung: Vec::new(),
            max_segments: link.max_segments.max(1),
            told_units: false,
            loopback: Loopback::default(),
            batch: Batch::default(),
        }
    }

    /// A bell for an object that is about to be, of which [`Self::hang`] tells.
    pub(crate) fn new_bell(&mut self) -> Bell {
        Bell::new(Arc::clone(&self.door), self.ringers.insert(None))
    }

    /// The bell is that of this object.
    pub(crate) fn hang(&mut self, bell: RingerKey, object: Ringer) {
        if let Some(ringer) = self.ringers.get_mut(bell) {
            *ringer = Some(object);
        }
    }

    /// The object of a bell is gone.
    pub(crate) fn take_down(&mut self, bell: RingerKey) {
        self.ringers.remove(bell);
    }

    /// The memory that one more object with a bell may take.
    pub(crate) fn growth(&self) -> usize {
        crate::cx::growth(&self.ringers)
    }

    /// Cancels everything that is posted on a QP.
    pub(crate) fn flush_qp(&mut self, key: QpKey) {
        let Self { engine, qps, windows, .. } = self;
        if let Some(qp) = qps.get_mut(key) {
            qp.flush(engine, windows);
        }
    }

    /// A CQ of a QP has overrun, and takes the QP with it (IBTA ch. 10, CQ errors).
    pub(crate) fn lose_cq(&mut self, key: QpKey) {
        let Self { engine, qps, windows, .. } = self;
        if let Some(qp) = qps.get_mut(key) {
            qp.lose_cq(engine, windows);
        }
    }

    /// Tells the trace, once, that the engine has given units up.
    pub(crate) fn tell_units(&mut self) {
        let counters = self.engine.counters();
        if !self.told_units && counters.get(Counter::UnitsOffLink) > 0 {
            let [lost, sent] = [Counter::UnitsLost, Counter::UnitsSent].map(|of| counters.get(of));
            self.shard.platform.trace(&Trace::UnitsLost { lost, sent });
            self.told_units = true;
        }
    }

    /// Whether there is something for the desk to do about this lane.
    pub(crate) fn has_news(&mut self) -> bool {
        !self.windows.is_empty()
            || !self.rung.is_empty()
            || self.cqs.has_news()
            || self.engine.has_news()
    }
}
