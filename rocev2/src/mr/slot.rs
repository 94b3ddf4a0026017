//! A key and the memory that it names: a cache line that every core reads, and any of them may change.
//!
//! A slot is read without a lock: its sequence number is odd while a core changes it and another one after that,
//! so a reader that finds it the same and even before and after has seen one state of the slot. Otherwise it reads
//! again. A change is a few stores, in which nothing waits.
//!
//! The sequence number stays the same for as long as the key names the same memory, and so tells one mapping from
//! the next.

use super::modelled::{AtomicU32, AtomicU64, fence, spin_loop};
use super::{Access, AccessError, At, Bound, Kind, PdId, Released, Span};
use crate::env::RegionId;
use crate::ids::{Qpn, Rkey};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The key names memory. The low bits are the rights on it.
const NAMES: u32 = 1 << 3;
/// It does so as a bound window.
const BOUND: u32 = 1 << 4;
/// The first bits of the kind, and of the rights that a fast-register region grants at most.
const KIND_AT: u32 = 8;
const MOST_AT: u32 = 16;

/// A slot of the table; its key is 0 where it is free.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Slot {
    seq: AtomicU32,
    key: AtomicU32,
    pd: AtomicU32,
    state: AtomicU32,
    region: AtomicU32,
    /// Of a bound window: the queue pair that bound it, the region's slot, and that slot's sequence number then.
    qpn: AtomicU32,
    bound_at: AtomicU32,
    bound_seq: AtomicU32,
    /// A bit for each core that has used the memory since the key names it, where there are several cores.
    users: AtomicU64,
    offset: AtomicU64,
    base: AtomicU64,
    len: AtomicU64,
}

/// Bytes that a key grants, and the sequence number of its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub seq: u32,
    pub region: RegionId,
    pub offset: u64,
}

/// One state of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub seq: u32,
    pub key: u32,
    pub pd: PdId,
    pub kind: Kind,
    pub span: Option<Span>,
    /// The region of a bound window.
    pub bound: Option<Bound>,
}

impl View {
    /// Checks that a work request of `pd` may make this key name memory.
    pub(super) fn idle(&self, pd: PdId) -> Result<(), AccessError> {
        match self.span {
            _ if self.pd != pd => Err(AccessError::Domain),
            Some(_) => Err(AccessError::Valid),
            None => Ok(()),
        }
    }

    pub(super) fn span_of(&self, pd: PdId) -> Result<&Span, AccessError> {
        let span = self.span.as_ref().ok_or(AccessError::UnknownKey)?;
        if self.pd == pd { Ok(span) } else { Err(AccessError::Domain) }
    }

    /// Checks that a key of `pd` is of a kind that can be invalidated.
    pub(super) fn invalidable(&self, pd: PdId) -> Result<(), AccessError> {
        if self.pd != pd {
            return Err(AccessError::Domain);
        }
        match self.kind {
            Kind::FastRegister(_) | Kind::Window => Ok(()),
            Kind::Registered | Kind::Privileged => Err(AccessError::Kind),
        }
    }

    /// The bytes that the owner gets back when this ends: those of a fast registration.
    pub(super) fn released(&self) -> Option<Released> {
        let span = self.span.filter(|_| matches!(self.kind, Kind::FastRegister(_)))?;
        Some(Released { key: Rkey::new(self.key), region: span.region })
    }
}

impl Slot {
    pub(super) fn key(&self) -> u32 {
        self.key.load(Relaxed)
    }

