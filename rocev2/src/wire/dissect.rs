//! A lenient view of a frame, for people and their tools: the headers as far as they go, and the
//! verdict of the strict parser.

use super::icrc::IcrcSeed;
use super::mad::{CmMessage, MadHeader, parse_mad};
use super::{Bth, DropReason, Encap, Ext, Hop, ICRC_LEN, Mac, Opcode, Packet, ROCE_PORT};
use crate::ids::Qpn;
use core::net::IpAddr;
use etherparse::{
    IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket,
    LinkSlice, TransportSlice,
};

/// The contents of a frame, valid or not. A header is `None` where the frame ends before it, or where the
/// header before it does not lead to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dissection<'a> {
    /// Layers 2 to 4; `None` without UDP to [`ROCE_PORT`], and in a fragment. Of several tags the outer
    /// one. Checksums and lengths may be wrong.
    pub encap: Option<Encap>,
    /// The Base Transport Header, with its opcode as the byte that it is.
    pub bth: Option<Bth<u8>>,
    /// The version in that header; all packets have 0.
    pub version: Option<u8>,
    /// The extended headers; `None`, too, behind an opcode that is not one of [`Opcode`].
    pub ext: Option<Ext>,
    /// The bytes behind the last header shown, without pad bytes and ICRC where there are any.
    pub payload: &'a [u8],
    /// The ICRC; `None`, too, where IP options or extension headers leave open what it covers.
    pub icrc: Option<Icrc>,
    /// The result of [`Packet::parse`].
    pub verdict: Result<(), DropReason>,
}

/// The invariant CRC of a packet, as its bytes read in network order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Icrc {
    /// The last four bytes of the packet.
    pub stored: u32,
    /// The value that they should have.
    pub computed: u32,
}

/// Dissects any bytes as an Ethernet frame, as far as its headers go. It is for tools that show traffic; a
/// receiver uses [`Packet::parse`], with which this agrees wherever that accepts.
///
/// ```
/// use rocev2::wire::{DropReason, Opcode, dissect};
///
/// // An acknowledge of Linux rdma_rxe. A bit of its PSN was flipped on the way.
/// let mut frame = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\x00\
///     \x45\0\0\x30\x28\xfe\x40\0\x40\x11\xfd\xbc\x0a\0\0\x01\x0a\0\0\x02\
///     \xe5\xdb\x12\xb7\0\x1c\0\0\
///     \x11\0\xff\xff\0\0\0\x11\0\xe7\x6e\xcc\x1f\0\0\x01\x16\xf6\x52\x76";
/// assert_eq!(dissect(&frame).verdict, Ok(()));
/// frame[53] ^= 1;
/// let dissection = dissect(&frame);
/// assert_eq!(dissection.verdict, Err(DropReason::Icrc));
/// assert_eq!(dissection.opcode(), Some(Opcode::Acknowledge));
/// assert_eq!(dissection.bth.unwrap().psn.get(), 0xe7_6ecd);
/// ```
pub fn dissect(frame: &[u8]) -> Dissection<'_> {
    let mut dissection = Dissection {
        encap: None,
        bth: None,
        version: None,
        ext: None,
        payload: &[],
        icrc: None,
        verdict: Packet::parse(frame).map(|_| ()),
    };
    if let Ok(layers) = LaxSlicedPacket::from_ethernet(frame)
        && let Some((encap, seed, payload)) = encapsulation(&layers)
    {
        dissection.encap = Some(encap);
        dissection.read_transport(seed, payload);
    }
    dissection
}

impl Dissection<'_> {
    /// The opcode, where it is one that this crate knows.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::try_from(self.bth?.opcode).ok()
    }

    /// The connection management datagram in a packet for QP 1; `None` in other packets.
    ///
    /// # Errors
    /// As [`parse_mad`].
    pub fn mad(&self) -> Option<Result<(MadHeader, CmMessage), DropReason>> {
        let for_gsi = self.bth.is_some_and(|bth| bth.dest_qpn == Qpn::GSI);
        (for_gsi && matches!(self.ext, Some(Ext::Deth(_)))).then(|| parse_mad(self.payload))
    }
}

impl<'a> Dissection<'a> {
    /// Reads from BTH to ICRC.
    fn read_transport(&mut self, seed: Option<IcrcSeed>, bytes: &'a [u8]) {
        self.payload = bytes;
        let Some((header, rest)) = bytes.split_first_chunk::<{ Bth::LEN }>() else { return };
        let [opcode, flags, ..] = *header;
        let bth = Bth::read(opcode, header);
        (self.bth, self.version, self.payload) = (Some(bth), Some(flags & 0x0f), rest);
        let Some((rest, stored)) = rest.split_last_chunk::<ICRC_LEN>() else { return };
        self.payload = rest;
        self.icrc = seed.map(|seed| Icrc {
            stored: u32::from_be_bytes(*stored),
            computed: u32::from_be_bytes(seed.icrc(&bytes[..bytes.len() - ICRC_LEN])),
        });
        let Some(opcode) = self.opcode() else { return };
        let Ok((ext, body)) = Ext::parse(opcode, rest) else { return };
        self.ext = Some(ext);
        self.payload = &body[..body.len().saturating_sub(bth.pad_count.into())];
    }
}

