//! Two queue pairs over a wire that loses, repeats, reorders and damages packets.

use super::requester::Window;
use super::work::{Completion, Completions, RecvWr, SendOp, SendWr, SgList, Sge, WcKind, WcStatus};
use super::*;
use crate::env::{Duration, Fault, Instant, Memory, RegionId, Rng};
use crate::ids::{Lkey, Rkey};
use crate::mr::{Access, MrKind, Registration};
use crate::wire::{Bth, Mac, Opcode, parse_unit};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::vec;
use std::vec::Vec;

const PD: PdId = PdId(1);
const BASE: u64 = 0x7000_0000;

#[derive(Default)]
struct Bytes(Vec<Vec<u8>>);

impl Bytes {
    fn range(&mut self, region: RegionId, offset: u64, len: usize) -> Result<&mut [u8], Fault> {
        let bytes = self.0.get_mut(region.0 as usize).ok_or(Fault)?;
        let start = usize::try_from(offset).map_err(|_| Fault)?;
        bytes.get_mut(start..start.checked_add(len).ok_or(Fault)?).ok_or(Fault)
    }
}

impl Memory for Bytes {
    fn read(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        out.copy_from_slice(self.range(region, offset, out.len())?);
        Ok(())
    }

    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.range(region, offset, data.len())?.copy_from_slice(data);
        Ok(())
    }
}

struct Node {
    qp: Qp,
    mrs: MrTable,
    memory: Bytes,
    out: Completions,
    done: Vec<Completion>,
    key: Rkey,
}

impl Node {
    fn new(number: u8, bytes: usize, kind: MrKind) -> Self {
        let mut mrs = MrTable::new(Rng::from_seed([number; 32]), 64);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let len = bytes as u64;
        let registration =
            Registration { pd: PD, region: RegionId(0), base: BASE, len, access, kind };
        let key = mrs.register(registration).unwrap();
        let config = QpConfig { owner: number.into(), pd: PD, send_depth: 64, recv_depth: 64 };
        let mut out = Completions::default();
        out.reserve(128);
        let qp = Qp::new(Qpn::new(number.into()), &config, Window::default());
        Self { qp, mrs, memory: Bytes(vec![vec![0; bytes]]), out, done: Vec::new(), key }
    }

    fn connect(&mut self, own: u8, peer: u8, settings: Settings) {
        let ip = |number: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, number));
        let psn = |number: u8| settings.psn.add(u32::from(number) * 1000);
        self.qp.connect(PeerQp {
            qpn: Qpn::new(peer.into()),
            encap: Encap {
                src_mac: Mac([own; 6]),
                dst_mac: Mac([peer; 6]),
                vlan: None,
                src: ip(own),
                dst: ip(peer),
                traffic_class: 0,
                hop_limit: 64,
                ip_id: 0,
                flow_label: 0,
                src_port: 0xc000,
            },
            pmtu: settings.pmtu,
            send_psn: psn(own),
            recv_psn: psn(peer),
            inbound_reads: settings.reads,
            outbound_reads: settings.reads,
            ack_timeout_code: 14,
            retry_count: 7,
            rnr_retry: settings.rnr_retry,
        });
    }

    fn sge(&self, offset: usize, len: usize) -> SgList {
        let sge =
            Sge { addr: BASE + offset as u64, len: len as u32, lkey: Lkey::new(self.key.get()) };
        SgList::from_slice(&[sge]).unwrap()
    }

    fn send(&mut self, id: u64, op: SendOp, sgl: SgList) {
        let wr = SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false };
        self.qp.post_send(wr, &mut self.out).unwrap();
    }

    fn recv(&mut self, id: u64, sgl: SgList) {
        self.qp.post_recv(RecvWr { id, sgl }, &mut self.out).unwrap();
    }

    fn collect(&mut self) {
        while let Some(completion) = self.out.pop() {
            self.done.push(completion);
        }
    }

    fn statuses(&self) -> Vec<(u64, WcStatus)> {
        self.done.iter().map(|completion| (completion.id, completion.status)).collect()
    }
}

