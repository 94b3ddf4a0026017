//! Several units in a row, all of one queue pair and so with the same headers.

use super::template::Patch;
use super::{CommonHeaders, Template, Unit, UnitWriter, Written, segment_len, udp_len};

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
    /// The identification of the first packet.
    ip_id: u16,
    limit: RunLimit,
    /// Units so far, and their bytes.
    units: usize,
    bytes: usize,
    /// Packets behind the first of a unit, and the bytes of the headers that they do without.
    segments: usize,
    saved: usize,
    /// For the last packet that had a unit to itself; the next is mostly as long.
    patch: Patch,
    /// The unit that the next packet may still go to.
    open: Written,
}

impl<'a, F: Frames> UnitRun<'a, F> {
    /// An empty run with these headers, whose first packet has this identification.
    pub(crate) const fn new(
        frames: &'a mut F,
        template: &'a Template,
        ip_id: u16,
        limit: RunLimit,
    ) -> Self {
        let open = Written::nothing(template);
        let (units, bytes, segments, saved, patch) = (0, 0, 0, 0, template.blank());
        Self { frames, template, ip_id, limit, units, bytes, segments, saved, patch, open }
    }

    /// Has `fill` write one more unit, of at most the packets that it is given; it returns their number. Returns false
    /// where the run ends: at its bounds, for want of a buffer, or with no packet.
    pub(crate) fn push(&mut self, fill: impl FnOnce(&mut UnitWriter<'_>, usize) -> usize) -> bool {
        if self.is_spent() {
            return false;
        }
        let ip_id = self.next_id();
        let Some(buf) = self.frames.buffer() else { return false };
        let mut unit = UnitWriter::new(buf, self.template, ip_id);
        let written = fill(&mut unit, self.limit.packets) > 0;
        if written {
            self.open = unit.written;
            self.end_unit();
        }
        written
    }

    /// Whether each packet is a unit.
    pub(crate) const fn is_single(&self) -> bool {
        self.limit.packets == 1
    }

    /// Writes one more common packet, whose payload `fill` writes: `SINGLE`, which is [`Self::is_single`], as a unit, else
    /// behind others of its unit or into the next one. `None` where the run ends, or `fill` fails; nothing has changed then.
    #[inline(always)]
    pub(crate) fn push_common<const SINGLE: bool>(
        &mut self,
        headers: &CommonHeaders,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<()> {
        if SINGLE {
            self.push_single(headers, payload_len, fill)
        } else {
            self.push_segment(headers, payload_len, fill)
        }
    }

    #[inline(always)]
    fn push_single(
        &mut self,
        headers: &CommonHeaders,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<()> {
        if self.is_spent() {
            return None;
        }
        let (ip_id, header_len) = (self.next_id(), self.template.header_len());
        let segment_len = segment_len(headers.ext_len(), payload_len);
        self.template.size(&mut self.patch, udp_len(segment_len));
        let (outer, rest) = self.frames.buffer()?.split_at_mut_checked(header_len)?;
        let (covered, icrc) = rest.get_mut(..segment_len)?.split_last_chunk_mut()?;
        headers.write(covered, payload_len, fill)?;
        *icrc = self.patch.icrc(ip_id, covered);
        self.template.emit(&self.patch, ip_id, outer);
        let len = header_len + segment_len;
        self.units += 1;
        self.bytes += len;
        self.frames.keep(&Unit { len, header_len, segment_len, segments: 1 });
        Some(())
    }

    #[inline(never)]
    fn push_segment(
        &mut self,
        headers: &CommonHeaders,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<()> {
        if !self.follows(headers.ext_len(), payload_len) {
            self.end_unit();
        }
        if self.is_spent() {
            return None;
        }
        let (template, ip_id, written) = (self.template, self.next_id(), self.open);
        let mut unit = UnitWriter { buf: self.frames.buffer()?, template, ip_id, written };
        unit.push_common(headers, payload_len, fill)?;
        self.open = unit.written;
        Some(())
    }

    /// Whether one more packet may stand in the unit that is open.
    fn follows(&mut self, ext_len: usize, payload_len: usize) -> bool {
        let (template, ip_id, written) = (self.template, self.ip_id, self.open);
        let unit = |buf| UnitWriter { buf, template, ip_id, written };
        let fits = self.frames.buffer().is_some_and(|buf| unit(buf).fits(ext_len, payload_len));
        fits && written.segments < self.limit.packets
    }

    const fn is_spent(&self) -> bool {
        self.units == self.limit.units || self.bytes >= self.limit.bytes
    }

    const fn next_id(&self) -> u16 {
        self.ip_id.wrapping_add(self.packets() as u16)
    }

    /// Keeps the open unit, if anything is in it.
    fn end_unit(&mut self) {
        if self.open.segments > 0 {
            let unit = self.open.unit(self.template);
            self.units += 1;
            self.bytes += unit.len;
            self.segments += unit.segments - 1;
            self.saved += (unit.segments - 1) * unit.header_len;
            self.frames.keep(&unit);
            self.open = Written::nothing(self.template);
        }
    }

    /// The packets so far.
    pub(crate) const fn packets(&self) -> usize {
        self.units + self.segments + self.open.segments
    }

    /// Their bytes, each with headers of its own. Every unit has ended ([`Self::end`]).
    pub(crate) const fn wire_len(&self) -> usize {
        self.bytes + self.saved
    }

    /// Ends the last unit.
    pub(crate) fn end(&mut self) {
        self.end_unit();
    }

    /// The identification behind that of the last packet, and what is left of the bounds.
    pub(crate) fn finish(self) -> (u16, RunLimit) {
        let RunLimit { units, bytes, packets } = self.limit;
        let (units, bytes) = (units - self.units, bytes.saturating_sub(self.bytes));
        (self.next_id(), RunLimit { units, bytes, packets })
    }
}
