//! The lower half: one open NIC.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

use super::DRIVER;
use super::adapter::Adapter;
use super::header;
use super::lists::{ListPool, return_lists};
use super::log::{Problem, report};
use crate::abi::imports::{
    NdisCancelSendNetBufferLists, NdisCloseAdapterEx, NdisCopyReceiveNetBufferListInfo,
    NdisOidRequest, NdisOpenAdapterEx, NdisSendNetBufferLists,
};
use crate::abi::*;
use crate::frame::{PEEK_LEN, destination, roce_destination};
use crate::platform::windows::sync::{Event, Gate, SpinLock, at_dispatch};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use netadapter_glue::ndis::Taken;
use netadapter_glue::ndis::chain::{Chain, Frame, Tag, for_each, put_beside};

/// An open NIC, or one that is being opened or closed.
pub(super) struct Binding {
    name: Vec<u16>,
    pub(super) mac: [u8; 6],
    mtu: usize,
    handle: AtomicPtr<c_void>,
    /// Everything that NDIS has of us or we of it; shut while paused.
    pub(super) io: Gate,
    /// Whether NDIS has restarted it; it starts paused.
    running: AtomicBool,
    /// Whether the NIC has power.
    awake: AtomicBool,
    adapter: SpinLock<Option<Arc<Adapter>>>,
    /// Calls that use the adapter; shut while there is none.
    calls: Gate,
    /// Set when NDIS completes an open or a close.
    completed: Event,
    completion: AtomicI32,
    connected: AtomicI32,
    speed: AtomicU64,
}

/// What an adapter shows of its link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LinkState {
    pub(super) connected: bool,
    pub(super) speed: u64,
}

impl Binding {
    /// Opens the NIC for the adapter that wants it. PASSIVE_LEVEL, inside `ProtocolBindAdapterEx`, in turn.
    pub(super) fn open(
        bind_context: NDIS_HANDLE,
        parameters: &NDIS_BIND_PARAMETERS,
        name: &[u16],
    ) -> Result<(), NDIS_STATUS> {
        // For every NIC but one, this is where it ends.
        let adapter = DRIVER.adapter_for(name).ok_or(NDIS_STATUS_ADAPTER_NOT_FOUND)?;
        if DRIVER.is_own(parameters.BoundIfNetluid)
            || parameters.MediaType != NdisMedium802_3
            || adapter.is_attached()
        {
            return Err(NDIS_STATUS_ADAPTER_NOT_FOUND);
        }
        if (parameters.MtuSize as usize) < adapter.mtu() {
            let ours = adapter.mtu() as u32;
            report(adapter.handle, Problem::LowerMtuTooSmall, parameters.MtuSize, ours);
            return Err(NDIS_STATUS_NOT_SUPPORTED);
        }
        let [a, b, c, d, e, f, ..] = parameters.CurrentMacAddress;
        let binding = Arc::new(Self {
            name: name.to_vec(),
            mac: [a, b, c, d, e, f],
            mtu: parameters.MtuSize as usize,
            handle: AtomicPtr::new(null_mut()),
            io: Gate::shut(),
            running: AtomicBool::new(false),
            awake: AtomicBool::new(true),
            adapter: SpinLock::new(None),
            calls: Gate::shut(),
            completed: Event::notification(),
            completion: AtomicI32::new(0),
            connected: AtomicI32::new(parameters.MediaConnectState),
            speed: AtomicU64::new(parameters.XmitLinkSpeed),
        });
        binding.open_adapter(bind_context, parameters).inspect_err(|status| {
            report(adapter.handle, Problem::OpenFailed, status.0.cast_unsigned(), 0);
        })?;
        binding.refuse_merging();
        DRIVER.add_binding(Arc::clone(&binding));
        if let Err(status) = adapter.attach(&binding) {
            binding.close();
            return Err(status);
        }
        Ok(())
    }

