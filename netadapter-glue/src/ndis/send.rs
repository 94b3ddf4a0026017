//! Frames of the poll core on their way out.

use super::abi::{NET_BUFFER_LIST, NET_BUFFER_LIST_INFO_COUNT};
use super::chain::{self, TAG_LEN};
use alloc::boxed::Box;
use core::ptr::null_mut;

pub(super) struct SendBuffer {
    pub(super) bytes: Box<[u8]>,
    pub(super) nbl: *mut NET_BUFFER_LIST,
}

// SAFETY: a list belongs to the driver, not to a thread.
unsafe impl Send for SendBuffer {}

impl SendBuffer {
    /// Describes a frame of `len` bytes at the start of the buffer. A tag travels beside it, where
    /// every NIC that inserts tags looks for it.
    pub(super) fn dress(&mut self, len: usize) {
        assert!(len <= self.bytes.len(), "a unit fits into the buffer that was lent");
        let tag = chain::remove_tag(&mut self.bytes[..len]);
        let offset = if tag.is_some() { TAG_LEN } else { 0 };
        // SAFETY: the list is ours, with the net buffer that it was allocated with.
        let nbl = unsafe { &mut *self.nbl };
        nbl.Next = null_mut();
        // A driver below may have left values on which another would act: no NIC shall compute anything
        // here.
        (nbl.NblFlags, nbl.Status) = (0, 0);
        nbl.NetBufferListInfo = [null_mut(); NET_BUFFER_LIST_INFO_COUNT];
        // SAFETY: as above.
        unsafe { chain::put_beside(nbl, tag) };
        // SAFETY: as above.
        let nb = unsafe { &mut *nbl.FirstNetBuffer };
        nb.DataOffset = offset as u32;
        nb.DataLength = len - offset;
        nb.CurrentMdl = nb.MdlChain;
        nb.CurrentMdlOffset = offset as u32;
    }
}
