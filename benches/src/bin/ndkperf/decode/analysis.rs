//! The second pass over a capture: each packet takes its place in its conversation.

use super::connection::{CmKind, Connection, reason_text};
use super::conversation::{Conversations, Evidence};
use super::direction::Mark;
use super::findings::{Finding, Findings, Kind};
use super::packet::{Frame, Packet, Standing, Transport};
use super::survey::Survey;

/// The state of the second pass.
pub(super) struct Analysis {
    pub(super) survey: Survey,
    pub(super) conversations: Conversations,
    qpn: Option<u32>,
    findings: Findings,
}

/// A packet in its place.
pub(super) struct Step<'a> {
    pub(super) packet: &'a Packet,
    pub(super) conversation: Option<usize>,
    pub(super) mark: Option<Mark>,
}

/// All that is told of a capture.
pub(super) struct Report {
    pub(super) survey: Survey,
    pub(super) conversations: Conversations,
    pub(super) findings: Vec<Finding>,
    /// The time of the first frame.
    pub(super) start_ns: u64,
    /// The reason for which the rest of the file was not read.
    pub(super) error: Option<String>,
}

impl Analysis {
    pub(super) fn new(survey: Survey, qpn: Option<u32>) -> Self {
        let conversations = Conversations::of(&survey);
        Self { survey, conversations, qpn, findings: Findings::default() }
    }

    /// Whether the conversation is asked for.
    fn is_shown(&self, conversation: Option<usize>) -> bool {
        let Some(qpn) = self.qpn else { return true };
        let conversation = conversation.and_then(|index| self.conversations.all.get(index));
        conversation.is_some_and(|it| it.ends.iter().any(|end| end.qpn == Some(qpn)))
    }

