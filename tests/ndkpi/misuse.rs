//! What a consumer must not do, and what it is told: calls on objects that it has closed, second closes, and calls that
//! race where it should serialize. Calls on no object are in `tables::misuse`.
//!
//! An object is closed while its provider is held inside a callback, so that it is still there.

use driver::abi::*;
use ndk_consumer::SrqConfig;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;
use tests::call_on;
use tests::kit::Net;
use tests::kit::raw::{Object, PATIENCE, create, start, wait};

crate::tests! {
    a_closed_object_is_refused
    calls_that_race_are_turned_away
}

const NONE: PVOID = std::ptr::null_mut();

unsafe extern "system" fn no_create(_: PVOID, _: NTSTATUS, _: *mut NDK_OBJECT_HEADER) {
    panic!("refused inline");
}

unsafe extern "system" fn no_request(_: PVOID, _: NTSTATUS) {
    panic!("refused inline");
}

const CREATED: Option<NDK_FN_CREATE_COMPLETION> = Some(no_create);
const REQUESTED: Option<NDK_FN_REQUEST_COMPLETION> = Some(no_request);

fn pd_calls(table: Object<NDK_PD>, on: *mut NDK_PD, cq: *mut NDK_CQ) -> Vec<NTSTATUS> {
    let (none, out) = (NONE, NONE);
    vec![
        call_on!(table, on, NdkCreateMr, FALSE, CREATED, none, out.cast()),
        call_on!(table, on, NdkCreateMw, CREATED, none, out.cast()),
        call_on!(
            table,
            on,
            NdkCreateSrq,
            1,
            1,
            0,
            None,
            none,
            none.cast(),
            CREATED,
            none,
            out.cast()
        ),
        call_on!(table, on, NdkCreateQp, cq, cq, none, 1, 1, 1, 1, 0, CREATED, none, out.cast()),
        call_on!(
            table,
            on,
            NdkCreateQpWithSrq,
            cq,
            cq,
            none.cast(),
            none,
            1,
            1,
            0,
            CREATED,
            none,
            out.cast()
        ),
    ]
}

fn cq_calls(table: Object<NDK_CQ>, on: *mut NDK_CQ) -> Vec<NTSTATUS> {
    // Those that have no status do nothing.
    call_on!(table, on, NdkArmCq, NDK_CQ_NOTIFY_ANY);
    assert_eq!(call_on!(table, on, NdkGetCqResults, NONE.cast(), 0), 0);
    assert_eq!(call_on!(table, on, NdkGetCqResultsEx, NONE.cast(), 0), 0);
    vec![
        call_on!(table, on, NdkResizeCq, 1, REQUESTED, NONE),
        call_on!(table, on, NdkControlCqInterruptModeration, 0, 0),
    ]
}

fn mr_calls(table: Object<NDK_MR>, on: *mut NDK_MR) -> Vec<NTSTATUS> {
    vec![
        call_on!(table, on, NdkRegisterMr, NONE.cast(), 0, 0, REQUESTED, NONE),
        call_on!(table, on, NdkDeregisterMr, REQUESTED, NONE),
        call_on!(table, on, NdkInitializeFastRegisterMr, 1, TRUE, REQUESTED, NONE),
    ]
}

fn srq_calls(table: Object<NDK_SRQ>, on: *mut NDK_SRQ) -> Vec<NTSTATUS> {
    vec![
        call_on!(table, on, NdkModifySrq, 0, 1, REQUESTED, NONE),
        call_on!(table, on, NdkSrqReceive, NONE, std::ptr::null(), 0),
    ]
}

fn qp_calls(table: Object<NDK_QP>, on: *mut NDK_QP) -> Vec<NTSTATUS> {
    let (none, no_list) = (NONE, std::ptr::null());
    vec![
        call_on!(table, on, NdkSend, none, no_list, 0, 0),
        call_on!(table, on, NdkSendAndInvalidate, none, no_list, 0, 0, 7),
        call_on!(table, on, NdkReceive, none, no_list, 0),
        call_on!(table, on, NdkRead, none, no_list, 0, 0, 7, 0),
        call_on!(table, on, NdkWrite, none, no_list, 0, 0, 7, 0),
        call_on!(table, on, NdkBind, none, none.cast(), none.cast(), none, 0, 0),
        call_on!(table, on, NdkFastRegister, none, none.cast(), 0, none.cast(), 0, 0, none, 0),
        call_on!(table, on, NdkInvalidate, none, none.cast(), 0),
    ]
}

