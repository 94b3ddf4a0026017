//! Golden packets of other implementations, and laws of the packet codecs.
//!
//! The ICRC here is computed a second time, over whole packets, and shares no code with the crate.

#[path = "wire/frames.rs"]
mod frames;
#[path = "wire/golden.rs"]
mod golden;

use frames::{
    covered_mask, icrc, l3, l4, ones_complement_sum, seal, seal_icrc, seal_ip, seal_lengths, split,
    stored_icrc, udp_checksum, udp_len, word,
};
use golden::{capture, captures, vectors, w1};
use proptest::prelude::*;
use rocev2::ids::{CommId, Qpn};
use rocev2::psn::Psn;
use rocev2::wire::mad::{CmMessage, IpCm, RejMessage, RejReason, Transport};
use rocev2::wire::mad::{emit_mad, gid, gid_address, parse_mad, service_port};
use rocev2::wire::{
    Bth, DropReason, Encap, Ext, Mac, NakCode, Opcode, Packet, Syndrome, Template, UnitWriter,
    dissect, is_host, parse_unit, source_port,
};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

// Captures of Linux rdma_rxe.

/// PKT-01, PKT-02. Every packet of every capture parses, with a right ICRC, and is written again
/// byte for byte.
#[test]
fn pkt_01_02_captures_round_trip() {
    let mut opcodes = BTreeSet::new();
    let mut packets = 0;
    for capture in captures() {
        for (i, frame) in capture.frames.iter().enumerate() {
            let packet = Packet::parse(frame)
                .unwrap_or_else(|reason| panic!("{} packet {i}: {reason:?}", capture.name));
            assert_eq!(emit(&packet), *frame, "{} packet {i}", capture.name);
            opcodes.insert((packet.bth.opcode as u8, packet.encap.src.is_ipv6()));
            packets += 1;
        }
    }
    assert_eq!(packets, 579);
    // All that rxe sends, but the FLUSH whose ICRC follows a rule of its own.
    let v4: BTreeSet<_> = opcodes.iter().filter(|(_, v6)| !v6).map(|(opcode, _)| *opcode).collect();
    let rc = (0x00..=0x14).chain([0x16, 0x17, 0x64, 0x65]);
    assert!(v4.into_iter().eq(rc), "{opcodes:02x?}");
    assert!(opcodes.contains(&(Opcode::ReadResponseMiddle as u8, true)));
}

/// Frames in which bits were flipped on the way. What the ICRC does not cover may be wrong.
#[test]
fn corrupted_packets_are_dropped() {
    let capture = capture("corrupt_write.pcap");
    assert_eq!(capture.frames.len(), 138);
    let mut dropped = BTreeMap::new();
    for frame in &capture.frames {
        let right = icrc(frame) == stored_icrc(frame);
        let shown = dissect(frame).icrc.expect("a captured packet has an ICRC");
        assert_eq!(shown.stored == shown.computed, right);
        match Packet::parse(frame) {
            Ok(_) => assert!(right),
            Err(reason) => *dropped.entry(reason.index()).or_insert(0) += 1,
        }
    }
    // One of the nine has its flipped bit in the opcode.
    let expected =
        BTreeMap::from([(DropReason::UnknownOpcode.index(), 1), (DropReason::Icrc.index(), 8)]);
    assert_eq!(dropped, expected);
}

/// The connection management datagrams of every capture re-emit to the same 256 bytes.
#[test]
fn captured_mads_round_trip() {
    let mut seen = BTreeMap::new();
    for capture in captures() {
        for frame in &capture.frames {
            let packet = Packet::parse(frame).unwrap();
            if packet.bth.dest_qpn != Qpn::GSI {
                continue;
            }
            let (header, message) = parse_mad(packet.payload).unwrap();
            let mut mad = [0xaa; 256];
            emit_mad(&header, &message, &mut mad);
            assert_eq!(mad, packet.payload, "{}", capture.name);
            *seen.entry(message.name()).or_insert(0) += 1;
            if let CmMessage::Req(req) = &message {
                check_ip_cm(&packet, req.private_data.first_chunk().unwrap());
                assert_eq!(gid_address(req.primary.local_gid), packet.encap.src);
                assert_eq!(gid(packet.encap.dst), req.primary.remote_gid);
            }
        }
    }
    for name in ["REQ", "REP", "RTU", "REJ", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"] {
        assert!(seen.contains_key(name), "{name}: {seen:?}");
    }
}

