//! Adapter, domain, memory, queues.

use super::*;

pub(super) const ADAPTER: &[Function] = &[
    QUERY,
    function(
        "NdkQueryAdapterInfo",
        "nc-ndkpi-ndk_fn_query_adapter_info",
        &[inline(STATUS_SUCCESS), inline(STATUS_BUFFER_TOO_SMALL), BAD_POINTER],
    )
    .typed(),
    function("NdkCreateCq", "nc-ndkpi-ndk_fn_create_cq", CREATE_LIMITED).typed(),
    function("NdkCreatePd", "nc-ndkpi-ndk_fn_create_pd", CREATE).typed(),
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
    )
    .typed(),
    function("NdkCreateConnector", "nc-ndkpi-ndk_fn_create_connector", CREATE).typed(),
    function("NdkCreateListener", "nc-ndkpi-ndk_fn_create_listener", CREATE).typed(),
    function(
        "NdkBuildLAM",
        "nc-ndkpi-ndk_fn_build_lam",
        &[
            SUCCESS,
            PENDING.never("its completion is optional, so it always ends inline"),
            inline(STATUS_INVALID_PARAMETER),
            RESOURCES,
            inline(STATUS_BUFFER_TOO_SMALL),
        ],
    )
    .typed(),
    function("NdkReleaseLAM", "nc-ndkpi-ndk_fn_release_lam", &[CALLED]),
];

pub(super) const CQ: &[Function] = &[
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
            either(STATUS_BUFFER_OVERFLOW).sister("it holds more results than the new depth"),
            either(STATUS_INVALID_DEVICE_STATE).ours("it has overrun"),
        ],
    )
    .checked(),
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
    )
    .checked(),
    function("NdkGetCqResultsEx", "nc-ndkpi-ndk_fn_get_cq_results_ex", &[CALLED]).since(V1_2),
];

const FOR_FAST_REGISTRATION: Documented =
    inline(STATUS_INVALID_DEVICE_REQUEST).ours("the region is for fast registration");

pub(super) const MR: &[Function] = &[
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
            FOR_FAST_REGISTRATION,
            either(STATUS_INVALID_DEVICE_STATE).ours("the region is registered"),
        ],
    )
    .checked(),
    function(
        "NdkDeregisterMr",
        "nc-ndkpi-ndk_fn_deregister_mr",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_DEVICE_BUSY).sister("").never(
                "the page names no failure: a window on the region ends with the registration",
            ),
            either(STATUS_INVALID_DEVICE_STATE).ours("the region is not registered"),
            FOR_FAST_REGISTRATION,
            NO_ROOM,
        ],
    )
    .checked(),
    function(
        "NdkInitializeFastRegisterMr",
        "nc-ndkpi-ndk_fn_initialize_fast_register_mr",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_IMPLEMENTATION_LIMIT),
            RESOURCES,
            inline(STATUS_INVALID_DEVICE_REQUEST).ours("the region is for `NdkRegisterMr`"),
            either(STATUS_INVALID_DEVICE_STATE).ours("the region is initialised"),
        ],
    )
    .checked(),
    function("NdkGetRemoteTokenFromMr", "nc-ndkpi-ndk_fn_get_remote_token_from_mr", &[CALLED]),
    function("NdkGetLocalTokenFromMr", "nc-ndkpi-ndk_fn_get_local_token_from_mr", &[CALLED]),
];

