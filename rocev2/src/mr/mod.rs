//! The protection table: the keys, the bytes that each names, and the rights on them.
//!
//! Every access of a peer and every scatter/gather element is checked here for key, rights and range
//! before [`Memory`](crate::env::Memory) is touched (IBTA ch. 10, Memory Management).
//!
//! | key | made by | names memory | ended by |
//! | --- | --- | --- | --- |
//! | registered region | [`register`] | for its whole life | [`deregister`] |
//! | fast-register region | [`reserve`] | from a posted [`FastRegister`] on | an invalidation |
//! | window | [`reserve`] | from a posted [`Bind`](crate::qp::SendOp::Bind) on | an invalidation, or with its region |
//! | privileged | [`reserve`] | for its whole life | [`deregister`] |
//!
//! An invalidation is a posted [`Invalidate`], or the peer's SEND with invalidate.
//!
//! The cores of a device share the keys. The registrar makes them; each core looks them up, maps, binds and
//! invalidates. They read without locks, and who ends a mapping waits until no core copies through it:
//!
//! | file | contents |
//! | --- | --- |
//! | `registrar.rs`, `keys.rs` | keys are made and ended; they are drawn so that none comes back soon |
//! | `lookup.rs` | the keys as a core sees them |
//! | `table.rs`, `slot.rs` | what all cores read: the place of a key, and the memory that it names |
//! | `bursts.rs` | the bursts of the cores, for which the end of a mapping waits |
//!
//! A reserved key stays the same number for its object's whole life, because NDK consumers read a token
//! once and use it for every mapping that follows. Between two mappings it names nothing.
//!
//! [`register`]: crate::Device::register
//! [`reserve`]: crate::Device::reserve
//! [`deregister`]: crate::Device::deregister
//! [`FastRegister`]: crate::qp::SendOp::FastRegister
//! [`Invalidate`]: crate::qp::SendOp::Invalidate

mod bursts;
mod keys;
mod lookup;
#[cfg(all(loom, test))]
mod loom_model;
mod modelled;
mod registrar;
mod slot;
mod table;
#[cfg(all(not(loom), test))]
mod tests;

use crate::env::RegionId;
use crate::ids::{Lkey, Qpn, Rkey};
use core::ops::BitOr;
pub(crate) use lookup::{LocalKeys, MrTable};
pub(crate) use registrar::Registrar;

/// A protection domain: keys work only for the QPs of their own domain.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PdId(pub u32);

/// The rights of a key. Local read is always granted.
///
/// ```
/// use rocev2::mr::Access;
///
/// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// assert!(access.contains(Access::REMOTE_WRITE) && !access.contains(Access::REMOTE_READ));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Access(u8);

impl Access {
    /// Local read only.
    pub const LOCAL_READ: Self = Self(0);
    /// Receives and READ responses may be placed.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer may READ.
    pub const REMOTE_READ: Self = Self(2);
    /// A peer may WRITE.
    pub const REMOTE_WRITE: Self = Self(4);

    /// These rights and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every right of `needed` is granted.
    pub const fn contains(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// The inverse of [`Self::bits`].
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits & 0b111)
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// A registration of memory.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// The owning domain.
    pub pd: PdId,
    /// The bytes behind the region.
    pub region: RegionId,
    /// Address of the first byte, as scatter/gather elements and peers name it.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Rights granted.
    pub access: Access,
}

/// The purpose of a reserved key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reserve {
    /// A fast-register region; no mapping of it grants more than these rights.
    FastRegister(Access),
    /// A memory window.
    ///
    /// NDK's windows are type 2 in the terms of the IBTA: a work request binds one; a peer uses and
    /// invalidates it only through the QP that bound it; it must be unbound before it is bound again.
    Window,
    /// All logical addresses of a domain (NDK's privileged token), for scatter/gather elements only: a peer
    /// can never use it, and no window can be bound to it. The address of an element is the offset in this
    /// region, and [`Memory`](crate::env::Memory) checks it.
    Privileged(RegionId),
}

