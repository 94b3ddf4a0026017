//! Ends of connections, and closes, where an adapter has several cores.

use super::*;
use tests::call;
use tests::kit::raw::{self, Object, start, wait};

/// Receives of a queue pair, and requests, that have not ended.
const POSTED: usize = 8;

/// Receives on each side that nothing will come for.
fn post_receives(mesh: &Mesh) {
    for side in mesh.pairs.iter().flat_map(|(sides, _)| sides) {
        (0..POSTED).for_each(|id| side.qp.receive(id, &[side.mr.sge(0..100)]).unwrap());
    }
}

/// A queue pair without its wrapper, which a connector would keep open.
fn bare_qp(domain: &Domain, [receives, requests]: &[Arc<Cq>; 2]) -> Object<NDK_QP> {
    let (pd, depth) = (Object(domain.pd.as_ptr()), 2 * POSTED as u32);
    let (receives, requests) = (receives.as_ptr(), requests.as_ptr());
    let none = std::ptr::null_mut();
    let create = |done, context| {
        let out = std::ptr::null_mut();
        call!(pd, NdkCreateQp, receives, requests, none, depth, depth, 1, 1, 0, done, context, out)
    };
    raw::create(create).unwrap()
}

#[test]
fn a_disconnect_ends_what_is_posted_on_any_core() {
    let mesh = Mesh::of([2, 3]);
    post_receives(&mesh);
    for (nth, (sides, ends)) in mesh.pairs.iter().enumerate() {
        let (own, peer) = (nth % 2, 1 - nth % 2);
        ends[own].disconnect().wait().unwrap();
        // They are there when the request ends.
        let mut results = [NDK_RESULT_EX::EMPTY; POSTED + 1];
        assert_eq!(sides[own].cq.results_ex(&mut results), POSTED);
        assert!(results[..POSTED].iter().all(|result| result.Status == STATUS_CANCELLED));
        assert!(ends[peer].wait_disconnected(PATIENCE));
        ends[peer].disconnect().wait().unwrap();
        assert_eq!(sides[peer].cq.results_ex(&mut results), POSTED);
    }
    mesh.finish();
}

/// Goal: what is posted on a queue pair has ended when that is closed, wherever its CQs are.
#[test]
fn a_close_of_a_queue_pair_comes_after_its_completions() {
    let net = Net::of_cores([3, 1], core_of);
    let [near, far] = [0, 1].map(|host| Domain::new(&net.adapters[host]));
    let listener = net.listen();
    for (receives, requests) in (0..9).map(|nth| (nth / 3, nth % 3)) {
        let cqs = [receives, requests].map(|core| near.cq(core));
        let qp = bare_qp(&near, &cqs);
        let connector = wait(|then| net.raw(0).create_connector(then)).unwrap();
        let peer = far.side(0);
        let asked = start(|then| connector.connect(qp, net.at(0, 0), net.at(1, PORT), then));
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accepted = passive.accept(&peer.qp, LIMITS, b"");
        assert_eq!(asked.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
        let event = Box::new(|| ());
        assert_eq!(wait(|then| connector.complete_connect(event, then)), STATUS_SUCCESS);
        accepted.wait().unwrap();
        // Nobody sends, and nobody receives.
        (0..POSTED).for_each(|id| assert_eq!(qp.receive(id, &[]), STATUS_SUCCESS));
        (0..POSTED).for_each(|id| assert_eq!(qp.send(id, &[]), STATUS_SUCCESS));
        // The end of its close is that of the connector's.
        let closed = start(|then| qp.close(then));
        wait(|then| connector.close(then));
        closed.recv_timeout(PATIENCE).expect("the close ends");
        for cq in &cqs {
            let mut results = [NDK_RESULT_EX::EMPTY; POSTED + 1];
            assert_eq!(cq.results_ex(&mut results), POSTED, "{receives} {requests}");
        }
    }
    drop((near, far, listener));
    net.finish();
}

#[test]
fn a_flush_cancels_on_any_core() {
    let mesh = Mesh::of([2, 3]);
    post_receives(&mesh);
    for (sides, _) in &mesh.pairs {
        sides[1].qp.flush();
        assert_eq!(sides[1].statuses(POSTED), [STATUS_CANCELLED; POSTED]);
    }
    mesh.finish();
}

/// Goal: objects of all cores close in any order under traffic, and nothing is left.
#[test]
fn everything_closes_in_any_order() {
    for order in 0..6 {
        let mesh = Mesh::of([2, 3]);
        post_receives(&mesh);
        for (sides, _) in &mesh.pairs {
            let [near, far] = sides;
            near.qp.write(1, &[near.mr.sge(0..300_000)], far.mr.remote(0), 0).unwrap();
            far.qp.read(2, &[far.mr.sge(400_000..600_000)], near.mr.remote(0), 0).unwrap();
        }
        let Mesh { pairs, domains, net } = mesh;
        let (mut qps, mut cqs, mut connectors) = (Vec::new(), Vec::new(), Vec::new());
        for (sides, ends) in pairs {
            for Side { cq, qp, .. } in sides {
                qps.push(qp);
                cqs.push(cq);
            }
            connectors.extend(ends);
        }
        thread::scope(|scope| {
            let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
            let (mut qps, mut cqs, mut connectors) = (Some(qps), Some(cqs), Some(connectors));
            for kind in orders[order] {
                let (qps, cqs, connectors) = match kind {
                    0 => (qps.take(), None, None),
                    1 => (None, cqs.take(), None),
                    _ => (None, None, connectors.take()),
                };
                // A wrapper holds its antecedents, and waits for its close: each kind in a thread of its own.
                scope.spawn(move || drop((qps, cqs, connectors)));
            }
        });
        drop(domains);
        net.finish();
    }
}

/// Goal: both ends of a connection are on one adapter, on one core or on two.
#[test]
fn an_adapter_talks_to_itself_over_its_cores() {
    let net = Net::of_cores([3, 1], core_of);
    let domain = Domain::new(&net.adapters[0]);
    let listener = net.adapters[0].listen(net.at(0, PORT)).unwrap();
    fill(&domain.mr, 7);
    for [near, far] in [[0, 1], [1, 0], [1, 2], [2, 2], [0, 0]] {
        let sides = [near, far].map(|core| domain.side(core));
        let active = net.adapters[0].create_connector().unwrap();
        let asked = active.connect(&sides[0].qp, net.at(0, 0), net.at(0, PORT), LIMITS, b"caller");
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accepted = passive.accept(&sides[1].qp, LIMITS, b"callee");
        asked.wait().unwrap();
        active.complete_connect().wait().unwrap();
        accepted.wait().unwrap();
        for (from, to) in [(0, 1), (1, 0)] {
            // Both sides have the same memory.
            let (local, remote) = (&sides[from], &sides[to]);
            remote.qp.receive(7, &[remote.mr.sge(500_000..600_000)]).unwrap();
            local.qp.send(1, &[local.mr.sge(0..100_000)], 0).unwrap();
            let write = [local.mr.sge(100_000..200_000)];
            local.qp.write(2, &write, remote.mr.remote(600_000), 0).unwrap();
            let read = [local.mr.sge(700_000..800_000)];
            local.qp.read(3, &read, remote.mr.remote(200_000), 0).unwrap();
            assert_eq!(local.statuses(3), [STATUS_SUCCESS; 3]);
            assert_eq!(remote.results(1)[0].BytesTransferred, 100_000);
            assert!(remote.bytes(500_000, 300_000) == local.bytes(0, 300_000));
        }
        drop(active);
        assert!(passive.wait_disconnected(PATIENCE));
    }
    drop((domain, listener));
    net.finish();
}
