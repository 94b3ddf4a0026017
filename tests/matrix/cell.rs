//! Runs one cell in a guest that is up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::tests::lab::{Guest, Job, Machine, PATIENCE, Process, Side, Sockets, build, judge, within};

use crate::event::{Event, Strike};
use crate::program::{Ending, Fate, OurEnd};
use crate::spread::{Cell, Family};
use crate::wire::Wire;

/// What a cell came to that is green.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    /// Of its work, without its judges.
    pub(crate) seconds: f64,
    /// Packets that either end has sent.
    pub(crate) packets: usize,
    /// Requests of ours that tshark has seen twice.
    pub(crate) twice: Option<usize>,
}

/// A guest that is up, and both halves of its link.
pub(crate) struct Boot {
    machine: Machine,
    dir: PathBuf,
    boots: usize,
    guest: Guest,
    near: Sockets,
    far: Sockets,
    mtu: u16,
}

impl Boot {
    /// Boots a guest, whose files go to `dir`.
    pub(crate) fn new(machine: Machine, dir: PathBuf) -> Self {
        let [near, far] = ["matrix-near", "matrix-far"].map(Sockets::new);
        let guest = Guest::boot_machine(machine, &dir.join("1"), &near, Side::Guest);
        Self { machine, dir, boots: 1, guest, near, far, mtu: machine.mtu }
    }

    /// Boots another in place of one that was killed.
    fn replace(&mut self) {
        self.boots += 1;
        let dir = self.dir.join(self.boots.to_string());
        self.guest = Guest::boot_machine(self.machine, &dir, &self.near, Side::Guest);
        let mtu = std::mem::replace(&mut self.mtu, self.machine.mtu);
        self.set_mtu(mtu);
    }

    fn set_mtu(&mut self, mtu: u16) {
        if self.mtu != mtu {
            self.guest.run(&format!("ip link set eth0 mtu {mtu}"));
            self.mtu = mtu;
        }
    }

    /// Objects of the guest's device that somebody holds.
    fn resources(&mut self) -> String {
        let (status, said) = self.guest.start("rdma resource show").wait();
        assert_eq!(status, 0, "{said}");
        said
    }

    /// The same, as far as a cell gives it back. The kernel's own users share a pool of CQs, which their device keeps.
    fn held(&mut self, cell: &Cell) -> String {
        let said = self.resources();
        if cell.program.guest.process.is_some() {
            return said;
        }
        let mut words: Vec<&str> = said.split_whitespace().collect();
        let cq = words.iter().position(|word| *word == "cq").expect("a count of CQs");
        words.drain(cq..cq + 2);
        words.join(" ")
    }
}

/// Runs a cell, whose files go to `dir`.
///
/// # Panics
/// Where the cell is red; the message says why.
pub(crate) fn run(cell: &Cell, boot: &mut Boot, dir: &Path) -> Passed {
    boot.set_mtu(if cell.path_mtu == 1024 { 1500 } else { 4200 });
    let before = boot.held(cell);
    let capture = dir.join("sent.pcap");
    let wire = Wire::join(&boot.near, &boot.far, cell.event.hurt(), &capture);
    let mut run = Run { cell, boot, wire, dir, processes: 0 };
    let count = cell.program.counts[usize::from(cell.event.strike().is_some())];
    run.guest_script(cell.program.guest.before, count);
    let began = Instant::now();
    match cell.event.strike() {
        None => run.whole(count),
        Some(strike) => run.strike(strike),
    }
    run.keeps_the_rules();
    let seconds = began.elapsed().as_secs_f64();
    run.guest_script(cell.program.guest.after, count);
    drop(run.wire);
    let mut after = String::new();
    let back = within(RELEASE, || {
        after = boot.held(cell);
        (after == before).then_some(())
    });
    assert!(back.is_some(), "the guest's objects: before {before}after {after}");
    judged(cell, &capture, seconds)
}

