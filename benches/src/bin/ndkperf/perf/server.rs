//! The side that holds the ring, and checks.

use std::sync::Arc;

use driver::abi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
};
use ndk_consumer::{Adapter, Connector, Pd, ReadLimits};

use super::Mismatches;
use super::budget::{Budget, RECEIVES_MAX};
use super::control::{Control, Operation, Parameters};
use super::ring::{ControlSender, Ring};
use crate::failure::Failure;
use crate::pattern::Pattern;
use crate::session::{Depths, Event, Session, Waits};

/// Serves one run on an incoming connection; returns how many messages it had. `stop` is
/// asked meanwhile whether to end early.
pub(crate) fn serve(
    adapter: &Arc<Adapter>,
    connector: Connector,
    waits: Waits,
    stop: fn() -> bool,
) -> Result<u64, Failure> {
    let info = adapter.info()?;
    let pd = adapter.create_pd()?;
    // The client's depth is not known yet.
    let receive = RECEIVES_MAX.min(info.MaxReceiveQueueDepth);
    let depths = Depths { receive, initiator: ControlSender::SLOTS };
    let mut session = Session::new(adapter, &pd, connector, depths, waits)?;
    session.stop_when(stop);
    let limits = ReadLimits { inbound: info.MaxInboundReadLimit, outbound: 0 };
    let parameters = greet(&mut session, &pd, limits)?;
    let budget = Budget::new(&parameters, receive)
        .map_err(|_| Failure::Protocol("the client asks for more than this server has"))?;
    Server::new(session, &pd, parameters, budget)?.run()
}

