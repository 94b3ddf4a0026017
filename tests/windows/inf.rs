//! A lint for the INFs of `inf/`: no InfVerif exists outside of Windows.
//!
//! It passes the files as they are, and finds each of a list of mistakes made in them.

#[path = "inf/counters.rs"]
mod counters;
#[path = "inf/install.rs"]
mod install;
#[path = "inf/lint.rs"]
mod lint;
#[path = "inf/pair.rs"]
mod pair;
#[path = "inf/parse.rs"]
mod parse;
#[path = "inf/spec.rs"]
mod spec;

use driver::ProviderConfig;
use lint::{Finding, Rule, lint};
use parse::Inf;
use spec::{GLOBAL_KEYWORD, IMAGE, LOWER, READ_BY_NDIS, SERVICE, VNIC};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files as they are.
#[test]
fn the_files_are_clean() {
    let findings = lint_texts(&read(VNIC.file), &read(LOWER.file));
    let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "\n{}", lines.join("\n"));
}

/// SetupAPI and PowerShell 5.1 read a file without a mark in the machine's own code page.
#[test]
fn the_files_are_ascii() {
    for path in files() {
        let text = fs::read_to_string(&path).expect("a text");
        assert!(text.is_ascii(), "{} is not ASCII", path.display());
    }
}

/// Goal: the manifest of the performance counters tells of the driver's own table: sets, IDs, and the
/// numbers of the strings in the image. What it should be is left in `target` where it is not.
#[test]
fn the_counters_of_the_manifest_are_the_drivers() {
    let (wanted, found) = (counters::manifest(), read(counters::FILE));
    if wanted != found {
        let place = root().join("target/ndkrocev2.man");
        fs::write(&place, wanted).expect("the folder of builds can be written");
        panic!("{} is another than {}", counters::FILE, place.display());
    }
}

/// The tool that installs knows everything by the names that the INFs and the driver give it.
#[test]
fn the_tool_speaks_of_the_same_things() {
    let tool = read("inf/ctl/src/machine.rs");
    let manifest = counters::FILE.strip_prefix("inf/").expect("a file of this folder");
    let mut names = vec![SERVICE, IMAGE, VNIC.hardware_id, LOWER.hardware_id, manifest];
    for spec in [&VNIC, &LOWER] {
        names.push(spec.catalog);
        let stem = spec.catalog.strip_suffix(".cat").expect("a catalog");
        assert!(tool.contains(&format!("\"{stem}.inf\"")), "machine.rs does not name {stem}.inf");
    }
    for name in ["LowerAdapter", "LowerMode"] {
        assert!(VNIC.keywords.iter().any(|keyword| keyword.name == name));
        names.push(name);
    }
    for name in names {
        assert!(tool.contains(&format!("\"{name}\"")), "machine.rs does not name {name}");
    }
}

/// Goal: the adapter's INF offers what the driver reads, and nothing else.
#[test]
fn the_driver_reads_what_is_offered() {
    let driver = read("driver/ndis/src/keywords.rs");
    let read: BTreeSet<_> = ["integer(\"", "string(\""]
        .into_iter()
        .flat_map(|call| driver.split(call).skip(1))
        .map(|rest| rest.split('"').next().expect("a name"))
        .collect();
    let offered = VNIC.keywords.iter().map(|keyword| keyword.name);
    let expected: BTreeSet<_> =
        offered.filter(|name| !READ_BY_NDIS.contains(name)).chain([GLOBAL_KEYWORD]).collect();
    assert_eq!(read, expected);
}

/// Goal: the INF's defaults and ranges of the transport are the provider's.
#[test]
fn the_transport_has_one_set_of_defaults() {
    let code = ProviderConfig::new(Vec::new());
    for (name, default, range) in [
        ("AckTimeout", code.ack_timeout_code, ProviderConfig::ACK_TIMEOUT_CODES),
        ("RetryCount", code.retry_count, ProviderConfig::RETRY_COUNTS),
    ] {
        let offered = VNIC.keywords.iter().find(|keyword| keyword.name == name).expect(name);
        assert_eq!(offered.default, default.to_string(), "{name}");
        let ends = [range.start(), range.end()].map(u8::to_string);
        assert_eq!(offered.range, Some(ends.each_ref().map(String::as_str)), "{name}");
        assert!(range.contains(&default), "{name}");
    }
}

