//! The NDIS 6 structures of a miniport and of a protocol. x64 sizes.

use super::*;
use core::ffi::c_void;

pub const NDIS_OBJECT_TYPE_BIND_PARAMETERS: u8 = 0x86;
pub const NDIS_OBJECT_TYPE_OPEN_PARAMETERS: u8 = 0x87;
pub const NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS: u8 = 0x8A;
pub const NDIS_OBJECT_TYPE_PROTOCOL_DRIVER_CHARACTERISTICS: u8 = 0x95;
pub const NDIS_OBJECT_TYPE_OID_REQUEST: u8 = 0x96;
pub const NDIS_OBJECT_TYPE_STATUS_INDICATION: u8 = 0x98;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES: u8 = 0x9E;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES: u8 = 0x9F;
pub const NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT: u8 = 0xA9;

/// `NDIS_STATUS` of an operation that completes later.
pub const NDIS_STATUS_PENDING: NDIS_STATUS = STATUS_PENDING;
/// Same number as `STATUS_NOT_SUPPORTED`.
pub const NDIS_STATUS_NOT_SUPPORTED: NDIS_STATUS = STATUS_NOT_SUPPORTED;
/// Same number as `STATUS_UNSUCCESSFUL`.
pub const NDIS_STATUS_FAILURE: NDIS_STATUS = NTSTATUS(0xC000_0001_u32.cast_signed());
pub const NDIS_STATUS_INVALID_LENGTH: NDIS_STATUS = NTSTATUS(0xC001_0014_u32.cast_signed());
pub const NDIS_STATUS_INVALID_DATA: NDIS_STATUS = NTSTATUS(0xC001_0015_u32.cast_signed());
pub const NDIS_STATUS_BUFFER_TOO_SHORT: NDIS_STATUS = NTSTATUS(0xC001_0016_u32.cast_signed());
pub const NDIS_STATUS_ADAPTER_NOT_FOUND: NDIS_STATUS = NTSTATUS(0xC001_0006_u32.cast_signed());
pub const NDIS_STATUS_PAUSED: NDIS_STATUS = NTSTATUS(0xC023_002A_u32.cast_signed());
pub const NDIS_STATUS_MEDIA_DISCONNECTED: NDIS_STATUS = NTSTATUS(0xC023_001F_u32.cast_signed());
pub const NDIS_STATUS_MULTICAST_FULL: NDIS_STATUS = NTSTATUS(0xC001_0009_u32.cast_signed());

/// The status code of a link state indication.
pub const NDIS_STATUS_LINK_STATE: u32 = 0x4001_0017;

pub type NDIS_OID = ULONG;
pub type NDIS_PORT_NUMBER = ULONG;

// ---- miniport ---------------------------------------------------------------------------------

pub type MINIPORT_SET_OPTIONS =
    unsafe extern "system" fn(driver: NDIS_HANDLE, context: NDIS_HANDLE) -> NDIS_STATUS;
