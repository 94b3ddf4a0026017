//! The way out. Connections from the adapter to its own addresses branch off here: what the device sends to
//! its own link-layer address never reaches the edge, but is received at once.

use super::state::State;
use crate::cx::Cx;
use netadapter_glue::{Segments, Transmit};
use rocev2::wire::Unit;

/// Units that come back in one turn: both ends of a loopback can keep each other busy for ever.
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
    /// Writes the next unit for the edge into `buf`.
    pub(super) fn fill(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        if let Some(len) = self.cx.paths.neighbours.poll_transmit(buf) {
            return Some(Transmit { len, segments: None });
        }
        self.fill_from_device(buf)
    }

    /// Writes the device's next unit for the edge into `buf`. Units to own addresses come back into the
    /// device on the way. With the budget spent no unit leaves before the next turn, as its destination is
    /// unknown until it is made.
    fn fill_from_device(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        while !self.loopback.is_full() {
            let Cx { now, device, bytes, paths, .. } = &mut self.cx;
            let unit = device.poll_transmit(*now, buf, self.max_segments, bytes)?;
            let frame = buf.get(..unit.len)?;
            if frame.first_chunk() != Some(&paths.mac) {
                return Some(transmit(&unit));
            }
            self.loopback.units += 1;
            // As with a frame from the edge: a receive that was posted before must be seen with it.
            self.drain_doorbells();
            let segment_len = (unit.segments > 1).then_some(unit.segment_len);
            let Cx { now, device, bytes, .. } = &mut self.cx;
            device.handle_frame(*now, frame, segment_len, bytes);
        }
        None
    }
}

/// A unit as an edge takes it.
fn transmit(unit: &Unit) -> Transmit {
    let segments = (unit.segments > 1)
        .then_some(Segments { header_len: unit.header_len, segment_len: unit.segment_len });
    Transmit { len: unit.len, segments }
}
