//! A short way to parse the packets of a peer that was heard before.
//!
//! Its packets have the same headers down to UDP, but for lengths, identification, hop limit and congestion
//! marks. Where the headers of a frame equal those of a packet that passed [`Packet::parse`], most of its checks
//! need not be made again. Whatever differs takes the general way, so that both ways give the same packets.

use super::encap::Encap;
use super::icrc::{IcrcSeed, Varying};
use super::{Bth, Packet};
use crate::ids::Qpn;

/// Bytes compared at a time.
const WORD: usize = size_of::<u64>();
const UDP_LEN: usize = 8;
/// BTH and ICRC: less is no packet.
const TRANSPORT_LEN_MIN: usize = Bth::LEN + 4;

/// The encapsulations that have a short way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    V4,
    V4Tagged,
    V6,
}

/// The headers of the packets from a peer.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    kind: Kind,
    /// The beginning of a frame, 0 where frames differ.
    words: [u64; Kind::WORDS_MAX],
    /// The sum of an IPv4 header's words but for type of service, length, identification, TTL and checksum.
    sum: u32,
    seed: IcrcSeed,
    /// Lengths and identification in `seed`.
    seeded: Varying,
    encap: Encap,
}

/// A frame of a flow, from the BTH on not parsed yet.
#[derive(Debug)]
pub(crate) struct Known<'f, 'a> {
    flow: &'f Flow,
    own: Own,
    pub(super) seed: IcrcSeed,
    /// BTH to ICRC.
    pub(super) bytes: &'a [u8],
}

/// The seed of the packets of one length of a flow, but for their identification.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Like {
    udp_len: u16,
    seed: IcrcSeed,
}

/// The header fields that each packet of a flow has of its own.
#[derive(Clone, Copy, Debug)]
struct Own {
    traffic_class: u8,
    hop_limit: u8,
    varying: Varying,
}

impl<'f, 'a> Known<'f, 'a> {
    /// DSCP and ECN bits.
    pub(crate) const fn traffic_class(&self) -> u8 {
        self.own.traffic_class
    }

    /// Bytes from the Ethernet header to the ICRC.
    pub(crate) const fn wire_len(&self) -> usize {
        self.flow.kind.bth() + self.bytes.len()
    }

    /// The packet; `None` where anything is wrong with it.
    pub(crate) fn packet(&self) -> Option<Packet<'a>> {
        let Own { traffic_class, hop_limit, varying } = self.own;
        let encap = Encap { traffic_class, hop_limit, ip_id: varying.ip_id, ..self.flow.encap };
        Packet::parse_transport(encap, self.seed, self.bytes, false).ok()
    }
}

impl Kind {
    const WORDS_MAX: usize = 10;

    /// Where the IP header begins.
    const fn l3(self) -> usize {
        match self {
            Self::V4 | Self::V6 => 14,
            Self::V4Tagged => 18,
        }
    }

    const fn is_v4(self) -> bool {
        !matches!(self, Self::V6)
    }

    /// Where the BTH begins.
    const fn bth(self) -> usize {
        self.l3() + if self.is_v4() { 20 } else { 40 } + UDP_LEN
    }

    /// The beginning of a frame, 0 where equal packets differ.
    fn words(self, frame: &[u8]) -> Option<[u64; Self::WORDS_MAX]> {
        match self {
            Self::V4 => words(frame, &V4),
            Self::V4Tagged => words(frame, &V4_TAGGED),
            Self::V6 => words(frame, &V6),
        }
    }

    /// The kind of a frame, as far as its first bytes show.
    fn of(frame: &[u8]) -> Option<Self> {
        match frame.get(12..18)? {
            [0x08, 0x00, ..] => Some(Self::V4),
            [0x86, 0xdd, ..] => Some(Self::V6),
            [0x81, 0x00, _, _, 0x08, 0x00] => Some(Self::V4Tagged),
            _ => None,
        }
    }
}

const V4: [u64; 7] = mask(Kind::V4);
const V4_TAGGED: [u64; 8] = mask(Kind::V4Tagged);
const V6: [u64; 10] = mask(Kind::V6);