pub type MINIPORT_INITIALIZE = unsafe extern "system" fn(
    adapter: NDIS_HANDLE,
    driver_context: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS;
pub type MINIPORT_HALT = unsafe extern "system" fn(context: NDIS_HANDLE, action: i32);
pub type MINIPORT_DRIVER_UNLOAD = unsafe extern "system" fn(driver: *mut DRIVER_OBJECT);
pub type MINIPORT_PAUSE =
    unsafe extern "system" fn(context: NDIS_HANDLE, parameters: PVOID) -> NDIS_STATUS;
pub type MINIPORT_RESTART =
    unsafe extern "system" fn(context: NDIS_HANDLE, parameters: PVOID) -> NDIS_STATUS;
pub type MINIPORT_OID_REQUEST =
    unsafe extern "system" fn(context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS;
pub type MINIPORT_SEND_NET_BUFFER_LISTS = unsafe extern "system" fn(
    context: NDIS_HANDLE,
    lists: *mut NET_BUFFER_LIST,
    port: NDIS_PORT_NUMBER,
    flags: ULONG,
);
pub type MINIPORT_RETURN_NET_BUFFER_LISTS =
    unsafe extern "system" fn(context: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, flags: ULONG);
pub type MINIPORT_CANCEL_SEND = unsafe extern "system" fn(context: NDIS_HANDLE, id: PVOID);
pub type MINIPORT_DEVICE_PNP_EVENT_NOTIFY =
    unsafe extern "system" fn(context: NDIS_HANDLE, event: *mut c_void);
pub type MINIPORT_SHUTDOWN = unsafe extern "system" fn(context: NDIS_HANDLE, action: i32);
pub type MINIPORT_CANCEL_OID_REQUEST =
    unsafe extern "system" fn(context: NDIS_HANDLE, request_id: PVOID);

/// The handlers of a miniport driver (`NdisMRegisterMiniportDriver`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub MajorNdisVersion: u8,
    pub MinorNdisVersion: u8,
    pub MajorDriverVersion: u8,
    pub MinorDriverVersion: u8,
    pub Flags: ULONG,
    pub SetOptionsHandler: Option<MINIPORT_SET_OPTIONS>,
    pub InitializeHandlerEx: Option<MINIPORT_INITIALIZE>,
    pub HaltHandlerEx: Option<MINIPORT_HALT>,
    pub UnloadHandler: Option<MINIPORT_DRIVER_UNLOAD>,
    pub PauseHandler: Option<MINIPORT_PAUSE>,
    pub RestartHandler: Option<MINIPORT_RESTART>,
    pub OidRequestHandler: Option<MINIPORT_OID_REQUEST>,
    pub SendNetBufferListsHandler: Option<MINIPORT_SEND_NET_BUFFER_LISTS>,
    pub ReturnNetBufferListsHandler: Option<MINIPORT_RETURN_NET_BUFFER_LISTS>,
    pub CancelSendHandler: Option<MINIPORT_CANCEL_SEND>,
    pub CheckForHangHandlerEx: PVOID,
    pub ResetHandlerEx: PVOID,
    pub DevicePnPEventNotifyHandler: Option<MINIPORT_DEVICE_PNP_EVENT_NOTIFY>,
    pub ShutdownHandlerEx: Option<MINIPORT_SHUTDOWN>,
    pub CancelOidRequestHandler: Option<MINIPORT_CANCEL_OID_REQUEST>,
    pub DirectOidRequestHandler: Option<MINIPORT_OID_REQUEST>,
    pub CancelDirectOidRequestHandler: Option<MINIPORT_CANCEL_OID_REQUEST>,
    /// Revision 3.
    pub SynchronousOidRequestHandler: Option<MINIPORT_OID_REQUEST>,
}
layout!(NDIS_MINIPORT_DRIVER_CHARACTERISTICS, 160 {
    MajorNdisVersion: 4, Flags: 8, SetOptionsHandler: 0x10, UnloadHandler: 0x28,
    OidRequestHandler: 0x40, CheckForHangHandlerEx: 0x60, ShutdownHandlerEx: 0x78,
    CancelOidRequestHandler: 0x80, DirectOidRequestHandler: 0x88,
    CancelDirectOidRequestHandler: 0x90, SynchronousOidRequestHandler: 0x98,
});
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2: usize = 152;
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3: usize = 160;

/// The parameters of a miniport's new adapter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_INIT_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub AllocatedResources: PVOID,
    pub IMDeviceInstanceContext: NDIS_HANDLE,
    pub MiniportAddDeviceContext: NDIS_HANDLE,
    pub IfIndex: NET_IFINDEX,
    pub NetLuid: NET_LUID,
    pub DefaultPortAuthStates: PVOID,
    pub PciDeviceCustomProperties: PVOID,
}
layout!(NDIS_MINIPORT_INIT_PARAMETERS, 0x40 {
    Flags: 4, AllocatedResources: 8, MiniportAddDeviceContext: 0x18, IfIndex: 0x20, NetLuid: 0x28,
    DefaultPortAuthStates: 0x30,
});

/// First attributes: the adapter's registration.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub MiniportAdapterContext: NDIS_HANDLE,
    pub AttributeFlags: ULONG,
    pub CheckForHangTimeInSeconds: u32,
    pub InterfaceType: i32,
}
layout!(NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, 0x20 {
    MiniportAdapterContext: 8, AttributeFlags: 0x10, InterfaceType: 0x18,
});
/// Through `InterfaceType`, without the padding behind it.
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1: usize = 28;
pub const NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM: ULONG = 0x0000_0002;
pub const NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK: ULONG = 0x0000_0004;
pub const NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND: ULONG = 0x0000_0020;
/// `NDIS_INTERFACE_TYPE`: no bus (`NdisInterfaceInternal`).
pub const NdisInterfaceInternal: i32 = 0;

