//! IP Helper in the kernel (`netioapi.h`): addresses, routes, neighbours.

use super::*;

/// Identifies an interface until the machine starts anew.
pub type NET_IFINDEX = ULONG;

/// A local identifier of an interface that survives restarts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(transparent)]
pub struct NET_LUID {
    pub Value: u64,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_UNICASTIPADDRESS_ROW {
    pub Address: SOCKADDR_INET,
    pub InterfaceLuid: NET_LUID,
    pub InterfaceIndex: NET_IFINDEX,
    pub PrefixOrigin: i32,
    pub SuffixOrigin: i32,
    pub ValidLifetime: ULONG,
    pub PreferredLifetime: ULONG,
    pub OnLinkPrefixLength: u8,
    pub SkipAsSource: BOOLEAN,
    pub DadState: i32,
    pub ScopeId: u32,
    pub CreationTimeStamp: i64,
}
layout!(MIB_UNICASTIPADDRESS_ROW, 80 {
    InterfaceLuid: 0x20, InterfaceIndex: 0x28, PrefixOrigin: 0x2C, SuffixOrigin: 0x30,
    ValidLifetime: 0x34, OnLinkPrefixLength: 0x3C, SkipAsSource: 0x3D, DadState: 0x40,
    ScopeId: 0x44, CreationTimeStamp: 0x48,
});

/// All addresses: `NumEntries` rows follow.
#[derive(Debug)]
#[repr(C)]
pub struct MIB_UNICASTIPADDRESS_TABLE {
    pub NumEntries: ULONG,
    pub Table: [MIB_UNICASTIPADDRESS_ROW; 0],
}
layout!(MIB_UNICASTIPADDRESS_TABLE, 8 { Table: 8 });

/// Any family.
pub const AF_UNSPEC: ADDRESS_FAMILY = 0;
// `NL_DAD_STATE`: looked for in the network; usable while it expires, and by preference.
pub const IpDadStateTentative: i32 = 1;
pub const IpDadStateDeprecated: i32 = 3;
pub const IpDadStatePreferred: i32 = 4;

/// A neighbour.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_IPNET_ROW2 {
    pub Address: SOCKADDR_INET,
    pub InterfaceIndex: NET_IFINDEX,
    pub InterfaceLuid: NET_LUID,
    pub PhysicalAddress: [u8; 32],
    pub PhysicalAddressLength: ULONG,
    pub State: i32,
    /// Two bits: router, unreachable.
    pub Flags: u8,
    pub ReachabilityTime: ULONG,
}
layout!(MIB_IPNET_ROW2, 88 {
    InterfaceIndex: 0x1C, InterfaceLuid: 0x20, PhysicalAddress: 0x28, PhysicalAddressLength: 0x48,
    State: 0x4C, Flags: 0x50, ReachabilityTime: 0x54,
});
/// `NL_NEIGHBOR_STATE`: from here on the address is valid.
pub const NlnsDelay: i32 = 3;

/// A prefix.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IP_ADDRESS_PREFIX {
    pub Prefix: SOCKADDR_INET,
    pub PrefixLength: u8,
}
layout!(IP_ADDRESS_PREFIX, 0x20 { PrefixLength: 0x1C });

/// A route.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MIB_IPFORWARD_ROW2 {
    pub InterfaceLuid: NET_LUID,
    pub InterfaceIndex: NET_IFINDEX,
    pub DestinationPrefix: IP_ADDRESS_PREFIX,
    /// Unspecified where the destination is on the link.
    pub NextHop: SOCKADDR_INET,
    pub SitePrefixLength: u8,
    pub ValidLifetime: ULONG,
    pub PreferredLifetime: ULONG,
    pub Metric: ULONG,
    pub Protocol: i32,
    pub Loopback: BOOLEAN,
    pub AutoconfigureAddress: BOOLEAN,
    pub Publish: BOOLEAN,
    pub Immortal: BOOLEAN,
    pub Age: ULONG,
    pub Origin: i32,
}
layout!(MIB_IPFORWARD_ROW2, 104 {
    InterfaceIndex: 8, DestinationPrefix: 0xC, NextHop: 0x2C, SitePrefixLength: 0x48,
    ValidLifetime: 0x4C, Protocol: 0x58, Loopback: 0x5C, Age: 0x60, Origin: 0x64,
});

/// An address was added, changed or removed. IRQL PASSIVE_LEVEL.
pub type UNICAST_IPADDRESS_CHANGE_CALLBACK = unsafe extern "system" fn(
    context: PVOID,
    row: *mut MIB_UNICASTIPADDRESS_ROW,
    notification: i32,
);

/// A route was added, changed or removed. IRQL PASSIVE_LEVEL.
pub type IPFORWARD_CHANGE_CALLBACK =
    unsafe extern "system" fn(context: PVOID, row: *mut MIB_IPFORWARD_ROW2, notification: i32);

/// An interface was added, changed or removed; its row is not used here. IRQL PASSIVE_LEVEL.
pub type IPINTERFACE_CHANGE_CALLBACK =
    unsafe extern "system" fn(context: PVOID, row: PVOID, notification: i32);

/// The properties of an interface. The members behind the MTU are not used here.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct MIB_IF_ROW2 {
    pub InterfaceLuid: NET_LUID,
    pub InterfaceIndex: NET_IFINDEX,
    pub InterfaceGuid: GUID,
    pub Alias: [u16; 257],
    pub Description: [u16; 257],
    pub PhysicalAddressLength: ULONG,
    pub PhysicalAddress: [u8; 32],
    pub PermanentPhysicalAddress: [u8; 32],
    pub Mtu: ULONG,
    pub Rest: [u64; 0x1C],
}
layout!(MIB_IF_ROW2, 1352 {
    InterfaceIndex: 8, InterfaceGuid: 0xC, Alias: 0x1C, Description: 0x21E,
    PhysicalAddressLength: 0x420, PhysicalAddress: 0x424, PermanentPhysicalAddress: 0x444,
    Mtu: 0x464,
});
