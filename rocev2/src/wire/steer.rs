//! The core that a frame is for, where a device has several: the destination QPN in its BTH names it ([`Qpn::core`]).
//!
//! Every home steers by this one function, or has its NIC or kernel compute the same. It finds the core and checks nothing
//! else: [`Packet::parse`](super::Packet::parse) does.

use super::ROCE_PORT;
use super::peek::{UDP, ether_type, is_roce};
use crate::ids::Qpn;

/// The byte of a packet behind its UDP header whose upper bits name its core: the first of the destination QPN in the BTH
/// (IBTA ch. 9, BTH), for a NIC or a kernel that steers.
pub const CORE_BYTE: usize = QPN_WORD + 1;

/// The byte of a BTH from which on a word has its destination QPN.
const QPN_WORD: usize = 4;

/// The core of a device with `cores` of them that a frame is for: that of its destination QPN, if it is a RoCEv2 packet and has
/// such a core, else core 0, which has QP 1 and the rest of the traffic. The first [`PEEK_LEN`](super::PEEK_LEN) bytes suffice.
///
/// Where it is a unit of several packets, this is the core of the first ([`is_for_several`]).
#[inline]
pub fn core_of(frame: &[u8], cores: usize) -> usize {
    match usual_qpn(frame) {
        Some(qpn) => core_named(qpn, cores),
        None => unusual_core_of(frame, cores),
    }
}

#[cold]
fn unusual_core_of(frame: &[u8], cores: usize) -> usize {
    bth_of(frame).map_or(0, |bth| core_at(frame, bth, cores))
}

/// The destination QPN of most packets, which have no VLAN tag; this runs for each, where there are several cores. `None`: it is
/// another frame, or the long way tells.
#[inline(always)]
fn usual_qpn(frame: &[u8]) -> Option<Qpn> {
    const V4: usize = 14 + 20;
    const V6: usize = 14 + 40;
    const UDP_LEN: usize = 8;
    // One length for all that is read of it.
    let v4 = frame.first_chunk::<{ V4 + 16 }>()?;
    if half(v4, 12) == 0x0800 {
        let usual = v4[14] == 0x45
            && half(v4, 20) & 0x3fff == 0
            && v4[23] == UDP
            && half(v4, V4 + 2) == ROCE_PORT;
        return if usual { qpn(&v4[V4 + UDP_LEN + QPN_WORD..]) } else { None };
    }
    let v6 = frame.first_chunk::<{ V6 + 16 }>()?;
    let usual = half(v6, 12) == 0x86dd
        && v6[14] >> 4 == 6
        && v6[20] == UDP
        && half(v6, V6 + 2) == ROCE_PORT;
    if usual { qpn(&v6[V6 + UDP_LEN + QPN_WORD..]) } else { None }
}

#[inline(always)]
fn half<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The queue pair that this word of a BTH names.
#[inline(always)]
fn qpn(word: &[u8]) -> Option<Qpn> {
    word.first_chunk().map(|word| Qpn::new(u32::from_be_bytes(*word)))
}

/// Whether a received unit of segments of `segment_len` bytes ([`super::parse_unit`]) has packets for several of `cores`: a NIC or
/// kernel coalesces by addresses and ports, which queue pairs may share.
pub fn is_for_several(frame: &[u8], segment_len: Option<usize>, cores: usize) -> bool {
    let Some(segment_len) = segment_len.filter(|len| *len > 0 && cores > 1) else { return false };
    let Some(bth) = bth_of(frame) else { return false };
    let mut segments = (bth..frame.len()).step_by(segment_len);
    let first = segments.next().map(|at| core_at(frame, at, cores));
    segments.any(|at| Some(core_at(frame, at, cores)) != first)
}

/// The core that a BTH names. `at` is where it begins.
fn core_at(frame: &[u8], at: usize, cores: usize) -> usize {
    let qpn = frame.get(at + QPN_WORD..).and_then(qpn);
    qpn.map_or(0, |qpn| core_named(qpn, cores))
}

/// The core that a QPN names.
#[inline(always)]
fn core_named(qpn: Qpn, cores: usize) -> usize {
    let core = qpn.core(cores);
    if core < cores { core } else { 0 }
}

