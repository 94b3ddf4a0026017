//! Microsoft's rping over NDK, by the programs that come with Windows Server.

use std::net::IpAddr;

use anyhow::{Result, ensure};

use crate::machine::Machine;
use crate::verify::Verdict;

/// The end of a connection: an adapter of this machine, or the other machine's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct End {
    pub(crate) ip: IpAddr,
    /// Of its interface, where it is this machine's: the server is started there, too.
    pub(crate) index: Option<u32>,
}

/// In the order in which they are tried: the first is the one that Microsoft's
/// [Test-NetStack](https://github.com/microsoft/Test-NetStack) calls.
const PROGRAMS: [&str; 2] = ["NdkPerfCmd.exe", "NDKPing.exe"];

/// Connects from an interface of this machine to `server`.
pub(crate) fn run(
    machine: &mut impl Machine,
    client: IpAddr,
    client_index: u32,
    server: End,
) -> Result<Verdict> {
    if client.is_ipv6() || server.ip.is_ipv6() {
        return Ok(Verdict::Skipped("NdkPerfCmd and NDKPing take IPv4 addresses alone"));
    }
    let Some(program) = find(machine)? else {
        return Ok(Verdict::Skipped(
            "this Windows has neither NdkPerfCmd nor NDKPing; Server has them",
        ));
    };
    let at = format!("{}:9000", server.ip);
    if let Some(index) = server.index {
        serve(machine, program, &at, &index.to_string())?;
    }
    let (own, index) = (client.to_string(), client_index.to_string());
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
