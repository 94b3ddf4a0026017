//! Memory set aside for work that cannot end in the middle.
//!
//! Rust's collections answer a refused allocation with a bug check. So whoever starts something asks
//! the pool first, in one piece, for as much as it may need: if that is refused, the start fails and
//! nothing has happened; if it is granted, what the pool refuses meanwhile comes out of the reserve.
#![allow(unsafe_code, reason = "hands out parts of a raw block")]

use super::pool;
use super::sync::SpinLock;
use crate::abi::{NDIS_STATUS_RESOURCES, NTSTATUS};
use core::alloc::Layout;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Reserves at once: starts of adapters and bindings under way, and those whose parts are in use.
const RESERVES_MAX: usize = 16;

/// Kept from load to unload, for the small things that run-time calls box.
pub(crate) const STANDING_BYTES: usize = 256 << 10;
/// What an adapter's start may need: a poll core takes 4 MiB, its frame buffers 2 MiB.
pub(crate) const ADAPTER_BYTES: usize = 8 << 20;

#[derive(Clone, Copy)]
struct Reserve {
    /// Address of the block; 0: none.
    base: usize,
    len: usize,
    used: usize,
    /// Parts that are not given back.
    live: usize,
    /// Its work goes on.
    open: bool,
}

const NONE: Reserve = Reserve { base: 0, len: 0, used: 0, live: 0, open: false };

static RESERVES: SpinLock<[Reserve; RESERVES_MAX]> = SpinLock::new([NONE; RESERVES_MAX]);
/// Blocks that exist; without one the allocator needs no look.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// An open reserve; closed when it is dropped.
pub(crate) struct Open(usize);

impl Drop for Open {
    fn drop(&mut self) {
        change(|reserve| reserve.base == self.0, |reserve| reserve.open = false);
    }
}

/// Sets `bytes` aside. IRQL <= DISPATCH_LEVEL.
///
/// # Errors
/// `NDIS_STATUS_RESOURCES` where the pool refuses them.
pub(crate) fn open(bytes: usize) -> Result<Open, NTSTATUS> {
    let base = pool::allocate(bytes).expose_provenance();
    if base == 0 {
        return Err(NDIS_STATUS_RESOURCES);
    }
    if enter(Reserve { base, len: bytes, used: 0, live: 0, open: true }) {
        return Ok(Open(base));
    }
    free(base);
    Err(NDIS_STATUS_RESOURCES)
}

fn enter(reserve: Reserve) -> bool {
    let mut reserves = RESERVES.lock();
    let Some(free) = reserves.iter_mut().find(|reserve| reserve.base == 0) else { return false };
    *free = reserve;
    BLOCKS.fetch_add(1, Ordering::Release);
    true
}

/// A part of an open reserve; null where none has room.
pub(super) fn allocate(layout: Layout) -> *mut u8 {
    if BLOCKS.load(Ordering::Acquire) == 0 {
        return core::ptr::null_mut();
    }
    let mut reserves = RESERVES.lock();
    let part =
        reserves.iter_mut().filter(|reserve| reserve.open).find_map(|reserve| reserve.part(layout));
    part.map_or(core::ptr::null_mut(), core::ptr::with_exposed_provenance_mut)
}

/// Takes a part back. False: the address is not of a reserve.
pub(super) fn deallocate(address: *mut u8) -> bool {
    if BLOCKS.load(Ordering::Acquire) == 0 {
        return false;
    }
    let address = address.addr();
    change(|reserve| reserve.holds(address), Reserve::give_back)
}

/// Changes the reserve that `is` finds, and frees its block if nobody needs it any more.
fn change(is: impl Fn(&Reserve) -> bool, what: impl FnOnce(&mut Reserve)) -> bool {
    let mut reserves = RESERVES.lock();
    let Some(reserve) = reserves.iter_mut().find(|reserve| reserve.base != 0 && is(reserve)) else {
        return false;
    };
    what(reserve);
    if reserve.open || reserve.live > 0 {
        return true;
    }
    let base = reserve.base;
    *reserve = NONE;
    drop(reserves);
    BLOCKS.fetch_sub(1, Ordering::Release);
    free(base);
    true
}

fn free(base: usize) {
    // SAFETY: a block that `with` took from the pool, and no part of it is in use.
    unsafe { pool::free(core::ptr::with_exposed_provenance_mut(base)) };
}

impl Reserve {
    fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.len
    }

    fn give_back(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            self.used = 0;
        }
    }

    fn part(&mut self, layout: Layout) -> Option<usize> {
        let start = (self.base + self.used).checked_next_multiple_of(layout.align())?;
        let end = start.checked_add(layout.size())?;
        if end > self.base + self.len {
            return None;
        }
        self.used = end - self.base;
        self.live += 1;
        Some(start)
    }
}
