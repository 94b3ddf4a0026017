//! Questions that a program asks a link by itself, to examine it, and what it hears.
//!
//! A question is one frame, without a state: its user repeats it, and waits for the answer.

use super::Link;
use super::message::{self, Message};
use core::net::IpAddr;
use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::icmpv6::DestUnreachableCode;
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, NetSlice, SlicedPacket,
    TransportSlice,
};

/// A question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Question {
    /// Whether a host has `ip`, which the sender does not claim yet: the address probe of RFC 5227, 2.1.1, and of
    /// RFC 4862, 5.4.2.
    Taken {
        /// The address.
        ip: IpAddr,
    },
    /// The Ethernet address of `ip`, asked of all hosts, or of the one at `at`.
    Place {
        /// The address of the sender, of the same family.
        own_ip: IpAddr,
        /// The address that is looked for.
        ip: IpAddr,
        /// The host that is asked alone.
        at: Option<[u8; 6]>,
    },
    /// A ping of `ip` at `mac`.
    Ping {
        /// The address of the sender, of the same family.
        own_ip: IpAddr,
        /// The address of the host.
        ip: IpAddr,
        /// Its Ethernet address.
        mac: [u8; 6],
        /// The series of pings.
        id: u16,
        /// The number in the series.
        seq: u16,
    },
}

impl Question {
    /// Writes the frame to the start of `buffer`, which has room for [`FRAME_MAX_LEN`](super::FRAME_MAX_LEN) bytes;
    /// returns its length.
    pub fn write(&self, buffer: &mut [u8], own_mac: [u8; 6], vlan: Option<u16>) -> usize {
        let len = match *self {
            Self::Taken { ip } => message::address_probe(buffer, own_mac, ip),
            Self::Place { own_ip, ip, at } => message::query(buffer, own_mac, own_ip, ip, at),
            Self::Ping { own_ip, ip, mac, id, seq } => {
                message::ping(buffer, (own_mac, own_ip), (mac, ip), id, seq)
            }
        };
        message::tag(buffer, len, vlan)
    }
}

/// The news in a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Heard {
    /// A host says that `ip` is its own: it answers, or asks for others.
    Holder {
        /// The address.
        ip: IpAddr,
        /// The place of the host.
        link: Link,
        /// It answers a query.
        answers: bool,
    },
    /// The reply to a ping.
    Pong {
        /// The host that replies.
        from: IpAddr,
        /// The series.
        id: u16,
        /// The number in the series.
        seq: u16,
    },
    /// A host could not pass a packet on, or deliver it.
    Refused {
        /// The host that says so.
        from: IpAddr,
        /// The destination of the packet.
        to: IpAddr,
        /// The UDP port of the packet, if it was UDP.
        udp_port: Option<u16>,
        /// The reason.
        reason: Refusal,
    },
}

/// The reason of an ICMP error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// Nobody has the port.
    Port,
    /// A filter forbids it.
    Prohibited,
    /// It is longer than a link carries: the MTU, 0 where it is not told.
    TooBig(u32),
    /// There is no way to the host, or another reason.
    Unreachable,
}

/// The news in a frame for us or for all; `None` where there are none.
pub fn hear(frame: &[u8]) -> Option<Heard> {
    let vlan = message::vlan(frame);
    match message::parse(frame) {
        Some(Message::Answer { from, mac, .. }) => {
            return Some(Heard::Holder { ip: from, link: Link { mac, vlan }, answers: true });
        }
        Some(Message::Query { from: Some(ip), mac, .. }) => {
            return Some(Heard::Holder { ip, link: Link { mac, vlan }, answers: false });
        }
        Some(Message::Query { .. } | Message::Echo { .. }) => return None,
        None => {}
    }
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    match (packet.net?, packet.transport?) {
        (NetSlice::Ipv4(ip), TransportSlice::Icmpv4(icmp)) => {
            let from = ip.header().source_addr().into();
            match icmp.icmp_type() {
                Icmpv4Type::EchoReply(echo) => {
                    Some(Heard::Pong { from, id: echo.id, seq: echo.seq })
                }
                Icmpv4Type::DestinationUnreachable(header) => {
                    let (to, udp_port) = quoted_v4(icmp.payload())?;
                    Some(Heard::Refused { from, to, udp_port, reason: reason_v4(&header) })
                }
                _ => None,
            }
        }
        (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
            let from = ip.header().source_addr().into();
            let reason = match icmp.icmp_type() {
                Icmpv6Type::EchoReply(echo) => {
                    return Some(Heard::Pong { from, id: echo.id, seq: echo.seq });
                }
                Icmpv6Type::DestinationUnreachable(code) => reason_v6(code),
                Icmpv6Type::PacketTooBig { mtu } => Refusal::TooBig(mtu),
                _ => return None,
            };
            let (to, udp_port) = quoted_v6(icmp.payload())?;
            Some(Heard::Refused { from, to, udp_port, reason })
        }
        _ => None,
    }
}

fn reason_v4(header: &DestUnreachableHeader) -> Refusal {
    match header {
        DestUnreachableHeader::Port => Refusal::Port,
        DestUnreachableHeader::FragmentationNeeded { next_hop_mtu } => {
            Refusal::TooBig((*next_hop_mtu).into())
        }
        DestUnreachableHeader::NetworkProhibited
        | DestUnreachableHeader::HostProhibited
        | DestUnreachableHeader::FilterProhibited => Refusal::Prohibited,
        _ => Refusal::Unreachable,
    }
}

