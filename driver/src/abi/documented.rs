//! What the documentation lets each function of `ndkpi.h` answer, and what a callback or a
//! completion may carry: the rows of the matrix that `cargo test -p tests --test ndkpi` fills.
//!
//! A page that says "inline or asynchronously" leaves it to the provider; such a row is met by
//! either. Rows have one of three sources: the function's own page, the user-mode sister interface
//! (NDSPI v2) where the page is silent, and this provider, which gives each misuse a defined status.

use super::*;

/// How a status reaches the consumer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Delivery {
    /// The function returns it.
    Inline,
    /// The completion callback of the request brings it.
    Asynchronous,
    /// One or the other, as the provider likes.
    Either,
    /// There is none: the function or the callback is called, and that is all.
    Called,
    /// A callback is given it.
    Argument,
    /// An entry of a completion queue carries it.
    Entry,
}

/// Where a row comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The page of the function.
    Page,
    /// The user-mode interface with the same object model.
    Sister,
    /// This provider: the pages admit other statuses, and misuse gets this one.
    Provider,
}

/// A row: one status, one way to get it.
#[derive(Clone, Copy, Debug)]
pub struct Documented {
    /// How it comes.
    pub delivery: Delivery,
    /// What comes; [`STATUS_SUCCESS`] where nothing is told.
    pub status: NTSTATUS,
    /// Who says so.
    pub source: Source,
    /// Why this provider never gives it.
    pub never: Option<&'static str>,
}

impl Documented {
    const fn new(delivery: Delivery, status: NTSTATUS) -> Self {
        Self { delivery, status, source: Source::Page, never: None }
    }

    const fn sister(self) -> Self {
        Self { source: Source::Sister, ..self }
    }

    const fn ours(self) -> Self {
        Self { source: Source::Provider, ..self }
    }

    const fn never(self, reason: &'static str) -> Self {
        Self { never: Some(reason), ..self }
    }
}

/// A function, a callback or a kind of completion.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its slot, type or operation.
    pub name: &'static str,
    /// The interface version that brought it.
    pub since: NDK_VERSION,
    /// Its page under <https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/>.
    pub page: &'static str,
    /// What it may answer.
    pub rows: &'static [Documented],
}

/// A dispatch table, the callbacks, or the completions.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The name of the table.
    pub name: &'static str,
    /// Its functions, in order.
    pub functions: &'static [Function],
}

/// The group of the callbacks.
pub const CALLBACKS: &str = "callbacks";
/// The group of the completions, by operation.
pub const COMPLETIONS: &str = "completions";

const V1_1: NDK_VERSION = NDK_VERSION { Major: 1, Minor: 1 };
const V1_2: NDK_VERSION = NDK_VERSION { Major: 1, Minor: 2 };
const V2_1: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

const fn function(name: &'static str, page: &'static str, rows: &'static [Documented]) -> Function {
    Function { name, since: V1_1, page, rows }
}

impl Function {
    const fn since(self, since: NDK_VERSION) -> Self {
        Self { since, ..self }
    }
}

const fn inline(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Inline, status)
}

const fn asynchronous(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Asynchronous, status)
}

const fn either(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Either, status)
}

const fn argument(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Argument, status)
}

const fn entry(status: NTSTATUS) -> Documented {
    Documented::new(Delivery::Entry, status).sister()
}

const CALLED: Documented = Documented::new(Delivery::Called, STATUS_SUCCESS);
const PENDING: Documented = inline(STATUS_PENDING);
const SUCCESS: Documented = either(STATUS_SUCCESS);
const RESOURCES: Documented = either(STATUS_INSUFFICIENT_RESOURCES);
/// The request found no room in the ring of requests.
const NO_ROOM: Documented = inline(STATUS_INSUFFICIENT_RESOURCES).ours();
/// The parent is being closed.
const PARENT_CLOSING: Documented = asynchronous(STATUS_INVALID_PARAMETER).ours();
const NOT_CONNECTED: Documented = inline(STATUS_CONNECTION_INVALID);
const QUEUE_FULL: Documented = inline(STATUS_NO_MORE_ENTRIES).sister();
const TOO_MANY_ELEMENTS: Documented = inline(STATUS_DATA_OVERRUN).sister();
const TOO_MANY_BYTES: Documented = inline(STATUS_BUFFER_OVERFLOW).sister();
/// Two posts to one queue at once.
const CONCURRENT: Documented = inline(STATUS_INVALID_DEVICE_REQUEST).ours();
const BAD_POINTER: Documented = inline(STATUS_INVALID_PARAMETER).ours();

