//! The suites run against a bug: the cheapest first, until one fails.

use crate::tree::build;
use crate::weave::Bug;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The name of a suite, and its package. A test program is named so in its package, or is the library's.
pub(crate) type Suite = (&'static str, &'static str);

/// All of them; the first is enough to see that the harness works.
pub(crate) const SUITES: [Suite; 11] = [
    ("unit", "rocev2"),
    ("driver", "driver"),
    ("glue", "netadapter-glue"),
    ("refusal", "tests"),
    ("cores", "tests"),
    ("lifetime", "tests"),
    ("provider", "tests"),
    ("ndkpi", "tests"),
    ("netadapter", "tests"),
    ("conformance", "tests"),
    ("simulate", "tests"),
];
/// Those that judge the bugs of `driver` and `netadapter-glue`, in order of cost.
const EDGES: [&str; 6] = ["refusal", "cores", "lifetime", "provider", "ndkpi", "netadapter"];

/// What a run may use: seconds of processor time, several times what it needs, and KiB of memory.
const SECONDS: u32 = 180;
const MEMORY: u32 = 6 << 20;
/// The time after which a test hangs: what waits uses no processor.
const HANGS: Duration = Duration::from_secs(120);
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
    /// By the names of their suites.
    programs: BTreeMap<&'static str, PathBuf>,
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

/// Those that judge some bugs.
pub(crate) fn suites_for<'a>(bugs: impl Iterator<Item = &'a Bug>) -> Vec<Suite> {
    let (transport, others): (Vec<_>, Vec<_>) = bugs.partition(|bug| bug.is_in_transport());
    let judges = |suite: &Suite| match suite.0 {
        "unit" => !transport.is_empty(),
        "conformance" | "simulate" => true,
        _ => !others.is_empty(),
    };
    SUITES.into_iter().filter(judges).collect()
}

/// The arguments by which cargo takes the libraries of some suites' packages.
pub(crate) fn libraries(suites: &[Suite]) -> Vec<&'static str> {
    let packages: BTreeSet<_> = suites.iter().map(|(_, package)| *package).collect();
    let packages = packages.into_iter().flat_map(|package| ["-p", package]);
    ["--lib"].into_iter().chain(packages).collect()
}

/// The arguments by which cargo takes their tests besides.
pub(crate) fn tests(suites: &[Suite]) -> Vec<&'static str> {
    let tests = suites.iter().filter(|(_, package)| *package == "tests");
    tests.flat_map(|(name, _)| ["--test", name]).collect()
}

impl Suites {
    /// Builds these.
    pub(crate) fn build(tree: &Path, suites: &[Suite]) -> Self {
        // At once, as much of it needs one processor only.
        let built = build(tree, &[libraries(suites), tests(suites)].concat());
        let program = |&(name, package): &Suite| {
            let target = if package == "tests" { name.into() } else { package.replace('-', "_") };
            let found = built.iter().find(|(built, _)| *built == target);
            (name, found.expect("it is built").1.clone())
        };
        let programs = suites.iter().map(program).collect();
        let memory = Memory::load(tree.with_file_name("caught.tsv"));
        Self { programs, tree: tree.into(), memory }
    }

    /// Without a bug nothing fails, and nothing needs a third of what a run may use.
    pub(crate) fn check_unharmed(&self) {
        let packages = [("unit", "rocev2"), ("glue", "netadapter-glue")];
        let judged = packages.into_iter().filter(|(suite, _)| self.programs.contains_key(suite));
        for run in judged.flat_map(|(_, package)| self.runs(package, "")) {
            let failed = self.run(&run, 0, SECONDS / 3);
            assert_eq!(failed, None, "the {} tests fail without a bug", run.suite);
        }
    }

