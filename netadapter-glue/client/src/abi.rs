//! The structures of KMDF 1.15 and NetAdapterCx 2.0 that this driver fills. The layouts are asserted.
//!
//! The pages of [`netadapter.h`](https://learn.microsoft.com/windows-hardware/drivers/ddi/netadapter/),
//! [`netpacketqueue.h`](https://learn.microsoft.com/windows-hardware/drivers/ddi/netpacketqueue/) and of the headers of
//! [WDF](https://learn.microsoft.com/windows-hardware/drivers/ddi/_wdf/) name the members. Older versions are asked for on
//! purpose: every later one serves a driver that was made for them.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(missing_docs, reason = "members are documented by the pages of the C headers")]

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

pub type PVOID = *mut c_void;

/// An object of WDF or NetAdapterCx.
macro_rules! handles {
    ($($name:ident)*) => {$(
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(transparent)]
        pub struct $name(pub PVOID);

        // SAFETY: a name of an object, which the frameworks guard.
        #[allow(unsafe_code, reason = "handles are pointers in C")]
        unsafe impl Send for $name {}
        // SAFETY: as above.
        #[allow(unsafe_code, reason = "handles are pointers in C")]
        unsafe impl Sync for $name {}
    )*};
}
handles! { WDFDRIVER WDFDEVICE WDFOBJECT NETADAPTER NETPACKETQUEUE }

/// The result of a function. Negative is a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(transparent)]
pub struct NTSTATUS(pub i32);

pub const STATUS_SUCCESS: NTSTATUS = NTSTATUS(0);
pub const STATUS_UNSUCCESSFUL: NTSTATUS = NTSTATUS(0xC000_0001_u32 as i32);
pub const STATUS_INSUFFICIENT_RESOURCES: NTSTATUS = NTSTATUS(0xC000_009A_u32 as i32);

impl NTSTATUS {
    /// `NT_SUCCESS`, as a result.
    ///
    /// # Errors
    /// The status of a failure.
    pub const fn ok(self) -> Result<(), Self> {
        if self.0 < 0 { Err(self) } else { Ok(()) }
    }
}

/// A function of a table, before its type is known.
pub type Function = *mut c_void;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WDF_VERSION {
    pub Major: u32,
    pub Minor: u32,
    pub Build: u32,
}

/// The request to bind to KMDF, for `WdfVersionBind`.
#[derive(Debug)]
#[repr(C)]
pub struct WDF_BIND_INFO {
    pub Size: u32,
    pub Component: *const u16,
    pub Version: WDF_VERSION,
    pub FuncCount: u32,
    /// From 1.15 on the place of a pointer to the table, which stays the framework's.
    pub FuncTable: *mut c_void,
    pub Module: PVOID,
}

/// The request to bind to a class extension, for `WdfVersionBindClass`.
#[derive(Debug)]
#[repr(C)]
pub struct WDF_CLASS_BIND_INFO {
    pub Size: u32,
    pub ClassName: *const u16,
    pub Version: WDF_VERSION,
    /// The table itself, which the extension fills.
    pub FunctionTable: *mut Function,
    pub FunctionTableCount: u32,
    /// Of NetAdapterCx: the place of the pointer to its globals.
    pub ClassBindInfo: PVOID,
    pub ClientBindClass: PVOID,
    pub ClientUnbindClass: PVOID,
    pub ClassModule: PVOID,
}

#[derive(Debug)]
#[repr(C)]
pub struct WDF_DRIVER_GLOBALS {
    pub Driver: PVOID,
    pub DriverFlags: u32,
    pub DriverTag: u32,
    pub DriverName: [u8; 32],
    pub DisplaceDriverUnload: u8,
}

#[derive(Debug)]
#[repr(C)]
pub struct WDF_OBJECT_CONTEXT_TYPE_INFO {
    pub Size: u32,
    pub ContextName: *const c_char,
    pub ContextSize: usize,
    pub UniqueType: *const Self,
    pub EvtDriverGetUniqueContextType: PVOID,
}

pub type EVT_WDF_OBJECT_CONTEXT_CLEANUP = unsafe extern "system" fn(object: WDFOBJECT);

#[derive(Debug)]
#[repr(C)]
pub struct WDF_OBJECT_ATTRIBUTES {
    pub Size: u32,
    pub EvtCleanupCallback: Option<EVT_WDF_OBJECT_CONTEXT_CLEANUP>,
    pub EvtDestroyCallback: PVOID,
    pub ExecutionLevel: i32,
    pub SynchronizationScope: i32,
    pub ParentObject: PVOID,
    pub ContextSizeOverride: usize,
    pub ContextTypeInfo: *const WDF_OBJECT_CONTEXT_TYPE_INFO,
}

