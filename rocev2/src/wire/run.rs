//! Several units in a row, all of one queue pair and so with the same headers.

use super::{Template, Unit, UnitWriter};

/// Buffers for units, lent one after the other.
pub trait Frames {
    /// The buffer of the next unit; `None` where there is none left.
    fn buffer(&mut self) -> Option<&mut [u8]>;

    /// Keeps the unit that was written into that buffer.
    fn keep(&mut self, unit: &Unit);
}

/// One buffer.
pub(crate) struct OneFrame<'b> {
    buf: &'b mut [u8],
    /// The unit in it.
    pub(crate) unit: Option<Unit>,
}

impl<'b> OneFrame<'b> {
    pub(crate) const fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, unit: None }
    }
}

impl Frames for OneFrame<'_> {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        if self.unit.is_none() { Some(self.buf) } else { None }
    }

    fn keep(&mut self, unit: &Unit) {
        self.unit = Some(*unit);
    }
}

/// The bounds of a run. One that is spent allows no unit more; the last may exceed the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimit {
    /// Units that are left.
    pub(crate) units: usize,
    /// Bytes that are left.
    pub(crate) bytes: usize,
    /// Packets of one unit.
    pub(crate) packets: usize,
}

/// A run that is being written.
pub(crate) struct UnitRun<'a, F> {
    frames: &'a mut F,
    template: &'a Template,
    /// The identification of the next packet.
    ip_id: u16,
    limit: RunLimit,
    packets: usize,
    wire_len: usize,
}

impl<'a, F: Frames> UnitRun<'a, F> {
    /// An empty run with these headers, whose first packet has this identification.
    pub(crate) const fn new(
        frames: &'a mut F,
        template: &'a Template,
        ip_id: u16,
        limit: RunLimit,
    ) -> Self {
        Self { frames, template, ip_id, limit, packets: 0, wire_len: 0 }
    }

    /// Has `fill` write one more unit, of at most the packets that it is given; it returns their number. Returns false
    /// where the run ends: at its bounds, for want of a buffer, or with no packet.
    #[inline(always)]
    pub(crate) fn push(&mut self, fill: impl FnOnce(&mut UnitWriter<'_>, usize) -> usize) -> bool {
        if self.limit.units == 0 || self.limit.bytes == 0 {
            return false;
        }
        let Some(buf) = self.frames.buffer() else { return false };
        let mut unit = UnitWriter::new(buf, self.template, self.ip_id);
        let written = fill(&mut unit, self.limit.packets);
        if written == 0 {
            return false;
        }
        self.ip_id = self.ip_id.wrapping_add(written as u16);
        self.packets += written;
        self.wire_len += unit.wire_len();
        let unit = unit.finish();
        self.limit.units -= 1;
        self.limit.bytes = self.limit.bytes.saturating_sub(unit.len);
        self.frames.keep(&unit);
        true
    }

    /// The packets so far.
    pub(crate) const fn packets(&self) -> usize {
        self.packets
    }

    /// Their bytes, each with headers of its own.
    pub(crate) const fn wire_len(&self) -> usize {
        self.wire_len
    }

    /// The identification behind that of the last packet, and what is left of the bounds.
    pub(crate) const fn finish(self) -> (u16, RunLimit) {
        (self.ip_id, self.limit)
    }
}