/// In the captured connections the UDP source port follows from the REQ's flow label.
#[test]
fn captured_source_ports_follow_the_label() {
    for name in ["k612_rping_v4.pcap", "k612_rping_v6.pcap", "k61_rping_v4.pcap"] {
        let mut port = None;
        for frame in &capture(name).frames {
            let packet = Packet::parse(frame).unwrap();
            if packet.bth.opcode.is_connected() {
                assert_eq!(Some(packet.encap.src_port), port, "{name}");
            } else if let (_, CmMessage::Req(req)) = parse_mad(packet.payload).unwrap() {
                port = Some(source_port(req.primary.flow_label, req.local_qpn, req.local_qpn));
            }
        }
    }
}

/// The refusals in the captures say what their names promise.
#[test]
fn captured_naks() {
    let cases = [
        ("nak_bad_rkey.pcap", Syndrome::Nak(NakCode::RemoteAccess)),
        ("nak_bad_rkey_read.pcap", Syndrome::Nak(NakCode::RemoteAccess)),
        ("nak_small_recv.pcap", Syndrome::Nak(NakCode::RemoteOperational)),
        ("corrupt_write.pcap", Syndrome::Nak(NakCode::PsnSequence)),
    ];
    for (name, expected) in cases {
        let capture = capture(name);
        let mut syndromes = capture.frames.iter().filter_map(|frame| syndrome(frame));
        assert!(syndromes.any(|syndrome| syndrome == expected), "{name}");
    }
    let rnr = capture("rnr_exceeded.pcap");
    let rnr_naks = rnr.frames.iter().filter_map(|frame| syndrome(frame));
    assert!(rnr_naks.filter(|syndrome| matches!(syndrome, Syndrome::RnrNak(_))).count() == 4);
}

// Vectors.

/// PKT-01, PKT-02. Single packets of rxe (W1 to W8) and of a ConnectX-4 (V3).
#[test]
fn pkt_01_02_vectors_round_trip() {
    for (name, frame) in vectors() {
        let packet = Packet::parse(&frame).unwrap_or_else(|reason| panic!("{name}: {reason:?}"));
        assert_eq!(icrc(&frame), stored_icrc(&frame), "{name}");
        assert_eq!(emit(&packet), frame, "{name}");
    }
}

#[test]
fn vectors_mean_what_they_say() {
    let frames: BTreeMap<_, _> = vectors().into_iter().collect();
    let packet = |name| Packet::parse(&frames[name]).unwrap();

    let send = packet("W1");
    assert_eq!((send.bth.opcode, send.bth.psn), (Opcode::SendOnly, Psn::new(0xe76ecc)));
    assert!(send.bth.ack_req && !send.bth.migrated && !send.bth.solicited);
    assert_eq!((send.bth.pkey, send.bth.dest_qpn), (0xffff, Qpn::new(0x11)));
    assert_eq!((send.encap.hop_limit, send.encap.ip_id), (64, 0x23fc));
    assert_eq!(send.payload.len(), 16);

    let ack = packet("W2").ext.aeth().unwrap();
    assert_eq!(ack.syndrome, Syndrome::Ack { credits: Syndrome::NO_CREDITS });
    assert_eq!(ack.msn.get(), 1);

    let reth = packet("W3").ext.reth().unwrap();
    assert_eq!((reth.va, reth.rkey.get(), reth.len), (0x0000_5597_935d_d190, 0x5cf, 64));

    let Ext::AtomicEth(atomic) = packet("W6").ext else { panic!("W6") };
    assert_eq!((atomic.va, atomic.swap_or_add, atomic.compare), (0x0000_5559_04eb_3000, 1, 0));

    let Ext::AtomicAck(_, original) = packet("W7").ext else { panic!("W7") };
    assert_eq!(original, 0xe742_2bcd_1cd4_6206);

    let cnp = packet("V3");
    assert_eq!((cnp.ext, cnp.bth.becn, cnp.payload.len()), (Ext::Cnp, true, 0));
    assert_eq!(cnp.encap.src_port, 0);
}

