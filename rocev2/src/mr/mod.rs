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
//! A reserved key stays the same number for its object's whole life, because NDK consumers read a token
//! once and use it for every mapping that follows. Between two mappings it names nothing.
//!
//! [`register`]: crate::Device::register
//! [`reserve`]: crate::Device::reserve
//! [`deregister`]: crate::Device::deregister
//! [`FastRegister`]: crate::qp::SendOp::FastRegister
//! [`Invalidate`]: crate::qp::SendOp::Invalidate

mod keys;
#[cfg(test)]
mod tests;

use crate::env::{RegionId, Rng};
use crate::ids::{Lkey, Qpn, Rkey};
use crate::index::Index;
use alloc::vec::Vec;
use core::ops::BitOr;
use keys::KeyIndex;

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
    /// [`Device::poll_released`](crate::device::Device::poll_released) returns them.
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

/// A checked place in memory. It is valid only while [`MrTable::region`] says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    slot: u32,
    generation: u32,
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
    /// The region of a window.
    bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    qpn: Qpn,
    /// The region's slot and generation.
    slot: u32,
    generation: u32,
}

struct Slot {
    /// 0 where the slot is free.
    key: u32,
    /// The generation: it changes each time that the key ceases to name its memory.
    generation: u32,
    pd: PdId,
    kind: Kind,
    span: Option<Span>,
}

/// All keys of a device.
pub(crate) struct MrTable {
    keys: KeyIndex,
    slots: Vec<Slot>,
    free: Vec<u32>,
    limit: usize,
    windows: usize,
    /// Bound windows, by the QP that bound each.
    bound: Index,
}

impl MrTable {
    /// An empty table for at most `limit` keys, and never more than 2^20. It takes memory as keys are made.
    pub(crate) fn new(rng: Rng, limit: usize) -> Self {
        let limit = limit.clamp(1, keys::MAX_KEYS);
        Self {
            keys: KeyIndex::new(rng),
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            windows: 0,
            bound: Index::default(),
        }
    }

    /// Enters a registration under a new, unpredictable key that is never 0.
    /// The one key serves as lkey and rkey. `None` where the table is full.
    pub(crate) fn register(&mut self, registration: Registration) -> Option<Rkey> {
        let Registration { pd, region, base, len, access } = registration;
        let span = Span { region, offset: 0, base, len, access, bound: None };
        self.enter(pd, Kind::Registered, Some(span))
    }

    /// Draws a key for an object that keeps it for life: unpredictable, never 0, lkey and rkey in one.
    /// `None` where the table is full.
    pub(crate) fn reserve(&mut self, pd: PdId, what: Reserve) -> Option<Rkey> {
        let (kind, span) = match what {
            Reserve::FastRegister(most) => (Kind::FastRegister(most), None),
            Reserve::Window => (Kind::Window, None),
            Reserve::Privileged(region) => {
                let (len, access) = (u64::MAX, Access::LOCAL_WRITE);
                let span = Span { region, offset: 0, base: 0, len, access, bound: None };
                (Kind::Privileged, Some(span))
            }
        };
        let windows = self.windows + usize::from(kind == Kind::Window);
        // So that to bind takes no memory.
        self.bound.make_room(windows)?;
        let key = self.enter(pd, kind, span)?;
        self.windows = windows;
        Some(key)
    }

    /// Makes a fast-register region name memory.
    ///
    /// # Errors
    /// The first rule that failed: key, kind, domain, not mapped already, rights, bounds.
    pub(crate) fn map(
        &mut self,
        pd: PdId,
        key: Rkey,
        mapping: &Mapping,
    ) -> Result<(), AccessError> {
        let Mapping { region, offset, base, len, access } = *mapping;
        let at = self.find(key.get())?;
        let slot = &mut self.slots[at];
        let Kind::FastRegister(most) = slot.kind else { return Err(AccessError::Kind) };
        slot.idle(pd)?;
        if !most.contains(access) || !writable(access, access) {
            return Err(AccessError::Rights);
        }
        // The very last byte of the address space is valid.
        let addressable = base.checked_add(len.saturating_sub(1)).is_some();
        if !addressable || u64::from(offset).checked_add(len).is_none() {
            return Err(AccessError::Bounds);
        }
        slot.span = Some(Span { region, offset: offset.into(), base, len, access, bound: None });
        Ok(())
    }

