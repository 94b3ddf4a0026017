//! Whole transfers over good and bad wires, and any packet at all.

use super::*;
use crate::env::Rng;
use proptest::prelude::*;

fn lengths(pmtu: usize) -> [usize; 9] {
    [0, 1, 3, 4, pmtu - 1, pmtu, pmtu + 1, 3 * pmtu + 5, 300_000]
}

fn all_pmtus() -> [Pmtu; 5] {
    [Pmtu::B256, Pmtu::B512, Pmtu::B1024, Pmtu::B2048, Pmtu::B4096]
}

/// Each operation of each length arrives intact and completes once, at every PMTU, over the PSN
/// wrap, and whether packets travel alone or as units.
fn every_length_arrives(faults: [u32; 4], segments: usize) {
    for pmtu in all_pmtus() {
        for operation in [WcKind::Send, WcKind::Write, WcKind::Read] {
            let settings = Settings { pmtu, psn: Psn::new(0xff_fff0), faults, segments, ..CLEAN };
            let mut pair = Pair::new(700_000, settings);
            let mut expected = Vec::new();
            for (id, len) in lengths(pmtu.bytes()).into_iter().enumerate() {
                // Disjoint places, so that each message is checked by itself.
                let (from, to) = (id * 7, 320_000 + id * 5);
                let rkey = pair.nodes[1].key;
                let va = BASE + to as u64;
                let (source, sink) = match operation {
                    WcKind::Read => (1, 0),
                    _ => (0, 1),
                };
                let (op, sgl) = match operation {
                    WcKind::Write => (SendOp::Write { va, rkey }, pair.nodes[0].sge(from, len)),
                    WcKind::Read => {
                        (SendOp::Read { va: BASE + from as u64, rkey }, pair.nodes[0].sge(to, len))
                    }
                    _ => (SendOp::Send, pair.nodes[0].sge(from, len)),
                };
                if operation == WcKind::Send {
                    let sgl = pair.nodes[1].sge(to, len + 1);
                    pair.nodes[1].recv(id as u64, sgl);
                }
                pair.nodes[0].send(id as u64, op, sgl);
                pair.run_all();
                let sent = pair.nodes[source].memory.0[0][from..from + len].to_vec();
                assert!(
                    pair.nodes[sink].memory.0[0][to..to + len] == sent,
                    "{operation:?} {len} at {pmtu:?}"
                );
                expected.push((id as u64, WcStatus::Success));
            }
            assert_eq!(pair.nodes[0].statuses(), expected, "{operation:?} at {pmtu:?}");
            if operation == WcKind::Send {
                assert_eq!(pair.nodes[1].statuses(), expected);
                let received: Vec<usize> =
                    pair.nodes[1].done.iter().map(|done| done.len as usize).collect();
                assert_eq!(received, lengths(pmtu.bytes()));
            }
        }
    }
}

#[test]
fn every_length_arrives_over_a_clean_wire() {
    every_length_arrives([0; 4], 1);
}

#[test]
fn every_length_arrives_over_a_bad_wire() {
    every_length_arrives([50, 30, 50, 20], 1);
}

#[test]
fn every_length_arrives_in_units() {
    every_length_arrives([0; 4], 16);
}

#[test]
fn sys_01_many_requests_survive_any_wire_in_order() {
    for seed in 0..40 {
        let faults = [seed * 5, seed * 3, seed * 4, seed];
        let mut pair = Pair::new(200_000, Settings { faults, ..CLEAN });
        pair.rng = Rng::from_seed([seed as u8; 32]);
        let rkey = pair.nodes[1].key;
        let mut expected = Vec::new();
        for id in 0..48_u64 {
            let len = (id as usize * 397) % 6000;
            let sgl = pair.nodes[0].sge(id as usize * 10, len);
            match id % 3 {
                0 => {
                    let sgl = pair.nodes[1].sge(100_000, 6000);
                    pair.nodes[1].recv(id, sgl);
                    pair.nodes[0].send(id, SendOp::Send, sgl_of(&pair.nodes[0], id as usize, len));
                }
                1 => pair.nodes[0].send(id, SendOp::Write { va: BASE + 50_000, rkey }, sgl),
                _ => {
                    let sink = pair.nodes[0].sge(150_000, len);
                    pair.nodes[0].send(id, SendOp::Read { va: BASE + id, rkey }, sink);
                }
            }
            expected.push((id, WcStatus::Success));
        }
        pair.run_all();
        assert_eq!(pair.nodes[0].statuses(), expected, "seed {seed}");
        let received: Vec<u64> = pair.nodes[1].done.iter().map(|done| done.id).collect();
        assert_eq!(received, Vec::from_iter((0..48).step_by(3)), "seed {seed}");
    }
}

fn sgl_of(node: &Node, offset: usize, len: usize) -> SgList {
    node.sge(offset, len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// No packet of a peer causes a panic or a write outside the region.
    #[test]
    fn any_packet_is_survived(
        packets in proptest::collection::vec((any::<u8>(), -3i32..6, 0usize..1100, any::<u64>(), any::<u32>(), any::<u8>()), 1..40),
    ) {
        let mut pair = Pair::new(8192, CLEAN);
        for id in 0..8 {
            let sgl = pair.nodes[1].sge(0, 2000);
            pair.nodes[1].recv(id, sgl);
        }
        let rkey = pair.nodes[0].key;
        let sgl = pair.nodes[1].sge(0, 3000);
        pair.nodes[1].send(1, SendOp::Read { va: BASE, rkey }, sgl);
        let encap = pair.nodes[0].qp.peer().unwrap().encap;
        for (opcode, distance, len, va, number, syndrome) in packets {
            let Ok(opcode) = Opcode::try_from(opcode % 0x20) else { continue };
            let Some(ext) = any_ext(opcode, va, number, syndrome, pair.nodes[1].key) else { continue };
            let base: u32 = if opcode.is_response() { 3100 } else { 2100 };
            let psn = Psn::new(base.wrapping_add_signed(distance));
            let mut buf = vec![0; 2048];
            let template = Template::new(&encap);
            let mut unit = UnitWriter::new(&mut buf, &template, encap.ip_id);
            unit.push(&Bth::new(opcode, Qpn::new(3), psn), &ext, len, |out| { out.fill(syndrome); Ok::<(), ()>(()) }).unwrap();
            let len = unit.finish().len;
            pair.transmit(1);
            pair.give(1, &buf[..len]);
        }
        pair.transmit(1);
    }
}

fn any_ext(
    opcode: Opcode,
    va: u64,
    number: u32,
    syndrome: u8,
    key: Rkey,
) -> Option<crate::wire::Ext> {
    use crate::wire::{Aeth, Ext, Reth, Syndrome};
    let near = BASE.wrapping_add(va % 9000);
    let rkey = if number.is_multiple_of(7) { Rkey::new(number) } else { key };
    let reth = Reth { va: near, rkey, len: number % 3000 };
    let aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: crate::psn::Msn::new(number) };
    let shapes = [
        Ext::None,
        Ext::Reth(reth),
        Ext::RethImm(reth, 1),
        Ext::Imm(1),
        Ext::Ieth(rkey),
        Ext::Aeth(aeth),
    ];
    shapes.into_iter().find(|ext| ext.matches(opcode))
}
