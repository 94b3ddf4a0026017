//! Measured figures for a program that reads them: `name value`, a line each.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Appends the figure to the file that the environment's `FIGURES` names, if it names one.
///
/// # Panics
/// The file cannot be written.
pub fn record(name: &str, value: f64) {
    let Some(path) = std::env::var_os("FIGURES") else { return };
    let mut file =
        OpenOptions::new().create(true).append(true).open(path).expect("the file of the figures");
    writeln!(file, "{name} {value}").expect("the file of the figures");
}
