//! The reorder buffer of a responder: requests ahead of the expected PSN, until the gap before them is
//! closed.
//!
//! A queue pair takes a slot of [the pool](super::reorder_pool) for each packet behind a gap, up to its quota, and gives it
//! back when the gap is closed; without a gap it holds nothing. Where no slot is to be had, the packet is dropped, and the
//! peer sends it again.

use super::reorder_pool::{NONE, Place, QUOTA_MIN, ReorderPool};
use super::shares::Holder;
use crate::psn::Psn;
use crate::wire::{Opcode, Packet, Pmtu};
use core::net::IpAddr;

/// The outcome of [`ReorderBuffer::insert`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Insertion {
    /// The packet is buffered.
    Inserted,
    /// It was buffered before.
    Duplicate,
    /// Another with its number was buffered: nobody knows which is the peer's, so neither is kept.
    Conflict,
    /// It is too far ahead or from its neighbours, too long, or there is no slot for it.
    NoRoom,
}

/// The buffered packets of one queue pair, in the order of their PSNs.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    /// Its place in the pool, and the stamp of that; [`NONE`] where nothing is buffered.
    holder: u32,
    stamp: u64,
    /// PSNs ahead of the expected one that it reaches.
    reach: u32,
    /// Bytes of slots that it may hold.
    bytes: u32,
    /// Bytes of a full packet.
    packet_len: u32,
}

impl ReorderBuffer {
    /// A buffer that takes no packet until [`Self::open`], and then holds `bytes` of slots, and 64 slots at least; none for
    /// 0 bytes.
    pub(crate) const fn new(bytes: u32) -> Self {
        Self { holder: NONE, stamp: 0, reach: 0, bytes, packet_len: 0 }
    }

    /// Lets it take packets of this path MTU, as far ahead as its bytes in full packets.
    pub(crate) fn open(&mut self, pmtu: Pmtu) {
        let packet_len = pmtu.bytes() as u32;
        let reach = if self.bytes == 0 { 0 } else { (self.bytes / packet_len).max(QUOTA_MIN) };
        (self.reach, self.packet_len) = (reach, packet_len);
    }

    /// Packets in the buffer.
    pub(crate) fn len(&self, pool: &ReorderPool) -> usize {
        self.held(pool).map_or(0, |holder| holder.held as usize)
    }

    /// Whether the buffer is empty, as far as it knows: see [`Self::update`].
    pub(crate) const fn is_empty(&self) -> bool {
        self.holder == NONE
    }

    /// Notes that all its slots were given to others, if they were.
    pub(crate) fn update(&mut self, pool: &ReorderPool) {
        if !self.is_empty() && self.held(pool).is_none() {
            self.holder = NONE;
        }
    }

    fn held<'a>(&self, pool: &'a ReorderPool) -> Option<&'a Holder> {
        pool.holder(self.holder, self.stamp)
    }

    /// Buffers a packet that is `ahead` PSNs after the expected one, and comes from the peer at this address.
    pub(crate) fn insert(
        &mut self,
        ahead: u32,
        (packet, from): (&Packet<'_>, IpAddr),
        pool: &mut ReorderPool,
    ) -> Insertion {
        // Longer than any packet may be: not worth a slot.
        if ahead >= self.reach || packet.payload.len() > self.packet_len as usize {
            return Insertion::NoRoom;
        }
        let held = self.held(pool).copied();
        let place =
            held.map_or(Place::Behind(NONE), |at| pool.place(self.holder, at, packet.bth.psn));
        let before = match place {
            Place::Held(slot) if pool.is_copy(slot, packet) => return Insertion::Duplicate,
            Place::Held(slot) => {
                pool.take_out(slot);
                pool.give_back(slot);
                self.update(pool);
                return Insertion::Conflict;
            }
            Place::Far => return Insertion::NoRoom,
            Place::Behind(before) => before,
        };
        if held.is_some_and(|at| at.held >= pool.quota(self.bytes)) {
            return Insertion::NoRoom;
        }
        let holder = held.map(|_| self.holder);
        let Some(holder) = pool.put((holder, from), packet, before) else {
            return Insertion::NoRoom;
        };
        (self.holder, self.stamp) = (holder, pool.stamp(holder));
        Insertion::Inserted
    }

    /// The packets, oldest first: the PSN of each, and the PSNs that it takes, a READ those of its responses.
    pub(crate) fn spans(&self, pool: &ReorderPool, pmtu: u64) -> impl Iterator<Item = (Psn, u32)> {
        let at = |index: u32| pool.slot(index);
        let first = self.held(pool).and_then(|holder| at(holder.first));
        core::iter::successors(first, move |slot| at(slot.next)).map(move |slot| {
            let read = slot.ext.reth().filter(|_| slot.bth.opcode == Opcode::ReadRequest);
            // At most 2^32 / 256.
            (slot.bth.psn, read.map_or(1, |reth| u64::from(reth.len).div_ceil(pmtu).max(1) as u32))
        })
    }

    /// Takes the packet `psn` out, if it is the oldest. The caller gives its slot back.
    pub(crate) fn take(&mut self, psn: Psn, pool: &mut ReorderPool) -> Option<u32> {
        self.take_oldest(pool, |oldest| oldest == psn)
    }

    fn take_oldest(&mut self, pool: &mut ReorderPool, wanted: impl Fn(Psn) -> bool) -> Option<u32> {
        let first = self.held(pool)?.first;
        if !pool.slot(first).is_some_and(|slot| wanted(slot.bth.psn)) {
            return None;
        }
        pool.take_out(first);
        self.update(pool);
        Some(first)
    }

    /// Drops the packets before `psn`.
    pub(crate) fn forget_before(&mut self, psn: Psn, pool: &mut ReorderPool) {
        self.forget_while(pool, |oldest| psn.since(oldest) > 0);
    }

    /// Drops all packets.
    pub(crate) fn forget(&mut self, pool: &mut ReorderPool) {
        self.forget_while(pool, |_| true);
    }

    /// Drops all packets, and takes no other.
    pub(crate) fn close(&mut self, pool: &mut ReorderPool) {
        self.reach = 0;
        if !self.is_empty() {
            self.forget(pool);
            self.update(pool);
        }
    }

    fn forget_while(&mut self, pool: &mut ReorderPool, gone: impl Fn(Psn) -> bool) {
        while let Some(slot) = self.take_oldest(pool, &gone) {
            pool.give_back(slot);
        }
    }
}

#[cfg(test)]
mod tests;
