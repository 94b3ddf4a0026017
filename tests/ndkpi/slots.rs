//! The recording table of each type of object. Most slots are made from their function's type alone:
//! by what its last arguments are.

use crate::record::*;
use driver::abi::*;
use std::ffi::c_void;
use std::marker::PhantomData;
use tests::documented::Delivery;

/// A function that stands in a table in the provider's place.
trait Recorded<F> {
    const SLOT: F;
}

/// It returns a status.
struct Status<S>(PhantomData<S>);
/// It returns something else, or nothing.
struct Value<S>(PhantomData<S>);
/// It ends in a request completion and its context.
struct Request<S>(PhantomData<S>);
/// It ends in a create completion, its context, and where the object goes.
struct Create<S>(PhantomData<S>);
/// It closes an object.
struct Close<S>(PhantomData<S>);
/// It is given an event callback, or has its arguments in an order of its own.
struct Special<S>(PhantomData<S>);

macro_rules! arities {
    ($($status:ident $value:ident $request:ident $create:ident: ($($argument:ident: $type:ident),*);)+) => {$(
        unsafe extern "system" fn $status<S, O, $($type),*>(object: *mut O, $($argument: $type),*) -> NTSTATUS
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type),*) -> NTSTATUS>,
        {
            // SAFETY: the consumer's object is open.
            let test = unsafe { test_of(object) };
            // SAFETY: the consumer's arguments, as they are.
            let status = unsafe { S::original()(object, $($argument),*) };
            test.record(S::GROUP, S::NAME, Delivery::Inline, status);
            status
        }

        impl<S, O, $($type),*> Recorded<unsafe extern "system" fn(*mut O, $($type),*) -> NTSTATUS> for Status<S>
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type),*) -> NTSTATUS>,
        {
            const SLOT: unsafe extern "system" fn(*mut O, $($type),*) -> NTSTATUS = $status::<S, O, $($type),*>;
        }

        unsafe extern "system" fn $value<S, O, R, $($type),*>(object: *mut O, $($argument: $type),*) -> R
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type),*) -> R>,
        {
            // SAFETY: as above.
            let test = unsafe { test_of(object) };
            // SAFETY: as above.
            let value = unsafe { S::original()(object, $($argument),*) };
            test.record(S::GROUP, S::NAME, Delivery::Called, STATUS_SUCCESS);
            value
        }

        impl<S, O, R, $($type),*> Recorded<unsafe extern "system" fn(*mut O, $($type),*) -> R> for Value<S>
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type),*) -> R>,
        {
            const SLOT: unsafe extern "system" fn(*mut O, $($type),*) -> R = $value::<S, O, R, $($type),*>;
        }

        unsafe extern "system" fn $request<S, O, $($type),*>(
            object: *mut O,
            $($argument: $type,)*
            completion: Option<NDK_FN_REQUEST_COMPLETION>,
            context: PVOID,
        ) -> NTSTATUS
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS>,
        {
            // SAFETY: as above.
            let test = unsafe { test_of(object) };
            let pending = Pending::new::<S>(test, completion, context);
            // SAFETY: as above.
            let status = unsafe { S::original()(object, $($argument,)* completion.map(|_| requested as _), pending.as_context()) };
            pending.returned(status)
        }

        impl<S, O, $($type),*> Recorded<unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS>
            for Request<S>
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS>,
        {
            const SLOT: unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS =
                $request::<S, O, $($type),*>;
        }

        unsafe extern "system" fn $create<S, O, T, $($type),*>(
            object: *mut O,
            $($argument: $type,)*
            completion: Option<NDK_FN_CREATE_COMPLETION>,
            context: PVOID,
            out: *mut *mut T,
        ) -> NTSTATUS
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut T) -> NTSTATUS>,
        {
            // SAFETY: as above.
            let test = unsafe { test_of(object) };
            let pending = Pending::new::<S>(test, completion, context);
            // SAFETY: as above.
            let status = unsafe { S::original()(object, $($argument,)* completion.map(|_| created as _), pending.as_context(), out) };
            // SAFETY: the contract of a creation.
            unsafe { creation_returned(pending, status, out) }
        }

        impl<S, O, T, $($type),*> Recorded<unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut T) -> NTSTATUS>
            for Create<S>
        where
            S: Slot<Function = unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut T) -> NTSTATUS>,
        {
            const SLOT: unsafe extern "system" fn(*mut O, $($type,)* Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut T) -> NTSTATUS =
                $create::<S, O, T, $($type),*>;
        }
    )+};
}

