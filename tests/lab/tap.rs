//! A guest behind a TAP, beside which programs run over the kernel's own stack.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::MutexGuard;

use super::guest::TAP;
use super::{Guest, NDKPERF, Process, Side, scratch, skip, turn};

/// A guest with rxe up behind a TAP, and the network in which that is. There the kernel has our addresses.
pub struct TapLab {
    dir: PathBuf,
    /// It stands at the TAP's other end.
    pub guest: Guest,
    processes: usize,
    /// As of a [`super::Lab`].
    _turn: MutexGuard<'static, ()>,
}

impl TapLab {
    /// `None` where this machine cannot run it, which is said.
    pub fn start(name: &str) -> Option<Self> {
        if let Err(reason) = find_tools() {
            skip(&reason);
            return None;
        }
        let turn = turn()?;
        let dir = scratch(name);
        let guest = Guest::boot_behind_tap(&dir.join("guest"));
        let number = Side::Ours.number();
        let lab = Self { dir, guest, processes: 0, _turn: turn };
        lab.ip(&format!("link set {TAP} up"));
        lab.ip(&format!("address add 10.0.0.{number}/24 dev {TAP}"));
        lab.ip(&format!("address add fd00::{number}/64 dev {TAP} nodad"));
        Some(lab)
    }

    /// Starts `ndkperf` with these arguments in the guest's network.
    pub fn ndkperf(&mut self, arguments: &str) -> Process {
        self.processes += 1;
        let log = self.dir.join(format!("ndkperf-{}.log", self.processes));
        let mut command = self.guest.beside(NDKPERF.as_path());
        command.args(arguments.split(' '));
        Process::spawn(command, log)
    }

    fn ip(&self, arguments: &str) {
        let mut command = self.guest.beside(Path::new("ip"));
        let output = command.args(arguments.split(' ')).output().expect("nsenter starts");
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }
}

/// Why this machine gives an ordinary user no network of his own with a TAP in it, if so.
fn find_tools() -> Result<(), String> {
    let script = format!("ip tuntap add dev {TAP} mode tap && nsenter --version");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", &script]);
    match command.output() {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(Output { stderr, .. }) => Err(format!(
            "no TAP in a network namespace of a user's: {}",
            String::from_utf8_lossy(&stderr).trim()
        )),
        Err(error) => Err(format!("no unshare (package util-linux): {error}")),
    }
}
