//! The simulator's seeds: each a small world of its own (`tests::sim`).
//!
//! ```text
//! cargo test -p tests --test simulate                                  2,000 seeds
//! SIM_SEEDS=200000 cargo test --profile checked -p tests --test simulate seeds -- --nocapture
//! SIM_SEED=17 cargo test -p tests --test simulate -- replay --nocapture
//! SIM_SEED=17 SIM_STRANGER=Gaps cargo test -p tests --test simulate -- replay --nocapture
//! SIM_SEED=17 SIM_PCAP=/tmp cargo test -p tests --test simulate -- replay --nocapture
//! ```

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tests::alloc::{Counting, held};
use tests::sim::{Deed, Honest, Moment, Options, Report, Stranger, Strangers, Trial, Work};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Runs a seed; a run that ends well has given back all that it took.
fn run(seed: u64, options: &Options) -> Result<Report, String> {
    let before = held();
    let report = tests::sim::run(seed, options)?;
    let left = held() - before;
    if left == 0 { Ok(report) } else { Err(format!("{left} bytes are left")) }
}

/// What many seeds came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    total: Report,
    /// The seeds that failed, and why.
    violations: Vec<(u64, String)>,
    /// What honest peers came to beside each kind of stranger, and in the same world without it.
    beside: Vec<(Stranger, Honest, Option<Honest>)>,
}

/// The stranger that `SIM_STRANGER` wants in each world.
fn wanted() -> Option<Stranger> {
    let name = std::env::var("SIM_STRANGER").ok()?;
    let kind = Stranger::ALL.into_iter().find(|kind| format!("{kind:?}") == name);
    Some(kind.unwrap_or_else(|| panic!("{name} is none of {:?}", Stranger::ALL)))
}

fn options() -> Options {
    let strangers = wanted().map_or(Strangers::Drawn, Strangers::Only);
    Options { strangers, ..Options::default() }
}

/// Runs a seed, and every other one of those with a stranger without it as well.
fn run_twice(seed: u64) -> Result<(Report, Option<Honest>), String> {
    let report = run(seed, &options())?;
    if report.stranger.is_none() || !seed.is_multiple_of(2) {
        return Ok((report, None));
    }
    let strangers = wanted().map_or(Strangers::Absent, Strangers::Without);
    let without = run(seed, &Options { strangers, ..Options::default() })
        .map_err(|what| format!("without its stranger: {what}"))?;
    Ok((report, Some(without.honest)))
}

