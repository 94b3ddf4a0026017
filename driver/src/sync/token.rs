//! The right to run what one thread at a time may run, where one thread has it as its duty and others may come to
//! its help.

use super::modelled::AtomicU8;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

/// A value for the thread that holds its token. A helper takes the token where it is free, and never waits; the owner
/// asks for it, and gets it before any helper does.
#[derive(Debug)]
pub(crate) struct Token<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
}

/// Nobody has it.
const FREE: u8 = 0;
/// The owner or a helper has it.
const HELD: u8 = 1;
/// A helper has it, and the owner waits for it.
const ASKED: u8 = 2;
/// It lies there for the owner alone.
const KEPT: u8 = 3;
/// A thread has panicked with it, or has given it up for ever.
const DEAD: u8 = 4;

// SAFETY: `state` admits one thread at a time to the value.
#[allow(unsafe_code, reason = "the token makes the cell exclusive")]
unsafe impl<T: Send> Sync for Token<T> {}

/// The answer to an owner that asks.
pub(crate) enum Asked<'a, T> {
    /// It has the token.
    Mine(Held<'a, T>),
    /// A helper has it, and [`Held::give_back`] tells that helper to wake the owner.
    Wait,
    /// Nobody has it any more.
    Dead,
}

impl<T> Token<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { state: AtomicU8::new(FREE), value: UnsafeCell::new(Some(value)) }
    }

    /// For a helper: the token, if it is free.
    pub(crate) fn try_take(&self) -> Option<Held<'_, T>> {
        // A look first: of a token that its owner has a helper reads the cache line only.
        let free = self.state.load(Ordering::Relaxed) == FREE && self.change(FREE, HELD);
        free.then(|| Held { token: self, value: PhantomData })
    }

    /// For the owner: the token, or the promise that it will be kept for it.
    pub(crate) fn ask(&self) -> Asked<'_, T> {
        loop {
            match self.state.load(Ordering::Relaxed) {
                HELD if self.change(HELD, ASKED) => return Asked::Wait,
                ASKED => return Asked::Wait,
                DEAD => return Asked::Dead,
                state @ (FREE | KEPT) if self.change(state, HELD) => {
                    return Asked::Mine(Held { token: self, value: PhantomData });
                }
                // A helper has taken it or given it back meanwhile.
                _ => {}
            }
        }
    }

    /// Whether the owner waits for it.
    pub(crate) fn is_asked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ASKED
    }

    /// Whether a helper may take it.
    pub(crate) fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    /// Whether nobody has it any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DEAD
    }

    /// For the owner, at its end: drops the value, if the token is [`DEAD`].
    #[allow(unsafe_code, reason = "the owner of a dead token has the cell")]
    pub(crate) fn bury(&self) {
        if self.state.load(Ordering::Acquire) == DEAD {
            // SAFETY: nobody gets a dead token, and there is one owner.
            drop(unsafe { &mut *self.value.get() }.take());
        }
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// The value, as long as this thread holds its token. Dropped by a panic, the token is dead: half a turn is no state to
/// go on from.
pub(crate) struct Held<'a, T> {
    token: &'a Token<T>,
    /// It is the value's only borrow, so it may be shared and sent as that.
    value: PhantomData<&'a mut T>,
}

impl<T> Held<'_, T> {
    /// Gives the token back. True: the owner waits for it, and has to be woken.
    pub(crate) fn give_back(self) -> bool {
        let state = &self.token.state;
        core::mem::forget(self);
        if state.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return false;
        }
        state.store(KEPT, Ordering::Release);
        true
    }

    /// Gives it up for ever.
    pub(crate) fn end(self) {
        drop(self);
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.token.state.store(DEAD, Ordering::Release);
    }
}

#[allow(unsafe_code, reason = "the token is the only access to the cell")]
impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: one thread has the token.
        let value = unsafe { &*self.token.value.get() };
        value.as_ref().expect("only a dead token has no value")
    }
}

#[allow(unsafe_code, reason = "the token is the only access to the cell")]
impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: one thread has the token, and borrows it mutably.
        let value = unsafe { &mut *self.token.value.get() };
        value.as_mut().expect("only a dead token has no value")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_helper_gets_a_free_token_only() {
        let token = Token::new(1);
        let mut helper = token.try_take().unwrap();
        *helper += 1;
        assert!(token.try_take().is_none());
        assert!(!helper.give_back());
        let Asked::Mine(owner) = token.ask() else { panic!("it is free") };
        assert_eq!(*owner, 2);
        assert!(token.try_take().is_none() && !owner.give_back());
    }

    #[test]
    fn what_the_owner_asks_for_is_kept_for_it() {
        let token = Token::new(());
        let helper = token.try_take().unwrap();
        assert!(matches!(token.ask(), Asked::Wait));
        assert!(helper.give_back() && token.try_take().is_none());
        assert!(matches!(token.ask(), Asked::Mine(_)));
    }

    #[test]
    fn a_panic_leaves_nothing_to_go_on_from() {
        let token = Token::new(alloc::sync::Arc::new(()));
        let held = alloc::sync::Arc::clone(&token.try_take().unwrap());
        assert!(matches!(token.ask(), Asked::Dead) && token.try_take().is_none());
        assert_eq!(alloc::sync::Arc::strong_count(&held), 2);
        token.bury();
        assert_eq!(alloc::sync::Arc::strong_count(&held), 1);
    }
}

#[cfg(all(loom, test))]
mod loom_model {
    use super::*;
    use crate::sync::loom_model::Bell;
    use alloc::sync::Arc;
    use loom::cell::UnsafeCell as Watched;

    fn add(held: &Held<'_, Watched<usize>>) {
        #[allow(unsafe_code, reason = "what the model is about")]
        // SAFETY: loom checks that nobody else is inside.
        held.with_mut(|value| unsafe { *value += 1 });
    }

    /// Two helpers and the owner: one at a time is inside and sees what the others left, and an owner that waits is
    /// woken.
    #[test]
    fn an_owner_that_waits_gets_its_token() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Arc::new((Token::new(Watched::new(0)), Bell::default()));
            let helpers = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let (token, bell) = &*shared;
                    let Some(held) = token.try_take() else { return 0 };
                    add(&held);
                    if held.give_back() {
                        bell.ring();
                    }
                    1
                })
            });
            let (token, bell) = &*shared;
            let held = loop {
                match token.ask() {
                    Asked::Mine(held) => break held,
                    Asked::Wait => bell.wait(),
                    Asked::Dead => panic!("nobody has ended it"),
                }
            };
            add(&held);
            held.give_back();
            let helped: usize = helpers.map(|helper| helper.join().unwrap()).iter().sum();
            let Asked::Mine(held) = token.ask() else { panic!("it is free") };
            #[allow(unsafe_code, reason = "what the model is about")]
            // SAFETY: as above.
            held.with(|value| assert_eq!(unsafe { *value }, 1 + helped));
        });
    }
}
