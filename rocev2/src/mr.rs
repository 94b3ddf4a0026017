//! The protection table: which key names which bytes, and what may be done with them.
//!
//! Every access of a peer and every scatter/gather element passes [`MrTable::remote`] or
//! [`MrTable::local`] before [`Memory`](crate::env::Memory) is touched (IBTA ch. 10, Memory Management).

use crate::env::{RegionId, Rng};
use crate::ids::{Lkey, Rkey};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::BitOr;

/// A protection domain: keys work only for the QPs of their own domain.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PdId(pub u32);

/// What a key permits. Local read is always granted.
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
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// How a region came to be, which decides who may invalidate it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MrKind {
    /// Registered and deregistered by its owner; never invalidated.
    Registered,
    /// Mapped by work requests; a local or remote invalidation ends the mapping.
    FastRegister,
}

/// What is registered.
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
    /// Who may end it.
    pub kind: MrKind,
}

/// Why a key did not serve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AccessError {
    /// No live registration has this key.
    UnknownKey,
    /// The key belongs to another protection domain.
    Domain,
    /// The right is not granted.
    Rights,
    /// The range does not lie inside the registration.
    Bounds,
    /// The registration cannot be invalidated.
    Kind,
}

/// A checked place in a registration. It stays valid only while [`MrTable::region`] says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Target {
    slot: u32,
    generation: u32,
    /// Distance in bytes from the start of the region.
    pub offset: u64,
}

struct Slot {
    generation: u32,
    entry: Option<Registration>,
}

/// All registrations of a device.
pub struct MrTable {
    rng: Rng,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_key: BTreeMap<u32, u32>,
    retired: VecDeque<u32>,
    retired_set: BTreeSet<u32>,
    limit: usize,
}

/// A key is not drawn again within this many registrations, so that a peer's stale key meets
/// nothing (the weakness that the ReDMArk paper exploits).
const KEY_QUARANTINE: usize = 1 << 16;

impl MrTable {
    /// An empty table for at most `limit` registrations.
    pub fn new(rng: Rng, limit: usize) -> Self {
        Self {
            rng,
            slots: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            retired: VecDeque::new(),
            retired_set: BTreeSet::new(),
            limit,
        }
    }

