//! The reorder buffers of the responders: requests ahead of the expected PSN, until the gap before them is
//! closed.
//!
//! The queue pairs of a device share one pool. A queue pair takes a slot for each packet behind a gap, up
//! to its quota, and gives it back when the gap is closed; without a gap it holds nothing. Where the pool is
//! used up, or could not be allocated, the packet is dropped, and the peer goes back N.

use crate::psn::Psn;
use crate::wire::{Bth, Encap, Ext, Opcode, Packet, Pmtu};
use alloc::vec::Vec;

/// No slot.
const NONE: u32 = u32::MAX;
/// The smallest quota, in packets.
const QUOTA_MIN: u32 = 64;

/// The slots of all reorder buffers of a device. Its memory is reserved when it is made, and each part
/// touched when it is first used.
#[derive(Debug)]
pub(crate) struct ReorderPool {
    slots: Vec<Slot>,
    /// `slot_len` bytes for each slot.
    payloads: Vec<u8>,
    slot_len: usize,
    /// Slots, at most.
    limit: usize,
    /// The first of the slots that were given back, linked by `next`.
    free: u32,
}

/// A buffered packet without its payload, between the one before it and the one after it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    bth: Bth,
    ext: Ext,
    payload_len: usize,
    prev: u32,
    next: u32,
}

impl ReorderPool {
    /// A pool of `bytes` of payload, in slots for packets of `pmtu`. It is empty where the memory is
    /// refused.
    pub(crate) fn new(bytes: usize, pmtu: Pmtu) -> Self {
        let (slot_len, limit) = (pmtu.bytes(), (bytes / pmtu.bytes()).min(NONE as usize));
        let (mut slots, mut payloads) = (Vec::new(), Vec::new());
        let granted = payloads.try_reserve_exact(limit * slot_len).is_ok()
            && slots.try_reserve_exact(limit).is_ok();
        if !granted {
            (slots, payloads) = (Vec::new(), Vec::new());
        }
        Self { slots, payloads, slot_len, limit: if granted { limit } else { 0 }, free: NONE }
    }

    #[cfg(test)]
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Puts a packet into a free slot, between two others of its buffer.
    fn put(&mut self, packet: &Packet<'_>, prev: u32, next: u32) -> Option<u32> {
        let payload_len = packet.payload.len();
        if payload_len > self.slot_len {
            return None;
        }
        let slot = Slot { bth: packet.bth, ext: packet.ext, payload_len, prev, next };
        let index = if let Some(free) = self.slots.get_mut(self.free as usize) {
            let next = core::mem::replace(free, slot).next;
            core::mem::replace(&mut self.free, next)
        } else if self.slots.len() < self.limit {
            self.slots.push(slot);
            self.payloads.resize(self.slots.len() * self.slot_len, 0);
            self.slots.len() as u32 - 1
        } else {
            return None;
        };
        let payload = &mut self.payloads[index as usize * self.slot_len..];
        payload[..payload_len].copy_from_slice(packet.payload);
        Some(index)
    }

    /// The packet of a slot, as it came.
    pub(crate) fn packet(&self, slot: u32, encap: Encap) -> Packet<'_> {
        let Slot { bth, ext, payload_len, .. } = self.slots[slot as usize];
        let payload = &self.payloads[slot as usize * self.slot_len..][..payload_len];
        Packet { encap, bth, ext, payload }
    }

    /// Takes a slot back, whose packet left its buffer.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.slots[slot as usize].next = self.free;
        self.free = slot;
    }
}

/// The outcome of [`ReorderBuffer::insert`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Insertion {
    /// The packet is buffered.
    Inserted,
    /// It was buffered before.
    Duplicate,
    /// It is too far ahead, too long, or the pool has no slot.
    NoRoom,
}

/// The buffered packets of one queue pair, in the order of their PSNs.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    first: u32,
    last: u32,
    len: u32,
    /// PSNs ahead of the expected one that it reaches, and so packets, at most.
    quota: u32,
    /// Bytes of a full packet.
    packet_len: usize,
}