    /// Takes a frame; the step of a packet that is asked for.
    pub(super) fn take<'a>(&mut self, frame: &'a Frame) -> Option<Step<'a>> {
        let Frame::Roce(packet) = frame else { return None };
        let step = if packet.is_management() { self.manage(packet) } else { self.place(packet) };
        packet.listed().for_each(|ack| self.place_listed(&ack));
        self.is_shown(step.conversation).then_some(step)
    }

    fn manage<'a>(&self, packet: &'a Packet) -> Step<'a> {
        let connections = &self.survey.connections;
        let index = connections.index_of(packet.number);
        let conversation = index.and_then(|index| self.conversations.of_connection(index));
        Step { packet, conversation, mark: None }
    }

    fn place<'a>(&mut self, packet: &'a Packet) -> Step<'a> {
        let found = self.conversations.find(packet);
        let Some((index, sender)) = found else {
            return Step { packet, conversation: None, mark: None };
        };
        let conversation = &mut self.conversations.all[index];
        conversation.packets += 1;
        let released = conversation.released;
        let direction = &mut conversation.directions[sender];
        if packet.is_marked || packet.is_cnp() {
            direction.first_congestion.get_or_insert((packet.number, packet.at_ns));
        }
        let counts = &mut direction.counts;
        *counts.packets.entry(packet.bth.opcode).or_default() += 1;
        counts.marked += u64::from(packet.is_marked);
        counts.markable += u64::from(packet.is_markable);
        counts.cnps += u64::from(packet.is_cnp());
        let mut mark = None;
        if matches!(packet.standing, Standing::Bad(_)) {
            counts.bad += 1;
        } else if packet.is_response() && packet.transport == Transport::Rc {
            let mut sink = self.findings.about(index, 1 - sender);
            mark = Some(conversation.directions[1 - sender].response(packet, &mut sink));
        } else if packet.is_request() {
            let mut sink = self.findings.about(index, sender);
            if let Some((frame, _)) = released.filter(|(frame, _)| *frame < packet.number) {
                sink.add(Kind::AfterRelease, packet.number, packet.at_ns, || {
                    format!(
                        "request of PSN {:#08x} comes after the DREQ of frame {frame}",
                        packet.psn().get()
                    )
                });
            }
            let direction = &mut conversation.directions[sender];
            if packet.transport == Transport::Ud {
                direction.counts.request_packets += 1;
                direction.tally(packet);
            } else {
                mark = Some(direction.request(packet, &mut sink));
            }
        }
        Step { packet, conversation: Some(index), mark }
    }

    /// Takes an ACK of a list for what it says; the packet counts as one of the first queue pair.
    fn place_listed(&mut self, ack: &Packet) {
        let found = self.conversations.find(ack);
        let Some((index, sender)) = found else { return };
        let mut sink = self.findings.about(index, 1 - sender);
        self.conversations.all[index].directions[1 - sender].response(ack, &mut sink);
    }

    /// Ends the pass.
    pub(super) fn finish(mut self, start_ns: u64, error: Option<String>) -> Report {
        let end_ns = self.survey.totals.duration_ns;
        for (index, conversation) in self.conversations.all.iter_mut().enumerate() {
            for (sender, direction) in conversation.directions.iter_mut().enumerate() {
                let mut sink = self.findings.about(index, sender);
                if conversation.transport == Transport::Rc {
                    let is_answered = conversation.evidence != Evidence::None;
                    direction.finish(end_ns, is_answered, &mut sink);
                }
                let again = direction.causes.total();
                if again > 0
                    && let Some((frame, at_ns)) = direction.first_again
                {
                    let requests = direction.counts.request_packets;
                    sink.add(Kind::Resent, frame, at_ns, || {
                        format!("{again} of {requests} request packets were sent again")
                    });
                }
                if let Some((frame, at_ns)) = direction.first_congestion {
                    let counts = &direction.counts;
                    sink.add(Kind::Congestion, frame, at_ns, || {
                        let (marked, cnps) = (counts.marked, counts.cnps);
                        format!("{marked} packets carry a mark of congestion, and {cnps} are CNPs")
                    });
                }
            }
        }
        self.judge_connections();
        self.judge_capture();
        let Self { survey, conversations, findings, .. } = self;
        Report { survey, conversations, findings: findings.into_sorted(), start_ns, error }
    }

    fn judge_connections(&mut self) {
        for (index, connection) in self.survey.connections.all.iter().enumerate() {
            let mut sink = match self.conversations.of_connection(index) {
                Some(conversation) => self.findings.about(conversation, 0),
                None => self.findings.capture(),
            };
            for (kind, frame, at_ns, text) in judge(connection) {
                sink.add_each(kind, frame, at_ns, text);
            }
        }
    }

    fn judge_capture(&mut self) {
        let totals = &self.survey.totals;
        let mut sink = self.findings.capture();
        if let Some((frame, at_ns)) = totals.icrc_first {
            sink.add(Kind::WrongIcrc, frame, at_ns, || {
                format!("{} packets have a wrong ICRC: a receiver drops them", totals.icrc)
            });
        }
        if let Some((frame, at_ns)) = totals.malformed_first {
            let malformed: u64 = totals.malformed.values().sum();
            sink.add(Kind::Malformed, frame, at_ns, || {
                format!("{malformed} packets are malformed")
            });
        }
    }
}

/// The findings about a connection.
fn judge(connection: &Connection) -> Vec<(Kind, u64, u64, String)> {
    let mut found = Vec::new();
    let first = |fits: fn(CmKind) -> bool| connection.first(fits);
    let (req, rep) = (first(|kind| kind == CmKind::Req), first(|kind| kind == CmKind::Rep));
    let [active, passive] = connection.ends.map(|end| end.address);
    if let Some(rej) = first(|kind| matches!(kind, CmKind::Rej(_)))
        && let CmKind::Rej(reason) = rej.kind
    {
        let by = connection.ends[rej.sender].address;
        let text = format!(
            "REJ: {by} refuses the connection of {active} to {passive}: {}",
            reason_text(reason)
        );
        found.push((Kind::Rejected, rej.frame, rej.at_ns, text));
    } else if let Some(req) = req
        && rep.is_none()
    {
        let times = connection.events.iter().filter(|event| event.kind == CmKind::Req).count();
        let text = format!("REQ of {active} to {passive} was sent {times} times and not answered");
        found.push((Kind::ConnectionUnanswered, req.frame, req.at_ns, text));
    }
    let drep = first(|kind| kind == CmKind::Drep);
    if let Some(dreq) = first(|kind| kind == CmKind::Dreq)
        && drep.is_none()
    {
        let text = format!("DREQ of {} was not answered", connection.ends[dreq.sender].address);
        found.push((Kind::ConnectionUnanswered, dreq.frame, dreq.at_ns, text));
    }
    found
}
