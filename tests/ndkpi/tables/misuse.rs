//! What a buggy consumer does: each gets a status, and the provider goes on.

use super::*;
use ndk_consumer::{Buffer, Connector, Mdl, Mw, QpConfig, SharedEndpoint, Srq, SrqConfig};
use std::collections::BTreeSet;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use tests::call_on;
use tests::documented::{Documented, GROUPS};
use tests::kit::raw::start;

crate::tests! {
    a_second_close_is_refused_and_the_first_completes_once
    an_adapter_is_not_closed_by_a_table
    what_is_closed_takes_nothing_more
    what_is_no_object_of_its_table_is_refused_by_every_function
    a_request_that_nobody_would_hear_of_is_refused
    an_object_of_another_type_is_refused
    an_object_of_another_provider_is_refused
    an_address_is_as_long_as_its_family
}

unsafe extern "system" fn count(context: PVOID) {
    // SAFETY: the counter of the test.
    unsafe { &*context.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "system" fn no_create(_: PVOID, _: NTSTATUS, _: *mut NDK_OBJECT_HEADER) {
    panic!("refused inline");
}

unsafe extern "system" fn no_request(_: PVOID, _: NTSTATUS) {
    panic!("refused inline");
}

fn a_second_close_is_refused_and_the_first_completes_once() {
    let net = Net::new();
    let adapter = Object(net.adapters[0].as_ptr());
    let pd = wait(|then| adapter.create_pd(then)).unwrap();
    let mr = wait(|then| pd.create_mr(then)).unwrap();
    // The region keeps the domain from being freed.
    let closed = start(|then| pd.close(then));
    let second: &'static AtomicUsize = Box::leak(Box::default());
    let context = std::ptr::from_ref(second).cast_mut().cast();
    for _ in 0..100_000 {
        // SAFETY: the domain is not freed yet.
        let close = unsafe { (*(*pd.0).Dispatch.get().read()).NdkClosePd };
        // SAFETY: as above.
        let status = unsafe { close(pd.0.cast(), Some(count), context) };
        assert_eq!(status, STATUS_INVALID_DEVICE_STATE);
    }
    wait(|then| mr.close(then));
    closed.recv_timeout(PATIENCE).unwrap();
    turn(&net.adapters[0]);
    assert_eq!(second.load(Ordering::SeqCst), 0);
}

fn an_adapter_is_not_closed_by_a_table() {
    let net = Net::new();
    let side = net.side(0);
    // SAFETY: the domain is open.
    let close = unsafe { (*(*side.pd.as_ptr()).Dispatch.get().read()).NdkClosePd };
    let counter: &'static AtomicUsize = Box::leak(Box::default());
    let context = std::ptr::from_ref(counter).cast_mut().cast();
    // SAFETY: the adapter is open; the provider looks before it touches.
    let status = unsafe { close(net.adapters[0].as_ptr().cast(), Some(count), context) };
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    turn(&net.adapters[0]);
    assert_eq!(counter.load(Ordering::SeqCst), 0);
}

fn what_is_closed_takes_nothing_more() {
    let net = Net::new();
    let client = net.side(0);
    let adapter = Object(net.adapters[0].as_ptr());
    let cq = wait(|then| adapter.create_cq(8, Box::new(|_| ()), then)).unwrap();
    let pd = Object(client.pd.as_ptr());
    let qp = wait(|then| pd.create_qp(cq, 8, then)).unwrap();
    let server = net.side(1);
    let listener = net.adapters[1].listen(net.at(1, PORT)).unwrap();
    let active = wait(|then| adapter.create_connector(then)).unwrap();
    let request = start(|then| active.connect(qp, net.at(0, 0), net.at(1, PORT), then));
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&server.qp, LIMITS, b"");
    assert_eq!(request.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    let left = Box::new(|| ());
    assert_eq!(wait(|then| active.complete_connect(left, then)), STATUS_SUCCESS);
    accept.wait().unwrap();
    // The connector keeps the QP, and the QP the CQ.
    let closed = [start(|then| qp.close(then)), start(|then| cq.close(then))];
    assert_eq!(qp.send(1, &[]), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(qp.receive(1, &[]), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(cq.results(&mut [NDK_RESULT::EMPTY]), 0);
    cq.arm();
    assert_eq!(wait(|then| cq.resize(9, then)), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(cq.moderate(1, 2), STATUS_INVALID_DEVICE_STATE);
    let other = wait(|then| adapter.create_connector(then)).unwrap();
    let refused = wait(|then| other.connect(qp, net.at(0, 0), net.at(1, PORT), then));
    assert_eq!(refused, STATUS_INVALID_DEVICE_STATE);
    wait(|then| other.close(then));
    wait(|then| active.close(then));
    for closed in closed {
        closed.recv_timeout(PATIENCE).unwrap();
    }
}

/// What a call answers.
#[derive(Debug, Eq, PartialEq)]
enum Answer {
    Status(NTSTATUS),
    /// A token, or how many results were taken.
    Number(u32),
    Nothing,
}

impl From<NTSTATUS> for Answer {
    fn from(status: NTSTATUS) -> Self {
        Self::Status(status)
    }
}

impl From<u32> for Answer {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Self::Nothing
    }
}

/// Nothing was done, and who can be told was told.
fn refused(slot: &str, answer: &Answer) {
    match (slot, answer) {
        ("NdkQueryExtension", Answer::Status(STATUS_NOT_SUPPORTED))
        | (_, Answer::Status(STATUS_INVALID_PARAMETER) | Answer::Number(0) | Answer::Nothing) => {}
        _ => panic!("{slot}: {answer:?}"),
    }
}

/// Calls each slot of a table on what is none of its objects. A slot that is not named here fails the
/// test.
macro_rules! refuses {
    ($table:ty, $of:expr, $on:expr; $($slot:ident($($argument:expr),*);)+) => {{
        assert_eq!([$(stringify!($slot)),+], <$table>::SLOTS);
        $(refused(stringify!($slot), &call_on!($of, $on.cast(), $slot $(, $argument)*).into());)+
    }};
}

/// One object of each type.
struct Objects {
    adapter: Object<NDK_ADAPTER>,
    side: Side,
    mr: Object<NDK_MR>,
    mw: Arc<Mw>,
    srq: Arc<Srq>,
    connector: Connector,
    listener: Object<NDK_LISTENER>,
    endpoint: Arc<SharedEndpoint>,
}

impl Objects {
    fn new(net: &Net) -> Self {
        let (adapter, side) = (Object(net.adapters[0].as_ptr()), net.side(0));
        let pd = Object(side.pd.as_ptr());
        Self {
            adapter,
            mr: wait(|then| pd.create_mr(then)).unwrap(),
            mw: side.pd.create_mw().unwrap(),
            srq: side.pd.create_srq(SrqConfig { depth: 4, receive_sge: 1, threshold: 0 }).unwrap(),
            connector: net.adapters[0].create_connector().unwrap(),
            listener: wait(|then| adapter.create_listener(Box::new(|_| ()), then)).unwrap(),
            endpoint: net.adapters[0].share(net.at(0, 0)).unwrap(),
            side,
        }
    }

    fn close(self) {
        wait(|then| self.mr.close(then));
        wait(|then| self.listener.close(then));
    }
}

const NO_GUID: *const GUID = null();
const V2_1: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

/// Goal: every function of every table looks at its object before it touches it.
/// Method: no object, and one of another type, with arguments that are good otherwise.
fn what_is_no_object_of_its_table_is_refused_by_every_function() {
    let net = Net::new();
    let objects = Objects::new(&net);
    let Objects { adapter, side, mr, mw, srq, connector, listener, endpoint } = &objects;
    let (pd, cq, qp) =
        (Object(side.pd.as_ptr()), Object(side.cq.as_ptr()), Object(side.qp.as_ptr()));
    let (mw, srq) = (Object(mw.as_ptr()), Object(srq.as_ptr()));
    let (connector, endpoint) = (Object(connector.as_ptr()), Object(endpoint.as_ptr()));
    let (created, requested, closed) =
        (Some(no_create as _), Some(no_request as _), Some(count as _));
    let counter: &'static AtomicUsize = Box::leak(Box::default());
    let counter: PVOID = std::ptr::from_ref(counter).cast_mut().cast();
    let (none, ext) = (null_mut(), null_mut());
    let at = SOCKADDR_INET::from(net.at(0, 0));
    let (at, to) = (at.as_ptr(), at.as_ptr());
    let mut room = [0_u64; 32];
    let out: PVOID = room.as_mut_ptr().cast();
    let (mut size, mut fbo) = (256, 0);
    let (size, fbo) = (&raw mut size, &raw mut fbo);
    let buffer = Buffer::new(1);
    let mut mdl = Mdl::new(buffer.as_ptr(), 1);
    let mdl = mdl.as_mut_ptr();
    let (notified, asked): (Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>, _) =
        (Some(no_request), Some(no_event as _));
    let sge = NDK_SGE::from_virtual(buffer.as_ptr().cast(), 1, mr.token());
    let sgl = &raw const sge;
    for (on, wrong) in [(none, none), (pd.0.cast::<std::ffi::c_void>(), mw.0.cast())] {
        refuses! { NDK_ADAPTER_DISPATCH, adapter, on;
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkQueryAdapterInfo(out.cast(), size);
            NdkCreateCq(4, notified, none, null(), created, none, null_mut());
            NdkCreatePd(created, none, null_mut());
            NdkCreateSharedEndpoint(at, 16, created, none, null_mut());
            NdkCreateConnector(created, none, null_mut());
            NdkCreateListener(asked, none, created, none, null_mut());
            NdkBuildLAM(mdl, 1, requested, none, out.cast(), size, fbo);
            NdkReleaseLAM(out.cast());
        }
        let mut token = 7;
        refuses! { NDK_PD_DISPATCH, pd, wrong;
            NdkClosePd(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkCreateMr(0, created, none, null_mut());
            NdkCreateMw(created, none, null_mut());
            NdkCreateSrq(4, 1, 0, None, none, null(), created, none, null_mut());
            NdkCreateQp(cq.0, cq.0, none, 1, 1, 1, 1, 0, created, none, null_mut());
            NdkCreateQpWithSrq(cq.0, cq.0, srq.0, none, 1, 1, 0, created, none, null_mut());
            NdkGetPrivilegedMemoryRegionToken(&raw mut token);
        }
        assert_eq!(token, 0);
        refuses! { NDK_MR_DISPATCH, mr, on;
            NdkCloseMr(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkRegisterMr(mdl, 1, 0, requested, none);
            NdkDeregisterMr(requested, none);
            NdkInitializeFastRegisterMr(1, 1, requested, none);
            NdkGetRemoteTokenFromMr();
            NdkGetLocalTokenFromMr();
        }
        refuses! { NDK_MW_DISPATCH, mw, on;
            NdkCloseMw(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkGetRemoteTokenFromMw();
        }
        refuses! { NDK_CQ_DISPATCH, cq, on;
            NdkCloseCq(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkResizeCq(8, requested, none);
            NdkArmCq(NDK_CQ_NOTIFY_ANY);
            NdkGetCqResults(out.cast(), 1);
            NdkControlCqInterruptModeration(1, 2);
            NdkGetCqResultsEx(out.cast(), 1);
        }
        refuses! { NDK_SRQ_DISPATCH, srq, on;
            NdkCloseSrq(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkModifySrq(4, 1, requested, none);
            NdkSrqReceive(none, sgl, 1);
        }
        refuses! { NDK_QP_DISPATCH, qp, on;
            NdkCloseQp(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkFlush();
            NdkSend(none, sgl, 1, 0);
            NdkReceive(none, sgl, 1);
            NdkBind(none, mr.0, mw.0, none, 1, 0);
            NdkFastRegister(none, mr.0, 0, null(), 0, 0, none, 0);
            NdkInvalidate(none, mw.0.cast(), 0);
            NdkRead(none, sgl, 1, 0, 7, 0);
            NdkWrite(none, sgl, 1, 0, 7, 0);
            NdkSendAndInvalidate(none, sgl, 1, 0, 7);
        }
        refuses! { NDK_CONNECTOR_DISPATCH, connector, on;
            NdkCloseConnector(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkConnect(qp.0, at, 16, to, 16, 1, 1, null(), 0, requested, none);
            NdkConnectWithSharedEndpoint(
                qp.0, endpoint.0, to, 16, 1, 1, null(), 0, requested, none
            );
            NdkCompleteConnect(None, none, requested, none);
            NdkAccept(qp.0, 1, 1, null(), 0, None, none, requested, none);
            NdkReject(null(), 0);
            NdkGetConnectionData(null_mut(), null_mut(), out, size);
            NdkGetLocalAddress(out.cast(), size);
            NdkGetPeerAddress(out.cast(), size);
            NdkDisconnect(requested, none);
            NdkCompleteConnectEx(None, none, requested, none);
            NdkAcceptEx(qp.0, 1, 1, null(), 0, None, none, requested, none);
        }
        refuses! { NDK_LISTENER_DISPATCH, listener, on;
            NdkCloseListener(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkListen(at, 16, requested, none);
            NdkGetLocalAddress(out.cast(), size);
            NdkControlConnectEvents(1);
        }
        refuses! { NDK_SHARED_ENDPOINT_DISPATCH, endpoint, on;
            NdkCloseSharedEndpoint(closed, counter);
            NdkQueryExtension(NO_GUID, V2_1, ext);
            NdkGetLocalAddress(out.cast(), size);
        }
    }
    objects.close();
    // SAFETY: leaked.
    assert_eq!(unsafe { &*counter.cast::<AtomicUsize>() }.load(Ordering::SeqCst), 0);
}

unsafe extern "system" fn no_event(_: PVOID, _: *mut NDK_CONNECTOR) {
    panic!("refused inline");
}

/// Calls slots of a table without the completion that they take last, and notes them.
macro_rules! unheard {
    ($asked:ident, $table:ident, $of:expr; $($slot:ident($($argument:expr),*);)+) => {{
        let of = $of;
        $(
            let answer = call_on!(of, of.0.cast(), $slot $(, $argument)*);
            assert_eq!(answer, STATUS_INVALID_PARAMETER, stringify!($slot));
            $asked.insert((stringify!($table), stringify!($slot)));
        )+
    }};
}

/// Goal: a consumer that forgets a callback is told, and does not wait for ever.
/// Method: good arguments and no completion, for every function that the interface says may pend.
fn a_request_that_nobody_would_hear_of_is_refused() {
    let net = Net::new();
    let objects = Objects::new(&net);
    let Objects { adapter, side, mr, mw, srq, connector, listener, endpoint } = &objects;
    let (pd, cq, qp) =
        (Object(side.pd.as_ptr()), Object(side.cq.as_ptr()), Object(side.qp.as_ptr()));
    let (mw, srq) = (Object(mw.as_ptr()), Object(srq.as_ptr()));
    let (connector, endpoint) = (Object(connector.as_ptr()), Object(endpoint.as_ptr()));
    let frmr = side.pd.create_frmr(1, true).unwrap();
    let at = SOCKADDR_INET::from(net.at(0, 0));
    let at = at.as_ptr();
    let buffer = Buffer::new(1);
    let mut mdl = Mdl::new(buffer.as_ptr(), 1);
    let mdl = mdl.as_mut_ptr();
    let none = null_mut();
    let (notified, asked): (Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>, _) =
        (Some(no_request), Some(no_event as _));
    let mut seen = BTreeSet::new();
    unheard! { seen, NDK_ADAPTER_DISPATCH, adapter;
        NdkCreateCq(4, notified, none, null(), None, none, null_mut());
        NdkCreatePd(None, none, null_mut());
        NdkCreateSharedEndpoint(at, 16, None, none, null_mut());
        NdkCreateConnector(None, none, null_mut());
        NdkCreateListener(asked, none, None, none, null_mut());
    }
    unheard! { seen, NDK_PD_DISPATCH, pd;
        NdkClosePd(None, none);
        NdkCreateMr(0, None, none, null_mut());
        NdkCreateMw(None, none, null_mut());
        NdkCreateSrq(4, 1, 0, None, none, null(), None, none, null_mut());
        NdkCreateQp(cq.0, cq.0, none, 1, 1, 1, 1, 0, None, none, null_mut());
        NdkCreateQpWithSrq(cq.0, cq.0, srq.0, none, 1, 1, 0, None, none, null_mut());
    }
    unheard! { seen, NDK_MR_DISPATCH, mr;
        NdkCloseMr(None, none);
        NdkRegisterMr(mdl, 1, 0, None, none);
        NdkDeregisterMr(None, none);
    }
    unheard! { seen, NDK_MR_DISPATCH, Object(frmr.as_ptr());
        NdkInitializeFastRegisterMr(1, 1, None, none);
    }
    unheard! { seen, NDK_MW_DISPATCH, mw; NdkCloseMw(None, none); }
    unheard! { seen, NDK_CQ_DISPATCH, cq;
        NdkCloseCq(None, none);
        NdkResizeCq(8, None, none);
    }
    unheard! { seen, NDK_SRQ_DISPATCH, srq;
        NdkCloseSrq(None, none);
        NdkModifySrq(4, 1, None, none);
    }
    unheard! { seen, NDK_QP_DISPATCH, qp; NdkCloseQp(None, none); }
    unheard! { seen, NDK_CONNECTOR_DISPATCH, connector;
        NdkCloseConnector(None, none);
        NdkConnect(qp.0, at, 16, at, 16, 1, 1, null(), 0, None, none);
        NdkConnectWithSharedEndpoint(qp.0, endpoint.0, at, 16, 1, 1, null(), 0, None, none);
        NdkCompleteConnect(None, none, None, none);
        NdkAccept(qp.0, 1, 1, null(), 0, None, none, None, none);
        NdkDisconnect(None, none);
        NdkCompleteConnectEx(None, none, None, none);
        NdkAcceptEx(qp.0, 1, 1, null(), 0, None, none, None, none);
    }
    unheard! { seen, NDK_LISTENER_DISPATCH, listener;
        NdkCloseListener(None, none);
        NdkListen(at, 16, None, none);
    }
    unheard! { seen, NDK_SHARED_ENDPOINT_DISPATCH, endpoint; NdkCloseSharedEndpoint(None, none); }
    let pends = |row: &Documented| row.status == STATUS_PENDING && row.never.is_none();
    let documented = GROUPS.iter().flat_map(|group| {
        let functions = group.functions.iter().filter(|function| function.rows.iter().any(pends));
        functions.map(|function| (group.name, function.name))
    });
    assert_eq!(seen, documented.collect::<BTreeSet<_>>());
    // The events that a CQ and a listener are there for.
    let created = Some(no_create as _);
    let status = call!(adapter.0, NdkCreateCq, 4, None, none, null(), created, none, null_mut());
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    let status = call!(adapter.0, NdkCreateListener, None, none, created, none, null_mut());
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    drop(frmr);
    objects.close();
}

fn an_object_of_another_type_is_refused() {
    let net = Net::new();
    let side = net.side(0);
    let (pd, cq, qp) = (side.pd.as_ptr(), side.cq.as_ptr(), side.qp.as_ptr());
    let connector = net.adapters[0].create_connector().unwrap();
    let connector = connector.as_ptr();
    let local = SOCKADDR_INET::from(net.at(0, 0));
    let create_qp = |receive_cq: *mut NDK_CQ, initiator_cq: *mut NDK_CQ| {
        let (done, out) = (Some(no_create as _), null_mut());
        call!(
            pd,
            NdkCreateQp,
            receive_cq,
            initiator_cq,
            null_mut(),
            1,
            1,
            1,
            1,
            0,
            done,
            null_mut(),
            out
        )
    };
    for wrong in [null_mut(), pd.cast(), qp.cast(), connector.cast()] {
        assert_eq!(create_qp(wrong, cq), STATUS_INVALID_PARAMETER);
        assert_eq!(create_qp(cq, wrong), STATUS_INVALID_PARAMETER);
    }
    let done = Some(no_request as _);
    for wrong in [null_mut(), pd.cast(), cq.cast(), connector.cast()] {
        let (address, len) = (local.as_ptr(), local.len());
        let status = call!(
            connector,
            NdkConnect,
            wrong,
            address,
            len,
            address,
            len,
            1,
            1,
            null(),
            0,
            done,
            null_mut(),
        );
        assert_eq!(status, STATUS_INVALID_PARAMETER);
        let status = call!(
            connector,
            NdkAccept,
            wrong,
            1,
            1,
            null(),
            0,
            None,
            null_mut(),
            done,
            null_mut(),
        );
        assert_eq!(status, STATUS_INVALID_PARAMETER);
        let status = call!(
            connector,
            NdkConnectWithSharedEndpoint,
            qp,
            wrong.cast(),
            address,
            len,
            1,
            1,
            null(),
            0,
            done,
            null_mut(),
        );
        assert_eq!(status, STATUS_INVALID_PARAMETER);
    }
}

fn an_object_of_another_provider_is_refused() {
    let net = Net::new();
    let (near, far) = (net.side(0), net.side(1));
    let created = near.pd.create_qp(&far.cq, &near.cq, QpConfig::default());
    assert_eq!(status(created), STATUS_INVALID_PARAMETER);
    let connector = net.adapters[0].create_connector().unwrap();
    let request = connector.connect(&far.qp, net.at(0, 0), net.at(1, PORT), LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_INVALID_PARAMETER);
    let endpoint = net.adapters[1].share(net.at(1, 0)).unwrap();
    let request = connector.connect_shared(&near.qp, &endpoint, net.at(1, PORT), LIMITS, b"");
    assert_eq!(status(request.wait()), STATUS_INVALID_PARAMETER);
}

fn an_address_is_as_long_as_its_family() {
    let net = Net::new();
    let side = net.side(0);
    let (adapter, qp) = (net.adapters[0].as_ptr(), side.qp.as_ptr());
    let listener = Object(adapter);
    let listener = wait(|then| listener.create_listener(Box::new(|_| ()), then)).unwrap();
    let connector = net.adapters[0].create_connector().unwrap();
    let good = SOCKADDR_INET::from(net.at(0, 7));
    let unknown = SOCKADDR_INET { si_family: 77 };
    let done = Some(no_request as _);
    for (address, len) in
        [(null(), 16), (good.as_ptr(), 0), (good.as_ptr(), 15), (unknown.as_ptr(), 28)]
    {
        let refused = [
            call!(listener.0, NdkListen, address, len, done, null_mut()),
            call!(
                adapter,
                NdkCreateSharedEndpoint,
                address,
                len,
                Some(no_create),
                null_mut(),
                null_mut()
            ),
            call!(
                connector.as_ptr(),
                NdkConnect,
                qp,
                address,
                len,
                good.as_ptr(),
                16,
                1,
                1,
                null(),
                0,
                done,
                null_mut(),
            ),
            call!(
                connector.as_ptr(),
                NdkConnect,
                qp,
                good.as_ptr(),
                16,
                address,
                len,
                1,
                1,
                null(),
                0,
                done,
                null_mut(),
            ),
        ];
        assert_eq!(refused, [STATUS_INVALID_ADDRESS; 4]);
    }
    let status = call!(
        connector.as_ptr(),
        NdkConnect,
        qp,
        good.as_ptr(),
        16,
        good.as_ptr(),
        16,
        1,
        1,
        null(),
        3,
        done,
        null_mut(),
    );
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    assert_eq!(
        call!(listener.0, NdkGetLocalAddress, null_mut(), null_mut()),
        STATUS_INVALID_DEVICE_STATE
    );
    wait(|then| listener.close(then));
}