/// CM-01. The worked REQ field by field.
#[test]
fn cm_01_request_fields() {
    let (_, frame) = vectors().pop().unwrap();
    let packet = Packet::parse(&frame).unwrap();
    let deth = packet.ext.deth().unwrap();
    assert_eq!((deth.qkey, deth.src_qpn), (rocev2::wire::mad::GSI_QKEY, Qpn::GSI));
    let (header, message) = parse_mad(packet.payload).unwrap();
    assert_eq!(header.transaction_id, 0x0000_0002_44ed_9184);
    let CmMessage::Req(req) = message else { panic!("not a REQ") };
    assert_eq!(req.local_comm_id, CommId::new(0x8491_ed44));
    assert_eq!(service_port(req.service_id), Some(7174));
    assert_eq!(req.ca_guid, 0x5054_00ff_fe00_0002);
    assert_eq!((req.local_qpn, req.starting_psn), (Qpn::new(0x11), Psn::new(0x600964)));
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!((req.remote_response_timeout, req.local_response_timeout), (20, 20));
    assert_eq!((req.transport, req.flow_control), (Transport::Rc, false));
    assert_eq!((req.retry_count, req.rnr_retry, req.max_cm_retries), (7, 7, 15));
    assert_eq!((req.path_mtu, req.pkey, req.srq), (3, 0xffff, false));
    assert_eq!((req.primary.local_lid, req.primary.remote_lid), (0xffff, 0xffff));
    assert_eq!((req.primary.flow_label, req.primary.hop_limit), (0x7a5c5, 64));
    assert_eq!((req.primary.ack_timeout, req.primary.subnet_local), (17, false));
    assert_eq!(req.alternate, rocev2::wire::mad::Path::NONE);
    check_ip_cm(&packet, req.private_data.first_chunk().unwrap());
}

/// The refusal of a REQ that met no listener.
#[test]
fn captured_rejection_fields() {
    for name in ["cm_reject_v4.pcap", "cm_reject_v6.pcap"] {
        let frames = capture(name).frames;
        let [req, rej] =
            [0, 1].map(|i| parse_mad(Packet::parse(&frames[i]).unwrap().payload).unwrap().1);
        let (CmMessage::Req(req), CmMessage::Rej(rej)) = (req, rej) else { panic!("{name}") };
        assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId::new(0), req.local_comm_id));
        assert_eq!((rej.message, rej.reason), (RejMessage::Req, RejReason::INVALID_SERVICE_ID));
        assert!(rej.ari().is_empty());
    }
}

// Damage and what is immune to it.

/// PKT-03. Every bit that the ICRC covers is caught when it alone is flipped, in a packet of every
/// opcode and both IP versions. The IPv4 header checksum is made right again each time.
#[test]
fn pkt_03_single_bit_flips() {
    for (name, frame) in samples() {
        let covered = covered_mask(&frame);
        for bit in (0..frame.len() * 8).filter(|bit| covered[bit / 8] & (0x80 >> (bit % 8)) != 0) {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            seal_ip(&mut flipped);
            assert!(Packet::parse(&flipped).is_err(), "{name}: bit {bit} of {frame:02x?}");
        }
    }
}

/// PKT-04. What routers may change.
#[test]
fn pkt_04_variant_fields() {
    for (name, frame) in samples() {
        let (ip, bth) = (l3(&frame), l4(&frame) + 8);
        let positions = match frame[ip] >> 4 {
            // TOS, TTL; BTH byte 4.
            4 => vec![(ip + 1, 0xff), (ip + 8, 0xff), (bth + 4, 0xff)],
            // Traffic class, flow label, hop limit; BTH byte 4.
            _ => vec![
                (ip, 0x0f),
                (ip + 1, 0xff),
                (ip + 2, 0xff),
                (ip + 3, 0xff),
                (ip + 7, 0xff),
                (bth + 4, 0xff),
            ],
        };
        for (at, bits) in positions {
            let mut changed = frame.clone();
            changed[at] ^= bits;
            seal_ip(&mut changed);
            assert!(Packet::parse(&changed).is_ok(), "{name}: byte {at}");
        }
    }
}

/// PKT-05. IPv4 identification and DF are not for routers to change.
#[test]
fn pkt_05_invariant_ip_fields() {
    for (at, bits) in [(4, 0x01), (5, 0x80), (6, 0x40)] {
        let mut frame = w1();
        frame[14 + at] ^= bits;
        seal_ip(&mut frame);
        assert_eq!(Packet::parse(&frame), Err(DropReason::Icrc));
    }
}

/// PKT-06. The ICRC is stored least significant byte first.
#[test]
fn pkt_06_byte_order() {
    for mut frame in both_versions() {
        let at = frame.len() - 4;
        frame[at..].reverse();
        assert_eq!(Packet::parse(&frame), Err(DropReason::Icrc));
    }
}

/// PKT-07. A UDP checksum is optional; a present one is right.
#[test]
fn pkt_07_udp_checksum() {
    for mut frame in both_versions() {
        assert!(Packet::parse(&frame).is_ok());
        let at = l4(&frame) + 6;
        let right = udp_checksum(&frame);
        frame[at..at + 2].copy_from_slice(&right.to_be_bytes());
        assert!(Packet::parse(&frame).is_ok());
        frame[at + 1] ^= 1;
        assert_eq!(Packet::parse(&frame), Err(DropReason::UdpChecksum));
    }
}

