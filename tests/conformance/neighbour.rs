//! The neighbours of each legal packet: the same with one field wrong, and right in all else, its ICRC
//! too. What each field means stands in tables; a packet that is not the peer's changes nothing, and the
//! legal one is then served as ever. Those of connection management are in `rocev2`'s own tests.

use crate::frames::{l4, seal};
use crate::peer::*;
use rocev2::env::RegionId;
use rocev2::ids::Rkey;
use rocev2::mr::Registration;
use rocev2::psn::Psn;
use rocev2::qp::{QpState, SendOp, WcStatus};
use rocev2::wire::{Bth, DropReason, Ext, Opcode, Reth};
use std::ops::Range;

/// What another value of a field means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Means {
    /// The packet is as good.
    Same,
    /// It is dropped for this reason, and nobody is told.
    Silent(DropReason),
    /// The request is not executed: it was before, or comes early.
    Elsewhere,
    /// The request is refused, and ends the connection.
    Refused(&'static [u8]),
}

/// Bits of some bytes behind the start of the BTH.
type Field = (Range<usize>, u8, Means);

const PARTITION: Means = Means::Silent(DropReason::PKey);
const STALE: Means = Means::Silent(DropReason::StaleResponse);
const DUPLICATE: Means = Means::Silent(DropReason::Duplicate);
const NO_ACCESS: Means = Means::Refused(&[NAK2]);

/// Of every packet.
const BTH: [Field; 8] = [
    (1..2, 0x0f, Means::Silent(DropReason::TransportVersion)),
    (1..2, 0xc0, Means::Same), // solicited event, migration
    (2..3, 0x80, Means::Same), // full or limited member
    (2..3, 0x7f, PARTITION),
    (3..4, 0xff, PARTITION),
    (4..5, 0x3f, Means::Same), // reserved
    (5..8, 0xff, Means::Silent(DropReason::UnknownQpn)),
    (8..9, 0x7f, Means::Same), // reserved
];
/// Of a request.
const PSN: Field = (9..12, 0xff, Means::Elsewhere);
/// The bits of an address that lead out of the region.
const VA: Field = (12..18, 0xff, NO_ACCESS);
const RKEY: Field = (20..24, 0xff, NO_ACCESS);
const LEN: Field = (24..28, 0xff, Means::Refused(&[NAK1, NAK2]));
/// The bits of a length that lead out of the region.
const LONG: Field = (24..26, 0xff, Means::Refused(&[NAK1, NAK2]));

/// A legal packet of P.
struct Legal {
    name: &'static str,
    /// What comes before it; returns the key that it names.
    before: fn(&mut World) -> Rkey,
    packet: fn(&World, Rkey) -> Vec<u8>,
    /// The fields that not every packet has.
    fields: &'static [Field],
}

fn request(world: &World, at: i32, opcode: Opcode, ext: Ext, payload: &[u8]) -> Vec<u8> {
    frame(&world.encap, &world.bth(at, opcode), &ext, payload)
}

fn response(world: &World, opcode: Opcode, ext: Ext, payload: &[u8]) -> Vec<u8> {
    let bth = Bth::new(opcode, world.end.qpn, world.end.first[1]);
    frame(&world.encap, &bth, &ext, payload)
}

const fn reth(rkey: Rkey, len: usize) -> Ext {
    Ext::Reth(Reth { va: BASE, rkey, len: len as u32 })
}

