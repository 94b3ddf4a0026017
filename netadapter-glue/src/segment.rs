//! One unit of equal segments, and its division into frames.
//!
//! A unit is one set of Ethernet, IP and UDP headers followed by the UDP payloads of its packets, all of
//! the same length except the last, which may be shorter. UDP segmentation offload takes units and receive
//! coalescing makes them: many packets pass the stack at once. The headers are right for the first packet
//! when it travels alone; packet `i` differs in its IPv4 identification (`+ i`), its lengths and its IPv4
//! header checksum, in Windows ("UDP segmentation offload") as in Linux (`UDP_SEGMENT`).

/// The division of a unit into equal segments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segments {
    /// Bytes of Ethernet, IP and UDP headers before the first payload; at most [`HEADER_MAX_LEN`].
    pub header_len: usize,
    /// Bytes of UDP payload in each segment but the last, which has 1 to `segment_len`. Not 0.
    pub segment_len: usize,
}

impl Segments {
    /// The number of packets in a unit of `unit_len` bytes.
    pub const fn count(&self, unit_len: usize) -> usize {
        unit_len.saturating_sub(self.header_len).div_ceil(self.segment_len)
    }
}

/// Longest headers of a unit: Ethernet with two VLAN tags, IPv4 with options, UDP; or IPv6 with 32
/// bytes of extension headers.
pub const HEADER_MAX_LEN: usize = 96;

/// The frames of a unit, in order. A plain frame is a unit of one.
///
/// Only headers are written; each payload stays where it is.
///
/// # Panics
/// If `segments` does not fit `unit`: both have the same origin.
pub fn split(unit: &[u8], segments: Option<Segments>) -> Split<'_> {
    let Some(Segments { header_len, segment_len }) = segments else {
        return Split { header: &[], rest: Some(unit), segment_len: usize::MAX, index: 0 };
    };
    assert!(segment_len > 0 && header_len <= HEADER_MAX_LEN, "{segments:?} is no unit");
    let (header, payload) = unit.split_at(header_len);
    Split { header, rest: Some(payload), segment_len, index: 0 }
}

/// Iterator of [`split`].
#[derive(Clone, Debug)]
pub struct Split<'a> {
    header: &'a [u8],
    rest: Option<&'a [u8]>,
    segment_len: usize,
    index: u16,
}

impl Split<'_> {
    /// The same frames from number `index` on.
    pub(crate) fn starting_at(mut self, index: usize) -> Self {
        self.rest = self.rest.and_then(|rest| match index {
            0 => Some(rest),
            _ => rest.get(index * self.segment_len..),
        });
        self.index = index as u16;
        self
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        let rest = self.rest?;
        let (payload, rest) = rest.split_at(rest.len().min(self.segment_len));
        let segment = Segment::new(self.header, self.index, payload);
        self.rest = (!rest.is_empty()).then_some(rest);
        self.index = self.index.wrapping_add(1);
        Some(segment)
    }
}

/// One complete frame in two pieces: headers of its own, and a payload that was not copied.
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    header: [u8; HEADER_MAX_LEN],
    header_len: usize,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn new(header: &[u8], index: u16, payload: &'a [u8]) -> Self {
        let mut bytes = [0; HEADER_MAX_LEN];
        bytes[..header.len()].copy_from_slice(header);
        patch(&mut bytes[..header.len()], index, payload.len());
        Self { header: bytes, header_len: header.len(), payload }
    }

    /// Ethernet, IP and UDP headers; empty for a plain frame.
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }

    /// The bytes behind [`header`](Self::header): the UDP payload, or all of a plain frame.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Bytes of the whole frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.header_len + self.payload.len()
    }

    /// Copies the whole frame to the start of `out`; returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than the frame.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let (header, rest) = out.split_at_mut(self.header_len);
        header.copy_from_slice(self.header());
        rest[..self.payload.len()].copy_from_slice(self.payload);
        self.len()
    }
}

/// Changes the headers of the first packet to those of packet `index` with `payload_len` bytes.
///
/// Headers that are neither IPv4 nor IPv6 stay as they are.
pub(crate) fn patch(header: &mut [u8], index: u16, payload_len: usize) {
    let Some(l3) = layer_3(header) else { return };
    let total_len = header.len() - l3 + payload_len;
    match header.get(l3).map(|first| first >> 4) {
        Some(4) => patch_ipv4(&mut header[l3..], index, total_len as u16),
        Some(6) => patch_ipv6(&mut header[l3..], total_len as u16),
        Some(_) | None => return,
    }
    patch_udp(header, index, payload_len);
}

/// The offset of the IP header, behind any VLAN tags.
pub(crate) fn layer_3(header: &[u8]) -> Option<usize> {
    let mut at = 12;
    while let [0x81, 0x00] | [0x88, 0xa8] = header.get(at..at + 2)? {
        at += 4;
    }
    Some(at + 2)
}

fn patch_ipv4(ip: &mut [u8], index: u16, total_len: u16) {
    let ihl = usize::from(ip[0] & 0x0f) * 4;
    if ihl < 20 || ip.len() < ihl {
        return;
    }
    let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index);
    ip[2..4].copy_from_slice(&total_len.to_be_bytes());
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    ip[10..12].copy_from_slice(&[0, 0]);
    let checksum = !fold(sum(&ip[..ihl]));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn patch_ipv6(ip: &mut [u8], total_len: u16) {
    let (Some(field), Some(len)) = (ip.get_mut(4..6), total_len.checked_sub(40)) else { return };
    field.copy_from_slice(&len.to_be_bytes());
}

