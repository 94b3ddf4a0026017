//! One page of all that the stages wrote, and the verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::Stage;
use super::lines::{EXTENSION, Leg, Line, read};
use crate::exit::Exit;
use crate::verify::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    /// The folder of what the stages wrote; folders in it are looked into
    folder: PathBuf,
    /// A kind of machine and a kind of image that were to fly all stages, such as windows-2025/wdk
    #[arg(long, value_name = "RUNNER/IMAGE", required = true, value_parser = pair)]
    expect: Vec<(String, String)>,
    /// The file that gets the page
    #[arg(long, default_value = "flight.md")]
    page: PathBuf,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (runner, image) = text.split_once('/').ok_or("no RUNNER/IMAGE")?;
    Ok((runner.into(), image.into()))
}

/// How a stage ended on a machine.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Ended {
    outcome: Outcome,
    says: String,
    rdma: bool,
}

/// What all of them together show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shown {
    Passed,
    /// Nothing failed, and some stages were skipped.
    InPart,
    /// Nothing failed, and on some machine no byte went by RDMA.
    WithoutRdma,
    Failed,
}

pub(super) fn write(asked: &Asked, say: &mut dyn FnMut(String)) -> Result<Exit> {
    let mut ended = BTreeMap::new();
    for file in files(&asked.folder)? {
        let (leg, end) = last(&file)?;
        let again = ended.insert(leg, end);
        ensure!(again.is_none(), "{}: its stage was told before", file.display());
    }
    let expected = expected(&asked.expect);
    for leg in &expected {
        ended.entry(leg.clone()).or_insert_with(|| Ended {
            outcome: Outcome::Failed,
            says: "not a word: the machine stopped, or the stage never began".into(),
            rdma: false,
        });
    }
    let shown = judge(&asked.expect, &ended);
    let page = page(shown, &ended);
    std::fs::write(&asked.page, &page).with_context(|| asked.page.display().to_string())?;
    say(page);
    Ok(match shown {
        Shown::Passed => Exit::Done,
        Shown::InPart | Shown::WithoutRdma => Exit::Skipped,
        Shown::Failed => Exit::Failed,
    })
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// The end that a file tells, or that it has none.
fn last(file: &Path) -> Result<(Leg, Ended)> {
    let lines = read(file)?;
    let Some(Line::Begun { leg, .. }) = lines.first() else {
        anyhow::bail!("{} does not begin", file.display());
    };
    let checks = lines.iter().rev().find_map(|line| match line {
        Line::Check { check, .. } => Some(check.as_str()),
        Line::Begun { .. } | Line::Ended { .. } => None,
    });
    let ended = match lines.last() {
        Some(Line::Ended { outcome, says, rdma, .. }) => {
            Ended { outcome: *outcome, says: says.clone(), rdma: *rdma }
        }
        _ => Ended {
            outcome: Outcome::Failed,
            says: format!(
                "the machine or the program stopped behind: {}",
                checks.unwrap_or("its begin")
            ),
            rdma: false,
        },
    };
    Ok((leg.clone(), ended))
}

fn expected(pairs: &[(String, String)]) -> Vec<Leg> {
    let legs = pairs.iter().flat_map(|(runner, image)| {
        let leg =
            |stage: &Stage| Leg { runner: runner.clone(), image: image.clone(), stage: *stage };
        Stage::value_variants().iter().map(leg)
    });
    legs.collect()
}

/// A flight without RDMA is no pass, on any machine.
fn judge(pairs: &[(String, String)], ended: &BTreeMap<Leg, Ended>) -> Shown {
    let any = |outcome| ended.values().any(|end| end.outcome == outcome);
    let has_rdma = |(runner, image): &(String, String)| {
        ended.iter().any(|(leg, end)| {
            (&leg.runner, &leg.image) == (runner, image)
                && end.rdma
                && end.outcome == Outcome::Passed
        })
    };
    if any(Outcome::Failed) {
        Shown::Failed
    } else if !pairs.iter().all(has_rdma) {
        Shown::WithoutRdma
    } else if any(Outcome::Skipped) {
        Shown::InPart
    } else {
        Shown::Passed
    }
}

fn page(shown: Shown, ended: &BTreeMap<Leg, Ended>) -> String {
    let verdict = match shown {
        Shown::Passed => "passed: each stage, on each machine",
        Shown::InPart => "passed in part: nothing failed, and some stages were skipped",
        Shown::WithoutRdma => "no pass: nothing failed, and not on each machine RDMA ran",
        Shown::Failed => "failed",
    };
    let count = |outcome| ended.values().filter(|end| end.outcome == outcome).count();
    let mut page = format!(
        "# Flight: {verdict}\n\n{} stages passed, {} skipped, {} failed.\n",
        count(Outcome::Passed),
        count(Outcome::Skipped),
        count(Outcome::Failed)
    );
    let mut section = (String::new(), String::new());
    for (leg, end) in ended {
        if section != (leg.runner.clone(), leg.image.clone()) {
            section = (leg.runner.clone(), leg.image.clone());
            page += &format!(
                "\n## {}, image {}\n\n| Stage | | RDMA | |\n| --- | --- | --- | --- |\n",
                leg.runner, leg.image
            );
        }
        let word = match end.outcome {
            Outcome::Passed => "passed",
            Outcome::Skipped => "skipped",
            Outcome::Failed => "**failed**",
        };
        let rdma = if end.rdma { "yes" } else { "" };
        page += &format!("| {} | {word} | {rdma} | {} |\n", leg.stage.name(), cell(&end.says));
    }
    page
}

/// One line of a table, and no markup.
fn cell(says: &str) -> String {
    const LONGEST: usize = 400;
    let words = says.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: String = words.chars().take(LONGEST).collect();
    words.replace('|', r"\|").replace('<', "&lt;").replace('`', "'")
}
