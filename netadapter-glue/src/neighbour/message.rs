//! The frames of ARP (RFC 826), neighbour discovery (RFC 4861) and ping, as bytes.
//!
//! ARP and neighbour discovery have the same query and answer, so the two families differ in this file
//! only.

use super::{FRAME_MAX_LEN, solicited_node};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use etherparse::icmpv6::{
    Icmpv6PayloadSlice, NdpOptionSlice, NdpOptionsIterator, NeighborAdvertisementHeader,
};
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, EtherType, Ethernet2Header, IcmpEchoHeader,
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, Ipv4Header, Ipv4Slice,
    Ipv6Header, Ipv6Slice, NetSlice, SlicedPacket, TransportSlice,
};

/// A frame that concerns neighbours. Every address in it was checked for its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message<'a> {
    /// A query for `target`. `from` is `None` where the sender has no address yet.
    Query { target: IpAddr, from: Option<IpAddr>, mac: [u8; 6] },
    /// An answer to `to`: `from` is at `mac`.
    Answer { from: IpAddr, mac: [u8; 6], to: IpAddr },
    /// A ping of `to`.
    Echo { from: IpAddr, to: IpAddr, mac: [u8; 6], echo: IcmpEchoHeader, payload: &'a [u8] },
}

impl Message<'_> {
    /// The address that the message is for.
    pub(super) const fn to(&self) -> IpAddr {
        match *self {
            Self::Query { target: to, .. } | Self::Answer { to, .. } | Self::Echo { to, .. } => to,
        }
    }

    /// The address that the sender says is its own, and its Ethernet address.
    pub(super) const fn sender(&self) -> Option<(IpAddr, [u8; 6])> {
        match *self {
            Self::Query { from: Some(from), mac, .. } | Self::Answer { from, mac, .. } => {
                Some((from, mac))
            }
            Self::Query { from: None, .. } | Self::Echo { .. } => None,
        }
    }

    /// The host that announces its address to all, and that address: a gratuitous ARP or an unsolicited
    /// advertisement (RFC 5227, 3; RFC 4861, 7.2.6).
    pub(super) fn announcement(&self) -> Option<(IpAddr, [u8; 6])> {
        match *self {
            Self::Query { target, from: Some(from), mac } if from == target => Some((from, mac)),
            Self::Answer { from, mac, to } if to == from || to == ALL_NODES => Some((from, mac)),
            Self::Query { .. } | Self::Answer { .. } | Self::Echo { .. } => None,
        }
    }
}

/// The VLAN that a frame's tag names.
pub(super) fn vlan(frame: &[u8]) -> Option<u16> {
    let (tag, _) = frame.get(12..)?.split_first_chunk::<4>()?;
    let [0x81, 0x00, high, low] = *tag else { return None };
    let vlan = u16::from_be_bytes([high, low]) & 0xfff;
    (vlan != 0).then_some(vlan)
}

/// Puts a tag into the frame of `len` bytes at the start of `buffer`; returns the new length.
pub(super) fn tag(buffer: &mut [u8], len: usize, vlan: Option<u16>) -> usize {
    let Some(vlan) = vlan else { return len };
    let [high, low] = vlan.to_be_bytes();
    buffer.copy_within(12..len, 12 + TAG_LEN);
    buffer[12..12 + TAG_LEN].copy_from_slice(&[0x81, 0x00, high, low]);
    len + TAG_LEN
}

/// Whether a frame is untagged UDP, as nearly every one is, and so no message.
#[inline]
pub(super) fn is_udp(frame: &[u8]) -> bool {
    const UDP: u8 = 17;
    const V4: u16 = u16::from_ne_bytes([0x08, 0x00]);
    const V6: u16 = u16::from_ne_bytes([0x86, 0xdd]);
    let Some(head) = frame.first_chunk::<24>() else { return false };
    match u16::from_ne_bytes([head[12], head[13]]) {
        V4 => head[23] == UDP,
        V6 => head[20] == UDP,
        _ => false,
    }
}

