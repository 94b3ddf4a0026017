//! What the provider allocates, apart from what the simulation does while the provider runs. It needs
//! a target whose allocator is [`Counting`](crate::alloc::Counting); without, everything counts 0.

use crate::alloc::made;
use std::cell::Cell;

thread_local! {
    static APART: Cell<usize> = const { Cell::new(0) };
}

/// Does something inside the provider's turn that is the simulation's.
pub(crate) fn apart<R>(what: impl FnOnce() -> R) -> R {
    let before = made();
    let result = what();
    APART.set(APART.get() + (made() - before));
    result
}

/// Does something, and tells how many allocations were made that are not [`apart`].
pub(crate) fn counted<R>(what: impl FnOnce() -> R) -> (R, usize) {
    let (before, apart_before) = (made(), APART.get());
    let result = what();
    (result, made() - before - (APART.get() - apart_before))
}
