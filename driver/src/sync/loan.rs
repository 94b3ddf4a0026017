//! A value that one thread uses turn by turn, and another borrows between two turns.

use super::modelled::{AtomicU8, spin_loop};
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

/// A value that a core holds in each of its turns, and that the desk borrows between two of them.
///
/// The core never waits: it has a turn without the value while the desk has it, or wants it. So the desk waits for the
/// end of one turn at most, however fast the next would follow. It waits by spinning, and has to be on another processor
/// than the core. While nobody borrows, the core alone writes the line of the state.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Loan<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

/// The core or the desk has it.
const HELD: u8 = 1;
/// The desk has it or wants it: the core lets it lie.
const WANTED: u8 = 2;

// SAFETY: `HELD` admits one thread at a time to the value.
#[allow(unsafe_code, reason = "the state makes the cell exclusive")]
unsafe impl<T: Send> Sync for Loan<T> {}

impl<T> Loan<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { state: AtomicU8::new(0), value: UnsafeCell::new(value) }
    }

    /// For the core, at the begin of a turn: the value, unless the desk has it or wants it.
    #[inline]
    pub(crate) fn try_hold(&self) -> Option<Hold<&Self, T>> {
        let free = self.state.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed);
        // No guard is made for a core that is refused: it would end what the desk has.
        if free.is_err() { None } else { Some(Hold { loan: self, ends: HELD, value: PhantomData }) }
    }

    /// For the desk, one thread: the value, at the end of the turn that runs.
    pub(crate) fn borrow(self: Arc<Self>) -> Borrowed<T> {
        while self.state.fetch_or(HELD | WANTED, Ordering::Acquire) & HELD != 0 {
            while self.state.load(Ordering::Relaxed) & HELD != 0 {
                spin_loop();
            }
        }
        Hold { loan: self, ends: HELD | WANTED, value: PhantomData }
    }
}

/// The value of a [`Loan`], until this is dropped. After a panic too: the core that had it takes no more turns, and the
/// desk goes on with what it left.
pub(crate) struct Hold<L: Deref<Target = Loan<T>>, T> {
    loan: L,
    /// The flags that go with it. A core leaves the desk's wish.
    ends: u8,
    value: PhantomData<T>,
}

/// A value that the desk has borrowed.
pub(crate) type Borrowed<T> = Hold<Arc<Loan<T>>, T>;

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<L: Deref<Target = Loan<T>>, T> Deref for Hold<L, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: only one guard exists at a time.
        unsafe { &*self.loan.value.get() }
    }
}

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<L: Deref<Target = Loan<T>>, T> DerefMut for Hold<L, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one guard exists at a time, and it is borrowed mutably.
        unsafe { &mut *self.loan.value.get() }
    }
}

impl<L: Deref<Target = Loan<T>>, T> Drop for Hold<L, T> {
    #[inline]
    fn drop(&mut self) {
        self.loan.state.fetch_and(!self.ends, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_core_lets_a_borrowed_value_lie() {
        let loan = Arc::new(Loan::new(1));
        let mut turn = loan.try_hold().unwrap();
        *turn += 1;
        assert!(loan.try_hold().is_none(), "a turn runs");
        drop(turn);
        let mut desk = Arc::clone(&loan).borrow();
        *desk += 1;
        assert!(loan.try_hold().is_none(), "the desk has it");
        drop(desk);
        assert_eq!(*loan.try_hold().unwrap(), 3);
    }

    /// The wish that the desk has announced outlives the turn that it waits for.
    #[test]
    fn a_core_lets_a_wanted_value_lie() {
        let loan = Arc::new(Loan::new(()));
        let turn = loan.try_hold().unwrap();
        loan.state.fetch_or(WANTED, Ordering::Relaxed);
        drop(turn);
        assert!(loan.try_hold().is_none());
        drop(Arc::clone(&loan).borrow());
        assert!(loan.try_hold().is_some());
    }

    #[test]
    fn a_panic_gives_the_value_back() {
        let loan = Arc::new(Loan::new(1));
        let turn = std::panic::AssertUnwindSafe(|| {
            *loan.try_hold().unwrap() = 2;
            panic!("in a turn");
        });
        assert!(std::panic::catch_unwind(turn).is_err());
        assert_eq!(*Arc::clone(&loan).borrow(), 2);
    }

    /// A core that takes turn after turn, and a desk that comes many times.
    #[test]
    fn a_busy_core_does_not_starve_the_desk() {
        let (loan, over) = (Arc::new(Loan::new(0)), core::sync::atomic::AtomicBool::new(false));
        let times = if cfg!(miri) { 20 } else { 2000 };
        let turns = std::thread::scope(|scope| {
            let core = scope.spawn(|| {
                let mut turns = 0;
                while !over.load(Ordering::Relaxed) {
                    if let Some(mut turn) = loan.try_hold() {
                        *turn += 1;
                        turns += 1;
                    }
                }
                turns
            });
            for _ in 0..times {
                *Arc::clone(&loan).borrow() += 1;
            }
            over.store(true, Ordering::Relaxed);
            core.join().unwrap()
        });
        assert_eq!(*Arc::clone(&loan).borrow(), turns + times);
    }
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::*;
    use loom::cell::UnsafeCell as Watched;

    fn add(held: &Watched<usize>) -> usize {
        #[allow(unsafe_code, reason = "what the model is about")]
        // SAFETY: loom checks that nobody else is inside.
        held.with_mut(|value| unsafe {
            *value += 1;
            *value
        })
    }

    /// A core that takes turn after turn, and a desk that comes twice: one at a time is inside and sees what the other
    /// left, and each comes to its end.
    #[test]
    fn the_desk_gets_what_a_core_holds_turn_by_turn() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let loan = Arc::new(Loan::new(Watched::new(0)));
            let its_loan = Arc::clone(&loan);
            let core = loom::thread::spawn(move || {
                let turns =
                    (0..3).filter(|_| its_loan.try_hold().is_some_and(|turn| add(&turn) > 0));
                turns.count()
            });
            let first = add(&Arc::clone(&loan).borrow());
            assert!(add(&Arc::clone(&loan).borrow()) > first);
            let turns = core.join().unwrap();
            assert_eq!(add(&Arc::clone(&loan).borrow()), turns + 3);
            assert!(loan.try_hold().is_some());
        });
    }
}
