//! What the hot path costs, beside what no implementation of it can leave out.
//!
//! `cargo bench -p messages --bench hot_path` takes less than a minute. Only quotients of lines of
//! one run mean something on a machine that is shared: a message over the copies and checksums that
//! it needs (`tables/units/4096` over `passes/4096`), a message over a ring (`tables/plain/64` over `ring`).
//! `message` is two devices, `tables` the whole of two providers between the functions of their tables.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
    measurement::{Measurement, ValueFormatter, WallTime},
};
use messages::world::{Kind, World};
use rocev2::cm::{CmConfig, CmEvent, ConnId, Hop, ReadLimits};
use rocev2::env::{Fault, Instant, Memory, RegionId};
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, PdId, Registration};
use rocev2::psn::Psn;
use rocev2::qp::{DcqcnConfig, QpConfig, SendOp, SendWr, SgList, Sge, WcStatus, Window};
use rocev2::wire::{Bth, Encap, Ext, Mac, Opcode, Packet, Reth, Template, UnitWriter};
use rocev2::{Connect, Device, DeviceConfig, Event, LinkEnd, Opening};
use rustix::time::{ClockId, clock_gettime};

criterion_group! {
    name = hot_path;
    config = Criterion::default()
        .with_measurement(ProcessorTime)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_millis(1500));
    targets = codec, icrc, passes, ring, message, tables
}
criterion_main!(hot_path);

/// The time that this thread has a processor: what else the machine does costs no more than its caches.
struct ProcessorTime;

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        clock_gettime(ClockId::ThreadCPUTime).try_into().expect("time goes forward")
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// One WRITE_ONLY packet, ICRC and payload included: into a buffer, and out of it again.
fn codec(criterion: &mut Criterion<ProcessorTime>) {
    let mut group = criterion.benchmark_group("codec");
    for size in SIZES {
        let payload = vec![0x5a; size];
        let mut buf = vec![0; UNIT_LEN];
        per_byte(&mut group, size);
        group.bench_function(BenchmarkId::new("write", size), |bencher| {
            bencher.iter(|| write_only(black_box(&mut buf), &payload));
        });
        let frame_len = write_only(&mut buf, &payload);
        group.bench_function(BenchmarkId::new("parse", size), |bencher| {
            bencher.iter(|| Packet::parse(black_box(&buf[..frame_len])).is_ok());
        });
    }
}

/// Writes a packet as the requester does; returns the length of its frame.
fn write_only(buf: &mut [u8], payload: &[u8]) -> usize {
    let reth = Reth { va: 0x1000, rkey: Rkey::new(7), len: payload.len() as u32 };
    let bth = Bth::new(Opcode::WriteOnly, Qpn::new(0x1234), Psn::new(0x56_789a));
    let encap = Encap {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        src: CLIENT,
        dst: SERVER,
        traffic_class: 0,
        hop_limit: 64,
        ip_id: 0,
        flow_label: 0,
        src_port: 0xc000,
    };
    let template = Template::new(&encap);
    let mut unit = UnitWriter::new(buf, &template, encap.ip_id);
    let filled = unit.push(&bth, &Ext::Reth(reth), payload.len(), |out| {
        out.copy_from_slice(payload);
        Ok::<(), Fault>(())
    });
    assert!(filled.is_ok());
    unit.finish().len
}

/// The checksum alone, of as many bytes as the ICRC of such a packet covers.
fn icrc(criterion: &mut Criterion<ProcessorTime>) {
    let mut group = criterion.benchmark_group("icrc");
    for size in SIZES {
        let covered = vec![0x5a; COVERED_HEADERS + size];
        per_byte(&mut group, size);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| crc32fast::hash(black_box(&covered)));
        });
    }
}

/// The two copies and two checksums of a message that is copied into a packet and out of it, over
/// the same buffers as `message`.
fn passes(criterion: &mut Criterion<ProcessorTime>) {
    let mut group = criterion.benchmark_group("passes");
    for size in SIZES {
        let source = vec![0x5a; RING * size];
        let mut sink = vec![0; RING * size];
        let mut packet = vec![0; COVERED_HEADERS + size];
        let mut slot = 0;
        per_byte(&mut group, size);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| {
                slot = (slot + 1) % RING;
                let range = slot * size..(slot + 1) * size;
                packet[COVERED_HEADERS..].copy_from_slice(&source[range.clone()]);
                let sent = crc32fast::hash(black_box(&packet));
                let received = crc32fast::hash(black_box(&packet));
                sink[range].copy_from_slice(&packet[COVERED_HEADERS..]);
                sent == received
            });
        });
    }
}

