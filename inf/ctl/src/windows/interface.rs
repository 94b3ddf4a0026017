//! Interfaces and their settings, read by IP Helper and the registry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, ensure};
use windows_registry::LOCAL_MACHINE;
use windows_sys::Win32::NetworkManagement::IpHelper::{
    FreeMibTable, GetIfTable2, GetIpForwardTable2, GetIpInterfaceEntry, GetUnicastIpAddressTable,
    IF_TYPE_ETHERNET_CSMACD, MIB_IF_ROW2, MIB_IF_TABLE2, MIB_IPFORWARD_ROW2, MIB_IPFORWARD_TABLE2,
    MIB_IPINTERFACE_ROW, MIB_UNICASTIPADDRESS_ROW, MIB_UNICASTIPADDRESS_TABLE,
};
use windows_sys::Win32::NetworkManagement::Ndis::IfOperStatusUp;
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNSPEC, IpPrefixOriginManual, MIB_IPPROTO_NETMGMT, NlroManual,
    SOCKADDR_INET,
};
use windows_sys::core::GUID;

use super::narrow;
use crate::machine::{Address, IpSettings, Nic, Route, Traffic, Vnic};

/// An interface.
pub(super) struct Row {
    pub(super) guid: String,
    index: u32,
    name: String,
    ethernet: bool,
    up: bool,
    mtu: u32,
    speed_bps: u64,
    mac: [u8; 6],
    traffic: Traffic,
}

impl Row {
    fn new(row: &MIB_IF_ROW2) -> Self {
        let [a, b, c, d, e, f, ..] = row.PhysicalAddress;
        Self {
            guid: braced(&row.InterfaceGuid),
            index: row.InterfaceIndex,
            name: narrow(&row.Alias),
            // Filters and tunnels have interfaces of their own, without an address.
            ethernet: row.Type == IF_TYPE_ETHERNET_CSMACD && row.PhysicalAddressLength == 6,
            up: row.OperStatus == IfOperStatusUp,
            mtu: row.Mtu,
            speed_bps: row.TransmitLinkSpeed,
            mac: [a, b, c, d, e, f],
            traffic: Traffic {
                sent: row.OutUcastPkts + row.OutNUcastPkts,
                received_own: row.InUcastPkts,
                received_group: row.InNUcastPkts,
            },
        }
    }

    pub(super) fn into_nic(self) -> Nic {
        let Self { guid, name, ethernet, up, mtu, speed_bps, .. } = self;
        Nic { guid, name, ethernet, up, mtu, speed_bps }
    }

    pub(super) fn into_vnic(self) -> Vnic {
        let Self { guid, index, name, up, mtu, speed_bps, mac, traffic, .. } = self;
        Vnic { guid, index, name, up, mtu, speed_bps, mac, traffic }
    }
}

fn braced(guid: &GUID) -> String {
    let [a, b, c, d, e, f, g, h] = guid.data4;
    format!(
        "{{{:08X}-{:04X}-{:04X}-{a:02X}{b:02X}-{c:02X}{d:02X}{e:02X}{f:02X}{g:02X}{h:02X}}}",
        guid.data1, guid.data2, guid.data3
    )
}

/// Copies the rows of a table of IP Helper, and frees it.
macro_rules! take_rows {
    ($table:ident) => {{
        // SAFETY: the table was just given.
        let count = unsafe { (*$table).NumEntries } as usize;
        // SAFETY: as above.
        let first = unsafe { &raw const (*$table).Table }.cast();
        // SAFETY: the table has as many rows as it says.
        let rows = unsafe { std::slice::from_raw_parts(first, count) }.to_vec();
        // SAFETY: it is ours to free, and nobody holds it any more.
        unsafe { FreeMibTable($table.cast()) };
        rows
    }};
}

/// The real interfaces: a filter above one has a row of its own, with the flag of a filter.
pub(super) fn rows() -> Result<Vec<Row>> {
    let mut table: *mut MIB_IF_TABLE2 = std::ptr::null_mut();
    // SAFETY: the table is ours to free.
    let status = unsafe { GetIfTable2(&raw mut table) };
    ensure!(status == 0, "GetIfTable2: {status}");
    let rows: Vec<MIB_IF_ROW2> = take_rows!(table);
    // FilterInterface is the second bit.
    let real = rows.iter().filter(|row| row.InterfaceAndOperStatusFlags._bitfield & 2 == 0);
    Ok(real.map(Row::new).collect())
}

