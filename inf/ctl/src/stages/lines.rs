//! What a stage tells: a line of JSON for each check, written as soon as it is known.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Asked, Stage};
use crate::machine::Host;
use crate::verify::{Outcome, Verdict};

/// The end of a file of lines.
pub(super) const EXTENSION: &str = "jsonl";

/// A stage on a kind of machine, with a kind of image.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub(super) struct Leg {
    pub(super) runner: String,
    pub(super) image: String,
    pub(super) stage: Stage,
}

#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub(super) enum Line {
    Begun {
        leg: Leg,
        version: String,
        host: Host,
    },
    Check {
        check: String,
        outcome: Outcome,
        says: String,
    },
    /// A file without it is of a machine that stopped.
    Ended {
        leg: Leg,
        outcome: Outcome,
        says: String,
        /// Bytes went by RDMA.
        rdma: bool,
    },
}

/// Why a stage does not go on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    Skipped(String),
    Failed(String),
}

pub(super) struct Lines<'a> {
    file: File,
    leg: Leg,
    json: bool,
    say: &'a mut dyn FnMut(String),
    rdma: bool,
}

impl<'a> Lines<'a> {
    /// Begins the file of the stage anew.
    pub(super) fn create(asked: &Asked, say: &'a mut dyn FnMut(String)) -> Result<Self> {
        let Asked { stage, runner, image, out, json, .. } = asked;
        let name = format!("{runner}-{image}-{}.{EXTENSION}", stage.name());
        let file = out.join(name);
        let file = File::create(&file).with_context(|| file.display().to_string())?;
        let leg = Leg { runner: runner.clone(), image: image.clone(), stage: *stage };
        Ok(Self { file, leg, json: *json, say, rdma: false })
    }

    fn write(&mut self, line: &Line, words: String) -> Result<()> {
        let text = serde_json::to_string(line)?;
        writeln!(self.file, "{text}")?;
        // A machine that stops next keeps what was written; one in a test does not stop.
        if cfg!(windows) {
            self.file.sync_data()?;
        }
        (self.say)(if self.json { text } else { words });
        Ok(())
    }

    pub(super) fn begin(&mut self, host: &Host) -> Result<()> {
        let version = env!("CARGO_PKG_VERSION").to_string();
        let words = format!("stage {}", self.leg.stage.name());
        self.write(&Line::Begun { leg: self.leg.clone(), version, host: host.clone() }, words)
    }

    /// A check's end, which ends the stage where it is no pass.
    pub(super) fn check(&mut self, check: &str, ended: Result<Verdict>) -> Result<(), End> {
        let (outcome, says) = match ended {
            Ok(Verdict::Passed(found)) => (Outcome::Passed, found),
            Ok(Verdict::Skipped(why)) => (Outcome::Skipped, why.into()),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        };
        let words = format!("{outcome:?}  {check}: {says}");
        let line = Line::Check { check: check.into(), outcome, says: says.clone() };
        self.write(&line, words).map_err(|error| End::Failed(format!("{error:#}")))?;
        let says = format!("{check}: {says}");
        match outcome {
            Outcome::Passed => Ok(()),
            Outcome::Skipped => Err(End::Skipped(says)),
            Outcome::Failed => Err(End::Failed(says)),
        }
    }

    pub(super) fn saw_rdma(&mut self) {
        self.rdma = true;
    }

    pub(super) fn end(&mut self, end: Result<(), End>) -> Result<Outcome> {
        let (outcome, says) = match end {
            Ok(()) => (Outcome::Passed, String::new()),
            Err(End::Skipped(why)) => (Outcome::Skipped, why),
            Err(End::Failed(why)) => (Outcome::Failed, why),
        };
        let words = format!("{outcome:?}  stage {}: {says}", self.leg.stage.name());
        let line = Line::Ended { leg: self.leg.clone(), outcome, says, rdma: self.rdma };
        self.write(&line, words)?;
        Ok(outcome)
    }
}

/// The lines of a file; one that was cut off at its end is none.
pub(super) fn read(file: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).with_context(|| file.display().to_string()))
        .collect()
}