/// Bytes of an address in NDIS structures; Ethernet uses six.
pub const NDIS_MAX_PHYS_ADDRESS_LENGTH: usize = 32;

/// Second attributes: an Ethernet adapter's properties.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub MediaType: i32,
    pub PhysicalMediumType: i32,
    pub MtuSize: ULONG,
    pub MaxXmitLinkSpeed: u64,
    pub XmitLinkSpeed: u64,
    pub MaxRcvLinkSpeed: u64,
    pub RcvLinkSpeed: u64,
    pub MediaConnectState: i32,
    pub MediaDuplexState: i32,
    pub LookaheadSize: ULONG,
    pub PowerManagementCapabilities: PVOID,
    pub MacOptions: ULONG,
    pub SupportedPacketFilters: ULONG,
    pub MaxMulticastListSize: ULONG,
    pub MacAddressLength: USHORT,
    pub PermanentMacAddress: [u8; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    pub CurrentMacAddress: [u8; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    pub RecvScaleCapabilities: PVOID,
    pub AccessType: i32,
    pub DirectionType: i32,
    pub ConnectionType: i32,
    pub IfType: USHORT,
    pub IfConnectorPresent: BOOLEAN,
    pub SupportedStatistics: ULONG,
    pub SupportedPauseFunctions: ULONG,
    pub DataBackFillSize: ULONG,
    pub ContextBackFillSize: ULONG,
    pub SupportedOidList: *mut NDIS_OID,
    /// In bytes.
    pub SupportedOidListLength: ULONG,
    pub AutoNegotiationFlags: ULONG,
    pub PowerManagementCapabilitiesEx: PVOID,
}
layout!(NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, 224 {
    MediaType: 8, MtuSize: 0x10, MaxXmitLinkSpeed: 0x18, MediaConnectState: 0x38,
    LookaheadSize: 0x40, PowerManagementCapabilities: 0x48, MacOptions: 0x50,
    MacAddressLength: 0x5C, PermanentMacAddress: 0x5E, CurrentMacAddress: 0x7E,
    RecvScaleCapabilities: 0xA0, AccessType: 0xA8, IfType: 0xB4, IfConnectorPresent: 0xB6,
    SupportedStatistics: 0xB8, DataBackFillSize: 0xC0, SupportedOidList: 0xC8,
    SupportedOidListLength: 0xD0, PowerManagementCapabilitiesEx: 0xD8,
});

/// `NDIS_MEDIUM`: Ethernet.
pub const NdisMedium802_3: i32 = 0;
/// `NDIS_PHYSICAL_MEDIUM`: Ethernet.
pub const NdisPhysicalMedium802_3: i32 = 14;
pub const MediaConnectStateConnected: i32 = 1;
pub const MediaConnectStateDisconnected: i32 = 2;
pub const MediaDuplexStateFull: i32 = 2;
pub const NET_IF_ACCESS_BROADCAST: i32 = 2;
pub const NET_IF_DIRECTION_SENDRECEIVE: i32 = 0;
pub const NET_IF_CONNECTION_DEDICATED: i32 = 1;
pub const IF_TYPE_ETHERNET_CSMACD: USHORT = 6;
pub const NDIS_LINK_SPEED_UNKNOWN: u64 = u64::MAX;
pub const NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA: ULONG = 0x01;
pub const NDIS_MAC_OPTION_TRANSFERS_NOT_PEND: ULONG = 0x04;
pub const NDIS_MAC_OPTION_NO_LOOPBACK: ULONG = 0x08;
pub const NDIS_MAC_OPTION_8021P_PRIORITY: ULONG = 0x40;
pub const NDIS_MAC_OPTION_8021Q_VLAN: ULONG = 0x200;

// Packet filters.
pub const NDIS_PACKET_TYPE_DIRECTED: ULONG = 0x01;
pub const NDIS_PACKET_TYPE_MULTICAST: ULONG = 0x02;
pub const NDIS_PACKET_TYPE_ALL_MULTICAST: ULONG = 0x04;
pub const NDIS_PACKET_TYPE_BROADCAST: ULONG = 0x08;
pub const NDIS_PACKET_TYPE_PROMISCUOUS: ULONG = 0x20;
/// Not what this host sends.
pub const NDIS_PACKET_TYPE_NO_LOCAL: ULONG = 0x1_0000;

// ---- statistics -------------------------------------------------------------------------------

/// The data of `OID_GEN_STATISTICS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_STATISTICS_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub SupportedStatistics: ULONG,
    pub ifInDiscards: u64,
    pub ifInErrors: u64,
    pub ifHCInOctets: u64,
    pub ifHCInUcastPkts: u64,
    pub ifHCInMulticastPkts: u64,
    pub ifHCInBroadcastPkts: u64,
    pub ifHCOutOctets: u64,
    pub ifHCOutUcastPkts: u64,
    pub ifHCOutMulticastPkts: u64,
    pub ifHCOutBroadcastPkts: u64,
    pub ifOutErrors: u64,
    pub ifOutDiscards: u64,
    pub ifHCInUcastOctets: u64,
    pub ifHCInMulticastOctets: u64,
    pub ifHCInBroadcastOctets: u64,
    pub ifHCOutUcastOctets: u64,
    pub ifHCOutMulticastOctets: u64,
    pub ifHCOutBroadcastOctets: u64,
}
layout!(NDIS_STATISTICS_INFO, 0x98 {
    SupportedStatistics: 4, ifInDiscards: 8, ifHCInOctets: 0x18, ifHCOutOctets: 0x38,
    ifHCOutBroadcastOctets: 0x90,
});
// `NDIS_STATISTICS_FLAGS_VALID_*`.
pub const NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV: ULONG = 0x0000_0001;
pub const NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV: ULONG = 0x0000_0002;
pub const NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV: ULONG = 0x0000_0004;
pub const NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV: ULONG = 0x0000_0008;
pub const NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS: ULONG = 0x0000_0010;
pub const NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR: ULONG = 0x0000_0020;
pub const NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT: ULONG = 0x0000_0040;
pub const NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT: ULONG = 0x0000_0080;
pub const NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT: ULONG = 0x0000_0100;
pub const NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT: ULONG = 0x0000_0200;
pub const NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR: ULONG = 0x0000_0400;
pub const NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS: ULONG = 0x0000_8000;

