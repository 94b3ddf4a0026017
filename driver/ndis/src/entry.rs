//! Load and unload.
#![allow(unsafe_code, reason = "calls NDIS, which calls back")]

use crate::SERVICE;
use crate::abi::imports::{
    NdisDeregisterProtocolDriver, NdisGetVersion, NdisMDeregisterMiniportDriver,
    NdisMRegisterMiniportDriver, NdisRegisterProtocolDriver, NdisSetOptionalHandlers,
};
use crate::abi::*;
use crate::counters;
use crate::log::report;
use crate::lower::protocol;
use crate::os::breadcrumb::Breadcrumb;
use crate::os::sync::Turn;
use crate::os::text::{counted, utf16};
use crate::os::{etw, pool, reserve};
use crate::pairing::{DRIVER, Threads};
use crate::problems::Problem;
use crate::stage::Stage;
use crate::upper::config::text_of;
use crate::upper::{miniport, ndk};
use alloc::sync::Arc;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

/// The version that both halves register at.
struct Version {
    minor: u8,
    miniport_revision: u8,
    miniport_size: usize,
}

impl Version {
    /// The newest version that the system and this driver know, but not 6.89 and later: there a protocol
    /// gets merged UDP datagrams, whose ICRC cannot be checked, unless it refuses them.
    const fn choose(system: u32) -> Option<Self> {
        let (major, minor) = (system >> 16, system & 0xffff);
        let (minor, miniport_revision, miniport_size) = match (major, minor) {
            (6, 60..80) => (60, 2, NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2),
            (6, 80..85) => (80, 3, NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3),
            (6, 85..) | (7.., _) => (85, 3, NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3),
            _ => return None,
        };
        Some(Self { minor, miniport_revision, miniport_size })
    }
}

/// The entry of the image. PASSIVE_LEVEL.
///
/// # Safety
/// Called once by the system, with its driver object and the path of the service's key.
#[unsafe(export_name = "DriverEntry")]
pub(crate) unsafe extern "system" fn driver_entry(
    driver: *mut DRIVER_OBJECT,
    registry_path: *mut UNICODE_STRING,
) -> NTSTATUS {
    pool::init();
    DRIVER.object.store(driver.cast(), Ordering::Release);
    let loaded = load(driver, registry_path).inspect_err(|status| {
        report(0, Problem::LoadFailed, status.0.cast_unsigned(), 0);
        DRIVER.reach(Stage::NotLoaded);
        let_go();
    });
    loaded.into()
}

fn load(driver: *mut DRIVER_OBJECT, registry_path: *mut UNICODE_STRING) -> Result<(), NTSTATUS> {
    let standing = reserve::standing()?;
    *DRIVER.reserve.lock() = Some(standing);
    open_breadcrumb(registry_path);
    DRIVER.reach(Stage::Loading);
    if !cpu_is_able() {
        return Err(STATUS_NOT_SUPPORTED);
    }
    let turn = Arc::new(Turn::new());
    *DRIVER.turn.lock() = Some(turn);
    let threads = Threads::start()?;
    *DRIVER.threads.lock() = Some(threads);
    // SAFETY: no condition.
    let system = unsafe { NdisGetVersion() };
    etw::start(system);
    let version = Version::choose(system).ok_or(NDIS_STATUS_BAD_VERSION)?;
    register_miniport(driver, registry_path, &version)?;
    // Every protocol handler may be called before this returns, so everything is ready by then.
    register_protocol(&version).inspect_err(|_| deregister_miniport())?;
    counters::register();
    DRIVER.reach(Stage::Loaded);
    Ok(())
}

// The parts of a load have a stack each, one after the other: a kernel's is small.

#[inline(never)]
fn open_breadcrumb(registry_path: *mut UNICODE_STRING) {
    // SAFETY: the system's path of the service's key, valid while the driver loads.
    let path = unsafe { &*registry_path };
    // SAFETY: as above.
    let breadcrumb = Breadcrumb::open(unsafe { text_of(path) });
    *DRIVER.breadcrumb.lock() = Some(Arc::new(breadcrumb));
}

#[inline(never)]
fn register_miniport(
    driver: *mut DRIVER_OBJECT,
    registry_path: *mut UNICODE_STRING,
    version: &Version,
) -> Result<(), NTSTATUS> {
    let kind = NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS;
    let mut characteristics = NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
        Header: header(kind, version.miniport_revision, version.miniport_size),
        MajorNdisVersion: 6,
        MinorNdisVersion: version.minor,
        MajorDriverVersion: 1,
        MinorDriverVersion: 0,
        Flags: 0,
        SetOptionsHandler: Some(set_options),
        InitializeHandlerEx: Some(miniport::initialize),
        HaltHandlerEx: Some(miniport::halt),
        UnloadHandler: Some(unload),
        PauseHandler: Some(miniport::pause),
        RestartHandler: Some(miniport::restart),
        OidRequestHandler: Some(miniport::oid_request),
        SendNetBufferListsHandler: Some(miniport::send_net_buffer_lists),
        ReturnNetBufferListsHandler: Some(miniport::return_net_buffer_lists),
        CancelSendHandler: Some(miniport::cancel_send),
        CheckForHangHandlerEx: null_mut(),
        ResetHandlerEx: null_mut(),
        DevicePnPEventNotifyHandler: Some(miniport::device_pnp_event_notify),
        ShutdownHandlerEx: Some(miniport::shutdown),
        CancelOidRequestHandler: Some(miniport::cancel_oid_request),
        DirectOidRequestHandler: Some(miniport::direct_oid_request),
        CancelDirectOidRequestHandler: Some(miniport::cancel_oid_request),
        SynchronousOidRequestHandler: None,
    };
    let mut handle = null_mut();
    // SAFETY: the structures live during the call; the handlers as long as the image.
    let status = unsafe {
        NdisMRegisterMiniportDriver(
            driver,
            registry_path,
            null_mut(),
            &mut characteristics,
            &mut handle,
        )
    };
    status.ok()?;
    DRIVER.miniport.store(handle, Ordering::Release);
    Ok(())
}

