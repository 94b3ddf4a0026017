//! The RoCEv2 transport as a sans-IO library.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cm;
pub mod env;
pub mod ids;
pub mod psn;
pub mod wire;
