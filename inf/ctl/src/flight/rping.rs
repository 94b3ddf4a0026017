//! Microsoft's rping over NDK, by the programs that come with Windows Server.

use std::net::IpAddr;

use anyhow::{Result, ensure};

use super::{FirstFlight, vnic};
use crate::machine::Machine;
use crate::verify::Verdict;

/// In the order in which they are tried: the first is the one that Microsoft's
/// [Test-NetStack](https://github.com/microsoft/Test-NetStack) calls.
const PROGRAMS: [&str; 2] = ["NdkPerfCmd.exe", "NDKPing.exe"];

/// `server` is this machine's own address, or the peer's.
pub(super) fn run(
    machine: &mut impl Machine,
    asked: &FirstFlight,
    device: &str,
    server: Option<IpAddr>,
) -> Result<Verdict> {
    let Some(own) = asked.address.map(|address| address.ip) else {
        return Ok(Verdict::Skipped("--address is missing"));
    };
    let Some(server) = server else { return Ok(Verdict::Skipped("--peer is missing")) };
    if own.is_ipv6() || server.is_ipv6() {
        return Ok(Verdict::Skipped("NdkPerfCmd and NDKPing take IPv4 addresses alone"));
    }
    let Some(program) = find(machine)? else {
        return Ok(Verdict::Skipped(
            "this Windows has neither NdkPerfCmd nor NDKPing; Server has them",
        ));
    };
    let (index, at) = (vnic(machine, device)?.index.to_string(), format!("{server}:9000"));
    if server == own {
        serve(machine, program, &at, &index)?;
    }
    let own = own.to_string();
    let client = ["-C", "-ServerAddr", &at, "-ClientAddr", &own, "-ClientIf", &index];
    let said = machine.ask(program, &[&client[..], &["-TestType", "rping"]].concat())?;
    ensure!(said.code == 0, "{program}: exit code {}: {}", said.code, said.text);
    Ok(Verdict::Passed(format!("{program}: {}", said.text)))
}

fn find(machine: &mut impl Machine) -> Result<Option<&'static str>> {
    for program in PROGRAMS {
        if machine.ask("where.exe", &[program])?.code == 0 {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

/// Waits in the background for 25 seconds at most. How it ends is not asked: see section 5 of the runbook.
fn serve(machine: &mut impl Machine, program: &str, at: &str, index: &str) -> Result<()> {
    let script = format!(
        "Start-Process -WindowStyle Hidden {program} \
         '-S -ServerAddr {at} -ServerIf {index} -TestType rping -W 25'"
    );
    machine.ask("powershell.exe", &["-NoProfile", "-NonInteractive", "-Command", &script])?;
    machine.pause_s(5);
    Ok(())
}
