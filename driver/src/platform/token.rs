//! Who may run the poll core: at most one at a time, and never nobody while there is work.
//!
//! ```text
//!        schedule             start              schedule
//!  Idle ──────────> Scheduled ─────> Running ──────────────> Again
//!   ^                   ^               │ finish               │ finish: run once more
//!   └───────────────────┼───────────────┘                      │
//!                       └──────────── hand_over ───────────────┘ (or from Running)
//! ```
//! Who makes Idle into Scheduled brings a runner along (a DPC); nobody else does. A producer first
//! puts its work where the runner looks, then schedules.

use crate::ring::modelled::AtomicU8;
use core::sync::atomic::Ordering;

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

    /// There is work. True: the caller has to bring a runner.
    #[must_use]
    pub(crate) fn schedule(&self) -> bool {
        let next = |state| match state {
            IDLE => Some(SCHEDULED),
            RUNNING => Some(AGAIN),
            _ => None,
        };
        // Also where nothing changes the runner must see what was written before: a failed update
        // would order nothing, so the state is written back as it is.
        let next = |state| Some(next(state).unwrap_or(state));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE)
    }

    /// The runner begins.
    pub(crate) fn start(&self) {
        let before = self.0.swap(RUNNING, Ordering::AcqRel);
        debug_assert_eq!(before, SCHEDULED, "one runner for each schedule");
    }

    /// The runner found nothing more. False: work came meanwhile, and it has to run once more.
    #[must_use]
    pub(crate) fn finish(&self) -> bool {
        if self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.0.swap(RUNNING, Ordering::AcqRel);
        false
    }

    /// The runner leaves work to another runner, whom it brings along.
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

    /// What a DPC does; `hand_over` once stands for an exhausted budget.
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
