//! What is dropped: the part of it that needs a queue pair. The rest is in `tests/wire.rs`.

use crate::frames::{l4, seal};
use crate::peer::*;
use rocev2::counters::Counter;
use rocev2::ids::Qpn;
use rocev2::qp::QpState;
use rocev2::wire::mad::GSI_QKEY;
use rocev2::wire::{Bth, Deth, DropReason, Encap, Ext, Opcode};

/// P's first packet, a SEND of 2 bytes, changed.
fn changed(world: &World, change: impl FnOnce(&mut Encap, &mut Bth)) -> Vec<u8> {
    let (mut encap, mut bth) = (world.encap, world.bth(0, Opcode::SendOnly));
    change(&mut encap, &mut bth);
    frame(&encap, &bth, &Ext::None, &[1, 2])
}

#[test]
fn pkt_09_a_packet_to_another_port_moves_no_counter_of_ours() {
    each(|mut world| {
        let mut frame = changed(&world, |_, _| ());
        let udp = l4(&frame);
        frame[udp + 2..udp + 4].copy_from_slice(&4790_u16.to_be_bytes());
        seal(&mut frame);
        let before = world.d.counters().get(Counter::RcvdPkts);
        world.silent(0, DropReason::NotRoce, |world| {
            world.give(&frame);
            assert_eq!(world.d.counters().get(Counter::RcvdPkts), before);
        });
    });
}

#[test]
fn pkt_13_pad_that_is_not_zero_is_not_delivered() {
    each(|mut world| {
        world.receive(1, 100);
        let mut frame = changed(&world, |_, _| ());
        let end = frame.len();
        frame[end - 6..end - 4].fill(0xff);
        seal(&mut frame);
        world.give(&frame);
        assert_eq!((world.done[0].status, world.done[0].len), (OK, 2));
        assert_eq!(world.bytes()[SINK..SINK + 2], [1, 2]);
        world.bytes()[SINK..SINK + 2].copy_from_slice(&pattern(SINK + 2)[SINK..]);
        world.guarded(0);
    });
}

/// P's first packet with any opcode and `body` behind the BTH.
fn raw(world: &World, opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = frame(&world.encap, &world.bth(0, Opcode::SendOnly), &Ext::None, body);
    let bth = l4(&frame) + 8;
    frame[bth] = opcode;
    seal(&mut frame);
    frame
}

#[test]
fn pkt_14_every_opcode_has_its_reaction() {
    for opcode in 0..=u8::MAX {
        for body in [0, 64, P] {
            each(|mut world| {
                let frame = raw(&world, opcode, &vec![0; body]);
                match opcode {
                    // SEND, WRITE and READ: each has its own rules, and one answer at most. So have
                    // those of which the headers are not all there.
                    0x00..=0x0c | 0x13 | 0x14 | 0x16 | 0x17 | 0x1c | 0x1d => {
                        world.give(&frame);
                        let dropped = world.drops().values().sum::<u64>();
                        let sent = world.sent();
                        assert_eq!(dropped + sent.len() as u64, 1, "{opcode:#x} {body}: {sent:?}");
                        let offered = matches!(opcode, 0x00..=0x0c | 0x16 | 0x17);
                        if body > 0 && !offered {
                            assert_eq!((sent[0].at, sent[0].ext[0]), (0, NAK1), "{opcode:#x}");
                            assert_eq!(world.state(), QpState::Err);
                        }
                    }
                    0x0d..=0x12 if body > 0 => {
                        world.silent(0, DropReason::StaleResponse, |world| world.give(&frame));
                    }
                    0x0e => {
                        world.silent(0, DropReason::StaleResponse, |world| world.give(&frame));
                    }
                    0x0d..=0x12 => {
                        world.silent(0, DropReason::Truncated, |world| world.give(&frame));
                    }
                    0x64 | 0x65 if body > 0 => {
                        world.silent(0, DropReason::TransportMismatch, |world| world.give(&frame));
                    }
                    0x81 if body > 0 => {
                        world.silent(0, DropReason::Congestion, |world| world.give(&frame));
                    }
                    // A list of ACKs, of which the first is not there.
                    0xc1 if body == 0 => {
                        world.silent(0, DropReason::Truncated, |world| world.give(&frame));
                    }
                    0x64 | 0x65 | 0x81 => {
                        world.silent(0, DropReason::Truncated, |world| world.give(&frame));
                    }
                    _ => world.silent(0, DropReason::UnknownOpcode, |world| world.give(&frame)),
                }
            });
        }
    }
}

#[test]
fn pkt_15_one_datagram_of_no_known_opcode_to_the_multicast_queue_pair_is_silent() {
    each(|mut world| {
        let mut frame = changed(&world, |_, bth| bth.dest_qpn = Qpn::new(0xff_ffff));
        frame.resize(l4(&frame) + 48, 0);
        let bth = l4(&frame) + 8;
        frame[bth] = 0xff;
        seal(&mut frame);
        world.silent(0, DropReason::UnknownOpcode, |world| world.give(&frame));
    });
}

