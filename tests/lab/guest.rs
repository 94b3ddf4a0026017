//! Guests, and the links between their NICs and us.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::lab_file;
use super::process::{PATIENCE, Process, read, within};

/// An end of the link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The guest's.
    Guest,
    /// Ours.
    Ours,
}

impl Side {
    /// The last digit of its MAC, IPv4 and IPv6 addresses.
    pub fn number(self) -> u8 {
        match self {
            Self::Guest => 1,
            Self::Ours => 2,
        }
    }
}

/// The two sockets of a link. A socket's path ends at 107 bytes, so they are not under `target`.
pub struct Sockets {
    dir: PathBuf,
    guest: PathBuf,
    ours: PathBuf,
}

impl Sockets {
    /// A link that nothing is bound to yet.
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ndk-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        Self { guest: dir.join("guest"), ours: dir.join("ours"), dir }
    }

    /// The socket that `side` binds, and the one it sends to.
    pub fn of(&self, side: Side) -> (&Path, &Path) {
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

/// What a guest is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Machine {
    /// Debian's suite of its kernel; without one that of `NDKROCEV2_LAB_SUITE`, or trixie.
    pub suite: Option<&'static str>,
    /// Most bytes of an IP packet of its NICs.
    pub mtu: u16,
    /// Its processors.
    pub cpus: u8,
    /// With the programs and modules of NVMe, NFS and SMB.
    pub workloads: bool,
    /// With an SMB server that has SMB Direct, for which a module is built first; of bookworm's kernel alone.
    pub smb_direct: bool,
    /// All that passes its NICs is recorded.
    pub recorded: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            suite: None,
            mtu: 1500,
            cpus: 1,
            workloads: false,
            smb_direct: false,
            recorded: true,
        }
    }
}

impl Machine {
    /// `lab/lab`, for such a guest.
    pub(super) fn lab(&self) -> Command {
        let mut command = Command::new("python3");
        command.arg(lab_file("lab"));
        command.args(self.smb_direct.then_some("--smb-direct"));
        if let Some(suite) = self.suite {
            command.env("NDKROCEV2_LAB_SUITE", suite);
        }
        command
    }

    /// `lab/lab boot` of a guest that shares `dir` and has a NIC for each of `nets`, the first with `number` in its address.
    fn boot(self, dir: &Path, number: u8, nets: &[String]) -> Command {
        let mut command = self.lab();
        command.arg("boot").arg(format!("--mtu={}", self.mtu));
        command.arg(format!("--cpus={}", self.cpus));
        command.args(self.workloads.then_some("--workloads"));
        for (index, net) in nets.iter().enumerate() {
            command.arg("--net").arg(net);
            if self.recorded {
                command.arg("--dump").arg(nic_capture(dir, index));
            }
        }
        command.arg("--mac").arg(format!("02:00:00:00:00:0{number}")).arg(dir);
        command
    }
}

/// The TAP of a guest that stands behind one.
pub const TAP: &str = "rdma0";

/// A running guest that serves jobs (see `lab/init`).
pub struct Guest {
    dir: PathBuf,
    process: Process,
    jobs: usize,
}

impl Guest {
    /// Boots a guest at `side` of the link, with rxe on its NIC.
    pub fn boot(dir: &Path, sockets: &Sockets, side: Side) -> Self {
        Self::boot_machine(Machine::default(), dir, sockets, side)
    }

    /// The same, made of other things.
    pub fn boot_machine(machine: Machine, dir: &Path, sockets: &Sockets, side: Side) -> Self {
        let number = side.number();
        let mut guest = Self::bare(machine, dir, number, &[(sockets, side)]);
        if machine.workloads {
            guest.take_jobs();
        }
        guest.bring_up(number);
        guest
    }

