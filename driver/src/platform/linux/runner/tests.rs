//! The core's thread and the consumers that take turns for it.
#![allow(unsafe_code, reason = "a consumer calls through the tables")]

use super::super::wakeup::EDGE_RETRY;
use super::*;
use crate::abi::*;
use crate::adapter::shared::{AdapterObject, VERSION};
use crate::cq::request::CreateCq;
use crate::object::call::create;
use crate::object::done::CreateDone;
use crate::object::shared::Context;
use crate::platform::linux::{Waited, open, opened};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use netadapter_glue::memory::{self, MemoryConfig};
use netadapter_glue::{EdgeError, Link, Received, Slot};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc;

/// A device that is gone: its descriptor is readable for ever and yields nothing. Or worse.
struct Gone {
    panics: bool,
    lives: Arc<()>,
}

impl Edge for Gone {
    fn link(&self) -> Link {
        Link { mac: [2; 6], mtu: 1500, max_segments: 1, max_unit_len: 1518, socket: false }
    }

    fn receive(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        assert!(!self.panics, "as the test wants it");
        assert_eq!(Arc::strong_count(&self.lives), 2);
        Err(EdgeError::Closed)
    }

    fn transmit(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        Err(EdgeError::Closed)
    }
}

fn runner(edge: Box<dyn Edge + Send>) -> Arc<Runner> {
    let runners = Runner::all(alloc::vec![edge], ProviderConfig::new(alloc::vec![]), [0; 32]);
    runners.unwrap().remove(0)
}

/// A runner whose consumers' turns panic or fail, and what its edge holds.
fn gone(panics: bool) -> (Arc<Runner>, Arc<()>) {
    let lives = Arc::new(());
    (runner(Box::new(Gone { panics, lives: Arc::clone(&lives) })), lives)
}

/// Polls, as a CQ does, until a turn was taken: two polls may lie apart on a busy machine.
fn help(runner: &Runner) {
    let platform = &runner.shard().platform;
    while !platform.poll_core(0) {}
    assert!(!platform.poll_core(1), "there is no such core");
}

/// Whether the core's thread would be called.
fn is_woken(runner: &Runner) -> bool {
    runner.wait_for_call(Some(Duration::ZERO))
}

#[test]
fn a_failed_edge_is_asked_now_and_then() {
    let (runner, _lives) = gone(false);
    let mut run = runner.take().unwrap();
    let turn = run.core.poll(Instant::from_nanos(1));
    assert!(turn.edge_failed && !turn.busy);
    let Rest::Sleep(interest) = runner.take_turns(&mut run) else { panic!("there is no work") };
    assert!(interest.edge.is_none() && interest.timeout == Some(EDGE_RETRY));
    assert!(runner.edge_failed());
    assert_eq!(patience(Some(Duration::from_secs(1)), true), Some(EDGE_RETRY));
    assert_eq!(patience(None, false), None);
    run.give_back();
}

/// An edge that waits for a time, with a descriptor that is ready for ever.
struct Refused(OwnedFd);

impl Edge for Refused {
    fn link(&self) -> Link {
        Link { mac: [2; 6], mtu: 1500, max_segments: 1, max_unit_len: 1518, socket: false }
    }

    fn receive(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        Ok(0)
    }

