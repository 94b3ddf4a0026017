//! Shared pieces of the test targets.