/// PKT-08. Any source port will do.
#[test]
fn pkt_08_source_port() {
    for port in [0, 4791, 65535_u16] {
        for mut frame in both_versions() {
            let at = l4(&frame);
            frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
            seal(&mut frame);
            assert_eq!(Packet::parse(&frame).unwrap().encap.src_port, port);
        }
    }
}

/// PKT-09. Other ports, protocols and Ethernet types belong to others.
#[test]
fn pkt_09_not_ours() {
    for mut frame in both_versions() {
        let at = l4(&frame) + 2;
        frame[at..at + 2].copy_from_slice(&4790_u16.to_be_bytes());
        seal(&mut frame);
        assert_eq!(Packet::parse(&frame), Err(DropReason::NotRoce));
    }
    for mut frame in both_versions() {
        let at = l3(&frame) + if frame[l3(&frame)] >> 4 == 4 { 9 } else { 6 };
        frame[at] = 6;
        seal_ip(&mut frame);
        assert_eq!(Packet::parse(&frame), Err(DropReason::NotRoce));
    }
    for mut frame in both_versions() {
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(Packet::parse(&frame), Err(DropReason::NotRoce));
    }
}

/// PKT-10. Every packet cut to every length: as received, with IP and UDP lengths put right, and
/// with a right ICRC too. The last can be a packet, whose length is for an engine to judge.
#[test]
fn pkt_10_truncation() {
    let vectors = vectors().into_iter().map(|(name, frame)| (name.to_owned(), frame));
    for (name, frame) in vectors.chain(samples()) {
        let minimum = l4(&frame) + 8 + 16;
        for len in 0..frame.len() {
            let mut cut = frame[..len].to_vec();
            let reason = Packet::parse(&cut).unwrap_err();
            assert_ne!(reason, DropReason::Icrc, "{name} cut to {len}");
            if len < l4(&frame) + 8 {
                continue;
            }
            seal_lengths(&mut cut);
            assert!(Packet::parse(&cut).is_err(), "{name} cut to {len}, lengths right");
            if len >= minimum {
                seal(&mut cut);
                let bth_ext = 12 + Opcode::try_from(cut[l4(&cut) + 8]).unwrap().ext_len();
                if let Ok(packet) = Packet::parse(&cut) {
                    let pad = usize::from(packet.bth.pad_count);
                    assert_eq!(l4(&cut) + 8 + bth_ext + packet.payload.len() + pad + 4, len);
                }
            }
        }
    }
}

/// PKT-11. UDP lengths that contradict IP or the transport headers.
#[test]
fn pkt_11_udp_length() {
    for frame in both_versions() {
        let right = udp_len(&frame) as u16;
        for wrong in [0, 7, 8, 23, right + 1, right + 4, u16::MAX] {
            let mut frame = frame.clone();
            let at = l4(&frame) + 4;
            frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
            seal_icrc(&mut frame);
            assert_eq!(Packet::parse(&frame), Err(DropReason::UdpLength), "{wrong}");
            // Nor do bytes that the frame has beyond the IP packet make room.
            frame.extend([0; 8]);
            assert_eq!(Packet::parse(&frame), Err(DropReason::UdpLength), "{wrong} of more");
        }
    }
    // A WRITE_ONLY without room for its RETH.
    for version in VERSIONS {
        for body in 0..16 {
            let frame = raw_packet(version, 0x0a, 0, &[0; 16][..body]);
            assert_eq!(Packet::parse(&frame), Err(DropReason::Truncated));
        }
        assert!(Packet::parse(&raw_packet(version, 0x0a, 0, &[0; 16])).is_ok());
    }
}

/// The frame may be longer than the packet: Ethernet pads to 60 bytes.
#[test]
fn ethernet_padding_is_no_payload() {
    for (_, frame) in samples() {
        let mut padded = frame.clone();
        padded.extend([0xee; 18]);
        assert_eq!(Packet::parse(&padded), Packet::parse(&frame));
        assert!(parse_unit(&padded, None).eq([Packet::parse(&frame)]));
    }
}

/// PKT-12. More pad bytes than there are bytes.
#[test]
fn pkt_12_pad_count() {
    for version in VERSIONS {
        let ack = raw_packet(version, 0x11, 3, &[0x1f, 0, 0, 1]);
        assert_eq!(Packet::parse(&ack), Err(DropReason::BadPad));
        let send = raw_packet(version, 0x04, 3, &[1, 2]);
        assert_eq!(Packet::parse(&send), Err(DropReason::BadPad));
    }
}

/// PKT-13. Pad bytes may have any value, and are not payload.
#[test]
fn pkt_13_pad_bytes() {
    for version in VERSIONS {
        let frame = raw_packet(version, 0x04, 3, &[1, 0xff, 0xff, 0xff]);
        assert_eq!(Packet::parse(&frame).unwrap().payload, [1]);
    }
}

