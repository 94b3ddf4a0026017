//! The keys as a core sees them: it looks them up for each packet, and executes the work requests that map, bind
//! and invalidate.
//!
//! The only core of a device reads a slot as it is, as nobody else changes it. Of several cores each takes one
//! state of the slot, and is noted as a user of the mapping until it ends: by the long way, after which the short one serves.

use super::slot::{Granted, Slot, View};
use super::table::{PLACE_BITS, Table, boxed};
use super::{
    Access, AccessError, At, Bind, Bound, Invalidator, Kind, Mapping, PdId, Released, Span, Target,
    writable,
};
use crate::env::RegionId;
use crate::ids::{Lkey, Qpn, Rkey};
use crate::index::Index;
use alloc::boxed::Box;
use core::cell::Cell;

/// The slots that were found for keys, by the bits that name a key's place in its block: no two keys have the same while
/// there is one block.
type Hints = [Cell<At>; 1 << PLACE_BITS];

const fn hint_of(key: u32) -> usize {
    key as usize & ((1 << PLACE_BITS) - 1)
}

/// The keys of a device, for the queue pairs of one core.
pub(crate) struct MrTable {
    table: Table,
    core: usize,
    /// This core's bit among the users of a mapping; 0 where there is one core only.
    user: u64,
    /// The short way to the slots of the keys that this core has used lately.
    hints: Option<Box<Hints>>,
    /// Windows that queue pairs of this core have bound, by the QP that bound each. Others may have ended a
    /// binding, so what an entry says is verified.
    bound: Index,
}

impl MrTable {
    pub(super) fn new(table: Table, core: usize, cores: usize) -> Self {
        let user = if cores == 1 { 0 } else { 1 << core };
        // A hint that is not known yet names the slot of another key. Without memory for them the long way serves.
        Self { table, core, user, hints: boxed(|| Cell::new(At::nth(0))), bound: Index::default() }
    }

    /// Begins a burst: what is looked up may be used until it ends. Where there is one core only, there is no need
    /// of bursts.
    pub(crate) fn enter(&self) {
        self.table.bursts().enter(self.core);
    }

    /// Ends a burst: nothing that was looked up in it is used any more.
    pub(crate) fn leave(&self) {
        self.table.bursts().leave(self.core);
    }

    /// Makes room for so many windows in all, so that to bind one takes no memory. `None`: no memory.
    pub(crate) fn make_room(&mut self, windows: usize) -> Option<()> {
        // Half of it for entries whose binding others have ended, so that they are looked for seldom.
        self.bound.make_room(2 * windows)
    }

    /// Bytes that [`Self::make_room`] may allocate.
    pub(crate) fn growth_bytes(&self, windows: usize) -> usize {
        self.bound.growth_bytes(2 * windows)
    }

