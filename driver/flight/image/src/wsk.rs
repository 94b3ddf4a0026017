//! Winsock Kernel, by which consumers open NDK adapters.
#![allow(unsafe_code, reason = "calls Winsock Kernel")]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};

use crate::abi::*;
use crate::winsock::*;

/// The client, registered, with the provider captured.
pub(crate) struct Wsk {
    client: PVOID,
    open: PFN_WSK_OPEN_NDK_ADAPTER,
    close: PFN_WSK_CLOSE_NDK_ADAPTER,
}

/// The place of the one registration, from load to unload.
struct Registration(UnsafeCell<MaybeUninit<WSK_REGISTRATION>>);

// SAFETY: Winsock Kernel serializes what it does with it, and the flight's one thread calls it.
unsafe impl Sync for Registration {}

static REGISTRATION: Registration = Registration(UnsafeCell::new(MaybeUninit::zeroed()));
static DISPATCH: Dispatch =
    Dispatch(WSK_CLIENT_DISPATCH { Version: WSK_VERSION, Reserved: 0, WskClientEvent: null_mut() });

struct Dispatch(WSK_CLIENT_DISPATCH);

// SAFETY: nobody writes it.
unsafe impl Sync for Dispatch {}

/// Milliseconds to wait for the provider.
const PATIENCE_MS: ULONG = 10_000;

impl Wsk {
    /// Registers and asks for the functions of NDK. PASSIVE_LEVEL.
    ///
    /// # Errors
    /// That of Winsock Kernel.
    pub(crate) fn register() -> Result<Self, NTSTATUS> {
        let registration = REGISTRATION.0.get().cast();
        let mut client = WSK_CLIENT_NPI { ClientContext: null_mut(), Dispatch: &DISPATCH.0 };
        // SAFETY: dispatch and registration live as long as the image.
        unsafe { WskRegister(&mut client, registration) }.ok()?;
        let captured = Self::capture(registration);
        if captured.is_err() {
            // SAFETY: registered above.
            unsafe { WskDeregister(registration) };
        }
        captured
    }

    fn capture(registration: *mut WSK_REGISTRATION) -> Result<Self, NTSTATUS> {
        let mut provider = WSK_PROVIDER_NPI { Client: null_mut(), Dispatch: null() };
        // SAFETY: registered, and the place is ours.
        unsafe { WskCaptureProviderNPI(registration, PATIENCE_MS, &mut provider) }.ok()?;
        let asked = Self::ask(&provider);
        if asked.is_err() {
            // SAFETY: captured above.
            unsafe { WskReleaseProviderNPI(registration) };
        }
        asked
    }

    fn ask(provider: &WSK_PROVIDER_NPI) -> Result<Self, NTSTATUS> {
        // SAFETY: the table of a captured provider.
        let control = unsafe { (*provider.Dispatch).WskControlClient };
        let code = WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH;
        let mut functions =
            WSK_PROVIDER_NDK_DISPATCH { WskOpenNdkAdapter: None, WskCloseNdkAdapter: None };
        let len = size_of_val(&functions);
        let (place, none) = ((&raw mut functions).cast(), null_mut());
        let mut told = 0;
        // SAFETY: the client of the captured provider; the place has this length.
        unsafe { control(provider.Client, code, 0, none, len, place, &mut told, none) }.ok()?;
        let WSK_PROVIDER_NDK_DISPATCH { WskOpenNdkAdapter, WskCloseNdkAdapter } = functions;
        match (WskOpenNdkAdapter, WskCloseNdkAdapter) {
            (Some(open), Some(close)) => Ok(Self { client: provider.Client, open, close }),
            _ => Err(STATUS_NOT_SUPPORTED),
        }
    }

    /// Opens the adapter of an interface. PASSIVE_LEVEL.
    ///
    /// # Errors
    /// That of the provider or of Winsock Kernel.
    pub(crate) fn open(&self, index: u32) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let version = NDK_VERSION { Major: 2, Minor: 0 };
        let (open, mut adapter) = (self.open, null_mut());
        // SAFETY: the client is registered, and the place is ours.
        unsafe { open(self.client, version, index, &mut adapter) }.ok()?;
        Ok(adapter)
    }

    /// Closes an adapter, whose objects are closed. PASSIVE_LEVEL.
    pub(crate) fn close(&self, adapter: *mut NDK_ADAPTER) {
        let close = self.close;
        // SAFETY: from `open`; the flight has ended.
        unsafe { close(self.client, adapter) };
    }

    /// PASSIVE_LEVEL, when no adapter is open.
    pub(crate) fn deregister(self) {
        let registration = REGISTRATION.0.get().cast();
        // SAFETY: captured by `register`.
        unsafe { WskReleaseProviderNPI(registration) };
        // SAFETY: registered there.
        unsafe { WskDeregister(registration) };
    }
}
