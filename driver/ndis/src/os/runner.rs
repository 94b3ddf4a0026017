//! The runner of the poll cores of an adapter: for each a DPC for short work, a pinned thread for long work, and never both.
//!
//! The [`RunToken`] decides which. A thread that adds work wakes the [`Waker`], which queues a DPC if there
//! is no runner. The DPC takes turns until there is no work, or until its budget of turns or time is spent;
//! then the thread continues at PASSIVE_LEVEL, raised to DISPATCH_LEVEL for one turn at a time, so that
//! neither the DPC watchdog nor other DPCs of the processor suffer.
//!
//! A turn of one core may wait for the end of another's: both are at DISPATCH_LEVEL, and so on two processors. The DPC of an only
//! core runs on the processor that queues it, those of several each on the processor of its seat. A core that moves to another seat
//! has its thread there at once, and its DPC from the next one but one on.
#![allow(unsafe_code, reason = "calls the kernel, which calls back with a pointer")]

use super::Clock;
use super::processor::{self, Processor, Seating};
use super::sync::{Event, at_dispatch};
use super::thread::Thread;
use super::timer::Timer;
use crate::abi::imports::{KeFlushQueuedDpcs, KeInitializeDpc, KeInsertQueueDpc};
use crate::abi::*;
use crate::handler::{handler, object};
use crate::token::RunToken;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::task::{RawWaker, RawWakerVTable, Waker};
use core::time::Duration;
use driver::{PollCore, Shard, Turn};

/// The turn of a core that has ended.
const STOPPED: Turn = Turn { busy: false, units: 0, next: None, edge_failed: false, stopped: true };
/// Turns of one DPC, at most; the core itself bounds the frames of a turn.
const DPC_TURNS: u32 = 16;
/// Time of one DPC, at most.
const DPC_TIME: Duration = Duration::from_micros(100);
/// Turns without work before the thread returns the core to DPCs.
const IDLE_TURNS: u32 = 64;
/// Deadlines nearer than this are polled for: a timer may be that late.
const NEAR: Duration = Duration::from_millis(1);

/// The poll cores of an adapter.
pub(crate) struct Runner {
    shard: Arc<Shard>,
    seating: Arc<Seating>,
    /// In the order of the cores.
    posts: Vec<Post>,
}

/// The DPC, timer and thread of a core.
struct Post {
    host: Arc<Host>,
    thread: Option<Thread>,
}

/// The context of the kernel's callbacks.
struct Host {
    token: RunToken,
    /// The core; it belongs to the holder of the token.
    core: UnsafeCell<Option<PollCore>>,
    clock: Clock,
    dpc: UnsafeCell<KDPC>,
    /// Set by the holder of the token; deleted when the core has ended.
    timer: UnsafeCell<Option<Timer>>,
    /// News for the thread: the token is handed over to it, its seat is another, or it has to end.
    thread_news: Event,
    handed_over: AtomicBool,
    stopped: Event,
    ending: AtomicBool,
    seating: Arc<Seating>,
    /// The processor that the DPC is for; it belongs to the holder of the token. `None` where it runs where it is queued.
    dpc_processor: UnsafeCell<Option<Processor>>,
    /// The number of the core. The first one ends last: the others need its turns.
    number: usize,
    /// Cores of the adapter that have not ended.
    left: Arc<AtomicUsize>,
}

// SAFETY: the token admits one runner to the core, and the kernel serializes its own objects.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Runner {
    /// Creates the cores, one for each seat, and starts to run them. If a step fails, everything before it is undone. PASSIVE_LEVEL.
    #[inline(never)]
    pub(crate) fn start(
        seating: Arc<Seating>,
        make: impl FnOnce(&[Waker]) -> Vec<PollCore>,
    ) -> Result<Self, NTSTATUS> {
        let mut posts = Vec::with_capacity(seating.len());
        let left = Arc::new(AtomicUsize::new(seating.len()));
        for number in 0..seating.len() {
            posts.push(Post::start(number, &seating, &left)?);
        }
        let wakers: Vec<_> = posts.iter().map(|post| waker(Arc::clone(&post.host))).collect();
        let cores = make(&wakers);
        let shard = Arc::clone(cores[0].shard());
        // All of them, before the first turn of one wakes another.
        for (post, core) in posts.iter().zip(cores) {
            // SAFETY: nobody runs: the core that would schedule is only put here now.
            unsafe { *post.host.core.get() = Some(core) };
        }
        posts.iter().for_each(|post| post.host.schedule());
        Ok(Self { shard, seating, posts })
    }

    /// Has the cores go to their seats, which have changed. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn follow_seats(&self) {
        for Post { host, .. } in &self.posts {
            host.thread_news.set();
            host.schedule();
        }
    }

    /// The rings of its cores.
    pub(crate) const fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }
}

