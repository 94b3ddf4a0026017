//! The processors, and which of them serve poll cores.
#![allow(unsafe_code, reason = "calls the kernel")]

use crate::abi::imports::{
    KeGetProcessorNumberFromIndex, KeQueryActiveProcessorCountEx, KeSetSystemGroupAffinityThread,
};
use crate::abi::*;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

/// Active processors of all groups.
pub(crate) fn count() -> u32 {
    // SAFETY: no condition.
    unsafe { KeQueryActiveProcessorCountEx(ALL_PROCESSOR_GROUPS) }.max(1)
}

/// Seats that are taken, a bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The seat of a poll core: a processor that serves no other one, as long as there are enough.
pub(crate) struct Seat(u32);

impl Seat {
    /// Takes the first free seat.
    ///
    /// # Errors
    /// `NDIS_STATUS_RESOURCES` where 64 are taken.
    pub(crate) fn take() -> Result<Self, NDIS_STATUS> {
        let next = |taken: u64| (taken != u64::MAX).then_some(taken | (taken + 1));
        let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        taken.map(|taken| Self(taken.trailing_ones())).map_err(|_| NDIS_STATUS_RESOURCES)
    }

    /// Its processor. The system's first one comes last: it has the most interrupts.
    fn index(&self) -> u32 {
        (self.0 + 1) % count()
    }

    /// Keeps the calling system thread on this processor. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn pin(&self) {
        let mut number = PROCESSOR_NUMBER::default();
        // SAFETY: a place for the number.
        if !unsafe { KeGetProcessorNumberFromIndex(self.index(), &mut number) }.is_success() {
            // It was taken out since it was counted: any processor will do.
            return;
        }
        let mut affinity = GROUP_AFFINITY {
            Mask: 1 << number.Number,
            Group: number.Group,
            ..GROUP_AFFINITY::default()
        };
        // SAFETY: the affinity lives during the call; the thread never goes back.
        unsafe { KeSetSystemGroupAffinityThread(&mut affinity, null_mut()) };
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << self.0), Ordering::AcqRel);
    }
}