const LEGAL: [Legal; 11] = [
    Legal {
        name: "SEND_ONLY",
        before: |world| {
            world.receive(1, 64);
            world.key
        },
        packet: |world, _| request(world, 0, Opcode::SendOnly, Ext::None, &pattern(64)),
        fields: &[PSN],
    },
    Legal {
        name: "SEND_FIRST",
        before: |world| {
            world.receive(1, 2 * P);
            world.key
        },
        packet: |world, _| request(world, 0, Opcode::SendFirst, Ext::None, &pattern(P)),
        fields: &[PSN],
    },
    Legal {
        name: "SEND_ONLY with invalidate",
        before: |world| {
            world.receive(1, 64);
            world.mapped(BASE, 64)
        },
        packet: |world, key| request(world, 0, Opcode::SendOnlyInv, Ext::Ieth(key), &pattern(64)),
        fields: &[PSN, (12..16, 0xff, Means::Refused(&[NAK3]))],
    },
    Legal {
        name: "WRITE_ONLY",
        before: |world| world.key,
        packet: |world, key| request(world, 0, Opcode::WriteOnly, reth(key, 64), &[7; 64]),
        fields: &[PSN, VA, RKEY, LEN],
    },
    Legal {
        name: "WRITE_FIRST",
        before: |world| world.key,
        packet: |world, key| request(world, 0, Opcode::WriteFirst, reth(key, 2 * P), &[7; P]),
        fields: &[PSN, VA, RKEY, LONG],
    },
    Legal {
        name: "WRITE_LAST",
        before: |world| {
            let key = world.key;
            world.ask(0, Opcode::WriteFirst, reth(key, P + 64), &[7; P]);
            key
        },
        packet: |world, _| request(world, 1, Opcode::WriteLast, Ext::None, &[7; 64]),
        fields: &[PSN],
    },
    Legal {
        name: "READ request",
        before: |world| world.key,
        packet: |world, key| request(world, 0, Opcode::ReadRequest, reth(key, 64), &[]),
        fields: &[PSN, VA, RKEY, LONG],
    },
    Legal {
        name: "READ request once more",
        before: |world| {
            let key = world.key;
            world.read(0, key, BASE, 64);
            key
        },
        packet: |world, key| request(world, 0, Opcode::ReadRequest, reth(key, 64), &[]),
        // Less of it may be asked for.
        fields: &[(12..24, 0xff, DUPLICATE), (24..27, 0xff, DUPLICATE), (27..28, 0xbf, DUPLICATE)],
    },
    Legal {
        name: "ACK",
        before: |world| {
            world.post(1, SendOp::Send, 8);
            world.key
        },
        packet: |world, _| response(world, Opcode::Acknowledge, aeth(ACK), &[]),
        fields: &[(9..12, 0xff, STALE), (12..13, 0x1f, Means::Same), (13..16, 0xff, Means::Same)],
    },
    Legal {
        name: "RNR NAK",
        before: |world| {
            world.post(1, SendOp::Send, 8);
            world.key
        },
        packet: |world, _| response(world, Opcode::Acknowledge, aeth(RNR), &[]),
        fields: &[(9..12, 0xff, STALE), (13..16, 0xff, Means::Same)],
    },
    Legal {
        name: "READ response",
        before: |world| {
            world.post(1, SendOp::Read { va: 1 << 40, rkey: Rkey::new(5) }, 64);
            world.key
        },
        packet: |world, _| response(world, Opcode::ReadResponseOnly, aeth(ACK), &pattern(64)),
        fields: &[(9..12, 0xff, STALE), (13..16, 0xff, Means::Same)],
    },
];

/// The packet with the bits of a field turned over, one at a time.
fn turned(packet: &[u8], (bytes, mask, _): &Field) -> Vec<Vec<u8>> {
    let bits = (0..8 * bytes.len()).filter(|bit| mask >> (bit % 8) & 1 == 1);
    let turn = |bit: usize| {
        let byte = packet[l4(packet) + 8 + bytes.start + bit / 8] ^ 1 << (bit % 8);
        with(packet, bytes.start + bit / 8, &[byte])
    };
    bits.map(turn).collect()
}

/// The packet with other bytes at a place behind the start of its BTH.
fn with(packet: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let (mut other, start) = (packet.to_vec(), l4(packet) + 8 + at);
    other[start..start + bytes.len()].copy_from_slice(bytes);
    seal(&mut other);
    other
}

/// A world in which the legal packet is the next one, and that packet.
fn stage(v6: bool, legal: &Legal) -> (World, Vec<u8>) {
    let mut world = World::new(v6, TERMS);
    let key = (legal.before)(&mut world);
    world.sent();
    world.done.clear();
    let packet = (legal.packet)(&world, key);
    (world, packet)
}

/// What there is to see of a world.
type Seen = (Vec<(u64, WcStatus)>, Vec<Sent>, QpState, Vec<u8>);

/// What a packet does.
fn effect(world: &mut World, packet: &[u8]) -> Seen {
    world.give(packet);
    let sent = world.sent();
    (world.statuses(), sent, world.state(), world.bytes().clone())
}

