//! The protection domain: what it creates.

use driver::abi::*;
use ndk_consumer::QpConfig;
use tests::call;
use tests::kit::raw::{Object, create, start, wait};
use tests::kit::{Net, Side, status};

crate::tests! {
    a_qp_has_limits
    a_closing_domain_creates_nothing
    qps_run_out
}

fn a_qp_has_limits() {
    let net = Net::new();
    let info = net.adapters[0].info().unwrap();
    let side = net.side(0);
    let create = |config| status(side.pd.create_qp(&side.cq, &side.cq, config));
    let fits = QpConfig::default();
    for config in [
        QpConfig { receive_depth: info.MaxReceiveQueueDepth + 1, ..fits },
        QpConfig { initiator_depth: info.MaxInitiatorQueueDepth + 1, ..fits },
        QpConfig { receive_sge: info.MaxReceiveRequestSge + 1, ..fits },
        QpConfig { initiator_sge: info.MaxInitiatorRequestSge + 1, ..fits },
        QpConfig { inline_len: info.MaxInlineDataSize + 1, ..fits },
    ] {
        assert_eq!(create(config), STATUS_INVALID_PARAMETER, "{config:?}");
    }
    assert_eq!(create(fits), STATUS_SUCCESS);
}

/// A domain whose close waits for a region.
fn a_closing_domain_creates_nothing() {
    let net = Net::new();
    let adapter = Object(net.adapters[0].as_ptr());
    let pd = wait(|then| adapter.create_pd(then)).unwrap();
    let mr = wait(|then| pd.create_mr(then)).unwrap();
    let closing = start(|then| pd.close(then));
    let out = std::ptr::null_mut();
    let late = create::<NDK_MR>(|done, context| call!(pd, NdkCreateMr, FALSE, done, context, out));
    assert_eq!(late.err(), Some(STATUS_INVALID_DEVICE_STATE));
    wait(|then| mr.close(then));
    closing.recv().unwrap();
}

fn qps_run_out() {
    let net = Net::scarce();
    let Side { cq, pd, .. } = net.side(0);
    let tiny = QpConfig { receive_depth: 1, initiator_depth: 1, ..QpConfig::default() };
    let mut qps = Vec::new();
    let last = loop {
        match pd.create_qp(&cq, &cq, tiny) {
            Ok(qp) => qps.push(qp),
            Err(error) => break error.status,
        }
    };
    assert_eq!(last, STATUS_INSUFFICIENT_RESOURCES);
    drop(qps.pop());
    assert_eq!(status(pd.create_qp(&cq, &cq, tiny)), STATUS_SUCCESS);
}