impl Drop for Runner {
    /// Ends the cores and their runners. Every adapter was closed before. PASSIVE_LEVEL.
    fn drop(&mut self) {
        while self.shard.stop().is_err() {
            super::sync::sleep(Duration::from_millis(1));
        }
        self.posts.iter().for_each(|post| post.host.stopped.wait());
        self.posts.iter_mut().for_each(Post::end);
        // SAFETY: PASSIVE_LEVEL. No DPC of ours is queued or runs after this.
        unsafe { KeFlushQueuedDpcs() };
        for post in &self.posts {
            // SAFETY: nobody runs any more. The core goes away here, not with the last waker, because
            // the core itself holds wakers.
            drop(unsafe { (*post.host.core.get()).take() });
        }
        // Not with the last waker.
        self.seating.leave();
    }
}

impl Post {
    /// That of core `number`, which is still to come. PASSIVE_LEVEL.
    #[inline(never)]
    fn start(
        number: usize,
        seating: &Arc<Seating>,
        left: &Arc<AtomicUsize>,
    ) -> Result<Self, NTSTATUS> {
        let host = Arc::new(Host {
            token: RunToken::new(),
            core: UnsafeCell::new(None),
            clock: Clock::new(),
            dpc: UnsafeCell::new(KDPC::default()),
            timer: UnsafeCell::new(None),
            thread_news: Event::synchronization(),
            handed_over: AtomicBool::new(false),
            stopped: Event::notification(),
            ending: AtomicBool::new(false),
            seating: Arc::clone(seating),
            dpc_processor: UnsafeCell::new(None),
            number,
            left: Arc::clone(left),
        });
        host.init()?;
        let body = Arc::clone(&host);
        let thread = Thread::start(move || body.run_thread())?;
        // A connection does not wait for a time slice of others. Where each processor has a core, nothing else
        // would get any while packets flow.
        if processor::count() as usize > seating.len() {
            thread.set_priority(LOW_REALTIME_PRIORITY);
        }
        Ok(Self { host, thread: Some(thread) })
    }

    /// Ends the timer and the thread, once. No core has begun to run here, or it has ended. PASSIVE_LEVEL.
    fn end(&mut self) {
        // SAFETY: nobody sets the timer.
        drop(unsafe { (*self.host.timer.get()).take() });
        self.host.ending.store(true, Ordering::Release);
        self.host.thread_news.set();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.end();
    }
}

impl Host {
    fn init(self: &Arc<Self>) -> Result<(), NTSTATUS> {
        let context: PVOID = Arc::as_ptr(self).cast_mut().cast();
        // SAFETY: memory for a DPC that lives as long as the host, whose runner ends it first.
        unsafe { KeInitializeDpc(self.dpc.get(), run_dpc, context) };
        if self.seating.len() > 1 {
            // SAFETY: nobody runs or queues yet.
            unsafe { self.target_dpc() }?;
        }
        let timer = Timer::new(expired, context)?;
        // SAFETY: nobody runs yet.
        unsafe { *self.timer.get() = Some(timer) };
        Ok(())
    }

    fn processor(&self) -> Processor {
        self.seating.processor(self.number)
    }

    /// Has the DPC run on the processor of the seat.
    ///
    /// # Safety
    /// The caller holds the token, so that the DPC is not queued.
    unsafe fn target_dpc(&self) -> Result<(), NTSTATUS> {
        let processor = self.processor();
        // SAFETY: the caller's promise.
        unsafe { processor.target(self.dpc.get()) }?;
        // SAFETY: as above.
        unsafe { *self.dpc_processor.get() = Some(processor) };
        Ok(())
    }

    /// Announces work. IRQL <= DISPATCH_LEVEL.
    fn schedule(&self) {
        if self.token.schedule() {
            // SAFETY: an initialized DPC; queued at most once, as the token says.
            unsafe { KeInsertQueueDpc(self.dpc.get(), null_mut(), null_mut()) };
        }
    }

    /// Takes a turn of the core, as the holder of the token.
    fn turn(&self) -> Turn {
        // SAFETY: the caller holds the token.
        let core = unsafe { &mut *self.core.get() };
        let mut turn = core.as_mut().map_or(STOPPED, |core| core.poll(self.clock.now()));
        if turn.stopped && self.number == 0 && self.left.load(Ordering::Acquire) > 1 {
            (turn.stopped, turn.busy) = (false, true);
        }
        turn
    }

    /// The core has taken its last turn.
    fn stop(&self) {
        self.left.fetch_sub(1, Ordering::Release);
        self.stopped.set();
    }

    fn announce_sleep(&self, sleeping: bool) {
        // SAFETY: the caller holds the token.
        if let Some(core) = unsafe { &mut *self.core.get() } {
            core.announce_sleep(sleeping);
        }
    }