impl ReorderBuffer {
    /// A buffer that takes no packet.
    pub(crate) const fn new() -> Self {
        Self { first: NONE, last: NONE, len: 0, quota: 0, packet_len: 0 }
    }

    /// Lets it take `bytes` of full packets, and 64 packets at least; none for 0 bytes.
    pub(crate) fn set_quota(&mut self, bytes: u32, pmtu: Pmtu) {
        self.packet_len = pmtu.bytes();
        self.quota = if bytes == 0 { 0 } else { (bytes / pmtu.bytes() as u32).max(QUOTA_MIN) };
    }

    /// Packets in the buffer.
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the buffer is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Buffers a packet that is `ahead` PSNs after the expected one.
    pub(crate) fn insert(
        &mut self,
        ahead: u32,
        packet: &Packet<'_>,
        pool: &mut ReorderPool,
    ) -> Insertion {
        // Longer than any packet may be: not worth a slot.
        if ahead >= self.quota || packet.payload.len() > self.packet_len {
            return Insertion::NoRoom;
        }
        // Packets behind a gap mostly come in order, so their place is at the end.
        let mut before = self.last;
        while let Some(slot) = pool.slots.get(before as usize) {
            match packet.bth.psn.since(slot.bth.psn) {
                0 => return Insertion::Duplicate,
                1.. => break,
                i32::MIN..0 => before = slot.prev,
            }
        }
        let after = match pool.slots.get(before as usize) {
            Some(slot) => slot.next,
            None => self.first,
        };
        let Some(new) = pool.put(packet, before, after) else { return Insertion::NoRoom };
        match pool.slots.get_mut(before as usize) {
            Some(slot) => slot.next = new,
            None => self.first = new,
        }
        match pool.slots.get_mut(after as usize) {
            Some(slot) => slot.prev = new,
            None => self.last = new,
        }
        self.len += 1;
        Insertion::Inserted
    }

    /// The packets, oldest first: the PSN of each, and the PSNs that it takes, a READ those of its responses.
    pub(crate) fn spans(&self, pool: &ReorderPool, pmtu: u64) -> impl Iterator<Item = (Psn, u32)> {
        let at = |index: u32| pool.slots.get(index as usize);
        core::iter::successors(at(self.first), move |slot| at(slot.next)).map(move |slot| {
            let read = slot.ext.reth().filter(|_| slot.bth.opcode == Opcode::ReadRequest);
            // At most 2^32 / 256.
            (slot.bth.psn, read.map_or(1, |reth| u64::from(reth.len).div_ceil(pmtu).max(1) as u32))
        })
    }

    /// Takes the packet `psn` out, if it is the oldest. The caller gives its slot back.
    pub(crate) fn take(&mut self, psn: Psn, pool: &mut ReorderPool) -> Option<u32> {
        let taken = self.first;
        let slot = pool.slots.get(taken as usize).filter(|slot| slot.bth.psn == psn)?;
        self.first = slot.next;
        match pool.slots.get_mut(self.first as usize) {
            Some(slot) => slot.prev = NONE,
            None => self.last = NONE,
        }
        self.len -= 1;
        Some(taken)
    }

    /// Drops the packets before `psn`.
    pub(crate) fn forget_before(&mut self, psn: Psn, pool: &mut ReorderPool) {
        self.forget_while(pool, |oldest| psn.since(oldest) > 0);
    }

    /// Drops all packets, and takes no other.
    pub(crate) fn close(&mut self, pool: &mut ReorderPool) {
        self.quota = 0;
        self.forget_while(pool, |_| true);
    }

