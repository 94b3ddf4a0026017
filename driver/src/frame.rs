//! Which received frames are whose: RoCE is the provider's, the rest TCP/IP's.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use netadapter_glue::ndis::chain::Tag;

/// Bytes from which [`roce_destination`] can tell any frame: one tag, the longest IPv4 header, UDP.
pub(crate) const PEEK_LEN: usize = 14 + 4 + 60 + 8;
/// The UDP port of RoCEv2 (annex A17).
const ROCE_PORT: u16 = 4791;
const UDP: u8 = 17;

/// Where a RoCEv2 frame goes; `None` for every other frame. `bytes` is its beginning.
pub(crate) fn roce_destination(bytes: &[u8]) -> Option<IpAddr> {
    let (_macs, rest) = bytes.split_at_checked(12)?;
    let (ether_type, rest) = ether_type(rest)?;
    match ether_type {
        0x0800 => ipv4(rest),
        0x86dd => ipv6(rest),
        _ => None,
    }
}

/// Behind one VLAN tag, if there is one.
fn ether_type(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (value, rest) = number(bytes)?;
    if value != 0x8100 {
        return Some((value, rest));
    }
    number(rest.get(2..)?)
}

fn ipv4(bytes: &[u8]) -> Option<IpAddr> {
    let header = bytes.first_chunk::<20>()?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    // A fragment is nothing that RoCE makes; only TCP/IP can put it together.
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

fn is_roce(udp: &[u8]) -> bool {
    udp.get(2..).and_then(number).is_some_and(|(port, _)| port == ROCE_PORT)
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (value, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*value), rest))
}

/// How an adapter treats the tags of IEEE 802.1Q that travel beside its frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tagging {
    /// Priorities are honoured.
    pub(crate) priority: bool,
    /// VLANs are honoured.
    pub(crate) vlan: bool,
    /// The VLAN that the adapter lives in, unseen by whoever is above it; 0: all of them.
    pub(crate) own: u16,
}

impl Tagging {
    /// The values of `*PriorityVLANTag`, 0 to 3, and of `VlanId`.
    pub(crate) const fn new(keyword: u32, own: u32) -> Self {
        let vlan = keyword & 2 != 0;
        Self { priority: keyword & 1 != 0, vlan, own: if vlan { own as u16 & VLAN } else { 0 } }
    }

    /// The tag to send with, from the one that the sender gave.
    pub(crate) fn outgoing(self, tag: Option<Tag>) -> Option<Tag> {
        let tci = tag.map_or(0, Tag::tci);
        let vlan = match tci & VLAN {
            _ if !self.vlan => 0,
            0 => self.own,
            vlan => vlan,
        };
        nonzero(self.priority_of(tci) | vlan)
    }

    /// The tag to show of a received one; an error: the frame belongs to another VLAN.
    pub(crate) fn incoming(self, tag: Option<Tag>) -> Result<Option<Tag>, OtherVlan> {
        let tci = tag.map_or(0, Tag::tci);
        let vlan = match tci & VLAN {
            0 if self.own == 0 => 0,
            vlan if self.own != 0 && vlan == self.own => 0,
            vlan if self.own == 0 && self.vlan => vlan,
            _ => return Err(OtherVlan),
        };
        Ok(nonzero(self.priority_of(tci) | vlan))
    }

    const fn priority_of(self, tci: u16) -> u16 {
        if self.priority { tci & !VLAN } else { 0 }
    }
}

fn nonzero(tci: u16) -> Option<Tag> {
    (tci != 0).then(|| Tag::from_tci(tci))
}

/// A frame is not of the adapter's VLAN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OtherVlan;

/// The VLAN in the control information of a tag.
const VLAN: u16 = 0xfff;

/// Whom a frame is sent to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    pub(crate) const fn of(destination: [u8; 6]) -> Self {
        match destination {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Self::Broadcast,
            [first, ..] if first & 1 != 0 => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

/// The address that a frame is sent to.
pub(crate) fn destination(bytes: &[u8]) -> Option<[u8; 6]> {
    bytes.first_chunk().copied()
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

    #[test]
    fn nothing_short_is_roce() {
        let frame = v4(5, 0, 17, 4791);
        for len in 0..14 + 20 + 4 {
            assert_eq!(roce_destination(&frame[..len]), None, "{len}");
        }
    }

    #[test]
    fn tags_are_honoured_as_the_keyword_says() {
        let tag = |tci: u16| (tci != 0).then(|| Tag::from_tci(tci));
        let sent = |keyword, own, tci| Tagging::new(keyword, own).outgoing(tag(tci));
        let shown = |keyword, own, tci| Tagging::new(keyword, own).incoming(tag(tci));
        const BOTH: u16 = 0x6007;
        for (keyword, tci) in [(0, 0), (1, 0x6000), (2, 7), (3, BOTH)] {
            assert_eq!(sent(keyword, 0, BOTH), tag(tci), "keyword {keyword}");
        }
        for (keyword, tci) in [(2, Ok(tag(7))), (3, Ok(tag(BOTH)))] {
            assert_eq!(shown(keyword, 0, BOTH), tci, "keyword {keyword}");
        }
        // Who knows no VLANs gets no frame of one, but priorities of the untagged.
        assert_eq!([shown(0, 0, BOTH), shown(1, 0, BOTH)], [Err(OtherVlan); 2]);
        assert_eq!([shown(0, 0, 0x6000), shown(1, 0, 0x6000)], [Ok(None), Ok(tag(0x6000))]);
    }

    #[test]
    fn an_adapter_lives_in_its_vlan_without_knowing() {
        let own = Tagging::new(3, 7);
        let tag = |tci: u16| Some(Tag::from_tci(tci));
        assert_eq!(own.outgoing(None), tag(7));
        assert_eq!(own.outgoing(tag(0x6000)), tag(0x6007));
        assert_eq!(own.outgoing(tag(9)), tag(9));
        assert_eq!(own.incoming(tag(0x6007)), Ok(tag(0x6000)));
        assert_eq!(own.incoming(tag(7)), Ok(None));
        assert_eq!([own.incoming(None), own.incoming(tag(9))], [Err(OtherVlan); 2]);
        assert_eq!(Tagging::new(1, 7).outgoing(None), None, "VLANs are off");
    }

    #[test]
    fn casts() {
        assert_eq!(Cast::of([0xff; 6]), Cast::Broadcast);
        assert_eq!(Cast::of([0x01, 0, 0x5e, 0, 0, 1]), Cast::Multicast);
        assert_eq!(Cast::of([2, 0, 0, 0, 0, 1]), Cast::Unicast);
    }
}
