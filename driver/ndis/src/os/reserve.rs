//! Memory that is reserved for work that cannot end in the middle.
//!
//! A failed allocation of Rust's collections is a bug check. So a thread that starts such work first asks
//! the pool, in one piece, for as much as the work may need. If the pool refuses, the start fails and
//! nothing has happened. If it grants, allocations that the pool refuses meanwhile come out of the reserve.
//!
//! There are three kinds: [`standing`], from load to unload, for small allocations that cannot fail;
//! [`open`], for work at PASSIVE_LEVEL that several threads share; [`with`], for work that nothing can
//! interrupt, whose reserve no other work can use.
#![allow(unsafe_code, reason = "hands out parts of a raw block")]

use super::pool;
use super::sync::{SpinLock, at_dispatch, processor};
use crate::abi::{NDIS_STATUS_RESOURCES, NTSTATUS};
use core::alloc::Layout;
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of the standing reserve.
const STANDING_BYTES: usize = 256 << 10;

/// The head of a block; its parts follow.
struct Reserve {
    /// The next block.
    next: *mut Self,
    /// Bytes of the block.
    len: usize,
    /// Bytes allocated, this head included.
    used: usize,
    /// Parts that are not freed.
    live: usize,
    owner: Owner,
}

/// The allocations that a reserve serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Owner {
    /// All, after all other reserves, and small ones only.
    Standing,
    /// All.
    Shared,
    /// Those of this processor, which runs one piece of work until it is done.
    Processor(u32),
    /// None any more: the work is done.
    Closed,
}

/// All blocks, newest first.
struct Blocks(*mut Reserve);

// SAFETY: a block belongs to no thread.
unsafe impl Send for Blocks {}

static BLOCKS: SpinLock<Blocks> = SpinLock::new(Blocks(null_mut()));
/// The number of blocks; where it is 0, the allocator searches none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The standing reserve has been used.
static LENT: AtomicBool = AtomicBool::new(false);

/// A block.
pub(crate) struct Block(*mut Reserve);

/// An open reserve; closed when it is dropped.
pub(crate) enum Open {
    /// The block that is the standing reserve by then.
    Standing,
    One(Block),
}

// SAFETY: as above.
unsafe impl Send for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        let is = |reserve: &Reserve| match *self {
            Self::Standing => reserve.owner == Owner::Standing,
            Self::One(Block(block)) => core::ptr::eq(reserve, block),
        };
        change(is, |reserve| reserve.owner = Owner::Closed);
    }
}

/// Opens the standing reserve, for run-time calls that cannot fail. IRQL <= DISPATCH_LEVEL.
///
/// # Errors
/// `NDIS_STATUS_RESOURCES` where the pool refuses it.
pub(crate) fn standing() -> Result<Open, NTSTATUS> {
    let block = allocate_block(STANDING_BYTES).ok_or(NDIS_STATUS_RESOURCES)?;
    BLOCKS.lock().link(block, STANDING_BYTES, Owner::Standing);
    Ok(Open::Standing)
}

/// Reserves `bytes` for work of several threads. IRQL <= DISPATCH_LEVEL.
///
/// # Errors
/// `NDIS_STATUS_RESOURCES` where the pool refuses them.
pub(crate) fn open(bytes: usize) -> Result<Open, NTSTATUS> {
    take(bytes, Owner::Shared).ok_or(NDIS_STATUS_RESOURCES)
}

/// Runs `work` at DISPATCH_LEVEL with `bytes` reserved for it alone. Returns false where the pool refuses
/// them, and nothing has happened. IRQL <= DISPATCH_LEVEL.
pub(crate) fn with(bytes: usize, work: &mut dyn FnMut()) -> bool {
    // No other code allocates on this processor until the level is lowered.
    at_dispatch(|| {
        let reserve = take(bytes, Owner::Processor(processor()));
        if reserve.is_some() {
            work();
        }
        reserve.is_some()
    })
}

/// Whether memory is short, so that no new work shall begin: much of the standing reserve is in use, and
/// the pool has no other. IRQL <= DISPATCH_LEVEL. Takes no lock as long as the pool has never refused.
pub(crate) fn is_short() -> bool {
    LENT.load(Ordering::Acquire) && BLOCKS.lock().low().is_some() && !renew()
}

fn take(bytes: usize, owner: Owner) -> Option<Open> {
    if BLOCKS.lock().low().is_some() && !renew() {
        return None;
    }
    let bytes = bytes.checked_add(size_of::<Reserve>())?;
    let block = allocate_block(bytes)?;
    BLOCKS.lock().link(block, bytes, owner);
    Some(Open::One(Block(block)))
}

