//! Worlds in which nothing is lost, late or twice, no host stands still and no consumer leaves: nothing is sent again there, so no
//! mistake hides behind the retransmission that mends it.

use super::cores::Core;
use super::world::{Host, Step, World, require};
use rocev2::counters::Counter;

/// What such a world leads to on no host: timers without a need, and what they send.
const NEVER: [Counter; 17] = [
    Counter::LocalAckTimeoutErr,
    Counter::CompleterRetryErr,
    Counter::TailLossProbes,
    Counter::NeedlessResends,
    Counter::ReadRequestsResent,
    Counter::ResentNakPkts,
    Counter::ResentImpliedNakPkts,
    Counter::PacketSeqErr,
    Counter::ImpliedNakSeqErr,
    Counter::EarlyReadResponses,
    Counter::DuplicateRequest,
    Counter::OutOfSeqRequest,
    Counter::SendSeqErr,
    Counter::AckRepeated,
    Counter::DropGap,
    Counter::DropStaleResponse,
    Counter::DropDuplicate,
];

/// A deadline that an answer has made idle still wakes a core, once for each frame or busy turn at most, and so do those of paths and of
/// connection management.
const IDLE_MAX: u64 = 16;

impl World {
    /// Something has happened for which this world is not to be held to it.
    pub(crate) fn explain(&mut self, what: &'static str) {
        if self.lossless && self.explained.is_none() {
            self.note(|_| format!("not lossless any more: {what}"));
            self.explained = Some(what);
        }
    }

    /// Nothing was sent twice, no ACK said nothing new, and no timer fired for nothing.
    pub(crate) fn check_lossless(&self) -> Step {
        if !self.lossless || self.explained.is_some() {
            return Ok(());
        }
        self.watch.check_once()?;
        self.hosts.iter().enumerate().try_for_each(|(at, host)| self.check_counters(at, host))
    }

    fn check_counters(&self, at: usize, host: &Host) -> Step {
        let Some(provider) = &host.provider else { return Ok(()) };
        let counters = provider.counters().transport;
        // A pause that an RNR NAK asks for is followed by copies.
        let refused = counters[Counter::RcvdRnrErr] + counters[Counter::SendRnrErr] > 0;
        for counter in NEVER.into_iter().filter(|_| !refused) {
            let count = counters[counter];
            require!(count == 0, "host {at}: {count} {} without a loss", counter.name());
        }
        for Core { worked, idle_timers, .. } in &host.cores {
            let most = worked + IDLE_MAX;
            require!(
                *idle_timers <= most,
                "host {at}: {idle_timers} timers for nothing, not {most}"
            );
        }
        Ok(())
    }
}
