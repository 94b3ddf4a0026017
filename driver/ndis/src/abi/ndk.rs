//! The NDIS structures through which a miniport offers NDK, and their object identifiers.

use super::*;

pub type NDIS_HANDLE = PVOID;
pub type NDIS_NIC_SWITCH_ID = ULONG;
pub type NDIS_NIC_SWITCH_VPORT_ID = ULONG;

pub const NDIS_OBJECT_TYPE_DEFAULT: u8 = 0x80;
pub const NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS: u8 = 0xB2;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES: u8 = 0xB3;

pub const NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1: u8 = 1;
pub const NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_NDK_CAPABILITIES_REVISION_1: u8 = 1;
pub const NDIS_NDK_STATISTICS_INFO_REVISION_1: u8 = 1;
pub const NDIS_NDK_CONNECTIONS_REVISION_1: u8 = 1;
pub const NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1: u8 = 1;

pub const OID_NDK_SET_STATE: ULONG = 0xFC04_0201;
/// The request comes by the direct OID path.
pub const OID_NDK_STATISTICS: ULONG = 0xFC04_0202;
pub const OID_NDK_CONNECTIONS: ULONG = 0xFC04_0203;
pub const OID_NDK_LOCAL_ENDPOINTS: ULONG = 0xFC04_0204;

/// `NET_PNP_EVENT_CODE`: NDK has become available.
pub const NetEventNDKEnable: i32 = 13;
/// `NET_PNP_EVENT_CODE`: NDK goes away; pends until every adapter is closed.
pub const NetEventNDKDisable: i32 = 14;
/// Bit 0 of `*NetworkDirectGlobalFlags`: peers outside the local subnet are allowed.
pub const NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET: ULONG = 1;

pub const GUID_NDIS_NDK_CAPABILITIES: GUID = GUID {
    Data1: 0x7969_BA4D,
    Data2: 0xDD80,
    Data3: 0x4BC7,
    Data4: [0xB3, 0xE6, 0x68, 0x04, 0x39, 0x97, 0xE5, 0x19],
};
pub const GUID_NDIS_NDK_STATE: GUID = GUID {
    Data1: 0x530C_69C9,
    Data2: 0x2F51,
    Data3: 0x49DE,
    Data4: [0xA1, 0xAF, 0x08, 0x8D, 0x54, 0xFF, 0xA4, 0x74],
};

/// The beginning of most NDIS structures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct NDIS_OBJECT_HEADER {
    pub Type: u8,
    pub Revision: u8,
    pub Size: USHORT,
}
layout!(NDIS_OBJECT_HEADER, 4 { Type: 0, Revision: 1, Size: 2 });

/// The header of an NDIS structure.
#[must_use]
pub const fn header(kind: u8, revision: u8, size: usize) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: revision, Size: size as u16 }
}

/// A consumer's parameters for opening an adapter. They do not tell their size: the last two members exist
/// only for miniports of NDIS 6.50 and later.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_OPEN_NDK_ADAPTER_PARAMETERS {
    pub Version: NDK_VERSION,
    pub SwitchId: NDIS_NIC_SWITCH_ID,
    pub VPortId: NDIS_NIC_SWITCH_VPORT_ID,
}
layout!(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, 0xC { Version: 0, SwitchId: 4, VPortId: 8 });

/// Opens an adapter. PASSIVE_LEVEL, synchronous.
pub type OPEN_NDK_ADAPTER_HANDLER = unsafe extern "system" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    Parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    ppNdkAdapter: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS;

/// Closes an adapter: returns when everything under it is closed and silent. PASSIVE_LEVEL.
pub type CLOSE_NDK_ADAPTER_HANDLER =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, pNdkAdapter: *mut NDK_ADAPTER);

/// Registers the handlers of an NDK provider (`NdisSetOptionalHandlers`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_PROVIDER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub OpenNDKAdapterHandler: OPEN_NDK_ADAPTER_HANDLER,
    pub CloseNDKAdapterHandler: CLOSE_NDK_ADAPTER_HANDLER,
}
layout!(NDIS_NDK_PROVIDER_CHARACTERISTICS, 0x18 {
    Header: 0, Flags: 4, OpenNDKAdapterHandler: 8, CloseNDKAdapterHandler: 0x10,
});

/// The NDK state and limits of a miniport adapter (`NdisMSetMiniportAttributes`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Enabled: BOOLEAN,
    pub NdkCapabilities: *mut NDIS_NDK_CAPABILITIES,
}
layout!(NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, 0x10 { Header: 0, Enabled: 4, NdkCapabilities: 8 });