/// PKT-14, as far as bytes go. Every opcode with the shortest and the longest body: what is known
/// parses, by its own header lengths; what is not is told apart before any length counts.
#[test]
fn pkt_14_all_opcodes() {
    for opcode in 0..=u8::MAX {
        for body_len in [0, 28, 28 + 4096] {
            let frame = raw_packet(Version::V4, opcode, 0, &vec![0x5a; body_len]);
            let expected = Opcode::try_from(opcode).and_then(|opcode| {
                let payload_len = body_len.checked_sub(opcode.ext_len());
                payload_len.ok_or(DropReason::Truncated)
            });
            let parsed = Packet::parse(&frame).map(|packet| packet.payload.len());
            assert_eq!(parsed, expected, "{opcode:#x} with {body_len} bytes");
        }
    }
}

/// PKT-15. The multicast QP and an opcode of no meaning, in a datagram of 48 bytes.
#[test]
fn pkt_15_manufacturer_opcode_to_multicast() {
    for version in VERSIONS {
        let mut frame = raw_packet(version, 0xff, 0, &[0; 24]);
        assert_eq!(udp_len(&frame), 48);
        let at = l4(&frame) + 8 + 5;
        frame[at..at + 3].fill(0xff);
        seal(&mut frame);
        assert_eq!(Packet::parse(&frame), Err(DropReason::UnknownOpcode));
    }
}

/// PKT-16. Transport header version 1.
#[test]
fn pkt_16_transport_version() {
    for mut frame in both_versions() {
        let at = l4(&frame) + 8 + 1;
        frame[at] |= 0x01;
        seal(&mut frame);
        assert_eq!(Packet::parse(&frame), Err(DropReason::TransportVersion));
    }
}

/// PKT-17, as far as bytes go. There is no QP 0 on RoCE.
#[test]
fn pkt_17_destination_qp_0() {
    for mut frame in both_versions() {
        let at = l4(&frame) + 8 + 5;
        frame[at..at + 3].fill(0);
        seal(&mut frame);
        assert_eq!(Packet::parse(&frame), Err(DropReason::BadDestQp));
    }
}

/// PKT-22. IPv4 options, fragments, wrong header checksums; IPv6 extension headers.
#[test]
fn pkt_22_ip_headers() {
    let mut options = w1();
    // End-of-list options: zeros, so that the checksum is right with and without them.
    options.splice(34..34, [0; 4]);
    options[14] = 0x46;
    options[16..18].copy_from_slice(&64_u16.to_be_bytes());
    options[24..26].fill(0);
    let checksum = !ones_complement_sum(&options[14..38], 0);
    options[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(Packet::parse(&options), Err(DropReason::IpHeader));

    for (flags, offset) in [(0x20, 0), (0x00, 1), (0x20, 185)] {
        let mut fragment = w1();
        fragment[20..22].copy_from_slice(&[flags, offset]);
        seal(&mut fragment);
        assert_eq!(Packet::parse(&fragment), Err(DropReason::Fragment));
    }

    let mut checksum = w1();
    checksum[25] ^= 1;
    assert_eq!(Packet::parse(&checksum), Err(DropReason::IpHeader));

    let mut version = w1();
    version[14] = 0x65;
    assert_eq!(Packet::parse(&version), Err(DropReason::IpHeader));

    let plain = raw_packet(Version::V6, 0x04, 0, &[]);
    let extensions = [
        (0, DropReason::IpHeader),
        (43, DropReason::IpHeader),
        (60, DropReason::IpHeader),
        (44, DropReason::Fragment),
    ];
    for (next_header, reason) in extensions {
        let mut frame = plain.clone();
        frame.splice(54..54, [17, 0, 0, 0, 0, 0, 0, 0]);
        frame[20] = next_header;
        let payload_len = word(&frame, 18) + 8;
        frame[18..20].copy_from_slice(&payload_len.to_be_bytes());
        assert_eq!(Packet::parse(&frame), Err(reason), "next header {next_header}");
        frame[54] = 58;
        assert_eq!(Packet::parse(&frame), Err(DropReason::NotRoce), "neighbour discovery");
    }
}

/// PKT-23. One 802.1Q tag is stripped, and written again; two are not.
#[test]
fn pkt_23_vlan() {
    for frame in both_versions() {
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x07]);
        let packet = Packet::parse(&tagged).unwrap();
        assert_eq!(packet.encap.vlan, Some(0x6007));
        assert_eq!(packet.bth, Packet::parse(&frame).unwrap().bth);
        assert_eq!(emit(&packet), tagged);
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x08]);
        assert_eq!(Packet::parse(&tagged), Err(DropReason::NotRoce));
    }
}

