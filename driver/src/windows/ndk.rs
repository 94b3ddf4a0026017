//! NDK of an adapter: whether it is on, who has it open, and what it counted.
#![allow(unsafe_code, reason = "functions that NDIS calls with pointers")]

use super::adapter::Adapter;
use super::header;
use crate::abi::imports::NdisMNetPnPEvent;
use crate::abi::*;
use crate::ndk::adapter::{AdapterObject, negotiate};
use crate::ndk::{CloseDone, Context, Control, Endpoint};
use crate::platform::windows::runner::Reply;
use crate::platform::windows::sync::{Gate, sleep};
use crate::platform::windows::thread::Jobs;
use crate::platform::windows::trace;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use once_cell::race::OnceBox;

/// Whether NDK is on. Off, the gate is shut; a disable is over when the last adapter has left.
pub(super) struct NdkState {
    /// What was asked for last.
    wanted: AtomicBool,
    /// What the consumers were told last.
    told: AtomicBool,
    /// The open NDK adapters.
    open: Gate,
    worker: OnceBox<Jobs>,
}

impl NdkState {
    pub(super) fn new() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            told: AtomicBool::new(false),
            open: Gate::shut(),
            worker: OnceBox::new(),
        }
    }

    pub(super) fn set_worker(&self, jobs: Jobs) {
        // It is set once.
        let _ = self.worker.set(Box::new(jobs));
    }

    /// On from the start, as the attributes say.
    pub(super) fn open(&self) {
        self.wanted.store(true, Ordering::Release);
        self.told.store(true, Ordering::Release);
        self.open.open();
    }

    /// Asks for a change, which a worker makes: the events must not come from a handler.
    /// IRQL <= DISPATCH_LEVEL.
    pub(super) fn request(adapter: &Arc<Adapter>, enable: bool) {
        let this = &adapter.ndk;
        if enable && !adapter.network_direct() {
            return;
        }
        this.wanted.store(enable, Ordering::Release);
        if !enable {
            // First of all nobody gets in any more.
            this.open.close();
        }
        let weak = Arc::downgrade(adapter);
        let job = Box::new(move || apply(&weak));
        let _ = this.worker.get().is_some_and(|worker| worker.push(job));
    }

    /// For a halt. PASSIVE_LEVEL.
    pub(super) fn close_and_wait(&self) {
        self.wanted.store(false, Ordering::Release);
        self.open.close();
        self.open.wait_empty();
    }
}

/// Makes the state what is wanted. PASSIVE_LEVEL, on the worker, so one change at a time.
fn apply(adapter: &Weak<Adapter>) {
    let Some(adapter) = adapter.upgrade() else { return };
    let this = &adapter.ndk;
    let wanted = this.wanted.load(Ordering::Acquire);
    // What was switched off and on again before anybody was told is shut all the same.
    if wanted {
        this.open.open()
    } else {
        this.open.close()
    }
    if this.told.swap(wanted, Ordering::AcqRel) == wanted {
        return;
    }
    trace::ndk(adapter.luid, wanted);
    if wanted {
        notify(&adapter, NetEventNDKEnable);
    } else {
        notify(&adapter, NetEventNDKDisable);
        this.open.wait_empty();
    }
}

/// Tells whoever is above. NDIS may hold a disable back until the last NDK adapter is closed.
fn notify(adapter: &Adapter, event: i32) {
    let mut notification = NET_PNP_EVENT_NOTIFICATION {
        Header: header(
            NDIS_OBJECT_TYPE_DEFAULT,
            1,
            NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1,
        ),
        PortNumber: NDIS_DEFAULT_PORT_NUMBER,
        NetPnPEvent: NET_PNP_EVENT {
            NetEvent: event,
            Buffer: null_mut(),
            BufferLength: 0,
            NdisReserved: [0; 4],
            TransportReserved: [0; 4],
            TdiReserved: [0; 4],
            TdiClientReserved: [0; 4],
        },
        Flags: 0,
    };
    // Nobody above is nothing to worry about.
    // SAFETY: the notification lives during the call.
    let _ = unsafe { NdisMNetPnPEvent(adapter.handle, &mut notification) };
}

