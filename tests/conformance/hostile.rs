//! Peers and strangers that guess, forge and ask again and again.

use crate::packet::opcode;
use crate::peer::*;
use rocev2::counters::Counter;
use rocev2::ids::{Qpn, Rkey};
use rocev2::psn::{Msn, Psn};
use rocev2::qp::{QpState, SendOp};
use rocev2::wire::Opcode::*;
use rocev2::wire::{Aeth, AtomicEth, Bth, DropReason, Encap, Ext, Opcode, Reth, Syndrome};
use std::net::{IpAddr, Ipv4Addr};
use tests::rng::Rng;

/// Opcodes of requests, each with its headers and a payload that it may have.
fn request(rng: &mut Rng, va: u64, rkey: Rkey) -> (Opcode, Ext, usize) {
    let reth = |len: usize| Ext::Reth(Reth { va, rkey, len: len as u32 });
    match rng.below(8) {
        0 => (SendOnly, Ext::None, 64),
        1 => (SendFirst, Ext::None, P),
        2 => (SendOnlyInv, Ext::Ieth(rkey), 8),
        3 => (WriteOnly, reth(64), 64),
        4 => (WriteFirst, reth(3 * P), P),
        5 => (WriteLast, Ext::None, 8),
        6 => (ReadRequest, reth(P), 0),
        _ => {
            let atomic = AtomicEth { va, rkey, swap_or_add: 1, compare: 0 };
            (FetchAdd, Ext::AtomicEth(atomic), 0)
        }
    }
}

/// What a packet may not change.
fn untouched(world: &mut World) {
    world.guarded(0);
    assert_eq!(world.state(), QpState::Rts);
    assert!(world.done.is_empty() && world.events.is_empty());
}

/// Right in all but the queue pair's number: silent, each counted once.
#[test]
fn a_guessed_queue_pair_is_silent() {
    each(|mut world| {
        let (mut rng, key, own) = (Rng(1), world.key, world.end.qpn);
        world.receive(1, P);
        let before = world.d.counters().get(Counter::DropUnknownQpn);
        for _ in 0..20_000 {
            let guess = Qpn::new(2 + rng.below(0xff_fffc) as u32);
            if guess != own {
                let (opcode, ext, len) = request(&mut rng, BASE, key);
                let bth = Bth { dest_qpn: guess, ..world.bth(0, opcode) };
                world.give(&frame(&world.encap, &bth, &ext, &vec![0xaa; len]));
            }
        }
        assert_eq!(world.sent(), []);
        let guesses = world.d.counters().get(Counter::DropUnknownQpn) - before;
        assert!((19_990..=20_000).contains(&guesses), "{guesses}");
        untouched(&mut world);
        world.send(0, 10);
        assert_eq!(world.statuses(), [(1, OK)]);
    });
}

/// Right in all but the packet sequence number, which lies anywhere else: not executed. It is answered
/// like a duplicate or a gap, by one packet at most, and counted where it is not kept.
#[test]
fn a_guessed_psn_is_not_executed() {
    each(|mut world| {
        let (mut rng, key) = (Rng(2), world.key);
        world.receive(1, P);
        for _ in 0..20_000 {
            let (opcode, ext, len) = request(&mut rng, BASE, key);
            let at = 1 + rng.below((1 << 24) - 1) as i32;
            world.ask(at, opcode, ext, &vec![0xaa; len]);
            let answers = world.sent();
            assert!(answers.len() <= 1, "{answers:?}");
            for answer in answers {
                // Of what came before P's first request: an ACK of that. Of what comes after: its NAK.
                assert_eq!(answer.opcode, opcode::ACKNOWLEDGE);
                assert!([(ACK, -1), (NAK0, 0)].contains(&(answer.ext[0], answer.at)), "{answer:?}");
            }
        }
        untouched(&mut world);
        world.send(0, 10);
        assert_eq!(world.statuses()[0], (1, OK));
    });
}

/// Right in all but the key: refused, and that is the end of the connection that guessed.
#[test]
fn a_guessed_key_ends_the_connection_that_guessed() {
    let mut rng = Rng(3);
    for _ in 0..200 {
        let (guess, write) = (Rkey::new(rng.next() as u32), rng.one_in(2));
        each(|mut world| {
            if guess == world.key {
                return;
            }
            world.receive(1, P);
            match write {
                true => world.write(0, guess, BASE, &[0xaa; 64]),
                false => world.read(0, guess, BASE, 64),
            }
            world.guarded(0);
            world.refused(NAK2, 0, 0, 1);
        });
    }
}

