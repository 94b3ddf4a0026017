//! The handlers of the miniport half: each converts and calls.
#![allow(unsafe_code, reason = "functions that NDIS calls with pointers")]

use super::adapter::Adapter;
use super::ndk::NdkState;
use super::oid;
use crate::abi::*;
use alloc::sync::Arc;

/// The adapter behind a context.
///
/// # Safety
/// `context` is the context of a started adapter, which is not halted during `'a`.
unsafe fn adapter<'a>(context: NDIS_HANDLE) -> &'a Adapter {
    // SAFETY: the caller's promise; the context is a counted pointer to it.
    unsafe { &*context.cast::<Adapter>() }
}

/// The same, counted.
///
/// # Safety
/// As for [`adapter`].
unsafe fn counted(context: NDIS_HANDLE) -> Arc<Adapter> {
    let pointer = context.cast::<Adapter>().cast_const();
    // SAFETY: the context's own count lives until the halt.
    unsafe { Arc::increment_strong_count(pointer) };
    // SAFETY: the count taken above.
    unsafe { Arc::from_raw(pointer) }
}

/// `MiniportInitializeEx`: PASSIVE_LEVEL.
///
/// # Safety
/// Called by NDIS; the parameters are valid for the call.
pub(super) unsafe extern "system" fn initialize(
    handle: NDIS_HANDLE,
    _driver_context: NDIS_HANDLE,
    parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: valid for the call.
    let parameters = unsafe { &*parameters };
    Adapter::start(handle, parameters).into()
}

/// `MiniportHaltEx`: PASSIVE_LEVEL.
///
/// # Safety
/// Called by NDIS once for a paused adapter.
pub(super) unsafe extern "system" fn halt(context: NDIS_HANDLE, _action: i32) {
    // SAFETY: NDIS makes no other call with the context.
    unsafe { Adapter::halt(context) };
}

/// `MiniportPause`: PASSIVE_LEVEL. Returns when nothing is under way.
///
/// # Safety
/// Called by NDIS for a running adapter.
pub(super) unsafe extern "system" fn pause(
    context: NDIS_HANDLE,
    _parameters: PVOID,
) -> NDIS_STATUS {
    // SAFETY: a started adapter.
    unsafe { adapter(context) }.pause();
    NDIS_STATUS_SUCCESS
}

/// `MiniportRestart`: PASSIVE_LEVEL.
///
/// # Safety
/// Called by NDIS for a paused adapter.
pub(super) unsafe extern "system" fn restart(
    context: NDIS_HANDLE,
    _parameters: PVOID,
) -> NDIS_STATUS {
    // SAFETY: a started adapter.
    unsafe { counted(context) }.restart();
    NDIS_STATUS_SUCCESS
}

/// `MiniportOidRequest`: PASSIVE_LEVEL. Never pends.
///
/// # Safety
/// Called by NDIS; the request is valid for the call.
pub(super) unsafe extern "system" fn oid_request(
    context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS {
    // SAFETY: a started adapter.
    let adapter = unsafe { counted(context) };
    // SAFETY: valid for the call, and nobody else's.
    oid::handle(&adapter, unsafe { &mut *request })
}

/// `MiniportDirectOidRequest`: IRQL <= DISPATCH_LEVEL. Never pends.
///
/// # Safety
/// Called by NDIS; the request is valid for the call.
pub(super) unsafe extern "system" fn direct_oid_request(
    context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS {
    // SAFETY: a started adapter.
    let adapter = unsafe { adapter(context) };
    // SAFETY: valid for the call, and nobody else's.
    oid::handle_direct(adapter, unsafe { &mut *request })
}

/// `MiniportCancelOidRequest` and its direct twin: no request pends. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// None: nothing is touched.
pub(super) unsafe extern "system" fn cancel_oid_request(_context: NDIS_HANDLE, _id: PVOID) {}

/// `MiniportSendNetBufferLists`: IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// Called by NDIS with lists that are ours until they are completed.
pub(super) unsafe extern "system" fn send_net_buffer_lists(
    context: NDIS_HANDLE,
    lists: *mut NET_BUFFER_LIST,
    _port: NDIS_PORT_NUMBER,
    flags: ULONG,
) {
    // SAFETY: a started adapter.
    let adapter = unsafe { adapter(context) };
    // SAFETY: ours from here on.
    unsafe { adapter.send(lists, flags) };
}

/// `MiniportReturnNetBufferLists`: IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// Called by NDIS with lists that this adapter indicated.
pub(super) unsafe extern "system" fn return_net_buffer_lists(
    context: NDIS_HANDLE,
    lists: *mut NET_BUFFER_LIST,
    flags: ULONG,
) {
    // SAFETY: a started adapter.
    let adapter = unsafe { adapter(context) };
    // SAFETY: ours again.
    unsafe { adapter.take_back(lists, flags) };
}

/// `MiniportCancelSend`. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// Called by NDIS for a started adapter.
pub(super) unsafe extern "system" fn cancel_send(context: NDIS_HANDLE, id: PVOID) {
    // SAFETY: a started adapter.
    unsafe { adapter(context) }.cancel_sends(id);
}

/// `NET_DEVICE_PNP_EVENT`, as far as it is read.
#[repr(C)]
struct DevicePnPEvent {
    header: NDIS_OBJECT_HEADER,
    port: NDIS_PORT_NUMBER,
    event: i32,
}

/// `NdisDevicePnPEventSurpriseRemoved`.
const SURPRISE_REMOVED: i32 = 2;

/// `MiniportDevicePnPEventNotify`: PASSIVE_LEVEL. The consumers of an adapter that was torn out
/// have to go, as its halt waits for them.
///
/// # Safety
/// Called by NDIS; the event is valid for the call.
pub(super) unsafe extern "system" fn device_pnp_event_notify(
    context: NDIS_HANDLE,
    event: *mut core::ffi::c_void,
) {
    // SAFETY: valid for the call.
    let event = unsafe { &*event.cast::<DevicePnPEvent>() };
    if event.event == SURPRISE_REMOVED {
        // SAFETY: a started adapter.
        NdkState::request(&unsafe { counted(context) }, false);
    }
}

/// `MiniportShutdownEx`: any IRQL. There is no hardware to quiet, and a system that goes down may be
/// in no state to wait.
///
/// # Safety
/// None: nothing is touched.
pub(super) unsafe extern "system" fn shutdown(_context: NDIS_HANDLE, _action: i32) {}
