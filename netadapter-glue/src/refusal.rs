//! Frames that the operating system refuses, and how long they are offered again.
//!
//! `ENOBUFS` is the result of a queue below that is full, which empties, and of a frame that never leaves: a veth pair whose
//! other end has a smaller MTU and a filter on the way out answer so each time. The two differ only in time, and a descriptor
//! is writable in both cases. So the oldest frame is offered again each [`RETRY`], and is given up where none has left for
//! [`PATIENCE`].
//!
//! All frames behind it wait meanwhile, those of other peers, and answers to their ARP. So what a refused frame has cost once
//! it must not cost again, however many follow, and whatever lengths a peer asks for:
//! * A frame that is at least as long as one that was given up is given up when it is refused, without a wait. A frame of
//!   that length that leaves ends this: somebody has raised the MTU, or the queue was full after all.
//! * Each wait in vain halves the next, until [`MEMORY`] has passed: all waits of that time take less than twice
//!   [`PATIENCE`] together.

use core::time::Duration;
use std::time::Instant;

/// How long the oldest frame is offered again while none leaves. A shaper that lets one frame of 4 KiB pass in that time is
/// one of 330 kb/s.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The time between two offers.
pub(crate) const RETRY: Duration = Duration::from_micros(500);

/// Nobody waits for less: what is left of [`PATIENCE`] after some waits in vain is none.
const WAIT_MIN: Duration = Duration::from_millis(2);

/// How long a wait in vain shortens those after it.
pub(crate) const MEMORY: Duration = Duration::from_secs(10);

/// The refusals of one socket or device. It is clear, and costs nothing, as long as there was none.
#[derive(Debug)]
pub(crate) struct Refusal {
    wait: Option<Wait>,
    /// The length in bytes of the shortest frame that was given up, from which on there is no wait.
    hopeless_len: usize,
    /// The length of the next wait.
    patience: Duration,
    /// The end of the last wait in vain.
    vain_at: Option<Instant>,
}

/// The wait for the oldest frame to leave.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Instant,
    offered_at: Instant,
}

impl Refusal {
    pub(crate) const fn new() -> Self {
        Self { wait: None, hopeless_len: usize::MAX, patience: PATIENCE, vain_at: None }
    }

    /// Whether the oldest frame, of so many bytes, stays after this refusal, to be offered again later. Otherwise it is to be
    /// given up.
    pub(crate) fn stays(&mut self, frame_len: usize, now: Instant) -> bool {
        if frame_len >= self.hopeless_len {
            self.wait = None;
            return false;
        }
        self.remember(now);
        let waited = now.saturating_duration_since(self.put_off(now));
        if waited < self.patience {
            return true;
        }
        if !self.patience.is_zero() {
            self.vain_at = Some(now);
        }
        self.patience =
            Some(self.patience / 2).filter(|half| *half >= WAIT_MIN).unwrap_or_default();
        self.hopeless_len = frame_len;
        self.wait = None;
        false
    }

    /// Puts the next offer off, also of what cannot be given up. Returns since when nothing has left.
    pub(crate) fn put_off(&mut self, now: Instant) -> Instant {
        let since = self.wait.map_or(now, |wait| wait.since);
        self.wait = Some(Wait { since, offered_at: now });
        since
    }

    /// Forgets waits in vain that were long ago.
    fn remember(&mut self, now: Instant) {
        let is_over = |at: Instant| now.saturating_duration_since(at) >= MEMORY;
        if self.vain_at.is_some_and(is_over) {
            (self.vain_at, self.patience) = (None, PATIENCE);
        }
    }

    /// Frames have left, of which the longest has so many bytes.
    pub(crate) fn has_left(&mut self, longest: impl FnOnce() -> usize) {
        if self.wait.is_none() && self.hopeless_len == usize::MAX {
            return;
        }
        self.wait = None;
        if longest() >= self.hopeless_len {
            self.hopeless_len = usize::MAX;
        }
    }

    /// The oldest frame was given up for another reason.
    pub(crate) fn end_wait(&mut self) {
        self.wait = None;
    }

    /// Whether the oldest frame may be offered now. The clock is read during a wait only.
    pub(crate) fn is_due(&self, now: impl FnOnce() -> Instant) -> bool {
        self.wait.is_none_or(|wait| now().saturating_duration_since(wait.offered_at) >= RETRY)
    }

    /// When to offer again, counted from the last offer; `None` where no frame waits for time to pass.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.wait.map(|_| RETRY)
    }
}

#[cfg(test)]
mod tests;