#[derive(Clone, Copy)]
struct Settings {
    pmtu: Pmtu,
    psn: Psn,
    reads: u8,
    rnr_retry: u8,
    /// Of 1000 packets: lost, repeated, put back, damaged.
    faults: [u32; 4],
    segments: usize,
}

const CLEAN: Settings = Settings {
    pmtu: Pmtu::B1024,
    psn: Psn::new(100),
    reads: 4,
    rnr_retry: 7,
    faults: [0; 4],
    segments: 1,
};

struct Pair {
    nodes: [Node; 2],
    /// Frames on the way to each node.
    wires: [VecDeque<Vec<u8>>; 2],
    rng: Rng,
    now: Instant,
    settings: Settings,
    frames: usize,
    /// Opcodes and PSNs sent by each node, in order.
    sent: [Vec<(Opcode, u32)>; 2],
}

impl Pair {
    fn new(bytes: usize, settings: Settings) -> Self {
        Self::with_kind(bytes, settings, MrKind::Registered)
    }

    fn with_kind(bytes: usize, settings: Settings, kind: MrKind) -> Self {
        let mut nodes = [Node::new(2, bytes, kind), Node::new(3, bytes, kind)];
        nodes[0].connect(2, 3, settings);
        nodes[1].connect(3, 2, settings);
        for (number, node) in nodes.iter_mut().enumerate() {
            for (place, byte) in node.memory.0[0].iter_mut().enumerate() {
                *byte = (place * 31 + place / 251 + number * 97) as u8;
            }
        }
        let rng = Rng::from_seed([9; 32]);
        let wires = [VecDeque::new(), VecDeque::new()];
        Self {
            nodes,
            wires,
            rng,
            now: Instant::from_nanos(1),
            settings,
            frames: 0,
            sent: Default::default(),
        }
    }

    /// Moves everything that a node has to send onto the other's wire.
    fn transmit(&mut self, from: usize) -> bool {
        let mut buf = vec![0; 65_000];
        let mut any = false;
        loop {
            let node = &mut self.nodes[from];
            let encap = node.qp.peer().unwrap().encap;
            let mut unit = UnitWriter::new(&mut buf, &encap);
            let Node { qp, mrs, memory, out, .. } = node;
            let written = qp.fill(self.now, mrs, memory, &mut unit, self.settings.segments, out);
            node.collect();
            let unit = unit.finish();
            if written == 0 {
                return any;
            }
            any = true;
            let frame = &buf[..unit.len];
            for packet in parse_unit(frame, Some(unit.segment_len)) {
                let packet = packet.expect("what is sent is well formed");
                self.sent[from].push((packet.bth.opcode, packet.bth.psn.get()));
            }
            self.carry(1 - from, frame.to_vec());
        }
    }

    fn carry(&mut self, to: usize, frame: Vec<u8>) {
        let [lost, repeated, late, damaged] = self.settings.faults;
        let mut hit = |permille: u32| self.rng.below(1000) < permille;
        if hit(lost) {
            return;
        }
        let mut frame = frame;
        if hit(damaged) {
            let place = self.rng.below(frame.len() as u32 * 8) as usize;
            frame[place / 8] ^= 1 << (place % 8);
        }
        let mut hit = |permille: u32| self.rng.below(1000) < permille;
        let (again, back) = (hit(repeated), hit(late));
        let wire = &mut self.wires[to];
        if again {
            wire.push_back(frame.clone());
        }
        let place = if back { wire.len().saturating_sub(3) } else { wire.len() };
        wire.insert(place, frame);
    }

    fn deliver(&mut self, to: usize) -> bool {
        let mut any = false;
        while let Some(frame) = self.wires[to].pop_front() {
            any = true;
            self.frames += 1;
            self.give(to, &frame);
        }
        any
    }