/// Runs `seeds`, on every processor, until 20 of them failed.
fn run_all(seeds: std::ops::Range<u64>) -> Sum {
    let (next, sum) = (AtomicU64::new(seeds.start), Mutex::new(Sum::default()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || sum.lock().unwrap().violations.len() >= 20 {
                        return;
                    }
                    let result = run_twice(seed);
                    let mut sum = sum.lock().unwrap();
                    sum.seeds += 1;
                    match result {
                        Ok((report, without)) => {
                            add(&mut sum.total, &report);
                            let beside = report.stranger.map(|kind| (kind, report.honest, without));
                            sum.beside.extend(beside);
                        }
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
    total.quiet += report.quiet;
    total.elapsed += report.elapsed;
    total.waited = total.waited.max(report.waited);
    for (total, deeds) in total.deeds.iter_mut().zip(report.deeds.iter()) {
        *total += deeds;
    }
}

/// What 1000 seeds meet at least so often, where once in all is not enough: about half of what they do. A
/// third of them has a foreign peer.
const SHARES: [(Deed, u64); 13] = [
    (Deed::ForeignSeed, 334),
    (Deed::PsnWrap, 100),
    (Deed::MsnWrap, 100),
    (Deed::ForgedPacket, 1000),
    (Deed::ForgedMessage, 2000),
    (Deed::ForgedReq, 100),
    (Deed::ForgedRestart, 80),
    (Deed::NewNic, 100),
    (Deed::AddressLost, 10),
    (Deed::AddressBack, 50),
    (Deed::Claimed, 60),
    (Deed::StrangeSeed, 250),
    (Deed::Lossless, 60),
];

/// What strangers leave of the connects and of the work of honest peers, at least and but for chance.
const LEFT: f64 = 0.9;

/// A share that is left beside strangers, and its standard error.
struct Left(f64, f64);

impl Left {
    /// Of what was asked for, what was given; none: too little was asked for.
    fn of_asked([given, asked]: [u64; 2]) -> Option<Self> {
        let count = asked as f64;
        (asked >= 20).then(|| Self(given as f64 / count, (LEFT * (1.0 - LEFT) / count).sqrt()))
    }

    /// Of what was done without strangers, in worlds that were run with and without. Each counts alike, whatever it does: of what both
    /// of its runs did, each did a half where nothing is lost.
    fn of_done(worlds: &[[u64; 2]]) -> Option<Self> {
        let busy = worlds.iter().filter(|[with, without]| with + without > 0);
        let shares: Vec<_> =
            busy.map(|[with, without]| *with as f64 / (with + without) as f64).collect();
        let count = shares.len() as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let square: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
        let error = (square / (count - 1.0) / count).sqrt();
        // The slope of x / (1 - x).
        let left = mean / (1.0 - mean);
        (shares.len() > 10).then(|| Self(left, error / (1.0 - mean).powi(2)))
    }

    fn check(self, kind: Stranger, what: &str) {
        let Self(left, error) = self;
        println!("{kind:?} leaves {left:.3} of {what}, give or take {error:.3}");
        assert!(left + 4.0 * error >= LEFT, "{kind:?} leaves {left:.3} of {what}");
    }
}

/// Checks what each kind of stranger leaves of connects, of those that are answered at once, of early packets that are kept, and of
/// requests that succeed.
fn check_left(beside: &[(Stranger, Honest, Option<Honest>)]) {
    for kind in Stranger::ALL {
        let of_kind = || beside.iter().filter(|(of, ..)| *of == kind);
        let sum = |count: fn(&Honest) -> u64| of_kind().map(|(_, with, _)| count(with)).sum();
        let asked = sum(|honest| honest.asked);
        let done = |honest: &Honest| honest.done;
        let worlds: Vec<_> = of_kind()
            .filter_map(|(_, with, without)| Some([done(with), done(without.as_ref()?)]))
            .collect();
        let kept = [sum(|honest| honest.kept), sum(|honest| honest.early)];
        // A flood of REQs takes the first tries of others, and leaves those that come again: a world is over before many of these.
        let late = kind == Stranger::Requests;
        let prompt = if late { 0 } else { asked };
        let worlds = if late { &[] } else { &worlds[..] };
        for (what, left) in [
            ("connects", Left::of_asked([sum(|honest| honest.answered), asked])),
            ("quick connects", Left::of_asked([sum(|honest| honest.quick), prompt])),
            ("early packets", Left::of_asked(kept)),
            ("requests", Left::of_done(worlds)),
        ] {
            if let Some(left) = left {
                left.check(kind, what);
            }
        }
    }
}

/// Goal: no seed violates a rule, and strangers take no service from honest peers.
/// Method: `SIM_SEEDS` seeds from `SIM_FIRST` on; each failure prints how to see it again.
#[test]
fn seeds() {
    let first = environment("SIM_FIRST").unwrap_or(0);
    let count = environment("SIM_SEEDS").unwrap_or(2000);
    let start = std::time::Instant::now();
    let sum = run_all(first..first + count);
    let Report { turns, frames, connections, completions, successes, elapsed, .. } = sum.total;
    println!(
        "{} seeds in {:.1} s: {} violations; {connections} connected ends, {frames} frames, \
         {successes} of {completions} completions successful, {turns} turns, {} s simulated",
        sum.seeds,
        start.elapsed().as_secs_f64(),
        sum.violations.len(),
        elapsed / 1_000_000_000,
    );
    println!("{} turns with nothing but data allocated nothing", sum.total.quiet);
    println!("the longest wait was {} thousandths of what policy allows", sum.total.waited);
    let deeds = sum.total.deeds;
    for deed in Deed::ALL {
        println!("{:>12} {deed:?}", deeds[deed as usize]);
    }
    for (seed, what) in &sum.violations {
        println!("seed {seed}: {what}");
        let stranger = wanted().map(|kind| format!("SIM_STRANGER={kind:?} ")).unwrap_or_default();
        println!(
            "  {stranger}SIM_SEED={seed} cargo test -p tests --test simulate -- replay --nocapture"
        );
    }
    assert!(sum.violations.is_empty(), "{} seeds fail", sum.violations.len());
    check_left(&sum.beside);
    let busy = connections > count / 2 && successes > 10 * count;
    let busy = busy && sum.total.quiet > 10 * count;
    assert!(busy || count < 100 || wanted().is_some(), "the seeds do something");
    // A provider that repeats READs only on evidence may never meet the one that ends for it; one stranger speaks only where
    // `SIM_STRANGER` wants it.
    let may = [Deed::Strict, Deed::StrangePacket];
    let must = Deed::ALL.into_iter().filter(|deed| !may.contains(deed));
    let missing: Vec<_> = must.filter(|&deed| deeds[deed as usize] == 0).collect();
    assert!(
        missing.is_empty() || count < 1000 || wanted().is_some(),
        "the seeds never met {missing:?}"
    );
    let short = |&&(deed, share): &&(Deed, u64)| deeds[deed as usize] * 1000 < share * count;
    let short: Vec<_> = SHARES.iter().filter(short).collect();
    assert!(
        short.is_empty() || count < 1000 || wanted().is_some(),
        "{count} seeds met too few of {short:?} in 1000"
    );
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
    let pcap: Option<PathBuf> = std::env::var_os("SIM_PCAP").map(Into::into);
    if let Some(directory) = &pcap {
        std::fs::create_dir_all(directory).unwrap();
    }
    let options = Options { trace: true, pcap, ..options() };
    match run(seed, &options) {
        Ok(report) => println!("seed {seed}: {report:?}"),
        Err(what) => panic!("seed {seed}: {what}"),
    }
}

/// Runs `seeds` seeds of a trial, and gives what came of those in which something went wrong.
fn try_all(trial: Trial, seeds: u64) -> Vec<Report> {
    let options = Options { trial: Some(trial), ..Options::default() };
    let report = |seed| run(seed, &options).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    (0..seeds).map(report).filter(|report| report.trial.began.is_some()).collect()
}

/// Goal: whatever is outstanding when the network parts for ever ends, with an error, in bounded
/// time, and so does what is posted later.
/// Method: the partition in the middle of the work, the default retries. The longest is a connect
/// whose peer asked for time.
#[test]
fn sys_02_a_partition_for_ever_ends_everything() {
    let reports = try_all(Trial::Partition, 60);
    let took: Vec<_> = reports.iter().map(|report| report.trial.took / 1_000_000).collect();
    println!("{} partitions, over after {took:?} ms", reports.len());
    assert!(reports.len() > 20 && took.iter().all(|&took| took < 120_000));
    assert!(reports.iter().all(|report| report.trial.outstanding > 0));
}

/// Goal: frames that are only late cost no more than their data once again.
/// Method: each connection's packets are counted, where its peer always had a receive.
#[test]
fn sys_04_reordering_alone_at_most_doubles_the_packets() {
    let options = Options { trial: Some(Trial::Reordering), ..Options::default() };
    let (mut first, mut all) = (0, 0);
    for seed in 0..150 {
        let report = run(seed, &options).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        first += report.requests[0];
        all += report.requests[1];
    }
    println!("{all} packets for {first}");
    assert!(first > 5000 && all > first);
}

/// Goal: a peer that restarts takes nothing down but its connections, and can be connected to again.
/// Method: it goes down, and up again, at each moment of a connection's life.
#[test]
fn sys_05_a_peer_restarts_at_any_moment() {
    for moment in Moment::ALL {
        let reports = try_all(Trial::Restart(moment), 20);
        let again = reports.iter().filter(|report| report.trial.connections > 0).count();
        println!("{moment:?}: {} restarts, {again} times connected again", reports.len());
        assert!(reports.len() >= 10 && 2 * again > reports.len(), "{moment:?}");
    }
}

/// Goal: with the default retries, a second without a link is no error to anybody.
/// Method: the link goes down in the middle of each kind of work.
#[test]
fn sys_13_a_second_without_a_link_is_no_error() {
    for work in Work::ALL {
        let reports = try_all(Trial::LinkDown(work), 40);
        let outstanding: u64 = reports.iter().map(|report| report.trial.outstanding).sum();
        println!("{work:?}: {} times down, {outstanding} requests under way", reports.len());
        assert!(reports.len() >= 10 && outstanding > 40, "{work:?}");
    }
}
