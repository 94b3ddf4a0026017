//! Shared pieces of the test targets.

pub mod raw;
