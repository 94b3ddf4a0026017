//! The declarations of the kernel, IP Helper and Winsock Kernel, as far as this consumer uses them. Those that the provider's
//! driver has, too, are its own.
#![allow(unsafe_code, reason = "raw pointers of a C interface")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(missing_docs, reason = "members are documented by the pages of the C headers")]
#![allow(dead_code, unreachable_pub, reason = "the provider's driver needs more of it")]

pub use driver::abi::*;
use driver::layout;

#[path = "../../ndis/src/abi/netio.rs"]
mod netio;
#[path = "../../ndis/src/abi/ntos.rs"]
mod ntos;

pub use netio::*;
pub use ntos::*;

/// There is no such value of the registry.
pub const STATUS_OBJECT_NAME_NOT_FOUND: NTSTATUS = NTSTATUS(0xC000_0034_u32.cast_signed());

// wsk.h and wskndk.h.

/// A client of Winsock Kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_CLIENT_NPI {
    pub ClientContext: PVOID,
    pub Dispatch: *const WSK_CLIENT_DISPATCH,
}
layout!(WSK_CLIENT_NPI, 0x10 { ClientContext: 0, Dispatch: 8 });

/// Its version and its event callback, which may be NULL.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_CLIENT_DISPATCH {
    pub Version: USHORT,
    pub Reserved: USHORT,
    pub WskClientEvent: PVOID,
}
layout!(WSK_CLIENT_DISPATCH, 0x10 { Version: 0, Reserved: 2, WskClientEvent: 8 });

/// Belongs to Winsock Kernel while the client is registered.
#[derive(Debug)]
#[repr(C)]
pub struct WSK_REGISTRATION {
    pub ReservedRegistrationState: u64,
    pub ReservedRegistrationContext: PVOID,
    pub ReservedRegistrationLock: usize,
}
layout!(WSK_REGISTRATION, 0x18 {
    ReservedRegistrationState: 0, ReservedRegistrationContext: 8, ReservedRegistrationLock: 0x10,
});

/// The provider, as a client has captured it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_NPI {
    pub Client: PVOID,
    pub Dispatch: *const WSK_PROVIDER_DISPATCH,
}
layout!(WSK_PROVIDER_NPI, 0x10 { Client: 0, Dispatch: 8 });

/// Its functions, as far as they are called.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_DISPATCH {
    pub Version: USHORT,
    pub Reserved: USHORT,
    pub WskSocket: PVOID,
    pub WskSocketConnect: PVOID,
    pub WskControlClient: PFN_WSK_CONTROL_CLIENT,
}
layout!(WSK_PROVIDER_DISPATCH, 0x20 { Version: 0, WskSocket: 8, WskControlClient: 0x18 });

/// PASSIVE_LEVEL where it is synchronous, without an IRP.
pub type PFN_WSK_CONTROL_CLIENT = unsafe extern "system" fn(
    Client: PVOID,
    ControlCode: ULONG,
    InputSize: SIZE_T,
    InputBuffer: PVOID,
    OutputSize: SIZE_T,
    OutputBuffer: PVOID,
    OutputSizeReturned: *mut SIZE_T,
    Irp: PVOID,
) -> NTSTATUS;

/// The functions by which a client opens NDK adapters: the answer to [`WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_NDK_DISPATCH {
    pub WskOpenNdkAdapter: Option<PFN_WSK_OPEN_NDK_ADAPTER>,
    pub WskCloseNdkAdapter: Option<PFN_WSK_CLOSE_NDK_ADAPTER>,
}
layout!(WSK_PROVIDER_NDK_DISPATCH, 0x10 { WskOpenNdkAdapter: 0, WskCloseNdkAdapter: 8 });

/// PASSIVE_LEVEL.
pub type PFN_WSK_OPEN_NDK_ADAPTER = unsafe extern "system" fn(
    Client: PVOID,
    Version: NDK_VERSION,
    InterfaceIndex: NET_IFINDEX,
    ppNdkAdapter: *mut *mut NDK_ADAPTER,
) -> NTSTATUS;
/// PASSIVE_LEVEL. Returns when each object of the adapter is closed.
pub type PFN_WSK_CLOSE_NDK_ADAPTER =
    unsafe extern "system" fn(Client: PVOID, pNdkAdapter: *mut NDK_ADAPTER);

