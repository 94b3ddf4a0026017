//! Two devices joined by a wire, connected through connection management.

use super::engine::*;
use super::*;
use crate::cm::{self, Connect};
use crate::counters::Counter;
use crate::env::{Duration, Instant, RegionId};
use crate::ids::{Lkey, Rkey};
use crate::mr::{Access, PdId, Registration};
use crate::path::Path;
use crate::psn::Psn;
use crate::qp::tests::Bytes;
use crate::qp::{
    Completion, PostError, QpConfig, QpState, RecvWr, SendOp, SendWr, SgList, Sge, Shared,
};
use crate::wire::mad::GSI_QKEY;
use crate::wire::{
    Bth, Deth, DropReason, Ext, Mac, Opcode, Packet, ROCE_PORT, Template, Unit, UnitWriter,
    parse_unit,
};
use alloc::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::vec;

mod acks;
mod classes;
mod congestion;
mod connections;
mod door;
mod gaps;
mod keys;
mod large;
mod loss;
mod origins;
mod paths;
mod probes;
mod reorder_pool;
mod restart;
mod shared;
mod short_ways;
mod strict;
mod table;
mod units;

const PD: PdId = PdId(1);
const BASE: u64 = 0x7000_0000;
const REGION: usize = 300_000;
const PORT: u16 = 445;

struct World {
    devices: [Device; 2],
    memory: [Bytes; 2],
    keys: [Rkey; 2],
    wires: [VecDeque<Vec<u8>>; 2],
    now: Instant,
    events: [Vec<Event>; 2],
    done: [Vec<Completion>; 2],
    /// Everything that each device has sent.
    sent: [Vec<(Opcode, Psn)>; 2],
    max_packets: usize,
}

fn address(v6: bool, node: usize) -> IpAddr {
    let last = node as u8 + 1;
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }
}

const fn mac(node: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, node as u8 + 1])
}

fn config(v6: bool, node: usize) -> DeviceConfig {
    DeviceConfig {
        seed: [node as u8 + 1; 32],
        addresses: vec![address(v6, node)],
        link: LinkEnd { mac: Some(mac(node)), vlan: None },
        mtu: 1500,
        socket: false,
        max_qps: 8,
        max_mrs: 16,
        max_queued_mappings: None,
        max_reads: 4,
        retry_count: 7,
        opening: Opening::default(),
        window: Window::default(),
        reorder_pool: 4 << 20,
        dcqcn: Some(DcqcnConfig::default()),
        short_ways: true,
        cm: CmConfig { ca_guid: node as u64 + 1, ..CmConfig::default() },
    }
}

impl World {
    fn new(v6: bool) -> Self {
        Self::of([config(v6, 0), config(v6, 1)])
    }

