//! Memory regions: registration of MDL chains, and fast registration of logical pages.
//!
//! A region has one token, local and remote alike, never 0. That of an `NdkRegisterMr` is drawn with
//! each registration; that of a fast-register region once, when it is initialised, and it stays for
//! the life of the region: consumers read it once and hand it out again and again.

use super::adapter::MAX_REGISTRATION;
use super::regions::{self, PAGE_LISTS, PageLists};
use super::{Control, Object, RequestDone, ndk_close, ndk_query_extension, request};
use crate::abi::*;
use crate::platform::with_memory;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use once_cell::race::OnceBox;
use rocev2::env::RegionId;
use rocev2::ids::{Lkey, Rkey};
use rocev2::mr::{Access, Mapping, PdId};
use rocev2::qp::work::SendOp;

/// Pages of one fast registration, at most; also what the adapter reports as the size to use. Enough
/// for 2 MiB less a page that begin anywhere in their first page.
pub(crate) const MAX_PAGES: u32 = 512;

/// What the counts of an `Arc` and the alignment of two blocks may take.
const HEADERS: usize = 64;

/// A memory region.
pub(crate) type MrObject = Object<NDK_MR, MrShared>;

/// What both sides see of a region.
pub(crate) struct MrShared {
    pub(crate) pd: PdId,
    /// Its kind, fixed for life.
    pub(crate) fast_register: bool,
    /// 0 while nothing is registered, or the region not initialised.
    pub(crate) token: AtomicU32,
    /// What is registered, or was fast-registered last, may be written: what a window for remote
    /// writes needs.
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

    /// What is registered, or initialised, has this token from here on.
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

impl MrObject {
    /// A fast registration, which holds a page list from here on.
    pub(crate) fn fast_register(&self, what: &FastRegister<'_>) -> Result<SendOp, NTSTATUS> {
        let key = self.shared.fast_register_key()?;
        let pages = self.shared.pages.get().ok_or(STATUS_INVALID_DEVICE_STATE)?;
        let access = what.access();
        if !pages.most.contains(access) {
            return Err(STATUS_ACCESS_VIOLATION);
        }
        let offset = what.check(pages.lists.max_pages())?;
        let list = pages.lists.take(what.pages).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        self.shared.local_write.store(access.contains(Access::LOCAL_WRITE), Ordering::Relaxed);
        let region = pages.regions[list];
        let mapping = Mapping { region, offset, base: what.base, len: what.len, access };
        Ok(SendOp::FastRegister { key, mapping })
    }
}

/// What a fast-register region needs to be mapped.
pub(crate) struct Pages {
    pub(crate) key: Rkey,
    pub(crate) lists: Arc<PageLists>,
    /// The names of the lists.
    pub(crate) regions: [RegionId; PAGE_LISTS],
    /// The rights that a mapping may grant.
    pub(crate) most: Access,
}

/// The table of every memory region.
pub(crate) static DISPATCH: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: ndk_close::<NDK_MR>,
    NdkQueryExtension: ndk_query_extension,
    NdkRegisterMr: ndk_register_mr,
    NdkDeregisterMr: ndk_deregister_mr,
    NdkInitializeFastRegisterMr: ndk_initialize_fast_register_mr,
    NdkGetRemoteTokenFromMr: ndk_get_token_from_mr,
    NdkGetLocalTokenFromMr: ndk_get_token_from_mr,
};

/// A registration on its way to the core.
pub(crate) struct Register {
    pub(crate) mapping: regions::Mapping,
    pub(crate) base: u64,
    pub(crate) access: Access,
}

/// The initialisation of a fast-register region on its way to the core.
pub(crate) struct Initialize {
    pub(crate) lists: Arc<PageLists>,
    /// The rights that a mapping may grant.
    pub(crate) most: Access,
}

