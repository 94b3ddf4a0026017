//! Completions: the requests that they end, and the end of the connection.

use std::time::{Duration, Instant};

use driver::abi::*;

use super::ledger::Pending;
use super::{Endpoint, EndpointError, Event, Message, OWN, Operation, Result};
use crate::NdkError;
use crate::region::end_registration;

impl Endpoint {
    /// A post that the end of the connection has overtaken says no more than that. Events from before are still there.
    pub(super) fn late(&self, error: NdkError) -> EndpointError {
        if error.status == STATUS_CONNECTION_INVALID {
            self.ended.clone().unwrap_or_else(|| self.reason(error.into()))
        } else {
            error.into()
        }
    }

    /// The peer's disconnect, of which the consumer is told a moment after the requests were cancelled; `other` where
    /// there is none.
    fn reason(&self, other: EndpointError) -> EndpointError {
        if self.connector.wait_disconnected(SLICE) { EndpointError::Disconnected } else { other }
    }

    pub(super) fn take(
        &mut self,
        timeout: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Event>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(place) = self.events.iter().position(&wanted) {
                return Ok(self.events.remove(place));
            }
            if !self.pump(deadline)? {
                return Ok(None);
            }
        }
    }

    pub(super) fn pump_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + self.time_limit;
        while !done(self) {
            if !self.pump(deadline)? {
                return Err(EndpointError::TimedOut);
            }
        }
        Ok(())
    }

    /// Takes completions, and waits for the first one a while; false once `deadline` has passed without any.
    fn pump(&mut self, deadline: Instant) -> Result<bool> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        // Asked before the queue is: all that was completed before the end is in the queue then.
        let over = self.cancelled.is_some() || self.connector.is_disconnected();
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = if over { Duration::ZERO } else { left.min(SLICE) };
        let mut results = [NDK_RESULT_EX::EMPTY; LOOK];
        let disconnected = || self.connector.is_disconnected();
        match self.cq.wait_results_ex_or(&mut results, wait, &disconnected)? {
            0 if over => {
                let operation = self.cancelled.unwrap_or(Operation::Receive);
                let cancelled = EndpointError::Failed { operation, status: STATUS_CANCELLED };
                let ended = self.reason(cancelled);
                self.ended = Some(ended.clone());
                Err(ended)
            }
            0 => Ok(!left.is_zero()),
            taken => {
                results[..taken].iter().try_for_each(|result| self.account(result)).map(|()| true)
            }
        }
    }

    /// Why a request of ours has not done what it was to do, if one has not.
    pub(super) fn failure(&self) -> Option<EndpointError> {
        if let Some(failed @ EndpointError::Failed { .. }) = &self.ended {
            return Some(failed.clone());
        }
        let operation = self.cancelled.filter(|operation| *operation != Operation::Receive)?;
        Some(self.reason(EndpointError::Failed { operation, status: STATUS_CANCELLED }))
    }

    fn account(&mut self, result: &NDK_RESULT_EX) -> Result<()> {
        let pending = self.ledger.end(result.RequestContext.addr())?;
        if let Pending::Send { slot } = pending {
            self.sends.give_back(slot);
        }
        if !result.Status.is_success() {
            self.fail(pending.operation(), result.Status);
            return Ok(());
        }
        match pending {
            Pending::Receive { slot } => self.message(slot, result)?,
            Pending::Send { .. } => {}
            Pending::Request { operation, tag } => match u32::try_from(tag) {
                Ok(tag) => self.events.push_back(Event::Ended { operation, tag }),
                Err(_) if tag > OWN => self.waited[1] = tag - OWN,
                Err(_) => {}
            },
        }
        Ok(())
    }

    /// The first failure is the reason; the requests behind it are cancelled.
    fn fail(&mut self, operation: Operation, status: NTSTATUS) {
        if status == STATUS_CANCELLED {
            // A receive that is cancelled is the peer's leave; a request of ours is more.
            if matches!(self.cancelled, None | Some(Operation::Receive)) {
                self.cancelled = Some(operation);
            }
        } else {
            self.ended.get_or_insert(EndpointError::Failed { operation, status });
        }
    }

    fn message(&mut self, slot: usize, result: &NDK_RESULT_EX) -> Result<()> {
        let bytes = self.receives.message(slot, result.BytesTransferred as usize);
        let ends = result.Type == NdkOperationTypeReceiveAndInvalidate;
        let invalidated = ends.then_some(result.TypeSpecificCompletionOutput as u32);
        if let Some(token) = invalidated {
            end_registration(&mut self.registered, token);
        }
        self.events.push_back(Event::Message(Message { bytes, invalidated }));
        match self.post_receive(slot) {
            // The next look at the queue tells of the end.
            Err(EndpointError::Ndk(NdkError { status: STATUS_CONNECTION_INVALID, .. })) => Ok(()),
            posted => posted,
        }
    }
}

/// Completions that one look takes.
pub(super) const LOOK: usize = 32;

/// How long one look at the completions takes where the thread cannot run the provider itself.
const SLICE: Duration = Duration::from_millis(100);
