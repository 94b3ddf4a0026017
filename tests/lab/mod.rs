//! Boots guests (`lab/lab`), runs our process beside them, and asks the judges (`lab/judge.py`).
#![allow(clippy::missing_panics_doc, reason = "tests panic where something is refused")]

mod guest;
mod judge;
mod process;
mod tap;

pub use guest::{Guest, Job, Machine, Side, Sockets, TAP};
pub use judge::{Verdict, judge, verdict};
pub use process::{PATIENCE, Process, within};
pub use tap::TapLab;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use driver::{Provider, ProviderConfig};
use ndk_consumer::Adapter;
use netadapter_glue::pcap::Capture;
use netadapter_glue::qemu::QemuDgram;

use crate::ROOT;
use judge::run;

/// A guest with rxe up, and a place for our process at the other end of its link.
pub struct Lab {
    dir: PathBuf,
    /// Of the link between the two.
    pub sockets: Sockets,
    /// It stands at the link's side `Guest`.
    pub guest: Guest,
    processes: usize,
    /// One lab at a time: on a small machine two would slow each other into timeouts.
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// `None` where this machine cannot run the lab, which is said.
    pub fn start(name: &str) -> Option<Self> {
        let turn = turn()?;
        let dir = scratch(name);
        let sockets = Sockets::new(name);
        let guest = Guest::boot(&dir.join("guest"), &sockets, Side::Guest);
        Some(Self { dir, sockets, guest, processes: 0, _turn: turn })
    }

    /// Of something that the test leaves behind.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Starts `ndkperf rping` with these arguments at the other end of the guest's link.
    pub fn ndkperf(&mut self, arguments: &str, capture: &Path) -> Process {
        let arguments = format!("{arguments} --pcap {}", capture.display());
        self.processes += 1;
        let log = self.path(&format!("ndkperf-{}.log", self.processes));
        ndkperf(&arguments, &self.sockets, Side::Ours, log)
    }

    /// Opens an adapter of a provider of this very process at the other end of the guest's link.
    pub fn adapter(&self, capture: &Path) -> Arc<Adapter> {
        let (here, there) = self.sockets.of(Side::Ours);
        let edge =
            QemuDgram::bind(here, there, [2, 0, 0, 0, 0, 2], 1500).expect("the link is there");
        let edge = Capture::create(edge, capture).expect("target/tmp is writable");
        let addresses = ["10.0.0.2", "fd00::2"].map(|ip| ip.parse().expect("an address"));
        let config = ProviderConfig::new(addresses.to_vec());
        let provider = Provider::start(Box::new(edge), config).expect("the provider starts");
        Adapter::open(Arc::new(provider)).expect("the adapter opens")
    }

    /// Compiles a C program of this directory and puts it into `/lab`. False, which is said, where this machine
    /// cannot.
    pub fn compile(&self, name: &str) -> bool {
        let mut command = Command::new("python3");
        command.arg(lab_file("lab")).arg("cc").arg(lab_file(&format!("{name}.c")));
        match run(command.arg(self.guest.shared(name))) {
            Verdict::Sound(_) => true,
            Verdict::Skipped(reason) => {
                skip(&reason);
                false
            }
            Verdict::Wrong(said) => panic!("tests/lab/{name}.c:\n{said}"),
        }
    }

    /// Ends the guest and judges all that passed its NIC, as QEMU saw it.
    pub fn finish(&mut self) {
        self.guest.end();
        judge(&self.nic_capture(), &["icrc", "tshark"]);
    }

    /// All that passed the guest's NIC.
    pub fn nic_capture(&self) -> PathBuf {
        self.guest.nic_capture(0)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("console, logs and captures are in {}", self.dir.display());
            eprintln!("the guest's console:\n{}", self.guest.console());
        }
    }
}

/// The turn of one lab, when all that it needs is there. `None` where this machine cannot run it, which is said.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    static READY: LazyLock<Result<(), String>> = LazyLock::new(|| fetch(&Machine::default()));
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(reason) = &*READY {
        skip(reason);
        return None;
    }
    // Built now: in the middle of a test it would count as the peer's time.
    LazyLock::force(&NDKPERF);
    Some(turn)
}

/// Fills the lab's cache for such a guest.
///
/// # Errors
/// Why this machine cannot run the lab.
pub fn fetch(machine: &Machine) -> Result<(), String> {
    match run(machine.lab().arg("fetch")) {
        Verdict::Sound(_) => Ok(()),
        Verdict::Skipped(reason) => Err(reason),
        Verdict::Wrong(said) => panic!("tests/lab/lab fetch:\n{said}"),
    }
}

/// Starts `ndkperf rping` with these arguments at an end of a link.
pub fn ndkperf(arguments: &str, sockets: &Sockets, side: Side, log: PathBuf) -> Process {
    let (here, there) = sockets.of(side);
    // QEMU finds a socket that is bound anew, but a name that was left would refuse the bind.
    let _ = fs::remove_file(here);
    let number = side.number();
    let mut command = Command::new(NDKPERF.as_path());
    command.arg("rping").args(arguments.split(' '));
    command.arg("--edge").arg(format!("qemu-dgram:{}:{}", here.display(), there.display()));
    command.arg("--mac").arg(format!("02:00:00:00:00:0{number}"));
    command.arg("--address").arg(format!("10.0.0.{number}/24"));
    command.arg("--address").arg(format!("fd00::{number}/64"));
    Process::spawn(command, log)
}

/// Our program, built as this test is, unless `NDKPERF` names another.
static NDKPERF: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os("NDKPERF") {
    Some(program) => program.into(),
    None => build("ndkperf", "bin", "ndkperf"),
});

/// Builds a program of this workspace as this test is built: `kind` is `bin` or `example`.
pub fn build(package: &str, kind: &str, name: &str) -> PathBuf {
    let target = target();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", package, &format!("--{kind}"), name, "--target-dir"]);
    let built = cargo.arg(&target).current_dir(ROOT).output().expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let folder = if kind == "example" { "debug/examples" } else { "debug" };
    target.join(folder).join(name)
}

/// The folder that this program was built in: it is `target/PROFILE/deps/PROGRAM`, or an example.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    program.ancestors().nth(3).expect("cargo has built it").to_path_buf()
}

fn lab_file(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/lab").join(name)
}

/// An empty directory for what a test leaves behind.
pub fn scratch(name: &str) -> PathBuf {
    let dir = target().join("tmp/interop").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("target/tmp is writable");
    dir
}

/// Says that something was left out, past the test harness, which shows the output of failed tests only.
pub fn skip(reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}
