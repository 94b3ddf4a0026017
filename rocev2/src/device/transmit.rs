//! The way out: the next unit, of connection management or of the queue pair whose turn it is.

use super::acks;
use super::engine::{Engine, QpSlot};
use super::turns::{Lists, Sender};
use crate::counters::Counter;
use crate::env::{Instant, Memory};
use crate::path::{GivenUp, PathIndex, Paths};
use crate::qp::{Qp, Shared};
use crate::units::Allowance;
use crate::wire::mad::Make;
use crate::wire::{Frames, RunLimit, Template, UnitRun};

/// The headers of a QP's packets down to UDP, with what may change in them.
pub(super) struct Headers {
    template: Template,
    /// [`Paths::changes`] when they were made.
    hops: u32,
    traffic_class: u8,
}

impl Headers {
    /// Whether they are still those of packets of this class, after so many changes of the paths.
    #[inline(always)]
    fn fit(&self, hops: u32, traffic_class: Option<u8>) -> bool {
        self.hops == hops && traffic_class == Some(self.traffic_class)
    }
}

impl Engine {
    /// Whether there may be a packet to send: [`Self::poll_transmit_run`] finds none otherwise.
    #[inline]
    pub fn may_transmit(&mut self) -> bool {
        self.settle();
        self.sender.is_some() || !self.lists.ready.is_empty()
    }

    /// Writes the next units, each of at most `max_packets` packets, over as many of `frames` as queue pairs fill in their turns;
    /// they all go to one destination. Returns false where there was nothing to send, or no buffer.
    pub fn poll_transmit_run<M: Memory>(
        &mut self,
        now: Instant,
        frames: &mut impl Frames,
        max_packets: usize,
        memory: &mut M,
    ) -> bool {
        self.transmit_qps(now, frames, (usize::MAX, max_packets), memory) > 0
    }

    /// The same for so many units, at most. Returns their number.
    pub(super) fn transmit_qps<M: Memory>(
        &mut self,
        now: Instant,
        frames: &mut impl Frames,
        (units, packets): (usize, usize),
        memory: &mut M,
    ) -> usize {
        self.settle();
        self.enter();
        let limit = RunLimit { units, bytes: usize::MAX, packets };
        let (mut units, mut over) = (limit.units, None);
        // A queue pair whose turn has ended is not ready before the next call: a packet that does not fit its buffer
        // leaves its queue pair so. One whose turn goes on is for the next call, too.
        while self.transmit_singles(now, frames, (&mut units, &mut over), memory)
            && units > 0
            && frames.buffer().is_some()
            && let Some(sender) = self.next_sender()
        {
            let path = self.qps[sender.slot].as_deref().and_then(|entry| entry.path);
            if over.is_some_and(|over| Some(over) != path) {
                self.sender = Some(sender);
                break;
            }
            let limit = RunLimit { units, ..limit };
            let written = self.take_turn(now, sender, frames, limit, memory);
            if written > 0 {
                (units, over) = (units - written, path);
                if self.sender.is_some() {
                    break;
                }
            }
        }
        self.leave();
        limit.units - units
    }

    /// Has the queue pairs that come next send, as long as each has one packet, `over` one path. Returns false where another
    /// one goes over another.
    #[inline(always)]
    fn transmit_singles<M: Memory>(
        &mut self,
        now: Instant,
        frames: &mut impl Frames,
        (units, over): (&mut usize, &mut Option<PathIndex>),
        memory: &mut M,
    ) -> bool {
        if self.sender.is_some() || self.lists.ready.is_empty() {
            return true;
        }
        let Self { qps, mrs, reorder_pool, completions: out, lists, paths, ids, .. } = self;
        let Lists { ready, timers, .. } = lists;
        let (hops, keeps) = (paths.changes(), self.config.cm.make == Make::Keeper);
        let (next, mut taken, mut same) = (ready.first(), 0, true);
        while *units > 0
            && let Some(&slot) = next.get(taken)
        {
            let Some(entry) = qps[slot].as_deref_mut() else { break };
            if keeps
                && next.len() > taken + 1
                && entry.qp.lists_ack()
                && let next = &next[taken..]
                && let Some((path, count)) =
                    acks::transmit(qps, (next, timers), (paths, ids.next), *over, frames)
            {
                ids.end_single();
                (*units, *over, taken) = (*units - 1, Some(path), taken + count);
                continue;
            }
            let Some(entry) = qps[slot].as_deref_mut() else { break };
            let QpSlot { qp, template: Some(headers), path: Some(path), .. } = entry else { break };
            if !headers.fit(hops, qp.traffic_class()) {
                break;
            }
            if over.is_some_and(|over| over != *path) {
                same = false;
                break;
            }
            let shared = &mut Shared { mrs, memory: &mut *memory, reorder_pool, out };
            if !qp.fill_single(now, (&mut *frames, &mut headers.template, ids.next), shared) {
                break;
            }
            ids.end_single();
            (*units, *over, taken) = (*units - 1, Some(*path), taken + 1);
            entry.end_short_turn(slot, timers);
        }
        ready.leave(taken);
        same
    }

