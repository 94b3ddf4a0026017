//! Two devices, the wire between them, and an account of what each owes its consumer.

use rocev2::cm::{CmConfig, CmEvent, ConnId, Hop, ReadLimits};
use rocev2::env::{Duration, Fault, Instant, Memory, RegionId};
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, PdId, Registration, Reserve};
use rocev2::qp::{
    Completion, DcqcnConfig, QpConfig, SgList, Sge, SrqConfig, SrqId, WcStatus, Window,
};
use rocev2::wire::{Bth, Encap, Ext, Mac, Packet, Template, UnitWriter, parse_unit, segment_len};
use rocev2::{Connect, Device, DeviceConfig, Event, LinkEnd, Opening};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const PD: PdId = PdId(1);
pub(super) const BASE: u64 = 0x7000_0000;
/// Bytes of each region.
pub(super) const SIZE: usize = 8 << 10;
pub(super) const PORT: u16 = 445;
/// Work requests per queue.
pub(super) const DEPTH: usize = 8;
pub(super) const LIMITS: ReadLimits = ReadLimits { inbound: 3, outbound: 3 };

/// Indices into [`Node::keys`].
pub(super) const READ_WRITE: usize = 0;
pub(super) const FAST: usize = 2;
pub(super) const WINDOW: usize = 3;
const KEYS: usize = 6;
/// The region behind the privileged key, of which [`Memory`] checks the bounds.
const PRIVILEGED: usize = 2;

/// Frames that wait on one side of the wire, at most.
const WIRE: usize = 64;
/// Units that one device may have to send while nothing arrives, at most: the answers to 64 frames
/// and two windows are far fewer.
const BURST: usize = 2_000;
/// Turns in which two devices must fall silent while time stands still.
const STORM: usize = 400;
/// Deadlines of two devices whose consumers are gone, at most.
const TIMERS: usize = 2_000;

pub(super) struct World {
    pub(super) nodes: [Node; 2],
    pub(super) now: Instant,
}

pub(super) struct Node {
    pub(super) device: Device,
    pub(super) memory: Regions,
    pub(super) address: IpAddr,
    pub(super) hop: Hop,
    /// What is on its way here: units and the length of their segments.
    pub(super) wire: VecDeque<(Vec<u8>, usize)>,
    pub(super) qpns: Vec<Qpn>,
    pub(super) srq: Option<SrqId>,
    /// All rights, READ only, fast registration, window, privileged, one that names nothing.
    pub(super) keys: [Rkey; KEYS],
    pub(super) ids: u64,
    /// Posted and not yet completed, with the bytes of a receive.
    pub(super) posted: BTreeMap<u64, Option<u64>>,
    /// Connections in order of their appearance, and the kinds of events that they had.
    pub(super) conns: Vec<(ConnId, u16)>,
    failed: Vec<Qpn>,
}

/// Memory that knows what may be done to it, and objects to everything else: the device has checked
/// the keys.
pub(super) struct Regions(Vec<Region>);

struct Region {
    bytes: Vec<u8>,
    writable: bool,
    live: bool,
}

impl Regions {
    fn range(&mut self, region: RegionId, offset: u64, len: usize) -> Result<&mut Region, Fault> {
        let index = region.0 as usize;
        let region = self.0.get_mut(index).expect("no such region");
        assert!(region.live, "region {index} is the consumer's again");
        let end = offset.checked_add(len as u64).filter(|end| *end <= SIZE as u64);
        if index == PRIVILEGED {
            end.ok_or(Fault)?;
        }
        assert!(end.is_some(), "{len} bytes at {offset} of region {index}");
        Ok(region)
    }

    pub(super) fn add(&mut self) -> RegionId {
        self.0.push(Region { bytes: vec![0; SIZE], writable: true, live: true });
        RegionId(self.0.len() as u32 - 1)
    }

    /// The consumer has it back.
    pub(super) fn end(&mut self, region: RegionId) {
        let region = &mut self.0[region.0 as usize];
        assert!(region.live, "given back twice");
        region.live = false;
    }
}

impl Memory for Regions {
    fn read(&mut self, region: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let region = self.range(region, offset, out.len())?;
        out.copy_from_slice(&region.bytes[offset as usize..][..out.len()]);
        Ok(())
    }

