//! READ requests that were sent more than once, as long as a copy may be in the network.
//!
//! A responder executes a duplicate READ on the memory as it is then. Some, rxe among them, refuse one
//! whose key has ended by a NAK that ends the connection. A consumer that has the data may let the key end
//! at once, and a delayed copy of the request would then kill a healthy connection. Nothing that a
//! requester sends later can take a copy back, so a READ does not complete while a copy of it can still
//! arrive: each has had its response, or is older than a packet lives.
//!
//! The life of a packet is several times the round trip here, as a responder may have the copy and be slow.
//! A responder works in order: once a request that left behind the copy has its response, the copy was
//! executed, lost, or overtaken, and an overtaken copy is late only by what a network reorders.
//!
//! A peer of our own make responds to a stale copy by a NAK that ends nothing (`Revoked::again`), and no READ waits for
//! that: only the count of needless resends looks at the copies.
//!
//! The last packet of each response counts the responses. Where the peer was known to have executed the
//! READ before it was requested again, only the new copy is in the network, and its response often shows by
//! itself: it begins (IBTA ch. 9, duplicate READ) or ends (rxe) where the first one did not.

use crate::env::{Duration, Instant};
use crate::psn::Psn;
use crate::qp::work::MAX_READS;
use crate::wire::Place;
use crate::wire::mad::Make;
use alloc::vec::Vec;

/// A later packet overtakes an earlier one by no more.
const OVERTAKEN: Duration = Duration::from_millis(10);

/// A READ request for responses that were requested before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) from: Psn,
    /// One past the last.
    pub(super) end: Psn,
    /// The peer had executed the READ before.
    pub(super) executed: bool,
    /// The first response did not begin at `from`.
    pub(super) begins: bool,
    /// The first response did not end at `end`.
    pub(super) ends: bool,
    /// One past the newest packet that was sent before the copy.
    pub(super) behind: Psn,
    pub(super) sent_at: Instant,
    /// The copy has arrived by then, or was lost.
    pub(super) until: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    again: Again,
    /// Copies that were sent, with the first one.
    copies: u8,
    /// Responses that ended since the second copy was sent.
    responses: u8,
}

/// The READs of one QP that have copies, [`MAX_READS`] at most; more are merged into one.
#[derive(Debug)]
pub(super) struct Copies {
    entries: Vec<Entry>,
    /// The peer's make.
    make: Make,
}

impl Copies {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), make: Make::Other }
    }

    /// Sets the make of the peer.
    pub(super) const fn set_make(&mut self, make: Make) {
        self.make = make;
    }

    /// Takes the memory for as many READs as may ever be in flight, once. READs that wait for their copies are not
    /// in flight any more, so that the number agreed on is no bound. Returns false where the memory is refused.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        self.entries.try_reserve_exact(MAX_READS).is_ok()
    }

    /// Whether no READ was sent twice.
    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Notes one more copy.
    pub(super) fn sent(&mut self, again: Again) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.overlaps(&again)) {
            entry.merge(&again);
        } else if self.entries.len() < self.entries.capacity() {
            self.entries.push(Entry { again, copies: 2, responses: 0 });
        } else if let Some(last) = self.entries.last_mut() {
            last.merge(&again);
        }
    }

    /// Notes a READ response, a duplicate or not. Returns whether it is the second to the same READ: then
    /// one copy was needless.
    pub(super) fn response_came(&mut self, psn: Psn, place: Place) -> bool {
        let Some(index) = self.entries.iter().position(|entry| entry.covers(psn)) else {
            return false;
        };
        let entry = &mut self.entries[index];
        let ends = psn.add(1) == entry.again.end && entry.copies < u8::MAX;
        entry.responses += u8::from(ends);
        let (in_vain, spent) = (ends && entry.responses == 2, entry.spent_by(psn, place));
        if spent {
            self.entries.swap_remove(index);
        }
        in_vain
    }

    /// Notes that the peer has executed everything before `end`: an older copy is spent, unless it was
    /// overtaken.
    pub(super) fn overtaken(&mut self, end: Psn) {
        for Entry { again, .. } in &mut self.entries {
            if end.since(again.behind) > 0 {
                again.until = again.until.min(again.sent_at + OVERTAKEN);
            }
        }
    }

    /// Forgets copies that cannot arrive any more.
    pub(super) fn expire(&mut self, now: Instant) {
        self.entries.retain(|entry| now < entry.again.until);
    }

    /// When [`Self::expire`] has work.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.entries.iter().map(|entry| entry.again.until).min()
    }

    /// Whether a copy of a READ before `psn` may be in the network, and do harm.
    pub(super) fn before(&self, psn: Psn) -> bool {
        self.make == Make::Other && self.entries.iter().any(|entry| psn.since(entry.again.from) > 0)
    }
}

