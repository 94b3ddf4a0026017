//! The use of units: whether several packets may leave as one, for the kernel or the NIC to divide.
//!
//! Some of these take a unit and lose it whole, silently, while each packet alone would have passed. Loss recovery repairs
//! that and hides it, at a fraction of the speed. So each queue pair watches the fate of one unit at a time: it is lost where
//! every packet of it had to be sent again, alone, and has come then. Where none passes, packets leave singly, and one
//! unit is tried now and then (RFC 8899 does so for sizes).
//!
//! Chance and congestion lose some packets of a unit and seldom all, and not those of each unit that follows. Where a unit is
//! lost, the next one leaves only once the fate of the one before is known, so a burst that takes many counts once. A peer that is
//! silent acknowledges no packet that leaves alone, and shows nothing. A unit that passes shows something of no longer ones.

use crate::env::{Duration, Instant};

/// Units in a row that are lost before packets leave singly over a path.
pub(crate) const LOST_OF_PATH: u8 = 4;
/// The same over all paths: the first is a path that gives units up, and those behind it may be of any.
pub(crate) const LOST_OF_LINK: u8 = 3;
/// Packets leave singly for so long the first time; for twice as long each time that the unit that is tried is lost, too.
const SINGLES: Duration = Duration::from_secs(4);
/// The doublings, at most: 256 s.
const DOUBLINGS_MAX: u32 = 6;
/// The fate of a unit that is tried is known by then, or never: its queue pair has gone, or has nothing to send.
const TRIAL: Duration = Duration::from_secs(4);

/// The outcome of a unit that was watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// A packet of it came as it left.
    Passed,
    /// All of it was lost.
    Lost,
    /// It left behind packets that were lost, and the peer may have dropped it for that.
    Unknown,
}

/// The fate of a unit that was watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Fate {
    /// Its outcome.
    pub outcome: Outcome,
    /// When it left.
    pub sent_at: Instant,
    /// Its bytes.
    pub len: usize,
}

/// The units that may leave now.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Allowance {
    /// Packets leave singly.
    None,
    /// One unit may be tried.
    One,
    /// All.
    All,
}

/// Where the use of units stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Units leave.
    Units,
    /// A unit was lost: packets leave singly, but for one unit at a time.
    Doubted,
    /// Packets leave singly.
    Singles,
    /// They do, but for one unit that is tried.
    Retried,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Event {
    /// A unit has passed.
    Passed,
    /// A unit was lost.
    Lost,
    /// Too many in a row were.
    LostAll,
    /// Packets have left singly for long enough.
    Due,
}

impl Stage {
    /// The stage after `event`; `None` where that changes nothing.
    const fn next(self, event: Event) -> Option<Self> {
        use Event::*;
        Some(match (self, event) {
            (Self::Units, Lost) => Self::Doubted,
            (Self::Doubted, LostAll) => Self::Singles,
            (Self::Singles, Due) => Self::Retried,
            (Self::Retried, Lost | LostAll) => Self::Singles,
            (Self::Doubted | Self::Singles | Self::Retried, Passed) => Self::Units,
            _ => return None,
        })
    }
}

/// The use of units over one path, or over all.
#[derive(Debug)]
pub(crate) struct UnitUse {
    stage: Stage,
    /// Units in a row that were lost, and as many as are too many.
    lost: u8,
    lost_max: u8,
    doublings: u32,
    /// A unit that left before then is no news.
    since: Instant,
    /// When the unit left that is tried.
    tried_at: Option<Instant>,
    /// Until then packets leave singly.
    until: Instant,
    /// Bytes of the shortest unit of those that were lost.
    lost_len: usize,
}

impl UnitUse {
    /// Units may leave, until so many in a row are lost.
    pub(crate) const fn new(lost_max: u8) -> Self {
        let start = Instant::from_nanos(0);
        Self {
            stage: Stage::Units,
            lost: 0,
            lost_max,
            doublings: 0,
            since: start,
            tried_at: None,
            until: start,
            lost_len: 0,
        }
    }

