//! Threads that wait, and the core's own.

use super::super::open;
use super::*;
use crate::abi::NDK_ADAPTER;
use crate::adapter::shared::VERSION;
use crate::object::shared::Context;
use crate::turn::ProviderConfig;
use alloc::boxed::Box;
use alloc::sync::Arc;
use netadapter_glue::memory::{self, MemoryConfig};
use netadapter_glue::{Edge, EdgeError, Link, Received, Slot};
use std::sync::mpsc;
use std::thread;

/// Longer than any wait of these tests that ends well.
const PATIENCE: Duration = Duration::from_secs(60);

fn runner(edge: impl Edge + Send + 'static) -> Arc<Runner> {
    let edges: alloc::vec::Vec<Box<dyn Edge + Send>> = alloc::vec![Box::new(edge)];
    let runners = Runner::all(edges, ProviderConfig::new(alloc::vec![]), [1; 32]);
    runners.unwrap().remove(0)
}

fn on_memory() -> Arc<Runner> {
    runner(memory::pair(MemoryConfig::default()).0)
}

/// Waits on this thread for the adapter that comes by the channel.
fn wait_for_adapter(runner: &Runner, receiver: &mpsc::Receiver<Context>) -> Context {
    let mut adapter = None;
    let waited = runner.run_until(PATIENCE, &mut || {
        adapter = adapter.take().or_else(|| receiver.try_recv().ok());
        adapter.is_some()
    });
    assert_eq!(waited, Waited::Done);
    adapter.unwrap()
}

/// Opens an adapter and waits for it on this thread.
fn open_and_wait(runner: &Runner) -> *mut NDK_ADAPTER {
    let (sender, receiver) = mpsc::channel();
    open(runner.shard(), VERSION, sender).unwrap();
    wait_for_adapter(runner, &receiver).get().cast()
}

/// Closes an adapter; a message comes when that is done.
fn close(runner: &Runner, adapter: *mut NDK_ADAPTER) -> mpsc::Receiver<()> {
    let (sender, closed) = mpsc::channel();
    let signal = Box::new(move || sender.send(()).unwrap());
    #[allow(unsafe_code, reason = "the consumer's pointer is the object")]
    // SAFETY: it is open, and nothing else uses it.
    unsafe {
        runner.shard().close_adapter(adapter, signal);
    }
    closed
}

/// Closes an adapter and waits for that on this thread.
fn close_and_wait(runner: &Runner, adapter: *mut NDK_ADAPTER) {
    let closed = close(runner, adapter);
    let waited = runner.run_until(PATIENCE, &mut || closed.try_recv().is_ok());
    assert_eq!(waited, Waited::Done);
}

#[test]
fn a_thread_that_waits_runs_the_core() {
    let runner = on_memory();
    // No other thread is there.
    let adapter = open_and_wait(&runner);
    close_and_wait(&runner, adapter);
    assert_eq!(runner.run_until(Duration::ZERO, &mut || false), Waited::TimedOut);
    let soon = Duration::from_millis(1);
    assert_eq!(runner.run_until(soon, &mut || false), Waited::TimedOut);
    assert!(runner.core.try_take().is_some_and(|run| !run.give_back()));
}

/// Goal: what another thread posts while the one that runs the core sleeps wakes that one.
#[test]
fn a_post_of_another_thread_wakes_the_visitor() {
    let runner = on_memory();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let visit = scope.spawn(|| {
            let adapter = wait_for_adapter(&runner, &{ receiver });
            close_and_wait(&runner, adapter.get().cast());
        });
        while runner.core.is_free() {
            thread::yield_now();
        }
        open(runner.shard(), VERSION, sender).unwrap();
        visit.join().unwrap();
    });
}

/// Goal: a message that comes when a visitor has left, and that wakes nobody, is obeyed by the core's own thread.
#[test]
fn what_a_visitor_leaves_is_done_by_the_cores_thread() {
    let runner = on_memory();
    let own = Arc::clone(&runner);
    let own = thread::spawn(move || own.run());
    for _ in 0..20 {
        let adapter = open_and_wait(&runner);
        close(&runner, adapter).recv().unwrap();
    }
    runner.shard().stop().unwrap();
    own.join().unwrap();
    assert_eq!(runner.run_until(PATIENCE, &mut || false), Waited::Ended);
}

