//! Units beside NDIS: the segmentation of UDP that a NIC offers (USO), and datagrams that it has coalesced (URO).
//!
//! A unit that the NIC divides is one list with the length of its segments beside it
//! ([USO](https://learn.microsoft.com/windows-hardware/drivers/network/udp-segmentation-offload-uso-)). A coalesced one
//! comes with the number of its datagrams and their length
//! ([URO](https://learn.microsoft.com/windows-hardware/drivers/network/udp-rsc-offload)), and without checksums, so
//! it is taken apart into frames with headers of their own. The IPv4 identifications behind the first are lost: they are
//! taken for consecutive, as those of a unit that was sent are.

use super::abi::{NET_BUFFER_LIST, TcpIpChecksumNetBufferListInfo, UdpRecvSegCoalesceOffloadInfo};
use crate::Segments;
use crate::segment::layer_3;
use core::sync::atomic::{AtomicU64, Ordering};

/// Segmentation of UDP over one version of IP. The default is none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Segmentation {
    /// Bytes behind the headers of a unit, at most.
    pub max_len: u32,
    /// Segments of a unit, at least.
    pub min_segments: u8,
    /// The last segment may be shorter than the others.
    pub short_last: bool,
    /// The unit may have a VLAN tag beside it.
    pub tagged: bool,
}

/// The segmentation that a NIC offers, by version of IP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Offers {
    /// Over IPv4.
    pub v4: Segmentation,
    /// Over IPv6.
    pub v6: Segmentation,
}

impl Segmentation {
    /// The segments of a unit that the NIC may divide, from the first on; 0: none of them. `payload_len` are the unit's bytes
    /// behind the headers.
    pub(super) fn divides(&self, segment_len: usize, payload_len: usize, tagged: bool) -> usize {
        let whole = payload_len / segment_len;
        let segments = if self.short_last { payload_len.div_ceil(segment_len) } else { whole };
        let fits = payload_len <= self.max_len as usize && (self.tagged || !tagged);
        // A unit of one is a frame.
        let enough = segments >= usize::from(self.min_segments).max(2);
        if fits && enough { segments } else { 0 }
    }

    const fn pack(self) -> u64 {
        self.max_len as u64
            | (self.min_segments as u64) << 32
            | (self.short_last as u64) << 40
            | (self.tagged as u64) << 41
    }

    const fn unpack(packed: u64) -> Self {
        Self {
            max_len: packed as u32,
            min_segments: (packed >> 32) as u8,
            short_last: packed >> 40 & 1 != 0,
            tagged: packed >> 41 & 1 != 0,
        }
    }
}

impl Offers {
    pub(super) const fn of(&self, version: Version) -> &Segmentation {
        match version {
            Version::V4 => &self.v4,
            Version::V6 => &self.v6,
        }
    }

    /// These offers as far as they hold for units with a VLAN tag beside them.
    #[must_use]
    pub fn beside_tags(self) -> Self {
        let of = |segmentation: Segmentation| match segmentation.tagged {
            true => segmentation,
            false => Segmentation::default(),
        };
        Self { v4: of(self.v4), v6: of(self.v6) }
    }

    /// The longest payload of a unit that is divided over either version; 0: none.
    pub(super) fn max_len(&self) -> usize {
        self.v4.max_len.max(self.v6.max_len) as usize
    }
}

/// Offers that any CPU may change while the poll core sends.
#[derive(Debug, Default)]
pub(super) struct SharedOffers([AtomicU64; 2]);

impl SharedOffers {
    pub(super) fn set(&self, offers: Offers) {
        let [v4, v6] = &self.0;
        // A unit under an offer that has just gone is refused by the NIC, and lost, as any frame may be.
        v4.store(offers.v4.pack(), Ordering::Relaxed);
        v6.store(offers.v6.pack(), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Offers {
        let [v4, v6] = &self.0;
        let get = |packed: &AtomicU64| Segmentation::unpack(packed.load(Ordering::Relaxed));
        Offers { v4: get(v4), v6: get(v6) }
    }
}

/// Version of IP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    V4,
    V6,
}

impl Version {
    /// That of a frame with these headers.
    pub(super) fn of(header: &[u8]) -> Option<Self> {
        match header.get(layer_3(header)?)? >> 4 {
            4 => Some(Self::V4),
            6 => Some(Self::V6),
            _ => None,
        }
    }
}

/// `NDIS_UDP_SEGMENTATION_OFFLOAD_NET_BUFFER_LIST_INFO`: the length of a segment in bits 0 to 19, the offset of the UDP
/// header in bits 20 to 29, the version of IP in bit 31.
pub(super) const fn segmentation_info(segment_len: usize, udp: usize, version: Version) -> usize {
    let version = matches!(version, Version::V6) as usize;
    segment_len & 0xf_ffff | (udp & 0x3ff) << 20 | version << 31
}

/// Datagrams that were coalesced into one list, as `NDIS_UDP_RSC_OFFLOAD_NET_BUFFER_LIST_INFO` tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Coalesced {
    /// Their number.
    pub count: usize,
    /// Bytes of UDP payload in each but the last, which may have fewer.
    pub len: usize,
}

