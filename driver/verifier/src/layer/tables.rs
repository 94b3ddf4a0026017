//! The tables of the layers: every function of every table, once.
//!
//! | Shape | The function | Ends |
//! | --- | --- | --- |
//! | `value` | has no completion | when it returns |
//! | `request`, `create` | has a completion and its context last, `create` also the place of the object | inline, or by the completion |
//! | `by` | is written out below, as its arguments stand in an order of their own | |
//!
//! Behind the arguments stands what the rules are asked about them. IRQL, statuses and the duties of the arguments are the
//! provider's, as its own functions have them.
#![allow(non_snake_case, reason = "C names")]
#![allow(clippy::too_many_arguments, reason = "as many as the header's functions have")]

use super::call::{Answer, CreateQp, Lower};
use super::pending::{Completion, Going, closed, created, requested};
use super::upcall;
use super::{Ask, Call, End, Kind, Operation, Post, Taken};
use driver::abi::*;
use std::ffi::c_void;
use std::ptr::{from_ref, null_mut};
use std::sync::Arc;

/// Enters a call, or returns the answer of one that is refused.
macro_rules! enter {
    ($object:ident, $kind:ident, $function:expr) => {
        match Call::enter($object, Kind::$kind, $function) {
            Ok(call) => call,
            Err(status) => return Answer::refused(status),
        }
    };
}

/// Asks the rules, or returns the answer of a call that they refuse.
macro_rules! ask {
    ($call:ident, $ask:expr) => {
        match $call.ask($ask) {
            Ok(then) => then,
            Err(status) => return Answer::refused(status),
        }
    };
}

/// One function of a table.
macro_rules! forward {
    ($Object:ident $Table:ident $Kind:ident $slot:ident value -> $R:ty, ($($arg:ident: $Arg:ty,)*) $ask:expr) => {
        #[allow(unused_mut, reason = "of some functions a rule changes an argument")]
        unsafe extern "system" fn $slot(object: *mut $Object, $(mut $arg: $Arg),*) -> $R {
            let call = enter!(object, $Kind, stringify!($slot));
            let then = ask!(call, $ask);
            // SAFETY: the table of this kind of object.
            let table = unsafe { call.object.table::<$Table>() };
            // SAFETY: the consumer's arguments, with the provider's objects.
            let answer = unsafe { (table.$slot)(call.object.inner().cast(), $($arg.lower()),*) };
            if let Some(then) = then {
                then(&End { status: answer.status(), made: None });
            }
            answer
        }
    };
    (
        $Object:ident $Table:ident $Kind:ident $slot:ident request
        $(event $maker:ident($callback:ident, $event_context:ident))?,
        ($($arg:ident: $Arg:ty,)*) $ask:expr
    ) => {
        #[allow(unused_mut, reason = "of some functions a rule changes an argument")]
        unsafe extern "system" fn $slot(
            object: *mut $Object,
            $(mut $arg: $Arg,)*
            completion: Option<NDK_FN_REQUEST_COMPLETION>,
            context: PVOID,
        ) -> NTSTATUS {
            let mut call = enter!(object, $Kind, stringify!($slot));
            call.uncompleted = completion.is_none();
            let then = ask!(call, $ask);
            $(if let Some(event) = upcall::$maker(&call, &mut $callback, &mut $event_context) {
                // The event is new.
                let _ = event.owner.set(Arc::downgrade(&call.object));
                call.object.keep([event]);
            })?
            // SAFETY: the table of this kind of object.
            let table = unsafe { call.object.table::<$Table>() };
            let inner = call.object.inner().cast();
            let ours: Option<NDK_FN_REQUEST_COMPLETION> = completion.map(|_| requested as _);
            let completion = Completion::Request(completion);
            Going { call, then, completion, context, event: None, out: null_mut() }.go(
                // SAFETY: the consumer's arguments, with the provider's objects and our completion.
                |context, _| unsafe { (table.$slot)(inner, $($arg.lower(),)* ours, context) },
            )
        }
    };
    (
        $Object:ident $Table:ident $Kind:ident $slot:ident create($Made:ident)
        $(event $maker:ident($callback:ident, $event_context:ident))?,
        ($($arg:ident: $Arg:ty,)*) $ask:expr
    ) => {
        #[allow(unused_mut, reason = "of some functions a rule changes an argument")]
        unsafe extern "system" fn $slot(
            object: *mut $Object,
            $(mut $arg: $Arg,)*
            completion: Option<NDK_FN_CREATE_COMPLETION>,
            context: PVOID,
            out: *mut *mut $Made,
        ) -> NTSTATUS {
            let mut call = enter!(object, $Kind, stringify!($slot));
            call.uncompleted = completion.is_none();
            let then = ask!(call, $ask);
            let event = None $(.or_else(|| upcall::$maker(&call, &mut $callback, &mut $event_context)))?;
            // SAFETY: the table of this kind of object.
            let table = unsafe { call.object.table::<$Table>() };
            let inner = call.object.inner().cast();
            let ours: Option<NDK_FN_CREATE_COMPLETION> = completion.map(|_| created as _);
            let completion = Completion::Create(completion);
            Going { call, then, completion, context, event, out: out.cast() }.go(
                // SAFETY: the consumer's arguments, with the provider's objects, our completion and our place.
                |context, place| unsafe { (table.$slot)(inner, $($arg.lower(),)* ours, context, place.cast()) },
            )
        }
    };
    ($Object:ident $Table:ident $Kind:ident $slot:ident by($function:ident), () $ask:expr) => {
        use super::$function as $slot;
    };
}

