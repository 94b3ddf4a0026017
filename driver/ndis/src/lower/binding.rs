//! The lower half: one open NIC.
#![allow(unsafe_code, reason = "calls NDIS, and walks its lists")]

use super::lists::{List, ListPool, Lists, Sent, return_lists};
use super::offload::{merging_of, offers_of};
use super::rss::scaling_of;
use crate::abi::imports::{
    NdisCancelSendNetBufferLists, NdisCloseAdapterEx, NdisOpenAdapterEx, NdisSendNetBufferLists,
};
use crate::abi::*;
use crate::log::report;
use crate::os::etw;
use crate::os::sync::{Event, Gate, SpinLock, at_dispatch};
use crate::pairing::DRIVER;
use crate::problems::Problem;
use crate::stage::Stage;
use crate::upper::adapter::Adapter;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;
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
    /// Whether an adapter that halts waits for its frames.
    parting: AtomicBool,
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

/// An administrator is told of a NIC that keeps a frame for longer after it was to stop.
const KEPT_TOLD_AFTER: Duration = Duration::from_secs(2);

/// Waits for the frames behind a gate that is shut: as long as a NIC keeps one. After a while an administrator is told how many it
/// keeps, of an adapter. PASSIVE_LEVEL, not in turn.
pub(crate) fn wait_for_frames(gate: &Gate, kept: impl FnOnce() -> Option<(NET_IFINDEX, usize)>) {
    if gate.wait_empty_for(KEPT_TOLD_AFTER) {
        return;
    }
    if let Some((adapter, frames @ 1..)) = kept() {
        report(adapter, Problem::FramesKept, frames as u32, KEPT_TOLD_AFTER.as_secs() as u32);
    }
    gate.wait_empty();
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
        let adapter = DRIVER.waiting_for(name, 0).ok_or(NDIS_STATUS_ADAPTER_NOT_FOUND)?;
        if DRIVER.is_own(parameters.BoundIfNetluid) || parameters.MediaType != NdisMedium802_3 {
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
            parting: AtomicBool::new(false),
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
        // Each of the others is told whose it is.
        binding.offer();
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

    /// Closes the NIC, which is paused. PASSIVE_LEVEL, in turn.
    pub(crate) fn close(self: &Arc<Self>) {
        DRIVER.reach(Stage::Unbinding);
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

    /// Pauses: nothing new begins, and nothing is in progress when this returns. PASSIVE_LEVEL, not in turn.
    pub(crate) fn pause(&self) {
        DRIVER.in_turn(|| {
            self.running.store(false, Ordering::Release);
            self.io.close();
        });
        self.wait_empty();
    }

    /// PASSIVE_LEVEL, not in turn.
    pub(crate) fn restart(&self) {
        DRIVER.in_turn(|| {
            self.running.store(true, Ordering::Release);
            self.open_io();
        });
    }

    /// Follows the NIC, which loses its power: nothing new begins, and nothing is in progress when this returns. PASSIVE_LEVEL, not
    /// in turn.
    pub(crate) fn sleep(&self) {
        DRIVER.in_turn(|| {
            self.awake.store(false, Ordering::Release);
            self.io.close();
        });
        self.wait_empty();
    }

    /// Follows the NIC, which has power again. PASSIVE_LEVEL, not in turn.
    pub(crate) fn wake(self: &Arc<Self>) {
        DRIVER.in_turn(|| {
            self.awake.store(true, Ordering::Release);
            self.serve_next();
            self.open_io();
        });
    }

    /// Opens the gate, if the NIC is restarted and has power, and no adapter waits for the last to leave. In turn.
    fn open_io(&self) {
        let is_shut = self.parting.load(Ordering::Acquire);
        if self.running.load(Ordering::Acquire) && self.is_awake() && !is_shut {
            self.io.open();
        }
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.awake.load(Ordering::Acquire)
    }

    /// Waits for what is in progress behind the gate, which is shut: as long as the NIC keeps a frame that it was to send.
    /// PASSIVE_LEVEL, not in turn.
    fn wait_empty(&self) {
        wait_for_frames(&self.io, || Some((self.owner()?, self.io.inside())));
    }

    /// Closes the gate for an adapter that is halted while the NIC stays. PASSIVE_LEVEL, in turn.
    pub(crate) fn begin_parting(&self) {
        self.parting.store(true, Ordering::Release);
        self.io.close();
    }

    /// Parts from that adapter: nothing of it is in progress when this returns. PASSIVE_LEVEL, not in turn.
    pub(crate) fn part(self: &Arc<Self>) {
        self.wait_empty();
        DRIVER.in_turn(|| {
            self.parting.store(false, Ordering::Release);
            // None: the NIC was closed meanwhile.
            let Some(adapter) = self.take_adapter() else { return };
            // This comes before the gate opens again: the poll core has frames to send as long as it runs.
            drop(adapter.attachment().set_binding(None));
            etw::unbound(adapter.luid, self.name());
            // A NIC without power cannot take the request.
            if self.is_awake() {
                let _ = self.set_filter(0);
                self.serve_next();
            }
            self.open_io();
        });
    }

    /// Gives the NIC to an adapter that waits for it, where none has it. PASSIVE_LEVEL, in turn.
    fn serve_next(self: &Arc<Self>) {
        if self.owner().is_none() {
            self.offer();
        }
    }

    /// Offers the NIC to each adapter that waits for it. PASSIVE_LEVEL, in turn.
    fn offer(self: &Arc<Self>) {
        let mut refused = 0;
        while let Some(next) = DRIVER.waiting_for(&self.name, refused) {
            // One that took it waits no more.
            refused += usize::from(next.attach(self).is_err());
        }
    }

    /// The interface index of the adapter that has the NIC. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn owner(&self) -> Option<NET_IFINDEX> {
        self.adapter.lock().as_ref().map(|adapter| adapter.interface)
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