/// `MiniportSetOptions`: offers NDK. PASSIVE_LEVEL, inside the registration of the miniport.
///
/// # Safety
/// Called by NDIS with the handle of this driver.
unsafe extern "system" fn set_options(driver: NDIS_HANDLE, _context: NDIS_HANDLE) -> NDIS_STATUS {
    let mut handlers = NDIS_NDK_PROVIDER_CHARACTERISTICS {
        Header: header(
            NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS,
            NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
            size_of::<NDIS_NDK_PROVIDER_CHARACTERISTICS>(),
        ),
        Flags: 0,
        OpenNDKAdapterHandler: ndk::open_ndk_adapter,
        CloseNDKAdapterHandler: ndk::close_ndk_adapter,
    };
    // SAFETY: the structure lives during the call and begins with its header.
    unsafe { NdisSetOptionalHandlers(driver, (&raw mut handlers).cast()) }
}

#[inline(never)]
fn register_protocol(version: &Version) -> Result<(), NTSTATUS> {
    let kind = NDIS_OBJECT_TYPE_PROTOCOL_DRIVER_CHARACTERISTICS;
    let mut characteristics = NDIS_PROTOCOL_DRIVER_CHARACTERISTICS {
        Header: header(kind, 2, size_of::<NDIS_PROTOCOL_DRIVER_CHARACTERISTICS>()),
        MajorNdisVersion: 6,
        MinorNdisVersion: version.minor,
        MajorDriverVersion: 1,
        MinorDriverVersion: 0,
        Flags: 0,
        Name: counted(&PROTOCOL_NAME),
        SetOptionsHandler: None,
        BindAdapterHandlerEx: Some(protocol::bind_adapter),
        UnbindAdapterHandlerEx: Some(protocol::unbind_adapter),
        OpenAdapterCompleteHandlerEx: Some(protocol::open_adapter_complete),
        CloseAdapterCompleteHandlerEx: Some(protocol::close_adapter_complete),
        NetPnPEventHandler: Some(protocol::net_pnp_event),
        UninstallHandler: null_mut(),
        OidRequestCompleteHandler: Some(protocol::oid_request_complete),
        StatusHandlerEx: Some(protocol::status),
        ReceiveNetBufferListsHandler: Some(protocol::receive_net_buffer_lists),
        SendNetBufferListsCompleteHandler: Some(protocol::send_net_buffer_lists_complete),
        DirectOidRequestCompleteHandler: None,
    };
    // NDIS stores the handle before it calls a handler that needs it.
    let place = DRIVER.protocol.as_ptr();
    // SAFETY: the structures live during the call; the handlers and the place as long as the image.
    unsafe { NdisRegisterProtocolDriver(null_mut(), &mut characteristics, place) }.ok()
}

/// `MiniportDriverUnload`: deregisters the protocol first, which waits for its unbinds. PASSIVE_LEVEL.
///
/// # Safety
/// Called once by NDIS, when no adapter is left.
unsafe extern "system" fn unload(_driver: *mut DRIVER_OBJECT) {
    DRIVER.reach(Stage::Unloading);
    counters::unregister();
    // One of them may use the protocol.
    end_threads();
    let protocol = DRIVER.protocol.swap(null_mut(), Ordering::AcqRel);
    if !protocol.is_null() {
        // SAFETY: registered, and not deregistered yet.
        unsafe { NdisDeregisterProtocolDriver(protocol) };
    }
    deregister_miniport();
    DRIVER.reach(Stage::Unloaded);
    let_go();
}

/// Drops the objects that exist from load to unload.
#[inline(never)]
fn let_go() {
    end_threads();
    etw::stop();
    // Dropped here, not under the locks.
    let turn = DRIVER.turn.lock().take();
    drop(turn);
    let breadcrumb = DRIVER.breadcrumb.lock().take();
    drop(breadcrumb);
    let standing = DRIVER.reserve.lock().take();
    drop(standing);
}

/// Waits for the threads' last jobs. PASSIVE_LEVEL.
fn end_threads() {
    // Dropped here, not under the lock.
    let threads = DRIVER.threads.lock().take();
    drop(threads);
}

fn deregister_miniport() {
    let miniport = DRIVER.miniport.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: registered, and not deregistered yet.
    unsafe { NdisMDeregisterMiniportDriver(miniport) };
    DRIVER.forget_all();
}

/// Whether the processor has every instruction that this image was compiled for.
fn cpu_is_able() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let needed = u32::from(cfg!(target_feature = "pclmulqdq")) << 1
            | u32::from(cfg!(target_feature = "ssse3")) << 9
            | u32::from(cfg!(target_feature = "sse4.1")) << 19;
        core::arch::x86_64::__cpuid(1).ecx & needed == needed
    }
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// The service's name, as NDIS demands.
static PROTOCOL_NAME: [u16; SERVICE.len()] = utf16(SERVICE);
