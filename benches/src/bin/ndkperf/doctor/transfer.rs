//! SEND, WRITE and READ by size, with every byte compared.

use ndk_consumer::Host;

use super::attempt::{Load, attempt};
use super::findings::Code;
use super::mtu::Limits;
use super::report::Report;
use super::{Path, Peer};
use crate::failure::Failure;
use crate::perf::Operation;

/// Moves messages of each size; false where the peer fell silent.
pub(super) fn examine(
    host: &Host,
    path: &Path,
    limits: Limits,
    report: &mut Report,
) -> Result<bool, Failure> {
    report.begin("transfer");
    let operations: &[Operation] = match path.program {
        Peer::Ndkperf => &[Operation::Send, Operation::Write, Operation::Read],
        Peer::Rping => &[Operation::Read],
    };
    for operation in operations.iter().copied() {
        let mut told = Vec::new();
        for size in SIZES.into_iter().filter(|size| fits(limits, *size)) {
            let load = Load { operation, size, messages: 24, depth: 8 };
            let run = attempt(host, path, load)?;
            if run.wrong > 0 {
                let text =
                    format!("{operation} of {size} bytes: {} messages had wrong data", run.wrong);
                report.find(Code::WrongData, text);
            } else if run.is_silent() {
                report.skip(format!("{operation} of {size} bytes: {}", run.why()));
                return Ok(false);
            } else if run.failure.is_some() {
                let text = format!("{operation} of {size} bytes fails: {}", run.why());
                report.find(Code::OperationFailed, text);
            } else {
                let median = run.median_us.map_or_else(String::new, |us| format!(" in {us:.1} us"));
                told.push(format!("{size} B{median}"));
            }
        }
        let name = if path.program == Peer::Rping { "ping".into() } else { operation.to_string() };
        report.tell(format!("{name}: {}; every byte compared", told.join(", ")));
    }
    if !limits.are_whole() {
        report.tell("longer messages were left out, as their packets vanish");
    }
    Ok(true)
}

/// Whether the packets of a message pass.
fn fits(limits: Limits, size: u32) -> bool {
    limits.are_whole() || size <= limits.out.min(limits.back)
}

/// A byte, a packet of most MTUs, and many packets.
const SIZES: [u32; 3] = [1, 1024, 64 * 1024 - 1];