    fn of(configs: [DeviceConfig; 2]) -> Self {
        let mut devices = configs.map(Device::new);
        let keys = devices.each_mut().map(|device| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
            let (region, len) = (RegionId(0), REGION as u64);
            let registration = Registration { pd: PD, region, base: BASE, len, access };
            device.register(registration).unwrap()
        });
        let memory = [0, 1]
            .map(|node| Bytes(vec![Vec::from_iter((0..REGION).map(|i| (i * 7 + node) as u8))]));
        Self {
            devices,
            memory,
            keys,
            wires: Default::default(),
            now: Instant::from_nanos(1),
            events: Default::default(),
            done: Default::default(),
            sent: Default::default(),
            max_packets: 4,
        }
    }

    fn qp(&mut self, node: usize) -> Qpn {
        let config = QpConfig {
            owner: node as u64,
            pd: PD,
            send_depth: 16,
            send_sge: 16,
            recv_depth: 16,
            recv_sge: 16,
            srq: None,
        };
        self.devices[node].create_qp(&config).unwrap()
    }

    /// Accepts the request that waits at node 1 with `server`, up to the end.
    fn accept(&mut self, server: Qpn, active: ConnId) -> ConnId {
        self.run();
        let Some(Event::Cm(CmEvent::ConnectRequest { conn: passive, .. })) = self.events[1].pop()
        else {
            panic!("no request")
        };
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        self.devices[1].accept(self.now, passive, server, limits, &[]).unwrap();
        self.run();
        let event = self.events[0].pop();
        assert!(
            matches!(event, Some(Event::Cm(CmEvent::Connected { conn, .. })) if conn == active)
        );
        self.devices[0].confirm(self.now, active).unwrap();
        self.run();
        let event = self.events[1].pop();
        assert!(matches!(event, Some(Event::Cm(CmEvent::Established { .. }))));
        passive
    }

    /// Connects two QPs; the RTU is lost.
    fn join_without_rtu(&mut self, [client, server]: [Qpn; 2]) {
        let active = self.connect(false, client);
        self.run();
        let Some(Event::Cm(CmEvent::ConnectRequest { conn, .. })) = self.events[1].pop() else {
            panic!("no request")
        };
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        self.devices[1].accept(self.now, conn, server, limits, &[]).unwrap();
        self.run();
        self.devices[0].confirm(self.now, active).unwrap();
        self.transmit(0);
        self.wires[1].clear();
    }

    /// Starts to connect `client` of node 0; node 1 listens.
    fn connect(&mut self, v6: bool, client: Qpn) -> ConnId {
        self.connect_to(address(v6, 1), client)
    }

    /// The same to an address of node 1.
    fn connect_to(&mut self, remote: IpAddr, client: Qpn) -> ConnId {
        let local = address(remote.is_ipv6(), 0);
        let port = self.devices[0].bind_port(local, 0).unwrap();
        let request = Connect {
            qpn: client,
            local: SocketAddr::new(local, port),
            remote: SocketAddr::new(remote, PORT),
            hop: cm::Hop { src_mac: mac(0), dst_mac: mac(1), vlan: None },
            limits: ReadLimits { inbound: 4, outbound: 4 },
            private_data: b"hello",
        };
        self.devices[0].connect(self.now, &request).unwrap()
    }

    fn listen(&mut self, v6: bool) {
        let local = address(v6, 1);
        self.devices[1].bind_port(local, PORT).unwrap();
        self.devices[1].listen(SocketAddr::new(local, PORT), 4).unwrap();
    }

    /// Two connected QPs.
    fn connected(v6: bool) -> (Self, [Qpn; 2], [ConnId; 2]) {
        Self::new(v6).join(v6)
    }

    fn join(self, v6: bool) -> (Self, [Qpn; 2], [ConnId; 2]) {
        let mut world = self;
        let qps = [world.qp(0), world.qp(1)];
        world.listen(v6);
        let active = world.connect(v6, qps[0]);
        let passive = world.accept(qps[1], active);
        world.sent = Default::default();
        (world, qps, [active, passive])
    }

    fn sgl(&self, node: usize, offset: usize, len: usize) -> SgList {
        let (addr, lkey) = (BASE + offset as u64, Lkey::new(self.keys[node].get()));
        SgList::from_slice(&[Sge { addr, len: len as u32, lkey }]).unwrap()
    }

    fn post(&mut self, qpn: Qpn, id: u64, op: SendOp, len: usize) {
        let sgl = self.sgl(0, 0, len);
        let wr = SendWr { id, op, sgl, solicited: false, read_fence: false, silent: false };
        self.devices[0].post_send(qpn, wr).unwrap();
    }

    fn write(&self) -> SendOp {
        SendOp::Write { va: BASE + 100_000, rkey: self.keys[1] }
    }

    /// Takes what a device sends until it has nothing more.
    fn transmit(&mut self, from: usize) -> bool {
        let mut buf = vec![0; 65_000];
        let mut any = false;
        let (device, memory) = (&mut self.devices[from], &mut self.memory[from]);
        while let Some(unit) = device.poll_transmit(self.now, &mut buf, self.max_packets, memory) {
            any = true;
            for segment in split(&buf[..unit.len], &unit) {
                let packet = Packet::parse(&segment).expect("what is sent is well formed");
                self.sent[from].push((packet.bth.opcode, packet.bth.psn));
                self.wires[1 - from].push_back(segment);
            }
        }
        any
    }

    fn deliver(&mut self, to: usize) {
        while let Some(frame) = self.wires[to].pop_front() {
            self.devices[to].handle_frame(self.now, &frame, None, &mut self.memory[to]);
        }
        while let Some(completion) = self.devices[to].poll_completion() {
            self.done[to].push(completion);
        }
        while let Some(event) = self.devices[to].poll_event() {
            self.events[to].push(event);
        }
    }

    /// Moves packets until none is left; time stands still.
    fn run(&mut self) {
        loop {
            self.deliver(0);
            self.deliver(1);
            if ![0, 1].map(|node| self.transmit(node)).contains(&true) {
                return;
            }
        }
    }

    /// Also jumps over idle time, `limit` of it at most.
    fn run_for(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            self.run();
            let next = self.devices.iter_mut().filter_map(Device::poll_timeout).min();
            let Some(next) = next.filter(|next| *next <= end) else { return };
            self.now = next.max(self.now);
            for device in &mut self.devices {
                device.handle_timeout(self.now);
            }
        }
    }

    fn statuses(&self, node: usize) -> Vec<(u64, WcStatus)> {
        self.done[node].iter().map(|done| (done.id, done.status)).collect()
    }

    fn drops(&self, node: usize) -> Vec<(DropReason, u64)> {
        let counters = self.devices[node].counters();
        let counted =
            DropReason::ALL.map(|reason| (reason, counters.get(Counter::dropped(reason))));
        counted.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// The frames that an edge makes of a unit.
fn split(frame: &[u8], unit: &Unit) -> Vec<Vec<u8>> {
    let segments: Vec<_> = parse_unit(frame, Some(unit.segment_len)).map(Result::unwrap).collect();
    assert_eq!(segments.len(), unit.segments);
    segments.iter().map(emit).collect()
}

/// A packet as its own frame.
fn emit(packet: &Packet<'_>) -> Vec<u8> {
    let mut buf = vec![0; 9000];
    let template = Template::new(&packet.encap);
    let mut unit = UnitWriter::new(&mut buf, &template, packet.encap.ip_id);
    let fill = |out: &mut [u8]| {
        out.copy_from_slice(packet.payload);
        Ok::<(), core::convert::Infallible>(())
    };
    let Ok(()) = unit.push(&packet.bth, &packet.ext, packet.payload.len(), fill);
    let len = unit.finish().len;
    buf.truncate(len);
    buf
}

#[test]
fn a_lost_packet_is_asked_for_at_once() {
    for v6 in [false, true] {
        let (mut world, [client, _], _) = World::connected(v6);
        world.post(client, 1, world.write(), 10_000);
        world.transmit(0);
        world.wires[1].remove(3);
        // Long before a retransmission timer: the gap alone brings the packet back.
        world.run_for(Duration::from_millis(1));
        assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
    }
}

#[test]
fn err_06_a_destroyed_queue_pair_is_gone() {
    let (mut world, [client, server], [active, _]) = World::connected(false);
    for id in 0..3 {
        world.post(client, id, world.write(), 10_000);
    }
    world.transmit(0);
    world.devices[0].destroy_qp(client);
    assert!(!world.transmit(0));
    world.run_for(Duration::from_secs(5));
    let flushed = WcStatus::Flushed;
    assert_eq!(world.statuses(0), [(0, flushed), (1, flushed), (2, flushed)]);
    assert!(world.drops(0).iter().all(|(reason, _)| *reason == DropReason::UnknownQpn));
    assert_eq!(world.devices[1].qp_state(server), Some(QpState::Rts));
    world.devices[0].release(world.now, active);
    world.run_for(Duration::from_secs(5));
    assert!(world.devices.iter_mut().all(|device| device.poll_timeout().is_none()));
}

#[test]
fn the_first_packet_stands_for_a_lost_rtu() {
    let mut world = World::new(false);
    let qps = [world.qp(0), world.qp(1)];
    world.listen(false);
    world.join_without_rtu(qps);
    world.post(qps[0], 1, world.write(), 8);
    world.run();
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
    assert!(matches!(world.events[1][..], [Event::Cm(CmEvent::Established { .. })]));
}

/// A connection that an RTU established takes no packet for the RTU, too.
#[test]
fn a_connected_queue_pair_knows_its_path_mtu_and_waits_for_nothing() {
    let (mut world, qps, _) = World::connected(false);
    let alone = world.qp(0);
    assert_eq!(world.devices[0].qp_pmtu(alone), None);
    for (device, qpn) in world.devices.iter().zip(qps) {
        assert_eq!(device.qp_pmtu(qpn).map(Pmtu::bytes), Some(1024));
        assert!(!device.slot(qpn).unwrap().1.awaits_rtu);
    }
}

/// Goal: a host without memory accepts no connection, counts the dropped requests, and accepts once it has
/// memory.
#[test]
fn a_request_that_finds_no_memory_is_dropped_and_comes_again() {
    let mut world = World::new(false);
    let qps = [world.qp(0), world.qp(1)];
    world.listen(false);
    world.devices[1].admit_messages(false);
    let active = world.connect(false, qps[0]);
    world.run();
    assert!(world.events[1].is_empty());
    assert_eq!(world.drops(1), [(DropReason::CmShare, 1)]);
    world.devices[1].admit_messages(true);
    world.run_for(Duration::from_secs(5));
    world.accept(qps[1], active);
}

#[test]
fn rnr_12_and_sys_03_every_pause_ends_and_work_posted_during_it_leaves() {
    for v6 in [false, true] {
        let (mut world, [client, server], _) = World::connected(v6);
        world.post(client, 1, SendOp::Send, 3000);
        world.run();
        // Paused by the peer; what is posted now waits its turn and is not forgotten.
        world.post(client, 2, world.write(), 100);
        assert!(!world.transmit(0));
        let sgl = world.sgl(1, 200_000, 3000);
        world.devices[1].post_recv(server, RecvWr { id: 7, sgl }).unwrap();
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.statuses(0), [(1, WcStatus::Success), (2, WcStatus::Success)]);
        assert_eq!(world.statuses(1), [(7, WcStatus::Success)]);
        assert!(world.memory[1].0[0][200_000..203_000] == world.memory[0].0[0][..3000]);
    }
}

