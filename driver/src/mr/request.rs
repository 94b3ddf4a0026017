//! A consumer's requests to the poll core for a memory region.

use crate::bytes::mapping::Mapping;
use crate::bytes::pages::PageLists;
use crate::object::done::RequestDone;
use crate::object::id::ObjectId;
use alloc::boxed::Box;
use alloc::sync::Arc;
use rocev2::mr::Access;

/// The attributes of a new region.
pub(crate) struct CreateMr {
    pub(crate) fast_register: bool,
}

/// Registers memory for a region.
pub(crate) struct RegisterMr {
    pub(crate) mr: ObjectId,
    pub(crate) what: Box<Register>,
    pub(crate) done: RequestDone,
}

/// The memory to register.
pub(crate) struct Register {
    pub(crate) mapping: Mapping,
    pub(crate) base: u64,
    pub(crate) access: Access,
}

/// Ends the registration of a region.
pub(crate) struct DeregisterMr {
    pub(crate) mr: ObjectId,
    pub(crate) done: RequestDone,
}

/// Initialises a fast-register region.
pub(crate) struct InitializeFastRegisterMr {
    pub(crate) mr: ObjectId,
    pub(crate) what: Box<Initialize>,
    pub(crate) done: RequestDone,
}

/// The page list of a fast-register region, and the pool for those that are queued behind.
pub(crate) struct Initialize {
    pub(crate) list: Arc<PageLists>,
    pub(crate) pool: Arc<PageLists>,
    /// The rights that a mapping may grant.
    pub(crate) most: Access,
}