/// Addresses that look like the pair of a connection.
fn strangers(encap: &Encap, other: IpAddr) -> Vec<(IpAddr, IpAddr)> {
    let (src, dst) = (encap.src, encap.dst);
    let mut pairs = vec![(src, other), (other, dst), (other, other), (dst, src), (dst, dst)];
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mapped = [src, dst].map(|ip| IpAddr::V6(ip.to_ipv6_mapped()));
            let numbers = [src, dst].map(|ip| IpAddr::V6(u128::from(ip.to_bits()).into()));
            pairs.extend([mapped, numbers].map(|[src, dst]| (src, dst)));
            pairs.extend([
                (Ipv4Addr::BROADCAST.into(), dst.into()),
                (Ipv4Addr::UNSPECIFIED.into(), dst.into()),
                (src.into(), Ipv4Addr::BROADCAST.into()),
            ]);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            for bit in [0, 1, 63, 64, 127] {
                let flip = |ip: std::net::Ipv6Addr| IpAddr::V6((u128::from(ip) ^ 1 << bit).into());
                pairs.extend([(flip(src), dst.into()), (src.into(), flip(dst))]);
            }
            pairs.push((Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped().into(), dst.into()));
        }
        _ => unreachable!("one family"),
    }
    pairs
}

/// Of those, some no other host may have.
fn why_dropped(encap: &Encap, own: &[IpAddr]) -> DropReason {
    let is_host = rocev2::wire::is_host(encap.src, encap.dst);
    match own.contains(&encap.dst) && own.contains(&encap.src) || !is_host {
        true => DropReason::Martian,
        false => DropReason::AddressMismatch,
    }
}

/// Right in all but an address, be it another of D's own, or the same number in the other family: silent.
#[test]
fn every_packet_needs_the_exact_pair_of_addresses() {
    each(|mut world| {
        let (key, mut rng) = (world.key, Rng(4));
        world.receive(1, P);
        world.post(2, SendOp::Send, 10);
        assert_eq!(world.places(), [(SendOnly as u8, 0)]);
        let (encap, other) = (world.encap, world.d.config().addresses[1]);
        for (src, dst) in strangers(&encap, other) {
            let forged = Encap { src, dst, ..encap };
            let reason = why_dropped(&forged, &world.d.config().addresses);
            for _ in 0..8 {
                let (opcode, ext, len) = request(&mut rng, BASE, key);
                let frame = frame(&forged, &world.bth(0, opcode), &ext, &vec![0xaa; len]);
                world.is_dropped(reason, |world| world.give(&frame));
            }
            for syndrome in [ACK, NAK0, NAK1, NAK2, RNR] {
                let bth = Bth::new(Acknowledge, world.end.qpn, world.end.first[1]);
                let frame = frame(&forged, &bth, &aeth(syndrome), &[]);
                world.is_dropped(reason, |world| world.give(&frame));
            }
        }
        untouched(&mut world);
        world.answer(0, ACK);
        world.send(0, 10);
        assert_eq!(world.statuses(), [(2, OK), (1, OK)]);
    });
}

/// Answers to what is not in flight, with any syndrome and any MSN: silent, each counted, and no timer of
/// D's moves. In flight are packets 2 to 4 of D.
#[test]
fn an_answer_outside_the_window_is_silent() {
    each(|mut world| {
        (0..5).for_each(|id| world.post(id, SendOp::Send, 10));
        assert_eq!(world.sent().len(), 5);
        world.answer(1, ACK);
        assert_eq!(world.statuses(), [(0, OK), (1, OK)]);
        let (due, mut rng) = (world.d.poll_timeout(), Rng(5));
        let near = [-1000, -2, -1, 0, 1, 5, 6, 7, 1000, (1 << 23) - 1, 1 << 23];
        let far: Vec<_> = (0..500).map(|_| 5 + rng.below((1 << 24) - 5) as i32).collect();
        for at in near.into_iter().chain(far) {
            for syndrome in [0, ACK, NAK0, NAK1, NAK2, NAK3, RNR, 0x20, 0x64, 0x80] {
                let (syndrome, msn) = (Syndrome::from_byte(syndrome), Msn::new(rng.next() as u32));
                world.is_dropped(DropReason::StaleResponse, |world| {
                    world.respond(at, Acknowledge, Ext::Aeth(Aeth { syndrome, msn }), &[]);
                });
            }
            world.is_dropped(DropReason::StaleResponse, |world| {
                world.data(at, ReadResponseOnly, &[0xaa; 10]);
            });
            assert_eq!(world.d.poll_timeout(), due);
        }
        world.answer(4, ACK);
        assert_eq!(world.statuses()[2..], [(2, OK), (3, OK), (4, OK)]);
        world.guarded(0);
        world.works(0);
    });
}

/// Where nothing is in flight, no PSN is that of an answer.
#[test]
fn an_answer_to_nothing_is_silent() {
    each(|mut world| {
        for at in [-1, 0, 1, 1 << 23] {
            for syndrome in [ACK, NAK0, NAK1, NAK2, NAK3, RNR] {
                world.is_dropped(DropReason::StaleResponse, |world| world.answer(at, syndrome));
            }
        }
        assert_eq!(world.d.poll_timeout(), None);
        world.works(0);
    });
}

