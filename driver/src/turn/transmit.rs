//! The way out. Connections from the adapter to its own addresses branch off here: what the device sends to
//! its own link-layer address never reaches the edge, but is received at once.

use super::state::State;
use crate::cx::Cx;
use netadapter_glue::{Segments, Slot};
use rocev2::wire::{Frames, Unit};

/// Units that come back in one turn, but for the rest of a run: both ends of a loopback can keep each other busy for
/// ever.
const LOOPBACK_BUDGET: usize = 64;

/// The packets that came back in this turn.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    units: usize,
}

impl Loopback {
    /// Begins the next turn; whether anything came back in the one that ends.
    pub(crate) fn restart(&mut self) -> bool {
        core::mem::take(&mut self.units) > 0
    }

    const fn is_full(&self) -> bool {
        self.units >= LOOPBACK_BUDGET
    }
}

impl State {
    /// Whether [`Self::fill`] may have a unit.
    pub(super) fn may_transmit(&mut self) -> bool {
        self.cx.paths.neighbours.may_transmit() || self.cx.device.may_transmit()
    }

    /// Writes units for the edge into `slots`. Returns their number.
    pub(super) fn fill(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let mut lent = Lent { slots, filled: 0 };
        while let Some(buffer) = lent.buffer()
            && let Some(len) = self.cx.paths.neighbours.poll_transmit(buffer)
        {
            lent.keep_unit(len, None);
        }
        self.fill_from_device(&mut lent);
        lent.filled
    }

    /// Units of the device. Those to own addresses come back into the device on the way. With the budget spent no unit
    /// leaves before the next turn, as its destination is unknown until it is made.
    fn fill_from_device(&mut self, lent: &mut Lent<'_, '_>) {
        while !self.loopback.is_full() {
            let begin = lent.filled;
            if !self.fill_run(lent) {
                return;
            }
            // All of a run go to one destination.
            let run = &lent.slots[begin..lent.filled];
            if run[0].bytes().first_chunk() == Some(&self.cx.paths.mac) {
                self.loopback.units += run.len();
                self.loop_back(run);
                lent.filled = begin;
            }
        }
    }

    /// On a stack of its own, which is gone when a run comes back in.
    #[inline(never)]
    fn fill_run(&mut self, lent: &mut Lent<'_, '_>) -> bool {
        let Cx { now, device, bytes, .. } = &mut self.cx;
        device.poll_transmit_run(*now, lent, self.max_segments, bytes)
    }

    fn loop_back(&mut self, run: &[Slot<'_>]) {
        // As with frames from the edge: a receive that was posted before must be seen with them.
        self.drain_doorbells();
        let Cx { now, device, bytes, .. } = &mut self.cx;
        let frame = |slot| -> (&[u8], _) {
            let slot: &Slot<'_> = slot;
            (slot.bytes(), slot.unit.segments.map(|segments| segments.segment_len))
        };
        device.handle_frames(*now, run.iter().map(frame), bytes);
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
