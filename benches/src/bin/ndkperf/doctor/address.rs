//! Our own address: whether another host has it already.

use std::collections::BTreeSet;
use std::time::Duration;

use netadapter_glue::neighbour::ask::{Heard, Question};

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
    let Path { own_ip, vlan, .. } = *path;
    let mut others = BTreeSet::new();
    for _ in 0..PROBES {
        station.ask([(Question::Taken { ip: own_ip }, vlan)])?;
        for news in station.listen(PAUSE, |_| false)? {
            match news {
                Heard::Holder { ip, link, .. } if ip == own_ip && link.mac != station.mac() => {
                    others.insert(link.mac);
                }
                Heard::Holder { .. } | Heard::Pong { .. } | Heard::Refused { .. } => {}
            }
        }
    }
    if others.is_empty() {
        report.tell(format!("no other host has {own_ip}"));
        return Ok(true);
    }
    let others: Vec<String> = others.into_iter().map(mac_text).collect();
    let text = format!(
        "our address {own_ip} is taken: the host at {} says that it has it. Answers to us may go to it, \
         so that the rest was not examined",
        others.join(" and the one at ")
    );
    report.find(Code::AddressTaken, text);
    Ok(false)
}

const PROBES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(80);
