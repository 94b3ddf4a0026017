//! The declarations of Winsock Kernel, as far as this consumer uses them (`wsk.h`, `wskndk.h`). All others are the provider's
//! driver's own.
#![allow(unsafe_code, reason = "raw pointers of a C interface")]
#![allow(non_camel_case_types, non_snake_case, reason = "C names")]
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "members are documented by the pages of the C headers"
)]

use crate::abi::*;
use ndk_abi::layout;

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
pub const WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH: ULONG = 0x4E44_4B44;

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
}