/// `NDK_FN_CLOSE_OBJECT` never fails; its completion counts as success.
const CLOSE: &[Documented] = &[SUCCESS, PENDING];
const CLOSE_PAGE: &str = "nc-ndkpi-ndk_fn_close_object";
const QUERY: Function = function(
    "NdkQueryExtension",
    "nc-ndkpi-ndk_fn_query_extension_interface",
    &[
        inline(STATUS_SUCCESS).never("no extension is defined for any version of the interface"),
        inline(STATUS_NOT_SUPPORTED),
    ],
);
const CREATE: &[Documented] = &[SUCCESS, PENDING, RESOURCES];
const CREATE_LIMITED: &[Documented] =
    &[SUCCESS, PENDING, either(STATUS_INVALID_PARAMETER), RESOURCES];
const CREATE_UNDER_PD: &[Documented] = &[SUCCESS, PENDING, RESOURCES, PARENT_CLOSING];
const ADDRESS: &[Documented] = &[
    inline(STATUS_SUCCESS),
    inline(STATUS_BUFFER_TOO_SMALL),
    inline(STATUS_CONNECTION_INVALID).sister(),
    BAD_POINTER,
];

const ADAPTER: &[Function] = &[
    QUERY,
    function(
        "NdkQueryAdapterInfo",
        "nc-ndkpi-ndk_fn_query_adapter_info",
        &[inline(STATUS_SUCCESS), inline(STATUS_BUFFER_TOO_SMALL), BAD_POINTER],
    ),
    function("NdkCreateCq", "nc-ndkpi-ndk_fn_create_cq", CREATE_LIMITED),
    function("NdkCreatePd", "nc-ndkpi-ndk_fn_create_pd", CREATE),
    function(
        "NdkCreateSharedEndpoint",
        "nc-ndkpi-ndk_fn_create_shared_endpoint",
        &[
            SUCCESS,
            PENDING,
            RESOURCES,
            either(STATUS_SHARING_VIOLATION),
            either(STATUS_INVALID_ADDRESS),
            either(STATUS_TOO_MANY_ADDRESSES),
        ],
    ),
    function("NdkCreateConnector", "nc-ndkpi-ndk_fn_create_connector", CREATE),
    function("NdkCreateListener", "nc-ndkpi-ndk_fn_create_listener", CREATE),
    function(
        "NdkBuildLAM",
        "nc-ndkpi-ndk_fn_build_lam",
        &[
            SUCCESS,
            PENDING,
            inline(STATUS_INVALID_PARAMETER),
            RESOURCES,
            inline(STATUS_BUFFER_TOO_SMALL),
        ],
    ),
    function("NdkReleaseLAM", "nc-ndkpi-ndk_fn_release_lam", &[CALLED]),
];

const CQ: &[Function] = &[
    function("NdkCloseCq", CLOSE_PAGE, CLOSE),
    QUERY,
    function(
        "NdkResizeCq",
        "nc-ndkpi-ndk_fn_resize_cq",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_INVALID_PARAMETER),
            RESOURCES,
            either(STATUS_BUFFER_OVERFLOW).sister(),
        ],
    ),
    function("NdkArmCq", "nc-ndkpi-ndk_fn_arm_cq", &[CALLED]),
    function("NdkGetCqResults", "nc-ndkpi-ndk_fn_get_cq_results", &[CALLED]),
    function(
        "NdkControlCqInterruptModeration",
        "nc-ndkpi-ndk_fn_control_cq_interrupt_moderation",
        &[
            inline(STATUS_SUCCESS),
            inline(STATUS_INSUFFICIENT_RESOURCES)
                .never("the settings are words of the CQ, written in place"),
            inline(STATUS_NOT_SUPPORTED)
                .never("reserved for adapters without the flag CQ_INTERRUPT_MODERATION_SUPPORTED"),
            inline(STATUS_INVALID_PARAMETER_MIX),
        ],
    ),
    function("NdkGetCqResultsEx", "nc-ndkpi-ndk_fn_get_cq_results_ex", &[CALLED]).since(V1_2),
];

