//! A run as a whole: its threads, what they share, and looks at it while it goes on.

use std::convert::Infallible;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use driver::{AdapterCounters, Provider};
use ndk_consumer::Host;

use crate::failure::Failure;

use super::client::{self, Report, Run, add};
use super::gate::Gate;
use super::outcome::{Counters, End, Flow, Interval, Outcome};
use super::plan::Plan;

/// What is seen of a run while it goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sight<'a> {
    /// So many messages are through.
    Progress(u64),
    Interval(&'a Interval),
}

/// Runs `plan` from `local` against the server at `remote`.
pub(crate) fn run(
    host: &Host,
    local: SocketAddr,
    remote: SocketAddr,
    plan: Plan,
    watch: &mut dyn FnMut(Sight<'_>),
) -> Outcome {
    let provider = host.provider();
    let mut before = provider.counters();
    let gate = Gate::new(plan.threads);
    let run = Run { host, local, remote, plan: &plan, gate: &gate };
    let moved: Vec<AtomicU64> = (0..plan.threads).map(|_| AtomicU64::new(0)).collect();
    let mut outcome = Outcome::new(&plan);
    let mut watcher = Watcher::new(provider, &plan, &moved);
    let reports: Vec<Report> = thread::scope(|scope| {
        let (alive, ended) = mpsc::channel();
        let threads: Vec<_> = (0..plan.threads)
            .zip(&moved)
            .map(|(number, moved)| {
                let (alive, run) = (alive.clone(), &run);
                scope.spawn(move || {
                    let _alive: mpsc::Sender<Infallible> = alive;
                    client::run(run, number, moved)
                })
            })
            .collect();
        drop(alive);
        gate.open(|| {
            if plan.warmup.is_some() {
                before = provider.counters();
            }
            outcome.began = Some(SystemTime::now());
            watcher.begin();
        });
        watcher.watch(&ended, watch);
        threads.into_iter().map(|thread| thread.join().expect("a thread never panics")).collect()
    });
    reports.into_iter().for_each(|report| outcome.take(report));
    outcome.counters = moved_by(&before, &provider.counters());
    outcome.name_path_mtu();
    watcher.end(&outcome, watch);
    outcome.intervals = watcher.intervals;
    outcome
}

impl Outcome {
    /// Tells a refusal for the path MTU from others, which have the same status.
    fn name_path_mtu(&mut self) {
        if self.counter("cm_path_mtu_refused") > 0
            && let End::Failed(failure) = std::mem::replace(&mut self.end, End::Complete)
        {
            self.end = End::Failed(Failure::PathMtu(Box::new(failure)));
        }
    }

    /// Adds what one thread has done; the first failure is told, and an interruption where there is none.
    fn take(&mut self, report: Report) {
        self.queue_pairs.extend(report.queue_pairs);
        let [ours, theirs] = self.directions();
        let both = ours.beside(theirs);
        (self.messages, self.bytes, self.elapsed) = (both.messages, both.bytes, both.elapsed);
        add(&mut self.latency_ns, &report.latency_ns);
        self.cpu = self.cpu.max(report.cpu);
        self.mismatches = self.mismatches.with(report.mismatches);
        self.path_mtu = self.path_mtu.or(report.path_mtu);
        self.unconfirmed |= report.unconfirmed;
        self.end = match (std::mem::replace(&mut self.end, End::Complete), report.failure) {
            (End::Failed(failure), _) | (_, Some(failure)) => End::Failed(failure),
            (end, None) if !report.interrupted => end,
            _ => End::Interrupted,
        };
    }
}

/// Looks at a run now and then.
struct Watcher<'a> {
    provider: &'a Provider,
    moved: &'a [AtomicU64],
    size: u64,
    interval: Option<Duration>,
    /// Somebody sees the progress.
    seen: bool,
    start: Instant,
    /// As they were when the last interval ended.
    counters: AdapterCounters,
    messages: u64,
    intervals: Vec<Interval>,
}

impl<'a> Watcher<'a> {
    fn new(provider: &'a Provider, plan: &Plan, moved: &'a [AtomicU64]) -> Self {
        Self {
            provider,
            moved,
            size: plan.size.into(),
            interval: plan.interval,
            seen: io::stderr().is_terminal(),
            start: Instant::now(),
            counters: provider.counters(),
            messages: 0,
            intervals: Vec::new(),
        }
    }

    fn begin(&mut self) {
        self.start = Instant::now();
        self.counters = self.provider.counters();
    }

