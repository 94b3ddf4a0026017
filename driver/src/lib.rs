//! The NDK provider.
#![no_std]

pub mod abi;
