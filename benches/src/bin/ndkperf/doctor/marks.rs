//! Marks of congestion: whether one that is put on our packets reaches the peer, which then sends CNPs, and whether the peer's packets
//! still say that they may be marked.

use ndk_consumer::Host;

use super::attempt::{Load, attempt};
use super::findings::Code;
use super::mtu::Limits;
use super::report::Report;
use super::tap::Trace;
use super::{Path, Peer};
use crate::decode;
use crate::failure::Failure;
use crate::perf::Operation;

/// Sends marked packets, and looks for CNPs.
pub(super) fn examine(
    host: &Host,
    trace: &Trace,
    path: &Path,
    limits: Limits,
    report: &mut Report,
) -> Result<(), Failure> {
    report.begin("marks");
    if path.transport.no_congestion_control {
        report.skip("our congestion control is off, so that nothing of ours may be marked");
        return Ok(());
    }
    let size = limits.out.min(1024);
    let operation = Operation::Write;
    let (from, before) = (trace.len(), trace.marked());
    let mut facts = decode::Facts::default();
    for _ in 0..TRIES {
        trace.mark(true);
        let run = attempt(host, path, Load { operation, size, messages: 64, depth: 16 });
        trace.mark(false);
        let run = run?;
        facts = trace.since(from, |frames| decode::examine(path.own_ip, frames));
        if run.failure.is_some() {
            report.skip(format!("the run with marked packets failed: {}", run.why()));
            return Ok(());
        }
        if facts.cnps > 0 {
            break;
        }
    }
    let (peer, marked) = (path.peer, trace.marked() - before);
    let (cnps, packets) = (facts.cnps, facts.packets);
    if cnps > 0 && facts.markable > 0 {
        report.tell(format!("{marked} marked packets brought {cnps} CNPs from {peer}"));
        report.tell("the packets of the peer may be marked, too");
    } else if path.program == Peer::Rping {
        report.skip(format!(
            "{marked} marked packets brought {cnps} CNPs, and {} of {packets} packets of {peer} may be marked; \
             rxe sends neither",
            facts.markable
        ));
    } else {
        let out = match cnps {
            0 => format!("{marked} packets with a mark of congestion brought no CNP from {peer}"),
            cnps => format!("{cnps} CNPs came for our marks"),
        };
        let back = match facts.markable {
            0 => format!("none of its {packets} packets arrives with ECN on"),
            markable => format!("{markable} of its {packets} packets arrive with ECN on"),
        };
        let text = format!(
            "marks of congestion do not survive, or the peer's congestion control is off: {out}, and {back}"
        );
        report.find(Code::MarksErased, text);
    }
    Ok(())
}

/// A lossy path may lose the CNPs of one run.
const TRIES: u32 = 2;
