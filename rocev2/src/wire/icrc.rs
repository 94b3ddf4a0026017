//! The invariant CRC: it covers all bytes that no switch or router may change (IBTA annex A17, ICRC).
//!
//! A CRC is linear: a bit that flips flips the same bits of the result, whatever the others are. So the CRC of
//! the headers that all packets of a connection share is computed once ([`IcrcSeed`]), and lengths and
//! identification of each packet are added by table.

use super::bth::Bth;
use rocev2_crc::{POLYNOMIAL, extend};

/// The ICRC of a packet up to its UDP header, for the bytes that follow.
///
/// Fields that change on the way read as ones: traffic class, TTL or hop limit, flow label, IPv4 header
/// checksum, UDP checksum and byte 4 of the BTH.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct IcrcSeed {
    crc: u32,
    v6: bool,
}

/// The check of a packet's ICRC.
#[derive(Clone, Copy, Debug)]
pub(super) enum IcrcCheck {
    /// It was found right.
    Done,
    /// For the headers of this seed.
    Seen(IcrcSeed),
    /// For the headers of this seed, but that their IPv4 identification is a guess: it was not seen.
    UnseenId(IcrcSeed),
}

impl IcrcCheck {
    /// Checks the four bytes that end a packet; `bytes` as for [`IcrcSeed::icrc`]. Returns the bits in which the identification
    /// is another than that of the headers, which are none where it was seen; `None` where the packet is damaged.
    ///
    /// One of the 2^16 identifications fits a damaged packet once in 2^16 times, where else an ICRC fits once in 2^32.
    pub(super) fn judge(self, bytes: &[u8], icrc: [u8; 4]) -> Option<u16> {
        match self {
            Self::Done => Some(0),
            Self::Seen(seed) => (seed.icrc(bytes) == icrc).then_some(0),
            Self::UnseenId(seed) => {
                let change = u32::from_le_bytes(seed.icrc(bytes)) ^ u32::from_le_bytes(icrc);
                // The register had the two bytes added to it, before it went over them and all behind them.
                let added = back_over_zeros(change, 2 + BEHIND_ID + bytes.len());
                u16::try_from(added).ok().filter(|id| *id == 0 || !seed.v6).map(u16::swap_bytes)
            }
        }
    }
}

/// The covered header fields that differ between packets of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Varying {
    /// The IPv4 identification.
    pub(super) ip_id: u16,
    /// The UDP length, header included; the length in the IP header follows from it.
    pub(super) udp_len: u16,
}

impl IcrcSeed {
    /// For these headers.
    pub(super) fn v4(ip: &[u8; V4_LEN], udp: &[u8; UDP_LEN]) -> Self {
        let mut bytes = [0; V4_LEN + UDP_LEN];
        bytes[..V4_LEN].copy_from_slice(ip);
        bytes[V4_LEN..].copy_from_slice(udp);
        [bytes[1], bytes[8]] = [ONES; 2]; // TOS, TTL
        [bytes[10], bytes[11]] = [ONES; 2]; // header checksum
        [bytes[26], bytes[27]] = [ONES; 2]; // UDP checksum
        Self { crc: extend(AFTER_LRH, &bytes), v6: false }
    }

    /// For these headers.
    pub(super) fn v6(ip: &[u8; V6_LEN], udp: &[u8; UDP_LEN]) -> Self {
        let mut bytes = [0; V6_LEN + UDP_LEN];
        bytes[..V6_LEN].copy_from_slice(ip);
        bytes[V6_LEN..].copy_from_slice(udp);
        bytes[0] |= 0x0f; // traffic class, high half; the version stays
        [bytes[1], bytes[2], bytes[3]] = [ONES; 3]; // traffic class, low half; flow label
        bytes[7] = ONES; // hop limit
        [bytes[46], bytes[47]] = [ONES; 2]; // UDP checksum
        Self { crc: extend(AFTER_LRH, &bytes), v6: true }
    }

    /// For the same headers with other lengths, and on IPv4 another identification.
    #[must_use]
    #[inline]
    pub(super) fn vary(self, from: Varying, to: Varying) -> Self {
        self.vary_len(from.udp_len, to.udp_len).vary_id(from.ip_id, to.ip_id)
    }

    /// For the same headers with other lengths, given those of UDP.
    #[must_use]
    #[inline]
    pub(super) fn vary_len(self, from: u16, to: u16) -> Self {
        let ip = if self.v6 {
            add(&V6_LENGTH, from ^ to)
        } else {
            let total = |udp_len: u16| udp_len.wrapping_add(V4_LEN as u16);
            add(&V4_LENGTH, total(from) ^ total(to))
        };
        Self { crc: self.crc ^ add(&UDP_LENGTH, from ^ to) ^ ip, ..self }
    }

    /// For the same headers with another identification, which IPv6 has not.
    #[must_use]
    #[inline]
    pub(super) fn vary_id(self, from: u16, to: u16) -> Self {
        if self.v6 { self } else { self.vary_v4_id(from, to) }
    }

