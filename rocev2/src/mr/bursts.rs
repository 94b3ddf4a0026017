//! Tells the one who ends a mapping when no core copies through it any more.
//!
//! A core uses the memory of a key in the burst in which it looked the key up, and not after it. So the end of a
//! mapping waits for the bursts that the cores that use it are in.
//!
//! A core enters a burst and then looks keys up; another ends a mapping and then looks at the bursts. There is a
//! fence between the two steps of each, so the core sees that the mapping has ended, or the other sees the burst.

use super::modelled::{AtomicU32, fence, spin_loop};
use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// The bursts that a core has entered and left: odd while it is in one. It has a cache line of its own, and the one beside, which a
/// processor may fetch with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU32);

/// The bursts of all cores.
#[derive(Debug)]
pub(super) struct Bursts(Box<[Count]>);

impl Bursts {
    pub(super) fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Count::default()).collect())
    }

    /// Whether the core is in a burst, as it sees itself.
    pub(super) fn within(&self, core: usize) -> bool {
        self.0[core].0.load(Relaxed) % 2 == 1
    }

    /// Begins a burst of the core that calls this.
    pub(super) fn enter(&self, core: usize) {
        debug_assert!(!self.within(core), "a burst within a burst");
        self.step(core);
        fence(SeqCst);
    }

    /// Ends a burst of the core that calls this.
    pub(super) fn leave(&self, core: usize) {
        debug_assert!(self.within(core), "there is no burst to leave");
        self.step(core);
    }

    fn step(&self, core: usize) {
        let count = &self.0[core].0;
        // One that sees this, or a later burst, sees all that was read and written in the burst before as done.
        count.store(count.load(Relaxed).wrapping_add(1), Release);
    }

    /// Waits until each of these cores, a bit each, has left the burst that it is in.
    pub(super) fn wait(&self, mut users: u64) {
        if users == 0 {
            return;
        }
        fence(SeqCst);
        while users != 0 {
            let core = users.trailing_zeros() as usize;
            users &= users - 1;
            let Some(Count(count)) = self.0.get(core) else { return };
            let seen = count.load(Acquire);
            while seen % 2 == 1 && count.load(Acquire) == seen {
                spin_loop();
            }
        }
    }
}
