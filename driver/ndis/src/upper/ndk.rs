//! NDK of an adapter: its state, the open NDK adapters, and its counters.
#![allow(unsafe_code, reason = "functions that NDIS calls with pointers")]

use super::adapter::Adapter;
use super::config;
use crate::abi::imports::NdisMNetPnPEvent;
use crate::abi::*;
use crate::handler::{counted, handler, lent, lent_mut, object};
use crate::os::etw;
use crate::os::runner::Reply;
use crate::os::sync::{Gate, sleep};
use crate::os::thread::Jobs;
use crate::pairing::DRIVER;
use crate::stage::Stage;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use driver::{Endpoint, negotiate};
use once_cell::race::OnceBox;

/// The state of NDK. While it is disabled, the gate is closed; a disable is complete when the last NDK
/// adapter is closed.
pub(crate) struct NdkState {
    /// The state that was requested last.
    wanted: AtomicBool,
    /// The state that was last reported to the consumers.
    told: AtomicBool,
    /// The open NDK adapters.
    open: Gate,
    worker: OnceBox<Jobs>,
}

/// The state of NDK, as it is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ndk {
    Off,
    On,
    /// It was disabled, and a consumer has not let go yet.
    Closing,
}

impl NdkState {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            told: AtomicBool::new(false),
            open: Gate::shut(),
            worker: OnceBox::new(),
        }
    }

    pub(crate) fn set_worker(&self, jobs: Jobs) {
        // The worker is set once.
        let _ = self.worker.set(Box::new(jobs));
    }

    /// Enables NDK from the start, as the attributes report.
    pub(crate) fn open(&self) {
        self.wanted.store(true, Ordering::Release);
        self.told.store(true, Ordering::Release);
        self.open.open();
    }

    /// IRQL <= DISPATCH_LEVEL.
    pub(crate) fn state(&self) -> Ndk {
        if self.wanted.load(Ordering::Acquire) {
            Ndk::On
        } else if self.open.is_empty() {
            Ndk::Off
        } else {
            Ndk::Closing
        }
    }

    /// Requests a change, which a worker makes: the events must not come from a handler. The registry decides
    /// whether NDK may be enabled, as it is now and not as it was at the start
    /// ([page](https://learn.microsoft.com/windows-hardware/drivers/network/oid-ndk-set-state)). PASSIVE_LEVEL.
    pub(crate) fn request(adapter: &Arc<Adapter>, enable: bool) -> Result<(), NDIS_STATUS> {
        let this = &adapter.ndk;
        if enable && !config::network_direct(adapter.handle)? {
            return Ok(());
        }
        this.wanted.store(enable, Ordering::Release);
        if !enable {
            // First, no consumer can open any more.
            this.open.close();
        }
        let weak = Arc::downgrade(adapter);
        let job = Box::new(move || apply(&weak));
        let _ = this.worker.get().is_some_and(|worker| worker.push(job));
        Ok(())
    }

    /// Disables NDK for a halt. PASSIVE_LEVEL.
    pub(crate) fn close_and_wait(&self) {
        self.wanted.store(false, Ordering::Release);
        self.open.close();
        self.open.wait_empty();
    }
}

/// Brings NDK into the requested state. PASSIVE_LEVEL, on the worker, so one change at a time.
fn apply(adapter: &Weak<Adapter>) {
    let Some(adapter) = adapter.upgrade() else { return };
    let this = &adapter.ndk;
    let wanted = this.wanted.load(Ordering::Acquire);
    DRIVER.reach(if wanted { Stage::NdkOn } else { Stage::NdkOff });
    // If NDK was disabled and enabled again before the report, its gate is closed all the same.
    if wanted {
        this.open.open()
    } else {
        this.open.close()
    }
    if this.told.swap(wanted, Ordering::AcqRel) == wanted {
        return;
    }
    etw::ndk(adapter.luid, wanted);
    if wanted {
        notify(&adapter, NetEventNDKEnable);
    } else {
        notify(&adapter, NetEventNDKDisable);
        this.open.wait_empty();
    }
}

