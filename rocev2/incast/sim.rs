//! The network: nine devices, a link each, and the switch port that eight of them share.

use rocev2::cm::{CmConfig, CmEvent, Hop, ReadLimits};
use rocev2::device::{Connect, Device, DeviceConfig, Event};
use rocev2::env::{Duration, Fault, Instant, Memory, RegionId, Rng};
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, PdId, Registration};
use rocev2::qp::QpConfig;
use rocev2::qp::congestion::DcqcnConfig;
use rocev2::qp::requester::Window;
use rocev2::qp::work::{SendOp, SendWr, SgList, Sge, WcStatus};
use rocev2::wire::Mac;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Senders; node 0 is the receiver.
pub(crate) const SENDERS: usize = 8;
/// Milliseconds simulated, from the first packet of data.
pub(crate) const MILLISECONDS: usize = 200;

/// What a run is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Congestion control is on at all nodes.
    pub control: bool,
    pub wire: Wire,
    /// The receiver keeps what comes behind a loss.
    pub holds: bool,
}

/// What the switch does before it drops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wire {
    /// It marks.
    Marks,
    /// Nothing.
    OnlyDrops,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Bytes of completed WRITEs, by sender.
    pub bytes: [u64; SENDERS],
    /// The same in each millisecond.
    pub each_ms: Vec<[u64; SENDERS]>,
    /// Packets that reached the port, and of these dropped, and marked.
    pub packets: u64,
    pub dropped: u64,
    pub marked: u64,
    /// Notifications that the receiver sent.
    pub cnps: u64,
    /// Bytes waiting at the port, as an arriving packet finds them.
    pub mean_queue: f64,
}

impl Outcome {
    /// Data that arrived for good, over what the link can carry.
    pub(crate) fn utilization(&self) -> f64 {
        let seconds = MILLISECONDS as f64 / 1000.0;
        self.bytes.iter().sum::<u64>() as f64 / (LINK as f64 * seconds)
    }

    /// Jain's fairness index: 1 where all got the same, 1/8 where one got all.
    pub(crate) fn jain(&self) -> f64 {
        let sum = self.bytes.iter().sum::<u64>() as f64;
        let squares: f64 = self.bytes.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
        sum * sum / (SENDERS as f64 * squares)
    }

    /// Of the packets that left the port, those that were of no use.
    pub(crate) fn wasted(&self) -> f64 {
        let useful = self.bytes.iter().sum::<u64>() as f64 / 4096.0;
        1.0 - useful / (self.packets - self.dropped) as f64
    }
}

/// Runs one scenario.
pub(crate) fn run(scenario: Scenario) -> Outcome {
    let mut net = Net::new(scenario);
    net.connect();
    net.start = net.now;
    let end = net.start + MILLISECONDS as u64 * 1_000_000;
    for sender in 1..=SENDERS {
        for _ in 0..DEPTH {
            net.post(sender);
        }
    }
    while net.step(end) {}
    net.outcome.mean_queue /= net.outcome.packets as f64;
    net.outcome.cnps = net.nodes[0].device.counters().tx_cnps;
    net.outcome
}

/// Bytes per second of every link, and of the port.
const LINK: u64 = 1_250_000_000;
/// From a node to the switch, and from the switch to a node.
const DELAY_NS: u64 = 5_000;
/// Bytes that the port keeps; below the lower threshold it marks nothing, above the higher
/// everything, and at the higher one in so many before that.
const BUFFER: u64 = 128 << 10;
const MARK_FROM: u64 = 20_000;
const MARK_ALL: u64 = 100_000;
const MARK_ONE_IN: u64 = 20;
/// How irregular a host's packets are, at most.
const JITTER_NS: u32 = 1_000;
/// Preamble, FCS and gap of an Ethernet frame.
const ETHERNET: u64 = 24;

const MESSAGE: u32 = 128 << 10;
const DEPTH: usize = 8;
const PORT: u16 = 18515;
const PD: PdId = PdId(1);
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };

/// Registered bytes that nobody looks at.
struct Nothing;

impl Memory for Nothing {
    fn read(&mut self, _: RegionId, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn write(&mut self, _: RegionId, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
}

struct Node {
    device: Device,
    key: Rkey,
    /// Of a sender.
    qpn: Qpn,
    /// When its link to the switch is free.
    free_at: u64,
    /// Nothing left to send, until something happens to it.
    idle: bool,
}

enum Arrival {
    Port(Vec<u8>),
    Node(usize, Vec<u8>),
}

struct Net {
    nodes: Vec<Node>,
    scenario: Scenario,
    now: u64,
    start: u64,
    /// By time, and in the order of their departure.
    arrivals: BTreeMap<(u64, u64), Arrival>,
    departures: u64,
    port_free_at: u64,
    rng: Rng,
    buf: Vec<u8>,
    outcome: Outcome,
}

fn address(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node as u8))
}