/// The memory of a fast registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mapping {
    /// The bytes, such as a list of pages. They belong to the device until
    /// [`Engine::poll_released`](crate::Engine::poll_released) returns them.
    pub region: RegionId,
    /// Distance of the first mapped byte from the start of `region`.
    pub offset: u32,
    /// Address of the first mapped byte, as scatter/gather elements and peers name it.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Rights granted. Remote write needs local write.
    pub access: Access,
}

/// The memory to which a window is bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bind {
    /// The window.
    pub window: Rkey,
    /// The region, registered or fast-registered. There is no right to bind: NDK has none, so every
    /// region permits it but the privileged.
    pub region: Lkey,
    /// Address of the first byte, inside the region. The window keeps the region's addresses.
    pub va: u64,
    /// Length in bytes, not 0.
    pub len: u64,
    /// Remote rights. Remote write needs a region with local write; the region itself need not
    /// grant any remote right.
    pub access: Access,
}

/// A region whose bytes are no longer in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Released {
    /// The key that named it, or was to name it.
    pub key: Rkey,
    /// As in [`Mapping::region`].
    pub region: RegionId,
}

/// The reason why a key was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// There is no such key, or it names no memory now.
    #[error("the key names no memory")]
    UnknownKey,
    /// The key belongs to another protection domain, or the window to another QP.
    #[error("the key belongs to another protection domain or queue pair")]
    Domain,
    /// The right is not granted.
    #[error("the key does not grant the access")]
    Rights,
    /// The range does not lie inside the memory that the key names.
    #[error("the range is not inside the memory of the key")]
    Bounds,
    /// The key is not of the kind that the operation is for.
    #[error("the key is of another kind")]
    Kind,
    /// The key already names memory.
    #[error("the key names memory already")]
    Valid,
}

/// A slot of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct At(u32);

/// A checked place in memory. It is valid only while [`MrTable::region`] says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    at: At,
    /// The slot's sequence number, which changes when the key ceases to name the memory.
    seq: u32,
    /// Distance in bytes from the start of the region.
    pub offset: u64,
}

/// The side that asks for an invalidation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Invalidator {
    /// The owner. Any QP of the domain will do: the one that bound a window may be gone.
    Owner,
    /// A peer, through this QP.
    Peer(Qpn),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Registered,
    FastRegister(Access),
    Window,
    Privileged,
}

/// The memory that a key names.
#[derive(Clone, Copy, Debug)]
struct Span {
    region: RegionId,
    /// Distance of the first byte from the start of `region`.
    offset: u64,
    base: u64,
    len: u64,
    access: Access,
}

/// The region of a bound window.
#[derive(Clone, Copy, Debug)]
struct Bound {
    qpn: Qpn,
    /// The region's slot, and its sequence number then.
    at: At,
    seq: u32,
}

impl Span {
    /// The offset in the region of `len` bytes at `va`, if the rights are granted.
    fn grant(&self, va: u64, len: u64, needed: Access) -> Result<u64, AccessError> {
        if self.access.contains(needed) { self.at(va, len) } else { Err(AccessError::Rights) }
    }

    /// The offset in the region of `len` bytes at `va`.
    fn at(&self, va: u64, len: u64) -> Result<u64, AccessError> {
        // Subtractions only: `va + len` overflows for an address near the top, which twice was a remote
        // memory corruption in another stack (CVE-2016-8636).
        let inside = va >= self.base && len <= self.len && va - self.base <= self.len - len;
        if inside { Ok(self.offset + (va - self.base)) } else { Err(AccessError::Bounds) }
    }
}

/// Whether rights may be granted on memory with the rights `memory`: remote write needs local write
/// (C10-74).
const fn writable(granted: Access, memory: Access) -> bool {
    !granted.contains(Access::REMOTE_WRITE) || memory.contains(Access::LOCAL_WRITE)
}
