//! Peers and strangers that take what all connections share, and keep it. `driver/README.md`, "What frames can take", lists what
//! that is, and the tests of each.

use crate::peer::*;
use rocev2::counters::Counter;
use rocev2::env::Duration;
use rocev2::psn::Psn;
use rocev2::qp::{QpState, SendOp};
use rocev2::wire::Opcode::*;
use rocev2::wire::{Bth, DropReason, Encap};
use std::net::IpAddr;

/// D's port has a path MTU of 4,096 bytes, and P chose 256 for its connection: the packets of that are many, and small.
const SMALL: Terms = Terms { path_mtu: 1, mtu: 9000, ..TERMS };
/// The quota of a connection there: 512 KiB in slots of 4,096 bytes.
const QUOTA: u64 = 128;
/// How long P may try to bring a packet: eight times its ACK timeout of 0.54 s.
const SILENCE: Duration = Duration::from_millis(4_295);

/// Packets that went into the reorder buffers.
fn held(world: &World) -> u64 {
    world.d.counters().get(Counter::OutOfOrderHeld)
}

/// P sends packets 1 to `last` of this connection, which need neither key nor receive, and not the one before them. Returns
/// how many found a slot.
fn hold(world: &mut World, end: End, last: i32) -> u64 {
    let before = held(world);
    world.end = end;
    (1..=last).for_each(|at| empty(world, at));
    world.sent();
    held(world) - before
}

/// A WRITE of nothing.
fn empty(world: &mut World, at: i32) {
    let key = world.key;
    world.write(at, key, BASE, &[]);
}

/// That P's packet 0 is followed by all that were held behind it, `last` the newest.
fn goes_on(world: &mut World, end: End, last: u64) {
    world.end = end;
    empty(world, 0);
    assert_eq!(world.acks().last().map(|ack| (ack.0, ack.1)), Some((ACK, last as i32)));
}

/// P has another address from here on.
fn moves(world: &mut World) {
    world.encap.src = match world.encap.src {
        IpAddr::V4(_) => "10.0.0.9".parse().unwrap(),
        IpAddr::V6(_) => "fd00::9".parse().unwrap(),
    };
}

/// The quota is one of slots, which have room for the port's path MTU, whatever the connection's is.
#[test]
fn a_peer_with_a_small_path_mtu_holds_no_more_bytes_than_another() {
    each_with(Terms { pool: 16 << 20, ..SMALL }, |mut world| {
        let hostile = [world.end, world.another_with(2, SMALL)];
        for end in hostile {
            assert_eq!(hold(&mut world, end, 4095), QUOTA);
        }
        let third = world.another_with(3, TERMS);
        assert_eq!(hold(&mut world, third, 500), QUOTA);
        goes_on(&mut world, third, QUOTA);
    });
}

/// Goal: two connections of a peer that hold the whole reorder pool leave a third one its share at once: its third, if it is of
/// the same peer, and else half of all. They themselves go on where they were.
#[test]
fn a_third_connection_has_its_share_of_the_reorder_pool_at_once() {
    const SLOTS: u64 = 256;
    for other_peer in [false, true] {
        each_with(SMALL, |mut world| {
            let hostile = [world.end, world.another_with(2, SMALL)];
            let encap = world.encap;
            let taken = hostile.map(|end| hold(&mut world, end, 4095));
            assert_eq!(taken.iter().sum::<u64>(), SLOTS);
            if other_peer {
                moves(&mut world);
            }
            let third = world.another_with(3, TERMS);
            let share = if other_peer { SLOTS / 2 } else { SLOTS / 3 };
            assert_eq!(hold(&mut world, third, 200), share);
            // Nobody takes back what is another's share.
            let moved = core::mem::replace(&mut world.encap, encap);
            assert!(hostile.map(|end| hold(&mut world, end, 4095)).iter().sum::<u64>() <= 2);
            world.encap = moved;
            goes_on(&mut world, third, share);
            world.works(share as i32 + 1);
            world.encap = encap;
            for end in hostile {
                world.end = end;
                empty(&mut world, 0);
                let ack = world.acks().pop().unwrap();
                assert!(ack.0 == ACK && (60..=128).contains(&ack.1), "{ack:?}");
                world.works(ack.1 + 1);
            }
        });
    }
}

/// Goal: what a gap holds comes back when the missing packet has not come for as long as its peer may try, in silence or
/// amid packets that are not the missing one.
#[test]
fn what_a_peer_holds_and_never_uses_comes_back() {
    for silent in [true, false] {
        each_with(SMALL, |mut world| {
            let hostile = [world.end, world.another_with(2, SMALL)];
            for end in hostile {
                hold(&mut world, end, 4095);
            }
            for _ in 0..10 {
                world.pass(SILENCE / 10);
                for end in hostile {
                    world.end = end;
                    if !silent {
                        empty(&mut world, 1);
                    }
                    world.sent();
                    assert_eq!(world.state(), QpState::Rts);
                }
            }
            let third = world.another_with(3, TERMS);
            assert_eq!(hold(&mut world, third, 200), QUOTA, "and not a third of all");
            goes_on(&mut world, third, QUOTA);
        });
    }
}