// ---- object identifiers -----------------------------------------------------------------------

pub const OID_GEN_SUPPORTED_LIST: NDIS_OID = 0x0001_0101;
pub const OID_GEN_HARDWARE_STATUS: NDIS_OID = 0x0001_0102;
pub const OID_GEN_TRANSMIT_BUFFER_SPACE: NDIS_OID = 0x0001_0108;
pub const OID_GEN_RECEIVE_BUFFER_SPACE: NDIS_OID = 0x0001_0109;
pub const OID_GEN_TRANSMIT_BLOCK_SIZE: NDIS_OID = 0x0001_010A;
pub const OID_GEN_RECEIVE_BLOCK_SIZE: NDIS_OID = 0x0001_010B;
pub const OID_GEN_VENDOR_ID: NDIS_OID = 0x0001_010C;
pub const OID_GEN_VENDOR_DESCRIPTION: NDIS_OID = 0x0001_010D;
pub const OID_GEN_CURRENT_PACKET_FILTER: NDIS_OID = 0x0001_010E;
pub const OID_GEN_CURRENT_LOOKAHEAD: NDIS_OID = 0x0001_010F;
pub const OID_GEN_DRIVER_VERSION: NDIS_OID = 0x0001_0110;
pub const OID_GEN_MAXIMUM_TOTAL_SIZE: NDIS_OID = 0x0001_0111;
pub const OID_GEN_VENDOR_DRIVER_VERSION: NDIS_OID = 0x0001_0116;
pub const OID_GEN_VLAN_ID: NDIS_OID = 0x0001_021C;
pub const OID_GEN_STATISTICS: NDIS_OID = 0x0002_0106;
pub const OID_GEN_XMIT_OK: NDIS_OID = 0x0002_0101;
pub const OID_GEN_RCV_OK: NDIS_OID = 0x0002_0102;
pub const OID_GEN_XMIT_ERROR: NDIS_OID = 0x0002_0103;
pub const OID_GEN_RCV_ERROR: NDIS_OID = 0x0002_0104;
pub const OID_GEN_RCV_NO_BUFFER: NDIS_OID = 0x0002_0105;
pub const OID_GEN_INTERRUPT_MODERATION: NDIS_OID = 0x0001_0209;
pub const OID_GEN_LINK_PARAMETERS: NDIS_OID = 0x0001_0208;
pub const OID_802_3_PERMANENT_ADDRESS: NDIS_OID = 0x0101_0101;
pub const OID_802_3_CURRENT_ADDRESS: NDIS_OID = 0x0101_0102;
pub const OID_802_3_MULTICAST_LIST: NDIS_OID = 0x0101_0103;
pub const OID_802_3_MAXIMUM_LIST_SIZE: NDIS_OID = 0x0101_0104;
pub const OID_802_3_RCV_ERROR_ALIGNMENT: NDIS_OID = 0x0102_0101;
pub const OID_802_3_XMIT_ONE_COLLISION: NDIS_OID = 0x0102_0102;
pub const OID_802_3_XMIT_MORE_COLLISIONS: NDIS_OID = 0x0102_0103;
pub const OID_PNP_SET_POWER: NDIS_OID = 0xFD01_0101;
pub const OID_PNP_QUERY_POWER: NDIS_OID = 0xFD01_0102;
pub const OID_TCP_OFFLOAD_PARAMETERS: NDIS_OID = 0xFC01_020C;

