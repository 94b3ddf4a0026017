//! The addresses that one host may have, and so the sender of a packet.

use super::{DropReason, Encap, Mac};
use core::net::IpAddr;

impl Mac {
    /// Whether this is the address of one host: neither a group's nor zero (IEEE 802.3, 3.2.3).
    pub const fn is_host(self) -> bool {
        self.0[0] & 1 == 0 && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

/// Whether an address can be that of one host on the link of `own` (RFC 1122, 3.2.1.3; RFC 4291, 2.5). A loopback address is on
/// that of another one only.
///
/// The broadcast address of a subnet looks like that of a host to one who does not know the subnet's prefix.
pub const fn is_host(address: IpAddr, own: IpAddr) -> bool {
    let of_nobody = match address {
        // This network (0.0.0.0/8), and class E with the broadcast address.
        IpAddr::V4(v4) => matches!(v4.octets()[0], 0 | 240..),
        IpAddr::V6(v6) => v6.is_unspecified(),
    };
    let apart = address.is_loopback() && !own.is_loopback();
    !(of_nobody || address.is_multicast() || apart)
}

/// Checks that a packet goes from one host to one host, as far as its addresses alone show it. RoCE of a connection and of its
/// management is unicast; a host that answered a packet to a group would be one of many (RFC 1122, 3.3.6).
pub(super) const fn check_hosts(encap: &Encap) -> Result<(), DropReason> {
    if !(encap.src_mac.is_host() && encap.dst_mac.is_host()) {
        return Err(DropReason::EthernetAddress);
    }
    if is_host(encap.src, encap.dst) { Ok(()) } else { Err(DropReason::Martian) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::example_encap;

    /// Why a packet with these addresses is dropped.
    fn dropped(src: &str, dst: &str) -> Option<DropReason> {
        let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
        check_hosts(&Encap { src, dst, ..example_encap(src.is_ipv6(), None) }).err()
    }

    #[test]
    fn a_source_is_one_host() {
        let nobody =
            ["0.0.0.0", "0.0.0.5", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"];
        for src in nobody {
            assert_eq!(dropped(src, "10.0.0.1"), Some(DropReason::Martian), "{src}");
        }
        for src in ["::", "::1", "ff02::1"] {
            assert_eq!(dropped(src, "fd00::1"), Some(DropReason::Martian), "{src}");
        }
        let hosts = [
            ("1.0.0.1", "10.0.0.1"),
            ("223.255.255.255", "10.0.0.1"),
            ("127.0.0.1", "127.0.0.2"),
            ("::1", "::1"),
            ("fe80::1", "fe80::2"),
        ];
        for (src, dst) in hosts {
            assert_eq!(dropped(src, dst), None, "{src}");
        }
    }

    #[test]
    fn both_ethernet_addresses_are_of_one_host() {
        let encap = example_encap(false, None);
        for mac in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]].map(Mac) {
            for encap in [Encap { src_mac: mac, ..encap }, Encap { dst_mac: mac, ..encap }] {
                assert_eq!(check_hosts(&encap), Err(DropReason::EthernetAddress), "{mac:?}");
            }
        }
        let other = Encap { src_mac: Mac([0, 0, 0, 0, 0, 1]), ..encap };
        assert_eq!(check_hosts(&other), Ok(()));
    }
}
