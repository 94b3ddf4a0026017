//! Tells RoCEv2 from other traffic by the first bytes of a frame, for an edge that shares its NIC.
//!
//! It finds the owner of a frame and checks nothing else: [`Packet::parse`](super::Packet::parse) does.

use super::ROCE_PORT;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes from which [`roce_destination`] can tell any frame: one tag, the longest IPv4 header, UDP.
pub const PEEK_LEN: usize = 14 + 4 + 60 + 8;
pub(super) const UDP: u8 = 17;

/// The destination address of a RoCEv2 frame; `None` for every other frame. `bytes` is its beginning.
pub fn roce_destination(bytes: &[u8]) -> Option<IpAddr> {
    let (_macs, rest) = bytes.split_at_checked(12)?;
    let (ether_type, rest) = ether_type(rest)?;
    match ether_type {
        0x0800 => ipv4(rest),
        0x86dd => ipv6(rest),
        _ => None,
    }
}

/// The receiver of a frame of IP or ARP, by its addresses of IP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Addressee {
    /// The destination of a packet.
    Packet(IpAddr),
    /// ARP over Ethernet (RFC 826): the address of its sender, and the one that is asked for or told something. A host that looks
    /// whether an address is taken has none of its own yet, 0.0.0.0, and is answered there (RFC 5227).
    Arp {
        /// The sender protocol address.
        sender: Ipv4Addr,
        /// The target protocol address.
        target: Ipv4Addr,
    },
}

/// The addressee of a frame; `None` for every other frame. `bytes` is its beginning, of which [`PEEK_LEN`] bytes suffice.
pub fn addressee(bytes: &[u8]) -> Option<Addressee> {
    let (_macs, rest) = bytes.split_at_checked(12)?;
    let (ether_type, rest) = ether_type(rest)?;
    match ether_type {
        0x0800 => {
            let header = rest.first_chunk::<20>().filter(|header| header[0] >> 4 == 4)?;
            Some(Addressee::Packet(v4_at(header, 16)?.into()))
        }
        0x86dd => {
            let header = rest.first_chunk::<40>().filter(|header| header[0] >> 4 == 6)?;
            Some(Addressee::Packet(Ipv6Addr::from(*header.last_chunk::<16>()?).into()))
        }
        0x0806 => {
            // Ethernet, IPv4, and the lengths of their addresses.
            let rest = rest.strip_prefix(&[0, 1, 8, 0, 6, 4])?;
            Some(Addressee::Arp { sender: v4_at(rest, 8)?, target: v4_at(rest, 18)? })
        }
        _ => None,
    }
}

fn v4_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    bytes.get(at..)?.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

/// The EtherType and the bytes behind it, after one VLAN tag if there is one.
pub(super) fn ether_type(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (value, rest) = number(bytes)?;
    if value != 0x8100 {
        return Some((value, rest));
    }
    number(rest.get(2..)?)
}

fn ipv4(bytes: &[u8]) -> Option<IpAddr> {
    let header = bytes.first_chunk::<20>()?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    // RoCE makes no fragments; only TCP/IP can put them together.
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    if header[0] >> 4 != 4
        || header[9] != UDP
        || fragment != 0
        || !is_roce(bytes.get(header_len..)?)
    {
        return None;
    }
    Some(Ipv4Addr::new(header[16], header[17], header[18], header[19]).into())
}

fn ipv6(bytes: &[u8]) -> Option<IpAddr> {
    let (header, rest) = bytes.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 || header[6] != UDP || !is_roce(rest) {
        return None;
    }
    let octets = header.last_chunk::<16>()?;
    Some(Ipv6Addr::from(*octets).into())
}

/// Whether a UDP header has the destination port of RoCEv2.
pub(super) fn is_roce(udp: &[u8]) -> bool {
    udp.get(2..).and_then(number).is_some_and(|(port, _)| port == ROCE_PORT)
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (value, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn v4(ihl: u8, fragment: u16, protocol: u8, port: u16) -> Vec<u8> {
        let mut frame = Vec::from([0; 12]);
        frame.extend([8, 0, 0x40 | ihl, 0, 0, 0, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.resize(14 + usize::from(ihl) * 4, 0);
        frame.extend([0xc0, 0]);
        frame.extend(port.to_be_bytes());
        frame.extend([0; 4]);
        frame
    }

    #[test]
    fn roce_is_udp_to_its_port() {
        let ours = Some(IpAddr::from([10, 0, 0, 2]));
        assert_eq!(roce_destination(&v4(5, 0, 17, 4791)), ours);
        assert_eq!(roce_destination(&v4(15, 0x4000, 17, 4791)), ours);
        for other in
            [v4(5, 0, 6, 4791), v4(5, 0, 17, 4792), v4(5, 1, 17, 4791), v4(5, 0x2000, 17, 4791)]
        {
            assert_eq!(roce_destination(&other), None);
        }
    }

    #[test]
    fn a_tag_is_looked_through() {
        let mut frame = v4(5, 0, 17, 4791);
        frame.splice(12..12, [0x81, 0, 0x60, 5]);
        assert_eq!(roce_destination(&frame), Some(IpAddr::from([10, 0, 0, 2])));
    }

    #[test]
    fn ipv6_too() {
        let mut frame = Vec::from([0; 12]);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
        frame.extend([0xfd; 16]);
        frame.extend([0xfe; 16]);
        frame.extend([0, 1, 0x12, 0xb7, 0, 8, 0, 0]);
        assert_eq!(roce_destination(&frame), Some(IpAddr::from([0xfe; 16])));
    }

    fn arp() -> Vec<u8> {
        let mut frame = Vec::from([0xff; 12]);
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        frame
    }

    #[test]
    fn an_addressee_is_a_destination_or_the_two_of_arp() {
        let packet = |address: [u8; 4]| Some(Addressee::Packet(address.into()));
        assert_eq!(addressee(&v4(5, 0, 6, 445)), packet([10, 0, 0, 2]));
        assert_eq!(addressee(&v4(15, 1, 17, 4791)), packet([10, 0, 0, 2]), "a fragment, too");
        let asked = Addressee::Arp { sender: [10, 0, 0, 1].into(), target: [10, 0, 0, 2].into() };
        assert_eq!(addressee(&arp()), Some(asked));
        let mut tagged = arp();
        tagged.splice(12..12, [0x81, 0, 0x60, 5]);
        assert_eq!(addressee(&tagged), Some(asked));
        let mut v6 = Vec::from([0; 12]);
        v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 58, 255]);
        v6.extend([0xfd; 16]);
        v6.extend([0xfe; 16]);
        assert_eq!(addressee(&v6), Some(Addressee::Packet(IpAddr::from([0xfe; 16]))));
    }

    #[test]
    fn other_frames_have_no_addressee() {
        for (frame, at, byte) in [(v4(5, 0, 6, 445), 14, 0x65), (arp(), 19, 8), (arp(), 12, 0x88)] {
            let mut other = frame;
            other[at] = byte;
            assert_eq!(addressee(&other), None);
        }
        for len in 0..14 + 20 {
            assert_eq!(addressee(&v4(5, 0, 6, 445)[..len]), None, "{len}");
        }
        for len in 0..arp().len() {
            assert_eq!(addressee(&arp()[..len]), None, "{len}");
        }
    }

    #[test]
    fn nothing_short_is_roce() {
        let frame = v4(5, 0, 17, 4791);
        for len in 0..14 + 20 + 4 {
            assert_eq!(roce_destination(&frame[..len]), None, "{len}");
        }
    }
}
