//! The bytes of RoCEv2: whole packets, the headers in them, and connection management datagrams.
//!
//! This module knows no connection, clock or memory. A frame becomes a [`Packet`] of typed values or a
//! [`DropReason`], and is never checked again; [`UnitWriter`] is the way back. The engines judge lengths
//! that depend on a path MTU or on a message's progress.

pub mod ack_list;
mod aeth;
mod bth;
mod common;
mod dissect;
mod drop_reason;
mod encap;
mod ext;
mod flow;
pub mod gap_report;
mod host;
mod icrc;
mod ids;
mod ip_cm;
pub mod mad;
mod mad_head;
mod opcode;
pub(crate) mod origin;
mod peek;
mod pmtu;
mod run;
mod segments;
mod steer;
mod template;

pub use aeth::{Aeth, NakCode, RnrTimer, Syndrome};
pub use bth::Bth;
pub(crate) use common::{Common, CommonExt, CommonHeaders, CommonOp, CommonRun, Frame, Inbound};
pub use dissect::{Dissection, Icrc, dissect};
pub use drop_reason::DropReason;
#[cfg(test)]
pub(crate) use encap::encap as example_encap;
pub(crate) use encap::is_marked;
pub use encap::{Encap, GSI_SOURCE_PORT, Hop, Mac, ROCE_PORT, source_port};
pub use ext::{AtomicEth, Deth, Ext, Feth, Reth};
pub(crate) use flow::{Flow, destination_of};
pub use host::is_host;
pub(crate) use ids::Ids;
pub(crate) use mad_head::{About, MadHead};
pub use opcode::{Opcode, Operation, Place};
pub use origin::Origin;
pub use peek::{Addressee, PEEK_LEN, addressee, roce_destination};
pub use pmtu::Pmtu;
pub use run::Frames;
pub(crate) use run::{DividedUnit, OneFrame, Payload, RunLimit, UnitRun, write_single};
pub use segments::{Segments, parse_unit};
pub use steer::{CORE_BYTE, bth_of, core_of, is_for_several};
pub use template::Template;

use crate::ids::Qpn;
use encap::{Decapsulated, MAX_UDP_PAYLOAD};
use ext::put;
use icrc::IcrcCheck;

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
        let Decapsulated { encap, seed, payload, .. } = Decapsulated::parse(frame, None)?;
        Self::parse_transport(encap, IcrcCheck::Seen(seed), payload, true)
    }

    /// Bytes on the wire from the Ethernet header to the ICRC, as if the packet had headers of its own.
    pub fn wire_len(&self) -> usize {
        self.encap.header_len() + segment_len(self.ext.len(), self.payload.len())
    }

    /// Parses the bytes between the UDP header and the end of the packet. Cheap checks come first; all failures are silent, so their order cannot be seen from outside.
    fn parse_transport(
        encap: Encap,
        check: IcrcCheck,
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
        let ip_id = encap.ip_id ^ check.judge(covered_bytes, *icrc).ok_or(DropReason::Icrc)?;
        Ok(Self { encap: Encap { ip_id, ..encap }, bth, ext, payload })
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
/// use rocev2::wire::{Bth, Encap, Ext, Mac, Opcode, Packet, Template, UnitWriter};
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
/// let template = Template::new(&encap);
/// let mut writer = UnitWriter::new(&mut buf, &template, 7);
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
    template: &'b Template,
    /// The identification of the next segment.
    ip_id: u16,
    written: Written,
}

