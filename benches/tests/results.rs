//! Sweeps of `ndkperf`, their documents, and the commands that read those, as its users run them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use base64::prelude::*;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::{Value, json};
use tempfile::TempDir;

// ---- sweeps ------------------------------------------------------------------------------------

#[test]
fn each_operation_runs_with_each_size() {
    let files = Files::new();
    let report = files.json("--operations write,read --size 64,4k,5000 --iterations 20");
    assert_eq!((&report["schema"], &report["schema_version"]), (&json!("ndkperf-run"), &json!(1)));
    assert_eq!(report["size"], Value::Null);
    let runs = report["operations"].as_array().unwrap();
    let names: Vec<_> = runs.iter().map(|run| json!([run["operation"], run["size"]])).collect();
    let sizes = [64, 4096, 5000];
    let expected = ["write", "read"].map(|operation| sizes.map(|size| json!([operation, size])));
    assert_eq!(names, expected.concat());
    for run in runs {
        assert_eq!(run["bytes"].as_u64(), run["size"].as_u64().map(|size| 20 * size), "{run}");
        assert_eq!(run["wrong_messages"], 0);
    }
}

/// Method: the rates are one rate in other units, and so is the processor time.
#[test]
fn the_units_of_a_report_agree() {
    let files = Files::new();
    let report = files.json("--operations write --size 4k --iterations 200");
    let run = &report["operations"][0];
    let number = |name: &str| run[name].as_f64().unwrap();
    let bytes = number("messages_per_second") * 4096.0;
    for (name, unit) in [
        ("gigabytes_per_second", 1e9),
        ("gigabits_per_second", 1.25e8),
        ("mebibytes_per_second", 1_048_576.0),
    ] {
        let error = number(name) * unit / bytes - 1.0;
        assert!(error.abs() < 1e-9, "{name}: {run}");
    }
    let cpu_ns = number("cpu_seconds") * 1e9;
    assert!(cpu_ns > 0.0, "{run}");
    assert!((number("cpu_ns_per_message") * 200.0 / cpu_ns - 1.0).abs() < 1e-9, "{run}");
    assert!((number("cpu_ns_per_byte") * 819_200.0 / cpu_ns - 1.0).abs() < 1e-9, "{run}");
}

#[test]
fn all_sizes_are_a_line_each() {
    let files = Files::new();
    let output =
        files.run(&["--all", "--operations", "write", "--iterations", "3", "--depth", "1"]);
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    let head = table.lines().next().unwrap();
    for column in ["bytes each", "Gb/s", "CPU ns/message"] {
        assert!(head.contains(column), "{head}");
    }
    let rows = table.lines().filter_map(|line| line.trim_start().strip_prefix("write "));
    let sizes: Vec<u32> =
        rows.map(|row| row.split_whitespace().next().unwrap().parse().unwrap()).collect();
    assert_eq!(sizes, (1..=23).map(|exponent| 1 << exponent).collect::<Vec<u32>>());
}

// ---- histograms --------------------------------------------------------------------------------

/// Goal: a log holds what the report tells of each run.
#[test]
fn a_log_of_histograms_is_read_back() {
    let files = Files::new();
    let load = "--operations write,read --size 64,4k --iterations 150 --histogram runs.hlog";
    let report = files.json(load);
    let log = fs::read(files.path("runs.hlog")).unwrap();
    let intervals: Vec<_> = IntervalLogIterator::new(&log)
        .filter_map(|entry| match entry.unwrap() {
            LogEntry::Interval(interval) => Some(interval),
            LogEntry::StartTime(_) | LogEntry::BaseTime(_) => None,
        })
        .collect();
    assert!(intervals.is_sorted_by_key(|interval| interval.start_timestamp()));
    let histograms: BTreeMap<&str, Histogram<u64>> = intervals
        .iter()
        .map(|interval| {
            let bytes = BASE64_STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram = Deserializer::new().deserialize(&mut Cursor::new(bytes)).unwrap();
            (interval.tag().unwrap().as_str(), histogram)
        })
        .collect();
    assert_eq!(histograms.len(), 4, "{:?}", histograms.keys());
    for run in report["operations"].as_array().unwrap() {
        let tag = format!("{}-{}", run["operation"].as_str().unwrap(), run["size"]);
        let histogram = &histograms[tag.as_str()];
        assert_eq!(histogram.len(), 150, "{tag}");
        let p50_us = histogram.value_at_quantile(0.5) as f64 / 1e3;
        assert_eq!(run["latency_us"]["p50"].as_f64(), Some(p50_us), "{tag}");
        assert_eq!(run["latency_us"]["max"].as_f64(), Some(histogram.max() as f64 / 1e3), "{tag}");
    }
}

