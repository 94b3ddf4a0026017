//! Cross-check against the bindings that Microsoft generates from its own metadata.

use core::mem::offset_of;

use windows_sys::Wdk::Foundation as wdk;
use windows_sys::Win32::Foundation as win32;
use windows_sys::Win32::NetworkManagement::Ndis as ndis;
use windows_sys::Win32::Networking::WinSock as winsock;
use windows_sys::Win32::System::SystemInformation as sysinfo;

use super::*;

macro_rules! same_numbers {
    ($module:ident: $($name:ident)+) => {$(
        assert_eq!($name as i64, i64::from($module::$name), stringify!($name));
    )+};
}

macro_rules! same_statuses {
    ($($name:ident)+) => {$(
        assert_eq!($name.0, win32::$name, stringify!($name));
        assert_eq!($name.name(), Some(stringify!($name)));
    )+};
}

macro_rules! same_layout {
    ($module:ident: $name:ident { $($member:ident)* }) => {
        assert_eq!(size_of::<$name>(), size_of::<$module::$name>());
        assert_eq!(align_of::<$name>(), align_of::<$module::$name>());
        $(assert_eq!(offset_of!($name, $member), offset_of!($module::$name, $member));)*
    };
}

#[test]
fn statuses_are_those_of_windows() {
    same_statuses! {
        STATUS_SUCCESS STATUS_PENDING STATUS_BUFFER_OVERFLOW STATUS_DEVICE_BUSY
        STATUS_NO_MORE_ENTRIES STATUS_ACCESS_VIOLATION STATUS_INVALID_PARAMETER
        STATUS_INVALID_DEVICE_REQUEST STATUS_BUFFER_TOO_SMALL STATUS_INVALID_PARAMETER_MIX
        STATUS_DATA_OVERRUN STATUS_DATA_ERROR STATUS_SHARING_VIOLATION
        STATUS_INSUFFICIENT_RESOURCES STATUS_DEVICE_NOT_READY STATUS_IO_TIMEOUT
        STATUS_NOT_SUPPORTED STATUS_BAD_NETWORK_NAME STATUS_INTERNAL_ERROR STATUS_CANCELLED
        STATUS_REMOTE_RESOURCES STATUS_INVALID_ADDRESS STATUS_INVALID_DEVICE_STATE
        STATUS_INVALID_BUFFER_SIZE STATUS_TOO_MANY_ADDRESSES STATUS_ADDRESS_ALREADY_EXISTS
        STATUS_CONNECTION_DISCONNECTED STATUS_CONNECTION_REFUSED STATUS_CONNECTION_INVALID
        STATUS_CONNECTION_ACTIVE STATUS_NETWORK_UNREACHABLE STATUS_HOST_UNREACHABLE
        STATUS_REQUEST_ABORTED STATUS_CONNECTION_ABORTED STATUS_DEVICE_REMOVED
        STATUS_IMPLEMENTATION_LIMIT
    }
}

#[test]
fn only_success_and_information_are_success() {
    assert!(STATUS_SUCCESS.is_success() && STATUS_PENDING.is_success());
    assert!(!STATUS_BUFFER_OVERFLOW.is_success() && !STATUS_CANCELLED.is_success());
}

#[test]
fn structures_are_those_of_windows() {
    same_layout!(ndis: NDK_VERSION { Major Minor });
    same_layout!(ndis: NDK_ADAPTER_INFO {
        Version VendorId DeviceId MaxRegistrationSize MaxWindowSize FRMRPageCount
        MaxInitiatorRequestSge MaxReceiveRequestSge MaxReadRequestSge MaxTransferLength
        MaxInlineDataSize MaxInboundReadLimit MaxOutboundReadLimit MaxReceiveQueueDepth
        MaxInitiatorQueueDepth MaxSrqDepth MaxCqDepth LargeRequestThreshold MaxCallerData
        MaxCalleeData AdapterFlags RdmaTechnology
    });
    same_layout!(ndis: NDIS_OBJECT_HEADER { Type Revision Size });
    same_layout!(sysinfo: GROUP_AFFINITY { Mask Group Reserved });
    same_layout!(wdk: MDL {
        Next Size MdlFlags Process MappedSystemVa StartVa ByteCount ByteOffset
    });
    same_layout!(winsock: SOCKADDR { sa_family sa_data });
    same_layout!(winsock: SOCKADDR_IN { sin_family sin_port sin_addr sin_zero });
    same_layout!(winsock: SOCKADDR_IN6 { sin6_family sin6_port sin6_flowinfo sin6_addr });
    same_layout!(winsock: SOCKADDR_INET { Ipv4 Ipv6 si_family });
}