/// The close of a kind of object.
macro_rules! close {
    ($Table:ident $Kind:ident) => {};
    ($Table:ident $Kind:ident $Close:ident) => {
        unsafe extern "system" fn $Close(
            object: *mut NDK_OBJECT_HEADER,
            completion: Option<NDK_FN_CLOSE_COMPLETION>,
            context: PVOID,
        ) -> NTSTATUS {
            let mut call = enter!(object, $Kind, stringify!($Close));
            call.uncompleted = completion.is_none();
            let then = ask!(call, Ask::Close);
            if !call.object.closing() {
                call.layer.stale(&call);
                return STATUS_INVALID_DEVICE_STATE;
            }
            // SAFETY: the table of this kind of object.
            let table = unsafe { call.object.table::<$Table>() };
            let inner = call.object.inner();
            let ours: Option<NDK_FN_CLOSE_COMPLETION> = completion.map(|_| closed as _);
            let completion = Completion::Close(completion);
            Going { call, then, completion, context, event: None, out: null_mut() }.go(
                // SAFETY: the only close of an open object, with our completion.
                |context, _| unsafe { (table.$Close)(inner, ours, context) },
            )
        }
    };
}

macro_rules! tables {
    ($(
        $module:ident: $Object:ident $Table:ident $Kind:ident ($($Close:ident)?) {
            $($slot:ident: $shape:ident $(-> $R:tt)? $(($Made:ident))? $(event $maker:ident($callback:ident, $context:ident))?,
                ($($arg:ident: $Arg:ty),* $(,)?) $ask:expr;)+
        }
    )+) => {
        $(
            mod $module {
                use super::*;

                pub(super) static TABLE: $Table = $Table {
                    $($Close,)?
                    NdkQueryExtension,
                    $($slot,)+
                };

                close! { $Table $Kind $($Close)? }
                forward! {
                    NDK_OBJECT_HEADER $Table $Kind NdkQueryExtension value -> NTSTATUS,
                    (id: *const GUID, version: NDK_VERSION, extension: *mut NDK_EXTENSION_INTERFACE,) Ask::Plain
                }
                $(forward! {
                    $Object $Table $Kind $slot $shape $(-> $R)? $(($Made))? $(event $maker($callback, $context))?,
                    ($($arg: $Arg,)*) $ask
                })+
            }
        )+

        /// The table of a kind of object.
        pub(super) fn of(kind: Kind) -> *const c_void {
            match kind {
                $(Kind::$Kind => from_ref(&$module::TABLE).cast(),)+
            }
        }
    };
}