/// Goal: as many poll cores are offered as a provider may have.
#[test]
fn an_adapter_may_have_all_cores() {
    let offered = VNIC.keywords.iter().find(|keyword| keyword.name == "PollCores");
    let ends = [ProviderConfig::POLL_CORES.start(), ProviderConfig::POLL_CORES.end()];
    let ends = ends.map(u8::to_string);
    let range = offered.and_then(|keyword| keyword.range);
    assert_eq!(range, Some(ends.each_ref().map(String::as_str)));
}

/// Goal: the lint finds each mistake that it is there for, and points at its line.
/// Method: make one mistake at a time in the real text. A rule that no mistake calls is one, too.
#[test]
fn every_mistake_is_found() {
    let mut rules = BTreeSet::new();
    for mistake in mistakes() {
        let findings = mistake.findings();
        let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
        let found = findings.iter().find(|finding| mistake.is_found_by(finding));
        let found = found.unwrap_or_else(|| panic!("{mistake:#?}\n{}", lines.join("\n")));
        rules.insert(found.rule);
    }
    assert_eq!(rules.len(), Rule::Pair as usize + 1, "a rule has no mistake: {rules:?}");
}

/// A finding is printed so that an editor can jump to it.
#[test]
fn findings_name_file_and_line() {
    let vnic = read(VNIC.file).replace("PnpLockdown = 1", "PnpLockdown = 0");
    let [finding] = &lint_texts(&vnic, &read(LOWER.file))[..] else { panic!("one finding") };
    assert_eq!(
        finding.to_string(),
        r#"inf/ndkrocev2.inx:14: PnpLockdown: PnpLockdown is "0", not "1""#
    );
}

/// A mistake: what is replaced where, and the finding on the line that holds `at`.
#[derive(Debug)]
struct Mistake {
    file: String,
    rule: String,
    from: String,
    to: String,
    at: String,
    finding: String,
}

/// The list of `inf/mistakes.txt`, which says how it is written.
fn mistakes() -> Vec<Mistake> {
    let list = include_str!("inf/mistakes.txt");
    list.split("\n== ").skip(1).map(Mistake::parse).collect()
}

impl Mistake {
    fn parse(text: &str) -> Self {
        let (rule, file) = text.lines().next().and_then(|l| l.split_once(" in ")).expect("a head");
        let marked = |mark: char| {
            let lines = text.lines().skip(1).filter_map(|line| line.strip_prefix(mark));
            lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>()
        };
        let (mut from, to) = (marked('-').join("\n"), marked('+'));
        if to.is_empty() {
            from.push('\n');
        }
        Self {
            file: format!("inf/{file}"),
            rule: rule.into(),
            from,
            to: to.join("\n"),
            at: marked('@').concat(),
            finding: marked('>').concat(),
        }
    }

    /// The real text of the file with the mistake in it.
    fn text(&self) -> String {
        let text = read(&self.file);
        assert!(text.contains(&self.from), "{} has no {:?}", self.file, self.from);
        text.replace(&self.from, &self.to)
    }

    fn findings(&self) -> Vec<Finding> {
        let text = |file| if file == self.file { self.text() } else { read(file) };
        lint_texts(&text(VNIC.file), &text(LOWER.file))
    }

    fn is_found_by(&self, finding: &Finding) -> bool {
        finding.file == self.file
            && format!("{:?}", finding.rule) == self.rule
            && finding.text.contains(&self.finding)
            && self.text().lines().nth(finding.line - 1).is_some_and(|line| line.contains(&self.at))
    }
}

fn lint_texts(vnic: &str, lower: &str) -> Vec<Finding> {
    lint(&Inf::parse(VNIC.file, vnic), &Inf::parse(LOWER.file, lower))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("inf")).expect("the folder");
    entries.map(|entry| entry.expect("a file").path()).filter(|path| path.is_file()).collect()
}

fn root() -> &'static Path {
    Path::new(tests::ROOT)
}