pub(super) const MW: &[Function] = &[
    function("NdkCloseMw", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkGetRemoteTokenFromMw", "nc-ndkpi-ndk_fn_get_remote_token_from_mw", &[CALLED]),
];

pub(super) const SRQ: &[Function] = &[
    function("NdkCloseSrq", CLOSE_PAGE, CLOSE),
    QUERY,
    function(
        "NdkModifySrq",
        "nc-ndkpi-ndk_fn_modify_srq",
        &[
            SUCCESS,
            PENDING,
            either(STATUS_INVALID_PARAMETER),
            either(STATUS_BUFFER_OVERFLOW).sister("it holds more receives than the new depth"),
            NO_ROOM,
        ],
    )
    .checked(),
    function(
        "NdkSrqReceive",
        "nc-ndkpi-ndk_fn_srq_receive",
        &[inline(STATUS_SUCCESS), QUEUE_FULL, TOO_MANY_ELEMENTS, TOO_MANY_BYTES, CONCURRENT],
    )
    .checked(),
];

const POST: &[Documented] = &[
    inline(STATUS_SUCCESS),
    NOT_CONNECTED,
    QUEUE_FULL,
    TOO_MANY_ELEMENTS,
    TOO_MANY_BYTES,
    CONCURRENT,
];

const NOT_FOR_FAST_REGISTRATION: Documented = inline(STATUS_INVALID_DEVICE_REQUEST)
    .ours("another thread posts to the queue, or the region is for `NdkRegisterMr`");
const NOT_INITIALISED: Documented = inline(STATUS_INVALID_DEVICE_STATE)
    .ours("the region is not initialised, or an object is closed");

pub(super) const QP: &[Function] = &[
    function("NdkCloseQp", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkFlush", "nc-ndkpi-ndk_fn_flush", &[CALLED]),
    function("NdkSend", "nc-ndkpi-ndk_fn_send", POST).checked(),
    function(
        "NdkReceive",
        "nc-ndkpi-ndk_fn_receive",
        &[inline(STATUS_SUCCESS), QUEUE_FULL, TOO_MANY_ELEMENTS, TOO_MANY_BYTES, CONCURRENT],
    )
    .checked(),
    function(
        "NdkBind",
        "nc-ndkpi-ndk_fn_bind",
        &[
            inline(STATUS_SUCCESS),
            NOT_CONNECTED,
            inline(STATUS_ACCESS_VIOLATION),
            QUEUE_FULL,
            CONCURRENT,
            inline(STATUS_INVALID_PARAMETER)
                .ours("the region, the window or the queue pair is NULL or of another type"),
            inline(STATUS_INVALID_DEVICE_STATE)
                .ours("the region has no token, or an object is closed"),
        ],
    )
    .checked(),
    function(
        "NdkFastRegister",
        "nc-ndkpi-ndk_fn_fast_register",
        &[
            inline(STATUS_SUCCESS),
            NOT_CONNECTED,
            inline(STATUS_ACCESS_VIOLATION),
            QUEUE_FULL,
            NOT_FOR_FAST_REGISTRATION,
            inline(STATUS_INVALID_PARAMETER)
                .ours("an object is NULL or of another type, or the numbers do not fit each other"),
            NOT_INITIALISED,
            inline(STATUS_INSUFFICIENT_RESOURCES)
                .ours("the region's page list and those of the pool are queued or in force"),
        ],
    )
    .checked(),
    function(
        "NdkInvalidate",
        "nc-ndkpi-ndk_fn_invalidate",
        &[
            inline(STATUS_SUCCESS),
            NOT_CONNECTED,
            QUEUE_FULL,
            NOT_FOR_FAST_REGISTRATION,
            inline(STATUS_INVALID_PARAMETER).ours("there is neither a region nor a window"),
            NOT_INITIALISED,
            inline(STATUS_ACCESS_VIOLATION).ours("the region or window is of another domain"),
        ],
    )
    .checked(),
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
            inline(STATUS_INVALID_DEVICE_REQUEST)
                .ours("another thread posts to the queue, or the peers agreed on no READs"),
        ],
    )
    .checked(),
    function("NdkWrite", "nc-ndkpi-ndk_fn_write", POST).checked(),
    function("NdkSendAndInvalidate", "nc-ndkpi-ndk_fn_send_and_invalidate", POST)
        .checked()
        .since(V1_2),
];

pub(super) const PD: &[Function] = &[
    function("NdkClosePd", CLOSE_PAGE, CLOSE),
    QUERY,
    function("NdkCreateMr", "nc-ndkpi-ndk_fn_create_mr", CREATE).checked(),
    function("NdkCreateMw", "nc-ndkpi-ndk_fn_create_mw", CREATE).checked(),
    function("NdkCreateSrq", "nc-ndkpi-ndk_fn_create_srq", CREATE_LIMITED).checked(),
    function("NdkCreateQp", "nc-ndkpi-ndk_fn_create_qp", CREATE_LIMITED).checked(),
    function("NdkCreateQpWithSrq", "nc-ndkpi-ndk_fn_create_qp_with_srq", CREATE_LIMITED).checked(),
    function(
        "NdkGetPrivilegedMemoryRegionToken",
        "nc-ndkpi-ndk_fn_get_privileged_memory_region_token",
        &[CALLED],
    ),
];
