//! Datagrams of somebody who knows both addresses, the GUID and P's queue pair, but no number of D's: not
//! its queue pair, its communication IDs or its PSNs. The connection that they are about lives, works on,
//! and D says little about them.

use crate::packet::opcode;
use crate::peer::*;
use rocev2::Event;
use rocev2::cm::{CmEvent, DisconnectReason};
use rocev2::env::Duration;
use rocev2::ids::{CommId, Qpn, Rkey};
use rocev2::psn::{Msn, Psn};
use rocev2::qp::{QpState, SendOp};
use rocev2::wire::Opcode::*;
use rocev2::wire::mad::{
    CmMessage, Drep, Dreq, GSI_QKEY, MadHeader, Mra, MraMessage, Rej, RejMessage, RejReason, Rep,
    Req, Rtu, SidrRep, SidrReq, emit_mad,
};
use rocev2::wire::{Aeth, AtomicEth, Bth, Deth, Ext, Opcode, Reth, Syndrome};
use tests::rng::Rng;

/// P's own part of the connection; see [`req`].
fn theirs() -> (CommId, Qpn, u64) {
    let world = World::new(false, TERMS);
    let req = req(&world.encap, 0, TERMS);
    (req.local_comm_id, req.local_qpn, req.ca_guid)
}

/// What D sends, sorted; P answers what it is asked, as it lives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Said {
    messages: usize,
    probes: usize,
    acks: usize,
    requests: usize,
}

impl Said {
    fn listen(&mut self, world: &mut World) {
        loop {
            let sent = world.sent();
            if sent.is_empty() {
                return;
            }
            for packet in sent {
                match packet.opcode {
                    opcode::UD_SEND_ONLY => self.messages += 1,
                    opcode::ACKNOWLEDGE => self.acks += 1,
                    _ if packet.opcode == WriteOnly as u8 => {
                        self.probes += 1;
                        world.answer(packet.at, ACK);
                    }
                    _ => {
                        self.requests += 1;
                        world.answer(packet.at, ACK);
                    }
                }
            }
        }
    }
}

/// Every message under these IDs, and those of its kinds that could do harm.
fn messages(world: &World, rng: &mut Rng, local: CommId, remote: CommId) -> Vec<CmMessage> {
    let (_, qpn, ca_guid) = theirs();
    let base = req(&world.encap, 0, TERMS);
    let req = Req { local_comm_id: local, starting_psn: Psn::new(rng.next() as u32), ..base };
    let rep = Rep {
        local_comm_id: local,
        remote_comm_id: remote,
        local_qkey: 0,
        local_qpn: qpn,
        vendor_id: 0,
        local_eecn: 0,
        starting_psn: Psn::new(rng.next() as u32),
        responder_resources: 4,
        initiator_depth: 4,
        target_ack_delay: 31,
        failover_accepted: 0,
        flow_control: false,
        rnr_retry: 0,
        srq: false,
        ca_guid,
        private_data: [0; 196],
    };
    let (service_id, request_id) = (req.service_id, local.get());
    let mut messages = vec![
        CmMessage::Req(Req { service_id: service_id + 1, ..req.clone() }),
        CmMessage::Req(req),
        CmMessage::Rep(rep),
        CmMessage::Rtu(Rtu {
            local_comm_id: local,
            remote_comm_id: remote,
            private_data: [0; 224],
        }),
        CmMessage::Drep(Drep {
            local_comm_id: local,
            remote_comm_id: remote,
            private_data: [0; 224],
        }),
        CmMessage::SidrReq(SidrReq {
            request_id,
            pkey: 0xffff,
            service_id,
            private_data: [0; 216],
        }),
        CmMessage::SidrRep(SidrRep {
            request_id,
            status: 0,
            info_len: 0,
            qpn,
            service_id,
            qkey: 0,
            info: [0; 72],
            private_data: [0; 136],
        }),
    ];
    for remote_qpn in [Qpn::new(0), qpn, Qpn::new(rng.next() as u32)] {
        let private_data = [0; 220];
        let ids = (local, remote);
        let (local_comm_id, remote_comm_id) = ids;
        messages.push(CmMessage::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn,
            private_data,
        }));
    }
    for message in [MraMessage::Req, MraMessage::Rep, MraMessage::Lap] {
        messages.push(CmMessage::Mra(Mra {
            local_comm_id: local,
            remote_comm_id: remote,
            message,
            service_timeout: 31,
            private_data: [0; 222],
        }));
    }
    let mut ari = [0; 72];
    ari[..8].copy_from_slice(&ca_guid.to_be_bytes());
    for message in [RejMessage::Req, RejMessage::Rep, RejMessage::Other] {
        for reason in [RejReason::STALE_CONNECTION, RejReason::TIMEOUT, RejReason::CONSUMER] {
            messages.push(CmMessage::Rej(Rej {
                local_comm_id: local,
                remote_comm_id: remote,
                message,
                reason,
                ari_len: 8,
                ari,
                private_data: [0; 148],
            }));
        }
    }
    messages
}