/// Replaces a standing reserve that is nearly used up; returns false where the pool refuses. Parts in use
/// of the old one keep its block.
fn renew() -> bool {
    let Some(block) = allocate_block(STANDING_BYTES) else { return false };
    let mut blocks = BLOCKS.lock();
    let Some(old) = blocks.low() else {
        drop(blocks);
        // Another processor was faster.
        // SAFETY: just allocated, and nobody else's.
        unsafe { pool::free(block.cast()) };
        return true;
    };
    // SAFETY: a block of the list, which is locked. Something of it is in use, or it were not low:
    // the owner of the last part frees it.
    unsafe { (*old).owner = Owner::Closed };
    blocks.link(block, STANDING_BYTES, Owner::Standing);
    true
}

fn allocate_block(bytes: usize) -> Option<*mut Reserve> {
    let block = pool::allocate(bytes).cast::<Reserve>();
    (!block.is_null()).then_some(block)
}

impl Blocks {
    /// Finds a block and calls `what` with it.
    fn find<T>(
        &mut self,
        is: impl Fn(&Reserve) -> bool,
        what: impl FnOnce(&mut Reserve) -> T,
    ) -> Option<T> {
        let mut next = self.0;
        // SAFETY: a block of the list, which is locked.
        while let Some(reserve) = unsafe { next.as_mut() } {
            if is(reserve) {
                return Some(what(reserve));
            }
            next = reserve.next;
        }
        None
    }

    /// Enters a block of `len` bytes, which has no other owner.
    fn link(&mut self, block: *mut Reserve, len: usize, owner: Owner) {
        let reserve = Reserve { next: self.0, len, used: size_of::<Reserve>(), live: 0, owner };
        // SAFETY: the caller's block, which the pool aligned.
        unsafe { block.write(reserve) };
        self.0 = block;
        COUNT.fetch_add(1, Ordering::Release);
    }

    /// The standing reserve, if so much of it is in use that no new work shall begin.
    fn low(&mut self) -> Option<*mut Reserve> {
        let low =
            |reserve: &Reserve| reserve.owner == Owner::Standing && reserve.used > reserve.len / 2;
        self.find(low, core::ptr::from_mut)
    }

    /// Removes a block from the list.
    fn unlink(&mut self, block: *mut Reserve) {
        // SAFETY: a block of the list, which is locked.
        let next = unsafe { (*block).next };
        if core::ptr::eq(self.0, block) {
            self.0 = next;
        } else {
            self.find(|reserve| core::ptr::eq(reserve.next, block), |before| before.next = next);
        }
    }
}

/// Allocates from an open reserve; null where none has room.
pub(super) fn allocate(layout: Layout) -> *mut u8 {
    if COUNT.load(Ordering::Acquire) == 0 {
        return null_mut();
    }
    let mut blocks = BLOCKS.lock();
    // The lock keeps this thread on its processor.
    let own = Owner::Processor(processor());
    for owner in [own, Owner::Shared, Owner::Standing] {
        let fits = |reserve: &Reserve| reserve.owner == owner && reserve.place(layout).is_some();
        let part = blocks.find(fits, |reserve| reserve.part(layout));
        if let Some(Some(part)) = part {
            if owner == Owner::Standing {
                LENT.store(true, Ordering::Release);
            }
            return with_exposed_provenance_mut(part);
        }
    }
    null_mut()
}

/// Frees a part. Returns false where the address belongs to no reserve.
pub(super) fn deallocate(address: *mut u8) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let address = address.addr();
    change(|reserve| reserve.holds(address), Reserve::give_back)
}

/// Changes the reserve that `is` finds, and frees its block if it is not needed any more.
fn change(is: impl Fn(&Reserve) -> bool, what: impl FnOnce(&mut Reserve)) -> bool {
    let mut blocks = BLOCKS.lock();
    let changed = blocks.find(is, |reserve| {
        what(reserve);
        let over = reserve.owner == Owner::Closed && reserve.live == 0;
        (core::ptr::from_mut(reserve), over)
    });
    if let Some((block, true)) = changed {
        blocks.unlink(block);
        drop(blocks);
        COUNT.fetch_sub(1, Ordering::Release);
        // SAFETY: a block that `take` took from the pool, and no part of it is in use.
        unsafe { pool::free(block.cast()) };
    }
    changed.is_some()
}

impl Reserve {
    fn base(&self) -> usize {
        core::ptr::from_ref(self).expose_provenance()
    }

    fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base()) < self.len
    }

    fn give_back(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            self.used = size_of::<Self>();
        }
    }

    /// The place of a new part, and the bytes in use with it.
    fn place(&self, layout: Layout) -> Option<(usize, usize)> {
        let base = self.base();
        let start = (base + self.used).checked_next_multiple_of(layout.align())?;
        let end = start.checked_add(layout.size())?;
        (end <= base + self.len).then(|| (start, end - base))
    }

    fn part(&mut self, layout: Layout) -> Option<usize> {
        let (start, used) = self.place(layout)?;
        self.used = used;
        self.live += 1;
        Some(start)
    }
}
