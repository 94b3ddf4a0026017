//! Consumers of NDK that Microsoft wrote, over the image and over Linux' provider: NDKPing.sys and NDKPerf.sys, unmodified.
//!
//! Goal: the programs of the first flight work over the very image that is to fly, whatever the wire loses and however late callbacks
//! come, and no rule of the rig is broken. Method: each run is a process, in which the rig loads the image and the consumer beside it,
//! with two adapters on a switch. [`judge`] tells the consumer's own failures, each listed with its address, from the product's,
//! of which there may be none.
//!
//! `NDK_CONSUMERS` names the folder with the two files, which are not part of this repository. `OUTSIDERS_RUNS` is the number of runs of
//! a row.

mod judge;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

use judge::{Outcome, judge};
use tests::lab::skip;

macro_rules! rows {
    ($host:ident: $($name:ident: $consumer:literal $test:literal $how:literal;)*) => {
        $(#[test] fn $name() { super::row(super::Host::$host, $consumer, $test, $how); })*
    };
}

mod over_the_image {
    rows! { Image:
        ndkping_pings_a_peer: "NDKPing" "rping" "";
        ndkping_pings_a_peer_over_3_percent_loss: "NDKPing" "rping" "loss=33";
        ndkping_pings_a_peer_over_10_percent_loss: "NDKPing" "rping" "loss=10";
        ndkping_pings_a_peer_with_late_callbacks: "NDKPing" "rping" "late=300";
        ndkping_pings_a_peer_and_uses_what_it_freed: "NDKPing" "rping" "fill";
        ndkping_pings_itself: "NDKPing" "rping" "self";
        ndkping_pings_itself_with_late_callbacks: "NDKPing" "rping" "self late=300";
        ndkping_reads: "NDKPing" "read" "";
        ndkping_reads_over_3_percent_loss: "NDKPing" "read" "loss=33 late=3000";
        ndkping_reads_over_10_percent_loss: "NDKPing" "read" "loss=10 late=3000";
        ndkping_reads_with_late_callbacks: "NDKPing" "read" "late=3000";
        ndkping_writes: "NDKPing" "write" "";
        ndkping_writes_over_3_percent_loss: "NDKPing" "write" "loss=33 late=3000";
        ndkping_writes_over_10_percent_loss: "NDKPing" "write" "loss=10 late=3000";
        ndkping_writes_with_late_callbacks: "NDKPing" "write" "late=3000";
        ndkperf_pings_a_peer: "NDKPerf" "rping" "";
        ndkperf_pings_a_peer_over_3_percent_loss: "NDKPerf" "rping" "loss=33";
        ndkperf_pings_a_peer_over_10_percent_loss: "NDKPerf" "rping" "loss=10";
        ndkperf_pings_a_peer_with_late_callbacks: "NDKPerf" "rping" "late=300";
        ndkperf_writes: "NDKPerf" "rperf" "";
        ndkperf_writes_over_3_percent_loss: "NDKPerf" "rperf" "loss=33";
        ndkperf_writes_over_10_percent_loss: "NDKPerf" "rperf" "loss=10";
        ndkperf_writes_with_late_callbacks: "NDKPerf" "rperf" "late=300";
        ndkperf_writes_and_uses_what_it_freed: "NDKPerf" "rperf" "fill";
    }
}

mod over_a_process {
    rows! { Process:
        ndkping_pings_a_peer: "NDKPing" "rping" "";
        ndkping_pings_a_peer_over_3_percent_loss: "NDKPing" "rping" "loss=33";
        ndkping_pings_a_peer_over_10_percent_loss: "NDKPing" "rping" "loss=10";
        ndkping_pings_a_peer_with_late_callbacks: "NDKPing" "rping" "late=300";
        ndkping_pings_a_peer_under_the_verifier: "NDKPing" "rping" "verify";
        ndkping_pings_itself: "NDKPing" "rping" "self";
        ndkping_pings_itself_with_late_callbacks: "NDKPing" "rping" "self late=300";
        ndkping_pings_itself_under_the_verifier: "NDKPing" "rping" "self verify";
        ndkping_reads: "NDKPing" "read" "";
        ndkping_reads_over_3_percent_loss: "NDKPing" "read" "loss=33 late=3000";
        ndkping_reads_over_10_percent_loss: "NDKPing" "read" "loss=10 late=3000";
        ndkping_reads_with_late_callbacks: "NDKPing" "read" "late=3000";
        ndkping_reads_under_the_verifier: "NDKPing" "read" "verify late=3000";
        ndkping_writes: "NDKPing" "write" "";
        ndkping_writes_over_3_percent_loss: "NDKPing" "write" "loss=33 late=3000";
        ndkping_writes_over_10_percent_loss: "NDKPing" "write" "loss=10 late=3000";
        ndkping_writes_with_late_callbacks: "NDKPing" "write" "late=3000";
        ndkping_writes_under_the_verifier: "NDKPing" "write" "verify late=3000";
        ndkperf_pings_a_peer: "NDKPerf" "rping" "";
        ndkperf_pings_a_peer_over_3_percent_loss: "NDKPerf" "rping" "loss=33";
        ndkperf_pings_a_peer_over_10_percent_loss: "NDKPerf" "rping" "loss=10";
        ndkperf_pings_a_peer_with_late_callbacks: "NDKPerf" "rping" "late=300";
        ndkperf_pings_a_peer_under_the_verifier: "NDKPerf" "rping" "verify";
        ndkperf_writes: "NDKPerf" "rperf" "";
        ndkperf_writes_over_3_percent_loss: "NDKPerf" "rperf" "loss=33";
        ndkperf_writes_over_10_percent_loss: "NDKPerf" "rperf" "loss=10";
        ndkperf_writes_with_late_callbacks: "NDKPerf" "rperf" "late=300";
        ndkperf_writes_under_the_verifier: "NDKPerf" "rperf" "verify";
    }
}

/// Whose tables the consumer calls.
#[derive(Clone, Copy)]
enum Host {
    /// Those of the image.
    Image,
    /// Those of two providers in a Linux process.
    Process,
}

impl Host {
    const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Process => "process",
        }
    }

    /// The rig with its first arguments; `None` where this machine cannot build the image, which is said.
    fn rig(self) -> Option<Command> {
        static RIG: LazyLock<PathBuf> =
            LazyLock::new(|| windows_tests::rig(Path::new(env!("CARGO_TARGET_TMPDIR"))));
        let mut rig = Command::new(&*RIG);
        match self {
            Self::Image => rig.arg(IMAGE.as_ref()?).arg("outsiders"),
            Self::Process => rig.args(["no-image", "outsiders-process"]),
        };
        Some(rig)
    }
}