/// Parses a frame; `None` where it is another message or malformed.
pub(super) fn parse(frame: &[u8]) -> Option<Message<'_>> {
    let at = if frame.get(12..14)? == [0x81, 0x00] { 12 + TAG_LEN } else { 12 };
    let rest = frame.get(at..)?;
    match (rest.get(..2)?, rest.get(8)?, rest.get(11)?) {
        ([0x08, 0x06], _, _) | ([0x08, 0x00], _, 1) | ([0x86, 0xdd], 58, _) => {}
        _ => return None,
    }
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let mac = mac(frame.get(6..12)?)?;
    match (packet.net?, packet.transport) {
        (NetSlice::Arp(arp), _) => parse_arp(&arp),
        (NetSlice::Ipv4(ip), Some(TransportSlice::Icmpv4(icmp))) => {
            let header = icmp.header();
            if header.checksum != header.icmp_type.calc_checksum(icmp.payload()) {
                return None;
            }
            let Icmpv4Type::EchoRequest(echo) = header.icmp_type else { return None };
            parse_echo(frame, ipv4_ends(&ip)?, (mac, echo), icmp.payload())
        }
        (NetSlice::Ipv6(ip), Some(TransportSlice::Icmpv6(icmp))) => {
            let (from, to) = (ip.header().source(), ip.header().destination());
            if ip.is_payload_fragmented() || !icmp.is_checksum_valid(from, to) {
                return None;
            }
            match icmp.icmp_type() {
                Icmpv6Type::EchoRequest(echo) => {
                    parse_echo(frame, (from.into(), to.into()), (mac, echo), icmp.payload())
                }
                // RFC 4861, 7.1: another hop limit shows that the packet came from off the link.
                _ if ip.header().hop_limit() != 255 => None,
                _ => parse_discovery(&ip, icmp.payload_slice().ok()?, mac),
            }
        }
        _ => None,
    }
}

fn ipv4_ends(ip: &Ipv4Slice<'_>) -> Option<(IpAddr, IpAddr)> {
    let header = ip.header();
    let ends = (header.source_addr().into(), header.destination_addr().into());
    (!ip.is_payload_fragmented()).then_some(ends)
}

/// One to a group of hosts is for none of them (RFC 1122, 3.3.6), nor is one that says it comes from its own destination.
fn parse_echo<'a>(
    frame: &[u8],
    (from, to): (IpAddr, IpAddr),
    (mac, echo): ([u8; 6], IcmpEchoHeader),
    payload: &'a [u8],
) -> Option<Message<'a>> {
    let is_unicast = self::mac(frame.get(..6)?).is_some() && from != to && is_host(from, to);
    let fits = payload.len() <= ECHO_PAYLOAD_MAX_LEN && is_unicast;
    fits.then_some(Message::Echo { from, to, mac, echo, payload })
}

fn parse_arp<'a>(arp: &ArpPacketSlice<'_>) -> Option<Message<'a>> {
    let arp = arp.to_packet().try_eth_ipv4().ok()?;
    let mac = mac(&arp.sender_mac)?;
    let (from, to) = (IpAddr::V4(arp.sender_ipv4_addr()), arp.target_ipv4_addr().into());
    match arp.operation {
        ArpOperation::REQUEST if from.is_unspecified() => {
            Some(Message::Query { target: to, from: None, mac })
        }
        _ if !is_host(from, to) => None,
        ArpOperation::REQUEST => Some(Message::Query { target: to, from: Some(from), mac }),
        ArpOperation::REPLY => Some(Message::Answer { from, mac, to }),
        _ => None,
    }
}

