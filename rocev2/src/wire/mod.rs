//! The bytes of RoCEv2: whole packets, the headers in them, and connection management datagrams.
//!
//! This module knows no connection, clock or memory. A frame becomes a [`Packet`] of typed values or a
//! [`DropReason`], and is never checked again; [`UnitWriter`] is the way back. The engines judge lengths
//! that depend on a path MTU or on a message's progress.

mod aeth;
mod bth;
mod dissect;
mod drop_reason;
mod encap;
mod ext;
mod icrc;
mod ip_cm;
pub mod mad;
mod opcode;
mod peek;
mod pmtu;

pub use aeth::{Aeth, NakCode, RnrTimer, Syndrome};
pub use bth::Bth;
pub use dissect::{Dissection, Icrc, dissect};
pub use drop_reason::DropReason;
pub use encap::{Encap, GSI_SOURCE_PORT, Hop, Mac, ROCE_PORT, source_port};
pub use ext::{AtomicEth, Deth, Ext, Feth, Reth};
pub use opcode::{Opcode, Operation, Place};
pub use peek::{PEEK_LEN, roce_destination};
pub use pmtu::Pmtu;

use crate::ids::Qpn;
use encap::{Decapsulated, MAX_UDP_PAYLOAD};
use ext::put;
use icrc::Covered;

/// One received packet whose ICRC is right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packet<'a> {
    /// Layers 2 to 4.
    pub encap: Encap,
    /// The Base Transport Header.
    pub bth: Bth,
    /// The extended headers that the opcode announces.
    pub ext: Ext,
    /// The payload, pad bytes removed.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses one whole Ethernet frame, which may have padding after the packet.
    ///
    /// # Errors
    /// The first reason found to discard the frame; [`DropReason::NotRoce`] where it is another
    /// protocol's.
    pub fn parse(frame: &'a [u8]) -> Result<Self, DropReason> {
        let Decapsulated { encap, mut covered, payload } = Decapsulated::parse(frame, None)?;
        Self::parse_transport(encap, &mut covered, payload, true)
    }

    /// Bytes on the wire from the Ethernet header to the ICRC, as if the packet had headers of its own.
    pub fn wire_len(&self) -> usize {
        self.encap.header_len() + segment_len(self.ext.len(), self.payload.len())
    }

    /// Parses the bytes between the UDP header and the end of the packet. Cheap checks come first; all
    /// failures are silent, so their order cannot be seen from outside.
    fn parse_transport(
        encap: Encap,
        covered: &mut Covered,
        bytes: &'a [u8],
        takes_gsi: bool,
    ) -> Result<Self, DropReason> {
        let (covered_bytes, icrc) = bytes.split_last_chunk().ok_or(DropReason::Truncated)?;
        let (header, rest) = covered_bytes.split_first_chunk().ok_or(DropReason::Truncated)?;
        let bth = Bth::parse(header)?;
        if bth.dest_qpn == Qpn::GSI && !takes_gsi {
            return Err(DropReason::CmShare);
        }
        let (ext, body) = Ext::parse(bth.opcode, rest)?;
        let payload_len =
            body.len().checked_sub(usize::from(bth.pad_count)).ok_or(DropReason::BadPad)?;
        let payload = body.get(..payload_len).ok_or(DropReason::BadPad)?;
        if bth.dest_qpn == Qpn::new(0) {
            return Err(DropReason::BadDestQp);
        }
        if covered.icrc(header, rest) != *icrc {
            return Err(DropReason::Icrc);
        }
        Ok(Self { encap, bth, ext, payload })
    }
}

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
    }
}

/// The packets of a received unit; see [`parse_unit`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// The rest of the unit, under the headers of its first segment.
    rest: Result<Option<Decapsulated<'a>>, DropReason>,
    segment_len: Option<usize>,
    takes_gsi: bool,
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
    /// Accepts or drops packets for QP 1 from here on. A dropped one is a [`DropReason::CmShare`] and costs
    /// no more than its headers: neither its other bytes nor its ICRC are examined.
    pub const fn take_gsi(&mut self, takes_gsi: bool) {
        self.takes_gsi = takes_gsi;
    }

    /// Parses the first segment of `unit` and keeps the others for the next call.
    fn split(&mut self, mut unit: Decapsulated<'a>) -> Result<Packet<'a>, DropReason> {
        let Some(segment_len) = self.segment_len else {
            return Packet::parse_transport(
                unit.encap,
                &mut unit.covered,
                unit.payload,
                self.takes_gsi,
            );
        };
        let (segment, rest) =
            unit.payload.split_at_checked(segment_len).unwrap_or((unit.payload, &[]));
        let encap = unit.encap;
        let udp_len = u16::try_from(UDP_HEADER_LEN + segment.len());
        unit.covered.set_segment(encap.ip_id, udp_len.map_err(|_| DropReason::UdpLength)?);
        let packet = Packet::parse_transport(encap, &mut unit.covered, segment, self.takes_gsi);
        if !rest.is_empty() {
            unit.payload = rest;
            unit.encap.ip_id = next_ip_id(&encap);
            self.rest = Ok(Some(unit));
        }
        packet
    }
}

