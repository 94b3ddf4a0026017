//! Registered memory, and what it must hold.
//!
//! A region is a row of slots with guard bytes around each. Every byte that no transfer may touch
//! equals the model; a byte under transfer is the old or the new one.

use crate::kit::raw::Object;
use driver::abi::{MDL, MDL_MAPPED_TO_SYSTEM_VA, MDL_PAGES_LOCKED, NDK_MR, NDK_SGE};
use ndk_consumer::Buffer;
use rocev2::env::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes before and behind each slot, which no transfer may touch.
pub(crate) const GUARD: usize = 32;

/// A piece of a slot that a request uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    /// The slot.
    pub(crate) slot: usize,
    /// Bytes from the start of the buffer.
    pub(crate) range: Range<usize>,
}

/// Bytes that may change, and into what; `None`: anything.
type Change = (Range<usize>, Option<Vec<u8>>);

/// A buffer as a foreign adapter reaches it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) buffer: Arc<Buffer>,
    /// The address of its first byte.
    pub(crate) label: u64,
    /// The bytes that are registered.
    pub(crate) span: Range<u64>,
}

/// A registered buffer.
pub(crate) struct Region {
    buffer: Arc<Buffer>,
    mdl: Box<MDL>,
    /// Where the buffer starts, as far as both sides know: where it really is changes from run to
    /// run, and nothing on the wire may.
    label: u64,
    model: Vec<u8>,
    slot_len: usize,
    /// Slots in use, and what may change there.
    busy: BTreeMap<usize, Option<Change>>,
    slots: usize,
    frozen: bool,
    /// Its memory region.
    pub(crate) mr: Object<NDK_MR>,
    /// The token; valid from the registration to its end.
    pub(crate) token: u32,
}

impl Region {
    /// A buffer of `slots` slots, filled from `rng`; nothing is registered yet.
    /// `label` is its address, page-aligned.
    pub(crate) fn new(slots: usize, slot_len: usize, label: u64, rng: &mut Rng) -> Self {
        let len = GUARD + slots * (slot_len + GUARD);
        let mut model = vec![0; len];
        fill(&mut model, rng);
        let buffer = Arc::new(Buffer::new(len));
        buffer.write(0, &model);
        let mdl = Box::new(MDL {
            Next: std::ptr::null_mut(),
            Size: size_of::<MDL>() as i16,
            MdlFlags: MDL_MAPPED_TO_SYSTEM_VA | MDL_PAGES_LOCKED,
            Process: std::ptr::null_mut(),
            MappedSystemVa: buffer.as_ptr().wrapping_add(GUARD).cast(),
            StartVa: std::ptr::without_provenance_mut(label as usize),
            ByteCount: (len - 2 * GUARD) as u32,
            ByteOffset: GUARD as u32,
        });
        let mr = Object(std::ptr::null_mut());
        let (busy, frozen, token) = (BTreeMap::new(), false, 0);
        Self { buffer, mdl, label, model, slot_len, busy, slots, frozen, mr, token }
    }

    /// For the registration: all but the first and last guard.
    pub(crate) fn mdl(&mut self) -> (*mut MDL, usize) {
        (&raw mut *self.mdl, self.model.len() - 2 * GUARD)
    }

    /// The same for a foreign adapter.
    pub(crate) fn shared(&self) -> Shared {
        let span = GUARD as u64..(self.model.len() - GUARD) as u64;
        Shared { buffer: Arc::clone(&self.buffer), label: self.label, span }
    }

    /// Pages of the buffer.
    pub(crate) fn pages(&self) -> usize {
        self.model.len().div_ceil(driver::abi::PAGE_SIZE)
    }

    /// Bytes of a slot.
    pub(crate) const fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// A random free slot and a place of `len` bytes in it.
    pub(crate) fn take(&mut self, len: usize, rng: &mut Rng) -> Option<Place> {
        self.take_of(0..self.slots, len, rng)
    }

    /// As [`Self::take`], of some slots.
    pub(crate) fn take_of(
        &mut self,
        slots: Range<usize>,
        len: usize,
        rng: &mut Rng,
    ) -> Option<Place> {
        let free: Vec<usize> = slots.filter(|slot| !self.busy.contains_key(slot)).collect();
        if free.is_empty() {
            return None;
        }
        let slot = free[rng.below(free.len() as u32) as usize];
        let spare = (self.slot_len - len) as u32;
        let start = self.span(slot..slot + 1).start + rng.below(spare + 1) as usize;
        self.busy.insert(slot, None);
        Some(Place { slot, range: start..start + len })
    }

    /// All bytes of some slots, from the start of the buffer.
    pub(crate) const fn span(&self, slots: Range<usize>) -> Range<usize> {
        let stride = self.slot_len + GUARD;
        GUARD + slots.start * stride..slots.end * stride
    }

    /// From here on `base` is the address of the byte `start` of the buffer.
    pub(crate) const fn rename(&mut self, base: u64, start: usize) {
        self.label = base.wrapping_sub(start as u64);
    }