/// Asks the judges about all that was sent.
fn judged(cell: &Cell, capture: &Path, seconds: f64) -> Passed {
    let twice = format!("twice:{}", cell.path_mtu);
    let kinds = judge(capture, &["icrc", "scapy:2000", "tshark", &twice]);
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
    for kind in cell.program.packets {
        assert!(count(kind) > 0, "no {kind} in {kinds:?}");
    }
    assert_eq!(refused(cell, &kinds), 0, "requests were refused: {kinds:?}");
    let twice = kinds.get(&format!("twice_{}", address(cell.family, Side::Ours))).copied();
    let packets = count("packets");
    if cell.event == Event::Clean {
        // A guest that gets no processor for a moment answers late.
        assert!(
            twice.is_none_or(|twice| twice <= packets / 1000),
            "{twice:?} of {packets} sent in vain"
        );
    }
    Passed { seconds, packets, twice }
}

/// Requests that were refused though they were right. A NAK 0 answers a lost packet; the others answer a request that is
/// wrong, and one that a process's end has overtaken: Linux gives back what it held one by one, the last first, so that
/// for a moment its QP answers for memory that is no more.
fn refused(cell: &Cell, kinds: &BTreeMap<String, usize>) -> usize {
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
    let all: usize = ["NAK_1", "NAK_2", "NAK_3", "NAK_4"].map(count).iter().sum();
    let killed = cell.event == Event::PeerKilled && cell.program.guest.process.is_some();
    let guest = address(cell.family, Side::Guest);
    // The first ends the connection.
    let overtaken = ["NAK_2", "NAK_3"].map(|kind| count(&format!("{kind}_{guest}"))).iter().sum();
    all - if killed { usize::min(overtaken, 1) } else { 0 }
}

fn address(family: Family, side: Side) -> String {
    match family {
        Family::V4 => format!("10.0.0.{}", side.number()),
        Family::V6 => format!("fd00::{}", side.number()),
    }
}

/// A cell at work.
struct Run<'a> {
    cell: &'a Cell,
    boot: &'a mut Boot,
    wire: Wire,
    dir: &'a Path,
    processes: usize,
}

/// Both ends, as far as they are there.
struct Ends {
    ours: Process,
    guest: Option<Job>,
    stays: bool,
}

impl Ends {
    /// Both have to do all of their work.
    fn finish(mut self) {
        if let Some(job) = &self.guest {
            let (status, log) = job.wait();
            assert_eq!(status, 0, "the guest says\n{log}\nand ours\n{}", self.ours.output());
        }
        if !self.stays {
            let (status, log) = self.ours.wait();
            assert_eq!(status, 0, "ours says\n{log}");
        }
    }
}

