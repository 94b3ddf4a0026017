//! IRQL, kept for each thread.

use std::cell::Cell;

pub const PASSIVE: u8 = 0;
pub const APC: u8 = 1;
pub const DISPATCH: u8 = 2;
pub const HIGH: u8 = 15;

thread_local! {
    static IRQL: Cell<u8> = const { Cell::new(PASSIVE) };
}

pub fn current() -> u8 {
    IRQL.get()
}

pub fn set(irql: u8) -> u8 {
    IRQL.replace(irql)
}

/// Reports a call above the IRQL that its page allows.
pub fn at_most(limit: u8, function: &str) {
    if current() > limit {
        breach!("{function} at IRQL {}, allowed up to {limit}", current());
    }
}

/// Reports a call whose answer means nothing below this IRQL.
pub fn at_least(limit: u8, function: &str) {
    if current() < limit {
        breach!("{function} at IRQL {}: its answer may be wrong before it is used", current());
    }
}

/// Runs `f` at an IRQL, and reports a callee that does not return at it.
pub fn run_at<R>(irql: u8, what: &'static str, f: impl FnOnce() -> R) -> R {
    let _rest = crate::jitter::Rest::here();
    let before = set(irql);
    let result = crate::stack::inside(what, f);
    if current() != irql {
        breach!("{what} was called at IRQL {irql} and returned at {}", current());
    }
    set(before);
    result
}

exports! { "ntoskrnl.exe":
    fn KeGetCurrentIrql() -> u8 { current() }
    fn KfRaiseIrql(new: u8) -> u8 {
        if new < current() {
            breach!("KfRaiseIrql lowers {} to {new}", current());
        }
        set(new)
    }
    fn KeLowerIrql(new: u8) {
        if new > current() {
            breach!("KeLowerIrql raises {} to {new}", current());
        }
        set(new);
    }
}