    fn write(&mut self, region: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let region = self.range(region, offset, data.len())?;
        assert!(region.writable, "write to a region that grants none");
        region.bytes[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
}

impl Node {
    fn new(v6: bool, number: u8) -> Self {
        let address = if v6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number) + 1))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, number + 1))
        };
        let mac = |number: u8| Mac([2, 0, 0, 0, 0, number + 1]);
        let mut device = Device::new(DeviceConfig {
            seed: [number + 1; 32],
            addresses: vec![address],
            link: LinkEnd::default(),
            // A path MTU of 256: messages of a few KiB are many packets.
            mtu: 400,
            socket: false,
            max_qps: 4,
            max_mrs: 16,
            max_queued_mappings: None,
            max_reads: 4,
            retry_count: 7,
            opening: Opening::default(),
            dcqcn: Some(DcqcnConfig::default()),
            window: Window { bytes: 8 << 10, read_chunk: 2 << 10, reorder_bytes: 8 << 10 },
            // Less than the quotas of two queue pairs.
            reorder_pool: 12 << 10,
            short_ways: true,
            cm: CmConfig {
                ca_guid: u64::from(number) + 1,
                max_connections: 8,
                max_time_wait: 8,
                max_transmits: 16,
                ..CmConfig::default()
            },
        });
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mut memory = Regions(Vec::new());
        let mut register = |access: Access| {
            let region = memory.add();
            memory.0[region.0 as usize].writable = access.contains(Access::LOCAL_WRITE);
            let registration =
                Registration { pd: PD, region, base: BASE, len: SIZE as u64, access };
            device.register(registration).expect("the table is empty")
        };
        let (read_write, read_only) = (register(all), register(Access::REMOTE_READ));
        let privileged = memory.add();
        assert_eq!(privileged.0 as usize, PRIVILEGED);
        let mut reserve = |what| device.reserve(PD, what).expect("the table is empty");
        let fast = reserve(Reserve::FastRegister(all));
        let window = reserve(Reserve::Window);
        let privileged = reserve(Reserve::Privileged(privileged));
        Self {
            device,
            memory,
            address,
            hop: Hop { src_mac: mac(number), dst_mac: mac(1 - number), vlan: None },
            wire: VecDeque::new(),
            qpns: Vec::new(),
            srq: None,
            keys: [read_write, read_only, fast, window, privileged, Rkey::new(0x1234_5678)],
            ids: 0,
            posted: BTreeMap::new(),
            conns: Vec::new(),
            failed: Vec::new(),
        }
    }

    pub(super) fn create_qp(&mut self) {
        let config = QpConfig {
            owner: 7,
            pd: PD,
            send_depth: DEPTH,
            send_sge: 16,
            recv_depth: DEPTH,
            recv_sge: 16,
            srq: self.srq,
        };
        self.qpns.extend(self.device.create_qp(&config));
    }

    pub(super) fn create_srq(&mut self) {
        let config = SrqConfig { owner: 8, pd: PD, depth: DEPTH, max_sge: 16, threshold: 2 };
        self.srq = Some(self.device.create_srq(config));
    }

    pub(super) fn key(&self, index: u8) -> Rkey {
        self.keys[usize::from(index) % KEYS]
    }

    pub(super) fn sgl(&self, key: u8, offset: i32, len: u32) -> SgList {
        let addr = BASE.wrapping_add_signed(offset.into());
        let lkey = Lkey::new(self.key(key).get());
        let halves = [len / 2, len - len / 2];
        let pieces = [
            Sge { addr, len: halves[0], lkey },
            Sge { addr: addr.wrapping_add(halves[0].into()), len: halves[1], lkey },
        ];
        SgList::from_slice(&pieces).expect("two fit")
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Ends one of the keys. The bytes that it was registered for are the consumer's again.
    pub(super) fn deregister(&mut self, index: u8) {
        let ended = self.device.deregister(self.key(index)).is_ok();
        let region = match usize::from(index) % KEYS {
            READ_WRITE => 0,
            1 => 1,
            4 => PRIVILEGED as u32,
            _ => return self.collect(),
        };
        if ended {
            self.memory.end(RegionId(region));
        }
        self.collect();
    }

    /// Takes completions, events and released regions, and checks that each was owed.
    pub(super) fn collect(&mut self) {
        while let Some(done) = self.device.poll_completion() {
            self.completed(&done);
        }
        while let Some(event) = self.device.poll_event() {
            match event {
                Event::Cm(event) => self.told(&event),
                Event::QpFailed { qpn, .. } => {
                    assert!(!self.failed.contains(&qpn), "failed twice");
                    self.failed.push(qpn);
                }
                Event::SrqLow { owner } => assert!(owner == 8 && self.srq.is_some()),
            }
        }
        while let Some(released) = self.device.poll_released() {
            self.memory.end(released.region);
        }
    }

    fn completed(&mut self, done: &Completion) {
        let receive = self.posted.remove(&done.id).expect("completed twice, or never posted");
        assert_eq!(receive.is_some(), done.kind.is_receive());
        let room = receive.unwrap_or(0);
        assert!(done.status != WcStatus::Success || u64::from(done.len) <= room);
    }

    fn told(&mut self, event: &CmEvent) {
        let (id, bit) = (event.conn(), kind(event));
        let index = self.conns.iter().position(|(conn, _)| *conn == id);
        let index = index.unwrap_or_else(|| {
            assert!(matches!(event, CmEvent::ConnectRequest { .. }), "unknown: {event:?}");
            self.conns.push((id, 0));
            self.conns.len() - 1
        });
        let told = &mut self.conns[index].1;
        assert!(*told & CLOSED == 0, "after the last event: {event:?}");
        assert!(*told & bit == 0, "twice: {event:?}");
        *told |= bit;
    }

    pub(super) fn deliver(&mut self, now: Instant, frame: &[u8], segment_len: usize) {
        self.device.handle_frame(now, frame, Some(segment_len), &mut self.memory);
        self.collect();
    }
}

