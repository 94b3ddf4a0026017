//! The lower half: one open NIC.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

use super::lists::{List, ListPool, Lists, Sent, return_lists};
use super::offload::{merging_of, offers_of};
use super::rss::scaling_of;
use crate::abi::imports::{
    NdisCancelSendNetBufferLists, NdisCloseAdapterEx, NdisOidRequest, NdisOpenAdapterEx,
    NdisSendNetBufferLists,
};
use crate::abi::*;
use crate::log::report;
use crate::os::sync::{Event, Gate, SpinLock, at_dispatch};
use crate::pairing::DRIVER;
use crate::problems::Problem;
use crate::stage::Stage;
use crate::upper::adapter::Adapter;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use netadapter_glue::ndis::chain::Chain;
use netadapter_glue::ndis::units::Offers;

/// An open NIC, or one that is being opened or closed.
pub(crate) struct Binding {
    name: Vec<u16>,
    pub(crate) mac: [u8; 6],
    mtu: usize,
    handle: AtomicPtr<c_void>,
    /// Calls and lists in progress between NDIS and us; closed while paused.
    pub(crate) io: Gate,
    /// Whether NDIS has restarted it; it starts paused.
    running: AtomicBool,
    /// Whether the NIC has power.
    awake: AtomicBool,
    adapter: SpinLock<Option<Arc<Adapter>>>,
    /// The same for a thread inside of `io`, which is shut and empty when the adapter is taken away; null: none.
    inside: AtomicPtr<Adapter>,
    /// Calls that use the adapter without a frame; closed while there is none.
    calls: Gate,
    /// Set when NDIS completes an open or a close.
    completed: Event,
    completion: AtomicI32,
    connected: AtomicI32,
    speed: AtomicU64,
    luid: NET_LUID,
    /// Whether it merged segments of TCP over IPv4, and over IPv6, when it was opened.
    pub(super) merged: [bool; 2],
    /// Its scaling on the receive side; none where it has none.
    pub(crate) scaling: Option<NDIS_RECEIVE_SCALE_CAPABILITIES>,
    /// The driver has set that.
    pub(super) spreads: AtomicBool,
    /// The segmentation that the NIC offers; `None` where it was not told of our frames.
    pub(super) offers: SpinLock<Option<Offers>>,
}

/// The state of an adapter's link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LinkState {
    pub(crate) connected: bool,
    pub(crate) speed: u64,
}

