//! The threads that run the poll core: its own, and those of consumers that poll.
//!
//! The core's own thread takes turns as long as there is work, looks a moment longer, and sleeps. A consumer that
//! finds nothing in its CQ again and again then takes the turns on its own thread, so that no thread has to be woken
//! for a packet; the core's thread makes the callbacks that are due, and takes the core back once nobody polls.

use super::Linux;
use super::wakeup::{Interest, Wakeup};
use crate::shard::Shard;
use crate::sync::{Asked, Held, Token};
use crate::turn::{PollCore, ProviderConfig, Turn};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::Waker;
use netadapter_glue::Edge;
use rocev2::env::{Duration, Instant};
use rustix::event::PollFlags;
use rustix::fd::AsRawFd as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Wake as _;
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
const LEASE: Duration = Duration::from_micros(250);

/// How often a failed edge is asked again.
const EDGE_RETRY: Duration = Duration::from_millis(100);

/// The core and who runs it.
pub(super) struct Runner {
    core: Token<Run>,
    shard: Arc<Shard>,
    wakeup: Arc<Wakeup>,
    /// When a consumer polled last, in nanoseconds.
    polled_at: AtomicU64,
    /// A consumer has polled twice in short time since the core's thread looked.
    polled: AtomicBool,
    /// A consumer may take turns: a look at the edge costs no system call, and its descriptor stays the same.
    inline: bool,
    /// How long to look. Where there is one processor, a look keeps others from making the work that it is for.
    look: Duration,
}

/// The value behind the token.
struct Run {
    core: PollCore,
    /// Its sleep is announced: a thread that makes work wakes the core's.
    asleep: bool,
    /// A consumer has woken the core's thread, for what that has to do itself.
    wanted: bool,
    /// Sleeps that come without a look.
    crowded: u32,
}

impl Run {
    fn announce_sleep(&mut self, asleep: bool) {
        if self.asleep != asleep {
            self.asleep = asleep;
            self.core.announce_sleep(asleep);
        }
    }
}

/// The core's thread has done its work, and goes on like this.
enum Rest {
    /// It sleeps until there is work.
    Sleep(Interest),
    /// It leaves the core to a consumer that polls.
    Lend,
    /// It was asked to stop.
    End,
}

impl Runner {
    /// A core on `edge` that no thread runs yet.
    ///
    /// # Errors
    /// The operating system's, for want of descriptors.
    pub(super) fn new(
        edge: Box<dyn Edge + Send>,
        config: ProviderConfig,
        seed: [u8; 32],
    ) -> io::Result<Arc<Self>> {
        let wakeup = Arc::new(Wakeup::new()?);
        let waker = Waker::from(Arc::clone(&wakeup));
        let alone = thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        Ok(Arc::new_cyclic(|runner: &Weak<Self>| {
            let platform = Box::new(Linux::new(Weak::clone(runner)));
            let asks = edge.asks_the_system();
            let core = PollCore::new(edge, platform, config, seed, &waker);
            Self {
                shard: Arc::clone(core.shard()),
                core: Token::new(Run { core, asleep: false, wanted: false, crowded: 0 }),
                wakeup,
                polled_at: AtomicU64::new(0),
                polled: AtomicBool::new(false),
                inline: !asks,
                look: if alone || asks { Duration::ZERO } else { LOOK },
            }
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
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    }

    fn work(&self) {
        let mut edge_error = false;
        while let Some(mut run) = self.take() {
            run.announce_sleep(false);
            run.wanted = false;
            if core::mem::take(&mut edge_error) {
                run.core.edge_mut().take_error();
            }
            match self.take_turns(&mut run) {
                Rest::Sleep(interest) => {
                    self.give_back(run);
                    edge_error = self.wakeup.sleep(&interest).edge_error;
                }
                Rest::Lend => {
                    self.give_back(run);
                    self.stand_by();
                }
                Rest::End => return run.end(),
            }
        }
    }

    /// The token, for the core's thread; `None` once it is dead.
    fn take(&self) -> Option<Held<'_, Run>> {
        loop {
            match self.core.ask() {
                Asked::Mine(run) => return Some(run),
                Asked::Wait => drop(self.wakeup.sleep(&Interest { edge: None, timeout: None })),
                Asked::Dead => return None,
            }
        }
    }

    fn give_back(&self, run: Held<'_, Run>) {
        if run.give_back() {
            self.wakeup.wake_by_ref();
        }
    }

    /// Takes turns, and makes callbacks, as long as there is work.
    fn take_turns(&self, run: &mut Run) -> Rest {
        let (mut busy_at, mut looks) = (self.now(), 0);
        loop {
            let now = self.now();
            let turn = run.core.poll(now);
            if turn.stopped {
                return Rest::End;
            }
            if turn.busy {
                (busy_at, looks) = (now, 0);
                // One that is about to sleep has found work once more.
                run.announce_sleep(false);
            } else if run.asleep {
                return Rest::Sleep(self.interest(run, &turn));
            } else if self.has_polled() {
                return Rest::Lend;
            } else if run.crowded == 0 && now.saturating_since(busy_at) < self.look {
                self.pause(run, looks);
                looks += 1;
            } else {
                run.crowded = run.crowded.saturating_sub(1);
                // A thread that makes work from here on wakes us; the turn that follows finds earlier work.
                run.announce_sleep(true);
            }
        }
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

    /// Sleeps while consumers take the turns; until one of them, or nobody, needs the core's thread.
    fn stand_by(&self) {
        let lease = Interest { edge: None, timeout: Some(LEASE) };
        while !self.wakeup.sleep(&lease).wake && self.has_polled() {}
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
                true
            }
        };
        if wake {
            self.wakeup.wake_by_ref();
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
        wanted && !core::mem::replace(&mut run.wanted, true)
    }

    /// A consumer that polled will wait.
    pub(super) fn stop_polling(&self) {
        if self.inline {
            self.polled.store(false, Ordering::Relaxed);
            self.wakeup.wake_by_ref();
        }
    }

    /// The events that end the sleep after `turn`.
    fn interest(&self, run: &Run, turn: &Turn) -> Interest {
        let edge = run.core.edge();
        let flags =
            if edge.wants_writable() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let fd = edge.fd().filter(|_| !turn.edge_failed);
        let due = turn.next.map(|next| next.saturating_since(self.now()));
        Interest {
            edge: fd.map(|fd| (fd.as_raw_fd(), flags)),
            timeout: patience(due, turn.edge_failed),
        }
    }

    fn now(&self) -> Instant {
        self.shard.platform.now()
    }
}

/// How long to sleep. A failed edge's descriptor would wake us at once and for ever, so it is not
/// waited on, and the edge is asked now and then instead.
fn patience(due: Option<Duration>, edge_failed: bool) -> Option<Duration> {
    if !edge_failed {
        return due;
    }
    Some(due.map_or(EDGE_RETRY, |due| due.min(EDGE_RETRY)))
}

#[cfg(test)]
mod tests;