/// Accepts, and hears what the client wants. Its one receive is used up by that, so the ones for
/// data can follow.
fn greet(session: &mut Session, pd: &Arc<Pd>, limits: ReadLimits) -> Result<Parameters, Failure> {
    let inbox = Ring::new(pd, 1, Control::LEN, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
    session.receive(inbox.mr(), inbox.range(0, Control::LEN), 0)?;
    session.accept(limits)?;
    let mut events = Vec::new();
    let heard = session.wait(&mut events);
    session.tell_of(heard)?;
    let mut bytes = [0; Control::LEN];
    inbox.get(0, &mut bytes);
    match (Control::decode(&bytes), events.as_slice()) {
        (Some(Control::Start(parameters)), [Event::Received { len: Control::LEN, .. }]) => {
            Ok(parameters)
        }
        _ => Err(Failure::Protocol("the client does not speak the ndkperf protocol")),
    }
}

struct Server {
    parameters: Parameters,
    budget: Budget,
    pattern: Pattern,
    session: Session,
    control: ControlSender,
    /// Receives: control messages, and between them the data of a SEND run.
    inbox: Ring,
    /// What the client writes to or reads from.
    data: Ring,
    scratch: Vec<u8>,
    /// Messages that are checked, or whose slot is filled anew.
    done: u64,
    credited: u64,
    mismatches: Mismatches,
    finished: bool,
    /// Room for the events of a turn.
    events: Vec<Event>,
}

impl Server {
    fn new(
        session: Session,
        pd: &Arc<Pd>,
        parameters: Parameters,
        budget: Budget,
    ) -> Result<Self, Failure> {
        let Budget { receives, receive_len, data_slots, size } = budget;
        let rights = match parameters.operation {
            Operation::Send => 0,
            Operation::Write => NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
            Operation::Read => NDK_MR_FLAG_ALLOW_REMOTE_READ,
        };
        let mut server = Self {
            parameters,
            budget,
            pattern: Pattern::new(parameters.seed),
            session,
            control: ControlSender::new(pd, receives)?,
            inbox: Ring::new(pd, receives, receive_len, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?,
            data: Ring::new(pd, data_slots, size, rights)?,
            scratch: vec![0; size],
            done: 0,
            credited: 0,
            mismatches: Mismatches::default(),
            finished: false,
            events: Vec::with_capacity(64),
        };
        for slot in 0..receives {
            server.post_receive(slot)?;
        }
        Ok(server)
    }

    fn run(mut self) -> Result<u64, Failure> {
        let served = self.serve();
        // As long as the client may send, there is memory to send to.
        self.session.tell_of(served)
    }

    fn serve(&mut self) -> Result<u64, Failure> {
        if self.parameters.operation == Operation::Read {
            for message in 0..u64::from(self.parameters.slots) {
                self.fill(message);
            }
        }
        self.control.send(&mut self.session, Control::Ready(self.data.remote()))?;
        while !self.finished {
            self.turn()?;
        }
        // The client disconnects when it has the summary; our send may then end either way.
        self.session.wait_disconnected()?;
        Ok(self.done)
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let mut events = std::mem::take(&mut self.events);
        self.session.wait(&mut events)?;
        for event in events.drain(..) {
            match event {
                Event::Initiated { tag } => {
                    self.control.sent(tag);
                }
                Event::Received { tag, len } => self.received(tag, len)?,
            }
        }
        self.events = events;
        Ok(())
    }

    fn received(&mut self, slot: usize, len: usize) -> Result<(), Failure> {
        let mut bytes = [0; Control::LEN];
        self.inbox.get(slot, &mut bytes);
        match Control::decode(bytes.get(..len).unwrap_or_default()) {
            Some(Control::Turn { count }) => self.their_turn(count)?,
            Some(Control::Done { messages }) => self.summarize(messages)?,
            Some(_) => return Err(Failure::Protocol("the client repeats itself")),
            None if self.parameters.operation == Operation::Send => self.check(slot, len),
            None => return Err(Failure::Protocol("the client sends what it should write")),
        }
        self.post_receive(slot)?;
        self.credit()
    }

    fn post_receive(&mut self, slot: usize) -> Result<(), Failure> {
        let range = self.inbox.range(slot, self.budget.receive_len);
        self.session.receive(self.inbox.mr(), range, slot)
    }

    /// Checks a message that was sent.
    fn check(&mut self, slot: usize, len: usize) {
        let mut offset = None;
        if len != self.scratch.len() {
            offset = Some(len.min(self.scratch.len()));
        } else if self.parameters.verify {
            self.inbox.get(slot, &mut self.scratch);
            offset = self.pattern.mismatch(self.done, &self.scratch);
        }
        self.mismatches.note(self.done, offset);
        self.done += 1;
    }

    /// The client has written or read the next `count` messages.
    fn their_turn(&mut self, count: u64) -> Result<(), Failure> {
        if count > u64::from(self.parameters.slots) {
            return Err(Failure::Protocol("the client announces more than it has room for"));
        }
        for _ in 0..count {
            match self.parameters.operation {
                Operation::Send => return Err(Failure::Protocol("the client repeats itself")),
                Operation::Write => {
                    self.data.get(self.data.slot(self.done), &mut self.scratch);
                    let offset = self.pattern.mismatch(self.done, &self.scratch);
                    self.mismatches.note(self.done, offset);
                }
                Operation::Read => self.fill(self.done + u64::from(self.parameters.slots)),
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Puts `message` where the client will read it.
    fn fill(&mut self, message: u64) {
        self.pattern.fill(message, &mut self.scratch);
        self.data.put(self.data.slot(message), &self.scratch);
    }

    fn credit(&mut self) -> Result<(), Failure> {
        let count = self.done - self.credited;
        if self.finished || count < self.parameters.batch() {
            return Ok(());
        }
        self.credited = self.done;
        self.control.send(&mut self.session, Control::Credit { count })
    }

    fn summarize(&mut self, messages: u64) -> Result<(), Failure> {
        if !self.parameters.has_credits() {
            // Nobody told of the messages one by one.
            self.done = messages;
        }
        self.finished = true;
        let summary = Control::Summary { messages: self.done, mismatches: self.mismatches };
        self.control.send(&mut self.session, summary)
    }
}
