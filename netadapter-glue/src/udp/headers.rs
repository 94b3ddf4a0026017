//! The headers that the kernel takes off and puts on: Ethernet, IPv4 or IPv6, UDP.

use super::control::{Name, Traits};
use crate::segment::{Segments, patch};
use crate::udp::ROCE_PORT;
use core::net::{IpAddr, SocketAddr};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Bytes of the headers of frames of an address's family.
pub(super) const fn header_len(ip: IpAddr) -> usize {
    if ip.is_ipv4() { V4_LEN } else { V6_LEN }
}

/// A made-up Ethernet address, which nobody but the user of the edge ever sees.
pub(super) fn mac_of(ip: IpAddr) -> [u8; 6] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [0x02, 0, a, b, c, d]
        }
        IpAddr::V6(ip) => {
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(ip);
            let [a, b, c, d, e, ..] = hash.to_le_bytes();
            [0x06, a, b, c, d, e]
        }
    }
}

/// Destination and traits of the datagram that a frame of `own` with these headers stands for; `None` where it stands for none.
pub(super) fn read(own: IpAddr, headers: &[u8]) -> Option<(Name, Traits)> {
    let (source, destination, class, hop_limit) = match own {
        IpAddr::V4(_) => {
            let headers = headers.first_chunk::<V4_LEN>()?;
            if headers[12..15] != [0x08, 0x00, 0x45] || headers[23] != UDP {
                return None;
            }
            let [source, destination] = headers[26..34].as_chunks::<4>().0 else { return None };
            (IpAddr::from(*source), IpAddr::from(*destination), headers[15], headers[22])
        }
        IpAddr::V6(_) => {
            let headers = headers.first_chunk::<V6_LEN>()?;
            if headers[12..14] != [0x86, 0xdd] || headers[20] != UDP {
                return None;
            }
            let [source, destination] = headers[22..54].as_chunks::<16>().0 else { return None };
            let class = headers[14] << 4 | headers[15] >> 4;
            (IpAddr::from(*source), IpAddr::from(*destination), class, headers[21])
        }
    };
    let &[_, _, port_0, port_1, ..] = headers.last_chunk::<UDP_LEN>()?;
    let is_ours = source == own && u16::from_be_bytes([port_0, port_1]) == ROCE_PORT;
    let traits = Traits { class, hop_limit, segment_len: None };
    is_ours.then(|| (Name::new(destination, ROCE_PORT), traits))
}

/// The headers of the last peer's frames to us: most datagrams are of the same one.
#[derive(Debug)]
pub(super) struct Headers {
    own: IpAddr,
    from: Name,
    bytes: [u8; V6_LEN],
}

impl Headers {
    pub(super) fn new(own: IpAddr) -> Self {
        Self { own, from: Name::blank(), bytes: [0; V6_LEN] }
    }

    /// Writes the headers of a datagram of `from` into `frame`, which begins with room for them. Returns the division of the
    /// frame; `None` where there is no such frame.
    pub(super) fn put(
        &mut self,
        from: &Name,
        traits: &Traits,
        frame: &mut [u8],
    ) -> Option<Option<Segments>> {
        if self.from != *from {
            self.bytes = blank(from.address()?, self.own)?;
            self.from = *from;
        }
        let header_len = header_len(self.own);
        let (headers, payload) = frame.split_at_mut_checked(header_len)?;
        headers.copy_from_slice(&self.bytes[..header_len]);
        if self.own.is_ipv4() {
            (headers[15], headers[22]) = (traits.class, traits.hop_limit);
        } else {
            headers[14] |= traits.class >> 4;
            (headers[15], headers[21]) = (traits.class << 4, traits.hop_limit);
        }
        let segment_len = traits.segment_len.filter(|len| (1..payload.len()).contains(len));
        let first_len = segment_len.unwrap_or(payload.len());
        patch(headers, 0, first_len);
        (first_len > 0).then(|| segment_len.map(|segment_len| Segments { header_len, segment_len }))
    }
}