/// `NDIS_REQUEST_TYPE`.
pub const NdisRequestQueryInformation: i32 = 0;
pub const NdisRequestSetInformation: i32 = 1;
pub const NdisRequestQueryStatistics: i32 = 2;
pub const NdisRequestMethod: i32 = 12;

/// A request to a miniport, or from a protocol. The data of queries and sets have one layout; that
/// of methods begins alike.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_OID_REQUEST {
    pub Header: NDIS_OBJECT_HEADER,
    pub RequestType: i32,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub Timeout: u32,
    pub RequestId: PVOID,
    pub RequestHandle: NDIS_HANDLE,
    pub Oid: NDIS_OID,
    pub InformationBuffer: PVOID,
    pub InformationBufferLength: u32,
    /// `BytesRead` of a set; `OutputBufferLength` of a method.
    pub BytesWritten: u32,
    /// `MethodId` of a method.
    pub BytesNeeded: u32,
    /// The rest of a method's data: bytes written, read, needed.
    pub MethodTail: [u32; 3],
    pub NdisReserved: [u8; 0x80],
    pub MiniportReserved: [u8; 0x10],
    pub SourceReserved: [u8; 0x10],
    pub SupportedRevision: u8,
    pub Reserved1: u8,
    pub Reserved2: USHORT,
    pub SwitchId: ULONG,
    pub VPortId: ULONG,
    pub Flags: ULONG,
}
layout!(NDIS_OID_REQUEST, 0xF8 {
    RequestType: 4, PortNumber: 8, Timeout: 0xC, RequestId: 0x10, RequestHandle: 0x18, Oid: 0x20,
    InformationBuffer: 0x28, InformationBufferLength: 0x30, BytesWritten: 0x34, BytesNeeded: 0x38,
    NdisReserved: 0x48, MiniportReserved: 0xC8, SourceReserved: 0xD8, SupportedRevision: 0xE8,
    SwitchId: 0xEC,
});
/// Through `Reserved2`.
pub const NDIS_SIZEOF_OID_REQUEST_REVISION_1: usize = 0xEC;

// ---- protocol ---------------------------------------------------------------------------------

pub type PROTOCOL_BIND_ADAPTER_EX = unsafe extern "system" fn(
    driver_context: NDIS_HANDLE,
    bind_context: NDIS_HANDLE,
    parameters: *mut NDIS_BIND_PARAMETERS,
) -> NDIS_STATUS;
pub type PROTOCOL_UNBIND_ADAPTER_EX =
    unsafe extern "system" fn(unbind_context: NDIS_HANDLE, binding: NDIS_HANDLE) -> NDIS_STATUS;
pub type PROTOCOL_OPEN_ADAPTER_COMPLETE_EX =
    unsafe extern "system" fn(binding: NDIS_HANDLE, status: NDIS_STATUS);
pub type PROTOCOL_CLOSE_ADAPTER_COMPLETE_EX = unsafe extern "system" fn(binding: NDIS_HANDLE);
pub type PROTOCOL_NET_PNP_EVENT = unsafe extern "system" fn(
    binding: NDIS_HANDLE,
    event: *mut NET_PNP_EVENT_NOTIFICATION,
) -> NDIS_STATUS;
pub type PROTOCOL_OID_REQUEST_COMPLETE = unsafe extern "system" fn(
    binding: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
);
pub type PROTOCOL_STATUS_EX =
    unsafe extern "system" fn(binding: NDIS_HANDLE, indication: *mut NDIS_STATUS_INDICATION);
