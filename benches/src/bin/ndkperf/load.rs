//! What a command measures: operations and sizes, queue pairs and threads, how requests are posted.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::perf::{DEPTH_MAX, Limit, Measure, Operation, Place, Plan, Posting, QUEUE_PAIRS_MAX};
use crate::sizes::Sizes;
use crate::waits::WaitArgs;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// Measure the latency: one message at a time, half of the time from ping to pong for SEND and
    /// WRITE, the whole round trip for READ
    #[arg(short = 'L', long, conflicts_with_all = ["depth", "threads", "qps", "bidirectional",
        "rate_limit", "post_list", "silent"])]
    pub(crate) latency: bool,
    /// Operations, one run each
    #[arg(long, value_delimiter = ',', default_value = "send,write,read", value_name = "LIST")]
    pub(crate) operations: Vec<Operation>,
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    /// Messages of each run, all queue pairs together
    #[arg(short = 'n', long, visible_alias = "iters", conflicts_with = "seconds", value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,
    /// Length of each run (default: 2, or 0.5 where there are several sizes)
    #[arg(short = 'D', long, visible_alias = "duration", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Messages (1000) or seconds (0.5s) of each run before anything is counted
    #[arg(long, value_parser = warmup, value_name = "N|SECONDSs")]
    pub(crate) warmup: Option<Limit>,
    /// Messages posted at once on a queue pair
    #[arg(short = 't', long, visible_alias = "tx-depth", default_value_t = 16, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(DEPTH_MAX)))]
    pub(crate) depth: u16,
    /// Queue pairs of each thread, over which the messages are spread
    #[arg(short, long, visible_alias = "qp", default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(QUEUE_PAIRS_MAX)))]
    pub(crate) qps: u16,
    /// Let the queue pairs of a thread take their receives from one shared queue, at each end: for SEND. The
    /// server has a thread for those of each client thread then, not for each of them
    #[arg(long, visible_alias = "use-srq")]
    pub(crate) srq: bool,
    /// Client threads, each with a completion queue and queue pairs of its own
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(QUEUE_PAIRS_MAX)))]
    pub(crate) threads: u16,
    /// Both ends send at the same time; the figures are the sum
    #[arg(short, long)]
    pub(crate) bidirectional: bool,
    /// Gb/s of messages that each end may send
    #[arg(long, value_parser = rate, value_name = "GBPS")]
    pub(crate) rate_limit: Option<u64>,
    /// Post lists of N requests, all but the last one deferred
    #[arg(short = 'l', long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(DEPTH_MAX)))]
    pub(crate) post_list: u16,
    /// Let one request of N complete, and the others succeed in silence
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(DEPTH_MAX)))]
    pub(crate) silent: u16,
    /// Copy our SENDs and WRITEs of up to so many bytes at the post, 256 at most
    #[arg(short = 'I', long, visible_alias = "inline-size", default_value_t = 0, value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(0..=256))]
    pub(crate) inline: u32,
    /// Show a row after each interval while a run goes on
    #[arg(long, value_parser = interval, value_name = "SECONDS")]
    pub(crate) interval: Option<f64>,
    /// Seed of the data, of faults and of the providers (default: random)
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Do not check the data
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the latencies of each run, in nanoseconds, as a log of HdrHistogram
    #[arg(long, value_name = "FILE")]
    pub(crate) histogram: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) waits: WaitArgs,
}

impl Run {
    /// The figure that it is for.
    pub(crate) fn measure(&self) -> Measure {
        if self.latency { Measure::Latency } else { Measure::Bandwidth }
    }

    /// Messages posted at once.
    pub(crate) fn depth(&self) -> u16 {
        if self.latency { 1 } else { self.depth }
    }

    fn sizes(&self) -> Vec<u32> {
        self.sizes.list(if self.latency { LATENCY_SIZE } else { SIZE })
    }

    /// The size that all messages have.
    pub(crate) fn only_size(&self) -> Option<u32> {
        match self.sizes()[..] {
            [size] => Some(size),
            _ => None,
        }
    }

