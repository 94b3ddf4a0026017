//! Two queue pairs over a wire that loses, duplicates, reorders and corrupts packets.

mod failure;
mod keys;
mod long;
mod memory;
mod probe;
mod requester;
mod responder;
mod stalls;
mod traffic;

use super::send::requester::Window;
use super::work::{Completion, Completions, RecvWr, SendOp, SendWr, SgList, Sge, WcKind, WcStatus};
use super::*;
use crate::env::{Duration, Fault, Instant, Memory, RegionId, Rng};
use crate::ids::{Lkey, Rkey};
use crate::index::Secret;
use crate::mr::{Access, Mapping, Registrar, Registration, Reserve};
use crate::wire::mad::Make;
use crate::wire::{
    Aeth, AtomicEth, Bth, DropReason, Ext, Ids, Mac, NakCode, OneFrame, Opcode, Packet, Reth,
    RnrTimer, RunLimit, Syndrome, Template, UnitRun, UnitWriter, parse_unit,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::vec;
use std::vec::Vec;

/// One unit of at most these packets.
fn one_unit(packets: usize) -> RunLimit {
    RunLimit { units: 1, bytes: usize::MAX, packets }
}

const PD: PdId = PdId(1);
const BASE: u64 = 0x7000_0000;

/// The address of a node's memory.
#[derive(Clone, Copy, Eq, PartialEq)]
enum MrKind {
    Registered,
    FastRegister,
}

/// Regions that are vectors.
#[derive(Default)]
pub(crate) struct Bytes(pub(crate) Vec<Vec<u8>>);

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
    posters: Posters,
    registrar: Registrar,
    mrs: MrTable,
    memory: Bytes,
    reorder_pool: ReorderPool,
    out: Completions,
    done: Vec<Completion>,
    key: Rkey,
}

/// The pool of a device whose port has this path MTU.
fn reorder_pool(pmtu: Pmtu) -> ReorderPool {
    ReorderPool::new(4 << 20, pmtu, Secret::new(&mut Rng::from_seed([9; 32])))
}

/// Counters of a queue pair without a device.
fn tally() -> Tally {
    Tally::new(Arc::default())
}

impl Node {
    fn new(number: u8, bytes: usize, kind: MrKind) -> Self {
        let mut registrar = Registrar::new(Rng::from_seed([number; 32]), 64, 1);
        let mut mrs = registrar.table(0);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let (region, len) = (RegionId(0), bytes as u64);
        let key = match kind {
            MrKind::Registered => registrar
                .register(Registration { pd: PD, region, base: BASE, len, access })
                .unwrap(),
            MrKind::FastRegister => {
                let key = registrar.reserve(PD, Reserve::FastRegister(access)).unwrap();
                mrs.map(PD, key, &Mapping { region, offset: 0, base: BASE, len, access }).unwrap();
                key
            }
        };
        let config = QpConfig {
            owner: number.into(),
            pd: PD,
            send_depth: 64,
            send_sge: 16,
            recv_depth: 64,
            recv_sge: 16,
            srq: None,
        };
        let out = Completions::default();
        let (qp, posters) =
            Qp::new(Qpn::new(number.into()), &config, PD, Window::default(), None, tally());
        let memory = Bytes(vec![vec![0; bytes]]);
        let reorder_pool = reorder_pool(Pmtu::B4096);
        Self { qp, posters, registrar, mrs, memory, reorder_pool, out, done: Vec::new(), key }
    }

    /// A key for a window.
    fn window(&mut self) -> Rkey {
        self.mrs.make_room(self.registrar.windows() + 1).unwrap();
        self.registrar.reserve(PD, Reserve::Window).unwrap()
    }

