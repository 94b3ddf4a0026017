//! The C compilers of this machine.

use std::path::Path;
use std::process::Command;

/// How every file is compiled: a warning is an error.
const FLAGS: &[&str] = &["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"];

/// The compilers that are installed, of those that the headers are for.
pub(crate) fn compilers() -> Vec<&'static str> {
    let is_installed = |compiler: &&str| Command::new(compiler).arg("--version").output().is_ok();
    let (found, missing): (Vec<_>, Vec<_>) = ["gcc", "clang"].into_iter().partition(is_installed);
    assert!(!found.is_empty(), "there is a C compiler");
    missing.iter().for_each(|compiler| println!("skipped: {compiler} is not installed"));
    found
}

/// A compiler at work on the headers and the shim of this package.
pub(crate) fn compile(compiler: &str) -> Command {
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(includes());
    command
}

/// Where the headers are.
pub(crate) fn includes() -> [String; 2] {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["include", "shim"].map(|folder| format!("-I{}", package.join(folder).display()))
}

/// Runs a program to its end; its output if it succeeds.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}
