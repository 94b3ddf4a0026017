//! The slots of all reorder buffers of a core, and their shares.
//!
//! A peer chooses its path MTU, the number of its connections, and what it sends; a slot has room for the device's path MTU.
//! So shares are counted in slots: a connection has its quota, and half of the pool at most. Where no slot is free, a packet
//! of a peer address that holds less than another takes the newest one of that, and among the connections of one address
//! likewise. So any number of connections that hold as much as they can leave every other address its part, at once.
//!
//! The connection that gives a slot is not told. Its [buffer](super::reorder_buffer) names its place here together with a
//! stamp, which shows whether it still holds something. A packet that was dropped is missing again: its requester has kept
//! it, as nothing but an acknowledgement lets it go, and finds out by a NAK, a report or a probe.

use super::shares::{Holder, Shares, Table};
use crate::index::{Index, Secret};
use crate::psn::Psn;
use crate::wire::{Bth, Encap, Ext, Opcode, Packet, Pmtu};
use alloc::vec::Vec;
use core::net::IpAddr;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;
/// The smallest quota of a connection, in packets.
pub(super) const QUOTA_MIN: u32 = 64;
/// PSNs on either side of a packet that is not the newest, where its neighbour is looked for by its PSN: what is sent again
/// comes in order, too.
const NEAR: u32 = 4;
/// Packets that it is compared with otherwise, from the newest one on. Links do not reorder by more.
const WALKED: usize = 64;

/// The slots of all reorder buffers of a core. Its memory is reserved when it is made, and most of it touched when it is
/// first used.
#[derive(Debug)]
pub(crate) struct ReorderPool {
    slots: Table<Slot>,
    /// `slot_len` bytes for each slot.
    payloads: Vec<u8>,
    slot_len: usize,
    shares: Shares,
    /// Slots, by connection and PSN.
    by_psn: Index,
    secret: Secret,
}

/// A buffered packet without its payload, between the one before it and the one after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) bth: Bth,
    pub(super) ext: Ext,
    payload_len: usize,
    holder: u32,
    prev: u32,
    pub(super) next: u32,
}

/// Where a packet belongs among those of its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// One with its number is there, in this slot.
    Held(u32),
    /// Behind this slot; behind [`NONE`] as the oldest.
    Behind(u32),
    /// It is unknown: too far from its neighbours to look for it.
    Far,
}

impl ReorderPool {
    /// A pool of `bytes` of payload, in slots for packets of `pmtu`. It is empty where the memory is
    /// refused.
    pub(crate) fn new(bytes: usize, pmtu: Pmtu, secret: Secret) -> Self {
        let (slot_len, limit) = (pmtu.bytes(), (bytes / pmtu.bytes()).min(NONE as usize));
        Self::reserve(limit, slot_len, secret).unwrap_or_else(|| Self {
            slots: Table::empty(),
            payloads: Vec::new(),
            slot_len,
            shares: Shares::none(secret),
            by_psn: Index::default(),
            secret,
        })
    }

    fn reserve(limit: usize, slot_len: usize, secret: Secret) -> Option<Self> {
        let (mut payloads, mut by_psn) = (Vec::new(), Index::default());
        payloads.try_reserve_exact(limit.checked_mul(slot_len)?).ok()?;
        let (slots, shares) = (Table::new(limit)?, Shares::new(limit, secret)?);
        by_psn.make_room(limit)?;
        Some(Self { slots, payloads, slot_len, shares, by_psn, secret })
    }

    #[cfg(test)]
    pub(crate) const fn limit(&self) -> usize {
        self.slots.limit()
    }

