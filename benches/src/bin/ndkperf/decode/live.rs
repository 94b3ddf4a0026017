//! The same analysis of frames that this process has seen, for a program that asks for facts.

use std::net::IpAddr;

use super::analysis::{Analysis, Report};
use super::capture::Record;
use super::connection::{CmKind, reason_text};
use super::packet::Frame;
use super::resend::Cause;
use super::survey::Survey;
use rocev2::wire::mad::RejReason;

/// A frame that was seen.
pub(crate) struct Seen {
    pub(crate) at_ns: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The facts about the conversations of one host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Facts {
    /// The peer's reason for the latest connection that it refused, and the sentence that it stands for.
    pub(crate) rejection: Option<(RejReason, String)>,
    /// The peer has asked for more time.
    pub(crate) is_put_off: bool,
    /// The peer has accepted a connection.
    pub(crate) is_accepted: bool,
    /// Packets of ours that were sent again for a hole that the peer told of, or that its responses had.
    pub(crate) holes: u64,
    /// Packets of the peer that came behind later ones.
    pub(crate) late: u64,
    /// Packets of the peer that were missing, and did not come late.
    pub(crate) missing: u64,
    /// Packets of ours that were sent again after silence.
    pub(crate) timeouts: u64,
    /// Packets of the peer, but for connection management; those of them that say that they may be marked; and CNPs.
    pub(crate) packets: u64,
    pub(crate) markable: u64,
    pub(crate) cnps: u64,
    /// SENDs of the peer in the latest conversation.
    pub(crate) last_sends: u64,
    /// Payload bytes of a full packet of the latest connection.
    pub(crate) path_mtu: Option<u16>,
    /// The sentences of `ndkperf decode` about errors.
    pub(crate) errors: Vec<String>,
}

/// Explains frames that the host `own` has sent and received.
pub(crate) fn examine(own: IpAddr, frames: &[Seen]) -> Facts {
    let start_ns = frames.first().map_or(0, |seen| seen.at_ns);
    let each = || (1..).zip(frames).map(|(number, seen)| frame(number, seen, start_ns));
    let mut survey = Survey::default();
    for (number, (frame, seen)) in (1..).zip(each().zip(frames)) {
        survey.take(number, seen.at_ns.saturating_sub(start_ns), &frame);
    }
    let mut analysis = Analysis::new(survey, None);
    for frame in each() {
        analysis.take(&frame);
    }
    facts(own, &analysis.finish(start_ns, None))
}

fn frame(number: u64, seen: &Seen, start_ns: u64) -> Frame {
    let Seen { at_ns, bytes } = seen;
    Frame::of(&Record { number, at_ns: *at_ns, wire_len: bytes.len(), bytes }, start_ns)
}

fn facts(own: IpAddr, report: &Report) -> Facts {
    let mut facts = Facts::default();
    for connection in &report.survey.connections.all {
        let path_mtu = connection.path_mtu.and_then(|mtu| u16::try_from(mtu).ok());
        facts.path_mtu = path_mtu.or(facts.path_mtu);
        for event in &connection.events {
            let is_theirs = connection.ends[event.sender].address != own;
            match event.kind {
                CmKind::Rej(reason) if is_theirs => {
                    facts.rejection = Some((reason, reason_text(reason)));
                }
                CmKind::Mra => facts.is_put_off |= is_theirs,
                CmKind::Rep => facts.is_accepted |= is_theirs,
                CmKind::Req | CmKind::Rtu | CmKind::Rej(_) | CmKind::Dreq | CmKind::Drep => {}
            }
        }
    }
    for conversation in &report.conversations.all {
        for (end, direction) in conversation.ends.iter().zip(&conversation.directions) {
            let counts = &direction.counts;
            if end.address == own {
                for (cause, count) in direction.causes.counts() {
                    match cause {
                        Cause::NakSequence | Cause::GapReport | Cause::ImpliedNak => {
                            facts.holes += count;
                        }
                        Cause::Timeout => facts.timeouts += count,
                        Cause::RnrNak | Cause::ProbeAnswer | Cause::Unknown => {}
                    }
                }
                continue;
            }
            facts.late += counts.out_of_order;
            facts.missing += direction.gaps.missing.saturating_sub(counts.out_of_order);
            facts.packets += counts.packets.values().sum::<u64>();
            facts.markable += counts.markable;
            facts.cnps += counts.cnps;
            facts.last_sends = counts.operations.get("SEND").map_or(0, |done| done.messages);
        }
    }
    let errors = report.findings.iter().filter(|finding| finding.kind.is_error());
    facts.errors = errors.map(|finding| finding.text.clone()).collect();
    facts
}
