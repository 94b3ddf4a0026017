//! The state of the installation and the adapter. A part that cannot be read is unknown, and no error.

use std::fmt::Write;

use anyhow::Result;

use crate::counters::read;
use crate::driver;
use crate::journal::{Journal, Progress};
use crate::machine::{LOWER_ADAPTER, LOWER_MODE, Machine, Mode, SERVICE, Vnic};

/// Headers behind an IPv6 header, at their longest: UDP, BTH, RETH, ImmDt, ICRC.
const ROCE_HEADERS: u32 = 8 + 12 + 16 + 4 + 4;
const IPV6_HEADER: u32 = 40;

/// The largest path MTU that fits, which the adapter takes where `*NetworkDirectRoCEFrameSize` lets it.
pub(crate) fn path_mtu(mtu: u32) -> u32 {
    let room = mtu.saturating_sub(ROCE_HEADERS + IPV6_HEADER);
    [4096, 2048, 1024, 512, 256].into_iter().find(|&path_mtu| path_mtu <= room).unwrap_or_default()
}

pub(crate) fn status(machine: &mut impl Machine) -> Result<String> {
    let mut lines = Lines(String::new());
    lines.add("installation", installation(machine)?);
    if let Some(asked_by) = machine.awaits_restart()? {
        lines.add("restart", format!("Windows waits for one: {asked_by}"));
    }
    let Some(device) = machine.devices()?.into_iter().next() else {
        lines.add("device", "none");
        return Ok(lines.0);
    };
    let problem = match machine.problem(&device) {
        Ok(0) => "runs".into(),
        Ok(code) => format!("problem code {code}: {}", meaning(code)),
        Err(error) => format!("unknown: {error:#}"),
    };
    lines.add("device", format!("{device}, {problem}"));
    match machine.vnic()? {
        Some(vnic) => {
            network(machine, &vnic, &mut lines)?;
            lines.add("NDK", ndk(machine, &vnic));
            lines.add("counters", counters(machine));
        }
        None => lines.add("adapter", "does not appear"),
    }
    own_word(machine, &mut lines);
    lines.add("last event", last_event(machine));
    Ok(lines.0)
}

/// The driver's own word; the lines before are Windows'.
fn own_word(machine: &mut impl Machine, lines: &mut Lines) {
    match driver::read(machine) {
        Ok(Some(snapshot)) => {
            driver::tell(&snapshot).into_iter().for_each(|(name, value)| lines.add(name, value));
        }
        Ok(None) => lines.add("driver", "has no adapter, or is not loaded"),
        Err(error) => lines.add("driver", format!("unknown: {error:#}")),
    }
    match machine.stages().map(|stages| driver::stages(&stages)) {
        Ok(stages) if stages.is_empty() => {}
        Ok(stages) => lines.add("last stage", stages),
        Err(error) => lines.add("last stage", format!("unknown: {error:#}")),
    }
}

/// Names and values, one pair a line.
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        let _ = write!(self.0, "{name:<14}{}", value.as_ref().replace('\n', "\n              "));
    }
}

fn installation(machine: &mut impl Machine) -> Result<String> {
    let Some(journal) = Journal::read(machine)? else { return Ok("none".into()) };
    let done = journal.entries.iter().filter(|entry| entry.progress == Progress::Done).count();
    let state = if journal.confirmed { "confirmed" } else { "rolls back unless confirmed" };
    let state = if journal.is_complete() {
        state.into()
    } else {
        format!("broken off after {done} of {} steps", journal.entries.len())
    };
    Ok(format!("on '{}', {:?} mode, {state}", journal.request.nic, journal.request.mode))
}

