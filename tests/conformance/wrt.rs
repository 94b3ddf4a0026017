//! WRITE at the responder.

use crate::peer::*;
use rocev2::ids::Rkey;
use rocev2::qp::{QpState, WcStatus};
use rocev2::wire::Opcode::*;
use rocev2::wire::{Ext, Opcode, Reth};

/// Where WRITEs go, so that the rest of the region is guarded.
const VA: u64 = BASE + SINK as u64;

fn reth(world: &World, len: usize) -> Reth {
    Reth { va: VA, rkey: world.key, len: len as u32 }
}

/// Bytes that are not what stands there already.
fn other(len: usize) -> Vec<u8> {
    pattern(len).iter().map(|byte| !byte).collect()
}

#[test]
fn wrt_01_a_write_changes_memory_and_takes_no_receive() {
    each(|mut world| {
        world.receive(1, 100);
        let key = world.key;
        world.write(0, key, VA, &other(64));
        assert_eq!((world.acks(), world.statuses()), (vec![(ACK, 0, 1)], vec![]));
        assert!(world.bytes()[SINK..SINK + 64] == other(64));
        world.guarded(64);
    });
}

/// WRITE of `len` bytes; `last` is the opcode of its last packet.
fn long_write(world: &mut World, len: usize, last: (Opcode, Ext)) {
    let bytes = other(len);
    let packets: Vec<_> = bytes.chunks(P).collect();
    for (at, payload) in packets.iter().enumerate() {
        let (opcode, ext) = match at {
            0 => (WriteFirst, Ext::Reth(reth(world, len))),
            _ if at + 1 < packets.len() => (WriteMiddle, Ext::None),
            _ => last,
        };
        let mut bth = world.bth(at as i32, opcode);
        bth.ack_req = at + 1 == packets.len();
        world.give(&frame(&world.encap, &bth, &ext, payload));
    }
}

#[test]
fn wrt_02_a_mebibyte_counts_as_one_message() {
    each_with(Terms { bytes: SINK + (1 << 20) + 100, ..TERMS }, |mut world| {
        long_write(&mut world, 1 << 20, (WriteLast, Ext::None));
        assert_eq!((world.acks(), world.statuses()), (vec![(ACK, 1023, 1)], vec![]));
        assert!(world.bytes()[SINK..SINK + (1 << 20)] == other(1 << 20));
        world.guarded(1 << 20);
    });
}

#[test]
fn wrt_03_an_immediate_takes_a_receive_and_not_its_buffer() {
    each(|mut world| {
        world.receive(1, 0);
        long_write(&mut world, 3000, (WriteLastImm, Ext::Imm(7)));
        assert_eq!(world.acks(), [(ACK, 2, 1)]);
        assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], 3000));
        assert!(world.bytes()[SINK..SINK + 3000] == other(3000));
        world.guarded(3000);
    });
}

#[test]
fn wrt_04_an_immediate_stands_behind_the_reth() {
    each(|mut world| {
        world.receive(1, 0);
        let ext = Ext::RethImm(reth(&world, 64), 7);
        world.ask(0, WriteOnlyImm, ext, &other(64));
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        assert_eq!((world.statuses(), world.done[0].len), (vec![(1, OK)], 64));
        assert!(world.bytes()[SINK..SINK + 64] == other(64));
        world.guarded(64);
    });
}

/// A WRITE that announces `announced` bytes and brings packets of these lengths, of which the last is
/// refused. Nothing of that one is placed.
fn refused(announced: u32, packets: &[(Opcode, usize)]) {
    each(|mut world| {
        world.receive(1, 100);
        for (at, &(opcode, len)) in packets.iter().enumerate() {
            assert_eq!(world.state(), rocev2::qp::QpState::Rts);
            world.sent();
            let reth = Reth { len: announced, ..reth(&world, 0) };
            let ext = if at == 0 { Ext::Reth(reth) } else { Ext::None };
            world.ask(at as i32, opcode, ext, &other(len));
        }
        world.refused(NAK1, packets.len() as i32 - 1, 0, 1);
        world.guarded(packets[..packets.len() - 1].iter().map(|packet| packet.1).sum());
    });
}