const CLOSED: u16 = 1 << 7;

/// One bit for each kind of event.
const fn kind(event: &CmEvent) -> u16 {
    match event {
        CmEvent::ConnectRequest { .. } => 1,
        CmEvent::Connected { .. } => 1 << 1,
        CmEvent::Established { .. } => 1 << 2,
        CmEvent::Refused { .. } => 1 << 3,
        CmEvent::TimedOut { .. } => 1 << 4,
        CmEvent::PeerDisconnected { .. } => 1 << 5,
        CmEvent::DisconnectDone { .. } => 1 << 6,
        CmEvent::PathLost { .. } => 1 << 8,
        CmEvent::Closed { .. } => CLOSED,
    }
}

impl World {
    pub(super) fn new(v6: bool) -> Self {
        Self { nodes: [Node::new(v6, 0), Node::new(v6, 1)], now: Instant::from_nanos(1) }
    }

    /// The first queue pair of each connected, nothing on the wire.
    pub(super) fn join(&mut self) {
        let endpoint = SocketAddr::new(self.nodes[1].address, PORT);
        self.nodes[1].device.bind_port(endpoint.ip(), PORT).expect("free");
        self.nodes[1].device.listen(endpoint, 4).expect("free");
        self.connect(0, 0, &[]);
        self.settle();
        let (qpn, conn) = (self.nodes[1].qpns[0], self.nodes[1].conns[0].0);
        self.nodes[1].device.accept(self.now, conn, qpn, LIMITS, &[]).expect("asked");
        self.settle();
        let conn = self.nodes[0].conns[0].0;
        self.nodes[0].device.confirm(self.now, conn).expect("accepted");
        self.settle();
        assert_eq!(self.nodes[1].conns[0].1, 0b101, "established");
    }

    /// From a port of its own to the other's listener.
    pub(super) fn connect(&mut self, from: usize, qp: usize, private_data: &[u8]) {
        let remote = SocketAddr::new(self.nodes[1 - from].address, PORT);
        let node = &mut self.nodes[from];
        let Some(qpn) = node.qpns.get(qp).copied() else { return };
        let port = node.device.bind_port(node.address, 0).expect("there are thousands");
        let local = SocketAddr::new(node.address, port);
        let request = Connect { qpn, local, remote, hop: node.hop, limits: LIMITS, private_data };
        if let Ok(conn) = node.device.connect(self.now, &request) {
            node.conns.push((conn, 0));
        }
    }

