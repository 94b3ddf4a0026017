//! CQs and SRQs that queue pairs of several cores share.

use super::*;
use ndk_consumer::{Arm, SrqConfig};
use tests::kit::status;

/// Two domains on hosts of three and two cores.
fn domains(net: &Net) -> [Domain; 2] {
    [0, 1].map(|host| Domain::new(&net.adapters[host]))
}

/// Takes the next completions of a CQ, which have to come.
fn take(cq: &Cq, count: usize) -> Vec<NDK_RESULT_EX> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut results = [NDK_RESULT_EX::EMPTY; 16];
        let taken = cq.wait_results_ex(&mut results, PATIENCE).unwrap();
        assert!(taken > 0, "{} of {count} completions came", all.len());
        all.extend_from_slice(&results[..taken]);
    }
    all
}

fn contexts(results: &[NDK_RESULT_EX]) -> Vec<usize> {
    results.iter().map(|result| result.RequestContext.addr()).collect()
}

#[test]
fn receives_complete_on_a_cq_of_any_core_in_their_order() {
    let net = Net::of_cores([2, 3], core_of);
    let [near, far] = domains(&net);
    let listener = net.listen();
    for (receives, requests) in [(1, 0), (0, 2), (2, 1)] {
        let side = near.side(requests % 2);
        let [receives, requests] = [receives, requests].map(|core| far.cq(core));
        let qp = far.qp(&receives, &requests);
        let _ends = net.connect_qps_by(&listener, PORT, &side.qp, &qp);
        for round in 0..10 {
            fill(&near.mr, round);
            for id in 0..20 {
                qp.receive(id, &[far.mr.sge(id * 1000..(id + 1) * 1000)]).unwrap();
            }
            let seen = receives.notifications();
            receives.arm(Arm::Any);
            for id in 0..20 {
                side.qp.send(id, &[near.mr.sge(id * 1000..(id + 1) * 1000)], 0).unwrap();
            }
            assert!(receives.wait_notification(seen, PATIENCE).unwrap());
            let received = take(&receives, 20);
            assert_eq!(contexts(&received), (0..20).collect::<Vec<_>>());
            assert!(received.iter().all(|result| result.Status == STATUS_SUCCESS));
            assert!(far.mr.buffer().to_vec(0..20_000) == near.mr.buffer().to_vec(0..20_000));
            assert_eq!(side.statuses(20), [STATUS_SUCCESS; 20]);
        }
        // The way back completes where its requests do.
        side.qp.receive(5, &[near.mr.sge(0..10)]).unwrap();
        qp.send(6, &[far.mr.sge(0..10)], 0).unwrap();
        assert_eq!(contexts(&take(&requests, 1)), [6]);
        assert_eq!(contexts(&side.results(1)), [5]);
    }
    drop((near, far, listener));
    net.finish();
}

/// Goal: one CQ takes the receives of queue pairs of all cores, none twice and none too few.
#[test]
fn queue_pairs_of_all_cores_feed_one_cq() {
    const EACH: usize = 60;
    let net = Net::of_cores([2, 3], core_of);
    let [near, far] = domains(&net);
    let listener = net.listen();
    let all = far.cq(1);
    let pairs: Vec<_> = (0..6)
        .map(|nth| {
            let side = near.side(nth % 2);
            let qp = far.qp(&all, &far.cq(nth % 3));
            let ends = net.connect_qps_by(&listener, PORT, &side.qp, &qp);
            (side, qp, ends)
        })
        .collect();
    let mut got = vec![Vec::new(); pairs.len()];
    for round in 0..EACH / 20 {
        for (nth, (_, qp, _)) in pairs.iter().enumerate() {
            for at in 0..20 {
                qp.receive(nth * 1000 + round * 20 + at, &[far.mr.sge(0..100)]).unwrap();
            }
        }
        thread::scope(|scope| {
            for (side, ..) in &pairs {
                scope.spawn(|| {
                    for id in 0..20 {
                        side.qp.send(id, &[side.mr.sge(0..100)], 0).unwrap();
                    }
                    assert_eq!(side.statuses(20), [STATUS_SUCCESS; 20]);
                });
            }
            for context in contexts(&take(&all, 20 * pairs.len())) {
                got[context / 1000].push(context % 1000);
            }
        });
    }
    assert!(got.iter().all(|ids| ids.iter().copied().eq(0..EACH)), "{got:?}");
    drop((pairs, all, near, far, listener));
    net.finish();
}