    fn connect(&mut self, own: u8, peer: u8, settings: Settings) {
        let ip = |number: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, number));
        let psn = |number: u8| settings.psn.add(u32::from(number) * 1000);
        self.reorder_pool = reorder_pool(settings.pmtu);
        let encap = Encap {
            src_mac: Mac([2, own, 0, 0, 0, 0]),
            dst_mac: Mac([2, peer, 0, 0, 0, 0]),
            vlan: None,
            src: ip(own),
            dst: ip(peer),
            traffic_class: 0,
            hop_limit: 64,
            ip_id: 0,
            flow_label: 0,
            src_port: 0xc000,
        };
        self.qp.connect(PeerQp {
            make: settings.make,
            core_bits: 0,
            qpn: Qpn::new(peer.into()),
            encap,
            origin: Origin::of(&encap.reply()),
            pmtu: settings.pmtu,
            send_psn: psn(own),
            recv_psn: psn(peer),
            first_msn: settings.msn,
            inbound_reads: settings.reads,
            outbound_reads: settings.reads,
            ack_timeout_code: 14,
            retry_count: 7,
            rnr_retry: settings.rnr_retry,
        });
    }

    /// The queue pair, and what it shares with others in a device.
    fn parts(&mut self) -> (&mut Qp, Shared<'_, Bytes>) {
        let Self { qp, mrs, memory, reorder_pool, out, .. } = self;
        (qp, Shared { mrs, memory, reorder_pool, out })
    }

    fn sge(&self, offset: usize, len: usize) -> SgList {
        let sge =
            Sge { addr: BASE + offset as u64, len: len as u32, lkey: Lkey::new(self.key.get()) };
        SgList::from_slice(&[sge]).unwrap()
    }

    fn send(&mut self, id: u64, op: SendOp, sgl: SgList) {
        let wr = SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false };
        self.post(wr).unwrap();
    }

    fn post(&mut self, wr: SendWr) -> Result<(), PostError> {
        self.qp.admits(&wr)?;
        self.posters.send.as_mut().unwrap().post(wr)?;
        self.qp.ring_doorbell(true, &mut self.out);
        Ok(())
    }

    fn recv(&mut self, id: u64, sgl: SgList) {
        self.posters.recv.as_mut().unwrap().post(RecvWr { id, sgl }).unwrap();
        self.qp.ring_doorbell(true, &mut self.out);
    }

    fn collect(&mut self) {
        self.qp.take_completions(&mut Collected(&mut self.done));
        assert!(!self.qp.has_completions() && self.qp.pop_completion().is_none());
    }

    fn statuses(&self) -> Vec<(u64, WcStatus)> {
        self.done.iter().map(|completion| (completion.id, completion.status)).collect()
    }
}

/// Takes every completion.
struct Collected<'a>(&'a mut Vec<Completion>);

impl CompletionSink for Collected<'_> {
    fn take(&mut self, queue: &Finished, completions: impl Iterator<Item = Completion>) {
        let before = self.0.len();
        self.0.extend(completions);
        assert_eq!(self.0.len() - before, queue.count);
        let of_queue = |done: &Completion| {
            done.owner == Owner::Qp(queue.owner)
                && done.kind.is_receive() == queue.receives
                && (done.status == WcStatus::Success || !queue.succeeded)
        };
        assert!(self.0[before..].iter().all(of_queue));
    }
}

#[derive(Clone, Copy)]
struct Settings {
    make: Make,
    pmtu: Pmtu,
    psn: Psn,
    msn: Msn,
    reads: u8,
    rnr_retry: u8,
    /// Of 1000 packets: lost, duplicated, delayed, corrupted.
    faults: [u32; 4],
    segments: usize,
}

