//! What an operating system supplies: a clock and the way to the bytes of an MDL.

#[cfg(target_os = "linux")]
pub mod linux;

use crate::abi::MDL;
use core::ptr::NonNull;
use rocev2::env::Instant;

/// The operating system, as the provider sees it. Every method is callable at IRQL <=
/// DISPATCH_LEVEL.
pub trait Platform: Send + Sync {
    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// A system address for the bytes that one MDL (not a chain) describes, valid while its
    /// owner keeps it locked. `None`: no mapping could be made.
    fn map(&self, mdl: &MDL) -> Option<NonNull<u8>>;
}
