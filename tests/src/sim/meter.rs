//! What the provider allocates, apart from what the simulation does while the provider runs: a test
//! that has an allocator which counts lends its meter.

use std::cell::Cell;

/// Of one thread, since it began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Allocated {
    /// Allocations made.
    pub count: u64,
    /// Bytes that are not freed.
    pub bytes: i64,
}

/// Reads what the calling thread has allocated.
pub type Meter = fn() -> Allocated;

thread_local! {
    static METER: Cell<Option<Meter>> = const { Cell::new(None) };
    static APART: Cell<u64> = const { Cell::new(0) };
}

/// From here on this thread counts with `meter`.
pub(crate) fn count_with(meter: Option<Meter>) {
    METER.set(meter);
    APART.set(0);
}

fn count() -> u64 {
    METER.get().map_or(0, |meter| meter().count)
}

/// Does something inside the provider's turn that is the simulation's.
pub(crate) fn apart<R>(what: impl FnOnce() -> R) -> R {
    let before = count();
    let result = what();
    APART.set(APART.get() + (count() - before));
    result
}

/// Does something, and tells how many allocations were made that are not [`apart`].
pub(crate) fn counted<R>(what: impl FnOnce() -> R) -> (R, u64) {
    let (before, apart_before) = (count(), APART.get());
    let result = what();
    (result, count() - before - (APART.get() - apart_before))
}
