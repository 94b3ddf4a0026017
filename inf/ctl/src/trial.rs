//! Each fault at each change of an installation under Wine, in a process each: nothing may be left of it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use windows_registry::{Key, LOCAL_MACHINE};

/// All below these keys is compared.
const KEYS: [&str; 5] = [
    r"SYSTEM\CurrentControlSet\Enum\ROOT",
    r"SYSTEM\CurrentControlSet\Control\Class",
    r"SYSTEM\CurrentControlSet\Services",
    r"SOFTWARE\Microsoft\SystemCertificates",
    r"SOFTWARE\Microsoft\Windows NT\CurrentVersion\Schedule",
];
/// The names and sizes of all files below these folders are compared.
const FOLDERS: [&str; 4] = [
    r"windows\inf",
    r"windows\system32\drivers",
    r"windows\system32\tasks",
    r"Program Files\ndkrocev2",
];
const DIED: i32 = 137;

#[derive(Debug, clap::Args)]
pub(crate) struct Trial {
    /// The arguments of `install`
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn trial(asked: &Trial) -> Result<ExitCode> {
    let install: Vec<&str> =
        ["install"].into_iter().chain(asked.arguments.iter().map(String::as_str)).collect();
    // There is nothing to remove, but the file that stands in for the network is made.
    run(&["uninstall"], None, 0)?;
    let before = observe()?;
    // Twice in a row, and once too often each time.
    let mut changes = 0;
    for _ in 0..2 {
        changes = run(&install, None, 0)?;
        same(&run_text(&["status"])?, "on 'Ethernet'")?;
        ensure!(observe()? != before, "an installation that nobody can see");
        ensure!(run(&install, None, 0)? <= 2, "a second installation changes something");
        run(&["uninstall"], None, 0)?;
        is_as(&before, "after uninstalling")?;
        run(&["uninstall"], None, 0)?;
        same(&run_text(&["status"])?, "none")?;
    }
    for n in 1..=changes {
        for fault in ["refused", "denied", "dies-before", "dies-after"] {
            let fault = format!("{n} {fault}");
            let dies = fault.contains("dies");
            run(&install, Some(&fault), if dies { DIED } else { 1 })?;
            if dies {
                // By turns the way back is that of the scheduled task.
                run(&[if n % 2 == 0 { "rollback" } else { "uninstall" }], None, 0)?;
            }
            is_as(&before, &fault)?;
        }
    }
    println!("trial: {changes} changes, four faults at each, all undone");
    Ok(ExitCode::SUCCESS)
}

fn command(arguments: &[&str], fault: Option<&str>) -> Result<(i32, String)> {
    let mut command = Command::new(env::current_exe()?);
    command.args(arguments).env_remove("NDKROCEV2CTL_FAULT");
    if let Some(fault) = fault {
        command.env("NDKROCEV2CTL_FAULT", fault);
    }
    let output = command.output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
}

/// Runs this program, and returns how many changes it made.
fn run(arguments: &[&str], fault: Option<&str>, wanted: i32) -> Result<u32> {
    let (code, text) = command(arguments, fault)?;
    ensure!(code == wanted, "{arguments:?} {fault:?}: exit code {code}, not {wanted}:\n{text}");
    let changes = text.lines().find_map(|line| line.strip_prefix("changes: "));
    Ok(changes.map_or(Ok(0), str::parse)?)
}

fn run_text(arguments: &[&str]) -> Result<String> {
    Ok(command(arguments, None)?.1)
}

fn same(text: &str, words: &str) -> Result<()> {
    ensure!(text.contains(words), "no {words:?} in:\n{text}");
    Ok(())
}

fn is_as(before: &str, what: &str) -> Result<()> {
    let after = observe()?;
    if after == *before {
        return Ok(());
    }
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let come = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
    bail!("{what}: the machine is another:\n{}", gone.chain(come).collect::<Vec<_>>().join("\n"))
}

/// All that an installation could leave behind.
fn observe() -> Result<String> {
    let mut text = String::new();
    for key in KEYS {
        if let Ok(opened) = LOCAL_MACHINE.open(key) {
            list_key(key, &opened, &mut text)?;
        }
    }
    for folder in FOLDERS {
        list_folder(&Path::new(r"C:\").join(folder), &mut text)?;
    }
    let file = PathBuf::from(env::var_os("NDKROCEV2CTL_STATE").context("no file")?);
    text += &fs::read_to_string(file).unwrap_or_default();
    Ok(text)
}

fn list_key(path: &str, key: &Key, text: &mut String) -> Result<()> {
    writeln!(text, "{path}")?;
    for (name, value) in key.values()? {
        writeln!(text, "{path} {name} = {value:?}")?;
    }
    for name in key.keys()? {
        list_key(&format!(r"{path}\{name}"), &key.open(&name)?, text)?;
    }
    Ok(())
}

fn list_folder(folder: &Path, text: &mut String) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            list_folder(&path, text)?;
        } else {
            writeln!(text, "{} {}", path.display(), fs::metadata(&path)?.len())?;
        }
    }
    Ok(())
}
