//! Makes keys and ends them, for all cores of a device.

use super::keys::{Draws, MAX_KEYS};
use super::table::{PLACES, SlotBlock, Table};
use super::{Access, AccessError, At, Kind, MrTable, PdId, Registration, Released, Reserve, Span};
use crate::env::Rng;
use crate::ids::{MAX_CORES, Rkey};
use alloc::vec::Vec;

/// The one who makes the keys of a device. Each core looks them up in an [`MrTable`] of its own.
pub(crate) struct Registrar {
    table: Table,
    draws: Draws,
    /// Slots that were used before, and are free.
    free: Vec<At>,
    /// Slots that were ever used: the first so many.
    used: usize,
    limit: usize,
    windows: usize,
    cores: usize,
}

impl Registrar {
    /// A table for at most `limit` keys, and never more than 2^20, that so many cores share. It takes memory as
    /// keys are made. Where there is one core, that one is its caller, as the core reads without a look at changes.
    pub(crate) fn new(rng: Rng, limit: usize, cores: usize) -> Self {
        let cores = cores.clamp(1, MAX_CORES);
        Self {
            table: Table::new(cores),
            draws: Draws::new(rng),
            free: Vec::new(),
            used: 0,
            limit: limit.clamp(1, MAX_KEYS),
            windows: 0,
            cores,
        }
    }

    /// The keys as a core sees them; each core takes one.
    pub(crate) fn table(&self, core: usize) -> MrTable {
        debug_assert!(core < self.cores, "there is no such core");
        MrTable::new(self.table.clone(), core, self.cores)
    }

    /// Enters a registration under a new, unpredictable key that is never 0.
    /// The one key serves as lkey and rkey. `None` where the table is full, or there is no memory.
    pub(crate) fn register(&mut self, registration: Registration) -> Option<Rkey> {
        let Registration { pd, region, base, len, access } = registration;
        self.enter(pd, Kind::Registered, Some(&Span { region, offset: 0, base, len, access }))
    }

    /// Draws a key for an object that keeps it for life: unpredictable, never 0, lkey and rkey in one.
    /// `None` where the table is full, or there is no memory. The table of each core has room for a window before.
    pub(crate) fn reserve(&mut self, pd: PdId, what: Reserve) -> Option<Rkey> {
        match what {
            Reserve::FastRegister(most) => self.enter(pd, Kind::FastRegister(most), None),
            Reserve::Window => {
                let key = self.enter(pd, Kind::Window, None)?;
                self.windows += 1;
                Some(key)
            }
            Reserve::Privileged(region) => {
                let (len, access) = (u64::MAX, Access::LOCAL_WRITE);
                let span = Span { region, offset: 0, base: 0, len, access };
                self.enter(pd, Kind::Privileged, Some(&span))
            }
        }
    }

    fn enter(&mut self, pd: PdId, kind: Kind, span: Option<&Span>) -> Option<Rkey> {
        self.make_room()?;
        let at = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            At::nth(self.used - 1)
        });
        let key = self.draws.draw(|key| self.table.is_free(key));
        self.table.slot(at)?.change().enter(key, pd, kind, span);
        self.table.set_place(key, at);
        Some(Rkey::new(key))
    }

    /// Ends a key of any kind. Later uses of it, targets already checked, and windows on it fail. Returns
    /// the bytes of a mapping that ended with it; those of a registered region are the caller's again when
    /// this returns. It waits for the bursts of the cores that use the memory, so it is called by none that is in
    /// one.
    ///
    /// # Errors
    /// [`AccessError::UnknownKey`] where the key names nothing.
    pub(crate) fn deregister(&mut self, key: Rkey) -> Result<Option<Released>, AccessError> {
        let (at, change, view) = self.table.change(key.get())?;
        let users = change.free();
        self.table.free_place(key.get());
        self.table.bursts().wait(users);
        self.windows -= usize::from(view.kind == Kind::Window);
        self.draws.retire(key.get());
        self.free.push(at);
        Ok(view.released())
    }

    /// Keys in use.
    pub(crate) const fn len(&self) -> usize {
        self.used - self.free.len()
    }

    /// Windows in use.
    pub(crate) const fn windows(&self) -> usize {
        self.windows
    }

    /// Whether a key is that of a fast-register region.
    pub(crate) fn is_fast_register(&self, key: Rkey) -> bool {
        let found = self.table.view(key.get(), 0);
        found.is_ok_and(|(_, view)| matches!(view.kind, Kind::FastRegister(_)))
    }

    /// Makes room for one more key, and for the end of each; `None` where the table is full, or there is no
    /// memory.
    fn make_room(&mut self) -> Option<()> {
        let in_use = self.len();
        if in_use >= self.limit {
            return None;
        }
        if self.lacks_slot() {
            self.table.add_slot(self.used)?;
        }
        let slots = self.used + usize::from(self.free.is_empty());
        self.free.try_reserve(slots - self.free.len()).ok()?;
        let lacks_places = self.lacks_places();
        let Self { table, draws, used, .. } = self;
        let slots = (0..*used).map(At::nth);
        let keys = slots.filter_map(|at| Some((table.slot(at)?.key(), at)));
        let keys = keys.filter(|(key, _)| *key != 0);
        if lacks_places {
            table.add_places(keys.clone())?;
        }
        draws.make_room(in_use, keys.map(|(key, _)| key))
    }

    fn lacks_slot(&self) -> bool {
        self.free.is_empty() && !self.table.has_slot(self.used)
    }

    fn lacks_places(&self) -> bool {
        self.len() * PLACES >= self.table.places()
    }

    /// Bytes that the next key may make the table allocate: slots and places come by the block, the rest doubles
    /// when it is full. A window takes [`MrTable::growth_bytes`] for each core, too.
    pub(crate) fn growth_bytes(&self) -> usize {
        let slots = if self.lacks_slot() { size_of::<SlotBlock>() } else { 0 };
        let full = self.free.capacity() <= self.used;
        let free = if full { 2 * self.used.max(4) * size_of::<At>() } else { 0 };
        let places = if self.lacks_places() { self.table.added_bytes() } else { 0 };
        slots + free + places + self.draws.growth_bytes(self.len())
    }

    /// Bytes of the blocks of slots and places, and of the free slots, the prefixes and the retired keys.
    #[cfg(all(not(loom), test))]
    pub(super) fn bytes(&self) -> [usize; 5] {
        let slots = self.used.next_multiple_of(1 << super::table::SLOT_BITS);
        let [prefixes, retired] = self.draws.bytes();
        [slots * 64, self.table.places() * 4, self.free.capacity() * 4, prefixes, retired]
    }
}
