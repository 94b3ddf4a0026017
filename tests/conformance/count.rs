//! What a device counts: each counter moves by its event, and no other does.

use crate::frames::{l3, l4, seal, seal_icrc, seal_ip, word};
use crate::peer::*;
use rocev2::Connect;
use rocev2::cm::{CmConfig, ReadLimits};
use rocev2::counters::{Counter, Counter::*, Scope, Snapshot};
use rocev2::env::Duration;
use rocev2::ids::{CommId, Qpn, Rkey};
use rocev2::qp::{QpState, RecvWr, SendOp};
use rocev2::wire::mad::{
    CmMessage, Drep, Dreq, GSI_QKEY, Mra, MraMessage, Rej, RejMessage, RejReason, Rep, Rtu,
    SidrRep, parse_mad,
};
use rocev2::wire::{Bth, Deth, Encap, Ext, Hop, Mac, Opcode, Packet};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

const CONGESTED: Terms = Terms { dcqcn: true, ..TERMS };
const TAGGED: Terms = Terms { vlan: Some(5), ..TERMS };
const IMPATIENT: Terms = Terms { rnr_retry: 0, ..TERMS };

/// A case: the terms, what D does, and what that adds to which counters, apart from all packets and bytes.
type Case = (Terms, fn(&mut World) -> Vec<(Counter, u64)>);

/// Whatever is sent and received.
const TRAFFIC: [Counter; 4] = [SentPkts, SentBytes, RcvdPkts, RcvdBytes];

/// Bytes of a packet of D over IPv4 or IPv6, whose transport headers and payload are so long.
fn bytes(world: &World, ext: usize, payload: usize) -> u64 {
    let ip = if world.encap.dst.is_ipv4() { 20 } else { 40 };
    (14 + ip + 8 + 12 + ext + payload.next_multiple_of(4) + 4) as u64
}

/// WRITE_ONLY of D's, which is sent.
fn written(world: &mut World) -> u64 {
    let key = world.key;
    world.post(1, SendOp::Write { va: BASE, rkey: key }, 10);
    assert_eq!(world.sent().len(), 1);
    bytes(world, 16, 10)
}

/// A round trip of 1 ms is measured.
fn measured(world: &mut World) {
    written(world);
    world.pass(Duration::from_millis(1));
    world.answer(0, ACK);
}

/// Gives D a frame of P that `change` has touched.
fn changed(world: &mut World, change: impl FnOnce(&mut Encap, &mut Bth)) {
    let (mut encap, mut bth) = (world.encap, world.bth(0, Opcode::SendOnly));
    change(&mut encap, &mut bth);
    world.give(&frame(&encap, &bth, &Ext::None, &[1, 2, 3, 4]));
}

/// Gives D a SEND of P of which `touch` has changed bytes, with another ICRC if it is to be right.
fn touched(world: &mut World, right: bool, touch: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = frame(&world.encap, &world.bth(0, Opcode::SendOnly), &Ext::None, &[1; 8]);
    touch(&mut bytes);
    if right {
        seal_ip(&mut bytes);
        seal_icrc(&mut bytes);
    }
    world.give(&bytes);
}

/// Gives D a message of P, changed or not.
fn message(world: &mut World, message: &CmMessage) {
    world.give(&mad(&world.encap, message));
}

const NOBODY: CommId = CommId::new(0x5555);