    fn open_adapter(
        self: &Arc<Self>,
        bind_context: NDIS_HANDLE,
        parameters: &NDIS_BIND_PARAMETERS,
    ) -> Result<(), NDIS_STATUS> {
        let (mut medium, mut selected) = (NdisMedium802_3, 0);
        // A hint only: IPv4, IPv6 and ARP would do for RoCE, but all of TCP/IP's frames pass too.
        let mut open = NDIS_OPEN_PARAMETERS {
            Header: header(
                NDIS_OBJECT_TYPE_OPEN_PARAMETERS,
                1,
                NDIS_SIZEOF_OPEN_PARAMETERS_REVISION_1,
            ),
            AdapterName: parameters.AdapterName,
            MediumArray: &mut medium,
            MediumArraySize: 1,
            SelectedMediumIndex: &mut selected,
            FrameTypeArray: null_mut(),
            FrameTypeArraySize: 0,
        };
        let context: NDIS_HANDLE = Arc::into_raw(Arc::clone(self)).cast_mut().cast();
        let place = self.handle.as_ptr();
        // SAFETY: the context is a count of this binding, which `close` takes back; everything else
        // lives until the open is completed, which is waited for.
        let status = unsafe {
            NdisOpenAdapterEx(DRIVER.protocol(), context, &mut open, bind_context, place)
        };
        let status = self.completed(status);
        if !status.is_success() {
            // SAFETY: the count of the context, which nobody got.
            drop(unsafe { Arc::from_raw(context.cast::<Self>()) });
            return Err(status);
        }
        Ok(())
    }

    /// The status of an operation that may complete later. PASSIVE_LEVEL.
    fn completed(&self, status: NDIS_STATUS) -> NDIS_STATUS {
        if status != NDIS_STATUS_PENDING {
            return status;
        }
        self.completed.wait();
        self.completed.reset();
        NTSTATUS(self.completion.load(Ordering::Acquire))
    }

    /// NDIS completed an open or a close.
    pub(super) fn complete(&self, status: NDIS_STATUS) {
        self.completion.store(status.0, Ordering::Release);
        self.completed.set();
    }

    /// Closes the NIC. NDIS has paused the binding before. PASSIVE_LEVEL, in turn.
    pub(super) fn close(self: &Arc<Self>) {
        self.pause();
        if let Some(adapter) = self.take_adapter() {
            adapter.detach(self);
        }
        DRIVER.remove_binding(self);
        // SAFETY: open, and not closed yet.
        let status = unsafe { NdisCloseAdapterEx(self.handle()) };
        let _ = self.completed(status);
        // SAFETY: the count of the context: NDIS makes no call with it any more.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
    }

    /// Nothing new from now on; returns when nothing is under way. PASSIVE_LEVEL, in turn.
    pub(super) fn pause(&self) {
        self.running.store(false, Ordering::Release);
        self.io.close();
        self.io.wait_empty();
    }

    /// PASSIVE_LEVEL, in turn.
    pub(super) fn restart(&self) {
        self.running.store(true, Ordering::Release);
        self.open_io();
    }

    /// The NIC loses its power, or has it again. Without it nothing new begins, and nothing is under
    /// way when this returns. PASSIVE_LEVEL, in turn.
    pub(super) fn set_power(&self, awake: bool) {
        self.awake.store(awake, Ordering::Release);
        if awake {
            self.open_io();
        } else {
            self.io.close();
            self.io.wait_empty();
        }
    }

    /// Opens the gate, unless something else keeps it shut.
    fn open_io(&self) {
        if self.running.load(Ordering::Acquire) && self.awake.load(Ordering::Acquire) {
            self.io.open();
        }
    }

    /// The adapter goes away while the NIC stays: nothing of it is under way when this returns.
    /// PASSIVE_LEVEL, in turn.
    pub(super) fn leave_adapter(&self) {
        self.io.close();
        self.io.wait_empty();
        if let Some(adapter) = self.take_adapter() {
            // Before the gate opens again: the poll core has frames to send as long as it runs.
            drop(adapter.attachment().set_binding(None));
        }
        // What a NIC sends to nobody is not worth its while. Asleep it cannot be told.
        if self.awake.load(Ordering::Acquire) {
            let _ = self.set_filter(0);
        }
        self.open_io();
    }

    pub(super) fn name(&self) -> &[u16] {
        &self.name
    }

    pub(super) const fn mtu(&self) -> usize {
        self.mtu
    }

    fn handle(&self) -> NDIS_HANDLE {
        self.handle.load(Ordering::Acquire)
    }

    /// PASSIVE_LEVEL, in turn.
    pub(super) fn set_adapter(&self, adapter: Arc<Adapter>) {
        let before = self.adapter.lock().replace(adapter);
        debug_assert!(before.is_none(), "one adapter at a time");
        self.calls.open();
    }

    /// Parts from the adapter, which no call uses any more when this returns. PASSIVE_LEVEL, in turn.
    fn take_adapter(&self) -> Option<Arc<Adapter>> {
        self.calls.close();
        self.calls.wait_empty();
        self.adapter.lock().take()
    }

