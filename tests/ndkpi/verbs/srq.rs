use super::*;
use ndk_consumer::{Cq, Qp, Srq, SrqConfig};
use std::sync::mpsc::TryRecvError;
use tests::kit::PORT;
use tests::kit::raw::{Object, start};

crate::tests! {
    each_receive_serves_one_message_of_whichever_qp
    a_message_waits_for_a_receive
    the_threshold_is_told_once_for_each_arming
    the_depth_changes_but_not_below_what_is_queued
    limits_of_creation_are_checked
    a_qp_that_fails_leaves_the_queue_to_the_others
    it_closes_after_its_qps_and_with_receives_in_it
    the_receives_that_it_closes_with_complete_on_no_cq
}

/// Two connections whose servers share a receive queue. The QPs' contexts are 1 and 2.
struct Shared {
    clients: [Side; 2],
    server: Side,
    qps: [Arc<Qp>; 2],
    srq: Arc<Srq>,
    connected: Vec<Connected>,
    net: Net,
}

const CONFIG: SrqConfig = SrqConfig { depth: 8, receive_sge: 2, threshold: 0 };

impl Shared {
    fn new(config: SrqConfig) -> Self {
        let net = Net::new();
        let (clients, server) = ([net.side(0), net.side(0)], net.side(1));
        let srq = server.pd.create_srq(config).unwrap();
        let qps = [1, 2].map(|context| server.user(&server.cq, &srq, context));
        let connect = |(port, client): (u16, &Side)| {
            net.connect_qps_at(PORT + port, &client.qp, &qps[usize::from(port)])
        };
        let connected = (0..).zip(&clients).map(connect).collect();
        Self { clients, server, qps, srq, connected, net }
    }

    /// Sends from a client; the status of the send.
    fn send(&self, client: usize, len: usize) -> NTSTATUS {
        let side = &self.clients[client];
        side.qp.send(0, &[side.mr.sge(0..len)], 0).unwrap();
        side.statuses(1)[0]
    }

    fn post(&self, contexts: impl IntoIterator<Item = usize>) {
        for context in contexts {
            let at = context * 1000;
            self.srq.receive(context, &[self.server.mr.sge(at..at + 1000)]).unwrap();
        }
    }
}

trait User {
    fn user(&self, cq: &Arc<Cq>, srq: &Arc<Srq>, context: usize) -> Arc<Qp>;
}

impl User for Side {
    fn user(&self, cq: &Arc<Cq>, srq: &Arc<Srq>, context: usize) -> Arc<Qp> {
        let config = QpConfig { context, ..QpConfig::default() };
        self.pd.create_qp_with_srq(cq, cq, srq, config).unwrap()
    }
}

fn each_receive_serves_one_message_of_whichever_qp() {
    let shared = Shared::new(CONFIG);
    shared.clients[0].fill(3);
    shared.clients[1].fill(5);
    let wide = [shared.server.mr.sge(0..1); 3];
    assert_eq!(status(shared.srq.receive(9, &wide)), STATUS_DATA_OVERRUN);
    let long = Sge::at(0x1000, (1 << 31) + 1, 7);
    assert_eq!(status(shared.srq.receive(9, &[long])), STATUS_BUFFER_OVERFLOW);
    shared.post(0..8);
    assert_eq!(status(shared.srq.receive(9, &[])), STATUS_NO_MORE_ENTRIES);
    for (context, client) in [0, 1, 1, 0].into_iter().enumerate() {
        assert_eq!(shared.send(client, 900), STATUS_SUCCESS);
        let [got] = shared.server.results(1)[..] else { panic!("one completion") };
        assert_eq!((got.Status, got.Type), (STATUS_SUCCESS, NdkOperationTypeReceive));
        assert_eq!(got.RequestContext.addr(), context, "in the order of the queue");
        assert_eq!(got.QPContext.addr(), client + 1, "by the QP that took it");
        assert_eq!(shared.server.bytes(context * 1000, 900), shared.clients[client].bytes(0, 900));
        // Its slot is free again.
        shared.post([context]);
    }
    assert_eq!(status(shared.qps[0].receive(9, &[])), STATUS_INVALID_DEVICE_REQUEST);
}

fn a_message_waits_for_a_receive() {
    let shared = Shared::new(CONFIG);
    let client = &shared.clients[0];
    client.qp.send(1, &[client.mr.sge(0..10)], 0).unwrap();
    // The other connection has been served meanwhile: nobody takes what is not there.
    shared.post([0]);
    let [got] = shared.server.results(1)[..] else { panic!("one completion") };
    assert_eq!((got.Status, got.QPContext.addr()), (STATUS_SUCCESS, 1));
    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
}

fn the_threshold_is_told_once_for_each_arming() {
    let shared = Shared::new(SrqConfig { threshold: 3, ..CONFIG });
    let low = |seen| shared.srq.wait_notification(seen, PATIENCE).unwrap();
    shared.post(0..4);
    assert_eq!(shared.send(0, 1), STATUS_SUCCESS);
    assert_eq!(shared.srq.notifications(), 0, "three are left");
    assert_eq!(shared.send(1, 1), STATUS_SUCCESS);
    assert!(low(0));
    assert_eq!(shared.send(0, 1), STATUS_SUCCESS);
    shared.server.statuses(3);
    // Neither depth nor threshold: nothing is armed.
    shared.srq.modify(0, 0).wait().unwrap();
    assert_eq!(shared.srq.notifications(), 1);
    // One is left: below already.
    shared.srq.modify(0, 2).wait().unwrap();
    assert!(low(1));
    shared.post([5, 6, 7]);
    shared.srq.modify(0, 4).wait().unwrap();
    assert_eq!(shared.srq.notifications(), 2);
    assert_eq!(shared.send(0, 1), STATUS_SUCCESS);
    assert!(low(2));
}

