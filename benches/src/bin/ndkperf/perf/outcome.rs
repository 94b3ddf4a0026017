//! What came of a run.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use super::Mismatches;
use super::control::Operation;
use super::plan::{Measure, Plan, name};
use crate::failure::Failure;

/// How a run ended.
#[derive(Debug)]
pub(crate) enum End {
    /// As planned.
    Complete,
    /// Earlier, in order, as the user wanted.
    Interrupted,
    /// In the middle.
    Failed(Failure),
}

/// The messages of one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Flow {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// From the first post to the last completion, at the end that posts.
    pub(crate) elapsed: Duration,
}

impl Flow {
    /// Together with one that went on at the same time.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            elapsed: self.elapsed.max(other.elapsed),
        }
    }
}

/// One queue pair of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueuePair {
    pub(crate) thread: u16,
    /// What we sent, or read.
    pub(crate) ours: Flow,
    /// What the peer did.
    pub(crate) theirs: Flow,
}

/// A look at a run that goes on: what has moved since the one before.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// Since the run began.
    pub(crate) at: Duration,
    pub(crate) flow: Flow,
    pub(crate) counters: Counters,
}

impl Interval {
    /// Together with what followed it.
    pub(super) fn extend(&mut self, rest: Self) {
        self.at = rest.at;
        self.flow.messages += rest.flow.messages;
        self.flow.bytes += rest.flow.bytes;
        self.flow.elapsed += rest.flow.elapsed;
        for (name, by) in rest.counters {
            match self.counters.iter_mut().find(|(other, _)| *other == name) {
                Some((_, count)) => *count += by,
                None => self.counters.push((name, by)),
            }
        }
    }
}

/// What the provider counted, by name.
pub(crate) type Counters = Vec<(&'static str, u64)>;

/// What one counter moved by.
pub(crate) fn counted(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count)
}

/// What came of a run, however it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) operation: Operation,
    pub(crate) measure: Measure,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Of both directions.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// From the first post to the last completion, of the direction that took longer.
    pub(crate) elapsed: Duration,
    /// Both ends sent.
    pub(crate) bidirectional: bool,
    /// The queue pairs of a thread took their receives from one queue.
    pub(crate) srq: bool,
    pub(crate) queue_pairs: Vec<QueuePair>,
    pub(crate) intervals: Vec<Interval>,
    /// When the messages that count began.
    pub(crate) began: Option<SystemTime>,
    /// Processor time of the whole process from then to the last completion.
    pub(crate) cpu: Duration,
    /// From post to completion, or half of the time from ping to pong, in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) mismatches: Mismatches,
    /// Payload bytes of a full packet, once it was connected.
    pub(crate) path_mtu: Option<u16>,
    pub(crate) counters: Counters,
    /// The server had everything, and did not answer when we disconnected.
    pub(crate) unconfirmed: bool,
    pub(crate) end: End,
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            operation: plan.operation,
            measure: plan.measure,
            size: plan.size,
            messages: 0,
            bytes: 0,
            elapsed: Duration::ZERO,
            bidirectional: plan.bidirectional,
            srq: plan.srq,
            queue_pairs: Vec::new(),
            intervals: Vec::new(),
            began: None,
            cpu: Duration::ZERO,
            latency_ns: latencies(),
            mismatches: Mismatches::default(),
            path_mtu: None,
            counters: Vec::new(),
            unconfirmed: false,
            end: End::Complete,
        }
    }

    /// For the user.
    pub(crate) fn name(&self) -> String {
        name(self.operation, self.size)
    }

    /// What one counter moved by.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        counted(&self.counters, name)
    }

    /// What each end sent: the client, and the server.
    pub(crate) fn directions(&self) -> [Flow; 2] {
        self.queue_pairs.iter().fold([Flow::default(); 2], |[ours, theirs], queue_pair| {
            [ours.beside(queue_pair.ours), theirs.beside(queue_pair.theirs)]
        })
    }
}

/// No latencies yet.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("these bounds are valid")
}

/// Longer latencies count as this one: an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