const fn mac(node: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, node as u8])
}

impl Node {
    fn new(node: usize, scenario: Scenario) -> Self {
        let held = if scenario.holds { Window::default().held } else { 0 };
        let mut device = Device::new(DeviceConfig {
            seed: [node as u8; 32],
            addresses: vec![address(node)],
            mtu: 4200,
            max_qps: 16,
            max_mrs: 16,
            max_reads: 1,
            retry_count: 7,
            window: Window { held, ..Window::default() },
            dcqcn: scenario.control.then(DcqcnConfig::default),
            cm: CmConfig { ca_guid: node as u64 + 1, ..CmConfig::default() },
        });
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let registration =
            Registration { pd: PD, region: RegionId(0), base: 0, len: u64::from(MESSAGE), access };
        let key = device.register(registration).expect("there is room for a registration");
        Self { device, key, qpn: Qpn::default(), free_at: 0, idle: false }
    }

    fn create_qp(&mut self) -> Qpn {
        let config = QpConfig { owner: 0, pd: PD, send_depth: DEPTH, recv_depth: 1, srq: None };
        self.device.create_qp(&config).expect("there is room for a queue pair")
    }
}

impl Net {
    fn new(scenario: Scenario) -> Self {
        Self {
            nodes: (0..=SENDERS).map(|node| Node::new(node, scenario)).collect(),
            scenario,
            now: 1,
            start: 0,
            arrivals: BTreeMap::new(),
            departures: 0,
            port_free_at: 0,
            rng: Rng::from_seed([7; 32]),
            buf: vec![0; 65_553],
            outcome: Outcome { each_ms: vec![[0; SENDERS]; MILLISECONDS], ..Outcome::default() },
        }
    }

    /// Connects every sender to the receiver.
    fn connect(&mut self) {
        let receiver = &mut self.nodes[0].device;
        receiver.bind_port(address(0), PORT).expect("the port is free");
        receiver.listen(SocketAddr::new(address(0), PORT), 8).expect("nobody listens yet");
        let mut established = 0;
        for sender in 1..=SENDERS {
            let qpn = self.nodes[sender].create_qp();
            let node = &mut self.nodes[sender];
            let port = node.device.bind_port(address(sender), 0).expect("a port is free");
            let request = Connect {
                qpn,
                local: SocketAddr::new(address(sender), port),
                remote: SocketAddr::new(address(0), PORT),
                hop: Hop { src_mac: mac(sender), dst_mac: mac(0), vlan: None },
                limits: LIMITS,
                private_data: &[],
            };
            let now = Instant::from_nanos(self.now);
            node.device.connect(now, &request).expect("nothing stands against it");
            (node.qpn, node.idle) = (qpn, false);
        }
        while established < SENDERS {
            assert!(self.step(u64::MAX), "nobody has anything to say");
            for node in 0..=SENDERS {
                while let Some(event) = self.nodes[node].device.poll_event() {
                    established += usize::from(self.agree(node, &event));
                }
            }
        }
    }

    /// Says yes to everything; true once a connection is established.
    fn agree(&mut self, node: usize, event: &Event) -> bool {
        let now = Instant::from_nanos(self.now);
        let node = &mut self.nodes[node];
        node.idle = false;
        match event {
            Event::Cm(CmEvent::ConnectRequest { conn, .. }) => {
                let qpn = node.create_qp();
                node.device.accept(now, *conn, qpn, LIMITS, &[]).expect("the peer waits");
            }
            Event::Cm(CmEvent::Connected { conn, .. }) => {
                node.device.confirm(now, *conn).expect("the peer waits");
            }
            Event::Cm(CmEvent::Established { .. }) => return true,
            other => panic!("{other:?}"),
        }
        false
    }

    fn post(&mut self, sender: usize) {
        let rkey = self.nodes[0].key;
        let node = &mut self.nodes[sender];
        let sge = Sge { addr: 0, len: MESSAGE, lkey: Lkey::new(node.key.get()) };
        let wr = SendWr {
            id: 0,
            op: SendOp::Write { va: 0, rkey },
            sgl: SgList::from_slice(&[sge]).expect("one element fits"),
            solicited: false,
            read_fence: false,
            silent: false,
        };
        node.device.post_send(node.qpn, wr).expect("the queue has room");
        node.idle = false;
    }