impl Binding {
    /// Opens the NIC for the adapter that names it. PASSIVE_LEVEL, inside `ProtocolBindAdapterEx`, in turn.
    pub(crate) fn open(
        bind_context: NDIS_HANDLE,
        parameters: &NDIS_BIND_PARAMETERS,
        name: &[u16],
    ) -> Result<(), NDIS_STATUS> {
        // Every NIC but one ends here.
        let adapter = DRIVER.adapter_for(name).ok_or(NDIS_STATUS_ADAPTER_NOT_FOUND)?;
        if DRIVER.is_own(parameters.BoundIfNetluid)
            || parameters.MediaType != NdisMedium802_3
            || adapter.is_attached()
        {
            return Err(NDIS_STATUS_ADAPTER_NOT_FOUND);
        }
        if (parameters.MtuSize as usize) < adapter.mtu() {
            let ours = adapter.mtu() as u32;
            report(adapter.interface, Problem::LowerMtuTooSmall, parameters.MtuSize, ours);
            return Err(NDIS_STATUS_NOT_SUPPORTED);
        }
        // SAFETY: null, or valid during the bind.
        let merged = unsafe { merging_of(parameters.DefaultOffloadConfiguration) };
        let owed = DRIVER.owed_merging(parameters.BoundIfNetluid);
        let merged = [merged[0] || owed[0], merged[1] || owed[1]];
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
            inside: AtomicPtr::new(null_mut()),
            calls: Gate::shut(),
            completed: Event::notification(),
            completion: AtomicI32::new(0),
            connected: AtomicI32::new(parameters.MediaConnectState),
            speed: AtomicU64::new(parameters.XmitLinkSpeed),
            luid: parameters.BoundIfNetluid,
            merged,
            // SAFETY: null, or valid during the bind.
            scaling: unsafe { scaling_of(parameters.RcvScaleCapabilities) },
            spreads: AtomicBool::new(false),
            offers: SpinLock::new(None),
        });
        DRIVER.reach(Stage::Binding);
        binding.open_adapter(bind_context, parameters).inspect_err(|status| {
            report(adapter.interface, Problem::OpenFailed, status.0.cast_unsigned(), 0);
            DRIVER.reach(Stage::Unbound);
        })?;
        binding.refuse_merging();
        if adapter.has_units() {
            // SAFETY: null, or valid during the bind.
            binding.accept(unsafe { offers_of(parameters.DefaultOffloadConfiguration) });
        }
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
        // This is a hint only: IPv4, IPv6 and ARP would suffice for RoCE, but all frames of TCP/IP pass,
        // too.
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

    /// Takes the completion of an open or a close.
    pub(crate) fn complete(&self, status: NDIS_STATUS) {
        self.completion.store(status.0, Ordering::Release);
        self.completed.set();
    }

    /// Closes the NIC. NDIS has paused the binding before. PASSIVE_LEVEL, in turn.
    pub(crate) fn close(self: &Arc<Self>) {
        DRIVER.reach(Stage::Unbinding);
        self.pause();
        if let Some(adapter) = self.take_adapter() {
            adapter.detach(self);
        }
        DRIVER.remove_binding(self);
        if self.awake.load(Ordering::Acquire) {
            self.restore_merging();
            self.gather();
        } else {
            DRIVER.owe_merging(self.luid, self.merged);
        }
        // SAFETY: open, and not closed yet.
        let status = unsafe { NdisCloseAdapterEx(self.handle()) };
        let _ = self.completed(status);
        DRIVER.reach(Stage::Unbound);
        // SAFETY: the count of the context: NDIS makes no call with it any more.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
    }

    /// Pauses: nothing new begins, and nothing is in progress when this returns. PASSIVE_LEVEL, in turn.
    pub(crate) fn pause(&self) {
        self.running.store(false, Ordering::Release);
        self.io.close();
        self.io.wait_empty();
    }

    /// PASSIVE_LEVEL, in turn.
    pub(crate) fn restart(&self) {
        self.running.store(true, Ordering::Release);
        self.open_io();
    }

    /// Follows the NIC's power. Without it nothing new begins, and nothing is in progress when this
    /// returns. PASSIVE_LEVEL, in turn.
    pub(crate) fn set_power(&self, awake: bool) {
        self.awake.store(awake, Ordering::Release);
        if awake {
            self.open_io();
        } else {
            self.io.close();
            self.io.wait_empty();
        }
    }

    /// Opens the gate, if the NIC is restarted and has power.
    fn open_io(&self) {
        if self.running.load(Ordering::Acquire) && self.awake.load(Ordering::Acquire) {
            self.io.open();
        }
    }

    /// Parts from an adapter that is halted while the NIC stays: nothing of it is in progress when this
    /// returns. PASSIVE_LEVEL, in turn.
    pub(crate) fn leave_adapter(&self) {
        self.io.close();
        self.io.wait_empty();
        if let Some(adapter) = self.take_adapter() {
            // This comes before the gate opens again: the poll core has frames to send as long as it runs.
            drop(adapter.attachment().set_binding(None));
        }
        // Without an adapter, stop receiving; a NIC without power cannot take the request.
        if self.awake.load(Ordering::Acquire) {
            let _ = self.set_filter(0);
        }
        self.open_io();
    }

    pub(crate) fn name(&self) -> &[u16] {
        &self.name
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.mtu
    }

    pub(super) fn handle(&self) -> NDIS_HANDLE {
        self.handle.load(Ordering::Acquire)
    }

    /// PASSIVE_LEVEL, in turn.
    pub(crate) fn set_adapter(&self, adapter: Arc<Adapter>) {
        self.inside.store(Arc::as_ptr(&adapter).cast_mut(), Ordering::Release);
        let before = self.adapter.lock().replace(adapter);
        debug_assert!(before.is_none(), "one adapter at a time");
        self.calls.open();
    }

    /// Takes the adapter, which no call uses any more when this returns. PASSIVE_LEVEL, in turn; no frame is inside of `io`.
    fn take_adapter(&self) -> Option<Arc<Adapter>> {
        self.inside.store(null_mut(), Ordering::Release);
        self.calls.close();
        self.calls.wait_empty();
        self.adapter.lock().take()
    }

    /// The adapter, for a thread that is inside of `io`.
    pub(super) fn adapter_inside(&self) -> Option<&Adapter> {
        // SAFETY: null, or an adapter that lives as long as `adapter` has it, which it does while anybody is inside.
        unsafe { self.inside.load(Ordering::Acquire).as_ref() }
    }

    /// Calls the adapter, which cannot be halted before the call has returned. IRQL <= DISPATCH_LEVEL.
    fn with_adapter<T>(&self, call: impl FnOnce(&Arc<Adapter>) -> T) -> Option<T> {
        if !self.calls.enter(1) {
            return None;
        }
        // The call is not made under the lock: it may call NDIS.
        let adapter = self.adapter.lock().clone();
        let value = adapter.as_ref().map(call);
        // Dropped before the gate is left: otherwise the last count could be dropped at DISPATCH_LEVEL.
        drop(adapter);
        self.calls.leave(1);
        value
    }

    pub(crate) fn link(&self) -> LinkState {
        LinkState {
            connected: self.connected.load(Ordering::Relaxed) != MediaConnectStateDisconnected,
            speed: self.speed.load(Ordering::Relaxed),
        }
    }

    /// Handles a status indication of the NIC. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn handle_status(&self, indication: &NDIS_STATUS_INDICATION) {
        let len = indication.StatusBufferSize as usize;
        match indication.StatusCode {
            NDIS_STATUS_LINK_STATE if len >= size_of::<NDIS_LINK_STATE>() => {
                self.handle_link_state(indication);
            }
            NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG if len >= size_of::<NDIS_OFFLOAD>() => {
                // SAFETY: an `NDIS_OFFLOAD` comes with the code.
                self.change_offers(unsafe { offers_of(indication.StatusBuffer.cast()) });
                let _ = self.with_adapter(|adapter| adapter.follow_offers(self));
            }
            _ => {}
        }
    }

    fn handle_link_state(&self, indication: &NDIS_STATUS_INDICATION) {
        // SAFETY: a link state of this size comes with the code.
        let state = unsafe { indication.StatusBuffer.cast::<NDIS_LINK_STATE>().read_unaligned() };
        self.connected.store(state.MediaConnectState, Ordering::Relaxed);
        self.speed.store(state.XmitLinkSpeed, Ordering::Relaxed);
        let _ = self.with_adapter(|adapter| adapter.indicate_link(self.link()));
    }

    // ---- requests -----------------------------------------------------------------------------

    /// Sets the NIC's packet filter. PASSIVE_LEVEL.
    pub(crate) fn set_filter(&self, filter: u32) -> Result<(), NDIS_STATUS> {
        let mut filter = filter;
        self.set(OID_GEN_CURRENT_PACKET_FILTER, (&raw mut filter).cast(), 4)
    }

    /// `buffer` holds `len` bytes during the call.
    pub(super) fn set(&self, oid: NDIS_OID, buffer: PVOID, len: u32) -> Result<(), NDIS_STATUS> {
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

    /// Sends lists that have entered the gate. IRQL <= DISPATCH_LEVEL, as in `flags`.
    pub(crate) fn send(&self, head: *mut NET_BUFFER_LIST, flags: ULONG) {
        let handle = self.handle();
        // SAFETY: our lists, until they are sent.
        unsafe { Lists::<Sent>::new(head) }.for_each(|mut list| list.SourceHandle = handle);
        // SAFETY: as above; the gate keeps the binding open.
        unsafe { NdisSendNetBufferLists(handle, head, NDIS_DEFAULT_PORT_NUMBER, flags) };
    }

    /// Cancels the unsent lists with this mark. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn cancel_sends(&self, id: PVOID) {
        if self.io.enter(1) {
            // SAFETY: the gate keeps the binding open.
            unsafe { NdisCancelSendNetBufferLists(self.handle(), id) };
            self.io.leave(1);
        }
    }

    /// Takes lists back from the NIC that this binding sent.
    pub(crate) fn sent(&self, lists: Lists<Sent>, flags: ULONG) {
        // A sent list keeps the gate, and the gate keeps the adapter.
        let count = self.adapter_inside().map(|adapter| Self::take_back(adapter, lists, flags));
        debug_assert!(count.is_some(), "a send outlives its adapter");
        self.io.leave(count.unwrap_or(0));
    }

    /// Completes sends of the adapter. Returns their number.
    fn take_back(adapter: &Adapter, lists: Lists<Sent>, flags: ULONG) -> usize {
        let (mut count, mut originals) = (0, Chain::new());
        let each = |list: List| {
            count += 1;
            if list.ParentNetBufferList.is_null() {
                let status = list.Status;
                // SAFETY: a list of an edge.
                if unsafe { adapter.ports().sent(list.as_ptr()) } {
                    adapter.note_refusal(status);
                }
            } else {
                let status = list.Status;
                // SAFETY: a clone of ours. The original is TCP/IP's list, ours until it is completed.
                let mut original = unsafe { ListPool::free_clone(list) };
                original.Status = status;
                original.push_to(&mut originals);
            }
        };
        // As for what was received.
        at_dispatch(|| lists.for_each(each));
        adapter.complete_sends(&originals, flags);
        count
    }

    /// Returns received lists that were kept. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn give_back(&self, head: *mut NET_BUFFER_LIST, count: u32, flags: ULONG) {
        return_lists(self.handle(), head, flags);
        self.io.leave(count as usize);
    }
}

/// A request of ours to the NIC.
#[repr(C)]
pub(crate) struct Request {
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

    /// Takes the completion of a request.
    ///
    /// # Safety
    /// `request` is the first member of a request whose sender waits.
    pub(crate) unsafe fn complete(request: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
        // SAFETY: the caller's promise.
        let this = unsafe { &*request.cast::<Self>() };
        this.status.store(status.0, Ordering::Release);
        this.completed.set();
    }
}
