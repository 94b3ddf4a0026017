//! How far several poll cores of an adapter are apart: what two do beside two adapters of one core, and which lines of memory
//! they share.
//!
//! `cargo run --release -p ndkperf --bin cores -- ratio` runs both on the same processors in turns; `-- lines` counts, under
//! valgrind, the instructions of a message and the lines that several cores write, with 1, 2 and 4 cores.

#[path = "../ndkperf/lab/cable.rs"]
#[allow(dead_code, reason = "the lab of ndkperf has bridges, too")]
mod cable;
mod lines;
#[path = "../ndkperf/lab/netlink.rs"]
#[allow(dead_code, reason = "as above")]
mod netlink;
mod ratio;
mod rig;
mod trace;
mod wires;

use clap::{Parser, Subcommand};
use driver::OwnLines;
use std::process::ExitCode;

/// As a program with several poll cores has it.
#[global_allocator]
static ALLOCATOR: OwnLines = OwnLines;

/// Measures several poll cores of an adapter.
#[derive(Parser)]
#[command(name = "cores")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Messages of an adapter with two cores over those of two adapters with one, each core on a processor of its own.
    Ratio {
        /// What joins the adapters
        #[arg(long, value_enum, default_value = "memory")]
        over: wires::Wire,
        /// Rounds, each with new adapters, of which the middle one counts.
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// Milliseconds of a measurement, three of which make a round.
        #[arg(long, default_value_t = 400)]
        millis: u64,
    },
    /// Instructions of a message, and the lines of memory that several cores write.
    Lines {
        /// Messages that are traced.
        #[arg(long, default_value_t = 10_000)]
        messages: usize,
    },
    /// The traced program of `lines`.
    #[command(hide = true)]
    Trace { cores: usize, messages: usize },
}

fn main() -> ExitCode {
    let result = match Cli::parse().what {
        What::Ratio { over, rounds, millis } => ratio::run(over, rounds, millis),
        What::Lines { messages } => lines::run(messages),
        What::Trace { cores, messages } => {
            trace::run(cores, messages);
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            ExitCode::FAILURE
        }
    }
}
