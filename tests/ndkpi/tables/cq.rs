use super::*;
use ndk_consumer::{Arm, Cq};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

crate::tests! {
    a_resize_keeps_what_is_there_in_order
    a_smaller_cq_overruns_sooner_and_a_larger_later
    a_resize_meets_a_poll
    moderation_by_count_waits_for_the_count
    moderation_by_time_waits_for_the_time
    moderation_counts_nothing_that_was_taken_before
    moderation_that_nothing_ends_is_refused
    an_overrun_is_told_whatever_the_moderation
    a_resize_below_the_count_ends_a_wait_that_nothing_would
    arming_inside_the_callback_misses_nothing_and_overlaps_nothing
    an_arm_tells_of_nothing_that_was_taken
    an_arm_tells_of_what_came_and_was_taken_since
    a_failed_completion_satisfies_a_solicited_arm
    no_array_takes_nothing
}

fn contexts(cq: &Cq, count: usize) -> Vec<usize> {
    let mut results = vec![NDK_RESULT::EMPTY; count];
    let taken = cq.results(&mut results);
    results[..taken].iter().map(|result| result.RequestContext.addr()).collect()
}

/// Makes completions and returns when all are in the CQ, which is not polled.
fn fill(qp: &Qp, side: &Side, range: std::ops::Range<usize>, adapter: &Arc<Adapter>) {
    complete(qp, side, range);
    // The posts were before the turn.
    turn(adapter);
}

fn a_resize_keeps_what_is_there_in_order() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = &net.adapters[0];
    let cq = adapter.create_cq(4).unwrap();
    let qp = dead_qp(&side, &cq);
    fill(&qp, &side, 0..4, adapter);
    assert_eq!(status(cq.resize(3)), STATUS_BUFFER_OVERFLOW);
    assert_eq!(contexts(&cq, 1), [0]);
    cq.resize(3).unwrap();
    cq.resize(5).unwrap();
    fill(&qp, &side, 4..6, adapter);
    cq.resize(100).unwrap();
    fill(&qp, &side, 6..60, adapter);
    cq.resize(1000).unwrap();
    fill(&qp, &side, 60..64, adapter);
    assert_eq!(contexts(&cq, 10), Vec::from_iter(1..11));
    assert_eq!(contexts(&cq, 100), Vec::from_iter(11..64));
    let limit = adapter.info().unwrap().MaxCqDepth;
    assert_eq!(status(cq.resize(limit + 1)), STATUS_INVALID_PARAMETER);
    cq.resize(limit).unwrap();
}

fn a_smaller_cq_overruns_sooner_and_a_larger_later() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = &net.adapters[0];
    for (depth, holds) in [(2, 2), (8, 8)] {
        let cq = adapter.create_cq(4).unwrap();
        let qp = dead_qp(&side, &cq);
        cq.resize(depth).unwrap();
        fill(&qp, &side, 0..holds + 1, adapter);
        // Nobody was armed when it happened: the next arm is told.
        let seen = cq.notifications();
        assert_eq!(seen, 0);
        cq.arm(Arm::Errors);
        assert_eq!(status(cq.wait_notification(seen, PATIENCE)), STATUS_BUFFER_OVERFLOW);
        assert_eq!(contexts(&cq, 100), Vec::from_iter(0..holds));
        assert_eq!(status(cq.resize(100)), STATUS_INVALID_DEVICE_STATE);
        // It would tell a new queue pair's consumer nothing.
        for [receives, requests] in [[&cq, &side.cq], [&side.cq, &cq]] {
            let late = side.pd.create_qp(receives, requests, QpConfig::default());
            assert_eq!(status(late), STATUS_INVALID_PARAMETER);
        }
    }
}

/// Goal: resizing loses, repeats and reorders nothing while another thread polls.
/// Method: one thread makes completions, one changes the depth, one polls.
fn a_resize_meets_a_poll() {
    const ALL: usize = 20_000;
    let net = Net::new();
    let side = net.side(0);
    let cq = net.adapters[0].create_cq(64).unwrap();
    let qp = dead_qp(&side, &cq);
    let done = AtomicBool::new(false);
    // So that never more than the smallest depth are there.
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for context in 0..ALL {
                while context - taken.load(Ordering::Relaxed) >= 64 {
                    std::thread::yield_now();
                }
                complete(&qp, &side, context..context + 1);
            }
        });
        scope.spawn(|| {
            let mut depth = 64;
            while !done.load(Ordering::Relaxed) {
                depth = if depth >= 16_384 { 64 } else { depth * 2 };
                cq.resize(depth).unwrap();
            }
        });
        let mut next = 0;
        while next < ALL {
            for context in contexts(&cq, 7) {
                assert_eq!(context, next);
                next += 1;
            }
            taken.store(next, Ordering::Relaxed);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(contexts(&cq, 1), []);
}