impl Adapter {
    /// Opens an NDK adapter: the consumer names the lowest minor version that it can live with, and
    /// gets our highest. PASSIVE_LEVEL.
    fn open_ndk(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NDIS_STATUS> {
        let version = negotiate(version).ok_or(NDIS_STATUS_BAD_VERSION)?;
        if !self.ndk.open.enter(1) {
            return Err(NDIS_STATUS_ADAPTER_NOT_READY);
        }
        let (reply, give) = Reply::new();
        let opened = Box::new(move |adapter: *mut NDK_ADAPTER| give(Context::new(adapter.cast())));
        let message = Control::OpenAdapter { version, opened };
        let asked = self.shard().request(message).is_ok();
        let adapter = if asked { reply.wait() } else { None };
        let adapter: *mut NDK_ADAPTER =
            adapter.map_or(null_mut(), |adapter: Context| adapter.get().cast());
        if adapter.is_null() {
            self.ndk.open.leave(1);
            return Err(NDIS_STATUS_RESOURCES);
        }
        Ok(adapter)
    }

    /// Closes an NDK adapter: returns when everything under it is closed and silent. PASSIVE_LEVEL.
    ///
    /// # Safety
    /// `adapter` was opened here and is not closed yet; nothing uses it any more.
    unsafe fn close_ndk(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: the caller's promise.
        let object = unsafe { AdapterObject::from_ndk(adapter) }.base.id;
        let (reply, give) = Reply::new();
        let done = CloseDone::Signal(Box::new(move || give(())));
        self.shard().close(object, done);
        reply.wait();
        self.ndk.open.leave(1);
    }

    /// Who listens and who is connected; `None` where there is no memory for the list. PASSIVE_LEVEL.
    pub(super) fn endpoints(&self) -> Option<Vec<Endpoint>> {
        let (reply, listed) = Reply::new();
        let mut listed = Some(listed);
        // The ring is full for moments only.
        while self.shard().request_if(|| list(&mut listed)).is_err() {
            sleep(Duration::from_millis(1));
        }
        reply.wait().flatten()
    }

    /// The same for somebody whom a halt does not wait for; `None` also where NDK is off. PASSIVE_LEVEL.
    pub(super) fn open_endpoints(&self) -> Option<Vec<Endpoint>> {
        if !self.ndk.open.enter(1) {
            return None;
        }
        let endpoints = self.endpoints();
        self.ndk.open.leave(1);
        endpoints
    }

    /// The counters of RDMA traffic. IRQL <= DISPATCH_LEVEL.
    pub(super) fn ndk_counters(&self) -> NDIS_NDK_PERFORMANCE_COUNTERS {
        let frames = self.port().counters();
        let connections = &self.shard().counters;
        NDIS_NDK_PERFORMANCE_COUNTERS {
            Connect: connections.connects.get(),
            Accept: connections.accepts.get(),
            ConnectFailure: connections.failures.get(),
            ConnectionError: connections.errors.get(),
            ActiveConnection: connections.active.get(),
            Reserved: [0; 20],
            CQError: connections.cq_errors.get(),
            RDMAInOctets: frames.received_bytes,
            RDMAOutOctets: frames.sent_bytes,
            RDMAInFrames: frames.received,
            RDMAOutFrames: frames.sent,
        }
    }
}

/// The reserved ones, numbers 5 to 24: they mean nothing.
pub(super) const MISSING_COUNTERS: ULONG64 = ((1 << 20) - 1) << 5;

/// [`OPEN_NDK_ADAPTER_HANDLER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndisndk/nc-ndisndk-open_ndk_adapter_handler).
/// PASSIVE_LEVEL, synchronous.
///
/// # Safety
/// Called by NDIS with the context of a started adapter.
pub(super) unsafe extern "system" fn open_ndk_adapter(
    context: NDIS_HANDLE,
    parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    adapter: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS {
    // SAFETY: an adapter is halted only after its last NDK adapter is closed.
    let this = unsafe { &*context.cast::<Adapter>() };
    // SAFETY: valid for the call; the members behind the version are not needed.
    let version = unsafe { parameters.cast::<NDK_VERSION>().read() };
    match this.open_ndk(version) {
        Ok(opened) => {
            // SAFETY: the caller's place.
            unsafe { adapter.write(opened) };
            NDIS_STATUS_SUCCESS
        }
        Err(status) => status,
    }
}

/// [`CLOSE_NDK_ADAPTER_HANDLER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndisndk/nc-ndisndk-close_ndk_adapter_handler).
/// PASSIVE_LEVEL, blocking.
///
/// # Safety
/// Called by NDIS with the context of a started adapter, and an NDK adapter that it opened.
pub(super) unsafe extern "system" fn close_ndk_adapter(
    context: NDIS_HANDLE,
    adapter: *mut NDK_ADAPTER,
) {
    let pointer = context.cast::<Adapter>().cast_const();
    // The last close lets a halt go on: keep the adapter until this returns.
    // SAFETY: as for the open.
    unsafe { Arc::increment_strong_count(pointer) };
    // SAFETY: the count taken above.
    let this = unsafe { Arc::from_raw(pointer) };
    // SAFETY: the caller's promise.
    unsafe { this.close_ndk(adapter) };
}

/// The message that asks for the endpoints, once.
fn list<F: FnOnce(Option<Vec<Endpoint>>) + Send + 'static>(
    listed: &mut Option<F>,
) -> Result<Control, ()> {
    Ok(Control::List { listed: Box::new(listed.take().ok_or(())?) })
}
