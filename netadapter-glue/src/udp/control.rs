//! Names and ancillary data of datagrams, as the bytes that the kernel reads and writes (ip(7), ipv6(7), udp(7), cmsg(3)).

use core::net::{IpAddr, SocketAddr};

/// The name of a socket: `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C, align(4))]
pub(super) struct Name {
    pub(super) bytes: [u8; Self::LEN_MAX],
    pub(super) len: u32,
}

impl Name {
    /// `sockaddr_in6`.
    pub(super) const LEN_MAX: usize = 28;
    const V4_LEN: usize = 16;

    /// Room for a name.
    pub(super) const fn blank() -> Self {
        Self { bytes: [0; Self::LEN_MAX], len: Self::LEN_MAX as u32 }
    }

    pub(super) fn new(ip: IpAddr, port: u16) -> Self {
        let mut name = Self::blank();
        let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        name.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        name.bytes[2..4].copy_from_slice(&port.to_be_bytes());
        match ip {
            IpAddr::V4(ip) => {
                name.bytes[4..8].copy_from_slice(&ip.octets());
                name.len = Self::V4_LEN as u32;
            }
            IpAddr::V6(ip) => name.bytes[8..24].copy_from_slice(&ip.octets()),
        }
        name
    }

    /// Address and port; `None` for a name of another family.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        let [f0, f1, p0, p1, rest @ ..] = &self.bytes;
        let ip = match i32::from(u16::from_ne_bytes([*f0, *f1])) {
            libc::AF_INET => IpAddr::from(*rest.first_chunk::<4>()?),
            libc::AF_INET6 => IpAddr::from(*rest[4..].first_chunk::<16>()?),
            _ => return None,
        };
        Some(SocketAddr::new(ip, u16::from_be_bytes([*p0, *p1])))
    }
}

/// The ancillary data of one datagram.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Control {
    pub(super) bytes: [u8; Self::LEN_MAX],
    pub(super) len: usize,
}

/// Marks, hop limit and division of a datagram.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Traits {
    /// IPv4's type of service, or IPv6's traffic class.
    pub(super) class: u8,
    pub(super) hop_limit: u8,
    /// Bytes of each packet but the last.
    pub(super) segment_len: Option<usize>,
}

impl Control {
    /// Three values.
    pub(super) const LEN_MAX: usize = 3 * space(size_of::<i32>());

    /// Room for the kernel's.
    pub(super) const fn blank() -> Self {
        Self { bytes: [0; Self::LEN_MAX], len: Self::LEN_MAX }
    }

    pub(super) fn new(traits: &Traits, v6: bool) -> Self {
        let mut control = Self { len: 0, ..Self::blank() };
        let (class, hop_limit) =
            if v6 { (IPV6_CLASS, IPV6_HOP_LIMIT) } else { (IPV4_CLASS, IPV4_HOP_LIMIT) };
        control.push(class, &i32::from(traits.class).to_ne_bytes());
        control.push(hop_limit, &i32::from(traits.hop_limit).to_ne_bytes());
        if let Some(segment_len) = traits.segment_len {
            control.push((libc::SOL_UDP, libc::UDP_SEGMENT), &(segment_len as u16).to_ne_bytes());
        }
        control
    }

    /// The traits of a received datagram, as the kernel tells them.
    pub(super) fn traits(&self) -> Traits {
        let mut traits = Traits { hop_limit: HOP_LIMIT, ..Traits::default() };
        let mut rest = self.bytes.get(..self.len).unwrap_or_default();
        while let Some((kind, value, behind)) = first_of(rest) {
            match kind {
                // One byte for IPv4, else four; the lowest counts.
                IPV4_CLASS | IPV6_CLASS => traits.class = number(value) as u8,
                IPV4_HOP_LIMIT | IPV6_HOP_LIMIT => traits.hop_limit = number(value) as u8,
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    traits.segment_len = usize::try_from(number(value)).ok();
                }
                _ => {}
            }
            rest = behind;
        }
        traits
    }

    fn push(&mut self, (level, kind): Kind, value: &[u8]) {
        let Some(room) = self.bytes.get_mut(self.len..self.len + space(value.len())) else {
            return;
        };
        let (header, rest) = room.split_at_mut(HEADER_LEN);
        let (len, kinds) = header.split_at_mut(size_of::<usize>());
        len.copy_from_slice(&(HEADER_LEN + value.len()).to_ne_bytes());
        kinds[..4].copy_from_slice(&level.to_ne_bytes());
        kinds[4..8].copy_from_slice(&kind.to_ne_bytes());
        rest[..value.len()].copy_from_slice(value);
        self.len += space(value.len());
    }
}

/// The level and the type of a value.
pub(super) type Kind = (i32, i32);

/// The first value of ancillary data, and the bytes behind it.
pub(super) fn first_of(bytes: &[u8]) -> Option<(Kind, &[u8], &[u8])> {
    let (header, _) = bytes.split_at_checked(HEADER_LEN)?;
    let (len, kinds) = header.split_at(size_of::<usize>());
    let len = usize::from_ne_bytes(len.try_into().ok()?);
    let (level, kind) = (kinds.first_chunk()?, kinds[4..].first_chunk()?);
    let value = bytes.get(HEADER_LEN..len)?;
    let behind = bytes.get(space(value.len())..).unwrap_or_default();
    Some(((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind)), value, behind))
}

fn number(value: &[u8]) -> i32 {
    let of_byte = || value.first().map_or(0, |byte| i32::from(*byte));
    value.first_chunk().map_or_else(of_byte, |bytes| i32::from_ne_bytes(*bytes))
}

/// Bytes that a value of so many takes.
const fn space(len: usize) -> usize {
    HEADER_LEN + len.next_multiple_of(size_of::<usize>())
}

/// `cmsghdr`.
const HEADER_LEN: usize = size_of::<usize>() + 8;
const IPV4_CLASS: Kind = (libc::SOL_IP, libc::IP_TOS);
const IPV6_CLASS: Kind = (libc::SOL_IPV6, libc::IPV6_TCLASS);
const IPV4_HOP_LIMIT: Kind = (libc::SOL_IP, libc::IP_TTL);
const IPV6_HOP_LIMIT: Kind = (libc::SOL_IPV6, libc::IPV6_HOPLIMIT);
/// Where the kernel tells none.
const HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for ip in ["127.0.0.2", "fd00::2"] {
            let name = Name::new(ip.parse().unwrap(), 4791);
            assert_eq!(name.address(), Some(SocketAddr::new(ip.parse().unwrap(), 4791)));
        }
        assert_eq!(Name::blank().address(), None);
    }

    proptest! {
        /// Whatever stands there ends.
        #[test]
        fn any_ancillary_data_is_read(bytes: [u8; 32], short in 0_usize..40) {
            let mut control = Control { len: short, ..Control::blank() };
            control.bytes[..32].copy_from_slice(&bytes);
            control.traits();
            control.bytes[..8].copy_from_slice(&short.to_ne_bytes());
            control.traits();
        }

        #[test]
        fn what_is_sent_can_be_read(class: u8, hop_limit: u8, v6: bool) {
            let traits = Traits { class, hop_limit, segment_len: None };
            prop_assert_eq!(Control::new(&traits, v6).traits(), traits);
        }
    }
}
