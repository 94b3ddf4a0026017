//! Received units: several packets behind one set of headers.

use super::common::{Common, CommonRun, Layout};
use super::encap::{Decapsulated, Encap, is_marked};
use super::icrc::{IcrcCheck, IcrcSeed, Varying};
use super::{Bth, DropReason, MadHead, Packet, UDP_HEADER_LEN, next_ip_id};
use crate::ids::Qpn;

/// Parses a received unit, as a NIC's receive offload makes it (URO, GRO): headers, then UDP payloads of
/// `segment_len` bytes each, of which the last may be shorter. Segment `i` counts as sent with IP
/// identification + `i` and its own lengths. `None` is a plain frame, as for [`Packet::parse`].
///
/// Headers that do not parse yield one error and no more; each segment is judged by itself.
pub fn parse_unit(frame: &[u8], segment_len: Option<usize>) -> Segments<'_> {
    // A segment of no bytes would never end.
    let segment_len = segment_len.filter(|segment_len| *segment_len > 0);
    let unit = Decapsulated::parse(frame, segment_len);
    let payload_len = unit.as_ref().map_or(0, |unit| unit.payload.len());
    Segments {
        rest: unit.map(Some),
        segment_len: segment_len.filter(|segment_len| *segment_len < payload_len),
        takes_gsi: true,
        sees_ids: true,
    }
}

/// The packets of a received unit; see [`parse_unit`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// The rest of the unit, under the headers of its first segment.
    rest: Result<Option<Decapsulated<'a>>, DropReason>,
    segment_len: Option<usize>,
    takes_gsi: bool,
    sees_ids: bool,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Result<Packet<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        match core::mem::replace(&mut self.rest, Ok(None)) {
            Ok(None) => None,
            Ok(Some(unit)) => Some(self.split(unit)),
            Err(reason) => Some(Err(reason)),
        }
    }
}

impl<'a> Segments<'a> {
    /// The head of the next packet, if that is for QP 1.
    pub(crate) fn next_mad(&self) -> Option<MadHead> {
        let Ok(Some(unit)) = &self.rest else { return None };
        MadHead::of(unit.encap.src, unit.payload)
    }

    /// Accepts or drops packets for QP 1 from here on. A dropped one is a [`DropReason::CmShare`] and costs
    /// no more than its headers: neither its other bytes nor its ICRC are examined.
    pub const fn take_gsi(&mut self, takes_gsi: bool) {
        self.takes_gsi = takes_gsi;
    }

    /// The operating system did not show the IPv4 identifications, nor whether they count: each is inferred from its packet's
    /// ICRC, which then protects the packet with 16 bits instead of 32.
    pub const fn infer_ids(&mut self) {
        self.sees_ids = false;
    }

    /// Parses the first segment of `unit` and keeps the others for the next call.
    fn split(&mut self, mut unit: Decapsulated<'a>) -> Result<Packet<'a>, DropReason> {
        let Some(segment_len) = self.segment_len else {
            let check = self.check(unit.seed);
            return Packet::parse_transport(unit.encap, check, unit.payload, self.takes_gsi);
        };
        let encap = unit.encap;
        let (segment, rest) = first_of(&unit, segment_len);
        let seed = seed_of(&unit, segment)?;
        let packet = Packet::parse_transport(encap, self.check(seed), segment, self.takes_gsi);
        if !rest.is_empty() {
            if let Ok(packet) = &packet {
                unit.encap.ip_id = packet.encap.ip_id;
            }
            leave_first(&mut unit, rest);
            self.rest = Ok(Some(unit));
        }
        packet
    }

    const fn check(&self, seed: IcrcSeed) -> IcrcCheck {
        if self.sees_ids { IcrcCheck::Seen(seed) } else { IcrcCheck::UnseenId(seed) }
    }

    /// The next segment and those behind it, where several are left and no switch has marked them: a run of packets for
    /// one queue pair, as far as they are common ones for it.
    pub(crate) fn run(&mut self) -> Option<SegmentRun<'_, 'a>> {
        let (segment_len, Ok(Some(unit))) = (self.segment_len?, &self.rest) else { return None };
        let &[_, _, _, _, _, q0, q1, q2, ..] = unit.payload.first_chunk::<{ Bth::LEN }>()?;
        let qpn = Qpn::new(u32::from_be_bytes([0, q0, q1, q2]));
        let several = unit.payload.len() > segment_len && !is_marked(unit.encap.traffic_class);
        let encap = unit.encap;
        several.then_some(SegmentRun { segments: self, segment_len, encap, qpn, taken: (0, 0) })
    }
}

/// The first segment, and the bytes behind it.
fn first_of<'a>(unit: &Decapsulated<'a>, segment_len: usize) -> (&'a [u8], &'a [u8]) {
    unit.payload.split_at_checked(segment_len).unwrap_or((unit.payload, &[]))
}

/// The part of the first segment's ICRC of its headers.
fn seed_of(unit: &Decapsulated<'_>, segment: &[u8]) -> Result<IcrcSeed, DropReason> {
    let udp_len = u16::try_from(UDP_HEADER_LEN + segment.len());
    let udp_len = udp_len.map_err(|_| DropReason::UdpLength)?;
    Ok(unit.seed.vary(unit.seeded, Varying { ip_id: unit.encap.ip_id, udp_len }))
}

/// Moves behind the first segment.
fn leave_first<'a>(unit: &mut Decapsulated<'a>, rest: &'a [u8]) {
    unit.payload = rest;
    unit.encap.ip_id = next_ip_id(&unit.encap);
}

/// The segments of a unit, looked at one after the other, as far as they are common packets for one queue pair.
#[derive(Debug)]
pub(crate) struct SegmentRun<'r, 'a> {
    segments: &'r mut Segments<'a>,
    segment_len: usize,
    encap: Encap,
    qpn: Qpn,
    /// Packets that were taken, and their bytes from the BTH to the ICRC.
    taken: (usize, usize),
}

impl<'a> SegmentRun<'_, 'a> {
    /// Layers 2 to 4 of the first one.
    pub(crate) const fn encap(&self) -> &Encap {
        &self.encap
    }

    /// The queue pair.
    pub(crate) const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Packets that were taken, and their bytes, as if each had headers of its own.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let (packets, bytes) = self.taken;
        (packets, packets * self.encap.header_len() + bytes)
    }

    fn unit(&mut self) -> Option<&mut Decapsulated<'a>> {
        self.segments.rest.as_mut().ok()?.as_mut()
    }
}

impl<'a> CommonRun<'a> for SegmentRun<'_, 'a> {
    fn look(&mut self) -> Option<Common<'a>> {
        let (qpn, segment_len) = (self.qpn, self.segment_len);
        let unit = self.unit()?;
        let (segment, _) = first_of(unit, segment_len);
        let bth = Bth::parse(segment.first_chunk()?).ok()?;
        let &[opcode, flags] = segment.first_chunk()?;
        if bth.dest_qpn != qpn || !bth.is_of_default_partition() {
            return None;
        }
        let layout = Layout::of(opcode, flags, segment.len())?;
        let seed = seed_of(unit, segment).ok()?;
        Common::in_layout(&layout, segment, |covered| seed.icrc(covered))
    }

    fn take(&mut self) -> Option<Common<'a>> {
        let segment_len = self.segment_len;
        let unit = self.unit()?;
        let (segment, rest) = first_of(unit, segment_len);
        leave_first(unit, rest);
        self.taken = (self.taken.0 + 1, self.taken.1 + segment.len());
        if rest.is_empty() {
            self.segments.rest = Ok(None);
        }
        self.look()
    }
}