/// A stranger, who knows all but an address, holds nothing.
#[test]
fn a_stranger_holds_no_packet() {
    each_with(SMALL, |mut world| {
        let (own, end) = (world.encap, world.end);
        let other = world.d.config().addresses[1];
        moves(&mut world);
        let src = world.encap.src;
        for encap in [Encap { src, ..own }, Encap { dst: other, ..own }] {
            world.encap = encap;
            for at in 1..1000 {
                world.is_dropped(DropReason::AddressMismatch, |world| empty(world, at));
            }
        }
        world.encap = own;
        assert_eq!((held(&world), world.d.poll_timeout()), (0, None));
        assert_eq!(hold(&mut world, end, 4095), QUOTA);
    });
}

/// A peer that sends what D has no receive for, again and again, is answered once for each packet and holds its quota, until
/// it has not been served for as long as it may try.
#[test]
fn a_peer_that_is_refused_for_want_of_a_receive_holds_no_more_than_its_quota() {
    each_with(SMALL, |mut world| {
        let (end, before) = (world.end, tests::alloc::held());
        for _ in 0..10 {
            world.send(0, 10);
            assert_eq!(world.acks(), [(RNR, 0, 0)]);
            hold(&mut world, end, 4095);
        }
        assert_eq!((held(&world), tests::alloc::held()), (QUOTA, before));
        let third = world.another_with(3, TERMS);
        world.end = third;
        world.works(0);
        world.end = end;
        world.pass(SILENCE);
        assert_eq!(world.d.poll_timeout(), None, "nothing is kept");
        world.receive(1, 10);
        world.send(0, 10);
        assert_eq!(world.acks(), [(ACK, 0, 1)]);
    });
}

/// A peer that has no receive for what D sends, for ever, holds that request and no other connection's.
#[test]
fn a_peer_that_refuses_for_ever_holds_its_own_connection() {
    each(|mut world| {
        let (first, second) = (world.end, world.another(2, PD, None));
        world.post(1, SendOp::Send, 10);
        let before = tests::alloc::held();
        for _ in 0..1000 {
            assert_eq!(world.places(), [(SendOnly as u8, 0)]);
            world.answer(0, RNR);
            world.wait();
        }
        assert_eq!(tests::alloc::held(), before);
        world.end = second;
        world.sent();
        world.post(2, SendOp::Send, 10);
        assert!(world.places().contains(&(SendOnly as u8, 0)));
        world.answer(0, ACK);
        assert_eq!(world.statuses(), [(2, OK)]);
        world.end = first;
        world.d.destroy_qp(first.qpn);
        world.collect();
        assert_eq!(world.statuses()[1..], [(1, FLUSHED)], "it ends when its owner says so");
    });
}

/// However many duplicates come, what acknowledges them is repeated five times into silence, and takes no memory; a stranger's
/// cause none.
#[test]
fn duplicates_cause_five_unsolicited_acks_at_most() {
    each(|mut world| {
        world.works(0);
        let (own, before) = (world.encap, tests::alloc::held());
        moves(&mut world);
        for _ in 0..1000 {
            world.is_dropped(DropReason::AddressMismatch, |world| empty(world, 0));
        }
        assert_eq!(world.d.poll_timeout(), None);
        world.encap = own;
        (0..1000).for_each(|_| empty(&mut world, 0));
        assert_eq!(world.acks(), [(ACK, 0, 1)], "one for all that come in a turn");
        let mut repeated = 0;
        while world.d.poll_timeout().is_some() {
            world.wait();
            repeated += world.acks().len();
        }
        assert_eq!((repeated, tests::alloc::held()), (5, before));
    });
}

/// A list of ACKs takes nothing, whoever sends it: a peer of another make, or anybody for queue pairs that are not there.
#[test]
fn a_list_of_acks_that_nobody_sends_takes_nothing() {
    each(|mut world| {
        world.post(1, SendOp::Send, 10);
        assert_eq!(world.places(), [(SendOnly as u8, 0)]);
        let (due, before) = (world.d.poll_timeout(), tests::alloc::held());
        let psn = Psn::new(world.end.first[1].get());
        let others = [0x5a; 31 * 12];
        for _ in 0..1000 {
            let bth = Bth::new(AckList, world.end.qpn, psn);
            let list = frame(&world.encap, &bth, &aeth(ACK), &others);
            world.give(&list);
        }
        assert_eq!((world.sent(), world.done.len()), (vec![], 0));
        assert_eq!((world.d.poll_timeout(), tests::alloc::held()), (due, before));
        world.answer(0, ACK);
        assert_eq!(world.statuses(), [(1, OK)]);
    });
}
