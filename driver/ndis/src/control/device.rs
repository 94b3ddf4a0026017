//! The device, and its requests.
#![allow(unsafe_code, reason = "calls NDIS, which lends requests")]

use super::read;
use super::snapshot::{DEVICE, READ};
use crate::abi::imports::{IofCompleteRequest, NdisDeregisterDeviceEx, NdisRegisterDeviceEx};
use crate::abi::*;
use crate::handler::handler;
use crate::os::text::{counted, utf16};
use crate::pairing::DRIVER;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering;

/// With the zero that the page of the attributes asks for.
static NAME: [u16; 9 + DEVICE.len()] = utf16("\\Device\\ndkrocev2\0");
static LINK: [u16; 13 + DEVICE.len()] = utf16("\\DosDevices\\ndkrocev2\0");
/// The system and administrators may read, and nobody else may anything.
static READERS: [u16; 28] = utf16("D:P(A;;GR;;;SY)(A;;GR;;;BA)\0");

/// Makes the device, with the first adapter: the system unloads no driver that has a device
/// ([page](https://learn.microsoft.com/windows-hardware/drivers/ddi/ndis/nc-ndis-miniport_unload)). Where it cannot be made,
/// nobody can read. PASSIVE_LEVEL, in turn.
pub(crate) fn register() {
    if !DRIVER.control.load(Ordering::Acquire).is_null() {
        return;
    }
    let mut functions: [Option<DRIVER_DISPATCH>; IRP_MJ_MAXIMUM_FUNCTION + 1] =
        [None; IRP_MJ_MAXIMUM_FUNCTION + 1];
    functions[IRP_MJ_CREATE] = Some(create);
    functions[IRP_MJ_CLEANUP] = Some(close);
    functions[IRP_MJ_CLOSE] = Some(close);
    functions[IRP_MJ_DEVICE_CONTROL] = Some(control);
    let (mut name, mut link, readers) = (text(&NAME), text(&LINK), text(&READERS));
    let mut attributes = NDIS_DEVICE_OBJECT_ATTRIBUTES {
        Header: header(
            NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES,
            NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1,
            size_of::<NDIS_DEVICE_OBJECT_ATTRIBUTES>(),
        ),
        DeviceName: &mut name,
        SymbolicName: &mut link,
        MajorFunctions: functions.as_mut_ptr(),
        ExtensionSize: 0,
        DefaultSDDLString: &readers,
        DeviceClassGuid: null(),
    };
    let (mut device, mut handle) = (null_mut(), null_mut());
    let miniport = DRIVER.miniport.load(Ordering::Acquire);
    // SAFETY: the structures live during the call, the functions as long as the image.
    let status =
        unsafe { NdisRegisterDeviceEx(miniport, &mut attributes, &mut device, &mut handle) };
    if status.is_success() {
        DRIVER.control.store(handle, Ordering::Release);
    }
}

/// A text without the zero behind it.
fn text(units: &'static [u16]) -> UNICODE_STRING {
    counted(&units[..units.len() - 1])
}

/// Removes the device, with the last adapter. A handle that is open keeps the image loaded, and finds no adapter.
/// PASSIVE_LEVEL, in turn.
pub(crate) fn deregister() {
    let handle = DRIVER.control.swap(null_mut(), Ordering::AcqRel);
    if !handle.is_null() {
        // SAFETY: registered, and not deregistered yet.
        unsafe { NdisDeregisterDeviceEx(handle) };
    }
}

/// A request that is not completed.
struct Request(*mut IRP);

impl Request {
    /// # Safety
    /// `irp` is valid until it is completed, and nobody else's.
    unsafe fn new(irp: *mut IRP) -> Self {
        Self(irp)
    }

    fn irp(&mut self) -> &mut IRP {
        // SAFETY: ours until it is completed, which takes `self`.
        unsafe { &mut *self.0 }
    }

    fn location(&mut self) -> &IO_STACK_LOCATION {
        let location = self.irp().Tail.CurrentStackLocation;
        // SAFETY: the system's, as long as the request.
        unsafe { &*location }
    }

    /// Whether the handle is of the device itself. The descriptor guards names behind the device's only where a device has
    /// [`FILE_DEVICE_SECURE_OPEN`](https://learn.microsoft.com/windows-hardware/drivers/kernel/controlling-device-namespace-access),
    /// and no page tells that of those that NDIS makes.
    fn is_of_the_device(&mut self) -> bool {
        let file = self.location().FileObject;
        // SAFETY: the system's, as long as the request; null where there is no handle.
        unsafe { file.as_ref() }.is_some_and(|file| file.FileName.Length == 0)
    }

    /// The room of the answer, which lies where the input was.
    fn room(&mut self) -> &mut [u8] {
        let len = self.location().Parameters.OutputBufferLength as usize;
        let start = self.irp().AssociatedIrp.cast::<u8>();
        if start.is_null() || len == 0 {
            return &mut [];
        }
        // SAFETY: a buffered request has a buffer of the system as long as the longer of both lengths.
        unsafe { core::slice::from_raw_parts_mut(start, len) }
    }

    fn complete(mut self, status: NTSTATUS, bytes: usize) -> NTSTATUS {
        self.irp().IoStatus = IO_STATUS_BLOCK { Status: status, Information: bytes };
        // SAFETY: not completed yet, and not used any more.
        unsafe { IofCompleteRequest(self.0.cast(), IO_NO_INCREMENT) };
        status
    }
}

handler! {
    /// `IRP_MJ_CREATE`: PASSIVE_LEVEL.
    fn create(_device: PVOID, request: Request = Request::new(irp: *mut IRP)) -> NTSTATUS {
        let mut request = request;
        let is_ours = request.is_of_the_device();
        request.complete(if is_ours { STATUS_SUCCESS } else { STATUS_OBJECT_NAME_NOT_FOUND }, 0)
    }
}

handler! {
    /// `IRP_MJ_CLEANUP` and `IRP_MJ_CLOSE`: nothing belongs to a handle. PASSIVE_LEVEL.
    fn close(_device: PVOID, request: Request = Request::new(irp: *mut IRP)) -> NTSTATUS {
        request.complete(STATUS_SUCCESS, 0)
    }
}

handler! {
    /// `IRP_MJ_DEVICE_CONTROL`: PASSIVE_LEVEL, in the caller's thread. A room that is too short for the head is refused; one
    /// that is too short for the rest has what fits, and in the head the length of all.
    fn control(_device: PVOID, request: Request = Request::new(irp: *mut IRP)) -> NTSTATUS {
        let mut request = request;
        let IO_CONTROL_PARAMETERS { InputBufferLength: input, IoControlCode: code, .. } =
            request.location().Parameters;
        // Both are numbers of 32 bits in the room of a pointer.
        if code as u32 != READ {
            return request.complete(STATUS_INVALID_DEVICE_REQUEST, 0);
        }
        if input as u32 != 0 {
            return request.complete(STATUS_INVALID_PARAMETER, 0);
        }
        match read::fill(request.room()) {
            None => request.complete(STATUS_BUFFER_TOO_SMALL, 0),
            Some((written, needed)) if written < needed => {
                request.complete(STATUS_BUFFER_OVERFLOW, written)
            }
            Some((written, _)) => request.complete(STATUS_SUCCESS, written),
        }
    }
}
