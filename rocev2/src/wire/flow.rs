//! A short way to parse the packets of a peer that was heard before.
//!
//! Its packets have the same headers down to UDP, but for lengths, identification and congestion
//! marks. Where the headers of a frame equal those of a packet that passed [`Packet::parse`], most of its checks
//! need not be made again. Most frames are even like the one before but for identification and PSN: all that follows
//! from their headers is then known. Whatever differs takes the general way, so that both ways give the same packets.

use super::common::{Common, Layout};
use super::encap::{Encap, is_marked};
use super::icrc::{IcrcCheck, IcrcSeed};
use super::{Bth, Packet};
use crate::ids::Qpn;

/// Bytes compared at a time.
const WORD: usize = size_of::<u64>();
const V4_LEN: usize = 20;
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

/// The headers of the packets from a peer, as the last one had them.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    kind: Kind,
    /// The beginning of its frame.
    words: [u64; Kind::WORDS_MAX],
    /// Bytes from its BTH to its ICRC.
    len: usize,
    /// The sum of its IPv4 header's words, low byte first, but for identification and checksum.
    sum: u32,
    /// The ICRC of its headers, with an identification of 0.
    seed: IcrcSeed,
    /// The parts of a common packet that nobody has marked.
    layout: Option<Layout>,
    encap: Encap,
}

/// A frame of a flow, from the BTH on not parsed yet.
#[derive(Debug)]
pub(crate) struct Known<'f, 'a> {
    flow: &'f Flow,
    ip_id: u16,
    pub(super) seed: IcrcSeed,
    /// BTH to ICRC.
    pub(super) bytes: &'a [u8],
}

impl<'a> Known<'_, 'a> {
    /// The parts of a common packet.
    pub(super) const fn layout(&self) -> Option<&Layout> {
        self.flow.layout.as_ref()
    }

    /// The packet; `None` where anything is wrong with it. Its ICRC may be known to be `right`.
    pub(crate) fn packet(&self, right: bool) -> Option<Packet<'a>> {
        let encap = Encap { ip_id: self.ip_id, ..self.flow.encap };
        let check = if right { IcrcCheck::Done } else { IcrcCheck::Seen(self.seed) };
        Packet::parse_transport(encap, check, self.bytes, false).ok()
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
        self.l3() + if self.is_v4() { V4_LEN } else { 40 } + UDP_LEN
    }

    /// The last byte of the QPN, where the BTH begins at `bth`.
    const fn end_of_qpn(bth: usize) -> usize {
        bth + 7
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

    /// The bits of byte `at` of a frame that all packets of a flow have in common, and those that like ones have.
    const fn common_bits(self, at: usize) -> (u8, u8) {
        match (self.is_v4(), at.wrapping_sub(self.l3()), at.wrapping_sub(self.bth())) {
            // The BTH: request of an ACK and PSN.
            (_, _, 8..Bth::LEN) => (0, 0),
            // Opcode; congestion; flags, but for the header version; membership in the partition.
            (_, _, 0 | 4) => (0, 0xff),
            (_, _, 1) => (0x0f, 0xff),
            (_, _, 2) => (0x7f, 0xff),
            // IPv4: identification; checksum.
            (true, 4..6 | 10..12, _) => (0, 0),
            // Type of service; length; the length of UDP.
            (true, 1..4 | 24..26, _) => (0, 0xff),
            // IPv6: traffic class; length; the length of UDP.
            (false, 0, _) => (0xf0, 0xff),
            (false, 1, _) => (0x0f, 0xff),
            (false, 4 | 5 | 44..46, _) => (0, 0xff),
            _ => (0xff, 0xff),
        }
    }
}

/// The bits of the first words of frames that are compared.
struct Masks<const WORDS: usize> {
    /// They are the same in all packets of a flow.
    flow: [u64; WORDS],
    /// Where they are the same, all else that the headers say is the same.
    like: [u64; WORDS],
}

const V4: Masks<7> = Masks::of(Kind::V4);
const V4_TAGGED: Masks<8> = Masks::of(Kind::V4Tagged);
const V6: Masks<10> = Masks::of(Kind::V6);

impl<const WORDS: usize> Masks<WORDS> {
    const fn of(kind: Kind) -> Self {
        let (mut masks, mut at) = (Self { flow: [0; WORDS], like: [0; WORDS] }, 0);
        while at < kind.bth() + Bth::LEN {
            let (flow, like) = kind.common_bits(at);
            masks.flow[at / WORD] |= (flow as u64) << (8 * (at % WORD));
            masks.like[at / WORD] |= (like as u64) << (8 * (at % WORD));
            at += 1;
        }
        masks
    }
}