    /// Whether nothing speaks against units.
    #[inline]
    pub(crate) fn is_sound(&self) -> bool {
        self.stage == Stage::Units
    }

    /// The units that may leave now.
    pub(crate) fn allowance(&mut self, now: Instant) -> Allowance {
        if self.stage == Stage::Singles && now >= self.until {
            self.step(now, Event::Due);
        }
        let tries = self.tried_at.is_some_and(|at| now < at + TRIAL);
        match self.stage {
            Stage::Units => Allowance::All,
            Stage::Doubted | Stage::Retried if !tries => Allowance::One,
            Stage::Doubted | Stage::Retried | Stage::Singles => Allowance::None,
        }
    }

    /// Notes that a unit has left.
    pub(crate) fn left(&mut self, now: Instant) {
        if !self.is_sound() {
            self.tried_at = Some(now);
        }
    }

    /// Notes the fate of a unit. Returns whether that gives units up, for the first time or once more.
    pub(crate) fn judge(&mut self, now: Instant, fate: &Fate) -> bool {
        match fate.outcome {
            Outcome::Passed => self.passed(now, fate.len),
            Outcome::Lost => return self.lost(now, fate),
            // Another one is tried.
            Outcome::Unknown => self.tried_at = None,
        }
        false
    }

    fn passed(&mut self, now: Instant, len: usize) {
        if len >= self.lost_len {
            self.step(now, Event::Passed);
            (self.lost, self.doublings, self.lost_len) = (0, 0, 0);
        }
        self.tried_at = None;
    }

    fn lost(&mut self, now: Instant, fate: &Fate) -> bool {
        // Those that left together are lost together.
        if self.stage == Stage::Singles || !self.is_sound() && fate.sent_at < self.since {
            return false;
        }
        self.lost_len = if self.lost == 0 { fate.len } else { self.lost_len.min(fate.len) };
        self.lost = self.lost.saturating_add(1);
        let all = self.lost >= self.lost_max;
        self.step(now, if all { Event::LostAll } else { Event::Lost });
        self.since = now;
        self.tried_at = None;
        self.stage == Stage::Singles
    }

