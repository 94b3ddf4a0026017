//! The first pass over a capture: totals, connections, and which queue pairs speak to each other.
//!
//! A packet names the queue pair that it is for, not the one that sent it. Both sides of a connection use one UDP source
//! port, and a response has the PSN of a request: where no connection management was captured, these tell who speaks to whom.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;

use rocev2::wire::DropReason;

use super::connection::Connections;
use super::packet::{Frame, Packet, Standing, Transport};

/// The packets from an address to a queue pair.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Flow {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) dest_qpn: u32,
    /// Datagrams name the queue pair that sent them.
    pub(super) src_qpn: Option<u32>,
}

impl Flow {
    /// The flow of a packet for a queue pair of a consumer.
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let src_qpn = match packet.transport {
            Transport::Ud => Some(packet.ext?.deth()?.src_qpn.get()),
            Transport::Rc | Transport::Uc | Transport::Other => None,
        };
        let dest_qpn = packet.bth.dest_qpn.get();
        (!packet.is_management()).then_some(Self {
            src: packet.src,
            dst: packet.dst,
            dest_qpn,
            src_qpn,
        })
    }
}

/// Counts of a whole capture.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) frames: u64,
    pub(super) roce: u64,
    pub(super) other: u64,
    /// Since the first frame, of the last one.
    pub(super) duration_ns: u64,
    pub(super) cut: u64,
    /// With a wrong ICRC; the first frame of them.
    pub(super) icrc: u64,
    pub(super) icrc_first: Option<(u64, u64)>,
    /// By the reason for which a receiver drops them; without a wrong ICRC.
    pub(super) malformed: BTreeMap<usize, u64>,
    pub(super) malformed_first: Option<(u64, u64)>,
    /// By opcode, whatever their standing.
    pub(super) opcodes: BTreeMap<u8, u64>,
    /// Packets of flows beyond [`FLOWS_MAX`].
    pub(super) not_followed: u64,
}

impl Totals {
    fn refuse(&mut self, number: u64, at_ns: u64, reason: DropReason) {
        if reason == DropReason::Icrc {
            self.icrc += 1;
            self.icrc_first.get_or_insert((number, at_ns));
        } else {
            *self.malformed.entry(reason.index()).or_default() += 1;
            self.malformed_first.get_or_insert((number, at_ns));
        }
    }
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) first_frame: u64,
    pub(super) transport: Transport,
    src_port: u16,
    /// Bytes of the longest packet that fills the path MTU.
    pub(super) full_packet: Option<u64>,
}

/// All that the first pass finds.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) totals: Totals,
    pub(super) connections: Connections,
    pub(super) flows: HashMap<Flow, Facts>,
    votes: HashMap<(Flow, Flow), u64>,
    /// The flows that sent a request of a PSN, of the last requests.
    requests: HashMap<(IpAddr, IpAddr, u32), Vec<Flow>>,
    recent: VecDeque<(IpAddr, IpAddr, u32)>,
}

impl Survey {
    pub(super) fn take(&mut self, number: u64, at_ns: u64, frame: &Frame) {
        self.totals.frames += 1;
        self.totals.duration_ns = self.totals.duration_ns.max(at_ns);
        let packet = match frame {
            Frame::Other => {
                self.totals.other += 1;
                return;
            }
            Frame::Malformed(reason) => {
                self.totals.roce += 1;
                return self.totals.refuse(number, at_ns, *reason);
            }
            Frame::Roce(packet) => packet,
        };
        self.totals.roce += 1;
        *self.totals.opcodes.entry(packet.bth.opcode).or_default() += 1;
        match packet.standing {
            Standing::Sound => {}
            Standing::Cut => self.totals.cut += 1,
            Standing::Bad(reason) => return self.totals.refuse(number, at_ns, reason),
        }
        if packet.is_management() {
            self.connections.take(packet);
        } else if let Some(flow) = Flow::of(packet) {
            self.follow(flow, packet);
        }
        for ack in packet.listed() {
            if let Some(flow) = Flow::of(&ack) {
                self.follow(flow, &ack);
            }
        }
    }