    /// DISPATCH_LEVEL, with the token scheduled.
    fn run_dpc(&self) {
        self.token.start();
        // SAFETY: the token is ours.
        if unsafe { *self.dpc_processor.get() }.is_some_and(|own| own != self.processor()) {
            // Where there is no such processor any more, it stays.
            // SAFETY: as above.
            let _ = unsafe { self.target_dpc() };
        }
        self.announce_sleep(false);
        let deadline = self.clock.now() + DPC_TIME;
        for _ in 0..DPC_TURNS {
            let turn = self.turn();
            if turn.stopped {
                return self.stop();
            }
            if !turn.busy && self.rest() {
                return;
            }
            if self.clock.now() >= deadline {
                break;
            }
        }
        self.token.hand_over();
        self.handed_over.store(true, Ordering::Release);
        self.thread_news.set();
    }

    /// Leaves the core asleep, with its timer set. Returns false if there is work after all.
    fn rest(&self) -> bool {
        self.announce_sleep(true);
        // This turn finds work that came before the announcement; work that comes after it wakes.
        let turn = self.turn();
        if turn.busy || turn.stopped {
            self.announce_sleep(false);
            return false;
        }
        if let Some(next) = turn.next {
            if next.saturating_since(self.clock.now()) < NEAR {
                self.announce_sleep(false);
                return false;
            }
            // SAFETY: the caller holds the token.
            if let Some(timer) = unsafe { &*self.timer.get() } {
                timer.set(next.saturating_since(self.clock.now()));
            }
        }
        if self.token.finish() {
            return true;
        }
        self.announce_sleep(false);
        false
    }

    /// PASSIVE_LEVEL.
    fn run_thread(&self) {
        let mut processor = self.processor();
        processor.pin();
        loop {
            self.thread_news.wait();
            if self.ending.load(Ordering::Acquire) {
                return;
            }
            if processor != self.processor() {
                processor = self.processor();
                processor.pin();
            }
            if !self.handed_over.swap(false, Ordering::AcqRel) {
                continue;
            }
            at_dispatch(|| {
                self.token.start();
                self.announce_sleep(false);
            });
            self.run_turns();
        }
    }

    /// Runs turns at PASSIVE_LEVEL until the core sleeps. Between turns other threads of its processor may
    /// run.
    fn run_turns(&self) {
        let mut idle = 0;
        loop {
            let turn = at_dispatch(|| self.turn());
            if turn.stopped {
                return self.stop();
            }
            idle = if turn.busy { 0 } else { idle + 1 };
            if idle >= IDLE_TURNS && at_dispatch(|| self.rest()) {
                return;
            }
        }
    }
}

handler! {
    /// The DPC of a host, which outlives it.
    fn run_dpc(_dpc: *mut KDPC, host: &Host = object(context: PVOID), _a: PVOID, _b: PVOID) {
        host.run_dpc();
    }
}

handler! {
    /// The timer of a host, which outlives it. DISPATCH_LEVEL.
    fn expired(_timer: PEX_TIMER, host: &Host = object(context: PVOID)) {
        host.schedule();
    }
}

/// A waker that schedules. It is a raw one, because an `Arc` of it may be dropped at DISPATCH_LEVEL and
/// must then touch nothing but the count.
fn waker(host: Arc<Host>) -> Waker {
    let data = Arc::into_raw(host).cast();
    // SAFETY: the table below keeps the counts of the `Arc`.
    unsafe { Waker::from_raw(RawWaker::new(data, &WAKER)) }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: every waker holds one count.
        unsafe { Arc::increment_strong_count(data.cast::<Host>()) };
        RawWaker::new(data, &WAKER)
    },
    |data| {
        // SAFETY: the count of this waker, handed over.
        let host = unsafe { Arc::from_raw(data.cast::<Host>()) };
        host.schedule();
    },
    |data| {
        // SAFETY: the waker keeps its count during the call.
        let host = unsafe { &*data.cast::<Host>() };
        host.schedule();
    },
    // SAFETY: the count of this waker, given back.
    |data| drop(unsafe { Arc::from_raw(data.cast::<Host>()) }),
);

/// Waits at PASSIVE_LEVEL for one value from the core's turn.
pub(crate) struct Reply<T> {
    inner: Arc<ReplyCell<T>>,
}

struct ReplyCell<T> {
    event: Event,
    value: super::sync::SpinLock<Option<T>>,
}

impl<T: Send + 'static> Reply<T> {
    /// The waiting half, and the function that the core calls. PASSIVE_LEVEL.
    pub(crate) fn new() -> (Self, Box<dyn FnOnce(T) + Send>) {
        let inner = Arc::new(ReplyCell {
            event: Event::notification(),
            value: super::sync::SpinLock::new(None),
        });
        let other = Arc::clone(&inner);
        let give = Box::new(move |value| {
            *other.value.lock() = Some(value);
            other.event.set();
        });
        (Self { inner }, give)
    }

    /// PASSIVE_LEVEL.
    pub(crate) fn wait(self) -> Option<T> {
        self.inner.event.wait();
        self.inner.value.lock().take()
    }
}
