//! The units in which READ responses leave, and the watch over one of them.

use super::{ReadResponder, Reply};
use crate::env::Instant;
use crate::psn::Psn;
use crate::qp::unit_watch::UnitWatch;
use crate::units::Fate;
use crate::wire::DividedUnit;

impl ReadResponder {
    /// Whether the response that leaves next was sent before.
    pub(crate) fn responds_again(&self) -> bool {
        self.replays && self.replies.front().is_some_and(Reply::again)
    }

    /// The response that leaves next, and how many follow it whose PSNs do, with itself.
    pub(crate) fn next_responses(&self) -> Option<(Psn, u32)> {
        let first = self.replies.front()?;
        let follow = |end: Psn, reply: &Reply| if reply.next == end { reply.end } else { end };
        let end = self.replies.iter().skip(1).fold(first.end, follow);
        Some((first.next, end.since(first.next).cast_unsigned()))
    }

    /// Watches a unit of a run that leaves now, of the responses that [`Self::next_responses`] told before.
    pub(crate) fn watch_unit(
        &mut self,
        now: Instant,
        responses: Option<(Psn, u32)>,
        unit: DividedUnit,
    ) {
        let fits = |(_, count): &(Psn, u32)| unit.behind + unit.packets <= *count as usize;
        if let Some((next, _)) = responses.filter(fits)
            && self.watched.is_none()
        {
            self.watched = Some(UnitWatch::of(now, next, unit));
        }
    }

    /// Forgets the unit that is watched.
    pub(crate) fn forget_unit(&mut self) {
        self.watched = None;
    }

    /// The fate of the unit that is watched. The peer has its responses once it has sent so many READs that theirs needs no record
    /// ([`Self::accept`]).
    pub(crate) fn judge_unit(&mut self) -> Option<Fate> {
        let unit = self.watched?;
        let oldest = self.records.front().map(|record| record.first);
        let has = oldest.filter(|first| first.since(unit.end()) >= 0);
        // No packet of it has come for sure as long as it may be asked for again.
        let fate = unit.fate(has.unwrap_or(unit.first()))?;
        self.watched = None;
        Some(fate)
    }
}
