//! The encapsulation of a RoCEv2 packet: Ethernet, one VLAN tag, IPv4 or IPv6, UDP port 4791.

use super::DropReason;
use super::host::check_hosts;
use super::icrc::{IcrcSeed, Varying};
use crate::ids::Qpn;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use etherparse::checksum::Sum16BitWords;
use etherparse::{
    EtherType, Ethernet2Header, Ethernet2HeaderSlice, IpDscp, IpEcn, IpNumber, Ipv4Header,
    Ipv4HeaderSlice, Ipv6FlowLabel, Ipv6Header, Ipv6HeaderSlice, SingleVlanHeader,
    SingleVlanHeaderSlice, UdpHeader, UdpHeaderSlice, err,
};

/// The UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// The UDP source port of QP 1, the same that Linux uses.
pub const GSI_SOURCE_PORT: u16 = 0xd872;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Mac(pub [u8; 6]);

/// Layer 2 towards the peer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Hop {
    /// Our port.
    pub src_mac: Mac,
    /// The peer or the router before it.
    pub dst_mac: Mac,
    /// Tag control information, where the link is tagged.
    pub vlan: Option<u16>,
}

/// Layers 2 to 4 of a packet: all variable fields of the encapsulation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Encap {
    /// Ethernet source.
    pub src_mac: Mac,
    /// Ethernet destination.
    pub dst_mac: Mac,
    /// The tag control information of an 802.1Q tag: priority, drop eligibility, VLAN ID.
    pub vlan: Option<u16>,
    /// IP source.
    pub src: IpAddr,
    /// IP destination, of the same family as `src`.
    pub dst: IpAddr,
    /// IPv4 TOS or IPv6 traffic class: DSCP and ECN bits.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv4 identification; 0 on IPv6.
    pub ip_id: u16,
    /// IPv6 flow label, 20 bits; 0 on IPv4.
    pub flow_label: u32,
    /// UDP source port.
    pub src_port: u16,
}

/// Whether a switch has marked a packet of this traffic class: ECN's "congestion experienced" (RFC 3168).
pub(crate) const fn is_marked(traffic_class: u8) -> bool {
    const CE: u8 = 0b11;
    traffic_class & CE == CE
}

/// The UDP source port of a connection's packets (Linux `rdma_get_udp_sport`). Both ends know the
/// label of the primary path, so both directions use the same port.
///
/// A `flow_label` of 0 stands for none: the port then comes from the QP numbers.
pub fn source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    let label = match flow_label & FLOW_LABEL_MASK {
        0 => {
            let product = u64::from(local.get()) * u64::from(remote.get());
            let folded = product ^ (product >> 20);
            ((folded ^ (folded >> 40)) & u64::from(FLOW_LABEL_MASK)) as u32
        }
        label => label,
    };
    ((label & 0x3fff) ^ (label >> 14)) as u16 | 0xc000
}

impl Encap {
    /// Sets layer 2.
    pub const fn set_hop(&mut self, hop: Hop) {
        (self.src_mac, self.dst_mac, self.vlan) = (hop.src_mac, hop.dst_mac, hop.vlan);
    }

    /// The encapsulation of a reply: addresses swapped, the rest as it came.
    #[must_use]
    pub const fn reply(&self) -> Self {
        Self { src_mac: self.dst_mac, dst_mac: self.src_mac, src: self.dst, dst: self.src, ..*self }
    }

    /// Bytes from the Ethernet to the UDP header.
    pub const fn header_len(&self) -> usize {
        let l2 = Ethernet2Header::LEN + if self.vlan.is_some() { SingleVlanHeader::LEN } else { 0 };
        let l3 = if self.src.is_ipv4() { Ipv4Header::MIN_LEN } else { Ipv6Header::LEN };
        l2 + l3 + UdpHeader::LEN
    }