fn requester() -> Vec<Case> {
    vec![
        (TERMS, |world| {
            let len = written(world);
            let (asked, again) = world.silence();
            assert_eq!(again.len(), 1);
            vec![
                (TailLossProbes, asked),
                (LocalAckTimeoutErr, 1),
                (CompleterRetryErr, 1),
                (ResentTimerPkts, 1),
                (ResentTimerBytes, len),
            ]
        }),
        (TERMS, |world| {
            let len = written(world);
            let (mut asked, mut again) = (0, 0);
            while world.state() != QpState::Err {
                world.wait();
                for sent in world.sent() {
                    *if sent.is_probe() { &mut asked } else { &mut again } += 1;
                }
            }
            world.collect();
            vec![
                (TailLossProbes, asked),
                (LocalAckTimeoutErr, again + 1),
                (CompleterRetryErr, again),
                (ResentTimerPkts, again),
                (ResentTimerBytes, again * len),
                (RetryExceededErr, 1),
            ]
        }),
        (TERMS, |world| {
            world.post(1, SendOp::Write { va: BASE, rkey: world.key }, 3 * P);
            assert_eq!(world.sent().len(), 3);
            world.answer(1, NAK0);
            assert_eq!(world.sent().len(), 1);
            let len = bytes(world, 0, P);
            vec![
                (PacketSeqErr, 1),
                (CompleterRetryErr, 1),
                (ResentNakPkts, 1),
                (ResentNakBytes, len),
            ]
        }),
        (TERMS, |world| {
            world.post(1, SendOp::Send, 10);
            world.sent();
            world.answer(0, RNR);
            world.wait();
            assert_eq!(world.sent().len(), 1);
            let len = bytes(world, 0, 10);
            vec![(RcvdRnrErr, 1), (ResentRnrPkts, 1), (ResentRnrBytes, len)]
        }),
        (IMPATIENT, |world| {
            world.post(1, SendOp::Send, 10);
            world.sent();
            world.answer(0, RNR);
            vec![(RcvdRnrErr, 1), (RetryRnrExceededErr, 1)]
        }),
        (TERMS, |world| {
            written(world);
            world.answer(0, NAK1);
            vec![(ReqRemoteInvalidRequest, 1)]
        }),
        (TERMS, |world| {
            written(world);
            world.answer(0, NAK2);
            vec![(ReqRemoteAccessErrors, 1)]
        }),
        (TERMS, |world| {
            written(world);
            world.answer(0, NAK3);
            vec![(ReqRemoteOpErrors, 1)]
        }),
        (TERMS, |world| {
            for id in 0..2 {
                world.post(id, SendOp::Read { va: BASE, rkey: world.key }, 10);
            }
            assert_eq!(world.sent().len(), 2);
            world.data(1, Opcode::ReadResponseOnly, &[7; 10]);
            world.wait();
            assert_eq!(world.sent().len(), 1);
            let len = bytes(world, 16, 0);
            vec![
                (ImpliedNakSeqErr, 1),
                (EarlyReadResponses, 1),
                (ReadRequestsResent, 1),
                (ResentImpliedNakPkts, 1),
                (ResentImpliedNakBytes, len),
            ]
        }),
        (TERMS, |world| {
            measured(world);
            written(world);
            while world.d.counters().get(TailLossProbes) == 0 {
                world.wait();
                world.sent();
            }
            vec![(TailLossProbes, 1)]
        }),
        (TERMS, |world| {
            measured(world);
            let len = written(world);
            let (asked, again) = world.silence();
            assert_eq!(again.len(), 1);
            // No round trip is so short: it answers the first copy.
            world.answer(1, ACK);
            vec![
                (TailLossProbes, asked),
                (LocalAckTimeoutErr, 1),
                (CompleterRetryErr, 1),
                (ResentTimerPkts, 1),
                (ResentTimerBytes, len),
                (NeedlessResends, 1),
            ]
        }),
        (TERMS, |world| {
            // P's queue pair asks for another connection, as if P had started anew.
            let mut again = req(&world.encap, 0, TERMS);
            again.local_comm_id = NOBODY;
            message(world, &CmMessage::Req(again));
            drained(world);
            vec![(ProbesSent, 1)]
        }),
        (TERMS, |world| {
            world.answer(0, ACK);
            vec![(DropStaleResponse, 1)]
        }),
        (TERMS, |world| {
            written(world);
            world.answer(0, 0x6f);
            vec![(DropReservedSyndrome, 1)]
        }),
    ]
}

