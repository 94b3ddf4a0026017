//! The way of completions from the device to their CQs.

use crate::cq::core::{Cqs, Delivery};
use crate::cq::shared::Cqe;
use crate::object::id::CqKey;
use crate::qp::core::Qps;
use crate::srq::core::Srqs;
use alloc::vec::Vec;
use rocev2::Engine;
use rocev2::qp::{Completion, CompletionSink, Finished};

/// Entries that enter a CQ together.
const RUN: usize = 32;

/// Gives the CQs their entries.
pub(super) struct Sink<'a> {
    cx: Delivery<'a>,
    qps: &'a Qps,
    cqs: &'a mut Cqs,
    batch: &'a mut Batch,
    any: bool,
}

impl<'a> Sink<'a> {
    pub(super) fn new(
        cx: Delivery<'a>,
        qps: &'a Qps,
        cqs: &'a mut Cqs,
        batch: &'a mut Batch,
    ) -> Self {
        Self { cx, qps, cqs, batch, any: false }
    }

    /// Takes the end of a receive that came from a shared queue.
    pub(super) fn take_shared(&mut self, engine: &Engine, srqs: &Srqs, completion: &Completion) {
        self.any = true;
        if let Some((cq, kind, entry)) =
            self.qps.shared_entry(&self.cx, self.cqs, (engine, srqs), completion)
        {
            self.batch.add(&self.cx, self.cqs, cq, (kind, entry));
        }
    }

    /// All are taken; whether there was any.
    pub(super) fn finish(self) -> bool {
        self.batch.flush(&self.cx, self.cqs);
        self.any
    }
}

impl CompletionSink for Sink<'_> {
    #[inline(always)]
    fn take(&mut self, queue: &Finished, mut completions: impl Iterator<Item = Completion>) {
        self.any = true;
        let Self { cx, qps, cqs, batch, .. } = self;
        if queue.count > 1 {
            qps.complete(cx, cqs, queue, completions);
        } else if let Some(completion) = completions.next()
            && let Some((cq, kind, entry)) = qps.entry(cx, cqs, queue, &completion)
        {
            batch.add(cx, cqs, cq, (kind, entry));
        }
    }
}

/// Entries for one CQ with their kinds, of queues that had one each. Empty between turns.
pub(super) struct Batch {
    cq: CqKey,
    /// Has room for a run, and never more; on the heap, so that no stack holds it while it is made.
    entries: Vec<(u8, Cqe)>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { cq: CqKey::default(), entries: Vec::with_capacity(RUN) }
    }
}

impl Batch {
    #[inline]
    fn add(&mut self, cx: &Delivery<'_>, cqs: &mut Cqs, cq: CqKey, entry: (u8, Cqe)) {
        if cq != self.cq || self.entries.len() == RUN {
            self.flush(cx, cqs);
            self.cq = cq;
        }
        self.entries.push(entry);
    }

    #[inline(never)]
    fn flush(&mut self, cx: &Delivery<'_>, cqs: &mut Cqs) {
        if self.entries.is_empty() {
            return;
        }
        let mut entries = self.entries.iter().copied();
        let fits = cqs.push(cx.now, self.cq, self.entries.len(), entries.by_ref());
        if !fits && entries.next().is_some() {
            cqs.overrun(cx.shard, self.cq);
        }
        self.entries.clear();
    }
}
