//! Packets that come from elsewhere than the peer's: strangers that know addresses, queue pair and about the PSN; and peers
//! whose headers change.

use crate::golden::capture;
use crate::peer::*;
use rocev2::counters::Counter;
use rocev2::env::Duration;
use rocev2::ids::Rkey;
use rocev2::psn::Psn;
use rocev2::qp::{QpState, SendOp};
use rocev2::wire::Opcode::*;
use rocev2::wire::{AtomicEth, Bth, DropReason, Encap, Ext, Mac, Opcode, Operation, Packet, Reth};

const STRANGER: Mac = Mac([2, 0x99, 0, 0, 0, 9]);
/// Packets in flight, all of the window.
const FLIGHT: i32 = 60;

/// A forger who knows neither the Ethernet addresses nor the VLAN, the hop limit and the UDP port of P.
pub(crate) fn stranger(encap: &Encap) -> Encap {
    Encap { src_mac: STRANGER, vlan: Some(666), hop_limit: 1, src_port: 0x1234, ..*encap }
}

/// Forgers who know all of them but one.
pub(crate) fn half_strangers(encap: &Encap) -> [Encap; 4] {
    [
        Encap { src_mac: STRANGER, ..*encap },
        Encap { vlan: Some(666), ..*encap },
        Encap { hop_limit: encap.hop_limit - 1, ..*encap },
        Encap { src_port: encap.src_port ^ 1, ..*encap },
    ]
}

impl World {
    /// Gives D a packet from elsewhere.
    pub(crate) fn give_from(&mut self, encap: Encap, bth: &Bth, ext: &Ext, payload: &[u8]) {
        self.give(&frame(&encap, bth, ext, payload));
    }

    /// A request from elsewhere.
    pub(crate) fn ask_from(
        &mut self,
        encap: Encap,
        at: i32,
        opcode: Opcode,
        ext: Ext,
        payload: &[u8],
    ) {
        let bth = self.bth(at, opcode);
        self.give_from(encap, &bth, &ext, payload);
    }

    /// An ACK or NAK from elsewhere.
    pub(crate) fn answer_from(&mut self, encap: Encap, at: i32, syndrome: u8) {
        let psn = Psn::new(self.end.first[1].get().wrapping_add_signed(at));
        let bth = Bth::new(Acknowledge, self.end.qpn, psn);
        self.give_from(encap, &bth, &aeth(syndrome), &[]);
    }

    /// D's next packets, all in flight: four SENDs of 15 each. P's headers are known, and D's packets from `at` on.
    fn flight(&mut self) {
        for id in 0..4 {
            self.post(id, SendOp::Send, 15 * P);
        }
        let sent = self.sent();
        assert_eq!(sent.len(), FLIGHT as usize);
        self.end.first[1] = Psn::new(self.end.first[1].get().wrapping_add_signed(sent[0].at));
    }

    fn mismatches(&self) -> u64 {
        self.d.counters().get(Counter::DropFlowMismatch)
    }

    fn succeeds(&mut self, requests: usize) {
        assert_eq!(self.done.len(), requests, "{:?}", self.done);
        assert!(self.done.iter().all(|done| done.status == OK));
        self.done.clear();
    }
}

/// A SEND ahead of what P sends waits in no reorder buffer, before P's first packet and behind it.
#[test]
fn an_early_request_of_a_stranger_is_not_kept() {
    each(|mut world| {
        for round in 0..2 {
            (0..6).for_each(|id| world.receive(id, 10));
            let strangers = half_strangers(&world.encap);
            // Before a packet of P has come, nobody knows its UDP port.
            let half = &strangers[..if round == 0 { 3 } else { 4 }];
            for encap in half.iter().copied().chain([stranger(&world.encap)]) {
                world.is_dropped(DropReason::FlowMismatch, |world| {
                    world.ask_from(encap, 6 * round + 5, SendOnly, Ext::None, &[0xee; 10]);
                });
            }
            for at in 0..6 {
                world.send(6 * round + at, 10);
                world.received(10);
            }
            world.succeeds(6);
            assert_eq!(world.acks().last().map(|ack| ack.1), Some(6 * round + 5));
        }
    });
}