/// Patches the UDP header. A checksum of the first packet is wrong for a later one; none (0) is right for
/// all of them.
fn patch_udp(header: &mut [u8], index: u16, payload_len: usize) {
    let Some(udp) = header.last_chunk_mut::<8>() else { return };
    udp[4..6].copy_from_slice(&(8 + payload_len as u16).to_be_bytes());
    if index > 0 {
        udp[6..8].copy_from_slice(&[0, 0]);
    }
}

/// The one's complement sum of an even number of bytes, not folded.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    bytes.as_chunks().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum()
}

/// Folds a one's complement sum to 16 bits.
pub(crate) const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};
    use etherparse::{PacketBuilder, SlicedPacket};
    use proptest::prelude::*;

    /// A unit over IPv4 or IPv6 with `payload_len` bytes that count up, cut every `segment_len`.
    pub(crate) fn unit(v6: bool, payload_len: usize, segment_len: usize) -> (Vec<u8>, Segments) {
        let first_len = payload_len.min(segment_len);
        let payload: Vec<u8> = (0..payload_len).map(|i| i as u8).collect();
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let builder = if v6 {
            builder.ipv6([0xfd; 16], [0xfe; 16], 64)
        } else {
            builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut bytes = Vec::new();
        builder.udp(0xc000, 4791).write(&mut bytes, &payload[..first_len]).unwrap();
        let header_len = bytes.len() - first_len;
        if !v6 {
            // Identification 0xffff, so that the second packet wraps.
            bytes[18..20].copy_from_slice(&[0xff, 0xff]);
            let checksum = etherparse::Ipv4Header::from_slice(&bytes[14..]).unwrap().0;
            bytes[24..26].copy_from_slice(&checksum.calc_header_checksum().to_be_bytes());
        }
        bytes[header_len - 2..header_len].copy_from_slice(&[0, 0]);
        bytes.extend_from_slice(&payload[first_len..]);
        (bytes, Segments { header_len, segment_len })
    }

    fn frames(unit: &[u8], segments: Option<Segments>) -> Vec<Vec<u8>> {
        let frame = |segment: Segment<'_>| {
            let mut out = vec![0; segment.len()];
            segment.copy_to(&mut out);
            out
        };
        split(unit, segments).map(frame).collect()
    }

    #[test]
    fn a_plain_frame_is_a_unit_of_one() {
        assert_eq!(frames(&[1, 2, 3], None), [[1, 2, 3]]);
    }

    #[test]
    fn a_later_segment_has_its_own_headers() {
        let (unit, segments) = unit(false, 250, 100);
        assert_eq!(segments.count(unit.len()), 3);
        let frames = frames(&unit, Some(segments));
        assert_eq!(frames[0], unit[..142], "the first packet is the unit's own header");
        // Total length 20 + 8 + 50, identification 0xffff + 2, UDP length 8 + 50.
        assert_eq!(frames[2][16..20], [0, 78, 0, 1]);
        assert_eq!(frames[2][38..40], [0, 58]);
        assert_eq!(frames[2][42..], unit[242..]);
    }

    #[test]
    fn vlan_tags_are_stepped_over() {
        let (mut unit, mut segments) = unit(true, 60, 40);
        unit.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
        segments.header_len += 8;
        let frames = frames(&unit, Some(segments));
        assert_eq!(frames[1][26..28], [0, 8 + 20], "IPv6 payload length");
        assert_eq!(frames[1][66..68], [0, 8 + 20], "UDP length");
    }

    #[test]
    fn headers_that_are_not_ip_stay() {
        let unit = [0xaa; 40];
        let segments = Segments { header_len: 20, segment_len: 15 };
        let frames = frames(&unit, Some(segments));
        assert_eq!(frames, [vec![0xaa; 35], vec![0xaa; 25]]);
    }

    proptest! {
        /// Headers that only look like IP are patched or not, but never read past their end.
        #[test]
        fn any_header_is_survived(
            tail in proptest::collection::vec(any::<u8>(), 0..HEADER_MAX_LEN - 13),
            version in 4u8..=6,
        ) {
            let mut unit = vec![0; 12];
            unit.extend_from_slice(if version == 4 { &[8, 0] } else { &[0x86, 0xdd] });
            unit.extend_from_slice(&tail);
            if let Some(first) = unit.get_mut(14) {
                *first = version << 4 | *first & 0x0f;
            }
            let segments = Segments { header_len: unit.len(), segment_len: 10 };
            unit.extend_from_slice(&[0; 25]);
            prop_assert_eq!(split(&unit, Some(segments)).count(), 3);
        }
    }

    proptest! {
        /// Each frame of a unit is a packet that a strict parser accepts, and the payloads make up
        /// the unit.
        #[test]
        fn every_frame_parses(v6: bool, len in 1usize..5000, segment_len in 1usize..1400) {
            let (unit, segments) = unit(v6, len, segment_len);
            let frames = frames(&unit, Some(segments));
            prop_assert_eq!(frames.len(), segments.count(unit.len()));
            let mut payload = Vec::new();
            for (i, frame) in frames.iter().enumerate() {
                let packet = SlicedPacket::from_ethernet(frame).unwrap();
                if let Some(etherparse::NetSlice::Ipv4(ip)) = &packet.net {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    prop_assert_eq!(ip.identification, 0xffff_u16.wrapping_add(i as u16));
                }
                let Some(etherparse::TransportSlice::Udp(udp)) = packet.transport else {
                    panic!("{packet:?}");
                };
                prop_assert_eq!(usize::from(udp.length()), frame.len() - segments.header_len + 8);
                payload.extend_from_slice(udp.payload());
            }
            prop_assert_eq!(&payload, &unit[segments.header_len..]);
        }
    }
}