tables! {
    adapter: NDK_ADAPTER NDK_ADAPTER_DISPATCH Adapter () {
        NdkQueryAdapterInfo: value -> NTSTATUS, (info: *mut NDK_ADAPTER_INFO, size: *mut ULONG)
            Ask::Info { info, size };
        NdkCreateCq: create(NDK_CQ) event notification(notify, notify_context), (
            depth: ULONG,
            notify: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
            notify_context: PVOID,
            affinity: *const GROUP_AFFINITY,
        ) Ask::CreateCq { depth };
        NdkCreatePd: create(NDK_PD), () Ask::Create;
        NdkCreateSharedEndpoint: create(NDK_SHARED_ENDPOINT), (address: *const SOCKADDR, len: ULONG) Ask::Create;
        NdkCreateConnector: create(NDK_CONNECTOR), () Ask::Create;
        NdkCreateListener: create(NDK_LISTENER) event connect(event, event_context), (
            event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
            event_context: PVOID,
        ) Ask::Create;
        NdkBuildLAM: by(build_lam), () Ask::Plain;
        NdkReleaseLAM: value -> (), (lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) Ask::ReleaseLam { lam };
    }
    cq: NDK_CQ NDK_CQ_DISPATCH Cq (NdkCloseCq) {
        NdkResizeCq: request, (depth: ULONG) Ask::Resize { depth };
        NdkArmCq: value -> (), (kind: ULONG) Ask::Poll { null: false };
        NdkGetCqResults: by(get_cq_results), () Ask::Plain;
        NdkControlCqInterruptModeration: value -> NTSTATUS, (interval: ULONG, count: ULONG) Ask::Moderate;
        NdkGetCqResultsEx: by(get_cq_results_ex), () Ask::Plain;
    }
    mr: NDK_MR NDK_MR_DISPATCH Mr (NdkCloseMr) {
        NdkRegisterMr: request, (mdl: *mut MDL, len: SIZE_T, flags: ULONG) Ask::Register { mdl, len, flags };
        NdkDeregisterMr: request, () Ask::Deregister;
        NdkInitializeFastRegisterMr: request, (pages: ULONG, remote: BOOLEAN) Ask::Initialize { pages };
        NdkGetRemoteTokenFromMr: value -> UINT32, () Ask::Plain;
        NdkGetLocalTokenFromMr: value -> UINT32, () Ask::Plain;
    }
    mw: NDK_MW NDK_MW_DISPATCH Mw (NdkCloseMw) {
        NdkGetRemoteTokenFromMw: value -> UINT32, () Ask::Plain;
    }
    srq: NDK_SRQ NDK_SRQ_DISPATCH Srq (NdkCloseSrq) {
        NdkModifySrq: request, (depth: ULONG, threshold: ULONG) Ask::Modify { depth };
        NdkSrqReceive: value -> NTSTATUS, (context: PVOID, sgl: *const NDK_SGE, count: ULONG)
            post(&mut context, Operation::Receive, elements(sgl, count), 0);
    }
    qp: NDK_QP NDK_QP_DISPATCH Qp (NdkCloseQp) {
        NdkFlush: value -> (), () Ask::Flush;
        NdkSend: value -> NTSTATUS, (context: PVOID, sgl: *const NDK_SGE, count: ULONG, flags: ULONG)
            post(&mut context, Operation::Send, elements(sgl, count), flags);
        NdkReceive: value -> NTSTATUS, (context: PVOID, sgl: *const NDK_SGE, count: ULONG)
            post(&mut context, Operation::Receive, elements(sgl, count), 0);
        NdkBind: value -> NTSTATUS, (
            context: PVOID, mr: *mut NDK_MR, mw: *mut NDK_MW, address: PVOID, len: SIZE_T, flags: ULONG,
        ) post(&mut context, Operation::Bind { mr, mw, address: address.addr() as u64, len }, &[], flags);
        NdkFastRegister: value -> NTSTATUS, (
            context: PVOID,
            mr: *mut NDK_MR,
            count: ULONG,
            pages: *const NDK_LOGICAL_ADDRESS,
            fbo: ULONG,
            len: SIZE_T,
            base: PVOID,
            flags: ULONG,
        ) {
            // SAFETY: the consumer's array.
            let pages = unsafe { slice(pages, count) };
            let base = base.addr() as u64;
            post(&mut context, Operation::FastRegister { mr, pages, len, base }, &[], flags)
        };
        NdkInvalidate: value -> NTSTATUS, (context: PVOID, region: *mut NDK_OBJECT_HEADER, flags: ULONG)
            post(&mut context, Operation::Invalidate { object: region }, &[], flags);
        NdkRead: value -> NTSTATUS, (
            context: PVOID, sgl: *const NDK_SGE, count: ULONG, remote: UINT64, token: UINT32, flags: ULONG,
        ) post(&mut context, Operation::Read, elements(sgl, count), flags);
        NdkWrite: value -> NTSTATUS, (
            context: PVOID, sgl: *const NDK_SGE, count: ULONG, remote: UINT64, token: UINT32, flags: ULONG,
        ) post(&mut context, Operation::Write, elements(sgl, count), flags);
        NdkSendAndInvalidate: value -> NTSTATUS, (
            context: PVOID, sgl: *const NDK_SGE, count: ULONG, flags: ULONG, token: UINT32,
        ) post(&mut context, Operation::Send, elements(sgl, count), flags);
    }
    pd: NDK_PD NDK_PD_DISPATCH Pd (NdkClosePd) {
        NdkCreateMr: create(NDK_MR), (fast: BOOLEAN) Ask::CreateMr { fast: fast != FALSE };
        NdkCreateMw: create(NDK_MW), () Ask::Create;
        NdkCreateSrq: create(NDK_SRQ) event notification(notify, notify_context), (
            depth: ULONG,
            sge: ULONG,
            threshold: ULONG,
            notify: Option<NDK_FN_SRQ_NOTIFICATION_CALLBACK>,
            notify_context: PVOID,
            affinity: *const GROUP_AFFINITY,
        ) Ask::CreateSrq { depth, sge };
        NdkCreateQp: create(NDK_QP), (
            receive_cq: *mut NDK_CQ,
            initiator_cq: *mut NDK_CQ,
            qp_context: PVOID,
            receive_depth: ULONG,
            initiator_depth: ULONG,
            receive_sge: ULONG,
            initiator_sge: ULONG,
            inline: ULONG,
        ) Ask::CreateQp(CreateQp {
            cqs: [receive_cq, initiator_cq],
            srq: null_mut(),
            depths: [receive_depth, initiator_depth],
            sges: [receive_sge, initiator_sge],
            inline,
        });
        NdkCreateQpWithSrq: create(NDK_QP), (
            receive_cq: *mut NDK_CQ,
            initiator_cq: *mut NDK_CQ,
            srq: *mut NDK_SRQ,
            qp_context: PVOID,
            initiator_depth: ULONG,
            initiator_sge: ULONG,
            inline: ULONG,
        ) Ask::CreateQp(CreateQp {
            cqs: [receive_cq, initiator_cq],
            srq,
            depths: [0, initiator_depth],
            sges: [0, initiator_sge],
            inline,
        });
        NdkGetPrivilegedMemoryRegionToken: by(privileged_token), () Ask::Plain;
    }
    connector: NDK_CONNECTOR NDK_CONNECTOR_DISPATCH Connector (NdkCloseConnector) {
        NdkConnect: request, (
            qp: *mut NDK_QP,
            source: *const SOCKADDR,
            source_len: ULONG,
            destination: *const SOCKADDR,
            destination_len: ULONG,
            inbound: ULONG,
            outbound: ULONG,
            data: *const c_void,
            data_len: ULONG,
        ) Ask::Connect { qp, endpoint: null_mut(), limits: [&mut inbound, &mut outbound], data: data_len };
        NdkConnectWithSharedEndpoint: request, (
            qp: *mut NDK_QP,
            endpoint: *mut NDK_SHARED_ENDPOINT,
            destination: *const SOCKADDR,
            destination_len: ULONG,
            inbound: ULONG,
            outbound: ULONG,
            data: *const c_void,
            data_len: ULONG,
        ) Ask::Connect { qp, endpoint, limits: [&mut inbound, &mut outbound], data: data_len };
        NdkCompleteConnect: request event disconnect(event, event_context), (
            event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
            event_context: PVOID,
        ) Ask::Request;
        NdkAccept: request event disconnect(event, event_context), (
            qp: *mut NDK_QP,
            inbound: ULONG,
            outbound: ULONG,
            data: *const c_void,
            data_len: ULONG,
            event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
            event_context: PVOID,
        ) Ask::Accept { qp, limits: [&mut inbound, &mut outbound], data: data_len };
        NdkReject: value -> NTSTATUS, (data: *const c_void, len: ULONG) Ask::Reject { data: len };
        NdkGetConnectionData: value -> NTSTATUS, (
            inbound: *mut ULONG, outbound: *mut ULONG, data: PVOID, len: *mut ULONG,
        ) Ask::Plain;
        NdkGetLocalAddress: value -> NTSTATUS, (address: *mut SOCKADDR, len: *mut ULONG) Ask::Plain;
        NdkGetPeerAddress: value -> NTSTATUS, (address: *mut SOCKADDR, len: *mut ULONG) Ask::Plain;
        NdkDisconnect: request, () Ask::Request;
        NdkCompleteConnectEx: request event disconnect_ex(event, event_context), (
            event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
            event_context: PVOID,
        ) Ask::Request;
        NdkAcceptEx: request event disconnect_ex(event, event_context), (
            qp: *mut NDK_QP,
            inbound: ULONG,
            outbound: ULONG,
            data: *const c_void,
            data_len: ULONG,
            event: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>,
            event_context: PVOID,
        ) Ask::Accept { qp, limits: [&mut inbound, &mut outbound], data: data_len };
    }
    listener: NDK_LISTENER NDK_LISTENER_DISPATCH Listener (NdkCloseListener) {
        NdkListen: request, (address: *const SOCKADDR, len: ULONG) Ask::Request;
        NdkGetLocalAddress: value -> NTSTATUS, (address: *mut SOCKADDR, len: *mut ULONG) Ask::Plain;
        NdkControlConnectEvents: value -> (), (pause: BOOLEAN) Ask::Plain;
    }
    shared_endpoint: NDK_SHARED_ENDPOINT NDK_SHARED_ENDPOINT_DISPATCH SharedEndpoint (NdkCloseSharedEndpoint) {
        NdkGetLocalAddress: value -> NTSTATUS, (address: *mut SOCKADDR, len: *mut ULONG) Ask::Plain;
    }
}

