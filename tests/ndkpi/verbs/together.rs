//! Goal: regions, windows and receives of several connections do not get in each other's way, and
//! what one request gives back is there for the next.
//! Method: threads that each map, write, invalidate and map anew on a connection of their own, over
//! one shared receive queue.

use super::*;
use ndk_consumer::{Invalidate, SrqConfig};
use tests::kit::PORT;

crate::tests! {
    connections_map_and_invalidate_side_by_side
}

const CONNECTIONS: usize = 4;
const ROUNDS: usize = 200;

fn connections_map_and_invalidate_side_by_side() {
    let net = Arc::new(Net::new());
    let domain = net.adapters[1].create_pd().unwrap();
    let depth = CONNECTIONS as u32;
    let srq = domain.create_srq(SrqConfig { depth, receive_sge: 1, threshold: 0 }).unwrap();
    let pairs: Vec<Pair> = (0..CONNECTIONS)
        .map(|number| {
            let (client, mut server) = (net.side(0), net.side(1));
            let config = QpConfig::default();
            let cq = &server.cq;
            server.qp = server.pd.create_qp_with_srq(cq, cq, &srq, config).unwrap();
            let port = PORT + number as u16;
            let connected = net.connect_qps_at(port, &client.qp, &server.qp);
            Pair {
                client,
                server,
                _connectors: [connected.active, connected.passive],
                _listener: connected.listener,
                net: Arc::clone(&net),
            }
        })
        .collect();
    std::thread::scope(|scope| {
        for (number, pair) in pairs.iter().enumerate() {
            let srq = &srq;
            scope.spawn(move || {
                let (mapped, frmr) =
                    (pair.map(number, 5000), pair.server.pd.create_frmr(2, true).unwrap());
                let (server, client) = (&pair.server, &pair.client);
                let mw = server.pd.create_mw().unwrap();
                let silent = NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER;
                for round in 0..ROUNDS {
                    server.qp.fast_register(1, &frmr, mapped.whole(), REMOTE | silent).unwrap();
                    server.qp.bind(2, &server.mr, &mw, 0..5000, REMOTE).unwrap();
                    // One receive for each message of anyone.
                    srq.receive(round, &[]).unwrap();
                    assert_eq!(server.ends(1), [(NdkOperationTypeBind, STATUS_SUCCESS)]);
                    client.fill((number * 31 + round * 7 + 3) as u8);
                    let (data, token) = ([client.mr.sge(0..5000)], frmr.remote_token());
                    let window = mw.remote(server.mr.remote(0).address);
                    client.qp.write(3, &data, frmr.remote(mapped.base()), silent).unwrap();
                    client.qp.write(4, &data, window, silent).unwrap();
                    client.qp.send_and_invalidate(5, &[], 0, token).unwrap();
                    assert_eq!(client.statuses(1), [STATUS_SUCCESS]);
                    let [got] = server.results(1)[..] else { panic!("one completion") };
                    let ended = got.TypeSpecificCompletionOutput;
                    assert_eq!((got.Status, ended), (STATUS_SUCCESS, token as usize));
                    assert_eq!(mapped.bytes(0, 5000), client.bytes(0, 5000));
                    assert_eq!(server.bytes(0, 5000), client.bytes(0, 5000));
                    server.qp.invalidate(6, Invalidate::Window(&mw), silent).unwrap();
                }
            });
        }
    });
}
