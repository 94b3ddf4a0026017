//! Our own address: whether another host has it already.

use super::Path;
use super::findings::Code;
use super::report::Report;
use super::station::{Station, mac_text};
use crate::failure::Failure;

/// Probes for our address as a host does that is about to take it (RFC 5227, RFC 4862), but in less time; whether
/// it is free.
pub(super) fn examine(
    station: &mut Station,
    path: &Path,
    report: &mut Report,
) -> Result<bool, Failure> {
    report.begin("address");
    let own_ip = path.own_ip;
    if path.probe_off {
        report.skip("nobody was asked whether another host has our address");
        return Ok(true);
    }
    let others = station.conflicts(path)?;
    if others.is_empty() {
        report.tell(format!("no other host has {own_ip}"));
        return Ok(true);
    }
    let others: Vec<String> = others.into_iter().map(|other| mac_text(other.mac)).collect();
    let text = format!(
        "our address {own_ip} is taken: the host at {} says that it has it, or is about to take it. Answers \
         to us may go to it, so that the rest was not examined",
        others.join(" and the one at ")
    );
    report.find(Code::AddressTaken, text);
    Ok(false)
}