/// The bits of the headers of `kind` that equal packets have in common.
const fn mask<const WORDS: usize>(kind: Kind) -> [u64; WORDS] {
    let mut masks = [0; WORDS];
    let mut at = 0;
    while at < kind.bth() + Bth::LEN {
        let byte = match (kind.is_v4(), at.wrapping_sub(kind.l3())) {
            // The BTH: header version; partition key, but for its membership bit; QPN.
            _ if at == kind.bth() + 1 => 0x0f,
            _ if at == kind.bth() + 2 => 0x7f,
            _ if matches!(at.wrapping_sub(kind.bth()), 3 | 5..8) => 0xff,
            _ if at >= kind.bth() => 0,
            // Type of service; length and identification; TTL; checksum.
            (true, 1 | 2..6 | 8 | 10..12) => 0,
            // UDP length.
            (true, 24..26) | (false, 44..46) => 0,
            // Traffic class; length; hop limit.
            (false, 0) => 0xf0,
            (false, 1) => 0x0f,
            (false, 4 | 5 | 7) => 0,
            _ => 0xff,
        };
        masks[at / WORD] |= byte << (8 * (at % WORD));
        at += 1;
    }
    masks
}

/// The first words of a frame, as far as they are in `mask`.
fn words<const WORDS: usize>(frame: &[u8], mask: &[u64; WORDS]) -> Option<[u64; Kind::WORDS_MAX]> {
    let (bytes, mut words) = (frame.as_chunks().0.first_chunk::<WORDS>()?, [0; Kind::WORDS_MAX]);
    for ((to, word), mask) in words.iter_mut().zip(bytes).zip(mask) {
        *to = u64::from_le_bytes(*word) & mask;
    }
    Some(words)
}

/// The QPN of a frame, if it is a RoCE packet that may have a short way. Nothing about it is checked.
pub(crate) fn destination_of(frame: &[u8]) -> Option<Qpn> {
    let bth = Kind::of(frame)?.bth();
    let &[q0, q1, q2] = frame.get(bth + 5..)?.first_chunk()?;
    Some(Qpn::new(u32::from_be_bytes([0, q0, q1, q2])))
}

impl Flow {
    /// Layers 2 to 4 of a packet of the flow; each has some fields of its own.
    pub(crate) const fn encap(&self) -> &Encap {
        &self.encap
    }

    /// The flow of `packet`, which came as `frame`; `None` for an encapsulation without a short way.
    pub(crate) fn of(frame: &[u8], packet: &Packet<'_>) -> Option<Self> {
        let kind = Kind::of(frame)?;
        let mut flow = Self {
            kind,
            words: [0; Kind::WORDS_MAX],
            sum: 0,
            seed: seed(kind, frame)?,
            seeded: Varying { ip_id: packet.encap.ip_id, udp_len: 0 },
            encap: packet.encap,
        };
        let (l3, udp) = frame.get(kind.l3()..kind.bth())?.split_last_chunk::<UDP_LEN>()?;
        let &[_, _, _, _, l0, l1, c0, c1] = udp;
        // A checksum of UDP would differ, too.
        if [c0, c1] != [0, 0] {
            return None;
        }
        flow.seeded.udp_len = u16::from_be_bytes([l0, l1]);
        flow.words = kind.words(frame)?;
        if kind.is_v4() {
            let &[version, _, _, _, _, _, f0, f1, _, protocol, _, _, ref ends @ ..] =
                l3.first_chunk::<20>()?;
            let ends: [[u8; 2]; 4] = ends.as_chunks().0.try_into().ok()?;
            let words = [[version, 0], [f0, f1], [0, protocol]].into_iter().chain(ends);
            flow.sum = words.map(|word| u32::from(u16::from_be_bytes(word))).sum();
        }
        // Odd lengths, say, have no short way. The payload is the same bytes.
        let Packet { encap, bth, ext, payload } = flow.check(frame)?.packet()?;
        let same = (encap, bth, ext) == (packet.encap, packet.bth, packet.ext);
        (same && payload.len() == packet.payload.len()).then_some(flow)
    }

