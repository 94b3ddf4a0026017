//! The network: a device for each sender and one receiver, a link each, and the switch port that all
//! senders share.

mod host;

use crate::outcome::Outcome;
use driver::Limits;
use host::Host;
use rocev2::cm::{CmConfig, CmEvent, Hop, ReadLimits};
use rocev2::counters::Counter;
use rocev2::env::{Fault, Instant, Memory, RegionId, Rng};
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, PdId, Registration};
use rocev2::qp::{DcqcnConfig, QpConfig, SendOp, SendWr, SgList, Sge, WcStatus, Window};
use rocev2::wire::Mac;
use rocev2::{Connect, Device, DeviceConfig, Event, LinkEnd, Opening};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tests::switch::{Passage, Port, PortConfig, wire_ns};

/// What a run is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Nodes 1 and up; node 0 is the receiver.
    pub senders: usize,
    /// Bytes that the port keeps.
    pub buffer: u64,
    pub load: Load,
    /// Bytes of a message.
    pub message: u32,
    /// Congestion control is on at all nodes.
    pub control: bool,
    pub wire: Wire,
    /// The receiver keeps what comes behind a loss. Hardware and rxe drop it.
    pub holds: bool,
    pub seed: u8,
    /// Simulated, from the first packet of data.
    pub milliseconds: usize,
    /// Of 1000 packets, lost on their way by chance, once the senders are connected.
    pub loss: u32,
    /// Nanoseconds from a node to the switch, and from the switch to a node.
    pub delay: u64,
    /// Messages that a stream has posted at any time.
    pub depth: usize,
    /// All nodes share one processor, and are joined in its memory.
    pub one_host: bool,
}

impl Default for Scenario {
    /// Eight senders of long WRITEs, for 200 ms, without control, to a receiver that drops.
    fn default() -> Self {
        Self {
            senders: 8,
            buffer: 128 << 10,
            load: Load::Streams,
            message: 128 << 10,
            control: false,
            wire: Wire::Marks,
            holds: false,
            seed: 7,
            milliseconds: 200,
            loss: 0,
            delay: 5_000,
            depth: 8,
            one_host: false,
        }
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Load {
    /// Each sender has so many WRITEs posted at any time.
    Streams,
    /// The same by READs of the receiver.
    ReadStreams,
    /// Each sender WRITEs one message; when all have arrived, the next round begins.
    WriteRounds,
    /// The same by READs of the receiver.
    ReadRounds,
}

impl Load {
    /// Each message is followed by the next, whatever the other senders do.
    const fn is_stream(self) -> bool {
        matches!(self, Self::Streams | Self::ReadStreams)
    }

    /// The receiver asks for the data.
    const fn reads(self) -> bool {
        matches!(self, Self::ReadStreams | Self::ReadRounds)
    }
}

/// What the switch does before it drops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wire {
    /// It marks.
    Marks,
    /// Nothing.
    OnlyDrops,
}

/// Runs one scenario.
pub(crate) fn run(scenario: Scenario) -> Outcome {
    let mut net = Net::new(scenario);
    net.connect();
    net.start = net.now;
    net.outcome = Outcome::new(&scenario);
    let end = net.start + scenario.milliseconds as u64 * 1_000_000;
    let posts = if scenario.load.is_stream() { scenario.depth } else { 1 };
    for sender in 1..=scenario.senders {
        for _ in 0..posts {
            net.post(sender);
        }
    }
    while net.step(end) {}
    net.outcome.cnps = net.nodes[0].device.counters().get(Counter::NpCnpSent);
    net.outcome
}

/// Bytes per second of every link, and of the port.
pub(crate) const LINK: u64 = 1_250_000_000;
/// How irregular a host's packets are, at most.
const JITTER_NS: u32 = 1_000;

/// No message is longer.
const MESSAGE_MAX: u32 = 1 << 20;
const PORT: u16 = 18515;
const PD: PdId = PdId(1);
const LIMITS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

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
    /// Of a sender, and of the receiver for it.
    qpn: Qpn,
    peer: Qpn,
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
    port: Port,
    rng: Rng,
    buf: Vec<u8>,
    /// When what is under way was posted, oldest first, by sender.
    posted: Vec<VecDeque<u64>>,
    outcome: Outcome,
    host: Host,
}