arities! {
    status0 value0 request0 create0: ();
    status1 value1 request1 create1: (a: A);
    status2 value2 request2 create2: (a: A, b: B);
    status3 value3 request3 create3: (a: A, b: B, c: C);
    status4 value4 request4 create4: (a: A, b: B, c: C, d: D);
    status5 value5 request5 create5: (a: A, b: B, c: C, d: D, e: E);
    status6 value6 request6 create6: (a: A, b: B, c: C, d: D, e: E, f: F);
    status7 value7 request7 create7: (a: A, b: B, c: C, d: D, e: E, f: F, g: G);
    status8 value8 request8 create8: (a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H);
    status9 value9 request9 create9: (a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I);
}

unsafe extern "system" fn close<S: Slot<Function = NDK_FN_CLOSE_OBJECT>>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer's object is open.
    let test = unsafe { test_of(object) };
    let pending = Pending::new::<S>(test, completion, context);
    // SAFETY: as above.
    let status =
        unsafe { S::original()(object, completion.map(|_| closed as _), pending.as_context()) };
    pending.returned(status)
}

impl<S: Slot<Function = NDK_FN_CLOSE_OBJECT>> Recorded<NDK_FN_CLOSE_OBJECT> for Close<S> {
    const SLOT: NDK_FN_CLOSE_OBJECT = close::<S>;
}

macro_rules! tables {
    ($($module:ident: $object:ident, $table:ident, $type:ident { $($slot:ident: $kind:ident<$function:ident>,)+ })+) => {
        $(
            mod $module {
                use super::*;
                use std::sync::OnceLock;

                pub(super) static ORIGINAL: OnceLock<&'static $table> = OnceLock::new();
                pub(super) static TABLE: $table =
                    $table { $($slot: <$kind<$slot> as Recorded<$function>>::SLOT,)+ };

                $(
                    pub(super) enum $slot {}

                    impl Slot for $slot {
                        const GROUP: &'static str = stringify!($table);
                        const NAME: &'static str = stringify!($slot);
                        type Function = $function;

                        fn original() -> $function {
                            ORIGINAL.get().expect("an object of this type was wrapped").$slot
                        }
                    }
                )+
            }
        )+

        /// Takes a new object under recording.
        pub(crate) fn wrap(object: *mut NDK_OBJECT_HEADER, test: &'static Test) {
            // SAFETY: the object is open and nobody else has it yet.
            let kind = unsafe { (*object).ObjectType };
            match kind {
                $($type => {
                    // SAFETY: as above; the type is the object's own word.
                    let dispatch = unsafe { (*object.cast::<$object>()).Dispatch.get() };
                    // SAFETY: as above.
                    unsafe { replace(object, dispatch, &$module::ORIGINAL, &$module::TABLE, test) };
                })+
                _ => panic!("an object of no type: {kind:?}"),
            }
        }
    };
}