    fn transmit(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        Ok(0)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn retry_after(&self) -> Option<Duration> {
        Some(Duration::from_micros(70))
    }
}

/// Goal: an edge whose frames are refused is slept for as long as it says, and not waited for until it can be written.
#[test]
fn a_refused_frame_is_slept_for() {
    let ready = eventfd(0, EventfdFlags::empty()).unwrap();
    let runner = runner(Box::new(Refused(ready)));
    let mut run = runner.take().unwrap();
    let Rest::Sleep(interest) = runner.take_turns(&mut run) else { panic!("there is no work") };
    assert!(interest.timeout == Some(Duration::from_micros(70)));
    assert!(interest.edge.is_some_and(|(_, flags)| flags == PollFlags::IN));
    run.give_back();
}

/// Goal: a consumer's turn does the core's work, and leaves a callback to the core's thread, which is woken once.
#[test]
fn a_consumer_that_polls_takes_turns_and_makes_no_callback() {
    /// Keeps the CQ.
    unsafe extern "system" fn created(place: PVOID, _: NTSTATUS, cq: *mut NDK_OBJECT_HEADER) {
        // SAFETY: the test's place.
        unsafe { &*place.cast::<AtomicPtr<NDK_OBJECT_HEADER>>() }.store(cq, Ordering::Release);
    }
    unsafe extern "system" fn unheard(_: PVOID, _: NTSTATUS) {}

    let (edge, _peer) = memory::pair(MemoryConfig::default());
    let runner = runner(Box::new(edge));
    let (sender, receiver) = mpsc::channel();
    open(runner.shard(), VERSION, sender).unwrap();
    help(&runner);
    let adapter = opened(&receiver).unwrap();
    let place = AtomicPtr::<NDK_OBJECT_HEADER>::new(null_mut());
    // SAFETY: the adapter is open.
    let parent = unsafe { AdapterObject::from_ndk(adapter) }.base.id;
    let what = CreateCq { core: 0, depth: 4, notification: unheard, context: Context::from_u64(0) };
    let context = core::ptr::from_ref(&place).cast_mut().cast();
    let done = CreateDone::new(Some(created), context).unwrap();
    let status = create(Arc::clone(runner.shard()), parent, what, done).unwrap();
    assert_eq!(status, STATUS_PENDING);
    assert!(!is_woken(&runner));
    help(&runner);
    assert!(is_woken(&runner) && place.load(Ordering::Acquire).is_null());
    help(&runner);
    assert!(!is_woken(&runner), "it knows already");
    let mut run = runner.take().unwrap();
    assert!(matches!(runner.take_turns(&mut run), Rest::Lend));
    assert!(!place.load(Ordering::Acquire).is_null());
    assert!(!runner.poll_inline(), "as from the callback");
    run.give_back();
}

/// Goal: the core's thread is called for a callback that comes after a visit, which has made the one before.
#[test]
fn the_cores_thread_is_called_for_what_comes_after_a_visit() {
    let (edge, _peer) = memory::pair(MemoryConfig::default());
    let runner = runner(Box::new(edge));
    // The end of a close is a callback.
    let close = || {
        let (sender, receiver) = mpsc::channel();
        open(runner.shard(), VERSION, sender).unwrap();
        help(&runner);
        let (sender, closed) = mpsc::channel();
        let signal = Box::new(move || sender.send(()).unwrap());
        // SAFETY: it is open, and nothing else uses it.
        unsafe { runner.shard().close_adapter(opened(&receiver).unwrap(), signal) };
        assert!(!is_woken(&runner));
        help(&runner);
        assert!(is_woken(&runner) && closed.try_recv().is_err());
        closed
    };
    for _ in 0..2 {
        let closed = close();
        assert_eq!(
            runner.run_until(Duration::ZERO, &mut || closed.try_recv().is_ok()),
            Waited::Done
        );
        // The end of a visit may call it.
        let _ = is_woken(&runner);
    }
}

/// Goal: a core whose thread sleeps is not forgotten by a consumer that polls once and stays away.
#[test]
fn the_cores_thread_is_told_that_a_consumer_runs_the_core() {
    let (edge, mut peer) = memory::pair(MemoryConfig::default());
    let runner = runner(Box::new(edge));
    let mut run = runner.take().unwrap();
    assert!(matches!(runner.take_turns(&mut run), Rest::Sleep(_)) && run.asleep);
    run.give_back();
    help(&runner);
    assert!(is_woken(&runner));
    let mut unit = Some(netadapter_glue::Transmit { len: 60, segments: None });
    peer.transmit_each(1, |_| unit.take()).unwrap();
    assert!(!is_woken(&runner), "a frame wakes nobody as long as consumers poll");
    runner.stop_polling();
    assert!(is_woken(&runner) && !runner.has_polled());
}

#[test]
fn a_turn_that_panics_ends_the_core_and_not_its_consumer() {
    let (runner, lives) = gone(true);
    help(&runner);
    assert!(is_woken(&runner) && runner.take().is_none());
    for _ in 0..3 {
        assert!(!runner.poll_inline());
    }
    runner.run();
    assert_eq!(Arc::strong_count(&lives), 1, "the edge is closed");
}