    /// Boots a guest behind the TAP [`TAP`] of a network that is made for it and ends with it, with rxe on its NIC. Needs
    /// no root.
    pub(super) fn boot_behind_tap(dir: &Path) -> Self {
        let number = Side::Guest.number();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]);
        let machine = Machine::default();
        let lab = machine.boot(dir, number, &[format!("tap:{TAP}")]);
        command.arg(lab.get_program()).args(lab.get_args());
        let mut guest = Self::spawn(command, dir);
        guest.bring_up(number);
        guest
    }

    /// A command in the network of a guest behind a TAP.
    pub(super) fn beside(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--net", "--preserve-credentials", "--target"]);
        command.arg(self.pid().as_raw_nonzero().to_string()).arg(program);
        command
    }

    /// Gives its NIC the addresses of this number, and rxe.
    fn bring_up(&mut self, number: u8) {
        // Without duplicate address detection the link-local address, from which the guest
        // solicits its neighbours, is of use at once.
        self.run(&format!(
            "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
             ip link set eth0 up
             ip addr add 10.0.0.{number}/24 dev eth0
             ip addr add fd00::{number}/64 dev eth0 nodad
             rdma link add rxe0 type rxe netdev eth0
             ibv_devinfo"
        ));
    }

    /// Boots a guest that forwards between two links, and does to each frame it forwards what `netem` says (see
    /// tc-netem(8)). It stands at the first link's side `Ours` and at the second's side `Guest`.
    pub fn boot_switch(dir: &Path, links: [&Sockets; 2], netem: &str) -> Self {
        let ends = [(links[0], Side::Ours), (links[1], Side::Guest)];
        // Nobody else's address: it would keep what is sent there.
        let mut guest = Self::bare(Machine::default(), dir, 8, &ends);
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
    fn bare(machine: Machine, dir: &Path, number: u8, ends: &[(&Sockets, Side)]) -> Self {
        let net = |(sockets, side): &(&Sockets, Side)| {
            let (here, there) = sockets.of(*side);
            format!("{}:{}", here.display(), there.display())
        };
        let nets: Vec<String> = ends.iter().map(net).collect();
        Self::spawn(machine.boot(dir, number, &nets), dir)
    }

    fn spawn(command: Command, dir: &Path) -> Self {
        fs::create_dir_all(dir).expect("target/tmp is writable");
        let process = Process::spawn(command, dir.join("console.log"));
        Self { dir: dir.into(), process, jobs: 0 }
    }

    /// Puts the scripts of `lab/jobs` into `/lab/jobs`.
    fn take_jobs(&self) {
        let jobs = self.shared("jobs");
        fs::create_dir_all(&jobs).expect("target/tmp is writable");
        for job in fs::read_dir(lab_file("jobs")).expect("it is part of the repository") {
            let job = job.expect("it is part of the repository");
            fs::copy(job.path(), jobs.join(job.file_name())).expect("target/tmp is writable");
        }
    }

    /// Starts a shell script in the guest, beside those already running.
    pub fn start(&mut self, script: &str) -> Job {
        assert!(self.process.status().is_none(), "the guest is gone:\n{}", self.process.output());
        self.jobs += 1;
        let path = |suffix: &str| self.dir.join(format!("{}.{suffix}", self.jobs));
        // The guest takes what bears the final name: by then the script has to be whole.
        fs::write(path("new"), format!("{script}\n")).expect("the shared directory is writable");
        fs::rename(path("new"), path("sh")).expect("the shared directory is writable");
        Job { script: script.into(), status: path("status"), log: path("log") }
    }

    /// Runs a script that has to succeed.
    pub fn run(&mut self, script: &str) {
        let (status, log) = self.start(&format!("set -e\n{script}")).wait();
        assert_eq!(status, 0, "in the guest: {script}\n{log}");
    }

    /// Stops the whole guest, its clock's processor included, or lets it go on.
    pub fn pause(&self, pause: bool) {
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        kill_process(self.pid(), signal).expect("the guest runs");
    }

    /// QEMU's process.
    fn pid(&self) -> Pid {
        let pid = fs::read_to_string(self.shared("pid")).expect("the lab writes it");
        pid.parse().ok().and_then(Pid::from_raw).expect("a process")
    }

    /// Ends the guest as a power cut does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// A file of the directory that it sees as `/lab`.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What its console shows.
    pub fn console(&self) -> String {
        self.process.output()
    }

    /// Lets the guest power off.
    pub fn end(&mut self) {
        File::create(self.dir.join("end")).expect("the shared directory is writable");
        let (status, console) = self.process.wait();
        assert_eq!(status, 0, "the guest's console:\n{console}");
    }

    /// All that passed a NIC of it, as QEMU saw it.
    pub fn nic_capture(&self, index: usize) -> PathBuf {
        nic_capture(&self.dir, index)
    }
}

fn nic_capture(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("nic{index}.pcap"))
}

/// A shell script that runs in a guest.
pub struct Job {
    script: String,
    status: PathBuf,
    log: PathBuf,
}

impl Job {
    /// The exit status and what it printed.
    pub fn wait(&self) -> (i32, String) {
        self.ended().unwrap_or_else(|log| panic!("{log}"))
    }

    /// The same. An error is what a job without end printed.
    pub fn ended(&self) -> Result<(i32, String), String> {
        let ended = within(PATIENCE, || fs::read_to_string(&self.status).ok());
        let log = read(&self.log);
        match ended {
            Some(status) => Ok((status.trim().parse().expect("a status is a number"), log)),
            None => Err(format!("in the guest, without end: {}\n{log}", self.script)),
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.status.exists()
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        read(&self.log)
    }
}