/// LAP and APR, which carry IDs like a DREQ.
fn alternate_paths(world: &World, local: CommId, remote: CommId) -> Vec<Vec<u8>> {
    let dreq = CmMessage::Dreq(Dreq {
        local_comm_id: local,
        remote_comm_id: remote,
        remote_qpn: theirs().1,
        private_data: [0; 220],
    });
    let mut bytes = [0; 256];
    emit_mad(&MadHeader { transaction_id: 9, ..MadHeader::default() }, &dreq, &mut bytes);
    let attribute = |attribute: u8| {
        let mut bytes = bytes;
        bytes[17] = attribute;
        let bth = Bth::new(UdSendOnly, Qpn::GSI, Psn::new(0));
        frame(&world.encap, &bth, &Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI }), &bytes)
    };
    [0x19, 0x1a].map(attribute).to_vec()
}

/// Every RC opcode, the CNP and those of our own, to queue pairs that are not D's.
fn packets(world: &World, rng: &mut Rng) -> Vec<Vec<u8>> {
    let reth = Reth { va: BASE, rkey: world.key, len: 64 };
    let aeth = |syndrome| Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(1) };
    let atomic = AtomicEth { va: BASE, rkey: world.key, swap_or_add: 1, compare: 0 };
    let answers = [ACK, NAK0, NAK1, NAK2, NAK3, RNR];
    let mut kinds: Vec<(Opcode, Ext)> = vec![
        (SendFirst, Ext::None),
        (SendMiddle, Ext::None),
        (SendLast, Ext::None),
        (SendLastImm, Ext::Imm(1)),
        (SendOnly, Ext::None),
        (SendOnlyImm, Ext::Imm(1)),
        (SendLastInv, Ext::Ieth(Rkey::new(world.key.get()))),
        (SendOnlyInv, Ext::Ieth(Rkey::new(world.key.get()))),
        (WriteFirst, Ext::Reth(reth)),
        (WriteMiddle, Ext::None),
        (WriteLast, Ext::None),
        (WriteLastImm, Ext::Imm(1)),
        (WriteOnly, Ext::Reth(reth)),
        (WriteOnlyImm, Ext::RethImm(reth, 1)),
        (ReadRequest, Ext::Reth(reth)),
        (ReadResponseFirst, Ext::Aeth(aeth(ACK))),
        (ReadResponseMiddle, Ext::None),
        (ReadResponseLast, Ext::Aeth(aeth(ACK))),
        (ReadResponseOnly, Ext::Aeth(aeth(ACK))),
        (AtomicAcknowledge, Ext::AtomicAck(aeth(ACK), 0)),
        (CompareSwap, Ext::AtomicEth(atomic)),
        (FetchAdd, Ext::AtomicEth(atomic)),
        (Cnp, Ext::Cnp),
        (GapReport, Ext::None),
        (AckList, Ext::Aeth(aeth(ACK))),
    ];
    kinds.extend(answers.map(|syndrome| (Acknowledge, Ext::Aeth(aeth(syndrome)))));
    let own = world.end.qpn;
    let mut frames = Vec::new();
    for (opcode, ext) in kinds {
        let guess = Qpn::new(2 + rng.below(0xff_fffc) as u32);
        for qpn in [guess, theirs().1, Qpn::new(0), Qpn::GSI] {
            if qpn != own {
                let bth =
                    Bth { ack_req: true, ..Bth::new(opcode, qpn, Psn::new(rng.next() as u32)) };
                let has_data = !matches!(ext, Ext::Cnp | Ext::AtomicEth(_) | Ext::AtomicAck(..))
                    && !matches!(opcode, ReadRequest | Acknowledge);
                let data: &[u8] = if has_data { &[0xaa; 64] } else { &[] };
                frames.push(frame(&world.encap, &bth, &ext, data));
            }
        }
    }
    frames
}