fn connector_calls(table: Object<NDK_CONNECTOR>, on: *mut NDK_CONNECTOR) -> Vec<NTSTATUS> {
    let (mut len, mut at) = (28, SOCKADDR_INET::UNSPECIFIED);
    let (none, qp, len) = (NONE, NONE.cast(), &raw mut len);
    let to = at.as_ptr();
    let out: *mut SOCKADDR = (&raw mut at).cast();
    vec![
        call_on!(table, on, NdkConnect, qp, to, 16, to, 16, 1, 1, none, 0, REQUESTED, none),
        call_on!(
            table,
            on,
            NdkConnectWithSharedEndpoint,
            qp,
            none.cast(),
            to,
            16,
            1,
            1,
            none,
            0,
            REQUESTED,
            none
        ),
        call_on!(table, on, NdkCompleteConnect, None, none, REQUESTED, none),
        call_on!(table, on, NdkCompleteConnectEx, None, none, REQUESTED, none),
        call_on!(table, on, NdkAccept, qp, 1, 1, none, 0, None, none, REQUESTED, none),
        call_on!(table, on, NdkAcceptEx, qp, 1, 1, none, 0, None, none, REQUESTED, none),
        call_on!(table, on, NdkReject, none, 0),
        call_on!(table, on, NdkGetConnectionData, none.cast(), none.cast(), none, len),
        call_on!(table, on, NdkGetLocalAddress, out, len),
        call_on!(table, on, NdkGetPeerAddress, out, len),
        call_on!(table, on, NdkDisconnect, REQUESTED, none),
    ]
}

fn listener_calls(table: Object<NDK_LISTENER>, on: *mut NDK_LISTENER) -> Vec<NTSTATUS> {
    let (mut len, mut at) = (28, SOCKADDR_INET::UNSPECIFIED);
    call_on!(table, on, NdkControlConnectEvents, TRUE);
    vec![
        call_on!(table, on, NdkListen, at.as_ptr(), 16, REQUESTED, NONE),
        call_on!(table, on, NdkGetLocalAddress, (&raw mut at).cast(), &raw mut len),
    ]
}

fn endpoint_calls(
    table: Object<NDK_SHARED_ENDPOINT>,
    on: *mut NDK_SHARED_ENDPOINT,
) -> Vec<NTSTATUS> {
    let (mut len, mut at) = (28, SOCKADDR_INET::UNSPECIFIED);
    vec![call_on!(table, on, NdkGetLocalAddress, (&raw mut at).cast(), &raw mut len)]
}

/// One of each that the consumer closes.
#[derive(Clone, Copy)]
struct Objects {
    pd: Object<NDK_PD>,
    mr: Object<NDK_MR>,
    mw: Object<NDK_MW>,
    cq: Object<NDK_CQ>,
    srq: Object<NDK_SRQ>,
    qp: Object<NDK_QP>,
    connector: Object<NDK_CONNECTOR>,
    listener: Object<NDK_LISTENER>,
    endpoint: Object<NDK_SHARED_ENDPOINT>,
}

impl Objects {
    fn new(net: &Net) -> Self {
        let adapter = Object(net.adapters[0].as_ptr());
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let cq = wait(|then| adapter.create_cq(8, Box::new(|_| ()), then)).unwrap();
        let at = SOCKADDR_INET::from(net.at(0, 0));
        let (none, out) = (NONE, NONE);
        Self {
            pd,
            cq,
            mr: wait(|then| pd.create_mr(then)).unwrap(),
            mw: create(|done, context| call_on!(pd, pd.0, NdkCreateMw, done, context, out.cast()))
                .unwrap(),
            srq: create(|done, context| {
                call_on!(
                    pd,
                    pd.0,
                    NdkCreateSrq,
                    1,
                    1,
                    0,
                    None,
                    none,
                    none.cast(),
                    done,
                    context,
                    out.cast()
                )
            })
            .unwrap(),
            qp: wait(|then| pd.create_qp(cq, 4, then)).unwrap(),
            connector: wait(|then| adapter.create_connector(then)).unwrap(),
            listener: wait(|then| adapter.create_listener(Box::new(|_| ()), then)).unwrap(),
            endpoint: create(|done, context| {
                call_on!(
                    adapter,
                    adapter.0,
                    NdkCreateSharedEndpoint,
                    at.as_ptr(),
                    at.len(),
                    done,
                    context,
                    out.cast()
                )
            })
            .unwrap(),
        }
    }

    /// Closes all of them; what ends comes by the channels.
    fn close(self) -> [Receiver<()>; 9] {
        [
            start(|then| self.connector.close(then)),
            start(|then| self.listener.close(then)),
            start(|then| self.endpoint.close(then)),
            start(|then| self.qp.close(then)),
            start(|then| self.srq.close(then)),
            start(|then| self.cq.close(then)),
            start(|then| self.mw.close(then)),
            start(|then| self.mr.close(then)),
            start(|then| self.pd.close(then)),
        ]
    }
}