    fn give(&mut self, to: usize, frame: &[u8]) {
        let segment_len = (self.settings.segments > 1).then(|| {
            // The unit's own segment length is in the UDP header of its first segment.
            usize::from(u16::from_be_bytes([frame[38], frame[39]])) - 8
        });
        for packet in parse_unit(frame, segment_len) {
            let Ok(packet) = packet else { continue };
            let Node { qp, mrs, memory, out, .. } = &mut self.nodes[to];
            let _ = qp.handle_packet(self.now, &packet, mrs, memory, out);
            self.nodes[to].collect();
        }
    }

    /// Runs until nothing moves any more, jumping over idle time; at most `limit` of it.
    fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            let mut busy = false;
            for node in [0, 1] {
                busy |= self.transmit(node);
                busy |= self.deliver(1 - node);
            }
            if busy {
                self.now = self.now + Duration::from_micros(10);
                continue;
            }
            let next = self.nodes.iter().filter_map(|node| node.qp.deadline()).min();
            let Some(next) = next.filter(|&next| next <= end) else { return };
            self.now = next.max(self.now);
            for node in &mut self.nodes {
                node.qp.handle_timeout(self.now, &mut node.out);
                node.collect();
            }
        }
    }

    fn run_all(&mut self) {
        self.run(Duration::from_secs(600));
    }
}

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

#[test]
fn seq_05_to_07_one_nak_per_gap() {
    let mut pair = Pair::new(100_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 10 * 1024);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    pair.wires[1].remove(2);
    pair.deliver(1);
    pair.transmit(1);
    let naks = pair.sent[1].iter().filter(|(opcode, _)| *opcode == Opcode::Acknowledge).count();
    assert_eq!((naks, pair.sent[1][0].1), (1, pair.sent[0][2].1));
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn reordering_within_a_burst_costs_nothing() {
    let mut pair = Pair::new(100_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 2 * 1024);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    // The second comes first, then both in order: the NAK is out of date before it leaves.
    let second = pair.wires[1][1].clone();
    pair.wires[1].push_front(second);
    pair.run_all();
    assert_eq!(pair.sent[0].len(), 2);
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn dup_02_a_duplicate_write_is_acknowledged_and_not_executed() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 64);
    pair.nodes[0].send(1, SendOp::Write { va: BASE, rkey }, sgl);
    pair.transmit(0);
    let frame = pair.wires[1][0].clone();
    pair.run_all();
    pair.nodes[1].memory.0[0][0] = 0xee;
    pair.give(1, &frame);
    assert_eq!(pair.nodes[1].memory.0[0][0], 0xee);
    let before = pair.sent[1].len();
    assert!(pair.transmit(1));
    assert_eq!(pair.sent[1][before..], [(Opcode::Acknowledge, pair.sent[0][0].1)]);
}

#[test]
fn rnr_01_a_send_waits_for_its_receive() {
    let mut pair = Pair::new(10_000, CLEAN);
    let sgl = pair.nodes[0].sge(0, 3000);
    pair.nodes[0].send(1, SendOp::Send, sgl);
    pair.run(Duration::from_millis(50));
    assert!(pair.nodes[0].done.is_empty());
    assert_eq!(pair.nodes[1].qp.state(), QpState::Rts);
    let sgl = pair.nodes[1].sge(5000, 3000);
    pair.nodes[1].recv(7, sgl);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(pair.nodes[1].statuses(), [(7, WcStatus::Success)]);
}

#[test]
fn rnr_08_finite_retries_end() {
    let mut pair = Pair::new(10_000, Settings { rnr_retry: 2, ..CLEAN });
    for id in 1..=3 {
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(id, SendOp::Send, sgl);
    }
    pair.run_all();
    let flushed = WcStatus::Flushed;
    assert_eq!(
        pair.nodes[0].statuses(),
        [(1, WcStatus::RnrRetryExceeded), (2, flushed), (3, flushed)]
    );
}

