//! The reorder window: how long a gap may last before the missing packet counts as lost (RFC 8985).

use crate::env::{Duration, Instant};

/// More packets than this behind a gap prove a loss, however recent the gap: links do not reorder by more.
pub(crate) const REORDER_PACKETS: usize = 64;
/// The window at first, and the narrowest.
const WINDOW_MIN: Duration = Duration::from_micros(100);
/// The widest window. Beyond it a retransmission timer is faster.
const WINDOW_MAX: Duration = Duration::from_micros(1600);
/// Resends in a row, none of them spurious, that halve the window.
const RESENDS_TO_NARROW: u8 = 16;

/// A reorder window that adapts to the path. Requester and responder have one each.
///
/// It doubles when a packet that counted as lost arrives twice, which shows that it was only late, and
/// halves after a number of resends that were needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReorderWindow {
    width: Duration,
    /// Resends since the width changed.
    resends: u8,
}

impl ReorderWindow {
    /// The narrowest window.
    pub(crate) const fn new() -> Self {
        Self { width: WINDOW_MIN, resends: 0 }
    }

    /// When a gap that opened at `since` counts as a loss.
    pub(crate) fn end(&self, since: Instant) -> Instant {
        since + self.width
    }

    /// Counts a resend: the window narrows after [`RESENDS_TO_NARROW`].
    pub(crate) fn count_resend(&mut self) {
        self.resends += 1;
        if self.resends == RESENDS_TO_NARROW {
            *self = Self { width: (self.width / 2).max(WINDOW_MIN), resends: 0 };
        }
    }

    /// Widens the window: the packet that counted as lost was only late.
    pub(crate) fn widen(&mut self) {
        *self = Self { width: (self.width * 2).min(WINDOW_MAX), resends: 0 };
    }
}

impl Default for ReorderWindow {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_by_mistakes_and_comes_back() {
        let start = Instant::from_nanos(0);
        let mut window = ReorderWindow::new();
        let width = |window: &ReorderWindow| window.end(start).saturating_since(start);
        for _ in 0..20 {
            window.widen();
        }
        assert_eq!(width(&window), WINDOW_MAX);
        for _ in 0..16 * 10 {
            window.count_resend();
        }
        assert_eq!(width(&window), WINDOW_MIN);
    }
}