unsafe extern "system" fn no_close(_: PVOID) {
    panic!("refused inline");
}

fn all(calls: Vec<NTSTATUS>, status: NTSTATUS) {
    assert!(calls.iter().all(|call| *call == status), "{status}: {calls:?}");
}

fn a_closed_object_is_refused() {
    let net = Net::new();
    // Another set, for its tables: a closed object's own is not to be read.
    let open = Objects::new(&net);
    let closed = Objects::new(&net);
    let (gate, refused) = (net.hold(0), STATUS_INVALID_DEVICE_STATE);
    let ends = closed.close();
    all(pd_calls(open.pd, closed.pd.0, open.cq.0), refused);
    all(mr_calls(open.mr, closed.mr.0), refused);
    all(srq_calls(open.srq, closed.srq.0), refused);
    all(cq_calls(open.cq, closed.cq.0), refused);
    all(qp_calls(open.qp, closed.qp.0), refused);
    all(connector_calls(open.connector, closed.connector.0), refused);
    all(listener_calls(open.listener, closed.listener.0), refused);
    all(endpoint_calls(open.endpoint, closed.endpoint.0), refused);
    macro_rules! close_again {
        ($($object:ident: $slot:ident),+) => {
            vec![$(call_on!(open.$object, closed.$object.0.cast(), $slot, Some(no_close), NONE)),+]
        };
    }
    let again = close_again!(
        pd: NdkClosePd, mr: NdkCloseMr, mw: NdkCloseMw, cq: NdkCloseCq, srq: NdkCloseSrq,
        qp: NdkCloseQp, connector: NdkCloseConnector, listener: NdkCloseListener,
        endpoint: NdkCloseSharedEndpoint
    );
    all(again, refused);
    drop(gate);
    for end in ends.into_iter().chain(open.close()) {
        end.recv_timeout(PATIENCE).unwrap();
    }
}

/// More elements than a queue takes.
const fn long() -> [NDK_SGE; 16] {
    [NDK_SGE::from_virtual(NONE, 1, 7); 16]
}

/// Two threads call until their calls have met; each is answered as if alone, or turned away.
fn race<T>(alone: NTSTATUS, object: Object<T>, call: fn(Object<T>) -> NTSTATUS) {
    let met = AtomicBool::new(false);
    let deadline = Instant::now() + PATIENCE;
    let race = || {
        while !met.load(Ordering::Relaxed) && Instant::now() < deadline {
            match call(object) {
                STATUS_INVALID_DEVICE_REQUEST => met.store(true, Ordering::Relaxed),
                status => assert_eq!(status, alone),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(race);
        scope.spawn(race);
    });
    assert!(met.into_inner(), "two calls have met");
}

/// The consumer has to serialize its posts; one that does not gets a status, not a race. What is
/// posted is refused in any case.
fn calls_that_race_are_turned_away() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let srq = SrqConfig { depth: 4, receive_sge: 1, threshold: 0 };
    let srq = side.pd.create_srq(srq).unwrap();
    let (qp, srq) = (Object(side.qp.as_ptr()), Object(srq.as_ptr()));
    let many = STATUS_DATA_OVERRUN;
    race(many, qp, |qp| call_on!(qp, qp.0, NdkSend, NONE, long().as_ptr(), 16, 0));
    race(many, qp, |qp| call_on!(qp, qp.0, NdkSendAndInvalidate, NONE, long().as_ptr(), 16, 0, 7));
    race(many, qp, |qp| call_on!(qp, qp.0, NdkReceive, NONE, long().as_ptr(), 16));
    race(many, qp, |qp| call_on!(qp, qp.0, NdkRead, NONE, long().as_ptr(), 16, 0, 7, 0));
    race(many, qp, |qp| call_on!(qp, qp.0, NdkWrite, NONE, long().as_ptr(), 16, 0, 7, 0));
    race(many, srq, |srq| call_on!(srq, srq.0, NdkSrqReceive, NONE, long().as_ptr(), 16));
    let no_object = STATUS_INVALID_PARAMETER;
    race(no_object, qp, |qp| {
        call_on!(qp, qp.0, NdkBind, NONE, NONE.cast(), NONE.cast(), NONE, 0, 0)
    });
    race(no_object, qp, |qp| {
        call_on!(qp, qp.0, NdkFastRegister, NONE, NONE.cast(), 0, NONE.cast(), 0, 0, NONE, 0)
    });
    race(no_object, qp, |qp| call_on!(qp, qp.0, NdkInvalidate, NONE, NONE.cast(), 0));
}