impl Entry {
    fn covers(&self, psn: Psn) -> bool {
        psn.since(self.again.from) >= 0 && self.again.end.since(psn) > 0
    }

    fn overlaps(&self, other: &Again) -> bool {
        other.end.since(self.again.from) > 0 && self.again.end.since(other.from) > 0
    }

    /// Adds one more copy. Where it requests other responses, their count tells nothing any more.
    fn merge(&mut self, other: &Again) {
        let Again { from, end, until, .. } = *other;
        self.copies = if end == self.again.end { self.copies.saturating_add(1) } else { u8::MAX };
        let mine = &mut self.again;
        mine.from = if from.since(mine.from) < 0 { from } else { mine.from };
        mine.end = if end.since(mine.end) > 0 { end } else { mine.end };
        mine.until = mine.until.max(until);
        (mine.behind, mine.sent_at) = (other.behind, other.sent_at);
        mine.executed = false;
    }

    /// Whether this response is to the last copy.
    fn spent_by(&self, psn: Psn, place: Place) -> bool {
        let Again { from, end, executed, begins, ends, .. } = self.again;
        let begun = begins && psn == from && matches!(place, Place::First | Place::Only);
        let ended = ends && psn.add(1) == end && place.is_last();
        self.responses >= self.copies || executed && (begun || ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn copies() -> Copies {
        let mut copies = Copies::new();
        assert!(copies.reserve());
        copies
    }

    fn again(from: u32, end: u32) -> Again {
        let until = Instant::from_nanos(100);
        let (from, end) = (Psn::new(from), Psn::new(end));
        let (behind, sent_at) = (end, Instant::from_nanos(0));
        Again { from, end, executed: false, begins: false, ends: false, behind, sent_at, until }
    }

    #[test]
    fn each_copy_is_answered_once() {
        let mut copies = copies();
        copies.sent(again(0xff_fffe, 3));
        copies.sent(again(0xff_fffe, 3));
        for (n, in_vain) in [(1, false), (2, true), (3, false)] {
            assert!(copies.before(Psn::new(3)), "{n}");
            assert!(!copies.response_came(Psn::new(0xff_fffe), Place::First));
            assert_eq!(copies.response_came(Psn::new(2), Place::Last), in_vain);
        }
        assert!(!copies.before(Psn::new(3)) && copies.deadline().is_none());
    }

    #[test]
    fn a_copy_lives_for_its_time() {
        let mut copies = copies();
        copies.sent(again(5, 6));
        let until = copies.deadline().unwrap();
        copies.expire(until - Duration::from_nanos(1));
        assert!(copies.before(Psn::new(6)) && !copies.before(Psn::new(5)));
        copies.expire(until);
        assert!(!copies.before(Psn::new(6)));
    }

    /// A copy without a response waits for as long as the peer may take, but no longer than the network
    /// reorders once a packet that left behind it has its response.
    #[test]
    fn an_answer_to_something_newer_ends_the_wait() {
        let mut copies = copies();
        let until = Instant::from_nanos(0) + Duration::from_secs(1);
        copies.sent(Again { until, behind: Psn::new(9), ..again(5, 6) });
        copies.overtaken(Psn::new(9));
        assert_eq!(copies.deadline(), Some(until), "that was sent before it");
        copies.overtaken(Psn::new(10));
        assert_eq!(copies.deadline(), Some(Instant::from_nanos(0) + OVERTAKEN));
    }

    #[test]
    fn the_only_copy_under_way_shows_itself() {
        for (begins, ends, psn, place) in [
            (true, false, 5, Place::Only),
            (true, false, 5, Place::First),
            (false, true, 8, Place::Last),
        ] {
            for executed in [true, false] {
                let mut copies = copies();
                copies.sent(Again { executed, begins, ends, ..again(5, 9) });
                assert!(!copies.response_came(Psn::new(6), Place::Middle));
                assert!(copies.before(Psn::new(9)), "the first answer");
                copies.response_came(Psn::new(psn), place);
                assert_eq!(copies.before(Psn::new(9)), !executed);
            }
        }
    }

    /// A stale copy does no harm to a connection between two of ours: no READ waits for it, and it counts all the same.
    #[test]
    fn a_keeper_is_not_waited_for() {
        let mut copies = copies();
        copies.set_make(Make::Keeper);
        copies.sent(again(5, 6));
        assert!(!copies.before(Psn::new(6)));
        assert!(!copies.response_came(Psn::new(5), Place::Only));
        assert!(copies.response_came(Psn::new(5), Place::Only), "the second was in vain");
    }

    #[test]
    fn too_many_are_one() {
        let mut copies = copies();
        for n in 0..100 {
            copies.sent(again(10 * n, 10 * n + 1));
        }
        for n in 0..100 {
            assert!(copies.before(Psn::new(10 * n + 1)));
        }
        copies.expire(Instant::from_nanos(100));
        assert!(!copies.before(Psn::new(2000)));
    }
}