/// PKT-24. M, SE and the reserved bits beside AckReq.
#[test]
fn pkt_24_flags_and_reserved_bits() {
    for frame in both_versions() {
        let bth = l4(&frame) + 8;
        for flags in [0x00, 0x40, 0x80, 0xc0] {
            for ack in 0..=u8::MAX {
                let mut frame = frame.clone();
                frame[bth + 1] = flags;
                frame[bth + 8] = ack;
                seal_icrc(&mut frame);
                let parsed = Packet::parse(&frame).unwrap().bth;
                let expected = (flags & 0x80 != 0, flags & 0x40 != 0, ack & 0x80 != 0);
                assert_eq!((parsed.solicited, parsed.migrated, parsed.ack_req), expected);
            }
        }
    }
}

/// The one set of lengths of a unit is that of its first segment or that of the whole, and IP and
/// UDP agree.
#[test]
fn unit_lengths() {
    for frame in both_versions() {
        let packet = Packet::parse(&frame).unwrap();
        let mut buf = [0; 400];
        let template = Template::new(&packet.encap);
        let mut writer = UnitWriter::new(&mut buf, &template, packet.encap.ip_id);
        for _ in 0..3 {
            push(&mut writer, &packet.bth, &packet.ext, packet.payload);
        }
        let unit = writer.finish();
        let parse = |buf: &[u8]| -> Vec<_> {
            let packets = parse_unit(&buf[..unit.len], Some(unit.segment_len));
            packets.map(|packet| packet.map(|packet| packet.bth.opcode)).collect()
        };
        assert_eq!(parse(&buf), [Ok(Opcode::SendOnly); 3]);
        let at = l4(&buf) + 4;
        for udp_len in [0, 2 * unit.segment_len + 8, unit.len - l4(&buf), 65535] {
            let mut buf = buf;
            buf[at..at + 2].copy_from_slice(&(udp_len as u16).to_be_bytes());
            assert_eq!(parse(&buf), [Err(DropReason::UdpLength)], "{udp_len}");
        }
        // Agreeing lengths of neither.
        seal_lengths(&mut buf[..unit.len - 4]);
        assert_eq!(parse(&buf), [Err(DropReason::UdpLength)]);
    }
}

// Laws.