/// Layers 2 to 4 of a RoCEv2 packet, their part of its ICRC, and the bytes behind them.
fn encapsulation<'a>(layers: &LaxSlicedPacket<'a>) -> Option<(Encap, Option<IcrcSeed>, &'a [u8])> {
    let Some(LinkSlice::Ethernet2(ethernet)) = &layers.link else { return None };
    let Some(TransportSlice::Udp(udp)) = &layers.transport else { return None };
    if udp.destination_port() != ROCE_PORT {
        return None;
    }
    let hop = Hop {
        src_mac: Mac(ethernet.source()),
        dst_mac: Mac(ethernet.destination()),
        vlan: layers.link_exts.iter().find_map(tag),
    };
    let udp_header = udp.slice().first_chunk()?;
    let (encap, seed) = match layers.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => ipv4(hop, &ip.header(), udp_header),
        LaxNetSlice::Ipv6(ip) => ipv6(hop, &ip.header(), udp_header),
        LaxNetSlice::Arp(_) => return None,
    };
    Some((Encap { src_port: udp.source_port(), ..encap }, seed, udp.payload()))
}

fn tag(header: &LaxLinkExtSlice<'_>) -> Option<u16> {
    let LaxLinkExtSlice::Vlan(vlan) = header else { return None };
    vlan.slice().first_chunk().map(|tci| u16::from_be_bytes(*tci))
}

fn ipv4(hop: Hop, ip: &Ipv4HeaderSlice<'_>, udp: &[u8; 8]) -> (Encap, Option<IcrcSeed>) {
    let encap = Encap {
        src_mac: hop.src_mac,
        dst_mac: hop.dst_mac,
        vlan: hop.vlan,
        src: IpAddr::V4(ip.source_addr()),
        dst: IpAddr::V4(ip.destination_addr()),
        traffic_class: ip.dcp().value() << 2 | ip.ecn().value(),
        hop_limit: ip.ttl(),
        ip_id: ip.identification(),
        flow_label: 0,
        src_port: 0,
    };
    let plain = ip.protocol() == IpNumber::UDP;
    let header = ip.slice().try_into().ok().filter(|_| plain);
    (encap, header.map(|header| IcrcSeed::v4(header, udp)))
}

