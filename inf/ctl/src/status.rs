//! The state of the installation and of each adapter. A part that cannot be read is unknown, and no error.

mod text;

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::counters;
use crate::driver::{self, Told};
use crate::journal::{Journal, Journals, Progress};
use crate::machine::{LOWER_ADAPTER, LOWER_MODE, Machine, Mode, Nic, SERVICE, Vnic};

/// A part, or why nobody knows it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part<T> {
    Known(T),
    Unknown(String),
}

impl<T> From<Result<T>> for Part<T> {
    fn from(read: Result<T>) -> Self {
        read.map_or_else(|error| Self::Unknown(format!("{error:#}")), Self::Known)
    }
}

/// All that is told.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    version: &'static str,
    /// Who asked Windows for a restart that it has not had yet.
    restart_asked_by: Option<String>,
    /// Another package is below the adapters, and nobody has confirmed it yet.
    upgrade_unconfirmed: bool,
    adapters: Vec<Adapter>,
    /// Nothing where there is no device.
    driver: Option<Driver>,
}

/// What is of all adapters together.
#[derive(Clone, Debug, Serialize)]
struct Driver {
    /// Those that moved, summed over the adapters.
    counters: Part<BTreeMap<String, f64>>,
    /// Its own word; nothing where it has no adapter, or is not loaded.
    says: Part<Option<Told>>,
    /// Empty where the driver left none.
    last_stage: Part<String>,
    /// Empty where there is none.
    last_event: Part<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Adapter {
    /// What the journal tells; nothing where none does.
    installation: Option<Installation>,
    device: String,
    /// The device manager's code, 0 where it runs; nothing where there is no device.
    problem: Option<Part<u32>>,
    /// Nothing where it does not appear among the network connections.
    interface: Option<Interface>,
}

#[derive(Clone, Debug, Serialize)]
struct Installation {
    name: String,
    nic: String,
    mode: Mode,
    progress: Progressed,
    steps_done: usize,
    steps: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Progressed {
    Confirmed,
    RollsBackUnlessConfirmed,
    BrokenOff,
    GoesOnAfterRestart,
}

#[derive(Clone, Debug, Serialize)]
struct Interface {
    name: String,
    index: u32,
    mac: String,
    link: Link,
    /// Those of the adapter and of its NIC leave room for a path MTU of so many bytes.
    path_mtu: u32,
    mode: Mode,
    /// Its `LowerAdapter`.
    lower_adapter: String,
    nic: Option<Lower>,
    ndk: Part<Ndk>,
}

#[derive(Clone, Debug, Serialize)]
struct Lower {
    name: String,
    link: Link,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Link {
    up: bool,
    speed_bps: u64,
    mtu: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Ndk {
    Operational,
    NotOperational,
    Off,
}

/// Headers behind an IPv6 header, at their longest: UDP, BTH, RETH, ImmDt, ICRC.
const ROCE_HEADERS: u32 = 8 + 12 + 16 + 4 + 4;
const IPV6_HEADER: u32 = 40;

/// The largest path MTU that fits, which the adapter takes where `*NetworkDirectRoCEFrameSize` lets it.
pub(crate) fn path_mtu(mtu: u32) -> u32 {
    let room = mtu.saturating_sub(ROCE_HEADERS + IPV6_HEADER);
    [4096, 2048, 1024, 512, 256].into_iter().find(|&path_mtu| path_mtu <= room).unwrap_or_default()
}

/// In words.
pub(crate) fn status(machine: &mut impl Machine) -> Result<String> {
    Ok(text::text(&read(machine)?))
}

/// As `ndkrocev2ctl.schema.json` describes it.
pub(crate) fn json(machine: &mut impl Machine) -> Result<String> {
    Ok(serde_json::to_string_pretty(&read(machine)?)?)
}

fn read(machine: &mut impl Machine) -> Result<Status> {
    let Journals { adapters: journals, upgrade } = Journals::read(machine)?;
    let mut devices = machine.devices()?;
    devices.retain(|device| journals.iter().all(|journal| journal.device != *device));
    let mut adapters = Vec::new();
    for journal in &journals {
        adapters.push(adapter(machine, Some(journal), journal.device.clone())?);
    }
    for device in devices {
        adapters.push(adapter(machine, None, device)?);
    }
    let has_device = adapters.iter().any(|adapter: &Adapter| adapter.problem.is_some());
    Ok(Status {
        version: env!("CARGO_PKG_VERSION"),
        restart_asked_by: machine.awaits_restart()?,
        upgrade_unconfirmed: upgrade.is_some(),
        adapters,
        driver: has_device.then(|| of_driver(machine)),
    })
}

fn of_driver(machine: &mut impl Machine) -> Driver {
    let read = driver::read(machine);
    Driver {
        counters: moved(machine).into(),
        says: read.map(|snapshot| snapshot.map(|snapshot| driver::tell(&snapshot))).into(),
        last_stage: machine.stages().map(|stages| driver::stages(&stages)).into(),
        last_event: last_event(machine).into(),
    }
}

fn adapter(
    machine: &mut impl Machine,
    journal: Option<&Journal>,
    device: String,
) -> Result<Adapter> {
    let is_there = machine.devices()?.contains(&device);
    let problem = is_there.then(|| machine.problem(&device).into());
    let interface = match machine.vnic(&device)? {
        Some(vnic) => Some(interface(machine, &device, vnic)?),
        None => None,
    };
    Ok(Adapter { installation: journal.map(installation), device, problem, interface })
}

fn installation(journal: &Journal) -> Installation {
    let done = journal.entries.iter().filter(|entry| entry.progress == Progress::Done).count();
    let progress = if journal.resumes {
        Progressed::GoesOnAfterRestart
    } else if !journal.is_complete() {
        Progressed::BrokenOff
    } else if journal.confirmed {
        Progressed::Confirmed
    } else {
        Progressed::RollsBackUnlessConfirmed
    };
    Installation {
        name: journal.request.name.clone(),
        nic: journal.request.nic.clone(),
        mode: journal.request.mode,
        progress,
        steps_done: done,
        steps: journal.entries.len(),
    }
}

fn interface(machine: &mut impl Machine, device: &str, vnic: Vnic) -> Result<Interface> {
    let lower_adapter = machine.keyword(device, LOWER_ADAPTER)?.unwrap_or_default();
    let mode = Mode::of_keyword(machine.keyword(device, LOWER_MODE)?.as_deref());
    let mut nics = machine.nics()?.into_iter();
    let nic = nics.find(|nic| nic.guid.eq_ignore_ascii_case(&lower_adapter));
    let mtu = nic.as_ref().map_or(vnic.mtu, |nic| nic.mtu.min(vnic.mtu));
    let link = |up, speed_bps, mtu| Link { up, speed_bps, mtu };
    Ok(Interface {
        mac: vnic.mac.map(|byte| format!("{byte:02X}")).join("-"),
        link: link(vnic.up, vnic.speed_bps, vnic.mtu),
        path_mtu: path_mtu(mtu),
        mode,
        lower_adapter,
        nic: nic.map(|Nic { name, up, speed_bps, mtu, .. }| Lower {
            name,
            link: link(up, speed_bps, mtu),
        }),
        ndk: ndk(machine, vnic.index).into(),
        index: vnic.index,
        name: vnic.name,
    })
}

/// As Windows' own cmdlet sees it. The words are PowerShell's, which no language translates. A name would be a pattern.
fn ndk(machine: &mut impl Machine, index: u32) -> Result<Ndk> {
    let script = format!(
        "$a = Get-NetAdapter -InterfaceIndex {index} | Get-NetAdapterRdma; \
         \"$($a.Enabled) $($a.OperationalState)\""
    );
    let arguments = ["-NoProfile", "-NonInteractive", "-Command", &script];
    let said = machine.ask("powershell.exe", &arguments)?;
    ensure!(said.code == 0, "{}", said.text);
    match said.text.split_whitespace().collect::<Vec<_>>()[..] {
        ["True", "True"] => Ok(Ndk::Operational),
        ["True", ..] => Ok(Ndk::NotOperational),
        ["False", ..] => Ok(Ndk::Off),
        _ => bail!("{}", said.text),
    }
}

fn moved(machine: &mut impl Machine) -> Result<BTreeMap<String, f64>> {
    let mut all = counters::read(machine, "RoCEv2 Adapter").unwrap_or_default();
    all.extend(counters::read(machine, "RoCEv2 Adapter Drops").unwrap_or_default());
    ensure!(!all.is_empty(), "is the counters' manifest registered?");
    let mut sums = BTreeMap::new();
    for counter in all {
        *sums.entry(counter.name).or_insert(0.0) += counter.value;
    }
    sums.retain(|_, value| *value != 0.0);
    Ok(sums)
}

fn last_event(machine: &mut impl Machine) -> Result<String> {
    let query = format!("/q:*[System[Provider[@Name='{SERVICE}']]]");
    let arguments = ["qe", "System", &query, "/c:1", "/rd:true", "/f:text"];
    let said = machine.ask("wevtutil.exe", &arguments)?;
    ensure!(said.code == 0, "{}", said.text);
    Ok(said.text)
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
