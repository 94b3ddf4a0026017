//! The programs that measure, and how their figures are read.

use crate::figures::Figures;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Measured together, by one program.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Part {
    Instructions,
    Memory,
    Loss,
    Resends,
    Times,
    Scale,
    Allocations,
    Image,
    Guest,
}

impl Part {
    pub(crate) const ALL: [Self; 9] = [
        Self::Instructions,
        Self::Memory,
        Self::Loss,
        Self::Resends,
        Self::Times,
        Self::Scale,
        Self::Allocations,
        Self::Image,
        Self::Guest,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Memory => "memory",
            Self::Loss => "loss",
            Self::Resends => "resends",
            Self::Times => "times",
            Self::Scale => "scale",
            Self::Allocations => "allocations",
            Self::Image => "image",
            Self::Guest => "guest",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }

    /// An error is why there are no figures.
    pub(crate) fn measure(self, figures: &mut Figures) -> Result<(), String> {
        match self {
            Self::Instructions => instructions(figures),
            Self::Memory => recorded(&mut cargo("test -p tests --test memory"), figures),
            Self::Loss => {
                recorded(&mut cargo("run --release -p tests --example incast -- --loss"), figures)
            }
            Self::Resends => resends(figures),
            Self::Times => times(figures),
            Self::Scale => recorded(
                cargo("test --release -p tests --test scale").env("SCALE", "table"),
                figures,
            ),
            Self::Allocations => recorded(&mut cargo("test -p tests --test allocation"), figures),
            Self::Image => image(figures),
            Self::Guest => recorded(&mut cargo("run -p tests --example guest"), figures),
        }
    }
}

/// Runs a program of the tests, which appends its figures to a file: those, too, after which it failed.
fn recorded(command: &mut Command, figures: &mut Figures) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let done = run(command.env("FIGURES", file.path()));
    figures.read(&fs::read_to_string(file.path()).map_err(|error| error.to_string())?);
    done.map(drop)
}

fn instructions(figures: &mut Figures) -> Result<(), String> {
    let mut bench = cargo("bench -p instructions -- --output-format=json");
    // A count over its limit is a figure, too, though the bench fails.
    let (printed, failed) = output(&mut bench)?;
    if printed.is_empty() {
        return Err(failed.unwrap_or_default());
    }
    for document in serde_json::Deserializer::from_str(&printed).into_iter::<Value>() {
        let document = document.map_err(|error| error.to_string())?;
        let id = document["id"].as_str().ok_or("a line of the bench has no name")?.to_string();
        let counts = &document["profiles"][0]["data"]["total"]["metrics"];
        for (event, name) in [("Ir", "instructions"), ("RamHits", "misses")] {
            let count = counts[event]["values"]["new"].as_f64();
            let count = count.ok_or_else(|| format!("no {event} of {id}"))?;
            figures.put(format!("{name}/{id}"), count / MESSAGES);
        }
    }
    Ok(())
}

/// The dearest operation towards a peer that keeps what comes early, and towards one that does not. `rocev2` has no
/// use for a file of figures, and says them.
fn resends(figures: &mut Figures) -> Result<(), String> {
    let printed = run(&mut cargo("test -p rocev2 --lib loss:: -- --nocapture"))?;
    // Three in a hundred, of other tests other parts.
    let lines = || printed.lines().filter(|line| line.contains("loss: 30,"));
    for (peer, name) in
        [("peer holds: true: ", "resends/ours"), ("peer holds: false: ", "resends/dropper")]
    {
        let costs = lines().filter_map(|line| line.split_once(peer)?.1.parse().ok());
        let most = costs.fold(0.0, f64::max);
        if most == 0.0 {
            return Err(format!("no cost of {name}"));
        }
        figures.put(name.into(), most);
    }
    Ok(())
}

/// Messages of a line of the bench.
const MESSAGES: f64 = 1024.0;

fn times(figures: &mut Figures) -> Result<(), String> {
    let lines =
        ["passes/4096", "ring", "tables/plain/64", "tables/plain/4096", "tables/units/4096"];
    run(&mut cargo("bench -p messages --bench hot_path -- ^(passes|ring|tables)"))?;
    for line in lines {
        let path = target()?.join("criterion").join(line).join("new/estimates.json");
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let estimates: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let median = estimates["median"]["point_estimate"].as_f64().ok_or("no median")?;
        figures.put(format!("times/{line}"), median);
    }
    Ok(())
}

fn image(figures: &mut Figures) -> Result<(), String> {
    run(&mut command(&root().join("tests/windows/build").display().to_string(), ""))?;
    let path = root().join("target/windows/ndkrocev2.sys");
    let size = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?.len();
    figures.put("image/size".into(), size as f64);
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package lies in the repository")
        .into()
}

/// The folder that cargo builds in.
fn target() -> Result<PathBuf, String> {
    let metadata = run(&mut cargo("metadata --no-deps --format-version 1"))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "no target folder".into())
}

fn cargo(arguments: &str) -> Command {
    command(env!("CARGO"), arguments)
}

fn command(program: &str, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).current_dir(root());
    command
}

/// What the program prints, or why it does not: what it lacks, or that it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let (printed, failed) = output(command)?;
    let lacks = printed.lines().find_map(|line| line.strip_prefix("skipped: "));
    match lacks.map(str::to_string).or(failed) {
        None => Ok(printed),
        Some(reason) => Err(reason),
    }
}

/// What the program prints, and how it failed if it did.
fn output(command: &mut Command) -> Result<(String, Option<String>), String> {
    let name = format!("{} {}", command.get_program().display(), arguments(command));
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = (!output.status.success()).then(|| format!("{name}: {}", output.status));
    Ok((printed, failed))
}

fn arguments(command: &Command) -> String {
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    arguments.join(" ")
}