proptest! {
    /// No bytes of a peer cause a panic, in whatever segments they are said to be.
    #[test]
    fn any_bytes_are_safe(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        segment_len in prop::option::of(0usize..100),
    ) {
        prop_assert!(Packet::parse(&frame).is_err());
        prop_assert!(parse_unit(&frame, segment_len).count() <= frame.len().max(1));
    }

    /// The same for packets that are nearly good, which get further. Where one is good all the
    /// same, it can be written and read again.
    #[test]
    fn mutated_packets_are_safe(
        sample in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        len in any::<prop::sample::Index>(),
        cut: bool,
        sealed: bool,
        segment_len in prop::option::of(0usize..100),
    ) {
        let mut frame = sample.get(&SAMPLES).1.clone();
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        if cut {
            frame.truncate(len.index(frame.len()));
        }
        // Enough for the headers of either version: the sealing has no checks of its own.
        if sealed && frame.len() >= 86 {
            seal(&mut frame);
        }
        prop_assert!(parse_unit(&frame, segment_len).count() <= frame.len().max(1));
        if let Ok(packet) = Packet::parse(&frame) {
            let bth = Bth { pad_count: pad(packet.payload.len()), ..packet.bth };
            let again = emit(&packet);
            prop_assert_eq!(Packet::parse(&again), Ok(Packet { bth, ..packet }));
        }
    }

    /// What was written is read back, and nothing else.
    #[test]
    fn parse_inverts_emit(packet in any_packet(4096)) {
        let (encap, bth, ext, payload) = packet;
        let packet = Packet { encap, bth, ext, payload: &payload };
        let frame = emit(&packet);
        prop_assert_eq!(icrc(&frame), stored_icrc(&frame));
        prop_assert_eq!(Packet::parse(&frame), Ok(packet));
        prop_assert!(parse_unit(&frame, None).eq([Ok(packet)]));
    }

    /// A unit is its packets one by one: what a splitter makes of it parses to the same packets,
    /// whether its lengths are those of the first segment or of the whole.
    #[test]
    fn a_unit_is_its_packets(
        first in any_packet(1100),
        segments in 1usize..20,
        last_len in any::<prop::sample::Index>(),
    ) {
        let (encap, bth, ext, payload) = first;
        let last = &payload[..last_len.index(payload.len() + 1)];
        let mut buf = vec![0xaa; 30_000];
        let template = Template::new(&encap);
        let mut writer = UnitWriter::new(&mut buf, &template, encap.ip_id);
        let mut written = 0;
        while written < segments && writer.fits(ext.len(), payload.len()) {
            push(&mut writer, &segment_bth(&bth, written), &ext, &payload);
            written += 1;
        }
        if writer.fits(ext.len(), last.len()) {
            push(&mut writer, &segment_bth(&bth, written), &ext, last);
            written += 1;
        }
        let unit = writer.finish();
        prop_assert_eq!(unit.segments, written);
        buf.truncate(unit.len);

        let split = split(&buf, unit.header_len, unit.segment_len);
        prop_assert_eq!(split.len(), written);
        let one_by_one: Vec<_> = split.iter().map(|frame| Packet::parse(frame).unwrap()).collect();
        for (i, packet) in one_by_one.iter().enumerate() {
            let pad_count = packet.bth.pad_count;
            prop_assert_eq!(packet.bth, Bth { pad_count, ..segment_bth(&bth, i) });
            prop_assert_eq!(packet.ext, ext);
            prop_assert_eq!(packet.payload, if i + 1 == written && i > 0 { &payload[..packet.payload.len()] } else { &payload });
        }
        let segment_len = Some(unit.segment_len);
        let from_unit: Vec<_> = parse_unit(&buf, segment_len).map(Result::unwrap).collect();
        prop_assert_eq!(&from_unit, &one_by_one);

        seal_lengths(&mut buf);
        let coalesced: Vec<_> = parse_unit(&buf, segment_len).map(Result::unwrap).collect();
        prop_assert_eq!(&coalesced, &one_by_one);
    }

    /// One bad segment of a unit leaves the others good.
    #[test]
    fn segments_are_judged_apart(bad in 0usize..5, bit in 0usize..8 * 36) {
        let mut buf = vec![0; 400];
        let encap = Packet::parse(&w1()).unwrap().encap;
        let template = Template::new(&encap);
        let mut writer = UnitWriter::new(&mut buf, &template, encap.ip_id);
        for psn in 0..5 {
            let bth = Bth::new(Opcode::SendOnly, Qpn::new(9), Psn::new(psn));
            push(&mut writer, &bth, &Ext::None, &[7; 20]);
        }
        let unit = writer.finish();
        // Byte 4 of the BTH is not covered.
        prop_assume!(bit / 8 != 4);
        buf[unit.header_len + bad * unit.segment_len + bit / 8] ^= 0x80 >> (bit % 8);
        let good: Vec<_> = parse_unit(&buf[..unit.len], Some(unit.segment_len)).collect();
        prop_assert_eq!(good.len(), 5);
        for (i, packet) in good.iter().enumerate() {
            prop_assert_eq!(packet.is_err(), i == bad);
        }
    }
}

// Packets to try, and what to do with them.

static SAMPLES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(samples);

/// The first captured packet of each opcode, the CNP, and each of them over the other IP version.
fn samples() -> Vec<(String, Vec<u8>)> {
    let mut samples = BTreeMap::new();
    let captured = captures().into_iter().flat_map(|capture| capture.frames);
    let cnp = vectors().into_iter().filter(|(name, _)| *name == "V3").map(|(_, frame)| frame);
    for frame in captured.chain(cnp) {
        let packet = Packet::parse(&frame).unwrap();
        let other = other_version(&packet.encap);
        for encap in [packet.encap, other] {
            let key = (packet.bth.opcode as u8, encap.src.is_ipv6());
            samples.entry(key).or_insert_with(|| {
                (
                    format!("{:?} from {}", packet.bth.opcode, encap.src),
                    emit(&Packet { encap, ..packet }),
                )
            });
        }
    }
    samples.into_values().collect()
}

/// W1, and W1 over IPv6.
fn both_versions() -> [Vec<u8>; 2] {
    let frame = w1();
    let packet = Packet::parse(&frame).unwrap();
    let v6 = emit(&Packet { encap: other_version(&packet.encap), ..packet });
    [frame, v6]
}

fn other_version(encap: &Encap) -> Encap {
    let (src, dst) = match encap.src {
        IpAddr::V4(_) => (V6_SRC.into(), V6_DST.into()),
        IpAddr::V6(_) => (V4_SRC.into(), V4_DST.into()),
    };
    Encap { src, dst, ip_id: 0, flow_label: 0, ..*encap }
}

const V4_SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const V4_DST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const V6_SRC: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const V6_DST: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

#[derive(Clone, Copy)]
enum Version {
    V4,
    V6,
}

const VERSIONS: [Version; 2] = [Version::V4, Version::V6];

