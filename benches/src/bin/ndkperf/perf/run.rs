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
        let counters = self.provider.counters();
        let changed = moved_by(&self.counters, &counters).into_iter().filter(|(_, by)| *by > 0);
        let before = self.intervals.last().map_or(Duration::ZERO, |interval| interval.at);
        let more = messages.saturating_sub(self.messages);
        let elapsed = at.saturating_sub(before);
        let flow = Flow { messages: more, bytes: more * self.size, elapsed };
        let interval = Interval { at, flow, counters: changed.collect() };
        watch(Sight::Interval(&interval));
        self.intervals.push(interval);
        self.counters = counters;
        self.messages = messages;
    }

    /// The rest of the last interval.
    fn end(&mut self, outcome: &Outcome, watch: &mut dyn FnMut(Sight<'_>)) {
        if self.interval.is_some() && outcome.messages > self.messages {
            self.note(outcome.messages, outcome.elapsed, watch);
        }
    }
}

fn moved_by(before: &AdapterCounters, now: &AdapterCounters) -> Counters {
    let moved = now.iter().zip(before.iter());
    // Connections now are no total, and may be fewer than before.
    moved.map(|((name, now), (_, before))| (name, now.saturating_sub(before))).collect()
}

/// Time between two looks at the progress.
const TICK: Duration = Duration::from_millis(100);
