//! The agreement by which threads that wait run what another thread has as its duty.

use super::modelled::AtomicU32;
use core::sync::atomic::Ordering;

/// Whether what a [`Token`](super::Token) guards is lent to visitors, threads that run it for as long as they wait for
/// something. A visitor that leaves most often comes again at once, so that it may leave the thing lent: the owner
/// stands by, looks now and then whether visitors still come, and takes the thing back once they stay away.
#[derive(Debug, Default)]
pub(crate) struct Lease(AtomicU32);

/// The owner stands by.
const LENT: u32 = 1;
/// A visitor is inside.
const INSIDE: u32 = 2;
/// The owner looks no more: the visitor calls it when it leaves.
const CALL: u32 = 4;
/// Above the flags: the number of visits, and of offers.
const VISIT: u32 = 8;

/// How an owner that stands by goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Watch {
    /// It looks again after a while.
    Look,
    /// It waits for a call.
    Call,
    /// It is to run the thing again.
    Over,
    /// The same, as no visitor has come.
    Lapsed,
}

impl Lease {
    /// A visitor that has the token enters. True: the owner did not stand by, and has to be called.
    pub(crate) fn enter(&self) -> bool {
        self.change(|state| (state | LENT | INSIDE).wrapping_add(VISIT)) & LENT == 0
    }

    /// The visitor leaves, and the thing stays lent. True: the owner has to be called, to look again.
    pub(crate) fn leave(&self) -> bool {
        self.change(|state| state & !(INSIDE | CALL)) & CALL != 0
    }

    /// The owner, which has the token, lends the thing to visitors that wait for it.
    pub(crate) fn offer(&self) {
        self.change(|state| (state | LENT).wrapping_add(VISIT));
    }

    /// Ends the lease, for a thread that has the token. The owner has to be called.
    pub(crate) fn end(&self) {
        self.change(|state| state & !(LENT | INSIDE | CALL));
    }

    /// Ends a lease while no visitor is inside, for any thread. True: the owner has to be called.
    pub(crate) fn recall(&self) -> bool {
        let state = self.0.load(Ordering::Relaxed);
        state & (LENT | INSIDE) == LENT && self.swap(state, state & !LENT)
    }

    /// For an owner that stands by: whether it looks, waits or goes on. `seen` is what its last look saw, 0 before the
    /// first.
    pub(crate) fn watch(&self, seen: &mut u32) -> Watch {
        loop {
            let state = self.0.load(Ordering::Acquire);
            if state & LENT == 0 {
                return Watch::Over;
            }
            if state & CALL != 0 {
                return Watch::Call;
            }
            if core::mem::replace(seen, state) != state {
                return Watch::Look;
            }
            // Nothing has changed since: one visitor was inside all the time, or none has come.
            let (next, watch) = if state & INSIDE != 0 {
                (state | CALL, Watch::Call)
            } else {
                (state & !LENT, Watch::Lapsed)
            };
            if self.swap(state, next) {
                return watch;
            }
        }
    }

    /// Returns the state before.
    fn change(&self, next: impl Fn(u32) -> u32) -> u32 {
        loop {
            let state = self.0.load(Ordering::Relaxed);
            if self.swap(state, next(state)) {
                return state;
            }
        }
    }

    fn swap(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_owner_looks_for_as_long_as_visitors_come() {
        let (lease, mut seen) = (Lease::default(), 0);
        assert_eq!(lease.watch(&mut seen), Watch::Over, "nothing is lent");
        for visit in 0..3 {
            assert_eq!(lease.enter(), visit == 0, "once it stands by");
            assert!(!lease.leave());
            assert_eq!(lease.watch(&mut seen), Watch::Look);
        }
        assert_eq!(lease.watch(&mut seen), Watch::Lapsed, "nobody came");
        assert_eq!(lease.watch(&mut seen), Watch::Over, "nothing is lent");
        assert!(lease.enter());
    }

    #[test]
    fn an_owner_that_waits_is_called_by_the_visitor_that_leaves() {
        let (lease, mut seen) = (Lease::default(), 0);
        lease.offer();
        assert!(!lease.enter());
        assert_eq!(lease.watch(&mut seen), Watch::Look);
        assert_eq!(lease.watch(&mut seen), Watch::Call);
        assert_eq!(lease.watch(&mut seen), Watch::Call, "called for nothing");
        assert!(!lease.recall(), "somebody is inside");
        assert!(lease.leave());
        assert_eq!(lease.watch(&mut seen), Watch::Look);
        assert!(lease.recall() && !lease.recall());
        assert_eq!(lease.watch(&mut seen), Watch::Over);
    }

    #[test]
    fn an_owner_is_told_of_the_end_of_a_lease() {
        let (lease, mut seen) = (Lease::default(), 0);
        lease.enter();
        lease.end();
        assert_eq!(lease.watch(&mut seen), Watch::Over);
    }
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::*;
    use crate::sync::loom_model::Bell;
    use crate::sync::{Asked, Token};
    use alloc::sync::Arc;
    use loom::cell::UnsafeCell as Watched;

    /// The thing, what guards it, and the calls of its owner.
    struct Shared {
        token: Token<Watched<usize>>,
        lease: Lease,
        call: Bell,
    }

    impl Shared {
        fn add(&self, held: &Watched<usize>) {
            #[allow(unsafe_code, reason = "what the model is about")]
            // SAFETY: loom checks that nobody else is inside.
            held.with_mut(|value| unsafe { *value += 1 });
        }

        /// A visit that leaves the thing lent, unless the owner asks for it; whether it came to one.
        fn visit(&self) -> bool {
            let Some(held) = self.token.try_take() else { return false };
            let mut call = self.lease.enter();
            self.add(&held);
            if self.token.is_asked() {
                self.lease.end();
                call = true;
            } else {
                call |= self.lease.leave();
            }
            if held.give_back() {
                self.lease.end();
                call = true;
            }
            if call {
                self.call.ring();
            }
            true
        }

        /// The owner stands by until the lease is over, and adds once more. Its looks are not modelled as such: a look
        /// may come at any time.
        fn own(&self) {
            let mut seen = 0;
            loop {
                match self.lease.watch(&mut seen) {
                    Watch::Look => loom::thread::yield_now(),
                    Watch::Call => self.call.wait(),
                    Watch::Over | Watch::Lapsed => match self.token.ask() {
                        Asked::Mine(held) => {
                            self.add(&held);
                            held.give_back();
                            return;
                        }
                        Asked::Wait => self.call.wait(),
                        Asked::Dead => panic!("nobody has ended it"),
                    },
                }
            }
        }
    }

    /// Two visits and an owner that wants the thing: one at a time is inside, and an owner that waits for a call gets
    /// it, whenever the visitors leave. A lost call is a deadlock.
    #[test]
    fn an_owner_gets_back_what_visitors_leave() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Arc::new(Shared {
                token: Token::new(Watched::new(0)),
                lease: Lease::default(),
                call: Bell::default(),
            });
            let visitors = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || usize::from(shared.visit()))
            });
            shared.own();
            let visits: usize = visitors.map(|visitor| visitor.join().unwrap()).iter().sum();
            let Asked::Mine(held) = shared.token.ask() else { panic!("it is free") };
            #[allow(unsafe_code, reason = "what the model is about")]
            // SAFETY: as above.
            held.with(|value| assert_eq!(unsafe { *value }, 1 + visits));
        });
    }
}