/// A packet of any opcode, pad count and bytes between BTH and ICRC, all else right.
fn raw_packet(version: Version, opcode: u8, pad_count: u8, body: &[u8]) -> Vec<u8> {
    let [v4, v6] = both_versions();
    let mut frame = match version {
        Version::V4 => v4,
        Version::V6 => v6,
    };
    let bth = l4(&frame) + 8;
    frame.truncate(bth + 12);
    frame[bth] = opcode;
    frame[bth + 1] = pad_count << 4;
    frame.extend_from_slice(body);
    frame.extend([0; 4]);
    seal(&mut frame);
    frame
}

fn emit(packet: &Packet<'_>) -> Vec<u8> {
    let mut buf = vec![0xaa; 66 + 12 + 28 + packet.payload.len() + 3 + 4];
    let template = Template::new(&packet.encap);
    let mut writer = UnitWriter::new(&mut buf, &template, packet.encap.ip_id);
    push(&mut writer, &packet.bth, &packet.ext, packet.payload);
    let unit = writer.finish();
    assert_eq!(unit.header_len + unit.segment_len, unit.len);
    buf.truncate(unit.len);
    buf
}

fn push(writer: &mut UnitWriter<'_>, bth: &Bth, ext: &Ext, payload: &[u8]) {
    let result = writer.push(bth, ext, payload.len(), |out| {
        out.copy_from_slice(payload);
        Ok::<(), Infallible>(())
    });
    assert_eq!(result, Ok(()));
}

/// The same packet of a message `i` packets later.
fn segment_bth(bth: &Bth, i: usize) -> Bth {
    Bth { psn: bth.psn.add(i as u32), ..*bth }
}

fn pad(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() % 4) as u8
}

fn any_packet(max_payload: usize) -> impl Strategy<Value = (Encap, Bth, Ext, Vec<u8>)> {
    let payload = prop::collection::vec(any::<u8>(), 0..=max_payload);
    (any_encap(), any_opcode(), any::<[u8; 28]>(), any::<[bool; 5]>(), any::<u64>(), payload)
        .prop_map(|(encap, opcode, ext, flags, numbers, payload)| {
            let [solicited, migrated, fecn, becn, ack_req] = flags;
            let bth = Bth {
                opcode,
                solicited,
                migrated,
                pad_count: pad(payload.len()),
                pkey: numbers as u16,
                fecn,
                becn,
                dest_qpn: Qpn::new(((numbers >> 16) as u32).max(1) | 0x80),
                ack_req,
                psn: Psn::new((numbers >> 40) as u32),
            };
            let (ext, _) = Ext::parse(opcode, &ext).unwrap();
            (encap, bth, ext, payload)
        })
}

fn any_opcode() -> impl Strategy<Value = Opcode> {
    let opcodes: Vec<_> = (0..=u8::MAX).filter_map(|byte| Opcode::try_from(byte).ok()).collect();
    prop::sample::select(opcodes)
}

fn any_encap() -> impl Strategy<Value = Encap> {
    let addresses = (any::<bool>(), any::<u128>(), any::<u128>());
    let vlan = prop::option::of(any::<u16>());
    (any::<[u8; 12]>(), vlan, addresses, any::<u64>()).prop_map(|(macs, vlan, addresses, rest)| {
        let (v6, src, dst) = addresses;
        let address = |bits: u128| match v6 {
            true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            false => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        };
        let of_host = |[first, rest @ ..]: [u8; 6]| {
            let [a, b, c, d, e] = rest;
            Mac([first & !1 | 2, a, b, c, d, e])
        };
        let (src, dst) = (address(src), address(dst));
        Encap {
            src_mac: of_host(*macs.first_chunk().unwrap()),
            dst_mac: of_host(*macs.last_chunk().unwrap()),
            vlan,
            src: if is_host(src, dst) { src } else { address(0x0a00_0009) },
            dst,
            traffic_class: rest as u8,
            hop_limit: (rest >> 8) as u8,
            ip_id: if v6 { 0 } else { (rest >> 16) as u16 },
            flow_label: if v6 { (rest >> 32) as u32 & 0xf_ffff } else { 0 },
            src_port: (rest >> 48) as u16,
        }
    })
}

fn syndrome(frame: &[u8]) -> Option<Syndrome> {
    Packet::parse(frame).ok()?.ext.aeth().map(|aeth| aeth.syndrome)
}

fn check_ip_cm(packet: &Packet<'_>, header: &[u8; IpCm::LEN]) {
    let ip_cm = IpCm::parse(header).unwrap();
    assert_eq!((ip_cm.src, ip_cm.dst), (packet.encap.src, packet.encap.dst));
    assert_eq!(ip_cm.emit(), *header);
}