    /// A call to the adapter, which cannot be halted before the call has let go of it.
    /// IRQL <= DISPATCH_LEVEL.
    fn with_adapter<T>(&self, call: impl FnOnce(&Arc<Adapter>) -> T) -> Option<T> {
        if !self.calls.enter(1) {
            return None;
        }
        // Not under the lock: it may call NDIS.
        let adapter = self.adapter.lock().clone();
        let value = adapter.as_ref().map(call);
        // The last count would be dropped at DISPATCH_LEVEL if the halt could go on before.
        drop(adapter);
        self.calls.leave(1);
        value
    }

    pub(super) fn link(&self) -> LinkState {
        LinkState {
            connected: self.connected.load(Ordering::Relaxed) != MediaConnectStateDisconnected,
            speed: self.speed.load(Ordering::Relaxed),
        }
    }

    /// The NIC indicated a status. IRQL <= DISPATCH_LEVEL.
    pub(super) fn handle_status(&self, indication: &NDIS_STATUS_INDICATION) {
        let len = indication.StatusBufferSize as usize;
        if indication.StatusCode != NDIS_STATUS_LINK_STATE || len < size_of::<NDIS_LINK_STATE>() {
            return;
        }
        // SAFETY: a link state of this size comes with the code.
        let state = unsafe { indication.StatusBuffer.cast::<NDIS_LINK_STATE>().read_unaligned() };
        self.connected.store(state.MediaConnectState, Ordering::Relaxed);
        self.speed.store(state.XmitLinkSpeed, Ordering::Relaxed);
        let _ = self.with_adapter(|adapter| adapter.indicate_link(self.link()));
    }

    // ---- requests -----------------------------------------------------------------------------

    /// What the NIC shall receive. PASSIVE_LEVEL.
    pub(super) fn set_filter(&self, filter: u32) -> Result<(), NDIS_STATUS> {
        let mut filter = filter;
        self.set(OID_GEN_CURRENT_PACKET_FILTER, (&raw mut filter).cast(), 4)
    }

    /// Asks the NIC not to merge TCP segments: what TCP/IP gets through us must be what was sent.
    /// A NIC that does not know the request does not merge.
    fn refuse_merging(&self) {
        let mut parameters = OffloadParameters::RSC_OFF;
        let len = OffloadParameters::LEN;
        let _ = self.set(OID_TCP_OFFLOAD_PARAMETERS, (&raw mut parameters).cast(), len as u32);
    }

    /// `buffer` holds `len` bytes during the call.
    fn set(&self, oid: NDIS_OID, buffer: PVOID, len: u32) -> Result<(), NDIS_STATUS> {
        let mut request = Box::new(Request::new(oid, buffer, len));
        // SAFETY: the request and its buffer live until it is completed, which is waited for.
        let status = unsafe { NdisOidRequest(self.handle(), &mut request.request) };
        if status != NDIS_STATUS_PENDING {
            return status.ok();
        }
        request.completed.wait();
        NTSTATUS(request.status.load(Ordering::Acquire)).ok()
    }

    // ---- frames -------------------------------------------------------------------------------

    /// Sends lists that have entered the gate. IRQL <= DISPATCH_LEVEL, as `flags` say.
    pub(super) fn send(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        let handle = self.handle();
        let each = |nbl: *mut NET_BUFFER_LIST| {
            // SAFETY: our list, until it is sent.
            unsafe { (*nbl).SourceHandle = handle };
        };
        // SAFETY: as above.
        unsafe { for_each(head, each) };
        // SAFETY: as above; the gate keeps the binding open.
        unsafe { NdisSendNetBufferLists(handle, head, NDIS_DEFAULT_PORT_NUMBER, flags) };
    }

    /// Tells the NIC that it may drop what it has not sent of those with this mark.
    /// IRQL <= DISPATCH_LEVEL.
    pub(super) fn cancel_sends(&self, id: PVOID) {
        if self.io.enter(1) {
            // SAFETY: the gate keeps the binding open.
            unsafe { NdisCancelSendNetBufferLists(self.handle(), id) };
            self.io.leave(1);
        }
    }

    /// Lists came back from the NIC: frames of the poll core, and clones of frames from above.
    ///
    /// # Safety
    /// `head` is a chain of lists that this binding sent.
    pub(super) unsafe fn sent(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        let count = self.with_adapter(|adapter| {
            // SAFETY: the caller's promise.
            unsafe { Self::take_back(adapter, head, flags) }
        });
        // What was sent keeps the gate, and the gate the adapter.
        debug_assert!(count.is_some(), "a send outlives its adapter");
        self.io.leave(count.unwrap_or(0));
    }

