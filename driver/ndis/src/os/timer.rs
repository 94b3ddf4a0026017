//! A timer that is exact to a millisecond.
#![allow(unsafe_code, reason = "calls the kernel")]

use crate::abi::imports::{ExAllocateTimer, ExDeleteTimer, ExSetTimer};
use crate::abi::*;
use core::ptr::null_mut;
use core::time::Duration;

/// A high-resolution timer. It is never early, and about a millisecond late at most; an ordinary one is 15 ms off. The
/// system's clock runs faster for it only shortly before it expires
/// ([page](https://learn.microsoft.com/windows-hardware/drivers/kernel/high-resolution-timers)).
pub(crate) struct Timer(PEX_TIMER);

// SAFETY: the kernel serializes every use of a timer.
unsafe impl Send for Timer {}

impl Timer {
    /// A timer that calls `routine` with `context`, which outlives it. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES` where the pool refuses it.
    pub(super) fn new(routine: EXT_CALLBACK, context: PVOID) -> Result<Self, NTSTATUS> {
        // SAFETY: the routine gets this context.
        let timer = unsafe { ExAllocateTimer(routine, context, EX_TIMER_HIGH_RESOLUTION) };
        if timer.is_null() { Err(STATUS_INSUFFICIENT_RESOURCES) } else { Ok(Self(timer)) }
    }

    /// Expires once, after `wait`; what was set before does not count any more. IRQL <= DISPATCH_LEVEL.
    pub(super) fn set(&self, wait: Duration) {
        // A negative time is relative, in units of 100 ns. It is never zero, which would be an absolute
        // time, and a bug check.
        let due = -i64::try_from(wait.as_nanos().div_ceil(100)).unwrap_or(i64::MAX).max(1);
        // SAFETY: a timer that is not deleted.
        unsafe { ExSetTimer(self.0, due, 0, null_mut()) };
    }
}

impl Drop for Timer {
    /// Waits for the routine, if it runs. PASSIVE_LEVEL.
    fn drop(&mut self) {
        // SAFETY: a timer that is not deleted, and is not set again.
        unsafe { ExDeleteTimer(self.0, TRUE, TRUE, null_mut()) };
    }
}