/// One entry of 16 bytes through a ring between two threads, both of them here.
fn ring(criterion: &mut Criterion<ProcessorTime>) {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<[u64; 2]>::new(256);
    criterion.bench_function("ring", |bencher| {
        bencher
            .iter(|| producer.push(black_box([1, 2])).is_ok_and(|()| consumer.pop() == Ok([1, 2])));
    });
}

/// One WRITE from its post to its completion, with everything that both devices do for it, on one
/// core. Posted 32 at a time. `plain` hands over packet by packet, `units` as many in one unit as
/// it can hold.
fn message(criterion: &mut Criterion<ProcessorTime>) {
    let mut group = criterion.benchmark_group("message");
    for (name, max_packets) in [("plain", 1), ("units", 64)] {
        for size in SIZES {
            let mut pair = Pair::connected(RING * size);
            per_byte(&mut group, size);
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter_custom(|messages| pair.write(messages, size, max_packets));
            });
        }
    }
}

/// The same, from one consumer's post to its completion through the NDK tables and two poll cores.
fn tables(criterion: &mut Criterion<ProcessorTime>) {
    let mut group = criterion.benchmark_group("tables");
    for (name, segments) in [("plain", 1), ("units", 15)] {
        for size in SIZES {
            let mut world = World::with(Kind::Write, size, 1, segments);
            per_byte(&mut group, size);
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter_custom(|messages| {
                    let batches = messages.div_ceil(RING as u64) * RING as u64;
                    let start = ProcessorTime.start();
                    world.exchange(batches as usize);
                    ProcessorTime.end(start).mul_f64(messages as f64 / batches as f64)
                });
            });
        }
    }
}

fn per_byte(group: &mut BenchmarkGroup<'_, ProcessorTime>, size: usize) {
    group.throughput(Throughput::Bytes(size as u64));
}

/// Two devices, and no wire between them.
struct Pair {
    nodes: [Node; 2],
    buf: Vec<u8>,
    now: Instant,
}

