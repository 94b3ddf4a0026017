//! The handlers of the miniport half: each converts and calls.

use super::adapter::Adapter;
use super::ndk::NdkState;
use super::oid;
use crate::abi::*;
use crate::handler::{counted, ended, handler, lent, lent_mut, object};
use crate::log::report;
use crate::lower::lists::{Above, Lists, Shown};
use crate::pairing::DRIVER;
use crate::problems::Problem;
use crate::stage::Stage;
use alloc::sync::Arc;

handler! {
    /// `MiniportInitializeEx`: PASSIVE_LEVEL.
    pub(crate) fn initialize(
        handle: NDIS_HANDLE,
        _driver_context: NDIS_HANDLE,
        parameters: &NDIS_MINIPORT_INIT_PARAMETERS = lent(parameters: *mut NDIS_MINIPORT_INIT_PARAMETERS),
    ) -> NDIS_STATUS {
        let interface = parameters.IfIndex;
        DRIVER.reach(Stage::Starting);
        let started = Adapter::start(handle, parameters).inspect_err(|status| {
            report(interface, Problem::StartFailed, status.0.cast_unsigned(), 0);
        });
        DRIVER.reach(if started.is_ok() { Stage::Started } else { Stage::NotStarted });
        started.into()
    }
}

handler! {
    /// `MiniportHaltEx`: PASSIVE_LEVEL.
    pub(crate) fn halt(adapter: Arc<Adapter> = ended(context: NDIS_HANDLE), _action: i32) {
        adapter.halt();
    }
}

handler! {
    /// `MiniportPause`: PASSIVE_LEVEL. Returns when nothing is in progress.
    pub(crate) fn pause(
        adapter: &Adapter = object(context: NDIS_HANDLE),
        _parameters: PVOID,
    ) -> NDIS_STATUS {
        adapter.pause();
        NDIS_STATUS_SUCCESS
    }
}

handler! {
    /// `MiniportRestart`: PASSIVE_LEVEL.
    pub(crate) fn restart(
        adapter: Arc<Adapter> = counted(context: NDIS_HANDLE),
        _parameters: PVOID,
    ) -> NDIS_STATUS {
        adapter.restart();
        NDIS_STATUS_SUCCESS
    }
}

handler! {
    /// `MiniportOidRequest`: PASSIVE_LEVEL. Never pends.
    pub(crate) fn oid_request(
        adapter: Arc<Adapter> = counted(context: NDIS_HANDLE),
        request: &mut NDIS_OID_REQUEST = lent_mut(request: *mut NDIS_OID_REQUEST),
    ) -> NDIS_STATUS {
        oid::handle(&adapter, request)
    }
}

handler! {
    /// `MiniportDirectOidRequest`: IRQL <= DISPATCH_LEVEL. Never pends.
    pub(crate) fn direct_oid_request(
        adapter: &Adapter = object(context: NDIS_HANDLE),
        request: &mut NDIS_OID_REQUEST = lent_mut(request: *mut NDIS_OID_REQUEST),
    ) -> NDIS_STATUS {
        oid::handle_direct(adapter, request)
    }
}

handler! {
    /// `MiniportCancelOidRequest` and its direct twin: no request pends. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn cancel_oid_request(_context: NDIS_HANDLE, _id: PVOID) {}
}

handler! {
    /// `MiniportSendNetBufferLists`: IRQL <= DISPATCH_LEVEL.
    pub(crate) fn send_net_buffer_lists(
        adapter: &Adapter = object(context: NDIS_HANDLE),
        lists: Lists<Above> = Lists::new(lists: *mut NET_BUFFER_LIST),
        _port: NDIS_PORT_NUMBER,
        flags: ULONG,
    ) {
        adapter.send(lists, flags);
    }
}

handler! {
    /// `MiniportReturnNetBufferLists`: IRQL <= DISPATCH_LEVEL.
    pub(crate) fn return_net_buffer_lists(
        adapter: &Adapter = object(context: NDIS_HANDLE),
        lists: Lists<Shown> = Lists::new(lists: *mut NET_BUFFER_LIST),
        _flags: ULONG,
    ) {
        adapter.take_back(lists);
    }
}

handler! {
    /// `MiniportCancelSend`. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn cancel_send(adapter: &Adapter = object(context: NDIS_HANDLE), id: PVOID) {
        adapter.cancel_sends(id);
    }
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

handler! {
    /// `MiniportDevicePnPEventNotify`: PASSIVE_LEVEL. The consumers of an adapter after surprise
    /// removal have to close, as its halt waits for them.
    pub(crate) fn device_pnp_event_notify(
        adapter: Arc<Adapter> = counted(context: NDIS_HANDLE),
        event: &DevicePnPEvent = lent(event: *mut core::ffi::c_void),
    ) {
        if event.event == SURPRISE_REMOVED {
            // Only an enable can fail.
            let _ = NdkState::request(&adapter, false);
        }
    }
}

handler! {
    /// `MiniportShutdownEx`: any IRQL. There is no hardware to quiet, and a system that goes down may be
    /// in no state to wait.
    pub(crate) fn shutdown(_context: NDIS_HANDLE, _action: i32) {}
}
