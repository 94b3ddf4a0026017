//! The handlers of the protocol half: each converts and calls.
#![allow(unsafe_code, reason = "functions that NDIS calls with pointers")]

use super::binding::Binding;
use super::lists::{Lists, Received, Sent};
use super::request::Request;
use crate::abi::*;
use crate::handler::{counted, handler, lent, object};
use crate::pairing::DRIVER;
use crate::upper::config::text_of;
use alloc::sync::Arc;

/// The parameters of a binding, and the name of its NIC, if there is one.
///
/// # Safety
/// `parameters` and the name are valid for `'a`.
unsafe fn named<'a>(
    parameters: *mut NDIS_BIND_PARAMETERS,
) -> (&'a NDIS_BIND_PARAMETERS, Option<&'a [u16]>) {
    // SAFETY: the caller's promise.
    let parameters = unsafe { lent::<NDIS_BIND_PARAMETERS, _>(parameters) };
    // SAFETY: as above.
    let name = unsafe { parameters.AdapterName.as_ref() };
    // SAFETY: as above.
    (parameters, name.map(|name| unsafe { text_of(name) }))
}

handler! {
    /// `ProtocolBindAdapterEx`: PASSIVE_LEVEL. Called for every NIC of the system.
    pub(crate) fn bind_adapter(
        _driver_context: NDIS_HANDLE,
        bind_context: NDIS_HANDLE,
        parameters: (&NDIS_BIND_PARAMETERS, Option<&[u16]>) = named(parameters: *mut NDIS_BIND_PARAMETERS),
    ) -> NDIS_STATUS {
        let (parameters, name) = parameters;
        let Some(name) = name else { return STATUS_INVALID_PARAMETER };
        DRIVER.in_turn(|| Binding::open(bind_context, parameters, name)).into()
    }
}

handler! {
    /// `ProtocolUnbindAdapterEx`: PASSIVE_LEVEL. Completes at once.
    pub(crate) fn unbind_adapter(
        _unbind_context: NDIS_HANDLE,
        binding: Arc<Binding> = counted(context: NDIS_HANDLE),
    ) -> NDIS_STATUS {
        // This is not the count that the close takes.
        binding.pause();
        DRIVER.in_turn(|| binding.close());
        NDIS_STATUS_SUCCESS
    }
}

handler! {
    /// `ProtocolOpenAdapterCompleteEx`: PASSIVE_LEVEL.
    pub(crate) fn open_adapter_complete(
        binding: &Binding = object(context: NDIS_HANDLE),
        status: NDIS_STATUS,
    ) {
        // The opener waits.
        binding.complete(status);
    }
}

handler! {
    /// `ProtocolCloseAdapterCompleteEx`: PASSIVE_LEVEL.
    pub(crate) fn close_adapter_complete(binding: &Binding = object(context: NDIS_HANDLE)) {
        // The closer waits.
        binding.complete(NDIS_STATUS_SUCCESS);
    }
}

/// `ProtocolNetPnPEvent`: PASSIVE_LEVEL. Without a context the event is for the whole driver.
///
/// # Safety
/// Called by NDIS; the event is valid for the call.
pub(crate) unsafe extern "system" fn net_pnp_event(
    context: NDIS_HANDLE,
    event: *mut NET_PNP_EVENT_NOTIFICATION,
) -> NDIS_STATUS {
    // SAFETY: valid for the call.
    let event = unsafe { &(*event).NetPnPEvent };
    if !context.is_null() {
        // SAFETY: an open binding.
        let binding = unsafe { counted::<Binding>(context) };
        match event.NetEvent {
            NetEventSetPower if event.BufferLength as usize >= size_of::<i32>() => {
                // SAFETY: an `NDIS_DEVICE_POWER_STATE` comes with the code.
                let state = unsafe { event.Buffer.cast::<i32>().read_unaligned() };
                if state == NdisDeviceStateD0 { binding.wake() } else { binding.sleep() }
            }
            NetEventPause => binding.pause(),
            NetEventRestart => binding.restart(),
            _ => {}
        }
    }
    NDIS_STATUS_SUCCESS
}

/// `ProtocolOidRequestComplete`: IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// Called by NDIS with a request of ours.
pub(crate) unsafe extern "system" fn oid_request_complete(
    _context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
) {
    // SAFETY: every request of ours is the beginning of a `Request`, whose sender waits.
    unsafe { Request::complete(request, status) };
}

handler! {
    /// `ProtocolStatusEx`: IRQL <= DISPATCH_LEVEL.
    pub(crate) fn status(
        binding: &Binding = object(context: NDIS_HANDLE),
        indication: &NDIS_STATUS_INDICATION = lent(indication: *mut NDIS_STATUS_INDICATION),
    ) {
        binding.handle_status(indication);
    }
}

handler! {
    /// `ProtocolReceiveNetBufferLists`: IRQL <= DISPATCH_LEVEL, on any CPU.
    pub(crate) fn receive_net_buffer_lists(
        binding: &Binding = object(context: NDIS_HANDLE),
        lists: Lists<Received> = Lists::new(lists: *mut NET_BUFFER_LIST),
        _port: NDIS_PORT_NUMBER,
        count: ULONG,
        flags: ULONG,
    ) {
        binding.receive(lists, count, flags);
    }
}

handler! {
    /// `ProtocolSendNetBufferListsComplete`: IRQL <= DISPATCH_LEVEL.
    pub(crate) fn send_net_buffer_lists_complete(
        binding: &Binding = object(context: NDIS_HANDLE),
        lists: Lists<Sent> = Lists::new(lists: *mut NET_BUFFER_LIST),
        flags: ULONG,
    ) {
        binding.sent(lists, flags);
    }
}
