//! Net buffer lists of ours: frames of the poll core, and clones of frames that pass.
#![allow(unsafe_code, reason = "calls NDIS and the memory manager")]

use super::binding::Binding;
use super::header;
use crate::abi::imports::{
    IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool, NdisAllocateCloneNetBufferList,
    NdisAllocateNetBufferAndNetBufferList, NdisAllocateNetBufferListPool,
    NdisFreeCloneNetBufferList, NdisFreeNetBufferList, NdisFreeNetBufferListPool,
    NdisReturnNetBufferLists,
};
use crate::abi::*;
use crate::frame::Tagging;
use crate::platform::windows::pool::TAG;
use crate::platform::windows::sync::SpinLock;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use netadapter_glue::ndis::chain::{Tag, for_each, put_beside};
use netadapter_glue::ndis::{Lower, Port};
use once_cell::race::OnceBox;

/// A pool of net buffer lists.
pub(super) struct ListPool(NDIS_HANDLE);

// SAFETY: NDIS serializes every use of a pool.
unsafe impl Send for ListPool {}
// SAFETY: as above.
unsafe impl Sync for ListPool {}

impl ListPool {
    /// PASSIVE_LEVEL.
    pub(super) fn new(adapter: NDIS_HANDLE) -> Result<Self, NDIS_STATUS> {
        let size = size_of::<NET_BUFFER_LIST_POOL_PARAMETERS>();
        let mut parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
            Header: header(NDIS_OBJECT_TYPE_DEFAULT, 1, size),
            ProtocolId: NDIS_PROTOCOL_ID_DEFAULT,
            fAllocateNetBuffer: TRUE,
            ContextSize: 0,
            PoolTag: TAG,
            DataSize: 0,
        };
        // SAFETY: the parameters live during the call.
        let pool = unsafe { NdisAllocateNetBufferListPool(adapter, &mut parameters) };
        if pool.is_null() { Err(NDIS_STATUS_RESOURCES) } else { Ok(Self(pool)) }
    }

    /// A list over a buffer in non-paged pool. PASSIVE_LEVEL.
    fn allocate(&self, bytes: *mut u8, len: usize) -> *mut NET_BUFFER_LIST {
        // SAFETY: only room for the pages is made.
        let mdl = unsafe { IoAllocateMdl(bytes.cast(), len as ULONG, FALSE, FALSE, null_mut()) };
        if mdl.is_null() {
            return null_mut();
        }
        // SAFETY: the buffer lies in non-paged pool, as everything of this image.
        unsafe { MmBuildMdlForNonPagedPool(mdl) };
        // SAFETY: the chain is one MDL; the caller keeps the buffer as long as the list.
        let nbl = unsafe { NdisAllocateNetBufferAndNetBufferList(self.0, 0, 0, mdl, 0, 0) };
        if nbl.is_null() {
            // SAFETY: allocated above.
            unsafe { IoFreeMdl(mdl) };
        }
        nbl
    }

    /// PASSIVE_LEVEL.
    fn free(nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: from `allocate`, and nobody else's.
        let nb = unsafe { (*nbl).FirstNetBuffer };
        // SAFETY: as above: it has one net buffer.
        let mdl = unsafe { (*nb).MdlChain };
        // SAFETY: as above, and nobody else's.
        unsafe { NdisFreeNetBufferList(nbl) };
        // SAFETY: as above.
        unsafe { IoFreeMdl(mdl) };
    }

    /// A list over the same MDLs; null for want of resources. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `original` is valid and stays so until the clone is freed.
    pub(super) unsafe fn clone_of(&self, original: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER_LIST {
        let flags = NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS;
        // SAFETY: the caller's promise; no pool of net buffers means the one of NDIS.
        let clone = unsafe { NdisAllocateCloneNetBufferList(original, self.0, null_mut(), flags) };
        if !clone.is_null() {
            // SAFETY: just allocated. NDIS documents that it sets this; the link is relied on here.
            unsafe { (*clone).ParentNetBufferList = original };
        }
        clone
    }

    /// Frees a clone; returns its original. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `clone` came from [`clone_of`](Self::clone_of), and is nobody else's.
    pub(super) unsafe fn free_clone(clone: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER_LIST {
        // SAFETY: the caller's promise.
        let original = unsafe { (*clone).ParentNetBufferList };
        // SAFETY: as above, with the flags that it was made with.
        unsafe { NdisFreeCloneNetBufferList(clone, NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS) };
        original
    }
}

impl Drop for ListPool {
    fn drop(&mut self) {
        // SAFETY: every list of it was freed before.
        unsafe { NdisFreeNetBufferListPool(self.0) };
    }
}

/// What joins an adapter to the NIC below, while there is one.
pub(super) struct Attachment {
    pub(super) lists: ListPool,
    binding: SpinLock<Option<Arc<Binding>>>,
    port: OnceBox<Weak<Port>>,
    tagging: Tagging,
    /// The VLAN of `tagging`, which may change.
    vlan: AtomicU16,
    /// The adapter has no power: nothing leaves or arrives.
    asleep: AtomicBool,
}

impl Attachment {
    pub(super) fn new(lists: ListPool, tagging: Tagging) -> Self {
        Self {
            lists,
            binding: SpinLock::new(None),
            port: OnceBox::new(),
            tagging,
            vlan: AtomicU16::new(tagging.own),
            asleep: AtomicBool::new(false),
        }
    }

    pub(super) fn tagging(&self) -> Tagging {
        Tagging { own: self.vlan.load(Ordering::Relaxed), ..self.tagging }
    }

    pub(super) fn set_vlan(&self, vlan: u16) {
        self.vlan.store(vlan, Ordering::Relaxed);
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    pub(super) fn set_port(&self, port: &Arc<Port>) {
        // It is set once, right after it is made.
        let _ = self.port.set(Box::new(Arc::downgrade(port)));
    }

    pub(super) fn binding(&self) -> Option<Arc<Binding>> {
        self.binding.lock().clone()
    }

    pub(super) fn set_binding(&self, binding: Option<Arc<Binding>>) -> Option<Arc<Binding>> {
        core::mem::replace(&mut *self.binding.lock(), binding)
    }

    /// A frame of the poll core that cannot leave: lost, as on a NIC without link.
    fn lose(&self, head: *mut NET_BUFFER_LIST) {
        let Some(port) = self.port.get().and_then(Weak::upgrade) else { return };
        let each = |nbl| {
            // SAFETY: a list of the edge.
            unsafe { port.sent(nbl) };
        };
        // SAFETY: as above.
        unsafe { for_each(head, each) };
    }
}

/// The edge's way to NDIS.
pub(super) struct LowerSide(pub(super) Arc<Attachment>);

impl Lower for LowerSide {
    fn allocate(&self, bytes: *mut u8, len: usize) -> *mut NET_BUFFER_LIST {
        self.0.lists.allocate(bytes, len)
    }

    fn free(&self, nbl: *mut NET_BUFFER_LIST) {
        ListPool::free(nbl);
    }

    fn send(&self, head: *mut NET_BUFFER_LIST, count: u32) {
        let binding = self.0.binding().filter(|_| !self.0.is_asleep());
        match binding {
            Some(binding) if binding.io.enter(count as usize) => {
                let tagging = self.0.tagging();
                let tag = |nbl| {
                    // SAFETY: a list of the edge, which is ours until it is sent.
                    unsafe { retag(nbl, |tag| tagging.outgoing(tag)) };
                };
                // SAFETY: as above.
                unsafe { for_each(head, tag) };
                binding.send(head, NDIS_SEND_FLAGS_DISPATCH_LEVEL);
            }
            _ => self.0.lose(head),
        }
    }

    fn give_back(&self, head: *mut NET_BUFFER_LIST, count: u32) {
        // A loan keeps its binding attached: the binding waits for it at its gate.
        let Some(binding) = self.0.binding() else { return };
        binding.give_back(head, count, 0);
    }

    fn speed(&self) -> Option<u64> {
        let link = self.0.binding()?.link();
        let known = link.connected && ![0, NDIS_LINK_SPEED_UNKNOWN].contains(&link.speed);
        known.then_some(link.speed)
    }

    fn map(&self, mdl: *mut MDL) -> *mut u8 {
        use crate::abi::imports::MmMapLockedPagesSpecifyCache;
        let priority = NormalPagePriority | MdlMappingNoExecute;
        // SAFETY: a NIC's MDL is locked; its mapping stays with it, as everybody may make one.
        unsafe {
            MmMapLockedPagesSpecifyCache(
                mdl,
                KernelMode,
                MmCached,
                null_mut(),
                FALSE.into(),
                priority,
            )
        }
        .cast()
    }
}

/// Changes the tag beside a list's frames.
///
/// # Safety
/// `nbl` is valid, and the caller's.
pub(super) unsafe fn retag(
    nbl: *mut NET_BUFFER_LIST,
    change: impl FnOnce(Option<Tag>) -> Option<Tag>,
) {
    // SAFETY: the caller's promise.
    let tag = unsafe { Tag::beside(nbl) };
    // SAFETY: as above.
    unsafe { put_beside(nbl, change(tag)) };
}

/// Gives lists back to a NIC. IRQL <= DISPATCH_LEVEL.
pub(super) fn return_lists(binding: NDIS_HANDLE, head: *mut NET_BUFFER_LIST, flags: ULONG) {
    if !head.is_null() {
        // SAFETY: lists that this binding received and kept.
        unsafe { NdisReturnNetBufferLists(binding, head, flags) };
    }
}
