//! The flight consumer over the unmodified image: `ndkflight.sys`, unmodified, too.
//!
//! Goal: each step passes over the driver that is to fly, over a wire that loses frames as well, whenever its threads are preempted; it says
//! why it does not begin; and it leaves nothing behind. Method: each run is a process, in which the rig loads the driver, with two adapters
//! on a switch, and the consumer beside it, and counts what both hold.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tests::lab::skip;

/// The rig with both images; `None` where this machine cannot build them, which is said.
static RIG: LazyLock<Option<[PathBuf; 3]>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let build = |build: &[&str]| {
        let image = windows_tests::image(build, folder);
        image.inspect_err(|lack| skip(&format!("the flight consumer in a process: {lack}"))).ok()
    };
    let (driver, flight) = (build(&[])?, build(&["x86_64", "flight"])?);
    Some([windows_tests::rig(folder), driver, flight])
});

/// Flies as the rig is told, to this end; the verdicts of the steps.
fn fly(wanted: &str, how: &[&str]) -> Option<Vec<String>> {
    let [rig, driver, flight] = RIG.as_ref()?;
    let mut rig = Command::new(rig);
    rig.arg(driver).arg("flight").arg(flight).arg(wanted).args(how);
    let done = rig.output().expect("it starts");
    let [report, errors] =
        [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success() && report.contains("verdict: pass"), "{report}\n{errors}");
    let steps = report.lines().filter_map(|line| line.strip_prefix("step: "));
    Some(steps.map(str::to_owned).collect())
}

#[test]
fn each_step_passes_over_two_adapters() {
    let Some(steps) = fly("passed", &["Client=0", "Server=1"]) else { return };
    assert!(steps.iter().all(|step| step.starts_with("pass ")), "{steps:#?}");
    for place in ["client", "server", "loopback ipv4", "loopback ipv6", "pair ipv4", "pair ipv6"] {
        assert!(
            steps.iter().any(|step| step.contains(&format!(" {place} "))),
            "{place}: {steps:#?}"
        );
    }
}

#[test]
fn a_wire_that_loses_frames_changes_no_verdict() {
    fly("passed", &["Client=0", "Server=1", "Connections=8", "loss=300"]);
}

#[test]
fn threads_that_are_preempted_change_no_verdict() {
    fly("passed", &["Client=0", "Server=1", "Connections=8", "seed=7"]);
}

#[test]
fn it_is_unloaded_on_its_way() {
    let Some(steps) = fly("stopped", &["Client=0", "stop"]) else { return };
    assert!(steps.len() < 10, "{steps:#?}");
}

#[test]
fn it_says_why_it_does_not_begin() {
    fly("refused:_Client_is_missing", &[]);
    fly("refused:_Client_is_no_number", &["Client=two"]);
    fly("refused:_the_adapter_of_interface_9999_gave_NTSTATUS_0xc0000225", &["Client=9999"]);
}
