//! The path MTU by a ladder, in each direction: SENDs fill packets to the peer, READs those from it.

use std::ops::Range;

use ndk_consumer::Host;
use netadapter_glue::neighbour::ask::{Heard, Refusal, hear};

use super::attempt::{Attempt, Load, attempt};
use super::findings::Code;
use super::report::Report;
use super::tap::Trace;
use super::{Path, Peer};
use crate::decode;
use crate::failure::Failure;
use crate::perf::Operation;

/// The payloads that pass, to the peer and from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Limits {
    pub(super) out: u32,
    pub(super) back: u32,
    pub(super) path_mtu: u32,
}

impl Limits {
    /// Whether packets of every size pass in both directions.
    pub(super) fn are_whole(&self) -> bool {
        self.out.min(self.back) >= self.path_mtu
    }
}

/// The end of a climb: the last payload that passed, and the first that did not.
#[derive(Clone, Debug)]
struct Climb {
    passed: u32,
    vanished: Option<u32>,
    /// The frames of the run in which it did not.
    frames: Range<usize>,
}

/// Climbs both ladders; `None` where the peer fell silent.
pub(super) fn examine(
    host: &Host,
    trace: &Trace,
    path: &Path,
    path_mtu: u16,
    report: &mut Report,
) -> Result<Option<Limits>, Failure> {
    report.begin("path MTU");
    let path_mtu = u32::from(path_mtu);
    let mut limits = Limits { out: path_mtu, back: path_mtu, path_mtu };
    let (from, mut holes) = (trace.len(), Vec::new());
    for operation in [Operation::Send, Operation::Read] {
        let Some(climb) = climb(host, trace, path, operation, path_mtu, report)? else {
            return Ok(None);
        };
        let Some(vanished) = climb.vanished else {
            tell(path, operation, climb.passed, report);
            if path.program == Peer::Rping {
                break;
            }
            continue;
        };
        let (operation, direction) = way(trace, path, operation, climb.frames);
        let [fits, lost] = [climb.passed, vanished].map(|payload| ip_len(path, operation, payload));
        holes.push(format!(
            "{} {}, IP packets of {fits} bytes pass and those of {lost} do not",
            direction.name(),
            path.peer
        ));
        match direction {
            Direction::To => limits.out = climb.passed,
            Direction::From => limits.back = climb.passed,
        }
        if path.program == Peer::Rping {
            break;
        }
    }
    if !holes.is_empty() {
        let told = told_by(trace, from, path);
        let text = format!(
            "packets vanish by their size: {}, though both ends agreed on a path MTU of {path_mtu}{told}",
            holes.join("; ")
        );
        report.find(Code::MtuHole, text);
    }
    Ok(Some(limits))
}

fn tell(path: &Path, operation: Operation, passed: u32, report: &mut Report) {
    let direction = match path.program {
        Peer::Rping => "to and from",
        Peer::Ndkperf => Direction::filled_by(operation).name(),
    };
    report
        .tell(format!("packets of {} to {passed} bytes pass {direction} {}", STEPS[0], path.peer));
}

/// The direction of packets, seen from us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Direction {
    To,
    From,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::To => "to",
            Self::From => "from",
        }
    }

    /// The direction whose packets an operation of ours fills.
    const fn filled_by(operation: Operation) -> Self {
        match operation {
            Operation::Send | Operation::Write => Self::To,
            Operation::Read => Self::From,
        }
    }
}