/// Goal: no datagram of such a forger ends or stalls the connection, and each is answered by one at most.
/// Method: every message under IDs that are 0, random, P's own and swapped, and every RC opcode, between
/// requests both ways, which all succeed in their turn.
#[test]
fn no_forged_datagram_ends_or_stalls_a_connection() {
    each_with(Terms { dcqcn: false, ..TERMS }, |mut world| {
        let mut rng = Rng(8);
        let (mut said, mut given, mut at) = (Said::default(), 0, 0);
        for round in 0..6 {
            let random = CommId::new(rng.next() as u32);
            let (none, own) = (CommId::new(0), theirs().0);
            for (local, remote) in [
                (none, none),
                (random, none),
                (none, random),
                (own, none),
                (own, random),
                (none, own),
                (random, own),
            ] {
                let mut forged: Vec<_> = messages(&world, &mut rng, local, remote)
                    .iter()
                    .map(|message| mad(&world.encap, message))
                    .collect();
                forged.extend(alternate_paths(&world, local, remote));
                if round % 2 == 0 {
                    forged.extend(packets(&world, &mut rng));
                }
                for (n, frame) in forged.iter().enumerate() {
                    given += 1;
                    world.give(frame);
                    if n % 8 == 0 {
                        let before = world.done.len();
                        world.receive(1, 100);
                        world.send(at, 10);
                        at += 1;
                        world.post(2, SendOp::Send, 3000);
                        said.listen(&mut world);
                        assert_eq!(world.statuses()[before..], [(1, OK), (2, OK)]);
                    }
                    said.listen(&mut world);
                    world.pass(Duration::from_millis(1));
                    assert_eq!(world.state(), QpState::Rts);
                    assert!(world.events.is_empty(), "{:?}", world.events);
                }
            }
        }
        // Nor does anything come of it later.
        for _ in 0..100 {
            world.pass(Duration::from_secs(1));
            said.listen(&mut world);
        }
        assert!(world.events.is_empty(), "{:?}", world.events);
        world.guarded(100);
        assert!(said.messages <= given, "{said:?} for {given}");
        // A second has eight probes at most, and the forgeries took as many milliseconds as there were.
        assert!((1..=given / 125 + 8).contains(&said.probes), "{said:?} for {given}");
        world.works(at);
    });
}

/// The smallest case: one REQ, for a port that nobody listens on. P's queue pair answers, and lives.
#[test]
fn cm_23_one_forged_req_does_not_end_a_connection() {
    for dead_port in [false, true] {
        each(|mut world| {
            let mut forged = req(&world.encap, 0, TERMS);
            forged.local_comm_id = CommId::new(0x4711);
            forged.service_id += u64::from(dead_port);
            let mut said = Said::default();
            world.give(&mad(&world.encap, &CmMessage::Req(forged)));
            said.listen(&mut world);
            assert_eq!(said, Said { messages: 1, probes: 1, ..Said::default() });
            for _ in 0..30 {
                world.pass(Duration::from_secs(1));
                said.listen(&mut world);
            }
            assert!(world.events.is_empty(), "{:?}", world.events);
            assert_eq!(said, Said { messages: 1, probes: 1, ..Said::default() });
            world.works(0);
        });
    }
}

/// P is gone, and its REQ is not forged: the old connection ends by silence, in bounded time.
#[test]
fn cm_23_silence_ends_a_connection_in_question() {
    each(|mut world| {
        let mut again = req(&world.encap, 0, TERMS);
        again.local_comm_id = CommId::new(0x4711);
        world.give(&mad(&world.encap, &CmMessage::Req(again)));
        let start = world.now;
        while world.events.is_empty() {
            world.sent();
            world.wait();
        }
        let reason = DisconnectReason::Stale;
        let [Event::Cm(CmEvent::PeerDisconnected { reason: why, .. })] = world.events[..] else {
            panic!("{:?}", world.events)
        };
        assert_eq!((why, world.now.saturating_since(start)), (reason, Duration::from_millis(1500)));
    });
}
