//! Recovery between two of ours: all gaps at once, those that the peer reports, and those in its READ responses.

use super::{Cause, Recovery};
use crate::env::Instant;
use crate::psn::Psn;
use crate::qp::reorder_window::REORDER_PACKETS;
use crate::qp::send::queue::{Found, SendQueue};
use crate::wire::gap_report::Gap;

impl Recovery {
    /// Acts on a report of what the peer misses. Returns what is sent again for that.
    pub(crate) fn gaps_reported(
        &mut self,
        psn: Psn,
        gaps: impl Iterator<Item = Gap>,
        sq: &mut SendQueue,
    ) -> Option<Found> {
        let lost = sq.gaps_reported(psn, gaps);
        if lost.is_some() {
            self.again(Cause::Nak, sq);
        }
        lost
    }

    /// The same of all gaps, which a peer of our make fills together.
    pub(super) fn watch_gaps(&mut self, now: Instant, sq: &mut SendQueue) -> bool {
        if !sq.responses_missing() {
            self.gap = None;
            return false;
        }
        let (una, end) = (sq.una(), sq.known_end());
        self.asked = if sq.is_open(self.asked.prev()) { self.asked } else { una };
        let behind = end.since(self.asked);
        let opened = self.gap.is_none() && behind > 0;
        // Responses that come together wait together.
        if opened || self.gap.is_some_and(|(_, since)| since == now) {
            self.gap = Some((end, now));
        }
        if behind.min(sq.early() as i32) > REORDER_PACKETS as i32 {
            self.request_gaps(now, Some((end, now)), sq);
        }
        opened
    }

    /// Requests the responses again that are missing before the end of `gap`. Others may have come since.
    pub(super) fn request_gaps(
        &mut self,
        now: Instant,
        gap: Option<(Psn, Instant)>,
        sq: &mut SendQueue,
    ) {
        let Some((end, _)) = gap else { return };
        let newest = sq.known_end();
        self.gap = (newest.since(end) > 0).then_some((newest, now));
        self.asked = end;
        if let Some(Found { first, .. }) = sq.responses_lost(end, false) {
            self.again(Cause::ImpliedNak, sq);
            self.requested = Some((first, end));
            self.reorder_window.count_resend();
        }
    }

    /// Requests all responses again that are missing: it is too late for them. Of a READ of which some have come, the peer has
    /// sent all.
    pub(super) fn all_are_lost(&mut self, sq: &mut SendQueue) {
        sq.gaps_are_old();
        (self.asked, self.gap) = (sq.executed_end(), None);
        sq.responses_lost(self.asked, true);
    }
}
