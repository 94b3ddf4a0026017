//! Boots guests (`lab/lab`), runs our process beside them, and asks the judges (`lab/judge.py`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use driver::{Provider, ProviderConfig};
use ndk_consumer::Adapter;
use netadapter_glue::pcap::Capture;
use netadapter_glue::qemu::QemuDgram;

/// Longer than any one step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The exit status by which the lab and the judges say that this machine lacks something.
const CANNOT: i32 = 77;

/// A guest with rxe up, and a place for our process at the other end of its link.
pub(crate) struct Lab {
    dir: PathBuf,
    pub(crate) sockets: Sockets,
    pub(crate) guest: Guest,
    processes: usize,
    /// One lab at a time: on a small machine two would slow each other into timeouts.
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// `None` where this machine cannot run the lab, which is said.
    pub(crate) fn start(name: &str) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        static READY: LazyLock<Result<(), String>> = LazyLock::new(fetch);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(reason) = &*READY {
            skip(reason);
            return None;
        }
        // Built now: in the middle of a test it would count as the peer's time.
        LazyLock::force(&NDKPERF);
        let dir = scratch(name);
        let sockets = Sockets::new(name);
        let guest = Guest::boot(&dir.join("guest"), &sockets, Side::Guest);
        Some(Self { dir, sockets, guest, processes: 0, _turn: turn })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Starts `ndkperf rping` with these arguments at the other end of the guest's link.
    pub(crate) fn ndkperf(&mut self, arguments: &str, capture: &Path) -> Process {
        let arguments = format!("{arguments} --pcap {}", capture.display());
        self.processes += 1;
        let log = self.path(&format!("ndkperf-{}.log", self.processes));
        ndkperf(&arguments, &self.sockets, Side::Ours, log)
    }

    /// Opens an adapter of a provider of this very process at the other end of the guest's link.
    pub(crate) fn adapter(&self, capture: &Path) -> Arc<Adapter> {
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
    pub(crate) fn compile(&self, name: &str) -> bool {
        let mut command = Command::new("python3");
        command.arg(lab_file("lab")).arg("cc").arg(lab_file(&format!("{name}.c")));
        match run(command.arg(self.guest.dir.join(name))) {
            Verdict::Sound(_) => true,
            Verdict::Skipped(reason) => {
                skip(&reason);
                false
            }
            Verdict::Wrong(said) => panic!("tests/lab/{name}.c:\n{said}"),
        }
    }

    /// Ends the guest and judges all that passed its NIC, as QEMU saw it.
    pub(crate) fn finish(&mut self) {
        self.guest.end();
        judge(&self.nic_capture(), &["icrc", "tshark"]);
    }

    pub(crate) fn nic_capture(&self) -> PathBuf {
        self.guest.nic_capture(0)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("console, logs and captures are in {}", self.dir.display());
            eprintln!("the guest's console:\n{}", self.guest.process.output());
        }
    }
}

/// Fills the lab's cache; an error is why this machine cannot run the lab.
fn fetch() -> Result<(), String> {
    match run(Command::new("python3").arg(lab_file("lab")).arg("fetch")) {
        Verdict::Sound(_) => Ok(()),
        Verdict::Skipped(reason) => Err(reason),
        Verdict::Wrong(said) => panic!("tests/lab/lab fetch:\n{said}"),
    }
}

/// Starts `ndkperf rping` with these arguments at an end of a link.
pub(crate) fn ndkperf(arguments: &str, sockets: &Sockets, side: Side, log: PathBuf) -> Process {
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
static NDKPERF: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(program) = std::env::var_os("NDKPERF") {
        return program.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", "ndkperf", "--bin", "ndkperf", "--target-dir"]).arg(target);
    let built = cargo.current_dir(tests::ROOT).output().expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/ndkperf")
});

fn lab_file(name: &str) -> PathBuf {
    Path::new(tests::ROOT).join("tests/lab").join(name)
}

/// An empty directory for what a test leaves behind.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("target/tmp is writable");
    dir
}

/// Says that something was left out, past the test harness, which shows the output of failed tests only.
pub(crate) fn skip(reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

// --- the link ------------------------------------------------------------------------------------

/// An end of the link.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Side {
    Guest,
    Ours,
}