/// Goal: work that has waited for a visit that did not come makes the next visits leave the core to its own thread.
#[test]
fn visits_leave_the_core_once_one_was_missed() {
    let runner = on_memory();
    let own = Arc::clone(&runner);
    let own = thread::spawn(move || own.run());
    let missed = || runner.missed.load(Ordering::Relaxed);
    // A machine that is busy may visit too late for a lease.
    while missed() == 0 {
        let adapter = open_and_wait(&runner);
        // It does not visit.
        close(&runner, adapter).recv().unwrap();
    }
    // A lease that is about to lapse may set it once more.
    let before = missed();
    let counts = (0..100).any(|_| {
        let adapter = open_and_wait(&runner);
        close_and_wait(&runner, adapter);
        missed() < before
    });
    assert!(counts, "visits are counted off");
    runner.shard().stop().unwrap();
    own.join().unwrap();
}

#[test]
fn many_threads_wait_at_once() {
    let runner = on_memory();
    let own = Arc::clone(&runner);
    let own = thread::spawn(move || own.run());
    thread::scope(|scope| {
        for waiter in 0..4 {
            let runner = &runner;
            scope.spawn(move || {
                for round in 0..50 {
                    let adapter = open_and_wait(runner);
                    if (round + waiter) % 8 == 0 {
                        // Longer than a lease.
                        thread::sleep(Duration::from_millis(2));
                    }
                    close_and_wait(runner, adapter);
                }
            });
        }
    });
    runner.shard().stop().unwrap();
    own.join().unwrap();
}

/// Goal: an event that shows once, as a message of a channel does, ends the wait at whatever look it shows.
#[test]
fn an_event_that_shows_once_is_not_missed() {
    let runner = on_memory();
    // Another thread has the core, so that the wait looks and sleeps without it.
    let held = runner.core.try_take().unwrap();
    for look in 1..=2 {
        let mut looks = 0;
        let waited = runner.run_until(Duration::from_millis(20), &mut || {
            looks += 1;
            looks == look
        });
        assert_eq!((waited, looks), (Waited::Done, look));
    }
    held.give_back();
}

/// Goal: a wait ends with the provider.
#[test]
fn a_stop_ends_every_wait() {
    let runner = on_memory();
    let own = Arc::clone(&runner);
    let own = thread::spawn(move || own.run());
    thread::scope(|scope| {
        let waits = [(); 3].map(|()| scope.spawn(|| runner.run_until(PATIENCE, &mut || false)));
        while runner.core.is_free() {
            thread::yield_now();
        }
        runner.shard().stop().unwrap();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Waited::Ended);
        }
    });
    own.join().unwrap();
}

/// An edge that panics in its second look.
struct Broken(u32);

impl Edge for Broken {
    fn link(&self) -> Link {
        Link { mac: [2; 6], mtu: 1500, max_segments: 1, max_unit_len: 1518, socket: false }
    }

    fn receive(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        self.0 += 1;
        assert!(self.0 < 2, "as the test wants it");
        Ok(0)
    }

    fn transmit(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        Ok(0)
    }
}

#[test]
fn a_panic_of_the_core_ends_every_wait_and_no_consumer() {
    let runner = runner(Broken(0));
    thread::scope(|scope| {
        let waits = [(); 2].map(|()| scope.spawn(|| runner.run_until(PATIENCE, &mut || false)));
        let ended = waits.map(|wait| wait.join().unwrap());
        assert_eq!(ended, [Waited::Ended; 2]);
    });
    // Its own thread comes to the grave.
    runner.run();
}

/// A consumer's own panic leaves the core to others.
#[test]
fn a_panic_of_the_consumer_spares_the_core() {
    let runner = on_memory();
    let mut asked = 0;
    let mut done = || {
        asked += 1;
        assert!(asked < 3, "as the test wants it");
        false
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| runner.run_until(PATIENCE, &mut done)));
    assert!(panicked.is_err());
    let adapter = open_and_wait(&runner);
    close_and_wait(&runner, adapter);
}
