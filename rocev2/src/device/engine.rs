//! One core's part of a device: its queue pairs, and what they need.

use super::front::Heard;
use super::paths::DOUBT_AFTER;
use super::transmit::Headers;
use super::turns::{Lists, Sender};
use super::{DeviceConfig, is_path_lost};
use crate::cm::ConnId;
use crate::counters::{Counters, QpCounters};
use crate::env::{Instant, Rng};
use crate::ids::Qpn;
use crate::index::Secret;
use crate::mr::MrTable;
use crate::path::{PathIndex, PathNews, Paths};
use crate::qp::{Completions, Failure, Posters, Qp, ReorderPool, Srqs};
use crate::wire::{Flow, Ids, Mac};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Places of the table of QPs of a new device.
const FIRST_SLOTS: usize = 64;

/// A queue pair, and what the device knows of it. The fields that each packet needs stand first.
#[repr(C, align(64))]
pub(super) struct QpSlot {
    /// Destroyed, but for completions to take.
    pub(super) dead: bool,
    /// The RTU is missing: the first packet counts as one.
    pub(super) awaits_rtu: bool,
    /// In the ready queue.
    pub(super) scheduled: bool,
    /// In the list of those that something happened to.
    pub(super) touched: bool,
    /// In the list of those with completions to take.
    pub(super) finished: bool,
    /// Its failure is told, or to be told.
    pub(super) failed: bool,
    /// It takes its receives from a shared queue, which [`Qp::srq`] names.
    pub(super) shares: bool,
    /// The news of its connection, for the front.
    pub(super) news: Heard,
    /// The path of its packets; known once it is connected.
    pub(super) path: Option<PathIndex>,
    pub(super) qp: Qp,
    /// The headers of the last packet that it sent.
    pub(super) template: Option<Headers>,
    /// [`Paths::origins`] when the path was told that the packets of `flow` come from where it is heard.
    pub(super) heard: Option<NonZeroU32>,
    /// The headers of the last packet that took the general way to it.
    pub(super) flow: Option<Flow>,
    pub(super) conn: Option<ConnId>,
    pub(super) posters: Posters,
}

/// One core's part of a device: the queue pairs whose numbers [name the core](Qpn::core), and what they need.
///
/// One of several may be used by another thread than the others are.
pub struct Engine {
    pub(super) config: DeviceConfig,
    /// Its core, and the number of them.
    pub(super) core: (usize, usize),
    /// See [`Self::loopback_mac`].
    pub(super) loopback_mac: Mac,
    pub(super) rng: Rng,
    pub(super) qps: Vec<Option<Box<QpSlot>>>,
    /// Slots without a QP; the one that has been free for longest is near the front.
    pub(super) free: VecDeque<usize>,
    /// The latest number drawn for each slot.
    pub(super) last_qpns: Vec<Qpn>,
    pub(super) mrs: MrTable,
    pub(super) srqs: Srqs,
    pub(super) reorder_pool: ReorderPool,
    pub(super) paths: Paths,
    pub(super) lists: Lists,
    /// The queue pair whose turn it is, and the packets and bytes that are left of it.
    pub(super) sender: Option<Sender>,
    pub(super) completions: Completions,
    pub(super) counters: Arc<Counters>,
    pub(super) ids: Ids,
}

impl Engine {
    // A value that is made in a box passes through the stack of its maker.
    #[inline(never)]
    pub(super) fn boxed(
        config: DeviceConfig,
        core: (usize, usize),
        mrs: MrTable,
        rng: Rng,
    ) -> Box<Self> {
        Box::new(Self::new(config, core, mrs, rng))
    }

    /// One with no objects. Inlined: or it would pass through two frames.
    #[inline(always)]
    fn new(config: DeviceConfig, core: (usize, usize), mrs: MrTable, mut rng: Rng) -> Self {
        let slots = config.max_qps.min(FIRST_SLOTS);
        let mut forked = rng.fork();
        let paths = Paths::new(&mut forked);
        let pool_bytes = config.reorder_pool / core.1;
        let secret = Secret::new(&mut forked);
        Self {
            mrs,
            srqs: Srqs::default(),
            reorder_pool: ReorderPool::new(pool_bytes, config.cm.max_pmtu, secret),
            qps: (0..slots).map(|_| None).collect(),
            free: (0..slots).collect(),
            last_qpns: core::iter::repeat_n(Qpn::default(), slots).collect(),
            paths,
            lists: Lists::new(slots),
            sender: None,
            completions: Completions::new(config.max_queued_mappings),
            counters: Arc::default(),
            ids: Ids::new(config.socket, rng.u32() as u16),
            rng,
            core,
            loopback_mac: Mac::default(),
            config,
        }
    }

    /// The device's configuration.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Sets the link's rate, in bytes per second, up to which queue pairs recover. It has no effect without
    /// congestion control.
    pub fn set_line_rate(&mut self, line_rate: u64) {
        let Some(dcqcn) = &mut self.config.dcqcn else { return };
        if core::mem::replace(&mut dcqcn.line_rate, line_rate) != line_rate {
            self.qps.iter_mut().flatten().for_each(|entry| entry.qp.set_line_rate(line_rate));
        }
    }