/// What `NdkFastRegister` asks for.
pub(crate) struct FastRegister<'a> {
    pub(crate) pages: &'a [NDK_LOGICAL_ADDRESS],
    pub(crate) fbo: u32,
    pub(crate) len: u64,
    pub(crate) base: u64,
    pub(crate) flags: ULONG,
}

impl FastRegister<'_> {
    /// Bytes of the first page that are before the region.
    ///
    /// They are the low bits of the base address. NDK wants the FBO to be the same; but Microsoft's
    /// sample gives an FBO of 0 with any base address, so only an FBO that says something else is
    /// refused.
    const fn skip(&self) -> Result<u32, NTSTATUS> {
        let skip = (self.base % PAGE_SIZE as u64) as u32;
        if self.fbo == 0 || self.fbo == skip { Ok(skip) } else { Err(STATUS_INVALID_PARAMETER) }
    }

    /// Checks the numbers: the pages hold the length, the addresses do not wrap.
    fn check(&self, max_pages: usize) -> Result<u32, NTSTATUS> {
        let skip = self.skip()?;
        let room = (self.pages.len() * PAGE_SIZE) as u64;
        let fits = self.len == 0 || self.len <= room.saturating_sub(skip.into());
        let aligned = |page: &NDK_LOGICAL_ADDRESS| page.QuadPart % PAGE_SIZE as i64 == 0;
        if self.pages.len() > max_pages
            || !fits
            || (self.len > 0 && self.base.checked_add(self.len - 1).is_none())
            || !self.pages.iter().all(aligned)
        {
            return Err(STATUS_INVALID_PARAMETER);
        }
        Ok(skip)
    }

    fn access(&self) -> Access {
        let mut bits = Access::LOCAL_READ;
        if self.flags & NDK_OP_FLAG_ALLOW_LOCAL_WRITE != 0 {
            bits = bits.with(Access::LOCAL_WRITE);
        }
        bits.with(remote_access(self.flags))
    }
}

/// The remote rights of a fast-register or a bind.
pub(crate) const fn remote_access(flags: ULONG) -> Access {
    let mut bits = Access::LOCAL_READ;
    if flags & NDK_OP_FLAG_ALLOW_REMOTE_READ != 0 {
        bits = bits.with(Access::REMOTE_READ);
    }
    // The flag contains ALLOW_LOCAL_WRITE, which alone must not grant it.
    if flags & NDK_OP_FLAG_ALLOW_REMOTE_WRITE == NDK_OP_FLAG_ALLOW_REMOTE_WRITE {
        bits = bits.with(Access::REMOTE_WRITE);
    }
    bits
}

const fn access(flags: ULONG) -> Access {
    let mut bits = Access::LOCAL_READ;
    if flags & NDK_MR_FLAG_ALLOW_LOCAL_WRITE != 0 {
        bits = bits.with(Access::LOCAL_WRITE);
    }
    if flags & NDK_MR_FLAG_ALLOW_REMOTE_READ != 0 {
        bits = bits.with(Access::REMOTE_READ);
    }
    // The flag contains ALLOW_LOCAL_WRITE, which alone must not grant it.
    if flags & NDK_MR_FLAG_ALLOW_REMOTE_WRITE == NDK_MR_FLAG_ALLOW_REMOTE_WRITE {
        bits = bits.with(Access::REMOTE_WRITE);
    }
    bits
}

