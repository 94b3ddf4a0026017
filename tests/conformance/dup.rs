//! Duplicates at the responder.

use crate::packet::opcode;
use crate::peer::*;
use rocev2::env::Duration;
use rocev2::ids::Rkey;
use rocev2::qp::{QpState, WcKind};
use rocev2::wire::Opcode::*;
use rocev2::wire::{DropReason, Ext, Reth};

#[test]
fn dup_01_a_duplicate_send_is_acknowledged_again() {
    each(|mut world| {
        (0..2).for_each(|id| world.receive(id, 100));
        for _ in 0..2 {
            world.send(0, 100);
            assert_eq!(world.acks(), [(ACK, 0, 1)]);
        }
        assert_eq!(world.statuses(), [(0, OK)]);
    });
}

/// C9-105: it is acknowledged where it asks for that. Each packet of a message that comes again would get an
/// ACK otherwise.
#[test]
fn dup_01_a_duplicate_that_asks_for_no_acknowledgement_is_silent() {
    each(|mut world| {
        world.receive(1, 10);
        let key = world.key;
        let reth = Ext::Reth(Reth { va: BASE, rkey: key, len: 10 });
        for (at, opcode, ext) in [(0, SendOnly, Ext::None), (1, WriteOnly, reth)] {
            let mut bth = world.bth(at, opcode);
            bth.ack_req = false;
            let request = frame(&world.encap, &bth, &ext, &pattern(10));
            world.give(&request);
            world.sent();
            world.is_dropped(DropReason::Duplicate, |world| world.give(&request));
        }
        world.works(2);
    });
}

/// rxe that was acknowledged while it went back needs one more ACK, has no timer for it, and may lose the
/// one that its last packet brings.
#[test]
fn dup_01_what_acknowledges_a_duplicate_is_repeated_into_silence() {
    let waits = [25, 50, 100, 200, 400];
    each(|mut world| {
        (0..4).for_each(|id| world.receive(id, 100));
        // What was held is acknowledged before it comes again.
        world.send(1, 100);
        world.send(0, 100);
        assert_eq!(world.acks(), [(ACK, 1, 2)]);
        for wait in waits {
            world.pass(Duration::from_millis(wait - 1));
            assert_eq!(world.acks(), []);
            world.pass(Duration::from_millis(1));
            assert_eq!(world.acks(), [(ACK, 1, 2)]);
        }
        world.pass(Duration::from_secs(5));
        assert_eq!(world.acks(), []);
        // A duplicate begins it anew, and what is new ends it.
        world.send(1, 100);
        assert_eq!(world.acks(), [(ACK, 1, 2)]);
        world.pass(Duration::from_millis(25));
        assert_eq!(world.acks(), [(ACK, 1, 2)]);
        world.send(2, 100);
        assert_eq!(world.acks(), [(ACK, 2, 3)]);
        world.pass(Duration::from_secs(5));
        assert_eq!(world.acks(), []);
    });
}

#[test]
fn dup_02_a_duplicate_write_is_not_executed() {
    each(|mut world| {
        let key = world.key;
        world.write(0, key, BASE, &[0xaa; 64]);
        world.acks();
        world.bytes()[..64].fill(0xee);
        world.write(0, key, BASE, &[0xaa; 64]);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        assert!(world.bytes()[..64] == [0xee; 64]);
    });
}

#[test]
fn dup_03_the_first_packet_of_a_finished_message_changes_nothing() {
    each(|mut world| {
        world.receive(1, 3 * P);
        for (at, opcode) in [SendFirst, SendMiddle, SendLast].into_iter().enumerate() {
            world.ask(at as i32, opcode, Ext::None, &pattern(P));
        }
        world.acks();
        world.ask(0, SendFirst, Ext::None, &pattern(P));
        assert_eq!(world.acks(), [(ACK, 2, 1)]);
        assert_eq!(world.statuses(), [(1, OK)]);
        world.works(3);
    });
}

#[test]
fn dup_04_what_a_duplicate_asks_for_is_not_looked_at() {
    each(|mut world| {
        let key = world.key;
        world.write(0, key, BASE, &pattern(64));
        world.acks();
        let bad = Reth { va: 1, rkey: Rkey::new(key.get() ^ 0xff00), len: 77 };
        for (opcode, ext, len) in [
            (WriteOnly, Ext::Reth(bad), 77),
            (WriteOnly, Ext::Reth(bad), 3),
            (WriteFirst, Ext::Reth(bad), P + 4),
            (WriteMiddle, Ext::None, 3),
        ] {
            world.ask(0, opcode, ext, &vec![0xaa; len]);
            assert_eq!(world.acks(), [(ACK, 0, 1)]);
        }
        world.guarded(0);
        world.works(1);
    });
}

#[test]
fn dup_05_a_duplicate_leaves_a_gap_as_it_is() {
    each(|mut world| {
        (0..3).for_each(|id| world.receive(id, 10));
        world.send(0, 10);
        world.send(2, 10);
        world.acks();
        world.wait();
        assert_eq!(world.acks(), [(NAK0, 1, 1)]);
        world.send(0, 10);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
        world.send(2, 10);
        assert_eq!(world.acks(), []);
        world.send(1, 10);
        assert_eq!(world.acks(), [(ACK, 2, 3)]);
    });
}

#[test]
fn dup_06_a_duplicate_needs_no_receive() {
    each(|mut world| {
        world.receive(1, 10);
        for _ in 0..2 {
            world.send(0, 10);
            assert_eq!(world.acks(), [(ACK, 0, 1)]);
        }
        assert_eq!(world.statuses(), [(1, OK)]);
    });
}

