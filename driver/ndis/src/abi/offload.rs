//! The offloads of a NIC, as far as they are read: NDIS 6.83 and later. x64 sizes.

use super::*;

pub const NDIS_OBJECT_TYPE_OFFLOAD: u8 = 0xA7;
pub const NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION: u8 = 0xA8;
/// The status code of changed offloads.
pub const NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG: u32 = 0x4002_0006;
pub const OID_OFFLOAD_ENCAPSULATION: NDIS_OID = 0x0101_010A;

/// Segmentation of UDP over IPv4.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_UDP_SEGMENTATION_OFFLOAD_IPv4 {
    pub Encapsulation: ULONG,
    pub MaxOffLoadSize: ULONG,
    /// `MinSegmentCount` in bits 0 to 5, `SubMssFinalSegmentSupported` in bit 6.
    pub Segments: ULONG,
}
layout!(NDIS_UDP_SEGMENTATION_OFFLOAD_IPv4, 0xC { MaxOffLoadSize: 4, Segments: 8 });

/// The same over IPv6.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_UDP_SEGMENTATION_OFFLOAD_IPv6 {
    pub Encapsulation: ULONG,
    pub MaxOffLoadSize: ULONG,
    pub Segments: ULONG,
    pub IpExtensionHeadersSupported: ULONG,
}
layout!(NDIS_UDP_SEGMENTATION_OFFLOAD_IPv6, 0x10 {
    MaxOffLoadSize: 4, Segments: 8, IpExtensionHeadersSupported: 0xC,
});

/// Segmentation of UDP.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_UDP_SEGMENTATION_OFFLOAD {
    pub IPv4: NDIS_UDP_SEGMENTATION_OFFLOAD_IPv4,
    pub IPv6: NDIS_UDP_SEGMENTATION_OFFLOAD_IPv6,
}
layout!(NDIS_UDP_SEGMENTATION_OFFLOAD, 0x1C { IPv6: 0xC });

/// The offloads of a NIC in revision 6, the first with segmentation of UDP.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_OFFLOAD {
    pub Header: NDIS_OBJECT_HEADER,
    pub Checksum: [ULONG; 8],
    pub LsoV1: [ULONG; 4],
    pub IPsecV1: [ULONG; 7],
    pub LsoV2: [ULONG; 7],
    pub Flags: ULONG,
    pub IPsecV2: [ULONG; 8],
    pub Rsc: [BOOLEAN; 2],
    pub EncapsulatedPacketTaskOffloadGre: [ULONG; 2],
    pub EncapsulatedPacketTaskOffloadVxlan: [ULONG; 5],
    pub EncapsulationTypes: u8,
    pub Rfc6877Xlat: [ULONG; 2],
    pub UdpSegmentation: NDIS_UDP_SEGMENTATION_OFFLOAD,
}
layout!(NDIS_OFFLOAD, 0xD8 {
    Checksum: 4, LsoV1: 0x24, IPsecV1: 0x34, LsoV2: 0x50, Flags: 0x6C, IPsecV2: 0x70, Rsc: 0x90,
    EncapsulatedPacketTaskOffloadGre: 0x94, EncapsulatedPacketTaskOffloadVxlan: 0x9C,
    EncapsulationTypes: 0xB0, Rfc6877Xlat: 0xB4, UdpSegmentation: 0xBC,
});
pub const NDIS_OFFLOAD_REVISION_3: u8 = 3;
pub const NDIS_OFFLOAD_REVISION_6: u8 = 6;
// `NDIS_ENCAPSULATION_*`: Ethernet, and Ethernet with an IEEE 802.1Q tag beside the frame.
pub const NDIS_ENCAPSULATION_IEEE_802_3: ULONG = 0x2;
pub const NDIS_ENCAPSULATION_IEEE_802_3_P_AND_Q_IN_OOB: ULONG = 0x8;

/// The frames that offloads work on, of one version of IP.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_OFFLOAD_ENCAPSULATION_IP {
    pub Enabled: ULONG,
    pub EncapsulationType: ULONG,
    /// Bytes before the IP header.
    pub HeaderSize: ULONG,
}
layout!(NDIS_OFFLOAD_ENCAPSULATION_IP, 0xC { EncapsulationType: 4, HeaderSize: 8 });

/// The data of `OID_OFFLOAD_ENCAPSULATION`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_OFFLOAD_ENCAPSULATION {
    pub Header: NDIS_OBJECT_HEADER,
    pub IPv4: NDIS_OFFLOAD_ENCAPSULATION_IP,
    pub IPv6: NDIS_OFFLOAD_ENCAPSULATION_IP,
}
layout!(NDIS_OFFLOAD_ENCAPSULATION, 0x1C { IPv4: 4, IPv6: 0x10 });
pub const NDIS_OFFLOAD_ENCAPSULATION_REVISION_1: u8 = 1;
pub const NDIS_OFFLOAD_SET_ON: ULONG = 1;