/// The part of a unit that was written.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
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
    /// Starts an empty unit at the front of `buf`, whose first segment has this IPv4 identification.
    pub fn new(buf: &'b mut [u8], template: &'b Template, ip_id: u16) -> Self {
        Self { buf, template, ip_id, written: Written::nothing(template) }
    }

    /// Segments written so far.
    pub fn segments(&self) -> usize {
        self.written.segments
    }

    /// Bytes of the packets written so far, each with headers of its own.
    pub fn wire_len(&self) -> usize {
        let Written { len, segments, .. } = self.written;
        len + segments.saturating_sub(1) * self.template.header_len()
    }

    /// Whether a segment with these lengths may follow: there is room, and all segments but a shorter last
    /// one are equally long.
    #[inline]
    pub fn fits(&self, ext_len: usize, payload_len: usize) -> bool {
        let segment_len = segment_len(ext_len, payload_len);
        let room = self.buf.len().saturating_sub(self.written.len);
        let limit = match self.written.segments {
            0 => MAX_UDP_PAYLOAD,
            _ if self.written.ended => 0,
            _ => self.written.segment_len,
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
        self.push_behind(segment_len(ext.len(), payload_len), |out| {
            let pad_count = pad_count(payload_len);
            let rest = ext.emit(put(out, Bth { pad_count, ..*bth }.emit()));
            let (payload, pad) = rest.split_at_mut(payload_len);
            pad.fill(0);
            fill(payload)
        })
    }

    /// Appends a segment that is a common packet, as [`Self::push`] would. `None` where it does not fit, or
    /// its payload fails; the unit is then as it was.
    #[inline]
    pub(crate) fn push_common(
        &mut self,
        headers: &CommonHeaders,
        payload_len: usize,
        payload: impl Payload,
    ) -> Option<()> {
        let ext_len = headers.ext.len();
        if !self.fits(ext_len, payload_len) {
            return None;
        }
        let write = |out: &mut [u8]| headers.write(out, payload_len, payload).ok_or(());
        self.push_behind(segment_len(ext_len, payload_len), write).ok()
    }

    /// Appends a segment that fits, of which `write` writes all but the ICRC.
    #[inline]
    fn push_behind<E>(
        &mut self,
        segment_len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let written = &mut self.written;
        let (headers, rest) = self.buf.split_at_mut(written.len);
        let (covered, icrc) = rest[..segment_len].split_at_mut(segment_len - ICRC_LEN);
        write(covered)?;

        let patch = self.template.patch(udp_len(segment_len));
        put(icrc, patch.icrc(self.ip_id, covered));
        if written.segments == 0 {
            self.template.emit(&patch, self.ip_id, headers);
            written.segment_len = segment_len;
        }

        self.ip_id = self.ip_id.wrapping_add(self.template.has_ids().into());
        written.ended = segment_len < written.segment_len;
        written.segments += 1;
        written.len += segment_len;
        Ok(())
    }

    /// Ends the unit.
    pub fn finish(self) -> Unit {
        self.written.unit(self.template)
    }
}

impl Written {
    /// An empty unit.
    const fn nothing(template: &Template) -> Self {
        Self { len: template.header_len(), segment_len: 0, segments: 0, ended: false }
    }

    const fn unit(&self, template: &Template) -> Unit {
        let &Self { len, segment_len, segments, .. } = self;
        let len = if segments == 0 { 0 } else { len };
        Unit { len, header_len: template.header_len(), segment_len, segments }
    }
}

/// The length in a UDP header before a segment that fits a unit, which keeps it below 65536 - 28.
const fn udp_len(segment_len: usize) -> u16 {
    (UDP_HEADER_LEN + segment_len) as u16
}

