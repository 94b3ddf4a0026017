//! Our net buffer lists: frames of the poll core, and clones of frames that TCP/IP sends.
#![allow(unsafe_code, reason = "calls NDIS and the memory manager")]

use super::binding::Binding;
use crate::abi::imports::{
    IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool, NdisAllocateCloneNetBufferList,
    NdisAllocateNetBufferAndNetBufferList, NdisAllocateNetBufferListPool,
    NdisFreeCloneNetBufferList, NdisFreeNetBufferList, NdisFreeNetBufferListPool,
    NdisReturnNetBufferLists,
};
use crate::abi::*;
use crate::frame::Tagging;
use crate::os::pool::TAG;
use crate::os::sync::SpinLock;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use netadapter_glue::ndis::chain::{Chain, Tag, for_each, put_beside};
use netadapter_glue::ndis::status::MEDIA_DISCONNECTED;
use netadapter_glue::ndis::{Lower, Ports};
use once_cell::race::OnceBox;

/// A net buffer list that is ours until we hand it on.
pub(crate) struct List(*mut NET_BUFFER_LIST);

impl List {
    /// # Safety
    /// `nbl` is a valid list, which nobody else uses.
    pub(super) const unsafe fn of(nbl: *mut NET_BUFFER_LIST) -> Self {
        Self(nbl)
    }

    pub(crate) const fn as_ptr(&self) -> *mut NET_BUFFER_LIST {
        self.0
    }

    /// Hands it to a chain.
    pub(crate) fn push_to(self, chain: &mut Chain) {
        // SAFETY: ours, as those were that are in the chain.
        unsafe { chain.push(self.0) };
    }

    /// The tag beside its frames.
    pub(crate) fn tag(&self) -> Option<Tag> {
        // SAFETY: ours.
        unsafe { Tag::beside(self.0) }
    }

    pub(crate) fn set_tag(&mut self, tag: Option<Tag>) {
        // SAFETY: ours.
        unsafe { put_beside(self.0, tag) };
    }
}

impl Deref for List {
    type Target = NET_BUFFER_LIST;

    fn deref(&self) -> &NET_BUFFER_LIST {
        // SAFETY: valid, and ours.
        unsafe { &*self.0 }
    }
}

impl DerefMut for List {
    fn deref_mut(&mut self) -> &mut NET_BUFFER_LIST {
        // SAFETY: valid, and ours.
        unsafe { &mut *self.0 }
    }
}

/// A chain of lists that are ours, and how we came by them.
pub(crate) struct Lists<From>(*mut NET_BUFFER_LIST, PhantomData<From>);

/// TCP/IP sends them: they are completed sooner or later.
pub(crate) enum Above {}
/// TCP/IP gives them back: copies that it was shown.
pub(crate) enum Shown {}
/// The NIC received them: one net buffer each.
pub(crate) enum Received {}
/// The NIC gives them back: frames of the poll core, and clones of what TCP/IP sends.
pub(crate) enum Sent {}

impl<From> Lists<From> {
    /// # Safety
    /// `head` is null or a chain of valid lists, which nobody else uses and which are what `From` says.
    pub(crate) const unsafe fn new(head: *mut NET_BUFFER_LIST) -> Self {
        Self(head, PhantomData)
    }

    pub(crate) const fn head(&self) -> *mut NET_BUFFER_LIST {
        self.0
    }

    /// Calls `each` with every list, which may hand it on.
    pub(crate) fn for_each(self, mut each: impl FnMut(List)) {
        // SAFETY: by `new`.
        unsafe { for_each(self.0, |nbl| each(List(nbl))) };
    }
}

/// A pool of net buffer lists.
pub(crate) struct ListPool(NDIS_HANDLE);

// SAFETY: NDIS serializes every use of a pool.
unsafe impl Send for ListPool {}
// SAFETY: as above.
unsafe impl Sync for ListPool {}