/// The headers of a frame without lengths, checksum, class and hop limit.
fn blank(from: SocketAddr, own: IpAddr) -> Option<[u8; V6_LEN]> {
    let mut bytes = [0; V6_LEN];
    bytes[..6].copy_from_slice(&mac_of(own));
    bytes[6..12].copy_from_slice(&mac_of(from.ip()));
    match (from.ip(), own) {
        (IpAddr::V4(from), IpAddr::V4(own)) => {
            bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
            // Don't fragment.
            bytes[20] = 0x40;
            bytes[23] = UDP;
            bytes[26..30].copy_from_slice(&from.octets());
            bytes[30..34].copy_from_slice(&own.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(own)) => {
            bytes[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            bytes[20] = UDP;
            bytes[22..38].copy_from_slice(&from.octets());
            bytes[38..54].copy_from_slice(&own.octets());
        }
        _ => return None,
    }
    let udp = header_len(own) - UDP_LEN;
    bytes[udp..udp + 2].copy_from_slice(&from.port().to_be_bytes());
    bytes[udp + 2..udp + 4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    Some(bytes)
}

const UDP: u8 = 17;
const UDP_LEN: usize = 8;
const V4_LEN: usize = 14 + 20 + UDP_LEN;
const V6_LEN: usize = 14 + 40 + UDP_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    /// The frame that stands for a datagram is one that a strict parser accepts, and that which it answers is read back.
    #[test]
    fn headers_are_those_of_a_real_frame() {
        for (own, peer) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (own, peer): (IpAddr, IpAddr) = (own.parse().unwrap(), peer.parse().unwrap());
            let mut headers = Headers::new(own);
            let mut frame = vec![7; header_len(own) + 100];
            let traits = Traits { class: 0xa3, hop_limit: 9, segment_len: Some(40) };
            let segments = headers.put(&Name::new(peer, 50_000), &traits, &mut frame).unwrap();
            let expected = Segments { header_len: header_len(own), segment_len: 40 };
            assert_eq!(segments, Some(expected));
            // The lengths are those of the first packet.
            let first = &frame[..header_len(own) + 40];
            let packet = SlicedPacket::from_ethernet(first).unwrap();
            match packet.net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    let ip = ip.header().to_header();
                    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    assert_eq!((ip.identification, ip.dont_fragment), (0, true));
                    assert_eq!((ip.dscp.value() << 2 | ip.ecn.value(), ip.time_to_live), (0xa3, 9));
                }
                NetSlice::Ipv6(ip) => {
                    assert_eq!((ip.header().traffic_class(), ip.header().hop_limit()), (0xa3, 9));
                }
                other => panic!("{other:?}"),
            }
            let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!() };
            assert_eq!((udp.source_port(), udp.destination_port()), (50_000, 4791));
            assert_eq!((udp.length(), &frame[..6]), (48, &mac_of(own)[..]));

            // Seen from the peer, it is one to send; from anybody else it is not.
            let read_back = read(peer, &frame[..header_len(own)]).unwrap();
            let traits = Traits { segment_len: None, ..traits };
            assert_eq!(read_back, (Name::new(own, 4791), traits));
            assert_eq!(read(own, &frame[..header_len(own)]), None);
        }
    }

    #[test]
    fn no_frame_stands_for_no_bytes() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let mut headers = Headers::new(own);
        let put = |headers: &mut Headers, from, len| {
            let traits = Traits { segment_len: Some(0), ..Traits::default() };
            headers.put(&Name::new(from, 1), &traits, &mut vec![0; len])
        };
        assert_eq!(put(&mut headers, own, header_len(own)), None);
        assert_eq!(put(&mut headers, own, header_len(own) + 1), Some(None));
        assert_eq!(put(&mut headers, IpAddr::from([1; 16]), 100), None, "another family");
    }
}
