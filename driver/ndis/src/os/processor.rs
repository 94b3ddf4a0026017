//! The processors, and which of them serve poll cores.
#![allow(unsafe_code, reason = "calls the kernel")]

use super::sync::SpinLock;
use crate::abi::imports::{
    KeGetProcessorNumberFromIndex, KeQueryActiveProcessorCountEx, KeSetImportanceDpc,
    KeSetSystemGroupAffinityThread, KeSetTargetProcessorDpcEx,
};
use crate::abi::*;
use crate::seats::{Seats, nearest, nearest_first};
use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use rocev2::ids::MAX_CORES;

/// Active processors of all groups.
pub(crate) fn count() -> u32 {
    // SAFETY: no condition.
    unsafe { KeQueryActiveProcessorCountEx(ALL_PROCESSOR_GROUPS) }.max(1)
}

static SEATS: SpinLock<Seats> = SpinLock::new(Seats::new());

/// A processor: its group, and its number in that in the lowest byte.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Processor(u32);

/// The seats of an adapter's poll cores: for each a processor that serves no other one, as long as there are enough.
pub(crate) struct Seating {
    /// In the order of the cores.
    processors: Vec<AtomicU32>,
    /// The places of these processors, as bits.
    places: SpinLock<u64>,
}

impl Seating {
    /// Takes seats for so many cores, as far as there are processors. PASSIVE_LEVEL.
    ///
    /// Which NIC it will be, and so which processors are near that, is not known yet: an adapter starts before its NIC is bound.
    pub(crate) fn take(cores: usize) -> Self {
        let count = count();
        let places = nearest_first(cores, &[None; MAX_CORES][..MAX_CORES.min(count as usize)]);
        let taken = SEATS.lock().take(cores, &places);
        let processors = processors_of(taken, count).map(|own| AtomicU32::new(own.0)).collect();
        Self { processors, places: SpinLock::new(taken) }
    }

    /// Moves the cores to the processors that are nearest to the NIC. Returns whether one has moved. PASSIVE_LEVEL, by one thread at a
    /// time.
    pub(crate) fn move_near(&self, distances: &[(Processor, u16)]) -> bool {
        if distances.is_empty() {
            return false;
        }
        let count = count();
        let distance_of = |own| distances.iter().find(|(near, _)| *near == own).map(|near| near.1);
        let all = processors_of(u64::MAX, count).map(distance_of);
        let all: heapless::Vec<_, MAX_CORES> = all.take(count as usize).collect();
        let places = nearest_first(self.len(), &all);
        let before = *self.places.lock();
        let taken = {
            let mut seats = SEATS.lock();
            seats.leave(before);
            seats.take(self.len(), &places)
        };
        *self.places.lock() = taken;
        for (processor, own) in self.processors.iter().zip(processors_of(taken, count)) {
            processor.store(own.0, Ordering::Relaxed);
        }
        taken != before
    }

    /// Gives the seats back, once.
    pub(crate) fn leave(&self) {
        let taken = core::mem::take(&mut *self.places.lock());
        SEATS.lock().leave(taken);
    }

    /// The number of cores.
    pub(crate) const fn len(&self) -> usize {
        self.processors.len()
    }

    /// The processor of a core.
    pub(crate) fn processor(&self, core: usize) -> Processor {
        Processor(self.processors[core].load(Ordering::Relaxed))
    }

    /// The core that is nearest to these processors; `None` where any is as good as another.
    pub(crate) fn core_near(&self, group: u16, mask: u64) -> Option<usize> {
        let own = (0..self.len()).map(|core| self.processor(core).group_and_number());
        nearest(&own.collect::<heapless::Vec<_, MAX_CORES>>(), group, mask)
    }
}

impl Drop for Seating {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Processor {
    pub(crate) const fn new(number: PROCESSOR_NUMBER) -> Self {
        Self((number.Group as u32) << 8 | number.Number as u32)
    }

    pub(crate) const fn number(self) -> PROCESSOR_NUMBER {
        let (group, number) = self.group_and_number();
        PROCESSOR_NUMBER { Group: group, Number: number, Reserved: 0 }
    }

    const fn group_and_number(self) -> (u16, u8) {
        ((self.0 >> 8) as u16, self.0 as u8)
    }

    /// Keeps the calling system thread on this processor. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn pin(self) {
        let (group, number) = self.group_and_number();
        let mut affinity =
            GROUP_AFFINITY { Mask: 1 << number, Group: group, ..GROUP_AFFINITY::default() };
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
    pub(crate) unsafe fn target(self, dpc: *mut KDPC) -> Result<(), NTSTATUS> {
        let mut number = self.number();
        // SAFETY: the caller's promise; the number lives during the call.
        unsafe { KeSetTargetProcessorDpcEx(dpc, &mut number) }.ok()?;
        // SAFETY: the caller's promise.
        unsafe { KeSetImportanceDpc(dpc, MediumHighImportance) };
        Ok(())
    }
}

/// The processors of places, of which there are `count`. The system's first one comes last: it has the most interrupts.
fn processors_of(places: u64, count: u32) -> impl Iterator<Item = Processor> {
    let places = (0..u64::BITS).filter(move |place| places >> place & 1 != 0);
    places.map(move |place| Processor::new(number((place + 1) % count)))
}

/// An active processor; the first one, if it was taken out since it was counted.
fn number(index: ULONG) -> PROCESSOR_NUMBER {
    let mut number = PROCESSOR_NUMBER::default();
    // SAFETY: a place for the number.
    let found = unsafe { KeGetProcessorNumberFromIndex(index, &mut number) };
    if found.is_success() { number } else { PROCESSOR_NUMBER::default() }
}
