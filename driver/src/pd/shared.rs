//! The state of a protection domain that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::object::shared::Object;
use rocev2::ids::Rkey;

/// A protection domain.
pub(crate) type PdObject = Object<NDK_PD, PdShared>;

/// The shared state of a domain.
pub(crate) struct PdShared {
    /// Names all logical addresses.
    pub(crate) privileged: Rkey,
}
