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
}
