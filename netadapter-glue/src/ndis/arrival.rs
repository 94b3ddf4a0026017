//! Received frames on their way to the poll core.

use super::abi::NET_BUFFER_LIST;
use crate::auto_traits::auto_traits;
use alloc::boxed::Box;

/// A frame, copied, or in a list that the driver below has lent.
pub(super) enum Arrival {
    Copy { bytes: Box<[u8]>, len: usize },
    Loan(Loan),
}

/// A list of the NIC below, until it is returned.
pub(super) struct Loan {
    pub(super) nbl: *mut NET_BUFFER_LIST,
    pub(super) frame: *const u8,
    pub(super) len: usize,
}

// SAFETY: NDIS lends a list to the driver, not to a thread.
unsafe impl Send for Loan {}

auto_traits! {
    Loan: (Send, !Sync);
    Arrival: (Send, !Sync);
}

impl Arrival {
    pub(super) fn frame(&self) -> &[u8] {
        match self {
            Self::Copy { bytes, len } => &bytes[..*len],
            // SAFETY: the frame is ours to read until its list is given back, with the loan.
            Self::Loan(loan) => unsafe { core::slice::from_raw_parts(loan.frame, loan.len) },
        }
    }
}