/// Whether frames that begin with these words differ in bits of `mask`.
#[inline(always)]
fn differ<const WORDS: usize>(
    words: &[[u8; WORD]; WORDS],
    others: &[u64],
    mask: &[u64; WORDS],
) -> bool {
    let pairs = words.iter().zip(others).zip(mask);
    let differ = |sum, ((word, other), mask): ((&[u8; WORD], _), _)| {
        sum | (u64::from_le_bytes(*word) ^ other) & mask
    };
    pairs.fold(0, differ) != 0
}

/// The QPN of a frame, if it is a RoCE packet that may have a short way. Nothing about it is checked.
#[inline(always)]
pub(crate) fn destination_of(frame: &[u8]) -> Option<Qpn> {
    match frame.first_chunk::<{ Kind::V4.bth() + Bth::LEN }>() {
        // Most frames, with places that the compiler knows.
        Some(&[_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, .., q0, q1, q2, _, _, _, _]) => {
            Some(Qpn::new(u32::from_be_bytes([0, q0, q1, q2])))
        }
        _ => destination_of_any(frame),
    }
}

/// The same of any kind.
fn destination_of_any(frame: &[u8]) -> Option<Qpn> {
    let bth = Kind::of(frame)?.bth();
    let &[q0, q1, q2] = frame.get(bth + 5..)?.first_chunk()?;
    Some(Qpn::new(u32::from_be_bytes([0, q0, q1, q2])))
}

impl Flow {
    /// Layers 2 to 4 of the last packet; its identification may have been another.
    pub(crate) const fn encap(&self) -> &Encap {
        &self.encap
    }