    /// The counters of this core. They may be kept, and read, after the device is gone.
    pub const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// A QP's counters; `None` where there is no such QP. They may be kept, and read, after the QP is gone.
    pub fn qp_counters(&self, qpn: Qpn) -> Option<&Arc<QpCounters>> {
        self.slot(qpn).map(|(_, entry)| entry.qp.counters())
    }

    // ---- time and results ---------------------------------------------------------------------

    /// Acts on every deadline of its queue pairs that has passed.
    pub fn handle_timers(&mut self, now: Instant) {
        // A response that has come stops the timers that wait for it.
        self.settle();
        while let Some(slot) = self.lists.timers.pop_due(now) {
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            // The deadline has nearly always moved meanwhile, or there is none any more.
            match entry.qp.deadline() {
                None => continue,
                Some(later) if later > now => {
                    self.lists.timers.arm(slot, later);
                    continue;
                }
                Some(_) => {}
            }
            entry.qp.handle_timeout(now, &mut self.reorder_pool, &mut self.completions);
            if entry.is_stalled()
                && let Some(path) = entry.path
            {
                self.paths.doubt(now, path, PathNews::Silent);
            }
            self.touch(slot);
        }
    }

    /// When [`Self::handle_timers`] is due next.
    #[inline]
    pub fn poll_timers(&mut self) -> Option<Instant> {
        if let Some(Sender { slot, .. }) = self.sender {
            self.touch(slot);
        }
        self.settle();
        self.lists.timers.next()
    }

    /// Whether there is something for [`Front::collect`](super::Front::collect), [`Self::poll_failure`] or [`Self::poll_path`].
    #[inline]
    pub fn has_news(&mut self) -> bool {
        self.settle();
        self.lists.has_news() || self.paths.has_news()
    }

    /// Whether [`Self::poll_srq_low`] has one.
    #[inline]
    pub fn has_srq_low(&self) -> bool {
        self.srqs.has_low()
    }

    /// The caller's name for a shared receive queue that fell below its threshold.
    #[inline]
    pub fn poll_srq_low(&mut self) -> Option<u64> {
        if self.srqs.has_low() { self.srqs.pop_low() } else { None }
    }

    /// A QP that went to the error state by itself, with its connection; of those whose path is gone only if `path_lost`, and
    /// of the others only if not. The oldest decides.
    #[inline]
    pub fn poll_failure(&mut self, path_lost: bool) -> Option<(Qpn, Option<ConnId>, Failure)> {
        self.settle();
        let entry = self.qps[*self.lists.failures.front()?].as_deref()?;
        let failure = entry.qp.failure()?;
        if is_path_lost(failure) != path_lost {
            return None;
        }
        self.lists.failures.pop_front();
        Some((entry.qp.qpn(), entry.conn, failure))
    }

    // ---- inside -------------------------------------------------------------------------------

    /// Cores of the device.
    pub(super) const fn cores(&self) -> usize {
        self.core.1
    }

    /// Begins a burst, in which the memory of keys is used; another core that ends one of them waits for its end.
    #[inline(always)]
    pub(super) fn enter(&self) {
        if self.cores() > 1 {
            self.mrs.enter();
        }
    }

    /// Ends it.
    #[inline(always)]
    pub(super) fn leave(&self) {
        if self.cores() > 1 {
            self.mrs.leave();
        }
    }

    /// Whether a number is of a queue pair that another core has, if any has.
    pub(super) const fn is_foreign(&self, qpn: Qpn) -> bool {
        let (core, cores) = self.core;
        let of = qpn.core(cores);
        // A number of no core is the first one's to refuse.
        (if of < cores { of } else { 0 }) != core
    }

    pub(super) const fn slot_index(&self, qpn: Qpn) -> usize {
        qpn.get() as usize & (self.qps.len() - 1)
    }

    /// The queue pair of this number.
    pub(super) fn entry(&mut self, qpn: Qpn) -> Option<&mut QpSlot> {
        let slot = self.slot_index(qpn);
        find(&mut self.qps, slot, qpn)
    }

    pub(super) fn slot(&self, qpn: Qpn) -> Option<(usize, &QpSlot)> {
        let slot = self.slot_index(qpn);
        let entry = self.qps[slot].as_deref().filter(|entry| entry.is(qpn))?;
        Some((slot, entry))
    }
}

impl QpSlot {
    /// Whether it is the QP of this number, and not destroyed.
    pub(super) fn is(&self, qpn: Qpn) -> bool {
        !self.dead && self.qp.qpn() == qpn
    }

    /// Whether its packets have no response.
    fn is_stalled(&self) -> bool {
        self.qp.tries() >= DOUBT_AFTER
    }
}

#[inline]
pub(super) fn find(qps: &mut [Option<Box<QpSlot>>], slot: usize, qpn: Qpn) -> Option<&mut QpSlot> {
    qps[slot].as_deref_mut().filter(|entry| entry.is(qpn))
}
