//! Registered memory in slots of equal size.

use std::ops::Range;
use std::sync::Arc;

use driver::abi::STATUS_INSUFFICIENT_RESOURCES;
use ndk_consumer::{Buffer, Mr, NdkError, Pd, Remote};

use super::control::Control;
use crate::connection::Connection;
use crate::failure::Failure;

/// Slots of registered memory.
#[derive(Debug)]
pub(super) struct Ring {
    mr: Arc<Mr>,
    slot_len: usize,
    slots: usize,
}

impl Ring {
    pub(super) fn new(
        pd: &Arc<Pd>,
        slots: usize,
        slot_len: usize,
        flags: u32,
    ) -> Result<Self, Failure> {
        let no_memory = NdkError { status: STATUS_INSUFFICIENT_RESOURCES, call: "a ring's memory" };
        let buffer = Buffer::try_new(slots * slot_len).ok_or(no_memory)?;
        let mr = pd.register(buffer, flags)?;
        Ok(Self { mr, slot_len, slots })
    }

    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// The slot of message `message`.
    pub(super) const fn slot(&self, message: u64) -> usize {
        (message % self.slots as u64) as usize
    }

    /// All bytes of a slot.
    pub(super) const fn whole(&self, slot: usize) -> Range<usize> {
        self.range(slot, self.slot_len)
    }

    /// The first `len` bytes of a slot.
    pub(super) const fn range(&self, slot: usize, len: usize) -> Range<usize> {
        let start = slot * self.slot_len;
        start..start + len
    }

    pub(super) fn put(&self, slot: usize, bytes: &[u8]) {
        self.mr.buffer().write(slot * self.slot_len, bytes);
    }

    pub(super) fn get(&self, slot: usize, bytes: &mut [u8]) {
        self.mr.buffer().read(slot * self.slot_len, bytes);
    }

    /// The last byte of the first `len` of a slot, as it is now.
    pub(super) fn last_byte(&self, slot: usize, len: usize) -> u8 {
        self.mr.buffer().load(self.range(slot, len).end - 1)
    }

    pub(super) fn remote(&self) -> Remote {
        self.mr.remote(0)
    }
}

/// Slots to send control messages from. Tags from `first_tag` on are its own.
#[derive(Debug)]
pub(super) struct ControlSender {
    ring: Ring,
    free: Vec<usize>,
    first_tag: usize,
}

impl ControlSender {
    /// More than are ever on their way: four credits, four turns, the rest once each.
    pub(super) const SLOTS: u32 = 16;

    pub(super) fn new(pd: &Arc<Pd>, first_tag: usize) -> Result<Self, Failure> {
        let ring = Ring::new(pd, Self::SLOTS as usize, Control::LEN, 0)?;
        Ok(Self { ring, free: (0..Self::SLOTS as usize).collect(), first_tag })
    }

    pub(super) fn send(
        &mut self,
        connection: &mut Connection,
        control: Control,
    ) -> Result<(), Failure> {
        let slot =
            self.free.pop().ok_or(Failure::Protocol("the peer takes no control messages"))?;
        self.ring.put(slot, &control.encode());
        connection.send(self.ring.mr(), self.ring.range(slot, Control::LEN), self.first_tag + slot)
    }

    /// Takes a slot back; false if `tag` is not one of ours.
    pub(super) fn sent(&mut self, tag: usize) -> bool {
        match tag.checked_sub(self.first_tag) {
            Some(slot) => {
                self.free.push(slot);
                true
            }
            None => false,
        }
    }
}
