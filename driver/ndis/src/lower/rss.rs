//! The processors of the NIC below: those of its receive-side scaling (RSS), as an administrator and its NUMA node have them. Where
//! the NIC's own TCP/IP is unbound, which would set its scaling, the driver does.
#![allow(unsafe_code, reason = "reads what NDIS writes")]

use super::binding::Binding;
use crate::abi::imports::NdisGetRssProcessorInformation;
use crate::abi::*;
use crate::os::entropy;
use crate::os::processor::Processor;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

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

/// `NDIS_RECEIVE_SCALE_PARAMETERS` of revision 2, with its table and its key.
#[repr(C)]
struct ScaleParameters {
    header: NDIS_OBJECT_HEADER,
    flags: u16,
    base_processor: u16,
    hash: u32,
    table_len: u16,
    table_at: u32,
    key_len: u16,
    key_at: u32,
    /// Offset, number and size of masks of processors, of which there are none.
    masks: [u32; 3],
    table: [PROCESSOR_NUMBER; TABLE_LEN],
    key: [u8; KEY_LEN],
}

impl ScaleParameters {
    /// Through the last member of the structure.
    const LEN: usize = 0x28;

    fn new(flags: u16, hash: u32) -> Self {
        Self {
            header: header(
                NDIS_OBJECT_TYPE_RSS_PARAMETERS,
                NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_2,
                Self::LEN,
            ),
            flags,
            base_processor: 0,
            hash,
            table_len: size_of::<[PROCESSOR_NUMBER; TABLE_LEN]>() as u16,
            table_at: offset_of!(Self, table) as u32,
            key_len: KEY_LEN as u16,
            key_at: offset_of!(Self, key) as u32,
            masks: [0; 3],
            table: [PROCESSOR_NUMBER::default(); TABLE_LEN],
            key: [0; KEY_LEN],
        }
    }
}

const _: () = {
    assert!(offset_of!(ScaleParameters, hash) == 8);
    assert!(offset_of!(ScaleParameters, table_at) == 0x10);
    assert!(offset_of!(ScaleParameters, key_at) == 0x18);
    assert!(offset_of!(ScaleParameters, masks) == 0x1C);
    assert!(offset_of!(ScaleParameters, table) == ScaleParameters::LEN);
};

impl Binding {
    /// Has the NIC spread frames over its processors, the nearest first, if it can: those of TCP by their flows, and RoCE's by theirs
    /// where it knows UDP. PASSIVE_LEVEL. See Microsoft's page of
    /// [`OID_GEN_RECEIVE_SCALE_PARAMETERS`](https://learn.microsoft.com/windows-hardware/drivers/network/oid-gen-receive-scale-parameters).
    pub(crate) fn spread(&self, capabilities: NDIS_RECEIVE_SCALE_CAPABILITIES) {
        let mut distances = self.distances();
        let hash = hash_of(capabilities.CapabilitiesFlags);
        let queues = distances.len().min(capabilities.NumberOfReceiveQueues as usize);
        if queues < 2 || hash == 0 {
            return;
        }
        let mut parameters = ScaleParameters::new(0, hash | NdisHashFunctionToeplitz);
        let queues = queues.min(TABLE_LEN);
        for place in 0..queues {
            let nearest = distances.iter().enumerate().min_by_key(|(_, (_, distance))| *distance);
            let Some((at, _)) = nearest else { break };
            let (processor, _) = distances.swap_remove(at);
            parameters.table.iter_mut().skip(place).step_by(queues).for_each(|entry| {
                *entry = processor.number();
            });
        }
        // A stranger who knows the key can choose flows that all meet one processor.
        if entropy(&mut parameters.key).is_ok() && self.scale(&mut parameters).is_ok() {
            self.spreads.store(true, Ordering::Relaxed);
        }
    }

    /// Ends what [`spread`](Self::spread) began. PASSIVE_LEVEL.
    pub(super) fn gather(&self) {
        if self.spreads.swap(false, Ordering::Relaxed) {
            let _ = self.scale(&mut ScaleParameters::new(NDIS_RSS_PARAM_FLAG_DISABLE_RSS, 0));
        }
    }

    fn scale(&self, parameters: &mut ScaleParameters) -> Result<(), NDIS_STATUS> {
        let len = size_of::<ScaleParameters>() as u32;
        self.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, core::ptr::from_mut(parameters).cast(), len)
    }
}

/// The scaling that a NIC can do; none where it has none.
///
/// # Safety
/// `capabilities` is null, or `NDIS_RECEIVE_SCALE_CAPABILITIES` of the size that its header says.
pub(super) unsafe fn scaling_of(capabilities: PVOID) -> Option<NDIS_RECEIVE_SCALE_CAPABILITIES> {
    // SAFETY: the caller's promise; each revision begins with the header.
    let header = unsafe { capabilities.cast::<NDIS_OBJECT_HEADER>().as_ref() }?;
    if usize::from(header.Size) < size_of::<NDIS_RECEIVE_SCALE_CAPABILITIES>() {
        return None;
    }
    // SAFETY: as above, and long enough.
    Some(unsafe { capabilities.cast::<NDIS_RECEIVE_SCALE_CAPABILITIES>().read_unaligned() })
}

/// The values that frames are told apart by, from what a NIC can: a NIC that knows TCP knows IP.
fn hash_of(flags: ULONG) -> ULONG {
    [
        (NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4, NDIS_HASH_IPV4 | NDIS_HASH_TCP_IPV4),
        (NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6, NDIS_HASH_IPV6 | NDIS_HASH_TCP_IPV6),
        (NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV4, NDIS_HASH_UDP_IPV4),
        (NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6, NDIS_HASH_UDP_IPV6),
    ]
    .into_iter()
    .filter(|(can, _)| flags & can != 0)
    .fold(0, |all, (_, hash)| all | hash)
}

/// Entries of a table, for which every NIC has room.
const TABLE_LEN: usize = 64;
/// Bytes of a key of Toeplitz' function.
const KEY_LEN: usize = 40;

const DISTANCE_AT: usize = offset_of!(NDIS_RSS_PROCESSOR, PreferenceIndex);
/// The members that are read. Those behind may be missing.
const ENTRY_LEN: usize = DISTANCE_AT + size_of::<u16>();
