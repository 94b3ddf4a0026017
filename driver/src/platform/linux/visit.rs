//! A thread of a consumer that waits, and runs the core meanwhile.

use super::runner::{Idle, Run, Runner};
use crate::sync::Held;
use crate::turn::Turn;
use core::sync::atomic::{AtomicU32, Ordering};
use rocev2::env::{Duration, Instant};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A consumer that stays away no longer than this between two waits leaves the core lent, to its next.
const SOON: Duration = Duration::from_micros(250);

/// So many units in one turn are part of a stream. Two threads move more of one than a thread that goes to and fro, so
/// the next waits leave the core to its own thread.
const STREAM: usize = 8;
const STREAMED: u32 = 64;

/// The end of a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waited {
    /// The event has come that the caller waited for.
    Done,
    /// The time has passed.
    TimedOut,
    /// The provider has ended, by a panic or because it was asked to: nothing comes any more.
    Ended,
}

/// The core in the hands of a thread that waits. However that ends, another thread can run it afterwards.
struct Visit<'a> {
    runner: &'a Runner,
    /// None: the core has panicked.
    run: Option<Held<'a, Run>>,
    /// The core stays lent.
    keep: bool,
}

impl Runner {
    /// See [`Provider::run_until`](super::Provider::run_until).
    pub(super) fn run_until(&self, patience: Duration, done: &mut dyn FnMut() -> bool) -> Waited {
        let (mut deadline, mut visits) = (None, self.only && !self.is_in_stream());
        loop {
            if done() {
                self.stay_away();
                return Waited::Done;
            }
            if visits && let Some(run) = self.core.try_take() {
                let visit = Visit::begin(self, run);
                if let Some(waited) = visit.take_turns(patience, &mut deadline, done) {
                    return waited;
                }
                visits = self.only && self.streamed.load(Ordering::Relaxed) == 0;
            }
            if self.core.is_dead() {
                return Waited::Ended;
            }
            let now = self.now();
            let left = deadline.get_or_insert(now + patience).saturating_since(now);
            if left.is_zero() {
                self.stay_away();
                return Waited::TimedOut;
            }
            // An event may be there for one that asks once.
            let mut came = false;
            let look = || {
                came = done();
                came || self.core.is_dead() || visits && self.core.is_free()
            };
            self.waiters.wait(left, visits, look);
            if came {
                self.stay_away();
                return Waited::Done;
            }
        }
    }

    /// Whether this wait is part of a stream, and leaves the core to its own thread.
    fn is_in_stream(&self) -> bool {
        count_down(&self.streamed)
    }

    /// Whether this visit is one of those that leave the core to its own thread.
    fn has_missed(&self) -> bool {
        count_down(&self.missed)
    }

    /// A thread that has not run the core waits no more. It may have been the one that the core was lent to.
    fn stay_away(&self) {
        if !self.soon.load(Ordering::Relaxed) {
            self.recall();
        }
    }

    /// Has the core's own thread run the core, where it is lent and nobody is there.
    pub(super) fn recall(&self) {
        if self.lease.recall() {
            self.call.wake();
        }
    }
}

/// Whether any was left to count. Threads that count at once may count one together.
fn count_down(left: &AtomicU32) -> bool {
    let before = left.load(Ordering::Relaxed);
    if before > 0 {
        left.store(before - 1, Ordering::Relaxed);
    }
    before > 0
}

impl<'a> Visit<'a> {
    fn begin(runner: &'a Runner, mut run: Held<'a, Run>) -> Self {
        if runner.lease.enter() {
            runner.call.wake();
        }
        // The callbacks that the core's thread was called for are made here.
        run.wanted = false;
        Self { runner, run: Some(run), keep: false }
    }

    /// Takes turns and sleeps between them until the wait ends. None: the core's thread asks for the core.
    fn take_turns(
        mut self,
        patience: Duration,
        deadline: &mut Option<Instant>,
        done: &mut dyn FnMut() -> bool,
    ) -> Option<Waited> {
        let runner = self.runner;
        let mut now = runner.now();
        let deadline = *deadline.get_or_insert(now + patience);
        let (soon, stays) = (self.comes_soon(now), !self.runner.has_missed());
        let mut idle = Idle::since(now);
        loop {
            let Some(turn) = self.take_turn(now).filter(|turn| !turn.stopped) else {
                return Some(Waited::Ended);
            };
            let stream = self.meets_stream(&turn);
            self.keep = soon && stays && !stream;
            if done() {
                return Some(Waited::Done);
            }
            if stream || runner.core.is_asked() {
                return None;
            }
            if now >= deadline {
                return Some(Waited::TimedOut);
            }
            let run = self.run.as_mut()?;
            let rests = runner.rests_soon(run, &turn, now, &mut idle);
            if rests {
                runner.sleep_until(run, &turn, now, deadline);
            }
            now = runner.now();
            if rests {
                idle = Idle::since(now);
            }
        }
    }

    /// Whether there is a stream, which is noted.
    fn meets_stream(&self, turn: &Turn) -> bool {
        let stream = turn.units >= STREAM;
        if stream {
            self.runner.streamed.store(STREAMED, Ordering::Relaxed);
        }
        stream
    }

    /// Notes when the consumer has come back; whether that was soon.
    fn comes_soon(&self, now: Instant) -> bool {
        let left_at = self.run.as_ref().map_or(now, |run| run.left_at);
        let soon = now.saturating_since(left_at) <= SOON;
        self.runner.soon.store(soon, Ordering::Relaxed);
        soon
    }

    /// A turn and its callbacks; `None` where the core has panicked. That ends the core, and not the consumer.
    fn take_turn(&mut self, now: Instant) -> Option<Turn> {
        let Self { runner, run, .. } = self;
        let turn = run.as_mut().and_then(|run| {
            run.left_at = now;
            let turns = AssertUnwindSafe(|| runner.turn_and_tell(run, now));
            catch_unwind(turns).ok()
        });
        if turn.is_none()
            && let Some(run) = run.take()
        {
            run.end();
        }
        turn
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let Self { runner, run, keep } = self;
        // Another thread that waits goes on with the core.
        let keep = *keep || runner.waiters.has_visitor();
        let mut call = true;
        if let Some(mut run) = run.take() {
            run.announce_sleep(false);
            if keep && !runner.core.is_asked() {
                call = runner.lease.leave();
            } else {
                runner.lease.end();
            }
            if run.give_back() {
                runner.lease.end();
                call = true;
            }
        } else {
            runner.lease.end();
        }
        if call {
            runner.call.wake();
        }
        runner.waiters.tell_visitors();
    }
}

#[cfg(test)]
mod tests;
