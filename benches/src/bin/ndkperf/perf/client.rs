//! The side that posts, and measures.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use driver::abi::{NDK_MR_FLAG_ALLOW_LOCAL_WRITE, STATUS_IO_TIMEOUT};
use hdrhistogram::Histogram;
use ndk_consumer::{Host, ReadLimits, Remote};

use super::Mismatches;
use super::budget::{Budget, RECEIVES_MAX, TooMuch};
use super::control::{Control, Operation, Parameters};
use super::meter::Meter;
use super::ring::{ControlSender, Ring};
use crate::failure::Failure;
use crate::pattern::Pattern;
use crate::session::{Depths, Event, Session, Waits, never};
use crate::stop;

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
    pub(crate) waits: Waits,
    pub(crate) place: Place,
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

    /// Messages that the server has room for: twice the depth, so that it checks some while others come; and of short
    /// SENDs some more, so that credits are not as many as messages.
    fn slots(&self) -> u32 {
        let short =
            if self.operation == Operation::Send { SENDS_LEN / self.size.max(1) } else { 0 };
        short.min(SENDS).max(self.depth * 2)
    }

    /// What the server has to know.
    fn parameters(&self) -> Parameters {
        Parameters {
            operation: self.operation,
            size: self.size,
            slots: self.slots(),
            seed: self.seed,
            verify: self.verify,
        }
    }

    /// Whether a server takes it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self) -> Result<(), TooMuch> {
        Budget::new(&self.parameters(), RECEIVES_MAX).map(|_| ())
    }
}

/// A run's name for the user.
pub(crate) fn name(operation: impl fmt::Display, size: u32) -> String {
    format!("{operation} of {size} B")
}

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

/// What came of a run, however it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) operation: Operation,
    /// Bytes of a message.
    pub(crate) size: u32,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// When the server was ready.
    pub(crate) began: Option<SystemTime>,
    /// From the first post to the last completion.
    pub(crate) elapsed: Duration,
    /// Processor time of the whole process from when the server was ready to the last completion.
    pub(crate) cpu: Duration,
    /// From post to completion, in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) mismatches: Mismatches,
    /// Payload bytes of a full packet, once it was connected.
    pub(crate) path_mtu: Option<u16>,
    /// What the provider counted meanwhile, by name.
    pub(crate) counters: Vec<(&'static str, u64)>,
    /// The server had everything, and did not answer when we disconnected.
    pub(crate) unconfirmed: bool,
    pub(crate) end: End,
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            operation: plan.operation,
            size: plan.size,
            messages: 0,
            bytes: 0,
            began: None,
            elapsed: Duration::ZERO,
            cpu: Duration::ZERO,
            latency_ns: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("these bounds are valid"),
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
        self.counters.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count)
    }
}

/// Runs `plan` from `local` against the server at `remote`; `progress` is told now and then how
/// many messages are through.
pub(crate) fn run(
    host: &Host,
    local: SocketAddr,
    remote: SocketAddr,
    plan: Plan,
    progress: &mut dyn FnMut(u64),
) -> Outcome {
    let before = host.provider().counters();
    let mut outcome = run_uncounted(host, local, remote, plan, progress);
    let moved = host.provider().counters().iter().zip(before.iter());
    // Connections now are no total, and may be fewer than before.
    outcome.counters =
        moved.map(|((name, now), (_, before))| (name, now.saturating_sub(before))).collect();
    outcome
}

fn run_uncounted(
    host: &Host,
    local: SocketAddr,
    remote: SocketAddr,
    plan: Plan,
    progress: &mut dyn FnMut(u64),
) -> Outcome {
    let mut client = match Client::connect(host, local, remote, plan) {
        Ok(client) => client,
        Err(failure) => {
            let end = End::Failed(failure.during(format!("connecting to {remote}")));
            return Outcome { end, ..Outcome::new(&plan) };
        }
    };
    let driven = client.drive(progress);
    client.outcome.cpu = client.meter.as_ref().map_or(Duration::ZERO, Meter::cpu);
    match driven.and_then(|()| client.finish()) {
        Ok(()) if client.interrupted => client.outcome.end = End::Interrupted,
        Ok(()) => {}
        Err(failure) => {
            let failure = client.explained(failure, remote.ip());
            client.outcome.end = End::Failed(failure.during(plan.name()));
        }
    }
    client.outcome
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
    interrupted: bool,
    /// Messages that the server knows to be through.
    announced: u64,
    /// Messages that the server has room for.
    granted: u64,
    summary: Option<(u64, Mismatches)>,
    /// From when the server was ready.
    meter: Option<Meter>,
    /// Room for the events of a turn.
    events: Vec<Event>,
    /// What came of it so far.
    outcome: Outcome,
}