impl Side {
    /// The last digit of its MAC, IPv4 and IPv6 addresses.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Guest => 1,
            Self::Ours => 2,
        }
    }
}

/// The two sockets of a link. A socket's path ends at 107 bytes, so they are not under `target`.
pub(crate) struct Sockets {
    dir: PathBuf,
    guest: PathBuf,
    ours: PathBuf,
}

impl Sockets {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ndk-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        Self { guest: dir.join("guest"), ours: dir.join("ours"), dir }
    }

    /// The socket that `side` binds, and the one it sends to.
    pub(crate) fn of(&self, side: Side) -> (&Path, &Path) {
        match side {
            Side::Guest => (&self.guest, &self.ours),
            Side::Ours => (&self.ours, &self.guest),
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

// --- guests --------------------------------------------------------------------------------------

/// A running guest that serves jobs (see `lab/init`).
pub(crate) struct Guest {
    dir: PathBuf,
    process: Process,
    jobs: usize,
}

impl Guest {
    /// Boots a guest at `side` of the link, with rxe on its NIC.
    pub(crate) fn boot(dir: &Path, sockets: &Sockets, side: Side) -> Self {
        let number = side.number();
        let mut guest = Self::bare(dir, number, &[(sockets, side)]);
        // Without duplicate address detection the link-local address, from which the guest
        // solicits its neighbours, is of use at once.
        guest.run(&format!(
            "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
             ip link set eth0 up
             ip addr add 10.0.0.{number}/24 dev eth0
             ip addr add fd00::{number}/64 dev eth0 nodad
             rdma link add rxe0 type rxe netdev eth0
             ibv_devinfo"
        ));
        guest
    }

    /// Boots a guest that forwards between two links, and does to each frame it forwards what `netem` says (see
    /// tc-netem(8)). It stands at the first link's side `Ours` and at the second's side `Guest`.
    pub(crate) fn boot_switch(dir: &Path, links: [&Sockets; 2], netem: &str) -> Self {
        let ends = [(links[0], Side::Ours), (links[1], Side::Guest)];
        // Nobody else's address: it would keep what is sent there.
        let mut guest = Self::bare(dir, 8, &ends);
        guest.run(&format!(
            "ip link add br0 type bridge forward_delay 0
             for nic in eth0 eth1; do
                 echo 1 >/proc/sys/net/ipv6/conf/$nic/disable_ipv6
                 ip link set $nic master br0 up
                 tc qdisc add dev $nic root netem {netem}
             done
             ip link set br0 up"
        ));
        guest
    }

    /// Boots a guest that has a NIC at each of these ends of links, the first with `number` in its address.
    fn bare(dir: &Path, number: u8, ends: &[(&Sockets, Side)]) -> Self {
        fs::create_dir_all(dir).expect("target/tmp is writable");
        let mut command = Command::new("python3");
        command.arg(lab_file("lab")).arg("boot");
        for (index, (sockets, side)) in ends.iter().enumerate() {
            let (here, there) = sockets.of(*side);
            command.arg("--net").arg(format!("{}:{}", here.display(), there.display()));
            command.arg("--dump").arg(nic_capture(dir, index));
        }
        command.arg("--mac").arg(format!("02:00:00:00:00:0{number}")).arg(dir);
        let process = Process::spawn(command, dir.join("console.log"));
        Self { dir: dir.into(), process, jobs: 0 }
    }

    /// Starts a shell script in the guest, beside those already running.
    pub(crate) fn start(&mut self, script: &str) -> Job {
        assert!(self.process.status().is_none(), "the guest is gone:\n{}", self.process.output());
        self.jobs += 1;
        let path = |suffix: &str| self.dir.join(format!("{}.{suffix}", self.jobs));
        // The guest takes what bears the final name: by then the script has to be whole.
        fs::write(path("new"), format!("{script}\n")).expect("the shared directory is writable");
        fs::rename(path("new"), path("sh")).expect("the shared directory is writable");
        Job { script: script.into(), status: path("status"), log: path("log") }
    }

    /// Runs a script that has to succeed.
    pub(crate) fn run(&mut self, script: &str) {
        let (status, log) = self.start(&format!("set -e\n{script}")).wait();
        assert_eq!(status, 0, "in the guest: {script}\n{log}");
    }

    /// Lets the guest power off.
    pub(crate) fn end(&mut self) {
        File::create(self.dir.join("end")).expect("the shared directory is writable");
        let (status, console) = self.process.wait();
        assert_eq!(status, 0, "the guest's console:\n{console}");
    }

    /// All that passed a NIC of it, as QEMU saw it.
    pub(crate) fn nic_capture(&self, index: usize) -> PathBuf {
        nic_capture(&self.dir, index)
    }
}

fn nic_capture(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("nic{index}.pcap"))
}

/// A shell script that runs in a guest.
pub(crate) struct Job {
    script: String,
    status: PathBuf,
    log: PathBuf,
}

impl Job {
    /// The exit status and what it printed.
    pub(crate) fn wait(&self) -> (i32, String) {
        self.ended().unwrap_or_else(|log| panic!("{log}"))
    }

    /// The same. An error is what a job without end printed.
    pub(crate) fn ended(&self) -> Result<(i32, String), String> {
        let ended = within(PATIENCE, || fs::read_to_string(&self.status).ok());
        let log = read(&self.log);
        match ended {
            Some(status) => Ok((status.trim().parse().expect("a status is a number"), log)),
            None => Err(format!("in the guest, without end: {}\n{log}", self.script)),
        }
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        read(&self.log)
    }
}

// --- processes -----------------------------------------------------------------------------------

/// A child whose output goes to a file. It does not outlive this.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn spawn(mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("target/tmp is writable");
        command.stdout(file.try_clone().expect("a file can be shared")).stderr(file);
        match command.spawn() {
            Ok(child) => Self { child, log },
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    /// Waits until the process has printed `text`.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let seen = within(PATIENCE, || {
            let ended = self.status().is_some();
            let said = self.output().contains(text);
            (said || ended).then_some(said)
        });
        assert_eq!(seen, Some(true), "no {text:?} in\n{}", self.output());
    }

    /// The exit status, -1 for a signal's, and what it printed.
    pub(crate) fn wait(&mut self) -> (i32, String) {
        let Some(status) = within(PATIENCE, || self.status()) else {
            panic!("without end:\n{}", self.output());
        };
        (status.code().unwrap_or(-1), self.output())
    }

    pub(crate) fn output(&self) -> String {
        read(&self.log)
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Asks again and again until there is an answer or the time is up.
pub(crate) fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= end {
            return answer;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

// --- judges --------------------------------------------------------------------------------------

/// What a tool of the lab came to, with what it printed.
#[derive(Debug)]
pub(crate) enum Verdict {
    Sound(String),
    Wrong(String),
    Skipped(String),
}

/// Asks one judge of `judge.py`.
pub(crate) fn verdict(judge: &str, capture: &Path) -> Verdict {
    run(Command::new("python3").arg(lab_file("judge.py")).arg(judge).arg(capture))
}

/// Asserts that these judges accept the capture. Returns how many packets of each kind it has, which `icrc` counts.
pub(crate) fn judge(capture: &Path, judges: &[&str]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for judge in judges {
        match verdict(judge, capture) {
            Verdict::Sound(said) => kinds.extend(said.lines().filter_map(|line| {
                let (kind, count) = line.split_once(' ')?;
                Some((kind.to_string(), count.parse().ok()?))
            })),
            Verdict::Skipped(reason) => skip(&reason),
            Verdict::Wrong(said) => panic!("{judge} on {}:\n{said}", capture.display()),
        }
    }
    kinds
}

fn run(command: &mut Command) -> Verdict {
    let Output { status, stdout, stderr } = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Verdict::Skipped("python3 missing".into());
        }
        Err(error) => panic!("{command:?}: {error}"),
    };
    let said = String::from_utf8_lossy(&stderr).trim().to_string();
    match status.code() {
        Some(0) => Verdict::Sound(String::from_utf8_lossy(&stdout).into_owned()),
        Some(CANNOT) => Verdict::Skipped(said.lines().last().unwrap_or_default().into()),
        _ => Verdict::Wrong(said),
    }
}
