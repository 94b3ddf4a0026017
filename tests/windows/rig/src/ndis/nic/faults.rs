//! The faults of a NIC: it refuses long frames, and loses units of several packets.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The faults, none of them at first.
pub struct Faults {
    /// Bytes of the longest frame that it takes.
    longest: AtomicUsize,
    /// The lists that it has refused so far.
    refused: AtomicUsize,
    loses_units: AtomicBool,
}

/// What becomes of a list that it is to send.
pub enum Fate {
    Carried,
    /// It comes back as if it had been.
    Lost,
    /// It comes back with a failure.
    Refused,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            longest: AtomicUsize::new(usize::MAX),
            refused: AtomicUsize::new(0),
            loses_units: AtomicBool::new(false),
        }
    }
}

impl Faults {
    /// Refuses frames of more bytes from now on.
    pub fn refuse_above(&self, len: usize) {
        self.longest.store(len, Ordering::SeqCst);
    }

    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Takes units from now on, and loses each.
    pub fn lose_units(&self) {
        self.loses_units.store(true, Ordering::SeqCst);
    }

    /// The fate of a list with these frames, or of a unit that is divided into them.
    pub(super) fn meet(&self, frames: &[Vec<u8>]) -> Fate {
        let longest = self.longest.load(Ordering::SeqCst);
        if frames.iter().any(|frame| frame.len() > longest) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            Fate::Refused
        } else if frames.len() > 1 && self.loses_units.load(Ordering::SeqCst) {
            Fate::Lost
        } else {
            Fate::Carried
        }
    }
}