/// Bytes from BTH to ICRC of a packet with these parts.
pub const fn segment_len(ext_len: usize, payload_len: usize) -> usize {
    Bth::LEN + ext_len + ((payload_len + 3) & !3) + ICRC_LEN
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
    use std::vec;

    /// The headers of a unit whose first identification is 0xffff.
    fn template() -> Template {
        Template::new(&encap::encap(false, None))
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
        let template = template();
        let mut writer = UnitWriter::new(&mut buf, &template, 0xffff);
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

    /// Goal: packets are read whose identifications were not seen. Method: others are written into their headers.
    #[test]
    fn an_identification_that_was_not_seen_is_inferred() {
        let mut buf = [0; 200];
        let template = Template::new(&encap::encap(false, None));
        let mut writer = UnitWriter::new(&mut buf, &template, 0);
        [1, 2, 3].iter().for_each(|psn| push(&mut writer, *psn, &[7; 20]));
        let Unit { len, segment_len, header_len, .. } = writer.finish();
        let ids = |frame: &[u8], segment_len| {
            let mut packets = parse_unit(frame, segment_len);
            packets.infer_ids();
            packets.map(|packet| packet.map(|packet| packet.encap.ip_id)).collect::<vec::Vec<_>>()
        };
        let seen = parse_unit(&buf[..len], Some(segment_len));
        assert!(seen.map(|packet| packet.unwrap().encap.ip_id).eq([0, 1, 2]));

        buf[18..20].copy_from_slice(&[9, 9]);
        let sum = u16::from_be_bytes([buf[24], buf[25]]) - 0x0909;
        buf[24..26].copy_from_slice(&sum.to_be_bytes());
        let unit = &mut buf[..len];
        let seen = parse_unit(unit, Some(segment_len));
        assert!(seen.map(|packet| packet.err()).eq([Some(DropReason::Icrc); 3]));
        assert_eq!(ids(unit, Some(segment_len)), [Ok(0), Ok(1), Ok(2)]);
        // The last one alone.
        let last = [&unit[..header_len], &unit[len - segment_len..]].concat();
        assert_eq!(ids(&last, None), [Ok(2)]);
        // One that is damaged is none, and the next is found all the same.
        unit[header_len + 20] ^= 1;
        assert_eq!(ids(unit, Some(segment_len)), [Err(DropReason::Icrc), Ok(1), Ok(2)]);
    }

    #[test]
    fn a_failed_fill_changes_nothing() {
        let mut buf = [0; 200];
        let template = template();
        let mut writer = UnitWriter::new(&mut buf, &template, 0xffff);
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
        let template = template();
        let mut writer = UnitWriter::new(&mut buf, &template, 0xffff);
        assert!(writer.fits(0, 1), "with three pad bytes that is 62");
        assert!(writer.fits(0, 4));
        assert!(!writer.fits(0, 5));
        push(&mut writer, 0, &[]);
        assert_eq!(UnitWriter::new(&mut [0; 10], &template, 0).finish().len, 0);
        assert!(!UnitWriter::new(&mut [0; 10], &template, 0).fits(0, 0));
    }

    fn parse_known<'a>(flow: &mut Flow, frame: &'a [u8]) -> Option<Packet<'a>> {
        flow.check(frame)?.packet(false)
    }

    /// A flow gives the packets that the general way gives, and no others.
    #[test]
    fn a_flow_is_a_short_way_and_no_other() {
        let frame = |encap: &Encap, bth: &Bth, payload: &[u8], padding: usize| {
            let mut buf = vec![0; 300];
            let template = Template::new(encap);
            let mut writer = UnitWriter::new(&mut buf, &template, encap.ip_id);
            let ext = if bth.opcode == Opcode::Cnp { Ext::Cnp } else { Ext::None };
            let Ok(()) = writer.push(bth, &ext, payload.len(), |out| {
                out.copy_from_slice(payload);
                Ok::<(), Infallible>(())
            });
            let len = writer.finish().len;
            buf.truncate(len + padding);
            buf
        };
        let bth = Bth::new(Opcode::SendOnly, Qpn::new(7), Psn::new(2));
        let tags = [
            (false, None, true),
            (true, None, true),
            (false, Some(5), true),
            (true, Some(5), false),
        ];
        for (v6, vlan, has_flow) in tags {
            let encap = encap::encap(v6, vlan);
            let first = frame(&encap, &bth, &[1; 9], 0);
            let flow = Flow::of(&first, &Packet::parse(&first).unwrap());
            assert_eq!(flow.is_some(), has_flow);
            let Some(mut flow) = flow else { continue };
            assert_eq!(destination_of(&first), Some(bth.dest_qpn));

            let class = Encap { traffic_class: 0x6b, ..encap };
            let id = Encap { ip_id: if v6 { 0 } else { 7 }, ..encap };
            let others = [class, id].map(|encap| frame(&encap, &bth, &[2; 40], 0));
            let short = frame(&encap, &bth, &[], 6);
            for frame in others.iter().chain([&first, &short]) {
                assert_eq!(parse_known(&mut flow, frame), Packet::parse(frame).ok());
                assert!(parse_known(&mut flow, frame).is_some());
            }
            // One bit of each byte, and all lengths that are too short.
            for at in 0..first.len() {
                for bit in [1, 0x80] {
                    let mut damaged = first.clone();
                    damaged[at] ^= bit;
                    let packet = parse_known(&mut flow, &damaged);
                    assert!(packet.is_none() || packet == Packet::parse(&damaged).ok(), "{at}");
                }
                assert_eq!(parse_known(&mut flow, &first[..at]), None);
            }
            for moved in [
                Encap { src_port: 0xc001, ..encap },
                Encap { hop_limit: 9, ..encap },
                Encap { src_mac: Mac([8; 6]), ..encap },
                Encap { src: encap.dst, dst: encap.src, ..encap },
            ] {
                assert_eq!(parse_known(&mut flow, &frame(&moved, &bth, &[1; 9], 0)), None);
            }
        }
    }

    /// A frame with a UDP checksum is sound, and takes the general way.
    #[test]
    fn odd_headers_have_no_flow() {
        let mut buf = [0; 100];
        let template = template();
        let mut writer = UnitWriter::new(&mut buf, &template, 0xffff);
        push(&mut writer, 1, &[1; 20]);
        let len = writer.finish().len;
        let frame = &mut buf[..len];
        assert!(Flow::of(frame, &Packet::parse(frame).unwrap()).is_some());
        // The length of the IP packet counts four bytes of padding.
        let mut padded = [&frame[..], &[0; 4]].concat();
        padded[17] += 4;
        let sum = u16::from_be_bytes([padded[24], padded[25]]) - 4;
        padded[24..26].copy_from_slice(&sum.to_be_bytes());
        let bytes = [vec![0xff; 8], padded[14..len - 4].to_vec()].concat();
        let mut covered = bytes;
        [1, 8, 10, 11, 26, 27, 32].iter().for_each(|at| covered[8 + at] = 0xff);
        padded[len - 4..len].copy_from_slice(&crc32fast::hash(&covered).to_le_bytes());
        assert_eq!(Flow::of(&padded, &Packet::parse(&padded).unwrap()).map(drop), None);
    }
}
