//! From which sources, when and by which compiler.

use anyhow::{Context as _, Result, ensure};
use std::env;
use std::path::Path;
use std::process::Command;

/// The sources of a release, and the compiler. They are the same in every clone.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The package's, which is the workspace's.
    pub version: &'static str,
    /// The commit, if this is a clone; with a mark if files differ from it.
    pub commit: Option<String>,
    /// Seconds since 1970: the commit's time, or
    /// [`SOURCE_DATE_EPOCH`](https://reproducible-builds.org/specs/source-date-epoch/).
    pub at_s: u64,
    /// The first line of `rustc -vV`.
    pub rustc: String,
}

impl Origin {
    /// Of the workspace in a folder.
    pub fn read(root: &Path) -> Result<Self> {
        let git = |arguments: &[&str]| run(Command::new("git").arg("-C").arg(root).args(arguments));
        let commit = git(&["log", "-1", "--format=%H %ct"]).ok();
        let (mut hash, mut time) = (None, None);
        if let Some((commit, at)) = commit.as_deref().and_then(|line| line.split_once(' ')) {
            let changed = !git(&["status", "--porcelain"])?.is_empty();
            hash = Some(format!("{commit}{}", if changed { "-changed" } else { "" }));
            time = Some(at.to_owned());
        }
        let time = env::var("SOURCE_DATE_EPOCH").ok().or(time);
        let time = time.context("neither a git clone nor SOURCE_DATE_EPOCH tells the date")?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: hash,
            at_s: time.parse().with_context(|| format!("a date of {time:?} seconds"))?,
            rustc: run(Command::new("rustc").arg("-V"))?,
        })
    }
}

/// The output of a program.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
