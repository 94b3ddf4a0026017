//! Processes beside the guests, and waiting.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any one step takes on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A child whose output goes to a file. It does not outlive this.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it.
    pub fn spawn(command: Command, log: PathBuf) -> Self {
        File::create(&log).expect("target/tmp is writable");
        let output = append(&log);
        Self::spawn_apart(command, log, output)
    }

    /// Starts it; its standard output is no part of its log.
    pub fn spawn_apart(mut command: Command, log: PathBuf, output: File) -> Self {
        command.stdout(output).stderr(append(&log));
        match command.spawn() {
            Ok(child) => Self { child, log },
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    /// Waits until the process has printed `text`.
    pub fn wait_for(&mut self, text: &str) {
        let seen = within(PATIENCE, || {
            let ended = self.status().is_some();
            let said = self.output().contains(text);
            (said || ended).then_some(said)
        });
        assert_eq!(seen, Some(true), "no {text:?} in\n{}", self.output());
    }

    /// The exit status, -1 for a signal's, and what it printed.
    pub fn wait(&mut self) -> (i32, String) {
        let Some(status) = within(PATIENCE, || self.status()) else {
            panic!("without end:\n{}", self.output());
        };
        (status.code().unwrap_or(-1), self.output())
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        read(&self.log)
    }

    /// How it has ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }
}

impl Process {
    /// Ends it at once, whatever it does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn append(log: &Path) -> File {
    File::options().append(true).create(true).open(log).expect("target/tmp is writable")
}

pub(super) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Asks again and again until there is an answer or the time is up.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= end {
            return answer;
        }
        thread::sleep(Duration::from_millis(20));
    }
}