/// Where the BTH of a RoCEv2 packet begins. `None` for all others, and for those that a receiver drops: fragments, and packets
/// with IP options or extension headers.
pub fn bth_of(frame: &[u8]) -> Option<usize> {
    let (ether_type, ip) = ether_type(frame.get(12..)?)?;
    let udp = match (ether_type, ip) {
        (0x0800, [0x45, _, _, _, _, _, f0, f1, _, 17, ..]) if [f0 & 0x3f, *f1] == [0, 0] => 20,
        (0x86dd, [v0, _, _, _, _, _, 17, ..]) if v0 >> 4 == 6 => 40,
        _ => return None,
    };
    is_roce(ip.get(udp..)?).then_some(frame.len() - ip.len() + udp + 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psn::Psn;
    use crate::wire::{
        Bth, Ext, Opcode, PEEK_LEN, Template, UnitWriter, example_encap, parse_unit,
    };
    use core::convert::Infallible;
    use std::vec;
    use std::vec::Vec;

    /// A unit of packets for these queue pairs, with 20 bytes each, and the length of a segment.
    fn unit(v6: bool, vlan: Option<u16>, qpns: &[u32]) -> (Vec<u8>, usize) {
        let (mut buf, template) = (vec![0; 600], Template::new(&example_encap(v6, vlan)));
        let mut unit = UnitWriter::new(&mut buf, &template, 7);
        for qpn in qpns {
            let bth = Bth::new(Opcode::SendOnly, Qpn::new(*qpn), Psn::new(1));
            let Ok(()) = unit.push(&bth, &Ext::None, 20, |out| {
                out.fill(0xff);
                Ok::<(), Infallible>(())
            });
        }
        let unit = unit.finish();
        buf.truncate(unit.len);
        (buf, unit.segment_len)
    }

    const FAMILIES: [(bool, Option<u16>); 4] =
        [(false, None), (false, Some(5)), (true, None), (true, Some(5))];

    #[test]
    fn a_packet_is_for_the_core_of_its_qpn() {
        for (v6, vlan) in FAMILIES {
            for (qpn, of_2, of_3, of_64) in [
                (1, 0, 0, 0),
                (0x7f_ffff, 0, 1, 31),
                (0x80_0000, 1, 2, 32),
                (0xbf_fff2, 1, 2, 47),
                (0xc0_0002, 1, 0, 48),
                (0xff_fffe, 1, 0, 63),
            ] {
                let (frame, _) = unit(v6, vlan, &[qpn]);
                let parsed = parse_unit(&frame, None).next().unwrap().unwrap();
                assert_eq!(parsed.bth.dest_qpn.get(), qpn);
                let cores = [1, 2, 3, 64].map(|cores| core_of(&frame, cores));
                assert_eq!(cores, [0, of_2, of_3, of_64], "{qpn:#x} {v6} {vlan:?}");
                assert_eq!(core_of(&frame[..PEEK_LEN.min(frame.len())], 64), of_64);
            }
        }
    }

    #[test]
    fn all_else_is_for_the_first_core() {
        let v4 = unit(false, None, &[0xff_ff00]).0;
        let v6 = unit(true, None, &[0xff_ff00]).0;
        for (frame, last) in [(&v4, 14 + 20 + 8 + 7), (&v6, 14 + 40 + 8 + 7)] {
            assert_eq!(core_of(frame, 64), 63);
            for len in 0..=last {
                assert_eq!(core_of(&frame[..len], 64), 0, "cut to {len}");
            }
            assert_eq!(core_of(&frame[..=last], 64), 63);
        }
        let others: [(&Vec<u8>, usize, u8); 10] = [
            (&v4, 13, 6),    // ARP
            (&v4, 12, 0x81), // no IP behind a tag
            (&v4, 14, 0x46), // options
            (&v4, 14, 0x65), // version
            (&v4, 20, 0x20), // more fragments
            (&v4, 21, 1),    // a later fragment
            (&v4, 23, 6),    // TCP
            (&v4, 37, 0xb6), // another port
            (&v6, 20, 44),   // a header between
            (&v6, 14, 0x45), // version
        ];
        for (frame, at, value) in others {
            let mut frame = frame.clone();
            frame[at] = value;
            assert_eq!(core_of(&frame, 64), 0, "byte {at}");
        }
        let mut tagged_twice = unit(false, Some(5), &[0xff_ff00]).0;
        tagged_twice.splice(12..12, [0x81, 0, 0, 6]);
        assert_eq!(core_of(&tagged_twice, 64), 0);
    }

    #[test]
    fn a_unit_may_be_for_several_cores() {
        for (v6, vlan) in FAMILIES {
            let several = |qpns: &[u32], cores| {
                let (frame, segment_len) = unit(v6, vlan, qpns);
                let result = is_for_several(&frame, Some(segment_len), cores);
                assert!(!is_for_several(&frame, None, cores), "one plain frame");
                assert!(!is_for_several(&frame, Some(0), cores), "no segments");
                assert!(!is_for_several(&frame, Some(frame.len()), cores), "one segment");
                result
            };
            for cores in [1, 2, 3, 64] {
                assert!(!several(&[0x80_0007; 4], cores));
                assert!(!several(&[0x80_0007, 0x80_0008, 0x80_0009], cores));
                assert_eq!(several(&[0x80_0007, 0x80_0007, 0x40_0007], cores), cores > 1);
                assert_eq!(several(&[2, 0x80_0007], cores), cores > 1);
            }
            assert!(!several(&[0x80_0007, 0xf0_0007], 2));
            assert!(several(&[0x80_0007, 0xf0_0007], 3), "no core has the second");
        }
        let mut other = unit(false, None, &[2, 0x80_0007]).0;
        other[37] = 0xb6;
        assert!(!is_for_several(&other, Some(36), 2), "no RoCE");
    }
}
