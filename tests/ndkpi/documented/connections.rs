//! Connector, listener, shared endpoint.

use super::*;

const LONG_DATA: &str = "the private data is longer than the adapter's limit";
const ACTIVE: Documented =
    either(STATUS_CONNECTION_ACTIVE).sister("the connector or the queue pair is in use");
const TOO_MUCH_DATA: Documented = either(STATUS_INVALID_BUFFER_SIZE).sister(LONG_DATA);
const FLUSHED_BEFORE: Documented =
    either(STATUS_INVALID_DEVICE_STATE).ours("the queue pair was flushed, or an object is closed");
const CLOSED_MEANWHILE: Documented =
    asynchronous(STATUS_CANCELLED).ours("the connector was closed meanwhile");

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
    ACTIVE,
    TOO_MUCH_DATA,
    either(STATUS_INVALID_PARAMETER)
        .ours("the queue pair is NULL or of another provider, or there is no completion callback"),
    FLUSHED_BEFORE,
    CLOSED_MEANWHILE,
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
    ACTIVE,
    TOO_MUCH_DATA,
    either(STATUS_INVALID_ADDRESS).ours("the destination is no address"),
    either(STATUS_INVALID_PARAMETER)
        .ours("an object is NULL or of another provider, or there is no completion callback"),
    FLUSHED_BEFORE,
    CLOSED_MEANWHILE,
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
    either(STATUS_CONNECTION_REFUSED).sister("the peer rejects the accept"),
    ACTIVE,
    TOO_MUCH_DATA,
    either(STATUS_INVALID_PARAMETER)
        .ours("the queue pair is NULL or of another provider, or there is no completion callback"),
    FLUSHED_BEFORE,
    CLOSED_MEANWHILE,
    either(STATUS_CONNECTION_INVALID).ours("the connector has no request to accept"),
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
            inline(STATUS_INVALID_BUFFER_SIZE).sister(LONG_DATA),
            inline(STATUS_CONNECTION_INVALID).ours("there is nothing to reject"),
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
            inline(STATUS_CONNECTION_INVALID).ours("no peer has told anything yet"),
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
            either(STATUS_CONNECTION_INVALID).ours("there is no connection"),
            CLOSED_MEANWHILE,
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
            either(STATUS_INVALID_DEVICE_STATE).ours("it listens already, or is closed"),
        ],
    )
    .checked(),
    function(
        "NdkGetLocalAddress",
        "nc-ndkpi-ndk_fn_get_listener_local_address",
        &[
            inline(STATUS_SUCCESS),
            inline(STATUS_BUFFER_TOO_SMALL),
            inline(STATUS_INVALID_DEVICE_STATE).sister("it does not listen"),
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