    /// Lets a queue pair send. Returns the number of units.
    #[inline(never)]
    fn take_turn<M: Memory>(
        &mut self,
        now: Instant,
        Sender { slot, units, bytes }: Sender,
        frames: &mut impl Frames,
        limit: RunLimit,
        memory: &mut M,
    ) -> usize {
        let limit = RunLimit { units: units.min(limit.units), bytes, ..limit };
        let (limit, tries) =
            if limit.packets > 1 { self.limit_units(now, slot, limit) } else { (limit, false) };
        let Some(entry) = self.qps[slot].as_deref_mut() else { return 0 };
        let QpSlot { qp, template, path: Some(path), .. } = entry else { return 0 };
        let Some(template) = headers_of(template, qp, &self.paths, *path) else { return 0 };
        let Self { mrs, reorder_pool, completions: out, lists, .. } = self;
        let mut shared = Shared { mrs, memory, reorder_pool, out };
        let mut run = UnitRun::new(frames, template, self.ids, limit);
        qp.fill(now, &mut run, &mut shared);
        if tries && run.first_divided().is_some() {
            self.paths.unit_left(now, *path);
        }
        let (ids, left) = run.finish();
        let written = limit.units - left.units;
        self.ids = ids;
        let sender = Sender { slot, units: units - written, bytes: left.bytes };
        if qp.rests() {
            entry.end_short_turn(slot, &mut lists.timers);
        } else if written > 0 && sender.goes_on() && qp.ready() {
            let completed = qp.has_completions();
            self.sender = Some(sender);
            if completed {
                self.touch(slot);
            }
        } else {
            self.end_turn(slot);
        }
        written
    }

    /// Of a turn that may use units, what is known of their fate leaves; and whether a unit is a trial.
    fn limit_units(&mut self, now: Instant, slot: usize, limit: RunLimit) -> (RunLimit, bool) {
        let Self { qps, paths, counters, .. } = self;
        let Some(QpSlot { qp, path: Some(path), .. }) = qps[slot].as_deref_mut() else {
            return (limit, false);
        };
        // Of a request and of a response.
        while let Some(fate) = qp.judge_unit() {
            let GivenUp { path, all } = paths.judge_unit(now, *path, &fate);
            counters.add(Counter::UnitsOffPath, path.into());
            counters.add(Counter::UnitsOffLink, all.into());
        }
        match paths.unit_allowance(now, *path) {
            Allowance::All => (limit, false),
            Allowance::One if qp.try_unit() => (RunLimit { units: 1, ..limit }, true),
            Allowance::One | Allowance::None => (RunLimit { packets: 1, ..limit }, false),
        }
    }
}

/// The headers of the next packet of a QP over `path`; `None` where it has no peer.
pub(super) fn headers_of<'a>(
    known: &'a mut Option<Headers>,
    qp: &Qp,
    paths: &Paths,
    path: PathIndex,
) -> Option<&'a mut Template> {
    let (traffic_class, hops) = (qp.traffic_class()?, paths.changes());
    if !known.as_ref().is_some_and(|known| known.fit(hops, Some(traffic_class))) {
        let template = Template::new(&qp.encap(paths.hop(path))?);
        *known = Some(Headers { template, hops, traffic_class });
    }
    known.as_mut().map(|known| &mut known.template)
}