#[test]
fn a_log_that_cannot_be_written_is_told_before_the_runs() {
    let files = Files::new();
    let refused = files.run(&["--seconds", "3000", "--histogram", "/nowhere/runs.hlog"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).starts_with("ndkperf: /nowhere/runs.hlog: "), "{refused:?}");
    let full = files.run(&["--iterations", "5", "--histogram", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full.stdout).contains("every byte checked"), "{full:?}");
    assert!(text(&full.stderr).contains("No space left"), "{full:?}");
}

// ---- compare -----------------------------------------------------------------------------------

#[test]
fn a_run_is_as_good_as_itself() {
    let files = Files::new();
    let run = files.measured("run", "--operations write,read --size 64,4k --iterations 50");
    let compared = files.run(&["compare", &run, &run, "--tolerance", "0"]);
    assert_eq!(compared.status.code(), Some(0), "{compared:?}");
    let table = text(&compared.stdout);
    for row in ["messages/s", "p50 µs", "p99 µs", "CPU ns/message"] {
        assert_eq!(table.matches(row).count(), 4, "{row}: {table}");
    }
    assert_eq!(table.matches("1.000").count(), 16, "{table}");
    assert_eq!(text(&compared.stderr), "");
}

#[test]
fn a_slower_run_is_told_by_name_and_by_exit_code() {
    let files = Files::new();
    let before = files.measured("before", "--operations write,read --size 64,4k --iterations 50");
    let after = files.changed(&before, "after", |document| {
        let run = &mut document["operations"][3];
        run["messages_per_second"] = (run["messages_per_second"].as_f64().unwrap() * 0.9).into();
    });
    let compared = files.run(&["compare", &before, &after]);
    assert_eq!(compared.status.code(), Some(1));
    let told = "ndkperf: B is worse than A by more than 5 % in 1 of 4 runs: read of 4096 B\n";
    assert_eq!(text(&compared.stderr), told);
    let worse: Vec<&str> =
        text(&compared.stdout).lines().filter(|line| line.trim_end().ends_with("worse")).collect();
    assert!(matches!(worse[..], [row] if row.contains("0.900")), "{worse:?}");
    let lenient = files.run(&["compare", &before, &after, "--tolerance", "11"]);
    assert_eq!(lenient.status.code(), Some(0), "{lenient:?}");
    let better = files.run(&["compare", &after, &before, "--tolerance", "0"]);
    assert_eq!(better.status.code(), Some(0), "{better:?}");
}