/// An atomic, which nobody offers, would end the connection when P comes to its number.
#[test]
fn an_early_request_that_would_end_the_connection_is_not_kept() {
    each(|mut world| {
        let atomic = AtomicEth { va: BASE, rkey: world.key, swap_or_add: 1, compare: 0 };
        let encap = stranger(&world.encap);
        world.is_dropped(DropReason::FlowMismatch, |world| {
            world.ask_from(encap, 300, FetchAdd, Ext::AtomicEth(atomic), &[]);
        });
        for at in 0..=300 {
            world.receive(1, 10);
            world.send(at, 10);
            drop(world.sent());
        }
        assert_eq!(world.state(), QpState::Rts);
        world.succeeds(301);
    });
}

/// The expected packet is executed whatever its headers; but it ends no connection from elsewhere.
#[test]
fn the_expected_request_is_executed_and_ends_nothing_for_a_stranger() {
    each(|mut world| {
        world.works(0);
        world.done.clear();
        world.receive(1, P);
        let atomic =
            Ext::AtomicEth(AtomicEth { va: BASE, rkey: world.key, swap_or_add: 1, compare: 0 });
        let key = Rkey::new(world.key.get() ^ 1);
        let bad = Ext::Reth(Reth { va: BASE, rkey: key, len: 4 });
        for encap in half_strangers(&world.encap).into_iter().chain([stranger(&world.encap)]) {
            let fatal: [(Opcode, Ext, &[u8]); 6] = [
                (FetchAdd, atomic, &[]),
                (SendMiddle, Ext::None, &[1; P]),
                (SendOnly, Ext::None, &[1; P + 4]),
                (WriteOnly, bad, &[1; 4]),
                (ReadRequest, bad, &[]),
                (SendOnlyInv, Ext::Ieth(key), &[1; 4]),
            ];
            for (opcode, ext, payload) in fatal {
                world.is_dropped(DropReason::FlowMismatch, |world| {
                    world.ask_from(encap, 1, opcode, ext, payload);
                });
            }
        }
        world.guarded(P);
        let moved = half_strangers(&world.encap)[0];
        world.ask_from(moved, 1, SendOnly, Ext::None, &pattern(10));
        world.succeeds(1);
        world.received(10);
        assert_eq!(world.acks().last().map(|ack| ack.1), Some(1));
    });
}

/// What answers more than the oldest packet in flight is the peer's, or nothing happens, and no timer moves.
#[test]
fn an_answer_of_a_stranger_ends_and_resends_nothing() {
    each(|mut world| {
        world.works(0);
        world.done.clear();
        world.flight();
        let due = world.d.poll_timeout();
        let strangers = half_strangers(&world.encap);
        for encap in strangers.into_iter().chain([stranger(&world.encap)]) {
            for at in [-1, 0, 1, 30, FLIGHT - 1] {
                for syndrome in [ACK, NAK0, NAK1, NAK2, NAK3, RNR] {
                    if (at, syndrome) != (0, ACK) {
                        world.is_dropped(DropReason::FlowMismatch, |world| {
                            world.answer_from(encap, at, syndrome);
                        });
                    }
                }
            }
            assert_eq!(world.d.poll_timeout(), due);
        }
        world.answer(FLIGHT - 1, ACK);
        world.succeeds(4);
    });
}

/// While a probe has no answer, and P is silent: a guess in the middle is none, and only the second of them would do.
#[test]
fn a_nak_of_a_stranger_ends_no_connection_while_the_peer_is_silent() {
    each(|mut world| {
        world.works(0);
        world.done.clear();
        world.flight();
        let encap = stranger(&world.encap);
        for _ in 0..3 {
            world.wait();
            drop(world.sent());
            for syndrome in [NAK1, NAK2, NAK3] {
                world.is_dropped(DropReason::FlowMismatch, |world| {
                    world.answer_from(encap, 30, syndrome);
                });
            }
        }
        world.answer(FLIGHT - 1, ACK);
        world.succeeds(4);
    });
}

