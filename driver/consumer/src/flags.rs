//! Rights to memory, and flags of requests.
//!
//! The bits are those of `ndkpi.h`, so a number of C becomes one of these types as it is, right or wrong.

use bitflags::bitflags;
use driver::abi::*;

bitflags! {
    /// Rights to registered memory, `NDK_MR_FLAG_*`. Our own requests may always read it.
    ///
    /// ```
    /// use ndk_consumer::Rights;
    ///
    /// assert!(Rights::REMOTE_WRITE.contains(Rights::LOCAL_WRITE));
    /// ```
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Rights: u32 {
        /// Our receives and READs may write it.
        const LOCAL_WRITE = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        /// The peer's READs may read it.
        const REMOTE_READ = NDK_MR_FLAG_ALLOW_REMOTE_READ;
        /// The peer's WRITEs may write it, and so may we.
        const REMOTE_WRITE = NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        /// Our READs may write it, on adapters that ask for this right.
        const READ_SINK = NDK_MR_FLAG_RDMA_READ_SINK;
    }
}

bitflags! {
    /// Flags of an initiator request, `NDK_OP_FLAG_*`. [`Rights`] become flags of a fast registration or a bind.
    ///
    /// ```
    /// use ndk_consumer::{Flags, Rights};
    ///
    /// let flags = Flags::DEFER | Flags::from(Rights::REMOTE_WRITE);
    /// assert!(flags.contains(Flags::ALLOW_REMOTE_WRITE));
    /// ```
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Flags: u32 {
        /// No completion where it succeeds.
        const SILENT_SUCCESS = NDK_OP_FLAG_SILENT_SUCCESS;
        /// It starts when all earlier READs have ended.
        const READ_FENCE = NDK_OP_FLAG_READ_FENCE;
        /// The receive that a send ends notifies a CQ that is armed for solicited completions.
        const SOLICIT = NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT;
        /// A right that a fast registration or a bind gives.
        const ALLOW_REMOTE_READ = NDK_OP_FLAG_ALLOW_REMOTE_READ;
        /// A right that a fast registration gives.
        const ALLOW_LOCAL_WRITE = NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
        /// A right that a fast registration or a bind gives; it contains [`Flags::ALLOW_LOCAL_WRITE`].
        const ALLOW_REMOTE_WRITE = NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
        /// The data are copied at the post; the functions for inline data set it.
        const INLINE = NDK_OP_FLAG_INLINE;
        /// A right that a fast registration gives.
        const READ_SINK = NDK_OP_FLAG_RDMA_READ_SINK;
        /// A READ ends the token of its first element when it is done.
        const READ_LOCAL_INVALIDATE = NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
        /// More requests follow at once, so this one may wait for them.
        const DEFER = NDK_OP_FLAG_DEFER;
    }
}

impl From<u32> for Rights {
    fn from(bits: u32) -> Self {
        Self::from_bits_retain(bits)
    }
}

impl From<u32> for Flags {
    fn from(bits: u32) -> Self {
        Self::from_bits_retain(bits)
    }
}

impl From<Rights> for Flags {
    fn from(rights: Rights) -> Self {
        const PAIRS: [(Rights, Flags); 4] = [
            (Rights::LOCAL_WRITE, Flags::ALLOW_LOCAL_WRITE),
            (Rights::REMOTE_READ, Flags::ALLOW_REMOTE_READ),
            (Rights::REMOTE_WRITE, Flags::ALLOW_REMOTE_WRITE),
            (Rights::READ_SINK, Flags::READ_SINK),
        ];
        PAIRS
            .into_iter()
            .filter(|(right, _)| rights.contains(*right))
            .map(|(_, flag)| flag)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_become_the_flags_of_a_fast_registration() {
        for (rights, flags) in [
            (Rights::empty(), 0),
            (Rights::LOCAL_WRITE, NDK_OP_FLAG_ALLOW_LOCAL_WRITE),
            (Rights::REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_READ),
            (Rights::REMOTE_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_WRITE),
            (
                Rights::READ_SINK | Rights::LOCAL_WRITE,
                NDK_OP_FLAG_RDMA_READ_SINK | NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
            ),
            (Rights::all(), 0xb8),
        ] {
            assert_eq!(Flags::from(rights).bits(), flags, "{rights:?}");
        }
    }

    /// A consumer's mistake reaches the provider as it is.
    #[test]
    fn unknown_bits_are_kept() {
        assert_eq!(Flags::from(0x8000_0001).bits(), 0x8000_0001);
        assert_eq!(Rights::from(0x40).bits(), 0x40);
    }
}