/// A congestion notification is heeded from the peer alone.
#[test]
fn a_congestion_notification_from_elsewhere_is_silent() {
    each_with(Terms { dcqcn: true, ..TERMS }, |mut world| {
        let (encap, other) = (world.encap, world.d.config().addresses[1]);
        let qpn = world.end.qpn;
        let cnp = |encap: &Encap| frame(encap, &Bth::new(Cnp, qpn, Psn::new(0)), &Ext::Cnp, &[]);
        let free = world.d.qp_rate(qpn, world.now);
        for (src, dst) in strangers(&encap, other) {
            let forged = Encap { src, dst, ..encap };
            let reason = why_dropped(&forged, &world.d.config().addresses);
            let cnp = cnp(&forged);
            world.is_dropped(reason, |world| world.give(&cnp));
            assert_eq!(world.d.qp_rate(qpn, world.now), free);
        }
        assert_eq!(world.d.counters().get(Counter::RpCnpHandled), 0);
        world.give(&cnp(&encap));
        assert_eq!(world.d.counters().get(Counter::RpCnpHandled), 1);
        let slower = world.d.qp_rate(qpn, world.now).unwrap();
        assert!(free.is_none_or(|free| slower < free), "{slower} after {free:?}");
    });
}

/// Response packets that D sends now; nothing else is among them.
fn responses(world: &mut World) -> Vec<i32> {
    let sent = world.sent();
    assert!(sent.iter().all(|packet| (0x0d..=0x10).contains(&packet.opcode)), "{sent:?}");
    sent.iter().map(|packet| packet.at).collect()
}

/// However often it comes: one answer is owed.
#[test]
fn a_read_that_is_asked_for_again_is_owed_once() {
    each(|mut world| {
        let (key, len) = (world.key, 16 * P as u32);
        world.read(0, key, BASE, len);
        for round in 0..3 {
            assert!(responses(&mut world).into_iter().eq(0..16), "round {round}");
            (0..1000).for_each(|_| world.read(0, key, BASE, len));
        }
    });
}

/// Goal: the bound of what READs cost, whatever a peer asks for again. A request gets no more packets
/// than it asks for: at most `len / path MTU + 1`. And D owes at most two answers per READ that the
/// connection allows in flight, a READ's own and a part of it again, however many requests come between
/// two of D's turns.
/// Method: parts of READs that were answered are asked for again, at random, and each longer than the one
/// before, which no answer that is owed covers; all at once, on connections of every depth.
#[test]
fn what_reads_cost_is_bounded_by_what_is_asked_for_and_by_the_depth() {
    const PACKETS: i32 = 16;
    for depth in 1..=4 {
        let rounds = |longer: bool| {
            each_with(Terms { inbound: depth, ..TERMS }, |mut world| {
                let (key, reads) = (world.key, i32::from(depth));
                for read in 0..reads {
                    world.read(read * PACKETS, key, BASE, PACKETS as u32 * P as u32);
                    assert_eq!(responses(&mut world).len(), PACKETS as usize);
                }
                let mut rng = Rng(6);
                for _ in 0..50 {
                    let mut asked = 0;
                    for n in 0..200 {
                        let read = rng.below(reads as usize) as i32;
                        let first = if longer { 0 } else { rng.below(PACKETS as usize) as i32 };
                        let most = (PACKETS - first) as usize;
                        let count = if longer { 1 + n % most } else { 1 + rng.below(most) };
                        let (va, len) = (BASE + first as u64 * P as u64, (count * P) as u32);
                        world.read(read * PACKETS + first, key, va, len);
                        asked += count;
                    }
                    let answered = responses(&mut world).len();
                    assert!((1..=asked).contains(&answered), "{answered} packets for {asked}");
                    let owed = 2 * usize::from(depth) * PACKETS as usize;
                    assert!(answered <= owed, "{answered} packets, {owed} owed at most");
                }
                world.guarded(0);
                world.works(reads * PACKETS);
            });
        };
        rounds(true);
        rounds(false);
    }
}

/// New READs beyond the depth take the place of older ones: no more is owed either.
#[test]
fn reads_beyond_the_depth_do_not_add_up() {
    each_with(Terms { inbound: 1, ..TERMS }, |mut world| {
        let key = world.key;
        for n in 0..1000 {
            world.read(16 * n, key, BASE, 16 * P as u32);
        }
        let answered = responses(&mut world);
        assert!(answered.len() <= 2 * 16, "{}", answered.len());
        assert_eq!(answered.last(), Some(&(16 * 1000 - 1)));
        world.works(16 * 1000);
    });
}
