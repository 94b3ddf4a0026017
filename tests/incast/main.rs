//! Many senders, one receiver, one switch port between them: what congestion control is for.
//!
//! Goal: with congestion control the port carries at least 80 % of its rate as data, shared fairly,
//! and drops little; without it, it drops much, carries much twice, and where all wait for the last of
//! a round it stands still. Method: devices in a simulated network whose only clock is its own, so that
//! every run gives the same figures; each case with ten seeds, of which the median and the worst are
//! shown.
//!
//! Without an option it prints the table of eight senders. `--svg FILE` also draws the data that each
//! sender got through, the queue, and the table as bars. `--sweep` prints many more cases. `--loss` prints
//! what random losses leave of the goodput of one sender, over a path and where both ends share a processor.

mod loss;
mod outcome;
mod plot;
mod sim;
mod sweep;
#[cfg(test)]
mod tests;

use outcome::Outcome;
use sim::{Load, Scenario};
use std::process::ExitCode;
use sweep::{CONTROLS, SEEDS, each_control};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (cases, svg) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => (table(), None),
        ["--svg", path] => (table(), Some(path)),
        ["--sweep"] => (sweep::cases(), None),
        ["--loss"] => {
            loss::print();
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("usage: incast [--svg FILE | --sweep | --loss]");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", sweep::HEADER);
    let mut results = Vec::new();
    for group in cases.chunks(CONTROLS.len()) {
        let seeds = sweep::run(group, SEEDS);
        group.iter().zip(&seeds).for_each(|(case, seeds)| println!("{}", sweep::row(case, seeds)));
        results.extend(group.iter().copied().zip(seeds));
    }
    match svg.map(|path| std::fs::write(path, plot::svg(&panels(), &results))) {
        None | Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Eight senders to a receiver that drops what comes behind a loss, as rxe and much hardware do, and
/// to one of ours; long WRITEs without end, and rounds in which all wait for the last.
fn table() -> Vec<Scenario> {
    let rounds = 64 << 10;
    let loads = [
        (Load::Streams, 128 << 10, false),
        (Load::Streams, 128 << 10, true),
        (Load::WriteRounds, rounds, false),
        (Load::WriteRounds, rounds, true),
        (Load::ReadRounds, rounds, true),
    ];
    let case = |(load, message, holds)| Scenario { load, message, holds, ..Scenario::default() };
    each_control(loads.map(case))
}

/// What is drawn over time: the streams to a receiver that drops.
fn panels() -> Vec<(&'static str, Outcome)> {
    let run =
        |(name, control, wire)| (name, sim::run(Scenario { control, wire, ..Scenario::default() }));
    CONTROLS.map(run).to_vec()
}