/// Goal: a peer behind another router, in another VLAN or with another port goes on. Method: its ACKs, of which none
/// is of the oldest packet alone, come from there; it answers D's probe.
#[test]
fn a_peer_whose_path_changes_is_believed_when_it_answers_a_probe() {
    // All that was sent; nothing; and what the peer has without what was lost, twice.
    let answers = [&[FLIGHT - 1][..], &[-1], &[29, 29]];
    for half in 0..4 {
        for said in answers {
            each(|mut world| {
                world.works(0);
                world.done.clear();
                world.flight();
                let encap = half_strangers(&world.encap)[half];
                world.answer_from(encap, 15, ACK);
                assert_eq!((world.done.len(), world.mismatches()), (0, 1));
                for (n, at) in said.iter().enumerate() {
                    world.wait();
                    let probes = world.sent();
                    assert!(probes.iter().all(Sent::is_probe) && probes.len() == 1, "{probes:?}");
                    let before = world.mismatches();
                    world.answer_from(encap, *at, ACK);
                    let believed = n + 1 == said.len();
                    assert_eq!(world.mismatches() == before, believed, "{half}: {said:?}");
                }
                world.encap = encap;
                drop(world.sent());
                world.answer(FLIGHT - 1, ACK);
                world.succeeds(4);
                world.works(1);
            });
        }
    }
}

/// PKT-08: hardware takes another UDP port for each packet. After a few it is not asked for any more.
#[test]
fn a_peer_that_takes_another_port_for_each_packet_loses_nothing_for_it() {
    each(|mut world| {
        // As a requester: what comes early is kept soon.
        let mut port = 0xc000;
        let mut send = |world: &mut World, at| {
            port += 7;
            world.encap.src_port = port;
            world.receive(1, 10);
            world.send(at, 10);
            drop(world.sent());
        };
        (0..4).for_each(|at| send(&mut world, at));
        for at in (4..200).step_by(2) {
            send(&mut world, at + 1);
            send(&mut world, at);
        }
        assert_eq!(world.mismatches(), 0);
        world.succeeds(200);
        // As a responder: no ACK is lost.
        for round in 0..20 {
            world.flight();
            world.encap.src_port = 0xe000 | round;
            world.answer(30, ACK);
            world.encap.src_port = 0xe100 | round;
            world.answer(FLIGHT - 1, ACK);
            world.succeeds(4);
        }
        assert_eq!(world.mismatches(), 0);
    });
}

/// The same of what rxe wrote: the WRITEs of a capture, in pairs that overtake, each packet from a port of its own.
#[test]
fn captured_writes_from_a_port_for_each_packet_lose_nothing() {
    let capture = capture("rc_write.pcap");
    let packets = capture.frames.iter().map(|frame| Packet::parse(frame).unwrap());
    let mut writes: Vec<_> =
        packets.filter(|packet| packet.bth.opcode.operation() == Operation::Write).collect();
    let (psn, va) = (writes[0].bth.psn, writes[0].ext.reth().unwrap().va);
    let moved = |key, reth: Reth| Ext::Reth(Reth { va: BASE + reth.va - va, rkey: key, ..reth });
    let mut written = pattern(TERMS.bytes);
    let mut at = 0;
    for packet in &writes {
        at = packet.ext.reth().map_or(at, |reth| (reth.va - va) as usize);
        written[at..][..packet.payload.len()].copy_from_slice(packet.payload);
        at += packet.payload.len();
    }
    writes[4..].chunks_exact_mut(2).for_each(|pair| pair.reverse());
    each(|mut world| {
        for (number, packet) in writes.iter().enumerate() {
            world.encap.src_port = 0xc000 | (7 * number as u16);
            let at = packet.bth.psn.since(psn);
            let bth = Bth { ack_req: packet.bth.ack_req, ..world.bth(at, packet.bth.opcode) };
            let ext = packet.ext.reth().map_or(packet.ext, |reth| moved(world.key, reth));
            world.give(&frame(&world.encap, &bth, &ext, packet.payload));
        }
        let acked = world.acks().last().map(|(syndrome, at, _)| (*syndrome, *at));
        assert_eq!(acked, Some((ACK, writes.len() as i32 - 1)));
        assert!(world.mismatches() == 0 && *world.bytes() == written);
    });
}

