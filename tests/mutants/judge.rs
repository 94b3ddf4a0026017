//! The suites run against a bug: the cheapest first, until one fails.

use crate::tree::build;
use crate::weave::Bug;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In order of cost.
pub(crate) const SUITES: [&str; 3] = ["unit", "conformance", "simulator"];

/// What a run may use: seconds of processor time, several times what it needs, and KiB of memory.
const SECONDS: u32 = 90;
const MEMORY: u32 = 6 << 20;
/// The simulator's seeds: the first, how many at a time, and how many times.
const FIRST: u32 = 1_000_000;
const SLICE: u32 = 90;
const SLICES: u32 = 10;

/// In the place of a test's name, where the program died before any.
const START: &str = "start";

/// What became of a bug.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// This suite failed, in this test.
    Caught(&'static str, String),
    /// No suite noticed.
    Missed,
}

impl Verdict {
    pub(crate) fn suite(&self) -> Option<&'static str> {
        match self {
            Self::Caught(suite, _) => Some(suite),
            Self::Missed => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(suite, test) => write!(f, "{suite}: {test}"),
            Self::Missed => f.write_str("MISSED"),
        }
    }
}

/// The test programs of the copy.
pub(crate) struct Suites {
    unit: PathBuf,
    /// The others, unless only the first is wanted.
    more: Option<[PathBuf; 2]>,
    tree: PathBuf,
    memory: Memory,
}

/// What caught which bug when it was judged last: that is tried first.
struct Memory {
    file: PathBuf,
    /// A line of the file for each bug: suite, first seed, test.
    caught: BTreeMap<String, String>,
}

impl Memory {
    fn load(file: PathBuf) -> Self {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let entry = |line: &str| line.split_once('\t').map(|(bug, by)| (bug.into(), by.into()));
        Self { caught: text.lines().filter_map(entry).collect(), file }
    }

    /// Adds a line; of several for a bug, the last counts.
    fn add(&self, bug: &Bug, run: &Run<'_>, test: &str) {
        let Some(test) = test.split(' ').next().filter(|test| *test != START) else { return };
        let line = format!("{}\t{}\t{}\t{test}\n", bug.name, run.suite, run.first_seed);
        let file = std::fs::File::options().create(true).append(true).open(&self.file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the memory is written");
    }
}

/// A part of a suite.
struct Run<'a> {
    suite: &'static str,
    program: &'a Path,
    filter: Vec<String>,
    first_seed: u32,
}

impl Suites {
    /// The unit tests alone.
    pub(crate) fn unit(tree: &Path) -> Self {
        let unit = build(tree, &["-p", "rocev2", "--lib"]);
        let memory = Memory::load(tree.with_file_name("caught.tsv"));
        Self { unit: unit.into_iter().next().unwrap(), more: None, tree: tree.into(), memory }
    }

    pub(crate) fn all(tree: &Path) -> Self {
        let find = |name| {
            let found = build(tree, &["-p", "tests", "--test", name]);
            found.into_iter().next().unwrap()
        };
        let more = ["conformance", "simulate"].map(find);
        Self { more: Some(more), ..Self::unit(tree) }
    }

    /// Without a bug nothing fails, and nothing needs a third of what a run may use.
    pub(crate) fn check_unharmed(&self) {
        for run in self.runs("") {
            let failed = self.run(&run, 0, SECONDS / 3);
            assert_eq!(failed, None, "the {} tests fail without a bug", run.suite);
        }
    }

    pub(crate) fn judge(&self, bug: &Bug) -> Verdict {
        let room = bug.file.trim_start_matches("rocev2/src/").split(['/', '.']).next().unwrap();
        let failed = |run: &Run<'_>| {
            let test = self.run(run, bug.number, SECONDS)?;
            self.memory.add(bug, run, &test);
            Some(Verdict::Caught(run.suite, test))
        };
        let runs = self.remembered(bug).into_iter().chain(self.runs(room));
        runs.map(|run| failed(&run)).find_map(|verdict| verdict).unwrap_or(Verdict::Missed)
    }

    /// The test that caught the bug before.
    fn remembered(&self, bug: &Bug) -> Option<Run<'_>> {
        let mut words = self.memory.caught.get(&bug.name)?.split('\t');
        let (suite, seed, test) = (words.next()?, words.next()?, words.next()?);
        let suite = SUITES.iter().position(|name| *name == suite)?;
        let program = if suite == 0 { &self.unit } else { &self.more.as_ref()?[suite - 1] };
        let filter = vec!["--exact".into(), test.into()];
        Some(Run { suite: SUITES[suite], program, filter, first_seed: seed.parse().ok()? })
    }

    /// All runs; first the unit tests of the room where the bug is.
    fn runs(&self, room: &str) -> Vec<Run<'_>> {
        let run = |suite, program, filter: &[&str], first_seed| Run {
            suite,
            program,
            filter: filter.iter().map(|&word| word.into()).collect(),
            first_seed,
        };
        let room = format!("{room}::");
        let mut runs = vec![
            run(SUITES[0], &*self.unit, &[&room], 0),
            run(SUITES[0], &*self.unit, &["--skip", &room], 0),
        ];
        if let Some([conformance, simulator]) = &self.more {
            // What only lists the cases notices nothing; the floods take long.
            runs.insert(
                1,
                run(SUITES[1], conformance, &["--skip", "flood::", "--skip", "every_case"], 0),
            );
            let slices = (0..SLICES).map(|slice| FIRST + slice * SLICE);
            runs.extend(
                slices.map(|first| run(SUITES[2], simulator, &["seeds", "--exact"], first)),
            );
            runs.push(run(SUITES[2], simulator, &["sys_"], 0));
        }
        runs
    }

    /// Runs tests until one fails; returns its name, or that of the test in which the program died.
    fn run(&self, run: &Run<'_>, bug: u32, seconds: u32) -> Option<String> {
        let limits = format!("ulimit -t {seconds}; ulimit -v {MEMORY}; ulimit -c 0; exec \"$@\"");
        let mut child = Command::new("sh")
            .args(["-c", &limits, "sh"])
            .arg(run.program)
            .arg("--test-threads=1")
            .args(&run.filter)
            .envs(
                [("ROCEV2_BUG", bug), ("SIM_FIRST", run.first_seed), ("SIM_SEEDS", SLICE)]
                    .map(|(name, value)| (name, value.to_string())),
            )
            .envs([("PROPTEST_CASES", "64"), ("PROPTEST_MAX_SHRINK_ITERS", "0")])
            .envs([("PROPTEST_RNG_SEED", "1"), ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")])
            .current_dir(self.tree.join(if run.suite == SUITES[0] { "rocev2" } else { "tests" }))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let failed = first_failure(BufReader::new(child.stdout.take().unwrap()));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        failed
    }
}

/// Reads libtest's report up to its end, or to the first test that failed.
fn first_failure(mut report: impl BufRead) -> Option<String> {
    let (mut line, mut test) = (Vec::new(), String::from(START));
    loop {
        line.clear();
        report.read_until(b'\n', &mut line).unwrap();
        let text = String::from_utf8_lossy(&line);
        if let Some(begun) = text.strip_prefix("test ") {
            test = begun.split(" ... ").next().unwrap().to_owned();
        }
        if text.starts_with("test result: ok") {
            return None;
        }
        if text.trim_end().ends_with("FAILED") {
            return Some(test);
        }
        if line.is_empty() {
            return Some(format!("{test} (died)"));
        }
    }
}