    // ---- work requests ------------------------------------------------------------------------

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
        let (_, mut change, view) = self.table.change(key.get())?;
        let Kind::FastRegister(most) = view.kind else { return Err(AccessError::Kind) };
        view.idle(pd)?;
        if !most.contains(access) || !writable(access, access) {
            return Err(AccessError::Rights);
        }
        // The very last byte of the address space is valid.
        let addressable = base.checked_add(len.saturating_sub(1)).is_some();
        if !addressable || u64::from(offset).checked_add(len).is_none() {
            return Err(AccessError::Bounds);
        }
        change.name(&Span { region, offset: offset.into(), base, len, access }, None);
        Ok(())
    }

    /// Binds a window on behalf of a QP of this core.
    ///
    /// # Errors
    /// The first rule that failed: the window's key, kind, domain and not bound already (o10-37.2.30);
    /// length (o10-37.2.40); the region's key, kind, domain (C10-72), rights (C10-74) and
    /// bounds (C10-75).
    pub(crate) fn bind(&mut self, pd: PdId, qpn: Qpn, bind: &Bind) -> Result<(), AccessError> {
        if self.bound.is_full() {
            self.forget_ended();
        }
        // Before the window is taken for the change, in which nothing waits. A region that ends meanwhile ends the
        // binding, which remembers this state of it.
        let region = self.table.view(bind.region.get(), 0);
        let (window, mut change, view) = self.table.change(bind.window.get())?;
        if view.kind != Kind::Window {
            return Err(AccessError::Kind);
        }
        view.idle(pd)?;
        if bind.len == 0 {
            return Err(AccessError::Bounds);
        }
        let (at, region) = region?;
        match region.kind {
            Kind::Registered | Kind::FastRegister(_) => {}
            Kind::Window | Kind::Privileged => return Err(AccessError::Kind),
        }
        let span = region.span_of(pd)?;
        if !writable(bind.access, span.access) {
            return Err(AccessError::Rights);
        }
        let offset = span.at(bind.va, bind.len)?;
        let Bind { va: base, len, access, .. } = *bind;
        let bound = Bound { qpn, at, seq: region.seq };
        change.name(&Span { region: span.region, offset, base, len, access }, Some(&bound));
        self.bound.insert(qpn.get(), window.0 as usize);
        Ok(())
    }

    /// Drops the entries of windows that others have ended: their bindings, or the windows themselves. As there is
    /// room for twice the windows, most entries are such.
    #[cold]
    fn forget_ended(&mut self) {
        let table = &self.table;
        self.bound.retain(|qpn, window| {
            let bound = table.slot(At(window as u32)).and_then(|slot| slot.view(0).bound);
            bound.is_some_and(|bound| bound.qpn.get() == qpn)
        });
    }

    /// Ends the mapping of a fast-register region or the binding of a window; the key stays reserved.
    /// Returns the bytes of a mapping that ended. As it waits for other cores, a burst ends here, and the next one
    /// begins: what was looked up before is to be looked up again.
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
        let (at, change, view) = self.table.change(key.get())?;
        view.invalidable(pd)?;
        view.span_of(pd)?;
        if let (Some(Bound { qpn, .. }), Invalidator::Peer(peer)) = (view.bound, by)
            && qpn != peer
        {
            return Err(AccessError::Domain);
        }
        let users = change.end();
        if let Some(bound) = view.bound {
            self.bound.remove(bound.qpn.get(), at.0 as usize);
        }
        self.wait(users);
        Ok(view.released())
    }

    /// Whether a key is that of a window.
    pub(crate) fn is_window(&self, key: Rkey) -> bool {
        self.table.view(key.get(), 0).is_ok_and(|(_, view)| view.kind == Kind::Window)
    }

    /// Checks that the key is of a kind that can be invalidated.
    ///
    /// # Errors
    /// The first rule that failed: key, domain, kind.
    pub(crate) fn check_invalidable(&self, pd: PdId, key: Rkey) -> Result<(), AccessError> {
        self.table.view(key.get(), 0)?.1.invalidable(pd)
    }

    /// Ends every window that a QP of this core has bound: the QP is destroyed, and another may get its number. The
    /// same holds of the burst as for [`Self::invalidate`].
    pub(crate) fn unbind_qp(&mut self, qpn: Qpn) {
        let mut users = 0;
        loop {
            let window = self.bound.find(qpn.get()).next();
            let Some(window) = window else { break };
            self.bound.remove(qpn.get(), window);
            let Some(slot) = self.table.slot(At(window as u32)) else { continue };
            let change = slot.change();
            if change.view().bound.is_some_and(|bound| bound.qpn == qpn) {
                users |= change.end();
            }
        }
        self.wait(users);
    }

    /// Waits for the bursts of the other ones among these users. It is in none itself meanwhile, as they may wait
    /// for it.
    fn wait(&self, users: u64) {
        let others = users & !self.user;
        if others == 0 {
            return;
        }
        let bursts = self.table.bursts();
        let within = bursts.within(self.core);
        if within {
            bursts.leave(self.core);
        }
        bursts.wait(others);
        if within {
            bursts.enter(self.core);
        }
    }

    // ---- lookups ------------------------------------------------------------------------------

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
        if let Some((at, Granted { seq, offset, .. })) = self.usual(pd, key.get(), va, len, needed)
        {
            return Ok(Target { at, seq, offset });
        }
        self.check_remote(pd, qpn, key, va, len, needed).map(|(target, _)| target)
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
        if let Some((_, granted)) = self.usual(pd, key.get(), va, len, needed) {
            return Ok((granted.region, granted.offset));
        }
        let (target, region) = self.check_remote(pd, qpn, key, va, len, needed)?;
        Ok((region, target.offset))
    }

    /// The short way to the bytes that a key names, but for a window. Where it is `None`, the long way finds what is wrong,
    /// if anything is.
    #[inline(always)]
    fn usual(
        &self,
        pd: PdId,
        key: u32,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Option<(At, Granted)> {
        debug_assert!(self.may_use(), "used outside of a burst");
        let (at, slot) = self.hint(key)?;
        Some((at, slot.grants(self.user, pd, key, va, len, needed)?))
    }

    /// A slot that may have this key.
    #[inline(always)]
    fn hint(&self, key: u32) -> Option<(At, &Slot)> {
        let at = self.hints.as_ref()?[hint_of(key)].get();
        Some((at, self.table.slot(at)?))
    }

    #[cold]
    #[inline(never)]
    fn check_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        key: Rkey,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<(Target, RegionId), AccessError> {
        let (at, view) = self.view(key.get())?;
        let span = view.span_of(pd)?;
        if let Some(bound) = view.bound {
            if bound.qpn != qpn {
                return Err(AccessError::Domain);
            }
            if !self.lives(&bound) {
                return Err(AccessError::UnknownKey);
            }
        }
        let offset = span.grant(va, len, needed)?;
        Ok((Target { at, seq: view.seq, offset }, span.region))
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
        if let Some((_, granted)) = self.usual(pd, key.get(), addr, len, needed) {
            return Ok((granted.region, granted.offset));
        }
        self.check_local(pd, key, addr, len, needed)
    }

    #[cold]
    #[inline(never)]
    fn check_local(
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

    #[cold]
    fn local_span(&self, pd: PdId, key: Lkey) -> Result<Span, AccessError> {
        let (_, view) = self.view(key.get())?;
        let span = view.span_of(pd)?;
        if view.bound.is_some() { Err(AccessError::Kind) } else { Ok(*span) }
    }

    /// The state of a key's slot, for use by this core.
    fn view(&self, key: u32) -> Result<(At, View), AccessError> {
        debug_assert!(self.may_use(), "used outside of a burst");
        let (at, view) = self.table.view(key, self.user)?;
        if let Some(hints) = &self.hints {
            hints[hint_of(key)].set(at);
        }
        Ok((at, view))
    }

    /// The region behind a checked target, or `None` once its key, or the region that its window is
    /// bound to, has ceased to name it.
    #[inline]
    pub(crate) fn region(&self, target: &Target) -> Option<RegionId> {
        debug_assert!(self.may_use(), "used outside of a burst");
        let slot = self.table.slot(target.at)?;
        slot.region_of(self.user, target.seq).or_else(|| self.check_region(target))
    }

    #[cold]
    #[inline(never)]
    fn check_region(&self, target: &Target) -> Option<RegionId> {
        let view = self.table.slot(target.at)?.view(self.user);
        let span = view.span.filter(|_| view.seq == target.seq)?;
        view.bound.is_none_or(|bound| self.lives(&bound)).then_some(span.region)
    }

    /// Whether a window's region still names the memory to which the window was bound.
    fn lives(&self, bound: &Bound) -> bool {
        let view = self.table.slot(bound.at).map(|slot| slot.view(self.user));
        view.is_some_and(|view| view.span.is_some() && view.seq == bound.seq)
    }

    fn may_use(&self) -> bool {
        self.user == 0 || self.table.bursts().within(self.core)
    }
}

/// Scatter/gather elements one after the other, which mostly name the same key.
pub(crate) struct LocalKeys<'a> {
    mrs: &'a MrTable,
    pd: PdId,
    last: Option<(Lkey, Span)>,
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
        let span = match &self.last {
            Some((last, span)) if *last == key => span,
            _ => self.look_up(key)?,
        };
        Ok((span.region, span.grant(addr, len, needed)?))
    }

    #[inline(never)]
    fn look_up(&mut self, key: Lkey) -> Result<&Span, AccessError> {
        let found = self.mrs.hint(key.get());
        let span = found.and_then(|(_, slot)| slot.span(self.mrs.user, self.pd, key.get()));
        let span = match span {
            Some(span) => span,
            None => self.mrs.local_span(self.pd, key)?,
        };
        Ok(&self.last.insert((key, span)).1)
    }
}
