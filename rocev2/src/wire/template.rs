//! The headers that all packets to a peer share: made once, then copied and patched for each packet.

use super::encap::Encap;
use super::icrc::{IcrcSeed, Varying};

/// Ethernet with a tag, IPv6, UDP.
const LEN_MAX: usize = 14 + 4 + 40 + 8;
/// Lengths and identification of the headers in a template.
const BLANK: Varying = Varying { ip_id: 0, udp_len: 0 };

/// The changes of a template for packets of one length, whose headers differ in their identification alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch {
    udp_len: u16,
    /// The IPv4 header's words but for identification and checksum, added up.
    sum: u32,
    seed: IcrcSeed,
}

/// Layers 2 to 4 of all packets to a peer.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: [u8; LEN_MAX],
    len: usize,
    v4: bool,
    /// The IPv4 header's words but for length, identification and checksum, added up.
    sum: u32,
    seed: IcrcSeed,
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
            sum = words.map(u32::from).sum();
        }
        Self { bytes, len, v4, sum, seed }
    }

    /// Bytes from the Ethernet to the UDP header.
    pub const fn header_len(&self) -> usize {
        self.len
    }

    /// Whether each packet has an identification of its own.
    pub(super) const fn has_ids(&self) -> bool {
        self.v4
    }

    /// Of no packet.
    pub(super) const fn blank(&self) -> Patch {
        Patch { udp_len: BLANK.udp_len, sum: self.sum, seed: self.seed }
    }

    /// Makes `patch` that of packets of this length, if it is another's.
    #[inline(always)]
    pub(super) fn size(&self, patch: &mut Patch, udp_len: u16) {
        if patch.udp_len != udp_len {
            *patch = self.patch(udp_len);
        }
    }

    /// The changes for packets of this length.
    #[inline]
    pub(super) fn patch(&self, udp_len: u16) -> Patch {
        let total_len = udp_len.wrapping_add(20);
        let seed = self.seed.vary_len(BLANK.udp_len, udp_len);
        Patch { udp_len, sum: self.sum + u32::from(total_len), seed }
    }

    /// Writes the headers of a packet to `out`.
    ///
    /// # Panics
    /// Where `out` is not [`Self::header_len`] bytes.
    #[inline(always)]
    pub(super) fn emit(&self, patch: &Patch, ip_id: u16, out: &mut [u8]) {
        const UNTAGGED: usize = 14 + 20 + 8;
        match out.as_mut_array::<UNTAGGED>() {
            // Most packets, with a length that the compiler knows.
            Some(out) if self.v4 => {
                *out = *self.bytes.first_chunk().expect("a template is longer");
                self.vary(patch, ip_id, out);
            }
            _ => self.emit_any(patch, ip_id, out),
        }
    }

    #[inline(never)]
    fn emit_any(&self, patch: &Patch, ip_id: u16, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[..self.len]);
        self.vary(patch, ip_id, out);
    }

    /// Writes what each packet has of its own.
    #[inline(always)]
    fn vary(&self, patch: &Patch, ip_id: u16, out: &mut [u8]) {
        let udp_len = patch.udp_len.to_be_bytes();
        if self.v4 {
            let Some(Ipv4 { ip, udp }) = Ipv4::of(out) else { return };
            let total_len = patch.udp_len.wrapping_add(20);
            let sum = patch.sum + u32::from(ip_id);
            let folded = (sum & 0xffff) + (sum >> 16);
            let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
            [ip[2], ip[3]] = total_len.to_be_bytes();
            [ip[4], ip[5]] = ip_id.to_be_bytes();
            [ip[10], ip[11]] = checksum.to_be_bytes();
            [udp[4], udp[5]] = udp_len;
        } else if let Some(headers) = out.last_chunk_mut::<48>() {
            [headers[4], headers[5]] = udp_len;
            [headers[44], headers[45]] = udp_len;
        }
    }
}

impl Patch {
    /// The four bytes that end a packet with these headers; `bytes` go from its BTH to the last pad byte.
    #[inline(always)]
    pub(super) fn icrc(&self, ip_id: u16, bytes: &[u8]) -> [u8; 4] {
        self.seed.vary_id(BLANK.ip_id, ip_id).icrc(bytes)
    }
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
