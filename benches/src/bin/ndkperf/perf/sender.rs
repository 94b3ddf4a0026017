//! The half of an end that posts messages, and takes their latency.

use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
use hdrhistogram::Histogram;
use ndk_consumer::{Flags, Pd, Remote};

use super::Mismatches;
use super::control::{Control, Operation, Parameters};
use super::link::Link;
use super::outcome::{Flow, latencies};
use super::plan::Limit;
use super::ring::Ring;
use crate::connection::{Data, Work};
use crate::failure::Failure;
use crate::pattern::Pattern;

/// The messages of one queue pair, in one direction.
#[derive(Debug)]
pub(super) struct Sender {
    parameters: Parameters,
    pattern: Pattern,
    inline: bool,
    data: Ring,
    /// One message of memory that the adapter does not know.
    scratch: Vec<u8>,
    remote: Remote,
    /// When the message in each slot was posted.
    posted_at: Vec<Instant>,
    posted: u64,
    completed: u64,
    /// Messages that the peer knows to be through.
    announced: u64,
    /// Messages that the peer has room for.
    granted: u64,
    /// None: the peer says when it is over.
    limit: Option<Limit>,
    start: Instant,
    elapsed: Duration,
    /// Messages of the warm-up.
    uncounted: u64,
    stopped: bool,
    interrupted: bool,
    summary: Option<(u64, Mismatches)>,
    latency_ns: Histogram<u64>,
    mismatches: Mismatches,
}

impl Sender {
    pub(super) fn new(pd: &Arc<Pd>, parameters: Parameters, inline: bool) -> Result<Self, Failure> {
        let (depth, size) = (usize::from(parameters.depth), parameters.size as usize);
        let now = Instant::now();
        Ok(Self {
            parameters,
            pattern: Pattern::new(parameters.seed),
            inline,
            data: Ring::new(pd, depth, size, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?,
            scratch: vec![0; size],
            remote: Remote { address: 0, token: 0 },
            posted_at: vec![now; depth],
            posted: 0,
            completed: 0,
            announced: 0,
            granted: 0,
            limit: Some(Limit::Messages(0)),
            start: now,
            elapsed: Duration::ZERO,
            uncounted: 0,
            stopped: false,
            interrupted: false,
            summary: None,
            latency_ns: latencies(),
            mismatches: Mismatches::default(),
        })
    }

    /// The peer's ring is there.
    pub(super) fn ready(&mut self, remote: Remote) {
        self.remote = remote;
        let slots = u64::from(self.parameters.slots);
        self.granted = if self.parameters.has_credits() { slots } else { u64::MAX };
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.granted > 0
    }

    /// More slots are free; false if there are not as many.
    pub(super) fn credit(&mut self, count: u64) -> bool {
        // No more than there are slots, so that no sum of them overflows.
        let possible = count <= u64::from(self.parameters.slots);
        self.granted = self.granted.saturating_add(if possible { count } else { 0 });
        possible
    }

    pub(super) const fn summarized(&mut self, messages: u64, mismatches: Mismatches) {
        self.summary = Some((messages, mismatches));
    }

    /// From here on messages count, up to `limit`.
    pub(super) fn begin(&mut self, limit: Option<Limit>) {
        self.limit = limit;
        self.uncounted = self.completed;
        self.start = Instant::now();
        self.elapsed = Duration::ZERO;
        self.latency_ns.reset();
    }

    /// The peer has sent all that it wanted to; where it sets the time, or was interrupted, that was all.
    pub(super) const fn told(&mut self, interrupted: bool) {
        self.stopped |= interrupted || self.parameters.messages == 0;
    }

    /// The user wants to end.
    pub(super) const fn interrupt(&mut self) {
        self.stopped = true;
        self.interrupted = true;
    }

    fn wants_more(&self, now: Instant) -> bool {
        !self.stopped
            && match self.limit {
                Some(Limit::Messages(messages)) => self.posted - self.uncounted < messages,
                Some(Limit::Time(time)) => now.saturating_duration_since(self.start) < time,
                None => true,
            }
    }

    /// Whether it has to post, or waits for what it has posted.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.completed < self.posted || self.wants_more(now)
    }

    /// Posts as much as there is room for.
    pub(super) fn fill(&mut self, link: &mut Link) -> Result<(), Failure> {
        let mut now = Instant::now();
        loop {
            let group = self.next_group(now);
            if group == 0 {
                return Ok(());
            }
            for place in 1..=group {
                now = self.post(link, place, group)?;
            }
        }
    }

    /// How many messages to post together now: a whole group, but for the last one of a run.
    fn next_group(&self, now: Instant) -> u64 {
        if !self.wants_more(now) || self.resumes_at(now).is_some() {
            return 0;
        }
        let left = match self.limit {
            Some(Limit::Messages(messages)) => messages - (self.posted - self.uncounted),
            Some(Limit::Time(_)) | None => u64::MAX,
        };
        let group = left.min(self.parameters.list.max(self.parameters.silent).into());
        let free = u64::from(self.parameters.depth) - (self.posted - self.completed);
        if free.min(self.granted - self.posted) < group { 0 } else { group }
    }