#[test]
fn dup_07_a_duplicate_read_is_answered_in_full_again() {
    each(|mut world| {
        let key = world.key;
        world.read(0, key, BASE + 100, 3 * P as u32 + 1);
        let first = world.sent();
        assert_eq!(first.len(), 4);
        world.read(0, key, BASE + 100, 3 * P as u32 + 1);
        assert_eq!(world.sent(), first);
        // The rest of it, behind a hole: the same bytes under the same numbers.
        world.read(2, key, BASE + 100 + 2 * P as u64, P as u32 + 1);
        let rest = world.sent();
        assert!(
            rest.iter()
                .map(|sent| (sent.at, &sent.payload))
                .eq(first[2..].iter().map(|sent| (sent.at, &sent.payload)))
        );
        world.works(4);
    });
}

#[test]
fn dup_08_a_duplicate_read_of_something_else_is_silent() {
    each(|mut world| {
        let (key, other) = (world.key, world.region(PD, REGION, ALL));
        world.read(0, key, BASE + 100, 64);
        world.sent();
        for (key, va, len) in [(other, BASE + 100, 64), (key, BASE + 99, 64), (key, BASE + 100, 65)]
        {
            world.is_dropped(DropReason::Duplicate, |world| world.read(0, key, va, len));
        }
        world.works(1);
    });
}

/// A requester takes a later answer as the loss of an earlier one.
#[test]
fn reads_asked_for_again_backwards_are_answered_forwards() {
    each(|mut world| {
        let key = world.key;
        (0..3).for_each(|at| world.read(at, key, BASE, 64));
        world.sent();
        [2, 0, 1].into_iter().for_each(|at| world.read(at, key, BASE, 64));
        assert_eq!(world.places(), [0, 1, 2].map(|at| (opcode::READ_ONLY, at)));
    });
}

#[test]
fn dup_09_a_read_older_than_the_depth_is_silent() {
    each(|mut world| {
        let key = world.key;
        for at in 0..5 {
            world.read(at, key, BASE, 64);
            assert_eq!(world.sent().len(), 1);
        }
        world.silent(5, DropReason::Duplicate, |world| world.read(0, key, BASE, 64));
    });
}

/// A requester that has the data may still have a copy of its request on the way. rxe ends the connection by the NAK of such a
/// copy, if it is receiving another READ. One that waits goes on asking.
#[test]
fn dup_10_a_duplicate_read_of_a_region_that_is_gone_is_silent_and_then_refused() {
    each(|mut world| {
        let keys = [64; 3].map(|len| world.region(PD, len, ALL));
        for (at, key) in keys.into_iter().enumerate() {
            world.read(at as i32, key, base(at as u32 + 1), 64);
        }
        assert_eq!(world.sent().len(), 3);
        keys.iter().for_each(|key| world.d.deregister(*key).unwrap());
        let ask = |world: &mut World, at: i32| {
            world.read(at, keys[at as usize], base(at as u32 + 1), 64);
        };
        for ms in [0, 20, 100, 379] {
            world.pass(Duration::from_millis(ms));
            for at in 0..3 {
                world.is_dropped(DropReason::Duplicate, |world| ask(world, at));
            }
        }
        // It has the first, and waits for the second.
        world.pass(Duration::from_millis(1));
        world.is_dropped(DropReason::Duplicate, |world| ask(world, 1));
        world.is_dropped(DropReason::Duplicate, |world| ask(world, 2));
        world.pass(Duration::from_millis(500));
        ask(&mut world, 1);
        assert_eq!(world.acks(), [(NAK2, 1, 3)]);
        world.works(3);
    });
}

/// The key ends while the copy is answered: its requester has the data.
#[test]
fn dup_10_a_copy_whose_key_ends_is_left_in_the_middle() {
    each(|mut world| {
        let key = world.region(PD, 4 * P, ALL);
        world.read(0, key, base(1), 4 * P as u32);
        assert_eq!(world.sent().len(), 4);
        world.read(0, key, base(1), 4 * P as u32);
        let mut buf = [0; 2000];
        let unit = world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory);
        assert_eq!(unit.unwrap().segments, 1);
        world.d.deregister(key).unwrap();
        assert_eq!(world.sent(), []);
        world.works(4);
    });
}

#[test]
fn dup_11_an_acknowledgement_does_not_overtake_the_answer_of_a_read() {
    each(|mut world| {
        let key = world.key;
        world.works(0);
        world.read(1, key, BASE, 2 * P as u32);
        world.send(0, 10);
        let sent = world.sent();
        let ack = sent.iter().position(|sent| sent.opcode == Acknowledge as u8);
        assert!(ack.is_none_or(|ack| ack == 2), "{sent:?}");
        assert_eq!(sent[1].at, 2);
    });
}

#[test]
fn dup_12_a_thousand_duplicates_complete_nothing() {
    each(|mut world| {
        world.receive(0, 10);
        for _ in 0..1000 {
            world.send(0, 10);
            assert!(world.acks().len() <= 1);
        }
        assert_eq!(world.statuses(), [(0, OK)]);
        world.works(1);
    });
}

#[test]
fn dup_13_a_duplicate_does_not_end_the_mapping_that_followed() {
    each(|mut world| {
        let key = world.mapped(0x9000, 64);
        world.receive(2, 0);
        world.ask(0, SendOnlyInv, Ext::Ieth(key), &[]);
        world.map(key, 0x9000, 64);
        world.acks();
        assert_eq!(world.done[0].kind, WcKind::ReceiveInvalidate(key));
        world.ask(0, SendOnlyInv, Ext::Ieth(key), &[]);
        world.write(1, key, 0x9000, &[0xaa; 64]);
        assert_eq!(world.acks(), [(ACK, 1, 2)]);
        assert_eq!((world.bytes()[..64] == [0xaa; 64], world.state()), (true, QpState::Rts));
    });
}