    /// Binds a window on behalf of a QP.
    ///
    /// # Errors
    /// The first rule that failed: the window's key, kind, domain and not bound already (o10-37.2.30);
    /// length (o10-37.2.40); the region's key, kind, domain (C10-72), rights (C10-74) and
    /// bounds (C10-75).
    pub(crate) fn bind(&mut self, pd: PdId, qpn: Qpn, bind: &Bind) -> Result<(), AccessError> {
        let window = self.find(bind.window.get())?;
        if self.slots[window].kind != Kind::Window {
            return Err(AccessError::Kind);
        }
        self.slots[window].idle(pd)?;
        if bind.len == 0 {
            return Err(AccessError::Bounds);
        }
        let at = self.find(bind.region.get())?;
        let region = &self.slots[at];
        match region.kind {
            Kind::Registered | Kind::FastRegister(_) => {}
            Kind::Window | Kind::Privileged => return Err(AccessError::Kind),
        }
        let span = region.span_of(pd)?;
        if !writable(bind.access, span.access) {
            return Err(AccessError::Rights);
        }
        let inside = span.at(bind.va, bind.len)?;
        // A slot number, at most 2^20.
        let bound = Bound { qpn, slot: at as u32, generation: region.generation };
        self.slots[window].span = Some(Span {
            region: span.region,
            offset: inside,
            base: bind.va,
            len: bind.len,
            access: bind.access,
            bound: Some(bound),
        });
        self.bound.insert(qpn.get(), window);
        Ok(())
    }

    /// Ends the mapping of a fast-register region or the binding of a window; the key stays reserved.
    /// Returns the bytes of a mapping that ended.
    ///
    /// # Errors
    /// Only a mapped region or a bound window of the same domain can be invalidated, and by a peer only
    /// through the QP that bound it. rxe checks none of this, which lets a peer end any region of the
    /// machine.
    pub(crate) fn invalidate(
        &mut self,
        pd: PdId,
        by: Invalidator,
        key: Rkey,
    ) -> Result<Option<Released>, AccessError> {
        let at = self.invalidable(pd, key)?;
        if let (Some(Bound { qpn, .. }), Invalidator::Peer(peer)) =
            (self.slots[at].span_of(pd)?.bound, by)
            && qpn != peer
        {
            return Err(AccessError::Domain);
        }
        Ok(self.end(at))
    }

    /// Checks that the key is of a kind that can be invalidated.
    ///
    /// # Errors
    /// The first rule that failed: key, domain, kind.
    pub(crate) fn check_invalidable(&self, pd: PdId, key: Rkey) -> Result<(), AccessError> {
        self.invalidable(pd, key).map(drop)
    }

    fn invalidable(&self, pd: PdId, key: Rkey) -> Result<usize, AccessError> {
        let at = self.find(key.get())?;
        if self.slots[at].pd != pd {
            return Err(AccessError::Domain);
        }
        match self.slots[at].kind {
            Kind::FastRegister(_) | Kind::Window => Ok(at),
            Kind::Registered | Kind::Privileged => Err(AccessError::Kind),
        }
    }

    /// Ends a key of any kind. Later uses of it, targets already checked, and windows on it fail. Returns
    /// the bytes of a mapping that ended with it; those of a registered region are the caller's again when
    /// this returns.
    ///
    /// # Errors
    /// [`AccessError::UnknownKey`] where the key names nothing.
    pub(crate) fn deregister(&mut self, key: Rkey) -> Result<Option<Released>, AccessError> {
        let at = self.find(key.get())?;
        let released = self.end(at);
        let slot = &mut self.slots[at];
        slot.key = 0;
        self.windows -= usize::from(slot.kind == Kind::Window);
        self.keys.retire(key.get());
        // A slot number, at most 2^20.
        self.free.push(at as u32);
        Ok(released)
    }

