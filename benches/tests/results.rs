//! Sweeps of `ndkperf` and their documents, as its users make them.

use std::process::{Command, Output, Stdio};

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

// ---- help --------------------------------------------------------------------------------------

/// A directory for documents.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
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
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
