//! Describes a buffer the way a kernel consumer does.

use crate::{NdkError, Result};
use driver::abi::{
    MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, PAGE_SIZE, PVOID, STATUS_INVALID_BUFFER_SIZE,
    ULONG,
};

/// An MDL over memory of this process. Without a kernel there are no page frame numbers: the
/// provider reaches the bytes through `MappedSystemVa`.
#[derive(Debug)]
pub struct Mdl(Box<MDL>);

impl Mdl {
    /// Describes `len` bytes from `start`.
    ///
    /// # Panics
    /// If `len` exceeds what one MDL can describe (4 GiB).
    #[must_use]
    pub fn new(start: *mut u8, len: usize) -> Self {
        Self::try_new(start, len).expect("an MDL describes less than 4 GiB")
    }

    /// Describes `len` bytes from `start`.
    ///
    /// # Errors
    /// `STATUS_INVALID_BUFFER_SIZE` from 4 GiB on, where `IoAllocateMdl` has no MDL to give.
    pub fn try_new(start: *mut u8, len: usize) -> Result<Self> {
        let byte_offset = start.addr() % PAGE_SIZE;
        let byte_count = ULONG::try_from(len)
            .map_err(|_| NdkError { status: STATUS_INVALID_BUFFER_SIZE, call: "IoAllocateMdl" })?;
        Ok(Self(Box::new(MDL {
            Next: std::ptr::null_mut(),
            Size: size_of::<MDL>() as i16,
            MdlFlags: MDL_MAPPED_TO_SYSTEM_VA | MDL_PAGES_LOCKED,
            Process: std::ptr::null_mut(),
            MappedSystemVa: start.cast(),
            StartVa: start.wrapping_sub(byte_offset).cast(),
            ByteCount: byte_count,
            ByteOffset: byte_offset as ULONG,
        })))
    }

    /// For the parameters that take a chain of MDLs.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut MDL {
        &raw mut *self.0
    }

    /// The address of the first byte, which is where the registered region starts.
    #[must_use]
    pub fn virtual_address(&self) -> PVOID {
        self.0.virtual_address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_splits_into_page_and_offset() {
        let start = std::ptr::without_provenance_mut::<u8>(0x7_1234);
        let mut mdl = Mdl::new(start, 0x2000);
        assert_eq!(mdl.virtual_address().addr(), 0x7_1234);
        assert_eq!(mdl.0.StartVa.addr(), 0x7_1000);
        assert_eq!((mdl.0.ByteOffset, mdl.0.ByteCount), (0x234, 0x2000));
        assert!(!mdl.as_mut_ptr().is_null());
    }

    #[test]
    fn what_one_mdl_cannot_describe_is_refused() {
        let start = std::ptr::without_provenance_mut::<u8>(PAGE_SIZE);
        assert!(Mdl::try_new(start, u32::MAX as usize).is_ok());
        let refused = Mdl::try_new(start, 1 << 32).unwrap_err();
        assert_eq!(refused.status, STATUS_INVALID_BUFFER_SIZE);
    }
}
