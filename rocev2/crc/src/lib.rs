//! CRC-32 for packets, by the fastest way that the processor has.
//!
//! The polynomial is Ethernet's. [`extend`] goes on from any CRC, so what many packets have in common is computed
//! once.
#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(any(test, unix))]
extern crate std;

#[cfg(target_arch = "x86_64")]
mod clmul;
#[cfg(test)]
mod tests;

#[cfg(all(target_arch = "x86_64", unix))]
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crc32fast::Hasher;

/// The polynomial, bits reversed, without its highest power.
pub const POLYNOMIAL: u32 = 0xedb8_8320;

/// The CRC of what `crc` is the CRC of, and `bytes` behind it. The CRC of nothing is 0.
#[inline(always)]
#[allow(unsafe_code, reason = "the instructions are not on every processor")]
pub fn extend(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", unix))]
    if bytes.len() < VEX_END.load(Relaxed) {
        // SAFETY: the processor has it where this is not 0.
        return unsafe { clmul::extend_vex(crc, bytes) };
    }
    Way::of(CHOSEN.load(Relaxed)).extend(crc, bytes)
}

/// From here on wide vectors are faster.
#[cfg(all(target_arch = "x86_64", unix))]
const LONG: usize = 512;

/// A way to compute it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Way {
    /// `crc32fast`.
    Library = 1,
    /// [`clmul`].
    #[cfg(target_arch = "x86_64")]
    Clmul = 2,
    /// The same in the encoding of AVX, which names the result apart from the operands and so needs fewer instructions. It
    /// is for user space: a Windows kernel would have to save these registers first.
    #[cfg(all(target_arch = "x86_64", unix))]
    Vex = 3,
    /// The same for short bytes; from [`LONG`] on `crc32fast` with vectors of 256 or 512 bits.
    #[cfg(all(target_arch = "x86_64", unix))]
    Wide = 4,
}

/// The [`Way`] in use; 0 before the first use.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Fewer bytes than this are for [`Way::Vex`], whether that way or the wider one was chosen.
#[cfg(all(target_arch = "x86_64", unix))]
static VEX_END: AtomicUsize = AtomicUsize::new(0);

impl Way {
    /// All of this processor's kind.
    const ALL: &[Self] = &[
        Self::Library,
        #[cfg(target_arch = "x86_64")]
        Self::Clmul,
        #[cfg(all(target_arch = "x86_64", unix))]
        Self::Vex,
        #[cfg(all(target_arch = "x86_64", unix))]
        Self::Wide,
    ];

    /// The one with this number in [`CHOSEN`].
    fn of(chosen: u8) -> Self {
        match chosen {
            #[cfg(target_arch = "x86_64")]
            2 => Self::Clmul,
            #[cfg(all(target_arch = "x86_64", unix))]
            3 => Self::Vex,
            #[cfg(all(target_arch = "x86_64", unix))]
            4 => Self::Wide,
            1 => Self::Library,
            _ => Self::first(),
        }
    }

    #[cold]
    fn first() -> Self {
        let way = Self::ALL.iter().rev().find(|way| way.is_available());
        let way = way.copied().unwrap_or(Self::Library);
        #[cfg(all(target_arch = "x86_64", unix))]
        match way {
            Self::Library | Self::Clmul => {}
            Self::Vex => VEX_END.store(usize::MAX, Relaxed),
            Self::Wide => VEX_END.store(LONG, Relaxed),
        }
        CHOSEN.store(way as u8, Relaxed);
        way
    }

    /// Whether the processor has it, and the operating system allows it.
    fn is_available(self) -> bool {
        match self {
            Self::Library => true,
            // Miri runs no `cpuid`.
            #[cfg(target_arch = "x86_64")]
            _ if cfg!(miri) => false,
            #[cfg(target_arch = "x86_64")]
            Self::Clmul => clmul::is_available(),
            #[cfg(all(target_arch = "x86_64", unix))]
            Self::Vex => clmul::is_available() && clmul::is_vex_available(),
            #[cfg(all(target_arch = "x86_64", unix))]
            Self::Wide => Self::Vex.is_available() && clmul::are_wide_available(),
        }
    }

    #[inline]
    #[allow(unsafe_code, reason = "the instructions are not on every processor")]
    fn extend(self, crc: u32, bytes: &[u8]) -> u32 {
        match self {
            #[cfg(all(target_arch = "x86_64", unix))]
            Self::Wide if bytes.len() >= LONG => by_library(crc, bytes),
            // SAFETY: the processor has it where one of these ways was chosen.
            #[cfg(all(target_arch = "x86_64", unix))]
            Self::Vex | Self::Wide => unsafe { clmul::extend_vex(crc, bytes) },
            // SAFETY: the processor has it where this way was chosen.
            #[cfg(target_arch = "x86_64")]
            Self::Clmul => unsafe { clmul::extend(crc, bytes) },
            Self::Library => by_library(crc, bytes),
        }
    }
}

#[inline(never)]
fn by_library(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}