#[test]
fn a_unit_counts_its_packets_in_the_ip_identification() {
    let (mut world, [client, _], _) = World::connected(false);
    world.post(client, 1, world.write(), 20_000);
    world.transmit(0);
    let ids: Vec<u16> =
        world.wires[1].iter().map(|frame| u16::from_be_bytes([frame[18], frame[19]])).collect();
    assert!(ids.len() == 20 && ids.is_sorted_by(|a, b| a.wrapping_add(1) == *b), "{ids:?}");
}

/// The identification of a socket's packet is its place in its unit, on the short way and the general one.
#[test]
fn a_socket_counts_in_each_unit() {
    for (packets, bytes) in [(1, 64), (4, 3 * 1024 + 4), (4, 20_000)] {
        let mut configs = [0, 1].map(|node| DeviceConfig { socket: true, ..config(false, node) });
        configs[0].short_ways = bytes != 20_000;
        let (mut world, [client, _], _) = World::of(configs).join(false);
        world.max_packets = packets;
        (1..=3).for_each(|id| world.post(client, id, world.write(), bytes));
        world.transmit(0);
        let field = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let ids: Vec<u16> = world.wires[1].iter().map(|frame| field(frame, 18)).collect();
        assert!(world.wires[1].iter().all(|frame| field(frame, 34) == ROCE_PORT));
        let restarts = |pair: &[u16]| pair[1] == 0 || pair[1] == pair[0] + 1;
        assert!(ids[0] == 0 && ids.windows(2).all(restarts), "{ids:?}");
        assert_eq!(ids.iter().max().is_some_and(|max| *max > 0), packets > 1, "{ids:?}");
        assert!(ids.iter().filter(|id| **id == 0).count() >= 3, "{ids:?}");
        world.run();
        assert_eq!(world.statuses(0).len(), 3);
    }
}

