//! Completion queues.

use driver::abi::*;
use ndk_consumer::{Arm, NdkError, QpConfig};
use std::sync::Arc;
use tests::kit::raw::PATIENCE;
use tests::kit::{Net, Side, status};

crate::tests! {
    a_notification_tells_of_entries
    an_overrun_is_told
    a_resize_keeps_every_entry
    a_resize_has_limits
    moderation_goes_by_interval_and_count
}

/// Posts receives and flushes them: that many entries.
fn fill(side: &Side, entries: usize) {
    for context in 0..entries {
        side.qp.receive(context, &[]).unwrap();
    }
    side.qp.flush();
}

fn a_notification_tells_of_entries() {
    let net = Net::new();
    let side = net.side(0);
    let seen = side.cq.notifications();
    side.cq.arm(Arm::Any);
    fill(&side, 2);
    assert!(side.cq.wait_notification(seen, PATIENCE).unwrap());
    let mut results = [NDK_RESULT::EMPTY; 1];
    while side.cq.results(&mut results) == 0 {
        std::thread::yield_now();
    }
    assert_eq!((results[0].Status, results[0].RequestContext.addr()), (STATUS_CANCELLED, 0));
    assert_eq!(side.results(1)[0].RequestContext.addr(), 1, "both functions empty one queue");
}

fn an_overrun_is_told() {
    let net = Net::new();
    let side = net.side(0);
    let small = net.adapters[0].create_cq(2).unwrap();
    let qp = side.pd.create_qp(&small, &small, QpConfig::default()).unwrap();
    let seen = small.notifications();
    small.arm(Arm::Errors);
    for context in 0..3 {
        qp.receive(context, &[]).unwrap();
    }
    qp.flush();
    let told = small.wait_notification(seen, PATIENCE);
    assert_eq!(told.map_err(|NdkError { status, .. }| status), Err(STATUS_BUFFER_OVERFLOW));
}

fn a_resize_keeps_every_entry() {
    let net = Net::new();
    let side = net.side(0);
    fill(&side, 10);
    let seen = side.cq.notifications();
    side.cq.arm(Arm::Any);
    assert!(side.cq.wait_notification(seen, PATIENCE).unwrap());
    side.cq.resize(512).unwrap();
    side.cq.resize(10).unwrap();
    assert_eq!(status(side.cq.resize(9)), STATUS_BUFFER_OVERFLOW);
    let contexts: Vec<_> = side.results(10).iter().map(|r| r.RequestContext.addr()).collect();
    assert_eq!(contexts, (0..10).collect::<Vec<_>>());
}

fn a_resize_has_limits() {
    let net = Net::new();
    let cq = net.adapters[0].create_cq(16).unwrap();
    let info = net.adapters[0].info().unwrap();
    assert_ne!(info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, 0);
    assert_eq!(status(cq.resize(info.MaxCqDepth + 1)), STATUS_INVALID_PARAMETER);
    assert_eq!(status(cq.resize(info.MaxCqDepth)), STATUS_SUCCESS);
}

fn moderation_goes_by_interval_and_count() {
    const MAXULONG: u32 = u32::MAX;
    let net = Net::new();
    let info = net.adapters[0].info().unwrap();
    assert_ne!(info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, 0);
    let side = net.side(0);
    let cq = Arc::clone(&side.cq);
    assert_eq!(status(cq.moderate(MAXULONG, MAXULONG)), STATUS_INVALID_PARAMETER_MIX);
    assert_eq!(status(cq.moderate(MAXULONG, 257)), STATUS_INVALID_PARAMETER_MIX);
    for (interval, count) in [(0, 7), (20, 1), (20, MAXULONG)] {
        assert_eq!(status(cq.moderate(interval, count)), STATUS_SUCCESS);
    }
    // By the count alone: three entries do not notify, the fourth does.
    assert_eq!(status(cq.moderate(MAXULONG, 4)), STATUS_SUCCESS);
    let seen = cq.notifications();
    cq.arm(Arm::Any);
    fill(&side, 4);
    assert!(cq.wait_notification(seen, PATIENCE).unwrap());
    assert_eq!(side.results(4).len(), 4);
}