fn responder() -> Vec<Case> {
    vec![
        (TERMS, |world| {
            world.send(0, 10);
            assert_eq!(world.sent().len(), 1);
            vec![(OutOfBuffer, 1), (SendRnrErr, 1)]
        }),
        (TERMS, |world| {
            world.receive(1, 10);
            world.send(0, 10);
            world.send(0, 10);
            assert_eq!(world.sent().len(), 1);
            while world.d.counters().get(AckRepeated) == 0 {
                world.wait();
            }
            assert_eq!(world.sent().len(), 1);
            vec![(DuplicateRequest, 1), (AckRepeated, 1)]
        }),
        (TERMS, |world| {
            world.send(1, 10);
            world.wait();
            assert_eq!(world.sent().len(), 1);
            world.send(1, 10);
            vec![(OutOfSeqRequest, 2), (OutOfOrderHeld, 1), (SendSeqErr, 1), (DropDuplicate, 1)]
        }),
        (TERMS, |world| {
            world.send(1, 10);
            world.send(1, 12);
            vec![(OutOfSeqRequest, 2), (OutOfOrderHeld, 1), (DropHeldConflict, 1)]
        }),
        (TERMS, |world| {
            changed(world, |encap, bth| {
                (encap.hop_limit, bth.psn) = (encap.hop_limit - 1, bth.psn.add(1));
            });
            vec![(DropFlowMismatch, 1)]
        }),
        (TERMS, |world| {
            world.send(5000, 10);
            assert_eq!(world.sent().len(), 1);
            vec![(OutOfSeqRequest, 1), (DropGap, 1), (SendSeqErr, 1)]
        }),
        (TERMS, |world| {
            world.write(0, Rkey::new(world.key.get() ^ 0x100), BASE, &[1; 8]);
            world.sent();
            vec![(RespRemoteAccessErrors, 1)]
        }),
        (TERMS, |world| {
            world.ask(0, Opcode::SendMiddle, Ext::None, &[0; P]);
            world.sent();
            vec![(RespRemoteInvalidRequest, 1)]
        }),
        (TERMS, |world| {
            world.receive(1, 5);
            world.send(0, 10);
            world.sent();
            vec![(RespRemoteInvalidRequest, 1), (RespLocalLengthError, 1)]
        }),
        (TERMS, |world| {
            let sgl = elements(Rkey::new(world.key.get() ^ 0x100), &[(BASE, 10)]);
            world.d.post_recv(world.end.qpn, RecvWr { id: 1, sgl }).unwrap();
            world.send(0, 10);
            world.sent();
            vec![(RespRemoteOpErrors, 1)]
        }),
        (TERMS, |world| {
            world.read(0, world.key, BASE, 10);
            assert_eq!(world.sent().len(), 1);
            vec![(RxReadRequests, 1)]
        }),
        (TERMS, |world| {
            world.receive(1, 10);
            world.send(0, 10);
            assert_eq!(world.sent().len(), 1);
            vec![]
        }),
    ]
}

/// Packets that D sends now, whatever their traffic class.
fn drained(world: &mut World) -> usize {
    let mut buf = [0; 2000];
    core::iter::from_fn(|| world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory)).count()
}

fn congestion() -> Vec<Case> {
    const CNP: Ext = Ext::Cnp;
    vec![
        (CONGESTED, |world| {
            world.encap.traffic_class |= 3;
            world.receive(1, 10);
            world.send(0, 10);
            assert_eq!(drained(world), 2);
            vec![(NpEcnMarkedRocePackets, 1), (NpCnpSent, 1)]
        }),
        (CONGESTED, |world| {
            let bth = Bth::new(Opcode::Cnp, world.end.qpn, Default::default());
            world.give(&frame(&world.encap, &bth, &CNP, &[]));
            // So much is more than may leave at once now.
            world.post(1, SendOp::Write { va: BASE, rkey: world.key }, 16 * P);
            drained(world);
            let before = world.now;
            world.wait();
            let paced = world.now.saturating_since(before).as_nanos() as u64;
            assert!(paced > 0 && drained(world) > 0);
            vec![(RpCnpHandled, 1), (PacedNs, paced)]
        }),
        (TERMS, |world| {
            let bth = Bth::new(Opcode::Cnp, world.end.qpn, Default::default());
            world.give(&frame(&world.encap, &bth, &CNP, &[]));
            vec![(RpCnpIgnored, 1)]
        }),
    ]
}

