//! Logical address mappings.

use std::ops::Range;
use std::sync::Arc;

use driver::abi::{
    NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NTSTATUS, STATUS_BUFFER_TOO_SMALL, ULONG,
};

use crate::{Adapter, Buffer, Mdl, NdkError, Result};

/// The logical addresses of a part of a buffer. Its drop releases them; the buffer stays until no core reaches it by them.
#[derive(Debug)]
pub struct Lam {
    /// The mapping, in words, so that it is aligned.
    words: Vec<u64>,
    fbo: u32,
    buffer: Arc<Buffer>,
    adapter: Arc<Adapter>,
}

impl Lam {
    pub(crate) fn build(
        adapter: &Arc<Adapter>,
        buffer: Arc<Buffer>,
        part: Range<usize>,
    ) -> Result<Self> {
        assert!(part.end <= buffer.len(), "{part:?} of {}", buffer.len());
        let len = part.len();
        let mut mdl = Mdl::try_new(buffer.as_ptr().wrapping_add(part.start), len)?;
        let mut lam = Self { words: Vec::new(), fbo: 0, buffer, adapter: Arc::clone(adapter) };
        let mut size: ULONG = 0;
        // The first call asks for the size.
        let status = lam.call(&mut mdl, len, &mut size);
        if status != STATUS_BUFFER_TOO_SMALL {
            let call = "NdkBuildLAM";
            NdkError::check(call, status)?;
            return Err(NdkError { status, call });
        }
        lam.words = vec![0; (size as usize).div_ceil(size_of::<u64>())];
        let status = lam.call(&mut mdl, len, &mut size);
        NdkError::check("NdkBuildLAM", status).map(|()| lam)
    }

    /// Never pends without a completion.
    fn call(&mut self, mdl: &mut Mdl, len: usize, size: &mut ULONG) -> NTSTATUS {
        let lam = if self.words.is_empty() { std::ptr::null_mut() } else { self.as_mut_ptr() };
        // SAFETY: the adapter is open; the MDL describes the buffer, which is kept, and the mapping
        // has room for `*size` bytes.
        unsafe {
            (self.adapter.table().NdkBuildLAM)(
                self.adapter.as_ptr(),
                mdl.as_mut_ptr(),
                len,
                None,
                std::ptr::null_mut(),
                lam,
                size,
                &raw mut self.fbo,
            )
        }
    }

    /// The addresses of its pages.
    #[must_use]
    pub fn pages(&self) -> Vec<NDK_LOGICAL_ADDRESS> {
        // The context, then the count, then the pages.
        let first = NDK_LOGICAL_ADDRESS_MAPPING::size_for(0) / size_of::<u64>();
        let pages = self.words.get(1).map_or(0, |word| *word as u32 as usize);
        let pages = self.words.iter().skip(first).take(pages);
        pages.map(|page| NDK_LOGICAL_ADDRESS { QuadPart: page.cast_signed() }).collect()
    }

    /// Offset of the first byte in the first page.
    #[must_use]
    pub const fn fbo(&self) -> u32 {
        self.fbo
    }

    /// The buffer.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The C structure, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut NDK_LOGICAL_ADDRESS_MAPPING {
        self.words.as_mut_ptr().cast()
    }
}

impl Drop for Lam {
    fn drop(&mut self) {
        if self.words.is_empty() {
            return;
        }
        let lam = self.as_mut_ptr();
        // SAFETY: the adapter is open; the mapping was built with it, or is all zero, which the
        // provider takes for released.
        unsafe { (self.adapter.table().NdkReleaseLAM)(self.adapter.as_ptr(), lam) };
        // A request that is outstanding all the same, or a peer's, may reach the buffer until each core has looked.
        self.adapter.opener().keep(Arc::clone(&self.buffer) as _);
    }
}
