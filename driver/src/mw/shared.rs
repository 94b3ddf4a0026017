//! The state of a memory window that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::object::shared::Object;
use rocev2::ids::Rkey;
use rocev2::mr::PdId;

/// A memory window.
pub(crate) type MwObject = Object<NDK_MW, MwShared>;

/// The shared state of a window.
pub(crate) struct MwShared {
    pub(crate) pd: PdId,
    pub(crate) key: Rkey,
}