pub type PROTOCOL_RECEIVE_NET_BUFFER_LISTS = unsafe extern "system" fn(
    binding: NDIS_HANDLE,
    lists: *mut NET_BUFFER_LIST,
    port: NDIS_PORT_NUMBER,
    count: ULONG,
    flags: ULONG,
);
pub type PROTOCOL_SEND_NET_BUFFER_LISTS_COMPLETE =
    unsafe extern "system" fn(binding: NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, flags: ULONG);

/// The handlers of a protocol driver (`NdisRegisterProtocolDriver`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_PROTOCOL_DRIVER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub MajorNdisVersion: u8,
    pub MinorNdisVersion: u8,
    pub MajorDriverVersion: u8,
    pub MinorDriverVersion: u8,
    pub Flags: ULONG,
    pub Name: UNICODE_STRING,
    pub SetOptionsHandler: Option<MINIPORT_SET_OPTIONS>,
    pub BindAdapterHandlerEx: Option<PROTOCOL_BIND_ADAPTER_EX>,
    pub UnbindAdapterHandlerEx: Option<PROTOCOL_UNBIND_ADAPTER_EX>,
    pub OpenAdapterCompleteHandlerEx: Option<PROTOCOL_OPEN_ADAPTER_COMPLETE_EX>,
    pub CloseAdapterCompleteHandlerEx: Option<PROTOCOL_CLOSE_ADAPTER_COMPLETE_EX>,
    pub NetPnPEventHandler: Option<PROTOCOL_NET_PNP_EVENT>,
    pub UninstallHandler: PVOID,
    pub OidRequestCompleteHandler: Option<PROTOCOL_OID_REQUEST_COMPLETE>,
    pub StatusHandlerEx: Option<PROTOCOL_STATUS_EX>,
    pub ReceiveNetBufferListsHandler: Option<PROTOCOL_RECEIVE_NET_BUFFER_LISTS>,
    pub SendNetBufferListsCompleteHandler: Option<PROTOCOL_SEND_NET_BUFFER_LISTS_COMPLETE>,
    /// Revision 2.
    pub DirectOidRequestCompleteHandler: Option<PROTOCOL_OID_REQUEST_COMPLETE>,
}
layout!(NDIS_PROTOCOL_DRIVER_CHARACTERISTICS, 128 {
    MajorNdisVersion: 4, Flags: 8, Name: 0x10, SetOptionsHandler: 0x20,
    BindAdapterHandlerEx: 0x28, UnbindAdapterHandlerEx: 0x30, NetPnPEventHandler: 0x48,
    OidRequestCompleteHandler: 0x58, StatusHandlerEx: 0x60, ReceiveNetBufferListsHandler: 0x68,
    SendNetBufferListsCompleteHandler: 0x70, DirectOidRequestCompleteHandler: 0x78,
});

/// The parameters of an adapter that may be bound. Later revisions have more members.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_BIND_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub ProtocolSection: *mut UNICODE_STRING,
    pub AdapterName: *mut UNICODE_STRING,
    pub PhysicalDeviceObject: PVOID,
    pub MediaType: i32,
    pub MtuSize: ULONG,
    pub MaxXmitLinkSpeed: u64,
    pub XmitLinkSpeed: u64,
    pub MaxRcvLinkSpeed: u64,
    pub RcvLinkSpeed: u64,
    pub MediaConnectState: i32,
    pub MediaDuplexState: i32,
    pub LookaheadSize: ULONG,
    pub PowerManagementCapabilities: PVOID,
    pub SupportedPacketFilters: ULONG,
    pub MaxMulticastListSize: ULONG,
    pub MacAddressLength: USHORT,
    pub CurrentMacAddress: [u8; NDIS_MAX_PHYS_ADDRESS_LENGTH],
    pub PhysicalMediumType: i32,
    pub RcvScaleCapabilities: PVOID,
    pub BoundIfNetluid: NET_LUID,
    pub BoundIfIndex: NET_IFINDEX,
    pub LowestIfNetluid: NET_LUID,
    pub LowestIfIndex: NET_IFINDEX,
    pub AccessType: i32,
    pub DirectionType: i32,
    pub ConnectionType: i32,
    pub IfType: USHORT,
    pub IfConnectorPresent: BOOLEAN,
    pub ActivePorts: PVOID,
    pub DataBackFillSize: ULONG,
    pub ContextBackFillSize: ULONG,
    pub MacOptions: ULONG,
    pub CompartmentId: ULONG,
    pub DefaultOffloadConfiguration: *mut NDIS_OFFLOAD,
    pub TcpConnectionOffloadCapabilities: PVOID,
    pub BoundAdapterName: *mut UNICODE_STRING,
}
layout!(NDIS_BIND_PARAMETERS, 0xF8 {
    ProtocolSection: 8, AdapterName: 0x10, MediaType: 0x20, MtuSize: 0x24, XmitLinkSpeed: 0x30,
    MediaConnectState: 0x48, PowerManagementCapabilities: 0x58, SupportedPacketFilters: 0x60,
    MacAddressLength: 0x68, CurrentMacAddress: 0x6A, PhysicalMediumType: 0x8C,
    BoundIfNetluid: 0x98, BoundIfIndex: 0xA0, LowestIfNetluid: 0xA8, AccessType: 0xB4,
    IfType: 0xC0, ActivePorts: 0xC8, DataBackFillSize: 0xD0, DefaultOffloadConfiguration: 0xE0,
    BoundAdapterName: 0xF0,
});