    /// Writes the headers of one packet with `udp_len` bytes from UDP header to ICRC, and returns their part
    /// of the ICRC.
    ///
    /// # Panics
    /// Where `out` is not [`Encap::header_len`] bytes, or the addresses differ in family.
    pub(super) fn emit(&self, udp_len: u16, out: &mut [u8]) -> IcrcSeed {
        let udp = UdpHeader {
            source_port: self.src_port,
            destination_port: ROCE_PORT,
            length: udp_len,
            // None: the ICRC protects more (annex A17).
            checksum: 0,
        }
        .to_bytes();
        let rest = self.emit_l2(out);
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let ip = self.ipv4(src, dst, udp_len);
                super::ext::put(super::ext::put(rest, ip), udp);
                IcrcSeed::v4(&ip, &udp)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let ip = self.ipv6(src, dst, udp_len);
                super::ext::put(super::ext::put(rest, ip), udp);
                IcrcSeed::v6(&ip, &udp)
            }
            (src, dst) => panic!("no packet goes from {src} to {dst}"),
        }
    }

    fn emit_l2<'b>(&self, out: &'b mut [u8]) -> &'b mut [u8] {
        let l3 = if self.src.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ether_type = if self.vlan.is_some() { EtherType::VLAN_TAGGED_FRAME } else { l3 };
        let ethernet =
            Ethernet2Header { source: self.src_mac.0, destination: self.dst_mac.0, ether_type };
        let rest = super::ext::put(out, ethernet.to_bytes());
        match self.vlan {
            Some(tci) => {
                super::ext::put(super::ext::put(rest, tci.to_be_bytes()), l3.0.to_be_bytes())
            }
            None => rest,
        }
    }

    fn ipv4(&self, src: Ipv4Addr, dst: Ipv4Addr, udp_len: u16) -> [u8; Ipv4Header::MIN_LEN] {
        let mut header = Ipv4Header {
            dscp: IpDscp::try_new(self.traffic_class >> 2).unwrap_or_default(),
            ecn: IpEcn::try_new(self.traffic_class & 0x03).unwrap_or_default(),
            total_len: udp_len + Ipv4Header::MIN_LEN as u16,
            identification: self.ip_id,
            dont_fragment: true,
            time_to_live: self.hop_limit,
            protocol: IpNumber::UDP,
            source: src.octets(),
            destination: dst.octets(),
            ..Ipv4Header::default()
        };
        header.header_checksum = header.calc_header_checksum();
        *header.to_bytes().first_chunk().expect("an IPv4 header has 20 bytes or more")
    }

    fn ipv6(&self, src: Ipv6Addr, dst: Ipv6Addr, udp_len: u16) -> [u8; Ipv6Header::LEN] {
        Ipv6Header {
            traffic_class: self.traffic_class,
            flow_label: Ipv6FlowLabel::try_new(self.flow_label & FLOW_LABEL_MASK)
                .unwrap_or_default(),
            payload_length: udp_len,
            next_header: IpNumber::UDP,
            hop_limit: self.hop_limit,
            source: src.octets(),
            destination: dst.octets(),
        }
        .to_bytes()
    }
}

/// A frame taken apart down to its UDP payload, which is one segment or, in a received unit,
/// several of `segment_len` bytes.
#[derive(Clone, Debug)]
pub(super) struct Decapsulated<'a> {
    /// Layers 2 to 4 of the first segment.
    pub(super) encap: Encap,
    /// The part of the ICRC of the headers as they came, with these lengths and identification.
    pub(super) seed: IcrcSeed,
    pub(super) seeded: Varying,
    /// BTH to ICRC, once or several times.
    pub(super) payload: &'a [u8],
}

impl<'a> Decapsulated<'a> {
    /// Checks layers 2 to 4. `segment_len` as for [`super::parse_unit`].
    pub(super) fn parse(frame: &'a [u8], segment_len: Option<usize>) -> Result<Self, DropReason> {
        let (ethernet, rest) = split_ethernet(frame)?;
        let (vlan, ether_type, rest) = split_vlan(ethernet.ether_type(), rest)?;
        let ip = match ether_type {
            EtherType::IPV4 => Ip::parse_v4(rest)?,
            EtherType::IPV6 => Ip::parse_v6(rest)?,
            _ => return Err(DropReason::NotRoce),
        };
        let (udp, payload) = split_udp(&ip, segment_len)?;
        let encap = Encap {
            src_mac: Mac(ethernet.source()),
            dst_mac: Mac(ethernet.destination()),
            vlan,
            src: ip.src,
            dst: ip.dst,
            traffic_class: ip.traffic_class,
            hop_limit: ip.hop_limit,
            ip_id: ip.id,
            flow_label: ip.flow_label,
            src_port: udp.source_port(),
        };
        check_hosts(&encap)?;
        Ok(Self {
            encap,
            seed: ip.header.seed_with(&udp)?,
            seeded: Varying { ip_id: ip.id, udp_len: udp.length() },
            payload,
        })
    }
}