tables! {
    adapter: NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NdkObjectTypeAdapter {
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkQueryAdapterInfo: Status<NDK_FN_QUERY_ADAPTER_INFO>,
        NdkCreateCq: Special<NDK_FN_CREATE_CQ>,
        NdkCreatePd: Create<NDK_FN_CREATE_PD>,
        NdkCreateSharedEndpoint: Create<NDK_FN_CREATE_SHARED_ENDPOINT>,
        NdkCreateConnector: Create<NDK_FN_CREATE_CONNECTOR>,
        NdkCreateListener: Special<NDK_FN_CREATE_LISTENER>,
        NdkBuildLAM: Special<NDK_FN_BUILD_LAM>,
        NdkReleaseLAM: Value<NDK_FN_RELEASE_LAM>,
    }
    pd: NDK_PD, NDK_PD_DISPATCH, NdkObjectTypePd {
        NdkClosePd: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkCreateMr: Create<NDK_FN_CREATE_MR>,
        NdkCreateMw: Create<NDK_FN_CREATE_MW>,
        NdkCreateSrq: Special<NDK_FN_CREATE_SRQ>,
        NdkCreateQp: Create<NDK_FN_CREATE_QP>,
        NdkCreateQpWithSrq: Create<NDK_FN_CREATE_QP_WITH_SRQ>,
        NdkGetPrivilegedMemoryRegionToken: Value<NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN>,
    }
    mr: NDK_MR, NDK_MR_DISPATCH, NdkObjectTypeMr {
        NdkCloseMr: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkRegisterMr: Request<NDK_FN_REGISTER_MR>,
        NdkDeregisterMr: Request<NDK_FN_DEREGISTER_MR>,
        NdkInitializeFastRegisterMr: Request<NDK_FN_INITIALIZE_FAST_REGISTER_MR>,
        NdkGetRemoteTokenFromMr: Value<NDK_FN_GET_REMOTE_TOKEN_FROM_MR>,
        NdkGetLocalTokenFromMr: Value<NDK_FN_GET_LOCAL_TOKEN_FROM_MR>,
    }
    mw: NDK_MW, NDK_MW_DISPATCH, NdkObjectTypeMw {
        NdkCloseMw: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkGetRemoteTokenFromMw: Value<NDK_FN_GET_REMOTE_TOKEN_FROM_MW>,
    }
    cq: NDK_CQ, NDK_CQ_DISPATCH, NdkObjectTypeCq {
        NdkCloseCq: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkResizeCq: Request<NDK_FN_RESIZE_CQ>,
        NdkArmCq: Value<NDK_FN_ARM_CQ>,
        NdkGetCqResults: Value<NDK_FN_GET_CQ_RESULTS>,
        NdkControlCqInterruptModeration: Status<NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION>,
        NdkGetCqResultsEx: Special<NDK_FN_GET_CQ_RESULTS_EX>,
    }
    srq: NDK_SRQ, NDK_SRQ_DISPATCH, NdkObjectTypeSrq {
        NdkCloseSrq: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkModifySrq: Request<NDK_FN_MODIFY_SRQ>,
        NdkSrqReceive: Status<NDK_FN_SRQ_RECEIVE>,
    }
    qp: NDK_QP, NDK_QP_DISPATCH, NdkObjectTypeQp {
        NdkCloseQp: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkFlush: Value<NDK_FN_FLUSH>,
        NdkSend: Status<NDK_FN_SEND>,
        NdkReceive: Status<NDK_FN_RECEIVE>,
        NdkBind: Status<NDK_FN_BIND>,
        NdkFastRegister: Status<NDK_FN_FAST_REGISTER>,
        NdkInvalidate: Status<NDK_FN_INVALIDATE>,
        NdkRead: Status<NDK_FN_READ>,
        NdkWrite: Status<NDK_FN_WRITE>,
        NdkSendAndInvalidate: Status<NDK_FN_SEND_AND_INVALIDATE>,
    }
    connector: NDK_CONNECTOR, NDK_CONNECTOR_DISPATCH, NdkObjectTypeConnector {
        NdkCloseConnector: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkConnect: Request<NDK_FN_CONNECT>,
        NdkConnectWithSharedEndpoint: Request<NDK_FN_CONNECT_WITH_SHARED_ENDPOINT>,
        NdkCompleteConnect: Special<NDK_FN_COMPLETE_CONNECT>,
        NdkAccept: Special<NDK_FN_ACCEPT>,
        NdkReject: Status<NDK_FN_REJECT>,
        NdkGetConnectionData: Status<NDK_FN_GET_CONNECTION_DATA>,
        NdkGetLocalAddress: Status<NDK_FN_GET_LOCAL_ADDRESS>,
        NdkGetPeerAddress: Status<NDK_FN_GET_PEER_ADDRESS>,
        NdkDisconnect: Request<NDK_FN_DISCONNECT>,
        NdkCompleteConnectEx: Special<NDK_FN_COMPLETE_CONNECT_EX>,
        NdkAcceptEx: Special<NDK_FN_ACCEPT_EX>,
    }
    listener: NDK_LISTENER, NDK_LISTENER_DISPATCH, NdkObjectTypeListener {
        NdkCloseListener: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkListen: Request<NDK_FN_LISTEN>,
        NdkGetLocalAddress: Status<NDK_FN_GET_LISTENER_LOCAL_ADDRESS>,
        NdkControlConnectEvents: Value<NDK_FN_CONTROL_CONNECT_EVENTS>,
    }
    shared_endpoint: NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH, NdkObjectTypeSharedEndpoint {
        NdkCloseSharedEndpoint: Close<NDK_FN_CLOSE_OBJECT>,
        NdkQueryExtension: Status<NDK_FN_QUERY_EXTENSION_INTERFACE>,
        NdkGetLocalAddress: Status<NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS>,
    }
}

