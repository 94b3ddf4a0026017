//! Callbacks, and the entries of completion queues.

use super::*;

/// The statuses of requests and creations stand with the functions that start them.
pub(super) const CALLBACK: &[Function] = &[
    function("NDK_FN_CLOSE_COMPLETION", "nc-ndkpi-ndk_fn_close_completion", &[CALLED]),
    function("NDK_FN_REQUEST_COMPLETION", "nc-ndkpi-ndk_fn_request_completion", &[CALLED]),
    function("NDK_FN_CREATE_COMPLETION", "nc-ndkpi-ndk_fn_create_completion", &[CALLED]),
    function(
        "NDK_FN_CQ_NOTIFICATION_CALLBACK",
        "nc-ndkpi-ndk_fn_cq_notification_callback",
        &[
            argument(STATUS_SUCCESS),
            argument(STATUS_BUFFER_OVERFLOW),
            argument(STATUS_INTERNAL_ERROR)
                .never("for a CQ whose hardware failed: one in memory can only overrun"),
        ],
    ),
    function(
        "NDK_FN_SRQ_NOTIFICATION_CALLBACK",
        "nc-ndkpi-ndk_fn_srq_notification_callback",
        &[
            argument(STATUS_SUCCESS),
            argument(STATUS_INTERNAL_ERROR)
                .never("for an SRQ whose hardware failed: one in memory does not"),
        ],
    ),
    function("NDK_FN_CONNECT_EVENT_CALLBACK", "nc-ndkpi-ndk_fn_connect_event_callback", &[CALLED]),
    function(
        "NDK_FN_DISCONNECT_EVENT_CALLBACK",
        "nc-ndkpi-ndk_fn_disconnect_event_callback",
        &[CALLED],
    ),
    function(
        "NDK_FN_DISCONNECT_EVENT_CALLBACK_EX",
        "nc-ndkpi-ndk_fn_disconnect_event_callback_ex",
        &[CALLED],
    )
    .since(V2_1),
];

const DONE: Documented = Documented::new(Delivery::Entry, STATUS_SUCCESS);
const FLUSHED: Documented = Documented::new(Delivery::Entry, STATUS_CANCELLED);
/// A list longer than a message may be.
const TOO_LONG: Documented =
    entry(STATUS_DATA_OVERRUN, "").never("such a list is refused by the post itself");
/// A malformed request.
const MALFORMED: Documented =
    entry(STATUS_INVALID_DEVICE_REQUEST, "").never("such a request is refused by the post itself");
/// The QP failed.
const QP_FAULT: Documented =
    entry(STATUS_INTERNAL_ERROR, "the peer's answer makes no sense, or the queue pair failed");
/// The QP failed, for a request that never leaves this side.
const NO_QP_FAULT: Documented = entry(STATUS_INTERNAL_ERROR, "")
    .never("for a QP whose hardware failed: the request is carried out in memory");
const REFUSED_KEY: Documented = entry(
    STATUS_ACCESS_VIOLATION,
    "a token, range or right was refused, on this side or the peer's",
);
/// What a request may meet at the other side.
const REMOTE: &[Documented] = &[
    DONE,
    TOO_LONG,
    REFUSED_KEY,
    FLUSHED,
    MALFORMED,
    QP_FAULT,
    entry(STATUS_IO_TIMEOUT, "the peer was silent, or had no receive, for all retries"),
    entry(STATUS_REMOTE_RESOURCES, "the peer refused the request: a receive too small, for one"),
    entry(STATUS_NETWORK_UNREACHABLE, "").ours("the address of this side was taken away"),
];
/// What a request that concerns only this side may meet.
const LOCAL: &[Documented] = &[
    DONE,
    FLUSHED,
    entry(STATUS_INVALID_DEVICE_REQUEST, "the region or window is in no state for it"),
    NO_QP_FAULT,
];

const RESULT_PAGE: &str = "ns-ndkpi-_ndk_result_ex";

/// The sister interface's table of statuses by operation.
pub(super) const COMPLETION: &[Function] = &[
    function(
        "NdkOperationTypeReceive",
        RESULT_PAGE,
        &[
            DONE,
            entry(STATUS_BUFFER_OVERFLOW, "the message is longer than the receive"),
            REFUSED_KEY,
            FLUSHED,
            MALFORMED,
            QP_FAULT,
            entry(STATUS_IO_TIMEOUT, "")
                .never("a receive is not timed: it ends CANCELLED with its connection"),
            entry(
                STATUS_REMOTE_RESOURCES,
                "the peer sent a request that breaks the transport's rules in this receive",
            ),
        ],
    ),
    // Failed receives are of the plain type: nothing was invalidated.
    function("NdkOperationTypeReceiveAndInvalidate", RESULT_PAGE, &[DONE]),
    function("NdkOperationTypeSend", RESULT_PAGE, REMOTE),
    function("NdkOperationTypeFastRegister", RESULT_PAGE, LOCAL),
    function(
        "NdkOperationTypeBind",
        RESULT_PAGE,
        &[
            DONE,
            REFUSED_KEY,
            FLUSHED,
            entry(STATUS_INVALID_DEVICE_REQUEST, "")
                .never("what the post itself does not refuse is ACCESS_VIOLATION"),
            NO_QP_FAULT,
        ],
    ),
    function("NdkOperationTypeInvalidate", RESULT_PAGE, LOCAL),
    function("NdkOperationTypeRead", RESULT_PAGE, REMOTE),
    function("NdkOperationTypeWrite", RESULT_PAGE, REMOTE),
];
