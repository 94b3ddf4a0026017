//! READ at the responder.

use crate::peer::*;
use rocev2::env::Duration;
use rocev2::ids::Rkey;
use rocev2::mr::Access;
use rocev2::wire::Opcode::*;
use rocev2::wire::{Ext, Reth};

const ONLY: u8 = ReadResponseOnly as u8;
const FIRST: u8 = ReadResponseFirst as u8;
const MIDDLE: u8 = ReadResponseMiddle as u8;
const LAST: u8 = ReadResponseLast as u8;

/// Gives D a READ of `len` bytes at `offset`; returns what it sends, which has to be the whole answer.
fn answered(world: &mut World, at: i32, offset: usize, len: usize, opcodes: &[u8]) -> Vec<Sent> {
    let key = world.key;
    world.read(at, key, BASE + offset as u64, len as u32);
    let sent = world.sent();
    let places: Vec<_> = sent.iter().map(|sent| (sent.opcode, sent.at)).collect();
    let right: Vec<_> = opcodes.iter().copied().zip(at..).collect();
    assert_eq!(places, right);
    let data: Vec<u8> = sent.iter().flat_map(|sent| sent.payload.clone()).collect();
    assert!(data == world.bytes()[offset..offset + len]);
    sent
}

#[test]
fn rd_01_a_short_read_is_answered_by_one_packet() {
    each(|mut world| {
        let sent = answered(&mut world, 0, 100, 64, &[ONLY]);
        assert_eq!(sent[0].ext, [ACK, 0, 0, 1]);
    });
}

#[test]
fn rd_02_a_long_read_is_cut_at_the_path_mtu() {
    each(|mut world| {
        let sent = answered(&mut world, 0, 100, 3 * P + 1, &[FIRST, MIDDLE, MIDDLE, LAST]);
        let lens: Vec<_> = sent.iter().map(|sent| (sent.payload.len(), sent.ext.len())).collect();
        assert_eq!(lens, [(P, 4), (P, 0), (P, 0), (1, 4)]);
        assert_eq!((&sent[0].ext, &sent[3].ext), (&vec![ACK, 0, 0, 1], &vec![ACK, 0, 0, 1]));
    });
}

#[test]
fn rd_03_a_read_takes_the_psns_of_its_answer() {
    each(|mut world| {
        answered(&mut world, 0, 100, 3 * P + 1, &[FIRST, MIDDLE, MIDDLE, LAST]);
        world.receive(1, 10);
        world.send(1, 10);
        assert!(world.done.is_empty(), "a duplicate");
        world.sent();
        world.send(4, 10);
        assert_eq!((world.statuses(), world.acks()), (vec![(1, OK)], vec![(ACK, 4, 2)]));
    });
}

#[test]
fn rd_04_a_read_of_nothing_needs_no_key() {
    each(|mut world| {
        world.read(0, Rkey::new(0xdead_beef), 1, 0);
        let sent = world.sent();
        assert_eq!((sent[0].opcode, sent[0].at, sent[0].payload.len()), (ONLY, 0, 0));
        world.works(1);
    });
}

#[test]
fn rd_05_whole_packets_are_not_followed_by_an_empty_one() {
    each(|mut world| {
        answered(&mut world, 0, 0, P, &[ONLY]);
        answered(&mut world, 1, 0, 2 * P, &[FIRST, LAST]);
    });
}

#[test]
fn rd_06_the_answer_leaves_before_a_later_acknowledgement() {
    each(|mut world| {
        let key = world.key;
        world.receive(1, 10);
        world.read(0, key, BASE, 2 * P as u32);
        world.send(2, 10);
        assert_eq!(world.places(), [(FIRST, 0), (LAST, 1), (Acknowledge as u8, 2)]);
    });
}

#[test]
fn rd_07_reads_are_answered_in_order() {
    each(|mut world| {
        let key = world.key;
        for at in 0..4 {
            world.read(2 * at, key, BASE + at as u64 * 3000, 2 * P as u32);
        }
        let sent = world.sent();
        assert!(sent.iter().map(|sent| sent.at).eq(0..8));
        for (i, pair) in sent.chunks(2).enumerate() {
            let right = &world.bytes()[i * 3000..][..2 * P];
            assert!([&pair[0].payload[..], &pair[1].payload].concat() == right);
        }
    });
}

