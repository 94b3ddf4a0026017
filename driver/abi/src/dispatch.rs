//! Function types and dispatch tables of `ndkpi.h`, in the order of the header.
//!
//! Each `NDK_FN_*` has its page under
//! <https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/>, named
//! `nc-ndkpi-ndk_fn_*`. Calls and callbacks are at IRQL <= DISPATCH_LEVEL except where noted.
//! None of a table's entries may be NULL.

use super::*;

/// Proves the order of a table while declaring it.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($slot:literal $member:ident: $function:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name {
            $(pub $member: $function,)+
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $member) == 8 * $slot);)+
        };

        impl $name {
            /// The names of the slots, in order.
            pub const SLOTS: &[&str] = &[$(stringify!($member),)+];
        }
    };
}

// Consumer callbacks, called by the provider at IRQL <= DISPATCH_LEVEL.

/// Ends a close that returned `STATUS_PENDING`: the last callback of the object.
pub type NDK_FN_CLOSE_COMPLETION = unsafe extern "system" fn(Context: PVOID);
/// Ends a request that returned `STATUS_PENDING`.
pub type NDK_FN_REQUEST_COMPLETION = unsafe extern "system" fn(Context: PVOID, Status: NTSTATUS);
/// Ends a create that returned `STATUS_PENDING`; the object is valid if `Status` is success.
pub type NDK_FN_CREATE_COMPLETION =
    unsafe extern "system" fn(Context: PVOID, Status: NTSTATUS, pNdkObject: *mut NDK_OBJECT_HEADER);
/// At most once per arm, never two at a time for one CQ.
pub type NDK_FN_CQ_NOTIFICATION_CALLBACK =
    unsafe extern "system" fn(CqNotificationContext: PVOID, CqStatus: NTSTATUS);
/// The one-shot low watermark of an SRQ.
pub type NDK_FN_SRQ_NOTIFICATION_CALLBACK =
    unsafe extern "system" fn(SrqNotificationContext: PVOID, SrqStatus: NTSTATUS);
/// An incoming connection; the connector is the consumer's from here on.
pub type NDK_FN_CONNECT_EVENT_CALLBACK =
    unsafe extern "system" fn(ConnectEventContext: PVOID, pNdkConnector: *mut NDK_CONNECTOR);
/// The peer disconnected or the connection broke; once per connection.
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK =
    unsafe extern "system" fn(DisconnectEventContext: PVOID);
/// As [`NDK_FN_DISCONNECT_EVENT_CALLBACK`], with the provider's reason or 0 (2.1).
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK_EX =
    unsafe extern "system" fn(DisconnectEventContext: PVOID, ProviderDisconnectReason: ULONG);

// Every object.

/// Closes an object: never fails.
pub type NDK_FN_CLOSE_OBJECT = unsafe extern "system" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    CloseCompletion: Option<NDK_FN_CLOSE_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
/// Asks for an extension's table.
pub type NDK_FN_QUERY_EXTENSION_INTERFACE = unsafe extern "system" fn(
    pNdkObject: *mut NDK_OBJECT_HEADER,
    ExtensionInterfaceID: *const GUID,
    ExtensionInterfaceVersion: NDK_VERSION,
    pExtensionInterface: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS;

// Adapter.

/// PASSIVE_LEVEL.
pub type NDK_FN_QUERY_ADAPTER_INFO = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pInfo: *mut NDK_ADAPTER_INFO,
    pBufferSize: *mut ULONG,
) -> NTSTATUS;
/// In the header, but in no table. PASSIVE_LEVEL.
pub type NDK_FN_QUERY_ADAPTER_INFO_EX = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    Version: NDK_VERSION,
    pInfo: *mut NDK_ADAPTER_INFO,
    pBufferSize: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_CREATE_CQ = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CqDepth: ULONG,
    CqNotification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    CqNotificationContext: PVOID,
    Affinity: *const GROUP_AFFINITY,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkCq: *mut *mut NDK_CQ,
) -> NTSTATUS;
pub type NDK_FN_CREATE_PD = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkPd: *mut *mut NDK_PD,
) -> NTSTATUS;
/// For outgoing connections; incoming ones bring their own.
pub type NDK_FN_CREATE_CONNECTOR = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkConnector: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS;
pub type NDK_FN_CREATE_LISTENER = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    ConnectEvent: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    ConnectEventContext: PVOID,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkListener: *mut *mut NDK_LISTENER,
) -> NTSTATUS;
pub type NDK_FN_CREATE_SHARED_ENDPOINT = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pAddress: *const SOCKADDR,
    AddressLength: ULONG,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkSharedEndpoint: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS;
/// Maps a locked buffer for the privileged token.
pub type NDK_FN_BUILD_LAM = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    Mdl: *mut MDL,
    Length: SIZE_T,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
    pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    pLAMSize: *mut ULONG,
    pFBO: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_RELEASE_LAM = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
);

