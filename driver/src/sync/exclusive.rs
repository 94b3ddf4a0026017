//! One caller at a time, by the consumer's promise and by force.

use super::modelled::AtomicBool;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

/// A value that one caller at a time may use, by the consumer's own promise. A consumer that breaks
/// the promise is turned away instead of racing.
///
/// It is also the sign that a call is inside: an object is not freed while it is entered.
#[derive(Debug)]
pub(crate) struct Exclusive<T> {
    entered: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `entered` admits one thread at a time to the value.
#[allow(unsafe_code, reason = "the flag makes the cell exclusive")]
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { entered: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless another call is using it.
    pub(crate) fn enter(&self) -> Option<Entered<'_, T>> {
        let first =
            self.entered.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // No guard is made for a caller turned away: it would free the place of the first.
        if first.is_err() { None } else { Some(Entered(self, PhantomData)) }
    }

    /// Whether a call is inside.
    pub(crate) fn is_entered(&self) -> bool {
        self.entered.load(Ordering::Acquire)
    }
}

/// Access to the value of an [`Exclusive`] until it is dropped.
pub(crate) struct Entered<'a, T>(&'a Exclusive<T>, PhantomData<&'a mut T>);

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only one guard exists at a time.
        unsafe { &*self.0.value.get() }
    }
}

#[allow(unsafe_code, reason = "the guard is the only access to the cell")]
impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one guard exists at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.0.entered.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_caller_is_turned_away() {
        let exclusive = Exclusive::new(1);
        let mut first = exclusive.enter().unwrap();
        *first += 1;
        assert!(exclusive.enter().is_none() && exclusive.is_entered());
        drop(first);
        assert_eq!(*exclusive.enter().unwrap(), 2);
    }
}