    pub(crate) fn judge(&self, bug: &Bug) -> Verdict {
        let (package, path) = bug.file.split_once("/src/").unwrap();
        let room = path.split(['/', '.']).next().unwrap();
        let failed = |run: &Run<'_>| {
            let test = self.run(run, bug.number, SECONDS)?;
            self.memory.add(bug, run, &test);
            Some(Verdict::Caught(run.suite, test))
        };
        let runs = self.remembered(bug).into_iter().chain(self.runs(package, room));
        runs.map(|run| failed(&run)).find_map(|verdict| verdict).unwrap_or(Verdict::Missed)
    }

    /// The test that caught the bug before.
    fn remembered(&self, bug: &Bug) -> Option<Run<'_>> {
        let mut words = self.memory.caught.get(&bug.name)?.split('\t');
        let (suite, seed, test) = (words.next()?, words.next()?, words.next()?);
        let (suite, program) = self.programs.get_key_value(suite)?;
        let filter = vec!["--exact".into(), test.into()];
        Some(Run { suite, program, filter, first_seed: seed.parse().ok()? })
    }

    /// All runs for a bug of a package; first the unit tests of the room where it is.
    fn runs(&self, package: &str, room: &str) -> Vec<Run<'_>> {
        let conformance = self.conformance();
        if package != "rocev2" {
            let last = [conformance].into_iter().chain(self.simulator(1));
            return self.edge_runs(package, room).into_iter().chain(last.flatten()).collect();
        }
        let [own, others] = self.unit_runs("unit", room);
        let runs = [own, conformance, others].into_iter().chain(self.simulator(SLICES));
        runs.flatten().collect()
    }

    /// Those that are only for bugs of `driver` and `netadapter-glue`.
    fn edge_runs(&self, package: &str, room: &str) -> Vec<Run<'_>> {
        let all = |names: &[&str]| names.iter().map(|name| self.part(name, &[], 0)).collect();
        let (own, others): (_, Vec<_>) = match package {
            // Nothing in the edges uses the driver.
            "driver" => ("driver", Vec::new()),
            _ => ("glue", all(&["driver"])),
        };
        let units = self.unit_runs(own, room).into_iter().chain(others);
        units.chain(all(&EDGES)).flatten().collect()
    }

    /// A part of a suite, unless that is not wanted.
    fn part(&self, suite: &str, filter: &[&str], first_seed: u32) -> Option<Run<'_>> {
        let (suite, program) = self.programs.get_key_value(suite)?;
        let filter = filter.iter().map(|&word| word.into()).collect();
        Some(Run { suite, program, filter, first_seed })
    }

    /// The unit tests of a room, and the others.
    fn unit_runs(&self, suite: &str, room: &str) -> [Option<Run<'_>>; 2] {
        let room = format!("{room}::");
        [self.part(suite, &[&room], 0), self.part(suite, &["--skip", &room], 0)]
    }

    /// What only lists the cases notices nothing; the floods take long.
    fn conformance(&self) -> Option<Run<'_>> {
        self.part("conformance", &["--skip", "flood::", "--skip", "every_case"], 0)
    }

    /// So many times its seeds, and its trials.
    fn simulator(&self, slices: u32) -> Vec<Option<Run<'_>>> {
        let seeds = |slice| self.part("simulate", &["seeds", "--exact"], FIRST + slice * SLICE);
        let trials = self.part("simulate", &["sys_"], 0);
        (0..slices).map(seeds).chain([trials]).collect()
    }

    /// Runs tests until one fails; returns its name, or that of the test in which the program died.
    fn run(&self, run: &Run<'_>, bug: u32, seconds: u32) -> Option<String> {
        let limits = format!("ulimit -t {seconds}; ulimit -v {MEMORY}; ulimit -c 0; exec \"$@\"");
        let home = SUITES.iter().find(|(name, _)| *name == run.suite).map_or("", |(_, home)| home);
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
            .current_dir(self.tree.join(home))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let report = BufReader::new(child.stdout.take().unwrap());
        let child = Arc::new(Mutex::new(child));
        let (goes_on, line) = mpsc::channel();
        let hung = Arc::clone(&child);
        let watch = std::thread::spawn(move || {
            loop {
                match line.recv_timeout(HANGS) {
                    Ok(()) => {}
                    Err(mpsc::RecvTimeoutError::Timeout) => return end_run(&hung),
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        let failed = first_failure(report, goes_on);
        watch.join().unwrap();
        end_run(&child);
        child.lock().unwrap().wait().unwrap();
        failed
    }
}

/// Ends a run, which may have ended by itself.
fn end_run(child: &Mutex<Child>) {
    let _ = child.lock().unwrap().kill();
}

/// Reads libtest's report up to its end, or to the first test that failed. Tells of each line.
fn first_failure(mut report: impl BufRead, goes_on: mpsc::Sender<()>) -> Option<String> {
    let (mut line, mut test) = (Vec::new(), String::from(START));
    loop {
        line.clear();
        report.read_until(b'\n', &mut line).unwrap();
        // The watch may have ended the run.
        let _ = goes_on.send(());
        let text = String::from_utf8_lossy(&line);
        if let Some(begun) = text.strip_prefix("test ") {
            test = begun.split(" ... ").next().unwrap().trim_end().to_owned();
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