// Protection domain.

pub type NDK_FN_CREATE_MR = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    FastRegister: BOOLEAN,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkMr: *mut *mut NDK_MR,
) -> NTSTATUS;
pub type NDK_FN_CREATE_MW = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkMw: *mut *mut NDK_MW,
) -> NTSTATUS;
pub type NDK_FN_CREATE_SRQ = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    SrqDepth: ULONG,
    MaxReceiveRequestSge: ULONG,
    NotifyThreshold: ULONG,
    SrqNotification: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
    SrqNotificationContext: PVOID,
    Affinity: *const GROUP_AFFINITY,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkSrq: *mut *mut NDK_SRQ,
) -> NTSTATUS;
pub type NDK_FN_CREATE_QP = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    QPContext: PVOID,
    ReceiveQueueDepth: ULONG,
    InitiatorQueueDepth: ULONG,
    MaxReceiveRequestSge: ULONG,
    MaxInitiatorRequestSge: ULONG,
    InlineDataSize: ULONG,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkQp: *mut *mut NDK_QP,
) -> NTSTATUS;
pub type NDK_FN_CREATE_QP_WITH_SRQ = unsafe extern "system" fn(
    pNdkPd: *mut NDK_PD,
    pReceiveCq: *mut NDK_CQ,
    pInitiatorCq: *mut NDK_CQ,
    pSrq: *mut NDK_SRQ,
    QPContext: PVOID,
    InitiatorQueueDepth: ULONG,
    MaxInitiatorRequestSge: ULONG,
    InlineDataSize: ULONG,
    CreateCompletion: Option<NDK_FN_CREATE_COMPLETION>,
    RequestContext: PVOID,
    ppNdkQp: *mut *mut NDK_QP,
) -> NTSTATUS;
pub type NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN =
    unsafe extern "system" fn(pNdkPd: *mut NDK_PD, pToken: *mut UINT32);

// Memory region and memory window.