pub const WdfExecutionLevelInheritFromParent: i32 = 1;
pub const WdfSynchronizationScopeInheritFromParent: i32 = 1;

pub type EVT_WDF_DRIVER_DEVICE_ADD =
    unsafe extern "system" fn(driver: WDFDRIVER, init: PVOID) -> NTSTATUS;

#[derive(Debug)]
#[repr(C)]
pub struct WDF_DRIVER_CONFIG {
    pub Size: u32,
    pub EvtDriverDeviceAdd: Option<EVT_WDF_DRIVER_DEVICE_ADD>,
    pub EvtDriverUnload: PVOID,
    pub DriverInitFlags: u32,
    pub DriverPoolTag: u32,
}

pub type EVT_WDF_DEVICE_PREPARE_HARDWARE =
    unsafe extern "system" fn(device: WDFDEVICE, raw: PVOID, translated: PVOID) -> NTSTATUS;
pub type EVT_WDF_DEVICE_RELEASE_HARDWARE =
    unsafe extern "system" fn(device: WDFDEVICE, translated: PVOID) -> NTSTATUS;

#[derive(Debug)]
#[repr(C)]
pub struct WDF_PNPPOWER_EVENT_CALLBACKS {
    pub Size: u32,
    /// `EvtDeviceD0Entry` and the three that go with it.
    pub EvtDeviceD0: [PVOID; 4],
    pub EvtDevicePrepareHardware: Option<EVT_WDF_DEVICE_PREPARE_HARDWARE>,
    pub EvtDeviceReleaseHardware: Option<EVT_WDF_DEVICE_RELEASE_HARDWARE>,
    /// From `EvtDeviceSelfManagedIoCleanup` to `EvtDeviceUsageNotificationEx`.
    pub EvtDeviceOthers: [PVOID; 11],
}

pub type EVT_NET_ADAPTER_CREATE_QUEUE =
    unsafe extern "system" fn(adapter: NETADAPTER, init: PVOID) -> NTSTATUS;

#[derive(Debug)]
#[repr(C)]
pub struct NET_ADAPTER_DATAPATH_CALLBACKS {
    pub Size: u32,
    pub EvtAdapterCreateTxQueue: Option<EVT_NET_ADAPTER_CREATE_QUEUE>,
    pub EvtAdapterCreateRxQueue: Option<EVT_NET_ADAPTER_CREATE_QUEUE>,
}

pub type EVT_PACKET_QUEUE = unsafe extern "system" fn(queue: NETPACKETQUEUE);
pub type EVT_PACKET_QUEUE_SET_NOTIFICATION_ENABLED =
    unsafe extern "system" fn(queue: NETPACKETQUEUE, enabled: u8);

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NET_PACKET_QUEUE_CONFIG {
    pub Size: u32,
    pub EvtStart: Option<EVT_PACKET_QUEUE>,
    pub EvtStop: Option<EVT_PACKET_QUEUE>,
    pub EvtAdvance: Option<EVT_PACKET_QUEUE>,
    pub EvtSetNotificationEnabled: Option<EVT_PACKET_QUEUE_SET_NOTIFICATION_ENABLED>,
    pub EvtCancel: Option<EVT_PACKET_QUEUE>,
}

#[derive(Debug)]
#[repr(C)]
pub struct NET_ADAPTER_LINK_LAYER_CAPABILITIES {
    pub Size: u32,
    pub MaxTxLinkSpeed: u64,
    pub MaxRxLinkSpeed: u64,
}

#[derive(Debug)]
#[repr(C)]
pub struct NET_ADAPTER_LINK_LAYER_ADDRESS {
    pub Length: u16,
    pub Address: [u8; 32],
}

#[derive(Debug)]
#[repr(C)]
pub struct NET_ADAPTER_LINK_STATE {
    pub Size: u32,
    pub TxLinkSpeed: u64,
    pub RxLinkSpeed: u64,
    pub MediaConnectState: i32,
    pub MediaDuplexState: i32,
    pub SupportedPauseFunctions: i32,
    pub AutoNegotiationFlags: i32,
}

pub const MediaConnectStateConnected: i32 = 1;
pub const MediaDuplexStateFull: i32 = 2;
pub const NetAdapterPauseFunctionTypeUnsupported: i32 = 0;

#[derive(Debug)]
#[repr(C)]
pub struct NET_ADAPTER_TX_CAPABILITIES {
    pub Size: u32,
    pub MappingRequirement: i32,
    pub PayloadBackfill: usize,
    pub MaximumNumberOfFragments: usize,
    pub FragmentBufferAlignment: usize,
    pub FragmentRingNumberOfElementsHint: u32,
    pub MaximumNumberOfQueues: usize,
    pub DmaCapabilities: PVOID,
}