fn parse_discovery<'a>(
    ip: &Ipv6Slice<'_>,
    payload: Icmpv6PayloadSlice<'_>,
    frame_mac: [u8; 6],
) -> Option<Message<'a>> {
    let (from, to) = (ip.header().source_addr(), ip.header().destination_addr());
    match payload {
        Icmpv6PayloadSlice::NeighborSolicitation(payload) => {
            let target = payload.target_address();
            let option = link_layer_address(payload.options_iterator(), true)?;
            let is_addressed = to == target || to == solicited_node(target);
            let is_probe = from.is_unspecified();
            // RFC 4861, 7.1.1: a probe goes to the group and has no source address option.
            if !is_addressed || (is_probe && (option.is_some() || to == target)) {
                return None;
            }
            if !is_probe && !is_host(from.into(), target.into()) {
                return None;
            }
            let from = (!is_probe).then_some(from.into());
            Some(Message::Query { target: target.into(), from, mac: option.unwrap_or(frame_mac) })
        }
        Icmpv6PayloadSlice::NeighborAdvertisement(payload) => {
            let option = link_layer_address(payload.options_iterator(), false)?;
            let (source, to) = (IpAddr::V6(from), IpAddr::V6(to));
            let from = payload.target_address().into();
            let mac = option.unwrap_or(frame_mac);
            let are_hosts = is_host(source, to) && is_host(from, to);
            are_hosts.then_some(Message::Answer { from, mac, to })
        }
        _ => None,
    }
}

/// The Ethernet address among the options, if there is one; `None` where the options are malformed.
fn link_layer_address(options: NdpOptionsIterator<'_>, source: bool) -> Option<Option<[u8; 6]>> {
    let mut found = None;
    for option in options {
        match option.ok()? {
            NdpOptionSlice::SourceLinkLayerAddress(option) if source => {
                found = Some(mac(option.link_layer_address())?);
            }
            NdpOptionSlice::TargetLinkLayerAddress(option) if !source => {
                found = Some(mac(option.link_layer_address())?);
            }
            _ => {}
        }
    }
    Some(found)
}

/// Whether an address can be that of one host on the link of `own` (RFC 1122, 3.2.1.3; RFC 4291, 2.5).
fn is_host(address: IpAddr, own: IpAddr) -> bool {
    let of_nobody = match address {
        // This network, and class E with the broadcast address.
        IpAddr::V4(v4) => matches!(v4.octets()[0], 0 | 240..),
        IpAddr::V6(v6) => v6.is_unspecified(),
    };
    let apart = address.is_loopback() && !own.is_loopback();
    !(of_nobody || address.is_multicast() || apart)
}

