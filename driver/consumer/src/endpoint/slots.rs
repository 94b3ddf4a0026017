//! Slots of registered memory, one message each.

use std::ops::Range;
use std::sync::Arc;

use crate::{Buffer, Mr, Pd, Result, Rights, Sge};

/// Equal slots in one registration, and those of them that nothing uses.
#[derive(Debug)]
pub(super) struct Slots {
    mr: Arc<Mr>,
    len: usize,
    free: Vec<usize>,
}

impl Slots {
    /// `count` free slots of `len` bytes.
    pub(super) fn new(pd: &Arc<Pd>, count: u32, len: usize, rights: Rights) -> Result<Self> {
        let count = count as usize;
        let mr = pd.register(Buffer::new((count * len).max(1)), rights)?;
        // The first one is taken first.
        Ok(Self { mr, len, free: (0..count).rev().collect() })
    }

    pub(super) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub(super) fn give_back(&mut self, slot: usize) {
        self.free.push(slot);
    }

    pub(super) const fn is_exhausted(&self) -> bool {
        self.free.is_empty()
    }

    /// Bytes of a slot.
    pub(super) const fn slot_len(&self) -> usize {
        self.len
    }

    /// An element over a whole slot.
    pub(super) fn whole(&self, slot: usize) -> Sge<'_> {
        self.mr.sge(self.range(slot, self.len))
    }

    /// Writes a message into a slot, and gives an element over it.
    pub(super) fn fill(&self, slot: usize, message: &[u8]) -> Sge<'_> {
        self.mr.buffer().write(slot * self.len, message);
        self.mr.sge(self.range(slot, message.len()))
    }

    /// The first `len` bytes of a slot.
    pub(super) fn message(&self, slot: usize, len: usize) -> Vec<u8> {
        self.mr.buffer().to_vec(self.range(slot, len))
    }

    fn range(&self, slot: usize, len: usize) -> Range<usize> {
        slot * self.len..slot * self.len + len
    }
}