    /// Ends every window that a QP has bound: the QP is destroyed, and another may get its number.
    pub(crate) fn unbind_qp(&mut self, qpn: Qpn) {
        loop {
            let window = self.bound.find(qpn.get()).next();
            let Some(window) = window else { return };
            self.end(window);
        }
    }

    /// Ends the mapping or binding of a key, which names nothing from here on.
    fn end(&mut self, at: usize) -> Option<Released> {
        let slot = &mut self.slots[at];
        if let Some(bound) = slot.span.and_then(|span| span.bound) {
            self.bound.remove(bound.qpn.get(), at);
        }
        slot.end()
    }

    /// Checks a peer's access, through the QP `qpn`, to `len > 0` bytes at `va`.
    ///
    /// # Errors
    /// The first rule that failed: key, domain, QP of a window, rights, bounds.
    #[inline]
    pub(crate) fn remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        key: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<Target, AccessError> {
        let (at, slot, span) = self.span_for(pd, qpn, key)?;
        let offset = span.grant(va, len, needed)?;
        // A slot number, at most 2^20.
        Ok(Target { slot: at as u32, generation: slot.generation, offset })
    }

    /// As [`Self::remote`], for bytes that are used at once: returns where they are.
    ///
    /// # Errors
    /// As [`Self::remote`].
    #[inline(always)]
    pub(crate) fn remote_now(
        &self,
        pd: PdId,
        qpn: Qpn,
        key: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<(RegionId, u64), AccessError> {
        let (_, _, span) = self.span_for(pd, qpn, key)?;
        Ok((span.region, span.grant(va, len, needed)?))
    }

    /// The memory that a key names to a peer of the QP `qpn`, and its slot.
    #[inline(always)]
    fn span_for(
        &self,
        pd: PdId,
        qpn: Qpn,
        key: Rkey,
    ) -> Result<(usize, &Slot, &Span), AccessError> {
        let (at, slot) = self.slot(key.get())?;
        let span = slot.span_of(pd)?;
        if let Some(bound) = span.bound {
            if bound.qpn != qpn {
                return Err(AccessError::Domain);
            }
            if !self.lives(&bound) {
                return Err(AccessError::UnknownKey);
            }
        }
        Ok((at, slot, span))
    }

    /// Checks a scatter/gather element of `len` bytes at `addr`. Returns where they are, to be used at once.
    ///
    /// # Errors
    /// The first rule that failed: key, domain, kind (a window is for peers only), rights, bounds.
    #[inline(always)]
    pub(crate) fn local(
        &self,
        pd: PdId,
        key: Lkey,
        addr: u64,
        len: u64,
        needed: Access,
    ) -> Result<(RegionId, u64), AccessError> {
        let span = self.local_span(pd, key)?;
        Ok((span.region, span.grant(addr, len, needed)?))
    }

    #[inline(always)]
    fn local_span(&self, pd: PdId, key: Lkey) -> Result<&Span, AccessError> {
        let span = self.slot(key.get())?.1.span_of(pd)?;
        if span.bound.is_some() { Err(AccessError::Kind) } else { Ok(span) }
    }

    /// The region behind a checked target, or `None` once its key, or the region that its window is
    /// bound to, has ceased to name it.
    pub(crate) fn region(&self, target: &Target) -> Option<RegionId> {
        let slot = self.slots.get(target.slot as usize)?;
        let span = slot.span.filter(|_| slot.generation == target.generation)?;
        span.bound.is_none_or(|bound| self.lives(&bound)).then_some(span.region)
    }

    /// Keys in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether a window's region still names the memory to which the window was bound.
    fn lives(&self, bound: &Bound) -> bool {
        self.slots
            .get(bound.slot as usize)
            .is_some_and(|slot| slot.span.is_some() && slot.generation == bound.generation)
    }

    fn find(&self, key: u32) -> Result<usize, AccessError> {
        self.slot(key).map(|(at, _)| at)
    }

    /// The slot of a key, and its number.
    #[inline(always)]
    fn slot(&self, key: u32) -> Result<(usize, &Slot), AccessError> {
        let at = self.keys.candidate(key);
        let slot = self.slots.get(at).filter(|slot| slot.key == key && key != 0);
        slot.map(|slot| (at, slot)).ok_or(AccessError::UnknownKey)
    }

    /// Makes room for one more key, and for the end of each; `None` where the table is full, or there is no
    /// memory.
    fn make_room(&mut self) -> Option<()> {
        if self.len() >= self.limit {
            return None;
        }
        let slots = self.slots.len() + usize::from(self.free.is_empty());
        self.slots.try_reserve(slots - self.slots.len()).ok()?;
        self.free.try_reserve(slots - self.free.len()).ok()?;
        let keys = (0..).zip(&self.slots).map(|(at, slot)| (slot.key, at));
        self.keys.make_room(self.len(), keys.filter(|(key, _)| *key != 0))
    }

    /// Bytes that the next key may make the table allocate: a part that is full doubles.
    pub(crate) fn growth_bytes(&self) -> usize {
        let full = self.free.is_empty() && self.slots.len() == self.slots.capacity();
        let slots = if full { 2 * self.slots.len().max(4) } else { 0 };
        slots * (size_of::<Slot>() + size_of::<u32>())
            + self.keys.growth_bytes(self.len())
            + self.bound.growth_bytes(self.windows + 1)
    }

    /// Whether a key is that of a fast-register region.
    pub(crate) fn is_fast_register(&self, key: Rkey) -> bool {
        self.slot(key.get()).is_ok_and(|(_, slot)| matches!(slot.kind, Kind::FastRegister(_)))
    }

    fn enter(&mut self, pd: PdId, kind: Kind, span: Option<Span>) -> Option<Rkey> {
        self.make_room()?;
        // A slot number, at most 2^20.
        let at = self.free.pop().unwrap_or(self.slots.len() as u32);
        let key = self.keys.draw(at);
        let generation = self.slots.get(at as usize).map_or(0, |slot| slot.generation);
        let slot = Slot { key, generation, pd, kind, span };
        match self.slots.get_mut(at as usize) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        Some(Rkey::new(key))
    }
}

impl Slot {
    /// Checks that a work request of `pd` may make this key name memory.
    fn idle(&self, pd: PdId) -> Result<(), AccessError> {
        match self.span {
            _ if self.pd != pd => Err(AccessError::Domain),
            Some(_) => Err(AccessError::Valid),
            None => Ok(()),
        }
    }

