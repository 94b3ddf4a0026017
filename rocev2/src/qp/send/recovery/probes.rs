//! The requester's own probes: which ACK answers which, and what it shows of the oldest packet in flight.

use super::{Late, Recovery};
use crate::env::Instant;
use crate::qp::send::probe::LATE;
use crate::qp::send::queue::SendQueue;

/// So many packets without a loss show a path that loses none.
const CALM_PACKETS: i32 = 4096;

impl Recovery {
    /// Notes that a probe has left, whose ACK comes by `until` or was lost, where packets are lost. Returns whether it was one of
    /// the requester.
    pub(crate) fn probe_sent(&mut self, now: Instant, until: Instant, sq: &SendQueue) -> bool {
        let una = sq.una();
        let until = if self.is_lossy(sq) { until } else { until.max(now + LATE) };
        self.awaited.sent(now, until, self.probed_at(sq).is_none(), sq);
        // While the oldest packet waits to be resent, a probe tells nothing about it.
        if sq.next().since(una) > 0 && sq.resend().is_none_or(|range| range.psn != una) {
            let first = self.probed_at(sq).unwrap_or(now);
            self.probed = Some((una, [first, now]));
        }
        core::mem::take(&mut self.probe)
    }

    /// When the first probe behind the oldest packet in flight left, if it has no response.
    pub(crate) fn probed_at(&self, sq: &SendQueue) -> Option<Instant> {
        self.probed.filter(|(una, _)| *una == sq.una()).map(|(_, [first, _])| first)
    }

    /// Notes that an ACK has come that may be a probe's. Returns whether it tells something about the oldest packet. One that is
    /// an earlier probe's, unless that was lost, does not, but the peer is there: another probe is sent at once.
    pub(crate) fn probe_answered(&mut self, sq: &SendQueue) -> bool {
        let tells = self.awaited.came();
        self.probe |= !tells && self.probed_at(sq).is_some();
        tells
    }

    /// When the probe left whose ACK comes next, if no other's may.
    pub(crate) fn only_probe(&self) -> Option<Instant> {
        self.last_probe().filter(|_| self.awaited.is_one())
    }

    /// When the last probe left.
    pub(crate) fn last_probe(&self) -> Option<Instant> {
        self.probed.map(|(_, [_, last])| last)
    }

    /// Acts on the ACK of a probe that acknowledges nothing new. Returns whether the oldest packet is
    /// resent for that now; a READ, which the probe may have overtaken, first gets the reorder window.
    pub(crate) fn lacks(&mut self, now: Instant, sq: &mut SendQueue) -> bool {
        self.probed = None;
        let at = sq.acked();
        if sq.una() != at || sq.next().since(at) <= 0 {
            return false;
        }
        if sq.is_read_at(at) {
            if self.late.is_none_or(|late| late.at != at) {
                self.late = Some(Late { at, due: self.reorder_window.end(now), probed: true });
                sq.stall(true);
            }
            return false;
        }
        self.resend_missing(sq);
        true
    }

    /// Whether something was lost of late.
    fn is_lossy(&self, sq: &SendQueue) -> bool {
        self.lost_at.is_some_and(|at| (0..CALM_PACKETS).contains(&sq.acked().since(at)))
    }
}