impl Coalesced {
    /// Of an out-of-band value: the number in bits 0 to 15, the length in bits 16 to 31. `None`: a frame as it came.
    #[must_use]
    pub const fn from_info(info: usize) -> Option<Self> {
        if info == 0 {
            return None;
        }
        Some(Self { count: info & 0xffff, len: info >> 16 & 0xffff })
    }

    /// Of a received list.
    ///
    /// # Safety
    /// `nbl` is valid.
    #[must_use]
    pub unsafe fn beside(nbl: *const NET_BUFFER_LIST) -> Option<Self> {
        // SAFETY: the caller's promise.
        let info = unsafe { (*nbl).NetBufferListInfo[UdpRecvSegCoalesceOffloadInfo] };
        Self::from_info(info.addr())
    }

    /// The division of a frame of `frame_len` bytes that begins with `header`; `None` where they do not fit each other, or the
    /// headers are not those of UDP.
    pub(super) fn segments(self, header: &[u8], frame_len: usize) -> Option<Segments> {
        let header_len = udp_header(header)? + UDP_LEN;
        let segments = Segments { header_len, segment_len: self.len };
        let fits = self.len > 0 && segments.count(frame_len) == self.count && self.count > 0;
        fits.then_some(segments)
    }
}

/// The NIC's verdict on a received list, `NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Verdict(usize);

impl Verdict {
    /// # Safety
    /// `nbl` is valid.
    pub(super) unsafe fn beside(nbl: *const NET_BUFFER_LIST) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { (*nbl).NetBufferListInfo[TcpIpChecksumNetBufferListInfo] }.addr())
    }

    /// Whether the NIC found a checksum wrong.
    pub(super) const fn complains(self) -> bool {
        self.0 & (UDP_FAILED | IP_FAILED) != 0
    }

    /// Whether a frame with this beginning is damaged. One without a UDP checksum has none that could be wrong, although a NIC
    /// may say so over IPv6, where RFC 8200 demands one.
    pub(super) fn condemns(self, header: &[u8]) -> bool {
        let checksum = udp_header(header).and_then(|udp| header.get(udp + 6..udp + UDP_LEN));
        self.0 & IP_FAILED != 0 || self.0 & UDP_FAILED != 0 && checksum != Some(&[0, 0])
    }
}

/// The offset of the UDP header, where it follows the IP header at once and lies in `header` as a whole.
fn udp_header(header: &[u8]) -> Option<usize> {
    let l3 = layer_3(header)?;
    let ip = header.get(l3..)?;
    let (ip_len, protocol) = match *ip.first()? {
        first if first >> 4 == 4 => (usize::from(first & 0x0f) * 4, ip.get(9)?),
        first if first >> 4 == 6 => (IPV6_LEN, ip.get(6)?),
        _ => return None,
    };
    let udp = l3 + ip_len;
    (*protocol == UDP_PROTOCOL && udp + UDP_LEN <= header.len()).then_some(udp)
}