    /// One plan for each operation and size.
    ///
    /// # Errors
    /// A run that no server takes, and why.
    pub(crate) fn plans(&self, seed: u64) -> Result<Vec<Plan>, String> {
        if self.srq && !self.operations.contains(&Operation::Send) {
            return Err(
                "--srq: WRITE and READ take no receives, and no SEND is among the --operations"
                    .into(),
            );
        }
        let sizes = self.sizes();
        let runs = self.operations.len() * sizes.len();
        let each = self
            .operations
            .iter()
            .flat_map(|operation| sizes.iter().map(move |size| (*operation, *size)));
        let plan = |(number, (operation, size))| Plan {
            operation,
            size,
            srq: self.srq && operation == Operation::Send,
            place: Place { number, runs },
            ..self.plan(seed, sizes.len() > 1)
        };
        let plans: Vec<Plan> = (1..).zip(each).map(plan).collect();
        plans.iter().try_for_each(|plan| self.check(plan))?;
        Ok(plans)
    }

    /// What all of them have in common.
    fn plan(&self, seed: u64, swept: bool) -> Plan {
        let seconds = self.seconds.unwrap_or(if swept { SWEEP_S } else { RUN_S });
        Plan {
            operation: Operation::Send,
            measure: self.measure(),
            size: SIZE,
            depth: self.depth(),
            threads: self.threads,
            qps: self.qps,
            srq: self.srq,
            bidirectional: self.bidirectional,
            limit: match self.iterations {
                Some(messages) => Limit::Messages(messages),
                None => Limit::Time(Duration::from_secs_f64(seconds)),
            },
            warmup: self.warmup,
            posting: Posting { list: self.post_list, silent: self.silent, inline: self.inline },
            rate: self.rate_limit,
            interval: self.interval.map(Duration::from_secs_f64),
            verify: !self.no_verify,
            seed,
            waits: self.waits.waits(),
            place: Place { number: 1, runs: 1 },
        }
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let queue_pairs = plan.queue_pairs();
        if queue_pairs > QUEUE_PAIRS_MAX {
            return Err(format!(
                "--threads times --qps is {queue_pairs}, and a server has {QUEUE_PAIRS_MAX} connections at most"
            ));
        }
        for (limit, flag) in [(Some(plan.limit), "--iterations"), (plan.warmup, "--warmup")] {
            if matches!(limit, Some(Limit::Messages(messages)) if messages < queue_pairs.into()) {
                return Err(format!("{flag}: fewer messages than the {queue_pairs} queue pairs"));
            }
        }
        plan.check().map_err(|too_much| match self.only_size() {
            Some(_) => too_much.to_string(),
            None => format!("{} bytes: {too_much}", plan.size),
        })
    }
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    let seconds: f64 = text.parse().map_err(|_| "not a number")?;
    if seconds > 0.0 && seconds <= 86_400.0 { Ok(seconds) } else { Err("not 0 to 86400 seconds") }
}

/// So long that the rows do not take the processor.
fn interval(text: &str) -> Result<f64, &'static str> {
    seconds(text).and_then(|time| if time >= 0.01 { Ok(time) } else { Err("not 0.01 s or more") })
}

fn warmup(text: &str) -> Result<Limit, &'static str> {
    if let Some(time) = text.strip_suffix('s') {
        return seconds(time).map(|time| Limit::Time(Duration::from_secs_f64(time)));
    }
    match text.parse() {
        Ok(messages) if messages > 0 => Ok(Limit::Messages(messages)),
        _ => Err("not a number of messages, nor of seconds, as in 0.5s"),
    }
}

/// Bits per second.
fn rate(text: &str) -> Result<u64, &'static str> {
    let gigabits: f64 = text.parse().map_err(|_| "not a number")?;
    let rate = (1e-6..=1e4).contains(&gigabits).then_some((gigabits * 1e9) as u64);
    rate.ok_or("not a rate in Gb/s")
}

/// Bytes of a message where none are named, as `perftest` has them.
const SIZE: u32 = 64 << 10;
const LATENCY_SIZE: u32 = 2;