#[test]
fn releasing_an_old_connection_leaves_the_new_one_its_queue_pair() {
    let mut world = World::new(false);
    let client = world.qp(0);
    // There is no listener yet: the first attempt is refused.
    let first = world.connect(false, client);
    world.run();
    assert!(matches!(world.events[0].pop(), Some(Event::Cm(CmEvent::Refused { .. }))));
    world.listen(false);
    let second = world.connect(false, client);
    world.devices[0].release(world.now, first);
    world.run();
    assert_eq!(world.devices[0].slot(client).unwrap().1.conn, Some(second));
}

#[test]
fn a_queue_pair_number_is_not_drawn_twice_running() {
    let mut device = Device::new(DeviceConfig { max_qps: 1 << 20, ..config(false, 0) });
    let config = QpConfig {
        owner: 0,
        pd: PD,
        send_depth: 1,
        send_sge: 16,
        recv_depth: 1,
        recv_sge: 16,
        srq: None,
    };
    // A table so large leaves a number 64 values for a slot.
    while device.qps.len() < 1 << 18 {
        device.free.clear();
        device.create_qp(&config).unwrap();
    }
    // All slots but one stay taken, so that each new queue pair has to use the same one.
    device.free.truncate(1);
    let mut last = None;
    for _ in 0..1000 {
        let qpn = device.create_qp(&config).unwrap();
        assert_ne!(last, Some(qpn));
        last = Some(qpn);
        device.destroy_qp(qpn);
    }
}