/// An IP header of either version.
struct Ip<'a> {
    header: IpHeader<'a>,
    src: IpAddr,
    dst: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    id: u16,
    flow_label: u32,
    /// The payload length of the header.
    payload_len: usize,
    /// The bytes behind the header in the frame, Ethernet padding included.
    rest: &'a [u8],
}

enum IpHeader<'a> {
    V4(&'a [u8; Ipv4Header::MIN_LEN]),
    V6(&'a [u8; Ipv6Header::LEN]),
}

impl IpHeader<'_> {
    fn seed_with(&self, udp: &UdpHeaderSlice<'_>) -> Result<IcrcSeed, DropReason> {
        let udp = udp.slice().first_chunk().ok_or(DropReason::Truncated)?;
        Ok(match self {
            Self::V4(ip) => IcrcSeed::v4(ip, udp),
            Self::V6(ip) => IcrcSeed::v6(ip, udp),
        })
    }
}

impl<'a> Ip<'a> {
    fn parse_v4(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let ip = Ipv4HeaderSlice::from_slice(bytes).map_err(|error| match error {
            err::ipv4::HeaderSliceError::Len(_) => DropReason::Truncated,
            err::ipv4::HeaderSliceError::Content(_) => DropReason::IpHeader,
        })?;
        // This check comes first, so that no counter of ours moves for another protocol's packets.
        if ip.protocol() != IpNumber::UDP {
            return Err(DropReason::NotRoce);
        }
        let (header, rest) =
            bytes.split_first_chunk::<{ Ipv4Header::MIN_LEN }>().ok_or(DropReason::Truncated)?;
        if ip.ihl() != 5 || Sum16BitWords::new().add_slice(header).ones_complement() != 0 {
            return Err(DropReason::IpHeader);
        }
        if ip.is_fragmenting_payload() {
            return Err(DropReason::Fragment);
        }
        let payload_len = usize::from(ip.total_len())
            .checked_sub(Ipv4Header::MIN_LEN)
            .ok_or(DropReason::IpHeader)?;
        let [_, traffic_class, ..] = *header;
        Ok(Self {
            header: IpHeader::V4(header),
            src: IpAddr::V4(ip.source_addr()),
            dst: IpAddr::V4(ip.destination_addr()),
            traffic_class,
            hop_limit: ip.ttl(),
            id: ip.identification(),
            flow_label: 0,
            payload_len,
            rest,
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let ip = Ipv6HeaderSlice::from_slice(bytes).map_err(|error| match error {
            err::ipv6::HeaderSliceError::Len(_) => DropReason::Truncated,
            err::ipv6::HeaderSliceError::Content(_) => DropReason::IpHeader,
        })?;
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::Truncated)?;
        if ip.next_header() != IpNumber::UDP {
            return Err(refuse_ipv6_extension(ip.next_header(), rest));
        }
        Ok(Self {
            header: IpHeader::V6(header),
            src: IpAddr::V6(ip.source_addr()),
            dst: IpAddr::V6(ip.destination_addr()),
            traffic_class: ip.traffic_class(),
            hop_limit: ip.hop_limit(),
            id: 0,
            flow_label: ip.flow_label().value(),
            payload_len: usize::from(ip.payload_length()),
            rest,
        })
    }

    fn udp_checksum(&self, udp: &UdpHeader, payload: &[u8]) -> Option<u16> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                udp.calc_checksum_ipv4_raw(src.octets(), dst.octets(), payload).ok()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                udp.calc_checksum_ipv6_raw(src.octets(), dst.octets(), payload).ok()
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }
}