/// Limits over the whole adapter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub MaxQpCount: ULONG,
    pub MaxCqCount: ULONG,
    pub MaxMrCount: ULONG,
    pub MaxPdCount: ULONG,
    pub MaxInboundReadLimit: ULONG,
    pub MaxOutboundReadLimit: ULONG,
    pub MaxMwCount: ULONG,
    pub MaxSrqCount: ULONG,
    /// Bit n: counter n of [`NDIS_NDK_PERFORMANCE_COUNTERS`] is not implemented.
    pub MissingCounterMask: ULONG64,
    pub NdkInfo: *mut NDK_ADAPTER_INFO,
}
layout!(NDIS_NDK_CAPABILITIES, 0x38 {
    Header: 0, Flags: 4, MaxQpCount: 8, MaxCqCount: 0xC, MaxMrCount: 0x10, MaxPdCount: 0x14,
    MaxInboundReadLimit: 0x18, MaxOutboundReadLimit: 0x1C, MaxMwCount: 0x20, MaxSrqCount: 0x24,
    MissingCounterMask: 0x28, NdkInfo: 0x30,
});

/// Counters of RDMA traffic; a counter's index is its bit in `MissingCounterMask`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDIS_NDK_PERFORMANCE_COUNTERS {
    pub Connect: ULONG64,
    pub Accept: ULONG64,
    pub ConnectFailure: ULONG64,
    pub ConnectionError: ULONG64,
    pub ActiveConnection: ULONG64,
    /// `Reserved01` to `Reserved20`.
    pub Reserved: [ULONG64; 20],
    pub CQError: ULONG64,
    pub RDMAInOctets: ULONG64,
    pub RDMAOutOctets: ULONG64,
    pub RDMAInFrames: ULONG64,
    pub RDMAOutFrames: ULONG64,
}
layout!(NDIS_NDK_PERFORMANCE_COUNTERS, 0xF0 {
    Connect: 0, Accept: 8, ConnectFailure: 0x10, ConnectionError: 0x18, ActiveConnection: 0x20,
    Reserved: 0x28, CQError: 0xC8, RDMAInOctets: 0xD0, RDMAOutOctets: 0xD8, RDMAInFrames: 0xE0,
    RDMAOutFrames: 0xE8,
});

/// The data of [`OID_NDK_STATISTICS`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_STATISTICS_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub CounterSet: NDIS_NDK_PERFORMANCE_COUNTERS,
}
layout!(NDIS_NDK_STATISTICS_INFO, 0xF8 { Header: 0, Flags: 4, CounterSet: 8 });

/// One connection of [`NDIS_NDK_CONNECTIONS`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_CONNECTION_ENTRY {
    pub Local: SOCKADDR_INET,
    pub Remote: SOCKADDR_INET,
    pub UserModeOwner: BOOLEAN,
    pub OwnerPid: ULONG,
}
layout!(NDIS_NDK_CONNECTION_ENTRY, 0x40 {
    Local: 0, Remote: 0x1C, UserModeOwner: 0x38, OwnerPid: 0x3C,
});

/// The data of [`OID_NDK_CONNECTIONS`]; `Count` entries follow.
#[derive(Debug)]
#[repr(C)]
pub struct NDIS_NDK_CONNECTIONS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub Count: ULONG,
    /// False for RoCE, whose connections are no TCP connections.
    pub NDConnectionsMappedtoTCPConnections: BOOLEAN,
    pub Connections: [NDIS_NDK_CONNECTION_ENTRY; 0],
}
layout!(NDIS_NDK_CONNECTIONS, 0x10 {
    Header: 0, Flags: 4, Count: 8, NDConnectionsMappedtoTCPConnections: 0xC, Connections: 0x10,
});

/// One listener or shared endpoint of [`NDIS_NDK_LOCAL_ENDPOINTS`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_LOCAL_ENDPOINT_ENTRY {
    pub Local: SOCKADDR_INET,
    pub UserModeOwner: BOOLEAN,
    /// True for a listener, false for a shared endpoint.
    pub Listener: BOOLEAN,
    pub OwnerPid: ULONG,
}
layout!(NDIS_NDK_LOCAL_ENDPOINT_ENTRY, 0x24 {
    Local: 0, UserModeOwner: 0x1C, Listener: 0x1D, OwnerPid: 0x20,
});

/// The data of [`OID_NDK_LOCAL_ENDPOINTS`]; `Count` entries follow.
#[derive(Debug)]
#[repr(C)]
pub struct NDIS_NDK_LOCAL_ENDPOINTS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub Count: ULONG,
    pub NDLocalEndpointsMappedtoTCPLocalEndpoints: BOOLEAN,
    pub LocalEndpoints: [NDIS_NDK_LOCAL_ENDPOINT_ENTRY; 0],
}
layout!(NDIS_NDK_LOCAL_ENDPOINTS, 0x10 {
    Header: 0, Flags: 4, Count: 8, NDLocalEndpointsMappedtoTCPLocalEndpoints: 0xC,
    LocalEndpoints: 0x10,
});
