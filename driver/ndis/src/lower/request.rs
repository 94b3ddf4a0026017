//! Requests of ours to the NIC.
#![allow(unsafe_code, reason = "calls NDIS, which calls back")]

use super::binding::Binding;
use crate::abi::imports::NdisOidRequest;
use crate::abi::*;
use crate::os::sync::Event;
use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, Ordering};

impl Binding {
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