/// The parameters with which a protocol opens an adapter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_OPEN_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub AdapterName: *mut UNICODE_STRING,
    pub MediumArray: *mut i32,
    pub MediumArraySize: u32,
    pub SelectedMediumIndex: *mut u32,
    pub FrameTypeArray: *mut USHORT,
    pub FrameTypeArraySize: u32,
}
layout!(NDIS_OPEN_PARAMETERS, 56 {
    AdapterName: 8, MediumArray: 0x10, MediumArraySize: 0x18, SelectedMediumIndex: 0x20,
    FrameTypeArray: 0x28, FrameTypeArraySize: 0x30,
});
/// Through `FrameTypeArraySize`, without the padding behind it.
pub const NDIS_SIZEOF_OPEN_PARAMETERS_REVISION_1: usize = 52;

/// A `NET_PNP_EVENT`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NET_PNP_EVENT {
    pub NetEvent: i32,
    pub Buffer: PVOID,
    pub BufferLength: ULONG,
    pub NdisReserved: [usize; 4],
    pub TransportReserved: [usize; 4],
    pub TdiReserved: [usize; 4],
    pub TdiClientReserved: [usize; 4],
}
layout!(NET_PNP_EVENT, 0x98 { Buffer: 8, BufferLength: 0x10, NdisReserved: 0x18 });

/// An event to a protocol, or from a miniport.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NET_PNP_EVENT_NOTIFICATION {
    pub Header: NDIS_OBJECT_HEADER,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub NetPnPEvent: NET_PNP_EVENT,
    pub Flags: ULONG,
}
layout!(NET_PNP_EVENT_NOTIFICATION, 0xA8 { PortNumber: 4, NetPnPEvent: 8, Flags: 0xA0 });
/// Through `Flags`, without the padding behind it.
pub const NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1: usize = 0xA4;

/// `NDIS_DEVICE_POWER_STATE`: full power. Higher values mean less.
pub const NdisDeviceStateD0: i32 = 1;

// `NET_PNP_EVENT_CODE`, as far as a protocol gets them.
pub const NetEventSetPower: i32 = 0;
pub const NetEventQueryPower: i32 = 1;
pub const NetEventQueryRemoveDevice: i32 = 2;
pub const NetEventCancelRemoveDevice: i32 = 3;
pub const NetEventReconfigure: i32 = 4;
pub const NetEventBindList: i32 = 5;
pub const NetEventBindsComplete: i32 = 6;
pub const NetEventPnPCapabilities: i32 = 7;
pub const NetEventPause: i32 = 8;
pub const NetEventRestart: i32 = 9;

// ---- indications and lists --------------------------------------------------------------------

/// A status that a miniport indicates, or a protocol gets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_STATUS_INDICATION {
    pub Header: NDIS_OBJECT_HEADER,
    pub SourceHandle: NDIS_HANDLE,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub StatusCode: u32,
    pub Flags: ULONG,
    pub DestinationHandle: NDIS_HANDLE,
    pub RequestId: PVOID,
    pub StatusBuffer: PVOID,
    pub StatusBufferSize: ULONG,
    pub Guid: GUID,
    pub NdisReserved: [PVOID; 4],
}
layout!(NDIS_STATUS_INDICATION, 112 {
    SourceHandle: 8, PortNumber: 0x10, StatusCode: 0x14, Flags: 0x18, DestinationHandle: 0x20,
    RequestId: 0x28, StatusBuffer: 0x30, StatusBufferSize: 0x38, Guid: 0x3C, NdisReserved: 0x50,
});

