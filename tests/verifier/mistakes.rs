//! One mistake after the other, each by the calls that a C consumer would make.

use super::Watched;
use super::ends::{End, Fast, LEN, Pair, until};
use driver::abi::*;
use ndk_consumer::{Buffer, Mdl, Opener};
use ndk_verifier::Rule;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tests::kit::PATIENCE;
use tests::kit::raw::{Post, QpSize, request, start, wait};
use tests::{call, call_on};

const VERSION_1: NDK_VERSION = NDK_VERSION { Major: 1, Minor: 0 };
const VERSION_2: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

/// A mistake, in words.
type Mistake = (Rule, &'static str, fn(&Watched));

const MISTAKES: &[Mistake] = &[
    (Rule::ConcurrentPosts, "two threads post to one queue", two_threads_post),
    (Rule::ConcurrentPolls, "two threads take completions", two_threads_poll),
    (Rule::PostAfterClose, "a receive on a closed QP", post_on_closed),
    (Rule::CallAfterClose, "an arm of a closed CQ", arm_closed),
    (Rule::CallAfterClose, "a QP over a closed CQ", use_closed),
    (Rule::ClosedTwice, "a PD closed twice", close_twice),
    (Rule::WrongObject, "a PD passed for a CQ", pass_another_type),
    (Rule::NoCompletion, "a resize without a callback", no_completion),
    (Rule::NoResults, "completions taken into nothing", no_results),
    (Rule::NewerFunction, "a function of 2.1 at 1.2", newer_function),
    (Rule::ForeignToken, "a token of another PD", token_of_another_pd),
    (Rule::ForeignToken, "a token of another adapter", token_of_another_adapter),
    (Rule::DeadToken, "a token of a region that was deregistered", token_of_deregistered),
    (Rule::DeadToken, "a token after its invalidation", token_of_invalidated),
    (Rule::BeyondRegion, "an element that leaves its region", element_leaves_region),
    (Rule::BeyondRegion, "an element that leaves its mapping", element_leaves_mapping),
    (Rule::BeyondRegion, "a window that leaves its region", window_leaves_region),
    (Rule::NoLocalWrite, "a receive into memory that is read only", receive_into_read_only),
    (Rule::BufferWritten, "a SEND whose bytes change", write_in_flight),
    (Rule::BufferFreed, "a receive whose memory is freed", free_buffer),
    (Rule::MdlFreed, "a registration whose MDL is freed", free_mdl),
    (Rule::LamFreed, "a mapping whose structure is freed", free_lam),
    (Rule::LamReleased, "a mapping released under a WRITE", release_in_flight),
    (Rule::RegionEnded, "a region deregistered under a WRITE", deregister_in_flight),
    (Rule::CallbackBlocks, "a callback that sleeps", sleep_in_callback),
    (Rule::CallbackWaits, "a callback that waits for the provider", wait_in_callback),
    (Rule::PassiveInCallback, "a query of the adapter in a callback", query_in_callback),
    (Rule::DeferredLeft, "a chain that ends deferred", end_deferred),
    (Rule::Leak, "a PD that is never closed", leak_object),
    (Rule::Leak, "a mapping that is never released", leak_mapping),
];

#[test]
fn each_mistake_is_reported_by_its_rule() {
    for (rule, what, make) in MISTAKES {
        let watched = Watched::new(None);
        make(&watched);
        let reports = watched.reports();
        for report in &reports {
            println!("{what}: {report}");
            assert!(!report.detail.is_empty(), "{what}: {report}");
        }
        let mistakes = reports.iter().filter(|report| report.rule.is_mistake());
        let rules: Vec<_> = mistakes.map(|report| report.rule).collect();
        assert!(!rules.is_empty() && rules.iter().all(|found| found == rule), "{what}: {rules:?}");
        watched.net.finish();
    }
    let shown = |rule: &&Rule| MISTAKES.iter().any(|(of, ..)| of == *rule);
    let unshown: Vec<_> = Rule::ALL.iter().filter(|rule| !shown(rule)).collect();
    assert!(unshown.iter().all(|rule| !rule.is_mistake()), "{unshown:?}");
}

#[test]
fn a_close_that_is_held_back_says_by_what() {
    let watched = Watched::new(None);
    let pd = wait(|then| watched.net.raw(0).create_pd(then)).unwrap();
    let mr = wait(|then| pd.create_mr(then)).unwrap();
    let closing = start(|then| pd.close(then));
    let held = until(|| {
        let reports = watched.reports();
        reports.into_iter().find(|report| report.rule == Rule::CloseHeldBack)
    });
    assert_eq!((held.call, &*held.object), ("NdkClosePd", "PD 1 of adapter 1"));
    assert_eq!(held.detail, "its close waits for MR 1 of adapter 1, which is open");
    wait(|then| mr.close(then));
    closing.recv_timeout(PATIENCE).unwrap();
    assert_eq!(watched.reports(), [held], "once");
    watched.net.finish();
}

#[test]
fn a_mapping_released_under_a_region_is_told_and_no_mistake() {
    let watched = Watched::new(None);
    let pair = Pair::new(&watched);
    let Fast { mr, lam } = Fast::register(&watched, pair.ends[0]);
    drop(lam);
    wait(|then| mr.close(then));
    pair.close();
    let [report] = &watched.reports()[..] else { panic!("{:?}", watched.reports()) };
    assert_eq!(report.rule, Rule::LamUnderRegion);
    assert_eq!(report.detail, "MR 2 of adapter 1 is registered over it");
    watched.net.finish();
}

/// Runs the same on two threads until the rule is reported.
fn twice(watched: &Watched, rule: Rule, work: impl Fn() + Sync) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        until(|| watched.reports().iter().any(|report| report.rule == rule).then_some(()));
        done.store(true, Ordering::Relaxed);
    });
}

