//! One message at a time over one queue pair: a ping, then a pong.
//!
//! A SEND is answered by a SEND. For a WRITE the other end polls its memory: the last byte of a message is the number
//! of the message, and it is written last. Each end prepares its next message, and compares the one before, while the
//! other one has its turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::abi::{NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_WRITE};
use hdrhistogram::Histogram;
use ndk_consumer::{Flags, Pd, Remote};

use super::Mismatches;
use super::budget::Budget;
use super::control::{Control, Operation, Parameters};
use super::link::{Heard, Link};
use super::outcome::{Flow, latencies};
use super::plan::Limit;
use super::ring::Ring;
use crate::completions::Completions;
use crate::connection::{Connection, Data, Event, Work};
use crate::failure::Failure;
use crate::pattern::Pattern;

/// One end.
#[derive(Debug)]
pub(super) struct PingPong {
    parameters: Parameters,
    inline: bool,
    lane: Lane,
    completions: Completions,
    events: Vec<(usize, Event)>,
    /// The pattern of what goes out, and of what comes in.
    patterns: [Pattern; 2],
    out: Ring,
    /// Where the peer writes.
    landing: Ring,
    /// Room for one message, and for what it should be.
    scratch: [Vec<u8>; 2],
    remote: Option<Remote>,
    sent: u64,
    received: u64,
    checked: u64,
    /// Receives whose message is to be compared.
    unchecked: Vec<(usize, usize)>,
    mismatches: Mismatches,
    /// The client has had enough.
    done: Option<u64>,
    summary: Option<(u64, Mismatches)>,
    uncounted: u64,
    elapsed: Duration,
    latency_ns: Histogram<u64>,
}

/// The one connection.
#[derive(Debug)]
struct Lane(Link);

impl AsMut<Connection> for Lane {
    fn as_mut(&mut self) -> &mut Connection {
        &mut self.0.connection
    }
}

impl PingPong {
    /// An end whose own messages have the pattern of `own`, and which expects that of `other`.
    pub(super) fn new(
        pd: &Arc<Pd>,
        link: Link,
        completions: Completions,
        [own, other]: [Parameters; 2],
        inline: bool,
        budget: Budget,
    ) -> Result<Self, Failure> {
        let size = budget.size;
        let write = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        Ok(Self {
            parameters: own,
            inline,
            lane: Lane(link),
            completions,
            events: Vec::new(),
            patterns: [own, other].map(|parameters| Pattern::new(parameters.seed)),
            out: Ring::new(pd, usize::from(OUTGOING), size, write)?,
            landing: Ring::new(pd, budget.data_slots, size, NDK_MR_FLAG_ALLOW_REMOTE_WRITE)?,
            scratch: [(); 2].map(|()| vec![0; size]),
            remote: None,
            sent: 0,
            received: 0,
            checked: 0,
            unchecked: Vec::new(),
            mismatches: Mismatches::default(),
            done: None,
            summary: None,
            uncounted: 0,
            elapsed: Duration::ZERO,
            latency_ns: latencies(),
        })
    }

    pub(super) const fn stop_when(&mut self, stop: fn() -> bool) {
        self.completions.stop_when(stop);
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.lane.0.connection
    }

    /// Tells the other end where it may write, and hears the same of it. The client answers, as the server has no more
    /// than one receive before.
    pub(super) fn greet(&mut self, answers: bool) -> Result<(), Failure> {
        if answers {
            self.wait_ready()?;
        }
        self.lane.0.send(Control::Ready(self.landing.remote()))?;
        self.wait_ready()?;
        self.prepare();
        Ok(())
    }

    fn wait_ready(&mut self) -> Result<(), Failure> {
        while !self.is_ready() {
            self.wait()?;
        }
        Ok(())
    }