const fn reason_v6(code: DestUnreachableCode) -> Refusal {
    match code {
        DestUnreachableCode::Port => Refusal::Port,
        DestUnreachableCode::Prohibited
        | DestUnreachableCode::SourceAddressFailedPolicy
        | DestUnreachableCode::RejectRoute => Refusal::Prohibited,
        DestUnreachableCode::NoRoute
        | DestUnreachableCode::BeyondScope
        | DestUnreachableCode::Address => Refusal::Unreachable,
    }
}

/// The destination of the packet that an error quotes, and its UDP port.
fn quoted_v4(bytes: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let ip = Ipv4HeaderSlice::from_slice(bytes).ok()?;
    let udp = (ip.protocol() == IpNumber::UDP).then(|| &bytes[ip.slice().len()..]);
    Some((ip.destination_addr().into(), udp.and_then(destination_port)))
}

fn quoted_v6(bytes: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let ip = Ipv6HeaderSlice::from_slice(bytes).ok()?;
    let udp = (ip.next_header() == IpNumber::UDP).then(|| &bytes[ip.slice().len()..]);
    Some((ip.destination_addr().into(), udp.and_then(destination_port)))
}

fn destination_port(udp: &[u8]) -> Option<u16> {
    udp.first_chunk().map(|[_, _, high, low]| u16::from_be_bytes([*high, *low]))
}

#[cfg(test)]
mod tests {
    use super::super::{FRAME_MAX_LEN, Neighbours};
    use super::*;
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;
    use etherparse::PacketBuilder;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const ENDS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The frames with which the host that has `ip` answers a question.
    fn answers(question: Question, host: &str, vlan: Option<u16>) -> Vec<Heard> {
        let mut peer = Neighbours::new(PEER, &[ip(host)]);
        let mut buffer = [0; FRAME_MAX_LEN];
        let len = question.write(&mut buffer, OWN, vlan);
        assert!(peer.handle_frame(0, &buffer[..len]), "{question:?}");
        let mut heard = Vec::new();
        while let Some(len) = peer.poll_transmit(&mut buffer) {
            heard.extend(hear(&buffer[..len]));
        }
        heard
    }

    #[test]
    fn each_question_is_answered_by_a_host() {
        for ((own, peer), vlan) in ENDS.into_iter().zip([None, Some(7)]) {
            let (own_ip, host) = (ip(own), ip(peer));
            let link = Link { mac: PEER, vlan };
            let holder = Heard::Holder { ip: host, link, answers: true };
            assert_eq!(answers(Question::Taken { ip: host }, peer, vlan), [holder]);
            for at in [None, Some(PEER)] {
                let place = Question::Place { own_ip, ip: host, at };
                assert_eq!(answers(place, peer, vlan), [holder]);
            }
            let ping = Question::Ping { own_ip, ip: host, mac: PEER, id: 5, seq: 9 };
            assert_eq!(answers(ping, peer, vlan), [Heard::Pong { from: host, id: 5, seq: 9 }]);
        }
    }

    /// Goal: an error names the packet that it is about, its port and the reason.
    #[test]
    fn an_error_is_told_with_its_packet() {
        let (own, peer) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut packet = Vec::new();
        let ours = PacketBuilder::ipv4(own.octets(), peer.octets(), 64).udp(0xc000, 4791);
        ours.write(&mut packet, &[0; 8]).unwrap();
        for (code, reason) in [
            (DestUnreachableHeader::Port, Refusal::Port),
            (DestUnreachableHeader::FilterProhibited, Refusal::Prohibited),
            (
                DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 },
                Refusal::TooBig(1400),
            ),
            (DestUnreachableHeader::Host, Refusal::Unreachable),
        ] {
            let mut frame = Vec::new();
            PacketBuilder::ethernet2(PEER, OWN)
                .ipv4(peer.octets(), own.octets(), 64)
                .icmpv4(Icmpv4Type::DestinationUnreachable(code))
                .write(&mut frame, &packet)
                .unwrap();
            let (from, to) = (peer.into(), peer.into());
            let told = Heard::Refused { from, to, udp_port: Some(4791), reason };
            assert_eq!(hear(&frame), Some(told));
        }
        let (own, peer) = (ip("fd00::1"), ip("fd00::2"));
        let (IpAddr::V6(own), IpAddr::V6(peer)) = (own, peer) else { unreachable!() };
        let mut packet = Vec::new();
        let ours = PacketBuilder::ipv6(own.octets(), peer.octets(), 64).udp(0xc000, 4791);
        ours.write(&mut packet, &[0; 8]).unwrap();
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(PEER, OWN)
            .ipv6(peer.octets(), own.octets(), 64)
            .icmpv6(Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Port))
            .write(&mut frame, &packet)
            .unwrap();
        let Some(Heard::Refused { to, udp_port, reason, .. }) = hear(&frame) else { panic!() };
        assert_eq!((to, udp_port, reason), (peer.into(), Some(4791), Refusal::Port));
    }

    #[test]
    fn no_frame_is_too_short_to_be_heard() {
        let mut buffer = [0; FRAME_MAX_LEN];
        let ping =
            Question::Ping { own_ip: ip("10.0.0.1"), ip: ip("10.0.0.2"), mac: PEER, id: 1, seq: 1 };
        let len = ping.write(&mut buffer, OWN, None);
        for cut in 0..len {
            assert_eq!(hear(&buffer[..cut]), None);
        }
    }
}
