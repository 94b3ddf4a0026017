//! `ndkrocev2.sys`: the driver, and what a linker of Windows images expects of a C runtime.
//!
//! Elsewhere than on Windows this is empty.
#![cfg(all(windows, target_env = "msvc"))]
#![no_std]
#![allow(unsafe_code, reason = "symbols that the compiler and the linker look up by name")]

// Its entry point is `DriverEntry`.
extern crate ndis_driver as _;

mod runtime;
