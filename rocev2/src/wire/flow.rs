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
const WORD: usize = 8;
const UDP_LEN: usize = 8;
/// BTH and ICRC: less is no packet.
const UDP_LEN_MIN: usize = UDP_LEN + Bth::LEN + 4;

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

impl Kind {
    const WORDS_MAX: usize = 8;

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

    /// The kind of a frame, as far as its first bytes show.
    fn of(frame: &[u8]) -> Option<Self> {
        match frame.get(12..18)? {
            [0x08, 0x00, ..] => Some(Self::V4),
            [0x86, 0xdd, ..] => Some(Self::V6),
            [0x81, 0x00, _, _, 0x08, 0x00] => Some(Self::V4Tagged),
            _ => None,
        }
    }

    /// The bits that equal packets have in common.
    const fn mask(self) -> &'static [u64] {
        const V4: [u64; 6] = mask::<6>(Kind::V4);
        const V4_TAGGED: [u64; 6] = mask::<6>(Kind::V4Tagged);
        const V6: [u64; 8] = mask::<8>(Kind::V6);
        match self {
            Self::V4 => &V4,
            Self::V4Tagged => &V4_TAGGED,
            Self::V6 => &V6,
        }
    }
}

/// The bits of the headers of `kind` that equal packets have in common.
const fn mask<const WORDS: usize>(kind: Kind) -> [u64; WORDS] {
    let mut masks = [0; WORDS];
    let mut at = 0;
    while at < kind.bth() {
        let byte = match (kind.is_v4(), at.wrapping_sub(kind.l3())) {
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

/// The first words of a frame that `mask` covers.
fn words<'a>(frame: &'a [u8], mask: &'a [u64]) -> Option<impl Iterator<Item = u64> + 'a> {
    let bytes = frame.get(..mask.len() * WORD)?.as_chunks().0;
    Some(bytes.iter().zip(mask).map(|(word, mask)| u64::from_le_bytes(*word) & mask))
}

/// The QPN of a frame, if it is a RoCE packet that may have a short way. Nothing about it is checked.
pub(crate) fn destination_of(frame: &[u8]) -> Option<Qpn> {
    let bth = Kind::of(frame)?.bth();
    let &[q0, q1, q2] = frame.get(bth + 5..)?.first_chunk()?;
    Some(Qpn::new(u32::from_be_bytes([0, q0, q1, q2])))
}

impl Flow {
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
        flow.words.iter_mut().zip(words(frame, kind.mask())?).for_each(|(to, word)| *to = word);
        if kind.is_v4() {
            let &[version, _, _, _, _, _, f0, f1, _, protocol, _, _, ref ends @ ..] =
                l3.first_chunk::<20>()?;
            let ends: [[u8; 2]; 4] = ends.as_chunks().0.try_into().ok()?;
            let words = [[version, 0], [f0, f1], [0, protocol]].into_iter().chain(ends);
            flow.sum = words.map(|word| u32::from(u16::from_be_bytes(word))).sum();
        }
        // Odd lengths, say, have no short way. The payload is the same bytes.
        let Packet { encap, bth, ext, payload } = flow.parse(frame)?;
        let same = (encap, bth, ext) == (packet.encap, packet.bth, packet.ext);
        (same && payload.len() == packet.payload.len()).then_some(flow)
    }

    /// The packet of a frame; `None` where it has other headers than the flow, or anything is wrong with it.
    pub(crate) fn parse<'a>(&self, frame: &'a [u8]) -> Option<Packet<'a>> {
        let words = words(frame, self.kind.mask())?;
        if words.zip(self.words).fold(0, |differences, (a, b)| differences | (a ^ b)) != 0 {
            return None;
        }
        let l3 = frame.get(self.kind.l3()..)?;
        let (encap, udp_len) =
            if self.kind.is_v4() { self.parse_v4(l3)? } else { self.parse_v6(l3)? };
        let l4 = l3.get(self.kind.bth() - self.kind.l3() - UDP_LEN..)?;
        let udp = l4.get(..usize::from(udp_len)).filter(|udp| udp.len() >= UDP_LEN_MIN)?;
        let varying = Varying { ip_id: encap.ip_id, udp_len };
        let seed = self.seed.vary(self.seeded, varying);
        Packet::parse_transport(encap, seed, &udp[UDP_LEN..], false).ok()
    }

    /// The fields that an IPv4 header has of its own, and the UDP length, on which both headers agree.
    fn parse_v4(&self, l3: &[u8]) -> Option<(Encap, u16)> {
        let &[_, tos, n0, n1, i0, i1, _, _, ttl, _, c0, c1, ..] = l3.first_chunk::<28>()?;
        let &[.., l0, l1, _, _] = l3.first_chunk::<28>()?;
        let [total_len, ip_id, checksum, udp_len] =
            [[n0, n1], [i0, i1], [c0, c1], [l0, l1]].map(u16::from_be_bytes);
        let own = [total_len, ip_id, checksum, tos.into(), u16::from(ttl) << 8].map(u32::from);
        let sum = self.sum + own.iter().sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        let right = (folded & 0xffff) + (folded >> 16) == 0xffff;
        let encap = Encap { traffic_class: tos, hop_limit: ttl, ip_id, ..self.encap };
        (right && total_len.checked_sub(20) == Some(udp_len)).then_some((encap, udp_len))
    }

    /// The fields that an IPv6 header has of its own, and the UDP length, on which both headers agree.
    fn parse_v6(&self, l3: &[u8]) -> Option<(Encap, u16)> {
        let &[v0, v1, _, _, n0, n1, _, hop_limit, ..] = l3.first_chunk::<48>()?;
        let &[.., l0, l1, _, _] = l3.first_chunk::<48>()?;
        let encap = Encap { traffic_class: v0 << 4 | v1 >> 4, hop_limit, ..self.encap };
        ([n0, n1] == [l0, l1]).then_some((encap, u16::from_be_bytes([l0, l1])))
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
