//! The user's wish to end: SIGINT or SIGTERM.
//!
//! The first one ends a run as its time limit would, so that its results are printed, its peer is told
//! and its capture is whole. A second one ends the process at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit code of what a user has ended, as shells know it: 128 and the number of SIGINT.
pub(crate) const EXIT_CODE: u8 = 130;

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From here on the signals are heard.
///
/// # Errors
/// The operating system's.
pub(crate) fn listen() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds what the first one has set.
        flag::register_conditional_shutdown(signal, EXIT_CODE.into(), Arc::clone(&REQUESTED))?;
        flag::register(signal, Arc::clone(&REQUESTED))?;
    }
    Ok(())
}

/// Whether the user wants to end.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