#[test]
fn a_comparison_is_one_document_too() {
    let files = Files::new();
    let before = files.measured("before", "--operations send --size 64,4k --iterations 50");
    let after = files.changed(&before, "after", |document| {
        let runs = document["operations"].as_array_mut().unwrap();
        runs.truncate(1);
        runs[0]["latency_us"]["p50"] =
            (runs[0]["latency_us"]["p50"].as_f64().unwrap() * 2.0).into();
        document["depth"] = 1.into();
    });
    let compared = files.run(&["compare", &before, &after, "--json"]);
    assert_eq!(compared.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!(document["schema"], "ndkperf-compare");
    assert_eq!(document["worse"], 1);
    assert_eq!(document["only_in_a"], json!(["send of 4096 B"]));
    assert_eq!(document["loads_differ_in"], json!(["depth"]));
    let figures = &document["runs"][0]["figures"];
    assert_eq!(figures["p50_us"]["b_over_a"], 2.0);
    assert_eq!(figures["p50_us"]["worse"], true);
    assert_eq!(figures["messages_per_second"]["worse"], false);
    assert!(figures["cpu_ns_per_message"]["a"].as_f64().unwrap() > 0.0, "{figures}");
}

#[test]
fn files_that_cannot_be_compared_are_refused_in_a_sentence() {
    let files = Files::new();
    let run = files.measured("run", "--operations send --size 64 --iterations 20");
    let changed = |name, change: fn(&mut Value)| files.changed(&run, name, change);
    let newer = changed("newer", |document| document["schema_version"] = 2.into());
    let other = changed("other", |document| document["operations"][0]["size"] = 65.into());
    let older = changed("older", |document| document["schema"] = Value::Null);
    let text_file = files.path("text.json");
    fs::write(&text_file, "no JSON").unwrap();
    for (file, word) in [
        (newer.as_str(), "newer.json has version 2 of the schema"),
        (&other, "no run of the same operation and size"),
        (&older, "no document that"),
        (text_file.to_str().unwrap(), "no document that"),
        ("/nowhere/run.json", "No such file"),
    ] {
        let refused = files.run(&["compare", &run, file]);
        assert_refused(&refused, word);
    }
}

// ---- plot --------------------------------------------------------------------------------------

#[test]
fn a_picture_has_a_line_for_each_file_and_operation() {
    let files = Files::new();
    let load = "--operations write,read --size 64,4k,64k --iterations 20";
    let names = ["be<fore", "after"].map(|name| files.measured(name, load));
    let drawn = files.run(&["plot", &names[0], &names[1], "--output", "sweep.svg"]);
    assert!(drawn.status.success(), "{drawn:?}");
    let picture = fs::read_to_string(files.path("sweep.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    for line in ["be&lt;fore: write", "be&lt;fore: read", "after: write", "after: read"] {
        assert_eq!(picture.matches(line).count(), 2, "{line}: {picture}");
    }
    let points = 2 * 4 * 3;
    assert_eq!(picture.matches("<circle").count(), points, "{picture}");
}

#[test]
fn nothing_to_draw_is_refused_and_a_picture_that_cannot_be_written_is_a_failure() {
    let files = Files::new();
    let run = files.measured("run", "--operations send --size 64 --iterations 20");
    let none = files.changed(&run, "none", |document| document["operations"] = json!([]));
    assert_refused(&files.run(&["plot", &none, "--output", "x.svg"]), "moved a message");
    let newer = files.changed(&run, "newer", |document| document["schema_version"] = 2.into());
    assert_refused(&files.run(&["plot", &run, &newer, "--output", "x.svg"]), "version 2");
    assert!(!files.path("x.svg").exists());
    let failed = files.run(&["plot", &run, "--output", "/nowhere/x.svg"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("/nowhere/x.svg: "), "{failed:?}");
}

// ---- completions and manual --------------------------------------------------------------------

/// Method: `bash` itself is asked to complete.
#[test]
fn bash_completes_commands_and_flags() {
    let files = Files::new();
    let script = files.run(&["completions", "bash"]);
    assert!(script.status.success(), "{script:?}");
    fs::write(files.path("script"), &script.stdout).unwrap();
    for (word, line, expected) in [
        ("comp", "ndkperf comp", "compare completions"),
        ("--hist", "ndkperf --hist", "--histogram"),
        ("--tol", "ndkperf compare --tol", "--tolerance"),
    ] {
        let count = line.split(' ').count() - 1;
        let ask = format!(
            "source ./script; COMP_WORDS=({line}); COMP_CWORD={count}; \
             _ndkperf ndkperf {word} ndkperf; echo ${{COMPREPLY[@]}}"
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &ask]).current_dir(files.0.path());
        let completed = bash.output().expect("bash runs");
        assert_eq!(text(&completed.stdout).trim(), expected, "{completed:?}");
    }
}

#[test]
fn every_shell_has_a_script_and_every_command_a_page() {
    let files = Files::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = files.run(&["completions", shell]);
        assert!(script.status.success() && script.stderr.is_empty(), "{script:?}");
        let script = text(&script.stdout);
        assert!(script.contains("histogram") && script.contains("rping"), "{shell}: {script}");
    }
    for (words, title, flag) in [
        (&["man"][..], ".TH ndkperf 1", "histogram"),
        (&["man", "compare"], ".TH ndkperf-compare 1", "tolerance"),
        (&["man", "rping", "serve"], ".TH ndkperf-rping-serve 1", "persistent"),
    ] {
        let page = files.run(words);
        let page = text(&page.stdout);
        let source = format!("\"ndkperf {}\"", env!("CARGO_PKG_VERSION"));
        for part in [title, flag, &source] {
            assert!(page.contains(part), "{words:?}, {part}: {page}");
        }
    }
    assert_refused(&files.run(&["man", "erase"]), "no command `erase`");
    assert_eq!(files.run(&["completions", "cmd"]).status.code(), Some(2));
}

// ---- help --------------------------------------------------------------------------------------

/// A directory for documents.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs to the end, in the directory.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ndkperf"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Runs with `--json` and reads what it prints.
    fn json(&self, load: &str) -> Value {
        let arguments: Vec<&str> = load.split_whitespace().chain(["--json"]).collect();
        let output = self.run(&arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The name of a document of a run.
    fn measured(&self, name: &str, load: &str) -> String {
        let file = format!("{name}.json");
        fs::write(self.path(&file), self.json(load).to_string()).unwrap();
        file
    }

    /// The name of a copy of a document, with a change.
    fn changed(&self, from: &str, name: &str, change: impl FnOnce(&mut Value)) -> String {
        let text = fs::read_to_string(self.path(from)).unwrap();
        let mut document = serde_json::from_str(&text).unwrap();
        change(&mut document);
        let file = format!("{name}.json");
        fs::write(self.path(&file), document.to_string()).unwrap();
        file
    }
}

/// Exit code 2, and one line that says why.
fn assert_refused(output: &Output, word: &str) {
    assert_eq!(output.status.code(), Some(2), "{word}: {output:?}");
    let line = text(&output.stderr);
    assert!(line.starts_with("ndkperf: ") && line.contains(word), "{word}: {line}");
    assert_eq!((line.lines().count(), text(&output.stdout)), (1, ""), "{line}");
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
