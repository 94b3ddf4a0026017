//! From the signature to a copy over SMB: each check says what it found, and what would mend it.

mod checks;
mod silence;

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::journal::Journals;
use crate::machine::Machine;
use crate::run::{by_name, is_absent};
use checks::Check;
pub(crate) use checks::{signature, smb_copy};

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Verify {
    /// The adapter, by its name among the network connections [default: each]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The folder with the INFs, catalogs and image [default: that of this program]
    #[arg(long)]
    pub(crate) package: Option<PathBuf>,
    /// The other machine's address on its RoCE network
    #[arg(long)]
    pub(crate) peer: Option<IpAddr>,
    /// A folder of the other machine that may be written, such as \\server\share
    #[arg(long)]
    pub(crate) share: Option<PathBuf>,
    /// Tell it as JSON, as ndkrocev2ctl.schema.json describes it
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a check ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    Passed(String),
    Skipped(&'static str),
}

/// What a check looks at.
struct Scope<'a> {
    asked: &'a Verify,
    /// The instance ID of the adapter's device; empty for what all adapters share.
    device: &'a str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Works,
    Fails,
    NotInstalled,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Passed,
    Skipped,
    Failed,
}

#[derive(Debug, Serialize)]
struct Checked {
    check: &'static str,
    /// The adapter's name, where it is one of several.
    adapter: Option<String>,
    outcome: Outcome,
    says: String,
    mends: Option<String>,
}

/// All that was checked.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    state: State,
    checks: Vec<Checked>,
}

/// An adapter to be checked.
struct Adapter {
    name: String,
    device: String,
}

pub(crate) fn verify<M: Machine>(
    machine: &mut M,
    asked: &Verify,
    say: &mut impl FnMut(String),
) -> Result<Exit> {
    let report = report(machine, asked)?;
    if asked.json {
        say(serde_json::to_string_pretty(&report)?);
    } else {
        tell(&report, say);
    }
    Ok(if report.state == State::Works { Exit::Done } else { Exit::Failed })
}

/// What fails, in words; empty where all that was checked works.
pub(crate) fn failures<M: Machine>(machine: &mut M, asked: &Verify) -> Result<Vec<String>> {
    let report = report(machine, asked)?;
    ensure!(report.state != State::NotInstalled, "nothing is installed");
    let failed = report.checks.iter().filter(|checked| checked.outcome == Outcome::Failed);
    Ok(failed.map(|checked| format!("{}: {}", checked.title(), checked.says)).collect())
}

fn report<M: Machine>(machine: &mut M, asked: &Verify) -> Result<Report> {
    let version = env!("CARGO_PKG_VERSION");
    // Where it cannot be told, the checks say why.
    if is_absent(machine).unwrap_or(false) {
        return Ok(Report { version, state: State::NotInstalled, checks: Vec::new() });
    }
    let adapters = adapters(machine, asked.name.as_deref())?;
    let mut checks = Vec::new();
    let shared = Scope { asked, device: "" };
    checks.extend(checks::of_machine().map(|check| run(machine, &shared, check, None)));
    for Adapter { name, device } in &adapters {
        let scope = Scope { asked, device };
        let name = (adapters.len() > 1).then_some(name);
        checks.extend(checks::of_adapter().map(|check| run(machine, &scope, check, name)));
    }
    checks.extend(checks::of_smb().map(|check| run(machine, &shared, check, None)));
    let fails = checks.iter().any(|checked| checked.outcome == Outcome::Failed);
    let state = if fails { State::Fails } else { State::Works };
    Ok(Report { version, state, checks })
}

/// Those of the journals; where there is none, each device of ours; and one that is missing where there is no device either.
fn adapters(machine: &mut impl Machine, name: Option<&str>) -> Result<Vec<Adapter>> {
    let journals = Journals::read(machine)?;
    let known = journals.adapters.iter().map(|journal| Adapter {
        name: journal.request.name.clone(),
        device: journal.device.clone(),
    });
    let mut adapters: Vec<_> = known.collect();
    if adapters.is_empty() {
        let devices = machine.devices()?.into_iter();
        adapters.extend(devices.map(|device| Adapter { name: device.clone(), device }));
    }
    if let Some(name) = name {
        adapters.retain(|adapter| adapter.name.eq_ignore_ascii_case(name));
        ensure!(!adapters.is_empty(), "nothing is installed{}", by_name(Some(name)));
    }
    if adapters.is_empty() {
        adapters.push(Adapter { name: String::new(), device: String::new() });
    }
    Ok(adapters)
}

fn run<M: Machine>(
    machine: &mut M,
    scope: &Scope<'_>,
    check: Check<M>,
    adapter: Option<&String>,
) -> Checked {
    let Check { name: check, run, crosses_wire, mends } = check;
    let (outcome, says, mends) = match run(machine, scope) {
        Ok(Verdict::Passed(found)) => (Outcome::Passed, found, None),
        Ok(Verdict::Skipped(why)) => (Outcome::Skipped, why.into(), None),
        Err(error) => {
            let silent = crosses_wire.then(|| silence::mends(machine, scope).ok().flatten());
            let mends = silent.flatten().unwrap_or_else(|| mends.into());
            (Outcome::Failed, format!("{error:#}"), Some(mends))
        }
    };
    Checked { check, adapter: adapter.cloned(), outcome, says, mends }
}

fn tell(report: &Report, say: &mut impl FnMut(String)) {
    for checked in &report.checks {
        let word = match checked.outcome {
            Outcome::Passed => "passed ",
            Outcome::Skipped => "skipped",
            Outcome::Failed => "FAILED ",
        };
        let mends = checked.mends.iter().map(|mends| format!("\n         mends it: {mends}"));
        let mends: String = mends.collect();
        say(format!("{word}  {}: {}{mends}", checked.title(), checked.says));
    }
    say(match report.state {
        State::NotInstalled => "not installed: `ndkrocev2ctl install --nic` installs it".into(),
        State::Works => "All that was checked works.".into(),
        State::Fails => {
            let mut checks = report.checks.iter();
            let first = checks.find(|checked| checked.outcome == Outcome::Failed);
            format!("First look at: {}", first.map(Checked::title).unwrap_or_default())
        }
    });
}

impl Checked {
    fn title(&self) -> String {
        match &self.adapter {
            Some(adapter) => format!("{} of '{adapter}'", self.check),
            None => self.check.into(),
        }
    }
}