    /// The same, of IPv4 headers.
    #[must_use]
    #[inline]
    pub(super) fn vary_v4_id(self, from: u16, to: u16) -> Self {
        Self { crc: self.crc ^ add(&V4_ID, from ^ to), ..self }
    }

    /// The four bytes that end a packet of these headers; `bytes` go from its BTH to the last pad byte.
    #[inline]
    pub(super) fn icrc(self, bytes: &[u8]) -> [u8; 4] {
        let congestion = bytes.get(BTH_CONGESTION).copied().unwrap_or(ONES);
        let masked = BEFORE_CONGESTION[usize::from(congestion ^ ONES)];
        // Alone among all fields, the ICRC travels least significant byte first.
        extend(self.crc ^ masked, bytes).to_le_bytes()
    }

    /// The same, where FECN and BECN are clear.
    #[inline]
    pub(super) fn icrc_unmarked(self, bytes: &[u8]) -> [u8; 4] {
        const UNMARKED: u32 = BEFORE_CONGESTION[ONES as usize];
        extend(self.crc ^ UNMARKED, bytes).to_le_bytes()
    }
}

/// The change of a CRC by a change of two bytes, whose tables these are.
fn add(tables: &[Table; 2], change: u16) -> u32 {
    let [high, low] = change.to_be_bytes();
    tables[0][usize::from(high)] ^ tables[1][usize::from(low)]
}

/// The change of a CRC by each change of one byte at a certain place.
type Table = [u32; 256];

/// Places in the headers, counted back from the end of the UDP header.
const UDP_LENGTH: [Table; 2] = [changes(3), changes(2)];
const V4_LENGTH: [Table; 2] = [changes(25), changes(24)];
const V4_ID: [Table; 2] = [changes(BEHIND_ID as i32 + 1), changes(BEHIND_ID as i32)];
const V6_LENGTH: [Table; 2] = [changes(43), changes(42)];

/// The changes of a CRC by a byte with `behind` bytes behind it.
const fn changes(behind: i32) -> Table {
    moved(behind + 1)
}

/// The changes of a CRC, each after so many bytes of zero; before them, if negative.
const fn moved(zeros: i32) -> Table {
    let mut table = [0; 256];
    let mut value = 0;
    while value < table.len() {
        let (mut crc, mut n) = (value as u32, 0);
        while n < zeros.unsigned_abs() {
            crc = if zeros > 0 { over_zero(crc) } else { back_over_zero(crc) };
            n += 1;
        }
        table[value] = crc;
        value += 1;
    }
    table
}

/// The place of FECN and BECN in the BTH.
const BTH_CONGESTION: usize = 4;

/// The changes that the CRC before the BTH needs for each change of [`BTH_CONGESTION`], so that this byte need
/// not be masked where it is.
const BEFORE_CONGESTION: Table = moved(-(BTH_CONGESTION as i32));

/// A change of the CRC, after one more byte of zero.
const fn over_zero(crc: u32) -> u32 {
    let (mut crc, mut bit) = (crc, 0);
    while bit < u8::BITS {
        crc = (crc >> 1) ^ if crc & 1 == 0 { 0 } else { POLYNOMIAL };
        bit += 1;
    }
    crc
}

/// The inverse of [`over_zero`].
const fn back_over_zero(crc: u32) -> u32 {
    let (mut crc, mut bit) = (crc, 0);
    while bit < u8::BITS {
        // The polynomial has the highest bit, and shifting has not.
        crc = if crc >> 31 == 0 { crc << 1 } else { (crc ^ POLYNOMIAL) << 1 | 1 };
        bit += 1;
    }
    crc
}

/// [`back_over_zero`] for so many bytes of zero. Going back is a multiplication, whose factors for 1, 2, 4 bytes and so on are
/// known.
fn back_over_zeros(crc: u32, zeros: usize) -> u32 {
    let of_bit = |bit: &(usize, u32)| zeros >> bit.0 & 1 != 0;
    let factors = BACK.iter().copied().enumerate().filter(of_bit);
    factors.fold(crc, |crc, (_, factor)| product(crc, factor))
}

/// The factors that go back over 2^n bytes of zero, up to the longest packet.
const BACK: [u32; 17] = {
    let (mut factors, mut n) = ([back_over_zero(ONE); 17], 1);
    while n < factors.len() {
        factors[n] = product(factors[n - 1], factors[n - 1]);
        n += 1;
    }
    factors
};

/// The product of two polynomials, modulo that of the CRC. The highest bit is the constant term, as in a register.
const fn product(a: u32, b: u32) -> u32 {
    let (mut sum, mut shifted, mut bit) = (0, b, ONE);
    while bit != 0 {
        if a & bit != 0 {
            sum ^= shifted;
        }
        shifted = (shifted >> 1) ^ if shifted & 1 == 0 { 0 } else { POLYNOMIAL };
        bit >>= 1;
    }
    sum
}