/// Climbs until a message gets no answer, and finds the place between two steps; `None` where not even a small one got one.
fn climb(
    host: &Host,
    trace: &Trace,
    path: &Path,
    operation: Operation,
    path_mtu: u32,
    report: &mut Report,
) -> Result<Option<Climb>, Failure> {
    let mut passed = None;
    for size in STEPS.into_iter().filter(|size| *size <= path_mtu) {
        let from = trace.len();
        let step = try_size(host, path, operation, size)?;
        let frames = from..trace.len();
        if step.failure.is_none() {
            passed = Some(size);
            continue;
        }
        let Some(fits) = passed else { return Ok(None) };
        if !is_lost(&step) {
            let text = format!("{operation} of {size} bytes fails: {}", step.why());
            report.find(Code::OperationFailed, text);
            return Ok(Some(Climb { passed: fits, vanished: None, frames }));
        }
        // A peer that is gone answers no small message either, and one that was busy answers the same one now.
        if try_size(host, path, operation, fits)?.failure.is_some() {
            return Ok(None);
        }
        if try_size(host, path, operation, size)?.failure.is_none() {
            passed = Some(size);
            continue;
        }
        let (passed, vanished) = narrow(host, path, operation, fits, size)?;
        return Ok(Some(Climb { passed, vanished: Some(vanished), frames }));
    }
    Ok(passed.map(|passed| Climb { passed, vanished: None, frames: 0..0 }))
}

/// Looks between a size that passed and one that did not, at the MTUs that links have.
fn narrow(
    host: &Host,
    path: &Path,
    operation: Operation,
    mut passed: u32,
    mut vanished: u32,
) -> Result<(u32, u32), Failure> {
    let around = ip_len(path, operation, 0);
    let candidates: Vec<u32> = LINK_MTUS.iter().map(|mtu| mtu - around).collect();
    loop {
        let between: Vec<u32> = candidates
            .iter()
            .copied()
            .filter(|size| (passed + 1..vanished).contains(size))
            .collect();
        let Some(size) = between.get(between.len() / 2).copied() else {
            return Ok((passed, vanished));
        };
        if try_size(host, path, operation, size)?.failure.is_none() {
            passed = size;
        } else {
            vanished = size;
        }
    }
}

fn try_size(host: &Host, path: &Path, operation: Operation, size: u32) -> Result<Attempt, Failure> {
    attempt(host, path, Load { operation, size, messages: 2, depth: 1 })
}

/// A server that waits no longer than we do disconnects.
fn is_lost(step: &Attempt) -> bool {
    step.is_silent() || step.failure.as_ref().is_some_and(Failure::is_disconnection)
}

/// The operation whose packets vanished, and their direction. A server of rping READs our data, says so by a SEND, and WRITEs
/// them back.
fn way(
    trace: &Trace,
    path: &Path,
    operation: Operation,
    frames: Range<usize>,
) -> (Operation, Direction) {
    if path.program == Peer::Ndkperf {
        return (operation, Direction::filled_by(operation));
    }
    let Range { start, end } = frames;
    let facts = trace.since(start, |frames| decode::examine(path.own_ip, &frames[..end - start]));
    match facts.last_sends {
        0 => (Operation::Read, Direction::To),
        _ => (Operation::Write, Direction::From),
    }
}

/// The words of the host that reports the size that its link carries, if one does.
fn told_by(trace: &Trace, from: usize, path: &Path) -> String {
    let told = trace.since(from, |frames| {
        frames.iter().filter_map(|seen| hear(&seen.bytes)).find_map(|news| match news {
            Heard::Refused { from, to, reason: Refusal::TooBig(mtu), .. } if to == path.peer => {
                Some((from, mtu))
            }
            _ => None,
        })
    });
    told.map_or_else(String::new, |(host, mtu)| {
        format!("; {host} says that its link carries {mtu} bytes")
    })
}

/// Bytes of the IP packet around a payload.
fn ip_len(path: &Path, operation: Operation, payload: u32) -> u32 {
    let ip = if path.peer.is_ipv4() { 20 } else { 40 };
    // UDP, BTH and ICRC; and AETH of a READ response, or RETH of a WRITE.
    let extended = match operation {
        Operation::Send => 0,
        Operation::Write => 16,
        Operation::Read => 4,
    };
    ip + 8 + 12 + 4 + extended + payload
}

/// The payloads of the path MTUs.
const STEPS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// The MTUs of tunnels and links between them.
const LINK_MTUS: [u32; 9] = [576, 1280, 1400, 1450, 1492, 1500, 2304, 3000, 4000];
