//! Two devices joined by a wire, connected through connection management.

use super::*;
use crate::env::{Duration, RegionId};
use crate::ids::Lkey;
use crate::mr::{Access, MrKind, PdId};
use crate::qp::tests::Bytes;
use crate::qp::work::{SendOp, SgList, Sge, WcStatus};
use crate::wire::{Mac, parse_unit};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::vec;

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
        mtu: 1500,
        max_qps: 8,
        max_mrs: 16,
        max_reads: 4,
        retry_count: 7,
        window: Window::default(),
        cm: CmConfig { ca_guid: node as u64 + 1, ..CmConfig::default() },
    }
}

impl World {
    fn new(v6: bool) -> Self {
        let mut devices = [Device::new(config(v6, 0)), Device::new(config(v6, 1))];
        let keys = devices.each_mut().map(|device| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
            let (region, len, kind) = (RegionId(0), REGION as u64, MrKind::Registered);
            let registration = Registration { pd: PD, region, base: BASE, len, access, kind };
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
        let config = QpConfig { owner: node as u64, pd: PD, send_depth: 16, recv_depth: 16 };
        self.devices[node].create_qp(&config).unwrap()
    }

    /// Starts to connect `client` of node 0; node 1 listens.
    fn connect(&mut self, v6: bool, client: Qpn) -> ConnId {
        let (local, remote) = (address(v6, 0), address(v6, 1));
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
        let mut world = Self::new(v6);
        let qps = [world.qp(0), world.qp(1)];
        world.listen(v6);
        let active = world.connect(v6, qps[0]);
        world.run();
        let Some(Event::Cm(CmEvent::ConnectRequest { conn: passive, .. })) = world.events[1].pop()
        else {
            panic!("no request")
        };
        let limits = ReadLimits { inbound: 4, outbound: 4 };
        world.devices[1].accept(world.now, passive, qps[1], limits, &[]).unwrap();
        world.run();
        let event = world.events[0].pop();
        assert!(
            matches!(event, Some(Event::Cm(CmEvent::Connected { conn, .. })) if conn == active)
        );
        world.devices[0].confirm(world.now, active).unwrap();
        world.run();
        let event = world.events[1].pop();
        assert!(matches!(event, Some(Event::Cm(CmEvent::Established { .. }))));
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
            let next = self.devices.iter().filter_map(Device::poll_timeout).min();
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
        let counted = DropReason::ALL.map(|reason| (reason, counters.drops[reason.index()]));
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
    let mut unit = UnitWriter::new(&mut buf, &packet.encap);
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
        // No timer runs: the gap alone brings the packet back.
        world.run();
        assert_eq!(world.statuses(0), [(1, WcStatus::Success)]);
    }
}