    fn follow(&mut self, flow: Flow, packet: &Packet) {
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&flow) {
            self.totals.not_followed += 1;
            return;
        }
        let facts = self.flows.entry(flow).or_insert(Facts {
            first_frame: packet.number,
            transport: packet.transport,
            src_port: packet.src_port,
            full_packet: None,
        });
        if facts.transport == Transport::Other {
            facts.transport = packet.transport;
        }
        // All packets of a message but its last one fill the path MTU.
        if packet.place().is_some_and(|place| !place.is_last()) {
            facts.full_packet = facts.full_packet.max(Some(packet.payload_len));
        }
        if packet.transport == Transport::Rc {
            self.vote(flow, packet);
        }
    }

    /// Lets a response tell whose request it answers.
    fn vote(&mut self, flow: Flow, packet: &Packet) {
        let psn = packet.psn().get();
        if packet.is_request() {
            let key = (flow.src, flow.dst, psn);
            let flows = self.requests.entry(key).or_default();
            if !flows.contains(&flow) && flows.len() < SAME_PSN_MAX {
                flows.push(flow);
            }
            self.recent.push_back(key);
            if self.recent.len() > RECENT_MAX
                && let Some(oldest) = self.recent.pop_front()
            {
                self.requests.remove(&oldest);
            }
        } else if packet.is_response()
            && let Some(flows) = self.requests.get(&(flow.dst, flow.src, psn))
        {
            for requests in flows {
                let same_port =
                    self.flows.get(requests).is_some_and(|facts| facts.src_port == packet.src_port);
                let votes = self.votes.entry((*requests, flow)).or_default();
                *votes += if same_port { PORT_VOTES } else { 1 };
            }
        }
    }

    /// Pairs of connected flows that are not `taken`, likely ones first.
    pub(super) fn pairs(&self, taken: &dyn Fn(&Flow) -> bool) -> Vec<[Flow; 2]> {
        let mut candidates: Vec<(u64, [Flow; 2])> =
            self.votes.iter().map(|((one, other), votes)| (*votes, [*one, *other])).collect();
        candidates.extend(self.by_port());
        // The flows break ties, so that each run says the same.
        candidates.sort_by_key(|(votes, flows)| (u64::MAX - votes, *flows));
        let mut used = HashSet::new();
        let mut pairs = Vec::new();
        for (_, flows) in candidates {
            if !flows.iter().any(|flow| taken(flow) || used.contains(flow)) {
                used.extend(flows);
                pairs.push(flows);
            }
        }
        pairs
    }

    /// Flows between two addresses that are alone with their port, or alone at all.
    fn by_port(&self) -> Vec<(u64, [Flow; 2])> {
        let connected = || self.flows.iter().filter(|(flow, _)| flow.src_qpn.is_none());
        let mut groups: HashMap<(IpAddr, IpAddr, Option<u16>), Vec<Flow>> = HashMap::new();
        for (flow, facts) in connected() {
            for port in [Some(facts.src_port), None] {
                groups.entry((flow.src, flow.dst, port)).or_default().push(*flow);
            }
        }
        let alone = |key: &(IpAddr, IpAddr, Option<u16>)| match groups.get(key).map(Vec::as_slice) {
            Some([flow]) => Some(*flow),
            _ => None,
        };
        let pair = |key: &(IpAddr, IpAddr, Option<u16>)| {
            let (src, dst, port) = *key;
            (src < dst).then_some([alone(key)?, alone(&(dst, src, port))?])
        };
        groups.keys().filter_map(pair).map(|flows| (0, flows)).collect()
    }
}

/// Flows that are followed.
const FLOWS_MAX: usize = 1 << 17;
/// Requests whose responses are looked for.
const RECENT_MAX: usize = 1 << 16;
/// Flows between two addresses that may have sent one PSN.
const SAME_PSN_MAX: usize = 8;
/// The weight of a response from the port of its request.
const PORT_VOTES: u64 = 16;