/// The same of a peer that says nothing but ACKs, of many packets each: two probes teach it.
#[test]
fn a_responder_that_takes_another_port_for_each_ack_costs_two_probes() {
    each(|mut world| {
        let mut probes = 0;
        for round in 0..50_u16 {
            world.flight();
            world.encap.src_port = 0xe000 | (2 * round);
            world.answer(30, ACK);
            world.encap.src_port = 0xe001 | (2 * round);
            world.answer(FLIGHT - 1, ACK);
            while world.done.len() < 4 {
                world.wait();
                probes += world.sent().len();
                world.encap.src_port = 0xf000 | round;
                world.answer(FLIGHT - 1, ACK);
            }
            world.succeeds(4);
        }
        assert_eq!((probes, world.mismatches()), (2, 3));
    });
}

/// A request that was executed is answered from elsewhere when it comes again a millisecond later: its ACK may have
/// been lost, and the peer have another path since. It is answered once in that time, and teaches nothing.
#[test]
fn a_duplicate_from_elsewhere_is_answered_late_and_seldom() {
    each(|mut world| {
        (0..3).for_each(|at| world.works(at));
        let encap = stranger(&world.encap);
        for _ in 0..10 {
            world.is_dropped(DropReason::FlowMismatch, |world| {
                world.ask_from(encap, 2, SendOnly, Ext::None, &pattern(10));
            });
        }
        for _ in 0..3 {
            world.pass(Duration::from_millis(1));
            world.ask_from(encap, 2, SendOnly, Ext::None, &pattern(10));
            assert_eq!(world.acks(), [(ACK, 2, 3)]);
            world.is_dropped(DropReason::FlowMismatch, |world| {
                world.ask_from(encap, 2, SendOnly, Ext::None, &pattern(10));
            });
        }
        world.is_dropped(DropReason::FlowMismatch, |world| {
            world.ask_from(encap, 5, SendOnly, Ext::None, &pattern(10));
        });
        world.works(3);
    });
}

/// Of two requests with one number nobody knows which is the peer's: neither is executed before it comes alone.
#[test]
fn two_requests_of_one_number_are_both_dropped() {
    each(|mut world| {
        (0..3).for_each(|id| world.receive(id, 10));
        world.send(2, 10);
        world.ask(1, SendOnly, Ext::None, &[0xee; 10]);
        world.is_dropped(DropReason::HeldConflict, |world| world.send(1, 10));
        world.is_dropped(DropReason::Duplicate, |world| world.send(2, 10));
        world.send(0, 10);
        assert_eq!(world.done.len(), 1, "the second is missing");
        world.send(1, 10);
        world.succeeds(3);
        world.received(10);
    });
}

/// DCQCN's notification point sends one notification in 50 us, and so more than that cut once. Those of strangers do not cut.
#[test]
fn notifications_cut_once_in_50_us_and_those_of_strangers_never() {
    each_with(Terms { dcqcn: true, ..TERMS }, |mut world| {
        // P's port is known then.
        world.receive(1, 10);
        world.send(0, 10);
        let mut buf = vec![0; 2000];
        while world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).is_some() {}
        let (qpn, encap) = (world.end.qpn, world.encap);
        let cnp = |encap: Encap| frame(&encap, &Bth::new(Cnp, qpn, Psn::new(0)), &Ext::Cnp, &[]);
        for encap in half_strangers(&encap).into_iter().chain([stranger(&encap)]) {
            let cnp = cnp(encap);
            world.is_dropped(DropReason::FlowMismatch, |world| world.give(&cnp));
        }
        assert_eq!(world.d.qp_rate(qpn, world.now), None);
        for _ in 0..10 {
            world.give(&cnp(encap));
            world.pass(Duration::from_micros(4));
        }
        // Half of the link's rate, and no less.
        assert_eq!(world.d.qp_rate(qpn, world.now), Some(625_000_000));
        world.pass(Duration::from_micros(10));
        world.give(&cnp(encap));
        assert!(world.d.qp_rate(qpn, world.now).unwrap() < 400_000_000);
    });
}
