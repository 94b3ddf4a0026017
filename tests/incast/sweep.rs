//! Many runs of a case, by their seeds, and what is typical and what is worst among them.

use crate::outcome::Outcome;
use crate::sim::{self, Load, Scenario, Wire};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Seeds of each case. Others than those on which the algorithm was settled, 1 to 10.
pub(crate) const SEEDS: RangeInclusive<u8> = 101..=110;

/// What slows the senders down.
pub(crate) const CONTROLS: [(&str, bool, Wire); 3] =
    [("off", false, Wire::Marks), ("marks", true, Wire::Marks), ("losses", true, Wire::OnlyDrops)];

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub goodput: f64,
    pub jain: f64,
    pub least: f64,
    pub dropped: f64,
    pub resent: f64,
    pub in_vain: f64,
    pub queue: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Figures {
    fn of(outcome: &Outcome) -> Self {
        Self {
            goodput: outcome.goodput(),
            jain: outcome.jain(),
            least: outcome.least(),
            dropped: outcome.share(outcome.dropped),
            resent: outcome.share(outcome.resent),
            in_vain: outcome.in_vain(),
            queue: outcome.mean_queue(),
            p50_us: outcome.took_us(50),
            p99_us: outcome.took_us(99),
        }
    }
}

/// The figures of all seeds of a case.
#[derive(Clone, Debug)]
pub(crate) struct Seeds(Vec<Figures>);

impl Seeds {
    fn sorted(&self, figure: fn(&Figures) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.0.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    pub(crate) fn least(&self, figure: fn(&Figures) -> f64) -> f64 {
        self.sorted(figure)[0]
    }

    pub(crate) fn most(&self, figure: fn(&Figures) -> f64) -> f64 {
        self.sorted(figure)[self.0.len() - 1]
    }

    pub(crate) fn median(&self, figure: fn(&Figures) -> f64) -> f64 {
        let sorted = self.sorted(figure);
        let at = sorted.len() / 2;
        if sorted.len().is_multiple_of(2) {
            (sorted[at - 1] + sorted[at]) / 2.0
        } else {
            sorted[at]
        }
    }
}

/// Runs every seed of every case, on all processors.
pub(crate) fn run(cases: &[Scenario], seeds: RangeInclusive<u8>) -> Vec<Seeds> {
    let jobs: Vec<Scenario> = cases
        .iter()
        .flat_map(|&case| seeds.clone().map(move |seed| Scenario { seed, ..case }))
        .collect();
    let mut figures = vec![None; jobs.len()];
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (jobs, next, send) = (&jobs, &next, send.clone());
            scope.spawn(move || {
                while let Some((at, job)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(at).map(|job| (at, *job))
                } {
                    let _ = send.send((at, Figures::of(&sim::run(job))));
                }
            });
        }
        drop(send);
        receive.iter().for_each(|(at, run): (usize, Figures)| figures[at] = Some(run));
    });
    let figures: Vec<Figures> = figures.into_iter().flatten().collect();
    figures.chunks(seeds.len()).map(|chunk| Seeds(chunk.to_vec())).collect()
}

/// What is swept.
pub(crate) fn cases() -> Vec<Scenario> {
    let mut cases = Vec::new();
    let base = Scenario { milliseconds: 100, ..Scenario::default() };
    for holds in [false, true] {
        for senders in [2, 8, 32] {
            for buffer in BUFFERS {
                cases.push(Scenario { holds, senders, buffer, ..base });
            }
        }
    }
    for load in [Load::WriteRounds, Load::ReadRounds] {
        for senders in [8, 32] {
            for (message, buffer) in ROUNDS {
                cases.push(Scenario { load, senders, message, buffer, ..base });
            }
        }
    }
    each_control(cases)
}

/// Every case with every kind of control.
pub(crate) fn each_control(cases: impl IntoIterator<Item = Scenario>) -> Vec<Scenario> {
    let each = |case| CONTROLS.map(|(_, control, wire)| Scenario { control, wire, ..case });
    cases.into_iter().flat_map(each).collect()
}

const BUFFERS: [u64; 6] = [32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Bytes of a message, and of the buffer.
const ROUNDS: [(u32, u64); 6] = [
    (4 << 10, 64 << 10),
    (16 << 10, 64 << 10),
    (16 << 10, 128 << 10),
    (64 << 10, 64 << 10),
    (64 << 10, 128 << 10),
    (256 << 10, 128 << 10),
];

pub(crate) const HEADER: &str = "\
                                                       goodput %       Jain      least sender  dropped  resent  in vain   queue   message us
load          senders  message   buffer  peer   control  median worst  median worst   worst %        %       %        %      KB    p50    p99";

pub(crate) const fn load_name(load: Load) -> &'static str {
    match load {
        Load::Streams => "streams",
        Load::ReadStreams => "READ streams",
        Load::WriteRounds => "WRITE rounds",
        Load::ReadRounds => "READ rounds",
    }
}

pub(crate) fn row(case: &Scenario, seeds: &Seeds) -> String {
    let control =
        CONTROLS.iter().find(|(_, control, wire)| (*control, *wire) == (case.control, case.wire));
    format!(
        "{:12} {:8} {:5} KiB {:4} KiB  {:5}  {:7} {:7.1} {:5.1}  {:6.3} {:5.3} {:9.0} {:8.2} {:7.2} {:8.2} {:7.0} {:6.0} {:6.0}",
        load_name(case.load),
        case.senders,
        case.message >> 10,
        case.buffer >> 10,
        if case.holds { "keeps" } else { "drops" },
        control.map_or("", |(name, ..)| name),
        100.0 * seeds.median(|run| run.goodput),
        100.0 * seeds.least(|run| run.goodput),
        seeds.median(|run| run.jain),
        seeds.least(|run| run.jain),
        100.0 * seeds.least(|run| run.least),
        100.0 * seeds.median(|run| run.dropped),
        100.0 * seeds.median(|run| run.resent),
        100.0 * seeds.median(|run| run.in_vain),
        seeds.median(|run| run.queue) / 1000.0,
        seeds.median(|run| run.p50_us),
        seeds.median(|run| run.p99_us),
    )
}
