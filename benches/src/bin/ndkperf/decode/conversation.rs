//! Conversations: pairs of queue pairs, each with the packets of both directions.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::connection::Connection;
use super::direction::Direction;
use super::packet::{Link, Packet, Transport};
use super::survey::{Flow, Survey};

/// A side of a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) address: IpAddr,
    pub(super) qpn: Option<u32>,
}

/// The evidence that two queue pairs belong together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Evidence {
    /// Connection management was captured.
    Connection(usize),
    /// PSNs, ports and addresses.
    Inference,
    /// Datagrams name both.
    Datagram,
    /// Only one direction was captured.
    None,
}

/// Two queue pairs.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) ends: [End; 2],
    /// Over which each side sent its messages of connection management.
    links: [Option<Link>; 2],
    pub(super) evidence: Evidence,
    pub(super) transport: Transport,
    pub(super) path_mtu: Option<u64>,
    /// The frame from which on packets between these ends belong to it.
    pub(super) from_frame: u64,
    /// The requests of each side, with the responses of the other.
    pub(super) directions: [Direction; 2],
    pub(super) packets: u64,
    /// The frame and time of the first DREQ.
    pub(super) released: Option<(u64, u64)>,
}

/// All conversations of a capture, in the order of their first frames.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    pub(super) all: Vec<Conversation>,
    /// The conversations of a flow, in the order of their first frames, and which side sends it.
    by_flow: HashMap<Flow, Vec<(u64, usize, usize)>>,
    by_connection: HashMap<usize, usize>,
}

impl Conversations {
    pub(super) fn of(survey: &Survey) -> Self {
        let mut found: Vec<([End; 2], Evidence, u64)> = Vec::new();
        for (index, connection) in survey.connections.all.iter().enumerate() {
            found.extend(established(connection, index));
        }
        let taken: HashSet<Flow> = found.iter().flat_map(|(ends, ..)| flows(ends)).collect();
        let mut used = taken.clone();
        for [one, other] in survey.pairs(&|flow| taken.contains(flow)) {
            let first = [one, other].into_iter().filter_map(|flow| survey.flows.get(&flow));
            let first = first.map(|facts| facts.first_frame).min().unwrap_or(0);
            let ends = [
                End { address: one.src, qpn: Some(other.dest_qpn) },
                End { address: one.dst, qpn: Some(one.dest_qpn) },
            ];
            used.extend([one, other]);
            found.push((ends, Evidence::Inference, first));
        }
        for (flow, facts) in survey.flows.iter().filter(|(flow, _)| !used.contains(flow)) {
            let evidence = if flow.src_qpn.is_some() { Evidence::Datagram } else { Evidence::None };
            let ends = [
                End { address: flow.src, qpn: flow.src_qpn },
                End { address: flow.dst, qpn: Some(flow.dest_qpn) },
            ];
            found.push((ends, evidence, facts.first_frame));
        }
        found.sort_by_key(|(ends, _, first)| (*first, ends[0].address, ends[0].qpn, ends[1].qpn));
        let mut conversations = Self::default();
        for (ends, evidence, from_frame) in found {
            conversations.add(survey, ends, evidence, from_frame);
        }
        conversations
    }

    /// The conversation of a packet, and the side that sent it: of several of its flow the latest one over its link, or else the latest.
    pub(super) fn find(&self, packet: &Packet) -> Option<(usize, usize)> {
        let known = self.by_flow.get(&Flow::of(packet)?)?;
        let begun = || known.iter().rev().filter(|(from, ..)| *from <= packet.number);
        let here = begun().find(|(_, conversation, sender)| {
            self.all[*conversation].links[*sender] == Some(packet.link)
        });
        let latest = here.or_else(|| begun().next()).or(known.first());
        latest.map(|(_, conversation, sender)| (*conversation, *sender))
    }

    /// The conversation of a connection.
    pub(super) fn of_connection(&self, connection: usize) -> Option<usize> {
        self.by_connection.get(&connection).copied()
    }

    fn add(&mut self, survey: &Survey, ends: [End; 2], evidence: Evidence, from_frame: u64) {
        // A datagram in the other direction belongs to the conversation that is there.
        let [one, other] = ends;
        if evidence == Evidence::Datagram
            && let Some((_, index, _)) =
                self.by_flow.get(&datagrams(&[other, one])).and_then(|known| known.first()).copied()
        {
            self.by_flow.entry(datagrams(&ends)).or_default().push((from_frame, index, 1));
            return;
        }
        let index = self.all.len();
        let connection = match evidence {
            Evidence::Connection(connection) => {
                self.by_connection.insert(connection, index);
                survey.connections.all.get(connection)
            }
            Evidence::Inference | Evidence::Datagram | Evidence::None => None,
        };
        let sent =
            if evidence == Evidence::Datagram { vec![datagrams(&ends)] } else { flows(&ends) };
        let facts: Vec<_> = sent.iter().filter_map(|flow| survey.flows.get(flow)).collect();
        let path_mtu = connection.and_then(|connection| connection.path_mtu);
        let path_mtu =
            path_mtu.or_else(|| facts.iter().filter_map(|facts| facts.full_packet).max());
        let transport =
            facts.iter().map(|facts| facts.transport).find(|it| *it != Transport::Other);
        let links =
            [0, 1].map(|side: usize| connection.and_then(|connection| connection.ends[side].link));
        let starting_psn =
            [0, 1].map(|side: usize| connection.and_then(|it| it.ends[side].starting_psn));
        let released = connection
            .and_then(|connection| connection.first(|kind| kind == super::connection::CmKind::Dreq))
            .map(|event| (event.frame, event.at_ns));
        for flow in sent {
            let sender = usize::from(
                flow.src != ends[0].address || flow.dest_qpn != ends[1].qpn.unwrap_or(u32::MAX),
            );
            self.by_flow.entry(flow).or_default().push((from_frame, index, sender));
        }
        self.all.push(Conversation {
            ends,
            links,
            evidence,
            transport: transport.unwrap_or(Transport::Rc),
            path_mtu,
            from_frame,
            directions: starting_psn.map(|psn| Direction::new(psn, path_mtu)),
            packets: 0,
            released,
        });
    }
}

/// The ends of a connection whose queue pairs are both known.
fn established(connection: &Connection, index: usize) -> Option<([End; 2], Evidence, u64)> {
    let ends = connection.ends.map(|end| End { address: end.address, qpn: end.qpn });
    let first = connection.events.first()?.frame;
    (ends.iter().all(|end| end.qpn.is_some()) && !connection.is_refused()).then_some((
        ends,
        Evidence::Connection(index),
        first,
    ))
}

/// The flows of both directions.
fn flows(ends: &[End; 2]) -> Vec<Flow> {
    let to = |end: &End, from: &End| {
        let dest_qpn = end.qpn?;
        Some(Flow { src: from.address, dst: end.address, dest_qpn, src_qpn: None })
    };
    [to(&ends[1], &ends[0]), to(&ends[0], &ends[1])].into_iter().flatten().collect()
}

fn datagrams(ends: &[End; 2]) -> Flow {
    let [from, to] = ends;
    Flow { src: from.address, dst: to.address, dest_qpn: to.qpn.unwrap_or(0), src_qpn: from.qpn }
}