/// MAKE_WSK_VERSION(1, 0).
pub const WSK_VERSION: USHORT = 0x100;
/// The characters 'NDKD'.
pub const WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH: ULONG = u32::from_be_bytes(*b"NDKD");

#[link(name = "NETIO.SYS", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    /// PASSIVE_LEVEL.
    pub fn WskRegister(
        client: *mut WSK_CLIENT_NPI,
        registration: *mut WSK_REGISTRATION,
    ) -> NTSTATUS;
    /// PASSIVE_LEVEL. Waits until what was captured is released.
    pub fn WskDeregister(registration: *mut WSK_REGISTRATION);
    /// PASSIVE_LEVEL. Waits so many milliseconds for the provider.
    pub fn WskCaptureProviderNPI(
        registration: *mut WSK_REGISTRATION,
        timeout: ULONG,
        provider: *mut WSK_PROVIDER_NPI,
    ) -> NTSTATUS;
    /// IRQL <= DISPATCH_LEVEL.
    pub fn WskReleaseProviderNPI(registration: *mut WSK_REGISTRATION);
    /// PASSIVE_LEVEL.
    pub fn GetUnicastIpAddressTable(
        family: ADDRESS_FAMILY,
        table: *mut *mut MIB_UNICASTIPADDRESS_TABLE,
    ) -> NTSTATUS;
    pub fn FreeMibTable(table: PVOID);
}

#[link(name = "hal.dll", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    /// Any IRQL. The kernel exports it from Windows 10 2004 on only.
    pub fn KeQueryPerformanceCounter(frequency: *mut i64) -> i64;
}

#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    /// IRQL <= DISPATCH_LEVEL. Deprecated for a function that Server 2019 does not have.
    pub fn ExAllocatePoolWithTag(kind: i32, bytes: usize, tag: ULONG) -> PVOID;
    pub fn ExFreePoolWithTag(block: PVOID, tag: ULONG);
    pub fn IoAllocateMdl(
        address: PVOID,
        length: ULONG,
        secondary: BOOLEAN,
        charge: BOOLEAN,
        irp: PVOID,
    ) -> *mut MDL;
    pub fn IoFreeMdl(mdl: *mut MDL);
    pub fn MmBuildMdlForNonPagedPool(mdl: *mut MDL);
    pub fn KeInitializeEvent(event: *mut KEVENT, kind: i32, state: BOOLEAN);
    /// IRQL <= DISPATCH_LEVEL.
    pub fn KeSetEvent(event: *mut KEVENT, increment: i32, wait: BOOLEAN) -> i32;
    /// IRQL < DISPATCH_LEVEL where it waits.
    pub fn KeWaitForSingleObject(
        object: PVOID,
        reason: i32,
        mode: i8,
        alertable: BOOLEAN,
        timeout: *mut i64,
    ) -> NTSTATUS;
    /// PASSIVE_LEVEL, as all below.
    pub fn PsCreateSystemThread(
        thread: *mut PVOID,
        access: ULONG,
        attributes: PVOID,
        process: PVOID,
        client: PVOID,
        routine: KSTART_ROUTINE,
        context: PVOID,
    ) -> NTSTATUS;
    pub fn PsTerminateSystemThread(status: NTSTATUS) -> NTSTATUS;
    pub fn ObReferenceObjectByHandle(
        handle: PVOID,
        access: ULONG,
        kind: PVOID,
        mode: i8,
        object: *mut PVOID,
        information: PVOID,
    ) -> NTSTATUS;
    pub fn ObfDereferenceObject(object: PVOID) -> isize;
    pub fn ZwClose(handle: PVOID) -> NTSTATUS;
    pub fn ZwOpenKey(
        key: *mut PVOID,
        access: ULONG,
        attributes: *mut OBJECT_ATTRIBUTES,
    ) -> NTSTATUS;
    pub fn ZwQueryValueKey(
        key: PVOID,
        name: *mut UNICODE_STRING,
        class: i32,
        information: PVOID,
        length: ULONG,
        needed: *mut ULONG,
    ) -> NTSTATUS;
    pub fn ZwSetValueKey(
        key: PVOID,
        name: *mut UNICODE_STRING,
        title: ULONG,
        kind: ULONG,
        data: PVOID,
        length: ULONG,
    ) -> NTSTATUS;
}