fn two_threads_post(watched: &Watched) {
    let end = End::new(watched, 0);
    // The QP has no connection, and refuses them.
    twice(watched, Rule::ConcurrentPosts, || {
        assert!(!end.qp.send(1, &[end.memory.sge(0, LEN as u32)]).is_success());
    });
    end.close();
}

fn two_threads_poll(watched: &Watched) {
    let end = End::new(watched, 0);
    twice(watched, Rule::ConcurrentPolls, || {
        assert_eq!(end.cq.results(&mut [NDK_RESULT::EMPTY; 4]), 0);
    });
    end.close();
}

fn post_on_closed(watched: &Watched) {
    let end = End::new(watched, 0);
    wait(|then| end.qp.close(then));
    assert_eq!(end.qp.receive(1, &[end.memory.sge(0, 64)]), STATUS_INVALID_DEVICE_STATE);
    end.close_rest();
}

fn arm_closed(watched: &Watched) {
    let cq = wait(|then| watched.net.raw(0).create_cq(4, Box::new(|_| ()), then)).unwrap();
    wait(|then| cq.close(then));
    cq.arm();
}

fn use_closed(watched: &Watched) {
    let end = End::new(watched, 0);
    let cq = wait(|then| watched.net.raw(0).create_cq(4, Box::new(|_| ()), then)).unwrap();
    wait(|then| cq.close(then));
    let size = QpSize { depths: [4, 4], sges: [1, 1], inline: 0 };
    assert!(end.pd.create_qp_of([end.cq, cq], size).is_err());
    end.close();
}

fn close_twice(watched: &Watched) {
    let pd = wait(|then| watched.net.raw(0).create_pd(then)).unwrap();
    wait(|then| pd.close(then));
    let status = call_on!(pd, pd.0.cast(), NdkClosePd, Some(ignored), null_mut());
    assert_eq!(status, STATUS_INVALID_DEVICE_STATE);
}

unsafe extern "system" fn ignored(_: PVOID) {}

fn pass_another_type(watched: &Watched) {
    let end = End::new(watched, 0);
    call_on!(end.cq, end.pd.0.cast(), NdkArmCq, NDK_CQ_NOTIFY_ANY);
    end.close();
}

fn no_completion(watched: &Watched) {
    let end = End::new(watched, 0);
    assert!(!call!(end.cq, NdkResizeCq, 32, None, null_mut()).is_success());
    end.close();
}

fn no_results(watched: &Watched) {
    let end = End::new(watched, 0);
    assert_eq!(call!(end.cq, NdkGetCqResultsEx, null_mut(), 4), 0);
    end.close();
}

fn newer_function(watched: &Watched) {
    let old = watched.net.open_raw(0, VERSION_1).unwrap();
    let connector = wait(|then| old.adapter.create_connector(then)).unwrap();
    let ended = request(|done, context| {
        call!(connector, NdkCompleteConnectEx, None, null_mut(), done, context)
    });
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(STATUS_NOT_SUPPORTED));
    wait(|then| connector.close(then));
}

fn token_of_another_pd(watched: &Watched) {
    let ends = [End::new(watched, 0), End::new(watched, 0)];
    assert_eq!(ends[0].qp.receive(1, &[ends[1].memory.sge(0, 64)]), STATUS_SUCCESS);
    ends.into_iter().for_each(End::close);
}

fn token_of_another_adapter(watched: &Watched) {
    let ends = [End::new(watched, 0), End::new(watched, 1)];
    assert_eq!(ends[0].qp.receive(1, &[ends[1].memory.sge(0, 64)]), STATUS_SUCCESS);
    ends.into_iter().for_each(End::close);
}

