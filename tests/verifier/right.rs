//! Consumers that break no rule, with threads.

use super::Watched;
use driver::abi::*;
use ndk_consumer::Qp;
use ndk_verifier::{Explore, Report};
use std::sync::Arc;
use tests::kit::Side;

/// A connection that carries one request of each kind, and its end in order.
fn exchange(watched: &Watched) {
    let connection = watched.net.connect();
    let [client, server] = &connection.sides;
    client.fill(3);
    for round in 0..8 {
        let range = round * 4096..round * 4096 + 4000;
        server.qp.receive(round, &[server.mr.sge(range.clone())]).unwrap();
        client.qp.send(round, &[client.mr.sge(range.clone())], 0).unwrap();
        assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
        let received = &server.results(1)[0];
        assert_eq!((received.RequestContext.addr(), received.BytesTransferred), (round, 4000));
        assert_eq!(server.bytes(range.start, 4000), client.bytes(range.start, 4000));
        transfer(&client.qp, client, server, round);
    }
    connection.connectors[0].disconnect().wait().unwrap();
}

/// A WRITE without a completion, a READ back, and a WRITE of its bytes.
fn transfer(qp: &Arc<Qp>, client: &Side, server: &Side, round: usize) {
    let (there, back) = (0x4_0000 + round * 4096, 0x8_0000 + round * 4096);
    let sge = client.mr.sge(there..there + 4096);
    qp.write(100, &[sge], server.mr.remote(there), NDK_OP_FLAG_SILENT_SUCCESS).unwrap();
    let sge = client.mr.sge(back..back + 4096);
    qp.read(200 + round, &[sge], server.mr.remote(there), NDK_OP_FLAG_READ_FENCE).unwrap();
    // The READ brings the bytes that this one sends.
    let (sge, beyond) = (client.mr.sge(back..back + 4096), server.mr.remote(back));
    qp.write(300 + round, &[sge], beyond, NDK_OP_FLAG_READ_FENCE).unwrap();
    let ended = client.results(2);
    let ended = ended.iter().map(|result| (result.RequestContext.addr(), result.Status));
    let expected = [200, 300].map(|context| (context + round, STATUS_SUCCESS));
    assert_eq!(ended.collect::<Vec<_>>(), expected);
    assert_eq!(client.bytes(back, 4096), client.bytes(there, 4096));
    assert_eq!(server.bytes(back, 4096), client.bytes(there, 4096));
}

fn mistakes(watched: &Watched) -> Vec<Report> {
    watched.reports().into_iter().filter(|report| report.rule.is_mistake()).collect()
}

#[test]
fn a_right_consumer_is_not_reported() {
    let watched = Watched::new(None);
    exchange(&watched);
    assert_eq!(mistakes(&watched), []);
    watched.net.finish();
}

#[test]
fn a_right_consumer_copes_with_every_way_of_a_threaded_provider() {
    for seed in 0..12 {
        let watched = Watched::new(Some(Explore::new(seed)));
        exchange(&watched);
        assert_eq!(mistakes(&watched), [], "seed {seed}");
        watched.net.finish();
    }
}
