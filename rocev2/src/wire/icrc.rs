//! The invariant CRC: it covers all bytes that no switch or router may change (IBTA annex A17, ICRC).

use super::bth::Bth;
use crc32fast::Hasher;

/// The IP and UDP headers of a packet as its ICRC covers them, and room for the BTH after them.
///
/// Fields that change on the way read as ones: traffic class, TTL or hop limit, flow label, IPv4 header
/// checksum, UDP checksum and byte 4 of the BTH.
#[derive(Clone, Debug)]
pub(super) enum Covered {
    /// IPv4 20, UDP 8, BTH 12.
    V4([u8; 40]),
    /// IPv6 40, UDP 8, BTH 12.
    V6([u8; 60]),
}

impl Covered {
    pub(super) fn v4(ip: &[u8; 20], udp: &[u8; 8]) -> Self {
        let mut bytes = [0; 40];
        bytes[..20].copy_from_slice(ip);
        bytes[20..28].copy_from_slice(udp);
        [bytes[1], bytes[8]] = [ONES; 2]; // TOS, TTL
        [bytes[10], bytes[11]] = [ONES; 2]; // header checksum
        [bytes[26], bytes[27]] = [ONES; 2]; // UDP checksum
        Self::V4(bytes)
    }

    pub(super) fn v6(ip: &[u8; 40], udp: &[u8; 8]) -> Self {
        let mut bytes = [0; 60];
        bytes[..40].copy_from_slice(ip);
        bytes[40..48].copy_from_slice(udp);
        bytes[0] |= 0x0f; // traffic class, high half; the version stays
        [bytes[1], bytes[2], bytes[3]] = [ONES; 3]; // traffic class, low half; flow label
        bytes[7] = ONES; // hop limit
        [bytes[46], bytes[47]] = [ONES; 2]; // UDP checksum
        Self::V6(bytes)
    }

    /// Makes these the headers of a segment: its own lengths, and on IPv4 its own identification.
    /// `udp_len` counts the UDP header.
    pub(super) fn set_segment(&mut self, ip_id: u16, udp_len: u16) {
        match self {
            Self::V4(bytes) => {
                [bytes[2], bytes[3]] = udp_len.wrapping_add(20).to_be_bytes();
                [bytes[4], bytes[5]] = ip_id.to_be_bytes();
                [bytes[24], bytes[25]] = udp_len.to_be_bytes();
            }
            Self::V6(bytes) => {
                [bytes[4], bytes[5]] = udp_len.to_be_bytes();
                [bytes[44], bytes[45]] = udp_len.to_be_bytes();
            }
        }
    }

    /// The four bytes that end a packet of these headers, `bth` and `rest`, the extended headers to
    /// the last pad byte.
    pub(super) fn icrc(&mut self, bth: &[u8; Bth::LEN], rest: &[u8]) -> [u8; 4] {
        let mut hasher = Hasher::new_with_initial(AFTER_LRH);
        match self {
            Self::V4(bytes) => {
                bytes[28..].copy_from_slice(bth);
                bytes[32] = ONES;
                hasher.update(bytes);
            }
            Self::V6(bytes) => {
                bytes[48..].copy_from_slice(bth);
                bytes[52] = ONES;
                hasher.update(bytes);
            }
        }
        hasher.update(rest);
        // Alone among all fields, the ICRC travels least significant byte first.
        hasher.finalize().to_le_bytes()
    }
}

/// The CRC of the 8 bytes of ones that stand for an InfiniBand local route header.
const AFTER_LRH: u32 = !0xdebb_20e3;

const ONES: u8 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_is_the_crc_of_eight_ones() {
        assert_eq!(crc32fast::hash(&[ONES; 8]), AFTER_LRH);
    }

    /// The RoCEv2 test vectors of scapy, of an Unreliable Connection, which parses as nothing here.
    #[test]
    fn scapy_vectors() {
        let mut v4 = [
            0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 0xc0, 0xa8,
            0x00, 0x07, 0xc0, 0xa8, 0x00, 0x07,
        ];
        let mut v6 = [0; 40];
        v6[..8].copy_from_slice(&[0x6e, 0x21, 0xfa, 0xce, 0x00, 0x2c, 0x11, 0xff]);
        v6[8..12].copy_from_slice(&[0x20, 0x22, 0x00, 0x00]);
        v6[22..28].copy_from_slice(&[0x10, 0x23, 0x20, 0x23, 0x00, 0x00]);
        v6[38..].copy_from_slice(&[0x10, 0x24]);
        let udp = [0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0x00, 0x00];
        let bth = [0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10];
        let payload = [
            0x46, 0x30, 0x81, 0x8b, 0xe2, 0x89, 0x35, 0xd9, 0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01,
            0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00,
        ];
        let icrcs = ([0x78, 0xf3, 0x53, 0xf3], [0x3e, 0x5b, 0x74, 0x3b]);
        assert_eq!(Covered::v4(&v4, &udp).icrc(&bth, &payload), icrcs.0);
        assert_eq!(Covered::v6(&v6, &udp).icrc(&bth, &payload), icrcs.1);

        // The fields that routers change make no difference.
        (v4[1], v4[8], v4[10]) = (0, 1, 2);
        (v6[0], v6[3], v6[7]) = (0x60, 0, 1);
        assert_eq!(Covered::v4(&v4, &udp).icrc(&bth, &payload), icrcs.0);
        assert_eq!(Covered::v6(&v6, &udp).icrc(&bth, &payload), icrcs.1);
    }
}
