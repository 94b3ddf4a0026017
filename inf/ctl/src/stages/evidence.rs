//! The logs and dumps of a machine, for whoever reads the page.

use std::path::Path;

use crate::flight::EVENTS;
use crate::machine::{IMAGE, Machine};
use crate::verify::Verdict;

const TRACE: &str = "ndkrocev2-stage";
const ETL: &str = "ndkrocev2.etl";
/// Windows writes them.
const LOGS: [&str; 2] = [r"C:\Windows\INF\setupapi.dev.log", r"C:\Windows\MEMORY.DMP"];
const DUMPS: &str = r"C:\Windows\Minidump";
/// The first build of Windows 11, which takes fewer flags.
const WINDOWS_11: u32 = 22000;

/// Begins a trace of the driver's events.
pub(super) fn trace(machine: &mut impl Machine, out: &Path) -> anyhow::Result<Verdict> {
    let file = out.join(ETL).display().to_string();
    let arguments = ["start", TRACE, "-ets", "-o", &file, "-p", EVENTS, "0xffffffffffffffff", "5"];
    let said = machine.ask("logman.exe", &arguments)?;
    anyhow::ensure!(said.code == 0, "{}", said.text);
    Ok(Verdict::Passed(ETL.into()))
}

/// Has Driver Verifier watch the image from its next load on, without a restart: by the flags that
/// [may be changed so](https://learn.microsoft.com/windows-hardware/drivers/devtest/using-volatile-settings).
pub(super) fn watch(machine: &mut impl Machine) -> anyhow::Result<Verdict> {
    // Deadlocks and DMA; before, special pool, IRQL, pool tracking, I/O, security and miscellaneous checks, too.
    let flags = if machine.host()?.build >= WINDOWS_11 { "0xA0" } else { "0x9BB" };
    for arguments in [["/volatile", "/flags", flags], ["/volatile", "/adddriver", IMAGE]] {
        let said = machine.ask("verifier.exe", &arguments)?;
        // Not 2, which is for after a restart.
        anyhow::ensure!(said.code == 0, "exit code {}: {}", said.code, said.text);
    }
    Ok(Verdict::Passed(format!("flags {flags}")))
}

/// Without a file the page says less, and that is all.
pub(super) fn gather(machine: &mut impl Machine, out: &Path) {
    let _ = machine.ask("logman.exe", &["stop", TRACE, "-ets"]);
    let events = out.join("system.evtx").display().to_string();
    let _ = machine.ask("wevtutil.exe", &["epl", "System", &events, "/ow:true"]);
    let dumps = std::fs::read_dir(DUMPS).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in LOGS.iter().map(Into::into).chain(dumps) {
        let file: std::path::PathBuf = file;
        if let Some(name) = file.file_name() {
            let _ = std::fs::copy(&file, out.join(name));
        }
    }
}