/// A device with one queue pair and one registration.
struct Node {
    device: Device,
    memory: Bytes,
    qpn: Qpn,
    key: Rkey,
}

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn read(&mut self, _region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
        Ok(())
    }

    fn write(&mut self, _region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.0[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
}

impl Pair {
    /// Two devices with a connection between them, and `len` bytes each.
    fn connected(len: usize) -> Self {
        let nodes = [Node::new(CLIENT, len), Node::new(SERVER, len)];
        let mut pair = Self { nodes, buf: vec![0; UNIT_LEN], now: Instant::from_nanos(1) };
        let [client, server] = &mut pair.nodes;
        server.device.bind_port(SERVER, PORT).expect("the port is free");
        server.device.listen(SocketAddr::new(SERVER, PORT), 1).expect("nobody listens");
        let port = client.device.bind_port(CLIENT, 0).expect("a port is free");
        let connect = Connect {
            qpn: client.qpn,
            local: SocketAddr::new(CLIENT, port),
            remote: SocketAddr::new(SERVER, PORT),
            hop: Hop {
                src_mac: Mac([2, 0, 0, 0, 0, 1]),
                dst_mac: Mac([2, 0, 0, 0, 0, 2]),
                vlan: None,
            },
            limits: LIMITS,
            private_data: &[],
        };
        client.device.connect(pair.now, &connect).expect("the device is idle");
        while !pair.turn_of_connecting() {}
        pair
    }

    /// Moves what there is, and answers; true once the server is told that all is done.
    fn turn_of_connecting(&mut self) -> bool {
        self.turn(1);
        let mut established = false;
        for node in &mut self.nodes {
            while let Some(event) = node.device.poll_event() {
                established |= node.agree(self.now, &event);
            }
        }
        established
    }

    /// Writes so many messages; returns how long that took.
    fn write(&mut self, messages: u64, size: usize, max_packets: usize) -> Duration {
        let start = ProcessorTime.start();
        let mut posted = 0;
        while posted < messages {
            let batch = (messages - posted).min(RING as u64);
            self.post(batch as usize, size);
            let mut completed = 0;
            while completed < batch {
                self.turn(max_packets);
                while let Some(completion) = self.nodes[0].device.poll_completion() {
                    assert_eq!(completion.status, WcStatus::Success);
                    completed += 1;
                }
            }
            posted += batch;
        }
        ProcessorTime.end(start)
    }

    fn post(&mut self, batch: usize, size: usize) {
        let [client, server] = &mut self.nodes;
        for slot in 0..batch {
            let addr = (slot * size) as u64;
            let sge = Sge { addr, len: size as u32, lkey: Lkey::new(client.key.get()) };
            let wr = SendWr {
                id: addr,
                op: SendOp::Write { va: addr, rkey: server.key },
                sgl: SgList::from_slice(&[sge]).expect("one element fits"),
                solicited: false,
                read_fence: false,
                silent: false,
            };
            client.device.post_send(client.qpn, wr).expect("the queue has room");
        }
    }

    /// What two poll cores do in a turn, less their rings.
    fn turn(&mut self, max_packets: usize) {
        self.now = self.now + Duration::from_nanos(100);
        let [client, server] = &mut self.nodes;
        client.transmit(server, &mut self.buf, max_packets, self.now);
        server.transmit(client, &mut self.buf, max_packets, self.now);
    }
}

impl Node {
    fn new(address: IpAddr, len: usize) -> Self {
        let mut device = Device::new(DeviceConfig {
            seed: [u8::from(address == CLIENT); 32],
            addresses: vec![address],
            link: LinkEnd::default(),
            mtu: MTU,
            socket: false,
            max_qps: 16,
            max_mrs: 16,
            max_queued_mappings: None,
            max_reads: 1,
            retry_count: 7,
            opening: Opening::default(),
            window: Window::default(),
            reorder_pool: 4 << 20,
            dcqcn: Some(DcqcnConfig::default()),
            short_ways: true,
            cm: CmConfig { ca_guid: u64::from(address == CLIENT) + 1, ..CmConfig::default() },
        });
        let config = QpConfig {
            owner: 0,
            pd: PD,
            send_depth: RING,
            send_sge: 16,
            recv_depth: 1,
            recv_sge: 16,
            srq: None,
        };
        let registration = Registration {
            pd: PD,
            region: RegionId(0),
            base: 0,
            len: len as u64,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        };
        Self {
            qpn: device.create_qp(&config).expect("there is room for a queue pair"),
            key: device.register(registration).expect("there is room for a registration"),
            device,
            memory: Bytes(vec![0x5a; len]),
        }
    }

    /// Sends all that may leave to `peer`.
    fn transmit(&mut self, peer: &mut Self, buf: &mut [u8], max_packets: usize, now: Instant) {
        self.device.handle_timeout(now);
        while let Some(unit) = self.device.poll_transmit(now, buf, max_packets, &mut self.memory) {
            let segment_len = (unit.segments > 1).then_some(unit.segment_len);
            peer.device.handle_frame(now, &buf[..unit.len], segment_len, &mut peer.memory);
        }
    }

    /// Says yes to everything; true once the connection is established.
    fn agree(&mut self, now: Instant, event: &Event) -> bool {
        let accept =
            |device: &mut Device, conn: ConnId| device.accept(now, conn, self.qpn, LIMITS, &[]);
        let agreed = match event {
            Event::Cm(CmEvent::ConnectRequest { conn, .. }) => accept(&mut self.device, *conn),
            Event::Cm(CmEvent::Connected { conn, .. }) => self.device.confirm(now, *conn),
            Event::Cm(CmEvent::Established { .. }) => return true,
            other => panic!("{other:?}"),
        };
        agreed.expect("nothing stands against it");
        false
    }
}

/// Bytes of a message: one packet either way.
const SIZES: [usize; 2] = [64, 4096];
/// Messages at once, each with memory of its own: what an L2 cache holds, but not an L1.
const RING: usize = 32;
/// What an ICRC covers beside the payload: masked IP, UDP and BTH, and RETH.
const COVERED_HEADERS: usize = 20 + 8 + 12 + 16;
const MTU: usize = 4200;
/// The longest unit that an IP length field can describe, and an Ethernet header.
const UNIT_LEN: usize = 65_535 + 18;
const PORT: u16 = 18515;
const PD: PdId = PdId(1);
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
