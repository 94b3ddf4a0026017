//! One sender alone on a path that loses packets by chance: no queue builds up on it, so nothing should slow down.

use crate::sim::{Load, Scenario};
use crate::sweep::{self, SEEDS};
use ::tests::figures::record;
use std::ops::RangeInclusive;

/// Of 1000 packets, lost; the first row is what the others are measured by.
const LOSSES: [u32; 4] = [0, 1, 10, 50];

/// Two of ours, 20 us from each other, with 16 messages of 64 KiB posted at any time.
pub(crate) fn path(load: Load, control: bool) -> Scenario {
    Scenario {
        senders: 1,
        buffer: 1 << 20,
        load,
        message: 64 << 10,
        control,
        holds: true,
        delay: 10_000,
        depth: 16,
        ..Scenario::default()
    }
}

/// The same with both ends on one processor, whose packets wait for it and nowhere else.
pub(crate) fn host(load: Load, control: bool) -> Scenario {
    Scenario { one_host: true, ..path(load, control) }
}

/// Median goodput at 0.1 %, 1 % and 5 % loss, over that without.
pub(crate) fn left(case: Scenario, seeds: RangeInclusive<u8>) -> [f64; 3] {
    let runs = sweep::run(&LOSSES.map(|loss| Scenario { loss, ..case }), seeds);
    let goodput = |at: usize| runs[at].median(|run| run.goodput);
    [1, 2, 3].map(|at| goodput(at) / goodput(0))
}

/// The tables.
pub(crate) fn print() {
    println!("goodput over lossless  control  0.1 %   1 %   5 %");
    for (name, load) in [("WRITE", Load::Streams), ("READ", Load::ReadStreams)] {
        for (control, on) in [("off", false), ("on", true)] {
            let figures = left(path(load, on), SEEDS);
            row(name, control, figures);
            // The table of the benches is of a control that is on.
            for (loss, left) in ["0.1", "1", "5"].into_iter().zip(figures).filter(|_| on) {
                record(&format!("loss/{}/{loss}", name.to_lowercase()), left);
            }
            row(&format!("{name}, one processor"), control, left(host(load, on), SEEDS));
        }
    }
}

fn row(name: &str, control: &str, [low, middle, high]: [f64; 3]) {
    println!("{name:21}  {control:7}  {low:5.2} {middle:5.2} {high:5.2}");
}
