//! What came of a run.

use crate::sim::{LINK, Scenario};
use std::collections::HashSet;

/// Times and counts of one run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    message: u64,
    /// Bytes of completed messages, by sender.
    pub bytes: Vec<u64>,
    /// The same in each millisecond.
    pub each_ms: Vec<Vec<u64>>,
    /// The most bytes that waited at the port in each millisecond.
    pub queue: Vec<u64>,
    /// How long each message took, in nanoseconds, from its post to its completion.
    pub took: Vec<u64>,
    /// Packets that reached the port, and of these dropped, marked, and sent before.
    pub packets: u64,
    pub dropped: u64,
    pub marked: u64,
    pub resent: u64,
    /// Packets that left the port as the first of their kind.
    useful: u64,
    reached: HashSet<(u8, [u8; 3])>,
    left: HashSet<(u8, [u8; 3])>,
    /// Notifications that the receiver sent.
    pub cnps: u64,
    waiting: u64,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let (senders, ms) = (scenario.senders, scenario.milliseconds);
        Self {
            message: scenario.message.into(),
            bytes: vec![0; senders],
            each_ms: vec![vec![0; senders]; ms],
            queue: vec![0; ms],
            took: Vec::new(),
            packets: 0,
            dropped: 0,
            marked: 0,
            resent: 0,
            useful: 0,
            reached: HashSet::new(),
            left: HashSet::new(),
            cnps: 0,
            waiting: 0,
        }
    }

    /// A packet came to the port and found so much there.
    pub(crate) fn arrive(&mut self, ms: usize, waiting: u64, drop: bool, packet: (u8, [u8; 3])) {
        self.packets += 1;
        self.waiting += waiting;
        self.dropped += u64::from(drop);
        self.resent += u64::from(!self.reached.insert(packet));
        self.useful += u64::from(!drop && self.left.insert(packet));
        if let Some(most) = self.queue.get_mut(ms) {
            *most = waiting.max(*most);
        }
    }

    /// A message of a sender is done.
    pub(crate) fn complete(&mut self, sender: usize, ms: usize, took: u64) {
        self.bytes[sender] += self.message;
        self.each_ms[ms][sender] += self.message;
        self.took.push(took);
    }

    /// Data that arrived for good, over what the link can carry.
    pub(crate) fn goodput(&self) -> f64 {
        let seconds = self.each_ms.len() as f64 / 1000.0;
        self.bytes.iter().sum::<u64>() as f64 / (LINK as f64 * seconds)
    }

    /// Jain's fairness index: 1 where all got the same, 1/n where one got all.
    pub(crate) fn jain(&self) -> f64 {
        let sum = self.bytes.iter().sum::<u64>() as f64;
        let squares: f64 = self.bytes.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
        sum * sum / (self.bytes.len() as f64 * squares)
    }

    /// What the sender that got least has of a fair share.
    pub(crate) fn least(&self) -> f64 {
        let least = self.bytes.iter().min().copied().unwrap_or(0);
        least as f64 * self.bytes.len() as f64 / self.bytes.iter().sum::<u64>() as f64
    }

    /// This count over the packets that reached the port.
    pub(crate) fn share(&self, count: u64) -> f64 {
        count as f64 / self.packets as f64
    }

    /// Of the packets that left the port, those that the receiver dropped or had already.
    pub(crate) fn in_vain(&self) -> f64 {
        1.0 - self.useful as f64 / (self.packets - self.dropped) as f64
    }

    /// Bytes waiting at the port, as an arriving packet finds them on average.
    pub(crate) fn mean_queue(&self) -> f64 {
        self.waiting as f64 / self.packets as f64
    }

    /// So many of a hundred messages took at most so many microseconds.
    pub(crate) fn took_us(&self, percent: usize) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        let rank = (took.len() * percent).div_ceil(100).max(1) - 1;
        took.get(rank).map_or(f64::INFINITY, |ns| *ns as f64 / 1000.0)
    }
}
