use super::*;

crate::tests! {
    a_deferred_request_waits_for_the_next_that_is_not
    silent_success_is_silent_and_failure_is_not
    a_fenced_request_waits_for_the_reads_before_it
}

fn a_deferred_request_waits_for_the_next_that_is_not() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    for context in 0..3 {
        server.qp.receive(context, &[server.mr.sge(0..10)]).unwrap();
    }
    let mut none = [NDK_RESULT_EX::EMPTY];
    for context in 0..2 {
        client.qp.send(context, &[client.mr.sge(0..1)], NDK_OP_FLAG_DEFER).unwrap();
        turn(&net.adapters[0]);
        turn(&net.adapters[1]);
        assert_eq!(client.cq.results_ex(&mut none) + server.cq.results_ex(&mut none), 0);
    }
    client.qp.send(2, &[client.mr.sge(0..1)], 0).unwrap();
    let order = |side: &Side| {
        Vec::from_iter(side.results(3).iter().map(|result| result.RequestContext.addr()))
    };
    assert_eq!(order(client), [0, 1, 2]);
    assert_eq!(order(server), [0, 1, 2]);
}

fn silent_success_is_silent_and_failure_is_not() {
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    let silent = NDK_OP_FLAG_SILENT_SUCCESS;
    // More than the queue holds: each frees its place without a completion.
    for context in 0..200 {
        let sge = [client.mr.sge(0..100)];
        while let Err(error) = client.qp.write(context, &sge, server.mr.remote(0), silent) {
            assert_eq!(error.status, STATUS_NO_MORE_ENTRIES);
            std::thread::yield_now();
        }
    }
    let mut wrong = server.mr.remote(0);
    wrong.token ^= 1;
    while client.qp.write(999, &[client.mr.sge(0..1)], wrong, silent).is_err() {
        std::thread::yield_now();
    }
    let failed = client.results(1)[0];
    assert_eq!((failed.Status, failed.RequestContext.addr()), (STATUS_ACCESS_VIOLATION, 999));
}

/// A WRITE of what a READ brings: only the fence makes it wait for the bytes.
fn a_fenced_request_waits_for_the_reads_before_it() {
    const LEN: usize = 200_000;
    let net = Net::new();
    let connection = net.connect();
    let [client, server] = &connection.sides;
    for round in 1..5_u8 {
        server.fill(2 * round + 1);
        let sink = 0..LEN;
        client.qp.read(1, &[client.mr.sge(sink.clone())], server.mr.remote(0), 0).unwrap();
        let target = server.mr.remote(500_000);
        client.qp.write(2, &[client.mr.sge(sink)], target, NDK_OP_FLAG_READ_FENCE).unwrap();
        assert_eq!(client.statuses(2), [STATUS_SUCCESS; 2]);
        assert!(server.bytes(500_000, LEN) == server.bytes(0, LEN), "round {round}");
    }
}
