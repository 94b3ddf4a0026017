//! Goal: code that takes more of a kernel's stack than there is ends the run, and the report names it.
//! Method: the scenario `overflow` takes a number of KiB, in a thread or a DPC of its own; no image is loaded.
#![cfg(all(unix, target_arch = "x86_64"))]

use std::process::Command;

fn report(context: &str, kib: &str) -> (bool, String) {
    let mut rig = Command::new(env!("CARGO_BIN_EXE_rig"));
    let done = rig.args(["no-image", "overflow", context, kib]).output().expect("it starts");
    (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn a_thread_has_24_kib() {
    let (passes, said) = report("thread", "22");
    assert!(passes, "{said}");
    let (passes, said) = report("thread", "25");
    assert!(
        !passes && said.contains("BREACH: a system thread overflows its stack of 24 KiB"),
        "{said}"
    );
}

#[test]
fn so_has_a_dpc() {
    let (passes, said) = report("dpc", "22");
    assert!(passes, "{said}");
    let (passes, said) = report("dpc", "25");
    assert!(!passes && said.contains("BREACH: a DPC overflows its stack of 24 KiB"), "{said}");
}