#[test]
fn wrt_05_a_last_packet_before_all_is_there_is_refused() {
    refused(3 * P as u32, &[(WriteFirst, P), (WriteLast, P)]);
    refused(3 * P as u32, &[(WriteFirst, P), (WriteMiddle, P), (WriteLast, P - 4)]);
}

#[test]
fn wrt_06_more_than_was_announced_is_refused() {
    refused(2 * P as u32, &[(WriteFirst, P), (WriteMiddle, P)]);
    refused(P as u32 + 8, &[(WriteFirst, P), (WriteMiddle, P)]);
    refused(P as u32 + 8, &[(WriteFirst, P), (WriteLast, 12)]);
}

#[test]
fn wrt_07_one_packet_carries_what_it_announces() {
    for announced in [0, 60, 68, 2 * P as u32] {
        refused(announced, &[(WriteOnly, 64)]);
    }
}

#[test]
fn wrt_08_a_write_of_nothing_needs_no_key() {
    each(|mut world| {
        world.write(0, Rkey::new(0xdead_beef), 1, &[]);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        world.guarded(0);
    });
}

#[test]
fn wrt_09_a_first_packet_announces_more_than_itself() {
    for announced in [0, P as u32 - 1, P as u32] {
        refused(announced, &[(WriteFirst, P)]);
    }
}

#[test]
fn wrt_10_no_message_is_longer_than_2_gib() {
    refused((1 << 31) + 4, &[(WriteFirst, P)]);
}

/// A queue pair has no rights of its own here, as NDK gives it none: the region's decide (KEY-07).
#[test]
fn wrt_11_without_the_right_a_write_is_refused() {
    use rocev2::mr::Access;
    each(|mut world| {
        let key = world.region(PD, 64, Access::LOCAL_WRITE | Access::REMOTE_READ);
        world.write(0, key, base(1), &other(8));
        world.refused(NAK2, 0, 0, 0);
        assert!(world.memory.0[&1] == pattern(64));
    });
}

#[test]
fn wrt_12_a_region_that_goes_away_takes_no_more() {
    each(|mut world| {
        world.ask(0, WriteFirst, Ext::Reth(reth(&world, 3 * P)), &other(P));
        world.sent();
        world.d.deregister(world.key).unwrap();
        world.ask(1, WriteMiddle, Ext::None, &other(P));
        world.refused(NAK2, 1, 0, 0);
        assert!(world.bytes()[SINK..SINK + P] == other(P));
        world.guarded(P);
    });
}

/// C9-222.1: the receive that the immediate would take ends with the error, not flushed, wherever the
/// key turns out to be none.
#[test]
fn the_receive_of_an_immediate_ends_with_the_key_that_failed() {
    let (ended, short) = (Rkey::new(0), 2 * P as u32);
    for two in [false, true] {
        each(|mut world| {
            world.receive(1, 8);
            world.receive(2, 8);
            let key = world.mapped(BASE, 2 * P as u64);
            if two {
                let reth = Reth { va: BASE, rkey: key, len: short };
                world.ask(0, WriteFirst, Ext::Reth(reth), &pattern(P));
                world.d.deregister(key).unwrap();
                world.ask(1, WriteLastImm, Ext::Imm(7), &pattern(P));
            } else {
                let reth = Reth { va: BASE, rkey: ended, len: 8 };
                world.ask(0, WriteOnlyImm, Ext::RethImm(reth, 7), &pattern(8));
            }
            assert_eq!(world.statuses(), [(1, WcStatus::LocalAccess), (2, FLUSHED)]);
            assert_eq!(world.state(), QpState::Err);
        });
    }
}
