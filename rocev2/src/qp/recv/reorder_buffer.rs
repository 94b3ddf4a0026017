//! The reorder buffer of a responder: requests ahead of the expected PSN, until the gap before them is
//! closed.

use crate::ids::Qpn;
use crate::psn::Psn;
use crate::qp::psn_set::PsnSet;
use crate::wire::{Bth, Encap, Ext, Opcode, Packet, Pmtu};
use alloc::vec::Vec;

/// A buffered packet without its payload.
#[derive(Clone, Copy, Debug)]
struct Slot {
    bth: Bth,
    ext: Ext,
    payload_len: usize,
}

/// The outcome of [`ReorderBuffer::insert`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Insertion {
    /// The packet is buffered.
    Inserted,
    /// It was buffered before.
    Duplicate,
    /// It is too far ahead, or the buffer has no memory.
    NoRoom,
}

/// A buffer of fixed size, for as many PSNs as one send window of ours, with the payload of each.
///
/// Its memory is taken once RTU or data has proven the peer, so that a flood of REQs cannot exhaust the
/// memory. Where that allocation fails, nothing is ever buffered, and the peer goes back N at each gap.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    present: PsnSet,
    slots: Vec<Slot>,
    /// `pmtu` bytes for each slot.
    payloads: Vec<u8>,
    pmtu: usize,
}

impl ReorderBuffer {
    /// A buffer without room.
    pub(crate) const fn new() -> Self {
        Self { present: PsnSet::new(), slots: Vec::new(), payloads: Vec::new(), pmtu: 0 }
    }

    /// Takes memory for `bytes` of payload, and for 64 packets at least. Does nothing for 0 bytes, or the
    /// second time.
    pub(crate) fn reserve(&mut self, bytes: usize, pmtu: Pmtu) {
        if bytes == 0 || self.present.capacity() > 0 {
            return;
        }
        let mut buffer = Self { pmtu: pmtu.bytes(), ..Self::new() };
        buffer.present.reserve((bytes / pmtu.bytes()) as u32);
        let slots = buffer.present.capacity();
        // The largest comes first: where it is refused, nothing stays allocated.
        let enough = buffer.payloads.try_reserve_exact(slots * pmtu.bytes()).is_ok()
            && buffer.slots.try_reserve_exact(slots).is_ok();
        if enough {
            let bth = Bth::new(Opcode::SendOnly, Qpn::default(), Psn::default());
            let none = Slot { bth, ext: Ext::None, payload_len: 0 };
            buffer.slots.resize(slots, none);
            buffer.payloads.resize(slots * pmtu.bytes(), 0);
            *self = buffer;
        }
    }

    /// Packets in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether the buffer is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Buffers a packet that is `ahead` PSNs after the expected one.
    pub(crate) fn insert(&mut self, ahead: u32, packet: &Packet<'_>) -> Insertion {
        let (psn, len) = (packet.bth.psn, packet.payload.len());
        if ahead as usize >= self.present.capacity() || len > self.pmtu {
            return Insertion::NoRoom;
        }
        if !self.present.insert(psn) {
            return Insertion::Duplicate;
        }
        let index = self.index(psn);
        self.slots[index] = Slot { bth: packet.bth, ext: packet.ext, payload_len: len };
        self.payloads[index * self.pmtu..][..len].copy_from_slice(packet.payload);
        Insertion::Inserted
    }

    /// Takes the packet `psn` out, as it came.
    pub(crate) fn remove(&mut self, psn: Psn, encap: Encap) -> Option<Packet<'_>> {
        if !self.present.remove(psn) {
            return None;
        }
        let index = self.index(psn);
        let Slot { bth, ext, payload_len } = self.slots[index];
        let payload = &self.payloads[index * self.pmtu..][..payload_len];
        Some(Packet { encap, bth, ext, payload })
    }

    /// Drops the buffered packets among `packets` PSNs from `first` on.
    pub(crate) fn forget(&mut self, first: Psn, packets: u32) {
        if packets as usize >= self.present.capacity() {
            self.present.clear();
        }
        for n in 0..packets {
            if self.is_empty() {
                return;
            }
            self.present.remove(first.add(n));
        }
    }

    fn index(&self, psn: Psn) -> usize {
        psn.get() as usize & (self.slots.len() - 1)
    }
}
