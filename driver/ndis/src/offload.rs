//! The offloads of a NIC that are of use for RoCE: segmentation of UDP.

use crate::abi::*;
use core::mem::offset_of;
use netadapter_glue::ndis::units::{Offers, Segmentation};

/// The segmentation that `config` offers, which is an `NDIS_OFFLOAD` of the size that its header says. Before revision 6 there is
/// none.
pub(crate) fn offers(
    config: &NDIS_OBJECT_HEADER,
    udp: impl FnOnce() -> NDIS_UDP_SEGMENTATION_OFFLOAD,
) -> Offers {
    let knows = config.Type == NDIS_OBJECT_TYPE_OFFLOAD
        && config.Revision >= NDIS_OFFLOAD_REVISION_6
        && usize::from(config.Size) >= size_of::<NDIS_OFFLOAD>();
    if !knows {
        return Offers::default();
    }
    let NDIS_UDP_SEGMENTATION_OFFLOAD { IPv4: v4, IPv6: v6 } = udp();
    Offers {
        v4: segmentation(v4.Encapsulation, v4.MaxOffLoadSize, v4.Segments),
        v6: segmentation(v6.Encapsulation, v6.MaxOffLoadSize, v6.Segments),
    }
}

/// Whether `config` says that segments of TCP are merged, over IPv4 and over IPv6. Before revision 3 there is no such thing.
pub(crate) fn merging(
    config: &NDIS_OBJECT_HEADER,
    rsc: impl FnOnce() -> [BOOLEAN; 2],
) -> [bool; 2] {
    let knows = config.Type == NDIS_OBJECT_TYPE_OFFLOAD
        && config.Revision >= NDIS_OFFLOAD_REVISION_3
        && usize::from(config.Size) >= offset_of!(NDIS_OFFLOAD, Rsc) + size_of::<[BOOLEAN; 2]>();
    if knows { rsc().map(|enabled| enabled != FALSE) } else { [false; 2] }
}

fn segmentation(encapsulation: ULONG, max_len: ULONG, segments: ULONG) -> Segmentation {
    if encapsulation & NDIS_ENCAPSULATION_IEEE_802_3 == 0 {
        return Segmentation::default();
    }
    Segmentation {
        max_len,
        min_segments: (segments & MIN_SEGMENT_COUNT) as u8,
        short_last: segments & SUB_MSS_FINAL_SEGMENT_SUPPORTED != 0,
        tagged: encapsulation & NDIS_ENCAPSULATION_IEEE_802_3_P_AND_Q_IN_OOB != 0,
    }
}

/// The bits of `Segments`.
const MIN_SEGMENT_COUNT: ULONG = 0x3f;
const SUB_MSS_FINAL_SEGMENT_SUPPORTED: ULONG = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    fn config(revision: u8, size: usize) -> Offers {
        let (v4, v6) = ([0x2 | 0x8, 64_000, 2 | 0x40], [0x2, 32_000, 63]);
        let udp = NDIS_UDP_SEGMENTATION_OFFLOAD {
            IPv4: NDIS_UDP_SEGMENTATION_OFFLOAD_IPv4 {
                Encapsulation: v4[0],
                MaxOffLoadSize: v4[1],
                Segments: v4[2],
            },
            IPv6: NDIS_UDP_SEGMENTATION_OFFLOAD_IPv6 {
                Encapsulation: v6[0],
                MaxOffLoadSize: v6[1],
                Segments: v6[2],
                IpExtensionHeadersSupported: 0,
            },
        };
        offers(&header(NDIS_OBJECT_TYPE_OFFLOAD, revision, size), || udp)
    }

    #[test]
    fn an_offer_is_read_from_the_revision_that_has_one() {
        let v4 = Segmentation { max_len: 64_000, min_segments: 2, short_last: true, tagged: true };
        let v6 =
            Segmentation { max_len: 32_000, min_segments: 63, short_last: false, tagged: false };
        assert_eq!(config(6, 0xD8), Offers { v4, v6 });
        assert_eq!(config(7, 0xDC), Offers { v4, v6 });
        assert_eq!([config(5, 0xBC), config(6, 0xD7)], [Offers::default(); 2]);
    }

    #[test]
    fn merging_is_read_from_the_revision_that_has_it() {
        let config =
            |revision, size| merging(&header(NDIS_OBJECT_TYPE_OFFLOAD, revision, size), || [1, 0]);
        assert_eq!([config(3, 0x92), config(6, 0xD8)], [[true, false]; 2]);
        assert_eq!([config(2, 0x92), config(3, 0x91)], [[false; 2]; 2]);
    }

    #[test]
    fn no_other_frames_than_those_of_ethernet_are_divided() {
        assert_eq!(segmentation(0, 64_000, 2), Segmentation::default());
        assert_eq!(segmentation(0x8, 64_000, 2), Segmentation::default());
    }
}
