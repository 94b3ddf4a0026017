//! The RDMA IP CM service: ports as service IDs, addresses as GIDs, and the header before the consumer's
//! private data in its requests (IBTA annex A11).

use super::mad::{get, set};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The header that the RDMA IP CM service puts before the consumer's data in a REQ or
/// SIDR_REQ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IpCm {
    /// The sender's port.
    pub src_port: u16,
    /// The sender's address.
    pub src: IpAddr,
    /// The receiver's address, of the same family.
    pub dst: IpAddr,
}

/// The service ID of a TCP-like port in the RDMA IP CM service.
pub const fn service_id(port: u16) -> u64 {
    IP_CM_TCP | port as u64
}

/// The port of a service ID, if it is of the RDMA IP CM service with TCP-like ports.
pub const fn service_port(service_id: u64) -> Option<u16> {
    if service_id & !0xffff == IP_CM_TCP { Some(service_id as u16) } else { None }
}

/// The GID of an address. [`gid_address`] is the way back.
pub const fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The address of a GID.
pub const fn gid_address(gid: Ipv6Addr) -> IpAddr {
    gid.to_canonical()
}

impl IpCm {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// Reads the header; `None` where the version is not 0 or the IP version neither 4 nor 6.
    pub fn parse(header: &[u8; Self::LEN]) -> Option<Self> {
        let [version, ip_version] = get::<0, _, _>(header);
        let (src, dst) = (get::<4, 16, _>(header), get::<20, 16, _>(header));
        let (src, dst) = match (version, ip_version >> 4) {
            (0, 4) => {
                let (src, dst): ([u8; 4], [u8; 4]) = (get::<12, _, _>(&src), get::<12, _, _>(&dst));
                (IpAddr::V4(Ipv4Addr::from(src)), IpAddr::V4(Ipv4Addr::from(dst)))
            }
            (0, 6) => (IpAddr::V6(Ipv6Addr::from(src)), IpAddr::V6(Ipv6Addr::from(dst))),
            _ => return None,
        };
        Some(Self { src_port: u16::from_be_bytes(get::<2, _, _>(header)), src, dst })
    }

    /// The header as bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut header = [0; Self::LEN];
        let ip_version = if self.src.is_ipv4() { 0x40 } else { 0x60 };
        set::<1, _, _>(&mut header, [ip_version]);
        set::<2, _, _>(&mut header, self.src_port.to_be_bytes());
        set::<4, _, _>(&mut header, ip_cm_address(self.src));
        set::<20, _, _>(&mut header, ip_cm_address(self.dst));
        header
    }
}

/// Where a GID maps an IPv4 address, this header leaves zeros before it.
fn ip_cm_address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut field = [0; 16];
            set::<12, _, _>(&mut field, address.octets());
            field
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Service IDs of the RDMA IP CM service with the TCP port space.
const IP_CM_TCP: u64 = 0x0106_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ip_cm_parse_inverts_emit(src_port: u16, v6: bool, src: u128, dst: u128) {
            let address = |bits: u128| match v6 {
                true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
                false => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            };
            let ip_cm = IpCm { src_port, src: address(src), dst: address(dst) };
            prop_assert_eq!(IpCm::parse(&ip_cm.emit()), Some(ip_cm));
        }
    }

    #[test]
    fn service_ids() {
        assert_eq!(service_id(445), 0x0000_0000_0106_01bd);
        assert_eq!(service_port(service_id(u16::MAX)), Some(u16::MAX));
        // UDP port space; a bit beyond the service's prefix.
        assert_eq!(service_port(0x0111_01bd), None);
        assert_eq!(service_port(0x0001_0000_0106_01bd), None);
    }

    #[test]
    fn an_ip_cm_header_of_another_version() {
        let mut header = IpCm {
            src_port: 1,
            src: IpAddr::V4(Ipv4Addr::LOCALHOST),
            dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
        .emit();
        header[0] = 0x10;
        assert_eq!(IpCm::parse(&header), None);
        header[..2].copy_from_slice(&[0, 0x50]);
        assert_eq!(IpCm::parse(&header), None);
    }
}
