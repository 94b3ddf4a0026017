//! ndkperf.
fn main() {}
