//! The processors, and which of them serve poll cores.
#![allow(unsafe_code, reason = "calls the kernel")]

use super::sync::SpinLock;
use crate::abi::imports::{
    KeGetProcessorNumberFromIndex, KeQueryActiveProcessorCountEx, KeSetImportanceDpc,
    KeSetSystemGroupAffinityThread, KeSetTargetProcessorDpcEx,
};
use crate::abi::*;
use crate::seats::Seats;
use alloc::vec::Vec;
use core::ptr::null_mut;

/// Active processors of all groups.
pub(crate) fn count() -> u32 {
    // SAFETY: no condition.
    unsafe { KeQueryActiveProcessorCountEx(ALL_PROCESSOR_GROUPS) }.max(1)
}

static SEATS: SpinLock<Seats> = SpinLock::new(Seats::new());

/// The seat of a poll core: a processor that serves no other one, as long as there are enough.
pub(crate) struct Seat {
    place: u32,
    processor: PROCESSOR_NUMBER,
}

impl Seat {
    /// Takes seats for so many cores of an adapter, as far as there are processors. PASSIVE_LEVEL.
    ///
    /// Which NIC it will be, and so which processors are near that, is not known yet: an adapter starts before its NIC is bound.
    pub(crate) fn take(cores: usize) -> Vec<Self> {
        let count = count();
        let taken = SEATS.lock().take(cores, count as usize);
        // The system's first processor comes last: it has the most interrupts.
        let seat = |place| Self { place, processor: number((place + 1) % count) };
        (0..u64::BITS).filter(|place| taken >> place & 1 != 0).map(seat).collect()
    }

    /// The group of its processor, and the number in that.
    pub(crate) const fn processor(&self) -> (u16, u8) {
        (self.processor.Group, self.processor.Number)
    }

    /// Keeps the calling system thread on this processor. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn pin(&self) {
        let mut affinity = GROUP_AFFINITY {
            Mask: 1 << self.processor.Number,
            Group: self.processor.Group,
            ..GROUP_AFFINITY::default()
        };
        // SAFETY: the affinity lives during the call; the thread never goes back.
        unsafe { KeSetSystemGroupAffinityThread(&mut affinity, null_mut()) };
    }

    /// Has a DPC run on this processor, and at once although another one queues it
    /// ([page](https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/nf-wdm-kesetimportancedpc)).
    ///
    /// # Errors
    /// The kernel's, where there is no such processor any more.
    ///
    /// # Safety
    /// `dpc` is initialized, and not queued.
    pub(crate) unsafe fn target(&self, dpc: *mut KDPC) -> Result<(), NTSTATUS> {
        let mut number = self.processor;
        // SAFETY: the caller's promise; the number lives during the call.
        unsafe { KeSetTargetProcessorDpcEx(dpc, &mut number) }.ok()?;
        // SAFETY: the caller's promise.
        unsafe { KeSetImportanceDpc(dpc, MediumHighImportance) };
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.lock().leave(self.place as usize);
    }
}

/// An active processor; the first one, if it was taken out since it was counted.
fn number(index: ULONG) -> PROCESSOR_NUMBER {
    let mut number = PROCESSOR_NUMBER::default();
    // SAFETY: a place for the number.
    let found = unsafe { KeGetProcessorNumberFromIndex(index, &mut number) };
    if found.is_success() { number } else { PROCESSOR_NUMBER::default() }
}
