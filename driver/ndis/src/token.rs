//! The right to run the poll core: at most one runner at a time, and at least one whenever work is pending.
//!
//! ```text
//!        schedule             start              schedule
//!  Idle ──────────> Scheduled ─────> Running ──────────────> Again
//!   ^                   ^               │ finish               │ finish: run once more
//!   └───────────────────┼───────────────┘                      │
//!                       └──────────── hand_over ───────────────┘ (or from Running)
//! ```
//! Only the thread that changes Idle to Scheduled queues a runner (a DPC). A producer first puts its work
//! where the runner finds it, then schedules.

use core::sync::atomic::Ordering;

// The form that loom can model.
#[cfg(not(all(loom, test)))]
use core::sync::atomic::AtomicU8;
#[cfg(all(loom, test))]
use loom::sync::atomic::AtomicU8;

const IDLE: u8 = 0;
const SCHEDULED: u8 = 1;
const RUNNING: u8 = 2;
const AGAIN: u8 = 3;

/// The right to run one poll core.
#[derive(Debug)]
pub(crate) struct RunToken(AtomicU8);

impl RunToken {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(IDLE))
    }

    /// Announces work. Returns true if the caller has to queue a runner.
    #[must_use]
    pub(crate) fn schedule(&self) -> bool {
        let next = |state| match state {
            IDLE => Some(SCHEDULED),
            RUNNING => Some(AGAIN),
            _ => None,
        };
        // Even where the state does not change, the runner must see the producer's writes: a failed update
        // would order nothing, so the state is written back as it is.
        let next = |state| Some(next(state).unwrap_or(state));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }

    /// Starts the runner.
    pub(crate) fn start(&self) {
        let before = self.0.swap(RUNNING, Ordering::AcqRel);
        debug_assert_eq!(before, SCHEDULED, "one runner for each schedule");
    }

    /// Ends the runner, which found no more work. Returns false if work came meanwhile, and it has to run
    /// once more.
    #[must_use]
    pub(crate) fn finish(&self) -> bool {
        if self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.0.swap(RUNNING, Ordering::AcqRel);
        false
    }

    /// Leaves pending work to another runner, which the caller queues.
    pub(crate) fn hand_over(&self) {
        self.0.swap(SCHEDULED, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_schedule_brings_a_runner() {
        let token = RunToken::new();
        assert!(token.schedule());
        assert!(!token.schedule());
        token.start();
        assert!(token.finish());
        assert!(token.schedule());
    }

    #[test]
    fn work_that_comes_while_running_is_run() {
        let token = RunToken::new();
        assert!(token.schedule());
        token.start();
        assert!(!token.schedule());
        assert!(!token.finish());
        assert!(token.finish());
    }

    #[test]
    fn who_takes_over_starts_anew() {
        let token = RunToken::new();
        assert!(token.schedule());
        token.start();
        token.hand_over();
        assert!(!token.schedule());
        token.start();
        assert!(token.finish());
    }
}

#[cfg(all(test, loom))]
#[allow(unsafe_code, reason = "a cell of the model")]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;
    use std::vec::Vec;

    struct Shared {
        token: RunToken,
        /// Work that producers left.
        queued: AtomicUsize,
        /// Touched by the runner only: loom objects if two are inside.
        done: UnsafeCell<usize>,
    }

    /// The work of a DPC; `hand_over` stands once for an exhausted budget.
    fn run(shared: &Arc<Shared>, mut hand_over: bool) {
        shared.token.start();
        loop {
            let work = shared.queued.swap(0, Ordering::Relaxed);
            // SAFETY: the token admits one runner, which is what the model checks.
            shared.done.with_mut(|done| unsafe { *done += work });
            if hand_over {
                hand_over = false;
                shared.token.hand_over();
                shared.token.start();
                continue;
            }
            if shared.token.finish() {
                return;
            }
        }
    }

    fn produce(shared: &Arc<Shared>, hand_over: bool) {
        shared.queued.fetch_add(1, Ordering::Relaxed);
        if shared.token.schedule() {
            run(shared, hand_over);
        }
    }

    fn model(producers: usize, hand_over: bool) {
        let mut builder = loom::model::Builder::new();
        // Three preemptions find what more would; all of them take minutes.
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let shared = Arc::new(Shared {
                token: RunToken::new(),
                queued: AtomicUsize::new(0),
                done: UnsafeCell::new(0),
            });
            let threads: Vec<_> = (1..producers)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || produce(&shared, hand_over))
                })
                .collect();
            produce(&shared, hand_over);
            for thread in threads {
                thread.join().unwrap();
            }
            // SAFETY: everybody has left.
            shared.done.with(|done| assert_eq!(unsafe { *done }, producers, "work was missed"));
        });
    }

    /// Goal: one runner at a time, and no work is left behind.
    /// Method: every interleaving of producers that schedule while a runner leaves.
    #[test]
    fn no_work_is_missed() {
        model(3, false);
    }

    #[test]
    fn no_work_is_missed_over_a_hand_over() {
        model(2, true);
    }
}