#[test]
fn req_05_silence_ends_in_bounded_time() {
    let mut pair = Pair::new(10_000, Settings { faults: [1000, 0, 0, 0], ..CLEAN });
    for id in 1..=2 {
        let sgl = pair.nodes[0].sge(0, 8);
        pair.nodes[0].send(id, SendOp::Send, sgl);
    }
    let start = pair.now;
    pair.run_all();
    assert_eq!(
        pair.nodes[0].statuses(),
        [(1, WcStatus::TransportRetryExceeded), (2, WcStatus::Flushed)]
    );
    assert!(pair.now.saturating_since(start) < Duration::from_secs(2));
}

#[test]
fn err_01_a_refused_request_fails_alone_and_the_rest_is_flushed() {
    let mut pair = Pair::new(10_000, CLEAN);
    let good = pair.nodes[1].key;
    for id in 0..8 {
        let rkey = if id == 2 { Rkey::new(good.get() ^ 1) } else { good };
        let sgl = pair.nodes[0].sge(0, 100);
        pair.nodes[0].send(id, SendOp::Write { va: BASE, rkey }, sgl);
        let sgl = pair.nodes[1].sge(0, 100);
        pair.nodes[1].recv(id, sgl);
    }
    pair.run_all();
    let statuses: Vec<WcStatus> = pair.nodes[0].done.iter().map(|done| done.status).collect();
    let (ok, flushed) = (WcStatus::Success, WcStatus::Flushed);
    assert_eq!(
        statuses,
        [ok, ok, WcStatus::RemoteAccess, flushed, flushed, flushed, flushed, flushed]
    );
    assert_eq!(pair.nodes[1].statuses(), Vec::from_iter((0..8).map(|id| (id, flushed))));
}

#[test]
fn seq_19_a_receive_that_is_too_short_is_never_overrun() {
    for len in [101, 5000] {
        let mut pair = Pair::new(20_000, CLEAN);
        let before = pair.nodes[1].memory.0[0].clone();
        let sgl = pair.nodes[0].sge(0, len);
        pair.nodes[0].send(1, SendOp::Send, sgl);
        let sgl = pair.nodes[1].sge(10_000, 100);
        pair.nodes[1].recv(2, sgl);
        pair.run_all();
        assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::RemoteInvalidRequest)]);
        assert_eq!(pair.nodes[1].statuses(), [(2, WcStatus::LocalLength)]);
        assert!(pair.nodes[1].memory.0[0] == before);
    }
}

#[test]
fn req_19_reads_in_flight_never_exceed_the_depth() {
    let mut pair = Pair::new(10_000, Settings { reads: 2, ..CLEAN });
    let rkey = pair.nodes[1].key;
    for id in 0..5 {
        let sgl = pair.nodes[0].sge(0, 10);
        pair.nodes[0].send(id, SendOp::Read { va: BASE, rkey }, sgl);
    }
    pair.transmit(0);
    assert_eq!(pair.sent[0].len(), 2);
    pair.run_all();
    assert_eq!(pair.nodes[0].done.len(), 5);
}

#[test]
fn rd_09_without_depth_a_read_is_refused() {
    let mut pair = Pair::new(10_000, CLEAN);
    pair.nodes[1] = Node::new(3, 10_000, MrKind::Registered);
    pair.nodes[1].connect(3, 2, Settings { reads: 0, ..CLEAN });
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 10);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl);
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::RemoteInvalidRequest)]);
    let sgl = pair.nodes[1].sge(0, 10);
    let mut other = Pair::new(10_000, Settings { reads: 0, ..CLEAN });
    other.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl);
    other.run_all();
    assert_eq!(other.nodes[0].statuses(), [(1, WcStatus::LocalQpOperation)]);
}

#[test]
fn req_21_a_fenced_request_waits_for_earlier_reads() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 10);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl.clone());
    let fenced = SendWr {
        id: 2,
        op: SendOp::Write { va: BASE, rkey },
        sgl,
        solicited: false,
        read_fence: true,
        silent: true,
    };
    let Node { qp, out, .. } = &mut pair.nodes[0];
    qp.post_send(fenced, out).unwrap();
    pair.transmit(0);
    assert_eq!(pair.sent[0].iter().map(|sent| sent.0).collect::<Vec<_>>(), [Opcode::ReadRequest]);
    pair.run_all();
    assert_eq!(pair.sent[0].last().unwrap().0, Opcode::WriteOnly);
    assert!(pair.nodes[0].done.last().unwrap().silent);
}

