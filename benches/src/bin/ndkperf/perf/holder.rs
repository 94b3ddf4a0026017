//! The half of an end that holds the ring, and checks.

use std::sync::Arc;
use std::time::Duration;

use driver::abi::{NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE};
use ndk_consumer::{Pd, Remote};

use super::Mismatches;
use super::budget::Budget;
use super::control::{Control, Operation, Parameters};
use super::link::Link;
use super::outcome::Flow;
use super::ring::Ring;
use crate::failure::Failure;
use crate::pattern::Pattern;

/// Where the messages of the peer go, or come from.
#[derive(Debug)]
pub(super) struct Holder {
    parameters: Parameters,
    pattern: Pattern,
    /// What the peer writes to or reads from.
    data: Ring,
    scratch: Vec<u8>,
    /// Messages that are checked, or whose slot is filled anew.
    done: u64,
    credited: u64,
    mismatches: Mismatches,
    /// What the peer had sent when it was over.
    finished: Option<Flow>,
}

impl Holder {
    pub(super) fn new(
        pd: &Arc<Pd>,
        parameters: Parameters,
        budget: Budget,
    ) -> Result<Self, Failure> {
        let rights = match parameters.operation {
            Operation::Send => 0,
            Operation::Write => NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
            Operation::Read => NDK_MR_FLAG_ALLOW_REMOTE_READ,
        };
        let mut holder = Self {
            parameters,
            pattern: Pattern::new(parameters.seed),
            data: Ring::new(pd, budget.data_slots, budget.size, rights)?,
            scratch: vec![0; budget.size],
            done: 0,
            credited: 0,
            mismatches: Mismatches::default(),
            finished: None,
        };
        if parameters.operation == Operation::Read {
            (0..u64::from(parameters.slots)).for_each(|message| holder.fill(message));
        }
        Ok(holder)
    }

    pub(super) fn remote(&self) -> Remote {
        self.data.remote()
    }

    /// Checks a message that was sent.
    ///
    /// # Errors
    /// It should have been written or read.
    pub(super) fn check(&mut self, inbox: &Ring, slot: usize, len: usize) -> Result<(), Failure> {
        if self.parameters.operation != Operation::Send {
            return Err(Failure::Protocol("the peer sends what it should write or read"));
        }
        let mut offset = None;
        if len != self.scratch.len() {
            offset = Some(len.min(self.scratch.len()));
        } else if self.parameters.verify {
            inbox.get(slot, &mut self.scratch);
            offset = self.pattern.mismatch(self.done, &self.scratch);
        }
        self.mismatches.note(self.done, offset);
        self.done += 1;
        Ok(())
    }

    /// The peer has written or read the next `count` messages.
    pub(super) fn their_turn(&mut self, count: u64) -> Result<(), Failure> {
        if count > u64::from(self.parameters.slots) {
            return Err(Failure::Protocol("the peer announces more than there is room for"));
        }
        for _ in 0..count {
            match self.parameters.operation {
                Operation::Send => return Err(Failure::Protocol("the peer repeats itself")),
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

    /// Puts `message` where the peer will read it.
    fn fill(&mut self, message: u64) {
        self.pattern.fill(message, &mut self.scratch);
        self.data.put(self.data.slot(message), &self.scratch);
    }

    pub(super) fn credit(&mut self, link: &mut Link) -> Result<(), Failure> {
        let count = self.done - self.credited;
        if self.is_over() || count < self.parameters.batch() {
            return Ok(());
        }
        self.credited = self.done;
        link.send(Control::Credit { count })
    }

    /// The peer had so many messages in all; the answer.
    pub(super) fn summarize(&mut self, messages: u64, uncounted: u64, elapsed_ns: u64) -> Control {
        if !self.parameters.has_credits() {
            // Nobody told of the messages one by one.
            self.done = messages;
        }
        let counted = self.done.saturating_sub(uncounted);
        self.finished = Some(Flow {
            messages: counted,
            bytes: counted * u64::from(self.parameters.size),
            elapsed: Duration::from_nanos(elapsed_ns),
        });
        Control::Summary { messages: self.done, mismatches: self.mismatches }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.finished.is_some()
    }

    pub(super) const fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn flow(&self) -> Flow {
        self.finished.unwrap_or_default()
    }

    pub(super) const fn mismatches(&self) -> Mismatches {
        self.mismatches
    }
}