/// Seconds of a run, and of each where there are several sizes.
const RUN_S: f64 = 2.0;
const SWEEP_S: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse(text: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(text.split_whitespace()).map(Cli::into_command)
    }

    fn plans(text: &str) -> Result<Vec<Plan>, String> {
        let Command::Loopback(loopback) = parse(text).unwrap() else { panic!("{text}") };
        loopback.run.plans(7)
    }

    #[test]
    fn iterations_replace_seconds() {
        let plans = plans("ndkperf loopback --iterations 10 --operations read --size 4M").unwrap();
        assert_eq!(plans[0].limit, Limit::Messages(10));
        assert_eq!((plans[0].operation, plans[0].size), (Operation::Read, 4 << 20));
        assert!(parse("ndkperf --iterations 10 --seconds 1").is_err());
    }

    #[test]
    fn each_operation_runs_for_each_size_and_shorter() {
        let plans = |text: &str| plans(text).unwrap();
        let swept = plans("ndkperf --operations write,read --size 64,4k");
        let runs: Vec<_> = swept.iter().map(|plan| (plan.operation, plan.size)).collect();
        let (write, read) = (Operation::Write, Operation::Read);
        assert_eq!(runs, [(write, 64), (write, 4096), (read, 64), (read, 4096)]);
        assert_eq!(swept[3].place, Place { number: 4, runs: 4 });
        let time = |seconds| Limit::Time(Duration::from_secs_f64(seconds));
        for (text, limit) in [
            ("ndkperf", time(2.0)),
            ("ndkperf -a", time(0.5)),
            ("ndkperf -a --seconds 3", time(3.0)),
            ("ndkperf -a --iterations 9", Limit::Messages(9)),
        ] {
            assert!(plans(text).iter().all(|plan| plan.limit == limit), "{text}");
        }
    }

    #[test]
    fn a_latency_is_of_one_short_message_at_a_time() {
        let plans = plans("ndkperf -L").unwrap();
        assert!(plans.iter().all(|plan| (plan.size, plan.depth) == (2, 1)));
        assert!(plans.iter().all(|plan| plan.measure == Measure::Latency));
        for flag in ["--depth 4", "-q 2", "--threads 2", "-b", "-l 2", "--silent 2"] {
            assert!(parse(&format!("ndkperf -L {flag}")).is_err(), "{flag}");
        }
    }

    #[test]
    fn what_no_server_takes_is_refused_with_its_reason() {
        for (text, reason) in [
            ("--size 512M", "1024 MiB"),
            ("--size 64,8M --depth 128", "8388608 bytes: send: "),
            ("--qps 64 --threads 3", "--threads times --qps is 192"),
            ("--qps 4 --iterations 3", "--iterations: fewer messages than the 4"),
            ("--qps 4 --warmup 3", "--warmup: fewer"),
            ("--qps 128 --srq", "--srq: 128 queue pairs of this depth need more receives"),
            ("--operations write,read --srq", "--srq: WRITE and READ take no receives"),
            ("--depth 4 --post-list 5", "--post-list"),
            ("--depth 4 --silent 5", "--silent"),
        ] {
            let told = plans(&format!("ndkperf {text}")).unwrap_err();
            assert!(told.contains(reason), "{text}: {told}");
        }
    }

    /// Goal: SENDs alone share receives, and those of as many queue pairs as there may be fit into one queue.
    #[test]
    fn receives_are_shared_by_sends() {
        for flag in ["--srq", "--use-srq"] {
            let plans = plans(&format!("ndkperf {flag} --qps 128 --depth 8 --size 64")).unwrap();
            let shared: Vec<_> = plans.iter().map(|plan| (plan.operation, plan.srq)).collect();
            let (write, read) = (Operation::Write, Operation::Read);
            assert_eq!(shared, [(Operation::Send, true), (write, false), (read, false)]);
        }
        assert!(plans("ndkperf").unwrap().iter().all(|plan| !plan.srq));
    }

    #[test]
    fn a_warm_up_is_of_messages_or_of_seconds_and_a_rate_in_gigabits() {
        let plan = |text: &str| plans(text).unwrap()[0];
        let half = Limit::Time(Duration::from_millis(500));
        assert_eq!(plan("ndkperf --warmup 0.5s").warmup, Some(half));
        assert_eq!(plan("ndkperf --warmup 9").warmup, Some(Limit::Messages(9)));
        assert_eq!(plan("ndkperf --rate-limit 2.5").rate, Some(2_500_000_000));
        for wrong in ["--warmup 0", "--warmup 1m", "--rate-limit 0", "--interval 0.001", "-I 257"] {
            assert!(parse(&format!("ndkperf {wrong}")).is_err(), "{wrong}");
        }
    }
}