    /// When the limit of the rate lets it go on, where that is what it waits for.
    fn resumes_at(&self, now: Instant) -> Option<Instant> {
        if self.parameters.rate == 0 || !self.wants_more(now) {
            return None;
        }
        let posted = self.posted - self.uncounted;
        let bits = posted as f64 * f64::from(self.parameters.size) * 8.0;
        let due = self.start + Duration::from_secs_f64(bits / self.parameters.rate as f64);
        (due > now).then_some(due)
    }

    /// Until when to wait at most: at once where the limit of the rate has let it go on since it was last asked.
    pub(super) fn waits_until(&self, now: Instant) -> Option<Instant> {
        let late = self.parameters.rate > 0 && self.next_group(now) > 0;
        if late { Some(now) } else { self.resumes_at(now) }
    }

    /// Posts message `place` of a group. Returns the time.
    fn post(&mut self, link: &mut Link, place: u64, group: u64) -> Result<Instant, Failure> {
        let Parameters { operation, verify, slots, list, silent, .. } = self.parameters;
        let slot = self.data.slot(self.posted);
        let len = self.scratch.len();
        let fills = verify && operation != Operation::Read;
        if fills {
            self.pattern.fill(self.posted, &mut self.scratch);
        }
        if fills && !self.inline {
            self.data.put(slot, &self.scratch);
        }
        let mut flags = Flags::empty();
        flags.set(Flags::DEFER, place < group && !place.is_multiple_of(list.into()));
        flags.set(Flags::SILENT_SUCCESS, place < group && !place.is_multiple_of(silent.into()));
        let sge = self.data.mr().sge(self.data.range(slot, len));
        let data = if self.inline { Data::Inline(&self.scratch) } else { Data::Registered(sge) };
        let remote = self.remote.at((self.posted % u64::from(slots)) as usize * len);
        let now = Instant::now();
        self.posted_at[slot] = now;
        let work = match operation {
            Operation::Send => Work::Send(data),
            Operation::Write => Work::Write(data, remote),
            Operation::Read => Work::Read(sge, remote),
        };
        link.connection.post(work, flags, slot)?;
        self.posted += 1;
        Ok(now)
    }

    /// The oldest message is through; one that was silent tells no latency.
    pub(super) fn completed(&mut self, slot: usize, now: Instant, aloud: bool) {
        if aloud {
            let latency = now.saturating_duration_since(self.posted_at[slot]);
            self.latency_ns.saturating_record(latency.as_nanos() as u64);
        }
        if self.parameters.verify && self.parameters.operation == Operation::Read {
            self.data.get(slot, &mut self.scratch);
            let slots = u64::from(self.parameters.slots);
            let renewed = self.parameters.has_credits();
            let expected = if renewed { self.completed } else { self.completed % slots };
            let offset = self.pattern.mismatch(expected, &self.scratch);
            self.mismatches.note(self.completed, offset);
        }
        self.completed += 1;
        self.elapsed = now.saturating_duration_since(self.start);
    }

    /// Tells the peer, where it waits for that, which messages are through: it sees SENDs itself.
    pub(super) fn announce(&mut self, link: &mut Link, least: u64) -> Result<(), Failure> {
        let count = self.completed - self.announced;
        if count < least {
            return Ok(());
        }
        self.announced = self.completed;
        let Parameters { operation, .. } = self.parameters;
        if operation == Operation::Send || !self.parameters.has_credits() {
            return Ok(());
        }
        link.send(Control::Turn { count })
    }

    /// As [`announce`](Self::announce), where there are enough for a credit.
    pub(super) fn announce_batch(&mut self, link: &mut Link) -> Result<(), Failure> {
        self.announce(link, self.parameters.batch())
    }

    /// The last word of this direction.
    pub(super) fn done(&self) -> Control {
        Control::Done {
            messages: self.completed,
            uncounted: self.uncounted,
            elapsed_ns: self.elapsed.as_nanos() as u64,
            interrupted: self.interrupted,
        }
    }

    /// What the peer has said of it.
    ///
    /// # Errors
    /// It has seen another number of messages.
    pub(super) fn judged(&self) -> Result<Mismatches, Failure> {
        let (messages, theirs) = self.summary.unwrap_or_default();
        if messages != self.completed {
            return Err(Failure::Protocol("the server has counted another number of messages"));
        }
        Ok(if theirs.count > 0 { theirs } else { self.mismatches })
    }

    pub(super) const fn is_over(&self) -> bool {
        self.summary.is_some()
    }

    pub(super) fn flow(&self) -> Flow {
        let messages = self.completed - self.uncounted;
        let bytes = messages * u64::from(self.parameters.size);
        Flow { messages, bytes, elapsed: self.elapsed }
    }

    pub(super) const fn latency_ns(&self) -> &Histogram<u64> {
        &self.latency_ns
    }
}
