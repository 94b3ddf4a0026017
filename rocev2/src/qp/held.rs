//! Requests that came ahead of the one expected, kept until the gap before them is closed.

use super::reorder::PsnSet;
use crate::ids::Qpn;
use crate::psn::Psn;
use crate::wire::{Bth, Encap, Ext, Opcode, Packet, Pmtu};
use alloc::vec::Vec;

/// What a packet is beside its payload.
#[derive(Clone, Copy, Debug)]
struct Slot {
    bth: Bth,
    ext: Ext,
    payload_len: usize,
}

/// What became of a packet that came early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kept {
    /// It is kept.
    Yes,
    /// It was kept before.
    Before,
    /// It is too far ahead, or there is no memory.
    No,
}

/// A store of fixed size: as many PSNs as one send window of ours takes, with the payload of each.
/// It is taken when the peer has shown that it is there, as who only asks for connections shall not get
/// it; where memory is short then, nothing is ever kept, and the peer sends everything behind a gap
/// again.
#[derive(Debug, Default)]
pub struct Held {
    present: PsnSet,
    slots: Vec<Slot>,
    /// As many stretches of `pmtu` bytes as there are slots.
    payloads: Vec<u8>,
    pmtu: usize,
}

impl Held {
    /// A store that holds nothing.
    pub const fn new() -> Self {
        Self { present: PsnSet::new(), slots: Vec::new(), payloads: Vec::new(), pmtu: 0 }
    }

    /// Takes memory for `bytes` of payload, and 64 packets at least, once. Nothing for 0.
    pub fn reserve(&mut self, bytes: usize, pmtu: Pmtu) {
        if bytes == 0 || self.present.capacity() > 0 {
            return;
        }
        let mut store = Self { pmtu: pmtu.bytes(), ..Self::new() };
        store.present.reserve((bytes / pmtu.bytes()) as u32);
        let slots = store.present.capacity();
        // The largest first: what is refused leaves nothing taken.
        let enough = store.payloads.try_reserve_exact(slots * pmtu.bytes()).is_ok()
            && store.slots.try_reserve_exact(slots).is_ok();
        if enough {
            let bth = Bth::new(Opcode::SendOnly, Qpn::default(), Psn::default());
            let none = Slot { bth, ext: Ext::None, payload_len: 0 };
            store.slots.resize(slots, none);
            store.payloads.resize(slots * pmtu.bytes(), 0);
            *self = store;
        }
    }

    /// Packets kept.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Keeps a packet that is `ahead` PSNs after the one expected.
    pub fn keep(&mut self, ahead: u32, packet: &Packet<'_>) -> Kept {
        let (psn, len) = (packet.bth.psn, packet.payload.len());
        if ahead as usize >= self.present.capacity() || len > self.pmtu {
            return Kept::No;
        }
        if !self.present.insert(psn) {
            return Kept::Before;
        }
        let index = self.index(psn);
        self.slots[index] = Slot { bth: packet.bth, ext: packet.ext, payload_len: len };
        self.payloads[index * self.pmtu..][..len].copy_from_slice(packet.payload);
        Kept::Yes
    }

    /// Gives a packet back, as it came.
    pub fn take(&mut self, psn: Psn, encap: Encap) -> Option<Packet<'_>> {
        if !self.present.remove(psn) {
            return None;
        }
        let index = self.index(psn);
        let Slot { bth, ext, payload_len } = self.slots[index];
        let payload = &self.payloads[index * self.pmtu..][..payload_len];
        Some(Packet { encap, bth, ext, payload })
    }

    /// Forgets what is kept of `packets` PSNs from `first` on.
    pub fn forget(&mut self, first: Psn, packets: u32) {
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