    /// Where `len` bytes at `va` are, if the key is this, names memory as a region does, and grants the access, and the core with
    /// the bit `user` is among the users. `None` is no refusal: a [`View`] tells.
    #[inline(always)]
    pub(super) fn grants(
        &self,
        user: u64,
        pd: PdId,
        key: u32,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Option<Granted> {
        let seq = self.seq.load(Acquire);
        let usual = u32::from(needed.bits()) | NAMES;
        if self.key.load(Relaxed) != key
            || self.pd.load(Relaxed) != pd.0
            || self.state.load(Relaxed) & (usual | BOUND) != usual
        {
            return None;
        }
        let (base, size) = (self.base.load(Relaxed), self.len.load(Relaxed));
        // As in `Span::at`.
        let inside = va >= base && len <= size && va - base <= size - len;
        let offset = self.offset.load(Relaxed).wrapping_add(va.wrapping_sub(base));
        let granted = Granted { seq, region: self.region(), offset };
        (inside && self.held(seq, user)).then_some(granted)
    }

    /// The memory that the key names, where it is this, and names memory as a region does; as [`Self::grants`].
    #[inline(always)]
    pub(super) fn span(&self, user: u64, pd: PdId, key: u32) -> Option<Span> {
        let seq = self.seq.load(Acquire);
        let state = self.state.load(Relaxed);
        let usual = self.key.load(Relaxed) == key
            && self.pd.load(Relaxed) == pd.0
            && state & (NAMES | BOUND) == NAMES;
        let span = self.span_in(state);
        (usual && self.held(seq, user)).then_some(span)
    }

    /// The region that the key has named since the sequence number was `seq`, if it does so as a region, and still does; as
    /// [`Self::grants`].
    #[inline(always)]
    pub(super) fn region_of(&self, user: u64, seq: u32) -> Option<RegionId> {
        let same = self.seq.load(Acquire) == seq;
        let region = self.region();
        let bound = self.state.load(Relaxed) & BOUND != 0;
        (same && !bound && self.held(seq, user)).then_some(region)
    }

    /// Whether all that was read of the slot since its number was `seq` is one state of it, and the core with the bit `user` is
    /// among its users. So it is of the only core, which is 0: nobody else changes anything.
    #[inline(always)]
    fn held(&self, seq: u32, user: u64) -> bool {
        user == 0 || {
            let noted = self.users.load(Relaxed) & user != 0;
            fence(Acquire);
            noted && seq.is_multiple_of(2) && self.seq.load(Relaxed) == seq
        }
    }

    #[inline(always)]
    fn span_in(&self, state: u32) -> Span {
        Span {
            region: self.region(),
            offset: self.offset.load(Relaxed),
            base: self.base.load(Relaxed),
            len: self.len.load(Relaxed),
            access: rights(state),
        }
    }

    #[inline(always)]
    fn region(&self) -> RegionId {
        RegionId(self.region.load(Relaxed))
    }

    /// One state of the slot. Where it names memory, the core with the bit `user` is among its users from then on;
    /// 0 for one that does not use it, and for the only core.
    pub(super) fn view(&self, user: u64) -> View {
        loop {
            let seq = self.seq.load(Acquire);
            if seq.is_multiple_of(2) {
                let view = self.load(seq);
                // Between the two looks at the number, as the end of a mapping takes the users from it.
                let noted = view.span.is_none() || self.users.load(Relaxed) & user == user;
                fence(Acquire);
                let same = self.seq.load(Relaxed) == seq;
                if same && noted {
                    return view;
                }
                if same {
                    self.users.fetch_or(user, AcqRel);
                    continue;
                }
            }
            spin_loop();
        }
    }

    fn load(&self, seq: u32) -> View {
        let state = self.state.load(Relaxed);
        let bound = Bound {
            qpn: Qpn::new(self.qpn.load(Relaxed)),
            at: At(self.bound_at.load(Relaxed)),
            seq: self.bound_seq.load(Relaxed),
        };
        View {
            seq,
            key: self.key(),
            pd: PdId(self.pd.load(Relaxed)),
            kind: kind_of(state),
            span: (state & NAMES != 0).then(|| self.span_in(state)),
            bound: (state & BOUND != 0).then_some(bound),
        }
    }

    /// Takes the slot for a change; another that changes it at the moment is soon done.
    pub(super) fn change(&self) -> Change<'_> {
        loop {
            let seq = self.seq.load(Relaxed);
            let odd = seq.wrapping_add(1);
            if seq.is_multiple_of(2)
                && self.seq.compare_exchange(seq, odd, Acquire, Relaxed).is_ok()
            {
                // One that reads what is written next finds the odd number, or a later one.
                fence(Release);
                return Change { slot: self, seq };
            }
            spin_loop();
        }
    }
}

/// The right to change a slot, and its state until then. Nothing waits while this lives.
pub(super) struct Change<'a> {
    slot: &'a Slot,
    /// The number after the change.
    seq: u32,
}

impl Change<'_> {
    pub(super) fn view(&self) -> View {
        self.slot.load(self.seq)
    }

    /// Makes a free slot that of a key.
    pub(super) fn enter(&mut self, key: u32, pd: PdId, kind: Kind, span: Option<&Span>) {
        self.slot.key.store(key, Relaxed);
        self.slot.pd.store(pd.0, Relaxed);
        self.slot.state.store(kind_bits(kind), Relaxed);
        self.seq = self.seq.wrapping_add(2);
        if let Some(span) = span {
            self.name(span, None);
        }
    }

    /// Makes the key name memory, which it does not yet.
    pub(super) fn name(&mut self, span: &Span, bound: Option<&Bound>) {
        let slot = self.slot;
        let mut state = slot.state.load(Relaxed) | NAMES | u32::from(span.access.bits());
        slot.region.store(span.region.0, Relaxed);
        slot.offset.store(span.offset, Relaxed);
        slot.base.store(span.base, Relaxed);
        slot.len.store(span.len, Relaxed);
        if let Some(Bound { qpn, at, seq }) = bound {
            slot.qpn.store(qpn.get(), Relaxed);
            slot.bound_at.store(at.0, Relaxed);
            slot.bound_seq.store(*seq, Relaxed);
            state |= BOUND;
        }
        slot.state.store(state, Relaxed);
        self.seq = self.seq.wrapping_add(2);
    }

    /// Makes the key name nothing. Returns the cores that have used the memory, for whose bursts to wait.
    #[must_use]
    pub(super) fn end(mut self) -> u64 {
        self.unname()
    }

    /// As [`Self::end`], and the slot is free.
    #[must_use]
    pub(super) fn free(mut self) -> u64 {
        self.slot.key.store(0, Relaxed);
        self.unname()
    }

    fn unname(&mut self) -> u64 {
        let kind = self.slot.state.load(Relaxed) & !((1 << KIND_AT) - 1);
        self.slot.state.store(kind, Relaxed);
        self.seq = self.seq.wrapping_add(2);
        self.slot.users.swap(0, AcqRel)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.slot.seq.store(self.seq, Release);
    }
}

const fn rights(bits: u32) -> Access {
    Access::from_bits(bits as u8)
}

fn kind_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Registered => 0,
        Kind::FastRegister(most) => 1 << KIND_AT | u32::from(most.bits()) << MOST_AT,
        Kind::Window => 2 << KIND_AT,
        Kind::Privileged => 3 << KIND_AT,
    }
}

const fn kind_of(state: u32) -> Kind {
    match state >> KIND_AT & 0b11 {
        0 => Kind::Registered,
        1 => Kind::FastRegister(rights(state >> MOST_AT)),
        2 => Kind::Window,
        _ => Kind::Privileged,
    }
}
