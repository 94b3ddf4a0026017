//! The state of logical addresses that the consumers' threads and the poll core share: a ring of messages.

use crate::abi::*;
use crate::bytes::mapping::Mapping;
use crate::object::id::ObjectId;
use crate::sync::modelled::{ArrayQueue, AtomicUsize};
use crate::sync::take;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

/// Mappings at a time, per shard.
pub(super) const LAMS_MAX: usize = if cfg!(miri) { 1 << 4 } else { 1 << 14 };
/// The first page that is given out: far above any small number and any physical address, so that
/// what a consumer passes by mistake names nothing.
const FIRST_PAGE: u64 = 1 << 36;

/// A mapping on its way to the core.
pub(super) struct Lam {
    pub(super) adapter: ObjectId,
    /// The logical address of the first byte.
    pub(super) start: u64,
    pub(super) mapping: Mapping,
}

pub(super) enum Message {
    Built(Box<Lam>),
    /// By the address of its first page.
    Released(u64),
}

/// The ring between the consumers that build and release, and the core's table.
pub(crate) struct LamRing {
    pub(super) messages: ArrayQueue<Message>,
    /// Mappings that may still be built.
    pub(super) free: AtomicUsize,
    /// The next page to give out.
    next: AtomicU64,
}

impl Default for LamRing {
    fn default() -> Self {
        Self {
            // Each mapping takes two messages.
            messages: ArrayQueue::new(2 * LAMS_MAX),
            free: AtomicUsize::new(LAMS_MAX),
            next: AtomicU64::new(FIRST_PAGE),
        }
    }
}

impl LamRing {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Gives `pages` logical pages to a mapping whose first byte is `fbo` bytes into them. Returns
    /// the address of the first page; `None`: there is no room for another mapping.
    /// The caller is undisturbed, as for a release: see [`Platform::undisturbed`].
    pub(super) fn build(
        &self,
        adapter: ObjectId,
        fbo: u32,
        pages: u32,
        mapping: Mapping,
    ) -> Option<u64> {
        take(&self.free).ok()?;
        // One more than asked for, so that two mappings are never neighbours.
        let page = self.next.fetch_add(u64::from(pages) + 1, Ordering::Relaxed);
        let address = page * PAGE_SIZE as u64;
        let lam = Box::new(Lam { adapter, start: address + u64::from(fbo), mapping });
        if self.messages.push(Message::Built(lam)).is_err() {
            // Only releases of what never was can have filled it.
            self.free.fetch_add(1, Ordering::Release);
            return None;
        }
        Some(address)
    }

    /// A release that finds no room, because releases of what never was have filled the ring, is
    /// lost; its mapping then lives as long as its adapter.
    pub(super) fn release(&self, address: u64) {
        let _ = self.messages.push(Message::Released(address));
    }
}
