//! Cross-check against the bindings that Microsoft generates from its own metadata.

use core::mem::offset_of;

use windows_sys::Win32::NetworkManagement::Ndis as ndis;

use super::*;

macro_rules! same_numbers {
    ($module:ident: $($name:ident)+) => {$(
        assert_eq!($name as i64, i64::from($module::$name), stringify!($name));
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
fn ndk_numbers_are_those_of_windows() {
    same_numbers! { ndis:
        OID_NDK_SET_STATE OID_NDK_STATISTICS OID_NDK_CONNECTIONS OID_NDK_LOCAL_ENDPOINTS
        NDIS_OBJECT_TYPE_DEFAULT NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES
        NDIS_NDK_CAPABILITIES_REVISION_1 NDIS_NDK_STATISTICS_INFO_REVISION_1
        NDIS_NDK_CONNECTIONS_REVISION_1 NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1
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
    same_layout!(ndis: NDIS_OBJECT_HEADER { Type Revision Size });
    same_layout!(ndis: NDIS_STATISTICS_INFO {
        Header SupportedStatistics ifInDiscards ifHCInOctets ifHCOutOctets ifHCOutBroadcastOctets
    });
    same_layout!(ndis: NDIS_LINK_STATE {
        Header MediaConnectState MediaDuplexState XmitLinkSpeed RcvLinkSpeed PauseFunctions
        AutoNegotiationFlags
    });
}