fn token_of_deregistered(watched: &Watched) {
    let end = End::new(watched, 0);
    assert_eq!(wait(|then| end.memory.mr.deregister(then)), STATUS_SUCCESS);
    assert_eq!(end.qp.receive(1, &[end.memory.sge(0, 64)]), STATUS_SUCCESS);
    end.close();
}

fn token_of_invalidated(watched: &Watched) {
    let pair = Pair::new(watched);
    let [first, second] = pair.ends;
    let fast = Fast::register(watched, first);
    let write = |id| first.qp.write(id, &[fast.sge()], second.memory.address, second.memory.token);
    assert_eq!(write(2), STATUS_SUCCESS);
    assert_eq!(first.completion(), STATUS_SUCCESS);
    assert_eq!(watched.reports(), [], "so far it is right");
    assert_eq!(first.qp.post(3, Post::InvalidateMr(fast.mr), 0), STATUS_SUCCESS);
    assert_eq!(write(4), STATUS_SUCCESS);
    assert_eq!(first.completion(), STATUS_SUCCESS);
    assert_eq!(first.completion(), STATUS_ACCESS_VIOLATION);
    wait(|then| fast.mr.close(then));
    pair.close();
}

fn element_leaves_region(watched: &Watched) {
    let end = End::new(watched, 0);
    assert_eq!(end.qp.receive(1, &[end.memory.sge(LEN as u64 - 8, 16)]), STATUS_SUCCESS);
    end.close();
}

fn element_leaves_mapping(watched: &Watched) {
    let end = End::new(watched, 0);
    let lam = watched.net.adapters[0].build_lam(Arc::new(Buffer::new(LEN)), 0..LEN).unwrap();
    let token = end.pd.privileged_token();
    let inside = NDK_SGE::from_logical(lam.pages()[0], LEN as u32, token);
    assert_eq!(end.qp.receive(1, &[inside]), STATUS_SUCCESS);
    assert_eq!(watched.reports(), [], "so far it is right");
    let outside = NDK_SGE::from_logical(lam.pages()[1], LEN as u32, token);
    assert_eq!(end.qp.receive(2, &[outside]), STATUS_SUCCESS);
    // The mapping has to outlive what uses it.
    wait(|then| end.qp.close(then));
    drop(lam);
    end.close_rest();
}

fn window_leaves_region(watched: &Watched) {
    let pair = Pair::new(watched);
    let End { qp, pd, memory, .. } = pair.ends[0];
    let mw = pd.create_mw().unwrap();
    let (mr, address) = (memory.mr, memory.address + 1);
    let status =
        qp.post(1, Post::Bind { mr, mw, address, len: LEN }, NDK_OP_FLAG_ALLOW_REMOTE_READ);
    assert!(!status.is_success() || !pair.ends[0].completion().is_success());
    wait(|then| mw.close(then));
    pair.close();
}

