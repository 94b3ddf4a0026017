//! Shared receive queues.

use driver::abi::*;
use ndk_consumer::{QpConfig, SrqConfig};
use tests::kit::{Net, Side};

crate::tests! {
    queue_pairs_run_out
}

const CONFIG: SrqConfig = SrqConfig { depth: 4, receive_sge: 1, threshold: 0 };

fn queue_pairs_run_out() {
    let net = Net::scarce();
    let Side { cq, pd, .. } = net.side(1);
    let srq = pd.create_srq(CONFIG).unwrap();
    let tiny = QpConfig { initiator_depth: 1, ..QpConfig::default() };
    let mut qps = Vec::new();
    let full = loop {
        match pd.create_qp_with_srq(&cq, &cq, &srq, tiny) {
            Ok(qp) => qps.push(qp),
            Err(error) => break error.status,
        }
    };
    assert_eq!(full, STATUS_INSUFFICIENT_RESOURCES);
}