fn ipv6(hop: Hop, ip: &Ipv6HeaderSlice<'_>, udp: &[u8; 8]) -> (Encap, Option<IcrcSeed>) {
    let encap = Encap {
        src_mac: hop.src_mac,
        dst_mac: hop.dst_mac,
        vlan: hop.vlan,
        src: IpAddr::V6(ip.source_addr()),
        dst: IpAddr::V6(ip.destination_addr()),
        traffic_class: ip.traffic_class(),
        hop_limit: ip.hop_limit(),
        ip_id: 0,
        flow_label: ip.flow_label().value(),
        src_port: 0,
    };
    let plain = ip.next_header() == IpNumber::UDP;
    let header = ip.slice().try_into().ok().filter(|_| plain);
    (encap, header.map(|header| IcrcSeed::v6(header, udp)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CommId;
    use crate::psn::Psn;
    use crate::wire::encap::encap;
    use crate::wire::mad::{GSI_QKEY, MAD_LEN, Rtu, emit_mad};
    use crate::wire::{Deth, Template, UnitWriter};
    use core::convert::Infallible;
    use proptest::prelude::*;
    use std::vec::Vec;

    const PAYLOAD: &[u8] = b"five!";

    fn frame(v6: bool, vlan: Option<u16>) -> Vec<u8> {
        let bth = Bth::new(Opcode::SendOnlyImm, Qpn::new(7), Psn::new(0x1234));
        frame_of(v6, vlan, &bth, &Ext::Imm(0x5566_7788), PAYLOAD)
    }

    fn frame_of(v6: bool, vlan: Option<u16>, bth: &Bth, ext: &Ext, payload: &[u8]) -> Vec<u8> {
        let mut buf = [0; 400];
        let template = Template::new(&encap(v6, vlan));
        let mut writer = UnitWriter::new(&mut buf, &template, encap(v6, vlan).ip_id);
        let result = writer.push(bth, ext, payload.len(), |out| {
            out.copy_from_slice(payload);
            Ok::<(), Infallible>(())
        });
        assert_eq!(result, Ok(()));
        let len = writer.finish().len;
        buf[..len].to_vec()
    }

    /// The offset of the BTH in an untagged IPv4 frame.
    const BTH: usize = 14 + 20 + 8;

    /// A frame that the strict parser accepts is shown as that parser has it.
    fn check_agreement(frame: &[u8]) {
        let dissection = dissect(frame);
        match Packet::parse(frame) {
            Err(reason) => assert_eq!(dissection.verdict, Err(reason)),
            Ok(packet) => {
                assert_eq!(dissection.verdict, Ok(()));
                assert_eq!(dissection.encap, Some(packet.encap));
                assert_eq!(dissection.opcode(), Some(packet.bth.opcode));
                let byte = packet.bth.opcode as u8;
                assert_eq!(dissection.bth, Some(Bth::read(byte, &packet.bth.emit())));
                assert_eq!(dissection.version, Some(0));
                assert_eq!(dissection.ext, Some(packet.ext));
                assert_eq!(dissection.payload, packet.payload);
                let icrc = dissection.icrc.unwrap();
                assert_eq!(icrc.stored, icrc.computed);
            }
        }
    }

    #[test]
    fn a_good_frame_is_shown_as_it_is_parsed() {
        for (v6, vlan) in [(false, None), (true, None), (false, Some(0x6005)), (true, Some(1))] {
            let frame = frame(v6, vlan);
            assert!(Packet::parse(&frame).is_ok());
            check_agreement(&frame);
        }
    }

    #[test]
    fn a_cut_frame_is_shown_up_to_the_cut() {
        let frame = frame(false, None);
        let shown = |len: usize| {
            let Dissection { encap, bth, ext, icrc, verdict, .. } = dissect(&frame[..len]);
            assert!(verdict.is_err(), "{len}");
            [encap.is_some(), bth.is_some(), icrc.is_some(), ext.is_some()]
        };
        for len in 0..frame.len() {
            let expected = [BTH, BTH + 12, BTH + 16, BTH + 20].map(|from| len >= from);
            assert_eq!(shown(len), expected, "{len}");
        }
    }

    #[test]
    fn wrong_headers_are_shown_all_the_same() {
        let damaged = |at: usize, byte: u8| {
            let mut frame = frame(false, None);
            frame[at] = byte;
            frame
        };
        let version = damaged(BTH + 1, 0x75);
        let dissection = dissect(&version);
        assert_eq!(dissection.verdict, Err(DropReason::TransportVersion));
        assert_eq!((dissection.version, dissection.payload), (Some(5), PAYLOAD));

        let opcode = damaged(BTH, 0x24);
        let dissection = dissect(&opcode);
        assert_eq!(dissection.verdict, Err(DropReason::UnknownOpcode));
        assert_eq!((dissection.opcode(), dissection.ext), (None, None));
        let bth = dissection.bth.unwrap();
        assert_eq!((bth.opcode, bth.psn.get(), bth.dest_qpn.get()), (0x24, 0x1234, 7));
        assert_eq!(dissection.payload.len(), 4 + 8, "the extended header and the pad bytes too");

        let checksum = damaged(14 + 10, 0);
        let dissection = dissect(&checksum);
        assert_eq!(dissection.verdict, Err(DropReason::IpHeader));
        assert_eq!(dissection.payload, PAYLOAD);
        let icrc = dissection.icrc.unwrap();
        assert_eq!(icrc.stored, icrc.computed, "which leaves out the checksum");

        let data = damaged(BTH + 16, b'F');
        let dissection = dissect(&data);
        assert_eq!(
            (dissection.verdict, dissection.payload),
            (Err(DropReason::Icrc), &b"Five!"[..])
        );
        let icrc = dissection.icrc.unwrap();
        assert_ne!(icrc.stored, icrc.computed);
    }

    #[test]
    fn a_datagram_of_connection_management_is_shown() {
        let rtu = CmMessage::Rtu(Rtu {
            local_comm_id: CommId::new(3),
            remote_comm_id: CommId::new(5),
            private_data: [7; 224],
        });
        let header = MadHeader { transaction_id: 9, ..MadHeader::default() };
        let mut mad = [0; MAD_LEN];
        emit_mad(&header, &rtu, &mut mad);
        let to = |qpn| {
            let bth = Bth::new(Opcode::UdSendOnly, qpn, Psn::new(1));
            let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI });
            frame_of(false, None, &bth, &ext, &mad)
        };
        let shown = to(Qpn::GSI);
        assert_eq!(dissect(&shown).mad(), Some(Ok((header, rtu))));
        assert!(dissect(&to(Qpn::new(7))).mad().is_none(), "a datagram for another QP is none");
    }

    #[test]
    fn a_frame_that_is_not_roce_has_a_verdict_and_no_headers() {
        let mut frame = frame(false, None);
        frame[14 + 20 + 2] = 0;
        let dissection = dissect(&frame);
        assert_eq!(dissection.verdict, Err(DropReason::NotRoce));
        assert_eq!((dissection.encap, dissection.bth, dissection.payload), (None, None, &[][..]));
        assert_eq!(dissect(&[]).verdict, Err(DropReason::Truncated));
    }

    proptest! {
        /// Any bytes have a verdict, the strict parser's.
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            check_agreement(&bytes);
        }

        /// So have frames that were good once; here headers are reached.
        #[test]
        fn damaged_frames_are_taken(
            v6: bool,
            vlan in proptest::option::of(any::<u16>()),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut frame = frame(v6, vlan);
            for (at, byte) in damage {
                *at.get_mut(&mut frame) = byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len()));
            }
            check_agreement(&frame);
        }
    }
}