/// Packets of the unit that D sends now, of four at most.
fn unit(world: &mut World) -> usize {
    let mut buf = [0; 10_000];
    let unit = world.d.poll_transmit(world.now, &mut buf, 4, &mut world.memory);
    unit.map_or(0, |unit| unit.segments)
}

/// A WRITE of two packets, `at` of D's, leaves as a unit that is lost. What P misses is sent again alone, and comes.
fn lose_unit(world: &mut World, at: &mut i32) {
    world.post(1, SendOp::Write { va: BASE, rkey: world.key }, 2 * P);
    assert_eq!(unit(world), 2);
    world.answer(*at, NAK0);
    let mut again = 0;
    while let Some(last) = world.sent().into_iter().inspect(|_| again += 1).last() {
        world.answer(last.at, ACK);
    }
    assert_eq!(again, 2);
    *at += 2;
}

/// Two WRITEs, before which D looks at what came of its unit. The second is longer, and so in no unit with the first.
fn send_others(world: &mut World, at: &mut i32) {
    for len in [10, 20] {
        world.post(1, SendOp::Write { va: BASE, rkey: world.key }, len);
    }
    assert_eq!([unit(world), unit(world)], [1; 2]);
    world.answer(*at + 1, ACK);
    *at += 2;
}

/// What so many lost units count, apart from what D concludes of them.
fn lost_units(world: &World, count: u64) -> Vec<(Counter, u64)> {
    let len = bytes(world, 16, P) + bytes(world, 0, P);
    vec![
        (UnitsSent, count),
        (UnitsLost, count),
        (PacketSeqErr, count),
        (CompleterRetryErr, count),
        (ResentNakPkts, 2 * count),
        (ResentNakBytes, count * len),
    ]
}

fn units() -> Vec<Case> {
    vec![
        (TERMS, |world| {
            world.post(1, SendOp::Write { va: BASE, rkey: world.key }, 2 * P);
            assert_eq!(unit(world), 2);
            world.answer(1, ACK);
            send_others(world, &mut 2);
            vec![(UnitsSent, 1)]
        }),
        (TERMS, |world| {
            let mut at = 0;
            lose_unit(world, &mut at);
            send_others(world, &mut at);
            lost_units(world, 1)
        }),
        (TERMS, |world| {
            let mut at = 0;
            (0..4).for_each(|_| lose_unit(world, &mut at));
            send_others(world, &mut at);
            for wait_s in [4, 8] {
                world.pass(Duration::from_secs(wait_s));
                lose_unit(world, &mut at);
                send_others(world, &mut at);
            }
            let mut all = lost_units(world, 6);
            all.extend([(UnitsOffPath, 3), (UnitsOffLink, 1)]);
            all
        }),
    ]
}