fn network(machine: &mut impl Machine, vnic: &Vnic, lines: &mut Lines) -> Result<()> {
    let mac = vnic.mac.map(|byte| format!("{byte:02X}")).join("-");
    lines.add("adapter", format!("'{}', index {}, {mac}", vnic.name, vnic.index));
    lines.add("link", link(vnic.up, vnic.speed_bps));
    let lower = machine.keyword(LOWER_ADAPTER)?.unwrap_or_default();
    let mode = machine.keyword(LOWER_MODE)?;
    let mode = if mode.as_deref() == Some(Mode::Own.keyword()) { Mode::Own } else { Mode::Inherit };
    let nic = machine.nics()?.into_iter().find(|nic| nic.guid.eq_ignore_ascii_case(&lower));
    let Some(nic) = nic else {
        lines.add("NIC", format!("none (LowerAdapter is '{lower}')"));
        return Ok(());
    };
    lines.add("NIC", format!("'{}', {}, {mode:?} mode", nic.name, link(nic.up, nic.speed_bps)));
    let mtu = vnic.mtu.min(nic.mtu);
    lines.add(
        "MTU",
        format!("{} above {}, room for a path MTU of {}", vnic.mtu, nic.mtu, path_mtu(mtu)),
    );
    Ok(())
}

fn link(up: bool, speed_bps: u64) -> String {
    if up { format!("up, {} Mb/s", speed_bps / 1_000_000) } else { "down".into() }
}

/// As Windows' own cmdlet sees it. The words are PowerShell's, which no language translates.
fn ndk(machine: &mut impl Machine, vnic: &Vnic) -> String {
    // A name would be a pattern.
    let script = format!(
        "$a = Get-NetAdapter -InterfaceIndex {} | Get-NetAdapterRdma; \
         \"$($a.Enabled) $($a.OperationalState)\"",
        vnic.index
    );
    let said =
        machine.ask("powershell.exe", &["-NoProfile", "-NonInteractive", "-Command", &script]);
    match said {
        Ok(said) if said.code == 0 => match said.text.split_whitespace().collect::<Vec<_>>()[..] {
            ["True", "True"] => "on, operational".into(),
            ["True", ..] => "on, not operational".into(),
            ["False", ..] => "off".into(),
            _ => format!("unknown: {}", said.text),
        },
        Ok(said) => format!("unknown: {}", said.text),
        Err(error) => format!("unknown: {error:#}"),
    }
}

fn counters(machine: &mut impl Machine) -> String {
    let read = |machine: &mut _, set| read(machine, set).unwrap_or_default();
    let mut all = read(machine, "RoCEv2 Adapter");
    all.extend(read(machine, "RoCEv2 Adapter Drops"));
    if all.is_empty() {
        return "unknown: is the counters' manifest registered?".into();
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.dedup_by(|a, b| {
        a.name == b.name && {
            b.value += a.value;
            true
        }
    });
    let moved = all.iter().filter(|counter| counter.value != 0.0);
    let moved: Vec<_> = moved.map(|c| format!("{} {}", c.name, c.value)).collect();
    if moved.is_empty() { "all zero".into() } else { moved.join("\n") }
}

fn last_event(machine: &mut impl Machine) -> String {
    let query = format!("*[System[Provider[@Name='{SERVICE}']]]");
    let query = format!("/q:{query}");
    match machine.ask("wevtutil.exe", &["qe", "System", &query, "/c:1", "/rd:true", "/f:text"]) {
        Ok(said) if said.code == 0 && said.text.is_empty() => "none".into(),
        Ok(said) if said.code == 0 => said.text,
        Ok(said) => format!("unknown: {}", said.text),
        Err(error) => format!("unknown: {error:#}"),
    }
}

/// The codes that a driver like this one meets.
///
/// See [the list](https://learn.microsoft.com/windows-hardware/drivers/install/device-manager-error-messages).
pub(crate) fn meaning(code: u32) -> &'static str {
    match code {
        10 => "the driver refused to start; see the system event log",
        14 => "Windows waits for a restart: restart it",
        18 => {
            "Windows wants the driver installed again, as after an upgrade of Windows: \
             `ndkrocev2ctl uninstall`, then install"
        }
        21 => "Windows is removing the device: restart it, then `ndkrocev2ctl uninstall`",
        22 => "the device is disabled",
        28 => "no driver is installed: `ndkrocev2ctl uninstall`, then install",
        31 => "Windows cannot load what the device needs",
        37 => "the driver did not load; see the system event log",
        38 => "an earlier build is still in memory: restart Windows",
        39 => "the image is missing, damaged, or imports what this Windows lacks",
        52 => "the image's signature is not trusted: is test signing on?",
        _ => "see the device manager",
    }
}
