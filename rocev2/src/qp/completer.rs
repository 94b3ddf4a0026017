//! The completer: takes the peer's answers, completes work requests, decides what is sent again.

use super::copy::scatter;
use super::retry::{Expiry, RetryTimer};
use super::work::{Acked, Completions, SendQueue, WcStatus};
use super::{Keys, PeerQp};
use crate::env::{Duration, Instant, Memory};
use crate::psn::Psn;
use crate::wire::{Aeth, DropReason, Ext, NakCode, Operation, Packet, Syndrome};

/// Retries without limit, on both sides of the wire (7 in CM and in the QP).
const RNR_RETRY_FOREVER: u8 = 7;

/// The answer side of a send queue.
#[derive(Debug)]
pub struct Completer {
    timer: RetryTimer,
    rnr_retry: u8,
    rnr_tries: u8,
    rnr_until: Option<Instant>,
    /// The packet that the last restart began at; a second NAK for it adds nothing.
    restarted_at: Option<Psn>,
    /// A packet sent once whose round trip is being measured.
    probe: Option<(Psn, Instant)>,
}

/// What the QP has to do about an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Nothing more.
    Done,
    /// The oldest request fails with this status and the QP goes to the error state.
    Fail(WcStatus),
}

/// What an answer needs beside the completer's own state.
pub struct Context<'a, M> {
    /// The connection.
    pub peer: &'a PeerQp,
    /// Domain and table of keys.
    pub keys: Keys<'a>,
    /// Registered bytes.
    pub memory: &'a mut M,
    /// The send queue.
    pub sq: &'a mut SendQueue,
    /// Where completions go.
    pub out: &'a mut Completions,
}

impl Completer {
    /// A completer that expects nothing.
    pub const fn new() -> Self {
        Self {
            timer: RetryTimer::new(),
            rnr_retry: 0,
            rnr_tries: 0,
            rnr_until: None,
            restarted_at: None,
            probe: None,
        }
    }

    /// Sets what the connection agreed on.
    pub fn connect(&mut self, peer: &PeerQp) {
        self.timer.connect(peer.ack_timeout_code, peer.retry_count);
        self.rnr_retry = peer.rnr_retry.min(RNR_RETRY_FOREVER);
    }