    fn step(&mut self, now: Instant, event: Event) {
        let Some(next) = self.stage.next(event) else { return };
        if next == Stage::Singles {
            self.until = now + SINGLES * (1 << self.doublings);
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        }
        self.stage = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::string::String;

    const STAGES: [Stage; 4] = [Stage::Units, Stage::Doubted, Stage::Singles, Stage::Retried];
    const EVENTS: [Event; 4] = [Event::Passed, Event::Lost, Event::LostAll, Event::Due];

    /// Every (stage, event) pair; a dot changes nothing.
    const TABLE: &str = "\
event \\ stage   Units       Doubted     Singles     Retried
Passed          .           Units       Units       Units
Lost            Doubted     .           .           Singles
LostAll         .           Singles     .           Singles
Due             .           .           Retried     .
";

    #[test]
    fn every_pair_is_as_in_the_table() {
        let mut table = String::from("event \\ stage   ");
        for stage in STAGES {
            write!(table, "{:12}", std::format!("{stage:?}")).unwrap();
        }
        for event in EVENTS {
            write!(table, "\n{:16}", std::format!("{event:?}")).unwrap();
            for stage in STAGES {
                let next = stage.next(event).map(|next| std::format!("{next:?}"));
                write!(table, "{:12}", next.as_deref().unwrap_or(".")).unwrap();
            }
        }
        assert!(table.lines().map(str::trim_end).eq(TABLE.lines()), "now:\n{table}");
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn fate(lost: bool, sent_at: Instant, len: usize) -> Fate {
        Fate { outcome: if lost { Outcome::Lost } else { Outcome::Passed }, sent_at, len }
    }

    /// Loses one unit after the other, each of which leaves now; whether units are given up.
    fn lose(units: &mut UnitUse, now: Instant, count: u8) -> bool {
        (0..count).any(|_| {
            units.left(now);
            units.judge(now, &fate(true, now, 8000))
        })
    }

    fn given_up(now: Instant) -> UnitUse {
        let mut units = UnitUse::new(LOST_OF_PATH);
        assert!(lose(&mut units, now, LOST_OF_PATH));
        units
    }

    #[test]
    fn units_in_a_row_are_given_up_and_one_that_passes_brings_them_back() {
        let mut units = UnitUse::new(LOST_OF_PATH);
        assert!(!lose(&mut units, at(0), LOST_OF_PATH - 1));
        assert_eq!(units.allowance(at(0)), Allowance::One);
        units.judge(at(0), &fate(false, at(0), 8000));
        assert_eq!(units.allowance(at(0)), Allowance::All);
        assert!(!lose(&mut units, at(1), LOST_OF_PATH - 1), "in a row");
        assert!(lose(&mut units, at(1), 1));
        assert_eq!(units.allowance(at(1)), Allowance::None);
    }

    /// A burst takes all that is under way.
    #[test]
    fn those_that_left_together_are_lost_together() {
        let mut units = UnitUse::new(LOST_OF_PATH);
        for _ in 0..100 {
            assert!(!units.judge(at(9), &fate(true, at(5), 8000)));
        }
        assert_eq!(units.allowance(at(9)), Allowance::One);
    }

    #[test]
    fn one_is_tried_at_a_time_and_another_where_its_fate_stays_unknown() {
        let mut units = UnitUse::new(LOST_OF_PATH);
        lose(&mut units, at(0), 1);
        units.left(at(1));
        assert_eq!(units.allowance(at(2)), Allowance::None);
        units.judge(at(2), &Fate { outcome: Outcome::Unknown, sent_at: at(1), len: 8000 });
        assert_eq!(units.allowance(at(2)), Allowance::One);
        units.left(at(1));
        let over = at(1) + TRIAL;
        assert_eq!(units.allowance(over), Allowance::One);
        assert!(!units.judge(over, &fate(true, at(1), 8000)));
        assert_eq!(units.allowance(over), Allowance::One);
    }

    /// A link may carry the short units alone.
    #[test]
    fn a_unit_that_passes_shows_nothing_of_longer_ones() {
        let mut units = UnitUse::new(LOST_OF_PATH);
        lose(&mut units, at(0), 1);
        units.left(at(1));
        units.judge(at(2), &fate(false, at(1), 7999));
        assert_eq!(units.allowance(at(2)), Allowance::One, "another one is tried");
        units.judge(at(2), &fate(false, at(1), 8000));
        assert_eq!(units.allowance(at(2)), Allowance::All);
        // A loss before that is over.
        lose(&mut units, at(3), 1);
        units.judge(at(4), &fate(false, at(4), 8000));
        units.judge(at(5), &fate(true, at(5), 500));
        units.judge(at(6), &fate(false, at(6), 500));
        assert_eq!(units.allowance(at(6)), Allowance::All);
    }

    #[test]
    fn the_wait_doubles_up_to_a_bound() {
        let mut now = at(0);
        let mut units = given_up(now);
        for wait_s in [4, 8, 16, 32, 64, 128, 256, 256, 256] {
            let due = now + Duration::from_secs(wait_s);
            assert_eq!(units.allowance(due - Duration::from_nanos(1)), Allowance::None);
            assert_eq!(units.allowance(due), Allowance::One);
            units.left(due);
            assert_eq!(units.allowance(due), Allowance::None);
            assert!(units.judge(due, &fate(true, due, 8000)));
            now = due;
        }
        // One that passes after all starts anew.
        units.judge(now, &fate(false, now, 8000));
        assert!(lose(&mut units, now, LOST_OF_PATH));
        assert_eq!(units.allowance(now + SINGLES), Allowance::One);
    }
}
