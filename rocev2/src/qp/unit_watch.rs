//! The watch over a unit of several packets: whether any of its packets came as it left.
//!
//! A packet that is sent again leaves singly. So where each packet of a unit had to be sent again, and then came, the unit was
//! lost whole, and single packets pass. Where one came that was sent once, the unit was divided and carried.

use crate::env::Instant;
use crate::psn::Psn;
use crate::units::{Fate, Outcome};
use crate::wire::DividedUnit;
use crate::wire::mad::Make;

/// A unit whose fate is not known yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitWatch {
    /// Its first packet, and one past its last.
    first: Psn,
    end: Psn,
    /// The packets before it were sent again.
    again_to: Psn,
    /// The outcome, where it is known already.
    known: Option<Outcome>,
    sent_at: Instant,
    /// Its bytes.
    len: usize,
}

impl UnitWatch {
    /// Watches a unit of a run that leaves now; its packets take the PSNs from `next` on, one each.
    pub(crate) const fn of(now: Instant, next: Psn, unit: DividedUnit) -> Self {
        // Fewer than 2^16 packets.
        let first = next.add(unit.behind as u32);
        let end = first.add(unit.packets as u32);
        Self { first, end, again_to: first, known: None, sent_at: now, len: unit.len }
    }

    /// Its first packet.
    pub(crate) const fn first(&self) -> Psn {
        self.first
    }

    /// One past its last packet.
    pub(crate) const fn end(&self) -> Psn {
        self.end
    }

    /// Notes that the packet is sent again, which the peer missed.
    pub(crate) fn sent_again(&mut self, psn: Psn, make: Make) {
        self.missed(psn, make);
        if psn == self.again_to && psn != self.end {
            self.again_to = psn.add(1);
        }
    }

    /// A peer that drops what comes behind a missing packet may have dropped the unit.
    fn missed(&mut self, psn: Psn, make: Make) {
        if make == Make::Other && psn.since(self.first) < 0 {
            self.known = Some(Outcome::Unknown);
        }
    }

    /// Notes that the peer asks for packets again, which are READ responses: the oldest that it misses come first.
    pub(crate) fn asked_for(&mut self, psn: Psn, packets: u32, make: Make) {
        self.missed(psn, make);
        let end = psn.add(packets);
        let missing = self.end.since(self.again_to) > 0;
        if missing && psn.since(self.again_to) > 0 {
            self.known.get_or_insert(Outcome::Passed);
        } else if missing && end.since(self.again_to) > 0 {
            self.again_to = if end.since(self.end) > 0 { self.end } else { end };
        }
    }

    /// The fate, where the peer has all packets before `acked` and perhaps more; `None` where it is not known yet.
    pub(crate) fn fate(&self, acked: Psn) -> Option<Fate> {
        let Self { again_to, end, known, sent_at, len, .. } = *self;
        let outcome = if known.is_some() {
            known
        } else if again_to == end {
            (acked.since(end) >= 0).then_some(Outcome::Lost)
        } else {
            (acked.since(again_to) > 0).then_some(Outcome::Passed)
        };
        outcome.map(|outcome| Fate { outcome, sent_at, len })
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::*;
    use super::*;

    /// A unit of 4 packets from the PSN before the wrap on.
    fn watch() -> UnitWatch {
        let unit = DividedUnit { behind: 2, packets: 4, len: 4000 };
        UnitWatch::of(Instant::from_nanos(5), psn(0).back(2), unit)
    }

    fn psn(packet: u32) -> Psn {
        Psn::new(0xff_fffe).add(packet)
    }

    fn outcome(watch: &UnitWatch, acked: u32) -> Option<Outcome> {
        watch.fate(psn(acked)).map(|fate| fate.outcome)
    }

    #[test]
    fn a_unit_is_lost_once_all_of_it_has_come_again() {
        let mut watch = watch();
        for packet in 0..4 {
            assert_eq!(outcome(&watch, packet), None, "{packet}");
            watch.sent_again(psn(packet), Make::Keeper);
        }
        assert_eq!((outcome(&watch, 3), outcome(&watch, 4)), (None, Some(Lost)));
        assert_eq!(outcome(&watch, 9), Some(Lost));
        let fate = watch.fate(psn(4)).unwrap();
        assert_eq!((fate.sent_at, fate.len), (Instant::from_nanos(5), 4000));
    }

    #[test]
    fn a_packet_that_was_sent_once_shows_that_the_unit_passed() {
        for again in 0..4 {
            let mut watch = watch();
            (0..again).for_each(|packet| watch.sent_again(psn(packet), Make::Keeper));
            assert_eq!((outcome(&watch, again), outcome(&watch, again + 1)), (None, Some(Passed)));
            assert_eq!(outcome(&watch, 9), Some(Passed));
        }
        // The first came, and the second did not.
        let mut watch = watch();
        (1..4).for_each(|packet| watch.sent_again(psn(packet), Make::Keeper));
        assert_eq!(outcome(&watch, 1), Some(Passed));
    }

    #[test]
    fn a_packet_counts_once_however_often_it_is_sent_again() {
        let mut watch = watch();
        for packet in [0, 0, 0, 1, 0, 1, 2] {
            watch.sent_again(psn(packet), Make::Keeper);
        }
        assert_eq!((outcome(&watch, 3), outcome(&watch, 4)), (None, Some(Passed)));
    }

    #[test]
    fn responses_that_are_asked_for_in_pieces_were_lost_together() {
        let mut watch = watch();
        for (from, packets) in [(0, 1), (0, 2), (2, 9)] {
            assert_eq!(outcome(&watch, 0), None);
            watch.asked_for(psn(from), packets, Make::Keeper);
        }
        assert_eq!((outcome(&watch, 3), outcome(&watch, 4)), (None, Some(Lost)));
        watch.asked_for(psn(7), 1, Make::Keeper);
        assert_eq!(outcome(&watch, 4), Some(Lost), "what is behind it is another unit's");
    }

    #[test]
    fn responses_that_are_not_asked_for_have_come() {
        for from in 1..6 {
            let mut watch = watch();
            watch.asked_for(psn(from), 1, Make::Keeper);
            assert_eq!(outcome(&watch, 0), Some(Passed), "{from}");
        }
        assert_eq!(outcome(&watch(), 4), Some(Passed));
    }

    /// Such a peer drops what comes behind a missing packet.
    #[test]
    fn behind_a_packet_that_is_missing_nothing_is_known_of_a_peer_that_drops() {
        for (make, known) in [(Make::Keeper, None), (Make::Other, Some(Unknown))] {
            let [mut sent, mut asked] = [watch(), watch()];
            sent.sent_again(psn(0).prev(), make);
            asked.asked_for(psn(0).prev(), 1, make);
            assert_eq!([outcome(&sent, 0), outcome(&asked, 0)], [known; 2], "{make:?}");
        }
        let mut watch = watch();
        (0..4).for_each(|packet| watch.sent_again(psn(packet), Make::Other));
        assert_eq!(outcome(&watch, 4), Some(Lost));
    }
}
