//! Chance or congestion, by the pattern of the losses: a queue that overflows loses several packets in a row, or a good part of
//! all for a while. How long the others took tells less, as they may have waited for the processor of either end.
//!
//! The part is judged by a cumulative sum (Page, "Continuous Inspection Schemes", Biometrika 1954): few losses prove nothing
//! however close they are, and a small excess is found if it lasts.

/// So many packets in a row are lost to congestion, and not by chance.
pub(crate) const BURST: u32 = 4;
/// Of so many packets chance may take one without end.
const PACKETS_PER_LOSS: u32 = 30;
/// Losses beyond that which are congestion.
const LOSSES: u32 = 8;

/// Packets that chance would have had to spare for the losses so far.
#[derive(Debug)]
pub(crate) struct LossSum {
    excess: u32,
}

impl LossSum {
    /// No loss so far.
    pub(crate) const fn new() -> Self {
        Self { excess: 0 }
    }

    /// Notes that `lost` packets were lost after `came` others had come. Returns whether that is congestion; then the sum begins
    /// anew, so that what is done about it has its effect.
    pub(crate) fn show_congestion(&mut self, came: u32, lost: u32) -> bool {
        let more = lost.saturating_mul(PACKETS_PER_LOSS);
        self.excess = self.excess.saturating_sub(came).saturating_add(more);
        let congestion = self.excess >= LOSSES * PACKETS_PER_LOSS;
        if congestion {
            self.excess = 0;
        }
        congestion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_in_thirty_packets_is_chance_for_ever() {
        let mut sum = LossSum::new();
        assert!((0..100_000).all(|_| !sum.show_congestion(30, 1)));
    }

    #[test]
    fn more_is_congestion_in_time_and_counts_anew() {
        let mut sum = LossSum::new();
        let mut losses = || (1..).find(|_| sum.show_congestion(15, 1));
        assert_eq!((losses(), losses()), (Some(15), Some(15)));
    }

    #[test]
    fn eight_at_once_are_congestion_and_seven_are_none() {
        assert!(!LossSum::new().show_congestion(0, 7));
        assert!(LossSum::new().show_congestion(u32::MAX, 8));
        assert!(LossSum::new().show_congestion(0, u32::MAX));
    }
}
