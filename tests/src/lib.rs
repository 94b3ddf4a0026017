//! Shared pieces of the test targets.

pub mod raw;
pub mod sim;