    /// Goes to the next instant at which something happens; false where there is none before `end`.
    fn step(&mut self, end: u64) -> bool {
        for node in 0..=SENDERS {
            self.transmit(node);
        }
        let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
        let busy = self.nodes.iter().filter(|node| !node.idle).map(|node| node.free_at);
        let timeouts = self.nodes.iter().filter_map(|node| node.device.poll_timeout());
        let next = timeouts.map(Instant::as_nanos).chain(busy).chain(arrival).min();
        let Some(next) = next.filter(|next| *next < end) else { return false };
        self.now = next.max(self.now);
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| entry.key().0 <= next) {
            match entry.remove() {
                Arrival::Port(frame) => self.queue(frame),
                Arrival::Node(node, frame) => self.deliver(node, &frame),
            }
        }
        let now = Instant::from_nanos(self.now);
        for node in &mut self.nodes {
            if node.device.poll_timeout().is_some_and(|at| at <= now) {
                node.device.handle_timeout(now);
                node.idle = false;
            }
        }
        true
    }

    /// Puts the next unit of a node on its link, if that is free.
    fn transmit(&mut self, from: usize) {
        let node = &mut self.nodes[from];
        if node.idle || node.free_at > self.now {
            return;
        }
        let now = Instant::from_nanos(self.now);
        let Some(unit) = node.device.poll_transmit(now, &mut self.buf, 1, &mut Nothing) else {
            node.idle = true;
            return;
        };
        let frame = self.buf[..unit.len].to_vec();
        // No host is a clock; without this some would always find the port full, and some never.
        let late = u64::from(self.rng.below(JITTER_NS));
        node.free_at = self.now + wire_ns(&frame) + late;
        let at = node.free_at + DELAY_NS;
        let arrival = match (from, usize::from(frame[IP_DESTINATION_END])) {
            (0, to) => Arrival::Node(to, frame),
            _ => Arrival::Port(frame),
        };
        let at = if from == 0 { at + DELAY_NS } else { at };
        self.depart(at, arrival);
    }

    fn depart(&mut self, at: u64, arrival: Arrival) {
        self.arrivals.insert((at, self.departures), arrival);
        self.departures += 1;
    }

    /// A packet comes to the port towards the receiver: it waits there, perhaps marked, or is dropped.
    fn queue(&mut self, mut frame: Vec<u8>) {
        let waiting = self.port_free_at.saturating_sub(self.now) * LINK / 1_000_000_000;
        self.outcome.packets += 1;
        self.outcome.mean_queue += waiting as f64;
        if waiting + frame.len() as u64 > BUFFER {
            self.outcome.dropped += 1;
            return;
        }
        if self.marks(waiting) {
            self.outcome.marked += u64::from(mark(&mut frame));
        }
        self.port_free_at = self.port_free_at.max(self.now) + wire_ns(&frame);
        self.depart(self.port_free_at + DELAY_NS, Arrival::Node(0, frame));
    }

    /// Random early detection, without an average.
    fn marks(&mut self, waiting: u64) -> bool {
        let above = waiting.saturating_sub(MARK_FROM);
        let chance = (MARK_ALL - MARK_FROM) * MARK_ONE_IN;
        self.scenario.wire == Wire::Marks
            && (waiting >= MARK_ALL || u64::from(self.rng.below(chance as u32)) < above)
    }

    fn deliver(&mut self, to: usize, frame: &[u8]) {
        let now = Instant::from_nanos(self.now);
        let node = &mut self.nodes[to];
        node.device.handle_frame(now, frame, None, &mut Nothing);
        node.idle = false;
        while let Some(completion) = self.nodes[to].device.poll_completion() {
            assert_eq!(completion.status, WcStatus::Success, "to sender {to}");
            let ms = (self.now - self.start) as usize / 1_000_000;
            self.outcome.bytes[to - 1] += u64::from(MESSAGE);
            self.outcome.each_ms[ms][to - 1] += u64::from(MESSAGE);
            self.post(to);
        }
    }
}

fn wire_ns(frame: &[u8]) -> u64 {
    Duration::from_nanos((frame.len() as u64 + ETHERNET) * 1_000_000_000 / LINK).as_nanos() as u64
}

/// Marks an IPv4 packet that may be marked, and corrects the checksum of its header (RFC 1624).
fn mark(frame: &mut [u8]) -> bool {
    if frame[TOS] & 3 != 2 {
        return false;
    }
    frame[TOS] |= 1;
    let checksum = u16::from_be_bytes([frame[CHECKSUM], frame[CHECKSUM + 1]]);
    let (sum, carry) = (!checksum).overflowing_add(1);
    let checksum = (!(sum + u16::from(carry))).to_be_bytes();
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum);
    true
}

const TOS: usize = 14 + 1;
const CHECKSUM: usize = 14 + 10;
const IP_DESTINATION_END: usize = 14 + 19;