fn address(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node as u8))
}

const fn mac(node: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, node as u8])
}

impl Node {
    fn new(node: usize, scenario: Scenario) -> Self {
        let reorder_bytes = if scenario.holds { Window::default().reorder_bytes } else { 0 };
        let mut device = Device::new(DeviceConfig {
            seed: [node as u8 ^ scenario.seed.rotate_left(4); 32],
            addresses: vec![address(node)],
            link: LinkEnd::default(),
            mtu: 4200,
            socket: false,
            max_qps: scenario.senders + 8,
            max_mrs: 16,
            max_queued_mappings: None,
            max_reads: LIMITS.inbound,
            retry_count: 7,
            opening: Opening::default(),
            window: Window { reorder_bytes, ..Window::default() },
            reorder_pool: Limits::default().reorder_pool,
            dcqcn: scenario.control.then(DcqcnConfig::default),
            short_ways: true,
            cm: CmConfig { ca_guid: node as u64 + 1, ..CmConfig::default() },
        });
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let len = u64::from(MESSAGE_MAX);
        let registration = Registration { pd: PD, region: RegionId(0), base: 0, len, access };
        let key = device.register(registration).expect("there is room for a registration");
        Self { device, key, qpn: Qpn::default(), peer: Qpn::default(), free_at: 0, idle: false }
    }

    fn create_qp(&mut self, depth: usize) -> Qpn {
        let config = QpConfig {
            owner: 0,
            pd: PD,
            send_depth: depth,
            send_sge: 16,
            recv_depth: 1,
            recv_sge: 16,
            srq: None,
        };
        self.device.create_qp(&config).expect("there is room for a queue pair")
    }
}

impl Net {
    fn new(scenario: Scenario) -> Self {
        Self {
            nodes: (0..=scenario.senders).map(|node| Node::new(node, scenario)).collect(),
            scenario,
            now: 1,
            start: 0,
            arrivals: BTreeMap::new(),
            departures: 0,
            port: Port::new(PortConfig {
                rate: LINK,
                buffer: scenario.buffer,
                marks: scenario.wire == Wire::Marks,
            }),
            rng: Rng::from_seed([scenario.seed; 32]),
            buf: vec![0; 65_553],
            posted: vec![VecDeque::new(); scenario.senders],
            outcome: Outcome::new(&scenario),
            host: Host::new(scenario.senders + 1),
        }
    }

