//! The copy of the workspace: made, kept up to date, compiled.

use crate::source::woven;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is not copied: what is built, what is downloaded, and history.
const LEFT_OUT: [&str; 4] = ["target", ".git", ".lab", "corpus"];

/// Brings the copy up to date with the workspace, except for the sources that `weave` writes. What is
/// the same stays untouched, so that it is not compiled again.
pub(crate) fn copy(root: &Path) -> PathBuf {
    let tree = place().join("tree");
    let woven = woven(root);
    let mut left = vec![PathBuf::new()];
    while let Some(directory) = left.pop() {
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(root.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let (name, kind) = (entry.file_name(), entry.file_type().unwrap());
            let path = directory.join(&name);
            kept.push(name.clone());
            if LEFT_OUT.iter().any(|out| name == *out) {
                kept.pop();
            } else if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() && !woven.iter().any(|woven| path == Path::new(woven)) {
                write(&tree.join(&path), &std::fs::read(root.join(&path)).unwrap());
            }
        }
        remove_others(&tree.join(&directory), &kept);
    }
    tree
}

/// Removes what the workspace no longer has.
fn remove_others(directory: &Path, kept: &[std::ffi::OsString]) {
    std::fs::create_dir_all(directory).unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if kept.contains(&entry.file_name()) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            std::fs::remove_dir_all(entry.path()).unwrap();
        } else {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Writes a file, unless it has these bytes.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return;
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Beside all else that is built: what cargo builds of the copy has the names of what it builds of the
/// workspace.
fn place() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("mutants")
}

/// An error of the compiler.
pub(crate) struct Broken {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) message: String,
    /// A constant needs a function that is no longer `const`.
    pub(crate) is_const: bool,
}

impl Broken {
    /// The path of the function that a constant needs: it stands in the message's first quotes.
    pub(crate) fn function(&self) -> Option<String> {
        let mut depth = 0;
        // Without what a generic function, or its type, is named for.
        let outside = |letter: &char| {
            depth += i32::from(*letter == '<');
            let outside = depth == 0;
            depth -= i32::from(*letter == '>');
            outside
        };
        let path: String = self.message.split('`').nth(1)?.chars().filter(outside).collect();
        let names = path.split("::").filter(|name| !name.is_empty()).collect::<Vec<_>>();
        Some(names.join("::").trim_end_matches(['(', ')']).to_owned())
    }
}

fn cargo(tree: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--locked", "--message-format=json", "--target-dir"])
        .arg(place().join("build"))
        // Nobody looks into what fails here.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .current_dir(tree)
        .stderr(Stdio::null())
        .output()
        .expect("cargo runs");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Compiles without building; returns the errors.
pub(crate) fn compile(tree: &Path, arguments: &[&str]) -> Vec<Broken> {
    let messages = cargo(tree, arguments);
    let errors = messages.iter().filter(|message| message["message"]["level"] == "error");
    let broken: Vec<_> = errors.filter_map(|error| broken(&error["message"])).collect();
    let finished = messages.iter().any(|message| message["success"] == true);
    assert!(finished || !broken.is_empty(), "the copy does not compile: cargo {arguments:?}");
    broken
}

fn broken(error: &Value) -> Option<Broken> {
    let spans = error["spans"].as_array()?;
    let span = spans.iter().find(|span| span["is_primary"] == true)?;
    Some(Broken {
        file: span["file_name"].as_str()?.into(),
        line: span["line_start"].as_u64()? as usize,
        message: error["rendered"].as_str()?.into(),
        is_const: error["code"]["code"] == "E0015",
    })
}

/// Builds test programs; returns their names and where they are.
pub(crate) fn build(tree: &Path, arguments: &[&str]) -> Vec<(String, PathBuf)> {
    let messages = cargo(tree, &[&["test", "--no-run"], arguments].concat());
    assert!(messages.iter().any(|message| message["success"] == true), "cargo test {arguments:?}");
    let programs = messages.iter().filter(|message| message["profile"]["test"] == true);
    let place = |program: &Value| {
        let name = program["target"]["name"].as_str()?.to_owned();
        Some((name, program["executable"].as_str()?.into()))
    };
    programs.filter_map(place).collect()
}