pub type NDK_FN_REGISTER_MR = unsafe extern "system" fn(
    pNdkMr: *mut NDK_MR,
    Mdl: *mut MDL,
    Length: SIZE_T,
    Flags: ULONG,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_DEREGISTER_MR = unsafe extern "system" fn(
    pNdkMr: *mut NDK_MR,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_INITIALIZE_FAST_REGISTER_MR = unsafe extern "system" fn(
    pNdkMr: *mut NDK_MR,
    AdapterPageCount: ULONG,
    RemoteAccess: BOOLEAN,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
/// The token to hand to the peer.
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MR = unsafe extern "system" fn(pNdkMr: *mut NDK_MR) -> UINT32;
/// The token for our own scatter/gather elements.
pub type NDK_FN_GET_LOCAL_TOKEN_FROM_MR = unsafe extern "system" fn(pNdkMr: *mut NDK_MR) -> UINT32;
/// Valid as soon as `NdkBind` has returned.
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MW = unsafe extern "system" fn(pNdkMw: *mut NDK_MW) -> UINT32;

// Completion queue.

pub type NDK_FN_RESIZE_CQ = unsafe extern "system" fn(
    pNdkCq: *mut NDK_CQ,
    CqDepth: ULONG,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_ARM_CQ = unsafe extern "system" fn(pNdkCq: *mut NDK_CQ, Type: ULONG);
pub type NDK_FN_GET_CQ_RESULTS = unsafe extern "system" fn(
    pNdkCq: *mut NDK_CQ,
    Results: *mut NDK_RESULT,
    nResults: ULONG,
) -> ULONG;
/// 1.2.
pub type NDK_FN_GET_CQ_RESULTS_EX = unsafe extern "system" fn(
    pNdkCq: *mut NDK_CQ,
    Results: *mut NDK_RESULT_EX,
    nResults: ULONG,
) -> ULONG;
/// Interval in microseconds.
pub type NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION = unsafe extern "system" fn(
    pNdkCq: *mut NDK_CQ,
    ModerationInterval: ULONG,
    ModerationCount: ULONG,
) -> NTSTATUS;

// Shared receive queue.

pub type NDK_FN_MODIFY_SRQ = unsafe extern "system" fn(
    pNdkSrq: *mut NDK_SRQ,
    SrqDepth: ULONG,
    NotifyThreshold: ULONG,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_SRQ_RECEIVE = unsafe extern "system" fn(
    pNdkSrq: *mut NDK_SRQ,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
) -> NTSTATUS;

// Queue pair. The consumer serializes the posts of each queue.

pub type NDK_FN_FLUSH = unsafe extern "system" fn(pNdkQp: *mut NDK_QP);
pub type NDK_FN_SEND = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    Flags: ULONG,
) -> NTSTATUS;
/// 1.2. The flags come before the token.
pub type NDK_FN_SEND_AND_INVALIDATE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    Flags: ULONG,
    RemoteToken: UINT32,
) -> NTSTATUS;
pub type NDK_FN_RECEIVE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
) -> NTSTATUS;
pub type NDK_FN_BIND = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pMr: *mut NDK_MR,
    pMw: *mut NDK_MW,
    VirtualAddress: PVOID,
    Length: SIZE_T,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_FAST_REGISTER = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pMr: *mut NDK_MR,
    AdapterPageCount: ULONG,
    AdapterPageArray: *const NDK_LOGICAL_ADDRESS,
    FBO: ULONG,
    Length: SIZE_T,
    BaseVirtualAddress: PVOID,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_INVALIDATE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pNdkMrOrMw: *mut NDK_OBJECT_HEADER,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_READ = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    RemoteAddress: UINT64,
    RemoteToken: UINT32,
    Flags: ULONG,
) -> NTSTATUS;
pub type NDK_FN_WRITE = unsafe extern "system" fn(
    pNdkQp: *mut NDK_QP,
    RequestContext: PVOID,
    pSgl: *const NDK_SGE,
    nSge: ULONG,
    RemoteAddress: UINT64,
    RemoteToken: UINT32,
    Flags: ULONG,
) -> NTSTATUS;

// Connector.

pub type NDK_FN_CONNECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pSrcAddress: *const SOCKADDR,
    SrcAddressLength: ULONG,
    pDestAddress: *const SOCKADDR,
    DestAddressLength: ULONG,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: *const c_void,
    PrivateDataLength: ULONG,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_CONNECT_WITH_SHARED_ENDPOINT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pDestAddress: *const SOCKADDR,
    DestAddressLength: ULONG,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: *const c_void,
    PrivateDataLength: ULONG,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_COMPLETE_CONNECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    DisconnectEventContext: PVOID,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
/// 2.1.
pub type NDK_FN_COMPLETE_CONNECT_EX = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    DisconnectEventContext: PVOID,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_ACCEPT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: *const c_void,
    PrivateDataLength: ULONG,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    DisconnectEventContext: PVOID,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
/// 2.1.
pub type NDK_FN_ACCEPT_EX = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pNdkQp: *mut NDK_QP,
    InboundReadLimit: ULONG,
    OutboundReadLimit: ULONG,
    pPrivateData: *const c_void,
    PrivateDataLength: ULONG,
    DisconnectEvent: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
    DisconnectEventContext: PVOID,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_REJECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pPrivateData: *const c_void,
    PrivateDataLength: ULONG,
) -> NTSTATUS;
pub type NDK_FN_GET_CONNECTION_DATA = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pInboundReadLimit: *mut ULONG,
    pOutboundReadLimit: *mut ULONG,
    pPrivateData: PVOID,
    pPrivateDataLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_GET_LOCAL_ADDRESS = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_GET_PEER_ADDRESS = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_DISCONNECT = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