fn packets() -> Vec<Case> {
    vec![
        (TERMS, |world| {
            touched(world, false, |frame| frame.truncate(frame.len() - 5));
            vec![(DropTruncated, 1)]
        }),
        (TERMS, |world| {
            touched(world, false, |frame| {
                let udp = l4(frame);
                frame[udp + 3] ^= 1;
            });
            vec![(DropNotRoce, 1)]
        }),
        (TERMS, |world| {
            touched(world, false, |frame| {
                let ip = l3(frame);
                frame[ip] ^= 0x80;
            });
            vec![(DropIpHeader, 1)]
        }),
        (TERMS, |world| {
            let v6 = world.encap.dst.is_ipv6();
            touched(world, !v6, |frame| {
                let ip = l3(frame);
                // "More fragments"; over IPv6 an extension header of the kind, before UDP.
                if v6 {
                    (frame[ip + 6], frame[ip + 40]) = (44, 17);
                } else {
                    frame[ip + 6] |= 0x20;
                }
            });
            vec![(DropFragment, 1)]
        }),
        (TERMS, |world| {
            touched(world, true, |frame| {
                let udp = l4(frame);
                let len = word(frame, udp + 4) + 1;
                frame[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
            });
            vec![(DropUdpLength, 1)]
        }),
        (TERMS, |world| {
            touched(world, true, |frame| {
                let udp = l4(frame);
                frame[udp + 6..udp + 8].copy_from_slice(&[0x12, 0x34]);
            });
            vec![(DropUdpChecksum, 1)]
        }),
        (TERMS, |world| {
            touched(world, true, |frame| {
                let bth = l4(frame) + 8;
                frame[bth + 1] |= 1;
            });
            vec![(DropTransportVersion, 1)]
        }),
        (TERMS, |world| {
            touched(world, true, |frame| {
                let bth = l4(frame) + 8;
                frame[bth] = 0x24;
            });
            vec![(DropUnknownOpcode, 1)]
        }),
        (TERMS, |world| {
            touched(world, false, |frame| {
                let bth = l4(frame) + 8;
                frame[bth + 1] |= 0x30;
                frame.truncate(bth + 16);
                seal(frame);
            });
            vec![(DropBadPad, 1)]
        }),
        (TERMS, |world| {
            touched(world, false, |frame| *frame.last_mut().unwrap() ^= 1);
            vec![(RxIcrcEncapsulated, 1)]
        }),
        (TERMS, |world| {
            changed(world, |_, bth| bth.dest_qpn = Qpn::new(0));
            vec![(DropBadDestQp, 1)]
        }),
        (TERMS, |world| {
            changed(world, |_, bth| bth.dest_qpn = Qpn::new(bth.dest_qpn.get() ^ 0x80_0000));
            vec![(DropUnknownQpn, 1)]
        }),
        (TERMS, |world| {
            let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI });
            world.ask(0, Opcode::UdSendOnly, ext, &[1, 2]);
            vec![(DropTransportMismatch, 1)]
        }),
        (TERMS, |world| {
            let other = if world.encap.src.is_ipv4() { "10.0.0.9" } else { "fd00::9" };
            changed(world, |encap, _| encap.src = other.parse().unwrap());
            vec![(DropAddressMismatch, 1)]
        }),
        (TERMS, |world| {
            changed(world, |encap, _| encap.dst_mac = Mac([0xff; 6]));
            vec![(DropEthernetAddress, 1)]
        }),
        (TERMS, |world| {
            changed(world, |encap, _| encap.src = encap.dst);
            vec![(DropMartian, 1)]
        }),
        (TAGGED, |world| {
            changed(world, |encap, _| encap.vlan = Some(6));
            vec![(DropVlan, 1)]
        }),
        (TERMS, |world| {
            world.d.flush_qp(world.end.qpn);
            world.send(0, 1);
            vec![(DropQpState, 1)]
        }),
        (TERMS, |world| {
            changed(world, |_, bth| bth.pkey = 0x1234);
            vec![(DropPKey, 1)]
        }),
        (TERMS, |world| {
            let bth = Bth { dest_qpn: Qpn::GSI, ..world.bth(0, Opcode::UdSendOnly) };
            let ext = Ext::Deth(Deth { qkey: GSI_QKEY + 1, src_qpn: Qpn::GSI });
            world.give(&frame(&world.encap, &bth, &ext, &[0; 256]));
            vec![(DropQKey, 1)]
        }),
    ]
}