    /// Enters a registration under a new, unpredictable key that is never 0.
    /// The one key serves as lkey and rkey. `None` where the table is full.
    pub fn register(&mut self, registration: Registration) -> Option<Rkey> {
        if self.by_key.len() >= self.limit {
            return None;
        }
        let key = self.draw_key();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, entry: None });
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].entry = Some(registration);
        self.by_key.insert(key, slot);
        Some(Rkey::new(key))
    }

    /// Ends a registration. Later uses of its key, and targets already checked, fail.
    ///
    /// # Errors
    /// [`AccessError::UnknownKey`] where the key names nothing.
    pub fn deregister(&mut self, key: Rkey) -> Result<RegionId, AccessError> {
        let slot = self.by_key.remove(&key.get()).ok_or(AccessError::UnknownKey)?;
        self.retire(key.get());
        let slot_ref = &mut self.slots[slot as usize];
        slot_ref.generation = slot_ref.generation.wrapping_add(1);
        self.free.push(slot);
        let entry = slot_ref.entry.take().ok_or(AccessError::UnknownKey)?;
        Ok(entry.region)
    }

    /// Invalidates a key on a peer's request (SEND with invalidate).
    ///
    /// # Errors
    /// Only a fast-registered region of the same domain can be invalidated; rxe checks neither,
    /// which lets a peer end any region of the machine.
    pub fn invalidate(&mut self, pd: PdId, key: Rkey) -> Result<RegionId, AccessError> {
        let slot = *self.by_key.get(&key.get()).ok_or(AccessError::UnknownKey)?;
        let entry = self.slots[slot as usize].entry.as_ref().ok_or(AccessError::UnknownKey)?;
        if entry.pd != pd {
            return Err(AccessError::Domain);
        }
        match entry.kind {
            MrKind::Registered => Err(AccessError::Kind),
            MrKind::FastRegister => self.deregister(key),
        }
    }

    /// Checks a peer's access to `len > 0` bytes at `va`.
    ///
    /// # Errors
    /// The first rule that failed: key, domain, rights, bounds.
    pub fn remote(
        &self,
        pd: PdId,
        key: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<Target, AccessError> {
        self.check(pd, key.get(), va, len, needed)
    }

    /// Checks a scatter/gather element of `len` bytes at `addr`.
    ///
    /// # Errors
    /// The first rule that failed: key, domain, rights, bounds.
    pub fn local(
        &self,
        pd: PdId,
        key: Lkey,
        addr: u64,
        len: u64,
        needed: Access,
    ) -> Result<Target, AccessError> {
        self.check(pd, key.get(), addr, len, needed)
    }

    /// The region behind a checked target, or `None` once its registration has ended.
    pub fn region(&self, target: &Target) -> Option<RegionId> {
        let slot = self.slots.get(target.slot as usize)?;
        let entry = slot.entry.as_ref().filter(|_| slot.generation == target.generation)?;
        Some(entry.region)
    }

    /// Live registrations.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    fn check(
        &self,
        pd: PdId,
        key: u32,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<Target, AccessError> {
        let slot = *self.by_key.get(&key).ok_or(AccessError::UnknownKey)?;
        let Slot { generation, entry } = &self.slots[slot as usize];
        let entry = entry.as_ref().ok_or(AccessError::UnknownKey)?;
        if entry.pd != pd {
            return Err(AccessError::Domain);
        }
        if !entry.access.contains(needed) {
            return Err(AccessError::Rights);
        }
        // Subtractions only: `va + len` overflows for an address near the top, which was a remote
        // memory corruption in another stack twice (CVE-2016-8636).
        let inside = va >= entry.base && len <= entry.len && va - entry.base <= entry.len - len;
        if !inside {
            return Err(AccessError::Bounds);
        }
        Ok(Target { slot, generation: *generation, offset: va - entry.base })
    }

    fn draw_key(&mut self) -> u32 {
        loop {
            let key = self.rng.u32();
            if key != 0 && !self.by_key.contains_key(&key) && !self.retired_set.contains(&key) {
                return key;
            }
        }
    }

    fn retire(&mut self, key: u32) {
        self.retired.push_back(key);
        self.retired_set.insert(key);
        if self.retired.len() > KEY_QUARANTINE
            && let Some(oldest) = self.retired.pop_front()
        {
            self.retired_set.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);

    fn table() -> MrTable {
        MrTable::new(Rng::from_seed([7; 32]), 1 << 20)
    }

    fn region(base: u64, len: u64, access: Access, kind: MrKind) -> Registration {
        Registration { pd: PD, region: RegionId(3), base, len, access, kind }
    }

    fn writable(mrs: &mut MrTable, base: u64, len: u64) -> Rkey {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        mrs.register(region(base, len, access, MrKind::FastRegister)).unwrap()
    }

    #[test]
    fn key_01_to_04_bounds_hold_at_every_edge() {
        let mut mrs = table();
        let key = writable(&mut mrs, 0x1000, 0x100);
        let check = |mrs: &MrTable, key, va, len| {
            mrs.remote(PD, key, va, len, Access::REMOTE_WRITE).map(|t| t.offset)
        };
        assert_eq!(check(&mrs, key, 0x1000, 0x100), Ok(0));
        assert_eq!(check(&mrs, key, 0x10ff, 1), Ok(0xff));
        for (va, len) in [
            (0xfff, 1),
            (0x1100, 1),
            (0x1000, 0x101),
            (u64::MAX - 7, 8),
            (u64::MAX, 2),
            (0x1080, u64::MAX),
        ] {
            assert_eq!(check(&mrs, key, va, len), Err(AccessError::Bounds), "{va:#x}+{len:#x}");
        }
        let top = writable(&mut mrs, 0xffff_ffff_ffff_f000, 4096);
        assert_eq!(check(&mrs, top, u64::MAX, 1), Ok(4095));
    }

    #[test]
    fn key_05_to_08_key_domain_and_rights_are_checked() {
        let mut mrs = table();
        let key = mrs.register(region(0, 64, Access::LOCAL_WRITE, MrKind::Registered)).unwrap();
        let fails = |pd, key, needed| mrs.remote(pd, key, 0, 1, needed).unwrap_err();
        assert_eq!(
            fails(PD, Rkey::new(key.get() ^ 1), Access::LOCAL_READ),
            AccessError::UnknownKey
        );
        assert_eq!(fails(PdId(2), key, Access::LOCAL_WRITE), AccessError::Domain);
        assert_eq!(fails(PD, key, Access::REMOTE_WRITE), AccessError::Rights);
        assert_eq!(fails(PD, key, Access::REMOTE_READ), AccessError::Rights);
    }

    #[test]
    fn key_09_to_11_only_a_fast_registered_region_of_the_domain_is_invalidated() {
        let mut mrs = table();
        let frmr = writable(&mut mrs, 0, 64);
        let plain = mrs.register(region(0, 64, Access::LOCAL_WRITE, MrKind::Registered)).unwrap();
        let target = mrs.remote(PD, frmr, 0, 64, Access::REMOTE_WRITE).unwrap();
        assert_eq!(mrs.invalidate(PdId(2), frmr), Err(AccessError::Domain));
        assert_eq!(mrs.invalidate(PD, plain), Err(AccessError::Kind));
        assert_eq!(mrs.invalidate(PD, frmr), Ok(RegionId(3)));
        assert_eq!(mrs.region(&target), None);
        assert_eq!(mrs.invalidate(PD, frmr), Err(AccessError::UnknownKey));
        assert!(mrs.remote(PD, plain, 0, 64, Access::LOCAL_WRITE).is_ok());
    }

    #[test]
    fn a_slot_used_again_does_not_revive_a_target() {
        let mut mrs = table();
        let first = writable(&mut mrs, 0, 64);
        let target = mrs.remote(PD, first, 0, 64, Access::REMOTE_WRITE).unwrap();
        mrs.deregister(first).unwrap();
        writable(&mut mrs, 0, 64);
        assert_eq!(mrs.region(&target), None);
    }

    #[test]
    fn key_20_no_key_repeats_within_the_quarantine() {
        let mut mrs = table();
        let mut seen = BTreeSet::new();
        for _ in 0..KEY_QUARANTINE {
            let key = writable(&mut mrs, 0, 1);
            assert!(key.get() != 0 && seen.insert(key));
            mrs.deregister(key).unwrap();
        }
    }

    #[test]
    fn a_full_table_refuses() {
        let mut mrs = MrTable::new(Rng::from_seed([0; 32]), 1);
        let key = writable(&mut mrs, 0, 1);
        assert!(mrs.register(region(0, 1, Access::LOCAL_READ, MrKind::Registered)).is_none());
        mrs.deregister(key).unwrap();
        assert!(mrs.is_empty());
    }
}
