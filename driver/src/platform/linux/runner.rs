//! The threads that run the poll core: its own, and those of consumers that poll or wait.
//!
//! The core's own thread takes turns as long as there is work, looks a moment longer, and sleeps. A consumer that
//! finds nothing in its CQ again and again then takes the turns on its own thread, so that no thread has to be woken
//! for a packet; the core's thread makes the callbacks that are due, and takes the core back once nobody polls.
//!
//! A consumer that waits lends its thread for the whole of that: the turns, the callbacks and the sleep (`visit`). Most
//! often it waits again soon, so the core stays lent to it meanwhile. The core's thread stands by, without a wake for
//! a message, looks now and then whether visits still come, and takes the core back where they do not.

use super::Linux;
use super::batch;
use super::waiters::Waiters;
use super::wakeup::{Interest, Wakeup, Woken, patience};
use crate::shard::Shard;
use crate::sync::{Asked, Held, Lease, Token, Watch};
use crate::turn::{PollCore, ProviderConfig, Turn};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::task::Waker;
use netadapter_glue::Edge;
use rocev2::env::{Duration, Instant};
use rustix::event::PollFlags;
use rustix::fd::AsRawFd as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::thread;

/// How long the core's thread looks for more work before it sleeps: about as long as a sleep and its wake take.
const LOOK: Duration = Duration::from_micros(20);

/// With the first of so many looks others may run: a consumer that was just notified, for one.
const LOOKS: u32 = 16;

/// Others kept the processor for that long: they are many, or want much. A thread that lets them run waits its turn
/// for milliseconds, one that sleeps is woken at once, so the next [`CROWDED`] sleeps come without a look.
const CROWD: Duration = Duration::from_micros(100);
const CROWDED: u32 = 1000;

/// Two polls of a consumer that lie closer together than this are those of one that does nothing else.
const QUICK: Duration = Duration::from_micros(20);

/// How often the core's thread looks whether consumers still poll.
const POLLED: Duration = Duration::from_micros(250);

/// How often the core's thread looks whether consumers that wait still come: what one leaves undone that stays away
/// waits for that long, or for twice as long.
const LEASE: Duration = Duration::from_micros(500);

/// So many visits leave the core to its own thread after work has waited for a look: the consumer has others to wait
/// for, as one of two adapters has.
const MISSED: u32 = 256;

/// The core and who runs it.
pub(super) struct Runner {
    pub(super) core: Token<Run>,
    shard: Arc<Shard>,
    /// There is work, for the thread that runs the core and sleeps.
    pub(super) wakeup: Arc<Wakeup>,
    /// The core's own thread is needed.
    pub(super) call: Wakeup,
    /// Whether the core is lent to consumers that wait.
    pub(super) lease: Lease,
    /// Consumers that wait while other threads run the cores.
    pub(super) waiters: Arc<Waiters>,
    /// It is the only core, so that a consumer that waits may run it.
    pub(super) only: bool,
    /// Waits that are part of a stream and leave the core to its own thread.
    pub(super) streamed: AtomicU32,
    /// The last visit came soon after the one before.
    pub(super) soon: AtomicBool,
    /// Visits that leave the core to its own thread, as work has waited for one that did not come.
    pub(super) missed: AtomicU32,
    /// When a consumer polled last, in nanoseconds.
    polled_at: AtomicU64,
    /// A consumer has polled twice in short time since the core's thread looked.
    polled: AtomicBool,
    /// A consumer may take turns: a look at the edge costs no system call, and its descriptor stays the same.
    inline: bool,
    /// There is one processor.
    alone: bool,
    /// The edge had failed when a thread that ran the core slept last.
    edge_failed: AtomicBool,
    /// How long to look. Where there is one processor, a look keeps others from making the work that it is for.
    look: Duration,
}

/// The value behind the token.
pub(super) struct Run {
    core: PollCore,
    /// Its sleep is announced: a thread that makes work wakes the core's.
    asleep: bool,
    /// A consumer has woken the core's thread, for what that has to do itself.
    pub(super) wanted: bool,
    /// Sleeps that come without a look.
    crowded: u32,
    /// The core's thread has it back, as no visit came.
    lapsed: bool,
    /// When a consumer that waits took its last turn.
    pub(super) left_at: Instant,
}