const fn post<'a>(
    context: &'a mut PVOID,
    operation: Operation<'a>,
    sgl: &'a [NDK_SGE],
    flags: ULONG,
) -> Ask<'a> {
    Ask::Post(Post { context, operation, sgl, flags })
}

/// The elements of a work request, as long as its call runs.
fn elements<'a>(sgl: *const NDK_SGE, count: ULONG) -> &'a [NDK_SGE] {
    // SAFETY: the consumer's array.
    unsafe { slice(sgl, count) }
}

/// Its page has no way to fail, so a call that is refused gives no token.
unsafe extern "system" fn privileged_token(object: *mut NDK_PD, token: *mut UINT32) {
    let call = match Call::enter(object, Kind::Pd, "NdkGetPrivilegedMemoryRegionToken") {
        Ok(call) => call,
        Err(_) if token.is_null() => return,
        // SAFETY: the consumer's place.
        Err(_) => return unsafe { token.write(0) },
    };
    // SAFETY: the table of a domain.
    let table = unsafe { call.object.table::<NDK_PD_DISPATCH>() };
    let inner = call.object.inner().cast();
    // SAFETY: the consumer's place, and the provider's domain.
    unsafe { (table.NdkGetPrivilegedMemoryRegionToken)(inner, token) };
}

unsafe extern "system" fn build_lam(
    object: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    len: SIZE_T,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    lam_size: *mut ULONG,
    fbo: *mut ULONG,
) -> NTSTATUS {
    let call = enter!(object, Adapter, "NdkBuildLAM");
    let then = ask!(call, Ask::BuildLam { mdl, len, lam });
    // SAFETY: the table of an adapter.
    let table = unsafe { call.object.table::<NDK_ADAPTER_DISPATCH>() };
    let inner = call.object.inner().cast();
    let ours: Option<NDK_FN_REQUEST_COMPLETION> = completion.map(|_| requested as _);
    let completion = Completion::Request(completion);
    Going { call, then, completion, context, event: None, out: null_mut() }.go(
        // SAFETY: the consumer's arguments, with the provider's adapter and our completion.
        |context, _| unsafe {
            (table.NdkBuildLAM)(inner, mdl, len, ours, context, lam, lam_size, fbo)
        },
    )
}