    fn span_of(&self, pd: PdId) -> Result<&Span, AccessError> {
        let span = self.span.as_ref().ok_or(AccessError::UnknownKey)?;
        if self.pd == pd { Ok(span) } else { Err(AccessError::Domain) }
    }

    /// Ends the mapping or binding: the key names nothing from here on.
    fn end(&mut self) -> Option<Released> {
        self.generation = self.generation.wrapping_add(1);
        let span = self.span.take()?;
        let mapped = matches!(self.kind, Kind::FastRegister(_));
        mapped.then_some(Released { key: Rkey::new(self.key), region: span.region })
    }
}

/// Scatter/gather elements one after the other, which mostly name the same key.
pub(crate) struct LocalKeys<'a> {
    mrs: &'a MrTable,
    pd: PdId,
    last: Option<(Lkey, &'a Span)>,
}

impl<'a> LocalKeys<'a> {
    /// Those of this domain.
    pub(crate) const fn new(mrs: &'a MrTable, pd: PdId) -> Self {
        Self { mrs, pd, last: None }
    }

    /// As [`MrTable::local`].
    #[inline(always)]
    pub(crate) fn local(
        &mut self,
        key: Lkey,
        addr: u64,
        len: u64,
        needed: Access,
    ) -> Result<(RegionId, u64), AccessError> {
        let span = match self.last {
            Some((last, span)) if last == key => span,
            _ => self.look_up(key)?,
        };
        Ok((span.region, span.grant(addr, len, needed)?))
    }

    #[inline(never)]
    fn look_up(&mut self, key: Lkey) -> Result<&'a Span, AccessError> {
        let span = self.mrs.local_span(self.pd, key)?;
        self.last = Some((key, span));
        Ok(span)
    }
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