    fn forget_while(&mut self, pool: &mut ReorderPool, gone: impl Fn(Psn) -> bool) {
        while let Some(oldest) = pool.slots.get(self.first as usize).map(|slot| slot.bth.psn)
            && gone(oldest)
            && let Some(slot) = self.take(oldest, pool)
        {
            pool.give_back(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Qpn;
    use crate::wire::{Opcode, example_encap};
    use std::vec;

    const PMTU: Pmtu = Pmtu::B256;

    /// A buffer that expects PSN 0xff_fff0, and the packets behind it.
    struct Queue(ReorderBuffer);

    impl Queue {
        fn new() -> Self {
            let mut buffer = ReorderBuffer::new();
            buffer.set_quota(PMTU.bytes() as u32, PMTU);
            Self(buffer)
        }

        fn psn(ahead: u32) -> Psn {
            Psn::new(0xff_fff0).add(ahead)
        }

        fn insert(&mut self, ahead: u32, pool: &mut ReorderPool) -> Insertion {
            let bth = Bth::new(Opcode::SendOnly, Qpn::new(7), Self::psn(ahead));
            let payload = [ahead as u8; 9];
            let packet = Packet {
                encap: example_encap(false, None),
                bth,
                ext: Ext::None,
                payload: &payload,
            };
            self.0.insert(ahead, &packet, pool)
        }

        fn take(&mut self, ahead: u32, pool: &mut ReorderPool) -> Option<vec::Vec<u8>> {
            let slot = self.0.take(Self::psn(ahead), pool)?;
            let packet = pool.packet(slot, example_encap(false, None));
            assert_eq!(packet.bth.psn, Self::psn(ahead));
            let payload = packet.payload.to_vec();
            pool.give_back(slot);
            Some(payload)
        }
    }

    #[test]
    fn packets_come_out_in_order_however_they_came() {
        let mut pool = ReorderPool::new(16 * PMTU.bytes(), PMTU);
        for order in [[1, 2, 3, 40], [40, 3, 2, 1], [2, 40, 1, 3], [3, 1, 40, 2]] {
            let mut queue = Queue::new();
            for ahead in order {
                assert_eq!(queue.insert(ahead, &mut pool), Insertion::Inserted);
                assert_eq!(queue.insert(ahead, &mut pool), Insertion::Duplicate);
            }
            assert_eq!(queue.insert(64, &mut pool), Insertion::NoRoom, "too far");
            assert_eq!((queue.0.len(), queue.take(2, &mut pool)), (4, None), "not the oldest");
            for ahead in [1, 2] {
                assert_eq!(queue.take(ahead, &mut pool), Some(vec![ahead as u8; 9]));
            }
            queue.0.forget_before(Queue::psn(40), &mut pool);
            assert_eq!(queue.take(40, &mut pool), Some(vec![40; 9]));
            assert!(queue.0.is_empty());
            assert_eq!(queue.insert(5, &mut pool), Insertion::Inserted);
            queue.0.close(&mut pool);
            assert_eq!((queue.0.len(), queue.insert(5, &mut pool)), (0, Insertion::NoRoom));
        }
        assert!(pool.slots.len() <= 5, "slots come back");
    }

    #[test]
    fn queues_share_the_pool_and_none_takes_more_than_its_quota() {
        let mut pool = ReorderPool::new(100 * PMTU.bytes(), PMTU);
        let [mut first, mut second] = [Queue::new(), Queue::new()];
        let inserted = |queue: &mut Queue, pool: &mut ReorderPool| {
            (1..200).filter(|ahead| queue.insert(*ahead, pool) == Insertion::Inserted).count()
        };
        assert_eq!(inserted(&mut first, &mut pool), 63);
        assert_eq!(inserted(&mut second, &mut pool), 37, "the pool is used up");
        first.0.close(&mut pool);
        assert_eq!(inserted(&mut second, &mut pool), 26);
        let payloads = pool.payloads.capacity();
        second.0.close(&mut pool);
        assert_eq!((pool.slots.len(), payloads), (100, 100 * PMTU.bytes()));
    }

    #[test]
    fn a_pool_without_memory_takes_nothing() {
        // Miri ends where memory is refused.
        let refused = if cfg!(miri) { 0 } else { usize::MAX / 2 };
        for bytes in [0, refused] {
            let mut pool = ReorderPool::new(bytes, PMTU);
            assert_eq!(Queue::new().insert(1, &mut pool), Insertion::NoRoom);
        }
    }
}
