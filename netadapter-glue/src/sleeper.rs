//! The sleep protocol: it tells whether the owner of an edge sleeps, and wakes it.

use core::sync::atomic::Ordering;
use core::task::Waker;
use modelled::{AtomicU8, AtomicWaker, fence};

/// The state of the owner's sleep.
///
/// The owner announces its sleep and then examines its rings; others fill a ring and then examine the
/// announcement. With a fence between the two steps on both sides at least one of them sees the other, so
/// that no wake is lost.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    state: AtomicU8,
    waker: AtomicWaker,
}

/// The owner needs no wake.
const AWAKE: u8 = 0;
/// The owner sleeps; a unit wakes it.
pub(crate) const ASLEEP: u8 = 1;
/// The owner sleeps with units to send and no buffer; a unit or a buffer wakes it.
pub(crate) const STARVED: u8 = 2;

impl Sleeper {
    /// Announces that the owner is about to sleep. It must examine its rings once more after this.
    pub(crate) fn announce(&self, waker: &Waker, state: u8) {
        self.waker.register(waker);
        // Release: a thread that sees the state also sees the waker. It is a swap, as in `wake_if`: all
        // changes then have one order, which loom follows; it does not among stores and swaps.
        self.state.swap(state, Ordering::AcqRel);
        // Pairs with the fence in `wake_if`.
        fence(Ordering::SeqCst);
    }

    /// Announces that the owner is awake and needs no wake.
    pub(crate) fn rise(&self) {
        self.state.swap(AWAKE, Ordering::Relaxed);
    }

    /// Wakes a sleeper whose state is at least `state`. Called after the ring was written.
    ///
    /// An owner that is awake costs one fence and one load of a cache line that no thread writes.
    pub(crate) fn wake_if(&self, state: u8) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) >= state
            && self.state.swap(AWAKE, Ordering::Acquire) != AWAKE
        {
            self.waker.wake();
        }
    }
}

/// The model for loom: `RUSTFLAGS="--cfg loom" cargo test -p netadapter-glue --lib -- loom`.
mod modelled {
    #[cfg(all(loom, test))]
    pub(super) use super::loom_model::AtomicWaker;
    #[cfg(not(all(loom, test)))]
    pub(super) use atomic_waker::AtomicWaker;
    #[cfg(not(all(loom, test)))]
    pub(super) use core::sync::atomic::{AtomicU8, fence};
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::atomic::{AtomicU8, fence};
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::*;
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Condvar, Mutex};
    use std::vec::Vec;

    /// Keeps one waker, as the crate's does: a wake takes it.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

    impl AtomicWaker {
        pub(crate) fn register(&self, waker: &Waker) {
            *self.0.lock().unwrap() = Some(waker.clone());
        }

        pub(crate) fn wake(&self) {
            let waker = self.0.lock().unwrap().take();
            waker.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// The event that the owner waits for. If it is set before, the owner does not wait.
    #[derive(Default)]
    struct Bell(Mutex<bool>, Condvar);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
    }

    impl Bell {
        fn wait(&self) {
            let mut rung = self.0.lock().unwrap();
            while !*rung {
                rung = self.1.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    /// Others put things into the owner's ring, each in its thread, and wake it if it is at least in
    /// the state that they know; it sleeps in `state` whenever it finds nothing. A lost wake is a
    /// deadlock.
    fn nothing_stays(state: u8, wakes: &'static [u8]) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let shared = Arc::new((Sleeper::default(), AtomicUsize::new(0)));
            let others = Vec::from_iter(wakes.iter().map(|wakes| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    shared.0.wake_if(*wakes);
                })
            }));
            let bell = Arc::new(Bell::default());
            let waker = Waker::from(Arc::clone(&bell));
            let (sleeper, ring) = &*shared;
            let mut taken = 0;
            while taken < wakes.len() {
                let found = ring.swap(0, Ordering::Relaxed);
                taken += found;
                if found > 0 {
                    continue;
                }
                sleeper.announce(&waker, state);
                if ring.load(Ordering::Relaxed) == 0 {
                    bell.wait();
                }
                sleeper.rise();
            }
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }

    #[test]
    fn a_frame_wakes_whoever_sleeps() {
        nothing_stays(ASLEEP, &[ASLEEP, ASLEEP]);
    }

    #[test]
    fn frame_and_buffer_wake_who_is_starved() {
        nothing_stays(STARVED, &[ASLEEP, STARVED]);
    }
}
