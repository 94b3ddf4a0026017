//! The way out. Connections from the adapter to its own addresses branch off here: what the device sends to
//! its loopback address never reaches the edge, but is received at once.

use super::Lane;
use super::steps::frame_of;
use netadapter_glue::neighbour::Neighbours;
use netadapter_glue::{Received, Segments, Slot};
use rocev2::Front;
use rocev2::wire::{Frames, Unit};

/// The work on frames that the first core has beside its lane: connection management, and questions about addresses.
pub(crate) struct Beside<'a> {
    pub(crate) front: &'a mut Front,
    pub(crate) neighbours: &'a mut Neighbours,
}

/// Units that come back in one turn, but for the rest of a run: both ends of a loopback can keep each other busy for
/// ever.
const LOOPBACK_BUDGET: usize = 64;

/// The packets that came back in this turn.
#[derive(Debug, Default)]
pub(super) struct Loopback {
    units: usize,
}

impl Loopback {
    /// Begins the next turn; whether anything came back in the one that ends.
    fn restart(&mut self) -> bool {
        core::mem::take(&mut self.units) > 0
    }

    const fn is_full(&self) -> bool {
        self.units >= LOOPBACK_BUDGET
    }
}

impl Lane {
    /// Writes units for the edge into `slots`, on the first core with the work `beside` the lane. Returns their number.
    pub(crate) fn fill(&mut self, slots: &mut [Slot<'_>], mut beside: Option<Beside<'_>>) -> usize {
        let mut lent = Lent { slots, filled: 0 };
        if let Some(Beside { neighbours, .. }) = &mut beside {
            while let Some(buffer) = lent.buffer()
                && let Some(len) = neighbours.poll_transmit(buffer)
            {
                lent.keep_unit(len, None);
            }
        }
        self.fill_from_engine(&mut lent, beside.map(|beside| beside.front));
        lent.filled
    }

    /// Units of the transport. Those to own addresses come back into it on the way. With the budget spent no unit
    /// leaves before the next turn, as its destination is unknown until it is made.
    fn fill_from_engine(&mut self, lent: &mut Lent<'_, '_>, mut front: Option<&mut Front>) {
        while !self.loopback.is_full() {
            let begin = lent.filled;
            if !self.fill_run(lent, front.as_deref_mut()) {
                return;
            }
            // All of a run go to one destination.
            let run = &lent.slots[begin..lent.filled];
            if run[0].bytes().first_chunk() == Some(&self.loopback_mac) {
                self.loopback.units += run.len();
                self.loop_back(run, front.as_deref_mut());
                lent.filled = begin;
            }
        }
    }

    /// On a stack of its own, which is gone when a run comes back in.
    #[inline(never)]
    fn fill_run(&mut self, lent: &mut Lent<'_, '_>, front: Option<&mut Front>) -> bool {
        let Self { now, engine, bytes, max_segments, .. } = self;
        match front {
            Some(front) => front.poll_transmit_run(*now, engine, lent, *max_segments, bytes),
            None => engine.poll_transmit_run(*now, lent, *max_segments, bytes),
        }
    }

    fn loop_back(&mut self, run: &[Slot<'_>], front: Option<&mut Front>) {
        // As with frames from the edge: a receive that was posted before must be seen with them.
        self.drain_doorbells();
        let Self { now, core, shard, engine, bytes, .. } = self;
        let cores = shard.cores();
        let own = |unit: &Received<'_>| cores == 1 || shard.keeps((*core, cores), unit);
        let units =
            run.iter().map(|slot| Received { frame: slot.bytes(), segments: slot.unit.segments });
        let frames = units.filter(own).map(|unit| frame_of(&unit));
        match front {
            Some(front) => front.handle_frames(*now, engine, frames, bytes),
            None => engine.handle_frames(*now, frames, bytes),
        }
    }

    /// Begins the next turn's loopback; whether anything came back in the one that ends.
    pub(crate) fn restart_loopback(&mut self) -> bool {
        self.loopback.restart()
    }
}

/// The buffers of the edge, the first of which are filled.
struct Lent<'a, 'b> {
    slots: &'a mut [Slot<'b>],
    filled: usize,
}

impl Lent<'_, '_> {
    #[inline(always)]
    fn keep_unit(&mut self, len: usize, segments: Option<Segments>) {
        if let Some(slot) = self.slots.get_mut(self.filled) {
            let unit = &mut *slot.unit;
            (unit.len, unit.segments) = (len, segments);
            self.filled += 1;
        }
    }
}

impl Frames for Lent<'_, '_> {
    #[inline]
    fn buffer(&mut self) -> Option<&mut [u8]> {
        self.slots.get_mut(self.filled).map(|slot| &mut *slot.buffer)
    }

    #[inline(always)]
    fn keep(&mut self, &Unit { len, header_len, segment_len, segments }: &Unit) {
        if segments > 1 {
            self.keep_unit(len, Some(Segments { header_len, segment_len }));
        } else {
            self.keep_unit(len, None);
        }
    }
}
