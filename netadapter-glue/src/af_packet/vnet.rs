//! The virtio header that precedes each frame of a packet socket, both ways (`PACKET_VNET_HDR`): it says of how many packets a
//! frame is a unit, and what is left to do for its checksum.

use crate::Received;
use crate::segment::{HEADER_MAX_LEN, Segments, fold, layer_3, patch, sum};

/// Writes the virtio header before a frame, and changes the headers of a unit to those of the whole.
///
/// The kernel subtracts the whole length from the UDP checksum and adds that of each segment, so it expects
/// the sum of the pseudo-header there (`CHECKSUM_PARTIAL`).
pub(crate) fn seal(message: &mut [u8], segments: Option<Segments>) {
    let (vnet, unit) = message.split_at_mut(LEN);
    vnet.fill(0);
    let Some(segments) = segments.filter(|segments| segments.count(unit.len()) > 1) else { return };
    let (header, payload) = unit.split_at_mut(segments.header_len);
    patch(header, 0, payload.len());
    let Some(l3) = layer_3(header) else { return };
    let udp = segments.header_len - UDP_LEN;
    let addresses = match header[l3] >> 4 {
        4 => &header[l3 + 12..l3 + 20],
        _ => &header[l3 + 8..l3 + 40],
    };
    let pseudo = sum(addresses) + UDP_PROTOCOL + (UDP_LEN + payload.len()) as u32;
    header[udp + 6..].copy_from_slice(&fold(pseudo).to_be_bytes());
    vnet[0] = NEEDS_CSUM;
    vnet[1] = GSO_UDP_L4;
    vnet[2..4].copy_from_slice(&(segments.header_len as u16).to_ne_bytes());
    vnet[4..6].copy_from_slice(&(segments.segment_len as u16).to_ne_bytes());
    vnet[6..8].copy_from_slice(&(udp as u16).to_ne_bytes());
    vnet[8..10].copy_from_slice(&UDP_CHECKSUM_AT.to_ne_bytes());
}

/// Takes the virtio header off a message. `None` where the frame is a unit of another protocol.
///
/// An unfinished UDP checksum becomes 0 (none): the frame never was on a wire.
pub(crate) fn open(message: &mut [u8]) -> Option<Received<'_>> {
    let (vnet, unit) = message.split_first_chunk_mut::<LEN>()?;
    let [flags, gso, _, _, size_0, size_1, start_0, start_1, offset_0, offset_1] = *vnet;
    let udp = usize::from(u16::from_ne_bytes([start_0, start_1]));
    let checksum_at = u16::from_ne_bytes([offset_0, offset_1]);
    let is_udp = flags & NEEDS_CSUM != 0 && checksum_at == UDP_CHECKSUM_AT;
    if is_udp {
        unit.get_mut(udp + 6..udp + UDP_LEN)?.fill(0);
    }
    match gso {
        GSO_NONE => Some(Received { frame: unit, segments: None }),
        GSO_UDP_L4 if is_udp => {
            let segment_len = usize::from(u16::from_ne_bytes([size_0, size_1]));
            let segments = Segments { header_len: udp + UDP_LEN, segment_len };
            let (header, payload) = unit.split_at_mut_checked(segments.header_len)?;
            if segment_len == 0 || header.len() > HEADER_MAX_LEN {
                return None;
            }
            patch(header, 0, payload.len().min(segment_len));
            Some(Received { frame: unit, segments: Some(segments) })
        }
        _ => None,
    }
}

/// Whether a message, of which the rest may be missing, begins a unit of UDP.
pub(crate) fn begins_unit(message: &[u8]) -> bool {
    message.get(1) == Some(&GSO_UDP_L4)
}

/// `struct virtio_net_hdr`: flags, type, header length, segment length, checksum start and offset.
pub(crate) const LEN: usize = 10;
const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_UDP_L4: u8 = 5;
const UDP_LEN: usize = 8;
const UDP_PROTOCOL: u32 = 17;
/// The offset of the checksum in a UDP header.
const UDP_CHECKSUM_AT: u16 = 6;
