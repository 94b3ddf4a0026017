//! Threads that rest at random, as they do on a machine with more to run than processors.
//!
//! Wherever the image and the stand-ins meet, one call of so many waits for a while. What only works
//! because two threads never meet there fails soon; nothing that is right can fail.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One place of so many is a rest; 0: none.
static ODDS: AtomicU64 = AtomicU64::new(0);

/// Begins or, with 0, ends it.
pub fn set(odds: u64) {
    ODDS.store(odds, Ordering::Relaxed);
}

/// Rests where it is made, and where it is dropped.
#[derive(Debug)]
pub struct Rest(());

impl Rest {
    pub fn here() -> Self {
        rest();
        Self(())
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        rest();
    }
}

/// A place where a thread may rest.
pub fn rest() {
    let odds = ODDS.load(Ordering::Relaxed);
    if odds == 0 {
        return;
    }
    let random = random();
    if random.is_multiple_of(odds) {
        std::thread::sleep(Duration::from_micros((random >> 32) % LONGEST_US));
    }
}

const LONGEST_US: u64 = 5000;

/// Each thread has numbers of its own (splitmix64).
fn random() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    thread_local! {
        static STATE: Cell<u64> = Cell::new(crate::ntos::misc::system_time() ^ THREADS.fetch_add(1, Ordering::Relaxed) << 40);
    }
    let Ok(mut mixed) = STATE.try_with(|state| {
        state.set(state.get().wrapping_add(STEP));
        state.get()
    }) else {
        return 1;
    };
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