fn moderation_by_count_waits_for_the_count() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = &net.adapters[0];
    let cq = adapter.create_cq(64).unwrap();
    let qp = dead_qp(&side, &cq);
    cq.moderate(MAXULONG, 3).unwrap();
    cq.arm(Arm::Any);
    fill(&qp, &side, 0..2, adapter);
    // Polling sees them all the same.
    assert_eq!(contexts(&cq, 9), [0, 1]);
    turn(adapter);
    assert_eq!(cq.notifications(), 0);
    fill(&qp, &side, 2..3, adapter);
    assert!(cq.wait_notification(0, PATIENCE).unwrap());
    // The next one counts anew.
    cq.arm(Arm::Any);
    fill(&qp, &side, 3..5, adapter);
    turn(adapter);
    assert_eq!(cq.notifications(), 1);
    // New settings hold for what waits already.
    cq.moderate(MAXULONG, 2).unwrap();
    assert!(cq.wait_notification(1, PATIENCE).unwrap());
}

fn moderation_by_time_waits_for_the_time() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = &net.adapters[0];
    let cq = adapter.create_cq(64).unwrap();
    let qp = dead_qp(&side, &cq);
    cq.moderate(200_000, MAXULONG).unwrap();
    for round in 0..2 {
        let start = Instant::now();
        cq.arm(Arm::Any);
        complete(&qp, &side, 0..5);
        assert!(cq.wait_notification(round, PATIENCE).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
        assert_eq!(contexts(&cq, 9), [0, 1, 2, 3, 4]);
    }
    // Whichever comes first.
    cq.moderate(MAXULONG - 1, 2).unwrap();
    cq.arm(Arm::Any);
    complete(&qp, &side, 0..2);
    assert!(cq.wait_notification(2, PATIENCE).unwrap());
    // Off.
    cq.moderate(MAXULONG - 1, 3).unwrap();
    cq.arm(Arm::Any);
    fill(&qp, &side, 0..1, adapter);
    turn(adapter);
    assert_eq!(cq.notifications(), 3);
    cq.moderate(0, 0).unwrap();
    assert!(cq.wait_notification(3, PATIENCE).unwrap());
}

fn moderation_that_nothing_ends_is_refused() {
    let net = Net::new();
    let cq = net.adapters[0].create_cq(64).unwrap();
    for count in [MAXULONG, 65] {
        assert_eq!(status(cq.moderate(MAXULONG, count)), STATUS_INVALID_PARAMETER_MIX);
    }
    for (interval, count) in [(MAXULONG, 64), (1, MAXULONG), (1, 65), (0, 0), (MAXULONG, 0)] {
        assert_eq!(status(cq.moderate(interval, count)), STATUS_SUCCESS);
    }
    let wanted =
        NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED;
    assert_eq!(net.adapters[0].info().unwrap().AdapterFlags & wanted, wanted);
}

fn an_overrun_is_told_whatever_the_moderation() {
    let net = Net::new();
    let side = net.side(0);
    let cq = net.adapters[0].create_cq(8).unwrap();
    let qp = dead_qp(&side, &cq);
    cq.moderate(MAXULONG - 1, MAXULONG).unwrap();
    cq.arm(Arm::Any);
    complete(&qp, &side, 0..9);
    assert_eq!(status(cq.wait_notification(0, PATIENCE)), STATUS_BUFFER_OVERFLOW);
}

fn a_resize_below_the_count_ends_a_wait_that_nothing_would() {
    let net = Net::new();
    let side = net.side(0);
    let cq = net.adapters[0].create_cq(64).unwrap();
    let qp = dead_qp(&side, &cq);
    cq.moderate(MAXULONG, 20).unwrap();
    cq.arm(Arm::Any);
    fill(&qp, &side, 0..2, &net.adapters[0]);
    assert_eq!(cq.notifications(), 0);
    cq.resize(10).unwrap();
    assert!(cq.wait_notification(0, PATIENCE).unwrap());
}

