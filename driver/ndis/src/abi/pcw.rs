//! Performance counters for Windows (PCW), of `wdm.h`.

use super::*;
use core::ffi::c_void;

/// [`PCW_COUNTER_DESCRIPTOR`](https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/ns-wdm-_pcw_counter_descriptor).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PCW_COUNTER_DESCRIPTOR {
    pub Id: USHORT,
    /// The block of an instance's data that has it.
    pub StructIndex: USHORT,
    pub Offset: USHORT,
    pub Size: USHORT,
}

/// A block of an instance's data.
#[derive(Debug)]
#[repr(C)]
pub struct PCW_DATA {
    pub Data: *const c_void,
    pub Size: ULONG,
}

/// The request of a consumer.
#[derive(Debug)]
#[repr(C)]
pub struct PCW_MASK_INFORMATION {
    pub CounterMask: u64,
    pub InstanceMask: *const UNICODE_STRING,
    pub InstanceId: ULONG,
    pub CollectMultiple: BOOLEAN,
    pub Buffer: PVOID,
    pub CancelEvent: *mut KEVENT,
}

/// [`PCW_CALLBACK`](https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/nc-wdm-pcw_callback).
/// PASSIVE_LEVEL. The information is a `PCW_MASK_INFORMATION` for [`PcwCallbackEnumerateInstances`] and
/// [`PcwCallbackCollectData`].
pub type PCW_CALLBACK = unsafe extern "system" fn(
    kind: i32,
    information: *const PCW_MASK_INFORMATION,
    context: PVOID,
) -> NTSTATUS;

/// [`PCW_REGISTRATION_INFORMATION`](https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/ns-wdm-_pcw_registration_information),
/// version 1.
#[derive(Debug)]
#[repr(C)]
pub struct PCW_REGISTRATION_INFORMATION {
    pub Version: ULONG,
    pub Name: *const UNICODE_STRING,
    pub CounterCount: ULONG,
    pub Counters: *const PCW_COUNTER_DESCRIPTOR,
    pub Callback: PCW_CALLBACK,
    pub CallbackContext: PVOID,
}

layout!(PCW_COUNTER_DESCRIPTOR, 8 { Id: 0, StructIndex: 2, Offset: 4, Size: 6 });
layout!(PCW_DATA, 0x10 { Data: 0, Size: 8 });
layout!(PCW_MASK_INFORMATION, 0x28 {
    CounterMask: 0, InstanceMask: 8, InstanceId: 0x10, CollectMultiple: 0x14, Buffer: 0x18, CancelEvent: 0x20,
});
layout!(PCW_REGISTRATION_INFORMATION, 0x30 {
    Version: 0, Name: 8, CounterCount: 0x10, Counters: 0x18, Callback: 0x20, CallbackContext: 0x28,
});

pub const PCW_VERSION_1: ULONG = 0x0100;
/// `PCW_CALLBACK_TYPE`.
pub const PcwCallbackEnumerateInstances: i32 = 2;
pub const PcwCallbackCollectData: i32 = 3;