const MR: &[Function] = &[
    function("NdkCloseMr", CLOSE_PAGE, CLOSE),
    QUERY,
    function(
        "NdkRegisterMr",
        "nc-ndkpi-ndk_fn_register_mr",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_INVALID_PARAMETER),
            RESOURCES,
            // It is for fast registration.
            inline(STATUS_INVALID_DEVICE_REQUEST).ours(),
            // It is registered.
            either(STATUS_INVALID_DEVICE_STATE).ours(),
        ],
    ),
    function(
        "NdkDeregisterMr",
        "nc-ndkpi-ndk_fn_deregister_mr",
        // Not registered: the last but one.
        &[
            SUCCESS,
            PENDING,
            either(STATUS_DEVICE_BUSY).sister(),
            either(STATUS_INVALID_DEVICE_STATE).ours(),
            NO_ROOM,
        ],
    ),
    function(
        "NdkInitializeFastRegisterMr",
        "nc-ndkpi-ndk_fn_initialize_fast_register_mr",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_IMPLEMENTATION_LIMIT),
            RESOURCES,
            // It is for NdkRegisterMr.
            inline(STATUS_INVALID_DEVICE_REQUEST).ours(),
        ],
    ),
    function("NdkGetRemoteTokenFromMr", "nc-ndkpi-ndk_fn_get_remote_token_from_mr", &[CALLED]),
    function("NdkGetLocalTokenFromMr", "nc-ndkpi-ndk_fn_get_local_token_from_mr", &[CALLED]),
];

const MW: &[Function] = &[
    function("NdkCloseMw", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkGetRemoteTokenFromMw", "nc-ndkpi-ndk_fn_get_remote_token_from_mw", &[CALLED]),
];

const SRQ: &[Function] = &[
    function("NdkCloseSrq", CLOSE_PAGE, CLOSE),
    QUERY,
    function(
        "NdkModifySrq",
        "nc-ndkpi-ndk_fn_modify_srq",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_INVALID_PARAMETER),
            either(STATUS_BUFFER_OVERFLOW).sister(),
            NO_ROOM,
        ],
    ),
    function(
        "NdkSrqReceive",
        "nc-ndkpi-ndk_fn_srq_receive",
        &[inline(STATUS_SUCCESS), QUEUE_FULL, TOO_MANY_ELEMENTS, TOO_MANY_BYTES, CONCURRENT],
    ),
];

const POST: &[Documented] = &[
    inline(STATUS_SUCCESS),
    NOT_CONNECTED,
    QUEUE_FULL,
    TOO_MANY_ELEMENTS,
    TOO_MANY_BYTES,
    CONCURRENT,
];