/// Writes one unit, as a NIC's segmentation offload takes it (USO, GSO), into a lent buffer: Ethernet, IP
/// and UDP headers once, then one or more segments, each BTH to ICRC. Segment `i` has the ICRC of a packet
/// sent with IP identification + `i` and its own lengths.
///
/// Lengths and IPv4 checksum in the one set of headers are those of the first segment alone; the offload
/// that splits the unit patches them for the others.
///
/// ```
/// use rocev2::ids::Qpn;
/// use rocev2::psn::Psn;
/// use rocev2::wire::{Bth, Encap, Ext, Mac, Opcode, Packet, UnitWriter};
///
/// let encap = Encap {
///     src_mac: Mac([2, 0, 0, 0, 0, 1]),
///     dst_mac: Mac([2, 0, 0, 0, 0, 2]),
///     vlan: None,
///     src: "10.0.0.1".parse()?,
///     dst: "10.0.0.2".parse()?,
///     traffic_class: 0,
///     hop_limit: 64,
///     ip_id: 0,
///     flow_label: 0,
///     src_port: 0xc000,
/// };
/// let bth = Bth::new(Opcode::SendOnly, Qpn::new(17), Psn::new(1));
/// let mut buf = [0; 128];
/// let mut writer = UnitWriter::new(&mut buf, &encap);
/// writer.push(&bth, &Ext::None, 5, |payload| {
///     payload.copy_from_slice(b"hello");
///     Ok::<(), rocev2::env::Fault>(())
/// })?;
/// let len = writer.finish().len;
///
/// let packet = Packet::parse(&buf[..len])?;
/// assert_eq!((packet.bth.psn, packet.payload), (Psn::new(1), &b"hello"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct UnitWriter<'b> {
    buf: &'b mut [u8],
    encap: Encap,
    header_len: usize,
    /// Headers as the ICRC covers them; present from the first segment on.
    covered: Option<Covered>,
    len: usize,
    segment_len: usize,
    segments: usize,
    /// A shorter segment was written: it is the last.
    ended: bool,
}

/// A written unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unit {
    /// Bytes of the whole unit; 0 where no segment was written.
    pub len: usize,
    /// Bytes of the Ethernet, IP and UDP headers.
    pub header_len: usize,
    /// Bytes of each segment but the last, BTH to ICRC.
    pub segment_len: usize,
    /// The number of segments.
    pub segments: usize,
}

impl<'b> UnitWriter<'b> {
    /// Starts an empty unit at the front of `buf`.
    pub fn new(buf: &'b mut [u8], encap: &Encap) -> Self {
        let header_len = encap.header_len();
        Self {
            buf,
            encap: *encap,
            header_len,
            covered: None,
            len: header_len,
            segment_len: 0,
            segments: 0,
            ended: false,
        }
    }

    /// Segments written so far.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Bytes of the packets written so far, each with headers of its own.
    pub fn wire_len(&self) -> usize {
        self.len + self.segments.saturating_sub(1) * self.header_len
    }

    /// Whether a segment with these lengths may follow: there is room, and all segments but a shorter last
    /// one are equally long.
    pub fn fits(&self, ext_len: usize, payload_len: usize) -> bool {
        let segment_len = segment_len(ext_len, payload_len);
        let room = self.buf.len().saturating_sub(self.len);
        let limit = match self.segments {
            0 => MAX_UDP_PAYLOAD,
            _ if self.ended => 0,
            _ => self.segment_len,
        };
        segment_len <= room && segment_len <= limit
    }

    /// Appends a segment. `fill` gets exactly `payload_len` bytes with undefined contents; `bth.pad_count`
    /// is ignored and computed.
    ///
    /// # Errors
    /// That of `fill`; the unit is then as it was.
    ///
    /// # Panics
    /// Where the segment does not fit ([`UnitWriter::fits`]) or `ext` is not what `bth.opcode`
    /// announces.
    pub fn push<E>(
        &mut self,
        bth: &Bth,
        ext: &Ext,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(ext.matches(bth.opcode), "{ext:?} does not follow {:?}", bth.opcode);
        assert!(self.fits(ext.len(), payload_len), "the segment does not fit");
        let segment_len = segment_len(ext.len(), payload_len);
        let (headers, rest) = self.buf.split_at_mut(self.len);
        let (transport, _) = rest.split_at_mut(segment_len);
        let pad_count = pad_count(payload_len);

        let header = Bth { pad_count, ..*bth }.emit();
        let after_bth = put(transport, header);
        let (covered_bytes, icrc) = after_bth.split_at_mut(after_bth.len() - ICRC_LEN);
        let (payload, pad) = ext.emit(covered_bytes).split_at_mut(payload_len);
        fill(payload)?;
        pad.fill(0);

        let covered = self.covered.get_or_insert_with(|| {
            let (headers, _) = headers.split_at_mut(self.header_len);
            self.encap.emit(segment_len, headers)
        });
        // Cannot truncate: `fits` keeps a segment below 65536 - 28.
        covered.set_segment(self.encap.ip_id, (UDP_HEADER_LEN + segment_len) as u16);
        put(icrc, covered.icrc(&header, covered_bytes));

        self.encap.ip_id = next_ip_id(&self.encap);
        if self.segments == 0 {
            self.segment_len = segment_len;
        }
        self.ended = segment_len < self.segment_len;
        self.segments += 1;
        self.len += segment_len;
        Ok(())
    }