    /// Connects every sender to the receiver.
    fn connect(&mut self) {
        let receiver = &mut self.nodes[0].device;
        receiver.bind_port(address(0), PORT).expect("the port is free");
        receiver
            .listen(SocketAddr::new(address(0), PORT), self.scenario.senders)
            .expect("nobody listens yet");
        let mut established = 0;
        for sender in 1..=self.scenario.senders {
            let qpn = self.nodes[sender].create_qp(self.scenario.depth);
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
        while established < self.scenario.senders {
            assert!(self.step(u64::MAX), "nobody has anything to say");
            for node in 0..=self.scenario.senders {
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
            Event::Cm(CmEvent::ConnectRequest { conn, peer, .. }) => {
                let qpn = node.create_qp(self.scenario.depth);
                node.device.accept(now, *conn, qpn, LIMITS, &[]).expect("the peer waits");
                let IpAddr::V4(ip) = peer.remote.ip() else { panic!("{peer:?}") };
                self.nodes[usize::from(ip.octets()[3])].peer = qpn;
            }
            Event::Cm(CmEvent::Connected { conn, .. }) => {
                node.device.confirm(now, *conn).expect("the peer waits");
            }
            Event::Cm(CmEvent::Established { .. }) => return true,
            other => panic!("{other:?}"),
        }
        false
    }

    /// Posts a sender's next message: at the sender a WRITE, or at the receiver a READ.
    fn post(&mut self, sender: usize) {
        let reads = self.scenario.load.reads();
        let (poster, other) = if reads { (0, sender) } else { (sender, 0) };
        let rkey = self.nodes[other].key;
        let qpn = if reads { self.nodes[sender].peer } else { self.nodes[sender].qpn };
        let node = &mut self.nodes[poster];
        let (len, lkey) = (self.scenario.message, Lkey::new(node.key.get()));
        let wr = SendWr {
            id: sender as u64,
            op: if reads { SendOp::Read { va: 0, rkey } } else { SendOp::Write { va: 0, rkey } },
            sgl: SgList::from_slice(&[Sge { addr: 0, len, lkey }]).expect("one element fits"),
            solicited: false,
            read_fence: false,
            silent: false,
        };
        node.device.post_send(qpn, wr).expect("the queue has room");
        node.idle = false;
        self.posted[sender - 1].push_back(self.now);
    }

    /// A message of a sender has arrived and is acknowledged.
    fn complete(&mut self, sender: usize) {
        let posted = self.posted[sender - 1].pop_front().expect("it was posted");
        let ms = (self.now - self.start) as usize / 1_000_000;
        self.outcome.complete(sender - 1, ms, self.now - posted);
        if self.scenario.load.is_stream() {
            self.post(sender);
        } else if self.posted.iter().all(VecDeque::is_empty) {
            (1..=self.scenario.senders).for_each(|sender| self.post(sender));
        }
    }

    /// Goes to the next instant at which something happens; false where there is none before `end`.
    fn step(&mut self, end: u64) -> bool {
        if self.scenario.one_host {
            return self.take_turn(end);
        }
        for node in 0..=self.scenario.senders {
            self.transmit(node);
        }
        let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
        let timeout = self.nodes.iter_mut().filter_map(|node| node.device.poll_timeout()).min();
        let busy = self.nodes.iter().filter(|node| !node.idle).map(|node| node.free_at);
        let next = busy.chain(timeout.map(Instant::as_nanos)).chain(arrival).min();
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
        node.free_at = self.now + wire_ns(frame.len(), LINK) + late;
        let at = node.free_at + self.scenario.delay;
        if self.is_lost() {
            return;
        }
        let arrival = match (from, usize::from(frame[IP_DESTINATION_END])) {
            (0, to) => Arrival::Node(to, frame),
            _ => Arrival::Port(frame),
        };
        let at = if from == 0 { at + self.scenario.delay } else { at };
        self.depart(at, arrival);
    }

    /// Whether chance takes the next packet. Without loss it is not asked: the figures stay what they were.
    fn is_lost(&mut self) -> bool {
        let loss = self.scenario.loss;
        loss > 0 && self.start > 0 && self.rng.below(1000) < loss
    }

    fn depart(&mut self, at: u64, arrival: Arrival) {
        self.arrivals.insert((at, self.departures), arrival);
        self.departures += 1;
    }

    /// A packet comes to the port towards the receiver: it waits there, perhaps marked, or is dropped.
    fn queue(&mut self, mut frame: Vec<u8>) {
        let waiting = self.port.waiting(self.now);
        let packet = packet_of(&frame);
        let passage = self.port.pass(self.now, &mut frame, &mut self.rng);
        let ms = self.now.saturating_sub(self.start) as usize / 1_000_000;
        self.outcome.arrive(ms, waiting, passage == Passage::Dropped, packet);
        if let Passage::Leaves { at, marked } = passage {
            self.outcome.marked += u64::from(marked);
            self.depart(at + self.scenario.delay, Arrival::Node(0, frame));
        }
    }

    fn deliver(&mut self, to: usize, frame: &[u8]) {
        self.deliver_at(Instant::from_nanos(self.now), to, frame);
    }

    fn deliver_at(&mut self, now: Instant, to: usize, frame: &[u8]) {
        let node = &mut self.nodes[to];
        node.device.handle_frame(now, frame, None, &mut Nothing);
        node.idle = false;
        while let Some(completion) = self.nodes[to].device.poll_completion() {
            assert_eq!(completion.status, WcStatus::Success, "of sender {}", completion.id);
            self.complete(completion.id as usize);
        }
    }
}

/// Whose packet it is, and its PSN: what tells a packet from one that is sent again.
fn packet_of(frame: &[u8]) -> (u8, [u8; 3]) {
    (frame[IP_SOURCE_END], [frame[PSN], frame[PSN + 1], frame[PSN + 2]])
}

const IP_SOURCE_END: usize = 14 + 15;
const PSN: usize = 14 + 20 + 8 + 9;
const IP_DESTINATION_END: usize = 14 + 19;
