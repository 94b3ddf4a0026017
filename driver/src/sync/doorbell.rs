//! Whether an object rings for its core, and why.

use super::modelled::{AtomicU8, fence};
use core::sync::atomic::Ordering;

/// An object's own half of its doorbell: whether it rings, and what for.
#[derive(Debug, Default)]
pub(crate) struct Doorbell(AtomicU8);

/// The object is in the ring of doorbells.
const RINGING: u8 = 1;
/// The QP has to be flushed.
pub(crate) const FLUSH: u8 = 2;
/// Receives were posted to the QP.
pub(crate) const RECEIVES: u8 = 4;

impl Doorbell {
    /// Adds reasons; true if it did not ring before. One step: the core cannot answer a part of it. A doorbell that rings
    /// already, as with all posts of a run but the first, is only looked at.
    #[inline]
    pub(crate) fn ring(&self, reasons: u8) -> bool {
        let rings = RINGING | reasons;
        // Pairs with the fence in `answer`: what was put into the object's rings is seen by the answer to this ringing.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) & rings != rings && self.begin(rings)
    }

    fn begin(&self, rings: u8) -> bool {
        self.0.fetch_or(rings, Ordering::AcqRel) & RINGING == 0
    }

    /// Stops ringing and returns the reasons. Entries that were put into the object's rings before are
    /// visible now.
    pub(crate) fn answer(&self) -> u8 {
        let reasons = self.0.swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_rings_once_and_keeps_every_reason() {
        let doorbell = Doorbell::default();
        assert!(doorbell.ring(0));
        assert!(!doorbell.ring(FLUSH));
        assert_eq!(doorbell.answer(), RINGING | FLUSH);
        assert!(doorbell.ring(0));
        assert_eq!(doorbell.answer(), RINGING);
    }
}
