//! Programs that Linux's users of RDMA run, against ours: each under every fault and every strike.
//!
//! Goal: the data is right, or the end is the one that is written down, whatever the wire, the guest and our program
//! suffer; both sides give back all that they took, and other implementations accept each packet.
//! Method: a guest with rxe; a wire of our own between it and our program (`wire.rs`), which hurts both directions,
//! can be pulled out, and records what either end has sent, for the judges. Each program of `programs.rs` runs under each
//! event of `event.rs` once; address family, path MTU and kernel are spread over these cells so that each pair of
//! properties meets (`spread.rs`).
//!
//! `cargo run -p tests --example matrix` runs all cells and prints them, at the end in Markdown, too. `-- NAME ...`
//! runs those whose names have one of these in them, `-- --list` prints the names. What a run leaves (consoles, logs,
//! captures of red cells, or of a single one) stays under `target/tmp/interop/matrix`.

mod cell;
mod event;
mod program;
mod programs;
mod report;
mod spread;
mod wire;

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use ::tests::lab::{Machine, fetch, scratch};

use cell::{Boot, built};
use program::Program;
use programs::PROGRAMS;
use report::{Outcome, line, markdown};
use spread::{Cell, cells};

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let all = cells(PROGRAMS);
    if names == ["--list"] {
        all.iter().for_each(|cell| println!("{cell}"));
        return ExitCode::SUCCESS;
    }
    let chosen = |cell: &Cell| names.iter().any(|name| cell.to_string().contains(name.as_str()));
    let cells: Vec<_> = all.into_iter().filter(|cell| names.is_empty() || chosen(cell)).collect();
    if cells.is_empty() {
        eprintln!("usage: matrix [--list] [NAME ...]; no cell has such a name");
        return ExitCode::FAILURE;
    }
    let results = run(cells);
    print!("\n{}", markdown(&results));
    let red = results.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Red(_))).count();
    println!("\n{} cells, {red} red", results.len());
    if red == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs these cells and prints each when it has ended. Those of the same machine share its boots.
fn run(cells: Vec<Cell>) -> Vec<(Cell, Outcome)> {
    let keep = cells.len() == 1;
    cells.iter().for_each(|cell| drop(built(&cell.program.ours)));
    let dir = scratch("matrix");
    let mut machines: Vec<Machine> = Vec::new();
    for machine in cells.iter().map(machine) {
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let mut results = Vec::new();
    for (number, machine) in machines.into_iter().enumerate() {
        let ready = fetch(&machine);
        let mut boots = Boots { machine, dir: &dir, number, boot: None };
        for cell in cells.iter().filter(|cell| self::machine(cell) == machine) {
            let outcome = match &ready {
                Ok(()) => boots.run(cell, keep),
                Err(reason) => Outcome::Skipped(reason.clone()),
            };
            println!("{}", line(cell, &outcome));
            results.push((*cell, outcome));
        }
    }
    let names: Vec<_> = cells.iter().map(Cell::to_string).collect();
    results.sort_by_key(|(cell, _)| names.iter().position(|name| *name == cell.to_string()));
    results
}

fn machine(cell: &Cell) -> Machine {
    let Program { cpus, guest, .. } = cell.program;
    let (suite, smb_direct) = (Some(cell.kernel.suite()), guest.smb_direct);
    Machine { suite, mtu: 9000, cpus: *cpus, workloads: true, smb_direct, recorded: false }
}

/// The guest of some cells, booted anew where a cell has left it in a state that nobody knows.
struct Boots<'a> {
    machine: Machine,
    dir: &'a Path,
    number: usize,
    boot: Option<Boot>,
}

impl Boots<'_> {
    fn run(&mut self, cell: &Cell, keep: bool) -> Outcome {
        let dir = self.dir.join(cell.to_string().replace('/', "-"));
        fs::create_dir_all(&dir).expect("target/tmp is writable");
        let run = AssertUnwindSafe(|| {
            let guest = self.dir.join(format!("guest-{}-{}", self.number, dir_name(&dir)));
            let boot = self.boot.get_or_insert_with(|| Boot::new(self.machine, guest));
            cell::run(cell, boot, &dir)
        });
        match catch_unwind(run) {
            Ok(passed) => {
                if !keep {
                    let _ = fs::remove_file(dir.join("sent.pcap"));
                }
                Outcome::Green(passed)
            }
            Err(why) => {
                self.boot = None;
                Outcome::Red(format!("{} ({})", said(&*why), dir.display()))
            }
        }
    }
}

fn dir_name(dir: &Path) -> &str {
    dir.file_name().and_then(|name| name.to_str()).expect("a cell's name is text")
}

/// The message of a panic.
fn said(why: &(dyn Any + Send)) -> &str {
    let text = why.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Kernel;

    /// One of each kind, that two boots of the kernel of `interop` run.
    const SLICE: [&str; 8] = [
        "rping-serve/clean",
        "rping-serve/peer-killed",
        "rping-connect/loss-1%",
        "rping-connect/guest-paused-5s",
        "ucmatose-server/duplicate-1%",
        "rdma-client/reorder-2%",
        "nvme-target/loss-1%",
        "nfs-read/duplicate-1%",
    ];

    /// Goal: the slice of the matrix that each run of the tests can afford is green.
    #[test]
    fn a_slice_is_green() {
        let cells = cells(PROGRAMS).into_iter();
        let slice = cells.filter(|cell| SLICE.contains(&cell.to_string().as_str()));
        let slice: Vec<_> = slice.map(|cell| Cell { kernel: Kernel::Trixie, ..cell }).collect();
        assert_eq!(slice.len(), SLICE.len());
        for (cell, outcome) in run(slice) {
            match outcome {
                Outcome::Green(_) => {}
                Outcome::Skipped(reason) => ::tests::lab::skip(&reason),
                Outcome::Red(why) => panic!("{cell}: {why}"),
            }
        }
    }
}