    /// Completes sends of the adapter; their number.
    ///
    /// # Safety
    /// As for [`sent`](Self::sent).
    unsafe fn take_back(adapter: &Adapter, head: *mut NET_BUFFER_LIST, flags: ULONG) -> usize {
        let (mut count, mut originals) = (0, Chain::new());
        let each = |nbl: *mut NET_BUFFER_LIST| {
            count += 1;
            // SAFETY: a list of ours.
            let is_clone = !unsafe { (*nbl).ParentNetBufferList }.is_null();
            if is_clone {
                // SAFETY: as above.
                let status = unsafe { (*nbl).Status };
                // SAFETY: as above.
                let original = unsafe { ListPool::free_clone(nbl) };
                // SAFETY: TCP/IP's list, ours until it is completed.
                unsafe { (*original).Status = status };
                // SAFETY: as above.
                unsafe { originals.push(original) };
            } else {
                // SAFETY: a list of the edge.
                unsafe { adapter.port().sent(nbl) };
            }
        };
        // As for what was received.
        // SAFETY: the caller's promise.
        at_dispatch(|| unsafe { for_each(head, each) });
        adapter.complete_sends(&originals, flags);
        count
    }

    /// Gives received lists back that were kept. IRQL <= DISPATCH_LEVEL.
    pub(super) fn give_back(&self, head: *mut NET_BUFFER_LIST, count: u32, flags: ULONG) {
        return_lists(self.handle(), head, flags);
        self.io.leave(count as usize);
    }

    /// Frames arrived. Any CPU, IRQL <= DISPATCH_LEVEL.
    ///
    /// # Safety
    /// `head` is a chain of `count` received lists with one net buffer each.
    pub(super) unsafe fn receive(&self, head: *mut NET_BUFFER_LIST, count: u32, flags: ULONG) {
        let taken = self.with_adapter(|adapter| {
            let enters = self.io.enter(count as usize);
            if enters {
                // SAFETY: the caller's promise.
                unsafe { self.take(adapter, head, count, flags) };
            }
            enters
        });
        if taken != Some(true) && flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0 {
            return_lists(self.handle(), head, flags & NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL);
        }
    }

    /// Sorts received lists that have entered the gate.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    unsafe fn take(&self, adapter: &Adapter, head: *mut NET_BUFFER_LIST, count: u32, flags: ULONG) {
        let keep = flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0;
        let return_flags = flags & NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL;
        let mut batch = Batch { done: Chain::new(), up: Chain::new(), keep };
        let addresses = adapter.addresses();
        let each = |nbl| {
            // SAFETY: the caller's promise.
            unsafe { batch.sort(adapter, &addresses, nbl) };
        };
        // The poll core waits for who has taken a place of its rings and not filled it.
        // SAFETY: as above.
        at_dispatch(|| unsafe { for_each(head, each) });
        let Batch { done, up, .. } = batch;
        let passed = up.len();
        adapter.indicate(up, flags);
        if keep {
            // What is lent or passed up stays inside the gate.
            self.give_back(done.head(), done.len(), return_flags);
        } else {
            debug_assert!(passed <= count);
            self.io.leave(count as usize);
        }
    }
}

/// One call's frames on their ways.
struct Batch {
    /// To be returned to the NIC at once.
    done: Chain,
    /// Clones for TCP/IP.
    up: Chain,
    keep: bool,
}

impl Batch {
    /// # Safety
    /// `nbl` is a received list with one net buffer.
    unsafe fn sort(
        &mut self,
        adapter: &Adapter,
        addresses: &[core::net::IpAddr],
        nbl: *mut NET_BUFFER_LIST,
    ) {
        // SAFETY: the caller's promise.
        let nb = unsafe { (*nbl).FirstNetBuffer };
        let mut peek = [0; PEEK_LEN];
        // SAFETY: as above.
        let frame = unsafe { Frame::of(nb) };
        let map = |mdl| adapter.map(mdl);
        // SAFETY: as above.
        let peeked = unsafe { frame.copy_to(&mut peek, &map) };
        let peek = &peek[..peeked];
        // SAFETY: as above.
        let tag = adapter.attachment().tagging().incoming(unsafe { Tag::beside(nbl) });
        let Some(tag) = tag.ok().filter(|_| adapter.takes(peek)) else {
            return self.finish(nbl, false);
        };
        let roce = roce_destination(peek).is_some_and(|to| addresses.contains(&to));
        let kept = if roce {
            // SAFETY: as above.
            unsafe { adapter.port().receive(nbl, tag, self.keep) == Taken::Lent }
        } else {
            // SAFETY: as above.
            unsafe { self.pass(adapter, nbl, tag, peek, frame.len()) }
        };
        self.finish(nbl, kept);
    }