    /// A frame of the flow; `None` where it has other headers, or anything is wrong with them.
    pub(crate) fn check<'a>(&self, frame: &'a [u8]) -> Option<Known<'_, 'a>> {
        self.check_like(frame, &mut self.like())
    }

    /// The seed of packets as long as the one that the flow was learnt from.
    pub(crate) const fn like(&self) -> Like {
        Like { udp_len: self.seeded.udp_len, seed: self.seed }
    }

    /// The same as [`Self::check`], and quicker where the frame is as long as the last one.
    #[inline(always)]
    pub(crate) fn check_like<'a>(&self, frame: &'a [u8], last: &mut Like) -> Option<Known<'_, 'a>> {
        let (own, rest) = match self.kind {
            Kind::V4 => {
                let headers = self.headers::<{ Kind::V4.bth() }, _>(frame, &V4)?;
                (self.check_v4(headers.last_chunk()?)?, &frame[headers.len()..])
            }
            Kind::V4Tagged => {
                let headers = self.headers::<{ Kind::V4Tagged.bth() }, _>(frame, &V4_TAGGED)?;
                (self.check_v4(headers.last_chunk()?)?, &frame[headers.len()..])
            }
            Kind::V6 => {
                let headers = self.headers::<{ Kind::V6.bth() }, _>(frame, &V6)?;
                (Self::check_v6(headers.last_chunk()?)?, &frame[headers.len()..])
            }
        };
        let Varying { ip_id, udp_len } = own.varying;
        let bytes = rest.get(..usize::from(udp_len).checked_sub(UDP_LEN)?)?;
        if bytes.len() < TRANSPORT_LEN_MIN {
            return None;
        }
        if udp_len != last.udp_len {
            *last = Like { udp_len, seed: self.seed.vary_len(self.seeded.udp_len, udp_len) };
        }
        let seed = last.seed.vary_id(self.seeded.ip_id, ip_id);
        Some(Known { flow: self, own, seed, bytes })
    }

    /// The headers of a frame down to UDP, if they and the constant part of the BTH are those of the flow.
    #[inline(always)]
    fn headers<'a, const LEN: usize, const WORDS: usize>(
        &self,
        frame: &'a [u8],
        mask: &[u64; WORDS],
    ) -> Option<&'a [u8; LEN]> {
        let words = frame.as_chunks().0.first_chunk::<WORDS>()?;
        let pairs = words.iter().zip(mask).zip(&self.words);
        let differ =
            |sum, ((a, mask), b): ((&[u8; WORD], _), _)| sum | (u64::from_le_bytes(*a) & mask) ^ b;
        if pairs.fold(0, differ) == 0 { frame.first_chunk() } else { None }
    }

    #[inline(always)]
    fn check_v4(&self, headers: &[u8; 20 + UDP_LEN]) -> Option<Own> {
        let &[_, tos, n0, n1, i0, i1, _, _, ttl, _, c0, c1, .., l0, l1, _, _] = headers;
        let [total_len, ip_id, checksum, udp_len] =
            [[n0, n1], [i0, i1], [c0, c1], [l0, l1]].map(u16::from_be_bytes);
        let own = [total_len, ip_id, checksum, tos.into(), u16::from(ttl) << 8].map(u32::from);
        let sum = self.sum + own.iter().sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        let right = (folded & 0xffff) + (folded >> 16) == 0xffff;
        let varying = Varying { ip_id, udp_len };
        let own = Own { traffic_class: tos, hop_limit: ttl, varying };
        // Both headers agree on the length.
        (right && total_len.checked_sub(20) == Some(udp_len)).then_some(own)
    }

    #[inline]
    fn check_v6(headers: &[u8; 40 + UDP_LEN]) -> Option<Own> {
        let &[v0, v1, _, _, n0, n1, _, hop_limit, .., l0, l1, _, _] = headers;
        let varying = Varying { ip_id: 0, udp_len: u16::from_be_bytes([l0, l1]) };
        let own = Own { traffic_class: v0 << 4 | v1 >> 4, hop_limit, varying };
        ([n0, n1] == [l0, l1]).then_some(own)
    }
}

/// The seed of a frame's headers.
fn seed(kind: Kind, frame: &[u8]) -> Option<IcrcSeed> {
    let (l3, udp) = frame.get(kind.l3()..kind.bth())?.split_last_chunk()?;
    Some(match kind {
        Kind::V4 | Kind::V4Tagged => IcrcSeed::v4(l3.first_chunk()?, udp),
        Kind::V6 => IcrcSeed::v6(l3.first_chunk()?, udp),
    })
}