#[test]
fn key_09_and_12_a_send_invalidates_after_its_data() {
    for len in [10, 3000] {
        let mut pair = Pair::with_kind(10_000, CLEAN, MrKind::FastRegister);
        let rkey = pair.nodes[1].key;
        let sgl = pair.nodes[1].sge(4000, len);
        pair.nodes[1].recv(5, sgl);
        let sgl = pair.nodes[0].sge(0, len);
        pair.nodes[0].send(1, SendOp::SendInvalidate(rkey), sgl.clone());
        pair.run_all();
        assert_eq!(pair.nodes[1].done[0].kind, WcKind::ReceiveInvalidate(rkey));
        assert!(pair.nodes[1].memory.0[0][4000..4000 + len] == pair.nodes[0].memory.0[0][..len]);
        pair.nodes[0].send(2, SendOp::Write { va: BASE, rkey }, sgl);
        pair.run_all();
        assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::Success), (2, WcStatus::RemoteAccess)]);
    }
}

#[test]
fn rd_11_a_region_that_goes_away_ends_its_read() {
    let mut pair = Pair::new(300_000, CLEAN);
    let rkey = pair.nodes[1].key;
    let sgl = pair.nodes[0].sge(0, 200_000);
    pair.nodes[0].send(1, SendOp::Read { va: BASE, rkey }, sgl);
    pair.transmit(0);
    pair.deliver(1);
    pair.nodes[1].mrs.deregister(rkey).unwrap();
    pair.run_all();
    assert_eq!(pair.nodes[0].statuses(), [(1, WcStatus::RemoteAccess)]);
}

#[test]
fn a_local_fault_fails_its_own_request_after_the_earlier_ones() {
    let mut pair = Pair::new(10_000, CLEAN);
    let rkey = pair.nodes[1].key;
    for id in 0..4 {
        let mut sgl = pair.nodes[0].sge(0, 100);
        if id == 2 {
            sgl[0].addr = 1;
        }
        pair.nodes[0].send(id, SendOp::Write { va: BASE, rkey }, sgl);
    }
    pair.run_all();
    let ok = WcStatus::Success;
    assert_eq!(
        pair.nodes[0].statuses(),
        [(0, ok), (1, ok), (2, WcStatus::LocalProtection), (3, WcStatus::Flushed)]
    );
}

#[test]
fn err_04_a_flush_ends_everything_and_silences_the_qp() {
    let mut pair = Pair::new(300_000, CLEAN);
    let rkey = pair.nodes[1].key;
    for id in 0..3 {
        let sgl = pair.nodes[0].sge(0, 100_000);
        pair.nodes[0].send(id, SendOp::Write { va: BASE, rkey }, sgl);
        let sgl = pair.nodes[0].sge(0, 10);
        pair.nodes[0].recv(10 + id, sgl);
    }
    pair.transmit(0);
    let Node { qp, out, .. } = &mut pair.nodes[0];
    qp.flush(out);
    pair.nodes[0].collect();
    assert_eq!(pair.nodes[0].done.len(), 6);
    assert!(pair.nodes[0].done.iter().all(|done| done.status == WcStatus::Flushed));
    assert!(!pair.transmit(0) && pair.nodes[0].qp.deadline().is_none());
    let sgl = pair.nodes[0].sge(0, 10);
    pair.nodes[0].recv(99, sgl);
    pair.nodes[0].collect();
    assert_eq!(
        pair.nodes[0].done.last().map(|done| (done.id, done.status)),
        Some((99, WcStatus::Flushed))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A peer's packet, whatever it says, never panics and never writes outside the region.
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
            let mut unit = UnitWriter::new(&mut buf, &encap);
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
