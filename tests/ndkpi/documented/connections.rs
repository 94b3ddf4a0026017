//! Connector, listener, shared endpoint.

use super::*;

const CONNECT: &[Documented] = &[
    SUCCESS,
    PENDING,
    RESOURCES,
    either(STATUS_NETWORK_UNREACHABLE),
    either(STATUS_HOST_UNREACHABLE),
    either(STATUS_CONNECTION_REFUSED),
    either(STATUS_IO_TIMEOUT),
    either(STATUS_SHARING_VIOLATION),
    either(STATUS_INVALID_ADDRESS),
    either(STATUS_TOO_MANY_ADDRESSES),
    either(STATUS_ADDRESS_ALREADY_EXISTS)
        .never("a connection's address and port are in use: SHARING_VIOLATION comes first"),
    either(STATUS_CONNECTION_ACTIVE).sister(),
    either(STATUS_INVALID_BUFFER_SIZE).sister(),
    // No QP, or one of another provider; families that differ; no port.
    either(STATUS_INVALID_PARAMETER).ours(),
    // The QP was flushed.
    either(STATUS_INVALID_DEVICE_STATE).ours(),
    // The connector was closed meanwhile.
    asynchronous(STATUS_CANCELLED).ours(),
];
const CONNECT_SHARED: &[Documented] = &[
    SUCCESS,
    PENDING,
    RESOURCES,
    either(STATUS_NETWORK_UNREACHABLE),
    either(STATUS_HOST_UNREACHABLE),
    either(STATUS_CONNECTION_REFUSED),
    either(STATUS_IO_TIMEOUT),
    either(STATUS_ADDRESS_ALREADY_EXISTS),
    either(STATUS_CONNECTION_ACTIVE).sister(),
    either(STATUS_INVALID_BUFFER_SIZE).sister(),
    // The destination is no address.
    either(STATUS_INVALID_ADDRESS).ours(),
    // As for NdkConnect.
    either(STATUS_INVALID_PARAMETER).ours(),
    either(STATUS_INVALID_DEVICE_STATE).ours(),
    asynchronous(STATUS_CANCELLED).ours(),
];
const COMPLETE_CONNECT: &[Documented] = &[
    SUCCESS,
    PENDING,
    either(STATUS_CONNECTION_INVALID),
    either(STATUS_CONNECTION_ABORTED),
    either(STATUS_IO_TIMEOUT),
    NO_ROOM,
];
const ACCEPT: &[Documented] = &[
    SUCCESS,
    PENDING,
    either(STATUS_CONNECTION_ABORTED),
    either(STATUS_IO_TIMEOUT),
    either(STATUS_CONNECTION_REFUSED).sister(),
    // As for NdkConnect.
    either(STATUS_CONNECTION_ACTIVE).sister(),
    either(STATUS_INVALID_BUFFER_SIZE).sister(),
    either(STATUS_INVALID_PARAMETER).ours(),
    either(STATUS_INVALID_DEVICE_STATE).ours(),
    asynchronous(STATUS_CANCELLED).ours(),
    // The connector is in no state to accept.
    either(STATUS_CONNECTION_INVALID).ours(),
    NO_ROOM,
];

pub(super) const CONNECTOR: &[Function] = &[
    function("NdkCloseConnector", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkConnect", "nc-ndkpi-ndk_fn_connect", CONNECT).checked(),
    function(
        "NdkConnectWithSharedEndpoint",
        "nc-ndkpi-ndk_fn_connect_with_shared_endpoint",
        CONNECT_SHARED,
    )
    .checked(),
    function("NdkCompleteConnect", "nc-ndkpi-ndk_fn_complete_connect", COMPLETE_CONNECT).checked(),
    function("NdkAccept", "nc-ndkpi-ndk_fn_accept", ACCEPT).checked(),
    function(
        "NdkReject",
        "nc-ndkpi-ndk_fn_reject",
        &[
            inline(STATUS_SUCCESS),
            inline(STATUS_CONNECTION_ABORTED),
            inline(STATUS_INVALID_BUFFER_SIZE).sister(),
            // There is nothing to reject.
            inline(STATUS_CONNECTION_INVALID).ours(),
            NO_ROOM,
        ],
    )
    .checked(),
    function(
        "NdkGetConnectionData",
        "nc-ndkpi-ndk_fn_get_connection_data",
        &[
            inline(STATUS_SUCCESS),
            inline(STATUS_BUFFER_TOO_SMALL),
            // No peer has told anything yet.
            inline(STATUS_CONNECTION_INVALID).ours(),
            BAD_POINTER,
        ],
    )
    .checked(),
    function("NdkGetLocalAddress", "nc-ndkpi-ndk_fn_get_local_address", ADDRESS).checked(),
    function("NdkGetPeerAddress", "nc-ndkpi-ndk_fn_get_peer_address", ADDRESS).checked(),
    function(
        "NdkDisconnect",
        "nc-ndkpi-ndk_fn_disconnect",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_IO_TIMEOUT),
            // There is no connection.
            either(STATUS_CONNECTION_INVALID).ours(),
            // The connector was closed meanwhile.
            asynchronous(STATUS_CANCELLED).ours(),
            NO_ROOM,
        ],
    )
    .checked(),
    function("NdkCompleteConnectEx", "nc-ndkpi-ndk_fn_complete_connect_ex", COMPLETE_CONNECT)
        .checked_of_2_1(),
    function("NdkAcceptEx", "nc-ndkpi-ndk_fn_accept_ex", ACCEPT).checked_of_2_1(),
];

pub(super) const LISTENER: &[Function] = &[
    function("NdkCloseListener", CLOSE_PAGE, CLOSE),
    QUERY,
    function(
        "NdkListen",
        "nc-ndkpi-ndk_fn_listen",
        &[
            SUCCESS,
            PENDING,
            RESOURCES,
            either(STATUS_SHARING_VIOLATION),
            either(STATUS_INVALID_ADDRESS),
            either(STATUS_TOO_MANY_ADDRESSES),
            // It listens already.
            either(STATUS_INVALID_DEVICE_STATE).ours(),
        ],
    )
    .checked(),
    function(
        "NdkGetLocalAddress",
        "nc-ndkpi-ndk_fn_get_listener_local_address",
        &[
            inline(STATUS_SUCCESS),
            inline(STATUS_BUFFER_TOO_SMALL),
            inline(STATUS_INVALID_DEVICE_STATE).sister(),
            BAD_POINTER,
        ],
    )
    .checked(),
    function("NdkControlConnectEvents", "nc-ndkpi-ndk_fn_control_connect_events", &[CALLED]),
];

pub(super) const SHARED_ENDPOINT: &[Function] = &[
    function("NdkCloseSharedEndpoint", CLOSE_PAGE, CLOSE),
    QUERY,
    function(
        "NdkGetLocalAddress",
        "nc-ndkpi-ndk_fn_get_shared_endpoint_local_address",
        &[inline(STATUS_SUCCESS), inline(STATUS_BUFFER_TOO_SMALL), BAD_POINTER],
    )
    .checked(),
];
