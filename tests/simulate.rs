//! The simulator's seeds: each a small world of its own (`tests::sim`).
//!
//! ```text
//! cargo test -p tests --test simulate                                  2,000 seeds
//! SIM_SEEDS=100000 cargo test --release -p tests --test simulate seeds -- --nocapture
//! SIM_SEED=17 cargo test -p tests --test simulate -- replay --nocapture
//! SIM_SEED=17 SIM_PCAP=/tmp cargo test -p tests --test simulate -- replay --nocapture
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tests::sim::{Options, Report, run};

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// What many seeds came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    total: Report,
    /// The seeds that failed, and why.
    violations: Vec<(u64, String)>,
}

/// Runs `seeds`, on every processor, until `enough` of them failed.
fn run_all(seeds: std::ops::Range<u64>, enough: usize) -> Sum {
    let (next, sum) = (AtomicU64::new(seeds.start), Mutex::new(Sum::default()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || sum.lock().unwrap().violations.len() >= enough {
                        return;
                    }
                    let result = run(seed, &Options::default());
                    let mut sum = sum.lock().unwrap();
                    sum.seeds += 1;
                    match result {
                        Ok(report) => add(&mut sum.total, &report),
                        Err(what) => sum.violations.push((seed, what)),
                    }
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap();
    sum.violations.sort();
    sum
}

fn add(total: &mut Report, report: &Report) {
    total.turns += report.turns;
    total.frames += report.frames;
    total.connections += report.connections;
    total.completions += report.completions;
    total.successes += report.successes;
    total.elapsed += report.elapsed;
}

/// Goal: no seed violates a rule.
/// Method: `SIM_SEEDS` seeds from `SIM_FIRST` on; each failure prints how to see it again.
#[test]
fn seeds() {
    let first = environment("SIM_FIRST").unwrap_or(0);
    let count = environment("SIM_SEEDS").unwrap_or(2000);
    let start = Instant::now();
    let sum = run_all(first..first + count, 20);
    let Report { turns, frames, connections, completions, successes, elapsed, .. } = sum.total;
    println!(
        "{} seeds in {:.1} s: {} violations; {connections} connected ends, {frames} frames, \
         {successes} of {completions} completions successful, {turns} turns, {} s simulated",
        sum.seeds,
        start.elapsed().as_secs_f64(),
        sum.violations.len(),
        elapsed / 1_000_000_000,
    );
    for (seed, what) in &sum.violations {
        println!("seed {seed}: {what}");
        println!("  SIM_SEED={seed} cargo test -p tests --test simulate -- replay --nocapture");
    }
    assert!(sum.violations.is_empty(), "{} seeds fail", sum.violations.len());
    assert!(connections > count / 2 && successes > 10 * count, "the seeds do something");
}

/// Goal: a seed says everything.
/// Method: the same seed twice; the traces have the same hash, and another seed has another.
#[test]
fn same_seed_same_trace() {
    let reports: Vec<_> = (0..24).map(|seed| run(seed, &Options::default())).collect();
    for (seed, report) in reports.iter().enumerate() {
        assert_eq!(*report, run(seed as u64, &Options::default()), "seed {seed}");
    }
    let mut hashes: Vec<_> = reports.iter().flatten().map(|report| report.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 24);
}

/// Runs `SIM_SEED` with a trace, and with captures into the directory `SIM_PCAP`.
#[test]
fn replay() {
    let Some(seed) = environment("SIM_SEED") else { return };
    let options = Options { trace: true, pcap: std::env::var_os("SIM_PCAP").map(Into::into) };
    match run(seed, &options) {
        Ok(report) => println!("seed {seed}: {report:?}"),
        Err(what) => panic!("seed {seed}: {what}"),
    }
}