/// Reports the event to the layers above. NDIS may delay a disable until the last NDK adapter is closed.
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
    /// Opens an NDK adapter. The consumer names the lowest minor version that it supports, and gets our
    /// highest. PASSIVE_LEVEL.
    fn open_ndk(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NDIS_STATUS> {
        let version = negotiate(version).ok_or(NDIS_STATUS_BAD_VERSION)?;
        if !self.ndk.open.enter(1) {
            return Err(NDIS_STATUS_ADAPTER_NOT_READY);
        }
        DRIVER.reach(Stage::NdkOpen);
        let (reply, give) = Reply::new();
        // A pointer cannot be sent; its address can.
        let opened = Box::new(move |adapter: *mut NDK_ADAPTER| give(adapter.expose_provenance()));
        let asked = self.shard().open_adapter(version, opened).is_ok();
        let adapter = if asked { reply.wait() } else { None };
        let adapter: *mut NDK_ADAPTER = adapter.map_or(null_mut(), with_exposed_provenance_mut);
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
        let (reply, give) = Reply::new();
        // SAFETY: the caller's promise.
        unsafe { self.shard().close_adapter(adapter, Box::new(move || give(()))) };
        reply.wait();
        self.ndk.open.leave(1);
    }

    /// The listeners and connections; `None` where there is no memory for the list. PASSIVE_LEVEL.
    pub(crate) fn endpoints(&self) -> Option<Vec<Endpoint>> {
        let (reply, mut listed) = Reply::new();
        // The ring is full for moments only.
        while let Err(again) = self.shard().list(listed) {
            listed = again;
            sleep(Duration::from_millis(1));
        }
        reply.wait().flatten()
    }

    /// The same for a caller for which a halt does not wait; `None` also where NDK is disabled.
    /// PASSIVE_LEVEL.
    pub(crate) fn open_endpoints(&self) -> Option<Vec<Endpoint>> {
        if !self.ndk.open.enter(1) {
            return None;
        }
        let endpoints = self.endpoints();
        self.ndk.open.leave(1);
        endpoints
    }

    /// The counters of RDMA traffic. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn ndk_counters(&self) -> NDIS_NDK_PERFORMANCE_COUNTERS {
        let frames = self.ports().counters();
        let counted = self.shard().counters();
        NDIS_NDK_PERFORMANCE_COUNTERS {
            Connect: counted.connects,
            Accept: counted.accepts,
            ConnectFailure: counted.failures,
            ConnectionError: counted.errors,
            ActiveConnection: counted.active,
            Reserved: [0; 20],
            CQError: counted.cq_errors,
            RDMAInOctets: frames.received_bytes,
            RDMAOutOctets: frames.sent_bytes,
            RDMAInFrames: frames.received,
            RDMAOutFrames: frames.sent,
        }
    }
}

/// The reserved counters, numbers 5 to 24, which have no meaning.
pub(crate) const MISSING_COUNTERS: ULONG64 = ((1 << 20) - 1) << 5;

handler! {
    /// [`OPEN_NDK_ADAPTER_HANDLER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndisndk/nc-ndisndk-open_ndk_adapter_handler).
    /// PASSIVE_LEVEL, synchronous.
    pub(crate) fn open_ndk_adapter(
        this: &Adapter = object(context: NDIS_HANDLE),
        version: &NDK_VERSION = lent(parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS),
        place: &mut MaybeUninit<*mut NDK_ADAPTER> = lent_mut(adapter: *mut *mut NDK_ADAPTER),
    ) -> NDIS_STATUS {
        // The members behind the version are not needed.
        match this.open_ndk(*version) {
            Ok(opened) => {
                place.write(opened);
                NDIS_STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }
}

/// [`CLOSE_NDK_ADAPTER_HANDLER`](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndisndk/nc-ndisndk-close_ndk_adapter_handler).
/// PASSIVE_LEVEL, blocking.
///
/// # Safety
/// Called by NDIS with the context of a started adapter, and an NDK adapter that it opened.
pub(crate) unsafe extern "system" fn close_ndk_adapter(
    context: NDIS_HANDLE,
    adapter: *mut NDK_ADAPTER,
) {
    // The last close lets a halt go on: keep the adapter until this returns.
    // SAFETY: as for the open.
    let this = unsafe { counted::<Adapter>(context) };
    // SAFETY: the caller's promise.
    unsafe { this.close_ndk(adapter) };
}
