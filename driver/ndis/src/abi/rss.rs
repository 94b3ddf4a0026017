//! Receive-side scaling (RSS). x64 sizes.

use super::*;

/// The processors that receive-side scaling uses for a NIC, which follow at an offset. Later revisions have more members.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_RSS_PROCESSOR_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: ULONG,
    pub RssBaseProcessor: PROCESSOR_NUMBER,
    pub MaxNumRssProcessors: ULONG,
    pub PreferredNumaNode: USHORT,
    pub RssProcessorArrayOffset: ULONG,
    pub RssProcessorCount: ULONG,
    pub RssProcessorEntrySize: ULONG,
}
layout!(NDIS_RSS_PROCESSOR_INFO, 0x20 {
    Flags: 4, RssBaseProcessor: 8, MaxNumRssProcessors: 0xC, PreferredNumaNode: 0x10,
    RssProcessorArrayOffset: 0x14, RssProcessorCount: 0x18, RssProcessorEntrySize: 0x1C,
});

/// One of the processors: the lower its index, the nearer it is to the NIC.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_RSS_PROCESSOR {
    pub ProcNum: PROCESSOR_NUMBER,
    pub PreferenceIndex: USHORT,
    pub Reserved: USHORT,
}
layout!(NDIS_RSS_PROCESSOR, 8 { ProcNum: 0, PreferenceIndex: 4, Reserved: 6 });

/// The abilities of a NIC's receive-side scaling. Later revisions have more members.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_RECEIVE_SCALE_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub CapabilitiesFlags: ULONG,
    pub NumberOfInterruptMessages: ULONG,
    pub NumberOfReceiveQueues: ULONG,
}
layout!(NDIS_RECEIVE_SCALE_CAPABILITIES, 0x10 {
    CapabilitiesFlags: 4, NumberOfInterruptMessages: 8, NumberOfReceiveQueues: 0xC,
});
pub const NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4: ULONG = 0x100;
pub const NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6: ULONG = 0x200;
pub const NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV4: ULONG = 0x800;
pub const NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6: ULONG = 0x1000;

pub const OID_GEN_RECEIVE_SCALE_PARAMETERS: NDIS_OID = 0x0001_0204;
pub const NDIS_OBJECT_TYPE_RSS_PARAMETERS: u8 = 0x89;
/// The first whose table has processors with their groups.
pub const NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_2: u8 = 2;
pub const NDIS_RSS_PARAM_FLAG_DISABLE_RSS: USHORT = 0x10;
pub const NdisHashFunctionToeplitz: ULONG = 1;
pub const NDIS_HASH_IPV4: ULONG = 0x100;
pub const NDIS_HASH_TCP_IPV4: ULONG = 0x200;
pub const NDIS_HASH_IPV6: ULONG = 0x400;
pub const NDIS_HASH_TCP_IPV6: ULONG = 0x1000;
pub const NDIS_HASH_UDP_IPV4: ULONG = 0x4000;
pub const NDIS_HASH_UDP_IPV6: ULONG = 0x8000;