/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// Bytes from the IPv4 identification to the end of the UDP header.
const BEHIND_ID: usize = 22;

/// The CRC of the 8 bytes of ones that stand for an InfiniBand local route header.
const AFTER_LRH: u32 = !0xdebb_20e3;

const ONES: u8 = 0xff;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const UDP_LEN: usize = 8;

const _: () = assert!(BTH_CONGESTION < Bth::LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        let bytes = [&bth[..], &payload].concat();
        let icrcs = ([0x78, 0xf3, 0x53, 0xf3], [0x3e, 0x5b, 0x74, 0x3b]);
        assert_eq!(IcrcSeed::v4(&v4, &udp).icrc(&bytes), icrcs.0);
        assert_eq!(IcrcSeed::v6(&v6, &udp).icrc(&bytes), icrcs.1);

        // The fields that routers change make no difference.
        (v4[1], v4[8], v4[10]) = (0, 1, 2);
        (v6[0], v6[3], v6[7]) = (0x60, 0, 1);
        assert_eq!(IcrcSeed::v4(&v4, &udp).icrc(&bytes), icrcs.0);
        assert_eq!(IcrcSeed::v6(&v6, &udp).icrc(&bytes), icrcs.1);
    }

    /// The masked byte of the BTH makes no difference, whatever it is.
    #[test]
    fn congestion_bits_make_no_difference() {
        let seed = IcrcSeed::v4(&[3; V4_LEN], &[4; UDP_LEN]);
        let mut bytes = [5; 40];
        let icrcs = [0, 0x40, 0x80, 0xc0, 1, 0xff].map(|congestion| {
            bytes[BTH_CONGESTION] = congestion;
            seed.icrc(&bytes)
        });
        assert_eq!(icrcs, [icrcs[0]; 6]);
        bytes[BTH_CONGESTION + 1] ^= 1;
        assert_ne!(seed.icrc(&bytes), icrcs[0]);
    }

    proptest! {
        /// An identification that was not seen is found, for a packet of any length, and by nobody who saw it.
        #[test]
        fn an_unseen_identification_is_found(
            ids in any::<[u16; 2]>(),
            len in 12_usize..5000,
            damage in 1..=u16::MAX,
        ) {
            let seed = |id: u16| {
                let mut v4 = [7; V4_LEN];
                v4[4..6].copy_from_slice(&id.to_be_bytes());
                IcrcSeed::v4(&v4, &[9; UDP_LEN])
            };
            let mut bytes: std::vec::Vec<u8> = (0..len).map(|i| i as u8).collect();
            let icrc = seed(ids[0]).icrc(&bytes);
            let (unseen, seen) = (IcrcCheck::UnseenId(seed(ids[1])), IcrcCheck::Seen(seed(ids[1])));
            prop_assert_eq!(unseen.judge(&bytes, icrc), Some(ids[0] ^ ids[1]));
            prop_assert_eq!(seen.judge(&bytes, icrc), (ids[0] == ids[1]).then_some(0));
            // IPv6 has none that could explain it.
            let headers = IcrcSeed::v6(&[7; V6_LEN], &[9; UDP_LEN]);
            let [a, b, own] = [icrc, seed(ids[1]).icrc(&bytes), headers.icrc(&bytes)];
            let icrc6 = core::array::from_fn(|i| own[i] ^ a[i] ^ b[i]);
            let judged = IcrcCheck::UnseenId(headers).judge(&bytes, icrc6);
            prop_assert_eq!(judged, (ids[0] == ids[1]).then_some(0));
            // Damage in one place is not taken for another identification.
            bytes[10..12].iter_mut().zip(damage.to_be_bytes()).for_each(|(byte, flip)| *byte ^= flip);
            prop_assert_eq!(unseen.judge(&bytes, icrc), None);
        }
    }

    proptest! {
        /// A seed that was varied is that of the varied headers.
        #[test]
        fn varied_headers_have_varied_seeds(
            v4 in any::<[u8; V4_LEN]>(),
            v6 in any::<[[u8; 20]; 2]>(),
            udp in any::<[u8; UDP_LEN]>(),
            from in any::<(u16, u16)>(),
            to in any::<(u16, u16)>(),
        ) {
            let of = |(ip_id, udp_len): (u16, u16)| {
                let (mut v4, mut v6, mut udp) = (v4, v6.as_flattened().first_chunk().copied().unwrap(), udp);
                v4[2..4].copy_from_slice(&udp_len.wrapping_add(20).to_be_bytes());
                v4[4..6].copy_from_slice(&ip_id.to_be_bytes());
                v6[4..6].copy_from_slice(&udp_len.to_be_bytes());
                udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
                [IcrcSeed::v4(&v4, &udp), IcrcSeed::v6(&v6, &udp)]
            };
            let varying = |(ip_id, udp_len)| Varying { ip_id, udp_len };
            prop_assert_eq!(of(from).map(|seed| seed.vary(varying(from), varying(to))), of(to));
        }
    }
}
