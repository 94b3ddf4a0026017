//! Memory that a provider reads and writes.
#![allow(unsafe_code, reason = "memory that others write, too")]

use core::ops::Range;

use ndk_abi::*;

use crate::Failure;
use crate::kinds::{Object, call};

/// Memory of a step, described by an MDL. A provider may change it at any time, so each byte is read and written for itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
    pub(crate) mdl: *mut MDL,
}

/// Memory that is registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) memory: Memory,
    pub(crate) mr: Object<NDK_MR>,
}

/// The byte at a place.
const fn pattern(seed: u8, place: usize) -> u8 {
    // Neither a shift by a byte nor one by a block goes unseen.
    (place.wrapping_mul(31) as u8) ^ ((place >> 8) as u8) ^ seed
}

impl Memory {
    /// Writes the pattern of a seed into a part.
    pub(crate) fn fill(self, part: Range<usize>, seed: u8) {
        let from = part.start;
        for place in part.start..part.end.min(self.len) {
            // SAFETY: within the memory.
            unsafe { self.start.wrapping_add(place).write_volatile(pattern(seed, place - from)) };
        }
    }

    /// Looks for the pattern of a seed in a part, which begins with it.
    ///
    /// # Errors
    /// [`Failure::Wrong`]: the first byte that is another.
    pub(crate) fn expect(self, part: Range<usize>, seed: u8) -> Result<(), Failure> {
        let from = part.start;
        self.compare(part, from, seed)
    }

    /// Looks in a part for the pattern that all of the memory was filled with.
    ///
    /// # Errors
    /// As [`Memory::expect`].
    pub(crate) fn expect_rest(self, part: Range<usize>, seed: u8) -> Result<(), Failure> {
        self.compare(part, 0, seed)
    }

    fn compare(self, part: Range<usize>, from: usize, seed: u8) -> Result<(), Failure> {
        for place in part.start..part.end.min(self.len) {
            // SAFETY: within the memory.
            let found = unsafe { self.start.wrapping_add(place).read_volatile() };
            let expected = pattern(seed, place - from);
            if found != expected {
                let (found, expected) = (found.into(), expected.into());
                return Err(Failure::Wrong { what: "a byte of memory", found, expected });
            }
        }
        Ok(())
    }

    /// The address of a byte, as requests name it.
    pub(crate) fn address(self, place: usize) -> u64 {
        self.start.wrapping_add(place).expose_provenance() as u64
    }
}

impl Region {
    /// An element over a part.
    pub(crate) fn sge(self, part: Range<usize>) -> NDK_SGE {
        let token = call!(self.mr, NdkGetLocalTokenFromMr());
        let start = self.memory.start.wrapping_add(part.start).cast();
        NDK_SGE::from_virtual(start, part.len() as u32, token)
    }

    /// The token by which a peer names it.
    pub(crate) fn remote_token(self) -> u32 {
        call!(self.mr, NdkGetRemoteTokenFromMr())
    }
}
