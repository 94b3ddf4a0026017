//! Shared pieces of the test targets.
#![allow(clippy::macro_metavars_in_unsafe, reason = "whole C calls are arguments of `call`")]

pub mod alloc;
pub mod net;
pub mod raw;
pub mod rng;
pub mod sim;