    /// The bytes of `place` may change into `new`, or into anything.
    pub(crate) fn expect(&mut self, place: &Place, new: Option<Vec<u8>>) {
        if !self.frozen {
            self.busy.insert(place.slot, Some((place.range.clone(), new)));
        }
    }

    /// Gives a slot back whose request was never posted, or did not change it.
    pub(crate) fn release(&mut self, place: &Place) {
        self.busy.remove(&place.slot);
    }

    /// Writes into a slot that is in use, as its owner.
    pub(crate) fn put(&mut self, place: &Place, bytes: &[u8]) {
        self.buffer.write(place.range.start, bytes);
        self.model[place.range.clone()].copy_from_slice(bytes);
    }

    /// What the model holds.
    pub(crate) fn model(&self, place: &Place) -> &[u8] {
        &self.model[place.range.clone()]
    }

    /// The transfer has ended: the place holds `bytes` at its start, and what it held after that.
    /// The slot stays in use.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn settle(&mut self, place: &Place, bytes: &[u8]) -> Result<(), String> {
        let start = place.range.start;
        self.model[start..start + bytes.len()].copy_from_slice(bytes);
        self.busy.insert(place.slot, None);
        self.check_range(place.range.clone())
    }

    /// As [`Self::settle`], and the slot is free.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn finish(&mut self, place: &Place, bytes: &[u8]) -> Result<(), String> {
        let settled = self.settle(place, bytes);
        self.busy.remove(&place.slot);
        settled
    }

    /// The request failed, and nothing may write any more: what is there now stays.
    ///
    /// # Errors
    /// What is there is neither old nor new.
    pub(crate) fn abandon(&mut self, place: &Place) -> Result<(), String> {
        self.check_busy(place.slot)?;
        self.busy.remove(&place.slot);
        self.adopt(place.range.clone());
        Ok(())
    }

    /// Nothing may write to any of its bytes any more.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(crate) fn freeze(&mut self) -> Result<(), String> {
        self.check()?;
        self.frozen = true;
        for (range, _) in std::mem::take(&mut self.busy).into_values().flatten() {
            self.adopt(range);
        }
        Ok(())
    }

    fn adopt(&mut self, range: Range<usize>) {
        let (buffer, model) = (&self.buffer, &mut self.model);
        buffer.read(range.start, &mut model[range]);
    }

    fn check_busy(&self, slot: usize) -> Result<(), String> {
        let Some(Some((range, Some(new)))) = self.busy.get(&slot) else { return Ok(()) };
        let mut found = vec![0; range.len()];
        self.buffer.read(range.start, &mut found);
        let old = &self.model[range.clone()];
        match (0..range.len()).find(|&at| found[at] != old[at] && found[at] != new[at]) {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} of a transfer into slot {slot} is from elsewhere")),
        }
    }

    fn check_range(&self, range: Range<usize>) -> Result<(), String> {
        let mut found = vec![0; range.len()];
        self.buffer.read(range.start, &mut found);
        let model = &self.model[range.clone()];
        if found == model {
            return Ok(());
        }
        let at = range.start + found.iter().zip(model).take_while(|(is, was)| is == was).count();
        let slot = at.saturating_sub(GUARD) / (self.slot_len + GUARD);
        Err(format!("byte {at} (slot {slot}) was changed by nobody"))
    }

    /// Compares all bytes with the model.
    ///
    /// # Errors
    /// The first that differs.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut from = 0;
        let changing = self.busy.values().flatten().map(|(range, _)| range);
        for range in changing {
            self.check_range(from..range.start)?;
            from = range.end;
        }
        self.check_range(from..self.model.len())?;
        self.busy.keys().try_for_each(|&slot| self.check_busy(slot))
    }

    /// The address of a place, as both sides name it.
    pub(crate) fn address(&self, place: &Place) -> u64 {
        self.label.wrapping_add(place.range.start as u64)
    }

    /// One to three elements over a place.
    pub(crate) fn sgl(&self, place: &Place, rng: &mut Rng) -> Vec<NDK_SGE> {
        let len = place.range.len();
        let mut cuts = [0, rng.below(len as u32 + 1) as usize, rng.below(len as u32 + 1) as usize];
        if rng.below(3) > 0 {
            cuts = [0; 3];
        }
        cuts.sort_unstable();
        let ends = [cuts[1], cuts[2], len];
        let address = self.address(place) as usize;
        let element = |(start, end): (usize, usize)| {
            let address = std::ptr::without_provenance_mut(address + start);
            NDK_SGE::from_virtual(address, (end - start) as u32, self.token)
        };
        cuts.into_iter().zip(ends).filter(|(start, end)| start < end).map(element).collect()
    }
}

/// Fills `bytes` with noise.
pub(crate) fn fill(bytes: &mut [u8], rng: &mut Rng) {
    // xorshift: a simulation fills much, and nobody has to be unable to guess it.
    let mut state = rng.u64() | 1;
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}
