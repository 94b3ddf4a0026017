//! The state of logical addresses that the consumers' threads and the poll cores share: a ring of messages for each core.

use crate::abi::*;
use crate::bytes::mapping::Mapping;
use crate::object::id::ObjectId;
use crate::sync::modelled::{ArrayQueue, AtomicUsize};
use crate::sync::{Full, take};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

/// Mappings at a time, per shard.
pub(super) const LAMS_MAX: usize = if cfg!(miri) { 1 << 4 } else { 1 << 14 };
/// The first page that is given out: far above any small number and any physical address, so that
/// what a consumer passes by mistake names nothing.
const FIRST_PAGE: u64 = 1 << 36;

/// A mapping, on its way to the cores and in their tables.
pub(super) struct Lam {
    pub(super) adapter: ObjectId,
    /// The logical address of the first byte.
    pub(super) start: u64,
    pub(super) mapping: Mapping,
    _place: Place,
}

/// The place of a mapping, free again when the last core has forgotten it.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

#[derive(Clone)]
pub(super) enum Message {
    Built(Arc<Lam>),
    /// By the address of its first page.
    Released(u64),
    /// Memory that lives until each core has come to this message.
    Retained(Arc<Memory>),
}

/// The memory behind mappings, as its owner has it.
pub(crate) type Memory = Box<dyn Send + Sync>;

/// The rings between the consumers that build and release, and the tables of the cores. Every core learns of every mapping,
/// as a queue pair of any of them may use it.
pub(crate) struct LamRings {
    rings: Box<[Arc<LamRing>]>,
    /// Mappings that may still be built.
    free: Arc<AtomicUsize>,
    /// The next page to give out.
    next: AtomicU64,
}

/// The ring of one core.
pub(crate) struct LamRing {
    messages: ArrayQueue<Message>,
    /// Messages that may still be posted.
    room: AtomicUsize,
}

impl Default for LamRing {
    fn default() -> Self {
        // Each mapping takes two messages, and its memory one.
        let most = 3 * LAMS_MAX;
        Self { messages: ArrayQueue::new(most), room: AtomicUsize::new(most) }
    }
}

impl LamRing {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn pop(&self) -> Option<Message> {
        let message = self.messages.pop()?;
        self.give_back();
        Some(message)
    }

    fn give_back(&self) {
        self.room.fetch_add(1, Ordering::Release);
    }
}

impl LamRings {
    /// A ring for each of so many cores.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            rings: (0..cores).map(|_| Arc::default()).collect(),
            free: Arc::new(AtomicUsize::new(LAMS_MAX)),
            next: AtomicU64::new(FIRST_PAGE),
        }
    }

    /// The ring of a core.
    pub(crate) fn of(&self, core: usize) -> &Arc<LamRing> {
        &self.rings[core]
    }

    /// Gives `pages` logical pages to a mapping whose first byte is `fbo` bytes into them. Returns
    /// the address of the first page; `None`: there is no room for another mapping.
    /// The caller is undisturbed, as for a release: see [`Platform::undisturbed`].
    ///
    /// [`Platform::undisturbed`]: crate::platform::Platform::undisturbed
    pub(super) fn build(
        &self,
        adapter: ObjectId,
        fbo: u32,
        pages: u32,
        mapping: Mapping,
    ) -> Option<u64> {
        take(&self.free).ok()?;
        let _place = Place(Arc::clone(&self.free));
        // One more than asked for, so that two mappings are never neighbours.
        let page = self.next.fetch_add(u64::from(pages) + 1, Ordering::Relaxed);
        let address = page * PAGE_SIZE as u64;
        let lam = Lam { adapter, start: address + u64::from(fbo), mapping, _place };
        // Only releases of what never was can have filled a ring.
        self.post(&Message::Built(Arc::new(lam))).ok()?;
        Some(address)
    }

    /// A release that finds no room, because releases of what never was have filled a ring, is
    /// lost; its mapping then lives as long as its adapter.
    pub(super) fn release(&self, address: u64) {
        let _ = self.post(&Message::Released(address));
    }

    /// Keeps `memory` until each core knows of the releases before. Where there is no room, it is kept for ever.
    pub(crate) fn keep(&self, memory: Memory) {
        let memory = Arc::new(memory);
        if self.post(&Message::Retained(Arc::clone(&memory))).is_err() {
            core::mem::forget(memory);
        }
    }

    /// Tells every core, or none.
    fn post(&self, message: &Message) -> Result<(), Full> {
        let taken = self.rings.iter().take_while(|ring| take(&ring.room).is_ok()).count();
        if taken < self.rings.len() {
            self.rings[..taken].iter().for_each(|ring| ring.give_back());
            return Err(Full);
        }
        for ring in &self.rings {
            let posted = ring.messages.push(message.clone());
            debug_assert!(posted.is_ok(), "there is a place for it");
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }
}