const QP: &[Function] = &[
    function("NdkCloseQp", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkFlush", "nc-ndkpi-ndk_fn_flush", &[CALLED]),
    function("NdkSend", "nc-ndkpi-ndk_fn_send", POST),
    function(
        "NdkReceive",
        "nc-ndkpi-ndk_fn_receive",
        &[inline(STATUS_SUCCESS), QUEUE_FULL, TOO_MANY_ELEMENTS, TOO_MANY_BYTES, CONCURRENT],
    ),
    function(
        "NdkBind",
        "nc-ndkpi-ndk_fn_bind",
        &[
            inline(STATUS_SUCCESS),
            NOT_CONNECTED,
            inline(STATUS_ACCESS_VIOLATION),
            QUEUE_FULL,
            CONCURRENT,
        ],
    ),
    function(
        "NdkFastRegister",
        "nc-ndkpi-ndk_fn_fast_register",
        &[
            inline(STATUS_SUCCESS),
            NOT_CONNECTED,
            inline(STATUS_ACCESS_VIOLATION),
            QUEUE_FULL,
            CONCURRENT,
        ],
    ),
    function(
        "NdkInvalidate",
        "nc-ndkpi-ndk_fn_invalidate",
        &[inline(STATUS_SUCCESS), NOT_CONNECTED, QUEUE_FULL, CONCURRENT],
    ),
    function(
        "NdkRead",
        "nc-ndkpi-ndk_fn_read",
        &[
            inline(STATUS_SUCCESS),
            NOT_CONNECTED,
            inline(STATUS_REMOTE_RESOURCES)
                .never("only the peer knows its memory: its refusal comes with the completion"),
            QUEUE_FULL,
            TOO_MANY_ELEMENTS,
            TOO_MANY_BYTES,
            CONCURRENT,
        ],
    ),
    function("NdkWrite", "nc-ndkpi-ndk_fn_write", POST),
    function("NdkSendAndInvalidate", "nc-ndkpi-ndk_fn_send_and_invalidate", POST).since(V1_2),
];

const PD: &[Function] = &[
    function("NdkClosePd", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkCreateMr", "nc-ndkpi-ndk_fn_create_mr", CREATE_UNDER_PD),
    function("NdkCreateMw", "nc-ndkpi-ndk_fn_create_mw", CREATE_UNDER_PD),
    function("NdkCreateSrq", "nc-ndkpi-ndk_fn_create_srq", CREATE_LIMITED),
    function("NdkCreateQp", "nc-ndkpi-ndk_fn_create_qp", CREATE_LIMITED),
    function("NdkCreateQpWithSrq", "nc-ndkpi-ndk_fn_create_qp_with_srq", CREATE_LIMITED),
    function(
        "NdkGetPrivilegedMemoryRegionToken",
        "nc-ndkpi-ndk_fn_get_privileged_memory_region_token",
        &[CALLED],
    ),
];

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
    either(STATUS_ADDRESS_ALREADY_EXISTS),
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

const CONNECTOR: &[Function] = &[
    function("NdkCloseConnector", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkConnect", "nc-ndkpi-ndk_fn_connect", CONNECT),
    function(
        "NdkConnectWithSharedEndpoint",
        "nc-ndkpi-ndk_fn_connect_with_shared_endpoint",
        CONNECT_SHARED,
    ),
    function("NdkCompleteConnect", "nc-ndkpi-ndk_fn_complete_connect", COMPLETE_CONNECT),
    function("NdkAccept", "nc-ndkpi-ndk_fn_accept", ACCEPT),
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
    ),
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
    ),
    function("NdkGetLocalAddress", "nc-ndkpi-ndk_fn_get_local_address", ADDRESS),
    function("NdkGetPeerAddress", "nc-ndkpi-ndk_fn_get_peer_address", ADDRESS),
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
    ),
    function("NdkCompleteConnectEx", "nc-ndkpi-ndk_fn_complete_connect_ex", COMPLETE_CONNECT)
        .since(V2_1),
    function("NdkAcceptEx", "nc-ndkpi-ndk_fn_accept_ex", ACCEPT).since(V2_1),
];

const LISTENER: &[Function] = &[
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
    ),
    function(
        "NdkGetLocalAddress",
        "nc-ndkpi-ndk_fn_get_listener_local_address",
        &[
            inline(STATUS_SUCCESS),
            inline(STATUS_BUFFER_TOO_SMALL),
            inline(STATUS_INVALID_DEVICE_STATE).sister(),
            BAD_POINTER,
        ],
    ),
    function("NdkControlConnectEvents", "nc-ndkpi-ndk_fn_control_connect_events", &[CALLED]),
];

const SHARED_ENDPOINT: &[Function] = &[
    function("NdkCloseSharedEndpoint", CLOSE_PAGE, CLOSE),
    QUERY,
    function(
        "NdkGetLocalAddress",
        "nc-ndkpi-ndk_fn_get_shared_endpoint_local_address",
        &[inline(STATUS_SUCCESS), inline(STATUS_BUFFER_TOO_SMALL), BAD_POINTER],
    ),
];