/// Takes completions of one of two layouts.
macro_rules! polls {
    ($($name:ident $slot:ident $Result:ident $kind:expr, $token:expr;)+) => {$(
        unsafe extern "system" fn $name(object: *mut NDK_CQ, results: *mut $Result, count: ULONG) -> ULONG {
            let call = enter!(object, Cq, stringify!($slot));
            let then = ask!(call, Ask::Poll { null: results.is_null() && count > 0 });
            // SAFETY: the table of a CQ.
            let table = unsafe { call.object.table::<NDK_CQ_DISPATCH>() };
            // SAFETY: the consumer's array, and the provider's CQ.
            let taken = unsafe { (table.$slot)(call.object.inner().cast(), results, count) };
            if taken > 0 {
                // SAFETY: the provider has filled so many.
                let results = unsafe { slice_mut(results, taken) };
                let as_taken = |result| {
                    let kind: fn(&$Result) -> Option<NDK_OPERATION_TYPE> = $kind;
                    let token: fn(&$Result) -> Option<u32> = $token;
                    taken_of(result, kind, token, |result: &mut $Result| {
                        (result.Status, &mut result.RequestContext)
                    })
                };
                let mut all: Vec<_> = results.iter_mut().map(as_taken).collect();
                call.layer.taken(&call, &mut all);
            }
            if let Some(then) = then {
                then(&End { status: STATUS_SUCCESS, made: None });
            }
            taken
        }
    )+};
}

fn taken_of<R>(
    result: &mut R,
    kind: fn(&R) -> Option<NDK_OPERATION_TYPE>,
    token: fn(&R) -> Option<u32>,
    rest: impl FnOnce(&mut R) -> (NTSTATUS, &mut PVOID),
) -> Taken<'_> {
    let (kind, token) = (kind(result), token(result));
    let (status, request_context) = rest(result);
    Taken { status, request_context, kind, token }
}

polls! {
    get_cq_results NdkGetCqResults NDK_RESULT |_| None, |_| None;
    get_cq_results_ex NdkGetCqResultsEx NDK_RESULT_EX
        |result| Some(result.Type),
        |result| (result.Type == NdkOperationTypeReceiveAndInvalidate)
            .then_some(result.TypeSpecificCompletionOutput as u32);
}
