//! The state of a memory region that the consumer's thread and the poll core share.

use crate::abi::*;
use crate::bytes::pages::PageLists;
use crate::bytes::pooled;
use crate::object::entry::List;
use crate::object::shared::Object;
use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use once_cell::race::OnceBox;
use rocev2::env::RegionId;
use rocev2::ids::{Lkey, Rkey};
use rocev2::mr::{Access, PdId};

/// A memory region.
pub(crate) type MrObject = Object<NDK_MR, MrShared>;

/// The shared state of a region.
pub(crate) struct MrShared {
    pub(crate) pd: PdId,
    /// Its kind, fixed for life.
    pub(crate) fast_register: bool,
    /// 0 while nothing is registered, or the region not initialised.
    pub(crate) token: AtomicU32,
    /// The registration, or the last fast registration, has local write, which a window for remote writes
    /// needs.
    pub(crate) local_write: AtomicBool,
    /// A fast-register region, once it is initialised.
    pub(crate) pages: OnceBox<Pages>,
}

impl MrShared {
    pub(crate) const fn new(pd: PdId, fast_register: bool) -> Self {
        Self {
            pd,
            fast_register,
            token: AtomicU32::new(0),
            local_write: AtomicBool::new(false),
            pages: OnceBox::new(),
        }
    }

    /// Sets the token of a region that was registered or initialised.
    pub(crate) fn set_token(&self, key: Rkey, local_write: bool) {
        self.local_write.store(local_write, Ordering::Relaxed);
        self.token.store(key.get(), Ordering::Release);
    }

    /// The key of a region that a window with these rights may be bound to.
    pub(crate) fn key_to_bind(&self, access: Access) -> Result<Lkey, NTSTATUS> {
        let token = self.token.load(Ordering::Acquire);
        if token == 0 {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        if access.contains(Access::REMOTE_WRITE) && !self.local_write.load(Ordering::Relaxed) {
            return Err(STATUS_ACCESS_VIOLATION);
        }
        Ok(Lkey::new(token))
    }

    /// The key of an initialised fast-register region.
    pub(crate) fn fast_register_key(&self) -> Result<Rkey, NTSTATUS> {
        if !self.fast_register {
            return Err(STATUS_INVALID_DEVICE_REQUEST);
        }
        self.pages.get().map(|pages| pages.key).ok_or(STATUS_INVALID_DEVICE_STATE)
    }
}

/// The memory that a fast-register region needs for its mappings.
pub(crate) struct Pages {
    pub(crate) key: Rkey,
    /// Its own list, and the name of that.
    pub(crate) list: Arc<PageLists>,
    pub(crate) region: RegionId,
    pub(crate) pool: Arc<PageLists>,
    /// The rights that a mapping may grant.
    pub(crate) most: Access,
}

impl Pages {
    /// Takes a list for these pages, its own if that is free, and returns the name.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES`: none is free. `STATUS_INVALID_PARAMETER`: one is no page's address.
    pub(crate) fn take(&self, pages: List<'_, NDK_LOGICAL_ADDRESS>) -> Result<RegionId, NTSTATUS> {
        let aligned = Cell::new(true);
        // As it goes into the list, since it may be another by the time of a second look.
        let look = |page: &NDK_LOGICAL_ADDRESS| {
            aligned.set(aligned.get() && page.QuadPart % PAGE_SIZE as i64 == 0);
        };
        let mut pages = pages.elements().inspect(look);
        let own = self.list.take(&mut pages).map(|index| (&self.list, index, self.region));
        let pool = || self.pool.take(&mut pages).map(|index| (&self.pool, index, pooled(index)));
        let (lists, index, name) = own.or_else(pool).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        if aligned.get() {
            return Ok(name);
        }
        lists.give_back(index);
        Err(STATUS_INVALID_PARAMETER)
    }
}