/// A REP of P for nobody.
fn rep() -> Rep {
    Rep {
        local_comm_id: NOBODY,
        remote_comm_id: NOBODY,
        local_qkey: 0,
        local_qpn: Qpn::new(5),
        vendor_id: 0,
        local_eecn: 0,
        starting_psn: Default::default(),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        failover_accepted: 0,
        flow_control: false,
        rnr_retry: 7,
        srq: false,
        ca_guid: 1,
        private_data: [0; 196],
    }
}

/// A REJ of P for nobody.
fn rej() -> Rej {
    Rej {
        local_comm_id: NOBODY,
        remote_comm_id: NOBODY,
        message: RejMessage::Rep,
        reason: RejReason::CONSUMER,
        ari_len: 0,
        ari: [0; 72],
        private_data: [0; 148],
    }
}

/// D asks P for a connection; returns the ID of it.
fn asked(world: &mut World) -> CommId {
    let qpn = world.d.create_qp(&qp(9, PD, None)).unwrap();
    let Encap { src, dst, src_mac, dst_mac, vlan, .. } = world.encap;
    let connect = Connect {
        qpn,
        local: SocketAddr::new(dst, 50_000),
        remote: SocketAddr::new(src, 445),
        hop: Hop { src_mac: dst_mac, dst_mac: src_mac, vlan },
        limits: ReadLimits { inbound: 4, outbound: 4 },
        private_data: b"",
    };
    world.d.connect(world.now, &connect).unwrap();
    let mut buf = [0; 2000];
    let unit = world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).unwrap();
    let packet = Packet::parse(&buf[..unit.len]).unwrap();
    let Ok((_, CmMessage::Req(req))) = parse_mad(packet.payload) else { panic!("no REQ") };
    req.local_comm_id
}

