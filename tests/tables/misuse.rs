//! What a buggy consumer does: each gets a status, and the provider goes on.

use super::*;
use ndkperf::QpConfig;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use tests::raw::start;

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

#[test]
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

#[test]
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

#[test]
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

/// Without a callback nobody would ever have the object, and its adapter could not close.
#[test]
fn a_creation_without_a_callback_is_refused() {
    let net = Net::new();
    let (side, none) = (net.side(0), null_mut());
    let (adapter, pd, cq) = (net.adapters[0].as_ptr(), side.pd.as_ptr(), side.cq.as_ptr());
    for status in [
        call!(adapter, NdkCreatePd, None, none, null_mut()),
        call!(adapter, NdkCreateCq, 4, None, none, null(), None, none, null_mut()),
        call!(adapter, NdkCreateConnector, None, none, null_mut()),
        call!(adapter, NdkCreateListener, None, none, None, none, null_mut()),
        call!(pd, NdkCreateMr, 0, None, none, null_mut()),
        call!(pd, NdkCreateMw, None, none, null_mut()),
        call!(pd, NdkCreateSrq, 4, 1, 0, None, none, null(), None, none, null_mut()),
        call!(pd, NdkCreateQp, cq, cq, none, 1, 1, 1, 1, 0, None, none, null_mut()),
    ] {
        assert_eq!(status, STATUS_INVALID_PARAMETER);
    }
}

#[test]
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
    // The right table, and an object that is none of its own.
    // SAFETY: the CQ is open; the provider looks before it touches.
    let table = unsafe { *(*cq).Dispatch.get().read() };
    // SAFETY: as above.
    let status = unsafe { (table.NdkControlCqInterruptModeration)(pd.cast(), 1, 2) };
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    // SAFETY: as above.
    unsafe { (table.NdkArmCq)(qp.cast(), NDK_CQ_NOTIFY_ANY) };
    let mut results = [NDK_RESULT::EMPTY];
    // SAFETY: as above.
    let taken = unsafe { (table.NdkGetCqResults)(pd.cast(), results.as_mut_ptr(), 1) };
    assert_eq!(taken, 0);
}

#[test]
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

#[test]
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