    /// Until all threads have ended. It never runs the provider, so that it disturbs nobody.
    fn watch(&mut self, ended: &Receiver<Infallible>, watch: &mut dyn FnMut(Sight<'_>)) {
        loop {
            let now = Instant::now();
            let left = self.due().map(|due| due.saturating_duration_since(now));
            let tick = self.seen.then_some(TICK);
            let wait = left.into_iter().chain(tick).min();
            let waited = match wait {
                Some(wait) => ended.recv_timeout(wait),
                None => ended.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if waited == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            if self.due().is_some_and(|due| due <= Instant::now()) {
                let messages = self.now_moved();
                self.note(messages, self.start.elapsed(), watch);
            }
            watch(Sight::Progress(self.now_moved()));
        }
    }

    /// When the interval ends.
    fn due(&self) -> Option<Instant> {
        let number = self.intervals.len() as u32 + 1;
        self.interval.map(|interval| self.start + interval.saturating_mul(number))
    }

    fn now_moved(&self) -> u64 {
        self.moved.iter().map(|moved| moved.load(Ordering::Relaxed)).sum()
    }

    fn note(&mut self, messages: u64, at: Duration, watch: &mut dyn FnMut(Sight<'_>)) {
        let interval = self.since_the_last(messages, at);
        watch(Sight::Interval(&interval));
        self.intervals.push(interval);
    }

    /// What has moved since the last interval ended.
    fn since_the_last(&mut self, messages: u64, at: Duration) -> Interval {
        let counters = self.provider.counters();
        let changed = moved_by(&self.counters, &counters).into_iter().filter(|(_, by)| *by > 0);
        let before = self.intervals.last().map_or(Duration::ZERO, |interval| interval.at);
        let more = messages.saturating_sub(self.messages);
        let elapsed = at.saturating_sub(before);
        let flow = Flow { messages: more, bytes: more * self.size, elapsed };
        let interval = Interval { at, flow, counters: changed.collect() };
        self.counters = counters;
        self.messages = messages;
        interval
    }

    /// The rest is an interval with its true length. Below a tenth of the others it would have a rate of chance, as the threads
    /// end and count at times of their own: then the last one, whose row has been printed, has it in the report.
    fn end(&mut self, outcome: &Outcome, watch: &mut dyn FnMut(Sight<'_>)) {
        let (messages, at) = (outcome.messages, outcome.elapsed);
        let Some(interval) = self.interval.filter(|_| messages > self.messages) else { return };
        let last = self.intervals.last().map(|last| last.at);
        let Some(last) = last.filter(|last| at < *last + interval / LEAST) else {
            return self.note(messages, at, watch);
        };
        let rest = self.since_the_last(messages, at.max(last));
        if let Some(interval) = self.intervals.last_mut() {
            interval.extend(rest);
        }
    }
}

/// The shortest rest that is an interval of its own is one part in so many of an interval.
const LEAST: u32 = 10;

fn moved_by(before: &AdapterCounters, now: &AdapterCounters) -> Counters {
    let moved = now.iter().zip(before.iter());
    // Connections now are no total, and may be fewer than before.
    moved.map(|((name, now), (_, before))| (name, now.saturating_sub(before))).collect()
}

/// Time between two looks at the progress.
const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::edge;
    use clap::Parser;

    const SECOND: Duration = Duration::from_secs(1);

    /// Goal: every message is in an interval, and none of a moment has a rate.
    #[test]
    fn a_short_rest_is_no_interval_of_its_own() {
        let text = ["ndkperf", "--size", "1000", "--interval", "1"];
        let Command::Loopback(args) = Cli::parse_from(text).into_command() else { panic!() };
        let [client, _server] = edge::loopback(&args, 19).unwrap();
        let plan = args.run.plans(0).unwrap()[0];
        for (elapsed, ends) in [
            (SECOND * 2 - SECOND / 1000, vec![SECOND * 2]),
            (SECOND * 2 + SECOND / 1000, vec![SECOND * 2 + SECOND / 1000]),
            (SECOND * 5 / 2, vec![SECOND * 2, SECOND * 5 / 2]),
        ] {
            let (mut rows, mut watcher) = (0, Watcher::new(client.host.provider(), &plan, &[]));
            let mut watch =
                |sight: Sight<'_>| rows += usize::from(matches!(sight, Sight::Interval(_)));
            watcher.note(1000, SECOND, &mut watch);
            watcher.note(2000, SECOND * 2, &mut watch);
            let outcome = Outcome { messages: 2300, elapsed, ..Outcome::new(&plan) };
            watcher.end(&outcome, &mut watch);
            let found: Vec<Duration> =
                watcher.intervals.iter().map(|interval| interval.at).collect();
            assert_eq!((rows, &found[1..]), (1 + ends.len(), &ends[..]), "{elapsed:?}");
            let flows = || watcher.intervals.iter().map(|interval| interval.flow);
            assert_eq!(flows().map(|flow| flow.messages).sum::<u64>(), 2300);
            assert_eq!(flows().map(|flow| flow.bytes).sum::<u64>(), 2_300_000);
            assert_eq!(flows().map(|flow| flow.elapsed).sum::<Duration>(), *found.last().unwrap());
        }
    }
}