fn split_ethernet(frame: &[u8]) -> Result<(Ethernet2HeaderSlice<'_>, &[u8]), DropReason> {
    let ethernet = Ethernet2HeaderSlice::from_slice(frame).map_err(|_| DropReason::Truncated)?;
    let rest = frame.get(Ethernet2Header::LEN..).ok_or(DropReason::Truncated)?;
    Ok((ethernet, rest))
}

/// Strips one 802.1Q tag. A second one stays, and is then no IP.
fn split_vlan(
    ether_type: EtherType,
    bytes: &[u8],
) -> Result<(Option<u16>, EtherType, &[u8]), DropReason> {
    if ether_type != EtherType::VLAN_TAGGED_FRAME {
        return Ok((None, ether_type, bytes));
    }
    let tag = SingleVlanHeaderSlice::from_slice(bytes).map_err(|_| DropReason::Truncated)?;
    let (tci, _) = tag.slice().split_first_chunk().ok_or(DropReason::Truncated)?;
    let rest = bytes.get(SingleVlanHeader::LEN..).ok_or(DropReason::Truncated)?;
    Ok((Some(u16::from_be_bytes(*tci)), tag.ether_type(), rest))
}

/// The reason to drop a packet whose IPv6 header is not followed by UDP at once. Extension headers before
/// UDP are ours to count; everything else is other protocols' traffic.
fn refuse_ipv6_extension(next_header: IpNumber, rest: &[u8]) -> DropReason {
    let leads_to_udp = rest.first() == Some(&IpNumber::UDP.0);
    match next_header {
        IpNumber::IPV6_FRAGMENTATION_HEADER if leads_to_udp => DropReason::Fragment,
        IpNumber::IPV6_HEADER_HOP_BY_HOP
        | IpNumber::IPV6_ROUTE_HEADER
        | IpNumber::IPV6_DESTINATION_OPTIONS
            if leads_to_udp =>
        {
            DropReason::IpHeader
        }
        _ => DropReason::NotRoce,
    }
}

/// Splits the UDP header off, and ends its payload where the UDP length says.
fn split_udp<'a>(
    ip: &Ip<'a>,
    segment_len: Option<usize>,
) -> Result<(UdpHeaderSlice<'a>, &'a [u8]), DropReason> {
    let udp = UdpHeaderSlice::from_slice(ip.rest).map_err(|_| DropReason::Truncated)?;
    if udp.destination_port() != ROCE_PORT {
        return Err(DropReason::NotRoce);
    }
    let rest = ip.rest.get(UdpHeader::LEN..).ok_or(DropReason::Truncated)?;
    if let Some(segment_len) = segment_len.filter(|segment_len| *segment_len < rest.len()) {
        return split_udp_unit(ip, udp, rest, segment_len);
    }
    if ip.payload_len > ip.rest.len() {
        return Err(DropReason::Truncated);
    }
    // The packet ends here; the rest of the IP payload or the frame is padding.
    let udp_len = usize::from(udp.length());
    if udp_len < UdpHeader::LEN + MIN_UDP_PAYLOAD || udp_len > ip.payload_len {
        return Err(DropReason::UdpLength);
    }
    let payload = rest.get(..udp_len - UdpHeader::LEN).ok_or(DropReason::UdpLength)?;
    // 0 means that there is none, which RoCEv2 allows on IPv6, too.
    if udp.checksum() != 0 && ip.udp_checksum(&udp.to_header(), payload) != Some(udp.checksum()) {
        return Err(DropReason::UdpChecksum);
    }
    Ok((udp, payload))
}

/// The same for a unit of several segments. Its one set of lengths is that of the first segment where a
/// sender's offload made it, or that of the whole where a receiver's offload did. The offload has checked
/// the UDP checksum, or a sender has only begun it: the ICRC has to suffice.
fn split_udp_unit<'a>(
    ip: &Ip<'a>,
    udp: UdpHeaderSlice<'a>,
    rest: &'a [u8],
    segment_len: usize,
) -> Result<(UdpHeaderSlice<'a>, &'a [u8]), DropReason> {
    let udp_len = usize::from(udp.length());
    let first_or_whole = [segment_len + UdpHeader::LEN, rest.len() + UdpHeader::LEN];
    if ip.payload_len != udp_len || !first_or_whole.contains(&udp_len) {
        return Err(DropReason::UdpLength);
    }
    Ok((udp, rest))
}