fn messages() -> Vec<Case> {
    vec![
        (TERMS, |world| {
            world.d.admit_messages(false);
            let req = CmMessage::Req(req(&world.encap, 1, TERMS));
            message(world, &req);
            vec![(DropCmShare, 1)]
        }),
        (TERMS, |world| {
            let mut frame = mad(&world.encap, &CmMessage::Req(req(&world.encap, 1, TERMS)));
            let class_version = l4(&frame) + 8 + 12 + 8 + 2;
            frame[class_version] = 9;
            seal_icrc(&mut frame);
            world.give(&frame);
            vec![(DropMad, 1)]
        }),
        (TERMS, |world| {
            let mut frame = mad(&world.encap, &CmMessage::Req(req(&world.encap, 1, TERMS)));
            let attribute = l4(&frame) + 8 + 12 + 8 + 17;
            frame[attribute] = 0xee;
            seal_icrc(&mut frame);
            world.give(&frame);
            vec![(DropMadAttribute, 1)]
        }),
        (TERMS, |world| {
            // As many as the listener has room for, then one.
            for number in 1..=8 {
                let req = CmMessage::Req(req(&world.encap, number, TERMS));
                message(world, &req);
            }
            let req = CmMessage::Req(req(&world.encap, 9, TERMS));
            message(world, &req);
            vec![(CmReqDropped, 1), (CmPutOff, 1)]
        }),
        (TERMS, |world| {
            message(world, &CmMessage::Rep(rep()));
            vec![(CmRepDropped, 1), (CmUnknownId, 1)]
        }),
        (TERMS, |world| {
            let rtu = Rtu { local_comm_id: NOBODY, remote_comm_id: NOBODY, private_data: [0; 224] };
            message(world, &CmMessage::Rtu(rtu));
            vec![(CmRtuDropped, 1), (CmUnknownId, 1)]
        }),
        (TERMS, |world| {
            message(world, &CmMessage::Rej(rej()));
            vec![(CmRejDropped, 1), (CmUnknownId, 1)]
        }),
        (TERMS, |world| {
            let mra = Mra {
                local_comm_id: NOBODY,
                remote_comm_id: NOBODY,
                message: MraMessage::Req,
                service_timeout: 10,
                private_data: [0; 222],
            };
            message(world, &CmMessage::Mra(mra));
            vec![(CmMraDropped, 1), (CmUnknownId, 1)]
        }),
        (TERMS, |world| {
            // From another host than the peer.
            let conn = asked(world);
            message(world, &CmMessage::Rep(Rep { remote_comm_id: conn, ..rep() }));
            let other = if world.encap.src.is_ipv4() { "10.0.0.9" } else { "fd00::9" };
            world.encap.src = other.parse().unwrap();
            let dreq = Dreq {
                local_comm_id: NOBODY,
                remote_comm_id: conn,
                remote_qpn: Qpn::new(5),
                private_data: [0; 220],
            };
            message(world, &CmMessage::Dreq(dreq));
            vec![(CmDreqDropped, 1), (DropAddressMismatch, 1)]
        }),
        (TERMS, |world| {
            let rej = Rej { reason: RejReason::INVALID_MTU, remote_comm_id: asked(world), ..rej() };
            message(world, &CmMessage::Rej(Rej { message: RejMessage::Req, ..rej }));
            vec![(CmPathMtuRefused, 1)]
        }),
        (TERMS, |world| {
            let drep =
                Drep { local_comm_id: NOBODY, remote_comm_id: NOBODY, private_data: [0; 224] };
            message(world, &CmMessage::Drep(drep));
            vec![(CmDrepDropped, 1), (CmUnknownId, 1)]
        }),
        (TERMS, |world| {
            let sidr_rep = SidrRep {
                request_id: 1,
                status: 0,
                info_len: 0,
                qpn: Qpn::new(5),
                service_id: 0,
                qkey: 0,
                info: [0; 72],
                private_data: [0; 136],
            };
            message(world, &CmMessage::SidrRep(sidr_rep));
            vec![(CmSidrDropped, 1), (CmUnexpected, 1)]
        }),
        (TERMS, |world| {
            let CmConfig { max_transmits, .. } = world.d.config().cm;
            // For each an answer that nobody takes.
            let mut refused = req(&world.encap, 1, TERMS);
            refused.service_id ^= 1;
            for number in 0..=max_transmits as u32 * 3 / 4 {
                refused.local_comm_id = CommId::new(0x1000 + number);
                world.now = world.now + Duration::from_millis(1);
                message(world, &CmMessage::Req(refused.clone()));
            }
            vec![(CmTransmitFull, 1)]
        }),
    ]
}

/// What `case` moved in the device, and in the QP.
fn run(world: &mut World, case: Case) -> (Vec<(Counter, u64)>, [Snapshot; 2]) {
    let device = Arc::clone(world.d.counters());
    let qp = Arc::clone(world.d.qp_counters(world.end.qpn).unwrap());
    let before = [device.snapshot(), qp.snapshot()];
    let expected = (case.1)(world);
    (expected, [device.snapshot() - before[0], qp.snapshot() - before[1]])
}

/// Goal: each event moves its counters, by as much as happened, and no others. Method: cases made by hand,
/// which together move every counter.
#[test]
fn each_counter_moves_by_its_event_and_by_no_other() {
    let mut never: BTreeSet<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
    for v6 in [false, true] {
        let cases =
            [requester(), responder(), congestion(), units(), packets(), messages()].concat();
        for (number, case) in cases.into_iter().enumerate() {
            let mut world = World::new(v6, case.0);
            let (expected, [device, qp]) = run(&mut world, case);
            for (counter, moved) in device.iter().filter(|(counter, _)| !TRAFFIC.contains(counter))
            {
                let wanted = expected.iter().find(|(other, _)| *other == counter);
                assert_eq!(moved, wanted.map_or(0, |(_, n)| *n), "{counter:?} in case {number}");
            }
            for (counter, _) in device.iter().filter(|(_, moved)| *moved > 0) {
                never.remove(counter.name());
            }
            // What is a QP's is counted in both; but a packet of nobody's, and from nowhere, in one.
            for (counter, moved) in qp.iter() {
                let both = counter.scope() == Scope::Qp
                    && ![RcvdPkts, RcvdBytes, SentPkts, SentBytes, DropAddressMismatch]
                        .contains(&counter);
                assert!(!both || moved == device[counter], "{counter:?} in case {number}");
                assert!(counter.scope() == Scope::Qp || moved == 0, "{counter:?}");
            }
        }
    }
    assert_eq!(never, BTreeSet::new(), "counters that nothing moves");
}

