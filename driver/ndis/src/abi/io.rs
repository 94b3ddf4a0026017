//! I/O requests to a device of the driver's own, as far as they are read. x64 sizes.

use super::*;

/// Ends a request: its status, and the bytes of the answer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IO_STATUS_BLOCK {
    pub Status: NTSTATUS,
    pub Information: usize,
}
layout!(IO_STATUS_BLOCK, 0x10 { Status: 0, Information: 8 });

/// An I/O request.
#[derive(Debug)]
#[repr(C)]
pub struct IRP {
    pub Type: i16,
    pub Size: USHORT,
    pub MdlAddress: *mut MDL,
    pub Flags: ULONG,
    /// `SystemBuffer` of a union of pointers.
    pub AssociatedIrp: PVOID,
    pub ThreadListEntry: [PVOID; 2],
    pub IoStatus: IO_STATUS_BLOCK,
    /// From `RequestorMode` to `UserBuffer`.
    pub Middle: [PVOID; 7],
    pub Tail: IRP_TAIL,
}
layout!(IRP, 0xD0 { AssociatedIrp: 0x18, IoStatus: 0x30, Tail: 0x78 });

/// `Tail.Overlay` of an [`IRP`], in the room of the union.
#[derive(Debug)]
#[repr(C)]
pub struct IRP_TAIL {
    pub DriverContext: [PVOID; 4],
    pub Thread: PVOID,
    pub AuxiliaryBuffer: PVOID,
    pub ListEntry: [PVOID; 2],
    pub CurrentStackLocation: *mut IO_STACK_LOCATION,
    pub OriginalFileObject: PVOID,
    pub Rest: PVOID,
}
layout!(IRP_TAIL, 0x58 { CurrentStackLocation: 0x40 });

/// A driver's part of an I/O request.
#[derive(Debug)]
#[repr(C)]
pub struct IO_STACK_LOCATION {
    pub MajorFunction: u8,
    pub MinorFunction: u8,
    pub Flags: u8,
    pub Control: u8,
    /// `DeviceIoControl` of a union.
    pub Parameters: IO_CONTROL_PARAMETERS,
    pub DeviceObject: PVOID,
    pub FileObject: *mut FILE_OBJECT,
    pub CompletionRoutine: PVOID,
    pub Context: PVOID,
}
layout!(IO_STACK_LOCATION, 0x48 { Parameters: 8, DeviceObject: 0x28, FileObject: 0x30 });

/// `Parameters.DeviceIoControl` of an [`IO_STACK_LOCATION`].
#[derive(Debug)]
#[repr(C)]
pub struct IO_CONTROL_PARAMETERS {
    pub OutputBufferLength: ULONG,
    pub InputBufferLength: usize,
    pub IoControlCode: usize,
    pub Type3InputBuffer: PVOID,
}
layout!(IO_CONTROL_PARAMETERS, 0x20 { InputBufferLength: 8, IoControlCode: 0x10 });

/// An open handle's object, up to the name behind that of the device.
#[derive(Debug)]
#[repr(C)]
pub struct FILE_OBJECT {
    pub Type: i16,
    pub Size: i16,
    pub DeviceObject: PVOID,
    pub Vpb: PVOID,
    pub FsContext: PVOID,
    pub FsContext2: PVOID,
    pub SectionObjectPointer: PVOID,
    pub PrivateCacheMap: PVOID,
    pub FinalStatus: NTSTATUS,
    pub RelatedFileObject: PVOID,
    /// From `LockOperation` to `SharedDelete`.
    pub Booleans: [BOOLEAN; 8],
    pub Flags: ULONG,
    pub FileName: UNICODE_STRING,
    pub CurrentByteOffset: [i64; 0],
}
layout!(FILE_OBJECT, 0x68 { RelatedFileObject: 0x40, Flags: 0x50, FileName: 0x58 });

pub type DRIVER_DISPATCH =
    unsafe extern "system" fn(device: *mut core::ffi::c_void, irp: *mut IRP) -> NTSTATUS;

pub const IRP_MJ_CREATE: usize = 0;
pub const IRP_MJ_CLOSE: usize = 2;
pub const IRP_MJ_DEVICE_CONTROL: usize = 14;
pub const IRP_MJ_CLEANUP: usize = 18;
pub const IRP_MJ_MAXIMUM_FUNCTION: usize = 27;
/// A completed request raises no thread's priority.
pub const IO_NO_INCREMENT: i8 = 0;

/// A device of an NDIS driver's own.
#[derive(Debug)]
#[repr(C)]
pub struct NDIS_DEVICE_OBJECT_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub DeviceName: *mut UNICODE_STRING,
    pub SymbolicName: *mut UNICODE_STRING,
    pub MajorFunctions: *mut Option<DRIVER_DISPATCH>,
    pub ExtensionSize: ULONG,
    pub DefaultSDDLString: *const UNICODE_STRING,
    pub DeviceClassGuid: *const GUID,
}
layout!(NDIS_DEVICE_OBJECT_ATTRIBUTES, 0x38 {
    DeviceName: 8, SymbolicName: 0x10, MajorFunctions: 0x18, ExtensionSize: 0x20, DefaultSDDLString: 0x28,
    DeviceClassGuid: 0x30,
});
pub const NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES: u8 = 0x85;
pub const NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1: u8 = 1;
pub const STATUS_OBJECT_NAME_NOT_FOUND: NTSTATUS = NTSTATUS(0xC000_0034_u32.cast_signed());