    /// A list goes back at once, unless it is kept for a while.
    fn finish(&mut self, nbl: *mut NET_BUFFER_LIST, kept: bool) {
        if self.keep && !kept {
            // SAFETY: ours until it is returned.
            unsafe { self.done.push(nbl) };
        }
    }

    /// Clones a frame for TCP/IP. True: the original is in use until the clone comes back.
    unsafe fn pass(
        &mut self,
        adapter: &Adapter,
        nbl: *mut NET_BUFFER_LIST,
        tag: Option<Tag>,
        peek: &[u8],
        len: usize,
    ) -> bool {
        if !adapter.up.enter(1) {
            adapter.stats.in_discarded();
            return false;
        }
        // SAFETY: the original stays ours, or in use by its NIC for the call, until the clone is freed.
        let clone = unsafe { adapter.lists().clone_of(nbl) };
        if clone.is_null() {
            adapter.up.leave(1);
            adapter.stats.in_discarded();
            return false;
        }
        // SAFETY: both are valid.
        unsafe { NdisCopyReceiveNetBufferListInfo(clone, nbl) };
        // SAFETY: just made, and ours.
        unsafe { put_beside(clone, tag) };
        // SAFETY: just made, and ours.
        unsafe { (*clone).SourceHandle = adapter.handle };
        adapter.stats.received(destination(peek), len);
        // SAFETY: as above.
        unsafe { self.up.push(clone) };
        true
    }
}

/// A request of ours to the NIC.
#[repr(C)]
pub(super) struct Request {
    request: NDIS_OID_REQUEST,
    completed: Event,
    status: AtomicI32,
}

impl Request {
    fn new(oid: NDIS_OID, buffer: PVOID, len: u32) -> Self {
        let request = NDIS_OID_REQUEST {
            Header: header(NDIS_OBJECT_TYPE_OID_REQUEST, 1, NDIS_SIZEOF_OID_REQUEST_REVISION_1),
            RequestType: NdisRequestSetInformation,
            PortNumber: NDIS_DEFAULT_PORT_NUMBER,
            Timeout: 0,
            RequestId: null_mut(),
            RequestHandle: null_mut(),
            Oid: oid,
            InformationBuffer: buffer,
            InformationBufferLength: len,
            BytesWritten: 0,
            BytesNeeded: 0,
            MethodTail: [0; 3],
            NdisReserved: [0; 0x80],
            MiniportReserved: [0; 0x10],
            SourceReserved: [0; 0x10],
            SupportedRevision: 0,
            Reserved1: 0,
            Reserved2: 0,
            SwitchId: 0,
            VPortId: 0,
            Flags: 0,
        };
        Self { request, completed: Event::notification(), status: AtomicI32::new(0) }
    }

    /// NDIS completed it.
    ///
    /// # Safety
    /// `request` is the first member of a request whose sender waits.
    pub(super) unsafe fn complete(request: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
        // SAFETY: the caller's promise.
        let this = unsafe { &*request.cast::<Self>() };
        this.status.store(status.0, Ordering::Release);
        this.completed.set();
    }
}

/// `NDIS_OFFLOAD_PARAMETERS` of revision 3. All zero: leave everything as it is.
#[repr(C)]
struct OffloadParameters {
    header: NDIS_OBJECT_HEADER,
    unchanged: [u8; 11],
    flags: u32,
    ipsec_v2: [u8; 2],
    rsc_ipv4: u8,
    rsc_ipv6: u8,
    encapsulation: [u8; 2],
}

impl OffloadParameters {
    /// Through the last member, without the padding behind it.
    const LEN: usize = 0x1A;
    const DISABLED: u8 = 1;
    const SKIP_REGISTRY_UPDATE: u32 = 1;

    const RSC_OFF: Self = Self {
        header: header(NDIS_OBJECT_TYPE_DEFAULT, 3, Self::LEN),
        unchanged: [0; 11],
        flags: Self::SKIP_REGISTRY_UPDATE,
        ipsec_v2: [0; 2],
        rsc_ipv4: Self::DISABLED,
        rsc_ipv6: Self::DISABLED,
        encapsulation: [0; 2],
    };
}

const _: () = {
    assert!(core::mem::offset_of!(OffloadParameters, flags) == 0x10);
    assert!(core::mem::offset_of!(OffloadParameters, rsc_ipv4) == 0x16);
    assert!(core::mem::offset_of!(OffloadParameters, encapsulation) == 0x18);
};
