//! `ndkperf` as its users run it: programs, and the sockets between them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A directory for sockets and logs.
pub(crate) struct Network(TempDir);

impl Network {
    pub(crate) fn new() -> Self {
        // Not below the target directory: the path of a socket has at most 107 bytes.
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The arguments of host 1 or 2 on a link of datagram sockets.
    pub(crate) fn dgram(&self, host: u8) -> String {
        let [own, peer] = [host, 3 - host].map(|host| self.path(&host.to_string()));
        format!("--edge qemu-dgram:{}:{} --address 10.0.0.{host}", own.display(), peer.display())
    }

    /// Starts a server and waits until it listens.
    pub(crate) fn start(&self, name: &str, arguments: &str) -> Process {
        let log = self.path(name);
        let child = command(arguments)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut process = Process { child, log };
        let deadline = Instant::now() + LIMIT;
        while !process.log().contains("listening on") {
            assert!(process.child.try_wait().unwrap().is_none(), "{}", process.log());
            assert!(Instant::now() < deadline, "it does not listen: {}", process.log());
            thread::sleep(SLICE);
        }
        process
    }
}

/// A process that does not outlive its test.
pub(crate) struct Process {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn log(&self) -> String {
        read(&self.log)
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child).unwrap_or_else(|| panic!("it does not end: {}", self.log()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkperf"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Runs to the end.
pub(crate) fn run(arguments: &str) -> Output {
    let dir = TempDir::new().unwrap();
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| dir.path().join(name));
    let child = command(arguments)
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let mut process = Process { child, log: stderr.clone() };
    let status = process.wait();
    Output { status, stdout: read(&stdout).into(), stderr: read(&stderr).into() }
}

/// Runs with `--json` and reads what it prints.
pub(crate) fn json(arguments: &str) -> Value {
    let output = run(&format!("{arguments} --json"));
    assert!(output.status.success(), "{arguments}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(SLICE);
    }
    None
}

pub(crate) fn operations(report: &Value) -> &[Value] {
    report["operations"].as_array().map_or(&[], Vec::as_slice)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// No run lasts that long, on the slowest machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const SLICE: Duration = Duration::from_millis(5);