#[derive(Debug)]
#[repr(C)]
pub struct NET_ADAPTER_RX_CAPABILITIES {
    pub Size: u32,
    pub AllocationMode: i32,
    pub AttachmentMode: i32,
    pub FragmentRingNumberOfElementsHint: u32,
    pub MaximumFrameSize: usize,
    pub MaximumNumberOfQueues: usize,
    /// From here on of a union: the system's part of it.
    pub MappingRequirement: i32,
    pub FragmentBufferAlignment: usize,
    pub DmaCapabilities: PVOID,
}

pub const NetMemoryMappingRequirementNone: i32 = 0;
pub const NetRxFragmentBufferAllocationModeSystem: i32 = 0;
pub const NetRxFragmentBufferAttachmentModeSystem: i32 = 0;

macro_rules! layout {
    ($name:ident, $size:expr, $($member:ident: $offset:expr),* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(offset_of!($name, $member) == $offset);)*
        };
    };
}

layout!(
    WDF_BIND_INFO, 48,
    Size: 0, Component: 8, Version: 16, FuncCount: 28, FuncTable: 32, Module: 40,
);
layout!(
    WDF_CLASS_BIND_INFO, 80,
    Size: 0, ClassName: 8, Version: 16, FunctionTable: 32, FunctionTableCount: 40,
    ClassBindInfo: 48, ClientBindClass: 56, ClientUnbindClass: 64, ClassModule: 72,
);
layout!(
    WDF_DRIVER_GLOBALS, 56,
    Driver: 0, DriverFlags: 8, DriverTag: 12, DriverName: 16, DisplaceDriverUnload: 48,
);
layout!(
    WDF_OBJECT_CONTEXT_TYPE_INFO, 40,
    Size: 0, ContextName: 8, ContextSize: 16, UniqueType: 24, EvtDriverGetUniqueContextType: 32,
);
layout!(
    WDF_OBJECT_ATTRIBUTES, 56,
    Size: 0, EvtCleanupCallback: 8, EvtDestroyCallback: 16, ExecutionLevel: 24,
    SynchronizationScope: 28, ParentObject: 32, ContextSizeOverride: 40, ContextTypeInfo: 48,
);
layout!(
    WDF_DRIVER_CONFIG, 32,
    Size: 0, EvtDriverDeviceAdd: 8, EvtDriverUnload: 16, DriverInitFlags: 24, DriverPoolTag: 28,
);
layout!(
    WDF_PNPPOWER_EVENT_CALLBACKS, 144,
    Size: 0, EvtDeviceD0: 8, EvtDevicePrepareHardware: 40, EvtDeviceReleaseHardware: 48,
    EvtDeviceOthers: 56,
);
layout!(
    NET_ADAPTER_DATAPATH_CALLBACKS, 24,
    Size: 0, EvtAdapterCreateTxQueue: 8, EvtAdapterCreateRxQueue: 16,
);
layout!(
    NET_PACKET_QUEUE_CONFIG, 48,
    Size: 0, EvtStart: 8, EvtStop: 16, EvtAdvance: 24, EvtSetNotificationEnabled: 32, EvtCancel: 40,
);
layout!(NET_ADAPTER_LINK_LAYER_CAPABILITIES, 24, Size: 0, MaxTxLinkSpeed: 8, MaxRxLinkSpeed: 16);
layout!(NET_ADAPTER_LINK_LAYER_ADDRESS, 34, Length: 0, Address: 2);
layout!(
    NET_ADAPTER_LINK_STATE, 40,
    Size: 0, TxLinkSpeed: 8, RxLinkSpeed: 16, MediaConnectState: 24, MediaDuplexState: 28,
    SupportedPauseFunctions: 32, AutoNegotiationFlags: 36,
);
layout!(
    NET_ADAPTER_TX_CAPABILITIES, 56,
    Size: 0, MappingRequirement: 4, PayloadBackfill: 8, MaximumNumberOfFragments: 16,
    FragmentBufferAlignment: 24, FragmentRingNumberOfElementsHint: 32, MaximumNumberOfQueues: 40,
    DmaCapabilities: 48,
);
layout!(
    NET_ADAPTER_RX_CAPABILITIES, 56,
    Size: 0, AllocationMode: 4, AttachmentMode: 8, FragmentRingNumberOfElementsHint: 12,
    MaximumFrameSize: 16, MaximumNumberOfQueues: 24, MappingRequirement: 32,
    FragmentBufferAlignment: 40, DmaCapabilities: 48,
);