fn receive_into_read_only(watched: &Watched) {
    let end = End::new(watched, 0);
    let buffer = Box::leak(Box::new(Buffer::new(LEN)));
    let mdl = Box::leak(Box::new(Mdl::new(buffer.as_ptr(), LEN))).as_mut_ptr();
    let mr = wait(|then| end.pd.create_mr(then)).unwrap();
    let registered = request(|done, context| {
        call!(mr, NdkRegisterMr, mdl, LEN, NDK_MR_FLAG_ALLOW_REMOTE_READ, done, context)
    });
    assert_eq!(registered.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    let sge = NDK_SGE::from_virtual(buffer.as_ptr().cast(), 64, mr.token());
    assert_eq!(end.qp.receive(1, &[sge]), STATUS_SUCCESS);
    wait(|then| end.qp.close(then));
    wait(|then| mr.close(then));
    end.close_rest();
}

fn write_in_flight(watched: &Watched) {
    let pair = Pair::new(watched);
    let [first, second] = pair.ends;
    assert_eq!(second.qp.receive(1, &[second.memory.sge(0, LEN as u32)]), STATUS_SUCCESS);
    let held = watched.net.hold(1);
    assert_eq!(first.qp.send(1, &[first.memory.sge(0, LEN as u32)]), STATUS_SUCCESS);
    first.buffer.write(LEN - 1, &[7]);
    drop(held);
    assert_eq!(first.completion(), STATUS_SUCCESS);
    pair.close();
}

fn free_buffer(watched: &Watched) {
    let end = End::new(watched, 0);
    assert_eq!(end.qp.receive(1, &[end.memory.sge(0, 64)]), STATUS_SUCCESS);
    watched.verifiers[0].freed(end.buffer.as_ptr(), LEN);
    end.close();
}

fn free_mdl(watched: &Watched) {
    let end = End::new(watched, 0);
    let buffer = Box::leak(Box::new(Buffer::new(LEN)));
    let mdl = Box::leak(Box::new(Mdl::new(buffer.as_ptr(), LEN)));
    let mr = wait(|then| end.pd.create_mr(then)).unwrap();
    assert_eq!(wait(|then| mr.register(mdl, LEN, then)), STATUS_SUCCESS);
    watched.verifiers[0].freed(mdl.as_mut_ptr().cast(), size_of::<MDL>());
    wait(|then| mr.close(then));
    end.close();
}

fn free_lam(watched: &Watched) {
    let mut lam = watched.net.adapters[0].build_lam(Arc::new(Buffer::new(LEN)), 0..LEN).unwrap();
    let size = NDK_LOGICAL_ADDRESS_MAPPING::size_for(lam.pages().len());
    watched.verifiers[0].freed(lam.as_mut_ptr().cast(), size);
}

fn release_in_flight(watched: &Watched) {
    let pair = Pair::new(watched);
    let [first, second] = pair.ends;
    let lam = watched.net.adapters[0].build_lam(Arc::new(Buffer::new(LEN)), 0..LEN).unwrap();
    let sge = NDK_SGE::from_logical(lam.pages()[0], LEN as u32, first.pd.privileged_token());
    let held = watched.net.hold(1);
    let (address, token) = (second.memory.address, second.memory.token);
    assert_eq!(first.qp.write(1, &[sge], address, token), STATUS_SUCCESS);
    drop(lam);
    drop(held);
    // The provider may have read the bytes before.
    let _ended = first.completion();
    pair.close();
}

fn deregister_in_flight(watched: &Watched) {
    let pair = Pair::new(watched);
    let held = watched.net.hold(1);
    assert_eq!(pair.write(), STATUS_SUCCESS);
    assert_eq!(wait(|then| pair.ends[0].memory.mr.deregister(then)), STATUS_SUCCESS);
    drop(held);
    // The provider may have read the bytes before.
    let _ended = pair.ends[0].completion();
    pair.close();
}

fn sleep_in_callback(watched: &Watched) {
    let pd = wait(|then| {
        watched.net.raw(0).create_pd(Box::new(|pd| {
            thread::sleep(Duration::from_millis(1100));
            then(pd);
        }));
    });
    wait(|then| pd.unwrap().close(then));
}

fn wait_in_callback(watched: &Watched) {
    let opener = Arc::clone(&watched.verifiers[0]);
    let pd = wait(|then| {
        watched.net.raw(0).create_pd(Box::new(move |pd| {
            let waited = opener.run_until(PATIENCE, &mut || false);
            assert_eq!(waited, Some(ndk_consumer::Waited::Ended));
            then(pd);
        }));
    });
    wait(|then| pd.unwrap().close(then));
}

fn query_in_callback(watched: &Watched) {
    let adapter = watched.net.raw(0);
    let pd = wait(|then| {
        adapter.create_pd(Box::new(move |pd| {
            let mut info = NDK_ADAPTER_INFO::default();
            let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
            let status = call!(adapter, NdkQueryAdapterInfo, &raw mut info, &raw mut size);
            assert_eq!(status, STATUS_SUCCESS);
            then(pd);
        }));
    });
    wait(|then| pd.unwrap().close(then));
}

fn end_deferred(watched: &Watched) {
    let pair = Pair::new(watched);
    let [first, second] = pair.ends;
    assert_eq!(second.qp.receive(1, &[second.memory.sge(0, 64)]), STATUS_SUCCESS);
    let sgl = [first.memory.sge(0, 64)];
    assert_eq!(first.qp.post(1, Post::Send(&sgl), NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
    let closing = start(|then| first.qp.close(then));
    pair.close_connectors();
    closing.recv_timeout(PATIENCE).unwrap();
    first.close_rest();
    second.close();
}

fn leak_object(watched: &Watched) {
    let instance = watched.net.open_raw(0, VERSION_2).unwrap();
    let pd = wait(|then| instance.adapter.create_pd(then)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // The close of the adapter waits for it.
            until(|| {
                watched.reports().iter().any(|report| report.rule == Rule::Leak).then_some(())
            });
            wait(|then| pd.close(then));
        });
        drop(instance);
    });
}

fn leak_mapping(watched: &Watched) {
    let instance = watched.net.open_raw(0, VERSION_2).unwrap();
    let buffer = Buffer::new(PAGE_SIZE);
    let mut mdl = Mdl::new(buffer.as_ptr(), PAGE_SIZE);
    let (mut words, mut size, mut fbo) = ([0_u64; 4], 32, 0);
    let lam = words.as_mut_ptr().cast();
    let status = call!(
        instance.adapter,
        NdkBuildLAM,
        mdl.as_mut_ptr(),
        PAGE_SIZE,
        None,
        null_mut(),
        lam,
        &raw mut size,
        &raw mut fbo,
    );
    assert_eq!((status, fbo), (STATUS_SUCCESS, 0));
    drop(instance);
}
