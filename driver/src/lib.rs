//! The NDK provider: the C dispatch tables of `ndkpi.h` over the RoCEv2 transport.
//!
//! A consumer's call checks its arguments, puts a message or a work request into a ring and
//! returns. One poll core owns everything else: it takes from the rings, drives the transport and
//! the edge, and calls the consumer back at the end of its turn. See the crate's modules for the
//! rooms: `abi` (C types), `ring` (what lies between the threads), `ndk` (the functions of the
//! tables), `core` (the loop), `platform` (the operating system).
#![no_std]
#![cfg_attr(
    not(any(target_os = "linux", all(windows, target_env = "msvc"))),
    allow(dead_code, reason = "a program there uses the tables, and has no home for the core")
)]

extern crate alloc;
#[cfg(any(test, target_os = "linux"))]
extern crate std;

pub mod abi;
mod core;
#[doc(hidden)]
pub mod counter_sets;
#[cfg_attr(
    not(all(windows, target_env = "msvc")),
    allow(dead_code, reason = "other homes have the wire for themselves")
)]
mod frame;
mod ndk;
pub mod platform;
mod ring;
#[cfg(all(windows, target_env = "msvc"))]
mod windows;

/// The service, the names of its network component and of its trace provider. NDIS joins the protocol
/// to the network component whose `Ndi\Service` is the name under which it registers, letter by letter.
pub const SERVICE: &str = "ndkrocev2";
/// The file that Windows loads.
pub const IMAGE: &str = "ndkrocev2.sys";

pub use crate::core::{PollCore, ProviderConfig, Turn};
pub use crate::ndk::counters::{AdapterCounters, Connection};
#[cfg(target_os = "linux")]
pub use platform::{linux::Provider, stepped::Stepped};