impl Run {
    pub(super) fn announce_sleep(&mut self, asleep: bool) {
        if self.asleep != asleep {
            self.asleep = asleep;
            self.core.announce_sleep(asleep);
        }
    }
}

/// Since when a thread that runs the core has found no work, and how often it has looked.
pub(super) struct Idle {
    busy_at: Instant,
    looks: u32,
}

impl Idle {
    pub(super) const fn since(now: Instant) -> Self {
        Self { busy_at: now, looks: 0 }
    }
}

/// The core's thread has done its work, and goes on like this.
enum Rest {
    /// It sleeps until there is work.
    Sleep(Interest),
    /// It leaves the core to a consumer that polls.
    Lend,
    /// It leaves the core to a consumer that waits.
    Offer,
    /// It was asked to stop.
    End,
}

impl Runner {
    /// Cores on `edges` that no thread runs yet.
    ///
    /// # Errors
    /// The operating system's, for want of descriptors.
    pub(super) fn all(
        edges: Vec<Box<dyn Edge + Send>>,
        config: ProviderConfig,
        seed: [u8; 32],
    ) -> io::Result<Vec<Arc<Self>>> {
        let wakeups = edges.iter().map(|_| Wakeup::new().map(Arc::new));
        let wakeups: Vec<_> = wakeups.collect::<io::Result<_>>()?;
        let wakers: Vec<_> = wakeups.iter().map(|wakeup| Waker::from(Arc::clone(wakeup))).collect();
        let (runners, waiters) = (Arc::<OnceLock<_>>::default(), Arc::<Waiters>::default());
        let platform = Box::new(Linux::new(Arc::clone(&runners)));
        let cores = PollCore::several(edges, platform, config, seed, &wakers);
        let only = cores.len() == 1;
        let core = |(core, wakeup)| Self::new(core, wakeup, Arc::clone(&waiters), only);
        let all = cores.into_iter().zip(wakeups).map(core);
        let all: Vec<_> = all.collect::<io::Result<_>>()?;
        let set = runners.set(all.iter().map(Arc::downgrade).collect());
        debug_assert!(set.is_ok(), "set once");
        Ok(all)
    }

    fn new(
        core: PollCore,
        wakeup: Arc<Wakeup>,
        waiters: Arc<Waiters>,
        only: bool,
    ) -> io::Result<Arc<Self>> {
        let alone = thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let asks = core.edge().asks_the_system();
        Ok(Arc::new(Self {
            shard: Arc::clone(core.shard()),
            core: Token::new(Run {
                core,
                asleep: false,
                wanted: false,
                crowded: 0,
                lapsed: false,
                left_at: Instant::default(),
            }),
            wakeup,
            call: Wakeup::new()?,
            lease: Lease::default(),
            waiters,
            only,
            streamed: AtomicU32::new(0),
            soon: AtomicBool::new(false),
            missed: AtomicU32::new(0),
            polled_at: AtomicU64::new(0),
            polled: AtomicBool::new(false),
            inline: !asks,
            alone,
            edge_failed: AtomicBool::new(false),
            look: if alone || asks { Duration::ZERO } else { LOOK },
        }))
    }

    /// The way to the core.
    pub(super) const fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// The core's own thread. Returns when it is asked to stop.
    pub(super) fn run(&self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        // Whatever waits for the core waits no longer.
        self.core.bury();
        self.waiters.tell();
        if let Err(panic) = ended {
            // The others are of no use without this one.
            self.shard.end();
            std::panic::resume_unwind(panic);
        }
    }

    fn work(&self) {
        if self.alone {
            // Without it, more switches are made than need be.
            let _ = batch::let_wakers_finish();
        }
        let mut woken = Woken::default();
        while let Some(mut run) = self.take() {
            self.rise(&mut run, &core::mem::take(&mut woken));
            run.wanted = false;
            match self.take_turns(&mut run) {
                Rest::Sleep(interest) => {
                    self.give_back(run);
                    woken = self.sleep(&interest);
                }
                Rest::Lend => {
                    self.give_back(run);
                    self.stand_by();
                }
                Rest::Offer => {
                    self.lease.offer();
                    self.give_back(run);
                }
                Rest::End => return run.end(),
            }
        }
    }