#[test]
fn constants_are_those_of_windows() {
    same_numbers! { ndis:
        NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
        NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
        NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
        NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED
        OID_NDK_SET_STATE OID_NDK_STATISTICS OID_NDK_CONNECTIONS OID_NDK_LOCAL_ENDPOINTS
        NDIS_OBJECT_TYPE_DEFAULT NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES
        NDIS_NDK_CAPABILITIES_REVISION_1 NDIS_NDK_STATISTICS_INFO_REVISION_1
        NDIS_NDK_CONNECTIONS_REVISION_1 NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1
    }
    same_numbers! { winsock: AF_INET AF_INET6 }
    for (ours, theirs) in [
        (NdkUndefined, ndis::NdkUndefined),
        (NdkiWarp, ndis::NdkiWarp),
        (NdkInfiniBand, ndis::NdkInfiniBand),
        (NdkRoCE, ndis::NdkRoCE),
        (NdkRoCEv2, ndis::NdkRoCEv2),
        (NdkMaxTechnology, ndis::NdkMaxTechnology),
    ] {
        assert_eq!(ours.0, theirs);
    }
    for (ours, theirs) in [
        (GUID_NDIS_NDK_CAPABILITIES, ndis::GUID_NDIS_NDK_CAPABILITIES),
        (GUID_NDIS_NDK_STATE, ndis::GUID_NDIS_NDK_STATE),
    ] {
        let theirs = GUID {
            Data1: theirs.data1,
            Data2: theirs.data2,
            Data3: theirs.data3,
            Data4: theirs.data4,
        };
        assert_eq!(ours, theirs);
    }
}

#[test]
fn netio_structures_are_those_of_windows() {
    use windows_sys::Win32::NetworkManagement::IpHelper as iphelper;
    same_layout!(iphelper: MIB_UNICASTIPADDRESS_ROW {
        Address InterfaceLuid InterfaceIndex PrefixOrigin SuffixOrigin ValidLifetime
        PreferredLifetime OnLinkPrefixLength SkipAsSource DadState ScopeId CreationTimeStamp
    });
    same_layout!(iphelper: MIB_IPNET_ROW2 {
        Address InterfaceIndex InterfaceLuid PhysicalAddress PhysicalAddressLength State
        ReachabilityTime
    });
    same_layout!(iphelper: MIB_IPFORWARD_ROW2 {
        InterfaceLuid InterfaceIndex DestinationPrefix NextHop SitePrefixLength ValidLifetime
        PreferredLifetime Metric Protocol Loopback AutoconfigureAddress Publish Immortal Age Origin
    });
    same_layout!(iphelper: IP_ADDRESS_PREFIX { Prefix PrefixLength });
    same_layout!(iphelper: MIB_IF_ROW2 {
        InterfaceLuid InterfaceIndex InterfaceGuid Alias Description PhysicalAddressLength
        PhysicalAddress PermanentPhysicalAddress Mtu
    });
}

#[test]
fn ndis_numbers_are_those_of_windows() {
    same_numbers! { ndis:
        OID_GEN_SUPPORTED_LIST OID_GEN_HARDWARE_STATUS OID_GEN_TRANSMIT_BUFFER_SPACE
        OID_GEN_RECEIVE_BUFFER_SPACE OID_GEN_TRANSMIT_BLOCK_SIZE OID_GEN_RECEIVE_BLOCK_SIZE
        OID_GEN_VENDOR_ID OID_GEN_VENDOR_DESCRIPTION OID_GEN_CURRENT_PACKET_FILTER
        OID_GEN_CURRENT_LOOKAHEAD OID_GEN_DRIVER_VERSION OID_GEN_MAXIMUM_TOTAL_SIZE
        OID_GEN_VENDOR_DRIVER_VERSION OID_GEN_STATISTICS OID_GEN_XMIT_OK OID_GEN_RCV_OK
        OID_GEN_XMIT_ERROR OID_GEN_RCV_ERROR OID_GEN_RCV_NO_BUFFER OID_GEN_INTERRUPT_MODERATION
        OID_GEN_LINK_PARAMETERS OID_802_3_PERMANENT_ADDRESS OID_802_3_CURRENT_ADDRESS
        OID_802_3_MULTICAST_LIST OID_802_3_MAXIMUM_LIST_SIZE OID_802_3_RCV_ERROR_ALIGNMENT
        OID_802_3_XMIT_ONE_COLLISION OID_802_3_XMIT_MORE_COLLISIONS OID_PNP_SET_POWER
        OID_PNP_QUERY_POWER OID_TCP_OFFLOAD_PARAMETERS
        NDIS_OBJECT_TYPE_BIND_PARAMETERS NDIS_OBJECT_TYPE_OPEN_PARAMETERS
        NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS
        NDIS_OBJECT_TYPE_PROTOCOL_DRIVER_CHARACTERISTICS NDIS_OBJECT_TYPE_OID_REQUEST
        NDIS_OBJECT_TYPE_STATUS_INDICATION NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES
        NDIS_PACKET_TYPE_DIRECTED NDIS_PACKET_TYPE_MULTICAST NDIS_PACKET_TYPE_ALL_MULTICAST
        NDIS_PACKET_TYPE_BROADCAST NDIS_PACKET_TYPE_PROMISCUOUS
        NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV
        NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS
        NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT
        NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR
        NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA NDIS_MAC_OPTION_TRANSFERS_NOT_PEND
        NDIS_MAC_OPTION_NO_LOOPBACK NDIS_MAC_OPTION_8021P_PRIORITY NDIS_MAC_OPTION_8021Q_VLAN
        NdisMedium802_3 NdisPhysicalMedium802_3 MediaConnectStateConnected
        MediaConnectStateDisconnected MediaDuplexStateFull
    }
    same_layout!(ndis: NDIS_STATISTICS_INFO {
        Header SupportedStatistics ifInDiscards ifHCInOctets ifHCOutOctets ifHCOutBroadcastOctets
    });
    same_layout!(ndis: NDIS_LINK_STATE {
        Header MediaConnectState MediaDuplexState XmitLinkSpeed RcvLinkSpeed PauseFunctions
        AutoNegotiationFlags
    });
}
