//! The headers that all packets to a peer share: made once, then copied for each packet, and patched where its length is another.

use super::encap::Encap;
use super::icrc::{IcrcSeed, Varying};

/// Ethernet with a tag, IPv6, UDP.
const LEN_MAX: usize = 14 + 4 + 40 + 8;
/// Lengths and identification of the headers in a template.
const BLANK: Varying = Varying { ip_id: 0, udp_len: 0 };

/// The part of packets of one length in checksum and ICRC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch {
    udp_len: u16,
    /// The IPv4 header's words but for identification and checksum, added up in one's complement.
    sum: u16,
    seed: IcrcSeed,
}

/// Layers 2 to 4 of all packets to a peer, with the lengths of the last one: the next is mostly as long.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: [u8; LEN_MAX],
    len: usize,
    v4: bool,
    /// The IPv4 header's words but for length, identification and checksum, added up in one's complement.
    sum: u16,
    patch: Patch,
}

impl Template {
    /// The headers of `encap`, whose identification is each packet's own.
    pub fn new(encap: &Encap) -> Self {
        let (mut bytes, len) = ([0; LEN_MAX], encap.header_len());
        let (headers, _) = bytes.split_at_mut(len);
        let seed = Encap { ip_id: BLANK.ip_id, ..*encap }.emit(BLANK.udp_len, headers);
        let v4 = encap.src.is_ipv4();
        let mut sum = 0;
        if let Some(Ipv4 { ip, .. }) = Ipv4::of(headers).filter(|_| v4) {
            [ip[2], ip[3], ip[10], ip[11]] = [0; 4];
            let words = ip.as_chunks().0.iter().map(|word| u16::from_be_bytes(*word));
            sum = words.fold(0, add);
        }
        Self { bytes, len, v4, sum, patch: Patch { udp_len: BLANK.udp_len, sum, seed } }
    }

    /// Bytes from the Ethernet to the UDP header.
    pub const fn header_len(&self) -> usize {
        self.len
    }

    /// Whether each packet has an identification of its own.
    pub(super) const fn has_ids(&self) -> bool {
        self.v4
    }

    /// Goes over to packets of this length, if it has another's.
    #[inline(always)]
    pub(super) fn resize(&mut self, udp_len: u16) {
        if self.patch.udp_len != udp_len {
            self.patch = self.patch(udp_len);
            let (headers, _) = self.bytes.split_at_mut(self.len);
            self.patch.set_lengths(self.v4, headers);
        }
    }

    /// The patch for packets of this length.
    #[inline]
    pub(super) fn patch(&self, udp_len: u16) -> Patch {
        let Patch { udp_len: from, seed, .. } = self.patch;
        let sum = add(self.sum, total_len(udp_len));
        Patch { udp_len, sum, seed: seed.vary_len(from, udp_len) }
    }

    /// Writes the headers of a packet of its length to `out`. Returns the four bytes that end it; `bytes` go from its BTH,
    /// in which FECN and BECN are clear, to the last pad byte.
    ///
    /// # Panics
    /// Where `out` is not [`Self::header_len`] bytes.
    #[inline(always)]
    pub(super) fn seal(&self, ip_id: u16, out: &mut [u8], bytes: &[u8]) -> [u8; 4] {
        const UNTAGGED: usize = 14 + 20 + 8;
        let patch = &self.patch;
        let seed = match out.as_mut_array::<UNTAGGED>() {
            // Most packets, with a length that the compiler knows.
            Some(out) if self.v4 => {
                *out = *self.bytes.first_chunk().expect("a template is longer");
                patch.set_id(ip_id, out);
                patch.seed.vary_v4_id(BLANK.ip_id, ip_id)
            }
            _ => {
                self.emit(patch, ip_id, out);
                patch.seed.vary_id(BLANK.ip_id, ip_id)
            }
        };
        seed.icrc_unmarked(bytes)
    }

    /// Writes the headers of a packet of the length of `patch` to `out`.
    ///
    /// # Panics
    /// Where `out` is not [`Self::header_len`] bytes.
    #[inline(never)]
    pub(super) fn emit(&self, patch: &Patch, ip_id: u16, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[..self.len]);
        patch.set_lengths(self.v4, out);
        if self.v4 {
            patch.set_id(ip_id, out);
        }
    }
}

impl Patch {
    /// The four bytes that end a packet with these headers; `bytes` go from its BTH to the last pad byte.
    #[inline(always)]
    pub(super) fn icrc(&self, ip_id: u16, bytes: &[u8]) -> [u8; 4] {
        self.seed.vary_id(BLANK.ip_id, ip_id).icrc(bytes)
    }

    fn set_lengths(&self, v4: bool, out: &mut [u8]) {
        let udp_len = self.udp_len.to_be_bytes();
        if v4 {
            let Some(Ipv4 { ip, udp }) = Ipv4::of(out) else { return };
            [ip[2], ip[3]] = total_len(self.udp_len).to_be_bytes();
            [udp[4], udp[5]] = udp_len;
        } else if let Some(headers) = out.last_chunk_mut::<48>() {
            [headers[4], headers[5]] = udp_len;
            [headers[44], headers[45]] = udp_len;
        }
    }

    /// Writes what each packet has of its own on IPv4.
    #[inline(always)]
    fn set_id(&self, ip_id: u16, out: &mut [u8]) {
        let Some(Ipv4 { ip, .. }) = Ipv4::of(out) else { return };
        [ip[4], ip[5]] = ip_id.to_be_bytes();
        [ip[10], ip[11]] = (!add(self.sum, ip_id)).to_be_bytes();
    }
}

/// The sum in one's complement: a carry comes back at the other end.
const fn add(sum: u16, word: u16) -> u16 {
    let (sum, carry) = sum.overflowing_add(word);
    sum + carry as u16
}

/// The length in an IPv4 header.
const fn total_len(udp_len: u16) -> u16 {
    udp_len.wrapping_add(20)
}

/// The ends of IPv4 headers.
struct Ipv4<'a> {
    ip: &'a mut [u8; 20],
    udp: &'a mut [u8; 8],
}

impl<'a> Ipv4<'a> {
    #[inline(always)]
    fn of(headers: &'a mut [u8]) -> Option<Self> {
        let (rest, udp) = headers.split_last_chunk_mut()?;
        Some(Self { ip: rest.last_chunk_mut()?, udp })
    }
}
