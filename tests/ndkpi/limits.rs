//! A provider without room: for objects, for requests, for ports.

use driver::abi::*;
use ndk_consumer::{Buffer, Mdl, QpConfig, SrqConfig};
use std::sync::{Arc, mpsc};
use tests::call;
use tests::kit::raw::{Object, request, wait};
use tests::kit::{LIMITS, Net, PORT, status};

const SRQ: SrqConfig = SrqConfig { depth: 8, receive_sge: 1, threshold: 0 };

crate::tests! {
    a_full_provider_creates_nothing
    requests_find_no_room
}

fn a_full_provider_creates_nothing() {
    let net = Net::scarce();
    let side = net.side(0);
    let srq = side.pd.create_srq(SRQ).unwrap();
    let buffer = Arc::new(Buffer::new(1));
    let mut connectors = Vec::new();
    let full = loop {
        match net.adapters[0].create_connector() {
            Ok(connector) => connectors.push(connector),
            Err(error) => break error.status,
        }
    };
    assert_eq!(full, STATUS_INSUFFICIENT_RESOURCES);
    let (adapter, pd, config) = (&net.adapters[0], &side.pd, QpConfig::default());
    assert_eq!(status(adapter.create_cq(1)), full);
    assert_eq!(status(adapter.create_pd()), full);
    assert_eq!(status(adapter.share(net.at(0, 0))), full);
    assert_eq!(status(adapter.listen(net.at(0, PORT))), full);
    assert_eq!(status(pd.create_mw()), full);
    assert_eq!(status(pd.create_srq(SRQ)), full);
    assert_eq!(status(pd.create_frmr(1, true)), full);
    assert_eq!(status(pd.create_qp(&side.cq, &side.cq, config)), full);
    assert_eq!(status(pd.create_qp_with_srq(&side.cq, &side.cq, &srq, config)), full);
    // What is no object needs no place.
    assert_eq!(status(adapter.build_lam(buffer, 0..1)), STATUS_SUCCESS);
}

/// What is pending while the provider is held takes a place each.
fn requests_find_no_room() {
    let net = Net::new();
    let side = net.side(0);
    let (connector, free) =
        (net.adapters[0].create_connector().unwrap(), net.adapters[0].create_connector().unwrap());
    let adapter = Object(net.adapters[0].as_ptr());
    let listener = wait(|then| adapter.create_listener(Box::new(|_| ()), then)).unwrap();
    let pd = Object(side.pd.as_ptr());
    let mr = wait(|then| pd.create_mr(then)).unwrap();
    let buffer = Buffer::new(1);
    let mut mdl = Mdl::new(buffer.as_ptr(), 1);

    let endpoint = net.adapters[0].share(net.at(0, 0)).unwrap();
    let srq = side.pd.create_srq(SRQ).unwrap();
    let frmr = side.pd.create_frmr(1, true).unwrap();

    let gate = net.hold(0);
    let mut pending = Vec::new();
    let full = loop {
        let request = connector.disconnect();
        match request.poll() {
            None => pending.push(request),
            Some(end) => break status(end),
        }
    };
    assert_eq!(full, STATUS_INSUFFICIENT_RESOURCES);
    let inline = |end: mpsc::Receiver<NTSTATUS>| assert_eq!(end.try_recv(), Ok(full));
    let to = net.at(1, PORT);
    let connect = free.connect(&side.qp, net.at(0, 0), to, LIMITS, b"");
    assert_eq!(status(connect.wait()), full);
    let connect = free.connect_shared(&side.qp, &endpoint, to, LIMITS, b"");
    assert_eq!(status(connect.wait()), full);
    assert_eq!(status(srq.modify(0, 1).wait()), full);
    assert_eq!(status(frmr.initialize(1, true).wait()), full);
    assert_eq!(status(free.complete_connect().wait()), full);
    assert_eq!(status(free.accept(&side.qp, LIMITS, b"").wait()), full);
    assert_eq!(status(free.reject(b"")), full);
    let (raw, qp) = (Object(free.as_ptr()), side.qp.as_ptr());
    inline(request(|done, context| {
        call!(raw, NdkCompleteConnectEx, None, std::ptr::null_mut(), done, context)
    }));
    inline(request(|done, context| {
        let none = std::ptr::null_mut();
        call!(raw, NdkAcceptEx, qp, 1, 1, none, 0, None, none, done, context)
    }));
    assert_eq!(status(side.cq.resize(16)), full);
    let at = SOCKADDR_INET::from(net.at(0, PORT));
    inline(request(|done, context| {
        call!(listener, NdkListen, at.as_ptr(), at.len(), done, context)
    }));
    let mdl = mdl.as_mut_ptr();
    inline(request(|done, context| call!(mr, NdkRegisterMr, mdl, 1, 0, done, context)));
    inline(request(|done, context| call!(mr, NdkDeregisterMr, done, context)));
    drop(gate);
    for request in pending {
        assert_eq!(status(request.wait()), STATUS_CONNECTION_INVALID);
    }
    wait(|then| mr.close(then));
    wait(|then| listener.close(then));
}