/// BTH and ICRC: less is no packet.
const MIN_UDP_PAYLOAD: usize = 16;

/// The most that fits an IPv4 total length; IPv6 would allow 20 bytes more.
pub(super) const MAX_UDP_PAYLOAD: usize = u16::MAX as usize - Ipv4Header::MIN_LEN - UdpHeader::LEN;

const FLOW_LABEL_MASK: u32 = 0xf_ffff;

#[cfg(test)]
pub(crate) use tests::encap;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// QP numbers, and REQ labels with the ports that Linux then used.
    #[test]
    fn source_ports_agree_with_linux() {
        assert_eq!(source_port(0, Qpn::new(0x11), Qpn::new(0x12)), 0xc132);
        let ports = [
            (0x7a5c5, 0xe5db),
            (0x4b2fe, 0xf2ec),
            (0xcf1e1, 0xf1d2),
            (0xaaca1, 0xec8b),
            (0x32854, 0xe858),
            (0xb9828, 0xd806),
            (0x3d1bd, 0xd1b2),
            (0x0ea58, 0xea5b),
        ];
        for (label, port) in ports {
            assert_eq!(source_port(label, Qpn::new(1), Qpn::new(2)), port, "label {label:#x}");
        }
    }

    const PAYLOAD: [u8; 20] = [0x5a; 20];

    /// Of a frame from one host to another.
    pub(crate) fn encap(v6: bool, vlan: Option<u16>) -> Encap {
        let address = |last: u8| match v6 {
            true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
            false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        };
        Encap {
            src_mac: Mac([2, 0, 0, 0, 0, 1]),
            dst_mac: Mac([2, 0, 0, 0, 0, 2]),
            vlan,
            src: address(1),
            dst: address(2),
            traffic_class: 0x6a,
            hop_limit: 63,
            ip_id: if v6 { 0 } else { 0x1234 },
            flow_label: if v6 { 0xa_bcde } else { 0 },
            src_port: 0xc132,
        }
    }

    fn frame(encap: &Encap) -> Vec<u8> {
        let mut frame = [vec![0; encap.header_len()], PAYLOAD.into()].concat();
        encap.emit((UdpHeader::LEN + PAYLOAD.len()) as u16, &mut frame[..encap.header_len()]);
        frame
    }

    /// Why a frame is dropped after `damage` to what is behind its Ethernet header.
    fn dropped(v6: bool, damage: impl Fn(&mut [u8])) -> Option<DropReason> {
        let mut frame = frame(&encap(v6, None));
        let ip = &mut frame[Ethernet2Header::LEN..];
        damage(ip);
        if !v6 {
            let header = ip.first_chunk_mut::<{ Ipv4Header::MIN_LEN }>().unwrap();
            header[10..12].fill(0);
            let sum = Sum16BitWords::new().add_slice(header).ones_complement();
            header[10..12].copy_from_slice(&sum.to_ne_bytes());
        }
        Decapsulated::parse(&frame, None).err()
    }

    #[test]
    fn headers_survive_and_none_may_be_cut() {
        for (v6, vlan) in [(false, None), (true, None), (false, Some(0x6005)), (true, Some(0xefff))]
        {
            let encap = encap(v6, vlan);
            let frame = frame(&encap);
            let parsed = Decapsulated::parse(&frame, None).unwrap();
            assert_eq!((parsed.encap, parsed.payload), (encap, &PAYLOAD[..]));
            assert_eq!(encap.reply().reply(), encap);
            assert_eq!((encap.reply().src, encap.reply().dst_mac), (encap.dst, encap.src_mac));
            for len in 0..frame.len() {
                let cut = Decapsulated::parse(&frame[..len], None).err();
                assert_eq!(cut, Some(DropReason::Truncated), "{encap:?}: {len} bytes");
            }
        }
    }

    /// Annex A17: no options, no extension headers, no fragments; lengths and sums agree.
    #[test]
    fn other_packets_are_told_from_bad_ones() {
        use DropReason::{Fragment, IpHeader, NotRoce, Truncated, UdpChecksum, UdpLength};
        assert!([false, true].iter().all(|v6| dropped(*v6, |_| ()).is_none()));
        let tcp = 6;
        // Byte of the IPv4 packet, its value, what that leads to.
        let v4 = [
            (0, 0x46, IpHeader),
            (0, 0x65, IpHeader),
            (3, 19, IpHeader),
            (3, 49, Truncated),
            (3, 47, UdpLength),
            (6, 0x20, Fragment),
            (9, tcp, NotRoce),
            (23, 0xb8, NotRoce),
            (25, 23, UdpLength),
            (25, 29, UdpLength),
            (27, 1, UdpChecksum),
        ];
        for (at, value, reason) in v4 {
            assert_eq!(dropped(false, |ip| ip[at] = value), Some(reason), "{at}: {value}");
        }
        let v6 = [
            (0, 0x50, IpHeader),
            (5, 29, Truncated),
            (5, 27, UdpLength),
            (6, tcp, NotRoce),
            (43, 0xb8, NotRoce),
            (45, 23, UdpLength),
            (47, 1, UdpChecksum),
        ];
        for (at, value, reason) in v6 {
            assert_eq!(dropped(true, |ip| ip[at] = value), Some(reason), "{at}: {value}");
        }
        // An extension header is ours to count only where UDP follows it.
        for (next, reason) in [(0, IpHeader), (43, IpHeader), (60, IpHeader), (44, Fragment)] {
            let before = |protocol| move |ip: &mut [u8]| (ip[6], ip[40]) = (next, protocol);
            assert_eq!(dropped(true, before(17)), Some(reason), "{next}");
            assert_eq!(dropped(true, before(tcp)), Some(NotRoce), "{next}");
        }
        // The IPv4 header's own checksum.
        let mut frame = frame(&encap(false, None));
        frame[Ethernet2Header::LEN + 8] -= 1;
        assert_eq!(Decapsulated::parse(&frame, None).err(), Some(IpHeader));
        // Neither IP version, and a second tag.
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(Decapsulated::parse(&frame, None).err(), Some(NotRoce));
        frame[12..18].copy_from_slice(&[0x81, 0, 0, 5, 0x81, 0]);
        assert_eq!(Decapsulated::parse(&frame, None).err(), Some(NotRoce));
    }

    /// A sender may use the UDP checksum (annex A17): then it has to be right.
    #[test]
    fn a_udp_checksum_is_checked_where_there_is_one() {
        for v6 in [false, true] {
            let with_sum = |xor: u16| {
                dropped(v6, |ip| {
                    let (ip, udp) = ip.split_at_mut(if v6 { 40 } else { 20 });
                    let addresses = &ip[if v6 { 8 } else { 12 }..];
                    let (header, payload) = udp.split_first_chunk_mut::<8>().unwrap();
                    let sum = Sum16BitWords::new()
                        .add_slice(addresses)
                        .add_2bytes([0, 17])
                        .add_2bytes([header[4], header[5]])
                        .add_slice(header)
                        .add_slice(payload)
                        .ones_complement();
                    header[6..].copy_from_slice(&(sum ^ xor).to_ne_bytes());
                })
            };
            assert_eq!(with_sum(0), None);
            assert_eq!(with_sum(1), Some(DropReason::UdpChecksum));
        }
    }

    /// One set of headers stands before several segments: its lengths are those of the first or of
    /// the whole.
    #[test]
    fn the_lengths_of_a_unit_are_of_its_first_segment_or_of_all() {
        for v6 in [false, true] {
            let encap = encap(v6, None);
            let lengths = |of_headers: usize| {
                let mut frame = [vec![0; encap.header_len()], vec![0x5a; 3 * 20]].concat();
                let udp_len = (UdpHeader::LEN + of_headers) as u16;
                encap.emit(udp_len, &mut frame[..encap.header_len()]);
                Decapsulated::parse(&frame, Some(20)).map(|parsed| parsed.payload.len())
            };
            assert_eq!((lengths(20), lengths(60)), (Ok(60), Ok(60)));
            for other in [16, 40, 61] {
                assert_eq!(lengths(other), Err(DropReason::UdpLength), "{other}");
            }
        }
    }
}
