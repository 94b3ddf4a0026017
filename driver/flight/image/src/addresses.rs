//! The addresses of an interface.
#![allow(unsafe_code, reason = "calls IP Helper")]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr::null_mut;

use crate::abi::imports::*;
use crate::abi::*;

/// The first address of each family that may be used; none where IP Helper does not answer. PASSIVE_LEVEL.
pub(crate) fn addresses(index: u32) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let mut table = null_mut();
    // SAFETY: the place is ours.
    if unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &mut table) }.ok().is_err() {
        return (None, None);
    }
    // SAFETY: a table of IP Helper's, until it is freed.
    let count = unsafe { (*table).NumEntries };
    // SAFETY: as above; the rows stand behind its head.
    let rows = unsafe { slice((&raw const (*table).Table).cast(), count) };
    let found = choose(index, rows);
    // SAFETY: from IP Helper; the rows are not used any more.
    unsafe { FreeMibTable(table.cast()) };
    found
}

fn choose(index: u32, rows: &[MIB_UNICASTIPADDRESS_ROW]) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let usable = |row: &&MIB_UNICASTIPADDRESS_ROW| {
        row.InterfaceIndex == index && row.DadState == IpDadStatePreferred
    };
    let rows = rows.iter().filter(usable);
    let ips = rows.filter_map(|row| row.Address.socket_addr()).map(|address| address.ip());
    let (mut v4, mut v6) = (None, None);
    for ip in ips {
        match ip {
            IpAddr::V4(ip) => v4 = v4.or(Some(ip)),
            // A link-local one names its link, too.
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {}
            IpAddr::V6(ip) => v6 = v6.or(Some(ip)),
        }
    }
    (v4, v6)
}
