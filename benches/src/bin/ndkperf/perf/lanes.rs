//! The queue pairs of one thread, and what goes over them: the same at both ends.

use std::time::Instant;

use super::control::Control;
use super::holder::Holder;
use super::link::{Heard, Link};
use super::plan::Limit;
use super::sender::Sender;
use crate::completions::Completions;
use crate::connection::{Connection, Event};
use crate::failure::Failure;

/// One queue pair, and its part in each direction.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) link: Link,
    pub(super) sender: Option<Sender>,
    pub(super) holder: Option<Holder>,
}

impl AsMut<Connection> for Lane {
    fn as_mut(&mut self) -> &mut Connection {
        &mut self.link.connection
    }
}

/// All of them, with one CQ.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) lanes: Vec<Lane>,
    completions: Completions,
    /// Room for the events of a turn.
    events: Vec<(usize, Event)>,
}

impl Lane {
    /// Both directions have had their last words.
    fn is_over(&self) -> bool {
        self.sender.as_ref().is_none_or(Sender::is_over)
            && self.holder.as_ref().is_none_or(Holder::is_over)
    }

    /// Posts what may be posted; whether there is more to do.
    fn advance(&mut self) -> Result<bool, Failure> {
        let Some(sender) = &mut self.sender else { return Ok(false) };
        sender.fill(&mut self.link)?;
        Ok(sender.is_busy(Instant::now()))
    }

    fn handle(&mut self, event: Event, now: Instant) -> Result<(), Failure> {
        match event {
            Event::Initiated { tag } if self.link.is_control(tag) => Ok(()),
            Event::Initiated { tag } => {
                self.expect_sender()?.completed(tag, now, true);
                Ok(())
            }
            Event::Silent { tag } => {
                self.expect_sender()?.completed(tag, now, false);
                Ok(())
            }
            Event::Received { tag, len } => {
                let heard = self.link.hear(tag, len)?;
                match (heard, &mut self.holder) {
                    (Heard::Control(control), _) => self.hear(control)?,
                    (Heard::Data, Some(holder)) => holder.check(self.link.inbox(), tag, len)?,
                    (Heard::Data, None) => return Err(Failure::Protocol(STRANGER)),
                }
                self.link.post_receive(tag)?;
                self.holder.as_mut().map_or(Ok(()), |holder| holder.credit(&mut self.link))
            }
        }
    }

    fn hear(&mut self, control: Control) -> Result<(), Failure> {
        match control {
            Control::Ready(remote) => self.expect_sender()?.ready(remote),
            Control::Credit { count } if self.expect_sender()?.credit(count) => {}
            Control::Summary { messages, mismatches } => {
                self.expect_sender()?.summarized(messages, mismatches);
            }
            Control::Turn { count } => self.expect_holder()?.their_turn(count)?,
            Control::Done { messages, uncounted, elapsed_ns, interrupted } => {
                let summary = self.expect_holder()?.summarize(messages, uncounted, elapsed_ns);
                self.link.send(summary)?;
                if let Some(sender) = &mut self.sender {
                    sender.told(interrupted);
                }
            }
            Control::Start(_) | Control::Refused | Control::Credit { .. } => {
                return Err(Failure::Protocol("the peer repeats itself"));
            }
        }
        Ok(())
    }

    fn expect_sender(&mut self) -> Result<&mut Sender, Failure> {
        self.sender.as_mut().ok_or(Failure::Protocol(STRANGER))
    }

    fn expect_holder(&mut self) -> Result<&mut Holder, Failure> {
        self.holder.as_mut().ok_or(Failure::Protocol(STRANGER))
    }
}

impl Lanes {
    pub(super) fn new(lanes: Vec<Lane>, completions: Completions) -> Self {
        Self { lanes, completions, events: Vec::with_capacity(64) }
    }

    pub(super) const fn stop_when(&mut self, stop: fn() -> bool) {
        self.completions.stop_when(stop);
    }

    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut Sender> {
        self.lanes.iter_mut().filter_map(|lane| lane.sender.as_mut())
    }

    /// Tells the peer where its messages go, so that it begins.
    pub(super) fn invite(&mut self) -> Result<(), Failure> {
        for lane in &mut self.lanes {
            if let Some(holder) = &lane.holder {
                lane.link.send(Control::Ready(holder.remote()))?;
            }
        }
        Ok(())
    }

    /// Waits until the peer has told where our messages go.
    pub(super) fn wait_ready(&mut self) -> Result<(), Failure> {
        while self.senders().any(|sender| !sender.is_ready()) {
            self.turn()?;
        }
        Ok(())
    }

    /// Moves all messages up to a limit of each queue pair; `each` is asked after each turn whether to end early.
    pub(super) fn send(
        &mut self,
        limit: impl Fn(usize) -> Option<Limit>,
        mut each: impl FnMut(&[Lane]) -> bool,
    ) -> Result<(), Failure> {
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(sender) = &mut lane.sender {
                sender.begin(limit(place));
            }
        }
        loop {
            if each(&self.lanes) {
                self.senders().for_each(Sender::interrupt);
            }
            let mut busy = false;
            for lane in &mut self.lanes {
                busy |= lane.advance()?;
            }
            if !busy {
                return Ok(());
            }
            self.turn()?;
        }
    }

    /// Exchanges the last words, without waiting for the end of our own.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        for lane in &mut self.lanes {
            if let Some(sender) = &mut lane.sender {
                sender.announce(&mut lane.link, 1)?;
                lane.link.send(sender.done())?;
            }
        }
        while !self.lanes.iter().all(Lane::is_over) {
            self.turn()?;
        }
        Ok(())
    }

    /// Waits until the peer has all that was sent, the last words included.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        while !self.lanes.iter().all(|lane| lane.link.connection.is_idle()) {
            self.turn()?;
        }
        Ok(())
    }

    /// Waits once, and acts on what has come.
    fn turn(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let waits = |lane: &Lane| lane.sender.as_ref().and_then(|sender| sender.waits_until(now));
        let until = self.lanes.iter().filter_map(waits).min();
        self.completions.wait(&mut self.lanes, until, &mut self.events)?;
        let now = Instant::now();
        for (place, event) in self.events.drain(..) {
            self.lanes[place].handle(event, now)?;
        }
        for lane in &mut self.lanes {
            if let Some(sender) = &mut lane.sender {
                sender.announce_batch(&mut lane.link)?;
            }
        }
        Ok(())
    }
}

const STRANGER: &str = "the peer does not speak the ndkperf protocol";