/// A [`Special`] slot: the arguments with their types, and what is done with them around the call
/// of the provider's function.
macro_rules! special {
    ($(
        $module:ident::$slot:ident: $function:ident($object:ident: $of:ty, $($argument:ident: $type:ty),+) -> $answer:ty
        |$test:ident| $body:block
    )+) => {$(
        impl Recorded<$function> for Special<$module::$slot> {
            const SLOT: $function = {
                unsafe extern "system" fn slot($object: $of, $($argument: $type),+) -> $answer {
                    // SAFETY: the consumer's object is open.
                    let $test = unsafe { test_of($object) };
                    $body
                }
                slot
            };
        }
    )+};
}

type CreateDone = Option<NDK_FN_CREATE_COMPLETION>;
type RequestDone = Option<NDK_FN_REQUEST_COMPLETION>;
type Left = Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>;
type LeftEx = Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>;

special! {
    adapter::NdkCreateCq: NDK_FN_CREATE_CQ(
        object: *mut NDK_ADAPTER, depth: ULONG, callback: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
        callback_context: PVOID, affinity: *const GROUP_AFFINITY, done: CreateDone, context: PVOID,
        out: *mut *mut NDK_CQ
    ) -> NTSTATUS |test| {
        let (callback, callback_context) = event(test, callback, callback_context, cq_notified);
        let pending = Pending::new::<adapter::NdkCreateCq>(test, done, context);
        let (done, context) = (done.map(|_| created as _), pending.as_context());
        // SAFETY: the consumer's arguments; callbacks and contexts are leaked.
        let status = unsafe {
            adapter::NdkCreateCq::original()(object, depth, callback, callback_context, affinity, done, context, out)
        };
        // SAFETY: the contract of a creation.
        unsafe { creation_returned(pending, status, out) }
    }

    adapter::NdkCreateListener: NDK_FN_CREATE_LISTENER(
        object: *mut NDK_ADAPTER, callback: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
        callback_context: PVOID, done: CreateDone, context: PVOID, out: *mut *mut NDK_LISTENER
    ) -> NTSTATUS |test| {
        let (callback, callback_context) = event(test, callback, callback_context, connecting);
        let pending = Pending::new::<adapter::NdkCreateListener>(test, done, context);
        let (done, context) = (done.map(|_| created as _), pending.as_context());
        // SAFETY: the consumer's arguments; callbacks and contexts are leaked.
        let status = unsafe {
            adapter::NdkCreateListener::original()(object, callback, callback_context, done, context, out)
        };
        // SAFETY: the contract of a creation.
        unsafe { creation_returned(pending, status, out) }
    }

    adapter::NdkBuildLAM: NDK_FN_BUILD_LAM(
        object: *mut NDK_ADAPTER, mdl: *mut MDL, length: SIZE_T, done: RequestDone, context: PVOID,
        lam: *mut NDK_LOGICAL_ADDRESS_MAPPING, size: *mut ULONG, fbo: *mut ULONG
    ) -> NTSTATUS |test| {
        let pending = Pending::new::<adapter::NdkBuildLAM>(test, done, context);
        let (done, context) = (done.map(|_| requested as _), pending.as_context());
        // SAFETY: the consumer's arguments; the context is leaked.
        let status = unsafe {
            adapter::NdkBuildLAM::original()(object, mdl, length, done, context, lam, size, fbo)
        };
        pending.returned(status)
    }

    pd::NdkCreateSrq: NDK_FN_CREATE_SRQ(
        object: *mut NDK_PD, depth: ULONG, sge: ULONG, threshold: ULONG,
        callback: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>, callback_context: PVOID,
        affinity: *const GROUP_AFFINITY, done: CreateDone, context: PVOID, out: *mut *mut NDK_SRQ
    ) -> NTSTATUS |test| {
        let (callback, callback_context) = event(test, callback, callback_context, srq_notified);
        let pending = Pending::new::<pd::NdkCreateSrq>(test, done, context);
        let (done, context) = (done.map(|_| created as _), pending.as_context());
        // SAFETY: the consumer's arguments; callbacks and contexts are leaked.
        let status = unsafe {
            pd::NdkCreateSrq::original()(
                object, depth, sge, threshold, callback, callback_context, affinity, done, context, out,
            )
        };
        // SAFETY: the contract of a creation.
        unsafe { creation_returned(pending, status, out) }
    }

    cq::NdkGetCqResultsEx: NDK_FN_GET_CQ_RESULTS_EX(
        object: *mut NDK_CQ, results: *mut NDK_RESULT_EX, count: ULONG
    ) -> ULONG |test| {
        // SAFETY: the consumer's arguments.
        let taken = unsafe { cq::NdkGetCqResultsEx::original()(object, results, count) };
        test.record("NDK_CQ_DISPATCH", "NdkGetCqResultsEx", Delivery::Called, STATUS_SUCCESS);
        // SAFETY: that many were written.
        for result in unsafe { slice(results, taken) } {
            test.entry(result.Type, result.Status);
        }
        taken
    }

    connector::NdkCompleteConnect: NDK_FN_COMPLETE_CONNECT(
        object: *mut NDK_CONNECTOR, callback: Left, callback_context: PVOID, done: RequestDone,
        context: PVOID
    ) -> NTSTATUS |test| {
        let (callback, callback_context) = event(test, callback, callback_context, disconnected);
        let pending = Pending::new::<connector::NdkCompleteConnect>(test, done, context);
        let (done, context) = (done.map(|_| requested as _), pending.as_context());
        // SAFETY: the consumer's arguments; callbacks and contexts are leaked.
        pending.returned(unsafe {
            connector::NdkCompleteConnect::original()(object, callback, callback_context, done, context)
        })
    }

    connector::NdkCompleteConnectEx: NDK_FN_COMPLETE_CONNECT_EX(
        object: *mut NDK_CONNECTOR, callback: LeftEx, callback_context: PVOID, done: RequestDone,
        context: PVOID
    ) -> NTSTATUS |test| {
        let (callback, callback_context) = event(test, callback, callback_context, disconnected_ex);
        let pending = Pending::new::<connector::NdkCompleteConnectEx>(test, done, context);
        let (done, context) = (done.map(|_| requested as _), pending.as_context());
        // SAFETY: the consumer's arguments; callbacks and contexts are leaked.
        pending.returned(unsafe {
            connector::NdkCompleteConnectEx::original()(object, callback, callback_context, done, context)
        })
    }

    connector::NdkAccept: NDK_FN_ACCEPT(
        object: *mut NDK_CONNECTOR, qp: *mut NDK_QP, inbound: ULONG, outbound: ULONG,
        data: *const c_void, data_len: ULONG, callback: Left, callback_context: PVOID,
        done: RequestDone, context: PVOID
    ) -> NTSTATUS |test| {
        let (callback, callback_context) = event(test, callback, callback_context, disconnected);
        let pending = Pending::new::<connector::NdkAccept>(test, done, context);
        let (done, context) = (done.map(|_| requested as _), pending.as_context());
        // SAFETY: the consumer's arguments; callbacks and contexts are leaked.
        pending.returned(unsafe {
            connector::NdkAccept::original()(
                object, qp, inbound, outbound, data, data_len, callback, callback_context, done, context,
            )
        })
    }

    connector::NdkAcceptEx: NDK_FN_ACCEPT_EX(
        object: *mut NDK_CONNECTOR, qp: *mut NDK_QP, inbound: ULONG, outbound: ULONG,
        data: *const c_void, data_len: ULONG, callback: LeftEx, callback_context: PVOID,
        done: RequestDone, context: PVOID
    ) -> NTSTATUS |test| {
        let (callback, callback_context) = event(test, callback, callback_context, disconnected_ex);
        let pending = Pending::new::<connector::NdkAcceptEx>(test, done, context);
        let (done, context) = (done.map(|_| requested as _), pending.as_context());
        // SAFETY: the consumer's arguments; callbacks and contexts are leaked.
        pending.returned(unsafe {
            connector::NdkAcceptEx::original()(
                object, qp, inbound, outbound, data, data_len, callback, callback_context, done, context,
            )
        })
    }
}