impl ListPool {
    /// PASSIVE_LEVEL.
    pub(crate) fn new(adapter: NDIS_HANDLE) -> Result<Self, NDIS_STATUS> {
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
    pub(super) fn allocate(&self, bytes: *mut u8, len: usize) -> *mut NET_BUFFER_LIST {
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
    pub(super) fn free(nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: from `allocate`, and nobody else's.
        let nb = unsafe { (*nbl).FirstNetBuffer };
        // SAFETY: as above: it has one net buffer.
        let mdl = unsafe { (*nb).MdlChain };
        // SAFETY: as above, and nobody else's.
        unsafe { NdisFreeNetBufferList(nbl) };
        // SAFETY: as above.
        unsafe { IoFreeMdl(mdl) };
    }

    /// A list over the same MDLs; `None` for lack of resources. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `original` stays valid until the clone is freed.
    pub(crate) unsafe fn clone_of(&self, original: &List) -> Option<List> {
        let (original, flags) = (original.as_ptr(), NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS);
        // SAFETY: the caller's promise; no pool of net buffers means the one of NDIS.
        let clone = unsafe { NdisAllocateCloneNetBufferList(original, self.0, null_mut(), flags) };
        if clone.is_null() {
            return None;
        }
        let mut clone = List(clone);
        // NDIS documents that it sets this; the link is relied on here.
        clone.ParentNetBufferList = original;
        Some(clone)
    }

    /// Frees a clone; returns its original. IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `clone` came from [`clone_of`](Self::clone_of).
    pub(crate) unsafe fn free_clone(clone: List) -> List {
        let original = List(clone.ParentNetBufferList);
        // SAFETY: the caller's promise, with the flags that it was made with.
        unsafe { NdisFreeCloneNetBufferList(clone.as_ptr(), NDIS_CLONE_FLAGS_USE_ORIGINAL_MDLS) };
        original
    }
}

impl Drop for ListPool {
    fn drop(&mut self) {
        // SAFETY: every list of it was freed before.
        unsafe { NdisFreeNetBufferListPool(self.0) };
    }
}

/// The attachment of an adapter to the NIC below, while there is one.
pub(crate) struct Attachment {
    pub(crate) lists: ListPool,
    binding: SpinLock<Option<Arc<Binding>>>,
    ports: OnceBox<Weak<Ports>>,
    tagging: Tagging,
    /// The VLAN of `tagging`, which may change.
    vlan: AtomicU16,
    /// A policy of NDIS QoS says which RoCE frames have a priority.
    policy: AtomicBool,
    /// The adapter has no power: nothing leaves or arrives.
    asleep: AtomicBool,
}

impl Attachment {
    pub(crate) fn new(lists: ListPool, tagging: Tagging) -> Self {
        Self {
            lists,
            binding: SpinLock::new(None),
            ports: OnceBox::new(),
            tagging,
            vlan: AtomicU16::new(tagging.own),
            policy: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        }
    }

    pub(crate) fn tagging(&self) -> Tagging {
        let own = self.vlan.load(Ordering::Relaxed);
        let roce = if self.policy.load(Ordering::Relaxed) { 0 } else { self.tagging.roce };
        Tagging { own, roce, ..self.tagging }
    }

    pub(crate) fn set_vlan(&self, vlan: u16) {
        self.vlan.store(vlan, Ordering::Relaxed);
    }

    pub(crate) fn set_policy(&self, configured: bool) {
        self.policy.store(configured, Ordering::Relaxed);
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    pub(crate) fn set_ports(&self, ports: &Arc<Ports>) {
        // They are set once, right after they are made.
        let _ = self.ports.set(Box::new(Arc::downgrade(ports)));
    }

    pub(crate) fn binding(&self) -> Option<Arc<Binding>> {
        self.binding.lock().clone()
    }

    pub(crate) fn has_binding(&self) -> bool {
        self.binding.lock().is_some()
    }

    pub(crate) fn set_binding(&self, binding: Option<Arc<Binding>>) -> Option<Arc<Binding>> {
        core::mem::replace(&mut *self.binding.lock(), binding)
    }

    /// Drops frames of the poll core that cannot leave, as a NIC without link does.
    fn lose(&self, head: *mut NET_BUFFER_LIST) {
        let Some(ports) = self.ports.get().and_then(Weak::upgrade) else { return };
        // SAFETY: lists of an edge.
        let lists = unsafe { Lists::<Sent>::new(head) };
        lists.for_each(|mut list| {
            list.Status = MEDIA_DISCONNECTED;
            // SAFETY: a list of an edge.
            unsafe { ports.sent(list.as_ptr()) };
        });
    }
}

/// An edge's way to NDIS.
pub(crate) struct LowerSide(pub(crate) Arc<Attachment>);

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
                // SAFETY: lists of the edge, which are ours until they are sent.
                let lists = unsafe { Lists::<Sent>::new(head) };
                lists.for_each(|mut list| {
                    let tag = tagging.outgoing_roce(list.tag());
                    list.set_tag(tag);
                });
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

/// Returns lists to a NIC. IRQL <= DISPATCH_LEVEL.
pub(crate) fn return_lists(binding: NDIS_HANDLE, head: *mut NET_BUFFER_LIST, flags: ULONG) {
    if !head.is_null() {
        // SAFETY: lists that this binding received and kept.
        unsafe { NdisReturnNetBufferLists(binding, head, flags) };
    }
}
