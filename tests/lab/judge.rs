//! The judges of captures (`lab/judge.py`), and how a tool of the lab says that this machine lacks something.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output};

use super::{lab_file, skip};

/// The exit status by which the lab and the judges say that this machine lacks something.
const CANNOT: i32 = 77;

/// What a tool of the lab came to, with what it printed.
#[derive(Debug)]
pub enum Verdict {
    /// All is right.
    Sound(String),
    /// Something is wrong.
    Wrong(String),
    /// This machine lacks the tool.
    Skipped(String),
}

/// Asks one judge of `judge.py`; behind a colon stands its argument.
pub fn verdict(judge: &str, capture: &Path) -> Verdict {
    let (judge, argument) = judge.split_once(':').map_or((judge, None), |(a, b)| (a, Some(b)));
    let mut command = Command::new("python3");
    run(command.arg(lab_file("judge.py")).arg(judge).arg(capture).args(argument))
}

/// Asserts that these judges accept the capture. Returns how many packets of each kind it has, which `icrc` counts.
pub fn judge(capture: &Path, judges: &[&str]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for judge in judges {
        match verdict(judge, capture) {
            Verdict::Sound(said) => kinds.extend(said.lines().filter_map(|line| {
                let (kind, count) = line.split_once(' ')?;
                Some((kind.to_string(), count.parse().ok()?))
            })),
            Verdict::Skipped(reason) => skip(&reason),
            Verdict::Wrong(said) => panic!("{judge} on {}:\n{said}", capture.display()),
        }
    }
    kinds
}

pub(super) fn run(command: &mut Command) -> Verdict {
    let Output { status, stdout, stderr } = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Verdict::Skipped("python3 missing".into());
        }
        Err(error) => panic!("{command:?}: {error}"),
    };
    let said = String::from_utf8_lossy(&stderr).trim().to_string();
    match status.code() {
        Some(0) => Verdict::Sound(String::from_utf8_lossy(&stdout).into_owned()),
        Some(CANNOT) => Verdict::Skipped(said.lines().last().unwrap_or_default().into()),
        _ => Verdict::Wrong(said),
    }
}