/// One more READ than was agreed on tells that the oldest was answered in full, or that its answer is
/// not wanted: the others are answered, each with its own data.
#[test]
fn rd_08_a_read_beyond_the_depth_mixes_nothing() {
    each(|mut world| {
        let key = world.key;
        for at in 0..5 {
            world.read(at, key, BASE + at as u64 * 100, 64);
        }
        let sent = world.sent();
        assert!(sent.iter().map(|sent| sent.at).eq(1..5), "{sent:?}");
        for answer in sent {
            assert!(answer.payload == world.bytes()[answer.at as usize * 100..][..64]);
        }
    });
}

#[test]
fn rd_09_without_resources_a_read_is_refused() {
    each_with(Terms { inbound: 0, ..TERMS }, |mut world| {
        let key = world.key;
        world.read(0, key, BASE, 64);
        world.refused(NAK1, 0, 0, 0);
    });
}

/// A queue pair has no right of its own; without one, its connection offers no resources (RD-09).
#[test]
fn rd_10_a_region_without_the_right_is_not_read() {
    each(|mut world| {
        let key = world.region(PD, 64, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        world.read(0, key, base(1), 64);
        world.refused(NAK2, 0, 0, 0);
    });
}

#[test]
fn rd_11_a_region_that_goes_away_ends_its_answer() {
    each_with(Terms { bytes: 1 << 20, ..TERMS }, |mut world| {
        let key = world.key;
        world.read(0, key, BASE, 1 << 20);
        let mut buf = [0; 2000];
        let mut sent = 0;
        while sent < 10 {
            let unit = world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory);
            sent += unit.unwrap().segments;
        }
        world.d.deregister(key).unwrap();
        world.memory.0.clear();
        world.refused(NAK2, 10, 1, 0);
    });
}

#[test]
fn rd_12_a_read_request_carries_nothing() {
    each(|mut world| {
        let reth = Reth { va: BASE, rkey: world.key, len: 64 };
        world.ask(0, ReadRequest, Ext::Reth(reth), &[0; 4]);
        world.refused(NAK1, 0, 0, 0);
    });
}

#[test]
fn rd_13_a_duplicate_during_its_own_answer_gets_the_right_data() {
    each(|mut world| {
        let key = world.key;
        world.read(0, key, BASE, 4 * P as u32);
        let mut buf = [0; 2000];
        for _ in 0..2 {
            assert!(world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).is_some());
        }
        world.read(0, key, BASE, 4 * P as u32);
        let sent = world.sent();
        assert!(sent.iter().map(|sent| sent.at).eq(0..4), "{sent:?}");
        for answer in &sent {
            assert!(answer.payload == world.bytes()[answer.at as usize * P..][..P]);
        }
        let opcodes: Vec<u8> = sent.iter().map(|sent| sent.opcode).collect();
        assert_eq!(opcodes, [FIRST, MIDDLE, MIDDLE, LAST]);
    });
}

/// A requester that misses the last response may take such an ACK for it, and complete the READ without its data.
#[test]
fn rd_14_no_acknowledgement_has_a_psn_of_an_answer() {
    each(|mut world| {
        let key = world.key;
        (0..2).for_each(|id| world.receive(id, 10));
        for _ in 0..2 {
            world.send(0, 10);
        }
        world.read(1, key, BASE, 2 * P as u32);
        assert_eq!(world.places(), [(FIRST, 1), (LAST, 2)]);
        // What comes again alone is acknowledged by itself, and once: rxe may have part of the answer, and lose it by that.
        world.send(0, 10);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        world.pass(Duration::from_secs(1));
        assert_eq!(world.sent(), []);
        world.send(0, 10);
        world.read(1, key, BASE, 2 * P as u32);
        assert_eq!(world.places(), [(FIRST, 1), (LAST, 2)]);
        world.read(3, key, BASE, 1);
        assert_eq!(world.places(), [(ONLY, 3)]);
        world.send(0, 10);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        world.send(4, 10);
        assert_eq!(world.acks(), [(ACK, 4, 4)]);
    });
}
