//! The kernel's own objects, as far as memory for them has to be supplied. x64 sizes.

use super::*;
use core::ptr::null_mut;

/// The declarations of a WDK's headers.
#[cfg(all(feature = "wdk", windows, target_env = "msvc"))]
pub use wdk_sys::{DRIVER_OBJECT, KDPC, KEVENT, KIRQL, PROCESSOR_NUMBER, UNICODE_STRING};

#[cfg(not(all(feature = "wdk", windows, target_env = "msvc")))]
pub use declared::*;

/// Declarations by hand, for objects in memory of ours.
#[cfg(not(all(feature = "wdk", windows, target_env = "msvc")))]
mod declared {
    use crate::abi::USHORT;
    use core::ffi::c_void;

    /// A dispatcher event; the kernel knows its inside.
    #[derive(Debug, Default)]
    #[repr(C)]
    pub struct KEVENT([u64; 3]);

    /// A deferred procedure call.
    #[derive(Debug, Default)]
    #[repr(C)]
    pub struct KDPC([u64; 8]);

    /// A processor by its group and its place in it.
    #[derive(Clone, Copy, Debug, Default)]
    #[repr(C)]
    pub struct PROCESSOR_NUMBER {
        pub Group: USHORT,
        pub Number: u8,
        pub Reserved: u8,
    }

    /// A counted UTF-16 string.
    #[derive(Clone, Copy, Debug)]
    #[repr(C)]
    pub struct UNICODE_STRING {
        /// In bytes.
        pub Length: USHORT,
        pub MaximumLength: USHORT,
        pub Buffer: *mut u16,
    }

    /// The service and the driver as the I/O manager hands them to `DriverEntry`; opaque here.
    pub type DRIVER_OBJECT = c_void;

    pub type KIRQL = u8;
}

layout!(KEVENT, 0x18 {});
layout!(KDPC, 0x40 {});
layout!(PROCESSOR_NUMBER, 4 { Group: 0, Number: 2, Reserved: 3 });
layout!(UNICODE_STRING, 0x10 { Length: 0, MaximumLength: 2, Buffer: 8 });

/// `KDEFERRED_ROUTINE`. Runs at DISPATCH_LEVEL.
pub type KDEFERRED_ROUTINE =
    unsafe extern "system" fn(dpc: *mut KDPC, context: PVOID, arg1: PVOID, arg2: PVOID);
/// A timer of the kernel's own memory.
pub type PEX_TIMER = PVOID;
/// `EXT_CALLBACK`. Runs at DISPATCH_LEVEL.
pub type EXT_CALLBACK = unsafe extern "system" fn(timer: PEX_TIMER, context: PVOID);
/// `KSTART_ROUTINE`. Runs at PASSIVE_LEVEL.
pub type KSTART_ROUTINE = unsafe extern "system" fn(context: PVOID);

/// The name of an object that is opened, and how.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OBJECT_ATTRIBUTES {
    pub Length: ULONG,
    pub RootDirectory: PVOID,
    pub ObjectName: *mut UNICODE_STRING,
    pub Attributes: ULONG,
    pub SecurityDescriptor: PVOID,
    pub SecurityQualityOfService: PVOID,
}
layout!(OBJECT_ATTRIBUTES, 0x30 {
    Length: 0, RootDirectory: 8, ObjectName: 0x10, Attributes: 0x18, SecurityDescriptor: 0x20,
    SecurityQualityOfService: 0x28,
});

impl OBJECT_ATTRIBUTES {
    /// Those of a handle that no process may use. The name, null for none, is looked up in any case.
    #[must_use]
    pub const fn kernel(name: *mut UNICODE_STRING) -> Self {
        Self {
            Length: size_of::<Self>() as ULONG,
            RootDirectory: null_mut(),
            ObjectName: name,
            Attributes: OBJ_KERNEL_HANDLE | OBJ_CASE_INSENSITIVE,
            SecurityDescriptor: null_mut(),
            SecurityQualityOfService: null_mut(),
        }
    }
}

/// An entry of the event log; strings may stand behind it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IO_ERROR_LOG_PACKET {
    pub MajorFunctionCode: u8,
    pub RetryCount: u8,
    pub DumpDataSize: USHORT,
    pub NumberOfStrings: USHORT,
    pub StringOffset: USHORT,
    pub EventCategory: USHORT,
    pub ErrorCode: NTSTATUS,
    pub UniqueErrorValue: ULONG,
    pub FinalStatus: NTSTATUS,
    pub SequenceNumber: ULONG,
    pub IoControlCode: ULONG,
    pub DeviceOffset: i64,
    pub DumpData: [ULONG; 1],
}
layout!(IO_ERROR_LOG_PACKET, 0x30 {
    NumberOfStrings: 4, StringOffset: 6, ErrorCode: 0xC, FinalStatus: 0x14, DeviceOffset: 0x20, DumpData: 0x28,
});

pub const PASSIVE_LEVEL: KIRQL = 0;
pub const DISPATCH_LEVEL: KIRQL = 2;
pub const NotificationEvent: i32 = 0;
pub const SynchronizationEvent: i32 = 1;
/// `KDPC_IMPORTANCE`.
pub const MediumHighImportance: i32 = 3;
/// `KWAIT_REASON`.
pub const Executive: i32 = 0;
/// `KPROCESSOR_MODE`.
pub const KernelMode: i8 = 0;
/// `MEMORY_CACHING_TYPE`.
pub const MmCached: i32 = 1;
pub const NormalPagePriority: ULONG = 16;
pub const MdlMappingNoExecute: ULONG = 0x4000_0000;
/// `POOL_TYPE`.
pub const NonPagedPoolNx: i32 = 512;
/// `POOL_TYPE`: the same, and each block begins at a line of memory.
pub const NonPagedPoolNxCacheAligned: i32 = 516;
/// Flag of `ExAllocatePool2`.
pub const POOL_FLAG_NON_PAGED: u64 = 0x40;
/// Flag of `ExAllocatePool2`; without it the memory comes zeroed.
pub const POOL_FLAG_UNINITIALIZED: u64 = 0x02;
/// Flag of `ExAllocatePool2`: the block begins at a line of memory.
pub const POOL_FLAG_CACHE_ALIGNED: u64 = 0x08;
pub const EX_TIMER_HIGH_RESOLUTION: ULONG = 4;
pub const LOW_REALTIME_PRIORITY: i32 = 16;
pub const ALL_PROCESSOR_GROUPS: USHORT = 0xFFFF;
pub const THREAD_ALL_ACCESS: ULONG = 0x001F_FFFF;
pub const OBJ_CASE_INSENSITIVE: ULONG = 0x40;
pub const OBJ_KERNEL_HANDLE: ULONG = 0x200;
pub const KEY_QUERY_VALUE: ULONG = 1;
pub const KEY_SET_VALUE: ULONG = 2;
pub const REG_SZ: ULONG = 1;
/// `KEY_VALUE_INFORMATION_CLASS`.
pub const KeyValuePartialInformation: i32 = 2;
pub const BCRYPT_USE_SYSTEM_PREFERRED_RNG: ULONG = 2;
/// Bug check `MANUALLY_INITIATED_CRASH1`: a driver stopped the system by itself.
pub const MANUALLY_INITIATED_CRASH1: ULONG = 0xDEAD_DEAD;
