//! Several units in a row, all of one queue pair and so with the same headers.

use super::{CommonHeaders, Ids, Template, Unit, UnitWriter, Written, segment_len, udp_len};

/// Buffers for units, lent one after the other.
pub trait Frames {
    /// The buffer of the next unit; `None` where there is none left.
    fn buffer(&mut self) -> Option<&mut [u8]>;

    /// Keeps the unit that was written into that buffer.
    fn keep(&mut self, unit: &Unit);
}

/// The source of a packet's payload. No closure, because not every compiler makes those part of the code around them.
pub(crate) trait Payload {
    /// Writes all of `out`; `None` where it fails.
    fn write(self, out: &mut [u8]) -> Option<()>;
}

/// No bytes.
impl Payload for () {
    #[inline(always)]
    fn write(self, _: &mut [u8]) -> Option<()> {
        Some(())
    }
}

/// These bytes.
impl Payload for &[u8] {
    #[inline(always)]
    fn write(self, out: &mut [u8]) -> Option<()> {
        out.copy_from_slice(self);
        Some(())
    }
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

/// A unit of several packets, which the kernel or the NIC divides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DividedUnit {
    /// Packets of its run before it.
    pub(crate) behind: usize,
    /// Its packets.
    pub(crate) packets: usize,
    /// Its bytes.
    pub(crate) len: usize,
}

/// A run that is being written.
pub(crate) struct UnitRun<'a, F> {
    frames: &'a mut F,
    template: &'a mut Template,
    /// Those of the next packets.
    ids: Ids,
    /// Its bounds, of which the units count down from those that were granted.
    limit: RunLimit,
    units: usize,
    /// Bytes so far.
    bytes: usize,
    /// Packets behind the first of a unit, and the bytes of the headers that they do without.
    segments: usize,
    saved: usize,
    /// Units of several packets, and the first of them.
    divided: usize,
    first: Option<DividedUnit>,
    /// The unit that the next packet may still go to.
    open: Written,
}

impl<'a, F: Frames> UnitRun<'a, F> {
    /// An empty run with these headers, whose first packet has the next of these identifications.
    pub(crate) const fn new(
        frames: &'a mut F,
        template: &'a mut Template,
        ids: Ids,
        limit: RunLimit,
    ) -> Self {
        let open = Written::nothing(template);
        let (units, bytes, segments, saved) = (limit.units, 0, 0, 0);
        let (divided, first) = (0, None);
        Self { frames, template, ids, limit, units, bytes, segments, saved, divided, first, open }
    }

