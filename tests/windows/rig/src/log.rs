//! The report of a run: lines, and the breaches among them.

use std::fmt::Arguments;
use std::fs::File;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

static BREACHES: AtomicUsize = AtomicUsize::new(0);
static FILE: Mutex<Option<File>> = Mutex::new(None);

/// Writes the report there instead of to the standard output.
pub fn to_file(path: &str) {
    *FILE.lock().unwrap_or_else(|e| e.into_inner()) = File::create(path).ok();
}

pub fn line(arguments: Arguments<'_>) {
    // In one piece: it may be read at any time, and this process may end between two.
    let line = format!("{arguments}\n");
    let mut file = FILE.lock().unwrap_or_else(|e| e.into_inner());
    // A report that cannot be written is missed by who reads it.
    let _ = match &mut *file {
        Some(file) => file.write_all(line.as_bytes()),
        None => std::io::stdout().write_all(line.as_bytes()),
    };
}

/// A rule of Windows was broken.
pub fn breach(arguments: Arguments<'_>) {
    BREACHES.fetch_add(1, Ordering::SeqCst);
    line(format_args!("BREACH: {arguments}"));
}

/// How many rules were broken so far.
pub fn breaches() -> usize {
    BREACHES.load(Ordering::SeqCst)
}

/// Ends the run with a verdict.
pub fn verdict(arguments: Arguments<'_>, sound: bool) -> ! {
    line(format_args!("{arguments}"));
    crate::coverage::write();
    line(format_args!("verdict: {}", if sound { "pass" } else { "fail" }));
    std::process::exit(i32::from(!sound))
}

macro_rules! say {
    ($($arg:tt)*) => { $crate::log::line(format_args!($($arg)*)) };
}
macro_rules! breach {
    ($($arg:tt)*) => { $crate::log::breach(format_args!($($arg)*)) };
}