const CLEAN: Settings = Settings {
    make: Make::Other,
    pmtu: Pmtu::B1024,
    psn: Psn::new(100),
    msn: Msn::new(0),
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
        while self.transmit_unit(from, &mut buf) {
            any = true;
        }
        any
    }

    /// Moves the next unit that a node has to send.
    fn transmit_unit(&mut self, from: usize, buf: &mut [u8]) -> bool {
        let node = &mut self.nodes[from];
        let encap = node.qp.peer().unwrap().encap;
        let mut template = Template::new(&encap);
        let mut one = OneFrame::new(buf);
        let (qp, mut shared) = node.parts();
        let limit = one_unit(self.settings.segments);
        let mut run = UnitRun::new(&mut one, &mut template, Ids::new(false, encap.ip_id), limit);
        qp.fill(self.now, &mut run, &mut shared);
        node.collect();
        let Some(unit) = one.unit else { return false };
        let frame = &buf[..unit.len];
        for packet in parse_unit(frame, Some(unit.segment_len)) {
            let packet = packet.expect("what is sent is well formed");
            self.sent[from].push((packet.bth.opcode, packet.bth.psn.get()));
        }
        self.carry(1 - from, frame.to_vec());
        true
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
            let (qp, mut shared) = self.nodes[to].parts();
            let _ = qp.handle_packet(self.now, &packet, None, &mut shared);
            self.nodes[to].collect();
        }
    }

    /// Runs until no packet moves and no timer is left, skipping idle time; at most `limit` of it.
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
                node.qp.handle_timeout(self.now, &mut node.reorder_pool, &mut node.out);
                node.collect();
            }
        }
    }

    fn run_all(&mut self) {
        self.run(Duration::from_secs(600));
    }

    /// The PSN of packet `at` that `node` sends.
    fn psn(&self, node: usize, at: i32) -> Psn {
        let base = self.settings.psn.add((node as u32 + 2) * 1000);
        Psn::new(base.get().wrapping_add_signed(at))
    }

    /// Delivers a handmade packet to `to` as its peer's, with AckReq set.
    fn hand(
        &mut self,
        to: usize,
        (opcode, psn): (Opcode, Psn),
        ext: Ext,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let mut bth = Bth::new(opcode, self.nodes[to].qp.qpn(), psn);
        (bth.ack_req, bth.solicited) = (opcode.is_request(), true);
        let mut buf = vec![0; 6000];
        let encap = self.nodes[1 - to].qp.peer().unwrap().encap;
        let template = Template::new(&encap);
        let mut unit = UnitWriter::new(&mut buf, &template, encap.ip_id);
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(payload);
            Ok::<(), core::convert::Infallible>(())
        };
        let Ok(()) = unit.push(&bth, &ext, payload.len(), fill);
        let len = unit.finish().len;
        let packet = Packet::parse(&buf[..len]).unwrap();
        let (qp, mut shared) = self.nodes[to].parts();
        let result = qp.handle_packet(self.now, &packet, None, &mut shared);
        self.nodes[to].collect();
        result
    }

    /// Sends node 1 a request `opcode` at `at` past the first PSN, with `len` bytes of 0x5a.
    fn ask(&mut self, at: i32, opcode: Opcode, ext: Ext, len: usize) -> Result<(), DropReason> {
        let psn = self.psn(0, at);
        self.hand(1, (opcode, psn), ext, &vec![0x5a; len])
    }

    /// Sends node 0 an ACK or NAK for its packet `at`.
    fn answer(&mut self, at: i32, syndrome: Syndrome) -> Result<(), DropReason> {
        let psn = self.psn(0, at);
        let ext = Ext::Aeth(Aeth { syndrome, msn: crate::psn::Msn::new(0) });
        self.hand(0, (Opcode::Acknowledge, psn), ext, &[])
    }

    /// When what has been behind a gap of `node` since now is given up, in eight timeouts of its peer.
    fn held_until(&self) -> Option<Instant> {
        Some(self.now + code_duration(14) * 8)
    }

    /// Lets the next deadline of `node` pass.
    fn wait(&mut self, node: usize) {
        self.now = self.nodes[node].qp.deadline().unwrap();
        let Node { qp, reorder_pool, out, .. } = &mut self.nodes[node];
        qp.handle_timeout(self.now, reorder_pool, out);
        self.nodes[node].collect();
    }

    /// The packets that `from` sends now, none of which arrives.
    fn taken(&mut self, from: usize) -> Vec<Taken> {
        self.transmit(from);
        let base = self.psn(0, 0);
        let frames = core::mem::take(&mut self.wires[1 - from]);
        let take = |frame: Vec<u8>| {
            let Packet { bth, ext, payload, .. } = Packet::parse(&frame).unwrap();
            let at = bth.psn.since(base);
            Taken { opcode: bth.opcode, at, ext, bth, payload: payload.to_vec() }
        };
        frames.into_iter().map(take).collect()
    }

    /// Places of the packets that node 0 sends now, none of which arrives.
    fn places(&mut self) -> Vec<i32> {
        self.taken(0).iter().map(|taken| taken.at).collect()
    }

    /// Syndrome, place and MSN of the acknowledgements that node 1 sends now.
    fn acks(&mut self) -> Vec<(Syndrome, i32, u32)> {
        let acks = self.taken(1).into_iter().filter(|taken| taken.opcode == Opcode::Acknowledge);
        acks.map(|taken| {
            let aeth = taken.ext.aeth().unwrap();
            (aeth.syndrome, taken.at, aeth.msn.get())
        })
        .collect()
    }
}

/// A packet on the wire; `at` counts from the first PSN of node 0.
#[derive(Clone, Debug)]
struct Taken {
    opcode: Opcode,
    at: i32,
    ext: Ext,
    bth: Bth,
    payload: Vec<u8>,
}

fn read(key: Rkey, offset: u64, len: u32) -> Ext {
    Ext::Reth(Reth { va: BASE + offset, rkey: key, len })
}

/// The second node, with `receives` of 4000 bytes posted.
fn ready(receives: u64) -> Pair {
    let mut pair = Pair::new(20_000, CLEAN);
    for id in 0..receives {
        let sgl = pair.nodes[1].sge(10_000, 4000);
        pair.nodes[1].recv(id, sgl);
    }
    pair
}

const ACK: Syndrome = Syndrome::ACK;

const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequence);

const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);

const ACCESS: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);

const P: usize = 1024;

/// The last delivered packet is refused and ends the connection and all posted requests.
fn refused(mut pair: Pair, syndrome: Syndrome, at: i32, msn: u32, posted: usize, case: &str) {
    assert_eq!(pair.acks(), [(syndrome, at, msn)], "{case}");
    assert_eq!(pair.nodes[1].qp.state(), QpState::Err, "{case}");
    assert_eq!(pair.nodes[1].done.len(), posted, "{case}");
    // ERR-05: no further request gets a response.
    assert_eq!(pair.ask(at, Opcode::SendOnly, Ext::None, 1), Err(DropReason::QpState), "{case}");
    assert_eq!(pair.acks(), [], "{case}");
}

fn write(pair: &Pair, offset: u64, len: usize) -> Ext {
    Ext::Reth(Reth { va: BASE + offset, rkey: pair.nodes[1].key, len: len as u32 })
}
