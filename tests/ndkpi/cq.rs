//! Completion queues.

use driver::abi::*;
use ndk_consumer::Arm;
use tests::kit::raw::PATIENCE;
use tests::kit::{Net, Side};

crate::tests! {
    a_notification_tells_of_entries
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
