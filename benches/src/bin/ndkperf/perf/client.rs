//! The side that posts, and measures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::abi::NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
use hdrhistogram::Histogram;
use ndkperf::{Adapter, ReadLimits, Remote};

use super::Mismatches;
use super::control::{Control, Operation, Parameters};
use super::ring::{ControlSender, Ring};
use crate::failure::Failure;
use crate::pattern::Pattern;
use crate::session::{Depths, Event, Session};

/// When a run is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Limit {
    Messages(u64),
    Time(Duration),
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages posted at once.
    pub(crate) depth: u32,
    pub(crate) limit: Limit,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
    /// How long nothing may happen.
    pub(crate) patience: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) operation: Operation,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// From the first post to the last completion.
    pub(crate) elapsed: Duration,
    /// From post to completion, in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) mismatches: Mismatches,
}

/// Runs `plan` from `local` against the server at `remote`; `progress` is told now and then how
/// many messages are through.
pub(crate) fn run(
    adapter: &Arc<Adapter>,
    local: SocketAddr,
    remote: SocketAddr,
    plan: Plan,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, Failure> {
    let mut client = Client::connect(adapter, local, remote, plan)
        .map_err(|failure| failure.during(format!("connecting to {remote}")))?;
    client
        .drive(progress)
        .and_then(|elapsed| client.finish(elapsed))
        .map_err(|failure| failure.during(plan.operation.to_string()))
}

struct Client {
    plan: Plan,
    parameters: Parameters,
    pattern: Pattern,
    session: Session,
    control: ControlSender,
    inbox: Ring,
    data: Ring,
    /// One message of memory that the adapter does not know.
    scratch: Vec<u8>,
    remote: Remote,
    /// When the message in each slot was posted.
    posted_at: Vec<Instant>,
    posted: u64,
    completed: u64,
    /// Messages that the server knows to be through.
    announced: u64,
    /// Messages that the server has room for.
    granted: u64,
    summary: Option<(u64, Mismatches)>,
    mismatches: Mismatches,
    latency_ns: Histogram<u64>,
}

impl Client {
    fn connect(
        adapter: &Arc<Adapter>,
        local: SocketAddr,
        remote: SocketAddr,
        plan: Plan,
    ) -> Result<Self, Failure> {
        let parameters = Parameters {
            operation: plan.operation,
            size: plan.size,
            slots: plan.depth * 2,
            seed: plan.seed,
            verify: plan.verify,
        };
        let pd = adapter.create_pd()?;
        let depths =
            Depths { receive: ControlSender::SLOTS, initiator: plan.depth + ControlSender::SLOTS };
        let connector = adapter.create_connector()?;
        let mut session = Session::new(adapter, &pd, connector, depths, plan.patience)?;
        let write = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        let inbox = Ring::new(&pd, ControlSender::SLOTS as usize, Control::LEN, write)?;
        for slot in 0..inbox.slots() {
            session.receive(inbox.mr(), inbox.range(slot, Control::LEN), slot)?;
        }
        let depth = plan.depth as usize;
        let data = Ring::new(&pd, depth, plan.size as usize, write)?;
        let control = ControlSender::new(&pd, depth)?;
        let limits = ReadLimits { inbound: 0, outbound: adapter.info()?.MaxOutboundReadLimit };
        session.connect(local, remote, limits)?;
        Ok(Self {
            plan,
            parameters,
            pattern: Pattern::new(plan.seed),
            session,
            control,
            inbox,
            data,
            scratch: vec![0; plan.size as usize],
            remote: Remote { address: 0, token: 0 },
            posted_at: vec![Instant::now(); depth],
            posted: 0,
            completed: 0,
            announced: 0,
            granted: 0,
            summary: None,
            mismatches: Mismatches::default(),
            latency_ns: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("these bounds are valid"),
        })
    }

    /// Moves all messages; returns how long that took.
    fn drive(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Duration, Failure> {
        self.control.send(&mut self.session, Control::Start(self.parameters))?;
        while self.granted == 0 {
            self.turn()?;
        }
        let start = Instant::now();
        let mut end = start;
        while self.wants_more(start) || self.completed < self.posted {
            while self.may_post() && self.wants_more(start) {
                self.post()?;
            }
            let before = self.completed;
            self.turn()?;
            if self.completed > before {
                end = Instant::now();
                progress(self.completed);
            }
        }
        Ok(end - start)
    }

    /// Exchanges the last words.
    fn finish(mut self, elapsed: Duration) -> Result<Outcome, Failure> {
        self.announce()?;
        self.control.send(&mut self.session, Control::Done { messages: self.completed })?;
        while self.summary.is_none() || !self.session.is_idle() {
            self.turn()?;
        }
        self.session.disconnect()?;
        let (messages, theirs) = self.summary.unwrap_or_default();
        if messages != self.completed {
            return Err(Failure::Protocol("the server has counted another number of messages"));
        }
        Ok(Outcome {
            operation: self.plan.operation,
            messages,
            bytes: messages * u64::from(self.plan.size),
            elapsed,
            latency_ns: self.latency_ns,
            mismatches: if theirs.count > 0 { theirs } else { self.mismatches },
        })
    }

    fn wants_more(&self, start: Instant) -> bool {
        match self.plan.limit {
            Limit::Messages(messages) => self.posted < messages,
            Limit::Time(time) => start.elapsed() < time,
        }
    }

    fn may_post(&self) -> bool {
        self.posted - self.completed < u64::from(self.plan.depth) && self.posted < self.granted
    }

    fn post(&mut self) -> Result<(), Failure> {
        let slot = self.data.slot(self.posted);
        let len = self.plan.size as usize;
        let range = self.data.range(slot, len);
        if self.plan.verify && self.plan.operation != Operation::Read {
            self.pattern.fill(self.posted, &mut self.scratch);
            self.data.put(slot, &self.scratch);
        }
        let place = (self.posted % u64::from(self.parameters.slots)) as usize;
        let remote = self.remote.at(place * len);
        self.posted_at[slot] = Instant::now();
        match self.plan.operation {
            Operation::Send => self.session.send(self.data.mr(), range, slot)?,
            Operation::Write => self.session.write(self.data.mr(), range, remote, slot)?,
            Operation::Read => self.session.read(self.data.mr(), range, remote, slot)?,
        }
        self.posted += 1;
        Ok(())
    }

    /// Waits once, and acts on what has come.
    fn turn(&mut self) -> Result<(), Failure> {
        let mut events = Vec::with_capacity(64);
        self.session.wait(&mut events)?;
        let now = Instant::now();
        for event in events {
            match event {
                Event::Initiated { tag } if self.control.sent(tag) => {}
                Event::Initiated { tag } => self.completed(tag, now)?,
                Event::Received { tag, len } => self.received(tag, len)?,
            }
        }
        if self.completed - self.announced >= self.parameters.batch() {
            self.announce()?;
        }
        Ok(())
    }

    fn completed(&mut self, slot: usize, now: Instant) -> Result<(), Failure> {
        let latency = now.saturating_duration_since(self.posted_at[slot]);
        self.latency_ns.saturating_record(latency.as_nanos() as u64);
        if self.plan.verify && self.plan.operation == Operation::Read {
            self.data.get(slot, &mut self.scratch);
            let offset = self.pattern.mismatch(self.completed, &self.scratch);
            self.mismatches.note(self.completed, offset);
        }
        self.completed += 1;
        Ok(())
    }

    fn received(&mut self, slot: usize, len: usize) -> Result<(), Failure> {
        let mut bytes = [0; Control::LEN];
        self.inbox.get(slot, &mut bytes);
        let range = self.inbox.range(slot, Control::LEN);
        self.session.receive(self.inbox.mr(), range, slot)?;
        match Control::decode(&bytes[..len]) {
            Some(Control::Ready(remote)) => {
                self.remote = remote;
                let slots = u64::from(self.parameters.slots);
                self.granted = if self.parameters.has_credits() { slots } else { u64::MAX };
            }
            Some(Control::Credit { count }) => self.granted += count,
            Some(Control::Summary { messages, mismatches }) => {
                self.summary = Some((messages, mismatches));
            }
            _ => return Err(Failure::Protocol("the server does not speak the ndkperf protocol")),
        }
        Ok(())
    }

    /// Tells the server which messages are through: it sees SENDs itself.
    fn announce(&mut self) -> Result<(), Failure> {
        let count = self.completed - self.announced;
        self.announced = self.completed;
        if count == 0 || self.plan.operation == Operation::Send || !self.plan.verify {
            return Ok(());
        }
        self.control.send(&mut self.session, Control::Turn { count })
    }
}

/// Longer latencies count as this one: an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
