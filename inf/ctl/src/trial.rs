//! Installing under Wine, in a process each: twice in a row, with each fault at each change, and with undoings and orders that
//! are wrong on purpose. Nothing may be left of it, and the deliberate mistakes must be found.

mod snapshot;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::exit::Exit;
use crate::journal::{Journal, Journals, Progress};
use snapshot::Snapshot;

/// How a process ends that was told to die.
pub(crate) const DIED: i32 = 137;
/// The death before a change is the one after the change before it: nothing happens in between.
const FAULTS: [&str; 3] = ["refused", "denied", "dies-after"];
/// Undoings that an uninstallation leaves out on purpose, while it says that they were made.
const SKIPPED: [&str; 8] = [
    "remove_device",
    "remove_protocol",
    "unregister_counters",
    "unstage",
    "distrust",
    "cancel_rollback",
    "remove_tool",
    "set_journal",
];
/// Those that only Inherit mode has.
const SKIPPED_IN_INHERIT: [&str; 2] = ["bind", "add_ip_settings"];
/// Steps that come too late or too early on purpose: the last one of these words goes behind the other.
const MOVED: [(&str, &str); 3] = [
    ("trust", "add ndkrocev2-lower.inf"),
    ("install the protocol", "install the device's driver"),
    ("unbind", "create the device"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Trial {
    /// The arguments of `install`
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn trial(asked: &Trial) -> Result<Exit> {
    let words = |last| asked.arguments.iter().map(String::as_str).chain(last);
    let install: Vec<&str> = ["install"].into_iter().chain(words(None)).collect();
    let dry: Vec<&str> = ["install"].into_iter().chain(words(Some("--dry-run"))).collect();
    crate::windows::hold_desktop();
    // Opens what is made when it is first opened: the certificate stores, and the file that stands in for the network.
    run(&dry, None, 0)?;
    let before = Snapshot::take()?;
    let changes = twice(&install, &before)?;
    println!("trial: installed and uninstalled twice");
    two(&install, &before)?;
    println!("trial: two adapters, removed in either order");
    let common = if is_inherit(&install) { like_own(&install, &changes)? } else { 0 };
    let found = skipped(&install, &before)? + moved(&install, &before)?;
    println!("trial: {found} deliberate mistakes, all found");
    each_fault(&install, common + 1..=changes.len(), &before)?;
    println!(
        "trial: {} changes, each after {common} refused, denied and died of, all undone",
        changes.len()
    );
    Ok(Exit::Done)
}

/// In a row, and once too often each time.
fn twice(install: &[&str], before: &Snapshot) -> Result<Vec<String>> {
    let mut changes = Vec::new();
    for confirms in [false, true] {
        changes = run(install, None, 0)?;
        says("on 'Ethernet'")?;
        if confirms {
            run(&["confirm"], None, 0)?;
            run(&["rollback"], None, 0)?;
            says("confirmed")?;
        }
        before.ensure_differs()?;
        ensure!(run(install, None, 0)?.is_empty(), "a second installation changes something");
        run(&["uninstall"], None, 0)?;
        before.ensure_same("after uninstalling")?;
        run(&["uninstall"], None, 0)?;
        says("none")?;
    }
    Ok(changes)
}

/// The second is on the other NIC; what both share goes with the last.
fn two(install: &[&str], before: &Snapshot) -> Result<()> {
    let other = install.iter().map(|word| if *word == "Ethernet" { "Other" } else { *word });
    let second: Vec<&str> = other.chain(["--name", "Second"]).collect();
    for order in [["RoCEv2", "Second"], ["Second", "RoCEv2"]] {
        run(install, None, 0)?;
        run(&second, None, 0)?;
        says("'Second' on 'Other'")?;
        run(&["uninstall", "--name", order[0]], None, 0)?;
        says(&format!("'{}' on", order[1]))?;
        before.ensure_differs()?;
        run(&["uninstall", "--name", order[1]], None, 0)?;
        before.ensure_same("after both")?;
    }
    Ok(())
}

fn is_inherit(install: &[&str]) -> bool {
    install.contains(&"inherit")
}

/// How many changes Own mode begins with, too: the trial of that mode has their faults.
fn like_own(install: &[&str], changes: &[String]) -> Result<usize> {
    let own = install.iter().map(|word| if *word == "inherit" { "own" } else { *word });
    let own = run(&own.collect::<Vec<_>>(), None, 0)?;
    run(&["uninstall"], None, 0)?;
    Ok(changes.iter().zip(own).take_while(|(change, own)| *change == own).count())
}

fn each_fault(install: &[&str], changes: RangeInclusive<usize>, before: &Snapshot) -> Result<()> {
    let first = ("1 dies-before".to_string(), 1);
    let faults = changes.flat_map(|n| FAULTS.map(|fault| (format!("{n} {fault}"), n)));
    for (fault, n) in [first].into_iter().chain(faults) {
        let dies = fault.contains("dies");
        run(install, Some(&fault), if dies { DIED } else { 1 })?;
        if dies {
            // By turns the way back is that of the scheduled task.
            run(&[if n % 2 == 0 { "rollback" } else { "uninstall" }], None, 0)?;
        }
        before.ensure_same(&fault)?;
    }
    Ok(())
}

/// Each of them is found, or this trial would find no real one. Another uninstallation by the same journal mends it.
fn skipped(install: &[&str], before: &Snapshot) -> Result<usize> {
    let more: &[&str] = if is_inherit(install) { &SKIPPED_IN_INHERIT } else { &[] };
    for name in SKIPPED.iter().chain(more) {
        run(install, None, 0)?;
        let journal = fs::read_to_string(journal()?)?;
        let (code, text) = command(&["uninstall"], Some(&format!("{name} ignored")))?;
        let found = code != 0 || before.ensure_same(name).is_err();
        ensure!(found, "nobody noticed that {name} was left out:\n{text}");
        restore(&journal)?;
        run(&["uninstall"], None, 0)?;
        before.ensure_same(&format!("{name}, made up for"))?;
    }
    Ok(SKIPPED.len() + more.len())
}

/// As above, for steps in another order: the journal has them, and an installation that was broken off goes on by it.
fn moved(install: &[&str], before: &Snapshot) -> Result<usize> {
    run(install, None, 0)?;
    let sound = fs::read_to_string(journal()?)?;
    run(&["uninstall"], None, 0)?;
    let mut found = 0;
    for (step, behind) in MOVED {
        let mut changed: Journals = serde_json::from_str(&sound)?;
        let [only] = &mut changed.adapters[..] else { bail!("not one journal") };
        if !reorder(only, step, behind) {
            continue;
        }
        restore(&serde_json::to_string(&changed)?)?;
        let [(installed, text), (uninstalled, more)] =
            [command(install, None)?, command(&["uninstall"], None)?];
        ensure!(
            installed != 0 || uninstalled != 0,
            "nobody noticed {step:?} behind {behind:?}:\n{text}{more}"
        );
        restore(&sound)?;
        run(&["uninstall"], None, 0)?;
        before.ensure_same(&format!("{step:?} behind {behind:?}"))?;
        found += 1;
    }
    Ok(found)
}

/// Nothing is done yet. False where a step does not exist.
fn reorder(journal: &mut Journal, step: &str, behind: &str) -> bool {
    let entries = &mut journal.entries;
    entries.iter_mut().for_each(|entry| entry.progress = Progress::Planned);
    let Some(from) = entries.iter().rposition(|e| e.step.to_string().starts_with(step)) else {
        return false;
    };
    let entry = entries.remove(from);
    let Some(to) = entries.iter().position(|e| e.step.to_string().starts_with(behind)) else {
        return false;
    };
    entries.insert(to + 1, entry);
    true
}

fn journal() -> Result<PathBuf> {
    let programs = env::var_os("ProgramFiles").context("there is no folder of programs")?;
    Ok(Path::new(&programs).join(r"ndkrocev2\journal.json"))
}

fn restore(text: &str) -> Result<()> {
    let journal = journal()?;
    fs::create_dir_all(journal.parent().context("no folder")?)?;
    Ok(fs::write(journal, text)?)
}

fn command(arguments: &[&str], fault: Option<&str>) -> Result<(i32, String)> {
    let mut command = Command::new(env::current_exe()?);
    command.args(arguments).env_remove("NDKROCEV2CTL_FAULT");
    if let Some(fault) = fault {
        command.env("NDKROCEV2CTL_FAULT", fault);
    }
    let output = crate::windows::output(&mut command)?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
}

/// Runs this program, and returns the changes that it made.
fn run(arguments: &[&str], fault: Option<&str>, wanted: i32) -> Result<Vec<String>> {
    let (code, text) = command(arguments, fault)?;
    ensure!(code == wanted, "{arguments:?} {fault:?}: exit code {code}, not {wanted}:\n{text}");
    let changes = text.lines().find_map(|line| line.strip_prefix("changes: "));
    Ok(changes.unwrap_or_default().split_whitespace().map(Into::into).collect())
}

fn says(words: &str) -> Result<()> {
    let (_, text) = command(&["status"], None)?;
    ensure!(text.contains(words), "no {words:?} in:\n{text}");
    Ok(())
}