/// Goal: packets and bytes are those on the wire, and an adapter's are the sum of its connections'.
#[test]
fn traffic_is_counted_as_it_is_on_the_wire() {
    each(|mut world| {
        let ends = [world.end, world.another(2, PD, None)];
        while world.d.poll_transmit(world.now, &mut [0; 1000], 1, &mut world.memory).is_some() {}
        let before = world.d.counters().snapshot();
        let (mut received, mut sent) = ([0; 2], [0; 2]);
        for (at, len) in [(0, 10), (1, 600), (0, 1024), (1, 3)] {
            world.end = ends[at];
            world.receive(1, len);
            let place = received[at] as i32;
            let frame =
                frame(&world.encap, &world.bth(place, Opcode::SendOnly), &Ext::None, &pattern(len));
            world.give(&frame);
            received[at] += 1;
            let counters = world.d.qp_counters(ends[at].qpn).unwrap().clone();
            let counted = counters.snapshot();
            assert_eq!(world.acks().len(), 1);
            sent[at] += 1;
            let moved = counters.snapshot() - counted;
            assert_eq!((moved[SentPkts], moved[SentBytes]), (1, bytes(&world, 4, 0)));
            assert_eq!(counted[RcvdPkts], received[at]);
        }
        let moved = world.d.counters().snapshot() - before;
        let of_qps = ends.map(|end| world.d.qp_counters(end.qpn).unwrap().snapshot());
        for counter in TRAFFIC {
            assert_eq!(moved[counter], of_qps[0][counter] + of_qps[1][counter], "{counter:?}");
        }
        let header = bytes(&world, 0, 0);
        assert_eq!((moved[RcvdPkts], moved[RcvdBytes]), (4, 4 * header + 12 + 600 + 1024 + 4));
    });
}

/// Goal: a message of connection management is a packet like any other; it counts in the adapter.
#[test]
fn messages_are_counted_as_they_are_on_the_wire() {
    each(|mut world| {
        let mut buf = [0; 1000];
        while world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).is_some() {}
        let before = world.d.counters().snapshot();
        let mut refused = req(&world.encap, 1, TERMS);
        refused.service_id ^= 1;
        message(&mut world, &CmMessage::Req(refused));
        let rej = world.d.poll_transmit(world.now, &mut buf, 1, &mut world.memory).unwrap();
        let len = bytes(&world, 8, 256);
        let moved = world.d.counters().snapshot() - before;
        assert_eq!(
            (rej.len as u64, TRAFFIC.map(|counter| moved[counter])),
            (len, [1, len, 1, len])
        );
    });
}

/// Goal: what a QP counted can be read when it is gone, and a new QP begins at 0.
#[test]
fn counters_outlive_their_queue_pair() {
    each(|mut world| {
        world.send(0, 10);
        let counters = world.d.qp_counters(world.end.qpn).unwrap().clone();
        world.d.destroy_qp(world.end.qpn);
        assert_eq!(counters.get(OutOfBuffer), 1);
        assert!(world.d.qp_counters(world.end.qpn).is_none());
        let fresh = world.another(2, PD, None);
        assert_eq!(world.d.qp_counters(fresh.qpn).unwrap().snapshot(), Snapshot::ZERO);
    });
}