/// In the header, but in no table.
pub type NDK_FN_DISCONNECT_EX = unsafe extern "system" fn(
    pNdkConnector: *mut NDK_CONNECTOR,
    Abortive: BOOLEAN,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;

// Listener and shared endpoint.

pub type NDK_FN_LISTEN = unsafe extern "system" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: *const SOCKADDR,
    AddressLength: ULONG,
    RequestCompletion: Option<NDK_FN_REQUEST_COMPLETION>,
    RequestContext: PVOID,
) -> NTSTATUS;
pub type NDK_FN_GET_LISTENER_LOCAL_ADDRESS = unsafe extern "system" fn(
    pNdkListener: *mut NDK_LISTENER,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;
pub type NDK_FN_CONTROL_CONNECT_EVENTS =
    unsafe extern "system" fn(pNdkListener: *mut NDK_LISTENER, Pause: BOOLEAN);
pub type NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS = unsafe extern "system" fn(
    pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
    pAddress: *mut SOCKADDR,
    pAddressLength: *mut ULONG,
) -> NTSTATUS;

table! {
    /// Table of an adapter. It has no close: NDIS closes it.
    NDK_ADAPTER_DISPATCH, 0x48 {
        0 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        1 NdkQueryAdapterInfo: NDK_FN_QUERY_ADAPTER_INFO,
        2 NdkCreateCq: NDK_FN_CREATE_CQ,
        3 NdkCreatePd: NDK_FN_CREATE_PD,
        4 NdkCreateSharedEndpoint: NDK_FN_CREATE_SHARED_ENDPOINT,
        5 NdkCreateConnector: NDK_FN_CREATE_CONNECTOR,
        6 NdkCreateListener: NDK_FN_CREATE_LISTENER,
        7 NdkBuildLAM: NDK_FN_BUILD_LAM,
        8 NdkReleaseLAM: NDK_FN_RELEASE_LAM,
    }
}

table! {
    /// Table of a completion queue.
    NDK_CQ_DISPATCH, 0x38 {
        0 NdkCloseCq: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkResizeCq: NDK_FN_RESIZE_CQ,
        3 NdkArmCq: NDK_FN_ARM_CQ,
        4 NdkGetCqResults: NDK_FN_GET_CQ_RESULTS,
        5 NdkControlCqInterruptModeration: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION,
        6 NdkGetCqResultsEx: NDK_FN_GET_CQ_RESULTS_EX,
    }
}

table! {
    /// Table of a memory region.
    NDK_MR_DISPATCH, 0x38 {
        0 NdkCloseMr: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkRegisterMr: NDK_FN_REGISTER_MR,
        3 NdkDeregisterMr: NDK_FN_DEREGISTER_MR,
        4 NdkInitializeFastRegisterMr: NDK_FN_INITIALIZE_FAST_REGISTER_MR,
        5 NdkGetRemoteTokenFromMr: NDK_FN_GET_REMOTE_TOKEN_FROM_MR,
        6 NdkGetLocalTokenFromMr: NDK_FN_GET_LOCAL_TOKEN_FROM_MR,
    }
}

table! {
    /// Table of a memory window.
    NDK_MW_DISPATCH, 0x18 {
        0 NdkCloseMw: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkGetRemoteTokenFromMw: NDK_FN_GET_REMOTE_TOKEN_FROM_MW,
    }
}

table! {
    /// Table of a shared receive queue.
    NDK_SRQ_DISPATCH, 0x20 {
        0 NdkCloseSrq: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkModifySrq: NDK_FN_MODIFY_SRQ,
        3 NdkSrqReceive: NDK_FN_SRQ_RECEIVE,
    }
}

table! {
    /// Table of a queue pair.
    NDK_QP_DISPATCH, 0x58 {
        0 NdkCloseQp: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkFlush: NDK_FN_FLUSH,
        3 NdkSend: NDK_FN_SEND,
        4 NdkReceive: NDK_FN_RECEIVE,
        5 NdkBind: NDK_FN_BIND,
        6 NdkFastRegister: NDK_FN_FAST_REGISTER,
        7 NdkInvalidate: NDK_FN_INVALIDATE,
        8 NdkRead: NDK_FN_READ,
        9 NdkWrite: NDK_FN_WRITE,
        10 NdkSendAndInvalidate: NDK_FN_SEND_AND_INVALIDATE,
    }
}

table! {
    /// Table of a protection domain.
    NDK_PD_DISPATCH, 0x40 {
        0 NdkClosePd: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkCreateMr: NDK_FN_CREATE_MR,
        3 NdkCreateMw: NDK_FN_CREATE_MW,
        4 NdkCreateSrq: NDK_FN_CREATE_SRQ,
        5 NdkCreateQp: NDK_FN_CREATE_QP,
        6 NdkCreateQpWithSrq: NDK_FN_CREATE_QP_WITH_SRQ,
        7 NdkGetPrivilegedMemoryRegionToken: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN,
    }
}

table! {
    /// Table of a connector. The last two members are of 2.1.
    NDK_CONNECTOR_DISPATCH, 0x68 {
        0 NdkCloseConnector: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkConnect: NDK_FN_CONNECT,
        3 NdkConnectWithSharedEndpoint: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT,
        4 NdkCompleteConnect: NDK_FN_COMPLETE_CONNECT,
        5 NdkAccept: NDK_FN_ACCEPT,
        6 NdkReject: NDK_FN_REJECT,
        7 NdkGetConnectionData: NDK_FN_GET_CONNECTION_DATA,
        8 NdkGetLocalAddress: NDK_FN_GET_LOCAL_ADDRESS,
        9 NdkGetPeerAddress: NDK_FN_GET_PEER_ADDRESS,
        10 NdkDisconnect: NDK_FN_DISCONNECT,
        11 NdkCompleteConnectEx: NDK_FN_COMPLETE_CONNECT_EX,
        12 NdkAcceptEx: NDK_FN_ACCEPT_EX,
    }
}

table! {
    /// Table of a listener.
    NDK_LISTENER_DISPATCH, 0x28 {
        0 NdkCloseListener: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkListen: NDK_FN_LISTEN,
        3 NdkGetLocalAddress: NDK_FN_GET_LISTENER_LOCAL_ADDRESS,
        4 NdkControlConnectEvents: NDK_FN_CONTROL_CONNECT_EVENTS,
    }
}

table! {
    /// Table of a shared endpoint.
    NDK_SHARED_ENDPOINT_DISPATCH, 0x18 {
        0 NdkCloseSharedEndpoint: NDK_FN_CLOSE_OBJECT,
        1 NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
        2 NdkGetLocalAddress: NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS,
    }
}
