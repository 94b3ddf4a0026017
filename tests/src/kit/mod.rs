//! The consumer of the tests: two hosts ([`Net`]), and three grips on their dispatch tables.
//!
//! | Grip | An object is | Its end comes | For |
//! | --- | --- | --- | --- |
//! | [`safe`] | a wrapper of `ndk_consumer`, closed by its drop | as a [`Request`](ndk_consumer::Request) | behaviour |
//! | [`raw`] | a pointer and a promise | to a closure | closes in any order and place, misuse |
//! | `numbered` | the same pointer | as an event with a number | the simulator and fuzz targets: one thread, nothing waits |
//!
//! The simulator has hosts and a network of its own, where time is virtual.

mod net;
pub mod numbered;
pub mod raw;
pub mod safe;
mod wire;

pub use net::{ADDRESSES, Net, OpenedBy, joined, open_by};
pub use safe::{Connected, Connection, Side, status};
pub use wire::{Fate, Wire};

use driver::abi::{NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE};
use ndk_consumer::ReadLimits;
use std::time::Duration;

/// Where the second host listens.
pub const PORT: u16 = 7174;
/// What both sides ask for.
pub const LIMITS: ReadLimits = ReadLimits { inbound: 8, outbound: 4 };
/// Every right.
pub const ALL_ACCESS: u32 = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
/// Long enough for a busy machine; every wait here ends by an event.
pub const PATIENCE: Duration = Duration::from_secs(60);
