//! A memory region for its consumer: registration, and what a fast registration names.

use super::request::{DeregisterMr, Initialize, InitializeFastRegisterMr, Register, RegisterMr};
use super::shared::MrObject;
use crate::abi::*;
use crate::bytes::mapping::{self, MdlChain};
use crate::bytes::pages::PageLists;
use crate::limits::{MAX_PAGES, MAX_REGISTRATION};
use crate::object::call::{ndk_close, ndk_query_extension, request};
use crate::object::done::RequestDone;
use crate::object::entry::{List, entry};
use crate::platform::with_memory;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use rocev2::mr::{Access, Mapping};
use rocev2::qp::SendOp;

/// The memory of the counts of an `Arc` and the alignment of two blocks.
const HEADERS: usize = 64;

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

impl MrObject {
    /// A fast registration, which holds a page list from here on.
    pub(crate) fn fast_register(&self, what: FastRegister<'_>) -> Result<SendOp, NTSTATUS> {
        let key = self.shared.fast_register_key()?;
        let pages = self.shared.pages.get().ok_or(STATUS_INVALID_DEVICE_STATE)?;
        let access = what.access();
        if !pages.most.contains(access) {
            return Err(STATUS_ACCESS_VIOLATION);
        }
        let offset = what.check(pages.list.max_pages())?;
        let FastRegister { pages: listed, base, len, .. } = what;
        let region = pages.take(listed)?;
        self.shared.local_write.store(access.contains(Access::LOCAL_WRITE), Ordering::Relaxed);
        let mapping = Mapping { region, offset, base, len, access };
        Ok(SendOp::FastRegister { key, mapping })
    }
}

/// The arguments of `NdkFastRegister`.
pub(crate) struct FastRegister<'a> {
    pub(crate) pages: List<'a, NDK_LOGICAL_ADDRESS>,
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
        if self.pages.len() > max_pages
            || !fits
            || (self.len > 0 && self.base.checked_add(self.len - 1).is_none())
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

entry! {
    /// [`NDK_FN_REGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_register_mr).
    /// IRQL <= DISPATCH_LEVEL. The base address is the MDL's virtual address, which is only a label. The chain stays locked
    /// until the region is deregistered.
    fn ndk_register_mr(
        mr: &MrObject,
        chain: MdlChain<'_> = MdlChain::new(mdl: *mut MDL),
        length: SIZE_T,
        flags: ULONG,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        let first = chain.first().ok_or(STATUS_INVALID_PARAMETER)?;
        if length > MAX_REGISTRATION {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if mr.shared.fast_register {
            return Err(STATUS_INVALID_DEVICE_REQUEST);
        }
        let platform = &*mr.base.shard.platform;
        let count = chain.count(length);
        let map = || mapping::Mapping::new(chain, count, length, platform);
        let mapping = with_memory(platform, mapping::Mapping::bytes(count), map);
        let mapping = mapping.unwrap_or(Err(STATUS_INSUFFICIENT_RESOURCES))?;
        let base = first.virtual_address().addr() as u64;
        let what = mr.base.shard.boxed(Register { mapping, base, access: access(flags) })?;
        let done = RequestDone::new(completion, context)?;
        request(mr.base.shard(), RegisterMr { mr: mr.base.id, what, done })
    }
}

entry! {
    /// [`NDK_FN_DEREGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_deregister_mr).
    /// IRQL <= DISPATCH_LEVEL. Requests that still name the region fail, and windows that are bound to it
    /// end with it. A fast-register region is invalidated instead: `STATUS_INVALID_DEVICE_REQUEST`.
    fn ndk_deregister_mr(
        mr: &MrObject,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        if mr.shared.fast_register {
            return Err(STATUS_INVALID_DEVICE_REQUEST);
        }
        let done = RequestDone::new(completion, context)?;
        request(mr.base.shard(), DeregisterMr { mr: mr.base.id, done })
    }
}

entry! {
    /// [`NDK_FN_INITIALIZE_FAST_REGISTER_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_initialize_fast_register_mr).
    /// IRQL <= DISPATCH_LEVEL. Takes the memory of the page list and draws the token; a region is
    /// initialised once in its life, and a second time ends with `STATUS_INVALID_DEVICE_STATE`.
    fn ndk_initialize_fast_register_mr(
        mr: &MrObject,
        pages: ULONG,
        remote: BOOLEAN,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: PVOID,
    ) -> NTSTATUS {
        if !mr.shared.fast_register {
            return Err(STATUS_INVALID_DEVICE_REQUEST);
        }
        if pages > MAX_PAGES {
            return Err(STATUS_IMPLEMENTATION_LIMIT);
        }
        let list = PageLists::new(1, pages as usize).ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let pool = mr.base.shard.page_pool()?;
        let most = if remote == FALSE {
            Access::LOCAL_WRITE
        } else {
            Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
        };
        let bytes = size_of::<Initialize>() + size_of::<PageLists>() + HEADERS;
        let make = || Box::new(Initialize { list: Arc::new(list), pool, most });
        let what = with_memory(&*mr.base.shard.platform, bytes, make);
        let what = what.ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let done = RequestDone::new(completion, context)?;
        request(mr.base.shard(), InitializeFastRegisterMr { mr: mr.base.id, what, done })
    }
}

entry! {
    /// [`NDK_FN_GET_REMOTE_TOKEN_FROM_MR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndkpi/nc-ndkpi-ndk_fn_get_remote_token_from_mr)
    /// and its local twin: one token serves both. IRQL <= DISPATCH_LEVEL. 0: what is no open region has none.
    fn ndk_get_token_from_mr(mr: &MrObject) -> UINT32 {
        Ok(mr.shared.token.load(Ordering::Acquire))
    }
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
