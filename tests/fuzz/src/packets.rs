//! Targets without state: frames and CM datagrams.

use super::{frames, world::emit};
use rocev2::wire::mad::{MAD_LEN, emit_mad, parse_mad};
use rocev2::wire::{DropReason, Packet, dissect, parse_unit};

/// The length of a segment in two bytes, 0 for none, and a received unit.
pub fn packet(data: &[u8]) {
    let Some(([high, low], unit)) = data.split_first_chunk() else { return };
    let segment_len = usize::from(u16::from_be_bytes([*high, *low]));
    let segments = parse_unit(unit, Some(segment_len));
    // Each takes a byte at least, or it would never end.
    let mut count = 0;
    for segment in segments {
        count += 1;
        if let Ok(packet) = segment {
            round_trip(&packet);
        }
    }
    assert!((1..=unit.len().max(1)).contains(&count), "{count} of {}", unit.len());
    let plain: Vec<_> = parse_unit(unit, None).collect();
    let [parsed] = plain[..] else { panic!("a plain frame is one packet") };
    assert_eq!(parsed, Packet::parse(unit));
    let dissection = dissect(unit);
    assert_eq!(dissection.verdict, parsed.map(|_| ()));
    if let Ok(packet) = parsed {
        assert_eq!((dissection.encap, dissection.ext), (Some(packet.encap), Some(packet.ext)));
        assert_eq!(dissection.payload, packet.payload);
    }
}

/// A frame, in which lengths, IPv4 checksum and ICRC are made right and a UDP checksum taken out.
pub fn packet_icrc(data: &[u8]) {
    let mut frame = data.to_vec();
    // Where offsets exist: Ethernet with a tag, IPv6, UDP, BTH, ICRC.
    if frame.len() < 18 + 40 + 8 + 16 {
        frame.resize(18 + 40 + 8 + 16, 0);
    }
    let udp = frames::l4(&frame);
    frame[udp + 6..udp + 8].fill(0);
    frames::seal(&mut frame);
    match Packet::parse(&frame) {
        Ok(packet) => {
            round_trip(&packet);
            // Where the lengths are those of the whole frame, no bit of the ICRC is spare.
            *frame.last_mut().expect("not empty") ^= 1 << (data.len() % 8);
            assert_eq!(Packet::parse(&frame), Err(DropReason::Icrc));
        }
        Err(reason) => assert_ne!(reason, DropReason::Icrc, "{frame:02x?}"),
    }
}

/// A CM datagram, its preamble put right and its length as it has to be.
pub fn mad(data: &[u8]) {
    let mut mad = [0; MAD_LEN];
    let len = data.len().min(MAD_LEN - 4);
    mad[4..4 + len].copy_from_slice(&data[..len]);
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    let Ok((header, message)) = parse_mad(&mad) else { return };
    let mut again = [0xaa; MAD_LEN];
    emit_mad(&header, &message, &mut again);
    assert_eq!(parse_mad(&again), Ok((header, message)));
}

/// What is written of a packet is the same packet.
fn round_trip(packet: &Packet<'_>) {
    let frame = emit(&packet.encap, &packet.bth, &packet.ext, packet.payload);
    let mut expected = *packet;
    // The writer pads to four bytes and no further.
    expected.bth.pad_count = (packet.payload.len().wrapping_neg() & 3) as u8;
    assert_eq!(Packet::parse(&frame), Ok(expected));
}
