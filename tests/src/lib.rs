//! Shared pieces of the test targets.

pub mod net;
pub mod raw;
pub mod sim;