/// The Ethernet address of one host: neither a group nor zero.
fn mac(bytes: &[u8]) -> Option<[u8; 6]> {
    let mac: [u8; 6] = bytes.try_into().ok()?;
    (mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

/// Writes a query from `own_ip` at `own_mac` for `target`, of the same family: to all hosts, or to the one
/// at `at`. Returns the length.
pub(super) fn query(
    buffer: &mut [u8],
    own_mac: [u8; 6],
    own_ip: IpAddr,
    target: IpAddr,
    at: Option<[u8; 6]>,
) -> usize {
    match (own_ip, target) {
        (IpAddr::V4(own_ip), IpAddr::V4(target)) => {
            let (request, nobody) = (ArpOperation::REQUEST, [0; 6]);
            let to = at.unwrap_or([0xff; 6]);
            arp(buffer, request, (own_mac, own_ip), (nobody, target), to)
        }
        (IpAddr::V6(own_ip), IpAddr::V6(target)) => {
            let group = solicited_node(target);
            let (to, to_mac) = at.map_or((group, group_mac(group)), |mac| (target, mac));
            let option = [SOURCE_LINK_LAYER_ADDRESS, 1];
            let kind = Icmpv6Type::NeighborSolicitation;
            let payload = discovery(target, option, own_mac);
            icmpv6(buffer, (own_mac, own_ip), (to_mac, to), 255, kind, &payload)
        }
        _ => unreachable!("`resolve` compares the families"),
    }
}

/// Writes a query for `ip` of a host that has no address yet. Returns the length.
#[cfg(target_os = "linux")]
pub(super) fn address_probe(buffer: &mut [u8], own_mac: [u8; 6], ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(ip) => {
            let (from, to) = ((own_mac, Ipv4Addr::UNSPECIFIED), ([0; 6], ip));
            arp(buffer, ArpOperation::REQUEST, from, to, [0xff; 6])
        }
        IpAddr::V6(ip) => {
            let (from, group) = ((own_mac, Ipv6Addr::UNSPECIFIED), solicited_node(ip));
            let kind = Icmpv6Type::NeighborSolicitation;
            icmpv6(buffer, from, (group_mac(group), group), 255, kind, &ip.octets())
        }
    }
}

/// Writes a ping. Returns the length.
#[cfg(target_os = "linux")]
pub(super) fn ping(
    buffer: &mut [u8],
    (own_mac, own_ip): ([u8; 6], IpAddr),
    (mac, ip): ([u8; 6], IpAddr),
    id: u16,
    seq: u16,
) -> usize {
    let echo = IcmpEchoHeader { id, seq };
    let payload = [0x5a; PING_LEN];
    match (own_ip, ip) {
        (IpAddr::V4(own_ip), IpAddr::V4(ip)) => {
            let kind = Icmpv4Type::EchoRequest(echo);
            icmpv4(buffer, (own_mac, own_ip), (mac, ip), kind, &payload)
        }
        (IpAddr::V6(own_ip), IpAddr::V6(ip)) => {
            let kind = Icmpv6Type::EchoRequest(echo);
            icmpv6(buffer, (own_mac, own_ip), (mac, ip), 64, kind, &payload)
        }
        _ => unreachable!("the caller compares the families"),
    }
}

/// Writes the answer to a query for `own_ip` from `to` at `to_mac`. Returns the length.
pub(super) fn answer(
    buffer: &mut [u8],
    own_mac: [u8; 6],
    own_ip: IpAddr,
    to: Option<IpAddr>,
    to_mac: [u8; 6],
) -> usize {
    match (own_ip, to) {
        (IpAddr::V4(own_ip), to) => {
            let to = match to {
                Some(IpAddr::V4(to)) => to,
                Some(IpAddr::V6(_)) | None => Ipv4Addr::UNSPECIFIED,
            };
            arp(buffer, ArpOperation::REPLY, (own_mac, own_ip), (to_mac, to), to_mac)
        }
        (IpAddr::V6(own_ip), to) => {
            // RFC 4861, 7.2.4: the answer to a host without an address goes to all nodes, unsolicited.
            let (to, to_mac, solicited) = match to {
                Some(IpAddr::V6(to)) => (to, to_mac, true),
                Some(IpAddr::V4(_)) | None => (ALL_NODES, group_mac(ALL_NODES), false),
            };
            let flags = NeighborAdvertisementHeader { router: false, solicited, r#override: true };
            let option = [TARGET_LINK_LAYER_ADDRESS, 1];
            let kind = Icmpv6Type::NeighborAdvertisement(flags);
            let payload = discovery(own_ip, option, own_mac);
            icmpv6(buffer, (own_mac, own_ip), (to_mac, to), 255, kind, &payload)
        }
    }
}

/// Writes the reply to [`Message::Echo`]. Returns the length.
pub(super) fn echo_reply(buffer: &mut [u8], own_mac: [u8; 6], message: &Message<'_>) -> usize {
    let Message::Echo { from, to, mac, echo, payload } = *message else { return 0 };
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let kind = Icmpv4Type::EchoReply(echo);
            icmpv4(buffer, (own_mac, to), (mac, from), kind, payload)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let kind = Icmpv6Type::EchoReply(echo);
            icmpv6(buffer, (own_mac, to), (mac, from), 64, kind, payload)
        }
        _ => unreachable!("both ends of a packet have one family"),
    }
}

fn arp(
    buffer: &mut [u8],
    operation: ArpOperation,
    (sender_mac, sender): ([u8; 6], Ipv4Addr),
    (target_mac, target): ([u8; 6], Ipv4Addr),
    to: [u8; 6],
) -> usize {
    let (sender_ipv4, target_ipv4) = (sender.octets(), target.octets());
    let packet = ArpEthIpv4Packet { operation, sender_mac, sender_ipv4, target_mac, target_ipv4 };
    let link = ethernet(sender_mac, to, EtherType::ARP);
    join(buffer, [&link, &packet.to_bytes()])
}