fn the_depth_changes_but_not_below_what_is_queued() {
    let shared = Shared::new(CONFIG);
    let most = shared.net.adapters[1].info().unwrap().MaxSrqDepth;
    let modify = |depth| status(shared.srq.modify(depth, 0).wait());
    shared.post(0..8);
    assert_eq!(modify(7), STATUS_BUFFER_OVERFLOW);
    assert_eq!(modify(most + 1), STATUS_INVALID_PARAMETER);
    assert_eq!(status(shared.srq.receive(9, &[])), STATUS_NO_MORE_ENTRIES);
    assert_eq!(modify(9), STATUS_SUCCESS);
    shared.post([8]);
    assert_eq!(status(shared.srq.receive(9, &[])), STATUS_NO_MORE_ENTRIES);
    for _ in 0..6 {
        assert_eq!(shared.send(0, 1), STATUS_SUCCESS);
    }
    shared.server.statuses(6);
    assert_eq!(modify(3), STATUS_SUCCESS);
    assert_eq!(status(shared.srq.receive(9, &[])), STATUS_NO_MORE_ENTRIES);
    assert_eq!(modify(most), STATUS_SUCCESS);
    for _ in 3..most {
        shared.srq.receive(9, &[]).unwrap();
    }
    assert_eq!(status(shared.srq.receive(9, &[])), STATUS_NO_MORE_ENTRIES);
    for (message, context) in [6, 7, 8, 9].into_iter().enumerate() {
        assert_eq!(shared.send(message % 2, 0), STATUS_SUCCESS);
        assert_eq!(shared.server.results(1)[0].RequestContext.addr(), context);
    }
}

fn limits_of_creation_are_checked() {
    let net = Net::new();
    let (side, info) = (net.side(0), net.adapters[0].info().unwrap());
    let create = |config| status(side.pd.create_srq(config));
    let (depth, receive_sge) = (info.MaxSrqDepth, info.MaxReceiveRequestSge);
    assert_eq!(create(SrqConfig { depth: depth + 1, ..CONFIG }), STATUS_INVALID_PARAMETER);
    let wide = SrqConfig { receive_sge: receive_sge + 1, ..CONFIG };
    assert_eq!(create(wide), STATUS_INVALID_PARAMETER);
    assert_eq!(create(SrqConfig { depth, receive_sge, threshold: 0 }), STATUS_SUCCESS);
    let srq = side.pd.create_srq(CONFIG).unwrap();
    let wide = QpConfig { initiator_sge: info.MaxInitiatorRequestSge + 1, ..QpConfig::default() };
    let qp = side.pd.create_qp_with_srq(&side.cq, &side.cq, &srq, wide);
    assert_eq!(status(qp), STATUS_INVALID_PARAMETER);
}

fn a_qp_that_fails_leaves_the_queue_to_the_others() {
    let shared = Shared::new(CONFIG);
    shared.post(0..4);
    // Longer than the receive that it takes.
    assert!(!shared.send(0, 1001).is_success());
    let [got] = shared.server.results(1)[..] else { panic!("one completion") };
    assert_eq!((got.Status, got.RequestContext.addr()), (STATUS_BUFFER_OVERFLOW, 0));
    assert_eq!(got.QPContext.addr(), 1);
    assert_eq!(shared.send(1, 1000), STATUS_SUCCESS);
    let [got] = shared.server.results(1)[..] else { panic!("one completion") };
    assert_eq!((got.Status, got.RequestContext.addr()), (STATUS_SUCCESS, 1));
    // A flush takes none of them either.
    shared.qps[1].flush();
    let third = shared.server.user(&shared.server.cq, &shared.srq, 3);
    let client = shared.net.side(0);
    let _connected = shared.net.connect_qps_at(PORT + 2, &client.qp, &third);
    client.qp.send(1, &[client.mr.sge(0..1)], 0).unwrap();
    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
    let [got] = shared.server.results(1)[..] else { panic!("one completion") };
    assert_eq!((got.Status, got.RequestContext.addr()), (STATUS_SUCCESS, 2));
    assert_eq!(got.QPContext.addr(), 3);
}

fn it_closes_after_its_qps_and_with_receives_in_it() {
    let shared = Shared::new(CONFIG);
    shared.post(0..4);
    let Shared { clients, server, qps, srq, connected, net } = shared;
    // Closed through the tables, behind the wrapper's back.
    let raw = Object(srq.as_ptr());
    std::mem::forget(srq);
    let closed = start(|then| raw.close(then));
    assert_eq!(status(server.pd.create_srq(CONFIG)), STATUS_SUCCESS, "the close has been seen");
    assert_eq!(closed.try_recv(), Err(TryRecvError::Empty), "QPs use it");
    for qp in &qps {
        let raw = Object(qp.as_ptr());
        start(|then| raw.close(then));
    }
    qps.into_iter().for_each(std::mem::forget);
    drop((connected, clients));
    closed.recv_timeout(PATIENCE).unwrap();
    // The wrappers that were forgotten hold the adapter open.
    std::mem::forget(net);
}

fn the_receives_that_it_closes_with_complete_on_no_cq() {
    let net = Net::new();
    // Its QP is the first of the adapter, as the shared queue is.
    let side = net.side(0);
    let srq = side.pd.create_srq(CONFIG).unwrap();
    for context in 0..4 {
        srq.receive(context, &[side.mr.sge(0..1000)]).unwrap();
    }
    drop(srq);
    assert_eq!(status(side.pd.create_srq(CONFIG)), STATUS_SUCCESS, "the close has been seen");
    assert_eq!(side.cq.results_ex(&mut [NDK_RESULT_EX::EMPTY; 4]), 0);
}