/// Bit of [`Verdict`]: `UdpChecksumFailed`.
const UDP_FAILED: usize = 1 << 1;
/// `IpChecksumFailed`.
const IP_FAILED: usize = 1 << 2;
pub(super) const UDP_LEN: usize = 8;
const UDP_PROTOCOL: u8 = 17;
const IPV6_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::HEADER_MAX_LEN;
    use crate::segment::tests::unit;
    use proptest::prelude::*;

    /// The most that a NIC can offer.
    const ALL: Segmentation =
        Segmentation { max_len: 65_000, min_segments: 2, short_last: true, tagged: true };

    #[test]
    fn a_unit_is_divided_as_far_as_the_nic_offers() {
        assert_eq!(ALL.divides(1000, 3000, true), 3);
        assert_eq!(ALL.divides(1000, 2001, false), 3, "a short last one");
        assert_eq!(ALL.divides(1000, 1000, false), 0, "a frame");
        assert_eq!(Segmentation::default().divides(1000, 3000, false), 0, "nothing is offered");
        let even = Segmentation { short_last: false, ..ALL };
        assert_eq!(even.divides(1000, 2001, false), 2, "without the short last one");
        assert_eq!(even.divides(1000, 1999, false), 0);
        let many = Segmentation { min_segments: 4, ..ALL };
        assert_eq!([many.divides(1000, 3000, false), many.divides(1000, 3001, false)], [0, 4]);
        let small = Segmentation { max_len: 2999, ..ALL };
        assert_eq!([small.divides(1000, 2999, false), small.divides(1000, 3000, false)], [3, 0]);
        let plain = Segmentation { tagged: false, ..ALL };
        assert_eq!([plain.divides(1000, 3000, false), plain.divides(1000, 3000, true)], [3, 0]);
    }

    #[test]
    fn offers_are_shared_whole() {
        let shared = SharedOffers::default();
        assert_eq!(shared.get(), Offers::default());
        let v6 =
            Segmentation { max_len: u32::MAX, min_segments: 63, short_last: false, tagged: true };
        let offers = Offers { v4: ALL, v6 };
        shared.set(offers);
        assert_eq!((shared.get(), shared.get().max_len()), (offers, u32::MAX as usize));
    }

    #[test]
    fn a_tag_beside_every_unit_leaves_the_offers_that_allow_one() {
        let offers = Offers { v4: ALL, v6: Segmentation { tagged: false, ..ALL } };
        assert_eq!(offers.beside_tags(), Offers { v4: ALL, v6: Segmentation::default() });
    }

    #[test]
    fn values_beside_lists_have_the_bits_of_windows() {
        assert_eq!(segmentation_info(1040, 34, Version::V4), 1040 | 34 << 20);
        assert_eq!(segmentation_info(0xf_ffff, 0x3ff, Version::V6), 0xbfff_ffff);
        assert_eq!(Coalesced::from_info(0), None);
        assert_eq!(Coalesced::from_info(1040 << 16 | 5), Some(Coalesced { count: 5, len: 1040 }));
    }

    #[test]
    fn a_coalesced_unit_is_what_its_numbers_say() {
        for v6 in [false, true] {
            let (bytes, segments) = unit(v6, 2500, 1000);
            let of = |count, len| Coalesced { count, len }.segments(&bytes[..96], bytes.len());
            assert_eq!(of(3, 1000), Some(segments));
            for (count, len) in [(2, 1000), (4, 1000), (3, 800), (3, 1300), (0, 1000), (3, 0)] {
                assert_eq!(of(count, len), None, "{count} of {len}");
            }
            assert_eq!(Coalesced { count: 3, len: 1000 }.segments(&bytes[..40], bytes.len()), None);
        }
        let (mut tcp, _) = unit(false, 2500, 1000);
        tcp[23] = 6;
        assert_eq!(Coalesced { count: 3, len: 1000 }.segments(&tcp, tcp.len()), None);
    }

    #[test]
    fn a_verdict_counts_where_there_is_a_checksum() {
        let (mut bytes, segments) = unit(true, 100, 100);
        let condemns =
            |bits, bytes: &[u8]| Verdict(bits).complains() && Verdict(bits).condemns(bytes);
        assert!(condemns(IP_FAILED, &bytes));
        assert!(!condemns(UDP_FAILED, &bytes), "there is no checksum");
        bytes[segments.header_len - 1] = 1;
        assert!(condemns(UDP_FAILED, &bytes));
        // TcpChecksumFailed, and the three successes.
        assert!(!condemns(0b11_1001, &bytes));
    }

    proptest! {
        /// No header is read past its end.
        #[test]
        fn any_header_is_survived(
            header in proptest::collection::vec(any::<u8>(), 0..HEADER_MAX_LEN),
            info: u32,
        ) {
            let coalesced = Coalesced::from_info(info as usize);
            let _ = coalesced.and_then(|coalesced| coalesced.segments(&header, header.len() + 5000));
            let _ = Verdict(info as usize).condemns(&header);
            let _ = Version::of(&header);
        }
    }
}