pub(super) fn index(guid: &str) -> Result<u32> {
    let row = rows()?.into_iter().find(|row| row.guid.eq_ignore_ascii_case(guid));
    Ok(row.with_context(|| format!("there is no interface {guid}"))?.index)
}

pub(super) fn settings(guid: &str) -> Result<IpSettings> {
    // TCP/IP may be unbound, and then the interface has none.
    let index = index(guid)?;
    let mut dns = registry(4, guid, "NameServer").map_or(Vec::new(), |list| servers(&list));
    dns.extend(registry(6, guid, "NameServer").map_or(Vec::new(), |list| servers(&list)));
    Ok(IpSettings {
        addresses: addresses(index)?,
        routes: routes(index)?,
        dns,
        suffix: registry(4, guid, "Domain").filter(|suffix| !suffix.is_empty()),
        metric_v4: metric(index, AF_INET),
        metric_v6: metric(index, AF_INET6),
    })
}

fn registry_key(version: u8, guid: &str) -> String {
    let service = if version == 4 { "Tcpip" } else { "Tcpip6" };
    format!(r"SYSTEM\CurrentControlSet\Services\{service}\Parameters\Interfaces\{guid}")
}

fn registry(version: u8, guid: &str, name: &str) -> Option<String> {
    LOCAL_MACHINE.open(registry_key(version, guid)).ok()?.get_string(name).ok()
}

pub(super) fn set_suffix(guid: &str, suffix: &str) -> Result<()> {
    let key = LOCAL_MACHINE.options().read().write().open(registry_key(4, guid))?;
    Ok(key.set_string("Domain", suffix)?)
}

/// The list that somebody set; those of DHCP have a value of their own.
fn servers(list: &str) -> Vec<IpAddr> {
    list.split([',', ' ']).filter_map(|server| server.parse().ok()).collect()
}

fn addresses(index: u32) -> Result<Vec<Address>> {
    let mut table: *mut MIB_UNICASTIPADDRESS_TABLE = std::ptr::null_mut();
    // SAFETY: the table is ours to free.
    let status = unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) };
    ensure!(status == 0, "GetUnicastIpAddressTable: {status}");
    let rows: Vec<MIB_UNICASTIPADDRESS_ROW> = take_rows!(table);
    let rows = rows.iter();
    let set = rows.filter(|r| r.InterfaceIndex == index && r.PrefixOrigin == IpPrefixOriginManual);
    Ok(set.map(|row| Address { ip: ip(&row.Address), prefix: row.OnLinkPrefixLength }).collect())
}

fn routes(index: u32) -> Result<Vec<Route>> {
    let mut table: *mut MIB_IPFORWARD_TABLE2 = std::ptr::null_mut();
    // SAFETY: the table is ours to free.
    let status = unsafe { GetIpForwardTable2(AF_UNSPEC, &raw mut table) };
    ensure!(status == 0, "GetIpForwardTable2: {status}");
    let rows: Vec<MIB_IPFORWARD_ROW2> = take_rows!(table);
    // The gateway of a DHCP server has the same protocol, and another origin.
    let set = rows.iter().filter(|row| {
        row.InterfaceIndex == index
            && row.Protocol == MIB_IPPROTO_NETMGMT
            && row.Origin == NlroManual
    });
    Ok(set
        .map(|row| Route {
            destination: ip(&row.DestinationPrefix.Prefix),
            prefix: row.DestinationPrefix.PrefixLength,
            next_hop: ip(&row.NextHop),
            metric: row.Metric,
        })
        .collect())
}

/// The metric, where somebody set it.
fn metric(index: u32, family: u16) -> Option<u32> {
    let mut row =
        MIB_IPINTERFACE_ROW { Family: family, InterfaceIndex: index, ..Default::default() };
    // SAFETY: the row names its interface.
    let status = unsafe { GetIpInterfaceEntry(&raw mut row) };
    (status == 0 && !row.UseAutomaticMetric).then_some(row.Metric)
}

fn ip(address: &SOCKADDR_INET) -> IpAddr {
    // SAFETY: the family is the first member of each variant.
    if unsafe { address.si_family } == AF_INET6 {
        // SAFETY: the family says so.
        let v6 = unsafe { address.Ipv6.sin6_addr.u.Byte };
        return IpAddr::V6(Ipv6Addr::from(v6));
    }
    // SAFETY: the family says so.
    let v4 = unsafe { address.Ipv4.sin_addr.S_un.S_addr };
    IpAddr::V4(Ipv4Addr::from(v4.to_ne_bytes()))
}
