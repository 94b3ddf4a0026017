//! A consumer's requests to the poll core for a memory region.

use crate::bytes::mapping::Mapping;
use crate::bytes::pages::PageLists;
use alloc::sync::Arc;
use rocev2::mr::Access;

/// A registration on its way to the core.
pub(crate) struct Register {
    pub(crate) mapping: Mapping,
    pub(crate) base: u64,
    pub(crate) access: Access,
}

/// The initialisation of a fast-register region on its way to the core.
pub(crate) struct Initialize {
    pub(crate) lists: Arc<PageLists>,
    /// The rights that a mapping may grant.
    pub(crate) most: Access,
}
