//! `ndkrocev2ctl.exe` for Windows.
//!
//! Goal: the program compiles for the compiler that ships it; and so does its trial for Wine, which installs with a fault at
//! each change. No run of the trial is a test yet: `inf/ctl/README.md` says how far it gets.

use std::path::Path;
use std::process::Command;

/// The target of a program that Wine runs.
const GNU: &str = "x86_64-pc-windows-gnu";
/// The target of a release.
const MSVC: &str = "x86_64-pc-windows-msvc";

#[test]
fn a_release_compiles() {
    check(MSVC, &[]);
}

#[test]
fn the_trial_compiles() {
    check(GNU, &["--features", "stand-in"]);
}

fn check(target: &str, features: &[&str]) {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc runs");
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_string();
    if !Path::new(&sysroot).join("lib/rustlib").join(target).exists() {
        println!("skipped: no target: rustup target add {target}");
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--quiet", "--locked", "--package", "ndkrocev2ctl", "--target", target]);
    // Beside the image and the rig, whatever the target folder of this test is.
    cargo.args(features).args(["--target-dir", "target"]).current_dir(tests::ROOT);
    let done = cargo.output().expect("cargo runs");
    assert!(done.status.success(), "{target}: {}", String::from_utf8_lossy(&done.stderr));
}
