//! What a command asks for: its runs, each with one operation and one size of messages.

use std::fmt;
use std::time::Duration;

use super::budget::{Budget, RECEIVES_MAX, SHARED_MAX, SPARE, TooMuch};
use super::control::{Operation, Parameters};
use crate::completions::Waits;

/// The figure that a run is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Measure {
    /// Many messages at once: their rate.
    Bandwidth,
    /// One message at a time: half of the round trip of SEND and WRITE, the whole one of READ.
    Latency,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bandwidth => "bw",
            Self::Latency => "lat",
        })
    }
}

/// When a run, or its warm-up, is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Limit {
    Messages(u64),
    Time(Duration),
}

impl Limit {
    /// The part of the `number`-th of `all` queue pairs.
    fn share(self, number: u16, all: u16) -> Self {
        match self {
            Self::Messages(messages) => Self::Messages(share(messages, number, all)),
            Self::Time(time) => Self::Time(time),
        }
    }
}

/// One part of `whole`; the first ones are larger where it cannot be divided.
fn share(whole: u64, number: u16, all: u16) -> u64 {
    let (number, all) = (u64::from(number), u64::from(all));
    whole / all + u64::from(number < whole % all)
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) measure: Measure,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages posted at once on each queue pair.
    pub(crate) depth: u16,
    pub(crate) threads: u16,
    /// Queue pairs of each thread.
    pub(crate) qps: u16,
    /// The queue pairs of a thread take their receives from one queue.
    pub(crate) srq: bool,
    /// The server sends, too.
    pub(crate) bidirectional: bool,
    pub(crate) limit: Limit,
    /// What is sent before anything is counted.
    pub(crate) warmup: Option<Limit>,
    pub(crate) posting: Posting,
    /// Bits of messages per second that each end may send, all queue pairs together.
    pub(crate) rate: Option<u64>,
    /// A look at a run while it goes on.
    pub(crate) interval: Option<Duration>,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
    pub(crate) waits: Waits,
    pub(crate) place: Place,
}

/// How requests are posted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Posting {
    /// Requests of a list; all but the last one are deferred.
    pub(crate) list: u16,
    /// Of so many requests one completes aloud.
    pub(crate) silent: u16,
    /// Messages of so many bytes are copied at the post.
    pub(crate) inline: u32,
}

/// Which of the runs of a command it is, from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) runs: usize,
}

impl Plan {
    /// For the user.
    pub(crate) fn name(&self) -> String {
        name(self.operation, self.size)
    }

    /// Queue pairs of all threads.
    pub(crate) fn queue_pairs(&self) -> u16 {
        self.threads.saturating_mul(self.qps)
    }

    /// Messages that the peer has room for: twice the depth, so that it checks some while others come; and of short
    /// SENDs some more, so that credits are not as many as messages.
    fn slots(&self) -> u32 {
        if self.measure == Measure::Latency {
            return LATENCY_SLOTS;
        }
        let short =
            if self.operation == Operation::Send { SENDS_LEN / self.size.max(1) } else { 0 };
        let room = self.receives_max().saturating_sub(SPARE);
        short.min(SENDS).min(room).max(u32::from(self.depth) * 2)
    }

    /// The most receives that each queue pair can have.
    fn receives_max(&self) -> u32 {
        if self.srq { (SHARED_MAX / u32::from(self.qps)).min(RECEIVES_MAX) } else { RECEIVES_MAX }
    }

    /// What the server has to know of the `number`-th queue pair.
    pub(crate) fn parameters(&self, number: u16) -> Parameters {
        let all = self.queue_pairs();
        Parameters {
            operation: self.operation,
            latency: self.measure == Measure::Latency,
            bidirectional: self.bidirectional,
            verify: self.verify,
            size: self.size,
            slots: self.slots(),
            depth: self.depth,
            // A message on the wrong queue pair is a wrong one.
            seed: self.seed.wrapping_add(u64::from(number) << 32),
            run: (self.seed as u32).wrapping_add(self.place.number as u32),
            queue_pairs: all,
            messages: match self.limit.share(number, all) {
                Limit::Messages(messages) => messages,
                Limit::Time(_) => 0,
            },
            warmup: self.warmup.map(|warmup| warmup.share(number, all)),
            rate: self.rate.map_or(0, |rate| share(rate, number, all).max(1)),
            list: self.posting.list,
            silent: self.posting.silent,
        }
    }

    /// The limit of one queue pair.
    pub(super) fn limit_of(&self, number: u16) -> Limit {
        self.limit.share(number, self.queue_pairs())
    }

    /// Whether a server takes it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self) -> Result<(), TooMuch> {
        let first = self.parameters(0);
        Budget::new(&first, RECEIVES_MAX)?;
        let shared = Budget::new(&first, self.receives_max());
        shared.map(|_| ()).map_err(|_| TooMuch::Shared { queue_pairs: self.qps })
    }
}

/// A run's name for the user.
pub(crate) fn name(operation: impl fmt::Display, size: u32) -> String {
    format!("{operation} of {size} B")
}

/// Receives that a server has for SENDs at least, where they take no more than these bytes.
const SENDS: u32 = 64;
const SENDS_LEN: u32 = 64 << 10;

/// Places for the messages of a ping-pong: one on its way, one that is compared, and some to spare.
const LATENCY_SLOTS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_equal_as_can_be_and_make_the_whole() {
        for (whole, all) in [(10, 4), (4, 4), (1000, 7)] {
            let shares: Vec<u64> = (0..all).map(|number| share(whole, number, all)).collect();
            assert_eq!(shares.iter().sum::<u64>(), whole);
            assert!(shares[0] - shares[shares.len() - 1] <= 1, "{shares:?}");
        }
    }
}
