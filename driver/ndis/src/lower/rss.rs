//! The processors of the NIC below: those of its receive-side scaling (RSS), as an administrator and its NUMA node have them.
#![allow(unsafe_code, reason = "reads what NDIS writes")]

use super::binding::Binding;
use crate::abi::imports::NdisGetRssProcessorInformation;
use crate::abi::*;
use crate::os::processor::Processor;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ptr::null_mut;

impl Binding {
    /// The processors of the NIC, each with its distance from that, which counts among these only. None where NDIS does not tell them,
    /// or pool is short. PASSIVE_LEVEL. See Microsoft's page of
    /// [`NdisGetRssProcessorInformation`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndis/nf-ndis-ndisgetrssprocessorinformation).
    pub(crate) fn distances(&self) -> Vec<(Processor, u16)> {
        self.read_distances().unwrap_or_default()
    }

    fn read_distances(&self) -> Option<Vec<(Processor, u16)>> {
        let mut len = 0;
        // SAFETY: an open binding; without a place NDIS tells the length alone.
        let _ = unsafe { NdisGetRssProcessorInformation(self.handle(), null_mut(), &mut len) };
        let mut words = Vec::<u64>::new();
        words.try_reserve_exact(len.div_ceil(size_of::<u64>())).ok()?;
        words.resize(len.div_ceil(size_of::<u64>()), 0);
        let start = words.as_mut_ptr();
        // SAFETY: an open binding, and a place of that length.
        let told = unsafe { NdisGetRssProcessorInformation(self.handle(), start.cast(), &mut len) };
        let len = len.min(words.len() * size_of::<u64>());
        if !told.is_success() || len < size_of::<NDIS_RSS_PROCESSOR_INFO>() {
            return None;
        }
        // SAFETY: long enough, and aligned.
        let info = unsafe { start.cast::<NDIS_RSS_PROCESSOR_INFO>().read() };
        let (begin, step) =
            (info.RssProcessorArrayOffset as usize, info.RssProcessorEntrySize as usize);
        let at = |entry: u32| begin + entry as usize * step;
        let entries = (0..info.RssProcessorCount).take_while(|entry| at(*entry) + ENTRY_LEN <= len);
        let mut distances = Vec::new();
        distances.try_reserve_exact(entries.clone().count()).ok()?;
        distances.extend(entries.map(|entry| {
            // SAFETY: inside of what NDIS has written.
            let place = unsafe { start.cast::<u8>().add(at(entry)) };
            // SAFETY: as above.
            let number = unsafe { place.cast::<PROCESSOR_NUMBER>().read_unaligned() };
            // SAFETY: as above.
            let distance = unsafe { place.add(DISTANCE_AT) };
            // SAFETY: as above.
            let distance = unsafe { distance.cast::<u16>().read_unaligned() };
            (Processor::new(number), distance)
        }));
        Some(distances)
    }
}

const DISTANCE_AT: usize = offset_of!(NDIS_RSS_PROCESSOR, PreferenceIndex);
/// The members that are read. Those behind may be missing.
const ENTRY_LEN: usize = DISTANCE_AT + size_of::<u16>();