impl Client {
    fn connect(
        host: &Host,
        local: SocketAddr,
        remote: SocketAddr,
        plan: Plan,
    ) -> Result<Self, Failure> {
        let parameters = plan.parameters();
        let adapter = host.adapter();
        let pd = adapter.create_pd()?;
        let depths =
            Depths { receive: ControlSender::SLOTS, initiator: plan.depth + ControlSender::SLOTS };
        let connector = adapter.create_connector()?;
        let mut session = Session::new(adapter, &pd, connector, depths, plan.waits)?;
        session.stop_when(stop::requested);
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
        let path_mtu = host.path_mtu(session.local_address()?);
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
            interrupted: false,
            announced: 0,
            granted: 0,
            summary: None,
            meter: None,
            events: Vec::with_capacity(64),
            outcome: Outcome { path_mtu, ..Outcome::new(&plan) },
        })
    }

    /// Where small packets were answered and large ones never, says so: the ends of a path may have a larger
    /// MTU than what lies between them.
    fn explained(&self, failure: Failure, peer: IpAddr) -> Failure {
        let silent = matches!(&failure, Failure::Completion { status: STATUS_IO_TIMEOUT, .. });
        let Some(path_mtu) = self.outcome.path_mtu.filter(|_| silent && self.granted > 0) else {
            return failure;
        };
        let payload = self.plan.size.min(path_mtu.into());
        if self.outcome.messages > 0 || payload <= Control::LEN as u32 {
            return failure;
        }
        // IP, UDP, BTH and ICRC; then the 256 bytes of a CM message and its DETH, which were answered.
        let around = if peer.is_ipv4() { 20 } else { 40 } + 8 + 12 + 4;
        let (answered, unanswered) = (around + 8 + 256, around + 16 + payload);
        if unanswered <= answered {
            return failure;
        }
        Failure::Hole { source: Box::new(failure), answered, unanswered, path_mtu }
    }

    /// Moves all messages.
    fn drive(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), Failure> {
        self.control.send(&mut self.session, Control::Start(self.parameters))?;
        while self.granted == 0 {
            self.turn()?;
        }
        // From here on the user's wish ends it as its limit would, with what is under way.
        self.session.stop_when(never);
        let start = Instant::now();
        while self.wants_more(start) || self.outcome.messages < self.posted {
            while self.may_post() && self.wants_more(start) {
                self.post()?;
            }
            let before = self.outcome.messages;
            self.turn()?;
            if self.outcome.messages > before {
                self.outcome.elapsed = start.elapsed();
                progress(self.outcome.messages);
            }
        }
        Ok(())
    }

    /// Exchanges the last words.
    fn finish(&mut self) -> Result<(), Failure> {
        self.announce()?;
        let completed = self.outcome.messages;
        self.control.send(&mut self.session, Control::Done { messages: completed })?;
        while self.summary.is_none() || !self.session.is_idle() {
            self.turn()?;
        }
        self.outcome.unconfirmed = !self.session.disconnect()?;
        let (messages, theirs) = self.summary.unwrap_or_default();
        if messages != completed {
            return Err(Failure::Protocol("the server has counted another number of messages"));
        }
        if theirs.count > 0 {
            self.outcome.mismatches = theirs;
        }
        Ok(())
    }

    fn wants_more(&mut self, start: Instant) -> bool {
        self.interrupted |= stop::requested();
        if self.interrupted {
            return false;
        }
        match self.plan.limit {
            Limit::Messages(messages) => self.posted < messages,
            Limit::Time(time) => start.elapsed() < time,
        }
    }

    fn may_post(&self) -> bool {
        self.posted - self.outcome.messages < u64::from(self.plan.depth)
            && self.posted < self.granted
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
        let mut events = std::mem::take(&mut self.events);
        self.session.wait(&mut events)?;
        let now = Instant::now();
        for event in events.drain(..) {
            match event {
                Event::Initiated { tag } if self.control.sent(tag) => {}
                Event::Initiated { tag } => self.completed(tag, now)?,
                Event::Received { tag, len } => self.received(tag, len)?,
            }
        }
        self.events = events;
        if self.outcome.messages - self.announced >= self.parameters.batch() {
            self.announce()?;
        }
        Ok(())
    }

    fn completed(&mut self, slot: usize, now: Instant) -> Result<(), Failure> {
        let latency = now.saturating_duration_since(self.posted_at[slot]);
        let completed = self.outcome.messages;
        self.outcome.latency_ns.saturating_record(latency.as_nanos() as u64);
        if self.plan.verify && self.plan.operation == Operation::Read {
            self.data.get(slot, &mut self.scratch);
            let offset = self.pattern.mismatch(completed, &self.scratch);
            self.outcome.mismatches.note(completed, offset);
        }
        self.outcome.messages += 1;
        self.outcome.bytes += u64::from(self.plan.size);
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
                // Both ends have prepared for the run: from here on it is the messages that cost.
                self.meter = Some(Meter::start());
                self.outcome.began = Some(SystemTime::now());
                let slots = u64::from(self.parameters.slots);
                self.granted = if self.parameters.has_credits() { slots } else { u64::MAX };
            }
            // No more than there are slots, so that no sum of them overflows.
            Some(Control::Credit { count }) if count <= u64::from(self.parameters.slots) => {
                self.granted = self.granted.saturating_add(count);
            }
            Some(Control::Summary { messages, mismatches }) => {
                self.summary = Some((messages, mismatches));
            }
            _ => return Err(Failure::Protocol("the server does not speak the ndkperf protocol")),
        }
        Ok(())
    }

    /// Tells the server which messages are through: it sees SENDs itself.
    fn announce(&mut self) -> Result<(), Failure> {
        let count = self.outcome.messages - self.announced;
        self.announced = self.outcome.messages;
        if count == 0 || self.plan.operation == Operation::Send || !self.plan.verify {
            return Ok(());
        }
        self.control.send(&mut self.session, Control::Turn { count })
    }
}

/// Receives that a server has for SENDs at least, where they take no more than these bytes.
const SENDS: u32 = 64;
const SENDS_LEN: u32 = 64 << 10;

/// Longer latencies count as this one: an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
