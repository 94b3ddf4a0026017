//! Connections from the adapter to its own addresses: what the device sends to its own link-layer
//! address never reaches the edge, but is received at once.

use super::State;
use netadapter_glue::{Segments, Transmit};
use rocev2::env::Instant;
use rocev2::wire::Unit;

/// Units that come back in one turn: both ends of a loopback can keep each other busy for ever.
const LOOPBACK_BUDGET: usize = 64;

/// What came back in this turn.
#[derive(Debug, Default)]
pub(super) struct Loopback {
    units: usize,
}

impl Loopback {
    /// Begins the next turn; whether anything came back in the one that ends.
    pub(super) fn restart(&mut self) -> bool {
        core::mem::take(&mut self.units) > 0
    }

    const fn is_full(&self) -> bool {
        self.units >= LOOPBACK_BUDGET
    }
}

impl State {
    /// Writes the device's next unit for the edge into `buf`. On the way there, what the device sends
    /// to itself goes back into it. With the budget spent nothing leaves before the next turn, as
    /// nobody knows for whom the next unit is until it is made.
    pub(super) fn fill_from_device(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        while !self.loopback.is_full() {
            let unit = self.device.poll_transmit(now, buf, self.max_segments, &mut self.regions)?;
            let frame = buf.get(..unit.len)?;
            if frame.first_chunk() != Some(&self.mac) {
                return Some(transmit(&unit));
            }
            self.loopback.units += 1;
            // As with a frame from the edge: a receive that was posted before must be seen with it.
            self.drain_doorbells();
            let segment_len = (unit.segments > 1).then_some(unit.segment_len);
            self.device.handle_frame(now, frame, segment_len, &mut self.regions);
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
