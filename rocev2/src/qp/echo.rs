//! An acknowledgment that is repeated into silence.
//!
//! A requester that has gone back and is acknowledged in the middle of that may take what it sends
//! after for acknowledged too, without completing it, and then wait without a timer: Linux's rxe does.
//! All it needs is one more ACK, and the one that its last packet brings can get lost. So who has seen
//! packets twice, or has acknowledged more than came last, repeats its ACK a few times unless
//! something new comes. A responder may do that whenever it likes (IBTA ch. 9, unsolicited acknowledge).

use crate::env::{Duration, Instant};

/// How long the peer is silent before the first; twice as long before each further one.
const FIRST: Duration = Duration::from_millis(25);
/// How many at most.
const REPEATS: u8 = 5;

/// When the last ACK is to be sent once more.
#[derive(Debug, Default)]
pub struct Echo {
    due: Option<Instant>,
    /// How many were sent.
    sent: u8,
}

impl Echo {
    /// None is due.
    pub const fn new() -> Self {
        Self { due: None, sent: 0 }
    }

    /// The peer may need to hear it again.
    pub fn arm(&mut self, now: Instant) {
        *self = Self { due: Some(now + FIRST), sent: 0 };
    }

    /// Something new came, or nothing will any more.
    pub const fn cancel(&mut self) {
        self.due = None;
    }

    /// When [`Self::take`] has work.
    pub const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the ACK is to be sent once more now.
    pub fn take(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.sent += 1;
        self.due = (self.sent < REPEATS).then(|| now + FIRST * (1 << self.sent));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn it_is_sent_a_few_times_and_ever_more_rarely() {
        let mut echo = Echo::new();
        assert_eq!(echo.deadline(), None);
        echo.arm(Instant::from_nanos(7));
        let mut waits = Vec::new();
        let mut now = Instant::from_nanos(7);
        while let Some(due) = echo.deadline() {
            assert!(!echo.take(now), "early");
            waits.push(due.saturating_since(now).as_millis());
            now = due;
            assert!(echo.take(now));
        }
        assert_eq!(waits, [25, 50, 100, 200, 400]);
        assert!(!echo.take(now + FIRST * 100));
    }

    #[test]
    fn what_is_new_ends_it_and_what_is_old_begins_it_anew() {
        let mut echo = Echo::new();
        let now = Instant::from_nanos(0);
        echo.arm(now);
        assert!(echo.take(now + FIRST));
        echo.arm(now + FIRST);
        assert_eq!(echo.deadline(), Some(now + FIRST * 2));
        echo.cancel();
        assert_eq!(echo.deadline(), None);
        assert!(!echo.take(now + FIRST * 2));
    }
}