/// [`NDK_FN_REGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_register_mr).
/// IRQL <= DISPATCH_LEVEL. The base address is the MDL's virtual address, which is only a label.
///
/// # Safety
/// `mr` is null or an object; `mdl` is a chain of locked MDLs that stays so until the region is deregistered.
unsafe extern "system" fn ndk_register_mr(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: SIZE_T,
    flags: ULONG,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the region open until this call returns.
    let mr = or_return!(unsafe { MrObject::check(mr) });
    if mdl.is_null() || length > MAX_REGISTRATION {
        return STATUS_INVALID_PARAMETER;
    }
    if mr.shared.fast_register {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    let platform = &*mr.base.shard.platform;
    // SAFETY: the consumer's promise about the chain.
    let bytes = unsafe { regions::Mapping::bytes(mdl, length) };
    // SAFETY: as above.
    let map = || unsafe { regions::Mapping::new(mdl, length, platform) };
    let mapping = with_memory(platform, bytes, map);
    let mapping = or_return!(mapping.unwrap_or(Err(STATUS_INSUFFICIENT_RESOURCES)));
    // SAFETY: not null, so valid by the consumer's promise.
    let base = unsafe { &*mdl }.virtual_address().addr() as u64;
    let what = or_return!(mr.base.shard.boxed(Register { mapping, base, access: access(flags) }));
    let done = or_return!(RequestDone::new(completion, context));
    request(mr.base.shard(), Control::RegisterMr { mr: mr.base.id, what, done })
}

/// [`NDK_FN_DEREGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_deregister_mr).
/// IRQL <= DISPATCH_LEVEL. Requests that still name the region fail, and windows that are bound to it
/// end with it. A fast-register region is invalidated instead: `STATUS_INVALID_DEVICE_REQUEST`.
///
/// # Safety
/// `mr` is open.
unsafe extern "system" fn ndk_deregister_mr(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the region open until this call returns.
    let mr = or_return!(unsafe { MrObject::check(mr) });
    if mr.shared.fast_register {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    let done = or_return!(RequestDone::new(completion, context));
    request(mr.base.shard(), Control::DeregisterMr { mr: mr.base.id, done })
}

/// [`NDK_FN_INITIALIZE_FAST_REGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_initialize_fast_register_mr).
/// IRQL <= DISPATCH_LEVEL. Takes the memory of the page lists and draws the token; a region is
/// initialised once in its life, and a second time ends with `STATUS_INVALID_DEVICE_STATE`.
///
/// # Safety
/// `mr` is open.
unsafe extern "system" fn ndk_initialize_fast_register_mr(
    mr: *mut NDK_MR,
    pages: ULONG,
    remote: BOOLEAN,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer keeps the region open until this call returns.
    let mr = or_return!(unsafe { MrObject::check(mr) });
    if !mr.shared.fast_register {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    if pages > MAX_PAGES {
        return STATUS_IMPLEMENTATION_LIMIT;
    }
    let Some(lists) = PageLists::new(pages as usize) else {
        return STATUS_INSUFFICIENT_RESOURCES;
    };
    let most = if remote == FALSE {
        Access::LOCAL_WRITE
    } else {
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
    };
    let bytes = size_of::<Initialize>() + size_of::<PageLists>() + HEADERS;
    let make = || Box::new(Initialize { lists: Arc::new(lists), most });
    let Some(what) = with_memory(&*mr.base.shard.platform, bytes, make) else {
        return STATUS_INSUFFICIENT_RESOURCES;
    };
    let done = or_return!(RequestDone::new(completion, context));
    request(mr.base.shard(), Control::InitializeFastRegisterMr { mr: mr.base.id, what, done })
}

/// [`NDK_FN_GET_REMOTE_TOKEN_FROM_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_remote_token_from_mr)
/// and its local twin: one token serves both. IRQL <= DISPATCH_LEVEL. 0: what is no open region has none.
///
/// # Safety
/// `mr` is open.
unsafe extern "system" fn ndk_get_token_from_mr(mr: *mut NDK_MR) -> UINT32 {
    // SAFETY: the consumer keeps the region open until this call returns.
    let Ok(mr) = (unsafe { MrObject::check(mr) }) else { return 0 };
    mr.shared.token.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_needs_both_of_its_bits() {
        assert!(!access(4).contains(Access::REMOTE_WRITE));
        assert!(!access(NDK_MR_FLAG_ALLOW_LOCAL_WRITE).contains(Access::REMOTE_WRITE));
        assert!(access(NDK_MR_FLAG_ALLOW_REMOTE_WRITE).contains(Access::REMOTE_WRITE));
    }
}