    /// Slots that were ever used.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.slots.used()
    }

    /// Drops the newest packets, as if for a peer that holds nothing, until each peer has one.
    #[cfg(test)]
    pub(crate) fn take_newest(&mut self) {
        while self.take_from_another(None, IpAddr::from([0; 4])).is_some() {}
    }

    /// Slots that connections hold.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.slots.taken()
    }

    /// Slots that a connection may hold, whose quota is so many bytes.
    pub(super) fn quota(&self, bytes: u32) -> u32 {
        // Of a pool of one slot that one.
        let half = self.slots.limit().div_ceil(2);
        (bytes as usize / self.slot_len).max(QUOTA_MIN as usize).min(half) as u32
    }

    /// The connection at a place, if it still holds what it did.
    pub(super) fn holder(&self, holder: u32, stamp: u64) -> Option<&Holder> {
        self.shares.get(holder).filter(|found| found.stamp == stamp)
    }

    /// The stamp of a connection that has just begun to hold slots.
    pub(super) fn stamp(&self, holder: u32) -> u64 {
        self.shares.get(holder).map_or(0, |holder| holder.stamp)
    }

    pub(super) fn slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot)
    }

    /// The packet of a slot, as it came.
    pub(crate) fn packet(&self, slot: u32, encap: Encap) -> Packet<'_> {
        let Slot { bth, ext, payload_len, .. } = self.slots[slot];
        let payload = &self.payloads[slot as usize * self.slot_len..][..payload_len];
        Packet { encap, bth, ext, payload }
    }

    /// Whether a slot holds the same request. One that is sent again may ask for an ACK where the first did not, and a
    /// READ for less.
    pub(super) fn is_copy(&self, slot: u32, packet: &Packet<'_>) -> bool {
        let held = self.packet(slot, packet.encap);
        let names = match (held.ext, packet.ext) {
            (Ext::Reth(held), Ext::Reth(new)) if packet.bth.opcode == Opcode::ReadRequest => {
                (held.va, held.rkey) == (new.va, new.rkey)
            }
            (held, new) => held == new,
        };
        held.bth.opcode == packet.bth.opcode && names && held.payload == packet.payload
    }

    /// Where the packet `psn` of a connection belongs.
    pub(super) fn place(&self, holder: u32, at: Holder, psn: Psn) -> Place {
        // Packets behind a gap mostly come in order, so their place is at the end.
        if psn.since(self.slots[at.last].bth.psn) > 0 {
            return Place::Behind(at.last);
        }
        if psn.since(self.slots[at.first].bth.psn) < 0 {
            return Place::Behind(NONE);
        }
        if let Some(held) = self.find(holder, psn) {
            return Place::Held(held);
        }
        let near = (1..=NEAR).find_map(|n| {
            let after = || self.find(holder, psn.add(n)).map(|slot| self.slots[slot].prev);
            self.find(holder, psn.back(n)).or_else(after)
        });
        near.or_else(|| self.walk(at.last, psn)).map_or(Place::Far, Place::Behind)
    }

    /// The newest of the packets before `psn`, from the slot `last` on.
    fn walk(&self, last: u32, psn: Psn) -> Option<u32> {
        let slots = core::iter::successors(Some(last), |slot| Some(self.slots[*slot].prev));
        slots.take(WALKED).find(|slot| psn.since(self.slots[*slot].bth.psn) > 0)
    }

    /// Puts a packet into a slot behind another one of its connection, which begins to hold slots where it is none of the
    /// `holder`s. Returns the connection's place; `None` where it has no room, or its peer holds as much as any other.
    pub(super) fn put(
        &mut self,
        (holder, from): (Option<u32>, IpAddr),
        packet: &Packet<'_>,
        prev: u32,
    ) -> Option<u32> {
        let payload_len = packet.payload.len();
        if payload_len > self.slot_len {
            return None;
        }
        if self.slots.is_full() {
            self.take_from_another(holder, from)?;
        }
        let (bth, ext) = (packet.bth, packet.ext);
        let (owner, next) = (holder.unwrap_or(NONE), NONE);
        let slot = self.slots.put(Slot { bth, ext, payload_len, holder: owner, prev, next });
        let end = self.slots.used() * self.slot_len;
        if self.payloads.len() < end {
            self.payloads.resize(end, 0);
        }
        let payload = &mut self.payloads[slot as usize * self.slot_len..];
        payload[..payload_len].copy_from_slice(packet.payload);
        let holder = match holder {
            Some(holder) => self.link(holder, slot, prev),
            None => self.shares.open(from, slot),
        };
        self.slots[slot].holder = holder;
        self.by_psn.insert(self.hash(holder, bth.psn), slot as usize);
        Some(holder)
    }

    /// Drops the newest packet of a connection that has more than its share. `None` where there is none.
    fn take_from_another(&mut self, holder: Option<u32>, from: IpAddr) -> Option<()> {
        let giver = self.shares.giver(holder, from)?;
        let newest = self.shares.get(giver)?.last;
        self.take_out(newest);
        self.give_back(newest);
        Some(())
    }

    /// Adds a slot to those of a connection, behind `prev`.
    fn link(&mut self, holder: u32, slot: u32, prev: u32) -> u32 {
        let at = self.shares.get_mut(holder);
        let next = match self.slots.get_mut(prev) {
            Some(before) => core::mem::replace(&mut before.next, slot),
            None => core::mem::replace(&mut at.first, slot),
        };
        match self.slots.get_mut(next) {
            Some(after) => after.prev = slot,
            None => at.last = slot,
        }
        self.slots[slot].next = next;
        self.shares.add(holder);
        holder
    }

    /// Takes a slot out of its buffer. [`Self::give_back`] follows, once its packet is not needed any more.
    pub(super) fn take_out(&mut self, slot: u32) {
        let Slot { bth, holder, prev, next, .. } = self.slots[slot];
        self.by_psn.remove(self.hash(holder, bth.psn), slot as usize);
        let at = self.shares.get_mut(holder);
        match self.slots.get_mut(prev) {
            Some(before) => before.next = next,
            None => at.first = next,
        }
        match self.slots.get_mut(next) {
            Some(after) => after.prev = prev,
            None => at.last = prev,
        }
        self.shares.remove(holder);
    }

    /// Takes a slot back, whose packet left its buffer.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.slots.give_back(slot);
    }

    fn find(&self, holder: u32, psn: Psn) -> Option<u32> {
        let mut found = self.by_psn.find(self.hash(holder, psn)).map(|place| place as u32);
        found.find(|slot| {
            let Slot { bth, holder: owner, .. } = self.slots[*slot];
            owner == holder && bth.psn == psn
        })
    }

    fn hash(&self, holder: u32, psn: Psn) -> u32 {
        self.secret.hash([u64::from(holder) << 32 | u64::from(psn.get())])
    }
}
