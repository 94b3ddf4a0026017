//! Shared receive queues.

use driver::abi::*;
use ndk_consumer::{QpConfig, Sge, Srq, SrqConfig};
use std::sync::Arc;
use tests::kit::raw::PATIENCE;
use tests::kit::{Net, Side, status};

crate::tests! {
    a_queue_has_limits
    queue_pairs_take_their_receives_from_it
    it_tells_when_few_receives_are_left
    a_receive_has_limits
    a_queue_pair_with_one_has_no_receives_of_its_own
    queue_pairs_run_out
}

const CONFIG: SrqConfig = SrqConfig { depth: 4, receive_sge: 1, threshold: 0 };

fn shared(net: &Net, config: SrqConfig) -> (Side, Arc<Srq>) {
    let side = net.side(1);
    let srq = side.pd.create_srq(config).unwrap();
    (side, srq)
}

/// The side with a queue pair that takes its receives from the SRQ.
fn attached(side: Side, srq: &Arc<Srq>) -> Side {
    let config = QpConfig::default();
    let qp = side.pd.create_qp_with_srq(&side.cq, &side.cq, srq, config).unwrap();
    Side { qp, ..side }
}

fn a_queue_has_limits() {
    let net = Net::new();
    let info = net.adapters[1].info().unwrap();
    let (side, srq) = shared(&net, CONFIG);
    let most = SrqConfig { depth: info.MaxSrqDepth, ..CONFIG };
    for config in [
        SrqConfig { depth: info.MaxSrqDepth + 1, ..CONFIG },
        SrqConfig { receive_sge: info.MaxReceiveRequestSge + 1, ..CONFIG },
    ] {
        assert_eq!(status(side.pd.create_srq(config)), STATUS_INVALID_PARAMETER, "{config:?}");
    }
    assert_eq!(status(side.pd.create_srq(most)), STATUS_SUCCESS);
    assert_eq!(status(srq.modify(info.MaxSrqDepth + 1, 0).wait()), STATUS_INVALID_PARAMETER);
    let wide = QpConfig { initiator_sge: info.MaxInitiatorRequestSge + 1, ..QpConfig::default() };
    let qp = side.pd.create_qp_with_srq(&side.cq, &side.cq, &srq, wide);
    assert_eq!(status(qp), STATUS_INVALID_PARAMETER);
}

fn queue_pairs_take_their_receives_from_it() {
    let net = Net::new();
    let (side, srq) = shared(&net, CONFIG);
    let server = attached(side, &srq);
    srq.receive(5, &[server.mr.sge(0..10)]).unwrap();
    let connection = net.connect_sides([net.side(0), server]);
    let [client, server] = &connection.sides;
    client.qp.send(1, &[client.mr.sge(0..10)], 0).unwrap();
    let result = server.results(1)[0];
    assert_eq!((result.Type, result.Status), (NdkOperationTypeReceive, STATUS_SUCCESS));
    assert_eq!(result.RequestContext.addr(), 5);
}

fn it_tells_when_few_receives_are_left() {
    let net = Net::new();
    let (_side, srq) = shared(&net, CONFIG);
    for context in 0..3 {
        srq.receive(context, &[]).unwrap();
    }
    assert_eq!(status(srq.modify(2, 0).wait()), STATUS_BUFFER_OVERFLOW, "three are queued");
    assert_eq!(status(srq.modify(0, 3).wait()), STATUS_SUCCESS);
    let seen = srq.notifications();
    assert_eq!(status(srq.modify(0, 4).wait()), STATUS_SUCCESS);
    assert!(srq.wait_notification(seen, PATIENCE).unwrap(), "three are below four");
}

fn a_receive_has_limits() {
    let net = Net::new();
    let (_side, srq) = shared(&net, CONFIG);
    let element = Sge::at(0x1000, 1, 7);
    assert_eq!(status(srq.receive(1, &[element, element])), STATUS_DATA_OVERRUN);
    let long = Sge::at(0x1000, (1 << 31) + 1, 7);
    assert_eq!(status(srq.receive(1, &[long])), STATUS_BUFFER_OVERFLOW);
    for context in 0..4 {
        srq.receive(context, &[]).unwrap();
    }
    assert_eq!(status(srq.receive(4, &[])), STATUS_NO_MORE_ENTRIES);
}

fn a_queue_pair_with_one_has_no_receives_of_its_own() {
    let net = Net::new();
    let (side, srq) = shared(&net, CONFIG);
    let side = attached(side, &srq);
    assert_eq!(status(side.qp.receive(1, &[])), STATUS_INVALID_DEVICE_REQUEST);
}

fn queue_pairs_run_out() {
    let net = Net::new();
    let (Side { cq, pd, .. }, srq) = shared(&net, CONFIG);
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
