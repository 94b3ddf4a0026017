//! A device of one core, which the caller sees as one thing.

use super::{Device, Event};
use crate::env::{Instant, Memory};
use crate::wire::{Frames, OneFrame, Unit};

impl Device {
    /// Handles a received unit: one frame, or `segment_len`-byte segments behind one header.
    pub fn handle_frame<M: Memory>(
        &mut self,
        now: Instant,
        frame: &[u8],
        segment_len: Option<usize>,
        memory: &mut M,
    ) {
        self.handle_frames(now, core::iter::once((frame, segment_len)), memory);
    }

    /// Handles received units, oldest first; each as [`Self::handle_frame`] does.
    pub fn handle_frames<'f, M: Memory>(
        &mut self,
        now: Instant,
        frames: impl IntoIterator<Item = (&'f [u8], Option<usize>)>,
        memory: &mut M,
    ) {
        self.front.handle_frames(now, &mut self.engines, frames, memory);
        self.probe_peers(now);
    }

    /// Writes the next unit of at most `max_packets` packets into `buf`; `None` where there is nothing to
    /// send. Queue pairs take turns. CM messages go before them, but not all the time.
    pub fn poll_transmit<M: Memory>(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        max_packets: usize,
        memory: &mut M,
    ) -> Option<Unit> {
        let mut frame = OneFrame::new(buf);
        self.poll_transmit_run(now, &mut frame, max_packets, memory);
        frame.unit
    }

    /// The same, over as many of `frames` as queue pairs fill in their turns; they all go to one destination. Returns
    /// false where there was nothing to send, or no buffer.
    pub fn poll_transmit_run<M: Memory>(
        &mut self,
        now: Instant,
        frames: &mut impl Frames,
        max_packets: usize,
        memory: &mut M,
    ) -> bool {
        self.front.poll_transmit_run(now, &mut self.engines, frames, max_packets, memory)
    }

    /// Acts on every deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timers(now);
        self.front.collect(&mut self.engines);
        self.handle_cm_timers(now);
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.front.collect(&mut self.engines);
        Instant::earlier(self.poll_timers(), self.poll_cm_timers())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.front.collect(&mut self.engines);
        if let Some(owner) = self.poll_srq_low() {
            return Some(Event::SrqLow { owner });
        }
        // The failure of a QP comes before the end of its connection, but behind the loss of its path.
        self.failed(false).or_else(|| self.poll_cm().map(Event::Cm)).or_else(|| self.failed(true))
    }

    fn failed(&mut self, path_lost: bool) -> Option<Event> {
        let (qpn, conn, failure) = self.poll_failure(path_lost)?;
        Some(Event::QpFailed { qpn, conn, failure })
    }

    /// Allows or stops the processing of received CM messages; see [`Front::admit_messages`](super::Front::admit_messages).
    pub fn admit_messages(&mut self, admitted: bool) {
        self.front.admit_messages(admitted);
    }
}
