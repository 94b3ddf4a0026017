//! The handlers of the protocol half: each converts and calls.
#![allow(unsafe_code, reason = "functions that NDIS calls with pointers")]

use super::DRIVER;
use super::binding::{Binding, Request};
use super::config::text_of;
use crate::abi::*;
use alloc::sync::Arc;

/// The binding behind a context.
///
/// # Safety
/// `context` is the context of an open binding, which stays open for `'a`.
unsafe fn binding<'a>(context: NDIS_HANDLE) -> &'a Binding {
    // SAFETY: the caller's promise; the context is a counted pointer to it.
    unsafe { &*context.cast::<Binding>() }
}

/// `ProtocolBindAdapterEx`: PASSIVE_LEVEL. Called for every NIC of the system.
///
/// # Safety
/// Called by NDIS; the parameters are valid for the call.
pub(super) unsafe extern "system" fn bind_adapter(
    _driver_context: NDIS_HANDLE,
    bind_context: NDIS_HANDLE,
    parameters: *mut NDIS_BIND_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: valid for the call.
    let parameters = unsafe { &*parameters };
    // SAFETY: as above.
    let Some(name) = (unsafe { parameters.AdapterName.as_ref() }) else {
        return STATUS_INVALID_PARAMETER;
    };
    // SAFETY: as above.
    let name = unsafe { text_of(name) };
    DRIVER.in_turn(|| Binding::open(bind_context, parameters, name)).into()
}

/// `ProtocolUnbindAdapterEx`: PASSIVE_LEVEL. Completes at once.
///
/// # Safety
/// Called by NDIS for an open binding.
pub(super) unsafe extern "system" fn unbind_adapter(
    _unbind_context: NDIS_HANDLE,
    context: NDIS_HANDLE,
) -> NDIS_STATUS {
    let pointer = context.cast::<Binding>().cast_const();
    // SAFETY: the context's count lives until `close` takes it; this is another one.
    unsafe { Arc::increment_strong_count(pointer) };
    // SAFETY: the count taken above.
    let binding = unsafe { Arc::from_raw(pointer) };
    DRIVER.in_turn(|| binding.close());
    NDIS_STATUS_SUCCESS
}

/// `ProtocolOpenAdapterCompleteEx`: PASSIVE_LEVEL.
///
/// # Safety
/// Called by NDIS for a binding that is being opened.
pub(super) unsafe extern "system" fn open_adapter_complete(
    context: NDIS_HANDLE,
    status: NDIS_STATUS,
) {
    // SAFETY: the opener waits.
    unsafe { binding(context) }.complete(status);
}

/// `ProtocolCloseAdapterCompleteEx`: PASSIVE_LEVEL.
///
/// # Safety
/// Called by NDIS for a binding that is being closed.
pub(super) unsafe extern "system" fn close_adapter_complete(context: NDIS_HANDLE) {
    // SAFETY: the closer waits.
    unsafe { binding(context) }.complete(NDIS_STATUS_SUCCESS);
}

/// `ProtocolNetPnPEvent`: PASSIVE_LEVEL. Without a context the event is for the whole driver.
///
/// # Safety
/// Called by NDIS; the event is valid for the call.
pub(super) unsafe extern "system" fn net_pnp_event(
    context: NDIS_HANDLE,
    event: *mut NET_PNP_EVENT_NOTIFICATION,
) -> NDIS_STATUS {
    // SAFETY: valid for the call.
    let event = unsafe { &(*event).NetPnPEvent };
    if !context.is_null() {
        // SAFETY: an open binding.
        let binding = unsafe { binding(context) };
        match event.NetEvent {
            NetEventSetPower if event.BufferLength as usize >= size_of::<i32>() => {
                // SAFETY: an `NDIS_DEVICE_POWER_STATE` comes with the code.
                let state = unsafe { event.Buffer.cast::<i32>().read_unaligned() };
                DRIVER.in_turn(|| binding.set_power(state == NdisDeviceStateD0));
            }
            NetEventPause => DRIVER.in_turn(|| binding.pause()),
            NetEventRestart => DRIVER.in_turn(|| binding.restart()),
            _ => {}
        }
    }
    NDIS_STATUS_SUCCESS
}

/// `ProtocolOidRequestComplete`: IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// Called by NDIS with a request of ours.
pub(super) unsafe extern "system" fn oid_request_complete(
    _context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
) {
    // SAFETY: every request of ours is the beginning of a `Request`, whose sender waits.
    unsafe { Request::complete(request, status) };
}

/// `ProtocolStatusEx`: IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// Called by NDIS for an open binding; the indication is valid for the call.
pub(super) unsafe extern "system" fn status(
    context: NDIS_HANDLE,
    indication: *mut NDIS_STATUS_INDICATION,
) {
    // SAFETY: valid for the call.
    let indication = unsafe { &*indication };
    // SAFETY: an open binding.
    unsafe { binding(context) }.handle_status(indication);
}

/// `ProtocolReceiveNetBufferLists`: IRQL <= DISPATCH_LEVEL, on any CPU.
///
/// # Safety
/// Called by NDIS for an open binding with a chain of `count` lists.
pub(super) unsafe extern "system" fn receive_net_buffer_lists(
    context: NDIS_HANDLE,
    lists: *mut NET_BUFFER_LIST,
    _port: NDIS_PORT_NUMBER,
    count: ULONG,
    flags: ULONG,
) {
    // SAFETY: an open binding.
    let binding = unsafe { binding(context) };
    // SAFETY: the chain is ours for the call, and longer unless the flags say otherwise.
    unsafe { binding.receive(lists, count, flags) };
}

/// `ProtocolSendNetBufferListsComplete`: IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// Called by NDIS for an open binding with lists that it sent.
pub(super) unsafe extern "system" fn send_net_buffer_lists_complete(
    context: NDIS_HANDLE,
    lists: *mut NET_BUFFER_LIST,
    flags: ULONG,
) {
    // SAFETY: an open binding.
    let binding = unsafe { binding(context) };
    // SAFETY: lists of ours that NDIS gives back.
    unsafe { binding.sent(lists, flags) };
}