impl Run<'_> {
    fn text(&self, template: &str, count: u32) -> String {
        let text = template.replace("{count}", &count.to_string());
        let text = text.replace("{ours}", &address(self.cell.family, Side::Ours));
        text.replace("{guest}", &address(self.cell.family, Side::Guest))
    }

    fn guest_script(&mut self, template: &str, count: u32) {
        if !template.is_empty() {
            let script = self.text(template, count);
            self.boot.guest.run(&script);
        }
    }

    /// All of a pair's work.
    fn whole(&mut self, count: u32) {
        self.start(count).finish();
        self.compare();
    }

    /// Where our end prints a file of the guest, it has printed that one.
    fn compare(&self) {
        let Some(file) = self.cell.program.ours.prints else { return };
        let [file, printed] = [self.boot.guest.shared(file), self.printed()]
            .map(|path| fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}")));
        assert!(!file.is_empty() && printed == file, "what was read is not what is there");
    }

    /// What a process of ours says.
    fn log(&self, process: usize) -> PathBuf {
        self.dir.join(format!("ours-{process}.log"))
    }

    /// No process of ours, as far as the verifier stands behind it, has broken a rule of NDKPI, struck or not.
    fn keeps_the_rules(&self) {
        for log in (1..=self.processes).map(|process| self.log(process)) {
            let said = fs::read_to_string(&log).unwrap_or_else(|error| panic!("{log:?}: {error}"));
            let mistake = said.lines().find(|line| line.contains("ndk-verifier: mistake: "));
            assert_eq!(mistake, None);
        }
    }

    /// What the last process of ours prints that is data.
    fn printed(&self) -> PathBuf {
        self.dir.join(format!("ours-{}.data", self.processes))
    }

    /// Starts both ends, the one that listens first.
    fn start(&mut self, count: u32) -> Ends {
        let program = self.cell.program;
        if program.listens == Side::Ours {
            let ours = self.start_ours(count);
            let guest = self.start_guest(count);
            return Ends { ours, guest, stays: program.ours.stays };
        }
        let guest = self.start_guest(count);
        self.boot.guest.run(LISTENING);
        Ends { ours: self.start_ours(count), guest, stays: program.ours.stays }
    }

    fn start_guest(&mut self, count: u32) -> Option<Job> {
        let command = self.text(self.cell.program.guest.command?, count);
        Some(self.boot.guest.start(&command))
    }

    fn start_ours(&mut self, count: u32) -> Process {
        let ours = &self.cell.program.ours;
        let (here, there) = self.boot.far.of(Side::Ours);
        // A name that a killed program has left would refuse the bind.
        let _ = fs::remove_file(here);
        let number = Side::Ours.number();
        let mut command = Command::new(built(ours));
        command.args(self.text(ours.arguments, count).split(' '));
        let edge = format!("qemu-dgram:{}:{}", here.display(), there.display());
        // The same one again, or the guest would look for a killed one's address. Nobody else has our IP address.
        command.arg("--edge").arg(format!("{edge},mac=02:00:00:00:00:0{number},probe=off"));
        command.arg("--address").arg(address(self.cell.family, Side::Ours));
        command.arg("--mtu").arg(self.boot.mtu.to_string());
        if ours.package == CONSUMER {
            command.args(["--layers", "verify"]);
        }
        self.processes += 1;
        let log = self.log(self.processes);
        let mut process = match ours.prints {
            None => Process::spawn(command, log),
            Some(_) => {
                let output = File::create(self.printed()).expect("target/tmp is writable");
                Process::spawn_apart(command, log, output)
            }
        };
        if !ours.ready.is_empty() {
            process.wait_for(ours.ready);
        }
        process
    }

    /// Strikes in the middle of the work; each end has to meet its fate, and a new pair has to work.
    fn strike(&mut self, strike: Strike) {
        let mut ends = self.start(self.cell.program.counts[1]);
        let bytes = self.wire.bytes() + 1024 * self.cell.program.at_work_kib;
        let at_work = within(PATIENCE, || (self.wire.bytes() > bytes).then_some(()));
        assert!(at_work.is_some(), "nothing passes; ours says\n{}", ends.ours.output());
        let ending = self.cell.program.ending(self.cell.event);
        assert!(!self.is_over(&mut ends), "all was done before the strike");
        let struck = Instant::now();
        match strike {
            Strike::KillPeer => self.kill_peer(),
            Strike::KillOurs => ends.ours.kill(),
            Strike::PullCable(time) => {
                self.wire.pull(true);
                thread::sleep(time);
                self.wire.pull(false);
            }
            Strike::PauseGuest(time) => {
                self.boot.guest.pause(true);
                thread::sleep(time);
                self.boot.guest.pause(false);
            }
        }
        let until = struck + Duration::from_secs(ending.seconds);
        if strike == Strike::KillOurs && self.cell.program.listens == Side::Ours {
            meets(ending.ours, Instant::now(), &mut ends, Side::Ours);
            ends.ours = self.start_ours(self.cell.program.counts[1]);
        } else {
            meets(ending.ours, until, &mut ends, Side::Ours);
        }
        // A guest that is gone has no fate.
        if strike != Strike::KillPeer || self.cell.program.guest.process.is_some() {
            meets(ending.guest, until, &mut ends, Side::Guest);
        }
        self.end_waiting(ending, &mut ends);
        if ending.ours == Fate::Finishes {
            self.compare();
        }
        if ending.ours != Fate::Finishes || ending.guest != Fate::Finishes {
            drop(ends);
            self.whole(self.cell.program.counts[0]);
        }
    }

    fn is_over(&self, ends: &mut Ends) -> bool {
        ends.ours.status().is_some() || ends.guest.as_ref().is_some_and(Job::is_over)
    }

    /// Ends the guest's process, or the guest, in whose place there is another then.
    fn kill_peer(&mut self) {
        match self.cell.program.guest.process {
            Some(process) => self.boot.guest.run(&format!("kill -9 $(pidof {process})")),
            None => {
                self.boot.guest.kill();
                self.boot.replace();
                self.guest_script(self.cell.program.guest.before, self.cell.program.counts[1]);
            }
        }
    }

    /// Ends what would wait for ever.
    fn end_waiting(&mut self, ending: Ending, ends: &mut Ends) {
        if ending.ours == Fate::Waits {
            ends.ours.kill();
        }
        if ending.guest == Fate::Waits {
            self.kill_peer();
            ends.guest.as_ref().map(Job::wait);
        }
    }
}

