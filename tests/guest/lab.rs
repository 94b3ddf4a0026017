//! Boots the guest with a script, and takes what its programs printed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a measurement printed, by its name.
pub(crate) type Printed = BTreeMap<String, String>;

/// Why there is nothing to show.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This machine lacks something.
    Skipped(String),
    Wrong(String),
}

/// By which `lab` says that the machine lacks something.
const CANNOT: i32 = 77;
/// The suite with a kernel whose rxe has a socket in each name space.
const SUITE: &str = "trixie-backports";

/// Runs these lines behind `guest.sh` in a guest whose clock counts instructions.
pub(crate) fn run(script: &str) -> Result<Printed, Failure> {
    let target = target();
    let dir = folder();
    // What an earlier run left would pass for a result.
    let _ = fs::remove_dir_all(&dir);
    let written = |result: std::io::Result<()>| result.map_err(|error| wrong(&dir, &error));
    written(fs::create_dir_all(&dir))?;
    for program in ["events", "raw"] {
        let source = source(&format!("lab/{program}.c"));
        lab(&["cc".as_ref(), source.as_ref(), dir.join(program).as_ref()])?;
    }
    let ours = ndkperf(&target)?;
    written(fs::copy(&ours, dir.join("ndkperf")).map(drop))?;
    let frame =
        fs::read_to_string(source("guest/guest.sh")).map_err(|error| wrong(&dir, &error))?;
    written(fs::write(dir.join("run.sh"), format!("{frame}\n{script}")))?;
    eprintln!("a guest measures; what it says is in {}", dir.display());
    let console =
        lab(&["boot".as_ref(), dir.as_ref(), "-icount".as_ref(), "shift=0,sleep=off".as_ref()])?;
    written(fs::write(dir.join("console.log"), &console))?;
    // A program that failed says so there.
    console.lines().skip(1).for_each(|line| eprintln!("{line}"));
    printed(&dir.join("out")).map_err(|error| wrong(&dir, &error))
}

fn printed(out: &Path) -> std::io::Result<Printed> {
    fs::read_dir(out)?
        .map(|entry| {
            let entry = entry?;
            Ok((
                entry.file_name().to_string_lossy().into_owned(),
                fs::read_to_string(entry.path())?,
            ))
        })
        .collect()
}

fn wrong(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Wrong(format!("{}: {error}", path.display()))
}

fn source(name: &str) -> PathBuf {
    Path::new(tests::ROOT).join("tests").join(name)
}

/// Draws documents of `ndkperf` as it does for its users.
///
/// # Errors
/// It cannot.
pub(crate) fn plot(documents: &[String], picture: &str) -> Result<(), Failure> {
    let mut command = Command::new(ndkperf(&target())?);
    command.arg("plot").args(documents).args(["--output", picture]);
    output(&mut command).map(drop)
}

/// The folder of what a guest has left.
pub(crate) fn folder() -> PathBuf {
    target().join("tmp/guest")
}

/// The folder that this program was built in.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    program.ancestors().nth(3).expect("it is in target/PROFILE/examples").to_path_buf()
}

/// Our program as its users build it, unless `NDKPERF` names another.
fn ndkperf(target: &Path) -> Result<PathBuf, Failure> {
    if let Some(program) = std::env::var_os("NDKPERF") {
        return Ok(program.into());
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--package", "ndkperf", "--bin", "ndkperf", "--target-dir"]);
    output(cargo.arg(target).current_dir(tests::ROOT))?;
    Ok(target.join("release/ndkperf"))
}

fn lab(arguments: &[&OsStr]) -> Result<String, Failure> {
    let mut command = Command::new("python3");
    command.arg(source("lab/lab")).args(arguments);
    if std::env::var_os("NDKROCEV2_LAB_SUITE").is_none() {
        command.env("NDKROCEV2_LAB_SUITE", SUITE);
    }
    output(&mut command)
}

/// What the command prints.
fn output(command: &mut Command) -> Result<String, Failure> {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let program = command.get_program().display();
            return Err(Failure::Skipped(format!("{program} missing")));
        }
        Err(error) => return Err(Failure::Wrong(format!("{command:?}: {error}"))),
    };
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(CANNOT) => Err(Failure::Skipped(said.lines().last().unwrap_or_default().into())),
        _ => Err(Failure::Wrong(said)),
    }
}