/// A peer that knows some numbers of ours cannot predict the next: neither their high bits nor the slots in
/// the low ones count up, and another device draws others.
#[test]
fn the_slots_of_queue_pairs_come_in_no_order() {
    let slots = |seed| {
        let config = DeviceConfig { seed: [seed; 32], max_qps: 1 << 12, ..config(false, 0) };
        let mut device = Device::new(config);
        let config = QpConfig {
            owner: 0,
            pd: PD,
            send_depth: 1,
            send_sge: 16,
            recv_depth: 1,
            recv_sge: 16,
            srq: None,
        };
        let draw = |_| device.create_qp(&config).unwrap().get() & 0xfff;
        Vec::from_iter((0..1 << 12).map(draw))
    };
    let (first, other) = (slots(1), slots(2));
    let next = first.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
    let alike = first.iter().zip(&other).filter(|(first, other)| first == other).count();
    // Of 4,096 drawn in no order, two in a row are neighbours 2 times, and 1 is where the other has it.
    assert!(next < 40 && alike < 40, "{next} neighbours, {alike} alike");
    let mut all = first;
    all.sort_unstable();
    assert_eq!(all, Vec::from_iter(0..1 << 12), "each slot once");
    assert_eq!(slots(1), slots(1));
}

/// The number of a queue pair that is gone names no other one for a while: packets for it may be in the
/// network.
#[test]
fn a_slot_that_was_given_up_rests() {
    let mut device = Device::new(DeviceConfig { max_qps: 64, ..config(false, 0) });
    let config = QpConfig {
        owner: 0,
        pd: PD,
        send_depth: 1,
        send_sge: 16,
        recv_depth: 1,
        recv_sge: 16,
        srq: None,
    };
    for _ in 0..100 {
        let given_up = device.create_qp(&config).unwrap();
        device.destroy_qp(given_up);
        let next: [Qpn; 31] = core::array::from_fn(|_| device.create_qp(&config).unwrap());
        for qpn in next {
            assert_ne!(device.slot_index(qpn), device.slot_index(given_up));
            device.destroy_qp(qpn);
        }
    }
}

#[test]
fn more_reads_than_can_be_recorded_are_not_offered() {
    let mut device = Device::new(DeviceConfig { max_reads: 255, ..config(false, 0) });
    let config = QpConfig {
        owner: 0,
        pd: PD,
        send_depth: 1,
        send_sge: 16,
        recv_depth: 1,
        recv_sge: 16,
        srq: None,
    };
    let all = ReadLimits { inbound: 255, outbound: 255 };
    let connect = Connect {
        qpn: device.create_qp(&config).unwrap(),
        local: SocketAddr::new(address(false, 0), PORT),
        remote: SocketAddr::new(address(false, 1), PORT),
        hop: cm::Hop { src_mac: mac(0), dst_mac: mac(1), vlan: None },
        limits: all,
        private_data: &[],
    };
    let conn = device.connect(Instant::default(), &connect).unwrap();
    let most = crate::qp::MAX_READS as u8;
    let offered = device.front.cm.peer(conn).unwrap().limits;
    assert_eq!(offered, ReadLimits { inbound: most, outbound: most });
}

/// A caller prepares buffers for what may be sent, and for nothing else.
#[test]
fn a_device_tells_whether_it_may_send() {
    let (mut world, [client, _], _) = World::connected(false);
    assert!(!world.devices[0].may_transmit());
    world.post(client, 1, world.write(), 2000);
    let mut buf = vec![0; 2000];
    for _ in 0..2 {
        assert!(world.devices[0].may_transmit());
        let (device, memory) = (&mut world.devices[0], &mut world.memory[0]);
        device.poll_transmit(world.now, &mut buf, 1, memory).unwrap();
    }
    assert!(!world.devices[0].may_transmit());
}

#[test]
fn a_buffer_too_small_for_a_packet_stops_nothing_else() {
    let (mut world, [client, _], _) = World::connected(false);
    world.post(client, 1, world.write(), 2000);
    let (device, memory) = (&mut world.devices[0], &mut world.memory[0]);
    assert!(device.poll_transmit(world.now, &mut [0; 100], 4, memory).is_none());
    world.run();
    assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
}