/// The statuses of requests and creations stand with the functions that start them.
const CALLBACK: &[Function] = &[
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
    entry(STATUS_DATA_OVERRUN).never("such a list is refused by the post itself");
/// A malformed request.
const MALFORMED: Documented =
    entry(STATUS_INVALID_DEVICE_REQUEST).never("such a request is refused by the post itself");
/// The QP failed.
const QP_FAULT: Documented = entry(STATUS_INTERNAL_ERROR);
/// The QP failed, for a request that never leaves this side.
const NO_QP_FAULT: Documented = entry(STATUS_INTERNAL_ERROR)
    .never("for a QP whose hardware failed: the request is carried out in memory");
/// What a request may meet at the other side.
const REMOTE: &[Documented] = &[
    DONE,
    TOO_LONG,
    entry(STATUS_ACCESS_VIOLATION),
    FLUSHED,
    MALFORMED,
    QP_FAULT,
    entry(STATUS_IO_TIMEOUT),
    entry(STATUS_REMOTE_RESOURCES),
];
/// What a request that concerns only this side may meet.
const LOCAL: &[Documented] = &[
    DONE,
    entry(STATUS_ACCESS_VIOLATION),
    FLUSHED,
    entry(STATUS_INVALID_DEVICE_REQUEST),
    NO_QP_FAULT,
];

const RESULT_PAGE: &str = "ns-ndkpi-_ndk_result_ex";

/// The sister interface's table of statuses by operation.
const COMPLETION: &[Function] = &[
    function(
        "NdkOperationTypeReceive",
        RESULT_PAGE,
        &[
            DONE,
            entry(STATUS_BUFFER_OVERFLOW),
            entry(STATUS_ACCESS_VIOLATION),
            FLUSHED,
            MALFORMED,
            QP_FAULT,
            entry(STATUS_IO_TIMEOUT)
                .never("a receive is not timed: it ends CANCELLED with its connection"),
            entry(STATUS_REMOTE_RESOURCES),
        ],
    ),
    // Failed receives are of the plain type: nothing was invalidated.
    function("NdkOperationTypeReceiveAndInvalidate", RESULT_PAGE, &[DONE]),
    function("NdkOperationTypeSend", RESULT_PAGE, REMOTE),
    function("NdkOperationTypeFastRegister", RESULT_PAGE, LOCAL),
    function("NdkOperationTypeBind", RESULT_PAGE, LOCAL),
    function(
        "NdkOperationTypeInvalidate",
        RESULT_PAGE,
        &[DONE, FLUSHED, entry(STATUS_INVALID_DEVICE_REQUEST), NO_QP_FAULT],
    ),
    function("NdkOperationTypeRead", RESULT_PAGE, REMOTE),
    function("NdkOperationTypeWrite", RESULT_PAGE, REMOTE),
];

/// Everything: the dispatch tables, the callbacks and the completions. `NDK_FN_DISCONNECT_EX` and
/// `NDK_FN_QUERY_ADAPTER_INFO_EX` are types of the header without a slot or a page.
pub const GROUPS: &[Group] = &[
    Group { name: "NDK_ADAPTER_DISPATCH", functions: ADAPTER },
    Group { name: "NDK_PD_DISPATCH", functions: PD },
    Group { name: "NDK_MR_DISPATCH", functions: MR },
    Group { name: "NDK_MW_DISPATCH", functions: MW },
    Group { name: "NDK_CQ_DISPATCH", functions: CQ },
    Group { name: "NDK_SRQ_DISPATCH", functions: SRQ },
    Group { name: "NDK_QP_DISPATCH", functions: QP },
    Group { name: "NDK_CONNECTOR_DISPATCH", functions: CONNECTOR },
    Group { name: "NDK_LISTENER_DISPATCH", functions: LISTENER },
    Group { name: "NDK_SHARED_ENDPOINT_DISPATCH", functions: SHARED_ENDPOINT },
    Group { name: CALLBACKS, functions: CALLBACK },
    Group { name: COMPLETIONS, functions: COMPLETION },
];

// A slot that is forgotten here does not compile.
const _: () = {
    assert!(lists(ADAPTER, NDK_ADAPTER_DISPATCH::SLOTS));
    assert!(lists(PD, NDK_PD_DISPATCH::SLOTS));
    assert!(lists(MR, NDK_MR_DISPATCH::SLOTS));
    assert!(lists(MW, NDK_MW_DISPATCH::SLOTS));
    assert!(lists(CQ, NDK_CQ_DISPATCH::SLOTS));
    assert!(lists(SRQ, NDK_SRQ_DISPATCH::SLOTS));
    assert!(lists(QP, NDK_QP_DISPATCH::SLOTS));
    assert!(lists(CONNECTOR, NDK_CONNECTOR_DISPATCH::SLOTS));
    assert!(lists(LISTENER, NDK_LISTENER_DISPATCH::SLOTS));
    assert!(lists(SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH::SLOTS));
};

/// Whether `functions` are the slots of a table, in order.
const fn lists(functions: &[Function], slots: &[&str]) -> bool {
    if functions.len() != slots.len() {
        return false;
    }
    let mut at = 0;
    while at < slots.len() {
        if !same(functions[at].name.as_bytes(), slots[at].as_bytes()) {
            return false;
        }
        at += 1;
    }
    true
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