/// The data of `NDIS_STATUS_LINK_STATE`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_LINK_STATE {
    pub Header: NDIS_OBJECT_HEADER,
    pub MediaConnectState: i32,
    pub MediaDuplexState: i32,
    pub XmitLinkSpeed: u64,
    pub RcvLinkSpeed: u64,
    pub PauseFunctions: i32,
    pub AutoNegotiationFlags: ULONG,
}
layout!(NDIS_LINK_STATE, 40 {
    MediaConnectState: 4, MediaDuplexState: 8, XmitLinkSpeed: 0x10, RcvLinkSpeed: 0x18,
    PauseFunctions: 0x20, AutoNegotiationFlags: 0x24,
});

/// The data of `OID_GEN_LINK_PARAMETERS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_LINK_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub MediaDuplexState: i32,
    pub XmitLinkSpeed: u64,
    pub RcvLinkSpeed: u64,
    pub PauseFunctions: i32,
    pub AutoNegotiationFlags: ULONG,
}
layout!(NDIS_LINK_PARAMETERS, 32 {
    MediaDuplexState: 4, XmitLinkSpeed: 8, RcvLinkSpeed: 0x10, PauseFunctions: 0x18,
    AutoNegotiationFlags: 0x1C,
});

/// The data of `OID_GEN_INTERRUPT_MODERATION`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_INTERRUPT_MODERATION_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub InterruptModeration: i32,
}
layout!(NDIS_INTERRUPT_MODERATION_PARAMETERS, 12 { Flags: 4, InterruptModeration: 8 });
pub const NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1: u8 = 1;
pub const NdisInterruptModerationNotSupported: i32 = 1;

/// The parameters of a pool of net buffer lists.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NET_BUFFER_LIST_POOL_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub ProtocolId: u8,
    pub fAllocateNetBuffer: BOOLEAN,
    pub ContextSize: USHORT,
    pub PoolTag: ULONG,
    pub DataSize: ULONG,
}
layout!(NET_BUFFER_LIST_POOL_PARAMETERS, 16 {
    ProtocolId: 4, fAllocateNetBuffer: 5, ContextSize: 6, PoolTag: 8, DataSize: 0xC,
});
pub const NDIS_PROTOCOL_ID_DEFAULT: u8 = 0;

pub const NDIS_DEFAULT_PORT_NUMBER: NDIS_PORT_NUMBER = 0;
pub const NDIS_SEND_FLAGS_DISPATCH_LEVEL: ULONG = 0x1;
pub const NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL: ULONG = 0x1;
pub const NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL: ULONG = 0x1;
pub const NDIS_RECEIVE_FLAGS_RESOURCES: ULONG = 0x2;
pub const NDIS_RETURN_FLAGS_DISPATCH_LEVEL: ULONG = 0x1;
/// The host has sent the frames of the list itself.
pub const NDIS_NBL_FLAGS_IS_LOOPBACK_PACKET: ULONG = 0x8000;
/// The clone shares its original's MDLs.
pub const NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS: ULONG = 0x2;

// ---- configuration ----------------------------------------------------------------------------

/// The parameters with which an adapter's keywords are opened.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_CONFIGURATION_OBJECT {
    pub Header: NDIS_OBJECT_HEADER,
    pub NdisHandle: NDIS_HANDLE,
    pub Flags: ULONG,
}
layout!(NDIS_CONFIGURATION_OBJECT, 0x18 { NdisHandle: 8, Flags: 0x10 });
/// Through `Flags`, without the padding behind it.
pub const NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1: usize = 0x14;

/// A keyword's value: an integer or a string, both at the union's offset.
#[derive(Clone, Copy)]
#[repr(C)]
pub union NDIS_PARAMETER_DATA {
    pub IntegerData: ULONG,
    pub StringData: UNICODE_STRING,
}

/// A keyword.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NDIS_CONFIGURATION_PARAMETER {
    pub ParameterType: i32,
    pub ParameterData: NDIS_PARAMETER_DATA,
}
layout!(NDIS_CONFIGURATION_PARAMETER, 0x18 { ParameterData: 8 });
pub const NdisParameterInteger: i32 = 0;
pub const NdisParameterString: i32 = 2;
