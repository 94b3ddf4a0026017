//! One unit of equal segments, and how it divides into frames.
//!
//! A unit is one set of Ethernet, IP and UDP headers followed by the UDP payloads of its packets,
//! all of the same length except the last, which may be shorter. It is what UDP segmentation
//! offload takes and what receive coalescing yields: one pass through the stack for many packets.
//! The headers are right for the first packet when it travels alone; packet `i` differs in its
//! IPv4 identification (`+ i`), its lengths and its IPv4 header checksum.

/// N equal segments as one unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segments {
    /// Bytes of Ethernet, IP and UDP headers before the first payload.
    pub header_len: usize,
    /// Bytes of UDP payload in each segment but the last, which has 1 to `segment_len`. Not 0.
    pub segment_len: usize,
}

impl Segments {
    /// How many packets a unit of `unit_len` bytes holds.
    pub const fn count(&self, unit_len: usize) -> usize {
        unit_len.saturating_sub(self.header_len).div_ceil(self.segment_len)
    }
}