/// An end meets its fate in time.
fn meets(fate: Fate, until: Instant, ends: &mut Ends, side: Side) {
    let stays = fate == Fate::Finishes && side == Side::Ours && ends.stays;
    let until = if stays { Instant::now() } else { until };
    let left = until.saturating_duration_since(Instant::now());
    let (status, log) = match (side, &ends.guest) {
        (Side::Ours, _) => {
            let ended = within(left, || ends.ours.status());
            let status = ended.map(|status| status.code().unwrap_or(-1));
            (status, ends.ours.output())
        }
        (Side::Guest, Some(job)) => {
            let ended = within(left, || job.is_over().then(|| job.wait().0));
            (ended, job.output())
        }
        // The kernel, which has no end.
        (Side::Guest, None) => return,
    };
    let met = match (fate, status) {
        (Fate::Finishes, Some(status)) => status == 0 && !stays,
        (Fate::Finishes, None) => stays,
        (Fate::Fails(said), Some(status)) => {
            status != 0 && said.iter().any(|said| log.contains(said))
        }
        (Fate::Struck, Some(status)) => status != 0,
        (Fate::Waits, None) => true,
        (Fate::Fails(_) | Fate::Struck, None) | (Fate::Waits, Some(_)) => false,
    };
    assert!(met, "{side:?}: {fate:?} was expected, not status {status:?}; it says\n{log}");
}

/// The program of our end, which is built once.
pub(crate) fn built(ours: &OurEnd) -> PathBuf {
    static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(ours.name).or_insert_with(|| build(ours.package, ours.kind, ours.name)).clone()
}

/// The package whose programs take layers.
const CONSUMER: &str = "ndk-consumer";
/// In the guest: returns once somebody listens.
const LISTENING: &str = "until rdma resource show cm_id | grep -q LISTEN; do usleep 50000; done";
/// How long the guest may hold what a connection had.
const RELEASE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::PROGRAMS;
    use crate::spread::{Kernel, cells};

    fn killed_with(naks: &[(&str, usize)]) -> usize {
        let cells = cells(PROGRAMS).into_iter();
        let mut cells = cells.filter(|cell| cell.to_string() == "rping-serve/peer-killed");
        let cell = Cell { family: Family::V4, ..cells.next().expect("it is in the matrix") };
        refused(&cell, &naks.iter().map(|(kind, count)| ((*kind).into(), *count)).collect())
    }

    #[test]
    fn a_killed_process_may_refuse_one_request() {
        assert_eq!(killed_with(&[("NAK_2", 1), ("NAK_2_10.0.0.1", 1)]), 0);
        assert_eq!(killed_with(&[("NAK_3", 1), ("NAK_3_10.0.0.1", 1)]), 0);
    }

    #[test]
    fn all_else_that_is_refused_counts() {
        assert_eq!(killed_with(&[("NAK_2", 1), ("NAK_2_10.0.0.2", 1)]), 1, "ours");
        assert_eq!(killed_with(&[("NAK_2", 2), ("NAK_2_10.0.0.1", 2)]), 1, "another connection");
        assert_eq!(killed_with(&[("NAK_1", 1), ("NAK_1_10.0.0.1", 1)]), 1, "another reason");
    }

    #[test]
    fn only_a_killed_process_may_refuse() {
        let kinds = BTreeMap::from([("NAK_2".into(), 1), ("NAK_2_10.0.0.1".into(), 1)]);
        for cell in cells(PROGRAMS).into_iter().filter(|cell| cell.event != Event::PeerKilled) {
            let cell = Cell { family: Family::V4, kernel: Kernel::Trixie, ..cell };
            assert_eq!(refused(&cell, &kinds), 1, "{cell}");
        }
    }
}