    /// Whether the peer asked for a pause that is not over.
    pub const fn paused(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// The next instant at which [`Self::handle_timeout`] has work.
    pub fn deadline(&self) -> Option<Instant> {
        self.rnr_until.or(self.timer.deadline())
    }

    /// Stops every timer.
    pub fn stop(&mut self) {
        self.timer.stop();
        self.rnr_until = None;
    }

    /// Notes that packets up to but excluding `next` have left.
    pub fn sent(&mut self, now: Instant, next: Psn, first_time: bool) {
        self.timer.sent(now);
        if first_time && self.probe.is_none() {
            self.probe = Some((next, now));
        }
    }

    /// Acts on expired timers.
    pub fn handle_timeout(&mut self, now: Instant, sq: &mut SendQueue) -> Verdict {
        if let Some(until) = self.rnr_until {
            if now >= until {
                self.rnr_until = None;
            }
            return Verdict::Done;
        }
        match self.timer.expired(now) {
            Expiry::None => Verdict::Done,
            Expiry::GiveUp => Verdict::Fail(WcStatus::TransportRetryExceeded),
            Expiry::Resend => {
                self.restart(sq);
                Verdict::Done
            }
        }
    }

    /// Acts on a response packet.
    ///
    /// # Errors
    /// [`DropReason`]: stale, foreign, reserved; nothing changed.
    pub fn handle<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Result<Verdict, DropReason> {
        let psn = packet.bth.psn;
        if !cx.sq.expects(psn) {
            return Err(DropReason::StaleResponse);
        }
        match (packet.bth.opcode.operation(), packet.ext) {
            (Operation::Acknowledge, Ext::Aeth(aeth)) => {
                self.handle_aeth(now, psn, aeth, cx.sq, cx.out)
            }
            (Operation::ReadResponse, _) => Ok(self.handle_read_data(now, packet, cx)),
            // An atomic was never asked for.
            _ => Ok(self.refuse(now, psn, WcStatus::BadResponse, cx.sq, cx.out)),
        }
    }

    fn handle_aeth(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Aeth,
        sq: &mut SendQueue,
        out: &mut Completions,
    ) -> Result<Verdict, DropReason> {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                let acked = self.acknowledge(now, psn.add(1), sq, out);
                if acked.lost_read {
                    self.restart_once(sq);
                }
                Ok(Verdict::Done)
            }
            // Nothing was sent since: this is the refusal that made the pause, once more.
            Syndrome::RnrNak(_) if self.paused() && psn == sq.una() => {
                Err(DropReason::StaleResponse)
            }
            Syndrome::RnrNak(timer) => {
                self.acknowledge(now, psn, sq, out);
                Ok(self.handle_rnr(now, timer.duration(), sq))
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                self.acknowledge(now, psn, sq, out);
                self.restart_once(sq);
                Ok(Verdict::Done)
            }
            Syndrome::Nak(NakCode::InvalidRequest) => {
                Ok(self.refuse(now, psn, WcStatus::RemoteInvalidRequest, sq, out))
            }
            Syndrome::Nak(NakCode::RemoteAccess) => {
                Ok(self.refuse(now, psn, WcStatus::RemoteAccess, sq, out))
            }
            Syndrome::Nak(NakCode::RemoteOperational) => {
                Ok(self.refuse(now, psn, WcStatus::RemoteOperation, sq, out))
            }
            Syndrome::Nak(NakCode::InvalidRd) | Syndrome::Reserved(_) => {
                Err(DropReason::ReservedSyndrome)
            }
        }
    }

    /// What an answer says about everything before `psn` counts before what it says about `psn`:
    /// progress restores the tries that a refusal then takes from.
    fn acknowledge(
        &mut self,
        now: Instant,
        psn: Psn,
        sq: &mut SendQueue,
        out: &mut Completions,
    ) -> Acked {
        let acked = sq.acknowledge(psn, out);
        if acked.progress {
            self.progress(now, sq);
        }
        acked
    }

    /// A refusal acknowledges what came before and ends the request that owns `psn`. The answer to a
    /// READ before it was lost and will not come again.
    fn refuse(
        &mut self,
        now: Instant,
        psn: Psn,
        status: WcStatus,
        sq: &mut SendQueue,
        out: &mut Completions,
    ) -> Verdict {
        if self.acknowledge(now, psn, sq, out).lost_read {
            sq.flush_before(psn, out);
        }
        Verdict::Fail(status)
    }

    fn handle_rnr(&mut self, now: Instant, pause: Duration, sq: &mut SendQueue) -> Verdict {
        if self.rnr_retry != RNR_RETRY_FOREVER {
            if self.rnr_tries == self.rnr_retry {
                return Verdict::Fail(WcStatus::RnrRetryExceeded);
            }
            self.rnr_tries += 1;
        }
        self.restart(sq);
        // What was sent behind the refused packet gets no answer of its own.
        self.restarted_at = None;
        self.rnr_until = Some(now + pause);
        self.timer.pause(now + pause);
        Verdict::Done
    }

    fn handle_read_data<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        cx: &mut Context<'_, M>,
    ) -> Verdict {
        let Context { peer, keys, memory, sq, out } = cx;
        let psn = packet.bth.psn;
        let acked = self.acknowledge(now, psn, sq, out);
        if acked.lost_read {
            self.restart_once(sq);
            return Verdict::Done;
        }
        let Some((wqe, done)) = sq.head().filter(|(wqe, _)| wqe.is_read()) else {
            return Verdict::Fail(WcStatus::BadResponse);
        };
        let pmtu = peer.pmtu.bytes() as u64;
        let offset = u64::from(done) * pmtu;
        let expected = wqe.len.saturating_sub(offset).min(pmtu);
        let ends = packet.bth.opcode.place().is_last();
        // The last packet of the message must end a response; earlier ones may, where a long READ
        // was cut into several requests. A resent READ is answered with FIRST by some peers and
        // with MIDDLE by rxe, so the two are not told apart.
        let must_end = done + 1 == wqe.packets;
        if packet.payload.len() as u64 != expected || (must_end && !ends) {
            return Verdict::Fail(WcStatus::BadResponse);
        }
        match scatter(&wqe.wr.sgl, offset, packet.payload, keys.pd, keys.mrs, *memory) {
            Ok(()) => {
                sq.advance(1, out);
                self.progress(now, sq);
                Verdict::Done
            }
            Err(_) => Verdict::Fail(WcStatus::LocalProtection),
        }
    }

    /// Starts over at the oldest unacknowledged packet, unless that was done already and nothing
    /// has moved since: a NAK may arrive twice.
    fn restart_once(&mut self, sq: &mut SendQueue) {
        if self.restarted_at != Some(sq.una()) {
            self.restart(sq);
        }
    }

    fn restart(&mut self, sq: &mut SendQueue) {
        sq.rewind();
        self.restarted_at = Some(sq.una());
        self.probe = None;
    }

    fn progress(&mut self, now: Instant, sq: &SendQueue) {
        self.rnr_tries = 0;
        self.restarted_at = None;
        if let Some((psn, sent_at)) = self.probe
            && sq.una().since(psn) >= 0
        {
            self.timer.sample(now.saturating_since(sent_at));
            self.probe = None;
        }
        if self.rnr_until.is_none() {
            self.timer.progress(now, sq.outstanding());
        }
    }
}

impl Default for Completer {
    fn default() -> Self {
        Self::new()
    }
}