#[test]
fn pkt_16_another_transport_version_is_silent() {
    each(|mut world| {
        let mut frame = changed(&world, |_, _| ());
        let bth = l4(&frame) + 8;
        frame[bth + 1] |= 1;
        seal(&mut frame);
        world.silent(0, DropReason::TransportVersion, |world| world.give(&frame));
    });
}

#[test]
fn pkt_17_a_queue_pair_that_is_not_there_is_silent() {
    each(|mut world| {
        let gone = world.another(2, PD, None).qpn;
        world.d.destroy_qp(gone);
        let unknown = Qpn::new(world.end.qpn.get() ^ 0x80_0000);
        for (qpn, reason) in [
            (Qpn::new(0), DropReason::BadDestQp),
            (unknown, DropReason::UnknownQpn),
            (gone, DropReason::UnknownQpn),
        ] {
            let frame = changed(&world, |_, bth| bth.dest_qpn = qpn);
            world.is_dropped(reason, |world| world.give(&frame));
        }
        world.works(0);
    });
}

#[test]
fn pkt_18_another_transport_is_silent() {
    each(|mut world| {
        // Unreliable connection, SEND_ONLY.
        let frame = raw(&world, 0x24, &[1, 2]);
        world.is_dropped(DropReason::UnknownOpcode, |world| world.give(&frame));
        let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI });
        world.silent(0, DropReason::TransportMismatch, |world| {
            world.ask(0, Opcode::UdSendOnly, ext, &[1, 2]);
        });
    });
}

#[test]
fn pkt_19_a_packet_between_other_addresses_is_silent() {
    each(|mut world| {
        let stranger = if world.encap.dst.is_ipv6() { "fd00::9" } else { "10.0.0.9" };
        let (own, stranger) = (world.d.config().addresses[1], stranger.parse().unwrap());
        for frame in [
            changed(&world, |encap, _| encap.src = stranger),
            changed(&world, |encap, _| encap.dst = stranger),
            changed(&world, |encap, _| encap.dst = own),
        ] {
            world.is_dropped(DropReason::AddressMismatch, |world| world.give(&frame));
        }
        world.works(0);
    });
}

#[test]
fn pkt_20_another_partition_is_silent() {
    each(|mut world| {
        let frame = changed(&world, |_, bth| bth.pkey = 0x1234);
        world.silent(0, DropReason::PKey, |world| world.give(&frame));
    });
}

/// RESET is not a state here, and RTR is not apart from RTS.
#[test]
fn pkt_21_what_does_not_fit_the_state_is_silent() {
    each(|mut world| {
        let config = rocev2::qp::QpConfig {
            owner: 2,
            pd: PD,
            send_depth: 1,
            send_sge: 16,
            recv_depth: 1,
            recv_sge: 16,
            srq: None,
        };
        let idle = world.d.create_qp(&config).unwrap();
        let frame = changed(&world, |_, bth| bth.dest_qpn = idle);
        world.is_dropped(DropReason::QpState, |world| world.give(&frame));
        world.silent(0, DropReason::StaleResponse, |world| world.answer(0, ACK));
    });
}

#[test]
fn pkt_23_a_tagged_packet_is_accepted() {
    each(|mut world| {
        world.encap.vlan = Some(5);
        world.works(0);
    });
}

#[test]
fn pkt_24_free_bits_are_ignored() {
    each(|mut world| {
        for bits in 0..=u8::MAX {
            world.receive(1, 100);
            let mut frame = changed(&world, |_, bth| bth.psn = bth.psn.add(bits.into()));
            let bth = l4(&frame) + 8;
            frame[bth + 1] = frame[bth + 1] & 0x3f | bits & 0xc0;
            frame[bth + 8] = 0x80 | bits;
            seal(&mut frame);
            world.give(&frame);
            assert_eq!(world.acks(), [(ACK, bits.into(), u32::from(bits) + 1)]);
        }
        assert!(world.done.iter().all(|done| done.status == OK));
    });
}

#[test]
fn pkt_25_a_datagram_without_its_key_is_silent() {
    each(|mut world| {
        let bth = Bth { dest_qpn: Qpn::GSI, ..world.bth(0, Opcode::UdSendOnly) };
        let ext = Ext::Deth(Deth { qkey: GSI_QKEY + 1, src_qpn: Qpn::GSI });
        let frame = frame(&world.encap, &bth, &ext, &[0; 256]);
        world.silent(0, DropReason::QKey, |world| world.give(&frame));
    });
}

#[test]
fn pkt_26_a_multicast_address_is_silent() {
    each(|mut world| {
        let group = if world.encap.dst.is_ipv6() { "ff02::1" } else { "224.0.0.1" };
        let frame = changed(&world, |encap, _| encap.dst = group.parse().unwrap());
        world.silent(0, DropReason::AddressMismatch, |world| world.give(&frame));
    });
}