/// The bytes behind the ICMPv6 header of a query or an answer.
fn discovery(target: Ipv6Addr, option: [u8; 2], own_mac: [u8; 6]) -> [u8; 24] {
    let mut payload = [0; 24];
    payload[..16].copy_from_slice(&target.octets());
    payload[16..18].copy_from_slice(&option);
    payload[18..].copy_from_slice(&own_mac);
    payload
}

fn icmpv4(
    buffer: &mut [u8],
    (own_mac, own_ip): ([u8; 6], Ipv4Addr),
    (to_mac, to): ([u8; 6], Ipv4Addr),
    kind: Icmpv4Type,
    payload: &[u8],
) -> usize {
    let icmp = Icmpv4Header::with_checksum(kind, payload).to_bytes();
    let mut ip = Ipv4Header {
        time_to_live: 64,
        protocol: IpNumber::ICMP,
        source: own_ip.octets(),
        destination: to.octets(),
        total_len: (Ipv4Header::MIN_LEN + icmp.len() + payload.len()) as u16,
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    let link = ethernet(own_mac, to_mac, EtherType::IPV4);
    join(buffer, [&link, &ip.to_bytes(), &icmp, payload])
}

fn icmpv6(
    buffer: &mut [u8],
    (own_mac, own_ip): ([u8; 6], Ipv6Addr),
    (to_mac, to): ([u8; 6], Ipv6Addr),
    hop_limit: u8,
    kind: Icmpv6Type,
    payload: &[u8],
) -> usize {
    let (source, destination) = (own_ip.octets(), to.octets());
    let icmp = Icmpv6Header::with_checksum(kind, source, destination, payload);
    let icmp = icmp.expect("`parse` bounds the payload").to_bytes();
    let ip = Ipv6Header {
        payload_length: (icmp.len() + payload.len()) as u16,
        next_header: IpNumber::IPV6_ICMP,
        hop_limit,
        source,
        destination,
        ..Ipv6Header::default()
    };
    let link = ethernet(own_mac, to_mac, EtherType::IPV6);
    join(buffer, [&link, &ip.to_bytes(), &icmp, payload])
}

fn ethernet(source: [u8; 6], destination: [u8; 6], ether_type: EtherType) -> [u8; 14] {
    Ethernet2Header { source, destination, ether_type }.to_bytes()
}

/// Writes a frame part by part; returns its length. A `PacketBuilder` of etherparse has room for every
/// header that it knows, 10 KiB of a kernel stack of 24.
fn join<const PARTS: usize>(buffer: &mut [u8], parts: [&[u8]; PARTS]) -> usize {
    let mut len = 0;
    for part in parts {
        buffer[len..][..part.len()].copy_from_slice(part);
        len += part.len();
    }
    len
}

/// The Ethernet group of an IPv6 multicast group (RFC 2464, 7).
fn group_mac(group: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// The link-local address made of an Ethernet address (RFC 4291, appendix A).
pub fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Neighbour discovery options (RFC 4861, 4.6.1); their length is counted in eight bytes.
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
/// The longest payload behind Ethernet, tag, IPv6 and ICMPv6 headers; ping sends 56 bytes by default.
const ECHO_PAYLOAD_MAX_LEN: usize = FRAME_MAX_LEN - 14 - TAG_LEN - 40 - 8;
/// Bytes of a ping of ours, those of most programs.
#[cfg(target_os = "linux")]
const PING_LEN: usize = 56;
/// Bytes of an 802.1Q tag.
const TAG_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use etherparse::PacketBuilder;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// Goal: a reply to a ping is, byte for byte, the one that etherparse's builder writes, whose frame a
    /// kernel's stack has no room for.
    #[test]
    fn a_ping_is_answered_with_the_bytes_of_the_builder() {
        let echo = IcmpEchoHeader { id: 7, seq: 9 };
        for len in [0, 1, 56, ECHO_PAYLOAD_MAX_LEN] {
            let payload: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            for (from, to) in [("10.0.0.2", "10.0.0.1"), ("fe80::2", "fe80::1")] {
                let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
                let ends = PacketBuilder::ethernet2(OWN, PEER);
                let mut expected = Vec::new();
                match (from, to) {
                    (IpAddr::V4(from), IpAddr::V4(to)) => ends
                        .ipv4(to.octets(), from.octets(), 64)
                        .icmpv4_echo_reply(7, 9)
                        .write(&mut expected, &payload),
                    (IpAddr::V6(from), IpAddr::V6(to)) => ends
                        .ipv6(to.octets(), from.octets(), 64)
                        .icmpv6_echo_reply(7, 9)
                        .write(&mut expected, &payload),
                    _ => unreachable!(),
                }
                .unwrap();
                let mut buffer = [0xaa; FRAME_MAX_LEN];
                let message = Message::Echo { from, to, mac: PEER, echo, payload: &payload };
                let len = echo_reply(&mut buffer, OWN, &message);
                assert_eq!(buffer[..len], expected);
            }
        }
    }

    /// Goal: nothing is taken from an address that no host has, nor a ping that is for a group.
    #[test]
    fn nobody_asks_and_nobody_answers() {
        let own = [IpAddr::from([10, 0, 0, 1]), link_local(OWN).into()];
        let bad: [&[&str]; 2] = [
            &["0.0.0.5", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"],
            &["::1", "ff02::1"],
        ];
        let mut buffer = [0; FRAME_MAX_LEN];
        for (own, bad) in own.into_iter().zip(bad) {
            for from in bad {
                let from: IpAddr = from.parse().unwrap();
                let query = query(&mut buffer, PEER, from, own, Some(OWN));
                assert!(parse(&buffer[..query]).is_none(), "query of {from}");
                let answer = answer(&mut buffer, PEER, from, Some(own), OWN);
                assert!(parse(&buffer[..answer]).is_none(), "answer of {from}");
                let ping = ping(&mut buffer, (PEER, from), (OWN, own), 1, 1);
                assert!(parse(&buffer[..ping]).is_none(), "ping of {from}");
            }
            let ping_of = |buffer: &mut [u8], from, to_mac| {
                let len = ping(buffer, (PEER, from), (to_mac, own), 1, 1);
                parse(&buffer[..len]).is_some()
            };
            let peer =
                if own.is_ipv4() { IpAddr::from([10, 0, 0, 2]) } else { link_local(PEER).into() };
            assert!(ping_of(&mut buffer, peer, OWN));
            assert!(!ping_of(&mut buffer, own, OWN), "of the pinged address itself");
            assert!(!ping_of(&mut buffer, peer, [0xff; 6]), "to all");
            assert!(!ping_of(&mut buffer, peer, [0x33, 0x33, 0, 0, 0, 1]), "to a group");
        }
    }

    /// Goal: the same of ARP and of neighbour discovery, asked and answered.
    #[test]
    fn queries_and_answers_are_the_bytes_of_the_builder() {
        let (own, peer) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut expected = Vec::new();
        let packet = ArpEthIpv4Packet {
            operation: ArpOperation::REPLY,
            sender_mac: OWN,
            sender_ipv4: own.octets(),
            target_mac: PEER,
            target_ipv4: peer.octets(),
        };
        let ends = PacketBuilder::ethernet2(OWN, PEER);
        ends.arp(packet.to_arp_packet()).write(&mut expected).unwrap();
        let mut buffer = [0xaa; FRAME_MAX_LEN];
        let len = answer(&mut buffer, OWN, own.into(), Some(peer.into()), PEER);
        assert_eq!(buffer[..len], expected);

        let (own, peer) = (link_local(OWN), link_local(PEER));
        let len = query(&mut buffer, OWN, own.into(), peer.into(), None);
        let group = solicited_node(peer);
        let mut expected = Vec::new();
        PacketBuilder::ethernet2(OWN, group_mac(group))
            .ipv6(own.octets(), group.octets(), 255)
            .icmpv6(Icmpv6Type::NeighborSolicitation)
            .write(&mut expected, &discovery(peer, [SOURCE_LINK_LAYER_ADDRESS, 1], OWN))
            .unwrap();
        assert_eq!(buffer[..len], expected);
    }
}