    /// The token, for the core's thread, once the core is not lent; `None` once it is dead.
    fn take(&self) -> Option<Held<'_, Run>> {
        loop {
            let lapsed = self.stand_by_visits();
            match self.core.ask() {
                Asked::Mine(mut run) => {
                    run.lapsed = lapsed;
                    return Some(run);
                }
                Asked::Wait => {
                    // A consumer that has just come may sleep already.
                    self.wakeup.wake();
                    self.wait_for_call(None);
                }
                Asked::Dead => return None,
            }
        }
    }

    /// Leaves the core to others: first to those that wait for it.
    fn give_back(&self, run: Held<'_, Run>) {
        run.give_back();
        self.waiters.tell_visitors();
    }

    /// The sleep of the core's thread.
    fn sleep(&self, interest: &Interest) -> Woken {
        let woken = self.wakeup.sleep(Some(&self.call), interest);
        if woken.called {
            self.call.clear();
        }
        woken
    }

    /// A thread that has the core has slept.
    fn rise(&self, run: &mut Run, woken: &Woken) {
        if woken.wake {
            // Not before it has the core: the wake may be meant for the thread that had it.
            self.wakeup.clear();
        }
        run.announce_sleep(false);
        if woken.edge_error {
            run.core.edge_mut().take_error();
        }
    }

    /// The sleep of a consumer that runs the core, after `turn`, at most until `deadline`.
    pub(super) fn sleep_until(&self, run: &mut Run, turn: &Turn, now: Instant, deadline: Instant) {
        let mut interest = self.interest(run, turn, now);
        let left = deadline.saturating_since(now);
        interest.timeout = Some(interest.timeout.map_or(left, |due| due.min(left)));
        let woken = self.wakeup.sleep(None, &interest);
        self.rise(run, &woken);
    }

    /// A turn with its callbacks, of which other consumers are told that wait for them.
    pub(super) fn turn_and_tell(&self, run: &mut Run, now: Instant) -> Turn {
        let mut turn = run.core.turn(now);
        if run.core.call_back(&mut turn) {
            self.waiters.tell();
        }
        turn
    }

    /// Takes turns, and makes callbacks, as long as there is work.
    fn take_turns(&self, run: &mut Run) -> Rest {
        let mut idle = Idle::since(self.now());
        loop {
            let now = self.now();
            let turn = self.turn_and_tell(run, now);
            if turn.stopped {
                return Rest::End;
            }
            if core::mem::take(&mut run.lapsed) && turn.busy {
                self.missed.store(MISSED, Ordering::Relaxed);
            }
            if self.waiters.has_visitor() {
                return Rest::Offer;
            }
            if !turn.busy && !run.asleep && self.has_polled() {
                return Rest::Lend;
            }
            if self.rests(run, &turn, now, &mut idle) {
                return Rest::Sleep(self.interest(run, &turn, now));
            }
        }
    }

    /// Whether the thread that runs the core sleeps after `turn`: it has found nothing for a while, nor after it had
    /// announced its sleep.
    pub(super) fn rests(&self, run: &mut Run, turn: &Turn, now: Instant, idle: &mut Idle) -> bool {
        if turn.busy {
            *idle = Idle::since(now);
            // One that is about to sleep has found work once more.
            run.announce_sleep(false);
        } else if run.asleep {
            return true;
        } else if run.crowded == 0 && now.saturating_since(idle.busy_at) < self.look {
            self.pause(run, idle.looks);
            idle.looks += 1;
        } else {
            run.crowded = run.crowded.saturating_sub(1);
            // A thread that makes work from here on wakes us; the turn that follows finds earlier work.
            run.announce_sleep(true);
        }
        false
    }

    /// As [`Self::rests`], for a thread that mostly waits for one answer: where it would not look for long anyway, it announces
    /// its sleep with its last work, and sleeps after one turn that finds nothing.
    pub(super) fn rests_soon(
        &self,
        run: &mut Run,
        turn: &Turn,
        now: Instant,
        idle: &mut Idle,
    ) -> bool {
        let rests = self.rests(run, turn, now, idle);
        if turn.busy && self.look.is_zero() {
            run.announce_sleep(true);
        }
        rests
    }

    /// Between two looks.
    fn pause(&self, run: &mut Run, looks: u32) {
        if !looks.is_multiple_of(LOOKS) {
            return core::hint::spin_loop();
        }
        let before = self.now();
        thread::yield_now();
        if self.now().saturating_since(before) >= CROWD {
            run.crowded = CROWDED;
        }
    }

    /// Sleeps while consumers that poll take the turns; until one of them, or nobody, needs the core's thread.
    fn stand_by(&self) {
        while !self.wait_for_call(Some(POLLED)) && self.has_polled() {}
    }

    /// Sleeps while the core is lent to consumers that wait. Whether that ends as none came.
    fn stand_by_visits(&self) -> bool {
        let mut seen = 0;
        loop {
            match self.lease.watch(&mut seen) {
                Watch::Look => self.wait_for_call(Some(LEASE)),
                Watch::Call => self.wait_for_call(None),
                Watch::Over => return false,
                Watch::Lapsed => return true,
            };
        }
    }

    /// Whether a call has come in that time.
    fn wait_for_call(&self, timeout: Option<Duration>) -> bool {
        let called = self.call.sleep(None, &Interest { edge: None, timeout }).wake;
        if called {
            self.call.clear();
        }
        called
    }

    /// Whether a consumer has polled since this was asked.
    fn has_polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed) && self.polled.swap(false, Ordering::Relaxed)
    }

    /// A turn on the thread of a consumer that polls, if nobody takes one. Whether it was taken.
    pub(super) fn poll_inline(&self) -> bool {
        if !self.inline || !self.polls_again() {
            return false;
        }
        let Some(mut run) = self.core.try_take() else { return false };
        // A panic ends the core, and not the consumer, whose C function it would leave.
        let wake = match catch_unwind(AssertUnwindSafe(|| self.help(&mut run))) {
            Ok(wake) => run.give_back() || wake,
            Err(_) => {
                run.end();
                self.lease.end();
                true
            }
        };
        if wake {
            self.call.wake();
        }
        true
    }

    /// Notes a poll that found nothing; whether the one before was a moment ago.
    fn polls_again(&self) -> bool {
        let now = self.now();
        let before = Instant::from_nanos(self.polled_at.load(Ordering::Relaxed));
        self.polled_at.store(now.as_nanos(), Ordering::Relaxed);
        if now.saturating_since(before) > QUICK {
            return false;
        }
        // The core's thread reads it at each turn that finds nothing.
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
        true
    }

    /// Takes a turn for the core's thread; whether that is needed itself, and does not know it yet.
    fn help(&self, run: &mut Run) -> bool {
        // Work wakes nobody as long as a consumer polls, and the core's thread sees to it that one does.
        let lent = run.asleep;
        run.announce_sleep(false);
        let turn = run.core.turn(self.now());
        let wanted = lent || turn.stopped || run.core.has_callbacks();
        let first = wanted && !core::mem::replace(&mut run.wanted, true);
        if first {
            self.lease.end();
        }
        first
    }

    /// A consumer that polled will wait.
    pub(super) fn stop_polling(&self) {
        if self.inline {
            self.polled.store(false, Ordering::Relaxed);
            self.call.wake();
        }
    }

    /// The events that end the sleep after `turn`.
    fn interest(&self, run: &Run, turn: &Turn, now: Instant) -> Interest {
        let edge = run.core.edge();
        let flags =
            if edge.wants_writable() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        self.edge_failed.store(turn.edge_failed, Ordering::Relaxed);
        let fd = edge.fd().filter(|_| !turn.edge_failed);
        let due = turn.next.map(|next| next.saturating_since(now));
        let due = due.into_iter().chain(edge.retry_after()).min();
        Interest {
            edge: fd.map(|fd| (fd.as_raw_fd(), flags)),
            timeout: patience(due, turn.edge_failed),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.shard.platform.now()
    }

    pub(super) fn edge_failed(&self) -> bool {
        self.edge_failed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
