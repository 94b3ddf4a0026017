//! The zones of IPv6 link-local addresses (RFC 4007), which a `SOCKADDR_IN6` names in `sin6_scope_id`.
//!
//! An adapter is on one link, so all link-local addresses that it meets are of one zone. The number of a zone is a
//! host's own name for its link: no message carries it, and the peer's host may have another one for the same link. 0 names
//! none; then the number is the adapter's ([`ProviderConfig::zone`](crate::ProviderConfig::zone)), or the one that the
//! consumer has named for the other end.

use crate::abi::{NTSTATUS, STATUS_INVALID_ADDRESS, STATUS_NETWORK_UNREACHABLE};
use core::net::{IpAddr, SocketAddr};

/// The zone that an address names; 0 if none, or if it is no address of a link. The wildcard stands for those of a link
/// too.
pub(crate) fn named(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) if has_zone(address.ip()) => v6.scope_id(),
        SocketAddr::V4(_) | SocketAddr::V6(_) => 0,
    }
}

/// The same address in a zone, if it is one of a link, or else in none.
pub(crate) fn within(mut address: SocketAddr, zone: u32) -> SocketAddr {
    let zone = if has_zone(address.ip()) { zone } else { 0 };
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(zone);
    }
    address
}

/// The zone of an address of the adapter, whose zone is `own`.
///
/// # Errors
/// `STATUS_INVALID_ADDRESS`: it names another link's.
pub(crate) fn of_local(own: u32, local: SocketAddr) -> Result<u32, NTSTATUS> {
    common(own, named(local)).ok_or(STATUS_INVALID_ADDRESS)
}

/// The zone of a connection's ends, over an adapter whose zone is `own`.
///
/// # Errors
/// `STATUS_INVALID_ADDRESS`: the local address is another link's. `STATUS_NETWORK_UNREACHABLE`: the remote one is.
pub(crate) fn of_ends(own: u32, local: SocketAddr, remote: SocketAddr) -> Result<u32, NTSTATUS> {
    common(of_local(own, local)?, named(remote)).ok_or(STATUS_NETWORK_UNREACHABLE)
}

/// The zone of two numbers for one link, of which either may be none; `None`: they are of two links.
pub(crate) const fn common(first: u32, second: u32) -> Option<u32> {
    match (first, second) {
        (0, zone) | (zone, 0) => Some(zone),
        (first, second) if first == second => Some(first),
        (_, _) => None,
    }
}

fn has_zone(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_of_a_link_alone_has_a_zone() {
        for (text, zone) in [
            ("[fe80::1%7]:1", 7),
            ("[fe80::1]:1", 0),
            ("[::%7]:1", 7),
            ("[2001:db8::1%7]:1", 0),
            ("10.0.0.1:1", 0),
        ] {
            assert_eq!(named(at(text)), zone, "{text}");
        }
        for (text, within_five) in [
            ("[fe80::1%7]:1", "[fe80::1%5]:1"),
            ("[2001:db8::1%7]:1", "[2001:db8::1]:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
        ] {
            assert_eq!(within(at(text), 5), at(within_five));
        }
    }

    #[test]
    fn two_links_have_nothing_in_common() {
        for (own, local, remote, zone) in [
            (0, 0, 0, Ok(0)),
            (0, 3, 0, Ok(3)),
            (0, 0, 3, Ok(3)),
            (3, 0, 0, Ok(3)),
            (3, 3, 3, Ok(3)),
            (0, 3, 5, Err(STATUS_NETWORK_UNREACHABLE)),
            (3, 0, 5, Err(STATUS_NETWORK_UNREACHABLE)),
            (3, 5, 3, Err(STATUS_INVALID_ADDRESS)),
            (3, 5, 5, Err(STATUS_INVALID_ADDRESS)),
        ] {
            let [local, remote] = [(1, local), (2, remote)]
                .map(|(host, zone)| within(at(&format!("[fe80::{host}]:1")), zone));
            assert_eq!(of_ends(own, local, remote), zone, "{own} {local} {remote}");
        }
    }
}
