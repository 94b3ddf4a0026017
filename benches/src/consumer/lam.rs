//! Logical addresses of a buffer: what the privileged token and fast registrations name.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use driver::abi::*;

use super::{Adapter, Sge};
use crate::{Buffer, Mdl, NdkError, Result};

/// A buffer with the logical addresses of its pages, until this is dropped.
#[derive(Debug)]
pub struct Lam {
    /// The C structure, of 8-byte words.
    mapping: Box<[u64]>,
    fbo: u32,
    buffer: Buffer,
    /// Locked and unchanged as long as the mapping lasts.
    _mdl: Mdl,
    adapter: Arc<Adapter>,
}

// SAFETY: the MDL is only read, and names memory that `buffer` owns.
unsafe impl Send for Lam {}
// SAFETY: as above.
unsafe impl Sync for Lam {}

impl Lam {
    pub(super) fn build(adapter: &Arc<Adapter>, buffer: Buffer) -> Result<Self> {
        let call = "NdkBuildLAM";
        let mut mdl = Mdl::new(buffer.as_ptr(), buffer.len());
        let pages = (buffer.as_ptr().addr() % PAGE_SIZE + buffer.len()).div_ceil(PAGE_SIZE);
        let mut size = NDK_LOGICAL_ADDRESS_MAPPING::size_for(pages) as ULONG;
        let mut mapping = vec![0_u64; (size as usize).div_ceil(8)].into_boxed_slice();
        let mut fbo = 0;
        // SAFETY: the adapter is open; the MDL describes `buffer`, and both outlive the mapping; the
        // array has `size` bytes.
        let status = unsafe {
            (adapter.table().NdkBuildLAM)(
                adapter.as_ptr(),
                mdl.as_mut_ptr(),
                buffer.len(),
                None,
                std::ptr::null_mut(),
                mapping.as_mut_ptr().cast(),
                &raw mut size,
                &raw mut fbo,
            )
        };
        NdkError::check(call, status)?;
        Ok(Self { mapping, fbo, buffer, _mdl: mdl, adapter: Arc::clone(adapter) })
    }

    /// The memory.
    #[must_use]
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Offset of the first byte in the first page.
    #[must_use]
    pub const fn fbo(&self) -> u32 {
        self.fbo
    }

    /// The logical addresses of the pages.
    #[must_use]
    pub fn pages(&self) -> Vec<NDK_LOGICAL_ADDRESS> {
        let header = NDK_LOGICAL_ADDRESS_MAPPING::size_for(0) / 8;
        let pages = (self.fbo as usize + self.buffer.len()).div_ceil(PAGE_SIZE);
        let page = |&word: &u64| NDK_LOGICAL_ADDRESS { QuadPart: word.cast_signed() };
        self.mapping[header..header + pages].iter().map(page).collect()
    }

    /// An element over `range` of the buffer, for the privileged token of a domain. The pages of the
    /// range must be neighbours.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer or is 4 GiB or longer.
    #[must_use]
    pub fn sge(&self, range: Range<usize>, privileged_token: u32) -> Sge<'_> {
        assert!(range.start <= range.end && range.end <= self.buffer.len(), "{range:?}");
        let at = self.fbo as usize + range.start;
        // Behind the last byte there may be no page: an empty element may begin there.
        let page = (at / PAGE_SIZE).min(self.pages().len() - 1);
        let start = self.pages()[page].QuadPart;
        let address = NDK_LOGICAL_ADDRESS { QuadPart: start + (at - page * PAGE_SIZE) as i64 };
        let length = ULONG::try_from(range.len()).expect("an element is shorter than 4 GiB");
        Sge(NDK_SGE::from_logical(address, length, privileged_token), PhantomData)
    }
}

impl Drop for Lam {
    fn drop(&mut self) {
        let mapping = self.mapping.as_mut_ptr().cast();
        // SAFETY: the adapter is open, and built the mapping.
        unsafe { (self.adapter.table().NdkReleaseLAM)(self.adapter.as_ptr(), mapping) }
    }
}