    /// The common packet that a frame of the flow is; `None` where it is another, or anything is wrong with it.
    #[inline(always)]
    pub(crate) fn look<'a>(&mut self, frame: &'a [u8]) -> Option<Common<'a>> {
        Common::of(&self.check(frame)?)
    }

    /// Bytes of the last packet, from the Ethernet header to the ICRC.
    pub(crate) const fn wire_len(&self) -> usize {
        self.header_len() + self.last_len()
    }

    /// Bytes of the headers of each packet, from Ethernet to UDP.
    pub(super) const fn header_len(&self) -> usize {
        self.kind.bth()
    }

    /// Bytes of the last packet, from the BTH to the ICRC.
    pub(super) const fn last_len(&self) -> usize {
        self.len
    }

    /// The flow of `packet`, which came as `frame`; `None` for an encapsulation without a short way.
    pub(crate) fn of(frame: &[u8], packet: &Packet<'_>) -> Option<Self> {
        let kind = Kind::of(frame)?;
        let (headers, udp) = frame.get(kind.l3()..kind.bth())?.split_last_chunk::<UDP_LEN>()?;
        let &[_, _, _, _, l0, l1, c0, c1] = udp;
        // A checksum of UDP would differ, too.
        if [c0, c1] != [0, 0] {
            return None;
        }
        let seed = match kind {
            Kind::V4 | Kind::V4Tagged => IcrcSeed::v4(headers.first_chunk()?, udp),
            Kind::V6 => IcrcSeed::v6(headers.first_chunk()?, udp),
        };
        let mut flow = Self {
            kind,
            words: [0; Kind::WORDS_MAX],
            len: usize::from(u16::from_be_bytes([l0, l1])).checked_sub(UDP_LEN)?,
            sum: 0,
            seed: seed.vary_id(packet.encap.ip_id, 0),
            layout: None,
            encap: packet.encap,
        };
        flow.remember(frame)?;
        // Odd lengths, say, have no short way. The payload is the same bytes.
        let Packet { encap, bth, ext, payload } = flow.check(frame)?.packet(false)?;
        let same = (encap, bth, ext) == (packet.encap, packet.bth, packet.ext);
        (same && payload.len() == packet.payload.len()).then_some(flow)
    }

    /// A frame of the flow; `None` where it has other headers, or anything is wrong with them.
    #[inline(always)]
    pub(crate) fn check<'a>(&mut self, frame: &'a [u8]) -> Option<Known<'_, 'a>> {
        let (ip_id, rest) = match self.kind {
            Kind::V4 => self.check_v4::<{ Kind::V4.bth() }, _>(frame, &V4)?,
            Kind::V4Tagged => self.check_v4::<{ Kind::V4Tagged.bth() }, _>(frame, &V4_TAGGED)?,
            Kind::V6 => (0, self.follow::<{ Kind::V6.bth() }, _>(frame, &V6)?.1),
        };
        let bytes = rest.get(..self.len)?;
        let seed = self.seed.vary_id(0, ip_id);
        Some(Known { flow: self, ip_id, seed, bytes })
    }

    /// The identification of a frame, and the bytes behind its headers.
    #[inline(always)]
    fn check_v4<'a, const LEN: usize, const WORDS: usize>(
        &mut self,
        frame: &'a [u8],
        masks: &Masks<WORDS>,
    ) -> Option<(u16, &'a [u8])> {
        let (headers, rest) = self.follow::<LEN, WORDS>(frame, masks)?;
        let ip = headers.last_chunk::<{ V4_LEN + UDP_LEN }>()?;
        let [_, _, id, _, _, checksum, ..] = ip.as_chunks().0 else { return None };
        let own = [id, checksum].map(|word| u32::from(u16::from_le_bytes(*word)));
        // The sum is right in either order of bytes, and is 0 for no header (RFC 1071).
        let right = (self.sum + own[0] + own[1]).is_multiple_of(0xffff);
        right.then_some((u16::from_be_bytes(*id), rest))
    }

    /// The headers of a frame down to UDP, if they and the constant part of the BTH are those of the flow, and the bytes
    /// behind them. It is the last frame then.
    #[inline(always)]
    fn follow<'a, const LEN: usize, const WORDS: usize>(
        &mut self,
        frame: &'a [u8],
        masks: &Masks<WORDS>,
    ) -> Option<(&'a [u8; LEN], &'a [u8])> {
        let words = frame.as_chunks().0.first_chunk::<WORDS>()?;
        // Where many queue pairs take turns, the QPN is another one.
        let at = Kind::end_of_qpn(LEN) / WORD;
        if (u64::from_le_bytes(words[at]) ^ self.words[at]) & masks.flow[at] != 0 {
            return None;
        }
        if differ(words, &self.words, &masks.like) {
            self.follow_unlike(frame, words, masks)?;
        }
        frame.split_first_chunk()
    }

    /// The same for a frame that is not like the last one; it begins with `words`.
    #[inline(never)]
    fn follow_unlike<const WORDS: usize>(
        &mut self,
        frame: &[u8],
        words: &[[u8; WORD]; WORDS],
        masks: &Masks<WORDS>,
    ) -> Option<()> {
        if differ(words, &self.words, &masks.flow) { None } else { self.remember(frame) }
    }

    /// Makes `frame`, which is of the flow, the last one; `None` where its lengths are wrong.
    fn remember(&mut self, frame: &[u8]) -> Option<()> {
        let (headers, transport) = frame.split_at_checked(self.kind.bth())?;
        let (ip, udp) = headers.get(self.kind.l3()..)?.split_last_chunk::<UDP_LEN>()?;
        let &[opcode, flags, _, _, congestion] = transport.first_chunk()?;
        let &[_, _, _, _, l0, l1, ..] = udp;
        let udp_len = u16::from_be_bytes([l0, l1]);
        let len = usize::from(udp_len).checked_sub(UDP_LEN)?;
        let &[v0, v1, n0, n1, n2, n3] = ip.first_chunk()?;
        let (ip_len, traffic_class) = if self.kind.is_v4() {
            (u16::from_be_bytes([n0, n1]).checked_sub(V4_LEN as u16)?, v1)
        } else {
            (u16::from_be_bytes([n2, n3]), v0 << 4 | v1 >> 4)
        };
        // Both headers agree on the length.
        if ip_len != udp_len || len < TRANSPORT_LEN_MIN {
            return None;
        }
        for (to, word) in self.words.iter_mut().zip(frame.as_chunks().0) {
            *to = u64::from_le_bytes(*word);
        }
        if let Some(&(mut ip)) = ip.first_chunk::<V4_LEN>().filter(|_| self.kind.is_v4()) {
            [ip[4], ip[5], ip[10], ip[11]] = [0; 4];
            let words = ip.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word));
            self.sum = words.map(u32::from).sum();
        }
        // It was a UDP length before, too.
        self.seed = self.seed.vary_len((self.len + UDP_LEN) as u16, udp_len);
        self.encap.traffic_class = traffic_class;
        let layout = Layout::of(opcode, flags, len);
        let marked = is_marked(traffic_class) || congestion != 0;
        (self.len, self.layout) = (len, layout.filter(|_| !marked));
        Some(())
    }
}
