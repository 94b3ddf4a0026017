//! CRC-32 for packets, by the fastest way that the processor has.
//!
//! The polynomial is Ethernet's. [`extend`] goes on from any CRC, so what many packets have in common is computed
//! once.
#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(target_arch = "x86_64")]
mod clmul;
#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crc32fast::Hasher;

/// The polynomial, bits reversed, without its highest power.
pub const POLYNOMIAL: u32 = 0xedb8_8320;

/// The CRC of what `crc` is the CRC of, and `bytes` behind it. The CRC of nothing is 0.
#[inline]
pub fn extend(crc: u32, bytes: &[u8]) -> u32 {
    Way::current().extend(crc, bytes)
}

/// From here on wide vectors are faster, where they may be used.
const LONG: usize = if cfg!(unix) { 512 } else { usize::MAX };

/// A way to compute it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Way {
    /// `crc32fast`.
    Library = 1,
    /// [`clmul`], where the processor has the instructions.
    #[cfg(target_arch = "x86_64")]
    Clmul = 2,
}

/// The [`Way`] in use; 0 before the first use.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

impl Way {
    #[inline]
    fn current() -> Self {
        match CHOSEN.load(Relaxed) {
            #[cfg(target_arch = "x86_64")]
            way if way == Self::Clmul as u8 => Self::Clmul,
            0 => Self::first(),
            _ => Self::Library,
        }
    }

    #[cold]
    fn first() -> Self {
        let way = Self::detect();
        CHOSEN.store(way as u8, Relaxed);
        way
    }

    /// The way that the processor has.
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        // Miri runs no `cpuid`.
        if !cfg!(miri) && clmul::is_available() {
            return Self::Clmul;
        }
        Self::Library
    }

    #[inline]
    #[allow(unsafe_code, reason = "the instructions are not on every processor")]
    fn extend(self, crc: u32, bytes: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self == Self::Clmul && (clmul::LEN_MIN..LONG).contains(&bytes.len()) {
            // SAFETY: `detect` alone makes this way, where the processor has the instructions.
            return unsafe { clmul::extend(crc, bytes) };
        }
        by_library(crc, bytes)
    }
}

#[inline(never)]
fn by_library(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}