    /// Puts what a device sends on the wire, up to `units` of up to `packets` packets.
    pub(super) fn transmit(&mut self, from: usize, packets: usize, units: usize) -> usize {
        let mut buf = [0; 4096];
        for sent in 0..units {
            let node = &mut self.nodes[from];
            let unit = node.device.poll_transmit(self.now, &mut buf, packets, &mut node.memory);
            node.collect();
            let Some(unit) = unit else { return sent };
            let frame = buf[..unit.len].to_vec();
            let good = parse_unit(&frame, Some(unit.segment_len)).filter(Result::is_ok).count();
            assert!(good == unit.segments && (1..=packets).contains(&good), "{unit:?}");
            let wire = &mut self.nodes[1 - from].wire;
            if wire.len() < WIRE {
                wire.push_back((frame, unit.segment_len));
            }
        }
        units
    }

    /// Delivers everything, and what comes of it, while time stands still.
    pub(super) fn settle(&mut self) {
        for _ in 0..STORM {
            let mut sent = 0;
            for to in [0, 1] {
                for (frame, segment_len) in std::mem::take(&mut self.nodes[to].wire) {
                    self.nodes[to].deliver(self.now, &frame, segment_len);
                }
            }
            for from in [0, 1] {
                let units = self.transmit(from, 4, BURST);
                assert!(units < BURST, "a device that never stops");
                sent += units;
            }
            if sent == 0 {
                return;
            }
        }
        panic!("a storm");
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
        self.timeouts();
    }

    /// To the next deadline. False: there is none.
    pub(super) fn jump(&mut self) -> bool {
        let next = self.nodes.iter_mut().filter_map(|node| node.device.poll_timeout()).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        self.timeouts();
        true
    }

    fn timeouts(&mut self) {
        for node in &mut self.nodes {
            node.device.handle_timeout(self.now);
            node.collect();
        }
    }

    /// Both consumers close everything, and time passes: nothing may be left.
    pub(super) fn finish(mut self) {
        for at in [0, 1] {
            let node = &mut self.nodes[at];
            for qpn in std::mem::take(&mut node.qpns) {
                node.device.destroy_qp(qpn);
            }
            if let Some(srq) = node.srq {
                node.device.destroy_srq(srq).expect("its queue pairs are gone");
            }
            node.collect();
            assert!(node.posted.is_empty(), "never completed: {:?}", node.posted);
            for (conn, _) in node.conns.clone() {
                node.device.release(self.now, conn);
            }
            node.collect();
            (0..KEYS as u8).for_each(|key| node.deregister(key));
            assert!(node.conns.iter().all(|(_, told)| told & CLOSED != 0), "never closed");
        }
        // The wire is cut from here on.
        for _ in 0..TIMERS {
            for at in [0, 1] {
                assert!(self.transmit(at, 4, BURST) < BURST);
                self.nodes[at].wire.clear();
                self.nodes[at].collect();
            }
            if !self.jump() {
                let mut regions = self.nodes.iter().flat_map(|node| &node.memory.0);
                assert!(regions.all(|region| !region.live), "never given back");
                return;
            }
        }
        panic!("a timer that never ends");
    }
}

/// One packet as a frame.
pub(super) fn emit(encap: &Encap, bth: &Bth, ext: &Ext, payload: &[u8]) -> Vec<u8> {
    let len = encap.header_len() + segment_len(ext.len(), payload.len());
    let mut buf = vec![0; len];
    let template = Template::new(encap);
    let mut unit = UnitWriter::new(&mut buf, &template, encap.ip_id);
    let Ok(()) = unit.push(bth, ext, payload.len(), |out| {
        out.copy_from_slice(payload);
        Ok::<(), Infallible>(())
    });
    assert_eq!(unit.finish().len, len);
    buf
}

/// The first packet of a unit.
pub(super) fn first(frame: &[u8], segment_len: usize) -> Option<Packet<'_>> {
    parse_unit(frame, Some(segment_len)).next()?.ok()
}