/// Runs a row, and tells how its runs ended.
fn row(host: Host, consumer: &str, test: &str, how: &str) {
    let name = [host.name(), consumer, test, how].join(" ");
    let name = name.trim();
    let Some(file) = file_of(consumer) else {
        return skip(&format!("NDK_CONSUMERS names no folder with {consumer}.sys"));
    };
    // One at a time: each has the processors that a machine has.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut passed, mut own, mut products) = (0, Vec::new(), Vec::new());
    for run in 1..=runs() {
        let Some(mut rig) = host.rig() else { return };
        let report = report_of(rig.arg(&file).arg(test).args(how.split_whitespace()));
        match judge(consumer, test, &report) {
            Outcome::Passed => passed += 1,
            Outcome::Own(failure) => own.push(failure.to_string()),
            Outcome::Products(why) => products.push(format!("{name}, run {run}: {why}\n{report}")),
        }
    }
    let [owns, faults] = [own.len(), products.len()];
    println!("{name}: {passed} passed, {owns} the consumer's own, {faults} the product's");
    own.sort();
    own.dedup();
    own.iter().for_each(|failure| println!("    {failure}"));
    assert!(products.is_empty(), "{}", products.concat());
}

/// The report of one run.
fn report_of(rig: &mut Command) -> String {
    let done = rig.output().expect("it starts");
    [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).join("\n")
}

/// The image; `None` where this machine cannot build it, which is said.
static IMAGE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let image = windows_tests::image(&[], Path::new(env!("CARGO_TARGET_TMPDIR")));
    image.inspect_err(|lack| skip(&format!("the Windows driver in a process: {lack}"))).ok()
});

/// The consumer's driver, if it is there.
fn file_of(consumer: &str) -> Option<PathBuf> {
    let file = Path::new(&env::var_os("NDK_CONSUMERS")?).join(format!("{consumer}.sys"));
    file.exists().then_some(file)
}

fn runs() -> usize {
    env::var("OUTSIDERS_RUNS").map_or(1, |runs| runs.parse().expect("OUTSIDERS_RUNS=NUMBER"))
}