    /// Ends the unit.
    pub fn finish(self) -> Unit {
        Unit {
            len: if self.segments == 0 { 0 } else { self.len },
            header_len: self.header_len,
            segment_len: self.segment_len,
            segments: self.segments,
        }
    }
}

/// Bytes from BTH to ICRC of a packet with these parts.
pub const fn segment_len(ext_len: usize, payload_len: usize) -> usize {
    Bth::LEN + ext_len + payload_len + pad_count(payload_len) as usize + ICRC_LEN
}

/// Pad bytes that bring a payload to a multiple of four.
const fn pad_count(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// The identification of the segment after that of `encap`. IPv6 has none.
fn next_ip_id(encap: &Encap) -> u16 {
    if encap.src.is_ipv4() { encap.ip_id.wrapping_add(1) } else { encap.ip_id }
}

const ICRC_LEN: usize = 4;

const UDP_HEADER_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psn::Psn;
    use core::convert::Infallible;

    fn encap() -> Encap {
        Encap { ip_id: 0xffff, ..encap::encap(false, None) }
    }

    fn push(writer: &mut UnitWriter<'_>, psn: u32, payload: &[u8]) {
        let bth = Bth::new(Opcode::SendOnly, Qpn::new(7), Psn::new(psn));
        let result = writer.push(&bth, &Ext::None, payload.len(), |out| {
            out.copy_from_slice(payload);
            Ok::<(), Infallible>(())
        });
        assert_eq!(result, Ok(()));
    }

    #[test]
    fn a_unit_ends_with_a_shorter_segment() {
        let mut buf = [0xaa; 200];
        let mut writer = UnitWriter::new(&mut buf, &encap());
        push(&mut writer, 1, &[1; 20]);
        assert!(!writer.fits(0, 21));
        assert!(writer.fits(0, 20));
        push(&mut writer, 2, &[2; 20]);
        push(&mut writer, 3, &[3; 6]);
        assert!(!writer.fits(0, 0));
        let unit = writer.finish();
        let expected =
            Unit { len: 42 + 36 + 36 + 24, header_len: 42, segment_len: 36, segments: 3 };
        assert_eq!(unit, expected);

        let mut packets = parse_unit(&buf[..unit.len], Some(unit.segment_len));
        for (i, len) in [(0u16, 20), (1, 20), (2, 6)] {
            let packet = packets.next().unwrap().unwrap();
            assert_eq!(packet.encap.ip_id, 0xffff_u16.wrapping_add(i));
            assert_eq!(packet.payload, &[i as u8 + 1; 20][..len]);
        }
        assert_eq!(packets.next(), None);
    }

    #[test]
    fn a_failed_fill_changes_nothing() {
        let mut buf = [0; 200];
        let mut writer = UnitWriter::new(&mut buf, &encap());
        push(&mut writer, 1, &[1; 20]);
        let bth = Bth::new(Opcode::SendOnly, Qpn::new(7), Psn::new(2));
        assert_eq!(writer.push(&bth, &Ext::None, 4, |_| Err("fault")), Err("fault"));
        push(&mut writer, 2, &[2; 20]);
        let unit = writer.finish();
        assert_eq!(unit.segments, 2);
        let packets = parse_unit(&buf[..unit.len], Some(unit.segment_len));
        assert!(packets.map(|packet| packet.unwrap().bth.psn.get()).eq([1, 2]));
    }

    #[test]
    fn no_room_no_unit() {
        let mut buf = [0; 62];
        let mut writer = UnitWriter::new(&mut buf, &encap());
        assert!(writer.fits(0, 1), "with three pad bytes that is 62");
        assert!(writer.fits(0, 4));
        assert!(!writer.fits(0, 5));
        push(&mut writer, 0, &[]);
        assert_eq!(UnitWriter::new(&mut [0; 10], &encap()).finish().len, 0);
        assert!(!UnitWriter::new(&mut [0; 10], &encap()).fits(0, 0));
    }
}