/// Goal: queue pairs with an SRQ live on its core, wherever their CQs are, and their completions come into those.
#[test]
fn an_srq_serves_queue_pairs_whose_cqs_are_elsewhere() {
    let net = Net::of_cores([2, 3], core_of);
    let [near, far] = domains(&net);
    let listener = net.listen();
    let srq = far
        .pd
        .create_srq_near(SrqConfig { depth: 64, receive_sge: 1, threshold: 0 }, 1 << 2)
        .unwrap();
    let pairs: Vec<_> = (0..6)
        .map(|nth| {
            let side = near.side(nth % 2);
            let cqs = [nth % 3, (nth + nth / 3) % 3].map(|core| far.cq(core));
            let qp =
                far.pd.create_qp_with_srq(&cqs[0], &cqs[1], &srq, QpConfig::default()).unwrap();
            let ends = net.connect_qps_by(&listener, PORT, &side.qp, &qp);
            (side, cqs, qp, ends)
        })
        .collect();
    let on = net.providers[1].connections();
    assert!(on.iter().all(|one| one.qpn.core(3) == 2));
    for round in 0..10 {
        for id in 0..pairs.len() {
            srq.receive(id, &[far.mr.sge(id * 500..(id + 1) * 500)]).unwrap();
        }
        let mut taken = Vec::new();
        for (side, cqs, qp, _) in &pairs {
            side.qp.send(1, &[near.mr.sge(0..500)], 0).unwrap();
            let received = take(&cqs[0], 1);
            assert_eq!((received[0].Status, received[0].BytesTransferred), (STATUS_SUCCESS, 500));
            taken.extend(contexts(&received));
            assert_eq!(side.statuses(1), [STATUS_SUCCESS]);
            qp.write(round, &[far.mr.sge(0..70_000)], near.mr.remote(100_000), 0).unwrap();
            assert_eq!(contexts(&take(&cqs[1], 1)), [round]);
        }
        assert_eq!(taken, (0..pairs.len()).collect::<Vec<_>>());
    }
    drop((pairs, srq, near, far, listener));
    net.finish();
}

/// Goal: a CQ that overruns takes its queue pairs with it, on whichever cores they are, and their peers are told.
#[test]
fn a_cq_that_overruns_ends_its_queue_pairs_of_all_cores() {
    let net = Net::of_cores([2, 3], core_of);
    let [near, far] = domains(&net);
    let listener = net.listen();
    let tiny = far.adapter.create_cq_near(4, 1 << 1).unwrap();
    let apart = far.side(2);
    let other = near.side(1);
    let rest = net.connect_qps_by(&listener, PORT, &other.qp, &apart.qp);
    let pairs: Vec<_> = (0..5)
        .map(|nth| {
            let side = near.side(nth % 2);
            let requests = far.cq(nth % 3);
            let qp = far.qp(&tiny, &requests);
            (0..4).for_each(|id| qp.receive(id, &[far.mr.sge(0..100)]).unwrap());
            let ends = net.connect_qps_by(&listener, PORT, &side.qp, &qp);
            (side, requests, qp, ends)
        })
        .collect();
    let seen = tiny.notifications();
    tiny.arm(Arm::Errors);
    // The first may have ended the others.
    let send = |side: &Side| side.qp.send(1, &[side.mr.sge(0..10)], 0).is_ok();
    let sent: Vec<_> =
        pairs.iter().map(|(side, ..)| (0..2).filter(|_| send(side)).count()).collect();
    let told = tiny.wait_notification(seen, PATIENCE);
    assert_eq!(status(told), STATUS_BUFFER_OVERFLOW);
    for ((side, _, qp, [active, passive]), sent) in pairs.iter().zip(sent) {
        assert!(active.wait_disconnected(PATIENCE), "the peer is told");
        assert!(passive.wait_disconnected(PATIENCE));
        let ended = status(qp.send(9, &[far.mr.sge(0..10)], 0));
        assert_eq!(ended, STATUS_CONNECTION_INVALID);
        active.disconnect().wait().unwrap();
        assert_eq!(side.results(sent).len(), sent);
    }
    exchange([&other, &apart], 0);
    assert_eq!(net.providers[1].counters().cq_errors, 1);
    drop((pairs, rest, other, apart, tiny, near, far, listener));
    net.finish();
}