/// As Microsoft's sample does it: poll until nothing comes, arm again, all inside the callback.
fn arming_inside_the_callback_misses_nothing_and_overlaps_nothing() {
    const ALL: usize = 5_000;
    let net = Net::new();
    let side = net.side(0);
    for moderated in [false, true] {
        let cq: Arc<OnceLock<Object<NDK_CQ>>> = Arc::default();
        let (sender, receiver) = mpsc::channel();
        let (inside, own) = (AtomicBool::new(false), Arc::clone(&cq));
        let notify = Box::new(move |status| {
            assert!(!inside.swap(true, Ordering::SeqCst), "two callbacks at once");
            assert_eq!(status, STATUS_SUCCESS);
            let cq = own.wait();
            let mut results = [NDK_RESULT::EMPTY; 3];
            while let taken @ 1.. = cq.results(&mut results) {
                for result in &results[..taken] {
                    sender.send(result.RequestContext.addr()).unwrap();
                }
            }
            cq.arm();
            inside.store(false, Ordering::SeqCst);
        });
        let adapter = Object(net.adapters[0].as_ptr());
        let raw = wait(|then| adapter.create_cq(256, notify, then)).unwrap();
        cq.set(raw).unwrap();
        if moderated {
            assert_eq!(raw.moderate(100, 5), STATUS_SUCCESS);
        }
        raw.arm();
        let pd = Object(side.pd.as_ptr());
        let qp = wait(|then| pd.create_qp(raw, 64, then)).unwrap();
        qp.flush();
        for context in 0..ALL {
            while qp.receive(context, &[]) != STATUS_SUCCESS {
                std::thread::yield_now();
            }
        }
        for context in 0..ALL {
            assert_eq!(receiver.recv_timeout(PATIENCE), Ok(context));
        }
        wait(|then| qp.close(then));
        wait(|then| raw.close(then));
    }
}

fn an_arm_tells_of_nothing_that_was_taken() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = &net.adapters[0];
    let cq = adapter.create_cq(8).unwrap();
    let qp = dead_qp(&side, &cq);
    fill(&qp, &side, 0..2, adapter);
    assert_eq!(contexts(&cq, 9), [0, 1]);
    cq.arm(Arm::Any);
    turn(adapter);
    turn(adapter);
    assert_eq!(cq.notifications(), 0, "there is no completion");
    fill(&qp, &side, 2..3, adapter);
    assert!(cq.wait_notification(0, PATIENCE).unwrap());
    assert_eq!(contexts(&cq, 9), [2]);
}

/// A consumer that polls although it has armed may still count on its notification.
fn an_arm_tells_of_what_came_and_was_taken_since() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = &net.adapters[0];
    let cq = adapter.create_cq(8).unwrap();
    let qp = dead_qp(&side, &cq);
    cq.moderate(MAXULONG, 3).unwrap();
    cq.arm(Arm::Any);
    fill(&qp, &side, 0..2, adapter);
    assert_eq!(contexts(&cq, 9), [0, 1]);
    cq.moderate(0, 0).unwrap();
    assert!(cq.wait_notification(0, PATIENCE).unwrap());
    assert_eq!(contexts(&cq, 9), []);
}

/// What was taken before the arm is no part of the count that the arm waits for.
fn moderation_counts_nothing_that_was_taken_before() {
    let net = Net::new();
    let side = net.side(0);
    let adapter = &net.adapters[0];
    let cq = adapter.create_cq(8).unwrap();
    let qp = dead_qp(&side, &cq);
    cq.moderate(MAXULONG, 2).unwrap();
    fill(&qp, &side, 0..1, adapter);
    assert_eq!(contexts(&cq, 9), [0]);
    cq.arm(Arm::Any);
    turn(adapter);
    fill(&qp, &side, 1..2, adapter);
    turn(adapter);
    assert_eq!(cq.notifications(), 0);
    fill(&qp, &side, 2..3, adapter);
    assert!(cq.wait_notification(0, PATIENCE).unwrap());
    assert_eq!(contexts(&cq, 9), [1, 2]);
}

fn a_failed_completion_satisfies_a_solicited_arm() {
    let net = Net::new();
    let side = net.side(0);
    let cq = net.adapters[0].create_cq(8).unwrap();
    let qp = dead_qp(&side, &cq);
    cq.arm(Arm::Solicited);
    cq.arm(Arm::Errors);
    complete(&qp, &side, 0..1);
    assert!(cq.wait_notification(0, PATIENCE).unwrap());
}

fn no_array_takes_nothing() {
    let net = Net::new();
    let side = net.side(0);
    let cq = net.adapters[0].create_cq(8).unwrap();
    fill(&dead_qp(&side, &cq), &side, 0..1, &net.adapters[0]);
    assert_eq!(call!(cq.as_ptr(), NdkGetCqResults, null_mut(), 5), 0);
    assert_eq!(call!(cq.as_ptr(), NdkGetCqResultsEx, null_mut(), 5), 0);
    assert_eq!(contexts(&cq, 0), []);
    assert_eq!(contexts(&cq, 1), [0]);
}
