//! This provider beside Linux's `rdma_rxe`, in one guest: messages a second, round trips, and what losses leave.
//!
//! Goal: a comparison that another machine repeats to within a few percent. Method: a guest of one processor whose
//! clock counts its instructions (`-icount shift=0,sleep=off`: one is a nanosecond), with all clients on veth pairs
//! in it: rxe under perftest, which polls; rxe under a program that sleeps on its completion channel (`lab/events.c`);
//! `ndkperf` over packet sockets, plain and with `--offload`; and bare frames (`lab/raw.c`). They take turns, round
//! by round. So the figures are costs in instructions, all processes and the kernel together, not the latencies of
//! idle processors; a cache miss costs nothing, and no NIC splits what `--offload` hands over as one.
//!
//! `cargo run -p tests --example guest` takes some minutes, or says why it is skipped; `--rounds N` for others than 2.
//! Its tables are Markdown. `--perftest PICTURE.svg` measures stock perftest and `ndkperf` by the same table instead, and draws
//! both. rxe in name spaces needs a kernel that is newer than Debian 13's own: the one of its
//! backports is fetched, unless `NDKROCEV2_LAB_SUITE` names another.

mod beside;
mod lab;
mod plan;
mod report;

use beside::Beside;
use lab::Failure;
use plan::{Load, Plan};
use report::Results;
use std::process::ExitCode;

const USAGE: &str = "usage: guest [--rounds N | --perftest PICTURE.svg]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let measured = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => compare(2),
        ["--rounds", rounds] => {
            rounds.parse().map_err(|_| Failure::Wrong(USAGE.into())).and_then(compare)
        }
        ["--perftest", picture] => stand_beside(picture),
        _ => Err(Failure::Wrong(USAGE.into())),
    };
    match measured {
        Ok(tables) => {
            print!("{tables}");
            ExitCode::SUCCESS
        }
        Err(Failure::Skipped(reason)) => {
            println!("skipped: {reason}");
            ExitCode::SUCCESS
        }
        Err(Failure::Wrong(said)) => {
            eprintln!("{said}");
            ExitCode::FAILURE
        }
    }
}

/// All clients, round by round.
fn compare(rounds: u32) -> Result<String, Failure> {
    let plan = Plan { loads: Load::all(), rounds };
    let results = Results::of(&plan, &lab::run(&plan.script())?)?;
    results.record();
    Ok(results.tables())
}

/// The two tools.
fn stand_beside(picture: &str) -> Result<String, Failure> {
    let beside = Beside::of(&lab::run(&beside::script())?)?;
    lab::plot(&beside.write_documents(&lab::folder())?, picture)?;
    Ok(beside.table())
}