    /// Has `fill` write one more unit, of at most the packets that it is given; it returns their number. Returns false
    /// where the run ends: at its bounds, for want of a buffer, or with no packet.
    pub(crate) fn push(&mut self, fill: impl FnOnce(&mut UnitWriter<'_>, usize) -> usize) -> bool {
        if self.is_spent() {
            return false;
        }
        let Some(buf) = self.frames.buffer() else { return false };
        let mut unit = UnitWriter::new(buf, self.template, self.ids.next);
        let written = fill(&mut unit, self.limit.packets) > 0;
        if written {
            self.open = unit.written;
            self.ids.next = self.ids.next.wrapping_add(self.open.segments as u16);
            self.end_unit();
        }
        written
    }

    /// Whether each packet is a unit.
    pub(crate) const fn is_single(&self) -> bool {
        self.limit.packets == 1
    }

    /// Writes one more common packet with `headers`, which take so many bytes behind the BTH, and a payload of so many:
    /// `SINGLE`, which is [`Self::is_single`], as a unit, else behind others of its unit or into the next one; the run is not
    /// spent. `None` where the run ends, or the payload fails; nothing has changed then.
    #[inline(always)]
    pub(crate) fn push_common<const SINGLE: bool>(
        &mut self,
        (ext_len, payload_len): (usize, usize),
        headers: impl FnOnce() -> CommonHeaders,
        payload: impl Payload,
    ) -> Option<()> {
        if SINGLE {
            self.push_single((ext_len, payload_len), headers, payload)
        } else {
            self.push_segment((ext_len, payload_len), headers, payload)
        }
    }

    #[inline(always)]
    fn push_single(
        &mut self,
        (ext_len, payload_len): (usize, usize),
        headers: impl FnOnce() -> CommonHeaders,
        payload: impl Payload,
    ) -> Option<()> {
        let Self { frames, template, ids, .. } = self;
        let len =
            write_single(*frames, template, ids.next, (ext_len, payload_len), headers, payload)?;
        ids.end_single();
        self.limit.units -= 1;
        self.bytes += len;
        Some(())
    }

    #[inline(never)]
    fn push_segment(
        &mut self,
        (ext_len, payload_len): (usize, usize),
        headers: impl FnOnce() -> CommonHeaders,
        payload: impl Payload,
    ) -> Option<()> {
        if !self.follows(ext_len, payload_len) {
            self.end_unit();
        }
        if self.is_spent() {
            return None;
        }
        let (template, ip_id, written) = (&*self.template, self.ids.next, self.open);
        let mut unit = UnitWriter { buf: self.frames.buffer()?, template, ip_id, written };
        unit.push_common(&headers(), payload_len, payload)?;
        self.open = unit.written;
        self.ids.next = ip_id.wrapping_add(1);
        Some(())
    }

    /// Whether one more packet may stand in the unit that is open.
    fn follows(&mut self, ext_len: usize, payload_len: usize) -> bool {
        let (template, ip_id, written) = (&*self.template, self.ids.next, self.open);
        let unit = |buf| UnitWriter { buf, template, ip_id, written };
        let fits = self.frames.buffer().is_some_and(|buf| unit(buf).fits(ext_len, payload_len));
        fits && written.segments < self.limit.packets
    }

    /// Whether its bounds allow no unit more.
    pub(crate) const fn is_spent(&self) -> bool {
        self.limit.units == 0 || self.bytes >= self.limit.bytes
    }

    /// Keeps the open unit, if anything is in it.
    fn end_unit(&mut self) {
        if self.open.segments > 0 {
            let unit = self.open.unit(self.template);
            if unit.segments > 1 {
                self.note_divided(&unit);
            }
            self.limit.units -= 1;
            self.bytes += unit.len;
            self.segments += unit.segments - 1;
            self.saved += (unit.segments - 1) * unit.header_len;
            self.frames.keep(&unit);
            self.ids.end_unit();
            self.open = Written::nothing(self.template);
        }
    }

    fn note_divided(&mut self, unit: &Unit) {
        let behind = self.packets() - unit.segments;
        let first = DividedUnit { behind, packets: unit.segments, len: unit.len };
        self.first.get_or_insert(first);
        self.divided += 1;
    }

    /// Units of several packets so far.
    pub(crate) const fn divided(&self) -> usize {
        self.divided
    }

    /// The first of them.
    pub(crate) const fn first_divided(&self) -> Option<DividedUnit> {
        self.first
    }

    /// The packets so far.
    pub(crate) const fn packets(&self) -> usize {
        self.units - self.limit.units + self.segments + self.open.segments
    }

    /// Their bytes, each with headers of its own. Every unit has ended ([`Self::end`]).
    pub(crate) const fn wire_len(&self) -> usize {
        self.bytes + self.saved
    }

    /// Ends the last unit.
    pub(crate) fn end(&mut self) {
        self.end_unit();
    }

    /// The identifications behind that of the last packet, and what is left of the bounds.
    pub(crate) fn finish(self) -> (Ids, RunLimit) {
        let RunLimit { units, bytes, packets } = self.limit;
        let bytes = bytes.saturating_sub(self.bytes);
        (self.ids, RunLimit { units, bytes, packets })
    }
}

/// Writes a common packet, as [`UnitRun::push_common`] does, and keeps it as a unit of the next of `frames`. Returns its
/// bytes; `None` where it does not fit, or the payload fails; nothing has changed then.
#[inline(always)]
pub(crate) fn write_single<F: Frames>(
    frames: &mut F,
    template: &mut Template,
    ip_id: u16,
    (ext_len, payload_len): (usize, usize),
    headers: impl FnOnce() -> CommonHeaders,
    payload: impl Payload,
) -> Option<usize> {
    let (segment_len, header_len) = (segment_len(ext_len, payload_len), template.header_len());
    template.resize(udp_len(segment_len));
    let len = header_len + segment_len;
    let (outer, rest) = frames.buffer()?.get_mut(..len)?.split_at_mut(header_len);
    let (covered, icrc) = rest.split_last_chunk_mut()?;
    headers().write(covered, payload_len, payload)?;
    *icrc = template.seal(ip_id, outer, covered);
    frames.keep(&Unit { len, header_len, segment_len, segments: 1 });
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Qpn;
    use crate::psn::{Msn, Psn};
    use crate::wire::{Aeth, Bth, CommonExt, Ext, Opcode, Syndrome, example_encap, next_ip_id};
    use core::convert::Infallible;
    use std::vec::Vec;

    #[derive(Default)]
    struct Sent {
        buf: Vec<u8>,
        units: Vec<Vec<u8>>,
    }

    impl Frames for Sent {
        fn buffer(&mut self) -> Option<&mut [u8]> {
            self.buf = std::vec![0xaa; 200];
            Some(&mut self.buf)
        }

        fn keep(&mut self, unit: &Unit) {
            assert_eq!((unit.segments, unit.header_len + unit.segment_len), (1, unit.len));
            self.units.push(self.buf[..unit.len].to_vec());
        }
    }

    /// Whatever the headers, and whatever the lengths of the packets before it.
    #[test]
    fn a_packet_of_a_run_is_written_as_one_alone() {
        const LENS: [usize; 8] = [64, 64, 1, 64, 3, 3, 0, 64];
        let bounds = RunLimit { units: LENS.len(), bytes: usize::MAX, packets: 1 };
        for (v6, vlan) in [(false, None), (true, None), (false, Some(5)), (true, Some(5))] {
            let mut encap = example_encap(v6, vlan);
            let (mut sent, mut template) = (Sent::default(), Template::new(&encap));
            let mut run =
                UnitRun::new(&mut sent, &mut template, Ids::new(false, encap.ip_id), bounds);
            let mut expected = Vec::new();
            for (n, len) in (1..).zip(LENS) {
                let (dest_qpn, psn) = (Qpn::new(7), Psn::new(n));
                let (opcode, msn) = (Opcode::ReadResponseOnly, Msn::new(n));
                let (solicited, ack_req, ext) = (n == 3, n == 4, CommonExt::Ack(msn));
                let headers = || CommonHeaders { opcode, dest_qpn, psn, solicited, ack_req, ext };
                let payload = |out: &mut [u8]| {
                    out.fill(n as u8);
                    Some(())
                };
                let fails = |_: &mut [u8]| None;
                assert!(!run.is_spent());
                assert_eq!(run.push_common::<true>((4, 50), headers, fails), None);
                assert_eq!(run.push_common::<true>((4, 150), headers, payload), None, "no room");
                assert_eq!(run.push_common::<true>((4, len), headers, payload), Some(()));

                let bth = Bth { solicited, ack_req, ..Bth::new(opcode, dest_qpn, psn) };
                let ext = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn });
                let (mut buf, alone) = ([0x55; 200], Template::new(&encap));
                let mut unit = UnitWriter::new(&mut buf, &alone, encap.ip_id);
                let Ok(()) = unit.push(&bth, &ext, len, |out| {
                    out.fill(n as u8);
                    Ok::<(), Infallible>(())
                });
                let len = unit.finish().len;
                expected.push(buf[..len].to_vec());
                encap.ip_id = next_ip_id(&encap);
            }
            assert!(run.is_spent());
            let bytes: usize = expected.iter().map(Vec::len).sum();
            assert_eq!((run.packets(), run.wire_len()), (LENS.len(), bytes));
            assert_eq!(run.finish().1.units, 0);
            assert_eq!(sent.units, expected);
        }
    }
}