    /// The client: pings until the limit, or until `each` says after one that this is enough.
    pub(super) fn ping(
        &mut self,
        limit: Limit,
        mut each: impl FnMut(u64) -> bool,
    ) -> Result<(), Failure> {
        self.uncounted = self.sent;
        self.latency_ns.reset();
        let start = Instant::now();
        loop {
            let over = match limit {
                Limit::Messages(messages) => self.sent - self.uncounted >= messages,
                Limit::Time(time) => start.elapsed() >= time,
            };
            if each(self.sent - self.uncounted) || over {
                return Ok(());
            }
            let posted = Instant::now();
            self.post()?;
            while self.received < self.sent {
                self.await_message()?;
            }
            let now = Instant::now();
            // To the other end and back: half of that is one way.
            let latency = now.duration_since(posted) / 2;
            self.latency_ns.saturating_record(latency.as_nanos() as u64);
            self.elapsed = now.duration_since(start);
            self.prepare();
            self.check(false)?;
        }
    }

    /// The client's last words.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.lane.0.send(Control::Done {
            messages: self.sent,
            uncounted: self.uncounted,
            elapsed_ns: self.elapsed.as_nanos() as u64,
            interrupted: false,
        })?;
        while self.summary.is_none() || !self.connection().is_idle() {
            self.wait()?;
        }
        self.check(true)
    }

    /// The server: answers until the client has enough; returns how many.
    pub(super) fn pong(&mut self) -> Result<u64, Failure> {
        loop {
            while self.received == self.sent && self.done.is_none() {
                self.await_message()?;
            }
            if self.received > self.sent {
                self.post()?;
                self.prepare();
                self.check(false)?;
            } else {
                self.check(true)?;
                let messages = self.received;
                self.lane.0.send(Control::Summary { messages, mismatches: self.mismatches })?;
                return Ok(messages);
            }
        }
    }

    /// What the server has said of it.
    ///
    /// # Errors
    /// It has seen another number of messages.
    pub(super) fn judged(&self) -> Result<Mismatches, Failure> {
        let (messages, theirs) = self.summary.unwrap_or_default();
        if messages != self.sent {
            return Err(Failure::Protocol("the server has counted another number of messages"));
        }
        Ok(if theirs.count > 0 { theirs } else { self.mismatches })
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.remote.is_some()
    }

    pub(super) fn flow(&self) -> Flow {
        let messages = self.sent - self.uncounted;
        let bytes = messages * u64::from(self.parameters.size);
        Flow { messages, bytes, elapsed: self.elapsed }
    }

    pub(super) const fn latency_ns(&self) -> &Histogram<u64> {
        &self.latency_ns
    }

    fn is_write(&self) -> bool {
        self.parameters.operation == Operation::Write
    }

    /// Fills the next message in.
    fn prepare(&mut self) {
        let [_, bytes] = &mut self.scratch;
        if self.parameters.verify {
            self.patterns[0].fill(self.sent, bytes);
        }
        if self.parameters.operation == Operation::Write
            && let Some(last) = bytes.last_mut()
        {
            *last = number(self.sent);
        }
        if !self.inline {
            self.out.put(self.out.slot(self.sent), bytes);
        }
    }

    fn post(&mut self) -> Result<(), Failure> {
        // The one before may still be about to complete: its buffer is another one.
        while self.lane.0.connection.initiated() >= usize::from(OUTGOING) {
            self.wait()?;
        }
        let slot = self.out.slot(self.sent);
        let [_, bytes] = &self.scratch;
        let sge = self.out.mr().sge(self.out.range(slot, bytes.len()));
        let data = if self.inline { Data::Inline(bytes) } else { Data::Registered(sge) };
        let work = match (self.parameters.operation, self.remote) {
            (Operation::Write, Some(remote)) => {
                let place = self.sent % u64::from(self.parameters.slots);
                Work::Write(data, remote.at(place as usize * bytes.len()))
            }
            _ => Work::Send(data),
        };
        self.lane.0.connection.post(work, Flags::empty(), slot)?;
        self.sent += 1;
        Ok(())
    }

    /// Returns once something has come, a message or a word of control.
    fn await_message(&mut self) -> Result<(), Failure> {
        if !self.is_write() {
            return self.wait();
        }
        let since = Instant::now();
        loop {
            for _ in 0..POLLS {
                let size = self.parameters.size as usize;
                let byte = self.landing.last_byte(self.landing.slot(self.received), size);
                if byte == number(self.received) {
                    self.received += 1;
                    return Ok(());
                }
                // This runs the provider, too.
                let lane = std::slice::from_mut(&mut self.lane);
                if self.completions.poll(lane, &mut self.events)? {
                    self.act()?;
                    return Ok(());
                }
            }
            self.completions.check(std::slice::from_mut(&mut self.lane), since)?;
        }
    }

    fn wait(&mut self) -> Result<(), Failure> {
        self.completions.wait(std::slice::from_mut(&mut self.lane), None, &mut self.events)?;
        self.act()
    }

    /// Acts on what has come.
    fn act(&mut self) -> Result<(), Failure> {
        let mut events = std::mem::take(&mut self.events);
        for (_, event) in events.drain(..) {
            match event {
                Event::Initiated { tag } | Event::Silent { tag } => {
                    self.lane.0.is_control(tag);
                }
                Event::Received { tag, len } => match self.lane.0.hear(tag, len)? {
                    Heard::Data if self.is_write() => return Err(Failure::Protocol(STRANGER)),
                    Heard::Data => {
                        self.received += 1;
                        self.unchecked.push((tag, len));
                    }
                    Heard::Control(control) => {
                        self.hear(control)?;
                        self.lane.0.post_receive(tag)?;
                    }
                },
            }
        }
        self.events = events;
        Ok(())
    }

    fn hear(&mut self, control: Control) -> Result<(), Failure> {
        match control {
            Control::Ready(remote) => self.remote = Some(remote),
            Control::Done { messages, .. } => self.done = Some(messages),
            Control::Summary { messages, mismatches } => {
                self.summary = Some((messages, mismatches));
            }
            _ => return Err(Failure::Protocol(STRANGER)),
        }
        Ok(())
    }

    /// Compares what has come. Of WRITEs the newest is not compared before the next one or a word of control has
    /// come: its last byte may be there before the others.
    fn check(&mut self, all: bool) -> Result<(), Failure> {
        if !self.is_write() {
            for (slot, len) in std::mem::take(&mut self.unchecked) {
                let size = self.scratch[0].len();
                self.lane.0.inbox().get(slot, &mut self.scratch[0][..len.min(size)]);
                self.compare(len);
                self.lane.0.post_receive(slot)?;
            }
            return Ok(());
        }
        while self.checked + u64::from(!all) < self.received {
            let slot = self.landing.slot(self.checked);
            self.landing.get(slot, &mut self.scratch[0]);
            self.compare(self.scratch[0].len());
        }
        Ok(())
    }

    fn compare(&mut self, len: usize) {
        let [bytes, _] = &mut self.scratch;
        let mut offset = (len != bytes.len()).then(|| len.min(bytes.len()));
        if offset.is_none() && self.parameters.verify {
            // The last byte of a WRITE is its number, which was looked at already.
            let marks = usize::from(self.parameters.operation == Operation::Write);
            let data = &bytes[..len - marks];
            offset = self.patterns[1].mismatch(self.checked, data);
        }
        self.mismatches.note(self.checked, offset);
        self.checked += 1;
    }
}

/// The last byte of a WRITE: never that of the message before in the same place, nor that of new memory.
const fn number(message: u64) -> u8 {
    (message % 251) as u8 + 1
}

/// Places for messages that go out: of one that is on its way, and of the next.
const OUTGOING: u8 = 2;
/// Looks at the memory between two looks at all else.
const POLLS: usize = 64;

const STRANGER: &str = "the peer does not speak the ndkperf protocol";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_never_has_the_same_number_twice_in_turn() {
        for message in 0..2000 {
            assert_ne!(number(message), 0);
            assert_ne!(number(message), number(message + 4));
        }
    }
}
