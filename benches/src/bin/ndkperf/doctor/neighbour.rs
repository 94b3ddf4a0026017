//! The peer's Ethernet address: who answers for it, how many, and in which VLAN.

use std::collections::BTreeSet;
use std::time::Duration;

use netadapter_glue::neighbour::Link;
use netadapter_glue::neighbour::ask::{Heard, Question};

use super::Path;
use super::findings::Code;
use super::report::Report;
use super::station::{Signs, Station, holds, mac_text};
use crate::decode::Seen;
use crate::failure::Failure;

/// Looks for the peer; its Ethernet address, and the signs of life of the host there.
pub(super) fn examine(
    station: &mut Station,
    path: &Path,
    report: &mut Report,
) -> Result<Option<([u8; 6], Signs)>, Failure> {
    report.begin("neighbour");
    let Path { own_ip, peer, vlan, .. } = *path;
    let question = Question::Place { own_ip, ip: peer, at: None };
    let mut heard = station.insist(question, vlan, |news| holds(news, peer).is_some())?;
    heard.extend(station.listen(SETTLE, |_| false)?);
    let links: BTreeSet<([u8; 6], Option<u16>)> = heard
        .iter()
        .filter_map(|news| holds(news, peer))
        .map(|link| (link.mac, link.vlan))
        .collect();
    let first = heard.iter().find_map(|news| holds(news, peer));
    let Some(Link { mac, .. }) = first else {
        unresolved(station, path, &heard, report)?;
        return Ok(None);
    };
    let macs: BTreeSet<[u8; 6]> = links.iter().map(|(mac, _)| *mac).collect();
    if macs.len() > 1 {
        let macs: Vec<String> = macs.into_iter().map(mac_text).collect();
        let text = format!("{} hosts answer for {peer}: {}", macs.len(), macs.join(" and "));
        report.find(Code::SeveralNeighbours, text);
    }
    let place = vlan.map_or_else(String::new, |vlan| format!(" in VLAN {vlan}"));
    report.tell(format!("{peer} is at {}{place}", mac_text(mac)));
    let signs = station.is_there(path, mac)?;
    if !signs.by_address && !signs.by_ping {
        let text = format!(
            "{peer} answers questions to all hosts, and none that is sent to its own Ethernet address {}: \
             frames pass in one direction only",
            mac_text(mac)
        );
        report.find(Code::OneWayPath, text);
        return Ok(None);
    }
    Ok(Some((mac, signs)))
}

/// Explains why nobody answers.
fn unresolved(
    station: &mut Station,
    path: &Path,
    heard: &[Heard],
    report: &mut Report,
) -> Result<(), Failure> {
    let Path { peer, vlan, .. } = *path;
    let is_peers = |news: &Heard| matches!(news, Heard::Holder { ip, .. } if *ip == peer);
    if heard.iter().any(is_peers) {
        let text = format!(
            "frames of {peer} arrive, and it answers none of ours: frames pass in one direction only"
        );
        report.find(Code::OneWayPath, text);
        return Ok(());
    }
    let ours = vlan.map_or_else(|| "without a tag".into(), |vlan| format!("in VLAN {vlan}"));
    if let Some(found) = elsewhere(station, path)? {
        let theirs = found.map_or_else(|| "without a tag".into(), |vlan| format!("in VLAN {vlan}"));
        let text = format!("{peer} does not answer {ours}, and answers {theirs}");
        report.find(Code::WrongVlan, text);
        return Ok(());
    }
    let mac = station.mac();
    let others = station.trace.since(0, |frames| senders(frames, mac));
    let link = match (others, station.given_up()) {
        (0, 0) => "nothing at all was heard on the link".into(),
        (0, frames) => format!("the edge gave up {frames} frames: the link has no other end"),
        (others, _) => format!("{others} other hosts were heard on the link"),
    };
    report.find(Code::NoNeighbour, format!("no host answers for {peer} {ours}; {link}"));
    Ok(())
}

/// The VLAN in which the peer answers, where it is not ours. One question goes out in each.
fn elsewhere(station: &mut Station, path: &Path) -> Result<Option<Option<u16>>, Failure> {
    let Path { own_ip, peer, vlan, sees_tags, .. } = *path;
    if !sees_tags {
        return Ok(None);
    }
    let question = Question::Place { own_ip, ip: peer, at: None };
    let vlans = [None].into_iter().chain((1..=VLAN_MAX).map(Some));
    station.ask(vlans.filter(|other| *other != vlan).map(|vlan| (question, vlan)))?;
    let heard = station.listen(SWEEP, |news| holds(news, peer).is_some())?;
    Ok(heard.iter().find_map(|news| holds(news, peer)).map(|link| link.vlan))
}

/// Hosts that have sent something.
fn senders(frames: &[Seen], own: [u8; 6]) -> usize {
    let sources = frames.iter().filter_map(|seen| seen.bytes.get(6..12));
    sources.filter(|source| **source != own).collect::<BTreeSet<_>>().len()
}

/// Further answers come within this time.
const SETTLE: Duration = Duration::from_millis(100);
/// The answer to one of thousands of questions.
const SWEEP: Duration = Duration::from_millis(1000);
const VLAN_MAX: u16 = 4094;
