//! Rundown protection: an object that ends waits for those who use it, and lets nobody else in.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::irql::{self, APC, DISPATCH};

/// `EX_RUNDOWN_REF`: the lowest bit says that it ends, the others count who is inside.
type Rundown = AtomicUsize;

const ENDS: usize = 1;
const ONE: usize = 2;

exports! { "ntoskrnl.exe":
    fn ExInitializeRundownProtection(rundown: &Rundown) { rundown.store(0, Ordering::SeqCst); }
    fn ExAcquireRundownProtectionEx(rundown: &Rundown, count: u32) -> u8 {
        irql::at_most(DISPATCH, "ExAcquireRundownProtectionEx");
        let enter = |word| (word & ENDS == 0).then_some(word + ONE * count as usize);
        u8::from(rundown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter).is_ok())
    }
    fn ExReleaseRundownProtectionEx(rundown: &Rundown, count: u32) {
        irql::at_most(DISPATCH, "ExReleaseRundownProtectionEx");
        let before = rundown.fetch_sub(ONE * count as usize, Ordering::SeqCst);
        if before / ONE < count as usize { breach!("rundown protection is released by who has none"); }
    }
    fn ExWaitForRundownProtectionRelease(rundown: &Rundown) {
        irql::at_most(APC, "ExWaitForRundownProtectionRelease");
        rundown.fetch_or(ENDS, Ordering::SeqCst);
        crate::schedule::blocks();
        while rundown.load(Ordering::SeqCst) != ENDS { std::thread::sleep(Duration::from_micros(50)); }
    }
}