/// Goal: a field that is wrong is noticed, and one that says nothing is not looked at.
/// Method: every bit of every field of the headers, one at a time.
#[test]
fn a_packet_with_one_wrong_field_has_its_reaction() {
    for legal in &LEGAL {
        for v6 in [false, true] {
            let (mut world, packet) = stage(v6, legal);
            let right = effect(&mut world, &packet);
            for field in BTH.iter().chain(legal.fields) {
                for other in turned(&packet, field) {
                    let what = format!("{}: {field:?}", legal.name);
                    check(stage(v6, legal), field.2, &other, &right, &what);
                }
            }
        }
    }
}

/// What a neighbour does is what its field says.
fn check(
    (mut world, packet): (World, Vec<u8>),
    means: Means,
    other: &[u8],
    right: &Seen,
    what: &str,
) {
    let before = world.bytes().clone();
    match means {
        Means::Same => assert_eq!(effect(&mut world, other), *right, "{what}"),
        Means::Silent(reason) => {
            world.is_dropped(reason, |world| world.give(other));
            assert!(*world.bytes() == before, "{what}");
            assert_eq!(effect(&mut world, &packet), *right, "after {what}");
        }
        Means::Elsewhere => {
            let (done, sent, state, bytes) = effect(&mut world, other);
            assert!(done.is_empty() && state == QpState::Rts && bytes == before, "{what}");
            let told = |sent: &Sent| {
                [(ACK, 1), (NAK0, 0)]
                    .contains(&(sent.ext[0], first(world.end.first[0], &packet) - sent.at))
            };
            assert!(sent.len() <= 1 && sent.iter().all(told), "{what}: {sent:?}");
        }
        Means::Refused(codes) => {
            let (_, sent, state, bytes) = effect(&mut world, other);
            let refused = sent.len() == 1 && codes.contains(&sent[0].ext[0]);
            assert!(refused && state == QpState::Err, "{what}: {sent:?}");
            // Data may have been placed before its key turned out to be none.
            assert!(bytes == before || right.2 == QpState::Rts && !right.0.is_empty(), "{what}");
        }
    }
}

/// The place of a packet of P.
fn first(start: Psn, packet: &[u8]) -> i32 {
    let psn = l4(packet) + 8 + 9;
    let bytes = [0, packet[psn], packet[psn + 1], packet[psn + 2]];
    Psn::new(u32::from_be_bytes(bytes)).since(start)
}

/// PKT-20: no partition but the default one, however near or far it is.
#[test]
fn pkt_20_every_other_partition_is_silent() {
    for partition in [0x8001, 0x0001, 0x8000, 0x0000, 0x7ffe, 0xfffe, 0x1234, 0xff7f, 0x7fff_u16] {
        let means = if partition == 0x7fff { Means::Same } else { PARTITION };
        for legal in &LEGAL {
            let (mut world, packet) = stage(false, legal);
            let right = effect(&mut world, &packet);
            let other = with(&packet, 2, &partition.to_be_bytes());
            check(stage(false, legal), means, &other, &right, legal.name);
        }
    }
}

/// DUP-08: the key of a duplicate READ is that of the READ, also where another would do as well.
#[test]
fn dup_08_a_duplicate_read_with_another_good_key_is_silent() {
    each(|mut world| {
        let (pd, region, base, len) = (PD, RegionId(0), BASE, REGION as u64);
        let other = world.d.register(Registration { pd, region, base, len, access: ALL }).unwrap();
        let key = world.key;
        world.read(0, key, BASE, 64);
        world.sent();
        world.silent(1, DropReason::Duplicate, |world| world.read(0, other, BASE, 64));
    });
}

/// A reserved syndrome, and a NAK code that is none, answer nothing.
#[test]
fn a_reserved_syndrome_is_silent() {
    for syndrome in (0x40..=0x5f).chain(0x64..=0x7f) {
        each(|mut world| {
            world.post(1, SendOp::Send, 8);
            world.sent();
            world.is_dropped(DropReason::ReservedSyndrome, |world| world.answer(0, syndrome));
            world.answer(0, ACK);
            assert_eq!(world.statuses(), [(1, OK)]);
        });
    }
}
